use super::experiment::{
    Agent, Balance, BoxEnd, FaultProgram, Platform, Report, Stack, Timing, Traffic, UpsetKind,
};
use super::*;
use forebay_core::bundle::uplink::{Member, Share};
use forebay_core::traffic::{Conduct, Receiving};
use forebay_core::units::{ByteCount, Rate, Ratio};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const PLAN: &str = r#"
name = "p"
stop = "10s"
[bottleneck]
rate = "96Mbit/s"
rtt = "50ms"
qdisc = { kind = "fifo", limit = "3bdp" }
[[flow]]
name = "bulk"
bundle = "a"
traffic = { kind = "greedy" }
[[bundle]]
name = "a"
cc = "copa"
qdisc = "sfq"
[[arm]]
name = "without"
set = { "bundle.a.enabled" = false }
[[arm]]
name = "with"
set = { bundle.a.qdisc.limit = "600p" }
"#;

pub(super) fn load(text: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let source = Source { file: "p.toml".into(), folder: None, text: text.into() };
    let sets: Vec<Override> =
        sets.iter().map(|set| Override::parse(set)).collect::<Result<_, _>>()?;
    Plan::from_source(source, &sets)
}

fn experiment(plan: &Plan, arm: usize) -> Experiment {
    plan.experiment(&plan.arms[arm], &plan.cells[0], 1).unwrap()
}

#[test]
fn arms_differ_in_what_they_set_and_in_nothing_else() {
    let plan = load(PLAN, &[]).unwrap();
    let [without, with] = [experiment(&plan, 0), experiment(&plan, 1)];
    assert!(without.bundles.is_empty());
    assert_eq!(with.bundles[0].qdisc.to_string(), "sfq(limit=600p)");
    assert_eq!(without.pairs, with.pairs);
    assert_eq!(with.forward.qdisc.to_string(), "fifo(limit=1200p)");
    let only = |one: &Experiment, other: &Experiment| -> Vec<String> {
        let other = &other.parameters;
        one.parameters
            .iter()
            .filter(|(k, v)| other.get(*k) != Some(v))
            .map(|(k, _)| k.clone())
            .collect()
    };
    assert_eq!(only(&without, &with), ["bundle.a.enabled", "bundle.a.qdisc"]);
    assert_ne!(without.sha256, with.sha256);
    assert_eq!(with.sha256, experiment(&plan, 1).sha256);
}

#[test]
fn another_window_makes_another_experiment_but_no_difference_between_arms() {
    let windowed = |to: &str| {
        let text = format!("{PLAN}\n[[window]]\nname = \"w\"\nfrom = \"1s\"\nto = \"{to}\"\n");
        experiment(&load(&text, &[]).unwrap(), 1)
    };
    let (short, long) = (windowed("2s"), windowed("3s"));
    assert_ne!(short.sha256, long.sha256);
    assert_eq!(short.sha256, windowed("2s").sha256);
    assert_eq!(short.parameters, long.parameters);
}

