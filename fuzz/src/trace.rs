//! Any text is refused or is a trace of one of the formats, which a link then keeps to.

use std::sync::Arc;

use forebay_core::link::{AtEnd, OPPORTUNITY, PathTrace, Replay, Server, Service, Trace};
use forebay_core::units::{Duration, Timestamp};
use forebay_lab::traces::{LinkTrace, leo_delays, merged, read};

/// The bytes are a trace file.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count().max(1);
    if let Ok(delays) = leo_delays("fuzz.txt", &text, Duration::from_millis(10)) {
        path(&delays);
    }
    match read("fuzz.trace", &text) {
        // A JSON text may end behind its last line.
        Err(error) => assert!(error.line >= 1 && error.line <= lines + 1, "{error}"),
        Ok((LinkTrace::Opportunities(trace), understood)) => {
            assert!(!understood.to_string().contains('\n'));
            opportunities(trace, u64::from(bytes[0]));
        }
        Ok((LinkTrace::Path(trace), understood)) => {
            assert!(!understood.to_string().contains('\n'));
            path(&trace);
        }
    }
}

fn opportunities(trace: Trace, start_ms: u64) {
    let trace = Arc::new(trace);
    assert!(trace.opportunities() >= 1 && trace.period() >= Duration::from_millis(1));
    assert!(trace.longest_gap() <= trace.period());
    let start = Timestamp::from_nanos(start_ms * 1_000_000);
    let mut server = Server::new(Service::Trace(Arc::clone(&trace)), start);
    // At most one full packet an opportunity, over two periods of a link that is never idle.
    let (mut last, end) = (start, start + trace.period() * 2);
    for _ in 0..(2 * trace.opportunities()).min(900) {
        let at = server.ready_at(start).expect("a trace never stops");
        let departed = server.send(at, OPPORTUNITY);
        assert!(at >= last && departed >= at && departed <= end);
        last = departed;
    }
}

fn path(trace: &PathTrace) {
    assert!(trace.rows()[0].at.is_zero() && trace.length() > Duration::ZERO);
    assert!(trace.longest_gap() <= trace.length());
    assert!(trace.mean_rate() <= trace.highest_rate());
    assert_eq!(PathTrace::parse("printed", &trace.to_string()).as_ref(), Ok(trace));
    assert!(merged(trace, trace).is_some_and(|it| it.length() == trace.length()));
    for at_end in [AtEnd::Repeat, AtEnd::Hold] {
        let replay = Replay { trace: Arc::new(trace.clone()), at_end };
        let times: Vec<Duration> = replay.changes().take(900).map(|change| change.at).collect();
        assert!(times[0].is_zero() && times.is_sorted());
    }
}
