//! Differences between two configurations of a box. Selects the differences that a running box can take over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use forebay_core::bundle::Nat;
use forebay_core::bundle::uplink::Member;
use forebay_core::units::{ByteCount, Rate};
use ipnet::IpNet;

use crate::daemon::config::{
    BundleConfig, Config, DatapathKind, KernelQdisc, Shaping, Uplink, unit_of,
};
use crate::daemon::keys::reader::Loaded;
use crate::port::XdpOptions;
use crate::service::outcome::{BundleOutcome, Fate, Outcome, Setting};

/// Origin of a bundle in the new configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleOrigin {
    /// The bundle begins with nothing.
    New,
    /// The bundle keeps its control loop.
    Kept {
        /// Index of the bundle in the earlier configuration.
        place: usize,
        /// The bundle has other keys.
        has_other_keys: bool,
    },
}

impl BundleOrigin {
    /// Index in the earlier configuration, if the bundle keeps its control loop.
    pub const fn place(self) -> Option<usize> {
        match self {
            Self::New => None,
            Self::Kept { place, .. } => Some(place),
        }
    }
}

/// Outcome of a switch from `before` to `after`, and the origin of each bundle of `after`. The switch is
/// refused if a setting differs that cannot change while the box runs.
pub fn between(before: &Loaded, after: &Loaded) -> (Outcome, Vec<BundleOrigin>) {
    let places: BTreeMap<&str, usize> = before.config.bundles.iter().zip(0..).map(named).collect();
    let fixed = [&before.config, &as_left_to(&before.config, &after.config)].map(fixed);
    let fixed = differing(fixed.each_ref().map(Vec::as_slice));
    let mut outcome = Outcome {
        file: after.config.file.display().to_string(),
        refused: fixed.iter().map(|setting| refusal(setting, &after.config)).collect(),
        settings: shares(before.config.uplink.as_ref(), after.config.uplink.as_ref()),
        ..Outcome::default()
    };
    let mut origins = Vec::with_capacity(after.config.bundles.len());
    for (place, bundle) in after.config.bundles.iter().enumerate() {
        let (fate, settings, origin) = match places.get(bundle.name.as_str()) {
            None => (Fate::Added, Vec::new(), BundleOrigin::New),
            Some(&earlier) => follow(before, earlier, after, place),
        };
        outcome.bundles.push(BundleOutcome { name: bundle.name.clone(), fate, settings });
        origins.push(origin);
    }
    let stays: BTreeMap<&str, usize> = after.config.bundles.iter().zip(0..).map(named).collect();
    let gone = before.config.bundles.iter().filter(|it| !stays.contains_key(it.name.as_str()));
    outcome.bundles.extend(gone.map(|bundle| {
        let (name, fate) = (bundle.name.clone(), Fate::Removed);
        BundleOutcome { name, fate, settings: Vec::new() }
    }));
    (outcome, origins)
}

fn named((bundle, place): (&BundleConfig, usize)) -> (&str, usize) {
    (&bundle.name, place)
}

/// Fate of a bundle that is in both configurations, at these indices.
fn follow(
    before: &Loaded,
    earlier: usize,
    after: &Loaded,
    place: usize,
) -> (Fate, Vec<Setting>, BundleOrigin) {
    let [one, other] = [&before.config.bundles[earlier], &after.config.bundles[place]];
    let both = [one, other].map(values);
    let anew: Vec<Setting> = differing(both.each_ref().map(|(anew, _)| anew.as_slice()));
    let live = differing(both.each_ref().map(|(_, live)| live.as_slice()));
    let member = |loaded: &Loaded, place: usize| share(loaded.config.uplink.as_ref(), place);
    let shares = [member(before, earlier), member(after, place)];
    let shares = differing(shares.each_ref().map(<[_; 3]>::as_slice));
    let has_other_keys = before.keys[earlier] != after.keys[place];
    let keys = [&one.key_file, &other.key_file].map(|file| file.display().to_string());
    let keys = match (has_other_keys, keys) {
        (true, [one, other]) if one == other => {
            Setting::new("key_file", [one, format!("{other} with other keys")])
        }
        (_, keys) => Setting::new("key_file", keys),
    };
    let begins_anew = !anew.is_empty();
    let settings: Vec<Setting> = anew.into_iter().chain(live).chain(shares).chain(keys).collect();
    let kept = BundleOrigin::Kept { place: earlier, has_other_keys };
    match (begins_anew, settings.is_empty()) {
        (true, _) => (Fate::Renewed, settings, BundleOrigin::New),
        (false, true) => (Fate::Unchanged, settings, kept),
        (false, false) => (Fate::Changed, settings, kept),
    }
}

