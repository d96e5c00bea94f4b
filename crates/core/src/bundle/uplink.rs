//! Shares of an uplink: how fast each bundle of a sendbox may be, so that together they keep to the rate of
//! their site's line.
//!
//! ```text
//!          uplink 100 Mbit/s                        all ask for all   b is idle   a and b are
//!       ┌─────────┴─────────┐                    a        50             75            0
//!  group, weight 3     c, weight 1               b        25              0            0
//!  ┌────┴────────────┐                           c        25             25          100
//! a, weight 2   b, weight 1
//! ```
//! Where there is too little for all, siblings have shares in proportion to their weights (weighted max-min
//! fairness), none less than its guarantee, none more than it asks for or its `max_rate`. What a bundle leaves,
//! its siblings have first, since their group asks for all of them, and then the rest of the tree. What all leave
//! is room to grow and divided in the same way (`uplink/tree.rs`): while the line is not full a share holds nobody
//! back.
//!
//! **What a bundle asks for** is the rate at which its packets have left of late and a tenth more, and what empties
//! its queue in 5 ms, but no more than its law wants. So a bundle with a lasting queue has its share, and one that
//! sends little, or whose path is slower than its share, leaves the rest to others. A bundle that begins asks again
//! with its first packets, and not only with the next tick.
//!
//! Shares are rates, for a time, and no order of packets: a datapath knows a rate for each bundle
//! and may be one in the kernel. To the control loop of a bundle its share is a ceiling
//! ([`Sendbox::set_ceiling`](super::sendbox::Sendbox::set_ceiling)).

#[cfg(test)]
mod tests;
mod tree;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use self::tree::Tree;
use super::sendbox::{Ceiling, Load};
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Weights that a share may have.
pub const WEIGHTS: RangeInclusive<u32> = 1..=1000;

/// Longest time between two divisions: a small part of a round trip.
const TICK: Duration = Duration::from_millis(10);
/// What a bundle may send over what it has sent, while its queue is empty.
const HEADROOM: f64 = 1.1;
/// Time in which a queue is to be emptied, where the others leave room for that.
const DRAIN: Duration = Duration::from_millis(5);
/// What has left of a bundle counts half as much a tick later: most traffic comes in bursts.
const MEMORY: f64 = 0.5;
/// Share of the uplink that all bundles ask for together while they send nothing.
const LEAST: f64 = 0.005;
/// A bundle that has all that it asks for may send at this rate all the same, or at [`LIVELY_SHARE`] of a slow uplink or
/// group: the first packets of a connection come before anybody knows of them, and are not to wait at next to no rate. In
/// HTB those behind them would wait even longer: a class owes what it has sent too much as a time, at the rate that it had
/// then (`htb_charge_class`, sch_htb.c). A frame takes 20 ms.
const LIVELY: Rate = Rate::from_bits_per_sec(600_000);
const LIVELY_SHARE: f64 = 0.1;
/// A bundle that asks for so many times what it has asked for is not left to wait for the tick.
const URGENT: f64 = 2.0;

/// What a bundle, or a group of them, has of what stands above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Shares of siblings are in proportion to their weights ([`WEIGHTS`]).
    pub weight: u32,
    /// Up to this rate the bundle or group gets what it asks for, whatever others ask for.
    pub guarantee: Option<Rate>,
    /// The bundle or group never gets more, even if nobody else asks for anything.
    pub max_rate: Option<Rate>,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, guarantee: None, max_rate: None }
    }
}

/// A bundle or a group, and the group that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Place of the group in [`UplinkConfig::groups`]; `None`: directly below the uplink.
    pub group: Option<usize>,
    /// Share of that group, or of the uplink.
    pub share: Share,
}

/// What an operator fixes of an uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkConfig {
    /// What all bundles send together at the most, one of [`RATES`](super::sendbox::RATES).
    pub rate: Rate,
    /// The groups, in any order.
    pub groups: Vec<Member>,
    /// The bundles.
    pub bundles: Vec<Member>,
}

/// A part of an [`UplinkConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The uplink itself.
    Uplink,
    /// The group of this place among the groups.
    Group(usize),
    /// The bundle of this place among the bundles.
    Bundle(usize),
}

/// What is wrong with an [`UplinkConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct UplinkError {
    /// The part that it is wrong with.
    pub place: Place,
    /// Key, value and what is allowed. The keys are those of the fields, but for `parent`, which is the group
    /// of a group.
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

/// What is known of one bundle.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// What had left by the last tick.
    sent: ByteCount,
    /// The rate at which packets have left of late.
    rate: Rate,
    demand: Rate,
    allocation: Rate,
}

impl Uplink {
    /// An uplink whose bundles have sent nothing yet.
    ///
    /// # Errors
    ///
    /// A rate or weight out of range, groups that are unknown or within each other, and guarantees that are
    /// more than what they are guaranteed of.
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

    /// An uplink of another configuration, in the place of this one: what is known of the bundles that stay is
    /// kept. `before` has for each bundle of `config` its place here; `None`: it is new.
    ///
    /// # Errors
    ///
    /// As of [`Uplink::new`].
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

    /// What all bundles send together at the most.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Weight of the bundle of this place among its siblings, and what it is guaranteed.
    pub fn share(&self, bundle: usize) -> (u32, Option<Rate>) {
        self.tree.share(bundle)
    }

    /// What the bundle of this place may send.
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

    /// Divides anew, by the loads of all bundles at `now`.
    pub fn on_tick(&mut self, now: Timestamp, loads: impl IntoIterator<Item = Load>) {
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

    /// A bundle's queue may have grown. True if that cannot wait for the tick: then [`Uplink::divide`] is needed, once
    /// for all bundles of which this is so.
    pub fn on_queue(&mut self, bundle: usize, load: &Load) -> bool {
        let Standing { demand, allocation, .. } = self.bundles[bundle];
        let asked = self.demand(bundle, load);
        // Where a bundle has not got all that it asks for, asking for more changes nothing.
        let is_urgent = demand <= allocation && asked > allocation.max(demand.scale(URGENT));
        if is_urgent {
            self.bundles[bundle].demand = asked;
        }
        is_urgent
    }

    fn demand(&self, bundle: usize, load: &Load) -> Rate {
        let least = self.rate.scale(LEAST / self.bundles.len() as f64);
        let queued = load.backlog.per(DRAIN).unwrap_or(Rate::ZERO);
        let sent = self.bundles[bundle].rate.scale(HEADROOM);
        let bits = [least, queued, sent].map(Rate::as_bits_per_sec);
        let asked = Rate::from_bits_per_sec(bits.into_iter().fold(0, u64::saturating_add));
        load.wanted.map_or(asked, |wanted| asked.min(wanted))
    }

    /// Divides anew, by what bundles have asked for last.
    pub fn divide(&mut self) {
        let demands: Vec<Rate> = self.bundles.iter().map(|standing| standing.demand).collect();
        let divided = self.tree.divide(&demands);
        for (standing, allocation) in self.bundles.iter_mut().zip(divided) {
            standing.allocation = allocation;
        }
    }
}
