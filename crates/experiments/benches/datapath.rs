//! `make bench-datapath`: the cost of a sendbox's datapath in user space, compared with a bare AF_XDP forwarder and the
//! kernel's bridge, in turns. Root; the machine has to be quiet.

mod figures;

use std::process::ExitCode;

use clap::Parser;
use figures::{Figure, Rounds};
use forebay_testbed::forwarding::{ForwardingArm, ForwardingTurn, Options, measure};

/// Measures packets a second, CPU time and latency of a sendbox, a bare AF_XDP forwarder and a bridge. Exit code 1: an
/// aim was missed.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    rounds: Rounds,
    /// Echoes in a block.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    echoes: u32,
    /// Gives the sendbox a thread for its receive queue (`xdp.threads`), and the measured datapath all processors but
    /// the source's.
    #[arg(long)]
    threads: bool,
}

fn main() -> ExitCode {
    let Arguments { rounds: arguments, echoes, threads } = Arguments::parse();
    let Rounds { rounds, duration, .. } = arguments;
    let options = Options { rounds, duration, echoes, threads };
    let measure = |program: &_, dir: &_| {
        measure(program, dir, options, &mut |turn| {
            eprintln!("round {} of {rounds}: {:?}", turn.round + 1, turn.arm);
        })
    };
    arguments.run(measure, figures)
}

fn figures(turns: &[ForwardingTurn]) -> Vec<Figure> {
    let of = |arm| turns.iter().filter(move |turn| turn.arm == arm);
    let pairs: Vec<[&ForwardingTurn; 3]> = of(ForwardingArm::Bridge)
        .zip(of(ForwardingArm::Forwarder))
        .zip(of(ForwardingArm::Sendbox))
        .map(|((bridge, forwarder), sendbox)| [bridge, forwarder, sendbox])
        .collect();
    let figure = |name: &str, value: &dyn Fn(&[&ForwardingTurn; 3]) -> f64| {
        Figure::of(name, pairs.iter().map(value))
    };
    let mut figures = Vec::new();
    for (place, load) in pairs[0][1].loads.iter().enumerate() {
        let size = load.frame_bytes;
        for (at, who) in [(1, "forwarder"), (2, "sendbox")] {
            figures.push(figure(&format!("{who}, {size} B: packets a second"), &|pair| {
                pair[at].loads[place].packets_per_s
            }));
            figures.push(figure(&format!("{who}, {size} B: CPU time of a packet (ns)"), &|pair| {
                pair[at].loads[place].cpu_ns
            }));
            figures.push(figure(&format!("{who}, {size} B: packets lost"), &|pair| {
                pair[at].loads[place].lost as f64
            }));
        }
        let share = figure(&format!("sendbox / forwarder, {size} B: packets a second"), &|pair| {
            pair[2].loads[place].packets_per_s / pair[1].loads[place].packets_per_s
        });
        figures.push(share.judged(">= 0.90", |share| share >= 0.9));
    }
    // Such a turn measures the bridge, too.
    let passed = figure("sendbox: packets that the kernel carried past it", &|pair| {
        pair[2].passed.map_or(f64::NAN, |packets| packets as f64)
    });
    figures.push(passed.judged("0", |packets| packets == 0.0));
    let cores = |turn: &ForwardingTurn| turn.cores_at_96_mbit.unwrap_or(f64::NAN);
    figures.push(figure("forwarder, 96 Mbit/s: cores", &|pair| cores(pair[1])));
    let of_sendbox = figure("sendbox, 96 Mbit/s: cores", &|pair| cores(pair[2]));
    figures.push(of_sendbox.judged("<= 0.15", |cores| cores <= 0.15));
    for (at, who) in [(0, "bridge"), (1, "forwarder"), (2, "sendbox")] {
        figures.push(figure(&format!("{who}: echo, p95 (us)"), &|pair| p95_us(pair[at])));
    }
    let added =
        figure("sendbox - bridge: echo, p95 (us)", &|pair| p95_us(pair[2]) - p95_us(pair[0]));
    figures.push(added.judged("<= 200", |us| us <= 200.0));
    figures
}

/// The 95th percentile of echo times; NaN without an echo.
fn p95_us(turn: &ForwardingTurn) -> f64 {
    let rank = (turn.echoes_ns.len() * 95).div_ceil(100).saturating_sub(1);
    turn.echoes_ns.get(rank).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
}
