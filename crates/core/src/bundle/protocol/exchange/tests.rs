use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use ipnet::IpNet;

use super::super::scope::tests::{nets, scope, told};
use super::*;

const MS: Duration = Duration::from_millis(1);
const ONE_WAY: Duration = Duration::from_millis(25);
const SENDBOX: usize = 0;
const RECEIVEBOX: usize = 1;

/// Both ends, 25 ms apart.
struct Pair {
    now: Timestamp,
    ends: [Exchange; 2],
    flying: VecDeque<(Timestamp, usize, ScopeMessage)>,
    sent: [Vec<Timestamp>; 2],
    news: [u32; 2],
    /// Whether a message is lost, by its number.
    is_lost: fn(usize) -> bool,
}

impl Pair {
    fn new() -> Self {
        Self {
            now: Timestamp::from_nanos(1_000_000_000),
            ends: [Role::Sendbox, Role::Receivebox].map(Exchange::new),
            flying: VecDeque::new(),
            sent: Default::default(),
            news: [0; 2],
            is_lost: |_| false,
        }
    }

    /// Two ends with these scopes that know each other.
    fn of(scopes: [Scope; 2]) -> Self {
        let mut pair = Self::new();
        for (end, scope) in scopes.into_iter().enumerate() {
            pair.set(end, scope);
            pair.ends[end].on_session(pair.now);
        }
        pair
    }

    fn set(&mut self, end: usize, scope: Scope) {
        self.news[end] += u32::from(self.ends[end].set(self.now, scope));
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += MS;
            while let Some((_, to, message)) = self.flying.pop_front_if(|(at, ..)| *at <= self.now)
            {
                self.news[to] += u32::from(self.ends[to].on_message(self.now, &message));
            }
            for from in [SENDBOX, RECEIVEBOX] {
                if let Some(message) = self.ends[from].poll(self.now) {
                    self.sent[from].push(self.now);
                    if !(self.is_lost)(self.sent.iter().map(Vec::len).sum()) {
                        self.flying.push_back((self.now + ONE_WAY, 1 - from, message));
                    }
                }
                assert!(self.ends[from].next_timer() > self.now);
            }
        }
    }

    fn told(&self) -> [Option<Vec<String>>; 2] {
        [SENDBOX, RECEIVEBOX].map(|end| self.ends[end].differences().map(told))
    }
}

const WIDE: [&str; 2] = ["10.1.2.0/24", "10.1.3.0/24"];
const FROM: [&str; 1] = ["10.1.1.0/24"];

fn differing() -> [Scope; 2] {
    [scope(&WIDE, &[], &[], &["10.1.1.9"]), scope(&WIDE[..1], &FROM, &[], &[])]
}

#[test]
fn both_boxes_report_a_difference_then_fall_silent() {
    let mut pair = Pair::of(differing());
    pair.run(ONE_WAY * 2 + MS * 2);
    let expected = Some(Vec::from(["NotCounted(Destination) [10.1.3.0/24] 0".into()]));
    assert_eq!(pair.told(), [expected.clone(), expected]);
    assert_eq!(pair.news, [1, 1]);
    pair.run(MS * 200);
    let sent = pair.sent.each_ref().map(Vec::len);
    assert!(sent.iter().all(|sent| *sent <= 3), "{sent:?}");
    pair.run(MS * 60_000);
    assert_eq!(pair.sent.each_ref().map(Vec::len), sent);
    // Another session of the same boxes: no news.
    for end in &mut pair.ends {
        end.on_session(pair.now);
    }
    pair.run(MS * 1000);
    assert_eq!((pair.told()[SENDBOX].as_ref().map(Vec::len), pair.news), (Some(1), [1, 1]));
    let own: Vec<IpNet> = pair.ends[RECEIVEBOX].peer_own().unwrap().prefixes().collect();
    assert_eq!(own, nets(&["10.1.1.9/32"]));
}

