use super::*;
use crate::cc::RttSample;
use crate::cc::window::tests::{Fed, MSS};

#[test]
fn the_cube_root_is_exact_to_the_unit() {
    for root in [0, 1, 2, 1000, 123_456, 2_642_245] {
        let cube: u64 = root * root * root;
        assert_eq!(cube_root(cube), root);
        if root > 1 {
            assert_eq!(cube_root(cube - 1), root - 1);
        }
    }
    assert_eq!(cube_root(u64::MAX), 2_642_245);
}

#[test]
fn function_follows_the_figures_of_rfc_9438() {
    for segments in [1, 30, 300, 30_000, 2_000_000] {
        let k = ticks_to_origin(segments * 1448, 1448) as f64 / TICKS_PER_SEC as f64;
        let expected = libm::cbrt(segments as f64 / 0.4);
        assert!((k - expected).abs() < 0.002, "{segments} segments: K = {k}, {expected}");
    }
    for ms in [100_u64, 1_000, 4_217, 60_000, 1_000_000] {
        let ticks = ms * TICKS_PER_SEC / 1000;
        let s = ticks as f64 / TICKS_PER_SEC as f64;
        let expected = 0.4 * s * s * s * 1448.0;
        let bytes = cubic_bytes(ticks, 1448) as f64;
        assert!((bytes - expected).abs() < expected * 1e-3 + 2.0, "{ms} ms: {bytes}, {expected}");
    }
    // The largest values do not overflow.
    assert!(cubic_bytes(u64::MAX, 1 << 16) > CWND_MAX);
    assert!(ticks_to_origin(CWND_MAX, 1) > 0);
}

/// A loss at `segments` segments, then acknowledgements of one window each 100 ms for `secs`.
fn after_loss(fed: &mut Fed, segments: u64, secs: f64) {
    fed.ack(segments - 10);
    fed.lose();
    let rounds = (secs * 10.0) as u64;
    for _ in 0..rounds {
        let packets = fed.cwnd() / MSS;
        fed.gap = Duration::from_millis(100) / packets as u32;
        fed.ack(packets);
    }
}

#[test]
fn window_recovers_to_its_loss_value_after_k() {
    // 1000 segments: K = cbrt(300 / 0.4) = 9.09 s; W(6 s) = 1000 - 0.4 x 3.09^3 = 988.
    let mut fed = Fed::new(&ALGORITHM, &[("reno_friendly", "false")]);
    after_loss(&mut fed, 1000, 6.0);
    assert!((fed.number("k_s") - 9.086).abs() < 0.01);
    let segments = fed.cwnd() as f64 / MSS as f64;
    assert!((segments - 988.2).abs() < 2.0, "{segments}");
    let mut fed = Fed::new(&ALGORITHM, &[("reno_friendly", "false")]);
    after_loss(&mut fed, 1000, 12.0);
    let segments = fed.cwnd() as f64 / MSS as f64;
    assert!((segments - 1009.9).abs() < 2.5, "{segments}"); // 1000 + 0.4 x 2.91^3
}

#[test]
fn small_windows_grow_like_equivalent_reno() {
    // From 7 of 10 segments, 9/17 a window: 10 again after 5.7 windows, then 1 a window.
    let mut fed = Fed::new(&ALGORITHM, &[]);
    fed.lose();
    fed.gap = Duration::from_micros(10);
    fed.ack_windows(5);
    let segments = fed.cwnd() as f64 / MSS as f64;
    assert!((9.2..9.8).contains(&segments), "{segments}");
    fed.ack_windows(6);
    let segments = fed.cwnd() as f64 / MSS as f64;
    assert!((14.2..15.4).contains(&segments), "{segments}");
}

#[test]
fn loss_below_the_last_aims_at_85_percent() {
    let mut fed = Fed::new(&ALGORITHM, &[]);
    fed.ack(90);
    fed.lose();
    assert_eq!(fed.cwnd(), 70 * MSS);
    assert_eq!(fed.number("w_max_bytes"), 100_000.0);
    fed.lose();
    assert_eq!(fed.cwnd(), 49 * MSS);
    assert_eq!(fed.number("w_max_bytes"), 59_500.0);
    let mut fed = Fed::new(&ALGORITHM, &[("fast_convergence", "false")]);
    fed.ack(90);
    fed.lose();
    fed.lose();
    assert_eq!(fed.number("w_max_bytes"), 70_000.0);
}

