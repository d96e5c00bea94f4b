//! The commands of `docs/operate/quickstart.md`, as a new operator pastes them.

use std::process::Command;

use crate::turns::alone;
use forebay_skips::{Need, skip_without};

/// Network namespaces that the page creates.
const PLACES: [&str; 5] = ["host-a", "box-a", "router", "box-b", "host-b"];

/// Removes all that the commands made, even if the page failed halfway.
struct Leftovers;

impl Drop for Leftovers {
    fn drop(&mut self) {
        let there = namespaces();
        for place in PLACES.into_iter().filter(|place| there.contains(&(*place).to_string())) {
            let end = format!("ip netns pids {place} | xargs -r kill -KILL; ip netns del {place}");
            let ended = Command::new("sh").args(["-c", &end]).status();
            assert!(ended.is_ok_and(|it| it.success()) || std::thread::panicking(), "{place}");
        }
    }
}

fn namespaces() -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_string).collect()
}

/// The mean of each `ping`, in milliseconds.
fn pings(told: &str) -> Vec<f64> {
    let times = told.lines().filter_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    times.map(|times| times.split('/').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
#[ignore = "two minutes of traffic, and programs that no other test needs: `make test-quickstart`"]
fn the_quickstart_can_be_followed_as_it_stands() {
    if skip_without(Need::Root) {
        return;
    }
    let _turn = alone();
    let there = namespaces();
    assert!(
        PLACES.iter().all(|it| !there.contains(&(*it).to_string())),
        "{there:?} are somebody's"
    );
    let page = include_str!("../../../../docs/operate/quickstart.md");
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // The first block installs the program.
    let commands: String = blocks.skip(1).collect();
    let home = tempfile::tempdir().unwrap();
    // The path by which the page calls the program.
    let program = home.path().join("forebay");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay-experiments"), program).unwrap();
    let path = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    let _leftovers = Leftovers;
    let mut shell = Command::new("timeout");
    shell.args(["300", "bash", "-c", &format!("exec 2>&1\n{commands}")]);
    let output = shell.env("HOME", home.path()).env("PATH", path).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    println!("{told}");
    assert!(output.status.success(), "{}", output.status);
    for wrong in ["command not found", "error", "Usage", "No such file", "Cannot"] {
        assert!(!told.contains(wrong), "{wrong}");
    }
    for right in
        ["berlin (id 1)", "FAIL", "they would leave at", "Packets of berlin leave at up to"]
    {
        assert!(told.contains(right), "{right}");
    }
    assert_eq!(told.matches(" receiver\n").count(), 4, "transfers that ended well");
    let [before, after] = pings(&told)[..] else { panic!("{:?}", pings(&told)) };
    assert!(after < before / 2.0, "pings took {before} ms, and {after} ms with the boxes");
    assert!(
        namespaces().iter().all(|it| !PLACES.contains(&it.as_str())),
        "the page takes them away"
    );
}
