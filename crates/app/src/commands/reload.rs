//! `forebay reload`: running boxes take their files as they are now.

use std::process::ExitCode;

use super::status::Target;

/// Make running boxes read their configuration and key files again.
///
/// Unchanged bundles keep their packets, rates and sessions. Shares, bounds, prefixes, queueing
/// disciplines and keys change in place. Bundles with another `id`, `peer`, `cc`, `nat` or
/// `supervised` restart. Boxes add new bundles and remove missing ones. Some values (devices,
/// sockets, accounts, the trace) need a restart of the box. If one of these changed, the box
/// refuses the whole file. SIGHUP does the same as this command.
///
/// Exit code 1: no box runs, or one does not answer; 2: a file was refused, and nothing changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay reload\n  \
    forebay reload --socket /run/forebay/sendbox.sock --json")]
pub struct Reload {
    #[command(flatten)]
    target: Target,
    /// Print one JSON document and nothing else on stdout.
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
