//! Every test, and which of them were skipped.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use forebay_skips::{Need, RECORD, skipped_without};

/// Runs every test, and says at the end, also after a failure, which were skipped and why. For root a
/// skip is a failure unless the machine itself lacks what the test needs.
pub fn test() -> Result<()> {
    let record = tempfile::NamedTempFile::new()?;
    let tested = run_all(record.path());
    let text = std::fs::read_to_string(record.path())?;
    print!("{}", list(&text));
    tested?;
    judge(&text, Need::Root.is_met())
}

fn run_all(record: &Path) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(crate::repository()).args(["test", "--workspace", "--locked"]);
    let status =
        cargo.env(RECORD, record).status().with_context(|| format!("cannot start {cargo:?}"))?;
    ensure!(status.success(), "tests failed");
    Ok(())
}

/// The skipped tests below their reasons.
fn list(record: &str) -> String {
    let mut text = String::new();
    for need in Need::ALL {
        let tests = skipped_without(need, record);
        if !tests.is_empty() {
            text += &format!("skipped {}: {}\n", tests.len(), need.reason());
            text.extend(tests.iter().map(|test| format!("    {test}\n")));
        }
    }
    if text.is_empty() { "no test was skipped\n".into() } else { text }
}

fn judge(record: &str, is_root: bool) -> Result<()> {
    for need in Need::ALL {
        let is_allowed = !is_root || need.may_be_missing_for_root();
        let tests = skipped_without(need, record);
        ensure!(
            is_allowed || tests.is_empty(),
            "root skips no test for this reason: {} ({} tests)",
            need.reason(),
            tests.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_skip_only_what_the_machine_cannot_do() {
        let row = |need: Need| format!("{}\tboxes a\n{0}\tebpf b\n", need.reason());
        let tun = row(Need::Tun);
        let both = tun.clone() + &row(Need::Chromium);
        assert!(
            judge(&tun, true).is_ok() && judge(&both, false).is_ok() && judge("", true).is_ok()
        );
        let error = judge(&both, true).unwrap_err().to_string();
        assert!(error.contains("no chromium") && error.contains("(2 tests)"), "{error}");
        assert!(judge(&row(Need::Root), true).is_err() && judge(&row(Need::Root), false).is_ok());
    }

    #[test]
    fn each_skipped_test_is_listed_below_its_reason() {
        let record = format!("{0}\tb x\n{0}\ta y\n{0}\tb x\n", Need::Tun.reason());
        assert_eq!(list(&record), "skipped 2: no /dev/net/tun\n    a y\n    b x\n");
        assert_eq!(list(""), "no test was skipped\n");
    }
}
