//! Shares of an uplink: a rate for each bundle of a sendbox, so that all together keep to the rate of their
//! site's line.
//!
//! ```text
//!          uplink 100 Mbit/s                        all ask for all   b is idle   a and b are
//!       ┌─────────┴─────────┐                    a        50             75            0
//!  group, weight 3     c, weight 1               b        25              0            0
//!  ┌────┴────────────┐                           c        25             25          100
//! a, weight 2   b, weight 1
//! ```
//! If the line is too slow for all demands, siblings share it in proportion to their weights (weighted max-min
//! fairness). Each gets at least its guarantee (or its demand, if that is less), and at most its demand and its
//! `max_rate`. If a bundle leaves a part of its share, its siblings get that part first, because their group
//! demands it for them. The rest of the tree comes next. Capacity that no bundle demands is room to grow and is
//! divided in the same way (`uplink/tree.rs`). While the line is not full, no share limits a bundle.
//!
//! **The demand of a bundle** is 1.1 times its recent departure rate, plus the rate that empties its queue in 5
//! ms. The rate that its algorithm requests is the upper limit. A bundle with a lasting queue therefore gets
//! its full share. A bundle that sends little, or whose path is slower than its share, leaves the rest to the
//! other bundles. When a bundle begins to send, its first packets raise the demand without waiting for the next tick.
//!
//! Shares are rates for a time and set no order of packets. A datapath only needs a rate for each bundle and
//! may be in the kernel. To the control loop of a bundle, its share is a ceiling
//! ([`Sendbox::set_ceiling`](crate::bundle::sendbox::Sendbox::set_ceiling)).

#[cfg(test)]
mod tests;
mod tree;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use self::tree::Tree;
use super::Ceiling;
use crate::bundle::path;
use crate::bundle::tuning::Tuning;
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Allowed weights of a share.
pub const WEIGHTS: RangeInclusive<u32> = 1..=1000;

/// Longest time between two divisions: a small part of a round trip.
const TICK: Duration = path::TICK.saturating_mul(2);
/// Demand of a bundle with an empty queue, as a multiple of its departure rate: within the tolerance for equal rates.
const HEADROOM: f64 = 1.0 + Tuning::DEFAULT.rates_near;
/// Target time to empty a queue, if the other bundles leave room for it.
const DRAIN: Duration = path::TICK;
/// Factor per tick on the remembered departure rate: most traffic comes in bursts.
const MEMORY: f64 = 0.5;
/// Share of the uplink that all bundles demand together while they send nothing.
const LEAST: f64 = 0.005;
/// Least rate of a bundle that gets its full demand; [`LIVELY_SHARE`] of a slow uplink or group if that is
/// less. The first packets of a connection arrive before the demand is known and must not wait at almost no
/// rate. In HTB, later packets would wait even longer: a class owes the time of its excess at its old rate
/// (`htb_charge_class`, sch_htb.c). Half of the least rate of a sending bundle: a full frame takes 20 ms.
const LIVELY: Rate = Rate::from_bits_per_sec(Tuning::DEFAULT.rate_min.as_bits_per_sec() / 2);
/// Equal to the rate floor of a sending bundle, which is enough to see new traffic.
const LIVELY_SHARE: f64 = Tuning::DEFAULT.rate_floor;
/// A bundle whose demand grows by this factor does not wait for the tick.
const URGENT: f64 = 2.0;

/// Traffic that a bundle has sent, and its demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleLoad {
    /// Bytes that have left since the start.
    pub sent: ByteCount,
    /// Bytes that wait.
    pub backlog: ByteCount,
    /// The rate that the control loop requests; `None`: no limit.
    pub wanted: Option<Rate>,
}

/// Share of a bundle or group in the capacity of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Share {
    /// Siblings share in proportion to their weights ([`WEIGHTS`]).
    pub weight: u32,
    /// Up to this rate the bundle or group gets its full demand, for any demand of its siblings.
    pub guarantee: Option<Rate>,
    /// The bundle or group never gets more, even if no sibling demands anything.
    pub max_rate: Option<Rate>,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, guarantee: None, max_rate: None }
    }
}

/// A bundle or a group, and its parent group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Member {
    /// Index of the group in [`UplinkConfig::groups`]; `None`: directly below the uplink.
    pub group: Option<usize>,
    /// Share of this group, or of the uplink.
    pub share: Share,
}

/// The operator's settings for an uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct UplinkConfig {
    /// Limit on the sum of all bundles, within [`RATES`](super::RATES).
    pub rate: Rate,
    /// The groups, in any order.
    pub groups: Vec<Member>,
    /// The bundles.
    pub bundles: Vec<Member>,
}

/// A part of an [`UplinkConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UplinkPart {
    /// The uplink itself.
    Uplink,
    /// The group with this index.
    Group(usize),
    /// The bundle with this index.
    Bundle(usize),
}

/// An invalid value in an [`UplinkConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct UplinkError {
    /// The invalid part.
    pub place: UplinkPart,
    /// Key, value and the allowed values. Keys are named as the fields, except `parent` for the group of a group.
    pub error: SpecError,
}

