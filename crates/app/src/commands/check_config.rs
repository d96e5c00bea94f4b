//! `forebay check-config`: shows how a daemon would use a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "host")]
use forebay_core::bundle::uplink::{Member, Share};
#[cfg(feature = "host")]
use forebay_core::text::without_keys;
#[cfg(feature = "host")]
use forebay_host::daemon::{Config, ConfigError, keys};

/// Longest key and value in a JSON document (characters), as in messages.
#[cfg(feature = "host")]
const PART_CHARS: usize = 80;

/// Check the configuration file of a sendbox or receivebox.
///
/// Prints one line for each bundle: its networks, algorithm, queues and rates. Also reads the key
/// files, and looks for the device that a router names as its `lan`.
///
/// Exit code 2: the file is wrong; each mistake has its line, key and allowed values.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay check-config /etc/forebay/sendbox.toml\n  \
    forebay check-config /etc/forebay/sendbox.toml --json")]
pub struct CheckConfig {
    /// The configuration file of a sendbox or receivebox.
    file: PathBuf,
    /// Print one JSON document and nothing else on stdout: the boxes with their bundles, or the
    /// problems of the file.
    #[arg(long)]
    json: bool,
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
fn queues(config: &Config, qdisc: &forebay_core::spec::Spec) -> String {
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
    /// Prints one line per bundle, or all problems with exit code 2.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        use super::{BadInput, print};

        match (checked(&self.file), self.json) {
            (Ok(boxes), true) => {
                let boxes: Vec<_> = boxes.iter().map(document).collect();
                print(&format!("{}\n", serde_json::json!({ "boxes": boxes, "problems": [] })))?;
            }
            (Ok(boxes), false) => {
                let mut text = String::new();
                boxes.iter().try_for_each(|config| describe(config, &mut text))?;
                print(&text)?;
            }
            (Err(error), true) => {
                let problems: Vec<_> = error.problems.iter().map(problem).collect();
                print(&format!("{}\n", serde_json::json!({ "boxes": [], "problems": problems })))?;
                return Ok(ExitCode::from(2));
            }
            (Err(error), false) => return Err(BadInput(error.to_string()).into()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The boxes of a file. Key files are read too, and the device that a router names as its `lan` must be there.
#[cfg(feature = "host")]
fn checked(file: &std::path::Path) -> Result<Vec<Config>, ConfigError> {
    let boxes = Config::load_all(file)?;
    for config in &boxes {
        keys::read_all(config)?;
        config.expect_lan()?;
    }
    Ok(boxes)
}

/// A problem of the file: its place and its parts as far as known, and the whole message.
#[cfg(feature = "host")]
fn problem(problem: &forebay_host::daemon::ConfigProblem) -> serde_json::Value {
    let plain = |part: &str| without_keys(part).chars().take(PART_CHARS).collect::<String>();
    let [key, value, allowed] = problem.parts();
    let [key, value] = [key, value].map(|part| part.map(plain));
    let allowed = allowed.map(without_keys);
    serde_json::json!({
        "file": problem.file, "line": problem.line, "column": problem.column,
        "key": key, "value": value, "allowed": allowed, "message": problem.to_string(),
    })
}

/// A box as a JSON document. Rates are in bits per second, and null where the file gives none.
#[cfg(feature = "host")]
fn document(config: &Config) -> serde_json::Value {
    fn texts<T: ToString>(list: &[T]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }
    let bps = |rate: Option<forebay_core::units::Rate>| rate.map(|it| it.as_bits_per_sec());
    let share = |member: &Member, groups: &[String]| {
        let Share { weight, guarantee, .. } = member.share;
        serde_json::json!({ "weight": weight, "guarantee_bps": bps(guarantee),
                            "group": member.group.map(|group| &groups[group]) })
    };
    let bundle = |(place, bundle): (usize, &forebay_host::daemon::BundleConfig)| {
        let shaping = bundle.shaping.as_ref();
        let uplink = config.uplink.as_ref();
        serde_json::json!({
            "name": bundle.name, "id": bundle.id.0, "peer": bundle.peer.to_string(),
            "to": texts(&bundle.to), "from": texts(&bundle.from),
            "key_file": bundle.key_file, "nat": bundle.nat.map(|nat| nat.name()),
            "cc": shaping.map(|it| it.cc.to_string()),
            "queues": shaping.map(|it| queues(config, &it.qdisc)),
            "supervised": shaping.map(|it| it.supervised),
            "min_rate_bps": bps(shaping.and_then(|it| it.min_rate)),
            "max_rate_bps": bps(shaping.and_then(|it| it.max_rate)),
            "share": uplink.map(|it| share(&it.shares.bundles[place], &it.groups)),
        })
    };
    serde_json::json!({
        "file": config.file, "name": config.name, "role": config.role.to_string(),
        "listen": texts(&config.listen), "lan": config.lan, "wan": config.wan,
        "forward": config.forward, "own": config.own, "control": config.control,
        "metrics": config.metrics.map(|it| it.to_string()),
        "uplink_bps": config.uplink.as_ref().and_then(|it| bps(Some(it.shares.rate))),
        "bundles": config.bundles.iter().enumerate().map(bundle).collect::<Vec<_>>(),
    })
}

/// Describes the box, and each bundle in a line.
#[cfg(feature = "host")]
fn describe(config: &Config, text: &mut String) -> std::fmt::Result {
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
        let _ = (self.file, self.json);
        Err(super::needs_host("check-config"))
    }
}
