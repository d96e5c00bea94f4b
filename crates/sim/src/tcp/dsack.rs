//! Duplicates reported by the receiver (RFC 2883): the first SACK block is the segment that arrived again.
//!
//! The block lies below the acknowledgement number (section 4.1) or inside the second block (section 4.2).

use crate::packet::Range;

/// The segments that `blocks` report as duplicates, with an acknowledgement of all before `ack`.
pub(crate) fn duplicate(ack: u32, blocks: &[Range]) -> Option<Range> {
    let first = blocks.first()?;
    let is_inside = |second: &Range| second.start <= first.start && first.end <= second.end;
    (first.end <= ack || blocks.get(1).is_some_and(is_inside)).then_some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::SackBlocks;
    use crate::tcp::receiver::Receiver;
    use crate::tcp::stack::Tcp;
    use forebay_core::units::Timestamp;

    /// A receiver's report after `numbers`: the last acknowledgement, its blocks, and the duplicate.
    fn report(dsack: bool, numbers: &[u32]) -> (u32, Vec<(u32, u32)>, Option<u32>) {
        let mut receiver = Receiver::new(&Tcp { ack_every: 1, dsack, ..Tcp::NS3 });
        let now = Timestamp::ZERO;
        let acks = numbers.iter().filter_map(|number| receiver.on_data(now, *number, now).0);
        let ack = acks.last().unwrap();
        let mut blocks = SackBlocks::NONE;
        receiver.fill(&ack, &mut blocks);
        let blocks = blocks.as_slice();
        let found = duplicate(ack.number, blocks).map(|range| range.start);
        (ack.number, blocks.iter().map(|block| (block.start, block.end)).collect(), found)
    }

    #[test]
    fn a_segment_below_the_acknowledgement_is_reported_first() {
        // RFC 2883 section 4.1.1: everything has arrived, then one arrives again.
        assert_eq!(report(true, &[0, 1, 2, 1]), (3, vec![(1, 2)], Some(1)));
        // Section 4.1.2: with a gap above it.
        assert_eq!(report(true, &[0, 1, 3, 0]), (2, vec![(0, 1), (3, 4)], Some(0)));
        assert_eq!(report(false, &[0, 1, 3, 0]), (2, vec![(3, 4)], None));
    }

    #[test]
    fn duplicate_segment_precedes_its_enclosing_block() {
        // RFC 2883 section 4.2.1.
        assert_eq!(report(true, &[0, 2, 3, 4, 3]), (1, vec![(3, 4), (2, 5)], Some(3)));
        assert_eq!(report(true, &[0, 2, 3, 4]), (1, vec![(2, 5)], None));
    }
}
