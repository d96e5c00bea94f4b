//! Receivers and paths with extreme settings for TCP, from plans.

use std::path::Path;

use crate::backend::Backend;
use crate::backend::sim::Sim;
use crate::metrics::{Evaluation, evaluate};
use crate::plan::Plan;
use crate::plan::library::Source;

/// Result of a plan with this bottleneck and these other links and flows.
fn evaluation(stop: &str, bottleneck: &str, rest: &str) -> Evaluation {
    let text = format!("name = \"e\"\nstop = \"{stop}\"\nbottleneck = {{ {bottleneck} }}\n{rest}");
    let source = Source { file: "e".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let rows = Sim::default().run(&experiment, Path::new(""), &mut |_| ()).unwrap();
    evaluate(&experiment, &rows).unwrap()
}

/// 20 Mbit/s and 40 ms with a buffer of a bandwidth-delay product.
const USUAL: &str =
    "rate = \"20Mbit/s\", rtt = \"40ms\", qdisc = { kind = \"fifo\", limit = \"1bdp\" }";

/// A greedy flow with these keys.
fn greedy(keys: &str) -> String {
    format!("[[flow]]\nname = \"bulk\"\ntraffic = {{ kind = \"greedy\" }}\n{keys}\n")
}

fn of_flow(evaluation: &Evaluation, name: &str) -> Option<f64> {
    evaluation.flows[0].metrics.get(name)
}

fn of_link(evaluation: &Evaluation, link: &str, name: &str) -> f64 {
    let link = evaluation.links.iter().find(|it| it.name == link).unwrap();
    link.metrics.get(name).unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn bytes_acked_before_arrival_are_no_goodput() {
    let with = |receiver: &str| {
        let keys = format!("receiver = \"{receiver}\"\nreceive_buffer = \"200KB\"\ncount = 2");
        evaluation("8s", &format!("{USUAL}, loss = \"1%\""), &greedy(&keys))
    };
    let (honest, optimist) = (with("honest"), with("optimistic(lead=0)"));
    assert_eq!(of_flow(&honest, "total_unreceived_l4"), None);
    assert!(of_flow(&optimist, "total_unreceived_l4").unwrap() > 100.0);
    assert_eq!(of_flow(&optimist, "total_retransmissions_l4"), Some(0.0));
    let rate = of_flow(&optimist, "goodput_mbps").unwrap();
    assert!(rate <= 20.0 * 1448.0 / 1514.0, "{rate}");
}

#[test]
fn slow_reader_shows_as_receive_window_limited() {
    let keys = "read_rate = \"5Mbit/s\"\nreceive_buffer = \"64KB\"";
    let slow = evaluation("8s", USUAL, &greedy(keys));
    let rate = of_flow(&slow, "goodput_mbps").unwrap();
    assert!((4.9..5.2).contains(&rate), "{rate}");
    assert!(of_flow(&slow, "rwnd_limited_l4").unwrap() > 0.9);
    assert_eq!(of_flow(&slow, "total_window_probes_l4"), Some(0.0));
    assert_eq!(of_link(&slow, "forward", "drops_queue_packets"), 0.0);
    let fast = evaluation("8s", USUAL, &greedy("read_rate = \"1Gbit/s\""));
    assert!(of_flow(&fast, "rwnd_limited_l4").unwrap() < 0.01);
    assert!(of_flow(&fast, "goodput_mbps").unwrap() > 17.0);
}

#[test]
fn a_policer_drops_and_holds_nothing_back() {
    let bottleneck = "rate = \"100Mbit/s\", rtt = \"40ms\", qdisc = { kind = \"policer\", rate = \
                      \"10Mbit/s\", burst = \"50ms\" }";
    let policed = evaluation("8s", bottleneck, &greedy(""));
    let rate = of_flow(&policed, "goodput_mbps").unwrap();
    assert!((5.0..10.0).contains(&rate), "{rate}");
    assert!(of_link(&policed, "forward", "drops_policed_packets") > 10.0);
    assert!(of_link(&policed, "forward", "queue_mean_packets") < 1.0);
}

#[test]
fn acks_ten_times_a_second_fill_a_path() {
    let reverse = "[reverse]\nbatch = \"100ms\"\n";
    let bottleneck =
        "rate = \"20Mbit/s\", rtt = \"40ms\", qdisc = { kind = \"fifo\", limit = \"4bdp\" }";
    let batched = evaluation("8s", bottleneck, &format!("{reverse}{}", greedy("")));
    let rate = of_flow(&batched, "goodput_mbps").unwrap();
    assert!((12.0..20.0).contains(&rate), "{rate}");
}

#[test]
fn an_acknowledgement_filter_is_counted_by_its_reason() {
    let reverse = "[reverse]\nrate = \"100kbit/s\"\nack_filter = true\n";
    let filtered = evaluation("8s", USUAL, &format!("{reverse}{}", greedy("ack_every = 1")));
    assert!(of_link(&filtered, "reverse", "drops_superseded_packets") > 1000.0);
    // Unfiltered, 189 acknowledgements a second would let 2.2 Mbit/s through.
    let rate = of_flow(&filtered, "goodput_mbps").unwrap();
    assert!(rate > 8.0, "{rate}");
}

#[test]
fn dctcp_queue_stays_at_the_step_despite_incast() {
    let bottleneck = "rate = \"10Gbit/s\", rtt = \"100us\", qdisc = { kind = \"fifo\", limit = \"1000p\", \
                      ecn = true, mark = \"65p\" }";
    let flows = "[[flow]]\nname = \"bulk\"\ncount = 2\ncc = \"dctcp\"\ntraffic = { kind = \"greedy\" }\n\
                 [[flow]]\nname = \"incast\"\ncc = \"dctcp\"\nstart = \"50ms\"\n\
                 traffic = { kind = \"requests\", sizes = \"20KB\", load = \"1Gbit/s\", \
                 connections = \"each\" }\n";
    let centre = evaluation("100ms", bottleneck, flows);
    // Two flows without a queue would have 9.56 Gbit/s of payload.
    let rate = of_flow(&centre, "goodput_mbps").unwrap();
    assert!(rate > 7000.0, "{rate}");
    assert!(of_link(&centre, "forward", "marks_queue_packets") > 100.0);
    assert_eq!(of_link(&centre, "forward", "drops_queue_packets"), 0.0);
    let queue = of_link(&centre, "forward", "queue_mean_packets");
    assert!((5.0..100.0).contains(&queue), "{queue}");
    let incast = &centre.flows[1].metrics;
    assert_eq!(incast.get("requests_unfinished"), Some(0.0), "{incast:?}");
}
