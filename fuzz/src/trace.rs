//! Any text is refused or is a link trace, which a link then keeps to.

use std::sync::Arc;

use forebay_core::link::{OPPORTUNITY, Server, Service, Trace};
use forebay_core::units::{Duration, Timestamp};

/// The bytes are a trace file.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let trace = match Trace::parse("fuzz.trace", &text) {
        Ok(trace) => Arc::new(trace),
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1));
            return;
        }
    };
    assert!(trace.opportunities() >= 1 && trace.period() >= Duration::from_millis(1));
    let start = Timestamp::from_nanos(u64::from(bytes[0]) * 1_000_000);
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
