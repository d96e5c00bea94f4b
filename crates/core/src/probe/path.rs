//! The path that a probe loaded, in the rows of a recording.

use alloc::vec::Vec;

use super::{Findings, FlowLook, Observed};
use crate::record::{PATH_QUEUE_MIN, PathRow};
use crate::units::{Duration, Timestamp};

/// Shortest row, as in recordings of boxes: half of it doubles the rows; of twice the length, a rate lags by as much.
const SPAN: Duration = Duration::from_millis(100);
/// Bytes of headers before the payload of a TCP segment: Ethernet 14, IPv4 20, TCP with timestamps 32 (RFC 7323). With
/// IPv6 rates are 1.3 % too low.
const HEADER_BYTES: f64 = 66.0;

/// All connections at one instant.
struct Sum {
    at: Timestamp,
    acked_bytes: u64,
    sent: u64,
    resent: u64,
    mean_srtt: Duration,
}

impl Sum {
    fn of(looks: &[FlowLook]) -> Self {
        let sum = |of: fn(&FlowLook) -> u64| looks.iter().map(of).sum();
        let srtts: Duration = looks.iter().map(|look| look.srtt).sum();
        Self {
            at: looks[0].at,
            acked_bytes: sum(|look| look.acked.as_u64()),
            sent: sum(|look| look.sent),
            resent: sum(|look| look.resent),
            mean_srtt: srtts / looks.len() as u32,
        }
    }
}

/// The path in each 100 ms of the load; none without a load. A row is measured if its round trips exceed the least of the
/// whole probe by a queue, and by the jitter before the load. A load may never let a queue empty, so this round trip is
/// in all rows.
pub fn probed_rows(observed: &Observed, found: &Findings) -> Vec<PathRow> {
    let sums = observed.looks.chunk_by(|one, next| one.at == next.at).map(Sum::of);
    let sums: Vec<Sum> = sums.collect();
    let Some(last) = sums.last() else { return Vec::new() };
    let Some(base) = found.base_rtt.or(sums.iter().map(|sum| sum.mean_srtt).min()) else {
        return Vec::new();
    };
    let segments = last.sent.saturating_sub(last.resent) as f64;
    let frame_share = 1.0 + HEADER_BYTES * segments / last.acked_bytes.max(1) as f64;
    let (mut rows, mut begin, mut srtts) = (Vec::new(), &sums[0], Vec::new());
    for sum in &sums[1..] {
        srtts.push(sum.mean_srtt);
        let took = sum.at.saturating_since(begin.at);
        if took < SPAN {
            continue;
        }
        let bits = 8.0 * frame_share * sum.acked_bytes.saturating_sub(begin.acked_bytes) as f64;
        let [sent, resent] =
            [sum.sent.saturating_sub(begin.sent), sum.resent.saturating_sub(begin.resent)];
        let srtt = srtts.iter().sum::<Duration>() / srtts.len() as u32;
        srtts.clear();
        rows.push(PathRow {
            at_ns: sum.at.as_nanos(),
            took_ns: took.as_nanos() as u64,
            rate_bps: (bits / took.as_secs_f64()) as u64,
            rtt_ns: base.as_nanos() as u64,
            loss: (resent as f64 / sent.max(1) as f64).min(1.0),
            is_measured: srtt.saturating_sub(base) >= PATH_QUEUE_MIN.max(found.noise),
        });
        begin = sum;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ByteCount;

    /// A look every 20 ms at two connections of 5 Mbit/s each in full segments, whose queue is 0 in the first second.
    fn observed() -> Observed {
        let look = |step: u64, flow: u16| FlowLook {
            at: Timestamp::from_nanos(step * 20_000_000),
            flow,
            srtt: Duration::from_millis(if step < 50 { 40 } else { 60 }),
            acked: ByteCount::new(step * 12_500),
            sent: 10 * step,
            resent: step,
            busy: Duration::ZERO,
            window_limited: Duration::ZERO,
        };
        let looks = (0..100).flat_map(|step| [look(step, 0), look(step, 1)]).collect();
        Observed { looks, ..Observed::default() }
    }

    #[test]
    fn load_makes_rows_of_100_ms() {
        let found = Findings { base_rtt: Some(Duration::from_millis(38)), ..Findings::default() };
        let rows = probed_rows(&observed(), &found);
        assert_eq!(rows.len(), 19);
        // 9 segments and their headers for 12,500 bytes.
        let expected_bps = 10e6 * (1.0 + 66.0 * 9.0 / 12_500.0);
        for row in &rows {
            assert!((row.rate_bps as f64 - expected_bps).abs() < 2.0, "{row:?}");
            assert!((row.loss - 0.1).abs() < 1e-9 && row.rtt_ns == 38_000_000, "{row:?}");
        }
        assert!(rows.iter().all(|row| row.is_measured));
        // Jitter of 5 ms hides the queue of 2 ms.
        let noise = Duration::from_millis(5);
        let rows = probed_rows(&observed(), &Findings { noise, ..found });
        // The row that ends at 1 s has a look at 60 ms.
        assert!(rows.iter().all(|row| row.is_measured == (row.at_ns >= 1_000_000_000)), "{rows:?}");
        assert!(probed_rows(&Observed::default(), &Findings::default()).is_empty());
    }
}
