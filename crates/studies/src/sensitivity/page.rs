//! The page that shows the table.

use super::table::{
    BEYOND, Change, NOISE_SHARE, NOISE_STEP, Sensitivity, SensitivityTable, number_of,
};

/// The page with placeholders for the measured parts.
const TEMPLATE: &str = include_str!("page.md");

impl SensitivityTable {
    /// The table as a page in Markdown, next to a file `sensitivity.csv`.
    pub fn page(&self) -> String {
        let mut cells: Vec<String> = Vec::new();
        for figure in &self.defaults {
            let (cell, metric) = figure.name.rsplit_once(' ').unwrap_or_default();
            match cells.last_mut() {
                Some(last) if last.starts_with(&format!("- `{cell}`")) => {
                    *last += &format!(", `{metric}`")
                }
                _ => cells.push(format!("- `{cell}`: `{metric}`")),
            }
        }
        TEMPLATE
            .replace("{commit}", self.commit)
            .replace("{cells}", &cells.len().to_string())
            .replace("{seeds}", &self.seeds.to_string())
            .replace("{state}", &self.state())
            .replace("{beyond}", &BEYOND.to_string())
            .replace("{noise_share}", &format!("{} %", NOISE_SHARE * 100.0))
            .replace("{noise_step}", &NOISE_STEP.to_string())
            .replace("{cases}", &cells.join("\n"))
            .replace("{groups}", &self.groups())
    }

    /// The number of runs measured, and the number of sensitive numbers.
    fn state(&self) -> String {
        let [runs, wanted] = [|it: &Sensitivity| it.runs, |it: &Sensitivity| it.wanted]
            .map(|count| self.numbers.iter().map(count).sum::<usize>());
        let numbers = self.numbers.chunks(2);
        let count =
            |is: &dyn Fn(&[Sensitivity]) -> bool| numbers.clone().filter(|it| is(it)).count();
        let is_begun = |both: &[Sensitivity]| both.iter().any(|it| it.runs > 0);
        let measured = count(&|both| is_begun(both) && both.iter().all(|it| it.runs == it.wanted));
        let begun = count(&is_begun);
        let beyond = count(&|both| both.iter().any(Sensitivity::is_beyond_noise));
        format!(
            "{runs} of {wanted} runs are measured: {measured} of {} numbers in all runs, {} in some and {} in none. {beyond} \
             numbers change a figure by more than noise.",
            numbers.len(),
            begun - measured,
            numbers.len() - begun
        )
    }

    /// A table for each group of numbers.
    fn groups(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for both in self.numbers.chunks(2) {
            let [first, ..] = both else { continue };
            if first.group != last {
                last = first.group;
                text += &format!(
                    "## {last}\n\n| number | default | half | double |\n|---|---|---|---|\n"
                );
            }
            let cell = |change| both.iter().find(|it| it.change == change).map_or("".into(), cell);
            let [half, double] = [Change::Half, Change::Double].map(cell);
            text += &format!("| `{}` | {} | {half} | {double} |\n", first.number, first.default);
            let is_last = both.as_ptr_range().end == self.numbers.as_ptr_range().end;
            let next = self.numbers.iter().skip_while(|it| it.number != first.number).nth(2);
            if is_last || next.is_some_and(|next| next.group != last) {
                text.push('\n');
            }
        }
        text
    }
}

/// The effect of a number at one value, in few words.
fn cell(it: &Sensitivity) -> String {
    let clamped = if it.clamped { " (clamped)" } else { "" };
    let part = if it.runs < it.wanted {
        format!("; {} of {} runs", it.runs, it.wanted)
    } else {
        String::new()
    };
    if let Some((name, presence)) = it.presences.first_key_value().filter(|_| it.failed == 0) {
        return format!("{}{clamped}: **{}** `{name}`{part}", it.value, presence.name());
    }
    let told = match it.largest() {
        _ if it.refused.is_some() => return format!("{}: not possible: out of range", it.value),
        _ if it.runs == 0 => return format!("{}{clamped}: not measured", it.value),
        _ if it.failed > 0 => format!("**{} runs failed**", it.failed),
        _ if it.same == it.runs => "same".into(),
        Some((name, change)) if it.is_beyond_noise() => {
            format!("**{}** `{name}`", number_of(change))
        }
        Some((_, change)) => number_of(change),
        None => "not measured".into(),
    };
    format!("{}{clamped}: {told}{part}", it.value)
}
