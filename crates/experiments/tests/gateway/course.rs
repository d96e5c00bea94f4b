//! The tests that each set-up goes through in turn, under one load that must survive all of these.

use std::net::Ipv4Addr;
use std::time::Duration;

use forebay_testbed::namespace::Namespace;

use crate::boxes::Boxes;
use crate::link::{RATE_BPS, Seen};
use crate::load::{Load, Span};
use crate::machine::{ip, output};
use crate::vpc::host_at;

/// Packets that may be left at the bottleneck on average.
const QUEUE_PACKETS: f64 = 15.0;
/// Least share of the goodput without boxes.
const GOODPUT: f64 = 0.97;
/// A bound of the bundle that shows whether it is shaped: well below the bottleneck's rate, ...
const BOUND_BPS: u64 = 8_000_000;
/// ... the rate that a shaped bundle stays below (bit/s), ...
const SHAPED_BPS: f64 = 1.1 * BOUND_BPS as f64;
/// ... and the rate that an unshaped bundle exceeds (bit/s).
const UNSHAPED_BPS: f64 = 1.5 * BOUND_BPS as f64;
/// Time within which a bundle must be unshaped after its sendbox is killed.
const OPEN_WITHIN: Duration = Duration::from_secs(1);
/// Time until the hosts' congestion controls have filled the queue.
const FILLING: Duration = Duration::from_secs(3);
/// Time until hosts and sendbox have settled.
const SETTLING: Duration = Duration::from_secs(6);
/// Length of the measurements with and without boxes.
const MEASURED: Duration = Duration::from_secs(8);
/// Length of waits and measurements around a stop or a restart.
const BRIEF: Duration = Duration::from_secs(1);

/// Where boxes and hosts are.
pub struct Ends<'a> {
    /// The machine with the sendbox.
    pub sendbox: &'a Namespace,
    /// The sending and the receiving host.
    pub receivebox: &'a Namespace,
    /// Who sends, and who receives.
    pub hosts: [&'a Namespace; 2],
    /// The device of each box, the sendbox's first.
    pub wan: [&'static str; 2],
    /// The address of each box.
    pub listen: [Ipv4Addr; 2],
    /// The networks of the bundle, the source's first.
    pub networks: [String; 2],
    /// Further lines of the sendbox's `[box]`.
    pub more: String,
    /// Lines of `ip -batch`: the first send the bundle's packets around the sendbox, the second undo that.
    pub detour: [String; 2],
}

/// Measurements of a course, to be judged with the bottleneck's own record.
pub struct Outcome {
    name: &'static str,
    /// Without boxes.
    before: Span,
    /// With them.
    with: Span,
    /// Spans with a bound of the bundle, each with whether the bound was enforced.
    bound: Vec<(&'static str, Span, Bound)>,
}

/// Whether the sendbox's bound held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Holds,
    IsGone,
}

impl Outcome {
    /// Judges the bottleneck's queue and output.
    pub fn judge(&self, seen: &Seen) {
        self.judge_function(seen);
        let share = self.goodput_share();
        assert!(share >= GOODPUT, "goodput of the status quo: {share}");
    }

    fn goodput_share(&self) -> f64 {
        self.with.goodput_bps / self.before.goodput_bps
    }

    /// As [`Outcome::judge`], without a bound on goodput, which a busy machine would fail.
    pub fn judge_function(&self, seen: &Seen) {
        let Self { name, before, with, bound } = self;
        let [queue_before, queue_with] = [before, with].map(|span| seen.mean_packets(span));
        println!(
            "{name}: at the bottleneck {queue_before:.1} packets without boxes, {queue_with:.1} with; goodput {:.2} and \
             {:.2} Mbit/s; requests {:.1} and {:.1} ms",
            before.goodput_bps / 1e6,
            with.goodput_bps / 1e6,
            before.request_ms,
            with.request_ms,
        );
        println!(
            "{name}: the bottleneck carries {:.2} Mbit/s with boxes",
            seen.rate_bps(with) / 1e6
        );
        for (what, span, _) in bound {
            println!("{name}: {what}: {:.2} Mbit/s", seen.rate_bps(span) / 1e6);
        }
        assert!(queue_before > 4.0 * QUEUE_PACKETS, "{queue_before}: nothing there to move");
        assert!(queue_with <= QUEUE_PACKETS, "{queue_with} packets left at the bottleneck");
        assert!(with.request_ms < before.request_ms / 2.0, "{with:?}, before {before:?}");
        for (what, span, bound) in bound {
            let rate_bps = seen.rate_bps(span);
            match bound {
                Bound::Holds => assert!(rate_bps < SHAPED_BPS, "{what}: {rate_bps}"),
                Bound::IsGone => assert!(rate_bps > UNSHAPED_BPS, "{what}: {rate_bps}"),
            }
        }
    }
}

/// Short course: the queue moves, and killing the sendbox leaves traffic alone. Half a minute.
pub fn short(name: &'static str, ends: &Ends<'_>) -> Outcome {
    let load = Load::start(ends.hosts[0], ends.hosts[1], host_at(1));
    let (mut outcome, mut boxes) = move_queue(name, ends, &load);
    outcome.bound = kill_under_load(&mut boxes, &load);
    load.finish();
    outcome
}

/// All of it.
pub fn long(name: &'static str, ends: &Ends<'_>) -> Outcome {
    let load = Load::start(ends.hosts[0], ends.hosts[1], host_at(1));
    // Devices take a moment until they report that they are up.
    std::thread::sleep(BRIEF);
    let state_before = state(ends);
    let (mut outcome, mut boxes) = move_queue(name, ends, &load);
    change_routes(ends, &boxes, &load);
    outcome.bound = kill_under_load(&mut boxes, &load);

    boxes.start_sendbox();
    std::thread::sleep(BRIEF);
    outcome.bound.push(("bound again after a restart", load.measure(2 * BRIEF), Bound::Holds));

    boxes.stop();
    std::thread::sleep(OPEN_WITHIN);
    outcome.bound.push(("a second after the stop", load.measure(BRIEF), Bound::IsGone));
    let state_after = state(ends);
    let new = state_after.lines().filter(|line| !state_before.lines().any(|it| it == *line));
    assert_eq!(state_after, state_before, "left of the sendbox: {:?}", new.collect::<Vec<_>>());
    load.finish();
    outcome
}

fn move_queue<'a>(name: &'static str, ends: &'a Ends<'a>, load: &Load) -> (Outcome, Boxes<'a>) {
    std::thread::sleep(FILLING);
    let before = load.measure(MEASURED);
    let boxes = Boxes::start(ends);
    boxes.await_sendbox("shapes", |status| {
        status.bundles[0].shaping.as_ref().is_some_and(|it| it.decision.state == "shaping")
    });
    std::thread::sleep(SETTLING);
    let with = load.measure(MEASURED);
    let status = boxes.await_sendbox("answers", |_| true);
    let shaping = status.bundles[0].shaping.as_ref().unwrap();
    assert!(shaping.counters.boundaries_matched > 100, "{shaping:?}");
    assert_eq!(shaping.alarm, None);
    (Outcome { name, before, with, bound: Vec::new() }, boxes)
}

