//! Bottleneck packets (data and acknowledgements) per second of whole simulations.

#[path = "../examples/speed/scenarios.rs"]
mod scenarios;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use forebay_core::units::Duration;
use forebay_sim::{Dumbbell, Simulation};

fn run(dumbbell: &Dumbbell) -> u64 {
    let mut simulation = Simulation::new(dumbbell).expect("a valid scenario");
    simulation.run();
    simulation.packets()
}

fn simulation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulation");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    let secs = Duration::from_secs;
    let cases = [
        ("b1", scenarios::rate_step()),
        ("b2, 5 s", scenarios::many(10, secs(5))),
        ("100 flows", scenarios::crowd(100, secs(1))),
        ("10,000 flows", scenarios::crowd(10_000, secs(1))),
        ("overshoot", scenarios::overshoot(secs(3))),
    ];
    for (name, dumbbell) in cases {
        group.throughput(Throughput::Elements(run(&dumbbell)));
        group.bench_function(name, |bencher| bencher.iter(|| run(&dumbbell)));
    }
    group.finish();
}

criterion_group!(benches, simulation);
criterion_main!(benches);
