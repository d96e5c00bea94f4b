//! Selects connections that give up their slots when slots are scarce: idle ones, and connections of users beyond
//! their share. The share shrinks with each further user. No clock and no I/O.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::{FlowId, Holder, SHARE_OF_FREE};

/// A connection without a record for this time is idle: it has sent nothing that was acknowledged and had no timeout.
/// If it goes on later, it has only lost the memory of its algorithm.
pub const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Slots are scarce if at most one in this number is free.
const SCARCE_PARTS: u32 = 4;
/// Idle connections give up slots until one in this number is free.
const ENOUGH_PARTS: u32 = 2;

/// The user without a limit on its share: root.
const ROOT: u32 = 0;

/// An idle connection, and since when it has been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleConnection {
    /// The idle connection.
    pub flow: FlowId,
    /// User of the connection.
    pub uid: u32,
    /// Time of the last record.
    pub since: Timestamp,
}

/// Number of slots to give up, for `free` free ones out of `slots`. `is_wanted`: a connection has requested a slot in
/// vain.
pub fn lacking(slots: u32, free: u32, is_wanted: bool) -> u32 {
    if is_wanted || free <= slots / SCARCE_PARTS {
        slots.div_ceil(ENOUGH_PARTS).saturating_sub(free)
    } else {
        0
    }
}

/// Number of slots that users must give up although their connections are not idle, and the number that a user keeps.
/// `slots` excludes the slots reserved for root, and `free` is the number of free ones. Root keeps the slots that it
/// holds.
///
/// Each user may hold at most SHARE_OF_FREE times the free slots. With n users and S slots this settles at S *
/// SHARE_OF_FREE / (1 + n * SHARE_OF_FREE) slots per user and S / (1 + n * SHARE_OF_FREE) free ones (Choudhury and
/// Hahne, 1998, section III). The first user holds more than that: it gives up the slots that the next user must find
/// free.
pub fn surplus(slots: u32, free: u32, holders: &[Holder]) -> (u32, u32) {
    let users = holders.iter().filter(|it| it.uid != ROOT).count() as u32;
    let of_root = holders.iter().find(|it| it.uid == ROOT).map_or(0, |it| it.slots);
    let slots = slots.saturating_sub(of_root);
    if users < 2 {
        return (0, slots);
    }
    let parts = 1 + users.saturating_mul(SHARE_OF_FREE);
    ((slots / parts).saturating_sub(free), (slots * SHARE_OF_FREE / parts).max(1))
}

/// Largest number of slots that each user gives up: each keeps `keeps` slots, and root gives up none.
pub fn beyond(keeps: u32, holders: &[Holder]) -> BTreeMap<u32, u32> {
    let all = holders.iter().filter(|it| it.uid != ROOT && it.slots > keeps);
    all.map(|it| (it.uid, it.slots - keeps)).collect()
}

/// The connections of `idle` in the order in which they give up their slots. The user that still holds most slots
/// goes first, with its longest idle connection.
pub fn in_turn(mut idle: Vec<IdleConnection>, holders: &[Holder]) -> Vec<FlowId> {
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

    fn idle(slot: u32, uid: u32, since_secs: u64) -> IdleConnection {
        let since = Timestamp::from_nanos(since_secs * 1_000_000_000);
        IdleConnection { flow: FlowId { slot, generation: slot + 1 }, uid, since }
    }

    #[test]
    fn half_the_slots_are_freed_when_scarce() {
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
    fn shares_shrink_as_more_users_come() {
        let holders = |slots: &[u32]| -> Vec<Holder> {
            let users = slots.iter().zip(1..);
            users.map(|(slots, uid)| Holder { uid, slots: *slots }).collect()
        };
        // A user alone keeps all that it holds.
        assert_eq!(surplus(480, 120, &holders(&[360])), (0, 480));
        // A second user has come; the third must find a seventh free.
        let two = holders(&[360, 90]);
        assert_eq!(surplus(480, 30, &two), (38, 205));
        assert_eq!(beyond(205, &two), BTreeMap::from([(1, 155)]));
        assert_eq!(surplus(480, 68, &holders(&[205, 205])), (0, 205));
        // Root's slots are not counted, and no user is left without a slot.
        let mut three = holders(&[2, 1, 1]);
        three.push(Holder { uid: ROOT, slots: 9 });
        assert_eq!(surplus(13, 0, &three), (0, 1));
        assert_eq!(surplus(9, 0, &three), (0, 1));
        assert_eq!(beyond(1, &three), BTreeMap::from([(1, 1)]));
        assert_eq!(surplus(480, 0, &holders(&[1; 200])), (0, 2));
    }

    #[test]
    fn largest_user_loses_longest_idle_connections_first() {
        let holders = [Holder { uid: 7, slots: 5 }, Holder { uid: 8, slots: 3 }];
        let all = vec![
            idle(0, 8, 1),
            idle(1, 7, 5),
            idle(2, 7, 3),
            idle(3, 7, 4),
            idle(4, 8, 2),
            // This user is not among the holders.
            idle(5, 0, 0),
        ];
        let order: Vec<u32> = in_turn(all, &holders).iter().map(|flow| flow.slot).collect();
        // The first user has 5 and 4 slots; of equals the greater uid goes first; then 3, 3, 2, 2, 1.
        assert_eq!(order, [2, 3, 0, 1, 4, 5]);
        assert_eq!(in_turn(Vec::new(), &holders), []);
    }
}
