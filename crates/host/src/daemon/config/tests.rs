mod boxes;

use super::*;
use forebay_core::bundle::uplink::{Member, Share};
use forebay_core::qdisc::bundle_default;

const SENDBOX: &str = r#"
[box]
role = "sendbox"
lan = "s0"
wan = "s1"
listen = "10.1.3.1"

[[bundle]]
name = "b"
id = 1
peer = "10.1.3.2:7000"
to = ["10.1.2.0/24", "2001:db8:2::/48"]
key_file = "bundle.key"
cc = "copa"
qdisc = { kind = "sfq", limit = "1200p" }
min_rate = "2Mbit/s"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("/etc/forebay/a.toml"), text)
}

#[test]
fn guide_files_match_and_reference_is_complete() {
    let guide = include_str!("../../../../../docs/operate/two-sites.md");
    let files: Vec<Config> = guide
        .split("```toml\n")
        .skip(1)
        .map(|rest| parse(rest.split("```").next().unwrap()).unwrap())
        .collect();
    let [sendbox, receivebox] = &files[..] else { panic!("{files:?}") };
    assert_eq!((sendbox.role, receivebox.role), (Role::Sendbox, Role::Receivebox));
    assert_eq!(sendbox.bundles[0].peer, receivebox.listen[0].into());
    assert_eq!(receivebox.bundles[0].peer, sendbox.listen[0].into());
    assert_eq!(sendbox.bundles[0].shaping.as_ref().unwrap().qdisc, bundle_default());
    let step = |command: &str| guide.find(command).unwrap_or_else(|| panic!("{command}"));
    assert!(
        step("forebay keygen") < step("forebay doctor --config sendbox"),
        "a key is made first"
    );
    let reference = include_str!("../../../../../docs/reference/README.md");
    // Without the values: tests know a datapath more.
    for row in schema::ONE.root.markdown().lines().filter(|line| line.starts_with("| `")) {
        let key = row.split(" | ").next().unwrap();
        assert!(reference.contains(&format!("\n{key} | ")), "run `cargo xtask reference`: {key}");
    }
}

#[test]
fn package_files_configure_a_matching_pair() {
    let [sendbox, receivebox] = [
        include_str!("../../../../../packaging/etc/sendbox.toml"),
        include_str!("../../../../../packaging/etc/receivebox.toml"),
    ]
    .map(|text| parse(text).unwrap());
    assert_eq!((sendbox.role, receivebox.role), (Role::Sendbox, Role::Receivebox));
    let ([sent], [received]) = (&sendbox.bundles[..], &receivebox.bundles[..]) else { panic!() };
    let peers = [sent.peer.clone(), received.peer.clone()];
    assert_eq!(peers, [receivebox.listen[0], sendbox.listen[0]].map(Peer::At));
    assert_eq!((&sent.name, sent.id, &sent.to), (&received.name, received.id, &received.to));
    assert_eq!(sent.shaping.as_ref().unwrap().qdisc, bundle_default());
}

#[test]
fn a_unit_reads_the_file_of_its_name() {
    let unit = |file: &str| unit_of(Role::Sendbox, Path::new(file));
    assert_eq!(unit("/etc/forebay/site-b.1.toml").unwrap(), "forebay-sendbox@site-b.1");
    for file in
        ["/etc/forebay/b.conf", "/etc/forebay/.toml", "/etc/forebay/a b.toml", "/etc/b.toml"]
    {
        assert_eq!(unit(file), None, "{file}");
    }
    assert_eq!(unit("/etc/forebay/below/b.toml"), None);
}

#[test]
fn a_complete_file_is_read_with_its_defaults() {
    let config = parse(SENDBOX).unwrap();
    assert_eq!(config.listen, ["10.1.3.1:61475".parse().unwrap()]);
    assert_eq!(config.control, Path::new("/run/forebay/sendbox.sock"));
    let bundle = &config.bundles[0];
    assert_eq!(bundle.peer.to_string(), "10.1.3.2:7000");
    assert_eq!(bundle.key_file, Path::new("/etc/forebay/bundle.key"));
    let shaping = bundle.shaping.as_ref().unwrap();
    assert_eq!(shaping.min_rate, Some(Rate::from_mbit_per_sec(2)));
    assert_eq!(shaping.max_rate, None);
    assert_eq!(shaping.qdisc.kind, "sfq");
    let unnamed = SENDBOX.replace("qdisc = { kind = \"sfq\", limit = \"1200p\" }\n", "");
    let unnamed = parse(&unnamed).unwrap();
    assert_eq!(unnamed.bundles[0].shaping.as_ref().unwrap().qdisc, bundle_default());
    assert!(config.expect_role(Role::Receivebox).is_err());
}

