//! Bundles, their shared uplink, and classes in their queues.

use super::*;

#[test]
fn bundle_holds_the_queue_and_measures_its_path() {
    let source = Source::plan("bundler/queue_shift").unwrap();
    let sets = ["stop=12s", "warmup=5s"].map(|set| crate::plan::Override::parse(set).unwrap());
    let plan = Plan::from_source(source, &sets).unwrap();
    let arm = plan.arms.iter().find(|arm| arm.name == "copa_sfq").unwrap();
    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
    let rows = rows_of(&experiment);
    let bundle = &rows.run.bundles[0];
    assert_eq!((rows.run.bundles.len(), bundle.name.as_str(), bundle.hand_backs), (1, "a", 0));
    assert!(bundle.queue.is_sorted_by_key(|sample| sample.at_ns) && bundle.queue.len() >= 1200);
    let evaluation = evaluate(&experiment, &rows).unwrap();
    assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
    let metric = |name: &str| evaluation.bundles[0].metrics.get(name).unwrap();
    assert!(metric("queue_share_at_sendbox") > 0.85);
    assert!(metric("rtt_within_1ms") > 0.8 && metric("boundaries_matched") > 0.95);
    let of_all = ["rtt_within_1ms_of_all", "boundaries_matched_of_all"].map(metric);
    assert!(of_all.iter().all(|share| (0.7..1.0).contains(share)), "{of_all:?}");
    assert_eq!(metric("epochs_without_truth"), 0.0);
}

#[test]
fn only_bundles_of_site_a_share_its_uplink() {
    let bundle = |name: &str, keys: &str| {
        let flow = format!("[[flow]]\nname = \"{name}\"\nbundle = \"{name}\"\ncount = 4\n");
        let reversed = if keys == "reversed = true" { "reversed = true\n" } else { "" };
        format!(
            "{flow}{reversed}traffic = {{ kind = \"greedy\" }}\n\
             [[bundle]]\nname = \"{name}\"\ncc = \"copa\"\n{keys}\n"
        )
    };
    let text = format!(
        "name = \"p\"\nstop = \"10s\"\n[bottleneck]\nrate = \"40Mbit/s\"\nrtt = \"20ms\"\n\
         qdisc = \"fifo\"\n[reverse]\nrate = \"20Mbit/s\"\n[uplink]\nrate = \"16Mbit/s\"\n{}{}{}",
        bundle("one", "weight = 3"),
        bundle("back", "reversed = true"),
        bundle("other", "max_rate = \"20Mbit/s\""),
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    assert_eq!(experiment.uplink.as_ref().unwrap().bundles, [0, 2]);
    let bundles = rows_of(&experiment).run.bundles;
    let mbit = |place: usize| bundles[place].counters.bytes_sent as f64 * 8e-6 / 10.0;
    let seen = [mbit(0), mbit(1), mbit(2)];
    // In the first round trips there is less.
    assert!((11.0..12.5).contains(&seen[0]) && (3.7..4.2).contains(&seen[2]), "{seen:?}");
    assert!(seen[1] > 16.0, "{seen:?}");
}

/// A sendbox that serves DSCP 46 first: 6 Mbit/s of datagrams with `dscp`, competing with four greedy flows.
fn priority(dscp: u8) -> crate::metrics::Evaluation {
    let text = format!(
        r#"
name = "priority"
stop = "6s"
bottleneck = {{ rate = "20Mbit/s", rtt = "40ms", qdisc = {{ kind = "fifo", limit = "200p" }} }}
[[bundle]]
name = "a"
cc = {{ kind = "const", rate = "90%" }}
[bundle.qdisc]
kind = "prio"
bands = [{{ kind = "fifo", limit = "100p" }}, {{ kind = "fifo", limit = "100p" }}]
classes = [{{ dscp = 46, class = 0 }}]
[[flow]]
name = "voice"
bundle = "a"
dscp = {dscp}
traffic = {{ kind = "cbr", rate = "6Mbit/s" }}
[[flow]]
name = "bulk"
bundle = "a"
count = 4
traffic = {{ kind = "greedy" }}
"#
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    evaluate(&experiment, &rows_of(&experiment)).unwrap()
}

#[test]
fn strict_priority_drops_nothing_of_the_first_class() {
    let of_flow = |it: &crate::metrics::Evaluation, flow: usize, name: &str| {
        it.flows[flow].metrics.get(name).unwrap()
    };
    let (first, among_others) = (priority(46), priority(0));
    assert_eq!(first.flows[0].metrics.get("datagrams_lost"), None);
    assert!(of_flow(&among_others, 0, "datagrams_lost") > 50.0);
    // The greedy flows have the rest of 18 Mbit/s.
    let bulk = of_flow(&first, 1, "goodput_mbps");
    assert!((9.0..12.0).contains(&bulk), "{bulk}");
}

#[test]
fn rules_on_absent_header_fields_are_refused() {
    let qdisc = "{ kind = \"prio\", bands = [\"fifo\"], classes = [{ port = 80, class = 0 }] }";
    let experiment = experiment(&[&format!("bottleneck.qdisc={qdisc}")]);
    let error = Sim::default().check(&experiment).unwrap_err().to_string();
    assert!(error.starts_with("p: bottleneck.qdisc.classes[0].port = 80: allowed is"), "{error}");
}
