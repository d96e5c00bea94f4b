//! Bottleneck packets (data and acknowledgements) per second of whole simulations.

#[path = "../examples/speed/scenarios.rs"]
mod scenarios;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use forebay_core::units::Duration;

use self::scenarios::Scenario;

fn run(scenario: &Scenario) -> u64 {
    scenario.run().0.packets()
}

fn simulation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulation");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    let secs = Duration::from_secs;
    let cases: [(_, Scenario); 6] = [
        ("b1", scenarios::rate_step().into()),
        ("b2, 5 s", scenarios::many(10, secs(5)).into()),
        ("b3, 5 s", scenarios::requests(secs(5))),
        ("100 flows", scenarios::crowd(100, secs(1)).into()),
        ("10,000 flows", scenarios::crowd(10_000, secs(1)).into()),
        ("overshoot", scenarios::overshoot(secs(3)).into()),
    ];
    for (name, scenario) in cases {
        group.throughput(Throughput::Elements(run(&scenario)));
        group.bench_function(name, |bencher| bencher.iter(|| run(&scenario)));
    }
    group.finish();
}

criterion_group!(benches, simulation);
criterion_main!(benches);