#[test]
fn an_override_replaces_what_the_plan_has_and_nothing_that_an_arm_or_a_cell_sets() {
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
    assert_eq!(with.forward.rate, Some(Rate::from_mbit_per_sec(48)));
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
fn of_an_axis_and_of_several_arms_it_is_said_that_they_keep_their_own() {
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
fn the_set_up_is_that_of_the_values_whatever_replaces_them() {
    let setup = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        Plan::load("bundler/main", &sets).unwrap().setup().unwrap()
    };
    let rest = "flow.web: traffic requests(connections=200, load=84Mbit/s, sizes=caida), cc cubic, \
                bundle a; stop 65s, warmup 5s";
    let queues = "qdisc fifo(limit=1200p) or sfq(limit=1200p, perturb=10s)";
    assert_eq!(setup(&[]), format!("bottleneck: rate 96Mbit/s, rtt 50ms, {queues}; {rest}"));
    let other = setup(&["bottleneck.rate=48Mbit/s", "bottleneck.rtt=100ms"]);
    assert_eq!(other, format!("bottleneck: rate 48Mbit/s, rtt 100ms, {queues}; {rest}"));
}

#[test]
fn a_set_up_has_every_value_of_its_cells_and_says_what_is_not_in_all() {
    let cells = "[[cell]]\nname = \"one\"\n[[cell]]\nname = \"two\"\n\
                 set = { flow.bulk.count = 2, bottleneck.change = [{ at = \"1s\", rate = \"1Mbit/s\" }] }\n";
    let grid = "[cells]\nbottleneck.rtt = [\"10ms\", \"20ms\", \"30ms\"]\n";
    let plan = load(&format!("{PLAN}{cells}{grid}"), &[]).unwrap();
    assert_eq!(
        plan.setup().unwrap(),
        "bottleneck: rate 96Mbit/s, rtt 10ms, 20ms or 30ms, qdisc fifo(limit=3bdp); \
         bottleneck.change.0 (not always): at 1s, rate 1Mbit/s; \
         flow.bulk: traffic greedy, count 1 or 2, bundle a; stop 10s"
    );
    let boxes = |plan: &Plan, arm: usize| setup::boxes(&[&experiment(plan, arm).parameters]);
    assert_eq!(boxes(&plan, 0), "");
    assert_eq!(boxes(&plan, 1), "bundle.a: cc copa, qdisc sfq(limit=600p)");
    let unnamed = PLAN.replace("qdisc = \"sfq\"\n", "").replace("600p", "150ms");
    let unnamed = unnamed.replace("set = { bundle.a.qdisc.limit = \"150ms\" }", "");
    let qdisc = schema::BUNDLE_QDISC;
    let expected = format!("bundle.a: cc copa, qdisc {qdisc}");
    assert_eq!(boxes(&load(&unnamed, &[]).unwrap(), 1), expected);
}

#[test]
fn a_rate_of_a_law_may_be_a_share_of_the_links() {
    let cc = |rate: &str| {
        let written = format!("cc = {{ kind = \"const\", rate = \"{rate}\" }}");
        load(&PLAN.replace("cc = \"copa\"", &written), &[])
            .map(|plan| experiment(&plan, 1).bundles[0].cc.to_string())
    };
    assert_eq!(cc("98%").unwrap(), "const(rate=94080kbit/s)");
    assert_eq!(cc("9Mbit/s").unwrap(), "const(rate=9Mbit/s)");
    assert!(cc("198%").is_err());
}

#[test]
fn a_grid_is_the_product_of_its_lists() {
    let text = format!(
        "{PLAN}\n[cells]\nbottleneck.rtt = [\"20ms\", \"50ms\"]\n\"flow.bulk.count\" = [1, 2]\n"
    );
    let plan = load(&text, &[]).unwrap();
    let names: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(
        names,
        ["rtt=20ms count=1", "rtt=20ms count=2", "rtt=50ms count=1", "rtt=50ms count=2"]
    );
    let last = plan.experiment(&plan.arms[0], &plan.cells[3], 1).unwrap();
    assert_eq!(last.rtt, Duration::from_millis(50));
    assert!(matches!(last.flows[0].traffic, Traffic::Greedy { flows: 2 }));
}

#[test]
fn a_fault_must_be_possible_after_the_one_before() {
    let fault = |at: &str, end: &str, action: &str| {
        format!(
            "[[fault]]\nat = \"{at}\"\nbundle = \"a\"\nend = \"{end}\"\naction = \"{action}\"\n"
        )
    };
    let of = |actions: &[&str]| {
        let faults = actions.iter().enumerate();
        let faults: String = faults.map(|(s, a)| fault(&format!("{s}s"), "sendbox", a)).collect();
        load(&format!("{PLAN}{faults}"), &[])
    };
    let possible =
        ["stop", "continue", "kill", "restart", "stop", "kill", "restart_other_key", "stop"];
    assert_eq!(experiment(&of(&possible).unwrap(), 1).faults.len(), possible.len());
    for (actions, expected) in [
        (&["restart"][..], "action = \"restart\": allowed is kill or stop while it runs"),
        (&["continue"], "action = \"continue\": allowed is kill or stop while it runs"),
        (&["kill", "stop"], "action = \"stop\": allowed is restart or restart_other_key"),
        (
            &["stop", "restart"],
            "action = \"restart\": allowed is kill or continue while it is stopped",
        ),
    ] {
        let error = of(actions).unwrap_err().to_string();
        assert!(error.contains(expected), "{actions:?}: {error}");
    }
}

#[test]
fn a_bundle_without_a_qdisc_has_that_of_the_schema() {
    let unnamed =
        PLAN.replace("qdisc = \"sfq\"\n", "").replace("bundle.a.qdisc.limit", "bundle.a.min_rate");
    let unnamed = unnamed.replace("600p", "2Mbit/s");
    let written = PLAN.replace("\"sfq\"", schema::BUNDLE_QDISC).replace("600p", "150ms");
    let [unnamed, written] = [unnamed, written]
        .map(|text| experiment(&load(&text, &[]).unwrap(), 1).bundles[0].qdisc.clone());
    assert_eq!(unnamed, written);
    assert_eq!(unnamed.kind, "fq_codel");
}

#[test]
fn what_is_wrong_is_named_with_file_line_key_value_and_what_is_allowed() {
    for (from, to, expected) in [
        ("\"96Mbit/s\"", "96", "p.toml:5: bottleneck.rate = 96: allowed is a rate such as"),
        ("rtt =", "rttt =", "p.toml:6: bottleneck.rttt = \"50ms\": allowed is one of rate, trace"),
        ("stop = \"10s\"", "", "p.toml:1: stop is missing: allowed is a duration"),
        ("\"3bdp\"", "\"0p\"", "p.toml:7: bottleneck.qdisc.limit = \"0p\": allowed is 1p"),
        ("\"3bdp\"", "\"11s\"", "p.toml:7: bottleneck.qdisc.limit = \"11s\": allowed is 1p"),
        (
            "[[flow]]",
            "[reverse]\nqdisc = { kind = \"fifo\", limit = \"150ms\" }\n[[flow]]",
            "p.toml:9: reverse.qdisc.limit = 150ms: allowed is packets or bytes",
        ),
        (
            "rtt = \"50ms\"",
            "rtt = \"50ms\"\npaths = 33",
            "p.toml:7: bottleneck.paths = 33: allowed is a whole number, 1 to 32",
        ),
        (
            "rtt = \"50ms\"",
            "rtt = \"50ms\"\nbalance = \"hash\"",
            "p.toml:7: bottleneck.balance = \"hash\": allowed is \"flow\" (each flow",
        ),
        (
            "rtt = \"50ms\"",
            "rtt = \"50ms\"\npath_spread = \"-1ms\"",
            "p.toml:7: bottleneck.path_spread = \"-1ms\": allowed is a duration",
        ),
        (
            "kind = \"fifo\"",
            "kind = \"fofi\"",
            "p.toml:7: bottleneck.qdisc.kind = fofi: allowed is one of fifo",
        ),
        (
            "bundle = \"a\"",
            "bundle = \"b\"",
            "p.toml:10: flow.bulk.bundle = \"b\": allowed is one of a",
        ),
        (
            "\"greedy\"",
            "\"gredy\"",
            "p.toml:11: flow.bulk.traffic = { kind = \"gredy\" }: allowed is a table",
        ),
        (
            "\"greedy\"",
            "\"cbr\", rate = \"0Mbit/s\"",
            "p.toml:11: flow.bulk.traffic.rate = \"0Mbit/s\": allowed is a rate",
        ),
        (
            "\"greedy\"",
            "\"on_off\", rate = \"1Mbit/s\", on = \"0s\", off = \"1s\"",
            "p.toml:11: flow.bulk.traffic.on = \"0s\": allowed is a duration above zero",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nmin_rate = \"99kbit/s\"",
            "p.toml:16: bundle.a.min_rate = \"99kbit/s\": allowed is a rate from 100kbit/s to",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nmax_rate = \"1Mbit/s\"",
            "p.toml:16: bundle.a.max_rate = \"1Mbit/s\": allowed is a rate of at least min_rate, 1200kbit/s",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nweight = 3",
            "p.toml:16: bundle.a.weight = 3: allowed is a whole number, 1 to 1000; with [uplink]",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\ngroup = \"x\"\n[uplink]\nrate = \"9Mbit/s\"",
            "p.toml:16: bundle.a.group = \"x\": allowed is the name of a group",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nreversed = true\nweight = 3\n[uplink]\nrate = \"9Mbit/s\"",
            "p.toml:17: bundle.a.weight = 3: allowed is a whole number, 1 to 1000; with [uplink], not",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nguarantee = \"2Mbit/s\"\n[uplink]\nrate = \"1Mbit/s\"",
            "p.toml:18: uplink.rate = \"1Mbit/s\": allowed is a rate of at least 2Mbit/s",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\n[uplink]\nrate = \"1Mbit/s\"\n[[group]]\nname = \"g\"\nparent = \"g\"",
            "p.toml:20: group.g.parent = \"g\": allowed is a group that is not within this one",
        ),
        (
            "[[arm]]\nname = \"without\"",
            "[uplink]\nrate = \"9Mbit/s\"\n[[fault]]\nat = \"1s\"\nbundle = \"a\"\nend = \"sendbox\"\n\
             action = \"kill\"\n[[arm]]\nname = \"without\"",
            "p.toml:21: fault.0.end = \"sendbox\": allowed is no sendbox of an [uplink]",
        ),
        (
            "[[arm]]\nname = \"without\"",
            "[[group]]\nname = \"g\"\n[[arm]]\nname = \"without\"",
            "p.toml:16: group = [{ name = \"g\" }]: allowed is nothing without [uplink]",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nunseen = \"100%\"",
            "p.toml:16: bundle.a.unseen = \"100%\": allowed is a share from 0 to 0.99",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nreversed = true\nunseen = 0.2",
            "p.toml:17: bundle.a.unseen = 0.2: allowed is a share from 0 to 0.99 such as \"20%\"; not",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nclock = \"5s +1ms, 4s +1ms\"",
            "p.toml:16: bundle.a.clock = \"5s +1ms, 4s +1ms\": allowed is changes in order of time",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nreport_jitter = \"2s\"",
            "p.toml:16: bundle.a.report_jitter = \"2s\": allowed is a duration from \"0s\" to \"1s\"",
        ),
        (
            "bundle = \"a\"",
            "bundle = \"a\"\nrtt = \"49ms\"",
            "p.toml:11: flow.bulk.rtt = \"49ms\": allowed is a duration not below the bottleneck's",
        ),
        (
            "[[flow]]",
            "[[link]]\nname = \"far\"\nrate = \"9Mbit/s\"\nrtt = \"1ms\"\nqdisc = \"fifo\"\n[[flow]]",
            "p.toml:9: link.far.name = \"far\": allowed is a pair of sites that has a flow or a bundle",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nttl = 1",
            "p.toml:12: flow.bulk.ttl = 1: allowed is 1 or 2; of cbr",
        ),
        (
            "\"greedy\"",
            "\"video\", rates = [\"8Mbit/s\", \"5Mbit/s\"]",
            "p.toml:11: flow.bulk.traffic.rates = [\"8Mbit/s\", \"5Mbit/s\"]: allowed is 1 to 32 rates",
        ),
        (
            "\"greedy\"",
            "\"video\", rates = [5]",
            "p.toml:11: flow.bulk.traffic.rates = [5]: allowed is a list of 1 to 32 rates such as",
        ),
        (
            "\"greedy\"",
            "\"video\", segment = \"40s\"",
            "p.toml:11: flow.bulk.traffic.buffer is missing: allowed is at least a segment",
        ),
        (
            "\"greedy\" }",
            "\"ping\" }\ninitial_window = 10",
            "p.toml:12: flow.bulk.initial_window = 10: allowed is a whole number, 1 to 10000; of greedy",
        ),
        (
            "[[flow]]",
            "[reverse]\nack_filter = true\n[[flow]]",
            "p.toml:9: reverse.ack_filter = true: allowed is true or false; true with a rate",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nreceiver = \"divided\"",
            "p.toml:12: flow.bulk.receiver.kind = divided: allowed is one of honest, dividing",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nreceiver = { kind = \"dividing\", pieces = 1 }",
            "p.toml:12: flow.bulk.receiver.pieces = 1: allowed is a whole number, 2 to 100",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nreceiver = \"dividing(\"",
            "p.toml:12: flow.bulk.receiver = \"dividing(\": allowed is \"honest\", \"dividing\"",
        ),
        (
            "\"greedy\"",
            "\"video\" }\nread_rate = \"1Mbit/s\"\nack_every = 1 #",
            "p.toml:12: flow.bulk.read_rate = \"1Mbit/s\": allowed is a rate such as",
        ),
        (
            "\"greedy\"",
            "\"ping\" }\nack_every = 2 #",
            "p.toml:12: flow.bulk.ack_every = 2: allowed is a whole number, 1 to 1000; of greedy",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nreceive_buffer = \"1KB\"",
            "p.toml:12: flow.bulk.receive_buffer = \"1KB\": allowed is a size such as \"256KB\"",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nack_delay = \"1s\"",
            "p.toml:12: flow.bulk.ack_delay = \"1s\": allowed is a duration from \"1ms\" to",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\ndscp = 64",
            "p.toml:12: flow.bulk.dscp = 64: allowed is a whole number, 0 to 63",
        ),
        (
            "[[arm]]\nname = \"without\"",
            "[[bundle]]\nname = \"a-bundle-whose-name-has-34-letters\"\n[[arm]]\nname = \"without\"",
            "p.toml:17: bundle.a-bundle-whose-name-has-34-letters.name = \"a-bundle",
        ),
        (
            "bundle.a.qdisc.limit",
            "bundle.b.qdisc.limit",
            "p.toml:21: bundle.b.qdisc.limit = \"600p\": allowed is one of bundle.{a}",
        ),
        (
            "bundle.a.qdisc.limit",
            "bundle.a.limit",
            "p.toml:21: bundle.a.limit = \"600p\": allowed is one of name",
        ),
        (
            "name = \"with\"",
            "name = \"without\"",
            "p.toml:20: arm.without.name = \"without\": allowed is a name that no other",
        ),
        (
            "name = \"p\"",
            "name = \"../p\"",
            "p.toml:2: name = \"../p\": allowed is 1 to 64 letters",
        ),
        ("stop =", "stack = \"bsd\"\nstop =", "p.toml:3: stack = \"bsd\": allowed is \"linux\""),
        (
            "name = \"bulk\"",
            "name = \"bulk\"\ncc = \"../cubic\"",
            "p.toml:10: flow.bulk.cc = \"../cubic\": allowed is a congestion control such as",
        ),
        ("\"50ms\"", "\"500h\"", "p.toml:6: bottleneck.rtt = \"500h\": allowed is a duration"),
        (
            "name = \"bulk\"",
            "name = \"bulk\"\nstart = \"10s\"",
            "p.toml:10: flow.bulk.start = \"10s\": allowed is start < stop",
        ),
        (
            "[[flow]]",
            "[[bottleneck.change]]\nat = \"10s\"\nrate = \"1Mbit/s\"\n[[flow]]",
            "p.toml:9: bottleneck.change.0.at = \"10s\": allowed is a time before the plan's stop",
        ),
        (
            "[[flow]]",
            "[[reverse.change]]\nat = \"2s\"\nrtt = \"80ms\"\n[[flow]]",
            "p.toml:10: reverse.change.0.rtt = \"80ms\": allowed is one of at, rate, loss",
        ),
    ] {
        assert!(PLAN.contains(from), "{from}");
        let error = load(&PLAN.replace(from, to), &[]).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{error}\nis not\n{expected}");
    }
}

#[test]
fn a_link_may_stop_in_a_change_and_not_from_the_start() {
    let stopped = "[[bottleneck.change]]\nat = \"1s\"\nrate = \"0bit/s\"\n[[flow]]";
    let plan = load(&PLAN.replacen("[[flow]]", stopped, 1), &[]).unwrap();
    let run = experiment(&plan, 0);
    assert_eq!(run.forward.changes[0].rate, Some(Rate::ZERO));
    let [before, after] = [0, 1].map(Duration::from_secs);
    assert_eq!(
        run.forward.capacity_bits(before, run.stop),
        run.forward.capacity_bits(before, after)
    );
    let error = load(&PLAN.replacen("96Mbit/s", "0bit/s", 1), &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("p.toml:5: bottleneck.rate = \"0bit/s\": allowed is a rate"),
        "{error}"
    );
}

#[test]
fn a_walk_starts_at_the_link_s_own_value_and_repeats_with_the_seed() {
    let walk = |of: &str, more: &str| {
        format!("[[bottleneck.walk]]\nof = \"{of}\"\nevery = \"100ms\"\n{more}\n[[flow]]")
    };
    let rate = walk("rate", "deviation = \"1Mbit/s\"\nmin = \"90Mbit/s\"\nmax = \"100Mbit/s\"");
    let plan = load(&PLAN.replacen("[[flow]]", &rate, 1), &[]).unwrap();
    let changes = |seed| {
        let run = plan.experiment(&plan.arms[0], &plan.cells[0], seed).unwrap();
        assert_eq!(run.link("reverse").changes.len(), 0);
        let rates = run.forward.changes.iter().map(|it| it.rate.unwrap().as_bits_per_sec());
        (run.forward.changes[0].at, rates.collect::<Vec<_>>())
    };
    let (at, rates) = changes(1);
    // To the end of the drain, 30 s after the plan's stop.
    assert_eq!((at.as_millis(), rates.len()), (100, 400));
    assert!(rates.iter().all(|rate| (90_000_000..=100_000_000).contains(rate)));
    assert!(rates[0] != 96_000_000 && rates[0].abs_diff(96_000_000) < 6_000_000);
    assert!(changes(1).1 == rates && changes(2).1 != rates);
    for (walk, expected) in [
        (walk("rtt", ""), "walk.0.of = \"rtt\": allowed is rate, delay or loss"),
        (walk("loss", "min = 0"), "walk.0.deviation is missing: allowed is a value of what walks"),
        (
            walk("delay", "deviation = 1\nmin = \"0s\"\nmax = \"1s\""),
            "walk.0.deviation = 1: allowed is a value of what walks",
        ),
        (
            walk("loss", "deviation = 0.1\nmin = 0.2\nmax = 0.1"),
            "walk.0.min = 0.2: allowed is at most max",
        ),
        (
            walk("loss", "deviation = 0.1\nmin = 0\nmax = 0.1\ncorrelation = 2"),
            "walk.0.correlation = 2: allowed is a number, -1 to 1",
        ),
        (rate.replace("100ms", "1us"), "walk.0.every = \"1us\": allowed is a duration, \"1ms\""),
        (format!("paths = 2\n{rate}"), "allowed is no walk of several paths"),
        (rate.replace("bottleneck", "reverse"), "reverse.walk.0.of = \"rate\": allowed is"),
    ] {
        let error = load(&PLAN.replacen("[[flow]]", &walk, 1), &[]).expect_err(&walk).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn links_in_a_row_are_like_the_first_but_for_the_propagation() {
    let sets = ["bundle.a.enabled=false", "bottleneck.hops=3", "flow.bulk.hop=2"];
    let run = experiment(&load(PLAN, &sets).unwrap(), 0);
    assert_eq!((run.hops.len(), run.flows[0].hop), (2, Some(1)));
    let last = run.link("hop-3");
    assert_eq!((last.rate, &last.qdisc), (run.forward.rate, &run.forward.qdisc));
    assert_eq!([run.forward.delay, last.delay], [Duration::from_millis(25), Duration::ZERO]);
    for (set, expected) in [
        ("bottleneck.hops=33", "bottleneck.hops = 33: allowed is a whole number, 1 to 32"),
        ("bottleneck.paths=2", "bottleneck.hops = 3: allowed is a whole number, 1 to 32; with one"),
        ("flow.bulk.hop=4", "flow.bulk.hop = 4: allowed is a whole number up to"),
        ("flow.bulk.reversed=true", "flow.bulk.hop = 2: allowed is a whole number up to"),
        ("bundle.a.enabled=true", "bottleneck.hops = 3: allowed is a whole number, 1 to 32"),
    ] {
        let error = load(PLAN, &[&sets[..], &[set]].concat()).expect_err(set).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn flows_name_their_platform_and_parameters_in_the_text_or_beside_it() {
    let flow = |cc: &str, sets: &[&str]| {
        let text = PLAN.replace("name = \"bulk\"", &format!("name = \"bulk\"\ncc = {cc}"));
        experiment(&load(&text, sets).unwrap(), 0).flows[0].clone()
    };
    for (cc, platform, name) in [
        ("\"bbr\"", None, "bbr"),
        ("\"reno\"", None, "reno"),
        ("\"cdg\"", None, "cdg"),
        ("\"cubic(hystart=off)\"", None, "cubic(hystart=off)"),
        ("\"kernel:some_other\"", Some(Platform::Kernel), "kernel:some_other"),
        ("\"agent:copa\"", Some(Platform::Agent), "agent:copa"),
        ("\"agent:reno\"", Some(Platform::Agent), "agent:newreno"),
        ("\"agent:cubic(hystart=off)\"", Some(Platform::Agent), "agent:cubic(hystart=off)"),
        ("{ kind = \"agent:vegas\", alpha = 3 }", Some(Platform::Agent), "agent:vegas(alpha=3)"),
        ("\"bpf:cubic\"", Some(Platform::Bpf), "bpf:cubic"),
    ] {
        let flow = flow(cc, &[]);
        assert_eq!((flow.platform, flow.cc_name().as_str()), (platform, name), "{cc}");
    }
    let set = flow("\"agent:cubic\"", &["flow.bulk.cc.hystart=classic"]);
    assert_eq!(set.cc_name(), "agent:cubic(hystart=classic)");
    assert_eq!(set.cc_at, "p.toml:10");
    assert_eq!(flow("\"cubic\"", &["flow.bulk.cc=kernel:bbr"]).cc_at, "--set");
}

#[test]
fn an_upset_needs_its_figure_and_happens_where_there_are_no_boxes_too() {
    let upset = |rest: &str| {
        let text = format!("{PLAN}\n[[upset]]\nat = \"1s\"\nbundle = \"a\"\n{rest}\n");
        load(&text, &["bundle.a.enabled=false"])
    };
    let happens = experiment(&upset("what = \"leave_bridge\"").unwrap(), 0).upsets;
    assert_eq!((happens.len(), happens[0].kind), (1, UpsetKind::LeaveBridge));
    for (rest, expected) in [
        ("what = \"explode\"", "upset.0.what = \"explode\": allowed is \"down\", \"up\""),
        ("what = \"mtu\"", "upset.0.mtu is missing"),
        ("what = \"mtu\"\nmtu = 100", "upset.0.mtu = 100: allowed is a whole number, 576 to 9000"),
        ("what = \"down\"\nshare = 0.5", "share = 0.5: allowed is no share with what = \"down\""),
        ("what = \"unseen\"\nshare = 2", "upset.0.share = 2: allowed is a share"),
    ] {
        let error = upset(rest).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let late = PLAN.to_string() + "\n[[upset]]\nat = \"999s\"\nbundle = \"a\"\nwhat = \"up\"\n";
    assert!(load(&late, &[]).unwrap_err().to_string().contains("a time within the run"));
}

#[test]
fn a_fault_of_the_agent_happens_where_a_flow_has_one() {
    let text = format!("{PLAN}\n[[fault]]\nat = \"1s\"\nend = \"agent\"\naction = \"kill\"\n");
    let faults = |sets: &[&str]| experiment(&load(&text, sets).unwrap(), 0).faults;
    assert!(faults(&[]).is_empty());
    let wrong = load(&text, &["fault.0.end=agnet"]).unwrap_err().to_string();
    assert!(wrong.contains("fault.0.end = \"agnet\": allowed is \"sendbox\""), "{wrong}");
    let hit = faults(&["flow.bulk.cc=agent:cubic"]);
    assert_eq!((hit.len(), &hit[0].program), (1, &FaultProgram::Agent));
    let error = load(&text.replace("end =", "bundle = \"a\"\nend ="), &[]).unwrap_err().to_string();
    assert!(error.contains("the agent has none"), "{error}");
}

#[test]
fn a_platform_or_algorithm_that_there_is_not_is_refused() {
    for (cc, expected) in [
        ("quic:cubic", "cc = \"quic:cubic\": allowed is a congestion control such as"),
        ("nonesuch", "cc = \"nonesuch\": allowed is a congestion control such as"),
        ("TcpCubic", "cc = \"TcpCubic\": allowed is a congestion control such as"),
        ("cubic(hystart=3)", "cc.hystart = 3: allowed is off"),
        ("agent:", "cc = \"agent:\": allowed is a congestion control such as"),
        ("agent:nonesuch", "cc.kind = nonesuch: allowed is one of basic_delay, bbr"),
        ("agent:cubic(hystart=3)", "cc.hystart = 3: allowed is off"),
        ("bpf:copa", "cc = \"bpf:copa\": allowed is \"bpf:reno\" or"),
        ("bpf:cubic(hystart=off)", "cc = \"bpf:cubic(hystart=off)\": allowed is \"bpf:reno\" or"),
        ("kernel:sixteen_letters_", "cc = \"kernel:sixteen_letters_\": allowed is a congestion"),
    ] {
        let text = PLAN.replace("name = \"bulk\"", &format!("name = \"bulk\"\ncc = \"{cc}\""));
        let error = load(&text, &[]).expect_err(cc).to_string();
        let expected = format!("p.toml:10: flow.bulk.{expected}");
        assert!(error.starts_with(&expected), "{error}\nis not\n{expected}");
    }
}

#[test]
fn each_arm_may_have_its_own_reports_of_the_agent() {
    let plan = load(PLAN, &[]).unwrap();
    let millis = Duration::from_millis;
    let agent = |plan: &Plan, arm| experiment(plan, arm).agent;
    assert_eq!(agent(&plan, 0), Agent { report: Report::Round, period: millis(10) });
    let set = "set = { bundle.a.qdisc.limit = \"600p\"";
    let text = PLAN.replace(set, &format!("{set}, agent.report = \"ack\", agent.period = \"1ms\""));
    let own = load(&text, &[]).unwrap();
    assert_eq!(agent(&own, 0), agent(&plan, 0));
    assert_eq!(agent(&own, 1), Agent { report: Report::Ack, period: millis(1) });
    let every = load(PLAN, &["agent.report=10ms", "agent.period=0ms"]).unwrap();
    let every = agent(&every, 0);
    assert_eq!(every, Agent { report: Report::Every(millis(10)), period: Duration::ZERO });
    assert_eq!(every.report.to_string(), "10000us");
    for (set, expected) in [
        ("agent.report=1s", "agent.report = \"1s\": allowed is \"round\""),
        ("agent.report=often", "agent.report = \"often\": allowed is \"round\""),
        ("agent.period=20ms", "agent.period = \"20ms\": allowed is a time"),
        ("agent.wake=true", "agent.wake = true: allowed is one of report, period"),
    ] {
        let error = load(PLAN, &[set]).expect_err(set).to_string();
        assert!(error.starts_with(&format!("--set: {expected}")), "{error}");
    }
}

#[test]
fn cells_with_a_name_have_all_of_the_grid_each() {
    let cells = "[[cell]]\nname = \"near\"\n[[cell]]\nname = \"far\"\n\
                 set = { bottleneck.rtt = \"100ms\" }\n";
    let plan = load(&format!("{PLAN}\n{cells}"), &[]).unwrap();
    let rtt = |cell: &Cell| plan.experiment(&plan.arms[0], cell, 1).unwrap().rtt.as_millis();
    let all: Vec<_> = plan.cells.iter().map(|cell| (cell.name.as_str(), rtt(cell))).collect();
    assert_eq!(all, [("near", 50), ("far", 100)]);
    let grid = "[cells]\nbottleneck.rate = [\"1Mbit/s\", \"2Mbit/s\"]\n";
    let plan = load(&format!("{PLAN}\n{cells}{grid}"), &[]).unwrap();
    let names: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(
        names,
        ["near rate=1Mbit/s", "near rate=2Mbit/s", "far rate=1Mbit/s", "far rate=2Mbit/s"]
    );
    let twice = format!("{PLAN}\n{}", cells.replace("far", "near"));
    assert!(load(&twice, &[]).unwrap_err().to_string().contains("a name that no other cell has"));
}

#[test]
fn an_attack_needs_a_box_and_a_time_within_the_run() {
    let attack = |lines: &str| format!("{PLAN}[attack]\n{lines}");
    let good = "at = \"5s\"\nbundle = \"a\"\ntarget = \"sendbox\"\n";
    let plan = load(&attack(good), &[]).unwrap();
    assert!(experiment(&plan, 0).attack.is_none(), "an arm without boxes");
    assert_eq!(experiment(&plan, 1).attack.unwrap().messages, 1_000_000);
    let off = load(&attack(good), &["attack.enabled=false"]).unwrap();
    assert!(experiment(&off, 1).attack.is_none());
    for (from, to, expected) in [
        ("5s", "0s", "attack.at = \"0s\": allowed is a time after the start"),
        ("5s", "10s", "attack.at = \"10s\": allowed is a time after the start"),
        ("\"a\"", "\"b\"", "attack.bundle = \"b\": allowed is one of a"),
        ("sendbox", "host", "attack.target = \"host\": allowed is"),
        ("target", "end", "attack.end = \"sendbox\": allowed is one of at, bundle, target"),
        ("at =", "messages = 0\nat =", "attack.messages = 0: allowed is a whole number"),
    ] {
        let error = load(&attack(&good.replace(from, to)), &[]).expect_err(to).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn errors_of_the_command_line_name_it() {
    let error = load(PLAN, &["bottleneck.rate=96"]).unwrap_err().to_string();
    assert!(error.starts_with("--set: bottleneck.rate = 96: allowed is a rate"), "{error}");
    let error = load(PLAN, &["bottleneck.rte=96Mbit/s"]).unwrap_err().to_string();
    assert!(
        error.starts_with("--set: bottleneck.rte = \"96Mbit/s\": allowed is one of"),
        "{error}"
    );
    assert!(error.ends_with("; nearest is rate"), "{error}");
    assert!(load(PLAN, &["bottleneck.rate"]).is_err());
}

#[test]
fn seeds_include_both_ends() {
    let seeds: Seeds = "1..3".parse().unwrap();
    assert_eq!(seeds.iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!("7".parse(), Ok(Seeds { first: 7, last: 7 }));
    assert_eq!(["1..3", "7"].map(|it| it.parse::<Seeds>().unwrap().to_string()), ["1..3", "7"]);
    for wrong in ["3..1", "", "a", "1..", "1..999999", "18446744073709551615"] {
        assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
    }
}

#[test]
fn every_built_in_plan_loads_with_all_its_arms_and_cells() {
    for name in library::runnable_plans() {
        let (_, text) = library::PLANS.iter().find(|(known, _)| *known == name).unwrap();
        let source = Source { file: name.into(), folder: None, text: text.to_string() };
        let plan = Plan::from_source(source, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(name.ends_with(&plan.name), "{name} is called {}", plan.name);
        assert!(!plan.description.is_empty() && plan.title != plan.name, "{name}");
    }
}

/// How prose would state a value: `96 mbit/s`, `50 ms`, `three bandwidth-delay`, `twenty cubic`, `copa`.
fn statements(key: &str, value: &str) -> Vec<String> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    if number.is_empty() {
        let is_algorithm =
            [".cc", "cc.kind", "qdisc", "qdisc.kind"].iter().any(|it| key.ends_with(it));
        return if is_algorithm { vec![value.to_lowercase()] } else { Vec::new() };
    }
    let unit = unit.to_lowercase();
    let nouns: &[&str] = match unit.as_str() {
        "" if number == "1" => &[],
        "" => &["flow", "cubic", "greedy", "hostile", "message", "other", "path"],
        "s" => &["s", "second", "minute"],
        "p" => &["packet"],
        "bdp" => &["bandwidth-delay"],
        unit => &[unit],
    };
    let words = [("2", "two"), ("3", "three"), ("4", "four"), ("8", "eight"), ("20", "twenty")];
    let word = words.iter().find(|(figure, _)| *figure == number).map(|(_, word)| *word);
    let numbers = [Some(number), word].into_iter().flatten();
    numbers.flat_map(|number| nouns.iter().map(move |noun| format!("{number} {noun}"))).collect()
}

#[test]
fn no_built_in_plan_states_in_prose_a_value_that_an_override_replaces() {
    // A value that an arm or a cell sets stays.
    let all = |plan: &Plan| -> Vec<String> {
        let parameters = resolve::experiment(plan.tree.clone(), &plan.source, &plan.algorithms);
        let parameters = parameters.unwrap().parameters;
        parameters.iter().flat_map(|(key, value)| statements(key, value)).collect()
    };
    let stated = |text: &str, all: &[String]| {
        let text = format!(" {}", text.to_lowercase());
        all.iter().find(|it| text.contains(&format!(" {it}"))).cloned()
    };
    for name in library::runnable_plans() {
        let plan = Plan::load(name, &[]).unwrap();
        let all = all(&plan);
        let arms = plan.arms.iter().map(|arm| &arm.summary);
        for text in [&plan.title, &plan.description].into_iter().chain(arms) {
            assert_eq!(stated(text, &all), None, "{name}: {text}");
        }
    }
    let all = all(&load(PLAN, &["flow.bulk.count=20"]).unwrap());
    for (text, value) in [
        ("over a 96 Mbit/s link", "96 mbit/s"),
        ("with 50 ms of round trip", "50 ms"),
        ("Twenty Cubic flows", "twenty cubic"),
        ("the rate by Copa", "copa"),
        ("a FIFO", "fifo"),
        ("three bandwidth-delay products", "three bandwidth-delay"),
        ("after 10 seconds", "10 s"),
    ] {
        assert_eq!(stated(text, &all).as_deref(), Some(value), "{text}");
    }
}

#[test]
fn the_boxes_of_an_arm_are_configured_alike_in_every_plan_and_cell() {
    let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
    for name in library::runnable_plans() {
        let plan = Plan::load(name, &[]).unwrap();
        for arm in &plan.arms {
            for cell in &plan.cells {
                let bundles = plan.experiment(arm, cell, 1).unwrap().bundles;
                // Who is told the rate of the link is told another one on each.
                for bundle in bundles.iter().filter(|bundle| bundle.cc.kind != "const") {
                    let numbers = format!(
                        "{} {} {:?} {:?}",
                        bundle.cc, bundle.qdisc, bundle.min_rate, bundle.max_rate
                    );
                    let first =
                        seen.entry(arm.name.clone()).or_insert((numbers.clone(), name.to_string()));
                    assert_eq!(first.0, numbers, "{}: {} and {name}", arm.name, first.1);
                }
            }
        }
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

#[test]
fn every_key_of_the_schema_can_be_read() {
    // The reader checks in debug builds that it asks for no key outside the schema; this plan
    // gives every key that is in it.
    let text = r#"
name = "all"
title = "All"
description = "d"
seeds = "1..2"
stop = "20s"
stack = "ns3"
ecn = "classic"
start_jitter = "1rtt"
warmup = "1s"
drain = "5s"
arms = ["one"]
cells = { bottleneck.rate = ["10Mbit/s"] }
cell = [{ name = "here", set = { drain = "6s" } }]
agent = { report = "5ms", period = "2ms" }
[bottleneck]
rate = "96Mbit/s"
rtt = "50ms"
loss = "1%"
message_loss = "50%"
reorder = 0.01
reorder_packets = 4
jitter = "5ms"
batch = "10ms"
qdisc = { kind = "fifo", limit = "100p" }
paths = 3
balance = "packet"
path_spread = "8ms"
hops = 1
change = [{ at = "2s", rate = "5Mbit/s" }, { at = "3s", rtt = "80ms" }, { at = "3s", loss = 0 }]
pulse = [{ of = "loss", every = "10s", to = 0 }]
clears_ecn = true
[reverse]
rate = "1Mbit/s"
ack_filter = true
loss = 0.1
message_loss = 0.1
reorder = 0.1
reorder_packets = 2
jitter = "1s"
qdisc = { kind = "fifo", limit = "50p" }
change = [{ at = "4s", rate = "2Mbit/s" }]
walk = [{ of = "loss", every = "1s", correlation = 0.5, deviation = 0.01, min = 0, max = 0.2 }]
[[flow]]
name = "bulk"
cc = "reno"
initial_window = 100
receiver = "optimistic(lead=3)"
read_rate = "7Mbit/s"
receive_buffer = "64KB"
ack_every = 8
ack_delay = "100ms"
count = 2
start = "1s"
stop = "19s"
bundle = "a"
reversed = true
traffic = { kind = "greedy" }
[[flow]]
pair = "other"
traffic = { kind = "requests", sizes = "10KB", load = "20%", connections = 3, sampling = "iid" }
[[flow]]
traffic = { kind = "video", segment = "2s", rates = ["1Mbit/s", "3Mbit/s"], buffer = "20s", startup = "6s" }
[[flow]]
count = 2
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "100B" }
[[flow]]
dscp = 46
ttl = 1
traffic = { kind = "poisson", rate = "1Mbit/s", packet = "100B" }
[[flow]]
traffic = { kind = "on_off", rate = "1Mbit/s", on = "1s", off = "2s", packet = "100B" }
[[flow]]
hop = 1
traffic = { kind = "ping" }
[[bundle]]
name = "a"
pair = "sites"
reversed = true
enabled = true
cc = "copa"
qdisc = "sfq"
min_rate = "1Mbit/s"
max_rate = "1Gbit/s"
unseen = 0
clock = "0s +1000ppm, 5s -30s"
report_jitter = "2ms"
timestamp_jitter = "200us"
[[bundle]]
name = "b"
pair = "sites"
cc = "copa"
weight = 3
guarantee = "1Mbit/s"
group = "gold"
[uplink]
rate = "90Mbit/s"
[[group]]
name = "gold"
parent = "all"
weight = 2
guarantee = "2Mbit/s"
max_rate = "80Mbit/s"
[[group]]
name = "all"
[[arm]]
name = "one"
summary = "s"
set = { stop = "19s" }
[[figure]]
kind = "plane"
metric = "goodput_mbps"
against = "links/forward/queue_mean_packets"
[[window]]
name = "late"
from = "5s"
to = "6s"
[[figure]]
kind = "bars"
metric = "links/forward/late.utilisation"
baseline = "one"
title = "t"
published = [{ label = "l", arm = "one", cell = "here", value = 1, source = "s" }]
[[figure]]
kind = "ribbon"
series = ["bundles/*/rate_mbps"]
facet = "arm"
[[fault]]
at = "7s"
bundle = "a"
end = "receivebox"
action = "kill"
[[upset]]
at = "7s"
bundle = "a"
site = "b"
what = "mtu"
mtu = 1400
[[upset]]
at = "8s"
bundle = "a"
what = "unseen"
share = "50%"
[[upset]]
at = "8s"
bundle = "a"
what = "forged"
rate = "0kbit/s"
[[upset]]
at = "8s"
bundle = "a"
what = "suspend"
[[upset]]
at = "9s"
bundle = "a"
what = "resume"
[attack]
at = "8s"
bundle = "a"
target = "receivebox"
messages = 5000
enabled = true
"#;
    let plan = load(text, &[]).unwrap();
    let all = experiment(&plan, 0);
    assert_eq!(all.pairs, ["sites", "other", "cross"]);
    assert_eq!(all.flows.len(), 7);
    let timings = all.flows.iter().filter_map(|flow| match flow.traffic {
        Traffic::Datagrams { timing, .. } => Some(timing),
        _ => None,
    });
    let (on, off) = (Duration::from_secs(1), Duration::from_secs(2));
    assert_eq!(
        timings.collect::<Vec<_>>(),
        [Timing::Even, Timing::Poisson, Timing::OnOff { on, off }]
    );
    let receiving = Receiving {
        conduct: Conduct::Optimistic(3),
        read_rate: Some(Rate::from_mbit_per_sec(7)),
        buffer: Some(ByteCount::new(64_000)),
        ack_every: Some(8),
        ack_delay: Some(Duration::from_millis(100)),
    };
    assert_eq!([all.flows[0].receiving, all.flows[1].receiving], [receiving, Receiving::default()]);
    assert_eq!(all.balance, Balance::Packet);
    let delays: Vec<u128> = all.paths.iter().map(|path| path.delay.as_millis()).collect();
    assert_eq!(delays, [0, 4, 8]);
    let last = all.link("path-3");
    assert_eq!(last.rate, Some(Rate::from_bits_per_sec(10_000_000 / 3)));
    assert_eq!(last.qdisc.to_string(), "fifo(limit=34p)");
    assert_eq!(last.changes[0].rate, Some(Rate::from_bits_per_sec(5_000_000 / 3)));
    let delays: Vec<_> = all.reverse.changes.iter().filter_map(|change| change.delay).collect();
    assert_eq!(delays, [Duration::from_millis(40)]);
    // One of the rate, one of the delay, and a step of the walk each second until the drain ends.
    assert_eq!(all.reverse.changes.len(), 2 + 25);
    assert_eq!(plan.figures.len(), 3);
    assert_eq!(all.faults.len(), 1);
    let upsets: Vec<_> = all.upsets.iter().map(|it| (it.at_b, it.pair.as_str(), it.kind)).collect();
    let [mtu, unseen, forged] =
        [UpsetKind::Mtu(1400), UpsetKind::Unseen(0.5), UpsetKind::Forged(Rate::ZERO)];
    let of_b = [unseen, forged, UpsetKind::Suspend, UpsetKind::Resume];
    let of_b = of_b.map(|kind| (false, "sites", kind));
    assert_eq!(upsets, [&[(true, "sites", mtu)][..], &of_b].concat());
    let uplink = all.uplink.as_ref().unwrap();
    assert_eq!(uplink.bundles, [1]);
    let gold = Share {
        weight: 2,
        guarantee: Some(Rate::from_mbit_per_sec(2)),
        max_rate: Some(Rate::from_mbit_per_sec(80)),
    };
    assert_eq!(uplink.shares.groups[0], Member { group: Some(1), share: gold });
    assert_eq!(
        (uplink.shares.bundles[0].group, uplink.shares.bundles[0].share.weight),
        (Some(0), 3)
    );
    let bundle = &all.bundles[0];
    assert_eq!(Ok(&bundle.clock), "0s +1000ppm, 5s -30s".parse().as_ref());
    let (ms, us) = (Duration::from_millis(2), Duration::from_micros(200));
    assert_eq!((bundle.report_jitter, bundle.timestamp_jitter), (ms, us));
    assert_eq!((all.forward.message_loss, all.reverse.message_loss), (0.5, 0.1));
    assert!(all.forward.clears_ecn && !all.reverse.clears_ecn && all.reverse.ack_filter);
    assert_eq!(
        all.attack.map(|attack| (attack.end, attack.messages)),
        Some((BoxEnd::Receivebox, 5000))
    );
    let given = |key: &str| text.contains(&format!("{key} = "));
    for section in schema::SECTIONS {
        for key in section.keys {
            let elsewhere = [
                "extends",
                "as_published",
                "aut",
                "trace",
                "path",
                "bottleneck",
                "reverse",
                "link",
                "flow",
                "bundle",
                "arm",
                "window",
                "figure",
                "fault",
                "upset",
                "attack",
                "uplink",
            ];
            assert!(given(key.name) || elsewhere.contains(&key.name), "{}", key.name);
            assert!(schema::listing().contains(key.allowed));
        }
    }
}

#[test]
fn times_may_count_in_round_trips_and_be_the_longest_of_several() {
    let stop = |text: &str, rtt: &str| {
        let sets = [&format!("stop={text}")[..], &format!("bottleneck.rtt={rtt}")];
        load(PLAN, &sets).map(|plan| experiment(&plan, 0).stop.as_millis())
    };
    for (text, rtt, millis) in [
        ("2s", "50ms", 2000),
        ("100rtt", "50ms", 5000),
        ("0.5 rtt", "50ms", 25),
        ("max(6s, 100rtt)", "50ms", 6000),
        ("max(6s, 100rtt)", "800ms", 80_000),
        ("max(1s,2s,3s)", "50ms", 3000),
    ] {
        assert_eq!(stop(text, rtt).unwrap(), millis, "{text}");
    }
    for text in ["100", "-1rtt", "max(6s", "max(6s, x)", "max()", "6s, 100rtt", "1e7rtt", "inf rtt"]
    {
        let error = stop(text, "50ms").expect_err(text).to_string();
        assert!(error.contains("allowed is a duration such as"), "{error}");
    }
    let other = load(PLAN, &["warmup=20rtt", "start_jitter=max(1ms, 2rtt)"]).unwrap();
    let other = experiment(&other, 0);
    assert_eq!((other.warmup.as_millis(), other.start_jitter.as_millis()), (1000, 100));
}

#[test]
fn pulses_change_a_value_and_change_it_back_until_the_end() {
    let plan = |pulse: &str| {
        let pulse = format!("pulse = [{{ {pulse} }}]\n[[flow]]");
        load(&PLAN.replacen("[[flow]]", &pulse, 1), &[])
    };
    let changes = |pulse: &str| {
        let run = experiment(&plan(pulse).unwrap(), 0);
        let both = [run.forward.changes, run.reverse.changes];
        both.map(|all| all.into_iter().map(|it| (it.at.as_secs(), it)).collect::<Vec<_>>())
    };
    let [there, back] = changes("of = \"rate\", every = \"3s\", to = \"9Mbit/s\"");
    let rates: Vec<_> = there.iter().map(|(at, it)| (*at, it.rate.unwrap().to_string())).collect();
    let rates: Vec<_> = rates.iter().map(|(at, rate)| (*at, rate.as_str())).collect();
    assert_eq!(rates, [(3, "9Mbit/s"), (6, "96Mbit/s"), (9, "9Mbit/s")]);
    assert!(back.is_empty());
    for way in changes("of = \"rtt\", every = \"4s\", to = \"80ms\"") {
        let delays = way.iter().map(|(at, it)| (*at, it.delay.unwrap().as_millis()));
        assert_eq!(delays.collect::<Vec<_>>(), [(4, 40), (8, 25)]);
    }
    let [there, _] = changes("of = \"loss\", every = \"5s\", to = 0.5");
    assert_eq!(there.iter().map(|(_, it)| it.loss).collect::<Vec<_>>(), [Ratio::new(0.5)]);
    for (pulse, expected) in [
        ("every = \"1s\", to = 1", "of is missing: allowed is rate, rtt or loss"),
        ("of = \"rate\", every = \"1s\", to = 5", "to = 5: allowed is a value of what changes"),
        ("of = \"loss\", every = \"1s\", to = 2", "to = 2: allowed is a value of what changes"),
        ("of = \"loss\", every = \"1s\"", "to is missing: allowed is a value of what changes"),
        (
            "of = \"loss\", every = \"1us\", to = 0",
            "every = \"1us\": allowed is a duration, \"1ms\"",
        ),
    ] {
        let error = plan(pulse).expect_err(pulse).to_string();
        let expected = format!("p.toml:8: bottleneck.pulse.0.{expected}");
        assert!(error.starts_with(&expected), "{error}\nis not\n{expected}");
    }
}

/// A plan of an algorithm under test, which another flow has, too, and a third one not.
const AUT: &str = r#"
name = "p"
aut = "vegas"
stop = "10s"
as_published = { stop = "15s", bottleneck.rate = "8Mbit/s" }
[bottleneck]
rate = "96Mbit/s"
rtt = "50ms"
qdisc = "fifo"
[[flow]]
name = "aut"
cc = "aut"
traffic = { kind = "greedy" }
[[flow]]
name = "other"
cc = "newreno"
traffic = { kind = "greedy" }
[[figure]]
kind = "bars"
metric = "goodput_mbps"
published = [{ arm = "vegas", value = 1, source = "s" }]
"#;

#[test]
fn each_algorithm_under_test_is_an_arm_of_its_name() {
    let of = |sets: &[&str]| {
        let plan = load(AUT, sets)?;
        let arms = plan.arms.iter().map(|arm| {
            let run = plan.experiment(arm, &plan.cells[0], 1).unwrap();
            let ccs = run.flows.iter().map(|flow| flow.cc_name()).collect::<Vec<_>>().join(" ");
            format!("{}: {ccs}", arm.name)
        });
        Ok::<_, PlanError>(arms.collect::<Vec<_>>())
    };
    assert_eq!(of(&[]).unwrap(), ["vegas: vegas newreno"]);
    assert_eq!(of(&["aut=bbr"]).unwrap(), ["bbr: bbr newreno"]);
    let several = r#"aut=["cubic(hystart=off)", "agent:copa", { kind = "vegas", alpha = 3 }]"#;
    assert_eq!(
        of(&[several]).unwrap(),
        [
            "cubic-hystart-off: cubic(hystart=off) newreno",
            "agent-copa: agent:copa newreno",
            "vegas-alpha-3: vegas(alpha=3) newreno",
        ]
    );
    for (set, expected) in [
        ("aut=vegsa", "--set: aut = \"vegsa\": allowed is the algorithm under test"),
        ("aut=3", "--set: aut = 3: allowed is the algorithm under test"),
        ("aut=[]", "--set: aut = []: allowed is the algorithm under test"),
        ("aut=[\"bbr\", \"bbr\"]", "--set: aut = \"bbr\": allowed is each algorithm once"),
        ("aut=cubic(hystart=3)", "--set: aut.hystart = 3: allowed is off"),
        (
            "flow.other.rtt=49ms",
            "--set: flow.other.rtt = \"49ms\": allowed is a duration not below",
        ),
    ] {
        let error = of(&[set]).expect_err(set).to_string();
        assert!(error.starts_with(expected), "{error}\nis not\n{expected}");
    }
    assert!(of(&["aut=vegsa"]).unwrap_err().to_string().ends_with("; nearest is vegas"));
    let arms = load(&format!("{AUT}[[arm]]\nname = \"a\"\n"), &[]).unwrap_err().to_string();
    assert!(arms.contains("allowed is no arms beside `aut`"), "{arms}");
    let without = load(&AUT.replace("aut = \"vegas\"", ""), &[]).unwrap_err().to_string();
    let expected =
        "p.toml:12: flow.aut.cc = \"aut\": allowed is an algorithm: the plan has no `aut`";
    assert!(without.starts_with(expected), "{without}");
}

#[test]
fn a_plan_is_run_as_published_with_what_it_says_of_that() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, AUT).unwrap();
    let file = file.to_str().unwrap();
    let facts = |plan: Plan| {
        let run = experiment(&plan, 0);
        (run.stop.as_secs(), run.forward.rate.unwrap().to_string(), plan.figures[0].published.len())
    };
    let faster = [Override::parse("bottleneck.rate=9Mbit/s").unwrap()];
    let other = [Override::parse("aut=bbr").unwrap()];
    let (fast, slow, set) = ("96Mbit/s".to_string(), "8Mbit/s".to_string(), "9Mbit/s".to_string());
    assert_eq!(facts(Plan::load(file, &[]).unwrap()), (10, fast, 0));
    assert_eq!(facts(Plan::load_as_published(file, &[]).unwrap()), (15, slow.clone(), 1));
    assert_eq!(facts(Plan::load_as_published(file, &faster).unwrap()), (15, set, 0));
    // A report draws it where the algorithm that it is of was run, by whichever call.
    assert_eq!(facts(Plan::load_as_published(file, &other).unwrap()), (15, slow, 1));
    let error = Plan::load_as_published("bundler/main", &[]).unwrap_err().to_string();
    assert!(error.starts_with("bundler/main:1: as_published is missing"), "{error}");
}

/// What ccperf's pages say of ten of its runs: plan, cell, rate in Mbit/s (of a trace none), round trip in ms, loss,
/// packets of the queue, and when flows start in ms.
type PublishedRun = (&'static str, &'static str, Option<f64>, u128, f64, u64, &'static [u128]);
#[rustfmt::skip]
const PUBLISHED_RUNS: [PublishedRun; 10] = [
    ("responsiveness_step", "rate-down", Some(64.0), 15, 0.0, 20, &[0]),
    ("steady_state_single_flow", "path=india_to_aws_india", Some(100.42), 54, 0.0, 173, &[0]),
    ("steady_state_synchronous_fairness", "flows-5-winds", Some(42.0), 800, 0.0074, 2800, &[0; 5]),
    ("steady_state_start_time_fairness", "start=1.87s", Some(32.0), 15, 0.0, 40, &[0, 1870]),
    ("deep_buffers", "limit=80p", Some(16.0), 15, 0.0, 80, &[0]),
    ("deep_buffers", "limit=20p", Some(16.0), 15, 0.0, 20, &[0]),
    ("shallow_buffers", "limit=10p", Some(16.0), 15, 0.0, 10, &[0]),
    ("loss_resilience", "loss=0.02", Some(16.0), 15, 0.02, 20, &[0]),
    ("loss_resilience", "loss=0.03", Some(16.0), 15, 0.03, 20, &[0]),
    ("replay_rate_trace", "path=nepal_to_aws_india", None, 56, 0.0477, 14, &[0]),
];

#[test]
fn the_runs_that_ccperf_published_are_among_those_as_published() {
    for (name, cell, rate, rtt, loss, packets, starts) in PUBLISHED_RUNS {
        let plan = Plan::load_as_published(&format!("ccperf/{name}"), &[]).unwrap();
        let cell = plan.cells.iter().find(|it| it.name == cell).unwrap();
        let run = plan.experiment(&plan.arms[0], cell, plan.seeds.first).unwrap();
        let found = run.forward.rate.map(|rate| rate.as_mbit_per_sec_f64());
        assert_eq!((found, run.rtt.as_millis(), run.forward.loss), (rate, rtt, loss), "{name}");
        assert_eq!(run.forward.qdisc.to_string(), format!("fifo(limit={packets}p)"), "{name}");
        let flows = run.flows.iter();
        let found = flows.flat_map(|it| (0..it.connections()).map(|number| it.start_of(number)));
        assert_eq!(found.map(|start| start.as_millis()).collect::<Vec<_>>(), starts, "{name}");
        let (stop, is_newreno) =
            (run.stop.as_secs(), run.flows.iter().all(|it| it.cc.kind == "newreno"));
        assert_eq!((stop, plan.seeds.first, is_newreno), (15, 42, true), "{name}");
        assert_eq!((run.stack, run.warmup), (Stack::Ns3, Duration::ZERO), "{name}");
    }
    let step = Plan::load_as_published("ccperf/responsiveness_step", &[]).unwrap();
    let change = experiment(&step, 0).forward.changes[0];
    assert_eq!((change.at.as_secs(), change.rate), (5, Some(Rate::from_mbit_per_sec(16))));
}

#[test]
fn the_benchmark_of_an_algorithm_has_all_experiments_and_fits_its_time() {
    let (mut cells, mut packets) = (0, 0.0);
    for name in library::benchmark() {
        let plan = Plan::load(name, &[]).unwrap();
        assert_eq!((plan.arms.len(), plan.seeds.to_string()), (1, "1..10".into()), "{name}");
        cells += plan.cells.len();
        for run in plan.experiments() {
            let run = run.unwrap();
            assert!(run.flows.iter().any(|flow| flow.name == "aut"), "{name}");
            assert!(!run.start_jitter.is_zero(), "{name}");
            let bits = run.links().filter_map(|(_, link)| match &link.trace {
                Some(trace) => Some(trace.mean_rate().bytes_in(run.stop).as_f64() * 8.0),
                None => link.capacity_bits(Duration::ZERO, run.stop),
            });
            packets += bits.sum::<f64>() / (1514.0 * 8.0);
        }
    }
    assert!(cells >= 79, "{cells} runs of one seed");
    assert!(packets < 13e6, "{packets} packets of one seed");
}

#[test]
fn plans_extend_one_another_and_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
    };
    let plan = |name: &str| {
        let path = folder.path().join(format!("{name}.toml"));
        Plan::load(path.to_str().unwrap(), &[])
    };
    put(
        "link",
        "bottleneck = { rate = \"10Mbit/s\", rtt = \"20ms\", qdisc = \"fifo\" }\nstop = \"3s\"\n",
    );
    put(
        "flow",
        "extends = \"link.toml\"\nstop = \"2s\"\nflow = [{ traffic = { kind = \"greedy\" } }]\n",
    );
    put("a", "extends = \"flow.toml\"\nname = \"a\"\n");
    let plan_a = plan("a").unwrap();
    let run = plan_a.experiment(&plan_a.arms[0], &plan_a.cells[0], 1).unwrap();
    assert_eq!((run.rtt.as_millis(), run.stop.as_secs(), run.flows.len()), (20, 2, 1));
    put("lost", "extends = \"lots.toml\"\nname = \"lost\"\n");
    let error = plan("lost").unwrap_err().to_string();
    let expected = "lost.toml:1: extends = \"lots.toml\": allowed is a readable plan (";
    assert!(error.contains(expected), "{error}");
    put("circle", "extends = \"circle.toml\"\nname = \"circle\"\n");
    let error = plan("circle").unwrap_err().to_string();
    assert!(error.contains("extends") && error.contains("at most 4 plans"), "{error}");
}
