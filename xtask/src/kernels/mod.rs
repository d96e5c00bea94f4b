//! The BPF programs and the package on Debian 12 kernels, which this machine need not run. The kernels run in qemu.
//! Without `--kvm` it emulates, because in a virtual machine KVM may be slower than emulation. The package also runs
//! on this machine's kernel, in a container, where times are realistic.

mod container;
mod guest;
mod image;
mod trial;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use forebay_skips::Need;

use self::guest::Outcome;
use crate::Misuse;

/// A kernel, and how its package is found.
struct Kernel {
    name: &'static str,
    /// The suite whose `linux-image-amd64` it is.
    suite: &'static str,
    /// Features that it is too old for; a test that needs one may be skipped.
    lacks: &'static [Need],
    checks: &'static [Check],
    /// Checks of the package.
    trials: &'static [Check],
}

/// A command that the guest runs, and its expected result.
struct Check {
    name: &'static str,
    /// The command, for a shell.
    command: &'static str,
    /// The expected exit code.
    exit: i32,
    /// The expected output.
    says: &'static str,
}

/// `forebay doctor` attaches a program.
const DOCTOR: Check =
    Check { name: "doctor", command: "forebay doctor", exit: 0, says: "a program was attached" };
/// Line of a test program whose tests all passed.
const PASSED: &str = "test result: ok";
/// The programs of both boxes, on frames from the tests. One test loads fifty pairs, which takes an emulated verifier
/// minutes.
const BOXES: Check = Check {
    name: "programs of the boxes",
    command: "ebpf capture:: sampler:: --skip nested_prefixes",
    exit: 0,
    says: PASSED,
};
/// Both boxes forward and shape traffic on a bridge.
const TRAFFIC: Check =
    Check { name: "the boxes on a bridge", command: "datapath", exit: 0, says: PASSED };
/// Packets of a bundle that stay in the kernel, in flow queues that not every kernel has.
const QDISCS: Check = Check {
    name: "qdiscs of the kernel",
    command: "host htb:: packets_may_wait_in packets_leave_at_the_rate",
    exit: 0,
    says: PASSED,
};
/// Here and below, excludes tests with very many connections, decisions, reports or wakes, and tests of a path in user
/// space: an emulated machine is too slow for them.
const TCP: Check = Check {
    name: "congestion control",
    command: "ebpf tcp:: --skip many_short_connections --skip no_decision --skip any_number_of_reports \
              --skip sleeping_reader --skip core_reproduces_native",
    exit: 0,
    says: PASSED,
};
/// Tests of agents, except tests that are too slow on an emulated machine.
const AGENT: Check = Check {
    name: "agent",
    command: "agent --skip hundred_connections --skip ten_thousand",
    exit: 0,
    says: PASSED,
};
/// On a kernel that is too old, an agent ends with an error that names the needed version.
const REFUSED: Check = Check {
    name: "agent is refused",
    command: "forebay agent --algorithm cubic",
    exit: 1,
    says: "needs Linux 6.4",
};
/// Earlier checks have left no algorithm registered.
const NOTHING: Check = Check {
    name: "nothing is registered",
    command: "grep -c fb_ /proc/sys/net/ipv4/tcp_available_congestion_control",
    exit: 1,
    says: "0",
};

/// The name of the kernel that runs on this machine.
const HERE: &str = "here";

/// Kernels of Debian that are tested, with the checks of each.
static KERNELS: [Kernel; 2] = [
    Kernel {
        name: "6.1",
        suite: "bookworm",
        lacks: &[Need::Tcx, Need::FramesInPieces],
        checks: &[DOCTOR, BOXES, TRAFFIC, REFUSED, NOTHING],
        trials: &trial::WITHOUT_AGENT,
    },
    Kernel {
        name: "6.12",
        suite: "bookworm-backports",
        lacks: &[],
        checks: &[DOCTOR, BOXES, TRAFFIC, QDISCS, TCP, AGENT, NOTHING],
        trials: &trial::WITH_AGENT,
    },
];

/// Boots the kernels named by `--kernel NAME` (all Debian kernels without one) and prints the checks that ran. Images
/// and logs are kept in `target/kernels`; images are fetched once.
pub fn test_kernels(arguments: &[String]) -> Result<()> {
    test(arguments, true)
}

/// As [`test_kernels`], for the package alone.
pub fn test_package(arguments: &[String]) -> Result<()> {
    test(arguments, false)
}

