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

const HELP: &str = "usage: cargo xtask CHORE

chores:
  bench-ns3 [--install] [--runs N] [SCENARIO..]   runs the scenarios N times (5) in ns-3 and
               here, and says how many times faster this is and whether speed and memory are what was
               asked for (libns3-dev; 40 minutes)
  bpf-algorithms [--check]   makes the BPF objects of laws of core in crates/ebpf/bpf/algorithms, or says
               whether they are what the sources give (rustup component add llvm-tools, clang)
  compare-check   says whether `forebay compare` finds nothing where seeds and commit are the same, a
               constant of Cubic that is 10 % off, and how often it calls something in 100
               comparisons of what does not differ (4 minutes)
  constants [--list | --json] [--at-most N]   counts the numbers of the control loop of a bundle: the fields of
               its table of tuning, and by file those of constants, and bare ones; those of formats apart.
               --list prints each; where there are more than N it fails
  deny         judges the licences, duplicates and origins of all dependencies by deny.toml, and known
               holes where their database can be reached (cargo-deny)
  docs         builds the pages of docs/ as a site in target/site, with an mdBook that it installs into
               target/tools, and checks each link of it
  evaluate [--minutes N] [--list] [PART..]   runs the plans of docs/claims.toml on their back ends, and
               the parts of `forebay platforms`, and writes which claims are met to
               docs/evidence/results.csv (root, hours; `make build` first). PART is a plan or a
               folder of them (bundler/main, main, dynamics) or a plan on a back end (main@sim), with
               other settings where docs/claims.toml has such a variant (main@emu+kernel); all
               without one. After N minutes it stops with exit code 3; another call goes on.
               --list says what is left, and how long it takes. Draws the pictures at its end
  figures [--measure] [NAME..]   draws the pictures in docs/pictures from the rows in docs/pictures/data, and prints
               the result of each, which is its text in the page that shows it. NAME is a picture (queue, world);
               all without one. --measure makes the rows first, with the simulator (`make build` first;
               3 minutes)
  instructions [--update]   counts the instructions that the simulator takes for a packet, and says whether they
               are more than 5 % above those counted last; --update writes them down (valgrind, 2 minutes)
  ns3-runs [--install] [--jobs N] [--file FILE] [--also DIR] [NAME..]   makes the runs of FILE
               (traces/ns3/more_runs.json) whose names contain a NAME (all without one) anew in ns-3, N at
               a time, and in the ns-3 whose ns3-core.pc is in DIR, too, and writes their figures there
               (libns3-dev; 10 minutes)
  ns3-runs --seed S [--count N] [--jobs N] [--file FILE] [--also DIR]   draws N runs (80) from the space of
               xtask/src/ns3/space.rs, makes those in ns-3 that FILE lacks (traces/ns3/drawn_S.json), and
               compares them with the simulator's: what holds now, beside what held at the first look
               (libns3-dev; 20 minutes)
  package [--static | --rpm | --image] [--profile NAME] [--version VERSION]   makes a .deb of the commit in
               target/package, or an archive or .rpm whose program needs no shared libraries, or an OCI image
               with Debian (`make package`, `make rpm` and `make image` install what it needs)
  reference    writes docs/reference/README.md and python/forebay/keys.py from the registries
  reproducible [--static] [--profile NAME]   makes a package twice, each time in a clean clone of the commit,
               and fails where the two differ in a byte
  same-rows OLD NEW [--seconds N] [PLAN..]   runs each simulated plan (all without one) once with both
               programs, cut to N seconds (10) or what it needs, and prints for each the first row of each
               table that differs. Runs that are there are not repeated (15 minutes)
  test [--beside COMMAND]   runs every test, and COMMAND beside those without traffic, and then says which
               were skipped and why; as root it fails where one was skipped for another reason than
               what the machine lacks
  test-fresh   runs both README commands in a bare Debian 12 root (root, debootstrap)
  test-kernels [--profile NAME] [--kvm] [--kernel NAME]..   loads and runs the BPF programs on kernels of
               Debian 12 (6.1 and 6.12) in qemu, emulated unless --kvm is given, and tries the package
               there as test-package does (root; `make test-kernels` installs qemu)
  test-package [--profile NAME] [--kvm] [--kernel NAME]..   has lintian judge a .deb, and in a Debian 12 under systemd
               installs, starts, kills, upgrades, rolls back, removes and purges it under traffic; with
               the kernel `here` in a container, at this machine's speed
               (root; `make test-package` installs what it needs)";

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
