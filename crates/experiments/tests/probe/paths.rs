//! 24 paths: the verdict of `forebay probe` on each, and the measured gain of a bundle.

use forebay_core::units::{Duration, Ratio};
use forebay_scenario::Link;
use forebay_skips::{Need, skip_without};

use super::gain;
use super::link;
use super::net::{Net, Peer};

/// Verdicts that must be right.
const RIGHT_MIN: usize = 22;
/// Largest error of a predicted gain, as a share of the measured gain.
const GAIN_SHARE: f64 = 0.3;
/// Largest error of a small predicted gain (ms); the larger bound counts.
const GAIN_MS: f64 = 5.0;

/// A path, and the truth about it.
struct Case {
    name: &'static str,
    /// The reason of the right verdict.
    expected: &'static str,
    site: Option<Link>,
    /// A command among the hosts before the probe.
    set_up: Option<&'static str>,
    ways: Vec<Link>,
    peer: Peer,
    arguments: &'static [&'static str],
}

impl Case {
    fn new(name: &'static str, expected: &'static str, way: Link) -> Self {
        let (site, set_up, peer) = (None, None, Peer::Answers);
        Self { name, expected, site, set_up, ways: vec![way], peer, arguments: &[] }
    }

    /// The peer only reads.
    fn reads(self) -> Self {
        Self { peer: Peer::Reads, ..self }
    }
}

fn lossy(loss: f64, link: Link) -> Link {
    Link { loss: Ratio::new(loss).unwrap(), ..link }
}

fn cases() -> Vec<Case> {
    let middle = |name, way| Case::new(name, "queue_in_the_middle", way);
    let site = |name| Case::new(name, "queue_in_the_site", link(50, 20, "fifo(limit=300p)"));
    let narrow = Some(link(10, 1, "fifo(limit=100p)"));
    let unlimited = Link::delay("forward", Duration::from_millis(20));
    let policed = |name, way| Case::new(name, "policer", way);
    let managed = |name, way| Case::new(name, "queue_managed", way);
    let ways = |name, ways| Case { ways, ..Case::new(name, "unbalanced_ways", link(1, 1, "fifo")) };
    vec![
        middle("20 Mbit/s, 40 ms, FIFO of 1 BDP", link(20, 20, "fifo(limit=66p)")),
        middle("20 Mbit/s, 40 ms, FIFO of 2 BDP", link(20, 20, "fifo(limit=132p)")),
        middle("10 Mbit/s, 20 ms, FIFO of 6 BDP", link(10, 10, "fifo(limit=100p)")),
        middle("40 Mbit/s, 60 ms, FIFO of 2 BDP", link(40, 30, "fifo(limit=400p)")),
        middle("5 Mbit/s, 30 ms, FIFO of 5 BDP", link(5, 15, "fifo(limit=60p)")),
        middle("30 Mbit/s, 100 ms, FIFO of 1 BDP", link(30, 50, "fifo(limit=250p)")),
        middle("20 Mbit/s, 40 ms, FIFO, peer reads", link(20, 20, "fifo(limit=132p)")).reads(),
        middle(
            "15 Mbit/s, 50 ms, FIFO, loss 0.05 %",
            lossy(0.0005, link(15, 25, "fifo(limit=120p)")),
        ),
        Case { site: narrow.clone(), ..site("10 Mbit/s before the router") },
        Case { site: narrow, ..site("10 Mbit/s before the router, peer reads") }.reads(),
        Case {
            set_up: Some("tc qdisc add dev eth0 root tbf rate 10mbit burst 3200 limit 200000"),
            ..site("10 Mbit/s in the host's qdisc")
        },
        Case {
            arguments: &["--max-rate", "20Mbit/s"],
            ..Case::new("no bottleneck, 20 Mbit/s asked for", "no_queue", unlimited)
        },
        Case {
            arguments: &["--max-rate", "20Mbit/s"],
            ..Case::new("60 Mbit/s, 20 asked for, peer reads", "no_queue", link(60, 20, "fifo"))
        }
        .reads(),
        policed("policed to 10 Mbit/s", link(60, 20, "policer(rate=10Mbit/s)")),
        policed(
            "policed to 20 Mbit/s, short bursts",
            link(60, 15, "policer(rate=20Mbit/s, burst=60KB)"),
        ),
        policed("policed to 15 Mbit/s, peer reads", link(60, 20, "policer(rate=15Mbit/s)")).reads(),
        managed("20 Mbit/s, 40 ms, CoDel", link(20, 20, "codel")),
        managed("20 Mbit/s, 40 ms, FQ-CoDel", link(20, 20, "fq_codel")),
        managed("20 Mbit/s, 40 ms, PIE", link(20, 20, "pie")),
        managed("20 Mbit/s, 40 ms, SFQ", link(20, 20, "sfq(limit=132p)")),
        Case::new("loss 1 %", "loss_by_chance", lossy(0.01, link(60, 20, "fifo(limit=300p)"))),
        Case::new(
            "loss 2 %, peer reads",
            "loss_by_chance",
            lossy(0.02, link(60, 15, "fifo(limit=300p)")),
        )
        .reads(),
        ways("two ways, 30 and 60 ms", [15, 30].map(|ms| link(15, ms, "fifo(limit=80p)")).into()),
        ways(
            "two ways, 40 and 52 ms, peer reads",
            [20, 26].map(|ms| link(15, ms, "fifo(limit=80p)")).into(),
        )
        .reads(),
    ]
}

#[test]
#[ignore = "ten minutes of real traffic: make test-probe"]
fn verdict_is_right_on_22_of_24_paths() {
    assert!(!skip_without(Need::Root), "no root");
    let (mut right, mut wrong_gains) = (0, Vec::new());
    let cases = cases();
    assert_eq!(cases.len(), 24);
    println!("| path | said | truth | queue (ms) | gain, expected (ms) | measured (ms) |");
    println!("|---|---|---|---|---|---|");
    for case in &cases {
        let net = Net::new(case.site.as_ref(), &case.ways, case.peer);
        if let Some(line) = case.set_up {
            net.at_hosts(line);
        }
        let said = net.probe_json(case.arguments);
        drop(net);
        let reason = said["reason"].as_str().unwrap();
        right += usize::from(reason == case.expected);
        let expected_ms = said["gain_ms"].as_f64().unwrap();
        let measured_ms = (reason == "queue_in_the_middle" && case.site.is_none())
            .then(|| gain::measured_ms(&case.ways[0]));
        if measured_ms.is_some_and(|measured| !is_near(expected_ms, measured)) {
            wrong_gains.push(case.name);
        }
        let gain = measured_ms.map_or("| ".into(), |ms| format!("{expected_ms:.1} | {ms:.1}"));
        let queue = said["findings"]["queue_ms"].as_f64().unwrap();
        println!("| {} | {reason} | {} | {queue:.1} | {gain} |", case.name, case.expected);
        if reason != case.expected {
            println!("  {}", said["findings"]);
        }
    }
    println!("{right} of {} verdicts are right", cases.len());
    assert!(right >= RIGHT_MIN, "{right} of {}", cases.len());
    assert!(wrong_gains.is_empty(), "gains that did not come true: {wrong_gains:?}");
}

fn is_near(expected_ms: f64, measured_ms: f64) -> bool {
    (expected_ms - measured_ms).abs() <= GAIN_MS.max(GAIN_SHARE * measured_ms)
}
