//! Metrics of live encoders.

use forebay_core::record::FlowRecord;
use forebay_core::record::{MediaFrame, MediaRecord};
use forebay_scenario::Window;

use super::Metrics;
use super::entry::Pooling::Mean;
use super::entry::{Entry, OWN, entry};
use super::statistics::{Sorted, mean};

/// Excess over the time between frames that is a freeze in any case (W3C webrtc-stats, freezeCount).
const FREEZE_NS: u64 = 150_000_000;
/// Times between frames that are a freeze if they are longer (W3C webrtc-stats, freezeCount).
const FREEZE_PERIODS: u64 = 3;

/// Metrics of the frames captured in a window.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("media_delay_{p}_ms", "run flow arm", "ms", Mean,
        "percentile of the time from the capture of a media frame to its whole arrival, of the frames that arrived",
        "Qp(arrival of the last byte - capture)", OWN),
    entry("media_late_share", "run flow arm", "", Mean,
        "share of media frames that were late, did not arrive, or were skipped, of those whose deadline is in the run",
        "#{late, missing, skipped} / #{captured}, captured + late <= end of the run", OWN),
    entry("media_frozen_s", "run flow arm", "s", Mean,
        "total of the gaps between arrivals of media frames that last three frames or 150 ms longer than one; mean over \
         sources",
        "sum(gaps >= max(3 T, T + 150 ms)), T = 1 / fps", "W3C webrtc-stats, totalFreezesDuration"),
    entry("media_rate_mbps", "run flow arm", "Mbit/s", Mean,
        "mean rate of encoded media; mean over sources, 0 for one without frames",
        "8 bytes of frames / (#{captured} T)", OWN),
];

/// The metrics of all media among `flows` in `window`, of a run that ended at `end_ns`.
pub fn metrics(flows: &[&FlowRecord], window: &Window, end_ns: u64) -> Metrics {
    let range = window.from.as_nanos() as u64..window.to.as_nanos() as u64;
    let within = |record: &MediaRecord| -> Vec<MediaFrame> {
        let frames = record.frames.iter().filter(|frame| range.contains(&frame.captured_ns));
        frames.copied().collect()
    };
    let media = flows.iter().filter_map(|row| row.media.as_ref());
    let media: Vec<(&MediaRecord, Vec<MediaFrame>)> = media.map(|it| (it, within(it))).collect();
    let all = || media.iter().flat_map(|(of, frames)| frames.iter().map(|frame| (*of, frame)));
    let mut metrics = Metrics::default();
    let delays = all().filter_map(|(_, frame)| Some(frame.delay_ns? as f64 / 1e6));
    let delays = Sorted::new(delays);
    metrics.put_quantiles("media_delay_{p}_ms", |share| delays.quantile(share));
    let is_late =
        |of: &MediaRecord, frame: &MediaFrame| frame.delay_ns.is_none_or(|it| it > of.late_ns);
    // Of later frames only those on time can have arrived, so none of them counts.
    let is_decided = |(of, frame): &(&MediaRecord, &MediaFrame)| {
        frame.captured_ns.saturating_add(of.late_ns) <= end_ns
    };
    let late = all().filter(is_decided).map(|(of, frame)| f64::from(u8::from(is_late(of, frame))));
    metrics.put("media_late_share", mean(late));
    metrics.put("media_frozen_s", mean(media.iter().map(|(of, frames)| frozen_s(of, frames))));
    let rate = |(of, frames): &(&MediaRecord, Vec<MediaFrame>)| {
        let bits = frames.iter().map(|frame| frame.bytes as f64 * 8.0).sum::<f64>();
        bits * 1e3 / (frames.len().max(1) as f64 * of.period_ns as f64)
    };
    metrics.put("media_rate_mbps", mean(media.iter().map(rate)));
    metrics
}

/// Time without a picture that moves (s).
fn frozen_s(of: &MediaRecord, frames: &[MediaFrame]) -> f64 {
    let arrivals = frames.iter().filter_map(|frame| Some(frame.captured_ns + frame.delay_ns?));
    let gaps = arrivals.clone().zip(arrivals.skip(1)).map(|(one, next)| next.saturating_sub(one));
    let least = (FREEZE_PERIODS * of.period_ns).max(of.period_ns + FREEZE_NS);
    gaps.filter(|gap| *gap >= least).sum::<u64>() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A millisecond in nanoseconds.
    const MS: u64 = 1_000_000;

    fn frame(ms: u64, bytes: u64, delay_ms: Option<u64>) -> MediaFrame {
        MediaFrame { captured_ns: ms * MS, bytes, delay_ns: delay_ms.map(|ms| ms * MS) }
    }

    /// A source of 25 frames a second, which are late after 200 ms.
    fn source(frames: Vec<MediaFrame>) -> FlowRecord {
        let media = Some(MediaRecord { period_ns: 40 * MS, late_ns: 200 * MS, frames });
        FlowRecord { media, ..FlowRecord::default() }
    }

    /// The second from 1 s on.
    fn window() -> Window {
        let [from, to] = [1, 2].map(Duration::from_secs);
        Window { name: String::new(), from, to }
    }

    #[test]
    fn frames_of_the_window_count() {
        let frames = vec![
            frame(0, 9000, Some(900)),
            frame(1000, 5000, Some(50)),
            frame(1040, 5000, Some(300)),
            frame(1080, 0, None),
            frame(1120, 5000, Some(230)),
        ];
        let metrics = metrics(&[&source(frames), &FlowRecord::default()], &window(), 2000 * MS);
        for (name, value) in [
            ("media_delay_p50_ms", 230.0),
            ("media_late_share", 0.75),
            ("media_frozen_s", 0.29),
            ("media_rate_mbps", 0.75),
        ] {
            assert_eq!(metrics.get(name), Some(value), "{name}");
        }
        let none = super::metrics(&[&FlowRecord::default()], &window(), 2000 * MS);
        assert_eq!(none, Metrics::default());
    }

    #[test]
    fn source_without_frames_has_rate_zero() {
        let rows = [source(vec![frame(1000, 5000, Some(50))]), source(vec![frame(0, 9000, None)])];
        let rate =
            |rows: &[&FlowRecord]| metrics(rows, &window(), 2000 * MS).get("media_rate_mbps");
        assert_eq!(rate(&[&rows[0], &rows[1]]), Some(0.5));
        assert_eq!(rate(&[&rows[1]]), Some(0.0));
    }

    #[test]
    fn end_of_the_run_decides_about_frames() {
        let frames =
            vec![frame(1790, 5000, Some(50)), frame(1850, 0, None), frame(1890, 5000, None)];
        let row = source(frames.into_iter().chain([frame(1930, 5000, Some(50))]).collect());
        let late = |end| metrics(&[&row], &window(), end * MS).get("media_late_share");
        // The run ends with the window, or later.
        assert_eq!([late(2000), late(2050), late(2090)], [0.0, 0.5, 2.0 / 3.0].map(Some));
        assert_eq!(late(2130), Some(0.5));
    }
}
