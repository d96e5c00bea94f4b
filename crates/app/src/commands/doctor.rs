//! `forebay doctor`: can this machine carry a box?

use std::path::PathBuf;
use std::process::ExitCode;

/// Check whether this machine can run a box or agent; name fixes.
///
/// Checks kernel, privileges and devices, and names a fix for each failure. Changes nothing, except
/// with `--clean`.
///
/// Exit code 0: a box can run; 1: a check failed; 2: the file of --config is wrong.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay doctor eth0 eth1\n  \
    forebay doctor --config /etc/forebay/sendbox.toml\n  \
    forebay doctor --clean")]
pub struct Doctor {
    /// Network devices that the box would use.
    devices: Vec<String>,
    /// Check the devices and key files of this configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Check nothing. Instead remove the devices, policy rules and namespaces that dead sendboxes
    /// of routers left in this network namespace. Running boxes keep theirs.
    #[arg(long, conflicts_with_all = ["devices", "config", "json"])]
    clean: bool,
}

#[cfg(feature = "host")]
impl Doctor {
    /// Prints every check with its fix.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use std::fmt::Write as _;

        use forebay_host::daemon::Config;
        use forebay_host::daemon::doctor::{Verdict, examine, is_fit};

        use super::print;

        if self.clean {
            let said = forebay_host::daemon::routed::clean()?;
            let said = if said.is_empty() { vec!["nothing to remove".into()] } else { said };
            print(&format!("{}\n", said.join("\n")))?;
            return Ok(ExitCode::SUCCESS);
        }
        let boxes = self.config.as_deref().map(Config::load_all).transpose();
        let boxes = boxes.map_err(|error| super::BadInput(error.to_string()))?;
        let checks = examine(&self.devices, &boxes.unwrap_or_default());
        let fit = is_fit(&checks);
        if self.json {
            let document = serde_json::json!({ "fit": fit, "checks": checks });
            print(&format!("{document}\n"))?;
        } else {
            let mut text = String::new();
            for check in &checks {
                let mark = match check.verdict {
                    Verdict::Ok => "ok  ",
                    Verdict::Warn => "warn",
                    Verdict::Fail => "FAIL",
                };
                writeln!(text, "{mark}  {:<20} {}", check.name, check.found)?;
                if !check.fix.is_empty() {
                    writeln!(text, "      {:<20} fix: {}", "", check.fix)?;
                }
            }
            print(&text)?;
        }
        Ok(if fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(not(feature = "host"))]
impl Doctor {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.devices, self.config, self.json, self.clean);
        Err(super::needs_host("doctor"))
    }
}