#[test]
fn both_roles_on_one_machine_use_separate_ports() {
    let sendbox = parse(&SENDBOX.replace("10.1.3.2:7000", "10.1.3.2")).unwrap();
    let receivebox = SENDBOX.replace("\"sendbox\"\nlan = \"s0\"", "\"receivebox\"");
    let receivebox = receivebox
        .replace("10.1.3.2:7000", "10.1.3.2")
        .replace("key_f", "from = [\"10.1.1.0/24\"]\nkey_f");
    let receivebox = parse(&receivebox[..receivebox.find("cc = ").unwrap()]).unwrap();
    assert_ne!(sendbox.listen, receivebox.listen);
    assert_ne!(sendbox.control, receivebox.control);
    for (one, other) in [(&sendbox, &receivebox), (&receivebox, &sendbox)] {
        assert_eq!(one.bundles[0].peer.address().unwrap().port(), other.listen[0].port());
    }
}

/// The sample without its bridge.
fn routed(keys: &str) -> String {
    let text = SENDBOX.replace("qdisc = { kind = \"sfq\", limit = \"1200p\" }\n", "");
    text.replace("lan = \"s0\"\n", keys)
}

#[test]
fn without_lan_the_machine_routes() {
    let config = |keys: &str| parse(&routed(keys)).unwrap();
    let bridged = config("lan = \"s0\"\n");
    let datapath = (bridged.forward, bridged.own, bridged.datapath);
    assert_eq!(datapath, (Forward::Bridge, false, DatapathKind::User));
    for keys in ["", "forward = \"route\"\n"] {
        let Config { lan, forward, own, datapath, .. } = config(keys);
        let expected = (None, Forward::Route, false, DatapathKind::Auto);
        assert_eq!((lan, forward, own, datapath), expected, "{keys:?}");
    }
    for lan in ["s0", "s1"] {
        let of_one = config(&format!("lan = \"{lan}\"\nforward = \"route\"\nown = true\n"));
        assert_eq!((of_one.lan.as_deref(), of_one.own), (Some(lan), true));
    }
    for datapath in [DatapathKind::Kernel, DatapathKind::User] {
        let keys = format!("forward = \"route\"\ndatapath = \"{}\"\n", datapath.name());
        assert_eq!(config(&keys).datapath, datapath);
    }
    // If a bundle has its own discipline, packets must pass the process.
    let with_qdisc = SENDBOX.replace("lan = \"s0\"", "forward = \"route\"");
    assert_eq!(parse(&with_qdisc).unwrap().datapath, DatapathKind::User);
}

#[test]
fn router_names_a_device_that_is_there() {
    let of = |lan: &str| {
        let config = parse(&routed(&format!("lan = \"{lan}\"\nforward = \"route\"\n"))).unwrap();
        config.expect_lan().map_err(|error| error.to_string())
    };
    assert_eq!(of("lo"), Ok(()));
    let error = of("nonesuch0").unwrap_err();
    let named =
        "/etc/forebay/a.toml:4: box.lan = \"nonesuch0\": allowed is a device of this machine (";
    assert!(error.starts_with(named) && error.contains("lo"), "{error}");
    // A box waits for the ports of a bridge.
    assert_eq!(parse(&SENDBOX.replace("s0", "nonesuch0")).unwrap().expect_lan(), Ok(()));
}

