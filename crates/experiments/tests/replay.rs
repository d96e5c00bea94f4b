//! `forebay replay` of recordings that boxes made: printed, and tried in the simulator.
#![cfg(feature = "host")]

#[path = "../../app/tests/watching/played.rs"]
mod played;

use std::fs;

use played::Played;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn what_is_recorded_is_simulated() {
    let played = Played::start(env!("CARGO_BIN_EXE_forebay-experiments"));
    let recorded = played.record(&[]);
    assert!(recorded.status.success(), "{recorded:?}");
    let replayed = played.run(&["replay", "a.tar.gz", "--out", "tried"]);
    let told = text(&replayed.stdout);
    assert!(replayed.status.success(), "{replayed:?}");
    for part in [
        "simulated without boxes",
        "- rate and round trip of the bottleneck are the recorded ones",
        "- the hosts' TCP is Cubic",
    ] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    let plan = fs::read_to_string(played.path("tried/recorded.toml")).unwrap();
    assert!(plan.contains("trace = \"path.csv\"") && plan.contains("count   = 3"), "{plan}");
    let path = fs::read_to_string(played.path("tried/path.csv")).unwrap();
    assert!(path.starts_with("time_ms,rate_mbps,rtt_ms\n0,12,20\n"), "{path}");
    let unknown = played.run(&["replay", "a.tar.gz", "--bundle", "x"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("--bundle x: allowed is one of berlin"), "{unknown:?}");
    let converted = played.run(&["trace", "convert", "a.tar.gz", "--bundle", "berlin"]);
    assert!(converted.status.success(), "{converted:?}");
    let csv = text(&converted.stdout);
    let row = "time_ms,rate_mbps,rtt_ms,loss,measured\n0.000,12.000,20.000,0.000000,1\n";
    assert!(csv.starts_with(row) && csv.lines().count() > 30, "{csv}");
    assert!(text(&converted.stderr).contains("(100 %)"), "{converted:?}");
    fs::write(played.path("x"), [0x1f, 0x8b, 8, 0, 1, 2, 3]).unwrap();
    let refused = played.run(&["replay", "x"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("x: not an archive of `forebay record`"), "{refused:?}");
    assert!(refused.stdout.is_empty());
}