/// Divides an uplink among the bundles of a sendbox.
#[derive(Clone, Debug)]
pub struct Uplink {
    tree: Tree,
    rate: Rate,
    bundles: Vec<Standing>,
    ticked_at: Timestamp,
}

/// State of one bundle.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Bytes that had left by the last tick.
    sent: ByteCount,
    /// Recent departure rate.
    rate: Rate,
    demand: Rate,
    allocation: Rate,
}

impl Uplink {
    /// An uplink with bundles that have sent nothing yet.
    ///
    /// # Errors
    ///
    /// A rate or weight out of range, groups that are unknown or within each other, and guarantees above the
    /// parent's guarantee or a `max_rate`.
    pub fn new(config: &UplinkConfig) -> Result<Self, UplinkError> {
        let mut uplink = Self {
            tree: Tree::new(config)?,
            rate: config.rate,
            bundles: alloc::vec![Standing::default(); config.bundles.len()],
            ticked_at: Timestamp::ZERO,
        };
        uplink.divide();
        Ok(uplink)
    }

    /// An uplink with a new configuration that replaces this one and keeps the state of the remaining bundles.
    /// `before` gives the old index of each bundle of `config`; `None`: the bundle is new.
    ///
    /// # Errors
    ///
    /// Same as [`Uplink::new`].
    pub fn succeeded_by(
        &self,
        config: &UplinkConfig,
        before: &[Option<usize>],
    ) -> Result<Self, UplinkError> {
        let mut uplink = Self::new(config)?;
        for (standing, place) in uplink.bundles.iter_mut().zip(before) {
            *standing = place.map_or_else(Standing::default, |place| self.bundles[place]);
        }
        uplink.ticked_at = self.ticked_at;
        uplink.divide();
        Ok(uplink)
    }

    /// Limit on the sum of all bundles.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Weight of the bundle among its siblings, and its guarantee.
    pub fn share(&self, bundle: usize) -> (u32, Option<Rate>) {
        self.tree.share(bundle)
    }

    /// Ceiling for the bundle with this index.
    pub fn ceiling(&self, bundle: usize) -> Ceiling {
        let Standing { demand, allocation, .. } = self.bundles[bundle];
        let is_short = allocation < demand;
        let [above, own] = self.tree.ceilings(bundle);
        let lively = LIVELY.min(above.scale(LIVELY_SHARE)).min(own);
        let least = if is_short { Rate::ZERO } else { lively };
        Ceiling { rate: allocation.max(least), is_short }
    }

    /// When [`Uplink::on_tick`] is next needed.
    pub fn next_timer(&self) -> Timestamp {
        self.ticked_at + TICK
    }

    /// Divides the uplink by the loads of all bundles at `now`.
    pub fn on_tick(&mut self, now: Timestamp, loads: impl IntoIterator<Item = BundleLoad>) {
        let elapsed = now.saturating_since(self.ticked_at);
        self.ticked_at = now;
        for (bundle, load) in loads.into_iter().enumerate().take(self.bundles.len()) {
            let standing = &mut self.bundles[bundle];
            let rate = load.sent.saturating_sub(standing.sent).per(elapsed);
            standing.rate = rate.unwrap_or(Rate::ZERO).max(standing.rate.scale(MEMORY));
            standing.sent = load.sent;
            self.bundles[bundle].demand = self.demand(bundle, &load);
        }
        self.divide();
    }

    /// Updates the demand of a bundle if its queue has grown too much to wait for the tick. If true, call
    /// [`Uplink::divide`], once after all such bundles.
    pub fn on_queue(&mut self, bundle: usize, load: &BundleLoad) -> bool {
        let Standing { demand, allocation, .. } = self.bundles[bundle];
        let asked = self.demand(bundle, load);
        // If a bundle gets less than its demand, a higher demand changes nothing.
        let is_urgent = demand <= allocation && asked > allocation.max(demand.scale(URGENT));
        if is_urgent {
            self.bundles[bundle].demand = asked;
        }
        is_urgent
    }

    fn demand(&self, bundle: usize, load: &BundleLoad) -> Rate {
        let least = self.rate.scale(LEAST / self.bundles.len() as f64);
        let queued = load.backlog.per(DRAIN).unwrap_or(Rate::ZERO);
        let sent = self.bundles[bundle].rate.scale(HEADROOM);
        let bits = [least, queued, sent].map(Rate::as_bits_per_sec);
        let asked = Rate::from_bits_per_sec(bits.into_iter().fold(0, u64::saturating_add));
        load.wanted.map_or(asked, |wanted| asked.min(wanted))
    }

    /// Divides the uplink by the latest demands.
    pub fn divide(&mut self) {
        let demands: Vec<Rate> = self.bundles.iter().map(|standing| standing.demand).collect();
        let divided = self.tree.divide(&demands);
        for (standing, allocation) in self.bundles.iter_mut().zip(divided) {
            standing.allocation = allocation;
        }
    }
}
