//! `forebay triangle`: devices and rules that bring routed packets to a sendbox's process, for its unit.

use std::path::PathBuf;
use std::process::ExitCode;

/// Make or remove devices that lead routed packets to a sendbox.
///
/// You rarely need this command: the unit forebay-triangle@NAME.service runs it before
/// forebay-sendbox@NAME starts and after it has stopped. A sendbox that you start as root makes and
/// removes its devices itself.
///
/// A sendbox with `forward = "route"` whose packets pass its process needs a triangle: two pairs of
/// veth devices, a network namespace with a bridge, and policy rules.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay triangle make --config /etc/forebay/sendbox.toml\n  \
    forebay triangle remove --config /etc/forebay/sendbox.toml")]
pub struct Triangle {
    /// Make or remove the triangle.
    #[arg(value_enum)]
    what: What,
    /// The configuration file of the sendbox.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Name of the sendbox; required if FILE has several.
    #[arg(long = "box", value_name = "NAME")]
    name: Option<String>,
}

/// The operation on the triangle.
#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Make the triangle, if the box needs one here; first remove the remains of an earlier one.
    Make,
    /// Remove the triangle, if there is one.
    Remove,
}

#[cfg(feature = "host")]
impl Triangle {
    /// Makes or removes it, and says so.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use anyhow::Context;
        use forebay_host::daemon::{Config, Role, routed};
        use forebay_host::triangle::{make, remove};

        use super::{BadInput, print};

        let config = Config::load_of(&self.config, Role::Sendbox, self.name.as_deref());
        let config = config.map_err(|error| BadInput(error.to_string()))?;
        let spec = routed::triangle_of(&config);
        let names = spec.names();
        let said = match self.what {
            What::Remove => {
                remove(&names).context("removing the triangle")?;
                format!("no triangle of {} is left", spec.name)
            }
            What::Make => match routed::needs_triangle(&config) {
                (false, why) => format!("no triangle is needed: {why}"),
                (true, why) => {
                    make(&spec)?;
                    let forebay_host::triangle::Names { namespace, entrance, exit, .. } = names;
                    format!("made {entrance}, {exit} and the network namespace {namespace}: {why}")
                }
            },
        };
        print(&format!("{said}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(not(feature = "host"))]
impl Triangle {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { what, config, name } = self;
        let _ = (what, config, name);
        Err(super::needs_host("triangle"))
    }
}
