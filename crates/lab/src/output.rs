//! Results for programs (`--json`) and for people at a terminal.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::metrics::{OF_CURVES, Part, heading};
use crate::store::Run;
use crate::summary::{ArmSummary, Spread};

impl Serialize for Run {
    /// Wall-clock figures are in `host` and nowhere else.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut host = self.host.clone();
        host["attempt"] = json!(self.attempt);
        host["invalid_because"] = json!(self.invalid);
        let flows = self.flows.iter().map(|flow| {
            let kind = self.flow_kinds.get(&flow.name);
            json!({
                "name": flow.name,
                "cc": kind.map(|(cc, _)| cc),
                "bundle": kind.and_then(|(_, bundle)| bundle.as_ref()),
                "metrics": flow.metrics,
            })
        });
        let document = json!({
            "plan": self.key.plan,
            "arm": self.key.arm,
            "cell": self.key.cell,
            "seed": self.key.seed,
            "backend": self.key.backend,
            "sources": self.key.sources,
            "commit": self.commit,
            "valid": self.is_valid(),
            "metrics": self.metrics,
            "flows": flows.collect::<Vec<_>>(),
            "links": self.links,
            "bundles": self.bundles,
            "host": host,
        });
        document.serialize(serializer)
    }
}

/// A column of a summary table: title with unit, and how to find its number.
pub type Column = (&'static str, fn(&ArmSummary) -> Option<f64>);

/// Columns of a summary of arms; those without a number in any arm are left out.
pub static COLUMNS: [Column; 31] = [
    ("slowdown p50", |arm| arm.metrics.get("slowdown_p50")),
    ("geometric mean", |arm| arm.metrics.get("slowdown_geomean")),
    ("above 1.3", |arm| arm.metrics.get("slowdown_above_1_3")),
    ("slowdown p99", |arm| arm.metrics.get("slowdown_p99")),
    ("completion p50 (ms)", |arm| arm.metrics.get("fct_p50_ms")),
    ("completion p99 (ms)", |arm| arm.metrics.get("fct_p99_ms")),
    ("unfinished", |arm| arm.metrics.get("requests_unfinished")),
    ("ping p50 (ms)", |arm| arm.metrics.get("rtt_p50_ms")),
    ("video (Mbit/s)", |arm| arm.metrics.get("video_rate_mbps")),
    ("rebuffering (s)", |arm| arm.metrics.get("video_rebuffering_s")),
    ("frame delay p95 (ms)", |arm| arm.metrics.get("media_delay_p95_ms")),
    ("late frames", |arm| arm.metrics.get("media_late_share")),
    ("goodput (Mbit/s)", |arm| arm.metrics.get("goodput_mbps")),
    ("bottleneck queue (packets)", |arm| arm.link("forward", "queue_mean_packets")),
    ("sendbox queue (packets)", |arm| arm.bundles("queue_mean_packets")),
    ("drops", |arm| arm.link("forward", "drops_queue_packets")),
    ("gap closed", |arm| {
        arm.metrics.get("gap_closed").filter(|_| !arm.is_baseline && !arm.is_ideal)
    }),
    ("CPU score", |arm| median(arm, "cpu_score")),
    ("CPU s/GB ratio", |arm| median(arm, "cpu_ratio")),
    ("CPU s/GB", |arm| median(arm, "cpu_s_per_gb")),
    ("share of processor", |arm| median(arm, "processor_share")),
    ("acked (Mbit/s)", |arm| median(arm, "acked_mbps")),
    ("ACK/s", |arm| median(arm, "acks_per_s")),
    ("resent", |arm| arm.metrics.get("resent_segments")),
    ("agent (% of a core)", |arm| arm.metrics.get("agent_core_percent")),
    ("reports/s", |arm| median(arm, "reports_per_s")),
    ("reports lost", |arm| arm.metrics.get("reports_lost")),
    ("fallbacks", |arm| arm.metrics.get("fallbacks")),
    ("decision p50 (us)", |arm| median(arm, "decision_p50_us")),
    ("decision p99 (us)", |arm| median(arm, "decision_p99_us")),
    ("ACK over empty (ns)", |arm| median(arm, "ack_over_empty_ns")),
];

/// Median over the runs: a trial on a busy machine would move a mean.
fn median(arm: &ArmSummary, metric: &str) -> Option<f64> {
    arm.spread(metric).map(|spread| spread.median)
}

/// The summary of each cell of a plan as tables.
pub fn text(summaries: &[ArmSummary]) -> String {
    let mut text = String::new();
    let mut rest: Vec<&ArmSummary> = summaries.iter().collect();
    while let Some(ArmSummary { plan, cell, .. }) = rest.first() {
        let (group, left): (Vec<_>, Vec<_>) =
            rest.iter().partition(|arm| (&arm.plan, &arm.cell) == (plan, cell));
        text += &format!("{plan} {cell}\n");
        let named = group.iter().map(|arm: &&ArmSummary| (arm.arm.clone(), *arm));
        let others = figures(&group).into_iter().chain(curves(&group)).chain(programs(named));
        for (titles, rows) in [table(&group)].into_iter().chain(others) {
            text += &format!("{}\n", text_table(&titles, &rows));
        }
        rest = left;
    }
    text
}

/// Titles and cells of the summary table of some arms.
pub fn table(arms: &[&ArmSummary]) -> (Vec<String>, Vec<Vec<String>>) {
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|(_, value)| arms.iter().any(|arm| value(arm).is_some())).collect();
    let several = arms.iter().any(|arm| arm.backend != arms[0].backend);
    let mut titles = vec!["arm".to_string(), "runs".to_string()];
    titles.extend(columns.iter().map(|(title, _)| title.to_string()));
    let row = |arm: &&ArmSummary| {
        let mut row = vec![side(&arm.arm, &arm.backend, several), arm.runs.to_string()];
        row.extend(columns.iter().map(|(_, value)| cell(value(arm))));
        row
    };
    (titles, arms.iter().map(row).collect())
}

