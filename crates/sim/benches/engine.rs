//! Nanoseconds per event taken and planned, and per segment of a scoreboard.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_sim::bench::{Hold, Window};

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("events");
    group.throughput(Throughput::Elements(1));
    for pending in [4, 16, 32, 128, 1_024, 8_192, 65_536] {
        group.bench_with_input(BenchmarkId::new("hold", pending), &pending, |bencher, pending| {
            let mut hold = Hold::new(*pending);
            bencher.iter(|| hold.step());
        });
    }
    group.finish();
}

fn scoreboard(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scoreboard");
    for segments in [16, 512, 16_384] {
        group.throughput(Throughput::Elements(segments.into()));
        for (losses, lost_of) in [("none lost", 0), ("every tenth", 10), ("every second", 2)] {
            group.bench_function(BenchmarkId::new(losses, segments), |bencher| {
                let mut window = Window::new(segments, lost_of);
                bencher.iter(|| window.cycle());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, events, scoreboard);
criterion_main!(benches);
