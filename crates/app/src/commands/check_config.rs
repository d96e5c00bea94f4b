//! `forebay check-config`: what a daemon would do with a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `forebay check-config`.
#[derive(clap::Args)]
pub struct CheckConfig {
    /// The configuration file of a sendbox or receivebox.
    file: PathBuf,
}

#[cfg(feature = "host")]
impl CheckConfig {
    /// Prints one line per bundle, or the first error and exit code 2. Key files are read too.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use std::fmt::Write as _;

        use forebay_host::daemon::{Config, keys};

        use super::{BadInput, print};

        let config = Config::load(&self.file).map_err(|error| BadInput(error.to_string()))?;
        for bundle in &config.bundles {
            keys::load(&bundle.key_file).map_err(|error| BadInput(error.to_string()))?;
        }
        let mut text = format!("{}: {} on {}\n", self.file.display(), config.role, config.listen);
        for bundle in &config.bundles {
            let list = |prefixes: &[_]| {
                prefixes.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
            };
            let from = if bundle.from.is_empty() { "any".into() } else { list(&bundle.from) };
            let to = list(&bundle.to);
            let (name, id, peer) = (&bundle.name, bundle.id.0, bundle.peer);
            write!(text, "  {name} (id {id}): {from} -> {to}, peer {peer}")?;
            match &bundle.shaping {
                Some(shaping) => {
                    let max = shaping.max_rate.map_or("any rate".into(), |rate| rate.to_string());
                    let (cc, qdisc, min_rate) = (&shaping.cc, &shaping.qdisc, shaping.min_rate);
                    writeln!(text, ", {cc} over {qdisc}, {min_rate} to {max}")?;
                }
                None => text.push('\n'),
            }
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(not(feature = "host"))]
impl CheckConfig {
    /// Says what is missing.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.file;
        Err(super::needs_host("check-config"))
    }
}