#[test]
fn change_at_either_box_clears_the_difference() {
    for mended in [SENDBOX, RECEIVEBOX] {
        let mut pair = Pair::of(differing());
        pair.run(MS * 1000);
        let to = if mended == SENDBOX { &WIDE[..1] } else { &WIDE[..] };
        pair.set(mended, scope(to, if mended == SENDBOX { &[] } else { &FROM }, &[], &[]));
        pair.run(MS * 1000);
        assert_eq!(pair.told(), [Some(Vec::new()), Some(Vec::new())]);
        assert_eq!(pair.news, [2, 2]);
        // Setting the same scope again sends nothing.
        let sent = pair.sent.clone();
        let same = pair.ends[mended].mine.clone().unwrap().scope;
        pair.set(mended, same);
        pair.run(MS * 1000);
        assert_eq!(pair.sent, sent);
    }
}

/// A pseudo-random number from 0 to 99 for a message number.
const fn scattered(n: usize) -> usize {
    (n.wrapping_mul(0x9e37_79b9) >> 8) % 100
}

#[test]
fn lost_messages_are_repeated_until_both_know() {
    // The first, the first six, half of all, two thirds.
    let rules: [fn(usize) -> bool; 4] =
        [|n| n == 1, |n| n <= 6, |n| scattered(n) < 50, |n| scattered(n) < 67];
    for (rule, is_lost) in rules.into_iter().enumerate() {
        let mut pair = Pair::of(differing());
        pair.is_lost = is_lost;
        pair.run(MS * 60_000);
        let knows = |end: &Exchange| end.telling.is_held() && end.differences().is_some();
        assert!(pair.ends.iter().all(knows), "{rule}");
        let silent_since = pair.sent.iter().flatten().max().copied().unwrap();
        pair.run(MS * 60_000);
        assert_eq!(pair.sent.iter().flatten().max(), Some(&silent_since), "{rule}");
    }
}

#[test]
fn changing_scopes_are_sent_every_100_ms() {
    let mut pair = Pair::of(differing());
    for n in 0..2000_u16 {
        let [high, low] = n.to_be_bytes();
        pair.set(SENDBOX, scope(&[&format!("10.2.{high}.{low}/32")], &[], &[], &[]));
        pair.run(MS);
    }
    assert!(pair.sent.iter().all(|sent| sent.len() <= 21), "{:?}", pair.sent);
    pair.run(MS * 1000);
    assert!(pair.told()[RECEIVEBOX].as_ref().unwrap()[0].contains("10.2.7.207/32"));
}

#[test]
fn peer_without_scopes_gets_few_and_no_report() {
    let mut pair = Pair::of(differing());
    pair.is_lost = |_| true;
    pair.run(MS * 120_000);
    assert_eq!(pair.told(), [None, None]);
    assert_eq!(pair.news, [0, 0]);
    assert!(pair.sent.iter().all(|sent| (8..=20).contains(&sent.len())), "{:?}", pair.sent);
}

#[test]
fn box_without_a_scope_sends_and_answers_none() {
    let mut pair = Pair::new();
    for end in &mut pair.ends {
        end.on_session(pair.now);
    }
    pair.set(SENDBOX, differing()[SENDBOX].clone());
    pair.run(MS * 1000);
    assert_eq!(pair.told(), [None, None]);
    assert!(!pair.sent[SENDBOX].is_empty() && pair.sent[RECEIVEBOX].is_empty());
}

#[test]
fn new_session_forgets_what_was_sent_before() {
    let mut pair = Pair::of(differing());
    pair.run(MS * 1000);
    // The receivebox restarts and waits for a session before it sends its scope.
    pair.ends[RECEIVEBOX] = Exchange::new(Role::Receivebox);
    pair.set(RECEIVEBOX, scope(&WIDE, &FROM, &[], &[]));
    pair.run(MS * 1000);
    assert_eq!(pair.told()[RECEIVEBOX], None);
    for end in &mut pair.ends {
        end.on_session(pair.now);
    }
    assert_eq!(pair.told(), [None, None]);
    pair.run(MS * 1000);
    assert_eq!(pair.told(), [Some(Vec::new()), Some(Vec::new())]);
    // One event for the difference and one for its end. The new receivebox never differed.
    assert_eq!(pair.news, [2, 1]);
}

