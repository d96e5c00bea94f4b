//! The laboratory: the commands of `forebay` that make, run and judge experiments. Its program also has the commands of
//! the boxes, because a testbed starts boxes from its own program. Users call `forebay`, which runs this program in its
//! place.

// A closed pipe makes these macros panic; see `forebay::print`.
#![deny(clippy::print_stdout)]

mod commands;
#[cfg(all(test, feature = "host"))]
mod documented;
#[cfg(all(test, feature = "host"))]
mod readers;

use std::process::ExitCode;

use clap::CommandFactory;
pub use forebay::Own;
use forebay::{Cli, Program, ended, laboratory, overview, run};

use crate::commands::Command;

/// The program `forebay-experiments`.
const EXPERIMENTS: Program = Program {
    package: laboratory::PACKAGE,
    folder: "crates/experiments",
    cli: || overview::of_laboratory(Cli::<Command>::command()),
};

/// Runs the command with the arguments of this process. Call it once in a process. `own` are the user's own algorithms
/// that the program was built with.
pub fn main(own: &[Own]) -> ExitCode {
    match laboratory::check_caller() {
        Ok(()) => run::<Command>(own, &EXPERIMENTS),
        Err(error) => ended(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forebay_lists_the_commands_that_are_here() {
        let [here, boxes] = [Cli::<Command>::command(), Cli::<forebay::Command>::command()];
        let is_of_boxes = |name: &str| boxes.get_subcommands().any(|it| it.get_name() == name);
        let ours = here.get_subcommands().filter(|it| !it.is_hide_set());
        let ours = ours.filter(|it| !is_of_boxes(it.get_name()));
        let listed: Vec<(String, String)> =
            ours.map(|it| (it.get_name().into(), it.get_about().unwrap().to_string())).collect();
        let known = laboratory::COMMANDS.map(|(name, about)| (name.into(), about.into()));
        assert_eq!(listed, known);
    }
}