/// Each row: keys that replace `lan`, and texts that the message must contain.
#[test]
fn unsuitable_router_keys_are_refused() {
    let rows: &[(&str, &[&str])] = &[
        ("forward = \"nat\"", &[":4: box.forward = \"nat\"", "\"bridge\" or \"route\""]),
        ("forward = true", &[":4: box.forward = true", "\"bridge\" or \"route\""]),
        ("forward = \"bridge\"", &[":4: box.forward = \"bridge\"", "\"route\" without box.lan"]),
        ("lan = \"a/b\"\nforward = \"route\"", &[":4: box.lan = \"a/b\"", "device's name"]),
        ("own = \"yes\"", &[":4: box.own = \"yes\"", "true or false"]),
        (
            "lan = \"s0\"\nown = true",
            &[":5: box.own = true", "false with box.forward = \"bridge\""],
        ),
    ];
    for (keys, named) in rows {
        let error = parse(&routed(&format!("{keys}\n"))).expect_err(keys).to_string();
        for part in *named {
            assert!(error.contains(part), "{keys}: {error:?} does not name {part:?}");
        }
    }
}

#[test]
fn a_receivebox_forwards_nothing() {
    let text = SENDBOX.replace("\"sendbox\"\nlan = \"s0\"", "\"receivebox\"");
    let text = text.replace("key_file", "from = [\"10.1.1.0/24\"]\nkey_file");
    let text = &text[..text.find("cc = ").unwrap()];
    for key in ["forward = \"route\"", "forward = \"bridge\"", "own = true", "own = false"] {
        let wrong = text.replace("wan = ", &format!("{key}\nwan = "));
        let error = parse(&wrong).unwrap_err().to_string();
        assert!(error.contains(&format!(":4: box.{key}: allowed is nothing")), "{error}");
    }
}

/// Each row: the replaced text, its replacement, and texts that the message must contain.
#[test]
fn error_names_line_key_value_and_allowed_values() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("role = \"sendbox\"", "role = \"relay\"", &[":3:", "box.role", "relay", "receivebox"]),
        (
            "lan = \"s0\"",
            "lann = \"s0\"",
            &[":4:", "box.lann", "s0", "no such key", "role, lan, wan"],
        ),
        ("lan = \"s0\"", "lan = \"s1\"", &[":4:", "box.lan", "s1", "other than"]),
        ("lan = \"s0\"\n", "", &["box.lan is missing"]),
        ("wan = \"s1\"", "wan = \"a/b\"", &[":5:", "box.wan", "a/b", "device"]),
        ("\"10.1.3.1\"", "\"0.0.0.0\"", &[":6:", "box.listen", "0.0.0.0", "one host's"]),
        ("\"10.1.3.1\"", "10", &[":6:", "box.listen = 10", "\"10.1.3.1\""]),
        ("lan = \"s0\"", "lan = \"s0\"\nuser = \"a b\"", &[":5:", "box.user", "a b", "letters"]),
        ("lan = \"s0\"", "lan = \"s0\"\nstatus_group = \"\"", &[":5:", "box.status_group"]),
        (
            "lan = \"s0\"",
            "forward = \"route\"\nkernel_qdisc = \"fq_codl\"",
            &[":5:", "box.kernel_qdisc = \"fq_codl\"", "nearest is \"fq_codel\""],
        ),
        ("name = \"b\"", "name = \"a b\"", &[":9:", "bundle.name", "a b", "letters"]),
        ("id = 1", "id = 70000", &[":10:", "bundle.id", "70000", "65535"]),
        ("id = 1\n", "", &[":8:", "bundle.id is missing", "65535"]),
        ("10.1.3.2:7000", "10.1.3.1", &[":11:", "bundle.peer", "other box"]),
        ("10.1.3.2:7000", "[::1]:7000", &[":11:", "bundle.peer", "same IP version"]),
        (
            "\"10.1.3.1\"",
            "[\"10.1.3.1\", \"10.1.3.9\"]",
            &[":6:", "box.listen = \"10.1.3.9\"", "list of one each"],
        ),
        ("\"10.1.3.1\"", "[]", &[":6:", "box.listen = []", "list of one each"]),
        (
            "min_rate",
            "nat = \"yes\"\nmin_rate",
            &[":16:", "bundle.nat = \"yes\"", "\"destination\""],
        ),
        (
            "\"10.1.3.2:7000\"",
            "\"b.example\"\nnat = \"both\"",
            &[":11:", "bundle.peer = \"b.example\"", "NAT changes destinations"],
        ),
        ("10.1.2.0/24", "10.1.2.1/24", &[":12:", "bundle.to", "10.1.2.1/24", "10.1.2.0/24"]),
        ("10.1.2.0/24", "10.1.2.0", &[":12:", "bundle.to", "10.1.2.0", "prefix such as"]),
        ("2Mbit/s", "2", &[":16:", "bundle.min_rate", "\"2\"", "such as"]),
        ("2Mbit/s", "2bit/s", &[":16:", "bundle.min_rate", "2bit/s", "100kbit/s"]),
        ("min_rate = \"2Mbit/s\"", "min_rate = 2", &[":16:", "min_rate = 2", "such as"]),
        ("cc = \"copa\"\n", "", &[":8:", "bundle.cc is missing", "copa"]),
        ("\"copa\"", "\"nonesuch\"", &[":14:", "bundle.cc.kind = nonesuch", "copa"]),
        ("1200p", "0p", &[":15:", "bundle.qdisc.limit", "0p", "1p to"]),
        ("limit", "limmit", &[":15:", "bundle.qdisc.limmit", "limit"]),
    ];
    for (from, to, named) in rows {
        let text = SENDBOX.replace(from, to);
        assert_ne!(text, SENDBOX, "{from} stands in the sample");
        let error = parse(&text).expect_err(to).to_string();
        assert!(error.starts_with("/etc/forebay/a.toml:"), "{error}");
        for part in *named {
            assert!(error.contains(part), "{to}: {error:?} does not name {part:?}");
        }
    }
}

