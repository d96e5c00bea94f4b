//! What each box takes for the bundle's packets, told to the other.
//!
//! A box tells its prefixes and the addresses that it leaves out in the session, and again until the other says that
//! it has them:
//!
//! ```text
//!  A                                   B
//!    scope of A, asks      ────────►       B compares
//!    A compares            ◄────────   scope of B, asks, has A's
//!    has B's               ────────►
//! ```
//! What is asked is answered, what is not asked is not. A peer that knows no scopes (an older version) rejects them
//! and tells none: nothing is compared then.
//!
//! Where both boxes count what goes to and from boxes (`negotiation`) the receivebox leaves out no address. What either has
//! told of its addresses before does not hold then.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::scope::{AddressSet, Difference, Scope, compare};
use super::session::Role;
use super::telling::Telling;
use super::wire::{ScopeMessage, ToldScope};
use crate::units::Timestamp;

/// A scope, and how it is told.
#[derive(Clone, Debug)]
struct Mine {
    scope: Scope,
    told: ToldScope,
}

/// What the peer told.
#[derive(Clone, Debug)]
struct Theirs {
    told: ToldScope,
    /// Unless there was no room for it.
    scope: Option<Scope>,
}

/// One box's end of the exchange: what to tell when, and what came of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    role: Role,
    /// What the host takes by itself.
    base: Option<Scope>,
    /// What is in force.
    mine: Option<Mine>,
    theirs: Option<Theirs>,
    is_established: bool,
    counts_boxes: Option<bool>,
    telling: Telling,
    /// What differed the last time that both scopes were known.
    differences: Vec<Difference>,
}

impl Exchange {
    /// Of a box that has nothing to tell, which it does not.
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            base: None,
            mine: None,
            theirs: None,
            is_established: false,
            counts_boxes: Some(false),
            telling: Telling::new(),
            differences: Vec::new(),
        }
    }

    /// The box takes these packets from now on; true if the boxes differ otherwise than before.
    pub fn set(&mut self, now: Timestamp, scope: Scope) -> bool {
        self.base = Some(scope);
        self.renew(now);
        self.compare()
    }

    /// Whether both boxes count what goes to and from boxes; `None`: not known, and what either leaves out is not compared.
    /// True if they differ otherwise than before.
    pub fn set_counting(&mut self, now: Timestamp, counts_boxes: Option<bool>) -> bool {
        if counts_boxes == self.counts_boxes {
            return false;
        }
        self.counts_boxes = counts_boxes;
        self.renew(now);
        // A sendbox is about to take what it has left out, and says so with its scope.
        self.role == Role::Receivebox && self.compare()
    }

    /// Has what is in force told, if it is another than before.
    fn renew(&mut self, now: Timestamp) {
        let Some(base) = &self.base else { return };
        let counts_itself = self.counts_boxes == Some(true) && self.role == Role::Receivebox;
        let scope = if counts_itself { base.leaving_out(&AddressSet::NONE) } else { base.clone() };
        if self.mine.as_ref().is_some_and(|mine| mine.scope == scope) {
            return;
        }
        let told = ToldScope::new(&scope);
        self.mine = Some(Mine { scope, told });
        self.begin(now);
    }

    /// The session is new: the peer may be another, and has heard nothing in it.
    pub fn on_session(&mut self, now: Timestamp) {
        self.is_established = true;
        self.theirs = None;
        self.counts_boxes = Some(false);
        self.telling.end();
        self.renew(now);
        self.begin(now);
    }

    /// The box begins another session.
    pub const fn restart(&mut self) {
        self.is_established = false;
        self.telling.end();
    }

    /// Takes what the peer told; true if the boxes differ otherwise than before.
    pub fn on_message(&mut self, now: Timestamp, message: &ScopeMessage) -> bool {
        let is_held = self.mine.as_ref().is_some_and(|mine| mine.told.identity() == message.held);
        self.telling.on_message(now, is_held, message.asks);
        let is_new = self.theirs.as_ref().is_none_or(|theirs| theirs.told != message.told);
        if is_new {
            self.theirs = Some(Theirs { told: message.told, scope: message.told.scope() });
        }
        is_new && self.compare()
    }

    /// What is to be told now.
    pub fn poll(&mut self, now: Timestamp) -> Option<ScopeMessage> {
        if now < self.next_timer() {
            return None;
        }
        let told = self.mine.as_ref()?.told;
        let held = self.theirs.as_ref().map_or(0, |theirs| theirs.told.identity());
        let asks = self.telling.poll(now)?;
        Some(ScopeMessage { held, asks, told })
    }

    /// When [`Exchange::poll`] is next needed.
    pub const fn next_timer(&self) -> Timestamp {
        self.telling.next_timer()
    }

    /// In what the boxes differ; `None` before both scopes are known.
    pub fn differences(&self) -> Option<&[Difference]> {
        (self.mine.is_some() && self.theirs.is_some()).then_some(&self.differences)
    }

    /// What the peer sends itself; `None` before it has told, or if there was no room for it.
    pub fn peer_own(&self) -> Option<&AddressSet> {
        Some(&self.theirs.as_ref()?.scope.as_ref()?.own)
    }

    fn begin(&mut self, now: Timestamp) {
        if self.mine.is_some() && self.is_established {
            self.telling.begin(now);
        }
    }

    /// Whether the result is another.
    fn compare(&mut self) -> bool {
        let (Some(base), Some(mine), Some(theirs)) = (&self.base, &self.mine, &self.theirs) else {
            return false;
        };
        let counts_boxes = self.counts_boxes == Some(true);
        let mut differences: Vec<Difference> = match &theirs.scope {
            Some(scope) => match self.role {
                Role::Sendbox if counts_boxes => compare(
                    &counting(&mine.scope, &scope.left_out),
                    &scope.leaving_out(&AddressSet::NONE),
                ),
                Role::Sendbox => compare(&mine.scope, scope),
                Role::Receivebox if counts_boxes => {
                    compare(&counting(scope, &base.left_out), &mine.scope)
                }
                Role::Receivebox => compare(scope, &mine.scope),
            },
            None => mine.told.differs_from(&theirs.told).map(Difference::unnamed).collect(),
        };
        if self.counts_boxes.is_none() {
            differences.retain(|it| !it.is_of_boxes());
        }
        let is_news = differences != self.differences;
        self.differences = differences;
        is_news
    }
}

/// What a sendbox takes that has told its scope before it counted what goes to the receivebox, at these addresses.
fn counting(told: &Scope, receivebox: &AddressSet) -> Scope {
    told.leaving_out(&told.left_out.without(receivebox))
}
