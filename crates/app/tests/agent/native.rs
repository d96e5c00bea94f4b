//! `forebay native`: names that come with the program and go with it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use forebay_skips::{Need, skip_without};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{forebay, registered};

#[test]
fn native_algorithms_last_while_program_runs() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let names = ["fb_native_reno", "fb_native_cubic"];
    let mut program =
        forebay(Path::new("."), &["native", "--algorithm", "reno", "--algorithm", "cubic"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    for name in names {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with(&format!("{name} is registered")), "{line}");
        assert!(registered().contains(name));
    }
    kill(Pid::from_raw(program.id() as i32), Signal::SIGTERM).unwrap();
    assert!(program.wait().unwrap().success());
    assert!(names.iter().all(|name| !registered().contains(name)), "{}", registered());
}

#[test]
fn no_other_algorithm_is_native() {
    let output = forebay(Path::new("."), &["native", "--algorithm", "copa"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--algorithm copa: allowed is one of reno, cubic"), "{error}");
}
