//! Prints figures of the bundle algorithms at one bottleneck: `control_table [SECTION..]`, all sections
//! without arguments.
//!
//! Run with `cargo run --release -p forebay-sim --example control_table`.
//! Each figure is the worst of the seeds of its section.

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/bundles/site.rs"]
mod site;

use std::thread;

use forebay_core::units::{Duration, Ratio};
use forebay_sim::network::{Flow, Hop, Network};

use crate::site::*;

/// Controllers of most tables; `const` is the reference with a fixed rate.
const ARMS: [&str; 4] = ["const", "copa", "setpoint", "basic_delay"];
/// Rates of the grid in Mbit/s.
const GRID_MBIT: [u64; 4] = [12, 24, 48, 96];
/// Round trips of the grid in ms.
const GRID_MS: [u32; 5] = [10, 20, 50, 100, 200];

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

/// Runs of `network` with seeds from 1 on, in parallel.
fn over_seeds(seeds: u64, network: &Network) -> Vec<Trace> {
    thread::scope(|scope| {
        let of = |seed| move || Trace::of(&Network { seed, ..network.clone() });
        let runs: Vec<_> = (1..=seeds).map(|seed| scope.spawn(of(seed))).collect();
        runs.into_iter().map(|run| run.join().expect("the run ends")).collect()
    })
}

fn worst(traces: &[Trace], figure: impl Fn(&Trace) -> f64) -> f64 {
    traces.iter().map(figure).fold(f64::NEG_INFINITY, f64::max)
}

fn least(traces: &[Trace], figure: impl Fn(&Trace) -> f64) -> f64 {
    traces.iter().map(figure).fold(f64::INFINITY, f64::min)
}

/// Packets in the bottleneck's queue every 10 ms, sorted by size.
fn queues(trace: &Trace, from_s: f64, to_s: f64) -> Vec<f64> {
    let mut queues: Vec<f64> =
        trace.parts(from_s, to_s, 0.01).map(|(_, part)| part.queue).collect();
    queues.sort_by(f64::total_cmp);
    queues
}

fn peak_queue(trace: &Trace, from_s: f64, to_s: f64) -> f64 {
    queues(trace, from_s, to_s).pop().unwrap_or(0.0)
}

fn p95_queue(trace: &Trace, from_s: f64, to_s: f64) -> f64 {
    let queues = queues(trace, from_s, to_s);
    queues[queues.len() * 95 / 100]
}

fn cell(traces: &[Trace], from_s: f64, to_s: f64) -> String {
    format!(
        "{:5.1}/{:4.1}/{:3.0}",
        100.0 * least(traces, |trace| trace.part(from_s, to_s).used),
        worst(traces, |trace| trace.part(from_s, to_s).queue),
        worst(traces, |trace| p95_queue(trace, from_s, to_s)),
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
                    let mut network = backlogged(law, mbit, ms);
                    network.bundles[0].back.push(Hop::Delay((MS * ms).mul_f64(extra)));
                    print!("  {}", cell(&over_seeds(2, &network), 5.0, 40.0));
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
                let network = Network { stop: seconds(20.0), ..backlogged(law, mbit, ms) };
                let traces = over_seeds(2, &network);
                let queue = worst(&traces, |trace| trace.part(5.0, 20.0).queue);
                print!(
                    "  {:5.1}/{:4.2}",
                    100.0 * least(&traces, |trace| trace.part(5.0, 20.0).used),
                    queue * 1514.0 * 8e-3 / mbit as f64,
                );
            }
            println!();
        }
    }
}