/// Values by key.
type Values = Vec<(&'static str, String)>;

/// Settings of a bundle in two lists: the first need another session or control loop, the second can change while
/// the bundle runs. Shares and keys are compared separately.
fn values(bundle: &BundleConfig) -> (Values, Values) {
    // No key is left out: a new key does not compile until it is listed here.
    let BundleConfig { name: _, id, peer, to, from, key_file: _, nat, shaping } = bundle;
    let mut anew = vec![
        ("id", id.0.to_string()),
        ("peer", peer.to_string()),
        ("nat", shown(nat.map(Nat::name))),
    ];
    let mut live = vec![("to", prefixes(to)), ("from", prefixes(from))];
    if let Some(Shaping { cc, qdisc, supervised, min_rate, max_rate }) = shaping {
        anew.push(("cc", cc.to_string()));
        anew.push(("supervised", supervised.to_string()));
        live.push(("qdisc", qdisc.to_string()));
        live.push(("min_rate", shown(min_rate.as_ref())));
        live.push(("max_rate", shown(max_rate.as_ref())));
    }
    (anew, live)
}

/// The configuration `after`, with the datapath of `before` if `after` leaves the choice to the box.
fn as_left_to(before: &Config, after: &Config) -> Config {
    let mut after = after.clone();
    if after.datapath == DatapathKind::Auto {
        after.datapath = before.datapath;
    }
    after
}

/// Settings that a box takes only at its start: devices, sockets, files and identities for which it has
/// dropped the privileges.
fn fixed(config: &Config) -> Values {
    // As for `values`.
    let Config {
        file: _,
        name,
        role,
        is_only_of_role: _,
        lan,
        wan,
        forward,
        own,
        overhead,
        datapath,
        kernel_qdisc,
        listen,
        control,
        realtime,
        user,
        status_group,
        xdp: XdpOptions { zero_copy, busy_poll, threads },
        trace,
        metrics,
        uplink: _,
        bundles: _,
        // Set by the user who starts the box.
        by_socket: _,
        places: _,
    } = config;
    vec![
        ("box.name", name.clone()),
        ("box.role", role.to_string()),
        ("box.lan", shown(lan.as_ref())),
        ("box.wan", wan.clone()),
        ("box.forward", forward.name().into()),
        ("box.own", own.to_string()),
        ("box.overhead", shown(overhead.map(|bytes| ByteCount::new(bytes.into())))),
        ("box.datapath", datapath.name().into()),
        ("box.kernel_qdisc", shown(kernel_qdisc.map(KernelQdisc::name))),
        ("box.listen", listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ("box.control", control.display().to_string()),
        ("box.realtime", realtime.to_string()),
        ("box.user", shown(user.as_ref())),
        ("box.status_group", shown(status_group.as_ref())),
        ("xdp.zero_copy", zero_copy.to_string()),
        ("xdp.busy_poll", shown(busy_poll.map(|time| format!("{time:?}")))),
        ("xdp.threads", threads.to_string()),
        ("trace.file", shown(trace.as_ref().map(|trace| trace.file.display()))),
        ("trace.limit", shown(trace.as_ref().map(|trace| trace.limit))),
        ("metrics.listen", shown(metrics.as_ref())),
    ]
}

/// The settings that differ between two lists of the same keys.
fn differing([before, after]: [&[(&'static str, String)]; 2]) -> Vec<Setting> {
    let setting = |((key, one), (_, other)): (&(&'static str, String), &(&'static str, String))| {
        Setting::new(key, [one.clone(), other.clone()])
    };
    before.iter().zip(after).filter_map(setting).collect()
}

fn refusal(setting: &Setting, config: &Config) -> String {
    // If the file has several boxes of the role, the operator has made a unit for each.
    let unit = unit_of(config.role, &config.file).filter(|_| config.is_only_of_role);
    let restart = unit.map_or(String::new(), |unit| format!(" (`systemctl restart {unit}`)"));
    let setting = Setting { key: config.key(&setting.key), ..setting.clone() };
    format!(
        "{setting}: a box reads this only at its start: leave it unchanged, or start the box \
         again{restart}"
    )
}

/// Differences of the uplink and its groups, by name.
fn shares(before: Option<&Uplink>, after: Option<&Uplink>) -> Vec<Setting> {
    let both = [before, after];
    let rate = both.map(|uplink| shown(uplink.map(|uplink| uplink.shares.rate)));
    let groups = both.map(|uplink| uplink.map(groups).unwrap_or_default());
    let names: BTreeSet<&String> = groups.iter().flat_map(BTreeMap::keys).collect();
    let group = |name: &&String| {
        let values = groups.each_ref().map(|groups| shown(groups.get(*name)));
        Setting::new(&format!("group {name}"), values)
    };
    let settings = Setting::new("uplink.rate", rate).into_iter();
    settings.chain(names.iter().filter_map(group)).collect()
}

/// Each group, in the words of a configuration file.
fn groups(uplink: &Uplink) -> BTreeMap<String, String> {
    let values = |place| {
        let values = member(uplink, &uplink.shares.groups[place], "parent");
        values.map(|(key, value)| format!("{key} {value}")).join(", ")
    };
    uplink.groups.iter().zip(0..).map(|(name, place)| (name.clone(), values(place))).collect()
}

/// Share of a bundle in an uplink, by key.
fn share(uplink: Option<&Uplink>, place: usize) -> [(&'static str, String); 3] {
    let none = || shown(None::<&str>);
    match uplink {
        None => ["weight", "guarantee", "group"].map(|key| (key, none())),
        Some(uplink) => {
            let [weight, guarantee, _, group] =
                member(uplink, &uplink.shares.bundles[place], "group");
            [weight, guarantee, group]
        }
    }
}

fn member(uplink: &Uplink, member: &Member, parent: &'static str) -> [(&'static str, String); 4] {
    let share = member.share;
    [
        ("weight", share.weight.to_string()),
        ("guarantee", shown(share.guarantee)),
        ("max_rate", shown::<Rate>(share.max_rate)),
        (parent, shown(member.group.map(|group| &uplink.groups[group]))),
    ]
}

fn prefixes(prefixes: &[IpNet]) -> String {
    // Sorted, since their order has no meaning.
    let mut sorted: Vec<&IpNet> = prefixes.iter().collect();
    sorted.sort();
    let texts: Vec<String> = sorted.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}

fn shown<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "none".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay_core::bundle::keys::{KeyRing, PresharedKey};

    use super::*;

    const FILE: &str = r#"
[box]
role = "sendbox"
lan = "s0"
wan = "s1"
listen = "10.1.3.1"

[[bundle]]
name = "a"
id = 1
peer = "10.1.3.2"
to = ["10.1.2.0/24", "10.1.4.0/24"]
key_file = "a.key"
cc = "copa"
max_rate = "20Mbit/s"
weight = 3

[[bundle]]
name = "b"
id = 2
peer = "10.1.3.2"
to = ["10.1.5.0/24"]
key_file = "b.key"
cc = "copa"
group = "g"

[uplink]
rate = "100Mbit/s"
[[group]]
name = "g"
weight = 2
"#;

    fn loaded(text: &str) -> Loaded {
        let config = Config::parse(Path::new("/etc/forebay/box.toml"), text).unwrap();
        let keys = config.bundles.iter().map(|_| KeyRing::new(PresharedKey::new([1; 32]), None));
        Loaded { text: text.into(), keys: keys.collect(), config }
    }

    fn edited(edits: &[(&str, &str)]) -> Loaded {
        let text = edits.iter().fold(FILE.to_string(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        loaded(&text)
    }

    fn kept(place: usize) -> BundleOrigin {
        BundleOrigin::Kept { place, has_other_keys: false }
    }

    #[test]
    fn equivalent_configurations_are_unchanged() {
        let edits = [
            ("\"10.1.2.0/24\", \"10.1.4.0/24\"", "\"10.1.4.0/24\", \"10.1.2.0/24\""),
            ("\"20Mbit/s\"", "\"20000kbit/s\""),
            ("weight = 2", "weight = 2 # as before"),
            ("peer = \"10.1.3.2\"", "peer = \"10.1.3.2:61476\""),
        ];
        let (outcome, origins) = between(&loaded(FILE), &edited(&edits));
        assert!(outcome.is_nothing() && outcome.refused.is_empty(), "{outcome}");
        assert_eq!(origins, [kept(0), kept(1)]);
    }

    #[test]
    fn reloadable_value_changes_only_its_bundle() {
        for (from, to, key, before, after) in [
            ("weight = 3", "weight = 5", "weight", "3", "5"),
            ("weight = 3", "", "weight", "3", "1"),
            ("weight = 3", "guarantee = \"5Mbit/s\"\nweight = 3", "guarantee", "none", "5Mbit/s"),
            ("weight = 3", "weight = 3\ngroup = \"g\"", "group", "none", "g"),
            ("max_rate = \"20Mbit/s\"\n", "", "max_rate", "20Mbit/s", "none"),
            ("max_rate = \"20", "max_rate = \"30", "max_rate", "20Mbit/s", "30Mbit/s"),
            (", \"10.1.4.0/24\"", "", "to", "[10.1.2.0/24, 10.1.4.0/24]", "[10.1.2.0/24]"),
            ("cc =", "from = [\"10.0.0.0/8\"]\ncc =", "from", "[]", "[10.0.0.0/8]"),
            ("cc =", "min_rate = \"2Mbit/s\"\ncc =", "min_rate", "none", "2Mbit/s"),
            ("a.key", "c.key", "key_file", "/etc/forebay/a.key", "/etc/forebay/c.key"),
        ] {
            let (outcome, origins) = between(&loaded(FILE), &edited(&[(from, to)]));
            assert_eq!(outcome.refused, [""; 0], "{to}");
            assert_eq!(origins, [kept(0), kept(1)], "{to}");
            let [first, second] = &outcome.bundles[..] else { panic!("{outcome}") };
            assert_eq!((first.fate, second.fate), (Fate::Changed, Fate::Unchanged), "{to}");
            let [setting] = &first.settings[..] else { panic!("{to}: {outcome}") };
            assert_eq!([&setting.key, &setting.before, &setting.after], [key, before, after]);
        }
        let edit = ("cc = \"copa\"\nmax", "cc = \"copa\"\nqdisc = \"sfq\"\nmax");
        let (outcome, _) = between(&loaded(FILE), &edited(&[edit]));
        assert_eq!(outcome.bundles[0].settings[0].key, "qdisc", "{outcome}");
    }

    #[test]
    fn changed_keys_are_reported_without_their_content() {
        let mut after = loaded(FILE);
        after.keys[1] = KeyRing::new(PresharedKey::new([7; 32]), None);
        let (outcome, origins) = between(&loaded(FILE), &after);
        assert_eq!(origins, [kept(0), BundleOrigin::Kept { place: 1, has_other_keys: true }]);
        let text = outcome.listing();
        assert!(text.contains("-> /etc/forebay/b.key with other keys") && !text.contains("07"));
    }

    #[test]
    fn session_or_loop_change_restarts_the_bundle() {
        for edit in [
            ("id = 1", "id = 7"),
            ("10.1.3.2\"\nto = [\"10.1.2", "10.1.3.9\"\nto = [\"10.1.2"),
            ("\"copa\"\nmax", "\"bbr\"\nmax"),
            ("\"copa\"\nmax", "\"copa\"\nsupervised = false\nmax"),
        ] {
            let (outcome, origins) = between(&loaded(FILE), &edited(&[edit]));
            assert_eq!(outcome.bundles[0].fate, Fate::Renewed, "{edit:?}");
            assert_eq!(origins, [BundleOrigin::New, kept(1)]);
        }
        // The order of bundles has no meaning.
        let (outcome, origins) =
            between(&loaded(FILE), &edited(&[("name = \"a\"", "name = \"c\"")]));
        let fates: Vec<(&str, Fate)> =
            outcome.bundles.iter().map(|it| (it.name.as_str(), it.fate)).collect();
        assert_eq!(fates, [("c", Fate::Added), ("b", Fate::Unchanged), ("a", Fate::Removed)]);
        assert_eq!(origins, [BundleOrigin::New, kept(1)]);
        let second = FILE.find("[[bundle]]\nname = \"b\"").unwrap();
        let (head, tail) = (FILE.find("[[bundle]]").unwrap(), FILE.find("[uplink]").unwrap());
        let turned = [&FILE[..head], &FILE[second..tail], &FILE[head..second], &FILE[tail..]];
        let (outcome, origins) = between(&loaded(FILE), &loaded(&turned.concat()));
        assert!(outcome.is_nothing(), "{outcome}");
        assert_eq!(origins, [kept(1), kept(0)]);
    }

    #[test]
    fn start_only_keys_are_refused_with_advice() {
        for (from, to, named) in [
            ("\"s0\"", "\"s2\"", "box.lan s0 -> s2: "),
            ("\"s1\"", "\"s3\"", "box.wan s1 -> s3: "),
            ("10.1.3.1\"", "10.1.3.1:7000\"", "box.listen 10.1.3.1:61475 -> 10.1.3.1:7000: "),
            ("lan =", "control = \"c\"\nlan =", "box.control /run/forebay/sendbox.sock -> "),
            ("lan =", "realtime = false\nlan =", "box.realtime true -> false: "),
            ("lan =", "user = \"u\"\nlan =", "box.user none -> u: "),
            ("lan =", "status_group = \"g\"\nlan =", "box.status_group none -> g: "),
            ("[uplink]", "[trace]\nfile = \"t\"\n[uplink]", "trace.file none -> /etc/forebay/t: "),
            (
                "[uplink]",
                "[metrics]\nlisten = \"::1\"\n[uplink]",
                "metrics.listen none -> [::1]:9475: ",
            ),
        ] {
            let edits = [(from, to), ("weight = 3", "weight = 5")];
            let (outcome, _) = between(&loaded(FILE), &edited(&edits));
            let all = outcome.refused.join("\n");
            assert!(
                all.contains(named) && all.contains("restart forebay-sendbox@box`"),
                "{named}: {all}"
            );
        }
        let edits = [("\"s0\"", "\"s2\""), ("\"s1\"", "\"s3\"")];
        assert_eq!(between(&loaded(FILE), &edited(&edits)).0.refused.len(), 2);
        let mut one_of_several = edited(&edits[..1]);
        one_of_several.config.is_only_of_role = false;
        let refused = between(&loaded(FILE), &one_of_several).0.refused.concat();
        assert!(refused.ends_with("or start the box again"), "{refused}");
    }

    #[test]
    fn default_may_be_written_as_its_value() {
        let second = FILE.find("[[bundle]]\nname = \"b\"").unwrap();
        let one = FILE[..second].replace("weight = 3\n", "");
        let text = one.replace("lan =", "datapath = \"auto\"\nlan =");
        let mut running = loaded(&text);
        running.config.datapath = DatapathKind::Kernel;
        let (outcome, _) = between(&running, &loaded(&text));
        assert!(outcome.is_nothing() && outcome.refused.is_empty(), "{outcome}");
        let (outcome, _) = between(&running, &loaded(&text.replace("auto", "user")));
        let all = outcome.refused.join("\n");
        assert!(all.contains("box.datapath kernel -> user: "), "{all}");
    }

    #[test]
    fn uplink_and_group_shares_are_reported_by_name() {
        let edits = [("100Mbit/s", "50Mbit/s"), ("weight = 2", "weight = 4")];
        let (outcome, _) = between(&loaded(FILE), &edited(&edits));
        let told: Vec<String> = outcome.settings.iter().map(Setting::to_string).collect();
        assert_eq!(
            told,
            [
                "uplink.rate 100Mbit/s -> 50Mbit/s",
                "group g weight 2, guarantee none, max_rate none, parent none -> weight 4, guarantee none, \
                 max_rate none, parent none",
            ]
        );
        assert!(outcome.bundles.iter().all(|bundle| bundle.fate == Fate::Unchanged));
    }

    /// A thousand bundles in 50 groups, in the style of `FILE`.
    fn thousand() -> String {
        let (head, tail) = (FILE.find("[[bundle]]").unwrap(), FILE.find("[uplink]").unwrap());
        let bundle = |id: u32| {
            format!(
                "[[bundle]]\nname = \"site-{id}\"\nid = {id}\npeer = \"10.1.3.2\"\n\
                 to = [\"10.{}.{}.0/24\"]\nkey_file = \"{id}.key\"\ncc = \"copa\"\ngroup = \"g{}\"\n",
                4 + id / 256,
                id % 256,
                id % 50
            )
        };
        let bundles: String = (0..1000).map(bundle).collect();
        let groups: String = (0..50).map(|id| format!("[[group]]\nname = \"g{id}\"\n")).collect();
        let uplink = &FILE[tail..FILE.find("[[group]]").unwrap()];
        [&FILE[..head], bundles.as_str(), uplink, groups.as_str()].concat()
    }

    #[test]
    fn only_the_changed_bundle_of_thousand_is_touched() {
        let before = loaded(&thousand());
        let text = thousand().replace("\"10.5.17.0/24\"", "\"10.5.17.0/24\", \"10.99.0.0/24\"");
        let (outcome, origins) = between(&before, &loaded(&text));
        assert!(origins.iter().enumerate().all(|(place, origin)| *origin == kept(place)));
        let touched: Vec<(&str, &str)> = outcome
            .bundles
            .iter()
            .filter(|bundle| bundle.fate != Fate::Unchanged)
            .map(|bundle| (bundle.name.as_str(), bundle.settings[0].key.as_str()))
            .collect();
        assert_eq!(touched, [("site-273", "to")]);

        // One bundle ends, and all bundles behind it move up.
        let [from, to] = ["site-500", "site-501"]
            .map(|name| text.find(&format!("[[bundle]]\nname = \"{name}\"")).unwrap());
        let (outcome, origins) = between(&before, &loaded(&[&text[..from], &text[to..]].concat()));
        let moved = |place: usize| kept(if place < 500 { place } else { place + 1 });
        assert!(origins.iter().enumerate().all(|(place, origin)| *origin == moved(place)));
        let removed = outcome.bundles.iter().filter(|bundle| bundle.fate == Fate::Removed);
        assert_eq!(removed.map(|bundle| bundle.name.as_str()).collect::<Vec<_>>(), ["site-500"]);
        let change =
            super::super::ReloadChange { config: before.config, keys: before.keys, origins };
        assert_eq!(change.gone(1000), [500]);
    }
}
