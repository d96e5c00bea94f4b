//! Exchanges the scopes of both boxes: the packets that each counts as the bundle's.
//!
//! A box sends its prefixes and the addresses that it excludes, and repeats them in the session until the peer
//! acknowledges them:
//!
//! ```text
//!  A                                   B
//!    scope of A, asks      ────────►       B compares
//!    A compares            ◄────────   scope of B, asks, has A's
//!    has B's               ────────►
//! ```
//! A box answers only messages that ask for an answer. A peer without scopes (an older version) rejects them
//! and sends none; the boxes then compare nothing.
//!
//! If both boxes count traffic of boxes (`negotiation`), the receivebox excludes no address. Earlier messages
//! about excluded addresses are then no longer valid.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::scope::{AddressSet, Difference, Scope, compare};
use super::session::Role;
use super::telling::Telling;
use super::wire::{ScopeMessage, ToldScope};
use crate::units::Timestamp;

/// A scope and its wire format.
#[derive(Clone, Debug)]
struct Mine {
    scope: Scope,
    told: ToldScope,
}

/// The peer's scope.
#[derive(Clone, Debug)]
struct Theirs {
    told: ToldScope,
    /// `None` if the lists did not fit the message.
    scope: Option<Scope>,
}

/// One box's end of the exchange: when to send the scope, and the resulting differences.
#[derive(Clone, Debug)]
pub struct Exchange {
    role: Role,
    /// The host's scope before the negotiation.
    base: Option<Scope>,
    /// The scope in force.
    mine: Option<Mine>,
    theirs: Option<Theirs>,
    is_established: bool,
    counts_boxes: Option<bool>,
    telling: Telling,
    /// Differences at the last comparison of both scopes.
    differences: Vec<Difference>,
}

impl Exchange {
    /// A box without a scope sends nothing.
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

    /// Sets the box's scope; true if the differences have changed.
    pub fn set(&mut self, now: Timestamp, scope: Scope) -> bool {
        self.base = Some(scope);
        self.renew(now);
        self.compare()
    }

    /// Sets whether both boxes count traffic of boxes. `None`: unknown, and excluded addresses are not
    /// compared. True if the differences have changed.
    pub fn set_counting(&mut self, now: Timestamp, counts_boxes: Option<bool>) -> bool {
        if counts_boxes == self.counts_boxes {
            return false;
        }
        self.counts_boxes = counts_boxes;
        self.renew(now);
        // A sendbox is about to include addresses that it has excluded, and sends its new scope.
        self.role == Role::Receivebox && self.compare()
    }

    /// Schedules the scope in force for sending if it has changed.
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

    /// A new session: the peer may have been replaced, and has received no scope in it.
    pub fn on_session(&mut self, now: Timestamp) {
        self.is_established = true;
        self.theirs = None;
        self.counts_boxes = Some(false);
        self.telling.end();
        self.renew(now);
        self.begin(now);
    }

    /// This box begins another session.
    pub const fn restart(&mut self) {
        self.is_established = false;
        self.telling.end();
    }

    /// Takes the peer's scope; true if the differences have changed.
    pub fn on_message(&mut self, now: Timestamp, message: &ScopeMessage) -> bool {
        let is_held = self.mine.as_ref().is_some_and(|mine| mine.told.identity() == message.held);
        self.telling.on_message(now, is_held, message.asks);
        let is_new = self.theirs.as_ref().is_none_or(|theirs| theirs.told != message.told);
        if is_new {
            self.theirs = Some(Theirs { told: message.told, scope: message.told.scope() });
        }
        is_new && self.compare()
    }

    /// The message to send now, if one is due.
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

    /// Differences between the boxes; `None` until both scopes are known.
    pub fn differences(&self) -> Option<&[Difference]> {
        (self.mine.is_some() && self.theirs.is_some()).then_some(&self.differences)
    }

    /// The peer's own addresses; `None` until the peer has sent them, or if they did not fit.
    pub fn peer_own(&self) -> Option<&AddressSet> {
        Some(&self.theirs.as_ref()?.scope.as_ref()?.own)
    }

    fn begin(&mut self, now: Timestamp) {
        if self.mine.is_some() && self.is_established {
            self.telling.begin(now);
        }
    }

    /// Compares the scopes. True if the differences have changed.
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

/// The scope of a sendbox whose message excludes the receivebox's addresses, after it has included them.
fn counting(told: &Scope, receivebox: &AddressSet) -> Scope {
    told.leaving_out(&told.left_out.without(receivebox))
}
