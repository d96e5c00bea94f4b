//! Alarms for operators.

/// A condition that an operator should look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The receivebox does not see a part of the sent packets, at any rate.
    Unseen,
    /// The seen share changes by itself.
    Unsteady,
    /// More arrives in the bundle's name than leaves.
    Foreign,
    /// Packets arrive in another order all the time, found by `bundle::order`.
    Imbalanced,
}

impl Alarm {
    /// The finding as text for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unseen => {
                "part of the traffic never reaches the receivebox, at any rate: it is dropped, \
                 takes another path, or the boxes' prefixes differ"
            }
            Self::Imbalanced => {
                "packets are reordered all the time: the bundle takes several paths of different \
                 delay, or a fair queue at the bottleneck prefers some flows"
            }
            Self::Unsteady => "the share of traffic that reaches the receivebox changes by itself",
            Self::Foreign => {
                "the receivebox gets more of the bundle's traffic than the sendbox sends: it is \
                 forged, or bypasses the sendbox"
            }
        }
    }
}
