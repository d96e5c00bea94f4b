//! Prints what the control laws do in the plant: `control_table [SECTION..]`, all without arguments.
//!
//! Run with `cargo run --release -p forebay-core --features testing --example control_table`.
//! Each figure is the worst of the seeds of its section.

use std::thread;

use forebay_core::testing::plant::{Flow, Plan, Trace, WayBack};
use forebay_core::units::{Duration, Rate};

const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];
const ARMS: [&str; 4] = ["const", "copa", "setpoint", "basic_delay"];
const GRID_MBIT: [u64; 4] = [12, 24, 48, 96];
const GRID_MS: [u64; 5] = [10, 20, 50, 100, 200];

fn main() {
    let sections: [(&str, fn()); 9] = [
        ("grid", grid),
        ("fast", fast),
        ("shift", shift),
        ("start", start),
        ("steps", steps),
        ("reports", reports),
        ("idle", idle),
        ("shallow", shallow),
        ("bundles", bundles),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|argument| argument == name) {
            section();
        }
    }
}

/// Runs plans on both halves of the machine, in order.
fn run_all(plans: Vec<Plan>) -> Vec<Trace> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut traces: Vec<Option<Trace>> = plans.iter().map(|_| None).collect();
    let share = plans.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (plans, traces) in plans.chunks(share).zip(traces.chunks_mut(share)) {
            scope.spawn(move || {
                for (plan, trace) in plans.iter().zip(traces) {
                    *trace = Some(plan.run());
                }
            });
        }
    });
    traces.into_iter().flatten().collect()
}

fn over_seeds(seeds: u64, plan: impl Fn(u64) -> Plan) -> Vec<Trace> {
    run_all((1..=seeds).map(plan).collect())
}

fn worst(traces: &[Trace], figure: impl Fn(&Trace) -> f64) -> f64 {
    traces.iter().map(figure).fold(f64::NEG_INFINITY, f64::max)
}

fn least(traces: &[Trace], figure: impl Fn(&Trace) -> f64) -> f64 {
    traces.iter().map(figure).fold(f64::INFINITY, f64::min)
}

fn cell(traces: &[Trace], from_s: f64, to_s: f64) -> String {
    format!(
        "{:5.1}/{:4.1}/{:3.0}",
        100.0 * least(traces, |trace| trace.utilisation(from_s, to_s)),
        worst(traces, |trace| trace.mean_queue(from_s, to_s)),
        worst(traces, |trace| trace.p95_queue(from_s, to_s) as f64),
    )
}

fn grid() {
    println!("\n# endless backlog, +-1 ms: utilisation % / mean / p95 queue in packets, 5-40 s");
    for extra in [0.0, 0.5] {
        println!("## feedback delay {} RTT", 1.0 + extra);
        for law in LAWS {
            for mbit in GRID_MBIT {
                print!("{law:12} {mbit:3} Mbit/s");
                for ms in GRID_MS {
                    let traces = over_seeds(2, |seed| {
                        let mut plan = Plan::new(law, mbit, ms).seed(seed);
                        plan.report_delay = plan.rtt.mul_f64(extra);
                        plan
                    });
                    print!("  {}", cell(&traces, 5.0, 40.0));
                }
                println!();
            }
        }
    }
}

fn fast() {
    println!(
        "\n# endless backlog at 300 and 1000 Mbit/s: utilisation % / mean queue in ms, 5-20 s"
    );
    for law in LAWS {
        for mbit in [300, 1000] {
            print!("{law:12} {mbit:4} Mbit/s");
            for ms in [10, 50, 200] {
                let traces = over_seeds(2, |seed| Plan::new(law, mbit, ms).seed(seed).stop(20));
                let queue = worst(&traces, |trace| trace.mean_queue(5.0, 20.0));
                print!(
                    "  {:5.1}/{:4.2}",
                    100.0 * least(&traces, |trace| trace.utilisation(5.0, 20.0)),
                    queue * 1514.0 * 8e-3 / mbit as f64,
                );
            }
            println!();
        }
    }
}

fn greedy(flows: usize) -> Vec<Flow> {
    vec![Flow::Tcp(Duration::ZERO, None); flows]
}

fn shift() {
    println!("\n# queue shift: one Cubic flow, 96 Mbit/s x 50 ms, 60 s");
    let mut status_quo = 0.0;
    for arm in ARMS {
        let traces = over_seeds(2, |seed| {
            let mut plan = Plan::new(arm, 96, 50).flows(greedy(1)).stop(60).seed(seed);
            plan.wake_delay = Duration::from_micros(60);
            plan
        });
        let bottleneck = worst(&traces, |trace| trace.mean_queue(5.0, 60.0));
        let sendbox = least(&traces, |trace| trace.mean_sendbox_queue(5.0, 60.0));
        if arm == "const" {
            status_quo = bottleneck;
        }
        println!(
            "{arm:12} {}  sendbox {sendbox:6.1} packets, share {:4.1} %, both / status quo {:.2}",
            cell(&traces, 5.0, 60.0),
            100.0 * sendbox / (sendbox + bottleneck),
            (sendbox + bottleneck) / status_quo,
        );
    }
}

