//! Checks whether the dependencies in `Cargo.lock` are allowed.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// The release that `deny.toml` is written for.
const VERSION: &str = "0.20.2";
/// Database of known vulnerabilities in crates.
const ADVISORIES: &str = "https://github.com/rustsec/advisory-db";

/// Judges licences, duplicates and origins of all dependencies by `deny.toml`, and known
/// vulnerabilities where their database can be reached.
pub fn deny() -> Result<()> {
    let is_here = cargo(&["deny", "--version"]).output().is_ok_and(|it| it.status.success());
    ensure!(
        is_here,
        "cargo-deny is missing: cargo install cargo-deny --locked --version {VERSION}"
    );
    check(&["licenses", "bans", "sources"])?;
    let mut reach = Command::new("git");
    reach.args(["ls-remote", ADVISORIES, "HEAD"]).stdout(Stdio::null());
    if !reach.status()?.success() {
        println!("advisories were not checked: cannot reach {ADVISORIES}");
        return Ok(());
    }
    check(&["advisories"])
}

fn check(what: &[&str]) -> Result<()> {
    let status = cargo(&["deny", "--locked", "check"]).args(what).status()?;
    ensure!(status.success(), "cargo deny failed: see its output above");
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(crate::repository()).args(arguments);
    command
}
