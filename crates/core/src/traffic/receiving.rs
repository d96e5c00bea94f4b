//! How receivers of TCP connections read and acknowledge data, including receivers that misbehave.
//!
//! ```text
//! honest        as the stack does
//! dividing      each acknowledgement in several pieces; all but the last end within a segment
//! duplicating   each acknowledgement several times over
//! optimistic    data that have not arrived yet, and missing data as if they had arrived
//! concealing    never echoes marks (congestion experienced)
//! ```
//! Sources: Savage, Cardwell, Wetherall, Anderson, "TCP Congestion Control with a Misbehaving Receiver", CCR
//! 29(5), 1999; for the last conduct Ely, Spring, Wetherall, Savage, Anderson, "Robust Congestion Signaling",
//! ICNP 2001, and RFC 3540. Counting bytes and not acknowledgements helps against the first (RFC 5681 section
//! 3.1, RFC 3465). Against the second helps that only SACK blocks show a duplicate (RFC 6675 section 2).

use alloc::vec::Vec;

use crate::spec::{Param, Parameter, Spec, SpecError, one_of};
use crate::units::{ByteCount, Duration, Rate};

/// How the receivers of a flow read and acknowledge; `None`: as their stack does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Receiving {
    /// Whether the receivers acknowledge honestly.
    pub conduct: Conduct,
    /// Highest rate at which the application reads payload; `None`: at once.
    pub read_rate: Option<Rate>,
    /// Payload that waits for the application, and is announced as the window, at most.
    pub buffer: Option<ByteCount>,
    /// Segments in order that share an acknowledgement (RFC 1122 section 4.2.3.2).
    pub ack_every: Option<u32>,
    /// Longest time that an acknowledgement waits for these segments.
    pub ack_delay: Option<Duration>,
}

/// How a receiver acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Conduct {
    /// The receiver acknowledges the data that have come.
    #[default]
    Honest,
    /// An acknowledgement is sent in this many pieces.
    Dividing(u32),
    /// An acknowledgement is sent this many times more.
    Duplicating(u32),
    /// This many segments are acknowledged ahead of the arrived ones.
    Optimistic(u32),
    /// Marks are not reported.
    Concealing,
}

/// A conduct that a plan can name.
#[derive(Debug)]
pub struct Receiver {
    /// Name in plans.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Where it is described.
    pub sources: &'static [&'static str],
    /// Parameters of the conduct.
    pub params: &'static [&'static dyn Parameter],
    build: fn(&Spec) -> Result<Conduct, SpecError>,
}

/// More pieces or copies are no acknowledgements any more but a flood.
const PIECES_MAX: u64 = 100;
/// A larger lead than most windows.
const LEAD_MAX: u64 = 10_000;

/// Pieces of each acknowledgement. A sender that counts acknowledgements grows its window by as
/// many segments.
const PIECES: Param<u64> =
    Param::new("pieces", "pieces of each acknowledgement").or(10).within(2..=PIECES_MAX);
/// Copies of each acknowledgement.
const COPIES: Param<u64> =
    Param::new("copies", "copies of each acknowledgement").or(10).within(1..=PIECES_MAX);
/// Segments acknowledged ahead of arrival. A larger lead makes the round trip seem shorter.
const LEAD: Param<u64> = Param::new(
    "lead",
    "segments that are acknowledged before they arrive; with 0, only losses are hidden",
)
.or(5)
.within(0..=LEAD_MAX);

/// Source of the first three conducts.
const SAVAGE: &str = "Savage et al., CCR 29(5), 1999";

/// All receivers that plans can name.
pub const RECEIVERS: &[Receiver] = &[
    Receiver {
        name: "honest",
        summary: "acknowledges received segments",
        sources: &["RFC 5681"],
        params: &[],
        build: |_| Ok(Conduct::Honest),
    },
    Receiver {
        name: "dividing",
        summary: "sends each acknowledgement in several pieces: a sender that counts \
                  acknowledgements instead of bytes grows its window with each piece",
        sources: &[SAVAGE, "RFC 3465", "RFC 5681 section 3.1"],
        params: &[&PIECES],
        build: |spec| PIECES.of(spec).map(|pieces| Conduct::Dividing(pieces as u32)),
    },
    Receiver {
        name: "duplicating",
        summary: "repeats each acknowledgement: a sender that counts duplicates without SACK \
                  blocks assumes lost segments and sends one for each copy",
        sources: &[SAVAGE, "RFC 6675 section 2"],
        params: &[&COPIES],
        build: |spec| COPIES.of(spec).map(|copies| Conduct::Duplicating(copies as u32)),
    },
    Receiver {
        name: "optimistic",
        summary: "acknowledges segments before they arrive, lost ones too: round trips seem \
                  shorter, and losses are hidden. Lost data never arrives",
        sources: &[SAVAGE],
        params: &[&LEAD],
        build: |spec| LEAD.of(spec).map(|lead| Conduct::Optimistic(lead as u32)),
    },
    Receiver {
        name: "concealing",
        summary: "never reports CE marks, with any kind of ECN feedback",
        sources: &["RFC 3540", "Ely et al., ICNP 2001"],
        params: &[],
        build: |_| Ok(Conduct::Concealing),
    },
];

impl Conduct {
    /// The conduct that `spec` names.
    ///
    /// # Errors
    ///
    /// No receiver has that name, the receiver lacks a parameter, or a value is out of range.
    pub fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let Some(receiver) = RECEIVERS.iter().find(|receiver| receiver.name == spec.kind) else {
            let names: Vec<&str> = RECEIVERS.iter().map(|receiver| receiver.name).collect();
            return Err(SpecError::new("kind", &spec.kind, &one_of(&spec.kind, &names)));
        };
        spec.check_names(receiver.params)?;
        (receiver.build)(spec)
    }
}

impl Receiving {
    /// The key of plans for the first setting that differs from the stack's behaviour; `None` if none differs.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("receiver", self.conduct != Conduct::Honest),
            ("read_rate", self.read_rate.is_some()),
            ("receive_buffer", self.buffer.is_some()),
            ("ack_every", self.ack_every.is_some()),
            ("ack_delay", self.ack_delay.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn conduct_is_read_with_its_number_or_default() {
        let read = |text: &str| Conduct::from_spec(&text.parse().unwrap());
        assert_eq!(read("honest"), Ok(Conduct::default()));
        assert_eq!(read("dividing"), Ok(Conduct::Dividing(10)));
        assert_eq!(read("dividing(pieces=2)"), Ok(Conduct::Dividing(2)));
        assert_eq!(read("duplicating(copies=100)"), Ok(Conduct::Duplicating(100)));
        assert_eq!(read("optimistic(lead=0)"), Ok(Conduct::Optimistic(0)));
        assert_eq!(read("concealing"), Ok(Conduct::Concealing));
    }

    #[test]
    fn unknown_or_invalid_conduct_is_refused_by_name() {
        let refused = |text: &str| Conduct::from_spec(&text.parse().unwrap()).unwrap_err();
        let pieces = "pieces = 101: allowed is a whole number, 2 to 100";
        assert_eq!(refused("dividing(pieces=101)").to_string(), pieces);
        assert_eq!(refused("honest(lead=1)").allowed, "no parameter of honest");
        let unknown = refused("optimist").to_string();
        assert!(unknown.starts_with("kind = optimist: allowed is"), "{unknown}");
        assert!(unknown.contains("optimistic"), "{unknown}");
    }
}
