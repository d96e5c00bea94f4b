//! Pairs of sites of a scenario, numbered in the order of [`Scenario::pairs`].
//!
//! ```text
//!  left hosts 0 ── sendbox 0 ──┐                                ┌── receivebox 0 ── right hosts 0
//!  left hosts 1 ── sendbox 1 ──┤ forward link (the bottleneck)  ├── receivebox 1 ── right hosts 1
//!  left hosts 2 ───────────────┤ reverse link                   ├─────────────────  right hosts 2
//! ```
//! Each pair of sites is its own layer-2 segment; all pairs share the two links. A pair without a bundle is
//! cross traffic or the status quo. Site A is on the left. For a flow that is not reversed, the left host is
//! the server and the right host the client.

use forebay_core::qdisc::written_out;
use forebay_core::spec::SpecError;
use forebay_core::units::{Duration, Ratio};
use forebay_host::foreign_python::named;
use forebay_policy::algorithms;
use forebay_scenario::{BoxEnd, Bundle, INITIAL_WINDOW, Scenario, Upset, UpsetKind};

use crate::TestbedError;

/// The box that a [`forebay_scenario::Fault`] or an [`forebay_scenario::Attack`] hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultTarget {
    /// Place of the pair of sites.
    pub pair: usize,
    /// The bundle from right to left; otherwise the bundle from left to right.
    pub reverse: bool,
    /// Which end of the bundle.
    pub end: BoxEnd,
}

impl FaultTarget {
    /// The other end of the same bundle.
    pub fn peer(self) -> Self {
        let end = match self.end {
            BoxEnd::Sendbox => BoxEnd::Receivebox,
            BoxEnd::Receivebox => BoxEnd::Sendbox,
        };
        Self { end, ..self }
    }
}

/// The bundles of a pair of sites, first the one from left to right.
pub(crate) fn bundles(scenario: &Scenario, pair: usize) -> impl Iterator<Item = &Bundle> {
    [false, true].into_iter().filter_map(move |reversed| bundle(scenario, pair, reversed))
}

fn bundle(scenario: &Scenario, pair: usize, reversed: bool) -> Option<&Bundle> {
    let name = &scenario.pairs[pair];
    scenario.bundles.iter().find(|it| it.pair == *name && it.reversed == reversed)
}

/// `scenario` with its bundles as box files express them. The error names the bundle.
pub(crate) fn with_files(scenario: &Scenario) -> Result<Scenario, TestbedError> {
    let of_files = |bundle: &Bundle| {
        let wrong =
            |source: SpecError| TestbedError::Scenario { name: bundle.name.clone(), source };
        let mut bundle = bundle.clone();
        if let Some(file) = algorithms::python(&bundle.cc.kind) {
            bundle.cc = named::of(file, Some(bundle.cc.kind.as_str()));
        }
        // The defaults of a box's file differ.
        bundle.qdisc = written_out(&bundle.qdisc).map_err(wrong)?;
        Ok::<_, TestbedError>(bundle)
    };
    let bundles = scenario.bundles.iter().map(of_files).collect::<Result<_, _>>()?;
    Ok(Scenario { bundles, ..scenario.clone() })
}

/// Share of the packets to the right that bypass the box of a pair, and its changes: time since the start,
/// and the new share. `None`: the pair has no second way.
pub(crate) fn unseen(scenario: &Scenario, pair: usize) -> Option<(Ratio, Vec<(Duration, Ratio)>)> {
    let share = bundle(scenario, pair, false).map_or(Ratio::ZERO, |bundle| bundle.unseen);
    let change = |upset: &Upset| match upset.kind {
        UpsetKind::Unseen(share) if upset.pair == scenario.pairs[pair] => Some((upset.at, share)),
        _ => None,
    };
    let mut changes: Vec<_> = scenario.upsets.iter().filter_map(change).collect();
    changes.sort_by_key(|(at, _)| *at);
    (share > Ratio::ZERO || !changes.is_empty()).then_some((share, changes))
}