/// Changes the route so that packets leave by another device: the sendbox hands back, and takes them again when
/// they return.
fn change_routes(ends: &Ends<'_>, boxes: &Boxes<'_>, load: &Load) {
    ip(ends.sendbox, &ends.detour[0]);
    let status = boxes.await_sendbox("hands back", |status| !status.failed_conditions.is_empty());
    assert!(
        status.failed_conditions.iter().any(|failed| failed.condition.contains("route")),
        "{:?}",
        status.failed_conditions
    );
    let around = load.measure(BRIEF);
    assert!(around.goodput_bps > RATE_BPS as f64 / 2.0, "{around:?}");
    ip(ends.sendbox, &ends.detour[1]);
    boxes.await_sendbox("takes up again", |status| {
        status.failed_conditions.is_empty() && status.bundles[0].peer.state == "alive"
    });
}

fn kill_under_load(boxes: &mut Boxes<'_>, load: &Load) -> Vec<(&'static str, Span, Bound)> {
    boxes.set_max_rate(Some(BOUND_BPS));
    boxes.reload();
    std::thread::sleep(2 * BRIEF);
    let bound = load.measure(BRIEF);
    boxes.kill_sendbox();
    std::thread::sleep(OPEN_WITHIN);
    let open = load.measure(BRIEF);
    vec![
        ("bound to 8 Mbit/s", bound, Bound::Holds),
        ("a second after the kill", open, Bound::IsGone),
    ]
}

/// Routes, rules, devices and qdiscs of the sendbox's machine.
fn state(ends: &Ends<'_>) -> String {
    [
        "ip rule",
        "ip route show table all",
        "ip -br link",
        "tc qdisc show",
        "ip neigh show nud permanent",
    ]
    .map(|line| output(ends.sendbox, line))
    .concat()
}
