//! One file per subcommand.

mod man;

use std::process::ExitCode;

/// What the input got wrong; ends the program with exit code 2.
#[derive(Debug)]
pub struct BadInput(pub String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// The exit code that `error` ends the program with.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.downcast_ref::<BadInput>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// The subcommands, in the order of the help text.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print a completion script for a shell.
    Completions(man::Completions),
    /// Print the manual page.
    Man(man::Man),
}

impl Command {
    /// Runs the subcommand.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Completions(arguments) => arguments.execute(),
            Self::Man(arguments) => arguments.execute(),
        }
    }
}
