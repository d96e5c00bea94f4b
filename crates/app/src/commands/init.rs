//! `forebay init`: a first configuration for this machine.

use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `forebay init`.
///
/// Asks the kernel for routes, devices, MTU, offloads and qdiscs, and writes a commented configuration for
/// this machine, with a key. It prints its findings, the reasons for its choices, and the commands for the
/// other site. It changes nothing else on the machine, and never overwrites a file.
///
/// On a machine that routes, `forward = "route"` is written: one network device will do. If the route to --to leaves
/// through a bridge with two ports, the sendbox is placed between them. If the route leaves through a tunnel such as
/// WireGuard, the tunnel's device is the WAN.
///
/// Exit code 2: an option is wrong, a file is there already, or the kernel could not say all that a box needs.
#[derive(clap::Args)]
pub struct Init {
    #[command(subcommand)]
    role: RoleOf,
}

#[derive(clap::Subcommand)]
enum RoleOf {
    /// Write the file of a sendbox: the gateway whose site sends.
    Sendbox(Sendbox),
    /// Write the file of a receivebox: the gateway, or host, that the packets come to.
    Receivebox(Receivebox),
}

/// Arguments of `forebay init sendbox`.
#[derive(clap::Args)]
struct Sendbox {
    /// The networks at the other site; several with commas.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// The networks of this site [default: packets from anywhere].
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    from: Vec<String>,
    /// Port of a bridge towards the hosts [default: as the bridge sees the next hop].
    #[arg(long, value_name = "DEVICE")]
    lan: Option<String>,
    /// Take packets that this machine itself sends into the bundle, too; the default where the machine does
    /// not forward.
    #[arg(long)]
    own: bool,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `forebay init receivebox`.
#[derive(clap::Args)]
struct Receivebox {
    /// The networks at the sendbox's site; several with commas.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', required = true)]
    from: Vec<String>,
    /// The networks of this site [default: those connected here, or this host alone if it does not forward].
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    to: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// The other box: its address or name, as this machine reaches it.
    #[arg(long, value_name = "ADDRESS")]
    peer: String,
    /// Take this key, which the other box's init has made [default: the file's name with .key, made if it is not there].
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Name of box and bundle, and of its file /etc/forebay/NAME.toml [default: to-ADDRESS or from-ADDRESS].
    #[arg(long)]
    name: Option<String>,
    /// Write this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Number of the bundle, the same at both boxes, 0 to 65535 [default: 1].
    #[arg(long)]
    id: Option<u16>,
    /// Device towards the other site [default: the device that the route leaves through].
    #[arg(long, value_name = "DEVICE")]
    wan: Option<String>,
    /// This machine's address for messages [default: the source address of the route to the peer].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Write nothing, and print the file: values that the kernel cannot give are comments in it.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document, and nothing else, on stdout.
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
                draft.check().map_err(|error| BadInput(format!("refused as a file: {error}")))?;
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
                let advice = "--dry-run prints a file with the open values commented out";
                return Err(
                    BadInput(format!("not known on this machine:\n{open}\n{advice}")).into()
                );
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
        line("\nSeen:".into());
        draft.seen.iter().for_each(|seen| line(format!("  {seen}")));
        line("\nChosen:".into());
        for chosen in &draft.chosen {
            let value = chosen.value.as_deref().unwrap_or("OPEN");
            line(format!("  {} = {value}\n      {}", chosen.key, chosen.why));
        }
        line("\nBefore the start:".into());
        for step in &draft.before {
            line(format!("  {}\n      {}", step.command, step.why));
        }
        line("\nHere, once `forebay doctor` finds nothing that fails:".into());
        line(format!("  forebay doctor --config {file}\n  {}", draft.start));
        line("\nAt the other site, with the same key, unless it has its file:".into());
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
