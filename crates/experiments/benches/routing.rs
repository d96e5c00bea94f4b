//! `make bench-routing`: throughput and CPU time of a routed sendbox on the kernel datapath, compared with
//! plain routing, in turns. Root; the machine has to be quiet.

mod figures;

use std::process::ExitCode;

use clap::Parser;
use figures::{Figure, Rounds};
use forebay_testbed::routing::{Kind, RoutingArm, RoutingLoad, RoutingTurn, measure};

/// Measures packets and bits a second, and CPU time, of a routed sendbox without a rate limit and of plain routing.
/// Exit code 1: an aim was missed.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    rounds: Rounds,
}

/// Least share of plain routing's throughput.
const SHARE: f64 = 0.9;

fn main() -> ExitCode {
    let arguments = Arguments::parse().rounds;
    let Rounds { rounds, duration, .. } = arguments;
    let measure = |program: &_, dir: &_| {
        measure(program, dir, rounds, duration, &mut |turn| {
            eprintln!("round {} of {rounds}: {:?}", turn.round + 1, turn.arm);
        })
    };
    arguments.run(measure, figures)
}

fn figures(turns: &[RoutingTurn]) -> Vec<Figure> {
    let of = |arm| turns.iter().filter(move |turn| turn.arm == arm);
    let pairs: Vec<[&RoutingTurn; 2]> = of(RoutingArm::Plain)
        .zip(of(RoutingArm::Sendbox))
        .map(|(plain, sendbox)| [plain, sendbox])
        .collect();
    let figure = |name: String, value: &dyn Fn(&[&RoutingTurn; 2]) -> f64| {
        Figure::of(name, pairs.iter().map(value))
    };
    let mut figures = Vec::new();
    for (place, RoutingLoad { kind, flows, .. }) in pairs[0][0].loads.iter().enumerate() {
        let (what, unit, scale) = match kind {
            Kind::Tcp => ("TCP", "Gbit/s", 1e9),
            Kind::Datagrams => ("datagrams", "Mpackets/s", 1e6),
        };
        for (at, who) in [(0, "plain"), (1, "sendbox")] {
            figures.push(figure(format!("{who}, {flows} x {what}: {unit}"), &|pair| {
                pair[at].loads[place].rate / scale
            }));
            figures.push(figure(format!("{who}, {flows} x {what}: cores"), &|pair| {
                pair[at].loads[place].cores
            }));
        }
        let share = format!("sendbox / plain, {flows} x {what}: {unit}");
        let share = figure(share, &|pair| pair[1].loads[place].rate / pair[0].loads[place].rate);
        figures.push(share.judged(">= 0.90", |share| share >= SHARE));
    }
    // A turn in which packets bypassed the sendbox would measure plain routing.
    let counted = figure("sendbox: packets that it counted".into(), &|pair| pair[1].packets as f64);
    let is_met = Some(counted.range[0] > 0.0);
    figures.push(Figure { aim: Some("> 0"), is_met, ..counted });
    figures
}
