//! `forebay look-up`: the process of a box that looks names of other boxes up.

use std::process::ExitCode;

use forebay_host::daemon::observer::names;

use super::observe::As;

/// Arguments of `forebay look-up`.
#[derive(clap::Args)]
pub struct LookUp {
    #[command(flatten)]
    account: As,
}

impl LookUp {
    /// Answers until the observer of the box ends.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        names::serve(self.account.account())?;
        Ok(ExitCode::SUCCESS)
    }
}
