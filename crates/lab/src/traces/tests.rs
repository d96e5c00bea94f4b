use forebay_core::units::Rate;

use super::sizes::{PACKET_BYTES, converted, is_cdf};
use super::*;

/// Output of `iperf3 --json` with three intervals, the first of them omitted.
const IPERF3: &str = r#"{ "start": {}, "intervals": [
    { "streams": [], "sum": { "start": 0, "end": 1, "bits_per_second": 7e6, "omitted": true } },
    { "streams": [], "sum": { "start": 0, "end": 1.5, "bits_per_second": 8000000.4 } },
    { "streams": [], "sum": { "start": 1.5, "end": 2, "bits_per_second": 4e6, "omitted": false } }
], "end": {} }"#;

fn path(text: &str) -> PathTrace {
    match read("t", text).unwrap().0 {
        LinkTrace::Path(path) => path,
        LinkTrace::Opportunities(trace) => panic!("{trace}"),
    }
}

#[test]
fn formats_are_told_apart() {
    let format = |text: &str| read("t", text).unwrap().1.format;
    assert_eq!(format("\u{feff}# c\n1\n2\n"), Format::Mahimahi);
    assert_eq!(format("\u{feff}time_ms,loss\n0,0\n1,0\n"), Format::Csv);
    assert_eq!(format(&format!("\u{feff}\n{IPERF3}")), Format::Iperf3);
    for (text, expected) in [
        ("seconds,mbps\n1,2\n", "t:1:1: \"seconds\": allowed is time_ms or time_s"),
        ("time_ms;loss\n", "separated by commas"),
        (
            "{\n  \"intervals\": 3\n}",
            "t:2:16: \"\\\"intervals\\\": 3\": allowed is the output of iperf3",
        ),
        ("{ \"intervals\": [] }", "at least one interval"),
        ("x\n", "a time in whole milliseconds"),
    ] {
        let error = read("t", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn iperf3_intervals_are_rates() {
    let trace = path(IPERF3);
    assert_eq!(trace.to_string(), "time_ms,rate_mbps\n0,8\n1500,4\n2000,\n");
    assert_eq!(trace.mean_rate(), Some(Rate::from_mbit_per_sec(7)));
    let endless = IPERF3.replace("\"end\": 2,", "\"end\": 1e20,");
    let error = read("t", &endless).unwrap_err().to_string();
    assert!(error.contains("an end of at most 4294967 s"), "{error}");
}

#[test]
fn odd_mahimahi_traces_are_named() {
    let warnings = |text: &str| read("t", text).unwrap().1.warnings;
    assert!(warnings("1\n").is_empty());
    assert!(warnings(Trace::BUILTIN[0].1).is_empty());
    let in_microseconds: String = (1..=100).map(|n| format!("{}\n", n * 1_000)).collect();
    let found = warnings(&in_microseconds);
    assert!(
        found[0]
            .starts_with("read as times in ms: mean rate 0.012 Mbit/s, longest gap 1s, over 100s")
    );
    // 240 Mbit/s in microseconds, for four seconds.
    let fast: String = (1..=80_000).map(|n| format!("{}\n", n * 50)).collect();
    assert!(warnings(&fast)[0].contains("mean rate 0.240 Mbit/s, longest gap 50ms"));
}

#[test]
fn what_was_understood_is_one_line() {
    let text = "time_s,rate_mbps,rtt_ms,loss\n0,10,40,0\n2,20,60,0.01\n3,,,\n";
    assert_eq!(
        read("a.csv", text).unwrap().1.to_string(),
        "a.csv: CSV, rows: 2, 3 s, mean rate 13.333 Mbit/s, one-way delay 20 to 30 ms, loss 0 to 0.01, \
         longest gap 2 s"
    );
}

#[test]
fn opportunities_become_mean_rates() {
    let trace = Trace::parse("t", "1\n1\n2\n15\n").unwrap();
    let found = binned(&trace, Duration::from_millis(10)).unwrap();
    // 3 frames of 1514 bytes in 10 ms, and one in the last 5 ms.
    assert_eq!(found.to_string(), "time_ms,rate_mbps\n0,3.6336\n10,2.4224\n15,\n");
}

#[test]
fn leo_delays_join_the_opportunities() {
    let delays = leo_delays("d", "24\n18\n", Duration::from_millis(10)).unwrap();
    let rates = binned(&Trace::parse("t", "10\n20\n30\n").unwrap(), Duration::from_millis(30));
    let both = merged(&rates.unwrap(), &delays).unwrap();
    let expected = "time_ms,rate_mbps,delay_ms\n0,1.2112,24\n10,1.2112,18\n20,1.2112,24\n30,,\n";
    assert_eq!(both.to_string(), expected);
    let error = leo_delays("d", "24\n\nx\n", Duration::from_millis(10)).unwrap_err();
    assert_eq!((error.line, error.column), (3, 1));
    assert!(leo_delays("d", "", Duration::from_millis(10)).is_err());
    assert!(leo_delays("d", "1\n2\n", Duration::from_millis(u32::MAX.into())).is_err());
}

#[test]
fn foreign_distributions_are_converted() {
    let ours = |text: &str| converted("s", text, PACKET_BYTES).unwrap();
    assert_eq!(ours("0 0\n10000 15\n30000 100\n"), "0 0\n10000 0.15\n30000 1\n");
    assert_eq!(ours("4000,0\n5971,0.25\n8722,1\n"), "4000 0\n5971 0.25\n8722 1\n");
    assert_eq!(ours("6 1 0.15\n13 1 1\n"), "8760 0\n8760 0.15\n18980 1\n");
    assert!(is_cdf("\u{feff}4000,0\n") && is_cdf("6 1 0\n") && !is_cdf("time_ms,loss\n"));
    assert!(!is_cdf("3\n"));
    for (text, line) in [("1 2 3 4\n", 1), ("0 0\n5 x\n", 2), ("3 0.5\n2 1\n", 2), ("0 0\n", 1)] {
        assert_eq!(converted("s", text, PACKET_BYTES).unwrap_err().line, line, "{text:?}");
    }
}
