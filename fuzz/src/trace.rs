//! Any text is refused or is a link trace, which a link then keeps to.

use std::sync::Arc;

use forebay_core::link::{Config, Link, OPPORTUNITY, Service, Trace};
use forebay_core::qdisc;
use forebay_core::random::Streams;
use forebay_core::spec::Spec;
use forebay_core::testing::qdisc::TestPacket;
use forebay_core::units::{Duration, Rate, Timestamp};

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
    let (delay, rate) = (Duration::from_millis(1), Rate::ZERO);
    let service = Service::Trace(Arc::clone(&trace));
    let config = Config { service, ..Config::at_rate(rate, delay) };
    let queue = qdisc::build(&Spec::named("fifo")).expect("fifo has defaults");
    let start = Timestamp::from_nanos(u64::from(bytes[0]) * 1_000_000);
    let mut link =
        Link::new(config, queue, start, &Streams::new(1)).expect("there is nothing to refuse");
    // At most one full packet an opportunity, over two periods of a link that is never idle.
    let packets = (2 * trace.opportunities()).min(900);
    for _ in 0..packets {
        let packet = TestPacket { len: OPPORTUNITY, ..TestPacket::default() };
        link.offer(start, packet, &mut |_| panic!("the queue holds 1000"));
    }
    let mut last = start;
    let end = start + trace.period() * 2;
    let mut delivered = 0;
    while let Some(delivery) = link.poll(end + delay, &mut |_| panic!("a drop")) {
        assert!(delivery.departed >= last && delivery.departed <= end);
        assert_eq!(delivery.due, delivery.departed + delay);
        last = delivery.departed;
        delivered += 1;
    }
    assert_eq!(delivered, packets);
}
