//! `forebay check-config`: shows how a daemon would use a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "host")]
use forebay_core::bundle::uplink::{Member, Share};

/// Check the configuration file of a sendbox or receivebox.
///
/// Prints one line for each bundle: its networks, algorithm, queues and rates. Also reads the key
/// files, and looks for the device that a router names as its `lan`.
///
/// Exit code 2: the file is wrong; each mistake has its line, key and allowed values.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay check-config /etc/forebay/sendbox.toml")]
pub struct CheckConfig {
    /// The configuration file of a sendbox or receivebox.
    file: PathBuf,
}

/// The share of a group or bundle in its group or in the uplink.
#[cfg(feature = "host")]
fn share(member: &Member, groups: &[String]) -> String {
    let Share { weight, guarantee, .. } = member.share;
    let of = member.group.map_or("the uplink", |group| groups[group].as_str());
    let guaranteed = guarantee.map_or(String::new(), |rate| format!(", {rate} guaranteed"));
    format!(", weight {weight} in {of}{guaranteed}")
}

/// The queues of a bundle's packets, with the value of each parameter; `qdisc`: the queues in the box.
#[cfg(feature = "host")]
fn queues(config: &forebay_host::daemon::Config, qdisc: &forebay_core::spec::Spec) -> String {
    use forebay_core::qdisc::written_out;
    use forebay_host::daemon::config::DatapathKind;

    let in_box = || written_out(qdisc).unwrap_or_else(|_| qdisc.clone()).to_string();
    let in_kernel = || {
        config.kernel_qdisc.map_or_else(
            || "queues of the kernel by flow (HTB)".into(),
            |it| format!("the kernel's {} (HTB)", it.name()),
        )
    };
    match config.datapath {
        DatapathKind::Auto => format!("{}, or else {}", in_kernel(), in_box()),
        datapath if datapath.is_in_kernel() => in_kernel(),
        _ => in_box(),
    }
}

#[cfg(feature = "host")]
impl CheckConfig {
    /// Prints one line per bundle, or all that is wrong, with exit code 2. Key files are read too, and the device that a router names as its
    /// `lan` must be there.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use forebay_host::daemon::{Config, ConfigError, keys};

        use super::{BadInput, print};

        let refused = |error: ConfigError| BadInput(error.to_string());
        let boxes = Config::load_all(&self.file).map_err(refused)?;
        for config in &boxes {
            keys::read_all(config).map_err(refused)?;
            config.expect_lan().map_err(refused)?;
        }
        let mut text = String::new();
        for config in &boxes {
            describe(config, &mut text)?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Describes the box, and each bundle in a line.
#[cfg(feature = "host")]
fn describe(config: &forebay_host::daemon::Config, text: &mut String) -> std::fmt::Result {
    use std::fmt::Write as _;

    use forebay_host::daemon::config::{Forward, Role, Uplink};

    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    let listen = listen.join(" and ");
    writeln!(text, "{}: {} on {listen}", config.file.display(), config.role)?;
    if config.role == Role::Sendbox && config.forward == Forward::Route {
        let own = if config.own { ", and the packets that this machine sends" } else { "" };
        let from = config.lan.as_ref().map_or(String::new(), |lan| format!(" packets from {lan}"));
        writeln!(text, "  routes{from} through {}{own}", config.wan)?;
    }
    if let Some(metrics) = config.metrics {
        writeln!(text, "  metrics at http://{metrics}/metrics")?;
    }
    if let Some(Uplink { shares, groups }) = &config.uplink {
        writeln!(text, "  uplink of {}", shares.rate)?;
        for (name, group) in groups.iter().zip(&shares.groups) {
            let max = group
                .share
                .max_rate
                .map_or("no maximum rate".into(), |rate| format!("at most {rate}"));
            writeln!(text, "  group {name}: {max}{}", share(group, groups))?;
        }
    }
    for (place, bundle) in config.bundles.iter().enumerate() {
        let list = |prefixes: &[_]| {
            prefixes.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
        };
        let from = if bundle.from.is_empty() { "any".into() } else { list(&bundle.from) };
        let to = list(&bundle.to);
        let (name, id, peer) = (&bundle.name, bundle.id.0, &bundle.peer);
        let nat = bundle.nat.map_or(String::new(), |nat| format!(" behind NAT ({})", nat.name()));
        write!(text, "  {name} (id {id}): {from} -> {to}, peer {peer}{nat}")?;
        match &bundle.shaping {
            Some(shaping) => {
                let max = shaping.max_rate;
                let max = max.map_or("no maximum rate".into(), |rate| format!("at most {rate}"));
                let min = shaping.min_rate;
                let min =
                    min.map_or("automatic minimum rate".into(), |rate| format!("at least {rate}"));
                let cc = &shaping.cc;
                let queues = queues(config, &shaping.qdisc);
                let uplink = config.uplink.as_ref();
                let share = uplink.map(|it| share(&it.shares.bundles[place], &it.groups));
                let share = share.unwrap_or_default();
                writeln!(text, ", {cc} over {queues}, {min}, {max}{share}")?;
            }
            None => text.push('\n'),
        }
    }
    Ok(())
}

#[cfg(not(feature = "host"))]
impl CheckConfig {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self.file;
        Err(super::needs_host("check-config"))
    }
}
