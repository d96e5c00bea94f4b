//! Algorithms of flows and bundles, and the agent.

use std::time::Duration;

use forebay_scenario::{Agent, Platform, Report, Transport};

use super::*;

#[test]
fn algorithm_rate_may_be_share_of_link() {
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
fn flow_cc_accepts_text_and_table_forms() {
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
        ("\"bpf:vegas\"", Some(Platform::Bpf), "bpf:vegas"),
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
fn quic_has_quinns_algorithms_and_no_tcp_keys() {
    let flow = |keys: &str| PLAN.replace("name = \"bulk\"", &format!("name = \"bulk\"\n{keys}"));
    let quic = |keys: &str| load(&flow(&format!("transport = \"quic\"\n{keys}")), &[]);
    for cc in ["cubic", "bbr"] {
        let found = experiment(&quic(&format!("cc = \"{cc}\"")).unwrap(), 0).flows[0].clone();
        let at = "p.toml:10".into();
        assert_eq!((found.transport.clone(), found.cc_name()), (Transport::Quic { at }, cc.into()));
        assert!(!found.is_tcp());
    }
    let allowed = "\"cubic\" or \"bbr\" with transport = \"quic\"";
    for cc in ["reno", "kernel:bbr", "cubic(hystart=off)"] {
        let error = quic(&format!("cc = \"{cc}\"")).unwrap_err().to_string();
        let expected = format!("p.toml:11: flow.bulk.cc = \"{cc}\": allowed is {allowed}");
        assert!(error.contains(&expected), "{error}");
    }
    for key in ["initial_window = 4", "receive_buffer = \"10KB\"", "read_rate = \"1Mbit/s\""] {
        let error = quic(key).unwrap_err().to_string();
        assert!(error.starts_with(&format!("p.toml:11: flow.bulk.{key}: allowed is")), "{error}");
    }
    let ping = flow("transport = \"quic\"").replace("greedy", "ping");
    let error = load(&ping, &[]).unwrap_err().to_string();
    assert!(error.contains("flow.bulk.transport = \"quic\": allowed is no value"), "{error}");
}

#[test]
fn unknown_platform_or_algorithm_is_refused() {
    for (cc, expected) in [
        ("quic:cubic", "cc = \"quic:cubic\": allowed is a congestion control such as"),
        (
            "nonesuch",
            "cc = \"nonesuch\": allowed is a congestion control: \"kernel:NAME\", or one of",
        ),
        (
            "TcpCubic",
            "cc = \"TcpCubic\": allowed is a congestion control: \"kernel:NAME\", or one of",
        ),
        ("cubic(hystart=3)", "cc.hystart = 3: allowed is off"),
        ("agent:", "cc = \"agent:\": allowed is a congestion control such as"),
        ("agent:nonesuch", "cc.kind = nonesuch: allowed is one of basic_delay, bbr"),
        ("agent:cubic(hystart=3)", "cc.hystart = 3: allowed is off"),
        ("bpf:copa", "cc = \"bpf:copa\": allowed is \"bpf:reno\", \"bpf:cubic\""),
        ("bpf:cubic(hystart=off)", "cc = \"bpf:cubic(hystart=off)\": allowed is \"bpf:reno\","),
        ("kernel:sixteen_letters_", "cc = \"kernel:sixteen_letters_\": allowed is a congestion"),
    ] {
        let text = PLAN.replace("name = \"bulk\"", &format!("name = \"bulk\"\ncc = \"{cc}\""));
        let error = load(&text, &[]).expect_err(cc).to_string();
        let expected = format!("p.toml:10: flow.bulk.{expected}");
        assert!(error.starts_with(&expected), "{error}\nis not\n{expected}");
    }
}

#[test]
fn arms_may_override_agent_reports() {
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
        ("agent.wake=true", "agent.wake = true: no such key: allowed is one of report, period"),
    ] {
        let error = load(PLAN, &[set]).expect_err(set).to_string();
        assert!(error.starts_with(&format!("--set: {expected}")), "{error}");
    }
}
