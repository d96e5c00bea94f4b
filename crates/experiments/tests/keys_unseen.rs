//! A key, or a file with one, in a wrong place: no message may show the key.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// As `forebay keygen` writes one.
const KEY: &str = "2a44173c83ae741e45df02874975c4be1452346349417aff58cf2b256bcc4caa";

/// A plan that names a trace and sizes.
const PLAN: &str = r#"
name = "a"
stop = "5s"
[bottleneck]
trace = "lte_poor"
rtt = "50ms"
qdisc = { kind = "fifo", limit = "100p" }
[[flow]]
name = "web"
cc = "cubic"
traffic = { kind = "requests", sizes = "caida", load = "1Mbit/s" }
"#;
/// Configuration that `check-config` accepts but for its key file.
const SENDBOX: &str = "[box]\nrole = \"sendbox\"\nlan = \"a\"\nwan = \"b\"\nlisten = \"10.1.1.2\"\n[[bundle]]\n\
                       name = \"b\"\nid = 1\npeer = \"10.1.2.2\"\nto = [\"10.1.2.0/24\"]\ncc = \"copa\"\n\
                       key_file = \"none\"\n";

fn forebay(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).args(words).output().unwrap()
}

/// Asserts that the command's output names the file so, and contains no part of the key.
fn hides(folder: &Path, words: &[&str], code: i32, named: &str) {
    let output = forebay(folder, words);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(said.contains(named), "{words:?}: {said}");
    for piece in KEY.as_bytes().windows(8) {
        let piece = std::str::from_utf8(piece).unwrap();
        assert!(!said.contains(piece), "{words:?}: {said}");
    }
}

#[test]
fn no_command_prints_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, text) in [("key", format!("{KEY}\n")), ("more", format!("# two\n{KEY}\n  {KEY}\n"))]
    {
        fs::write(folder.join(name), text).unwrap();
    }
    for file in ["key", "more"] {
        let named = if file == "key" { "key:1:65: " } else { "more:2:65: " };
        hides(folder, &["run", file], 2, named);
        for (plan, known) in [("trace.toml", "\"lte_poor\""), ("sizes.toml", "\"caida\"")] {
            let text = PLAN.replace(known, &format!("\"{file}\""));
            fs::write(folder.join(plan), text).unwrap();
            hides(folder, &["run", plan], 2, &named.replace("65: ", "1: "));
        }
        hides(folder, &["replay", file], 2, &format!("{file}:"));
        hides(folder, &["search", "copa", "--space", file], 2, named);
        if cfg!(feature = "host") {
            hides(folder, &["plan", file], 2, named);
            hides(folder, &["apply", "--dry-run", file], 2, named);
            hides(folder, &["check-config", "--json", file], 2, named);
            hides(folder, &["check-config", file], 2, named);
            hides(folder, &["sendbox", "--config", file], 2, named);
            hides(folder, &["receivebox", "--config", file], 2, named);
            hides(folder, &["apply", file], 2, named);
        }
    }
}

#[test]
#[cfg(feature = "host")]
fn no_command_prints_a_key_in_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (from, to) in [
        ("\"none\"", format!("\"{KEY}\"")),
        ("\"none\"", format!("\"{KEY}")),
        ("\"none\"", KEY.into()),
        ("key_file", KEY.into()),
        ("\"10.1.2.2\"", format!("\"{KEY}\"")),
        ("\"copa\"", format!("\"{KEY}\"")),
        ("\"copa\"", format!("{{ kind = \"copa\", delta = \"{KEY}\" }}")),
        ("[box]", format!("[{KEY}]")),
    ] {
        fs::write(folder.join("box.toml"), SENDBOX.replacen(from, &to, 1)).unwrap();
        hides(folder, &["check-config", "box.toml"], 2, "box.toml:");
        hides(folder, &["check-config", "--json", "box.toml"], 2, "box.toml:");
    }
}
