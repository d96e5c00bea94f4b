//! Nanoseconds per enqueue and dequeue of each discipline, 600 packets of 100 flows standing.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay_core::qdisc::{DISCIPLINES, DropReason, DropSink, build};
use forebay_core::spec::{Spec, Value};
use forebay_core::testing::qdisc::TestPacket;
use forebay_core::units::{Duration, Timestamp};

struct Ignore;

impl DropSink<TestPacket> for Ignore {
    fn dropped(&mut self, _packet: TestPacket, _reason: DropReason) {}
}

fn default_spec(kind: &str) -> Spec {
    let spec = Spec::named(kind);
    match kind {
        // Never the bottleneck: a packet of 1514 bytes is due every 121 ns, one leaves every us.
        "shaper" | "policer" => spec.with("rate", Value::Text("100Gbit/s".into())),
        // The average queue stays below min_th, so the queue drops nothing during this bench.
        "red" => {
            let thresholds = [("min_th", "800p"), ("max_th", "900p")];
            thresholds
                .into_iter()
                .fold(spec, |spec, (name, value)| spec.with(name, Value::Text(value.into())))
        }
        "prio" | "ets" => {
            let bands = ["sfq", "fifo"].map(|kind| Value::Spec(Spec::named(kind)));
            spec.with("bands", Value::List(bands.to_vec()))
        }
        _ => spec,
    }
}

fn enqueue_dequeue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("enqueue_dequeue");
    group.throughput(Throughput::Elements(1));
    for entry in DISCIPLINES {
        let mut qdisc = build::<TestPacket>(&default_spec(entry.name)).expect("a valid spec");
        let (mut now, mut sequence) = (Timestamp::ZERO, 0_u64);
        group.bench_function(entry.name, |bencher| {
            bencher.iter(|| {
                now += Duration::from_micros(1);
                // One arrival as a rule; more where CoDel has dropped.
                while qdisc.backlog().packets <= 600 {
                    sequence += 1;
                    let flow = (sequence * 7919 % 100) as u32;
                    let class = (sequence % 2) as u8;
                    let packet = TestPacket { flow, sequence, class, ..TestPacket::default() };
                    qdisc.enqueue(now, packet, &mut Ignore);
                }
                black_box(qdisc.dequeue(now, &mut Ignore))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, enqueue_dequeue);
criterion_main!(benches);
