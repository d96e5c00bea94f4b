//! The path as a sendbox records it, against the path that the simulator has.

use forebay_core::link::PathTrace;
use forebay_core::record::{PathRow, path_csv, path_rows, path_times};
use forebay_core::units::Duration;
use forebay_scenario::Change;
use forebay_sim::network::{Flow, Network};

use crate::site::*;

/// Rate from the first row on, and from 12 s on.
const RATES_MBPS: [u64; 2] = [30, 90];
/// One-way delay from the first row on, and from 24 s on; the way back takes 20 ms.
const DELAYS_MS: [u32; 2] = [20, 40];

/// A bundle with a backlog over a link whose rate and delay change.
fn changing(law: &str) -> Network {
    let mut network = backlogged(law, RATES_MBPS[0], 2 * DELAYS_MS[0]);
    network.flows = backlog(RATES_MBPS[1], 0);
    network.links[0].changes = vec![
        Change { at: seconds(12.0), rate: Some(mbit(RATES_MBPS[1])), ..Change::default() },
        Change { at: seconds(24.0), delay: Some(MS * DELAYS_MS[1]), ..Change::default() },
    ];
    network
}

fn recorded(network: &Network) -> Vec<PathRow> {
    let mut simulation = ran(network);
    path_rows(simulation.bundle_log(0).unwrap().path())
}

/// The rate in Mbit/s and the round trip in ms of the path at this time.
fn truth(at_s: f64) -> (f64, f64) {
    let rate = RATES_MBPS[usize::from(at_s >= 12.0)] as f64;
    let delay = DELAYS_MS[usize::from(at_s >= 24.0)] + DELAYS_MS[0];
    (rate, f64::from(delay))
}

/// Leaves out rows that begin near a change of the path: the change reaches the rows a round trip later.
fn settled(rows: &[PathRow]) -> impl Iterator<Item = (f64, &PathRow)> {
    let begins_s = |row: &PathRow| (row.at_ns - row.took_ns) as f64 / 1e9;
    let is_mixed = move |row: &PathRow| {
        [12.0, 24.0].iter().any(|change| (change - 0.15..change + 0.15).contains(&begins_s(row)))
    };
    rows.iter().filter(move |row| !is_mixed(row)).map(move |row| (begins_s(row), row))
}

#[test]
fn recorded_path_is_the_simulated_one() {
    // Basic Delay leaves hardly a queue, and so hardly a row is measured. Of both together 2 % may be wrong.
    let (mut wrong_of_both, mut of_both) = (0, 0);
    for (law, least) in [("copa", 40), ("basic_delay", 2)] {
        let rows = recorded(&changing(law));
        assert!(rows.len() > 350, "{law}: {}", rows.len());
        let (mut wrong_rates, mut wrong_trips, mut measured) = (0, 0, [0; 3]);
        for (at_s, row) in settled(&rows) {
            let (mbps, rtt_ms) = truth(at_s);
            let found_ms = row.rtt_ns as f64 / 1e6;
            wrong_trips += usize::from((found_ms - rtt_ms).abs() > (0.1 * rtt_ms).max(2.0));
            let found_mbps = row.rate_bps as f64 / 1e6;
            let is_wrong = row.is_measured && (found_mbps - mbps).abs() > 0.1 * mbps;
            wrong_rates += usize::from(is_wrong);
            measured[(at_s / 12.0).min(2.0) as usize] += usize::from(row.is_measured);
        }
        let all: usize = measured.iter().sum();
        println!(
            "{law}: {wrong_rates} wrong rates, {wrong_trips} wrong round trips; measured {measured:?}"
        );
        wrong_of_both += wrong_rates;
        of_both += all;
        assert!(wrong_trips * 50 <= rows.len(), "{law}: {wrong_trips} round trips");
        assert!(measured.iter().all(|rows| *rows >= least), "{law}: {measured:?}");
    }
    assert!(wrong_of_both * 50 <= of_both, "{wrong_of_both} of {of_both} rates");
}

#[test]
fn recorded_path_is_a_trace() {
    let rows = recorded(&changing("copa"));
    let trace = PathTrace::parse("recorded.csv", &path_csv(&rows)).unwrap();
    assert!(trace.sets_rate() && trace.sets_loss() && trace.is_round_trip());
    let [whole, _] = path_times(&rows);
    assert!(trace.length().abs_diff(whole) < MS, "{:?}", trace.length());
    let start_s = (rows[0].at_ns - rows[0].took_ns) as f64 / 1e9;
    let (mut known, mut right) = (Duration::ZERO, Duration::ZERO);
    for (row, time) in trace.spans() {
        let (mbps, _) = truth(start_s + row.at.as_secs_f64());
        let found = row.rate.unwrap().as_mbit_per_sec_f64();
        known += time;
        if (found - mbps).abs() <= 0.1 * mbps {
            right += time;
        }
    }
    assert!(right > known.mul_f64(0.8), "{right:?} of {known:?}");
}

#[test]
fn idle_bundle_measures_no_rate() {
    let mut network = backlogged("copa", 96, 40);
    network.flows = vec![Flow { traffic: cbr(mbit(5)), ..network.flows[0].clone() }];
    let rows = recorded(&network);
    assert!(rows.len() > 300, "{}", rows.len());
    assert_eq!(rows.iter().filter(|row| row.is_measured).count(), 0);
    let rate = rows[rows.len() / 2].rate_bps as f64 / 1e6;
    assert!((4.0..6.0).contains(&rate), "{rate}");
}
