//! Plans that are refused.

use super::*;

#[test]
fn errors_name_file_line_key_value_and_allowed() {
    for (from, to, expected) in [
        ("\"96Mbit/s\"", "96", "p.toml:5: bottleneck.rate = 96: allowed is a rate such as"),
        (
            "rtt =",
            "rttt =",
            "p.toml:6: bottleneck.rttt = \"50ms\": no such key: allowed is one of rate, trace",
        ),
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
            "p.toml:16: bundle.a.min_rate = \"99kbit/s\": allowed is a rate such as \"96Mbit/s\", 100kbit/s to",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nmin_rate = \"2Mbit/s\"\nmax_rate = \"1Mbit/s\"",
            "p.toml:17: bundle.a.max_rate = \"1Mbit/s\": allowed is a rate of at least min_rate, 2Mbit/s",
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
            "p.toml:16: group = [[group]]: allowed is nothing without [uplink]",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nunseen = \"100%\"",
            "p.toml:16: bundle.a.unseen = \"100%\": allowed is a share from 0 to 0.99",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nreversed = true\nunseen = 0.2",
            "p.toml:17: bundle.a.unseen = 0.2: allowed is a share from 0 to 0.99 such as \"1%\" or 0.01; not",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nclock = \"5s +1ms, 4s +1ms\"",
            "p.toml:16: bundle.a.clock = \"5s +1ms, 4s +1ms\": allowed is changes in order of time",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nforward = \"switch\"",
            "p.toml:16: bundle.a.forward = \"switch\": allowed is \"bridge\" or \"route\"",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nreversed = true\nforward = \"route\"",
            "p.toml:17: bundle.a.forward = \"route\": allowed is \"bridge\" or \"route\", the same",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\ndatapath = \"fast\"",
            "p.toml:16: bundle.a.datapath = \"fast\": allowed is \"user\" or \"kernel\"",
        ),
        (
            "qdisc = \"sfq\"",
            "qdisc = \"sfq\"\nreport_jitter = \"2s\"",
            "p.toml:16: bundle.a.report_jitter = \"2s\": allowed is a duration such as \"50ms\", 0s to 1s",
        ),
        (
            "bundle = \"a\"",
            "bundle = \"a\"\nrtt = \"49ms\"",
            "p.toml:11: flow.bulk.rtt = \"49ms\": allowed is a duration such as \"50ms\", 0s to 86400s, not below",
        ),
        (
            "[[flow]]",
            "[[link]]\nname = \"far\"\nrate = \"9Mbit/s\"\nrtt = \"1ms\"\nqdisc = \"fifo\"\n[[flow]]",
            "p.toml:9: link.far.name = \"far\": allowed is a pair of sites that has a flow or a bundle",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nttl = 1",
            "p.toml:12: flow.bulk.ttl = 1: allowed is a whole number, 1 to 2; for cbr",
        ),
        (
            "\"greedy\"",
            "\"video\", rates = [\"8Mbit/s\", \"5Mbit/s\"]",
            "p.toml:11: flow.bulk.traffic.rates = [\"8Mbit/s\", \"5Mbit/s\"]: allowed is 1 to 32 rates",
        ),
        (
            "\"greedy\"",
            "\"video\", rates = [5]",
            "p.toml:11: flow.bulk.traffic.rates = [5]: allowed is a list: 1 to 32 rates such as",
        ),
        (
            "\"greedy\"",
            "\"video\", segment = \"40s\"",
            "p.toml:11: flow.bulk.traffic.buffer is missing: allowed is at least a segment",
        ),
        (
            "\"greedy\"",
            "\"media\", min_rate = \"2Mbit/s\"",
            "p.toml:11: flow.bulk.traffic.max_rate is missing: allowed is at least min_rate",
        ),
        (
            "\"greedy\" }",
            "\"ping\" }\ninitial_window = 10",
            "p.toml:12: flow.bulk.initial_window = 10: allowed is a whole number, 1 to 10000; for",
        ),
        (
            "[[flow]]",
            "[reverse]\nack_filter = true\n[[flow]]",
            "p.toml:9: reverse.ack_filter = true: allowed is true or false; true only with a rate",
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
            "p.toml:12: flow.bulk.ack_every = 2: allowed is a whole number, 1 to 1000; for greedy",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nreceive_buffer = \"1KB\"",
            "p.toml:12: flow.bulk.receive_buffer = \"1KB\": allowed is a size such as \"256KB\"",
        ),
        (
            "\"greedy\" }",
            "\"greedy\" }\nack_delay = \"1s\"",
            "p.toml:12: flow.bulk.ack_delay = \"1s\": allowed is a duration such as \"50ms\", 1ms to 500ms",
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
            "p.toml:21: bundle.a.limit = \"600p\": no such key: allowed is one of name",
        ),
        (
            "name = \"with\"",
            "name = \"without\"",
            "p.toml:20: arm.without.name = \"without\": allowed is a name that no other",
        ),
        (
            "name = \"p\"",
            "name = \"../p\"",
            "p.toml:2: name = \"../p\": allowed is a text of 1 to 64 letters",
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
            "p.toml:10: reverse.change.0.rtt = \"80ms\": no such key: allowed is one of at, rate, loss",
        ),
    ] {
        assert!(PLAN.contains(from), "{from}");
        let error = load(&PLAN.replace(from, to), &[]).expect_err(to).to_string();
        let is_told = error.lines().any(|line| line.starts_with(expected));
        assert!(is_told, "{error}\nhas not\n{expected}");
    }
}

