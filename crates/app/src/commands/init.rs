//! `forebay init`: a first configuration for this machine.

use std::path::PathBuf;
use std::process::ExitCode;

/// Write a first configuration for this machine, with reasons.
///
/// Reads routes, devices, MTU, offloads and qdiscs from the kernel. Writes a commented
/// configuration for this machine, and a key. Prints the findings, a reason for each choice, and
/// the commands for the other site. Changes nothing else on the machine, and never overwrites a
/// file.
///
/// On a machine that routes, the configuration has `forward = "route"`, which needs one network
/// device. If the route to --to leaves through a bridge with two ports, the sendbox goes between
/// them. If the route leaves through a tunnel such as WireGuard, the WAN is the tunnel's device.
///
/// Exit code 2: an option is wrong or missing, because the kernel does not know its value, or a file
/// exists already.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay init sendbox --peer 10.2.1.2 --to 10.2.0.0/16 --from 10.1.0.0/16\n  \
    forebay init receivebox --peer 10.1.1.2 --from 10.1.0.0/16 --to 10.2.0.0/16 --key to-10.2.1.2.key")]
pub struct Init {
    #[command(subcommand)]
    role: RoleOf,
}

#[derive(clap::Subcommand)]
enum RoleOf {
    /// Write the file of a sendbox, for the gateway of the site that sends.
    Sendbox(Sendbox),
    /// Write the file of a receivebox, for the gateway or host that receives.
    Receivebox(Receivebox),
}

/// Arguments of `forebay init sendbox`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay init sendbox --peer 10.2.1.2 --to 10.2.0.0/16 --dry-run\n  \
    forebay init sendbox --peer 10.2.1.2 --to 10.2.0.0/16 --from 10.1.1.10/32 --own")]
struct Sendbox {
    /// Networks of the other site, separated by commas.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// Networks of this site, separated by commas [default: packets from anywhere].
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    from: Vec<String>,
    /// Bridge port towards the hosts [default: the port that does not lead to the next hop].
    #[arg(long, value_name = "DEVICE")]
    lan: Option<String>,
    /// Also put packets into the bundle that this machine sends itself [default: if the machine
    /// does not forward].
    #[arg(long)]
    own: bool,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `forebay init receivebox`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay init receivebox --peer 10.1.1.2 --from 10.1.0.0/16 --key to-10.2.1.2.key")]
struct Receivebox {
    /// Networks of the sendbox's site, separated by commas.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', required = true)]
    from: Vec<String>,
    /// Networks of this site, separated by commas [default: the connected networks, or only this
    /// host if it does not forward].
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    to: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// Address or name of the other box, as this machine reaches it.
    #[arg(long, value_name = "ADDRESS")]
    peer: String,
    /// Key file that `init` wrote at the other box [default: the name of the new file with .key,
    /// created if missing].
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Name of the box, the bundle and the file /etc/forebay/NAME.toml [default: to-ADDRESS or
    /// from-ADDRESS].
    #[arg(long)]
    name: Option<String>,
    /// Path of the new file [default: /etc/forebay/NAME.toml].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Number of the bundle, the same at both boxes, 0 to 65535 [default: 1].
    #[arg(long)]
    id: Option<u16>,
    /// Device towards the other site [default: the device of the route].
    #[arg(long, value_name = "DEVICE")]
    wan: Option<String>,
    /// This machine's address for messages [default: the source address of the route to the peer].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Print the file and write nothing. Values that are unknown on this machine are comments in
    /// it.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document and nothing else on stdout.
    #[arg(long)]
    json: bool,
}

#[cfg(feature = "host")]
mod with_host {
    use std::fmt::Write as _;

    use forebay_host::daemon::config::Role;
    use forebay_host::daemon::init::{Asked, Draft, KeyState, Survey, Wanted};

    use super::*;
    use crate::commands::{BadInput, print};

    impl Init {
        /// Writes file and key, or prints the file.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let bad = |error: String| BadInput(error);
            let (role, asked, common) = self.asked();
            let wanted = Wanted::of(role, &asked).map_err(bad)?;
            let draft = Draft::of(&wanted, &Survey::of(&wanted));
            let complete = draft.open.is_empty();
            if complete {
                // Some options are refused only in combination.
                draft.check().map_err(|error| {
                    BadInput(format!("the options do not fit together: {error}"))
                })?;
            }
            if common.dry_run {
                let text = if common.json { document(&draft, None)? } else { draft.text.clone() };
                if !common.json {
                    eprint!("{}", report(&draft, None));
                }
                print(&text)?;
                return Ok(ExitCode::SUCCESS);
            }
            if !complete {
                let open = draft.open.join("\n");
                let advice = "--dry-run prints the file with these values as comments";
                return Err(BadInput(format!("unknown on this machine:\n{open}\n{advice}")).into());
            }
            let key = draft.write(asked.key.is_some()).map_err(|error| bad(error.to_string()))?;
            let text = match common.json {
                true => document(&draft, Some(key))?,
                false => report(&draft, Some(key)),
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }

        fn asked(self) -> (Role, Asked, Common) {
            let (role, to, from, lan, own, common) = match self.role {
                RoleOf::Sendbox(it) => (Role::Sendbox, it.to, it.from, it.lan, it.own, it.common),
                RoleOf::Receivebox(it) => {
                    (Role::Receivebox, it.to, it.from, None, false, it.common)
                }
            };
            let asked = Asked {
                peer: common.peer.clone(),
                to,
                from,
                id: common.id,
                listen: common.listen.clone(),
                lan,
                wan: common.wan.clone(),
                own,
                name: common.name.clone(),
                out: common.out.clone(),
                key: common.key.clone(),
            };
            (role, asked, common)
        }
    }

    /// For programs. `key`: as it was written, if it was.
    fn document(draft: &Draft, key: Option<KeyState>) -> anyhow::Result<String> {
        let mut document = serde_json::to_value(draft)?;
        document["written"] = key.is_some().into();
        document["key"] = serde_json::to_value(key)?;
        Ok(format!("{document}\n"))
    }

    /// A text for operators: the findings, each choice with its reason, and the next steps.
    fn report(draft: &Draft, key: Option<KeyState>) -> String {
        let mut text = String::new();
        let (file, key_file) = (draft.file.display(), draft.key_file.display());
        let mut line = |it: String| writeln!(text, "{it}").expect("a text takes any line");
        if let Some(key) = key {
            line(format!("{file}: written, for a {}", draft.role));
            line(match key {
                KeyState::Made => format!("{key_file}: new key, mode 0600"),
                KeyState::Read => format!("{key_file}: read, and valid"),
            });
        }
        line("\nFound:".into());
        draft.seen.iter().for_each(|seen| line(format!("  {seen}")));
        line("\nChosen:".into());
        for chosen in &draft.chosen {
            let value = chosen.value.as_deref().unwrap_or("UNKNOWN");
            line(format!("  {} = {value}\n      {}", chosen.key, chosen.why));
        }
        line("\nBefore you start the box:".into());
        for step in &draft.before {
            line(format!("  {}\n      {}", step.command, step.why));
        }
        line("\nStart the box when `forebay doctor` reports no failure:".into());
        line(format!("  forebay doctor --config {file}\n  {}", draft.start));
        line(
            "\nFor the other site, unless it has a configuration already, with the same key:"
                .into(),
        );
        line(format!("  {}      # here\n  {}", draft.other.copy, draft.other.init));
        text
    }
}

#[cfg(not(feature = "host"))]
impl Init {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.role;
        Err(super::needs_host("init"))
    }
}
