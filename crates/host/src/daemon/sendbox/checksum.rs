//! Notices packets whose transport checksum was left to a device that never comes.
//!
//! A veth or virtio device hands a packet of a local sender over with only the pseudo-header summed
//! up in its checksum field, and a note beside the packet that the rest is to be done
//! (`CHECKSUM_PARTIAL`). AF_XDP knows no such note: sent on as it is, the packet would be dropped
//! by its receiver. The device at fault stands in another machine or namespace, where it cannot be
//! asked; so the packets are looked at.
//!
//! Such packets can also be made on purpose, by whoever is on the LAN. So the box refuses to run
//! only right after its start, and only if they are at least half of no few packets of its bundles:
//! those with a source outside the bundles' prefixes say nothing. On fewer, and at any later time,
//! it warns and forwards them like any other.
//!
//! What is left to an attacker who sends from (or forges) a source inside a prefix: to send as much
//! as the site in the first minute, on an idle site 256 packets, and so to end the box. Then
//! the kernel forwards, unshaped. No packet of others is lost or slowed by that, and one who can
//! send that much can do the site more harm by filling its link.

use std::time::Duration;

use forebay_core::units::Timestamp;

/// TCP and UDP packets looked at together.
const WINDOW: u32 = 1024;
/// That many unfinished ones tell a device at fault from chance: a right checksum equals the sum of
/// the pseudo-header once in 65,536 packets.
const AT_FAULT: u32 = 8;
/// The trial ends after so long, however little has come: one that waited for traffic would let
/// an idle box be stopped at any time.
const TRIAL: Duration = Duration::from_secs(60);
/// Fewest packets that a verdict rests on when the trial ends. Behind a device at fault nothing
/// gets through, so that little comes: first packets of connections, each sent some six times in a
/// minute (tcp_syn_retries, tcp(7)). This is what some dozens of them make.
const ENOUGH: u32 = 256;
/// Shortest time between two warnings.
const WARN_AGAIN: Duration = Duration::from_secs(60);

/// Judges the packets that come first, and counts those with an unfinished checksum for ever.
#[derive(Debug)]
pub struct ChecksumGuard {
    seen: u32,
    unfinished: u32,
    /// `None`: it is over, with the box running.
    trial_until: Option<Timestamp>,
    total: u64,
    next_warning: Timestamp,
}

/// What the packets so far ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing.
    Fine,
    /// A word to the operator.
    Warn,
    /// To let the kernel forward instead.
    Refuse,
}

impl ChecksumGuard {
    /// The guard of a box that starts at `now`.
    pub fn new(now: Timestamp) -> Self {
        let trial_until = Some(now + TRIAL);
        Self { seen: 0, unfinished: 0, trial_until, total: 0, next_warning: now }
    }

    /// Packets with an unfinished checksum so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Looks at a frame, which may be of a bundle or not.
    pub fn look(&mut self, now: Timestamp, frame: &[u8], is_bundled: bool) -> Finding {
        if self.trial_until.is_some_and(|until| now >= until) {
            self.trial_until = None;
            if self.seen >= ENOUGH && self.is_half() {
                return Finding::Refuse;
            }
        }
        let Some(is_unfinished) = is_unfinished(frame) else { return Finding::Fine };
        self.total += u64::from(is_unfinished);
        let is_trial = self.trial_until.is_some();
        if is_trial && !is_bundled {
            return Finding::Fine;
        }
        self.seen += 1;
        self.unfinished += u32::from(is_unfinished);
        if is_trial && self.seen < WINDOW {
            return Finding::Fine;
        }
        if is_trial && self.is_half() {
            return Finding::Refuse;
        }
        self.trial_until = None;
        let is_worth_a_word = self.unfinished >= AT_FAULT && now >= self.next_warning;
        if self.seen == WINDOW {
            (self.seen, self.unfinished) = (0, 0);
        }
        if !is_worth_a_word {
            return Finding::Fine;
        }
        self.next_warning = now + WARN_AGAIN;
        Finding::Warn
    }

