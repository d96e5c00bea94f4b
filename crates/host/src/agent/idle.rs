//! Which connections give up their slots where others want them: idle ones, and those of users beyond a share that
//! shrinks as more users come. No clock and no I/O.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use forebay_core::units::Timestamp;
use forebay_ebpf::tcp::{FlowId, Holder, SHARE_OF_FREE};

/// A connection of which nothing was heard for so long is idle: it has neither sent anything that was
/// acknowledged nor had a timeout. All that it loses if it goes on is its algorithm's memory.
pub const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Slots are scarce where no more than one in so many is free.
const SCARCE_PARTS: u32 = 4;
/// Idle connections give up theirs until one in so many is free.
const ENOUGH_PARTS: u32 = 2;

/// The user whose connections have no share.
const ROOT: u32 = 0;

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

/// How many slots users are to give up although nothing of theirs is idle, and what one keeps. `slots` are those that
/// are not root's alone, of which `free` are free; what root holds of them it keeps.
///
/// Users who each hold at most SHARE_OF_FREE times what is free come to rest, n of them, with S * SHARE_OF_FREE /
/// (1 + n * SHARE_OF_FREE) of S slots each and a part of S / (1 + n * SHARE_OF_FREE) free (Choudhury and Hahne, 1998,
/// section III). Who came first holds more: it gives up what the next user is to find free.
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

/// How many slots each user gives up at most, so that none is left with fewer than it `keeps`; root's are not shared.
pub fn beyond(keeps: u32, holders: &[Holder]) -> BTreeMap<u32, u32> {
    let all = holders.iter().filter(|it| it.uid != ROOT && it.slots > keeps);
    all.map(|it| (it.uid, it.slots - keeps)).collect()
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
    fn shares_shrink_as_more_users_come() {
        let holders = |slots: &[u32]| -> Vec<Holder> {
            let users = slots.iter().zip(1..);
            users.map(|(slots, uid)| Holder { uid, slots: *slots }).collect()
        };
        // Alone a user has what it found.
        assert_eq!(surplus(480, 120, &holders(&[360])), (0, 480));
        // The second has come; the third is to find a seventh.
        let two = holders(&[360, 90]);
        assert_eq!(surplus(480, 30, &two), (38, 205));
        assert_eq!(beyond(205, &two), BTreeMap::from([(1, 155)]));
        assert_eq!(surplus(480, 68, &holders(&[205, 205])), (0, 205));
        // Root's are no part of it, and nobody is left without.
        let mut three = holders(&[2, 1, 1]);
        three.push(Holder { uid: ROOT, slots: 9 });
        assert_eq!(surplus(13, 0, &three), (0, 1));
        assert_eq!(surplus(9, 0, &three), (0, 1));
        assert_eq!(beyond(1, &three), BTreeMap::from([(1, 1)]));
        assert_eq!(surplus(480, 0, &holders(&[1; 200])), (0, 2));
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
