//! `forebay reload`: running boxes take their files as they are now.

use std::process::ExitCode;

use super::status::Target;

/// Arguments of `forebay reload`.
///
/// Bundles that did not change are not touched: their packets, rates and sessions go on. Shares, bounds,
/// prefixes, queueing disciplines and keys change in place. Bundles with another `id`, `peer` or `cc` start
/// again; new bundles are added, and missing ones removed. A file with a value that a box takes at its start
/// alone (devices, sockets, accounts, the trace) is refused, and nothing of it is applied. SIGHUP does the
/// same.
///
/// Exit code 2: a file was refused.
#[derive(clap::Args)]
pub struct Reload {
    #[command(flatten)]
    target: Target,
    /// Print one JSON document, and nothing else, on stdout.
    #[arg(long)]
    json: bool,
}

#[cfg(feature = "host")]
impl Reload {
    /// Reports the outcome for each bundle.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use forebay_host::service::control::Request;

        use super::print;
        use super::status::{ANOTHER_QUESTION, Answer};

        let (mut code, mut outcomes) = (ExitCode::SUCCESS, Vec::new());
        for answer in self.target.ask(Request::Reload)? {
            match answer {
                Answer::Changed(outcome) => outcomes.push(*outcome),
                Answer::Failed(reason) => {
                    eprintln!("error: {reason}");
                    code = ExitCode::FAILURE;
                }
                Answer::Status(_) | Answer::Done(_) => anyhow::bail!(ANOTHER_QUESTION),
            }
        }
        if self.json {
            print(&format!("{}\n", serde_json::json!({ "boxes": outcomes })))?;
        }
        for outcome in outcomes {
            let is_refused = !outcome.refused.is_empty();
            if is_refused {
                code = ExitCode::from(2);
            }
            match (self.json, is_refused) {
                (true, _) => {}
                (false, true) => eprint!("error: {outcome}"),
                (false, false) => drop(print(&outcome.to_string())?),
            }
        }
        Ok(code)
    }
}

#[cfg(not(feature = "host"))]
impl Reload {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.target.socket, self.json);
        Err(super::needs_host("reload"))
    }
}
