//! Values from the command line, and the plan's description with them.

use forebay_core::units::Rate;

use super::*;

#[test]
fn override_replaces_plan_but_not_arm_values() {
    let cells = "[[cell]]\nname = \"near\"\n[[cell]]\nname = \"far\"\n\
                 set = { bottleneck.rtt = \"100ms\" }\n";
    let arm = "[[arm]]\nname = \"fair\"\nset = { bottleneck.qdisc = \"sfq\" }\n";
    let sets = [
        "bottleneck.rate=48Mbit/s",
        "bottleneck.rtt=20ms",
        "bottleneck.qdisc.limit=9p",
        "bundle.a.qdisc=fifo",
        "bottleneck.loss=1%",
    ];
    let plan = load(&format!("{PLAN}{arm}{cells}"), &sets).unwrap();
    let with = experiment(&plan, 1);
    assert_eq!(with.forward.rate(), Some(Rate::from_mbit_per_sec(48)));
    assert_eq!(with.forward.qdisc.to_string(), "fifo(limit=9p)");
    assert_eq!(with.bundles[0].qdisc.to_string(), "fifo(limit=600p)");
    let fair = plan.experiment(&plan.arms[2], &plan.cells[1], 1).unwrap();
    assert_eq!((fair.forward.qdisc.to_string(), fair.rtt.as_millis()), ("sfq".into(), 100));
    assert_eq!(
        plan.replacements(),
        [
            "bottleneck.rate = 48Mbit/s in place of 96Mbit/s",
            "bottleneck.rtt = 20ms in place of 50ms; cell far keeps its own bottleneck.rtt",
            "bottleneck.qdisc.limit = 9p in place of 3bdp; arm fair keeps its own bottleneck.qdisc",
            "bundle.a.qdisc = fifo in place of sfq; arm with keeps its own bundle.a.qdisc.limit",
            "bottleneck.loss = 1% in place of its default",
        ]
    );
}

#[test]
fn override_lists_axes_and_arms_kept() {
    let text = PLAN.replace("set = { ", "set = { bottleneck.jitter = \"1ms\", ");
    let third =
        "[[arm]]\nname = \"third\"\n[cells]\nbottleneck.rate = [\"1Mbit/s\", \"2Mbit/s\"]\n";
    let sets = ["bottleneck.rate=48Mbit/s", "bottleneck.jitter=2ms"];
    let mut plan = load(&format!("{text}{third}"), &sets).unwrap();
    let rate =
        "bottleneck.rate = 48Mbit/s in place of 96Mbit/s; every cell keeps its own bottleneck.rate";
    let jitter = "bottleneck.jitter = 2ms in place of its default";
    let all = format!("{jitter}; arms without and with keep their own bottleneck.jitter");
    assert_eq!(plan.replacements(), [rate, &all]);
    plan.select_arms(&["third".into()]).unwrap();
    assert_eq!(plan.replacements(), [rate, jitter]);
}

#[test]
fn setup_text_follows_overrides() {
    let setup = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        Plan::load("bundler/main", &sets).unwrap().setup()
    };
    let rest = "flow.web: traffic requests(connections=200, load=84Mbit/s, sizes=caida), cc cubic, \
                bundle a; stop 65s, warmup 5s";
    let queues = "qdisc fifo(limit=1200p) or sfq(limit=1200p, perturb=10s)";
    assert_eq!(setup(&[]), format!("bottleneck: rate 96Mbit/s, rtt 50ms, {queues}; {rest}"));
    let other = setup(&["bottleneck.rate=48Mbit/s", "bottleneck.rtt=100ms"]);
    assert_eq!(other, format!("bottleneck: rate 48Mbit/s, rtt 100ms, {queues}; {rest}"));
}

#[test]
fn setup_text_lists_all_cell_values() {
    let cells = "[[cell]]\nname = \"one\"\n[[cell]]\nname = \"two\"\n\
                 set = { flow.bulk.count = 2, bottleneck.change = [{ at = \"1s\", rate = \"1Mbit/s\" }] }\n";
    let grid = "[cells]\nbottleneck.rtt = [\"10ms\", \"20ms\", \"30ms\"]\n";
    let plan = load(&format!("{PLAN}{cells}{grid}"), &[]).unwrap();
    assert_eq!(
        plan.setup(),
        "bottleneck: rate 96Mbit/s, rtt 10ms, 20ms or 30ms, qdisc fifo(limit=3bdp); \
         bottleneck.change.0 (not always): at 1s, rate 1Mbit/s; \
         flow.bulk: traffic greedy, count 1 or 2, bundle a; stop 10s"
    );
    let boxes = |plan: &Plan, arm: usize| setup::boxes(&[&experiment(plan, arm).parameters]);
    assert_eq!(boxes(&plan, 0), "");
    assert_eq!(boxes(&plan, 1), "bundle.a: cc copa, qdisc sfq(limit=600p)");
    let unnamed = PLAN.replace("qdisc = \"sfq\"\n", "").replace("600p", "150ms");
    let unnamed = unnamed.replace("set = { bundle.a.qdisc.limit = \"150ms\" }", "");
    let qdisc = schema::BUNDLE.key("qdisc").unwrap().default;
    let expected = format!("bundle.a: cc copa, qdisc {qdisc}");
    assert_eq!(boxes(&load(&unnamed, &[]).unwrap(), 1), expected);
}