fn is_used(trace: &Trace, from_s: f64, to_s: f64) -> bool {
    trace.utilisation(from_s, to_s) >= 0.9
}

fn or_never(time_s: Option<f64>) -> String {
    time_s.map_or("never".into(), |time_s| format!("{time_s:.2} s"))
}

fn start() {
    println!("\n# four Cubic flows start together: first 0.1 s at 90 %, peak queue, 2-4 s, 5-20 s");
    for (mbit, ms) in [(12, 50), (96, 10), (96, 50), (96, 200)] {
        for arm in ARMS {
            let traces =
                over_seeds(2, |seed| Plan::new(arm, mbit, ms).flows(greedy(4)).stop(20).seed(seed));
            println!(
                "{mbit:3} x {ms:3} {arm:12} {:8}  peak {:5.0}  {:5.1} %  {}",
                or_never(traces[0].first(0.0, 0.1, is_used)),
                worst(&traces, |trace| trace.peak_queue(0.0, 20.0) as f64),
                100.0 * least(&traces, |trace| trace.utilisation(2.0, 4.0)),
                cell(&traces, 5.0, 20.0),
            );
        }
    }
    println!("\n# 10 Mbit/s of CBR for 20 s, then 10 greedy flows: 90 % in, queue below 30 in");
    for arm in ARMS {
        let traces = over_seeds(2, |seed| {
            let stop = Duration::from_secs(100);
            let mut flows = vec![Flow::Cbr(Rate::from_mbit_per_sec(10), Duration::ZERO, stop)];
            flows.extend([Flow::Tcp(Duration::from_secs(20), None); 10]);
            Plan::new(arm, 96, 50).flows(flows).stop(30).seed(seed)
        });
        let used_s = traces[0].first(20.0, 0.1, is_used);
        println!(
            "{arm:12} {:8} {:8}  {}",
            or_never(used_s),
            or_never(settled(&traces[0], 20.0, 30.0, 30.0)),
            cell(&traces, 25.0, 30.0),
        );
    }
}

/// Time after which the mean queue of 0.2 s stays below `packets` until `to_s`.
fn settled(trace: &Trace, from_s: f64, to_s: f64, packets: f64) -> Option<f64> {
    let mut at_s = to_s;
    while at_s - 0.2 >= from_s && trace.mean_queue(at_s - 0.2, at_s) <= packets {
        at_s -= 0.01;
    }
    (at_s < to_s - 0.1).then_some(at_s - from_s)
}

fn steps() {
    println!(
        "\n# steps at 20 and 40 s, four Cubic flows: after each, 90 % in / settled <= 20 in /"
    );
    println!("# utilisation, mean queue from 5 s on / from 15 s on");
    let cases = [
        ("96 x 50, rate 96-48-96", 96, 50, (48, 50), (96, 50)),
        ("96 x 50, RTT 50-80-50", 96, 50, (96, 80), (96, 50)),
        ("96 x 200, rate 96-48-96", 96, 200, (48, 200), (96, 200)),
        ("96 x 200, RTT 200-320-200", 96, 200, (96, 320), (96, 200)),
        ("12 x 50, RTT 50-80-50", 12, 50, (12, 80), (12, 50)),
        ("24 x 20, RTT 20-30-20", 24, 20, (24, 30), (24, 20)),
    ];
    for (name, mbit, ms, first, second) in cases {
        println!("## {name}");
        for arm in ARMS {
            let traces = over_seeds(2, |seed| {
                Plan::new(arm, mbit, ms)
                    .flows(greedy(4))
                    .change(20, first.0, first.1)
                    .change(40, second.0, second.1)
                    .stop(60)
                    .seed(seed)
            });
            print!("{arm:12}");
            for from_s in [20.0, 40.0] {
                print!(
                    "  {:7} {:7} peak {:4.0}  {} | {} ",
                    or_never(traces[0].first(from_s, 0.1, is_used)),
                    or_never(settled(&traces[0], from_s, from_s + 20.0, 20.0)),
                    worst(&traces, |trace| trace.peak_queue(from_s, from_s + 20.0) as f64),
                    cell(&traces, from_s + 5.0, from_s + 20.0),
                    cell(&traces, from_s + 15.0, from_s + 20.0),
                );
            }
            println!();
        }
    }
}