#[test]
fn loss_leaves_beta_of_window_in_both_modes() {
    let beta = ("beta", "77%");
    let published =
        ["reno_friendly", "linux_growth"].map(|it| Fed::new(&ALGORITHM, &[beta, (it, "true")]));
    for mut fed in published.into_iter().chain([Fed::as_ns3("cubic", &[beta])]) {
        fed.ack(90);
        let before = fed.cwnd();
        fed.lose();
        let left = fed.cwnd() as f64 / before as f64;
        assert!((left - 0.77).abs() < 0.011, "{left}");
    }
    // 3 (1 - b) / (1 + b), and (1 + b) / 2.
    let wide = Decrease(770);
    assert_eq!((wide.friendly(1770), wide.each(690), wide.converging(2000)), (690, 1770, 1770));
}

#[test]
fn linux_timeout_within_recovery_resets_the_aim_too() {
    for (linux, expected) in [("true", 0.0), ("false", 100_000.0)] {
        let mut fed = Fed::new(&ALGORITHM, &[("linux_growth", linux)]);
        fed.ack(90);
        fed.event(crate::cc::CongestionEvent::Loss);
        assert_eq!(fed.number("w_max_bytes"), 100_000.0);
        fed.event(crate::cc::CongestionEvent::Rto);
        assert_eq!(fed.number("w_max_bytes"), expected);
        assert_eq!(fed.cwnd(), MSS);
    }
}

#[test]
fn a_window_grows_by_half_at_most() {
    let mut fed = Fed::new(&ALGORITHM, &[]);
    fed.ack(90);
    fed.lose();
    fed.ack(1);
    fed.now += Duration::from_secs(1000);
    let before = fed.cwnd();
    fed.measure(before);
    assert!(fed.cwnd().abs_diff(before / 2 * 3) < MSS / 10, "{}", fed.cwnd());
}

#[test]
fn spurious_loss_restores_function_and_window() {
    let mut fed = Fed::new(&ALGORITHM, &[]);
    after_loss(&mut fed, 500, 2.0);
    let (cwnd, k) = (fed.cwnd(), fed.number("k_s"));
    fed.event(crate::cc::CongestionEvent::Loss);
    fed.event(crate::cc::CongestionEvent::Spurious);
    assert_eq!((fed.cwnd(), fed.number("k_s")), (cwnd, k));
    assert_eq!(fed.number("w_max_bytes"), 500_000.0);
}

#[test]
fn pauses_do_not_count_as_time_since_loss() {
    let mut fed = Fed::new(&ALGORITHM, &[("reno_friendly", "false")]);
    after_loss(&mut fed, 1000, 2.0);
    let before = fed.cwnd();
    fed.now += Duration::from_secs(5);
    let pause = Measurement {
        interval: Duration::from_secs(5),
        app_limited: true,
        ..Measurement::default()
    };
    fed.cc.on_measurement(fed.now, &pause);
    fed.gap = Duration::from_micros(100);
    fed.ack(100);
    assert!(fed.cwnd() - before < 10 * MSS, "{}", fed.cwnd() - before);
}

#[test]
fn linux_acknowledgements_after_a_pause_start_after_it() {
    let (rtt, pause) = (Duration::from_millis(100), Duration::from_secs(5));
    let windows = [pause, rtt].map(|interval| {
        let mut fed = Fed::new(&ALGORITHM, &[("linux_growth", "true")]);
        fed.rtt = Some(RttSample { latest: rtt, min: rtt });
        fed.gap = Duration::from_millis(1);
        fed.ack(90);
        fed.lose();
        fed.ack(10);
        fed.now += pause - interval;
        fed.gap = interval;
        fed.measure(70 * MSS);
        fed.cwnd()
    });
    assert_eq!(windows[0], windows[1]);
}

#[test]
fn ns3_adds_segments_at_least_two_acknowledgements_apart() {
    let mut fed = Fed::as_ns3("cubic", &[]);
    fed.ack(90);
    fed.lose();
    assert_eq!(fed.cwnd(), 70 * MSS);
    fed.ack(1);
    fed.now += Duration::from_secs(100);
    let before = fed.cwnd();
    fed.ack(10);
    assert_eq!(fed.cwnd(), before + 5 * MSS);
}
