//! Cost of a packet on a link: offered, queued, served, delayed, polled.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay_core::link::{Service, Trace};
use forebay_core::qdisc;
use forebay_core::random::Streams;
use forebay_core::spec::Spec;
use forebay_core::testing::qdisc::TestPacket;
use forebay_core::units::{Duration, Rate, Ratio, Timestamp};
use forebay_scenario as scenario;
use forebay_testbed::emulator::link::Link;

/// Packets per iteration: 11 ms of a link at 1.2 Gbit/s.
const PACKETS: u64 = 1000;

fn link(c: &mut Criterion) {
    let rate = Rate::from_mbit_per_sec(1200);
    let plain = scenario::Link::at_rate("l", rate, Duration::from_millis(10), Spec::named("fifo"));
    let share = Ratio::new(0.01).expect("a share");
    let rough = scenario::Link { loss: share, reorder: share, reorder_packets: 3, ..plain.clone() };
    let lines = "1\n".repeat(100);
    let trace = Trace::parse("bench", &lines).expect("100 packets a millisecond");
    let traced = scenario::Link { service: Service::Trace(trace.into()), ..plain.clone() };
    let mut group = c.benchmark_group("link");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, config) in [("rate", plain), ("loss and reordering", rough), ("trace", traced)] {
        for queue in ["fifo", "sfq", "fq_codel"] {
            group.bench_function(format!("{name}, {queue}"), |b| {
                let queue = qdisc::build(&Spec::named(queue)).expect("defaults");
                let start = Timestamp::ZERO;
                let mut link = Link::new(&config, queue, start, &Streams::new(1)).expect("checked");
                let mut now = start;
                let mut discard = |gone| {
                    black_box(gone);
                };
                b.iter(|| {
                    for flow in 0..PACKETS as u32 {
                        // 92 % of the rate: the queue is short and the delay line full.
                        now += Duration::from_micros(11);
                        let packet = TestPacket { flow: flow % 100, ..TestPacket::default() };
                        link.offer(now, packet, &mut discard);
                        while let Some(delivery) = link.poll(now, &mut discard) {
                            black_box(delivery);
                        }
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, link);
criterion_main!(benches);
