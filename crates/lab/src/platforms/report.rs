//! `report.html` of a measurement.

use std::path::{Path, PathBuf};

use super::What;
use super::figures::Findings;
use super::platform::Platform;
use super::runs::name;
use super::scores::{Metric, Scores};
use super::tables;
use crate::judge::table;
use crate::report::figure::{Axis, NamedCurve, boxes, curves};
use crate::report::page::{Block, Chart, Page, PageSection, PageTable};
use crate::report::put;
use crate::summary::ArmSummary;

/// Writes the report into `folder`; answers its path.
///
/// # Errors
/// The file cannot be written.
pub fn write(findings: &Findings, metric: Metric, folder: &Path) -> anyhow::Result<PathBuf> {
    put(folder, &page(findings, metric).render())
}

fn page(findings: &Findings, metric: Metric) -> Page {
    let start = &findings.start;
    let lead = format!(
        "Built from {}, Linux {}, {}; everything ran on processor {}: both ends of the traffic, the \
         agent and the counting process, over a veth pair with an MTU of 1500. A trial \
         measures {} s after {} s of traffic. The trials of a block take turns of {} s in random \
         order, those of many connections follow each other, and every ratio is of two trials of one block.",
        start.commit,
        start.kernel,
        start.processor,
        start.cpu,
        start.duration_ns as f64 / 1e9,
        start.warm_up_ns as f64 / 1e9,
        start.slice_ns as f64 / 1e9,
    );
    let mut sections: Vec<PageSection> =
        findings.scores.iter().map(|scores| of_scores(scores, metric)).collect();
    sections.extend(of_programs(findings));
    sections.extend(of_latencies(findings));
    sections.extend(of_scaling(findings));
    sections.extend(What::ALL.into_iter().filter_map(|what| of_claims(findings, what)));
    Page { title: format!("forebay: {} on every platform", start.algorithm), lead, sections }
}

fn block((columns, rows): table::PlainTable, caption: &str) -> Option<Block> {
    let caption = caption.into();
    (!rows.is_empty()).then_some(Block::Table(PageTable { columns, rows, caption }))
}

fn of_scores(scores: &Scores, metric: Metric) -> PageSection {
    let mut blocks = vec![Block::Text(tables::setting(scores))];
    let values: Vec<(String, f64)> = scores
        .platforms
        .iter()
        .flat_map(|score| {
            let title = score.platform.title().to_string();
            score.ratios(metric).iter().map(move |ratio| (title.clone(), *ratio))
        })
        .collect();
    let order: Vec<String> =
        scores.platforms.iter().map(|score| score.platform.title().into()).collect();
    let caption = "One point of a box is a pair of trials of one block. The slowed agent is beside the \
                   agent per round, all others beside the kernel's own; what the kernel differs from \
                   itself is chance. Boxes hold half of the pairs, whiskers reach 1.5 times as far.";
    blocks.push(Block::Figure(Chart {
        caption: caption.into(),
        spec: boxes(&values, &order, Axis::linear(metric.title()), 1.0),
    }));
    let all = "Medians of the pairs with their 95 % intervals; means over the trials of the platform \
               beside them.";
    blocks.extend(block(tables::scores(scores), all));
    let rejected = "A pair counts only if bytes and acknowledgements a second differ by at most 1 %, \
                    where the rate is fixed, and if neither the hypervisor nor others took the processor away. It counts as 0 where \
                    an agent fell back, lost a report or decided too late, or the one per ACK was not told \
                    of every one: that is cheaper, and no work.";
    blocks.extend(block(tables::rejected(scores), rejected));
    PageSection { heading: format!("CPU, {}", scores.setting.title()), blocks }
}

/// The judged claims about a part.
fn of_claims(findings: &Findings, what: What) -> Option<PageSection> {
    let caption = match what {
        What::Cpu => {
            "A claim is met if the median of the pairs meets its bound, and failed if the 95 % bootstrap \
             interval of the median lies wholly outside; nothing is said of fewer than 20 pairs, nor where the \
             slowed agent is not told apart or the kernel's own takes another share (void). Trials go on until the \
             interval lies on one side, and it is looked at after every --trials blocks. An acknowledgement over the \
             empty program: the same of the blocks, with two segments a piece, warm: many thousand \
             acknowledgements a second, and nothing else that needs the caches. The study behind the measure has \
             about 0.98 for native eBPF, 0.91 for CCP and 0.80 for eBPFCCP."
        }
        What::Latency => "The median of the trials is judged.",
        What::Scale => "The worst trial is judged.",
    };
    let blocks = vec![block(table::of_claims(findings.claims_of(what)), caption)?];
    Some(PageSection { heading: format!("Claims of {}", what.part()), blocks })
}

fn of_programs(findings: &Findings) -> Option<PageSection> {
    let caption = "Medians over the trials, taken by the kernel, whose taking the time costs as much as \
                   the empty program shows: the difference is what the program costs.";
    let all = "Programs that are not above have no share in the cost of an acknowledgement.";
    let mut blocks = vec![block(tables::programs(findings), caption)?];
    blocks.extend(block(tables::instructions(findings), all));
    Some(PageSection { heading: "Time of each BPF program".into(), blocks })
}

fn of_latencies(findings: &Findings) -> Option<PageSection> {
    let caption = "From the kernel's time of the acknowledgement that closed a report to the decision \
                   in the shared memory, medians over the trials. It includes the time that the agent \
                   sleeps on purpose.";
    let blocks = vec![block(tables::latencies(findings), caption)?];
    Some(PageSection { heading: "From report to decision".into(), blocks })
}

fn of_scaling(findings: &Findings) -> Option<PageSection> {
    let caption = "Connections that send as fast as they can, all on the one processor with the \
                   counting process. Reports that were lost must be none, and the agent at 10 ms must \
                   use less than 10 % of a core with 1000 connections.";
    let table = block(tables::scaling(findings), caption)?;
    let connections = |arm: &ArmSummary| arm.cell.split_once('=')?.1.parse().ok();
    let point =
        |arm: &ArmSummary| Some((connections(arm)?, tables::shown(arm, "acked_mbps")? / 1e3));
    let series = Platform::SCALED.map(|platform| {
        let rows = findings.scaling.iter().filter(|row| row.arm == name(platform));
        NamedCurve::new(platform.title(), rows.filter_map(point).collect())
    });
    let order = Platform::SCALED.map(|platform| platform.title().to_string());
    let (x, y) = (Axis::log("connections"), Axis::linear("goodput (Gbit/s)"));
    let spec = curves(&series, &order, x, y, false);
    let figure = Chart { caption: "Goodput of all connections together.".into(), spec };
    let blocks = vec![table, Block::Figure(figure)];
    Some(PageSection { heading: "From one to a thousand connections".into(), blocks })
}

#[cfg(test)]
mod tests {
    use super::super::tables::tests::findings;
    use super::*;

    #[test]
    fn the_report_has_a_section_for_all_that_was_measured_and_none_for_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&findings(), Metric::Score, folder.path()).unwrap();
        let html = std::fs::read_to_string(path).unwrap();
        for part in [
            "forebay: cubic on every platform",
            "abc123",
            "CPU, GSO of 2 segments",
            "0.987 [0.981, 0.993]",
            "From one to a thousand connections",
            "boxplot",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("<h2>From report to decision"));
        assert_eq!(html.matches("data-figure=").count(), 2);
    }
}
