//! `forebay completions` and `forebay man`.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;

/// Arguments of `forebay completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        clap_complete::generate(
            self.shell,
            &mut crate::Cli::command(),
            "forebay",
            &mut io::stdout(),
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `forebay man`.
#[derive(clap::Args)]
pub struct Man {}

impl Man {
    /// Prints the manual page in roff on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        clap_mangen::Man::new(crate::Cli::command()).render(&mut io::stdout())?;
        Ok(ExitCode::SUCCESS)
    }
}
