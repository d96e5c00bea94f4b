//! Metrics of clients that play a video.

use forebay_core::record::{FlowRecord, VideoRecord};

use super::Metrics;
use super::entry::Pooling::{Mean, Sum};
use super::entry::{Entry, OWN, entry};
use super::statistics::mean;

/// Source of the metrics that viewers notice.
const QOE: &str = "Dobrian et al., SIGCOMM 2011";

/// Metrics of videos, from the start of a flow to its end, including the warm-up.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("video_startup_ms", "run flow arm", "ms", Mean,
        "time from the start of a video until playback begins, or until its end if it never does; \
         mean over clients",
        "mean(playback begins - start)", QOE),
    entry("video_rebuffering_s", "run flow arm", "s", Mean,
        "total time that playback stalls after it has begun; mean over clients",
        "mean(stalled time)", QOE),
    entry("video_rebuffers", "run flow arm", "", Sum,
        "playback stalls, all clients together",
        "#{times that playback stopped}", QOE),
    entry("video_switches", "run flow arm", "", Mean,
        "segments of a video whose rate differs from the previous segment; mean over clients",
        "mean(#{segments whose rate differs from the previous one})", OWN),
    entry("video_settled_s", "run flow arm", "s", Mean,
        "time from the start of a video until its rate last changes; mean over clients",
        "mean(last change of rate - start)", OWN),
    entry("video_rate_mbps", "run flow arm", "Mbit/s", Mean,
        "mean rate of a video's segments; mean over the clients that received any",
        "mean(mean rate of segments)", QOE),
];

/// The metrics of all videos among `flows`.
pub fn metrics(flows: &[&FlowRecord]) -> Metrics {
    let videos: Vec<&VideoRecord> = flows.iter().filter_map(|row| row.video.as_ref()).collect();
    let mut metrics = Metrics::default();
    if videos.is_empty() {
        return metrics;
    }
    let mut put = |name, value: fn(&VideoRecord) -> f64| {
        metrics.put(name, mean(videos.iter().map(|video| value(video))));
    };
    put("video_startup_ms", |video| video.startup_ns as f64 / 1e6);
    put("video_rebuffering_s", |video| video.rebuffering_ns as f64 / 1e9);
    put("video_switches", |video| video.switches as f64);
    put("video_settled_s", |video| video.settled_ns as f64 / 1e9);
    let rates = videos.iter().filter(|video| video.segments > 0);
    metrics.put("video_rate_mbps", mean(rates.map(|video| video.rate_bps as f64 / 1e6)));
    let rebuffers: u64 = videos.iter().map(|video| video.rebuffers).sum();
    metrics.put("video_rebuffers", Some(rebuffers as f64));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_averaged_and_their_stalls_added() {
        let row = |video: Option<VideoRecord>| FlowRecord { video, ..FlowRecord::default() };
        let one = VideoRecord {
            startup_ns: 500_000_000,
            rebuffering_ns: 3_000_000_000,
            rebuffers: 2,
            switches: 4,
            settled_ns: 20_000_000_000,
            segments: 10,
            rate_bps: 5_000_000,
        };
        let none = VideoRecord { startup_ns: 1_500_000_000, ..VideoRecord::default() };
        let rows = [row(Some(one)), row(None), row(Some(none))];
        let of = |rows: &[FlowRecord]| metrics(&rows.iter().collect::<Vec<_>>());
        let metrics = of(&rows);
        for (name, value) in [
            ("video_startup_ms", 1000.0),
            ("video_rebuffering_s", 1.5),
            ("video_rebuffers", 2.0),
            ("video_switches", 2.0),
            ("video_settled_s", 10.0),
            ("video_rate_mbps", 5.0),
        ] {
            assert_eq!(metrics.get(name), Some(value), "{name}");
        }
        assert_eq!(of(&rows[1..2]), Metrics::default());
    }
}
