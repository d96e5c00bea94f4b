//! `forebay completions` and `forebay man`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use forebay_core::spec::one_of;

use super::{BadInput, print};

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay completions bash > ~/.local/share/bash-completion/completions/forebay")]
pub struct Completions {
    /// Name of the shell.
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

/// Print a manual page, or write all of them into a folder.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay man status | man -l -\n  \
    forebay man --out ~/.local/share/man/man1")]
pub struct Man {
    /// Command whose page to print, such as `status` or `trace poisson` [default: forebay itself].
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Write the pages of all commands into this folder instead, and replace existing pages.
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
            let refused = || BadInput(format!("{name}: allowed is {}", one_of(name, &names)));
            command = below().find(|below| below.get_name() == name).ok_or_else(refused)?;
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        print(&String::from_utf8(page)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
