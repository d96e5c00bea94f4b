//! Bundles, and how plans refer to them.

use forebay_core::bundle::sendbox::SUPPLIED;
use forebay_core::bundle::tuning::Tuning;
use forebay_core::cc::Registry;
use forebay_core::qdisc::{self, bundle_default};
use forebay_core::spec::{Spec, Value as SpecValue};
use forebay_core::units::{Rate, Ratio};
use forebay_scenario::{Bundle, Link};

use super::Ends;
use forebay_reader::Reader;

/// Values of the key `forward`; true: a gateway routes.
const FORWARDING: [(&str, bool); 2] = [("bridge", false), ("route", true)];
/// Values of the key `datapath`; true: the sendbox queues in the kernel.
const DATAPATHS: [(&str, bool); 2] = [("user", false), ("kernel", true)];

/// A bundle in a plan; an arm may disable it.
pub(super) struct DeclaredBundle {
    pub bundle: Bundle,
    pub enabled: bool,
    /// A gateway routes at the sendbox's place, even if the bundle is disabled.
    pub is_routed: bool,
}

/// Reads all bundles, including disabled ones, as far as their values are valid.
pub(super) fn bundles(
    plan: &Reader<'_>,
    ends: Ends<'_>,
    algorithms: &Registry,
) -> Vec<DeclaredBundle> {
    let mut bundles: Vec<DeclaredBundle> = Vec::new();
    for table in plan.tables("bundle") {
        let Some(declared) = bundle(&table, ends, algorithms) else { continue };
        let own = &declared.bundle;
        if bundles.iter().any(|known| known.bundle.name == own.name) {
            table.repeated("bundle");
        }
        let same = |known: &DeclaredBundle| {
            known.bundle.pair == own.pair && known.bundle.reversed == own.reversed
        };
        if bundles.iter().any(same) {
            table.wrong_because("pair", "a pair without a bundle in this direction");
        }
        let is_other = |first: &DeclaredBundle| first.is_routed != declared.is_routed;
        if declared.is_routed && own.reversed || bundles.first().is_some_and(is_other) {
            table.wrong("forward");
        }
        bundles.push(declared);
    }
    bundles
}

fn bundle(table: &Reader<'_>, ends: Ends<'_>, algorithms: &Registry) -> Option<DeclaredBundle> {
    let name = table.name("name");
    let pair = table.name("pair").or_else(|| name.clone());
    let reversed = table.switch("reversed").unwrap_or(false);
    let cc = table.spec("cc").map(|cc| match &pair {
        Some(pair) => with_rate_of(cc, ends.of(pair, reversed)),
        None => cc,
    });
    if let Some(Err(error)) = cc.as_ref().map(|cc| algorithms.build(cc, SUPPLIED)) {
        table.wrong_spec("cc", &error);
    }
    let qdisc = table.checked_spec("qdisc", qdisc::check).unwrap_or_else(bundle_default);
    let (min_rate, max_rate) = (table.rate("min_rate"), table.rate("max_rate"));
    if let (Some(least), Some(max)) = (min_rate, max_rate)
        && max < least
    {
        table.wrong_because("max_rate", format!("a rate of at least min_rate, {least}"));
    }
    let unseen = table.share("unseen").unwrap_or(0.0);
    if unseen > 0.0 && reversed {
        table.wrong("unseen");
    }
    let bundle = Bundle {
        name: name?,
        pair: pair?,
        reversed,
        cc: cc?,
        qdisc,
        in_kernel: table.choice("datapath", &DATAPATHS).unwrap_or(false),
        supervised: table.switch("supervised").unwrap_or(true),
        tuning: tuning(table),
        min_rate,
        max_rate,
        unseen: Ratio::new(unseen).unwrap_or(Ratio::ZERO),
        clock: table.parsed("clock").unwrap_or_default(),
        report_jitter: table.duration("report_jitter").unwrap_or_default(),
        timestamp_jitter: table.duration("timestamp_jitter").unwrap_or_default(),
    };
    let is_routed = table.choice("forward", &FORWARDING).unwrap_or(false);
    let enabled = table.switch("enabled").unwrap_or(true);
    Some(DeclaredBundle { bundle, enabled, is_routed })
}

/// The tuning of the bundle's control.
fn tuning(table: &Reader<'_>) -> Tuning {
    let Some(numbers) = table.params("tuning") else { return Tuning::DEFAULT };
    let tuning = Tuning::of(&numbers).map_err(|error| table.wrong_spec("tuning", &error));
    tuning.unwrap_or(Tuning::DEFAULT)
}

/// Replaces a rate given as a share of the link's rate by the absolute rate. If the link has no rate, the
/// registry refuses the share later.
fn with_rate_of(mut cc: Spec, link: &Link) -> Spec {
    let share = match cc.params.get("rate") {
        Some(SpecValue::Text(text)) if text.ends_with('%') => text.parse::<Ratio>().ok(),
        _ => None,
    };
    if let Some((share, rate)) = share.zip(link.nominal_rate()) {
        let bits = (share.as_f64() * rate.as_bits_per_sec() as f64).round() as u64;
        let rate = Rate::from_bits_per_sec(bits).to_string();
        cc.params.insert("rate".into(), SpecValue::Text(rate));
    }
    cc
}

/// The bundle that `table` names. An invalid bundle is known too, and its errors are not noted again.
pub(super) fn bundle_of<'a>(
    table: &Reader<'_>,
    bundles: &'a [DeclaredBundle],
) -> Option<&'a DeclaredBundle> {
    let name = table.require("bundle", table.text("bundle"))?;
    let known = bundles.iter().find(|known| known.bundle.name == name);
    let written = table.document().root().tables("bundle");
    if known.is_none() && !written.iter().any(|it| it.text("name") == Some(name)) {
        table.wrong_because("bundle", known_bundles(bundles));
    }
    known
}

/// The allowed values of a key that names a bundle.
fn known_bundles(bundles: &[DeclaredBundle]) -> String {
    if bundles.is_empty() {
        return "no name, because the plan has no [[bundle]]".into();
    }
    let names: Vec<&str> = bundles.iter().map(|known| known.bundle.name.as_str()).collect();
    format!("one of {}", names.join(", "))
}