#[test]
fn all_errors_are_listed_at_once_by_line() {
    let second = "[[bundle]]\nname = \"b\"\nid = 1\npeer = \"here\"\nto = \"10.0.0.0/8\"\n\
                  key_fiel = \"k\"\ncc = \"nonesuch\"\nqdisc = { kind = \"sfq\", limit = \"0p\" }\n\
                  weight = 2\n";
    let text = format!("{SENDBOX}{second}").replace("wan = \"s1\"\n", "wann = \"s1\"\n");
    let error = parse(&text).unwrap_err();
    let told = error.to_string();
    for part in [
        "a.toml: 11 errors\n",
        "a.toml:2: box.wan is missing",
        "a.toml:5: box.wann = \"s1\": no such key",
        "a.toml:18: bundle.name = \"b\": allowed is a name that no other bundle has",
        "a.toml:19: bundle.id = 1: allowed is a number that bundle \"b\" does not have",
        "a.toml:20: bundle.peer = \"here\": allowed is one host's IP address",
        "a.toml:21: bundle.to = \"10.0.0.0/8\": allowed is a list: a prefix such as",
        "a.toml:22: bundle.key_fiel = \"k\": no such key",
        "a.toml:17: bundle.key_file is missing: allowed is a path",
        "a.toml:23: bundle.cc.kind = nonesuch",
        "a.toml:24: bundle.qdisc.limit = ",
        "a.toml:25: bundle.weight = 2: allowed is nothing without [uplink]",
    ] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    assert!(error.problems.is_sorted_by_key(|problem| problem.line), "{told}");
}

#[test]
fn too_many_prefixes_report_only_their_number() {
    let many = vec!["\"10.0.0.0/8\""; 16_385].join(", ");
    let text = SENDBOX.replace("\"10.1.2.0/24\", \"2001:db8:2::/48\"", &many);
    let told = parse(&text).unwrap_err().to_string();
    assert!(told.contains("bundle.to: 16385 prefixes in all: allowed are 16384"), "{told}");
    assert!(!told.contains("does not have"), "{told}");
}

#[test]
fn specification_values_are_shortened_to_one_line() {
    let long = format!("\\u001b[2J\\n{}", "x".repeat(1000));
    let told = parse(&SENDBOX.replace("\"copa\"", &format!("\"{long}\"")));
    let told = told.unwrap_err().to_string();
    assert!(told.contains("bundle.cc.kind = \\u{1b}[2J\\nxxx"), "{told}");
    assert!(told.lines().count() == 1 && !told.contains(&"x".repeat(80)), "{told}");
}

#[test]
fn invalid_toml_is_reported_by_line() {
    let text = SENDBOX.replace("\"s0\"", "s0").replace("\"copa\"", "\"copa");
    let told = parse(&text).unwrap_err().to_string();
    assert!(
        told.contains(":4:7: `lan = s0`: ") && told.contains(":14:11: `cc = \"copa`"),
        "{told}"
    );
    assert!(!told.contains("missing"), "{told}");
}

