//! `forebay completions` and `forebay man`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;

use super::{BadInput, print};

/// Arguments of `forebay completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script for the command line `cli` on stdout.
    pub fn execute(self, mut cli: Command) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut cli, "forebay", &mut script);
        print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Arguments of `forebay man`.
#[derive(clap::Args)]
pub struct Man {
    /// Print the page of this command, such as `status` or `trace poisson` [default: the page of
    /// forebay].
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Write the pages of all commands into this folder instead, and replace pages that are
    /// there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Prints a manual page of the command line `cli` in roff on stdout, or writes all pages.
    pub fn execute(self, cli: Command) -> anyhow::Result<ExitCode> {
        // `help` would be a page of its own below each command.
        let without_help = |command: Command| command.disable_help_subcommand(true);
        let mut cli = without_help(cli).mut_subcommands(without_help);
        if let Some(folder) = self.out {
            let write = || clap_mangen::generate_to(cli, &folder);
            let written = fs::create_dir_all(&folder).and_then(|()| write());
            written.with_context(|| format!("cannot write into {}", folder.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        cli.build();
        let mut command = &cli;
        for name in &self.command {
            let below = || command.get_subcommands().filter(|below| !below.is_hide_set());
            let names: Vec<&str> = below().map(Command::get_name).collect();
            let refused = || BadInput(format!("{name}: allowed is one of {}", names.join(", ")));
            command = below().find(|below| below.get_name() == name).ok_or_else(refused)?;
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        print(&String::from_utf8(page)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
