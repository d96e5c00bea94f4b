//! What was found of the behaviour, for a terminal and as a page of figures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::PlatformsError;
use super::behaviour::Behaviour;
use super::fidelity::{Curve, Fidelity, Quantity, Seen};
use super::platform::Platform;
use super::report::put;
use crate::judge::table::{self, Table, table, titled};
use crate::output::number;
use crate::report::figure::{Axis, Ribbon, ribbons};
use crate::report::page::{self, Block, Figure, Page, Section};

/// Name of the page.
const FILE: &str = "behaviour.html";

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), number)
}

/// Every platform beside the kernel.
pub fn platforms(fidelity: &Fidelity) -> Table {
    let row = |(platform, seen): (&Platform, &Seen)| {
        let percent = |share: Option<f64>| or_dash(share.map(|share| 100.0 * share));
        [
            platform.title().into(),
            seen.trials.to_string(),
            percent(seen.nrmse.cwnd),
            percent(seen.nrmse.bitrate),
            percent(seen.nrmse.rtt),
            or_dash(seen.throughput_mbps),
            seen.throughput_ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}")),
            or_dash(seen.slow_start_resent),
            or_dash(seen.slow_start_peak),
            or_dash(seen.half_bdp_after_ms),
        ]
    };
    let titles = [
        "platform",
        "trials",
        "NRMSE cwnd (%)",
        "bitrate (%)",
        "RTT (%)",
        "Mbit/s",
        "over kernel's",
        "sent again in slow start",
        "its largest window",
        "half a BDP after (ms)",
    ];
    table(titles, fidelity.platforms.iter().map(row).collect())
}

/// All of it for a terminal.
pub fn text(behaviour: &Behaviour) -> String {
    let mut text = String::new();
    for one in &behaviour.links {
        let (algorithm, trials) = (&behaviour.algorithm, behaviour.trials);
        let _ = writeln!(text, "behaviour of {algorithm}, {}, of {trials} trials", one.link.name);
        text += &titled("platforms", &platforms(one));
        text += &titled("claims", &table::of_claims(&one.claims));
    }
    if behaviour.rejected > 0 {
        let _ =
            writeln!(text, "runs that were rejected and do not count: {}\n", behaviour.rejected);
    }
    text
}

/// Writes the page into `folder`; answers its path.
pub fn write(behaviour: &Behaviour, folder: &Path) -> Result<PathBuf, PlatformsError> {
    put(&page(behaviour), folder, FILE)
}

fn page(behaviour: &Behaviour) -> Page {
    let Behaviour { algorithm, commit, kernel, rejected, .. } = behaviour;
    let lead = format!(
        "Built from {commit}, Linux {kernel}. One greedy flow over an emulated bottleneck whose queue \
         holds one bandwidth-delay product; trials of all platforms in turn. {rejected} runs were \
         rejected by the harness's own figures and do not count."
    );
    let sections = behaviour.links.iter().map(section).collect();
    Page { title: format!("forebay: behaviour of {algorithm} on every platform"), lead, sections }
}

fn section(fidelity: &Fidelity) -> Section {
    let link = &fidelity.link;
    let block = |(columns, rows): Table, caption: String| {
        Block::Table(page::Table { columns, rows, caption })
    };
    let seen = format!(
        "Means over trials. NRMSE beside the kernel and throughput from {} to {} s in bins of {:.0} ms; \
         slow start is the first 2 s. What the kernel again differs from the kernel by is chance.",
        link.from_s,
        link.to_s,
        1e3 * link.interval_s
    );
    let claimed = "An NRMSE may be 5 % or twice the kernel's own (kernel again beside kernel); where one \
                   of the kernel's own is above 6 %, nothing is said of the link (unsteady). With fewer \
                   valid trials than were asked for, nothing is either (not run). All else is the median over \
                   trials of one seed with its 95 % interval.";
    let mut blocks = vec![
        block(platforms(fidelity), seen),
        block(table::of_claims(&fidelity.claims), claimed.into()),
    ];
    blocks.extend(Quantity::ALL.map(|quantity| figure(fidelity, quantity)));
    Section { heading: link.name.clone(), blocks }
}

/// Each platform in a panel of its own, with the kernel's mean behind it.
fn figure(fidelity: &Fidelity, quantity: Quantity) -> Block {
    let curves = || fidelity.curves.iter().filter(move |curve| curve.quantity == quantity);
    let mean = |curve: &Curve| -> Vec<(f64, [f64; 3])> {
        curve.points.iter().map(|it| (it.at_s, [it.mean; 3])).collect()
    };
    let kernel = curves().find(|curve| curve.platform == Platform::Kernel);
    let mut drawn = Vec::new();
    for curve in curves().filter(|curve| !curve.points.is_empty()) {
        let (title, points) = (curve.platform.title().to_string(), curve.points.iter());
        let ribbon =
            |name: &str, points| Ribbon { name: name.into(), panel: title.clone(), points };
        if let Some(kernel) = kernel.filter(|_| curve.platform != Platform::Kernel) {
            drawn.push(ribbon(Platform::Kernel.title(), mean(kernel)));
        }
        let points = points.map(|it| (it.at_s, [it.low, it.mean, it.high])).collect();
        drawn.push(ribbon(&title, points));
    }
    let order = Platform::BEHAVING.map(|platform| platform.title().to_string());
    let caption = "Mean over trials; a tenth of the trials are above the band and a tenth below. The \
                   kernel's mean is in every panel.";
    let spec = ribbons(&drawn, &order, Axis::linear("time (s)"), Axis::linear(quantity.title()));
    Block::Figure(Figure { caption: caption.into(), spec })
}

#[cfg(test)]
mod tests {
    use super::super::fidelity::tests::judged;
    use super::*;

    fn behaviour() -> Behaviour {
        let scales = [
            (Platform::Kernel, 1.0),
            (Platform::KernelAgain, 1.01),
            (Platform::Native, 1.015),
            (Platform::Simulator, 1.1),
        ];
        Behaviour {
            algorithm: "cubic".into(),
            commit: "abc123".into(),
            kernel: "6.18".into(),
            trials: 2,
            rejected: 3,
            links: vec![judged(&scales)],
        }
    }

    #[test]
    fn a_terminal_shows_every_platform_and_every_claim_with_its_verdict() {
        let text = text(&behaviour());
        for part in [
            "behaviour of cubic, 40mbit_40ms, of 2 trials",
            "simulator",
            "1.0150",
            "rejected and do not count: 3",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        // The table may be too wide for one line a claim.
        let lines = |start: &str, part: &str| {
            let found = text.lines().filter(|line| line.starts_with(start) && line.contains(part));
            found.collect::<Vec<_>>().join("\n")
        };
        let native = lines("native eBPF", "throughput");
        assert!(native.contains("1.500 [1.500, 1.500]") && native.ends_with("failed"), "{native}");
        let agent = lines("agent per round", "throughput");
        assert!(agent.ends_with("not shown: not run"), "{agent}\n{text}");
    }

    #[test]
    fn the_page_has_a_figure_of_each_quantity_over_each_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&behaviour(), folder.path()).unwrap();
        let html = std::fs::read_to_string(path).unwrap();
        for part in
            ["behaviour of cubic on every platform", "abc123", "40mbit_40ms", "NRMSE of RTT"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(html.matches("data-figure=").count(), 3);
    }
}
