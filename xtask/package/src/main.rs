//! `cargo xtask package` and `cargo xtask reproducible` without the other chores, and the programs of `make small`.

use std::process::ExitCode;

use anyhow::anyhow;
use forebay_package::{Misuse, failed, package, reproducible, small};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((chore, arguments)) if chore == "package" => package(arguments),
        Some((chore, arguments)) if chore == "reproducible" => reproducible(arguments),
        Some((chore, arguments)) if chore == "small" => small(arguments),
        _ => Err(Misuse::of(anyhow!("allowed are package, reproducible and small"))),
    };
    done.map_or_else(failed, |()| ExitCode::SUCCESS)
}
