//! `forebay explain`: the reasons for the rate of a bundle.

use std::process::ExitCode;

use super::status::Target;

/// Explain the rate of a bundle, and name the limit.
///
/// Prints sentences: the rate at which packets of the bundle leave, the measurements, and the
/// limit. The limit is the path, a bound or share of the configuration, the hosts, other traffic,
/// or missing feedback.
///
/// Exit code 1: no box runs, or one does not answer; 2: no box has this bundle.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay explain berlin\n  \
    forebay explain berlin --socket /run/forebay/sendbox.sock --json")]
pub struct Explain {
    /// Name of the bundle.
    bundle: String,
    #[command(flatten)]
    target: Target,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
}

/// Most names of bundles in an error.
#[cfg(feature = "host")]
const NAMES_SHOWN: usize = 20;

#[cfg(feature = "host")]
impl Explain {
    /// Explains the bundle at each box that has it; exit code 2 if none has.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use forebay_core::spec::nearest_words;
        use forebay_host::daemon::explain::{Explanation, explain};

        use super::{BadInput, print};

        let boxes = self.target.status()?.boxes;
        let all = boxes.iter().flat_map(|status| status.bundles.iter().map(move |it| (status, it)));
        let named = all.clone().filter(|(_, bundle)| bundle.name == self.bundle);
        let explanations: Vec<Explanation> =
            named.map(|(status, bundle)| explain(status, bundle)).collect();
        if explanations.is_empty() {
            let names: Vec<&str> = all.map(|(_, bundle)| bundle.name.as_str()).collect();
            let near = nearest_words(&self.bundle, &names);
            let (shown, others) = names.split_at(names.len().min(NAMES_SHOWN));
            let more = match others.len() {
                0 => String::new(),
                more => format!(" and {more} more: see `forebay status`"),
            };
            let (bundle, names) = (&self.bundle, shown.join(", "));
            let text = format!("bundle {bundle:?}: allowed is one of {names}{more}{near}");
            return Err(BadInput(text).into());
        }
        if self.json {
            print(&format!("{}\n", serde_json::json!({ "bundles": explanations })))?;
            return Ok(ExitCode::SUCCESS);
        }
        let texts: Vec<String> =
            explanations.iter().map(|it| it.sentences.join("\n") + "\n").collect();
        print(&texts.join("\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(not(feature = "host"))]
impl Explain {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.bundle, self.target.socket, self.json);
        Err(super::needs_host("explain"))
    }
}
