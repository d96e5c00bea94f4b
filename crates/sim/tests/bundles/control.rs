//! Requirements on a bundle's controller at one bottleneck. Reports have +-1 ms of noise and up to half a
//! round trip of additional delay; clocks differ and drift. `examples/control_table.rs` prints the figures.

use forebay_core::bundle::decision::Decision;
use forebay_core::units::{Duration, Ratio};
use forebay_sim::network::{Flow, Hop, Network, Signal, Upset};

use crate::site::*;

type Case = (String, Network);

fn for_each_law(network: impl Fn(&'static str) -> Network) -> Vec<Case> {
    LAWS.iter().map(|&law| (law.to_string(), network(law))).collect()
}

/// Four Cubic flows on 96 Mbit/s x 50 ms for `stop` seconds.
fn four_flows(law: &str, stop: f64) -> Network {
    Network { stop: seconds(stop), ..loaded(law, 96, 50, 4) }
}

/// Backlogs at these rates with each algorithm and round trip. Reports take half of it, or twice that time.
fn backlogs(mbits: &[u64], stop: f64) -> Vec<(u64, Case)> {
    let mut cases = Vec::new();
    for (law, &mbit) in LAWS.iter().flat_map(|law| mbits.iter().map(move |mbit| (law, mbit))) {
        for rtt_ms in [10, 20, 50, 100, 200] {
            for extra in [0.0, 0.5] {
                let mut network = backlogged(law, mbit, rtt_ms);
                (network.stop, network.seed) = (seconds(stop), mbit + u64::from(rtt_ms));
                network.bundles[0].back.push(Hop::Delay((MS * rtt_ms).mul_f64(extra)));
                let name = format!("{law} {mbit} Mbit/s x {rtt_ms} ms + {extra} RTT");
                cases.push((mbit, (name, network)));
            }
        }
    }
    cases
}

#[test]
fn backlogged_bundle_fills_path_with_short_queue() {
    let cases = backlogs(&[12, 24, 48, 96], 25.0).into_iter().map(|(_, case)| case);
    assert_each(cases, |trace| full_and_short(trace, 5.0, 25.0));
}

/// Mean wait in the bottleneck's queue (ms).
fn queue_ms(part: &Part, mbit: u64) -> f64 {
    part.queue * PACKET.as_u64() as f64 * 8e-3 / mbit as f64
}

#[test]
fn queue_delay_is_bounded_at_high_rates() {
    // A third of the cases that take longest: each algorithm meets each round trip.
    for (mbit, case) in backlogs(&[300, 1000], 10.0).into_iter().step_by(3) {
        assert_each([case], |trace| {
            let part = trace.part(5.0, 10.0);
            must(part.used >= 0.95 && queue_ms(&part, mbit) <= 1.2, part)
        });
    }
}

/// Here the target is 0.75 ms of queue and the bound 1.2 ms. The noise of a single report must not stay in
/// the least delay of the way back.
#[test]
fn queue_on_short_fast_path_stays_short() {
    let mut cases = Vec::new();
    for law in LAWS {
        for seed in 1..=8 {
            let network = Network { stop: seconds(15.0), seed, ..backlogged(law, 300, 10) };
            cases.push((format!("{law}, seed {seed}"), network));
        }
    }
    assert_each(cases, |trace| {
        let part = trace.part(5.0, 15.0);
        must(queue_ms(&part, 300) <= 1.2, part)
    });
}

#[test]
fn lost_late_and_noisy_reports_change_little() {
    let mut cases = Vec::new();
    for law in LAWS {
        let mut case = |name: &str, trouble: &dyn Fn(&mut Network)| {
            let mut network = four_flows(law, 30.0);
            trouble(&mut network);
            cases.push((format!("{law}, {name}"), network));
        };
        case("half of the messages lost", &|network| {
            network.links[1].message_loss = Ratio::new(0.5).unwrap();
        });
        case("each report 0-52 ms late", &|network| network.bundles[0].of.report_jitter = 52 * MS);
        case("a queue of 50 ms on the way back", &|network| with_sine(network, 50 * MS));
        case("receive stamps 0-2 ms late", &|network| {
            network.bundles[0].of.timestamp_jitter = 2 * MS
        });
        case("a sendbox that wakes up late", &|network| network.bundles[0].wake_delay = MS / 10);
        case("a sendbox that pauses for 5 ms each second", &|network| {
            let signals = [(0.0, Signal::Stop), (0.005, Signal::Continue)];
            let stalls = (1..30).flat_map(|secs| signals.map(|it| (f64::from(secs) + it.0, it.1)));
            let stalls = stalls.map(|(secs, signal)| upset(secs, Upset::Sendbox(signal)));
            network.bundles[0].changes = stalls.collect();
        });
    }
    assert_each(cases, |trace| full_and_short(trace, 12.0, 30.0));
}

#[test]
fn queue_of_one_flow_moves_to_sendbox() {
    let one = |law| loaded(law, 96, 50, 1);
    let status_quo = Trace::of(&one("const")).part(5.0, 40.0).queue;
    assert_each(for_each_law(one), |trace| {
        full_and_short(trace, 5.0, 40.0)?;
        let part = trace.part(5.0, 40.0);
        let (sendbox, total) = (part.sendbox_queues[0], part.sendbox_queues[0] + part.queue);
        let is_moved = sendbox >= 0.85 * total && (0.7..1.1).contains(&(total / status_quo));
        must(is_moved, (part, status_quo))
    });
}

#[test]
fn slow_starts_lead_into_a_full_path() {
    let mut cases = Vec::new();
    for law in LAWS {
        for (mbit, rtt_ms) in [(12, 50), (96, 10), (96, 50), (96, 200)] {
            let network = Network { stop: seconds(10.0), ..loaded(law, mbit, rtt_ms, 4) };
            cases.push((format!("{law} {mbit} x {rtt_ms}"), network));
        }
    }
    assert_each(cases, |trace| {
        let part = trace.part(2.0, 4.0);
        must(part.used >= 0.9, part)
    });
}

#[test]
fn steps_of_rate_and_round_trip_are_followed() {
    let mut cases = Vec::new();
    for law in LAWS {
        for (name, before, between) in [
            ("rate 96-48-96 at 50 ms", (96, 50), (48, 50)),
            ("rate 96-48-96 at 200 ms", (96, 200), (48, 200)),
            ("RTT 50-80-50 at 96 Mbit/s", (96, 50), (96, 80)),
            ("RTT 20-30-20 at 24 Mbit/s", (24, 20), (24, 30)),
            ("RTT 50-80-50 at 12 Mbit/s", (12, 50), (12, 80)),
        ] {
            let mut network = loaded(law, before.0, before.1, 4);
            network.stop = seconds(50.0);
            step(&mut network, 15.0, between.0, between.1);
            step(&mut network, 35.0, before.0, before.1);
            cases.push((format!("{law}, {name}"), network));
        }
    }
    assert_each(cases, |trace| {
        for (from_s, to_s) in [(20.0, 35.0), (40.0, 50.0)] {
            let part = trace.part(from_s, to_s);
            must(part.used >= 0.9 && part.queue <= 20.0, (from_s, part))?;
        }
        Ok(())
    });
}

#[test]
fn restarted_box_finds_the_queue_under_load() {
    let mut cases = Vec::new();
    for law in LAWS {
        for (name, end, up_s) in [
            ("sendbox", Upset::Sendbox as fn(Signal) -> Upset, 15.5),
            ("receivebox", Upset::Receivebox, 17.0),
        ] {
            for flows in [1, 20] {
                let mut network = loaded(law, 96, 50, flows);
                network.stop = seconds(35.0);
                network.bundles[0].changes =
                    vec![upset(15.0, end(Signal::Kill)), upset(up_s, end(Signal::Restart))];
                cases.push((format!("{law}, {name}, {flows} flows"), network));
            }
        }
    }
    assert_each(cases, |trace| {
        let during = trace.part(15.5, 25.0);
        must(during.used >= 0.9, during)?;
        full_and_short(trace, 25.0, 35.0)
    });
}

/// Cubic flows on 96 Mbit/s x 50 ms; the receivebox reports no boundary between `from_s` and `to_s`.
fn unreported(law: &str, flows: usize, from_s: f64, to_s: f64) -> Network {
    let mut network = loaded(law, 96, 50, flows);
    network.bundles[0].changes =
        vec![upset(from_s, Upset::Unreported(true)), upset(to_s, Upset::Unreported(false))];
    network
}

#[test]
fn a_second_without_reports_costs_nothing() {
    let mut cases = Vec::new();
    for law in LAWS {
        for (flows, at_s) in [(1, 15.0), (4, 15.3), (20, 15.6)] {
            let network = unreported(law, flows, at_s, at_s + 1.0);
            let network = Network { stop: seconds(30.0), ..network };
            cases.push((format!("{law}, {flows} flows"), network));
        }
    }
    assert_each(cases, |trace| {
        let during = trace.part(15.0, 17.0);
        must(during.used >= 0.95, during)?;
        let is_shaped = |it: &Decision| it.state != "no_reports" && it.rate.is_some();
        must(trace.decisions(15.0, 17.0).all(is_shaped), "unshaped")?;
        full_and_short(trace, 20.0, 30.0)
    });
}

#[test]
fn live_peer_without_reports_is_not_awaited() {
    let mut cases = Vec::new();
    for law in LAWS {
        for flows in [1, 20] {
            let network = unreported(law, flows, 15.0, 20.0);
            cases.push((format!("{law}, {flows} flows"), network));
        }
    }
    assert_each(cases, |trace| {
        let during = trace.part(15.0, 20.0);
        must(during.used >= 0.95, during)?;
        let frozen: Vec<f64> = trace.decisions(15.0, 18.0).map(|it| mbit_of(it) / 96.0).collect();
        let least = frozen.into_iter().fold(f64::MAX, f64::min);
        must(least >= 0.85, ("least rate by the bottleneck's", least))?;
        must(trace.decisions(18.3, 20.0).all(|it| it.rate.is_none()), "shaped after 3.3 s")?;
        full_and_short(trace, 25.0, 40.0)
    });
}

/// Rate of a decision (Mbit/s), 0 for none.
fn mbit_of(decision: &Decision) -> f64 {
    decision.rate.map_or(0.0, |rate| rate.as_mbit_per_sec_f64())
}

#[test]
fn boundaries_are_unmatched_only_without_a_report() {
    for loss in [0.0, 0.1] {
        let mut cases = Vec::new();
        for (mbit, rtt_ms) in [(24, 50), (48, 50), (96, 20), (96, 50)] {
            let mut network = loaded("copa", mbit, rtt_ms, 1);
            network.stop = seconds(20.0);
            network.links[1].message_loss = Ratio::new(loss).unwrap();
            cases.push((format!("{mbit} Mbit/s x {rtt_ms} ms, {loss} lost"), network));
        }
        assert_each(cases, |trace| {
            let it = trace.simulation.bundle_metrics(0);
            let (sent, matched) = (it.counters.boundaries_sent, it.counters.boundaries_matched);
            let drops = trace.part(0.0, 20.0).drops;
            must(drops == 0 && sent > 2000 && it.reports_unmatched == 0, (drops, it))?;
            if loss == 0.0 {
                // Steps of the epoch size lose no match: an unmatched boundary is still in flight.
                return must(sent - matched <= 12, it);
            }
            must((0.88..0.92).contains(&(matched as f64 / sent as f64)), it)
        });
    }
}

#[test]
fn idle_time_costs_the_next_request_nothing() {
    assert_each(for_each_law(with_idle_time), |trace| {
        let slowdown = slowdown_after_idle_time(trace);
        must(slowdown <= 1.1, ("slowdown", slowdown))?;
        full_and_short(trace, 47.0, 55.0)
    });
}

#[test]
fn load_after_constant_stream_is_soon_controlled() {
    let cases = for_each_law(|law| {
        let mut flows = vec![flow("const", cbr(mbit(10)), Hop::Bundle(0))];
        flows.extend(vec![Flow { start: seconds(20.0), ..cubic() }; 10]);
        Network { flows, stop: seconds(30.0), ..bundled(law, 96, 50) }
    });
    assert_each(cases, |trace| {
        let used = trace.parts(20.0, 21.0, 0.1).find(|(_, part)| part.used >= 0.9);
        must(used.is_some(), "not used within a second")?;
        let after = trace.part(22.0, 24.0);
        must(after.queue <= 30.0, after)?;
        let before = trace.part(1.0, 20.0).used * 96.0;
        must((before - 10.0).abs() < 0.1, ("Mbit/s of the stream", before))
    });
}

#[test]
fn shallow_buffers_lose_neither_throughput_nor_packets() {
    // The packets that a full buffer drops are chaotic, so only means over seeds can be compared.
    let mean = |law: &str, buffer, flows, seeds: u64| {
        let runs = (1..=seeds).map(|seed| {
            let network = Network { stop: seconds(30.0), seed, ..loaded(law, 96, 50, flows) };
            let part = Trace::of(&with_buffer(network, buffer)).part(0.0, 30.0);
            (part.used / seeds as f64, part.drops as f64 / seeds as f64)
        });
        runs.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    };
    let mut worse = Vec::new();
    for (buffer, flows) in [(10, 1), (10, 20), (20, 4), (40, 1), (40, 20)] {
        // Without a control algorithm, nothing depends on the seed.
        let usual = mean("const", buffer, flows, 1);
        for law in LAWS {
            let (used, drops) = mean(law, buffer, flows, 4);
            if used < 0.95 * usual.0 || drops > 1.05 * usual.1 {
                let name = format!("{law} {buffer} packets {flows} flows");
                worse.push(format!("{name}: {used:.3}, {drops:.1} drops against {usual:.3?}"));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

/// With 10 packets no queue lasts long enough to be seen, but its repeated overflows show it. A sendbox that
/// wakes up late sends bursts that overflow such a buffer.
#[test]
fn shallow_buffer_is_detected_by_overflows() {
    for flows in [4, 20] {
        let network = |law: &str| {
            let network = Network { stop: seconds(45.0), ..loaded(law, 96, 50, flows) };
            with_buffer(network, 10)
        };
        let status_quo = Trace::of(&network("const"));
        let mut cases = Vec::new();
        for law in LAWS {
            for (seed, late_us) in [(1, 0), (2, 0), (3, 100), (4, 100)] {
                let mut network = Network { seed, ..network(law) };
                network.bundles[0].wake_delay = Duration::from_micros(late_us);
                cases.push((format!("{law}, {flows} flows, {late_us} us late"), network));
            }
        }
        assert_each(cases, |trace| {
            // The losses of slow start occur in any case.
            let [lost, all] = [&*trace, &status_quo].map(|it| it.part(5.0, 45.0).drops);
            must(2 * lost <= all, ("drops", lost, all))?;
            let [used, before] = [&*trace, &status_quo].map(|it| it.part(0.0, 45.0).used);
            must(used >= before, ("used", used, before))
        });
    }
}

#[test]
fn random_loss_costs_the_bundle_nothing() {
    let mut cases = Vec::new();
    for law in LAWS {
        // Fewer flows would not fill the path even without boxes.
        for flows in [40, 200] {
            let mut network = loaded(law, 96, 50, flows);
            network.stop = seconds(30.0);
            lose(&mut network, 0.0, 0.01);
            cases.push((format!("{law}, {flows} flows"), network));
        }
    }
    assert_each(cases, |trace| full_and_short(trace, 5.0, 30.0));
}

/// An endless backlog does not slow down by itself, so the algorithm alone sets its rate. The buffer never
/// fills, and a lower rate would not reduce the loss.
#[test]
fn rate_independent_loss_lowers_rate_only_temporarily() {
    let mut cases = Vec::new();
    for law in LAWS {
        for (mbit, rtt_ms) in [(24, 50), (96, 50), (96, 200)] {
            for loss in [0.01, 0.03, 0.1] {
                let mut network = backlogged(law, mbit, rtt_ms);
                lose(&mut network, 15.0, loss);
                cases.push((format!("{law} {mbit} x {rtt_ms}, {loss} lost"), network));
            }
        }
    }
    assert_each(cases, |trace| {
        // Counts packets that leave the sendbox, not arrivals. Meanwhile the sendbox tests a loss above 4 %
        // with a lower rate.
        let kept = trace.part(35.0, 40.0).sent[0] / trace.part(13.0, 15.0).sent[0];
        let drops = trace.part(5.0, 40.0).drops;
        must(kept > 0.9 && drops == 0, ("share kept, drops", kept, drops))
    });
}

/// Bundles start at different times, when the other bundle may still be unshaped. They meet queues that
/// neither bundle caused alone.
#[test]
fn two_bundles_share_the_bottleneck() {
    let mut cases = Vec::new();
    for law in LAWS {
        let network = |flows: [Vec<Flow>; 2], seed| Network {
            flows: flows.concat(),
            seed,
            ..in_bundles(bundled(law, 96, 50), 2)
        };
        let backlogs = [backlog(96, 0), backlog(96, 1)];
        cases.push((format!("{law}, backlogs"), network(backlogs, 1)));
        for later_ms in [0, 60, 120, 180, 240, 300, 360] {
            let other = Flow { start: MS * later_ms, data: vec![Hop::Bundle(1)], ..cubic() };
            let network = network([vec![cubic(); 4], vec![other; 4]], 1 + u64::from(later_ms));
            cases.push((format!("{law}, the second {later_ms} ms later"), network));
        }
    }
    let mut shares = Vec::new();
    assert_each(cases, |trace| {
        let (part, share) = (trace.part(5.0, 40.0), trace.part(10.0, 40.0).sent[0]);
        shares.push(share);
        let is_shared = part.used >= 0.95 && (32.0..64.0).contains(&share);
        must(part.queue <= 25.0 && is_shared, (part, "Mbit/s of the first", share))
    });
    // Of 189 such runs 6 were more uneven, and 2 stayed so for a minute.
    let uneven = shares.iter().filter(|share| !(43.2..52.8).contains(*share)).count();
    assert!(10 * uneven <= shares.len(), "Mbit/s of the first: {shares:.1?}");
}

#[test]
fn the_base_does_not_drift() {
    let cases = for_each_law(|law| Network { stop: seconds(300.0), ..loaded(law, 24, 50, 1) });
    assert_each(cases, |trace| {
        let base = trace.decisions(299.0, 300.0).last().and_then(|it| it.min_rtt);
        let base_ms = base.map_or(f64::NAN, |base| base.as_secs_f64() * 1e3);
        must((base_ms - 50.0).abs() <= 1.0, ("base in ms", base_ms))?;
        full_and_short(trace, 100.0, 300.0)
    });
}

/// Without enforcement the queue stays at the bottleneck with any window.
#[test]
fn dry_run_reports_the_path_rate() {
    let mut cases = Vec::new();
    for law in LAWS {
        for (packets, flows) in [(198, 4), (396, 1), (396, 4), (1188, 4)] {
            let network = Network { stop: seconds(30.0), ..loaded(law, 96, 50, flows) };
            let mut network = with_buffer(network, packets);
            network.bundles[0].dry_run = true;
            cases.push((format!("{law} {packets} packets {flows} flows"), network));
        }
    }
    let mut beyond = Vec::new();
    assert_each(cases, |trace| {
        let mut mbit: Vec<f64> = trace.decisions(10.0, 30.0).map(mbit_of).collect();
        mbit.sort_by(f64::total_cmp);
        let [tenth, half, most] =
            [0.1, 0.5, 1.0].map(|it| mbit[((mbit.len() - 1) as f64 * it) as usize]);
        if tenth < 0.8 * 96.0 || most > 1.05 * 96.0 {
            beyond.push((tenth, most));
        }
        let is_told = tenth >= 0.75 * 96.0 && half >= 0.9 * 96.0 && most <= 1.08 * 96.0;
        must(is_told, ("Mbit/s", tenth, half, most))
    });
    // All are within 0.8 and 1.05 except two with four flows. setpoint finds at most 1.07 behind 396 packets,
    // and basic_delay 0.76 at the tenth percentile behind 1188.
    assert!(beyond.len() <= 2, "Mbit/s: {beyond:.1?}");
}
