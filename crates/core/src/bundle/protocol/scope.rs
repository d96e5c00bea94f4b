//! The packets that each box counts as the bundle's, and the differences between two boxes.
//!
//! If the receivebox counts less than the sendbox sends, the sendbox does not see the rest and could detect
//! this from loss alone (`visibility`). The boxes therefore exchange their scopes (`exchange`).

mod addresses;
#[cfg(test)]
pub(super) mod tests;

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;

use ipnet::IpNet;

pub use addresses::AddressSet;

/// Number of prefixes named for one difference; the remaining ones are only counted.
pub const MAX_NAMED: usize = 4;

/// The packets that a box counts as the bundle's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Prefixes of destinations.
    pub(super) to: AddressSet,
    /// Excluded addresses of boxes among the destinations.
    pub(super) left_out: AddressSet,
    /// Prefixes of sources; none: any source.
    pub(super) from: AddressSet,
    /// Addresses of a sendbox among the sources. Its own packets do not pass its LAN port.
    pub(super) own: AddressSet,
}

impl Scope {
    /// Packets from the prefixes `from` (empty: any source) to the prefixes `to`. Excludes the destinations
    /// `left_out` and the sources `own`. Addresses outside the prefixes do not matter.
    pub fn new(
        to: impl IntoIterator<Item = IpNet>,
        from: impl IntoIterator<Item = IpNet>,
        left_out: impl IntoIterator<Item = IpAddr>,
        own: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let (to, from) = (AddressSet::from_iter(to), AddressSet::from_iter(from));
        let (left_out, own) = (AddressSet::from_iter(left_out), AddressSet::from_iter(own));
        let own = if from.is_empty() { own } else { own.within(&from) };
        Self { left_out: left_out.within(&to), to, from, own }
    }

    /// This scope with `addresses` as its excluded destinations.
    pub(super) fn leaving_out(&self, addresses: &AddressSet) -> Self {
        Self { left_out: addresses.within(&self.to), ..self.clone() }
    }

    /// Destinations that the box counts.
    pub(super) fn taken(&self) -> AddressSet {
        self.to.without(&self.left_out)
    }
}

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Source of the packet: the key `from`.
    Source,
    /// Destination of the packet: the key `to`.
    Destination,
}

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The sendbox sends them, but no prefix of the receivebox holds them: they are unseen.
    NotCounted(End),
    /// The receivebox counts them, but no prefix of the sendbox holds them.
    NotTaken(End),
    /// The sendbox sends them, but the receivebox excludes them as its own addresses.
    LeftOutByReceivebox,
    /// The receivebox counts them, but the sendbox excludes them as addresses of boxes.
    LeftOutBySendbox,
    /// Unknown prefixes, because a box has more prefixes than fit in a message.
    Unnamed(End),
}

/// A difference between the scopes of the two boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Kind of the difference.
    pub kind: DifferenceKind,
    /// Prefixes at that end of the packets: the largest ones, [`MAX_NAMED`] at most.
    pub prefixes: Vec<IpNet>,
    /// Number of further prefixes.
    pub more: usize,
}

impl Difference {
    fn named(kind: DifferenceKind, addresses: &AddressSet) -> Option<Self> {
        let mut prefixes: Vec<IpNet> = addresses.prefixes().collect();
        // Prefixes of one size stay in ascending order.
        prefixes.sort_by_key(|prefix| Reverse(prefix.max_prefix_len() - prefix.prefix_len()));
        let more = prefixes.len().saturating_sub(MAX_NAMED);
        prefixes.truncate(MAX_NAMED);
        (!prefixes.is_empty()).then_some(Self { kind, prefixes, more })
    }

    /// Whether the difference only concerns addresses of boxes.
    pub(super) const fn is_of_boxes(&self) -> bool {
        matches!(self.kind, DifferenceKind::LeftOutByReceivebox | DifferenceKind::LeftOutBySendbox)
    }

    pub(super) fn unnamed(end: End) -> Self {
        Self { kind: DifferenceKind::Unnamed(end), prefixes: Vec::new(), more: 0 }
    }
}

/// Differences between the scopes of the two boxes.
pub(super) fn compare(sendbox: &Scope, receivebox: &Scope) -> Vec<Difference> {
    let (sent, counted) = (sendbox.taken(), receivebox.taken());
    let (unseen, untaken) = (sent.without(&counted), counted.without(&sent));
    let destination = End::Destination;
    let mut found = [
        (DifferenceKind::NotCounted(destination), unseen.without(&receivebox.to)),
        (DifferenceKind::LeftOutByReceivebox, unseen.within(&receivebox.left_out)),
        (DifferenceKind::NotTaken(destination), untaken.without(&sendbox.to)),
        (DifferenceKind::LeftOutBySendbox, untaken.within(&sendbox.left_out)),
    ]
    .iter()
    .filter_map(|(kind, addresses)| Difference::named(*kind, addresses))
    .collect::<Vec<_>>();
    // If one box names no sources, the sources do not differ.
    if !sendbox.from.is_empty() && !receivebox.from.is_empty() {
        let unseen = sendbox.from.without(&receivebox.from);
        let untaken = receivebox.from.without(&sendbox.from);
        found.extend(Difference::named(DifferenceKind::NotCounted(End::Source), &unseen));
        found.extend(Difference::named(DifferenceKind::NotTaken(End::Source), &untaken));
    }
    found
}
