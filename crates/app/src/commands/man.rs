//! `forebay completions` and `forebay man`.

use std::process::ExitCode;

use clap::CommandFactory;

use super::print;

/// Arguments of `forebay completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "forebay", &mut script);
        print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `forebay man`.
#[derive(clap::Args)]
pub struct Man {}

impl Man {
    /// Prints the manual page in roff on stdout.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut page = Vec::new();
        clap_mangen::Man::new(crate::Cli::command()).render(&mut page)?;
        print(&String::from_utf8(page)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
