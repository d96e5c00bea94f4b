//! Which connections give up their slots where others want them. No clock and no I/O.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::{FlowId, Holder};

/// A connection of which nothing was heard for so long is idle: it has neither sent anything that was
/// acknowledged nor had a timeout. All that it loses if it goes on is its algorithm's memory.
pub const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Slots are scarce where no more than one in so many is free.
const SCARCE_PARTS: u32 = 4;
/// Idle connections give up theirs until one in so many is free.
const ENOUGH_PARTS: u32 = 2;

/// A connection that is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// The idle connection.
    pub flow: FlowId,
    /// User of the connection.
    pub uid: u32,
    /// Since when.
    pub since: Timestamp,
}

/// How many of `slots` are to be given up, of which `free` are free; `is_wanted`: somebody has asked for
/// one in vain.
pub fn lacking(slots: u32, free: u32, is_wanted: bool) -> u32 {
    if is_wanted || free <= slots / SCARCE_PARTS {
        slots.div_ceil(ENOUGH_PARTS).saturating_sub(free)
    } else {
        0
    }
}

/// The connections of `idle` in the order in which they give up their slots: always one of the user who
/// still holds most of those who have any, and the one that is idle for longest.
pub fn in_turn(mut idle: Vec<Idle>, holders: &[Holder]) -> Vec<FlowId> {
    // The oldest are taken from the end.
    idle.sort_by_key(|it| std::cmp::Reverse((it.since, it.flow)));
    let mut of_user: BTreeMap<u32, Vec<FlowId>> = BTreeMap::new();
    for it in &idle {
        of_user.entry(it.uid).or_default().push(it.flow);
    }
    let held: BTreeMap<u32, u32> = holders.iter().map(|it| (it.uid, it.slots)).collect();
    let mut users: BinaryHeap<(u32, u32)> = of_user
        .iter()
        .map(|(uid, flows)| (held.get(uid).copied().unwrap_or(flows.len() as u32), *uid))
        .collect();
    let mut order = Vec::with_capacity(idle.len());
    while let Some((slots, uid)) = users.pop() {
        let Some(flow) = of_user.get_mut(&uid).and_then(Vec::pop) else { continue };
        order.push(flow);
        users.push((slots.saturating_sub(1), uid));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(slot: u32, uid: u32, since_secs: u64) -> Idle {
        let since = Timestamp::from_nanos(since_secs * 1_000_000_000);
        Idle { flow: FlowId { slot, generation: slot + 1 }, uid, since }
    }

    #[test]
    fn half_of_the_slots_are_made_free_where_a_quarter_is_or_somebody_found_none() {
        for (slots, free, is_wanted, count) in [
            (16, 4, false, 4),
            (16, 5, false, 0),
            (16, 5, true, 3),
            (16, 8, true, 0),
            (16, 0, false, 8),
            (1, 0, false, 1),
            (1, 1, true, 0),
            (3, 0, true, 2),
        ] {
            assert_eq!(lacking(slots, free, is_wanted), count, "{slots} {free} {is_wanted}");
        }
    }

    #[test]
    fn the_user_who_holds_most_gives_up_first_and_of_it_what_is_idle_for_longest() {
        let holders = [Holder { uid: 7, slots: 5 }, Holder { uid: 8, slots: 3 }];
        let all = vec![
            idle(0, 8, 1),
            idle(1, 7, 5),
            idle(2, 7, 3),
            idle(3, 7, 4),
            idle(4, 8, 2),
            // Counted in no cell.
            idle(5, 0, 0),
        ];
        let order: Vec<u32> = in_turn(all, &holders).iter().map(|flow| flow.slot).collect();
        // 5 and 4 of the one; of equals the greater uid; 3, 3, 2, 2, 1.
        assert_eq!(order, [2, 3, 0, 1, 4, 5]);
        assert_eq!(in_turn(Vec::new(), &holders), []);
    }
}
