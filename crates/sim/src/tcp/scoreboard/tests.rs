use super::*;

fn board(segments: u32) -> Scoreboard {
    let mut board = Scoreboard::new(false);
    for number in 0..segments {
        let at = Timestamp::from_nanos(u64::from(number));
        board.send_new(Sent { at, ..Sent::default() });
    }
    board
}

fn block(start: u32, end: u32) -> Range {
    Range { start, end }
}

/// The counters, recounted from the states.
fn recount(board: &Scoreboard) -> (u32, u32, u32) {
    let count = |wanted: u8| {
        (board.una..board.next).filter(|number| board.flag(*number) & wanted != 0).count()
    };
    (count(SACKED) as u32, count(LOST) as u32, count(RESENT) as u32)
}

fn check(board: &Scoreboard) {
    assert_eq!(recount(board), (board.sacked, board.lost, board.resent));
}

#[test]
fn three_sacks_above_a_hole_mark_it_lost() {
    let mut board = board(10);
    assert_eq!(board.acknowledge(0, &[block(1, 3)]).lost, 0);
    assert!(!board.is_head_lost());
    let progress = board.acknowledge(0, &[block(1, 4)]);
    assert_eq!((progress.sacked, progress.lost), (1, 1));
    assert!(board.is_head_lost());
    assert_eq!(board.in_flight(), 10 - 3 - 1);
    // The hole from 4 to 6 lies below 7 and 8 only: not lost before 9 has arrived.
    assert_eq!(board.acknowledge(0, &[block(7, 9), block(1, 4)]).lost, 0);
    assert_eq!(board.acknowledge(0, &[block(7, 10), block(1, 4)]).lost, 3);
    assert_eq!(board.next_lost(), Some(0));
    check(&board);
}

#[test]
fn next_seg_returns_each_hole_once_in_order() {
    let mut board = board(12);
    board.acknowledge(0, &[block(1, 2), block(4, 5), block(8, 12)]);
    let mut holes = Vec::new();
    while let Some(hole) = board.next_lost() {
        holes.push(hole);
        board.send_again(hole, Sent::default());
    }
    assert_eq!(holes, [0, 2, 3, 5, 6, 7]);
    assert_eq!(board.in_flight(), 6);
    assert_eq!(board.next_unsacked(), None);
    check(&board);
}

#[test]
fn rule_3_sends_unlost_segments_below_highest_sack() {
    let mut board = board(8);
    board.acknowledge(0, &[block(3, 4), block(6, 7)]);
    assert_eq!(board.next_lost(), None);
    assert_eq!(board.next_unsacked(), Some(0));
}

#[test]
fn a_sacked_retransmission_leaves_the_pipe() {
    let mut board = board(6);
    board.acknowledge(0, &[block(2, 5)]);
    for hole in [0, 1] {
        assert_eq!(board.next_lost(), Some(hole));
        board.send_again(hole, Sent::default());
    }
    assert_eq!(board.in_flight(), 3);
    board.acknowledge(0, &[block(1, 5)]);
    assert_eq!(board.in_flight(), 2);
    check(&board);
}

#[test]
fn timeout_loses_all_unsacked_segments() {
    let mut board = board(6);
    board.acknowledge(0, &[block(3, 5)]);
    assert_eq!(board.mark_all_lost(), 4);
    assert_eq!(board.in_flight(), 0);
    assert_eq!(board.next_lost(), Some(0));
    board.send_again(0, Sent::default());
    assert_eq!(board.acknowledge(2, &[]).delivered, 2);
    assert_eq!(board.next_lost(), Some(2));
    check(&board);
}

#[test]
fn a_cumulative_acknowledgement_clears_every_counter() {
    let mut board = board(9);
    board.acknowledge(0, &[block(4, 9)]);
    board.send_again(0, Sent::default());
    let progress = board.acknowledge(9, &[]);
    assert_eq!((progress.delivered, board.in_flight(), board.outstanding()), (4, 0, 0));
    check(&board);
}

#[test]
fn only_segments_sent_once_give_rtt_samples() {
    let mut board = board(5);
    board.acknowledge(0, &[block(1, 4)]);
    board.send_again(0, Sent { at: Timestamp::from_nanos(90), ..Sent::default() });
    let progress = board.acknowledge(5, &[]);
    assert_eq!(progress.unambiguous, Some(Timestamp::from_nanos(4)));
    assert_eq!(progress.newest.unwrap().at, Timestamp::from_nanos(90));
}

#[test]
fn the_ring_grows_without_losing_a_state() {
    let mut board = board(14);
    board.acknowledge(10, &[block(12, 13)]);
    for _ in 0..40 {
        board.send_new(Sent::default());
    }
    assert_eq!((board.in_flight(), board.flag(12) & SACKED), (43, SACKED));
    check(&board);
}

#[test]
fn repeated_blocks_over_a_long_run_are_skipped() {
    let segments = 4096;
    let mut board = board(segments);
    for end in 2..=segments {
        let progress = board.acknowledge(0, &[block(1, end)]);
        assert_eq!(progress.sacked, 1);
    }
    // Links span the run: at most a few steps lead from its start to its end.
    let mut steps = 0;
    let mut number = 1;
    while number < segments {
        number = board.sent[(number & board.mask) as usize].skip;
        steps += 1;
    }
    assert!(steps < 32, "{steps} links from end to end");
    check(&board);
}