/// Initial window of all TCP connections that one site of a pair sends on, the right one if `reversed`; a
/// route sets it. `None`: the kernel's default.
pub(crate) fn initial_window(scenario: &Scenario, pair: usize, reversed: bool) -> Option<u32> {
    let name = &scenario.pairs[pair];
    let mut flows = scenario.flows.iter().filter(|flow| flow.is_tcp());
    let first = flows.find(|flow| flow.pair == *name && flow.reversed == reversed);
    first.map(|flow| flow.initial_window).filter(|window| *window != INITIAL_WINDOW)
}

/// Place of the pair of sites with this name.
pub(crate) fn pair(scenario: &Scenario, name: &str) -> Option<usize> {
    scenario.pairs.iter().position(|pair| pair == name)
}

/// The box at this end of the bundle with this name.
pub(crate) fn target(
    scenario: &Scenario,
    bundle: &str,
    end: BoxEnd,
) -> Result<FaultTarget, TestbedError> {
    let found = scenario.bundle(bundle);
    let found = found.and_then(|it| Some((pair(scenario, &it.pair)?, it.reversed)));
    let (pair, reverse) =
        found.ok_or_else(|| TestbedError::FaultTarget { bundle: bundle.into() })?;
    Ok(FaultTarget { pair, reverse, end })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay_core::cc::{Algorithm, algorithms::constant};
    use forebay_core::spec::Spec;
    use forebay_core::units::seconds;
    use forebay_policy::algorithms::Own;
    use forebay_scenario::{Flow, Link, Traffic};

    use super::*;

    /// Two pairs of sites, the first with a bundle under `cc`.
    fn scenario(cc: &str) -> Scenario {
        let link = |name| Link::delay(name, Duration::from_millis(10));
        let mut scenario = Scenario::new(link("forward"), link("reverse"), seconds(3.0));
        scenario.pairs = vec!["site".into(), "other".into()];
        let bundle = Bundle::new("b", Spec::named(cc), Spec::named("sfq"));
        scenario.bundles.push(Bundle { pair: "site".into(), ..bundle });
        scenario
    }

    #[test]
    fn bypass_share_starts_at_start_or_later() {
        let mut scenario = scenario("copa");
        let [few, half] = [0.2, 0.5].map(|share| Ratio::new(share).unwrap());
        scenario.bundles[0].unseen = few;
        assert_eq!([0, 1].map(|pair| unseen(&scenario, pair)), [Some((few, Vec::new())), None]);
        scenario.upsets.push(Upset {
            at: seconds(1.0),
            bundle: "b".into(),
            pair: "site".into(),
            at_b: true,
            kind: UpsetKind::Unseen(half),
        });
        assert_eq!(unseen(&scenario, 0), Some((few, vec![(seconds(1.0), half)])));
    }

    #[test]
    fn fault_needs_a_box_of_existing_bundle() {
        let sendbox = target(&scenario("copa"), "b", BoxEnd::Sendbox).unwrap();
        assert_eq!((sendbox.pair, sendbox.reverse), (0, false));
        let error = target(&scenario("copa"), "c", BoxEnd::Sendbox).unwrap_err().to_string();
        assert_eq!(error, "fault or attack: c: no such bundle");
    }

    #[test]
    fn route_has_initial_window_of_its_flows() {
        let mut scenario = scenario("copa");
        let greedy = Traffic::Greedy { flows: 1 };
        let flow = Flow::new("bulk", Spec::named("reno"), seconds(3.0), greedy);
        scenario.flows.push(Flow { pair: "other".into(), initial_window: 450, ..flow.clone() });
        scenario.flows.push(Flow { pair: "other".into(), reversed: true, ..flow });
        let windows = [(0, false), (1, false), (1, true)];
        let windows = windows.map(|(pair, reversed)| initial_window(&scenario, pair, reversed));
        assert_eq!(windows, [None, Some(450), None]);
    }

    #[test]
    fn python_class_is_passed_to_boxes_by_file() {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let folder: &'static str = file.to_str().unwrap().to_string().leak();
        let algorithm = Algorithm { name: "of_a_file", params: &[], ..constant::ALGORITHM };
        algorithms::add(&[Own { algorithm, folder, sources: "0" }]).unwrap();
        let made = with_files(&scenario("of_a_file")).unwrap();
        assert_eq!(made.bundles[0].cc, named::of(Path::new(folder), Some("of_a_file")));
        // Other defaults of a box's file are written out.
        assert_ne!(made.bundles[0].qdisc, Spec::named("sfq"));
    }
}