#[test]
fn missing_table_or_table_as_value_is_refused() {
    let told = parse("").unwrap_err().to_string();
    assert!(told.contains("box is missing") && told.contains("bundle is missing"), "{told}");
    let told = parse("box = 1\nbundle = 2\n[boxx]\nrole = 3\n").unwrap_err().to_string();
    for part in [
        "box = 1: allowed is a table, or several [[box]]: [box]",
        "a list of tables: [[bundle]]",
        "boxx",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

/// Two bundles in a group, and shares of all keys.
fn shared() -> String {
    let second = &SENDBOX[SENDBOX.find("[[bundle]]").unwrap()..];
    let second = second.replace("\"b\"", "\"c\"").replace("id = 1", "id = 2");
    let second = second.replace("10.1.2.0/24", "10.1.4.0/24").replace("db8:2:", "db8:4:");
    let first = format!("{SENDBOX}weight = 3\ngroup = \"inner\"\n");
    format!(
        "{first}{second}guarantee = \"20Mbit/s\"\ngroup = \"inner\"\n\
         [uplink]\nrate = \"100Mbit/s\"\n\
         [[group]]\nname = \"inner\"\nparent = \"outer\"\nguarantee = \"30Mbit/s\"\n\
         [[group]]\nname = \"outer\"\nweight = 2\nmax_rate = \"90Mbit/s\"\n"
    )
}

#[test]
fn shares_are_read_with_groups_in_any_order() {
    let Uplink { shares, groups } = parse(&shared()).unwrap().uplink.unwrap();
    assert_eq!(groups, ["inner", "outer"]);
    assert_eq!(shares.rate, Rate::from_mbit_per_sec(100));
    let mbit = |mbit| Some(Rate::from_mbit_per_sec(mbit));
    let inner = Share { guarantee: mbit(30), ..Share::default() };
    let outer = Share { weight: 2, max_rate: mbit(90), ..Share::default() };
    assert_eq!(shares.groups[0], Member { group: Some(1), share: inner });
    assert_eq!(shares.groups[1], Member { group: None, share: outer });
    let [first, second] = &shares.bundles[..] else { panic!("{shares:?}") };
    assert_eq!((first.group, first.share.weight), (Some(0), 3));
    assert_eq!((second.share.weight, second.share.guarantee), (1, mbit(20)));
    assert_eq!(parse(SENDBOX).unwrap().uplink, None);
}

/// Each row: the replaced text, its replacement, and texts that the message must contain.
#[test]
fn unsuitable_shares_are_refused_with_line_and_key() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("weight = 3", "weight = 0", &[":17:", "bundle.weight = 0", "1 to 1000"]),
        ("weight = 2", "weight = 1001", &[":38:", "group.weight = 1001", "1 to 1000"]),
        ("weight = 3", "weight = \"3\"", &[":17:", "weight = \"3\"", "whole number"]),
        ("\"20Mbit/s\"", "\"20Mbit\"", &[":28:", "bundle.guarantee", "20Mbit", "such as"]),
        (
            "\"20Mbit/s\"",
            "\"40Mbit/s\"",
            &[":35:", "group.guarantee = \"30Mbit/s\"", "at least 40Mbit/s"],
        ),
        (
            "\"90Mbit/s\"",
            "\"29Mbit/s\"",
            &[":39:", "group.max_rate = \"29Mbit/s\"", "at least 30Mbit/s"],
        ),
        (
            "\"100Mbit/s\"",
            "\"29Mbit/s\"",
            &[":31:", "uplink.rate = \"29Mbit/s\"", "at least 30Mbit/s"],
        ),
        ("\"100Mbit/s\"", "\"1bit/s\"", &[":31:", "uplink.rate", "1bit/s", "100kbit/s"]),
        ("rate = \"100Mbit/s\"", "", &[":30:", "uplink.rate is missing"]),
        (
            "parent = \"outer\"",
            "parent = \"inner\"",
            &[":34:", "group.parent = \"inner\"", "not within this one"],
        ),
        ("\"outer\"\nw", "\"inner\"\nw", &["group.name = \"inner\"", "no other group has"]),
        (
            "group = \"inner\"\n[u",
            "group = \"x\"\n[u",
            &[":29:", "bundle.group = \"x\"", "[[group]]"],
        ),
        ("[uplink]\nrate = \"100Mbit/s\"\n", "", &["group.name = \"inner\"", "without [uplink]"]),
    ];
    for (from, to, named) in rows {
        let text = shared().replacen(from, to, 1);
        assert_ne!(text, shared(), "{from} stands in the sample");
        let error = parse(&text).expect_err(to).to_string();
        for part in *named {
            assert!(error.contains(part), "{to}: {error:?} does not name {part:?}");
        }
    }
    for key in ["weight = 3", "guarantee = \"1Mbit/s\"", "group = \"x\""] {
        let error = parse(&format!("{SENDBOX}{key}\n")).unwrap_err().to_string();
        assert!(
            error.contains(&format!(":17: bundle.{key}: allowed is nothing without [up")),
            "{error}"
        );
    }
}

