//! How many of the sites that send a flow are better off in an arm than without boxes, and how many worse.
//!
//! ```text
//! c = ln(s / s_quo)                            change of a site, s: geometric mean of its slowdowns
//! d = max(ln 1.05, Q95 |ln(s_again / s_quo)|)  change of most sites by chance
//! better: c < -d          worse: c > d
//! ```
//! Sites and requests are the same in both arms, yet hardly any site has the same result: one packet at
//! another time changes which packets meet at every link. The difference between two arms without boxes is
//! chance alone, so it defines the least change that counts.

use super::{ArmSummary, Part};
use crate::metrics::OF_A_SITE;
use crate::metrics::statistics::{Sorted, mean};

/// Least change that counts, as a share of the slowdown.
const CHANGE_MIN: f64 = 0.05;
/// Share of the sites whose change by chance is below the threshold.
const BY_CHANCE: f64 = 0.95;

/// Adds to the flows of `arm` the shares of their sites that are better and worse off than in `without`. If
/// `again` repeats `without`, also adds the change of most sites by chance.
pub(super) fn compare(arm: &mut ArmSummary, without: &ArmSummary, again: Option<&ArmSummary>) {
    for flow in &mut arm.flows {
        let noise = again.and_then(|again| noise(&flow.name, without, again));
        let least = CHANGE_MIN.ln_1p().max(noise.unwrap_or(0.0));
        let changes = changes(flow, without);
        let share = |is_meant: &dyn Fn(f64) -> bool| {
            mean(changes.iter().map(|change| f64::from(u8::from(is_meant(*change)))))
        };
        let (better, worse) = (share(&|change| change < -least), share(&|change| change > least));
        flow.metrics.put("sites_better", better);
        flow.metrics.put("sites_worse", worse);
        flow.metrics.put("sites_noise", noise.map(f64::exp_m1));
    }
}

/// The logarithm of the change by chance that most sites of the flow `name` do not exceed.
fn noise(name: &str, without: &ArmSummary, again: &ArmSummary) -> Option<f64> {
    let flow = again.flows.iter().find(|it| it.name == name)?;
    Sorted::new(changes(flow, without).into_iter().map(f64::abs)).quantile(BY_CHANCE)
}

/// The logarithm of the ratio of each site's slowdown to its slowdown in `without`.
fn changes(flow: &Part, without: &ArmSummary) -> Vec<f64> {
    let Some(quo) = without.flows.iter().find(|it| it.name == flow.name) else { return Vec::new() };
    let of_site = |(name, with): (&String, &f64)| {
        let without = quo.metrics.get(name).filter(|_| name.starts_with(OF_A_SITE))?;
        Some((with / without).ln())
    };
    flow.metrics.0.iter().filter_map(of_site).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::plan::references::{AGAIN, STATUS_QUO};
    use crate::summary::baselines;

    /// An arm with a flow; each of `sites` has this slowdown.
    fn arm<'a>(sites: impl IntoIterator<Item = (&'a str, f64)>) -> ArmSummary {
        let site = |(site, value): (&str, f64)| (format!("{OF_A_SITE}{site}]"), value);
        let metrics = Metrics(sites.into_iter().map(site).collect());
        let flow = Part { name: "web-others".into(), metrics };
        ArmSummary { flows: vec![flow], ..ArmSummary::default() }
    }

    fn get(arm: &ArmSummary, metric: &str) -> Option<f64> {
        arm.flows[0].metrics.get(metric)
    }

    #[test]
    fn sites_are_compared_each_with_itself() {
        let without = arm([("1-3", 2.0), ("1-7", 2.0), ("2-3", 4.0), ("2-8", 1.0)]);
        // One has halved, one has hardly changed, and one has doubled; the last sent nothing.
        let mut with = arm([("1-3", 1.0), ("1-7", 2.05), ("2-3", 8.0)]);
        compare(&mut with, &without, None);
        for metric in ["sites_better", "sites_worse"] {
            assert!((get(&with, metric).unwrap() - 1.0 / 3.0).abs() < 1e-9, "{metric}");
        }
        assert_eq!(get(&with, "sites_noise"), None);
        let mut alone = arm([]);
        compare(&mut alone, &without, None);
        assert_eq!(get(&alone, "sites_worse"), None);
    }

    #[test]
    fn changes_within_noise_are_not_counted() {
        let names: Vec<String> = (0..21).map(|site| format!("1-{site}")).collect();
        let each = |change: &dyn Fn(usize) -> f64| {
            arm(names.iter().enumerate().map(|(site, name)| (name.as_str(), 2.0 * change(site))))
        };
        let without = each(&|_| 1.0);
        // Changes of up to 22 %; all but one are at most 21 %.
        let again = each(&|site| (0.01 * site as f64).exp());
        let with = each(&|site| [1.15, 1.25, 0.8].get(site).copied().unwrap_or(1.0));
        let shares = |again: Option<&ArmSummary>| {
            let mut with = with.clone();
            compare(&mut with, &without, again);
            ["sites_better", "sites_worse"].map(|it| (21.0 * get(&with, it).unwrap()).round())
        };
        assert_eq!((shares(None), shares(Some(&again))), ([1.0, 2.0], [1.0, 1.0]));
        let mut with = with;
        compare(&mut with, &without, Some(&again));
        assert!((get(&with, "sites_noise").unwrap() - 0.19_f64.exp_m1()).abs() < 1e-9);
        assert_eq!(baselines("flows/web-others/sites_worse"), [STATUS_QUO, AGAIN]);
    }
}