/// ccperf's figures in the order of its pages.
const FIGURES: [&str; 22] = [
    "mean_cwnd_l4",
    "mean_in_flight_l4",
    "cov_in_flight_l4",
    "mean_sending_rate_l4",
    "mean_sending_rate_l7",
    "mean_throughput_l4",
    "cov_throughput_l4",
    "mean_delivery_rate_l4",
    "mean_throughput_l7",
    "mean_srtt_l4",
    "mean_est_qdelay_l4",
    "mean_one_way_delay_l7",
    "mean_idt_ewma_l4",
    "mean_recovery_time_l4",
    "mean_network_power_l4",
    "mean_utility_pf_l4",
    "mean_utility_mpdf_l4",
    "mean_utilization_bw_l4",
    "mean_utilization_bdp_l4",
    "flow_completion_time_l4",
    "total_retransmissions_l4",
    "total_rtos_l4",
];
/// Figures of the bottleneck that every run prints.
const LINK_FIGURES: [&str; 6] = [
    "mean_qdisc_length_l2",
    "mean_qdisc_delay_l2",
    "sojourn_mean_ms",
    "mean_sending_rate_l1",
    "utilisation",
    "total_qdisc_drops_l2",
];

/// Figures of connections and their bottleneck, arm by arm: the median of the seeds and, in parentheses, the
/// least and the greatest. `None` if no sender was sampled.
pub fn figures(arms: &[&ArmSummary]) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let flows = arms.first()?.flows.iter().map(|flow| format!("flow {}", flow.name));
    let of_flows = flows.flat_map(|flow| FIGURES.map(|metric| (flow.clone(), metric)));
    let of_link = LINK_FIGURES.map(|metric| ("link forward".to_string(), metric));
    let mut rows = Vec::new();
    for (part, metric) in of_flows.chain(of_link) {
        let spreads = arms.iter().map(|arm| arm.spread(&format!("{part} {metric}")));
        let spreads: Vec<Option<Spread>> = spreads.collect();
        if spreads.iter().any(Option::is_some) {
            let cells = spreads.into_iter().map(|spread| spread.map_or("-".into(), figure));
            rows.push([part, metric.to_string()].into_iter().chain(cells).collect());
        }
    }
    let several = arms.iter().any(|arm| arm.backend != arms[0].backend);
    let names = arms.iter().map(|arm| side(&arm.arm, &arm.backend, several));
    let titles = ["of", "figure"].map(str::to_string).into_iter().chain(names).collect();
    let is_told = |arm: &&ArmSummary| arm.by_seed.keys().any(|name| name.ends_with(FIGURES[0]));
    arms.iter().any(is_told).then_some((titles, rows))
}

