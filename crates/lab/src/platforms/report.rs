//! `report.html` of a measurement.

use std::path::{Path, PathBuf};

use super::PlatformsError;
use super::figures::Findings;
use super::platform::Platform;
use super::scores::{Metric, Scores};
use super::tables;
use crate::judge::table;
use crate::report::FILE;
use crate::report::figure::{Axis, Series, boxes, curves};
use crate::report::page::{Block, Figure, Page, Section, Table};

/// Writes the report into `folder`; answers its path.
pub fn write(
    findings: &Findings,
    metric: Metric,
    folder: &Path,
) -> Result<PathBuf, PlatformsError> {
    put(&page(findings, metric), folder, FILE)
}

/// Writes `page` to the file `name` of `folder`: a reader never sees half of it.
pub(super) fn put(page: &Page, folder: &Path, name: &str) -> Result<PathBuf, PlatformsError> {
    let path = folder.join(name);
    let failed = |source| PlatformsError::File { path: path.clone(), source };
    let partial = folder.join(format!("{name}.partial"));
    std::fs::write(&partial, page.render()).map_err(failed)?;
    std::fs::rename(&partial, &path).map_err(failed)?;
    Ok(path)
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
    let mut sections: Vec<Section> =
        findings.scores.iter().map(|scores| of_scores(scores, metric)).collect();
    sections.extend(of_programs(findings));
    sections.extend(of_latencies(findings));
    sections.extend(of_scaling(findings));
    Page { title: format!("forebay: {} on every platform", start.algorithm), lead, sections }
}

fn block((columns, rows): table::Table, caption: &str) -> Option<Block> {
    let caption = caption.into();
    (!rows.is_empty()).then_some(Block::Table(Table { columns, rows, caption }))
}

fn of_scores(scores: &Scores, metric: Metric) -> Section {
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
    blocks.push(Block::Figure(Figure {
        caption: caption.into(),
        spec: boxes(&values, &order, Axis::linear(metric.title()), 1.0),
    }));
    let claims = "A claim is met if the median of the pairs meets its bound, and failed if the 95 % bootstrap \
                  interval of the median lies wholly outside; nothing is said of fewer than 20 pairs, nor \
                  where no verdict counts (void). Trials go on until the interval lies on one side, and it is \
                  looked at after every --trials blocks. The latency is from the kernel's time of \
                  the oldest report that a decision answers to that decision in shared memory, in the \
                  scored trials. The study behind the measure has about 0.98 \
                  for native eBPF, 0.91 for CCP and 0.80 for eBPFCCP.";
    let all = "Medians of the pairs with their 95 % intervals; means over the trials of the platform \
               beside them.";
    blocks.extend(block(table::of_claims(&scores.claims), claims));
    blocks.extend(block(tables::scores(scores), all));
    let rejected = "A pair counts only if bytes and acknowledgements a second differ by at most 1 %, \
                    where the rate is fixed, and if neither the hypervisor nor others took the processor away. It counts as 0 where \
                    an agent fell back, lost a report or decided too late, or the one per ACK was not told \
                    of every one: that is cheaper, and no work.";
    blocks.extend(block(tables::rejected(scores), rejected));
    Section { heading: format!("CPU, {}", scores.setting.title()), blocks }
}

fn of_programs(findings: &Findings) -> Option<Section> {
    let caption = "Medians over the trials, taken by the kernel, whose taking the time costs as much as \
                   the empty program shows: the difference is what the program costs.";
    let all = "Programs that are not above have no share in the cost of an acknowledgement.";
    let mut blocks = vec![block(tables::programs(findings), caption)?];
    let claims = "What every acknowledgement meets, less the empty program in the same block of trials, \
                  with two segments a piece: the median over the blocks with its 95 % interval. Warm: \
                  many thousand acknowledgements a second, and nothing else that needs the caches. \
                  Without a slot the datapath measures and follows its own law; with one it looks for \
                  decisions and reports.";
    blocks.extend(block(table::of_claims(&findings.program_claims), claims));
    blocks.extend(block(tables::instructions(findings), all));
    Some(Section { heading: "Time of each BPF program".into(), blocks })
}

fn of_latencies(findings: &Findings) -> Option<Section> {
    let caption = "From the kernel's time of the acknowledgement that closed a report to the decision \
                   in the shared memory, medians over the trials. It includes the time that the agent \
                   sleeps on purpose.";
    let blocks = vec![block(tables::latencies(findings), caption)?];
    Some(Section { heading: "From report to decision".into(), blocks })
}

fn of_scaling(findings: &Findings) -> Option<Section> {
    let caption = "Connections that send as fast as they can, all on the one processor with the \
                   counting process. Reports that were lost must be none, and the agent at 10 ms must \
                   use less than 10 % of a core with 1000 connections.";
    let table = block(tables::scaling(findings), caption)?;
    let series = Platform::SCALED.map(|platform| {
        let rows = findings.scaling.iter().filter(|row| row.platform == platform);
        let points = rows.map(|row| (f64::from(row.flows), row.gbit_per_s)).collect();
        Series::new(platform.title(), points)
    });
    let order = Platform::SCALED.map(|platform| platform.title().to_string());
    let (x, y) = (Axis::log("connections"), Axis::linear("goodput (Gbit/s)"));
    let spec = curves(&series, &order, x, y, false);
    let figure = Figure { caption: "Goodput of all connections together.".into(), spec };
    let blocks = vec![table, Block::Figure(figure)];
    Some(Section { heading: "From one to a thousand connections".into(), blocks })
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