fn test(arguments: &[String], with_programs: bool) -> Result<()> {
    let Wanted { kernels, is_here, profile, has_kvm } = parse(arguments).map_err(Misuse::of)?;
    let is_for_these = kernels.is_empty() || cfg!(target_arch = "x86_64");
    ensure!(is_for_these, "the fetched kernels need x86-64");
    let folder = folder(crate::repository().join("target/kernels"))?;
    let with_programs = with_programs && !kernels.is_empty();
    let programs = with_programs.then(image::Programs::build).transpose()?;
    let trial = trial::Trial::prepare(&folder, &profile)?;
    if !with_programs {
        trial.lint()?;
    }
    println!("| kernel | check | result |\n|---|---|---|");
    let mut failed = Vec::new();
    for kernel in kernels {
        let image = image::fetch(&folder, kernel.name, kernel.suite)?;
        let mut boot = |what: &str, initramfs: &Path, checks| -> Result<()> {
            let log = folder.join(format!("{}{what}.log", kernel.name));
            let text = guest::run(&image.kernel, initramfs, &log, has_kvm)?;
            failed.extend(judge_all(&image.release, &text, &log, checks, kernel.lacks));
            Ok(())
        };
        if let Some(programs) = &programs {
            let initramfs = image::pack(&folder, &image, programs, &script(kernel.checks))?;
            boot("", &initramfs, kernel.checks)?;
        }
        let initramfs = trial.pack(&folder, &image, &script(kernel.trials))?;
        boot("-package", &initramfs, kernel.trials)?;
    }
    if is_here {
        let has_agent = Need::StructOpsLinks.is_met();
        let steps = if has_agent { &trial::WITH_AGENT } else { &trial::WITHOUT_AGENT };
        let root = trial.unpack(&folder, &script(steps))?;
        let log = folder.join(format!("{HERE}-package.log"));
        let text = container::run(root.path(), &log)?;
        failed.extend(judge_all(HERE, &text, &log, steps, &[]));
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Prints a row for each check of a kernel's log; returns the failed checks.
fn judge_all(
    kernel: &str,
    text: &str,
    log: &Path,
    checks: &[Check],
    lacks: &[Need],
) -> Vec<String> {
    let mut failed = Vec::new();
    for check in checks {
        let verdict = judge(check, guest::outcome(text, check.name), lacks);
        let result = verdict.as_ref().map_or_else(|wrong| format!("**{wrong}**"), Clone::clone);
        println!("| {kernel} | {} | {result} |", check.name);
        if verdict.is_err() {
            failed.push(format!("{} on {kernel}: {}", check.name, log.display()));
        }
    }
    failed
}

/// Kernels and package to test.
struct Wanted {
    kernels: Vec<&'static Kernel>,
    /// Whether to test the kernel that runs here, too, with the package alone.
    is_here: bool,
    /// The profile of cargo that the package is built with.
    profile: String,
    has_kvm: bool,
}

fn parse(arguments: &[String]) -> Result<Wanted> {
    let names = KERNELS.iter().map(|kernel| kernel.name).chain([HERE]).collect::<Vec<_>>();
    let names = names.join(", ");
    let mut wanted =
        Wanted { kernels: Vec::new(), is_here: false, profile: "release".into(), has_kvm: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--kvm" {
            wanted.has_kvm = true;
            continue;
        }
        match (argument.as_str(), arguments.next()) {
            ("--profile", Some(profile)) => wanted.profile = profile.clone(),
            ("--kernel", Some(name)) if name == HERE => wanted.is_here = true,
            ("--kernel", Some(name)) => {
                let Some(kernel) = KERNELS.iter().find(|kernel| kernel.name == name) else {
                    bail!("--kernel {name}: allowed is one of {names}");
                };
                wanted.kernels.push(kernel);
            }
            _ => bail!("allowed are --kernel NAME ({names}), --profile NAME of cargo, and --kvm"),
        }
    }
    if wanted.kernels.is_empty() && !wanted.is_here {
        wanted.kernels = KERNELS.iter().collect();
    }
    Ok(wanted)
}

/// The checks for the guest's shell, each between two marker lines, by which `guest::outcome` finds it.
fn script(checks: &[Check]) -> String {
    let one = |check: &Check| {
        let Check { name, command, .. } = check;
        format!("echo '@@ {name}'\n{command}\necho \"@@ ended with $?\"\n")
    };
    checks.iter().map(one).collect()
}

/// The table's entry for a check on a kernel without these features; an error if the result is unexpected.
fn judge(check: &Check, outcome: Option<Outcome<'_>>, lacks: &[Need]) -> Result<String, String> {
    let Some(outcome) = outcome else { return Err("was not reached".into()) };
    let Some(exit) = outcome.exit else { return Err("did not end".into()) };
    if exit != check.exit {
        return Err(format!("ended with {exit}"));
    }
    let skipped: BTreeSet<&str> = outcome.lines().filter_map(skipped).collect();
    let is_lacked = |reason: &str| lacks.iter().any(|need| need.reason() == reason);
    if let Some(reason) = skipped.iter().find(|reason| !is_lacked(reason)) {
        return Err(format!("skipped: {reason}"));
    }
    if !outcome.text.contains(check.says) {
        return Err(format!("does not say {:?}", check.says));
    }
    let counts = outcome.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let passed: Option<u32> =
        counts.map(|line| line.split(' ').next().and_then(|count| count.parse::<u32>().ok())).sum();
    // Lines that a check marks for the table.
    let told: Vec<&str> = outcome.lines().filter_map(|line| line.strip_prefix("=> ")).collect();
    match passed {
        Some(0) if check.says == PASSED => Err("ran no test".into()),
        Some(passed) if check.says == PASSED && skipped.is_empty() => {
            Ok(format!("{passed} tests passed"))
        }
        Some(passed) if check.says == PASSED => {
            let reasons: Vec<&str> = skipped.into_iter().collect();
            Ok(format!("{passed} tests passed or skipped: {}", reasons.join("; ")))
        }
        _ if !told.is_empty() => Ok(told.join("; ")),
        _ if exit == 0 => Ok("yes".into()),
        _ => Ok(format!("yes: {}", outcome.lines().last().unwrap_or_default())),
    }
}

/// The reason for skipping a test, if the line reports a skip.
fn skipped(line: &str) -> Option<&str> {
    line.split_once("skipped: ").map(|(_, reason)| reason.trim())
}

/// Creates a folder of this chore and returns it.
fn folder(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Copies a file with its mode, and makes the folders above it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(above) = to.parent() {
        folder(above.into())?;
    }
    std::fs::copy(from, to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest's output on its console.
    const LOG: &str = "SeaBIOS\r\n@@ doctor\r\nok    XDP  a program was attached\r\n@@ ended with 0\r\n\
        @@ agent\r\nrunning 2 tests\r\ntest a ... ok\r\n\
        test result: ok. 2 passed; 0 failed; 0 ignored\r\n@@ ended with 0\r\n\
        @@ congestion control\r\ntest b ... ok\r\nskipped: no privilege\r\n\
        test result: ok. 1 passed; 0 failed\r\n@@ ended with 0\r\n\
        @@ agent is refused\r\nerror: forebay agent needs Linux 6.4 or later\r\n@@ ended with 1\r\n\
        @@ programs of the boxes\r\ntest result: FAILED. 1 passed; 1 failed\r\n@@ ended with 101\r\n\
        @@ the boxes on a bridge\r\ntest c ...";

    #[test]
    fn check_needs_expected_end_without_skips() {
        let judge = |check| judge(&check, guest::outcome(LOG, check.name), &[]);
        assert_eq!(judge(DOCTOR).unwrap(), "yes");
        assert_eq!(judge(AGENT).unwrap(), "2 tests passed");
        assert_eq!(judge(REFUSED).unwrap(), "yes: error: forebay agent needs Linux 6.4 or later");
        assert_eq!(judge(TCP).unwrap_err(), "skipped: no privilege");
        assert_eq!(judge(BOXES).unwrap_err(), "ended with 101");
        assert_eq!(judge(TRAFFIC).unwrap_err(), "did not end");
        assert_eq!(judge(NOTHING).unwrap_err(), "was not reached");
    }

    #[test]
    fn only_missing_kernel_features_may_be_skipped() {
        let log = format!(
            "@@ agent\r\ntest a ... skipped: {}\r\ntest result: ok. 2 passed\r\n@@ ended with 0\r\n",
            Need::Tcx.reason()
        );
        let judge = |lacks| judge(&AGENT, guest::outcome(&log, AGENT.name), lacks);
        assert_eq!(judge(&[Need::Tcx]).unwrap(), "2 tests passed or skipped: Linux before 6.6");
        assert_eq!(judge(&[Need::FramesInPieces]).unwrap_err(), "skipped: Linux before 6.6");
    }

    #[test]
    fn without_a_name_all_kernels_are_tried() {
        let names = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|it| it.to_string()).collect();
            let names =
                |wanted: Wanted| wanted.kernels.iter().map(|it| it.name).collect::<Vec<_>>();
            parse(&arguments).map(names)
        };
        assert_eq!(names(&[]).unwrap(), ["6.1", "6.12"]);
        assert_eq!(names(&["--kernel", "6.12"]).unwrap(), ["6.12"]);
        assert!(names(&["--kernel", "here"]).unwrap().is_empty());
        for refused in [&["6.12"][..], &["--kernel"], &["--kernel", "2.4"]] {
            assert!(names(refused).unwrap_err().to_string().contains("6.1, 6.12, here"));
        }
    }
}