/// How closely the flows of each arm follow the baseline's flows over time, over all seeds. `None` if the plan has no
/// `[curves]`.
fn curves(arms: &[&ArmSummary]) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let flows = || arms.iter().flat_map(|arm| arm.flows.iter().map(move |flow| (arm, flow)));
    let several = arms.iter().any(|arm| arm.backend != arms[0].backend);
    let of_curves = |flow: &Part| OF_CURVES.map(|metric| flow.metrics.get(metric));
    let compared = flows().filter(|(_, flow)| of_curves(flow).iter().any(Option::is_some));
    let row = |(arm, flow): (&&ArmSummary, &Part)| {
        let names = [side(&arm.arm, &arm.backend, several), format!("flow {}", flow.name)];
        names.into_iter().chain(of_curves(flow).map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = compared.map(row).collect();
    let titles = ["arm", "of"].map(String::from).into_iter().chain(OF_CURVES.map(heading));
    (!rows.is_empty()).then(|| (titles.collect(), rows))
}

/// The BPF programs of arms with their names: medians over the runs; `None` where no program was timed.
pub fn programs<'a>(
    arms: impl Iterator<Item = (String, &'a ArmSummary)>,
) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    const OF_PROGRAMS: [&str; 3] = ["program_calls_per_ack", "program_ns", "program_instructions"];
    let mut rows = Vec::new();
    for (name, arm) in arms {
        let instructions = arm.metrics.0.keys().filter_map(|it| it.strip_prefix(OF_PROGRAMS[2]));
        for program in instructions {
            let value = |metric| cell(median(arm, &format!("{metric}{program}")));
            let program = program.trim_matches(['[', ']']).to_string();
            rows.push([name.clone(), program].into_iter().chain(OF_PROGRAMS.map(value)).collect());
        }
    }
    let titles = ["arm", "program", "calls/ACK", "ns/call", "verified instructions"];
    (!rows.is_empty()).then(|| (titles.map(String::from).to_vec(), rows))
}

fn figure(spread: Spread) -> String {
    let Spread { least, median, greatest, .. } = spread;
    if least == greatest {
        return format!("{median:.2}");
    }
    format!("{median:.2} ({least:.2} to {greatest:.2})")
}

/// Name of an arm, with its back end where there are several.
pub fn side(arm: &str, backend: &str, several: bool) -> String {
    if several { format!("{arm} ({backend})") } else { arm.to_string() }
}

/// A number for people: three significant digits, whole above a thousand, `-` if unknown.
pub fn cell(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) => number(value),
    }
}