#[test]
fn all_errors_are_reported_by_line() {
    let text = PLAN
        .replace("rtt = \"50ms\"", "rtt = 50\nloss = \"2\"")
        .replace("stop = \"10s\"", "stop = \"10\"\nsteady = true")
        .replace("\"greedy\" }", "\"greedy\", rate = 1 }\nttl = 3\nbundel = \"b\"")
        .replace("cc = \"copa\"", "cc = \"cope\"\nmin_rate = \"2Mbps\"")
        .replace("limit = \"600p\"", "limit = \"0p\"");
    let error = load(&text, &["bottleneck.jitter=2s"]).unwrap_err();
    let told = error.to_string();
    let lines: Vec<&str> = told.lines().collect();
    for (line, expected) in [
        "p.toml: 11 errors",
        "p.toml:3: stop = \"10\": allowed is a duration such as",
        "p.toml:4: steady = true: no such key: allowed is one of name, title",
        "p.toml:7: bottleneck.rtt = 50: allowed is a duration such as \"50ms\", 0s to 86400s",
        "p.toml:8: bottleneck.loss = \"2\": allowed is a share from 0 to 1",
        "p.toml:13: flow.bulk.traffic.rate = 1: no such key: allowed is one of kind",
        "p.toml:14: flow.bulk.ttl = 3: allowed is a whole number, 1 to 2",
        "p.toml:15: flow.bulk.bundel = \"b\": no such key: allowed is one of name",
        "p.toml:18: bundle.a.cc.kind = cope: allowed is one of",
        "p.toml:19: bundle.a.min_rate = \"2Mbps\": allowed is a rate such as",
        "p.toml:26: bundle.a.qdisc.limit = \"0p\": allowed is 1p",
        "--set: bottleneck.jitter = \"2s\": allowed is a duration such as \"50ms\", 0s to 1s",
    ]
    .iter()
    .enumerate()
    {
        let place = if line == 0 {
            told.contains(expected)
        } else {
            lines.iter().any(|it| it.starts_with(expected))
        };
        assert!(place, "{expected:?} is missing in\n{told}");
    }
    let of_file = error.problems.iter().filter(|it| it.file == "p.toml");
    assert!(of_file.map(|it| it.line).is_sorted(), "{told}");
}

#[test]
fn at_most_fifty_errors_are_reported() {
    let flow = "[[flow]]\nname = \"x y\"\ntraffic = { kind = \"greedy\" }\n";
    let error = load(&format!("{PLAN}{}", flow.repeat(80)), &[]).unwrap_err();
    assert_eq!(error.problems.len(), forebay_reader::PROBLEMS_MAX);
}

#[test]
fn copies_of_a_bundle_repeat_no_error() {
    let text = PLAN.replace("cc = \"copa\"", "count = 64\ncc = \"cope\"");
    let error = load(&text, &[]).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn errors_of_the_command_line_name_it() {
    let error = load(PLAN, &["bottleneck.rate=96"]).unwrap_err().to_string();
    assert!(error.starts_with("--set: bottleneck.rate = 96: allowed is a rate"), "{error}");
    let error = load(PLAN, &["bottleneck.rte=96Mbit/s"]).unwrap_err().to_string();
    assert!(
        error.starts_with("--set: bottleneck.rte = \"96Mbit/s\": no such key: allowed is one of"),
        "{error}"
    );
    assert!(error.ends_with("; nearest is rate"), "{error}");
    assert!(load(PLAN, &["bottleneck.rate"]).is_err());
}
