//! Alarms for operators.

/// A condition that an operator should look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A part of the sent packets is not seen to arrive, whatever the rate.
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
                "a part of what leaves never comes to the receivebox, at whatever rate: it dies on \
                 the way, takes another way, or the boxes' prefixes differ"
            }
            Self::Imbalanced => {
                "packets overtake each other all the time: the bundle takes several paths of different \
                 delay, or a fair queue at the bottleneck sends some flows before others"
            }
            Self::Unsteady => "the share of what comes to the receivebox changes by itself",
            Self::Foreign => {
                "more comes to the receivebox in the bundle's name than leaves: it is forged, or \
                 passes the sendbox by"
            }
        }
    }
}