/// A difference for people: `+3.1 %`.
pub fn text_of_share(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// The size of a change in percent, for people: `41`, `2.1`, `0`.
pub fn percent(share: f64) -> String {
    let percent = (share * 100.0).abs();
    let text = if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") };
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}

/// A change in words: `falls by 2.1 %`.
pub fn change(share: f64) -> String {
    match percent(share).as_str() {
        "0" => "stays the same".into(),
        size if share < 0.0 => format!("falls by {size} %"),
        size => format!("rises by {size} %"),
    }
}

/// A number for people: three significant digits, whole from a hundred on.
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Longest line of a table, in characters.
const LINE_MAX: usize = 120;

/// A table as text with aligned columns; all but the first are right-aligned. Columns beyond 120 characters
/// follow in another table below, which repeats the columns that identify the rows.
pub fn text_table(titles: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(titles.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let part = |columns: &Vec<usize>| -> String {
        let line = |row: &[String]| {
            let cells = columns.iter().map(|&column| {
                let (cell, width) = (row.get(column).map_or("", String::as_str), widths[column]);
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
        };
        let body: String = rows.iter().map(|row| line(row)).collect();
        line(titles) + &line(&rule) + &body
    };
    columns_by_line(keys(rows), &widths).iter().map(part).collect::<Vec<_>>().join("\n")
}

/// How many of the first columns identify each row; one if all columns do not.
fn keys(rows: &[Vec<String>]) -> usize {
    let columns = rows.iter().map(Vec::len).min().unwrap_or(1);
    let tell_apart = |keys: &usize| {
        let mut seen = BTreeSet::new();
        rows.iter().all(|row| seen.insert(&row[..*keys]))
    };
    (1..columns).find(tell_apart).unwrap_or(1)
}

/// The columns of each table: the first `keys` columns, then as many as fit into a line, at least one.
fn columns_by_line(keys: usize, widths: &[usize]) -> Vec<Vec<usize>> {
    let keys: Vec<usize> = (0..keys.min(widths.len())).collect();
    let length =
        |columns: &[usize]| columns.iter().map(|&column| widths[column] + 2).sum::<usize>();
    let mut tables = vec![keys.clone()];
    for (column, width) in widths.iter().enumerate().skip(keys.len()) {
        let table = tables.last_mut().expect("there is one from the start");
        // No gap follows the last column.
        if table.len() == keys.len() || length(&table[..]) + width <= LINE_MAX {
            table.push(column);
        } else {
            tables.push([&keys[..], &[column]].concat());
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let numbers = [0.0, 0.12345, 1.2345, 12.345, 123.45, 30_000.4, 7.0].map(number);
        assert_eq!(numbers, ["0", "0.123", "1.23", "12.3", "123", "30000", "7"]);
        assert_eq!([0.4149, -0.0213, 0.02, 0.0001].map(percent), ["41", "2.1", "2", "0"]);
        let changes = [-0.4149, 0.0213, -0.0001].map(change);
        assert_eq!(changes, ["falls by 41 %", "rises by 2.1 %", "stays the same"]);
    }

    #[test]
    fn figures_of_connections_are_medians_with_their_range() {
        let part = Part { name: "bulk".into(), ..Part::default() };
        let mut arm = ArmSummary { arm: "one".into(), flows: vec![part], ..ArmSummary::default() };
        assert_eq!(figures(&[&arm]), None);
        arm.by_seed.insert("flow bulk mean_cwnd_l4".into(), vec![47.0, 46.5, 48.25]);
        arm.by_seed.insert("link forward total_qdisc_drops_l2".into(), vec![74.0; 3]);
        let (titles, rows) = figures(&[&arm]).unwrap();
        assert_eq!(titles, ["of", "figure", "one"]);
        assert_eq!(rows[0], ["flow bulk", "mean_cwnd_l4", "47.00 (46.50 to 48.25)"]);
        assert_eq!(rows[1], ["link forward", "total_qdisc_drops_l2", "74.00"]);
    }

    #[test]
    fn wide_table_wraps_and_repeats_key_columns() {
        let titles: Vec<String> =
            ["arm".into()].into_iter().chain((0..4).map(|i| format!("{i:-^50}"))).collect();
        let rows = vec![["a", "1", "2", "3", "4"].map(String::from).to_vec()];
        let text = text_table(&titles, &rows);
        assert!(text.lines().all(|line| line.len() <= LINE_MAX), "{text}");
        let tables: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(tables.len(), 2, "{text}");
        assert!(tables.iter().all(|table| table.starts_with("arm ") && table.contains("\na  ")));
        assert!(
            tables[0].trim_end().ends_with('2') && tables[1].trim_end().ends_with('4'),
            "{text}"
        );
        let rows = |names: [[&str; 3]; 2]| names.map(|row| row.map(String::from).to_vec()).to_vec();
        assert_eq!(keys(&rows([["a", "b", "1"], ["b", "b", "1"]])), 1);
        assert_eq!(keys(&rows([["a", "b", "1"], ["a", "c", "1"]])), 2);
        assert_eq!(keys(&rows([["a", "b", "1"], ["a", "b", "1"]])), 1);
        // With the gaps between them the first four fill a line.
        assert_eq!(columns_by_line(2, &[4, 36, 36, 38, 1]), [vec![0, 1, 2, 3], vec![0, 1, 4]]);
        assert_eq!(columns_by_line(1, &[200, 200]), [[0, 1]]);
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let mut arm = ArmSummary { arm: "copa_sfq".into(), runs: 2, ..ArmSummary::default() };
        arm.metrics.put("fct_p50_ms", Some(58.04));
        let (titles, rows) = table(&[&arm]);
        let text = text_table(&titles, &rows);
        assert_eq!(
            text,
            "arm       runs  completion p50 (ms)\n\
             --------  ----  -------------------\n\
             copa_sfq     2                 58.0\n"
        );
    }
}
