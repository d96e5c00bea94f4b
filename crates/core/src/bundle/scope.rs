//! What each box takes for the bundle's packets, and in what two boxes differ: what only one of the two takes is named.
//!
//! A sendbox whose receivebox counts less than it sends is blind to the rest, and would find that from loss alone
//! (`visibility`). So the boxes tell each other their scopes (`exchange`).

mod addresses;
#[cfg(test)]
pub(super) mod tests;

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;

use ipnet::IpNet;

pub use addresses::AddressSet;

/// Prefixes of one difference that are named; the rest is counted.
pub const MAX_NAMED: usize = 4;

/// Which packets a box takes for the bundle's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Prefixes of destinations.
    pub(super) to: AddressSet,
    /// Addresses of boxes among the destinations that are left out.
    pub(super) left_out: AddressSet,
    /// Prefixes of sources; none: any source.
    pub(super) from: AddressSet,
    /// Addresses of a sendbox among the sources: packets of its own do not pass its LAN port.
    pub(super) own: AddressSet,
}

impl Scope {
    /// Packets `from` prefixes, any where there are none, `to` prefixes, without those to the addresses `left_out`
    /// and those from `own` ones. Addresses outside the prefixes do not matter.
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

    /// This scope with other addresses left out of its destinations.
    pub(super) fn leaving_out(&self, addresses: &AddressSet) -> Self {
        Self { left_out: addresses.within(&self.to), ..self.clone() }
    }

    /// Destinations that the box takes.
    pub(super) fn taken(&self) -> AddressSet {
        self.to.without(&self.left_out)
    }
}

/// Which end of a packet is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Source of the packet: the key `from`.
    Source,
    /// Destination of the packet: the key `to`.
    Destination,
}

/// In what the boxes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The sendbox takes them, the receivebox has no prefix that holds them: they are unseen.
    NotCounted(End),
    /// The receivebox counts them, the sendbox has no prefix that holds them.
    NotTaken(End),
    /// The sendbox takes them, to the receivebox they are its own.
    LeftOutByReceivebox,
    /// The receivebox counts them, to the sendbox they are those of boxes.
    LeftOutBySendbox,
    /// Something, among more prefixes than the other box could tell.
    Unnamed(End),
}

/// A difference between what the two boxes take for the bundle's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// In what.
    pub kind: Kind,
    /// The packets, by that end: the largest prefixes, [`MAX_NAMED`] at most.
    pub prefixes: Vec<IpNet>,
    /// Further prefixes.
    pub more: usize,
}

impl Difference {
    fn named(kind: Kind, addresses: &AddressSet) -> Option<Self> {
        let mut prefixes: Vec<IpNet> = addresses.prefixes().collect();
        // Those of one size stay in ascending order.
        prefixes.sort_by_key(|prefix| Reverse(prefix.max_prefix_len() - prefix.prefix_len()));
        let more = prefixes.len().saturating_sub(MAX_NAMED);
        prefixes.truncate(MAX_NAMED);
        (!prefixes.is_empty()).then_some(Self { kind, prefixes, more })
    }

    /// Whether the difference is about addresses of boxes alone.
    pub(super) const fn is_of_boxes(&self) -> bool {
        matches!(self.kind, Kind::LeftOutByReceivebox | Kind::LeftOutBySendbox)
    }

    pub(super) fn unnamed(end: End) -> Self {
        Self { kind: Kind::Unnamed(end), prefixes: Vec::new(), more: 0 }
    }
}

/// What only one of the boxes takes.
pub(super) fn compare(sendbox: &Scope, receivebox: &Scope) -> Vec<Difference> {
    let (sent, counted) = (sendbox.taken(), receivebox.taken());
    let (unseen, untaken) = (sent.without(&counted), counted.without(&sent));
    let destination = End::Destination;
    let mut found = [
        (Kind::NotCounted(destination), unseen.without(&receivebox.to)),
        (Kind::LeftOutByReceivebox, unseen.within(&receivebox.left_out)),
        (Kind::NotTaken(destination), untaken.without(&sendbox.to)),
        (Kind::LeftOutBySendbox, untaken.within(&sendbox.left_out)),
    ]
    .iter()
    .filter_map(|(kind, addresses)| Difference::named(*kind, addresses))
    .collect::<Vec<_>>();
    // A sendbox without sources takes those of the receivebox for granted.
    if !sendbox.from.is_empty() && !receivebox.from.is_empty() {
        let unseen = sendbox.from.without(&receivebox.from);
        let untaken = receivebox.from.without(&sendbox.from);
        found.extend(Difference::named(Kind::NotCounted(End::Source), &unseen));
        found.extend(Difference::named(Kind::NotTaken(End::Source), &untaken));
    }
    found
}
