//! Bundles, and how plans name them.

use forebay_core::bundle::NAME_MAX;
use forebay_core::bundle::sendbox::{RATES, SUPPLIED};
use forebay_core::cc::Registry;
use forebay_core::qdisc::{self, bundle_default};
use forebay_core::spec::{Spec, Value as SpecValue};
use forebay_core::units::{Rate, Ratio};

use super::{Ends, jitter};
use crate::experiment::{Bundle, Link};
use crate::plan::error::PlanError;
use crate::plan::reader::Reader;
use crate::plan::schema;

/// Of a bundle of which nothing is seen there is nothing to find out.
const UNSEEN_MAX: f64 = 0.99;

const FORWARDING: [(&str, bool); 2] = [("bridge", false), ("route", true)];

/// A bundle that a plan has; an arm may do without it.
pub(super) struct DeclaredBundle {
    pub bundle: Bundle,
    pub enabled: bool,
    /// A gateway routes where its sendbox is, or would be.
    pub is_routed: bool,
}

/// Reads the bundles, those that are not enabled among them.
pub(super) fn bundles(
    plan: &Reader<'_>,
    ends: Ends<'_>,
    algorithms: &Registry,
) -> Result<Vec<DeclaredBundle>, PlanError> {
    let mut bundles: Vec<DeclaredBundle> = Vec::new();
    for table in plan.tables("bundle", &schema::BUNDLE)? {
        let name = table.require("name", table.name("name")?)?;
        if name.len() > NAME_MAX {
            let allowed = format!("at most {NAME_MAX} characters");
            return Err(table.wrong_because("name", &allowed));
        }
        let pair = table.name("pair")?.unwrap_or_else(|| name.clone());
        let reversed = table.switch("reversed")?.unwrap_or(false);
        if bundles.iter().any(|known| known.bundle.name == name) {
            return Err(table.repeated("bundle"));
        }
        let same =
            |known: &DeclaredBundle| known.bundle.pair == pair && known.bundle.reversed == reversed;
        if bundles.iter().any(same) {
            return Err(table.wrong_because("pair", "a pair without a bundle in this direction"));
        }
        let cc = table.require("cc", table.spec("cc")?)?;
        let cc = with_rate_of(cc, ends.of(&pair, reversed));
        algorithms.build(&cc, SUPPLIED).map_err(|error| table.wrong_spec("cc", &error))?;
        let qdisc = table.spec("qdisc")?.unwrap_or_else(bundle_default);
        qdisc::check(&qdisc).map_err(|error| table.wrong_spec("qdisc", &error))?;
        let (min_rate, max_rate) =
            (shaper_rate(&table, "min_rate")?, shaper_rate(&table, "max_rate")?);
        if let (Some(least), Some(max)) = (min_rate, max_rate)
            && max < least
        {
            let allowed = format!("a rate of at least min_rate, {least}");
            return Err(table.wrong_because("max_rate", &allowed));
        }
        let in_kernel = match table.text("datapath")? {
            None | Some("user") => false,
            Some("kernel") => true,
            Some(_) => return Err(table.wrong("datapath")),
        };
        let is_routed = table.choice("forward", &FORWARDING)?.unwrap_or(false);
        if is_routed && reversed || bundles.first().is_some_and(|it| it.is_routed != is_routed) {
            return Err(table.wrong("forward"));
        }
        let enabled = table.switch("enabled")?.unwrap_or(true);
        let supervised = table.switch("supervised")?.unwrap_or(true);
        let unseen = table.share("unseen")?.unwrap_or(0.0);
        if unseen > UNSEEN_MAX || unseen > 0.0 && reversed {
            return Err(table.wrong("unseen"));
        }
        let bundle = Bundle {
            name,
            pair,
            reversed,
            cc,
            qdisc,
            in_kernel,
            supervised,
            min_rate,
            max_rate,
            unseen,
            clock: table.parsed("clock")?.unwrap_or_default(),
            report_jitter: jitter(&table, "report_jitter")?,
            timestamp_jitter: jitter(&table, "timestamp_jitter")?,
        };
        bundles.push(DeclaredBundle { bundle, enabled, is_routed });
    }
    Ok(bundles)
}

/// Replaces a rate that is a share of the link's by what it is there. Without a rate of the link it is left for
/// the registry to refuse.
fn with_rate_of(mut cc: Spec, link: &Link) -> Spec {
    let share = match cc.params.get("rate") {
        Some(SpecValue::Text(text)) if text.ends_with('%') => text.parse::<Ratio>().ok(),
        _ => None,
    };
    if let Some((share, rate)) = share.zip(link.nominal_rate) {
        let bits = (share.as_f64() * rate.as_bits_per_sec() as f64).round() as u64;
        let rate = Rate::from_bits_per_sec(bits).to_string();
        cc.params.insert("rate".into(), SpecValue::Text(rate));
    }
    cc
}

/// A bound of a sendbox's rate.
pub(super) fn shaper_rate(table: &Reader<'_>, key: &str) -> Result<Option<Rate>, PlanError> {
    let rate = table.rate(key)?;
    if rate.is_some_and(|rate| !RATES.contains(&rate)) {
        let allowed = format!("a rate from {} to {}", RATES.start(), RATES.end());
        return Err(table.wrong_because(key, &allowed));
    }
    Ok(rate)
}

/// What is allowed where a bundle is named.
pub(super) fn known_bundles(bundles: &[DeclaredBundle]) -> String {
    if bundles.is_empty() {
        return "the name of a [[bundle]], of which there is none".into();
    }
    let names: Vec<&str> = bundles.iter().map(|known| known.bundle.name.as_str()).collect();
    format!("one of {}", names.join(", "))
}