#[test]
fn ambiguous_bundles_are_refused() {
    let second = &SENDBOX[SENDBOX.find("[[bundle]]").unwrap()..];
    let twice = format!("{SENDBOX}{second}");
    assert!(parse(&twice).unwrap_err().to_string().contains("no other bundle has"));
    let renamed = format!("{SENDBOX}{}", second.replace("\"b\"", "\"c\""));
    assert!(parse(&renamed).unwrap_err().to_string().contains("bundle.id = 1"));
    let renumbered =
        format!("{SENDBOX}{}", second.replace("\"b\"", "\"c\"").replace("id = 1", "id = 2"));
    assert!(parse(&renumbered).unwrap_err().to_string().contains("bundle.to = \"10.1.2.0/24\""));
}

#[test]
fn a_receivebox_takes_no_shaping_and_needs_sources() {
    let text = SENDBOX.replace("\"sendbox\"", "\"receivebox\"").replace("lan = \"s0\"\n", "");
    let error = parse(&text.replace("cc = \"copa\"\n", "")).unwrap_err().to_string();
    assert!(error.contains("bundle.from is missing"), "{error}");
    let text = text.replace("key_file", "from = [\"10.1.1.0/24\"]\nkey_file");
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("bundle.cc = \"copa\": allowed is nothing"), "{error}");
    let start = text.find("cc = ").unwrap();
    let config = parse(&text[..start]).unwrap();
    assert_eq!(config.role, Role::Receivebox);
    assert!(config.bundles[0].shaping.is_none());
    for (key, shown) in
        [("weight = 3", "bundle.weight = 3"), ("[uplink]\nrate = \"1Mbit/s\"", "uplink.rate")]
    {
        let error = parse(&format!("{}{key}\n", &text[..start])).unwrap_err().to_string();
        assert!(error.contains(shown) && error.contains("the sendbox shapes"), "{error}");
    }
}

#[test]
fn overhead_is_a_size_of_a_sendbox() {
    let text = |role: &str, value: &str| {
        let (lan, cc) =
            if role == "sendbox" { ("lan = \"l0\"\n", "cc = \"copa\"\n") } else { ("", "") };
        format!(
            "[box]\nrole = \"{role}\"\n{lan}wan = \"w0\"\noverhead = {value}\nlisten = \"10.1.3.1\"\n[[bundle]]\n\
             name = \"b\"\nid = 1\npeer = \"10.1.3.2\"\nto = [\"10.2.0.0/16\"]\nfrom = [\"10.1.0.0/16\"]\n\
             key_file = \"key\"\n{cc}"
        )
    };
    let parsed = |role, value| Config::parse(Path::new("box.toml"), &text(role, value));
    assert_eq!(parsed("sendbox", "\"60B\"").unwrap().overhead, Some(60));
    for (role, value, allowed) in [
        ("sendbox", "\"60\"", "a size such as \"500B\", 0B to 500B"),
        ("sendbox", "\"501B\"", "0B to 500B"),
        ("sendbox", "60", "0B to 500B"),
        ("receivebox", "\"60B\"", "nothing: a receivebox has no rates"),
    ] {
        let error = parsed(role, value).unwrap_err().to_string();
        assert!(error.contains("box.overhead") && error.contains(allowed), "{error}");
    }
}