fn shift() {
    println!("\n# queue shift: one Cubic flow, 96 Mbit/s x 50 ms, 60 s");
    let mut status_quo = 0.0;
    for arm in ARMS {
        let mut network = Network { stop: seconds(60.0), ..loaded(arm, 96, 50, 1) };
        network.bundles[0].wake_delay = Duration::from_micros(60);
        let traces = over_seeds(2, &network);
        let bottleneck = worst(&traces, |trace| trace.part(5.0, 60.0).queue);
        let sendbox = least(&traces, |trace| trace.part(5.0, 60.0).sendbox_queues[0]);
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

/// Time from `from_s` on until 90 % of a span of 0.1 s are used.
fn used_in(trace: &Trace, from_s: f64) -> String {
    let end_s = trace.network.stop.as_secs_f64();
    let used = trace.parts(from_s, end_s, 0.1).find(|(_, part)| part.used >= 0.9);
    or_never(used.map(|(at_s, _)| at_s - from_s))
}

fn or_never(time_s: Option<f64>) -> String {
    time_s.map_or("never".into(), |time_s| format!("{time_s:.2} s"))
}

fn start() {
    println!("\n# four Cubic flows start together: first 0.1 s at 90 %, peak queue, 2-4 s, 5-20 s");
    for (mbit, ms) in [(12, 50), (96, 10), (96, 50), (96, 200)] {
        for arm in ARMS {
            let network = Network { stop: seconds(20.0), ..loaded(arm, mbit, ms, 4) };
            let traces = over_seeds(2, &network);
            println!(
                "{mbit:3} x {ms:3} {arm:12} {:8}  peak {:5.0}  {:5.1} %  {}",
                used_in(&traces[0], 0.0),
                worst(&traces, |trace| peak_queue(trace, 0.0, 20.0)),
                100.0 * least(&traces, |trace| trace.part(2.0, 4.0).used),
                cell(&traces, 5.0, 20.0),
            );
        }
    }
    println!("\n# 10 Mbit/s of CBR for 20 s, then 10 greedy flows: 90 % in, queue below 30 in");
    for arm in ARMS {
        let mut flows = vec![flow("const", cbr(mbit(10)), Hop::Bundle(0))];
        flows.extend(vec![Flow { start: seconds(20.0), ..cubic() }; 10]);
        let network = Network { flows, stop: seconds(30.0), ..bundled(arm, 96, 50) };
        let traces = over_seeds(2, &network);
        println!(
            "{arm:12} {:8} {:8}  {}",
            used_in(&traces[0], 20.0),
            settled(&traces[0], 20.0, 30.0, 30.0),
            cell(&traces, 25.0, 30.0),
        );
    }
}

/// Time from `from_s` on after which the mean queue of 0.2 s stays below `packets` until `to_s`.
fn settled(trace: &Trace, from_s: f64, to_s: f64, packets: f64) -> String {
    let parts: Vec<(f64, Part)> = trace.parts(from_s, to_s, 0.2).collect();
    let short = parts.iter().rev().take_while(|(_, part)| part.queue <= packets).last();
    or_never(short.map(|(at_s, _)| at_s - from_s))
}

fn steps() {
    println!(
        "\n# steps at 20 and 40 s, four Cubic flows: after each, 90 % in / settled <= 20 in /"
    );
    println!("# utilisation, mean queue from 5 s on / from 15 s on");
    let cases = [
        ("96 x 50, rate 96-48-96", (96, 50), (48, 50)),
        ("96 x 50, RTT 50-80-50", (96, 50), (96, 80)),
        ("96 x 200, rate 96-48-96", (96, 200), (48, 200)),
        ("96 x 200, RTT 200-320-200", (96, 200), (96, 320)),
        ("12 x 50, RTT 50-80-50", (12, 50), (12, 80)),
        ("24 x 20, RTT 20-30-20", (24, 20), (24, 30)),
    ];
    for (name, (mbit, ms), between) in cases {
        println!("## {name}");
        for arm in ARMS {
            let mut network = Network { stop: seconds(60.0), ..loaded(arm, mbit, ms, 4) };
            step(&mut network, 20.0, between.0, between.1);
            step(&mut network, 40.0, mbit, ms);
            let traces = over_seeds(2, &network);
            print!("{arm:12}");
            for from_s in [20.0, 40.0] {
                print!(
                    "  {:7} {:7} peak {:4.0}  {} | {} ",
                    used_in(&traces[0], from_s),
                    settled(&traces[0], from_s, from_s + 20.0, 20.0),
                    worst(&traces, |trace| peak_queue(trace, from_s, from_s + 20.0)),
                    cell(&traces, from_s + 5.0, from_s + 20.0),
                    cell(&traces, from_s + 15.0, from_s + 20.0),
                );
            }
            println!();
        }
    }
}

fn lose_messages(network: &mut Network, share: f64) {
    network.links[1].message_loss = Ratio::new(share).expect("a share");
}

fn reports() {
    println!("\n# troubled reports, 96 Mbit/s x 50 ms, four Cubic flows, 15-60 s");
    type Trouble = (&'static str, fn(&mut Network));
    let troubles: [Trouble; 8] = [
        ("none", |_| {}),
        ("10 % of the messages lost", |network| lose_messages(network, 0.1)),
        ("50 % of the messages lost", |network| lose_messages(network, 0.5)),
        ("way back: sine of 50 ms in 10 s", |network| with_sine(network, 50 * MS)),
        ("each 0-52 ms late", |network| network.bundles[0].of.report_jitter = 52 * MS),
        ("receive stamps 0-2 ms late", |network| network.bundles[0].of.timestamp_jitter = 2 * MS),
        ("sendbox 0.1 ms late", |network| network.bundles[0].wake_delay = MS / 10),
        ("1 % of the packets lost", |network| lose(network, 0.0, 0.01)),
    ];
    for (name, trouble) in troubles {
        print!("{name:36}");
        for law in LAWS {
            let flows = if name.starts_with("1 %") { 200 } else { 4 };
            let mut network = Network { stop: seconds(60.0), ..loaded(law, 96, 50, flows) };
            trouble(&mut network);
            print!("  {law} {}", cell(&over_seeds(2, &network), 15.0, 60.0));
        }
        println!();
    }
    println!("\n# 300 s, one Cubic flow: base at the end in ms (truth 50), 20-300 s");
    for law in LAWS {
        let network = Network { stop: seconds(300.0), ..loaded(law, 96, 50, 1) };
        let traces = over_seeds(2, &network);
        let base_ms = |trace: &Trace| {
            let base = trace.decisions(299.0, 300.0).last().and_then(|it| it.min_rtt);
            base.map_or(f64::NAN, |base| base.as_secs_f64() * 1e3)
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
        let network = Network { stop: seconds(60.0), ..with_idle_time(arm) };
        let mut traces = over_seeds(2, &network);
        let slowdown = traces.iter_mut().map(slowdown_after_idle_time).fold(0.0, f64::max);
        println!(
            "{arm:12} {slowdown:.3}  peak {:4.0}  {}",
            worst(&traces, |trace| peak_queue(trace, 44.0, 60.0)),
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
                let network = Network { stop: seconds(60.0), ..loaded(arm, 96, 50, flows) };
                let traces = over_seeds(2, &with_buffer(network, buffer));
                print!(
                    "  {:5.1}/{:5.0}",
                    100.0 * least(&traces, |trace| trace.part(0.0, 60.0).used),
                    worst(&traces, |trace| trace.part(0.0, 60.0).drops as f64),
                );
            }
            println!();
        }
    }
}

fn bundles() {
    println!(
        "\n# bundles at one bottleneck, 96 Mbit/s x 50 ms, four Cubic flows each, 15-60 s; shares in Mbit/s"
    );
    for count in [2, 4, 8] {
        for law in LAWS {
            let mut network = in_bundles(loaded(law, 96, 50, 4 * count), count);
            network.stop = seconds(60.0);
            for (index, flow) in network.flows.iter_mut().enumerate() {
                flow.data = vec![Hop::Bundle(index / 4)];
            }
            let traces = over_seeds(4, &network);
            let shares = traces.iter().flat_map(|trace| trace.part(15.0, 60.0).sent);
            println!(
                "{count} {law:12} {}  shares {:.1} to {:.1}",
                cell(&traces, 15.0, 60.0),
                shares.clone().fold(f64::INFINITY, f64::min),
                shares.fold(0.0, f64::max),
            );
        }
    }
}