fn reports() {
    println!("\n# troubled reports, 96 Mbit/s x 50 ms, four Cubic flows, 15-60 s");
    type Trouble = (&'static str, fn(&mut Plan));
    let troubles: [Trouble; 8] = [
        ("none", |_| {}),
        ("10 % lost", |plan| plan.report_loss = 0.1),
        ("50 % lost", |plan| plan.report_loss = 0.5),
        ("way back: sine of 50 ms in 10 s", |plan| {
            plan.way_back = WayBack::Sine(Duration::from_millis(50), Duration::from_secs(10));
        }),
        ("each 0-50 ms late", |plan| plan.way_back = WayBack::Random(Duration::from_millis(50))),
        ("receive stamps 0-2 ms late", |plan| plan.stamp_noise = Duration::from_millis(2)),
        ("sendbox 0.1 ms late, stalls of 5 ms", |plan| {
            plan.wake_delay = Duration::from_micros(100);
        }),
        ("1 % of the packets lost", |plan| plan.data_loss = 0.01),
    ];
    for (name, trouble) in troubles {
        print!("{name:36}");
        for law in LAWS {
            let traces = over_seeds(2, |seed| {
                let flows = if name.starts_with("1 %") { 200 } else { 4 };
                let mut plan = Plan::new(law, 96, 50).flows(greedy(flows)).stop(60).seed(seed);
                trouble(&mut plan);
                plan
            });
            print!("  {law} {}", cell(&traces, 15.0, 60.0));
        }
        println!();
    }
    println!("\n# 300 s, one Cubic flow: base at the end in ms (truth 50), 20-300 s");
    for law in LAWS {
        let traces =
            over_seeds(2, |seed| Plan::new(law, 96, 50).flows(greedy(1)).stop(300).seed(seed));
        let base_ms = |trace: &Trace| {
            trace.decisions[0].min_rtt.map_or(f64::NAN, |rtt| rtt.as_secs_f64() * 1e3)
        };
        println!(
            "{law:12} {:.2} to {:.2}  {}",
            least(&traces, base_ms),
            worst(&traces, base_ms),
            cell(&traces, 20.0, 300.0),
        );
    }
}

fn idle() {
    println!(
        "\n# 5 s of load, 35 s without, one request of 10 packets, a burst of 4 flows: slowdown of"
    );
    println!("# the request, peak queue of the burst, 10 s of it from its second 2 on");
    for arm in ARMS {
        let traces = over_seeds(2, |seed| {
            let mut flows = vec![Flow::Tcp(Duration::ZERO, Some(35_000))];
            flows.push(Flow::Tcp(Duration::from_secs(40), Some(10)));
            flows.extend([Flow::Tcp(Duration::from_secs(45), None); 4]);
            Plan::new(arm, 96, 50).flows(flows).stop(60).seed(seed)
        });
        let slowdown = |trace: &Trace| {
            let done = trace.completions[0][1].map_or(f64::NAN, |at| at.as_secs_f64());
            (done - 40.0) / (0.05 + 10.0 * 1514.0 * 8.0 / 96e6)
        };
        println!(
            "{arm:12} {:.3}  peak {:4.0}  {}",
            worst(&traces, slowdown),
            worst(&traces, |trace| trace.peak_queue(44.0, 60.0) as f64),
            cell(&traces, 47.0, 57.0),
        );
    }
}

fn shallow() {
    println!(
        "\n# shallow buffers, 96 Mbit/s x 50 ms, 60 s: utilisation % / drops of 1, 4, 20 flows"
    );
    for buffer in [10, 20, 40] {
        for arm in ARMS {
            print!("{buffer:3} packets {arm:12}");
            for flows in [1, 4, 20] {
                let traces = over_seeds(2, |seed| {
                    let mut plan = Plan::new(arm, 96, 50).flows(greedy(flows)).stop(60).seed(seed);
                    plan.buffer = Some(buffer);
                    plan
                });
                print!(
                    "  {:5.1}/{:5.0}",
                    100.0 * least(&traces, |trace| trace.utilisation(0.0, 60.0)),
                    worst(&traces, |trace| trace.drops(0.0, 60.0) as f64),
                );
            }
            println!();
        }
    }
}

fn bundles() {
    println!(
        "\n# bundles at one bottleneck, 96 Mbit/s x 50 ms, endless backlog, 15-60 s; shares in Mbit/s"
    );
    for count in [2, 4, 8] {
        for law in LAWS {
            let traces =
                over_seeds(4, |seed| Plan::new(law, 96, 50).bundles(count).stop(60).seed(seed));
            let shares = |trace: &Trace| {
                (0..count)
                    .map(|bundle| trace.throughput_mbit(bundle, 15.0, 60.0))
                    .collect::<Vec<_>>()
            };
            let of = |pick: fn(f64, f64) -> f64, start: f64| {
                traces.iter().flat_map(shares).fold(start, pick)
            };
            println!(
                "{count} {law:12} {}  shares {:.1} to {:.1}",
                cell(&traces, 15.0, 60.0),
                of(f64::min, f64::INFINITY),
                of(f64::max, 0.0),
            );
        }
    }
}