#[test]
fn prefixes_beyond_one_message_are_compared_by_digest() {
    let many: Vec<String> = (0..200).map(|n| format!("10.2.{n}.0/32")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut pair = Pair::of([scope(&many, &FROM, &[], &[]), scope(&many, &FROM, &[], &[])]);
    pair.run(MS * 1000);
    assert_eq!(pair.told(), [Some(Vec::new()), Some(Vec::new())]);
    // A box that receives the lists names the difference. The other box only names the end.
    pair.set(RECEIVEBOX, scope(&many[..90], &["10.1.0.0/24"], &[], &[]));
    pair.run(MS * 1000);
    let [sendbox, receivebox] = pair.told().map(Option::unwrap);
    assert_eq!(sendbox.len(), 3, "{sendbox:?}");
    assert!(
        sendbox[0].starts_with("NotCounted(Destination) [10.2.90.0/32, ")
            && sendbox[0].ends_with(" 106")
    );
    assert_eq!(receivebox, ["Unnamed(Destination) [] 0", "Unnamed(Source) [] 0"]);
    // Without sources of its own, the sendbox accepts the receivebox's sources.
    pair.set(SENDBOX, scope(&many, &[], &[], &[]));
    pair.run(MS * 1000);
    assert_eq!(pair.told()[RECEIVEBOX].as_ref().unwrap(), &["Unnamed(Destination) [] 0"]);
}

#[test]
fn only_sendbox_gaps_differ_when_both_count_boxes() {
    let to = ["10.1.2.0/24"];
    let both = || [&["10.1.2.7", "10.1.2.9"][..], &["10.1.2.9"]].map(|it| scope(&to, &[], it, &[]));
    let mut pair = Pair::of(both());
    pair.run(MS * 1000);
    let expected = Some(Vec::from(["LeftOutBySendbox [10.1.2.7/32] 0".into()]));
    assert_eq!((pair.told(), pair.news), ([expected.clone(), expected.clone()], [1, 1]));
    // The sendbox excludes its own address alone. Each box learns of the other's offer after a while: no news.
    for end in [RECEIVEBOX, SENDBOX] {
        pair.news[end] += u32::from(pair.ends[end].set_counting(pair.now, Some(true)));
    }
    pair.set(SENDBOX, scope(&to, &[], &["10.1.2.7"], &[]));
    pair.run(MS * 1000);
    assert_eq!((pair.told(), pair.news), ([expected.clone(), expected.clone()], [1, 1]));
    pair.set(SENDBOX, scope(&to, &[], &[], &[]));
    pair.run(MS * 1000);
    assert_eq!((pair.told(), pair.news), ([Some(Vec::new()), Some(Vec::new())], [2, 2]));
    // In a new session, the counting is unknown.
    for end in &mut pair.ends {
        end.on_session(pair.now);
    }
    pair.run(MS * 1000);
    let expected = Some(Vec::from(["LeftOutByReceivebox [10.1.2.9/32] 0".into()]));
    assert_eq!((pair.told(), pair.news), ([expected.clone(), expected], [3, 3]));
}

#[test]
fn box_addresses_do_not_differ_before_both_counted() {
    let to = ["10.1.2.0/24"];
    for first in [SENDBOX, RECEIVEBOX] {
        let mut pair =
            Pair::of([scope(&to, &[], &["10.1.2.9"], &[]), scope(&to, &[], &["10.1.2.9"], &[])]);
        for end in &mut pair.ends {
            end.set_counting(pair.now, None);
        }
        pair.run(MS * 1000);
        // One box learns of the other's offer long before the other does.
        for end in [first, 1 - first] {
            pair.news[end] += u32::from(pair.ends[end].set_counting(pair.now, Some(true)));
            if end == SENDBOX {
                pair.set(SENDBOX, scope(&to, &[], &[], &[]));
            }
            pair.run(MS * 1000);
        }
        assert_eq!((pair.told(), pair.news), ([Some(Vec::new()), Some(Vec::new())], [0, 0]));
    }
}
