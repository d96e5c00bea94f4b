//! The path MTU between the boxes: the largest packet that reaches the receivebox from the sendbox. Probes that
//! state their own length measure it (RFC 8899).
//!
//! ```text
//!  sendbox                                receivebox
//!    probe of n bytes      ────────►
//!                          ◄────────   probed: n bytes        n comes through
//!    three without answer                                     n does not
//! ```
//! The first probe is as long as the bundle's packets may be. It usually arrives, and the search ends.
//! Otherwise the sendbox finds the length to the byte by halving. The receivebox answers only authentic probes,
//! with a message that is shorter than any probe.

use core::time::Duration;

use super::wire::{MAX_DATAGRAM, MAX_PROBE};
use crate::units::Timestamp;

/// Wait for the answer to a probe. A path with a longer round trip seems to lose every probe.
const WAIT: Duration = Duration::from_secs(2);
/// Probes of one length before it counts as too long (MAX_PROBES, RFC 8899 section 5.1.2).
const TRIES: u32 = 3;
/// Time between searches, because a path may change (PMTU_RAISE_TIMER, RFC 8899 section 5.1.1).
const AGAIN: Duration = Duration::from_secs(600);
/// Bytes of an IPv4 header (20) plus the UDP header (8).
const HEADERS_V4: u16 = 28;
/// Bytes of an IPv6 header (40) plus the UDP header (8).
const HEADERS_V6: u16 = 48;

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Bytes of the largest IP packet that arrived.
    pub bytes: u16,
    /// Bytes of the largest packet tried: the device's MTU, or the longest probe.
    pub tried: u16,
}

impl PathMtu {
    /// Whether packets that the device can send are too long for the path.
    pub const fn is_below_device(self) -> bool {
        self.bytes < self.tried
    }
}

/// The search of a sendbox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// The largest datagram to try; 0: no search.
    largest: u16,
    headers: u16,
    /// A datagram length that arrives, and one that does not.
    good: u16,
    bad: u16,
    /// Length of the present probe, and how often it was sent.
    probe: u16,
    sent: u32,
    next: Timestamp,
    found: Option<PathMtu>,
}

impl Search {
    /// A sendbox without a search.
    pub const fn new() -> Self {
        Self {
            largest: 0,
            headers: HEADERS_V4,
            good: 0,
            bad: 0,
            probe: 0,
            sent: 0,
            next: Timestamp::MAX,
            found: None,
        }
    }

    /// Sets the size of the bundle's IP packets and the IP version of the messages. If either has changed, the
    /// search begins.
    pub fn begin(&mut self, now: Timestamp, packet_bytes: u16, is_v6: bool) {
        let headers = if is_v6 { HEADERS_V6 } else { HEADERS_V4 };
        let largest = packet_bytes.saturating_sub(headers).min(MAX_PROBE as u16);
        if (largest, headers) != (self.largest, self.headers) {
            (self.largest, self.headers, self.found) = (largest, headers, None);
            self.restart(now);
        }
    }

    /// Restarts the search, because the peer and the path may have changed.
    pub fn restart(&mut self, now: Timestamp) {
        // Messages of this length are never too long for IPv4 and never fragmented.
        self.good = MAX_DATAGRAM as u16;
        self.bad = self.largest.saturating_add(1);
        self.probe = self.largest;
        self.sent = 0;
        self.next = if self.largest > self.good { now } else { Timestamp::MAX };
    }

    /// Length of the datagram to send now, if the peer `answers` probes.
    pub fn poll(&mut self, now: Timestamp, answers: bool) -> Option<u16> {
        if now < self.next || !answers {
            return None;
        }
        if self.sent == TRIES {
            self.bad = self.probe;
            self.choose(now);
            return None;
        }
        self.sent += 1;
        self.next = now + WAIT;
        Some(self.probe)
    }

    /// A probe of this length has arrived.
    pub fn on_answer(&mut self, now: Timestamp, len: u16) {
        // An answer from an earlier search may belong to an earlier path.
        if self.sent > 0 && len == self.probe {
            self.good = len;
            self.choose(now);
        }
    }

