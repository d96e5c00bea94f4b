//! False acknowledgements of dishonest receivers.
//!
//! ```text
//! dividing      number - advance ────────► number      pieces that end at even parts of it
//! duplicating   number, number, number, ..
//! optimistic    number + lead; missing segments below count as arrived. If the sender repeats a
//!               segment that was claimed before, it did not believe the claim: number alone
//! ```
//! Source: Savage et al., "TCP Congestion Control with a Misbehaving Receiver", CCR 29(5), 1999. Their
//! optimistic acknowledgements follow a pace that the receiver guesses; here they follow arrivals, like the
//! other kinds. Numbers count segments, so a piece that ends within a segment has the number of that segment.

use std::collections::BTreeSet;

use forebay_core::traffic::Conduct;

use super::receiver::Ack;

/// State of a dishonest receiver.
#[derive(Debug)]
pub(crate) struct Claims {
    conduct: Conduct,
    /// Highest acknowledgement number before changes.
    acked: u32,
    /// Missing segments that are acknowledged as if they had arrived.
    missing: BTreeSet<u32>,
    /// The last arrival had been claimed before.
    is_repeat: bool,
}

impl Claims {
    /// State before the first acknowledgement.
    pub fn new(conduct: Conduct) -> Self {
        Self { conduct, acked: 0, missing: BTreeSet::new(), is_repeat: false }
    }

    /// Whether missing segments count as arrived.
    pub fn hides_losses(&self) -> bool {
        matches!(self.conduct, Conduct::Optimistic(_))
    }

    /// Segments `numbers` are missing, and count as arrived.
    pub fn skip(&mut self, numbers: std::ops::Range<u32>) {
        self.missing.extend(numbers);
    }

    /// Segment `number`, already acknowledged, arrives; true if it had not arrived before.
    pub fn on_repeat(&mut self, number: u32) -> bool {
        self.is_repeat = true;
        self.missing.remove(&number)
    }

    /// Segments that were acknowledged but have not arrived; those above all arrivals are not counted.
    pub fn missing(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Acknowledgements to send for `ack`, at least one.
    pub fn answers(&mut self, ack: Ack) -> impl Iterator<Item = Ack> + use<> {
        let from = std::mem::replace(&mut self.acked, ack.number);
        let advance = u64::from(ack.number - from);
        let is_repeat = std::mem::take(&mut self.is_repeat);
        let (count, pieces, lead) = match self.conduct {
            Conduct::Dividing(pieces) if advance > 0 => (pieces, pieces, 0),
            Conduct::Duplicating(copies) => (copies + 1, 1, 0),
            Conduct::Optimistic(lead) if !is_repeat => (1, 1, lead),
            _ => (1, 1, 0),
        };
        (1..=count).map(move |piece| {
            let part = advance * u64::from(piece.min(pieces)) / u64::from(pieces);
            let mut answer = ack;
            answer.number = from + part as u32 + lead;
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::receiver::Receiver;
    use crate::tcp::stack::Tcp;
    use forebay_core::traffic::Receiving;
    use forebay_core::units::Timestamp;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn receiver(conduct: Conduct, ack_every: u32) -> Receiver {
        let tcp = Tcp { ack_every, quick_acks: 0, ..Tcp::LINUX };
        Receiver::new(&tcp).with(&Receiving { conduct, ..Receiving::default() })
    }

    /// Numbers of the acknowledgements when segment `number` arrives, and whether it is new.
    fn arrive(receiver: &mut Receiver, number: u32) -> (Vec<u32>, bool) {
        let sent = at(u64::from(number) + 10);
        let (ack, is_new) = receiver.on_data(sent, number, sent);
        let answers = ack.and_then(|ack| receiver.answers(ack));
        (answers.into_iter().flatten().map(|ack| ack.number).collect(), is_new)
    }

    #[test]
    fn divided_acks_cover_equal_parts() {
        let mut one = receiver(Conduct::Dividing(4), 1);
        assert_eq!(arrive(&mut one, 0), (vec![0, 0, 0, 1], true));
        let mut two = receiver(Conduct::Dividing(4), 2);
        assert_eq!(arrive(&mut two, 0), (vec![], true));
        assert_eq!(arrive(&mut two, 1), (vec![0, 1, 1, 2], true));
        // A duplicate acknowledges nothing that could be divided.
        assert_eq!(arrive(&mut two, 3), (vec![2], true));
        assert_eq!(arrive(&mut two, 2), (vec![2, 3, 3, 4], true));
    }

    #[test]
    fn copies_follow_every_acknowledgement() {
        let mut receiver = receiver(Conduct::Duplicating(2), 1);
        assert_eq!(arrive(&mut receiver, 0), (vec![1; 3], true));
        assert_eq!(arrive(&mut receiver, 2), (vec![1; 3], true));
        assert_eq!(receiver.unreceived(), None, "it claims nothing that has not come");
    }

    #[test]
    fn optimistic_acks_hide_and_count_losses() {
        let mut receiver = receiver(Conduct::Optimistic(5), 1);
        assert_eq!(arrive(&mut receiver, 0), (vec![6], true));
        // 1 and 2 are lost.
        assert_eq!(arrive(&mut receiver, 3), (vec![9], true));
        assert_eq!(receiver.unreceived(), Some(2));
        let ack = receiver.on_data(at(50), 4, at(40)).0.unwrap();
        assert_eq!((receiver.block_count(&ack), ack.echo), (0, at(40)));
        assert_eq!(receiver.answers(ack).unwrap().count(), 1);
        // 2 was only late. The sender's repeat of 1 shows that it did not believe the claim.
        assert_eq!(arrive(&mut receiver, 2), (vec![5], true));
        assert_eq!(arrive(&mut receiver, 1), (vec![5], true));
        assert_eq!(arrive(&mut receiver, 1), (vec![5], false));
        assert_eq!((receiver.unreceived(), receiver.duplicates()), (Some(0), 1));
        assert_eq!(arrive(&mut receiver, 5), (vec![11], true));
    }

    #[test]
    fn hidden_loss_echoes_timestamp_of_received_segment() {
        let mut receiver = receiver(Conduct::Optimistic(0), 2);
        assert_eq!(arrive(&mut receiver, 0), (vec![], true));
        // The acknowledgement of 0 and 2 echoes 0, because 0 waited for it.
        let ack = receiver.on_data(at(2), 2, at(2)).0.unwrap();
        assert_eq!((ack.number, ack.echo), (3, at(10)));
        assert_eq!(receiver.on_data(at(7), 7, at(7)), (None, true));
        assert_eq!((receiver.acknowledge().echo, receiver.unreceived()), (at(7), Some(5)));
    }
}
