//! Repository chores that need an `if`. The Makefile is the index; see `cargo xtask help`.

mod fresh;

use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "usage: cargo xtask CHORE

chores:
  test-fresh   runs both README commands in a bare Debian 12 root (root, debootstrap)";

fn main() -> ExitCode {
    let chore = std::env::args().nth(1);
    let done = match chore.as_deref() {
        Some("test-fresh") => fresh::test_fresh(),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").into()
}
