//! Repository chores that need an `if`. The Makefile is the index; see `cargo xtask help`.

mod algorithms;
mod compare;
mod constants;
mod deny;
mod docs;
mod evaluate;
mod figures;
mod fresh;
mod instructions;
mod kernels;
mod ns3;
mod reference;
mod same_rows;
mod test;

use std::process::{Command, ExitCode};

use anyhow::anyhow;
use forebay_package::{Misuse, failed, package, repository, reproducible, run};

/// Printed for `--help`, and after an error in the arguments.
const HELP: &str = "usage: cargo xtask CHORE

chores:
  bench-ns3 [--install] [--runs N] [SCENARIO..]   runs the scenarios N times (5) in ns-3 and in the
               simulator, prints the ratio of their speeds, and judges bounds on speed and memory
               (libns3-dev; 40 minutes)
  bpf-algorithms [--check]   builds the BPF objects of core's algorithms in crates/ebpf/bpf/algorithms;
               --check fails if they differ from their sources (rustup component add llvm-tools,
               clang)
  compare-check   checks `forebay compare`: it must report no change for equal seeds and commits, must
               find a constant of Cubic that is 10 % off, and may report a change in at most 5 of 100
               comparisons of equal runs (4 minutes)
  constants [--list | --json] [--at-most N]   counts the numbers of a bundle's control loop: fields of
               its table of tuning, and constants and bare numbers by file. Numbers of formats count
               apart. --list prints each number; --at-most fails if there are more than N
  deny         checks licences, duplicates and origins of all dependencies by deny.toml, and known
               vulnerabilities if their database can be reached (cargo-deny)
  docs         builds the pages of docs/ as a site in target/site and checks each link; it installs
               mdBook into target/tools
  evaluate [--minutes N] [--list] [PART..]   runs the plans of docs/claims.toml on their back ends,
               writes verdicts on all claims to docs/evidence/results.csv, and draws the pictures
               (root, hours; `make build` first). PART is a plan or a folder of plans (bundler/main,
               main, dynamics), a plan on a back end (main@sim), or a variant of a plan in
               docs/claims.toml (main@emu+kernel). Without a PART, all parts run. After N minutes it
               stops with exit code 3; another call continues. --list prints the remaining work and
               its duration
  figures [--measure] [NAME..]   draws the pictures in docs/pictures from the rows in docs/pictures/data,
               and prints the result of each, which is its alt text in the page that shows it. NAME is a
               picture (queue, world); default: all. --measure first makes the rows with the simulator
               (`make build` first; 3 minutes)
  instructions [--update]   counts the simulator's instructions per packet, and fails if they are more
               than 5 % above the record; --update writes the record (valgrind, 2 minutes)
  ns3-runs [--install] [--jobs N] [--file FILE] [--also DIR] [NAME..]   repeats in ns-3 the runs of FILE
               (traces/ns3/more_runs.json) whose names contain a NAME (default: all), N at a time, and
               writes their figures to FILE. --also adds the ns-3 whose ns3-core.pc is in DIR
               (libns3-dev; 10 minutes)
  ns3-runs --seed S [--count N] [--jobs N] [--file FILE] [--also DIR]   draws N runs (80) from the space of
               xtask/src/ns3/space.rs, makes in ns-3 the runs that FILE lacks (traces/ns3/drawn_S.json),
               and compares them with the simulator, now and at the first look (libns3-dev; 20 minutes)
  package [--static | --rpm | --image] [--profile NAME] [--version VERSION]   builds a .deb of the commit in
               target/package, an archive or .rpm with a program that needs no shared libraries, or an
               OCI image with Debian (`make package`, `make rpm` and `make image` install the needed tools)
  reference    writes docs/reference/README.md and python/forebay/keys.py from the registries
  reproducible [--static] [--profile NAME]   builds a package twice, each time in a clean clone of the
               commit, and fails if a byte differs
  same-rows OLD NEW [--seconds N] [PLAN..]   runs each simulated plan (default: all) once with both
               programs, cut to N seconds (10) or the first doubling of N that the plan allows. It prints
               the first row that differs in each table, and keeps runs for later calls (15 minutes)
  test [--beside COMMAND]   runs every test, and COMMAND in parallel with tests without traffic, then
               lists skipped tests with their reasons. As root it fails if a test was skipped that
               this machine could run
  test-fresh   runs both README commands in a bare Debian 12 root (root, debootstrap)
  test-kernels [--profile NAME] [--kvm] [--kernel NAME]..   loads and runs the BPF programs on kernels of
               Debian 12 (6.1 and 6.12) in qemu, emulated unless --kvm is given, and tests the package
               there as test-package does (root; `make test-kernels` installs qemu)
  test-package [--profile NAME] [--kvm] [--kernel NAME]..   runs lintian on a .deb. In a Debian 12 under
               systemd, it installs, starts, kills, upgrades, rolls back, removes and purges the package
               under traffic. The kernel `here` runs in a container, at this machine's speed
               (root; `make test-package` installs the needed tools)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_help = |argument: &String| ["help", "--help", "-h"].contains(&argument.as_str());
    if arguments.iter().any(is_help) {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let done = match arguments.first().map(String::as_str) {
        Some("bench-ns3") => ns3::bench(&arguments[1..]),
        // Runs and intervals take a second in optimised code, and a minute otherwise.
        Some(chore @ ("compare-check" | "evaluate")) if cfg!(debug_assertions) => {
            return in_release(chore, &arguments[1..]).unwrap_or_else(failed);
        }
        Some("bpf-algorithms") => algorithms::build(&arguments[1..]),
        Some("compare-check") => compare::check(&arguments[1..]),
        Some("constants") => constants::count(&arguments[1..]),
        Some("deny") => alone(&arguments).and_then(|()| deny::deny()),
        Some("docs") => alone(&arguments).and_then(|()| docs::build()),
        Some("evaluate") => {
            return evaluate::evaluate(&arguments[1..]).unwrap_or_else(failed);
        }
        Some("figures") => figures::figures(&arguments[1..]),
        Some("instructions") => instructions::check(&arguments[1..]),
        Some("ns3-runs") => ns3::make(&arguments[1..]),
        Some("package") => package(&arguments[1..]),
        Some("reference") => alone(&arguments).and_then(|()| reference::write()),
        Some("reproducible") => reproducible(&arguments[1..]),
        Some("same-rows") => same_rows::compare(&arguments[1..]),
        Some("test") => test::test(&arguments[1..]),
        Some("test-fresh") => alone(&arguments).and_then(|()| fresh::test_fresh()),
        Some("test-kernels") => kernels::test_kernels(&arguments[1..]),
        Some("test-package") => kernels::test_package(&arguments[1..]),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error),
    }
}

/// Refuses arguments of a chore that takes none.
fn alone(arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [chore, argument, ..] => Err(Misuse::of(anyhow!("{argument}: {chore} takes no arguments"))),
        _ => Ok(()),
    }
}

/// Runs a chore again as optimised code.
fn in_release(chore: &str, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let status = Command::new(env!("CARGO"))
        .current_dir(repository())
        .args(["run", "--quiet", "--release", "--locked", "--package", "xtask", "--", chore])
        .args(arguments)
        .status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
