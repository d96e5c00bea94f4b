//! Published findings: a table, the page that shows it, and their plans.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::compare::ComparedCase;
use super::{Found, SearchRequest};
use forebay_lab::metrics::statistics::Sorted;
use forebay_lab::output::number;

/// Columns of `search.csv`. Figures have the metric's unit.
const COLUMNS: &str = "plan,metric,linux,plain_worst,case_least,case_median,\
                       simulated_plain_worst,simulated_case_median,case";
/// The page; `{rows}` is the table's content.
const PAGE: &str = include_str!("findings.md");

/// Adds the finding of a search to `search.csv`, `search.md` and the folder `search` in `docs`; `linux`: the
/// kernel's release. It replaces an earlier finding with the same name. Nothing is written if there is no finding.
///
/// # Errors A file cannot be read or written.
pub fn publish(
    docs: &Path,
    request: &SearchRequest,
    found: &Found,
    linux: &str,
) -> io::Result<bool> {
    let Some(row) = row(request, found, linux) else { return Ok(false) };
    let table = docs.join("search.csv");
    let before = match fs::read_to_string(&table) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        before => before.unwrap_or_default(),
    };
    let own = format!("{},", request.name());
    let kept = before.lines().skip(1).filter(|line| !line.starts_with(&own));
    let mut rows: Vec<&str> = kept.chain([row.as_str()]).collect();
    rows.sort_unstable();
    let text = [COLUMNS].into_iter().chain(rows).fold(String::new(), |text, row| text + row + "\n");
    let plans = docs.join("search");
    fs::create_dir_all(&plans)?;
    // The plan may already be there.
    let plan = fs::read(&found.plan)?;
    fs::write(plans.join(format!("{}.toml", request.name())), plan)?;
    fs::write(&table, &text)?;
    fs::write(docs.join("search.md"), page(&text))?;
    Ok(true)
}

/// The row of a finding; `None`: the search has none.
fn row(request: &SearchRequest, found: &Found, linux: &str) -> Option<String> {
    let comparison = found.comparison.as_ref().filter(|it| it.is_finding)?;
    let objective = request.objective;
    let case = &comparison.case;
    let least = case.runs.iter().copied().min_by(|one, other| objective.compare(*one, *other))?;
    let median = |runs: &[f64]| Sorted::new(runs.iter().copied()).quantile(0.5);
    let figures = [
        comparison.worst_plain(objective, |it: &ComparedCase| &it.runs),
        Some(least),
        median(&case.runs),
        comparison.worst_plain(objective, |it: &ComparedCase| &it.simulated),
        median(&case.simulated),
    ];
    let figures = figures.map(|it| it.map_or(String::new(), |it| it.to_string())).join(",");
    let words = case.case.words();
    Some(format!("{},{},{linux},{figures},\"{words}\"", request.name(), objective.heading()))
}

/// The page of a table with the content of `search.csv`.
pub fn page(table: &str) -> String {
    let count = COLUMNS.split(',').count();
    let mut rows = String::new();
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.splitn(count, ',').collect();
        let [plan, metric, linux, figures @ .., case] = &columns[..] else { continue };
        let figures = figures.iter().map(|it| it.parse().map_or("-".into(), number));
        let figures = figures.collect::<Vec<String>>().join(" | ");
        let case = case.trim_matches('"');
        let _ = writeln!(rows, "| `{plan}` | {metric} | {linux} | {figures} | {case} |");
    }
    PAGE.replace("{rows}\n", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_page_shows_published_table() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence");
        let table = fs::read_to_string(docs.join("search.csv")).unwrap();
        assert_eq!(table.lines().next(), Some(COLUMNS));
        assert_eq!(fs::read_to_string(docs.join("search.md")).unwrap(), page(&table));
        for name in table.lines().skip(1).filter_map(|line| line.split(',').next()) {
            let plan = docs.join("search").join(format!("{name}.toml"));
            let plan = forebay_lab::plan::Plan::load(plan.to_str().unwrap(), &[]).unwrap();
            let sim = forebay_lab::Options { backend: "sim".into(), ..Default::default() };
            forebay_lab::check(&plan, &sim).unwrap();
        }
    }

    #[test]
    fn row_becomes_line_of_page() {
        let row = "kernel-bbr-stall,stall (s),6.18.1,0.1,0.4,0.5,0.2,,\"5 Mbit/s, 20 ms, 1 BDP\"";
        let page = page(&format!("{COLUMNS}\n{row}\n"));
        let expected = "| `kernel-bbr-stall` | stall (s) | 6.18.1 | 0.100 | 0.400 | 0.500 | 0.200 | - | \
                        5 Mbit/s, 20 ms, 1 BDP |\n";
        assert!(page.contains(expected), "{page}");
    }
}