    fn choose(&mut self, now: Timestamp) {
        self.sent = 0;
        if self.good + 1 < self.bad {
            self.probe = self.good + (self.bad - self.good) / 2;
            self.next = now;
            return;
        }
        let bytes = self.good + self.headers;
        self.found = Some(PathMtu { bytes, tried: self.largest + self.headers });
        self.restart(now);
        self.next = now + AGAIN;
    }

    /// When [`Search::poll`] is next needed.
    pub const fn next_timer(&self) -> Timestamp {
        self.next
    }

    /// Result of the last search; `None`: none yet.
    pub const fn found(&self) -> Option<PathMtu> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result for a path that carries packets of up to `path` bytes, and the number of probes in ten minutes.
    /// Every `lost`th probe is lost.
    fn searched(device: u16, path: u16, is_v6: bool, lost: u32) -> (Option<PathMtu>, u32) {
        let (mut search, mut probes) = (Search::new(), 0);
        let begun = Timestamp::from_nanos(1_000_000_000);
        search.begin(begun, device, is_v6);
        let mut now = begun;
        while now < begun + AGAIN {
            if let Some(len) = search.poll(now, true) {
                probes += 1;
                assert!(search.next_timer() > now);
                let headers = if is_v6 { HEADERS_V6 } else { HEADERS_V4 };
                if len + headers <= path && probes % lost != 0 {
                    search.on_answer(now + Duration::from_millis(50), len);
                }
            }
            now += Duration::from_millis(100);
        }
        (search.found(), probes)
    }

    #[test]
    fn one_probe_shows_that_all_comes_through() {
        for (mtu, is_v6) in [(1500, false), (9001, false), (1500, true)] {
            let found = Some(PathMtu { bytes: mtu, tried: mtu });
            assert_eq!(searched(mtu, mtu, is_v6, u32::MAX), (found, 1));
        }
    }

    #[test]
    fn shorter_path_is_found_exactly_despite_lost_probes() {
        for path in [576, 1280, 1420, 1460, 1499] {
            for lost in [2, 3, u32::MAX] {
                let (found, probes) = searched(1500, path, false, lost);
                assert_eq!(found, Some(PathMtu { bytes: path, tried: 1500 }), "{path}, {lost}");
                assert!(found.unwrap().is_below_device());
                assert!(probes <= 3 * 11, "{path}: {probes}");
            }
        }
        let (found, probes) = searched(9001, 8500, true, u32::MAX);
        assert_eq!((found.unwrap().bytes, probes <= 3 * 14), (8500, true));
    }

    #[test]
    fn longer_packets_are_probed_up_to_the_maximum() {
        let tried = MAX_PROBE as u16 + HEADERS_V4;
        assert_eq!(
            searched(65_535, 65_535, false, u32::MAX).0,
            Some(PathMtu { bytes: tried, tried })
        );
    }

    #[test]
    fn nothing_is_sent_without_length_or_answering_peer() {
        let now = Timestamp::from_nanos(1);
        let mut search = Search::new();
        assert_eq!(search.poll(now, true), None);
        search.begin(now, 576, false);
        assert_eq!(search.next_timer(), Timestamp::MAX, "shorter than messages are");
        search.begin(now, 1500, false);
        assert_eq!(search.poll(now, false), None);
        assert_eq!(search.poll(now, true), Some(1472));
        // An answer to no present probe.
        search.on_answer(now, 1400);
        assert_eq!((search.found(), search.poll(now, true)), (None, None));
        search.on_answer(now, 1472);
        assert_eq!(search.found(), Some(PathMtu { bytes: 1500, tried: 1500 }));
        assert_eq!(search.next_timer(), now + AGAIN);
        // The result stays until a search finds another one.
        search.restart(now);
        assert_eq!((search.found().unwrap().bytes, search.poll(now, true)), (1500, Some(1472)));
    }
}
