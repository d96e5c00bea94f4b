//! The commands of the laboratory, which another program has: `forebay-experiments`, with simulator, store and reports.
//! `forebay` lists them, and that program takes its place. The two must be of one build: rows, recordings and
//! specifications pass between them.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::COMMIT;

/// The program, and the package that has it.
pub const PACKAGE: &str = "forebay-experiments";

/// The commands of `forebay-experiments` with their summaries, in the order of its commands.
pub const COMMANDS: [(&str, &str); 17] = [
    ("demo", "Show the gain of a bundle on real kernel TCP, in minutes"),
    ("run", "Run plans, and write results and a report"),
    ("bench", "Benchmark congestion-control algorithms, and compare them"),
    ("reproduce", "Repeat the experiments of a study, and check its claims"),
    ("chaos", "Test a bundle under random faults, next to a run without boxes"),
    ("regret", "Compare a site with and without boxes on random changing paths"),
    ("sensitivity", "Halve and double each tuning number, and measure the effect"),
    ("search", "Find the path on which an algorithm is worst, as a plan"),
    ("report", "Write the report of a folder of results"),
    ("compare", "Compare two folders of results"),
    ("compare-ns3", "Compare the simulator with recorded runs of ns-3"),
    ("new-algorithm", "Create a crate for an algorithm of your own"),
    ("export", "Write results as CSV or Parquet for other programs"),
    ("capture", "Write packets for Wireshark, or connections for qlog viewers"),
    ("platforms", "Measure the cost of an algorithm in kernel, eBPF and agent"),
    ("link", "Run a command behind an emulated link"),
    ("trace", "Create, convert and show traces of links"),
];

/// The variable that names the commit of the `forebay` that has called.
const CALLER: &str = "FOREBAY_CALLER";

/// Whether the laboratory has the command `name`.
fn has(name: &str) -> bool {
    COMMANDS.iter().any(|(known, _)| *known == name)
}

/// The laboratory's command that these arguments mean, if any. If the laboratory is installed, it also runs
/// the commands that cover all commands: scripts of completion and manual pages.
pub(crate) fn meant(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let mut arguments = arguments.map_while(|it| it.into_string().ok());
    let first = arguments.next()?;
    let of = |name: &String| has(name);
    match first.as_str() {
        "help" | "man" => match arguments.next().filter(of) {
            Some(name) => Some(format!("{first} {name}")),
            None if first == "man" => program().map(|_| first),
            None => None,
        },
        "completions" => program().map(|_| first),
        _ => Some(first).filter(of),
    }
}

/// `cli` with hidden commands of the laboratory, so that completion and suggestions know them.
pub(crate) fn known(cli: clap::Command) -> clap::Command {
    let stub = |(name, about): (&'static str, &'static str)| {
        clap::Command::new(name).about(about).hide(true)
    };
    cli.subcommands(COMMANDS.map(stub))
}

/// Replaces this process by the laboratory's program, with the same arguments, for the sake of `what`;
/// returns the reason if it cannot.
pub(crate) fn exec(what: &str) -> anyhow::Error {
    let Some(program) = program() else {
        return anyhow::anyhow!(
            "`forebay {what}` needs the package {PACKAGE}: install the same version, or put its program next \
             to this one"
        );
    };
    let mut command = Command::new(&program);
    let error = command.args(std::env::args_os().skip(1)).env(CALLER, COMMIT).exec();
    anyhow::Error::new(error).context(program.display().to_string())
}

/// The laboratory's program: next to this one, as cargo builds it, or where packages have it.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let places = [folder.to_path_buf(), folder.join("../libexec/forebay")];
    places.into_iter().map(|place| place.join(PACKAGE)).find(|it| it.is_file())
}

/// Refuses a `forebay` of another build that has called the laboratory's program. Programs that this one
/// starts have no caller.
///
/// # Errors
///
/// Both commits, and what to do.
pub fn check_caller() -> anyhow::Result<()> {
    match std::env::var(CALLER) {
        Ok(caller) if caller != COMMIT => anyhow::bail!(
            "forebay was built from commit {caller}, and {PACKAGE} from commit {COMMIT}: allowed are two programs of one build"
        ),
        _ => Ok(()),
    }
}

/// A command that runs `program` as one without a caller.
pub(crate) fn uncalled(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove(CALLER);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant_by(line: &str) -> Option<String> {
        meant(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_first_word_says_whose_command_it_is() {
        assert_eq!(meant_by("run bundler/main --help").as_deref(), Some("run"));
        assert_eq!(meant_by("help chaos").as_deref(), Some("help chaos"));
        assert_eq!(meant_by("man trace poisson").as_deref(), Some("man trace"));
        for own in ["status", "help status", "man", "man status", "list plans", "--help", ""] {
            assert_eq!(meant_by(own), None, "{own}");
        }
    }
}