    /// Whether at least half of the packets are unfinished.
    fn is_half(&self) -> bool {
        self.unfinished >= self.seen.div_ceil(2)
    }
}

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Whether the checksum field of a TCP or UDP packet holds the sum of the pseudo-header alone
/// (RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1); `None`: the frame is no such packet.
fn is_unfinished(frame: &[u8]) -> Option<bool> {
    let (addresses, protocol, segment) = segment(frame)?;
    let at = if protocol == TCP { 16 } else { 6 };
    let field = segment.get(at..at + 2)?;
    let length = segment.len() as u32;
    let mut sum = u32::from(protocol) + (length >> 16) + (length & 0xffff);
    sum += addresses.chunks_exact(2).map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    Some(sum == word(field))
}

/// Addresses, protocol and segment of a whole, unfragmented TCP or UDP packet.
fn segment(frame: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let ip = frame.get(ETHERNET..)?;
    let (addresses, protocol, header, total) = match word(frame.get(12..14)?) {
        0x0800 if ip.len() >= 20 => {
            if word(&ip[6..8]) & 0x3fff != 0 {
                return None;
            }
            (&ip[12..20], ip[9], usize::from(ip[0] & 0x0f) * 4, word(&ip[2..4]) as usize)
        }
        0x86dd if ip.len() >= 40 => (&ip[8..40], ip[6], 40, 40 + word(&ip[4..6]) as usize),
        _ => return None,
    };
    let segment = ip.get(header..total)?;
    matches!(protocol, TCP | UDP).then_some((addresses, protocol, segment))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from(bytes[0]) << 8 | u32::from(bytes[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame from 10.0.0.1 to 10.0.0.2 with this checksum field.
    fn udp(checksum: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame
            .extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x13, 0x88, 0x13, 0x89, 0, 12]);
        frame.extend(checksum.to_be_bytes());
        frame.extend(*b"data");
        frame
    }

    /// 0x0a00 + 1 + 0x0a00 + 2 + 17 + 12.
    const PSEUDO_HEADER: u16 = 0x1420;

    #[test]
    fn the_sum_of_the_pseudo_header_alone_is_unfinished() {
        assert_eq!(is_unfinished(&udp(PSEUDO_HEADER)), Some(true));
        assert_eq!(is_unfinished(&udp(!PSEUDO_HEADER)), Some(false));
        assert_eq!(is_unfinished(&udp(0)), Some(false), "UDP without a checksum");
        let mut fragment = udp(PSEUDO_HEADER);
        fragment[20] = 0x20;
        assert_eq!(is_unfinished(&fragment), None);
        let whole = udp(PSEUDO_HEADER);
        for len in 0..whole.len() {
            assert_eq!(is_unfinished(&whole[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn ipv6_and_tcp_are_understood() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, TCP, 64]);
        frame.extend([0; 15].iter().chain(&[1]).chain(&[0; 15]).chain(&[2]));
        frame.extend([0; 16]);
        frame.extend([0, 1 + 2 + TCP + 20, 0, 0]);
        assert_eq!(is_unfinished(&frame), Some(true));
    }

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000);
    const BAD: u16 = PSEUDO_HEADER;
    const GOOD: u16 = 1;

    /// What a guard finds in packets with these checksums, all at `now`.
    fn findings(guard: &mut ChecksumGuard, now: Timestamp, sums: &[u16]) -> Vec<Finding> {
        sums.iter().map(|checksum| guard.look(now, &udp(*checksum), true)).collect()
    }

    /// Checksums of a whole window with `bad` unfinished ones, which come first.
    fn window(bad: u32) -> Vec<u16> {
        (0..WINDOW).map(|n| if n < bad { BAD } else { GOOD }).collect()
    }

    #[test]
    fn half_of_the_first_window_is_refused_and_less_is_not() {
        for (bad, last) in [(WINDOW / 2, Finding::Refuse), (WINDOW / 2 - 1, Finding::Warn)] {
            let mut guard = ChecksumGuard::new(START);
            let found = findings(&mut guard, START, &window(bad));
            assert_eq!(found.last(), Some(&last), "{bad}");
            assert!(found[..found.len() - 1].iter().all(|found| *found == Finding::Fine));
            assert_eq!(guard.total(), u64::from(bad));
        }
    }

    #[test]
    fn a_slow_device_at_fault_is_refused_when_the_trial_ends() {
        let after = |bad: u32, good: u32| {
            let mut guard = ChecksumGuard::new(START);
            let sums = [vec![BAD; bad as usize], vec![GOOD; good as usize]].concat();
            let found = findings(&mut guard, START, &sums);
            assert!(found.iter().all(|found| *found == Finding::Fine));
            guard.look(START + TRIAL, &udp(GOOD), true)
        };
        assert_eq!(after(ENOUGH / 2, ENOUGH / 2), Finding::Refuse);
        assert_eq!(after(ENOUGH / 2, ENOUGH / 2 + 1), Finding::Warn, "less than half");
        assert_eq!(after(ENOUGH - 1, 0), Finding::Warn, "too few to end for");
        assert_eq!(after(AT_FAULT, 0), Finding::Warn);
        assert_eq!(after(AT_FAULT - 1, 0), Finding::Fine, "too few to tell");
    }

    #[test]
    fn packets_of_no_bundle_neither_end_the_box_nor_excuse_a_device() {
        let mut guard = ChecksumGuard::new(START);
        for checksum in [BAD, GOOD] {
            for _ in 0..5 * WINDOW {
                assert_eq!(guard.look(START, &udp(checksum), false), Finding::Fine);
            }
        }
        assert_eq!(guard.total(), 5 * u64::from(WINDOW));
        assert_eq!(findings(&mut guard, START, &window(WINDOW)).last(), Some(&Finding::Refuse));
    }

    #[test]
    fn after_the_trial_a_flood_is_only_counted() {
        let quiet = {
            let mut guard = ChecksumGuard::new(START);
            guard.look(START + TRIAL, &[], true);
            guard
        };
        let busy = {
            let mut guard = ChecksumGuard::new(START);
            findings(&mut guard, START, &window(0));
            guard
        };
        for mut guard in [quiet, busy] {
            let flood = vec![BAD; 5 * WINDOW as usize];
            let warnings = |guard: &mut ChecksumGuard, now| {
                let found = findings(guard, now, &flood);
                assert!(!found.contains(&Finding::Refuse));
                found.iter().filter(|found| **found == Finding::Warn).count()
            };
            let later = START + TRIAL;
            assert_eq!(warnings(&mut guard, later), 1);
            assert_eq!(warnings(&mut guard, later + WARN_AGAIN / 2), 0);
            assert_eq!(warnings(&mut guard, later + WARN_AGAIN), 1);
            assert_eq!(guard.total(), 3 * flood.len() as u64);
        }
    }

    #[test]
    fn chance_is_worth_no_word_and_other_packets_do_not_dilute() {
        let mut guard = ChecksumGuard::new(START);
        let sums = (0..100_000).map(|n| if n % 1000 == 0 { BAD } else { GOOD });
        let sums: Vec<u16> = sums.collect();
        let later = START + TRIAL;
        assert!(findings(&mut guard, later, &sums).iter().all(|found| *found == Finding::Fine));
        let mut guard = ChecksumGuard::new(START);
        for _ in 0..WINDOW - 1 {
            assert_eq!(guard.look(START, &udp(BAD), true), Finding::Fine);
            assert_eq!(guard.look(START, &[0; 60], true), Finding::Fine, "not IP");
        }
        assert_eq!(guard.look(START, &udp(BAD), true), Finding::Refuse);
    }
}
