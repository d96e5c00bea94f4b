//! Mistakes that operators make in the file of a box. Each message has the file, line, key, value and allowed
//! values, and a remedy where there is one.
#![cfg(feature = "host")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Configuration of a sendbox without mistakes.
const SENDBOX: &str = r#"[box]
role   = "sendbox"
lan    = "lan0"
wan    = "wan0"
listen = "10.1.1.2"

[[bundle]]
name     = "berlin"
id       = 1
peer     = "10.1.2.2"
to       = ["10.1.2.0/24"]
key_file = "berlin.key"
cc       = "copa"
qdisc    = "fq_codel"
min_rate = "2Mbit/s"
max_rate = "900Mbit/s"
"#;

/// Configuration of a receivebox without mistakes.
const RECEIVEBOX: &str = r#"[box]
role   = "receivebox"
wan    = "wan0"
listen = "10.1.2.2"

[[bundle]]
name     = "berlin"
id       = 1
peer     = "10.1.1.2"
to       = ["10.1.2.0/24"]
from     = ["10.1.1.0/24"]
key_file = "berlin.key"
"#;

/// Both, in one file.
fn both() -> String {
    let box_of_two =
        |file: &str| file.replace("[box]", "[[box]]").replace("[[bundle]]", "[[box.bundle]]");
    [SENDBOX, "\n", RECEIVEBOX].map(box_of_two).concat()
}

/// Allowed values of `box.listen`.
const ADDRESS: &str = "allowed is one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \
                       \"[2001:db8::1]:7000\"";
/// Also of a peer, which may have a name.
const PEER: &str = "allowed is one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \
                    \"[2001:db8::1]:7000\", or a name with a dot, such as \"site-b.example.org\"";
/// Allowed names.
const NAME: &str = r#"allowed is a text of 1 to 32 letters, digits, `.`, `_` or `-`"#;
/// Allowed rates.
const RATE: &str = r#"allowed is a rate such as "96Mbit/s", 100kbit/s to 100Gbit/s"#;
/// Allowed prefixes.
const PREFIX: &str = r#"a prefix such as "10.1.2.0/24" or "2001:db8:2::/48""#;
/// Allowed lines of TOML.
const TOML: &str =
    r#"allowed are lines like key = "text", key = 1, key = true and key = ["text", "text"]"#;
/// End of the error for a repeated key.
const TWICE: &str = "is repeated: allowed is once in a table; delete one, or begin another \
                     [[group]] or [[bundle]]";

/// A text of the file, the mistake in its place, and the message of `forebay check-config` behind the name of
/// the file.
type Mistake<'a> = (&'a str, &'a str, String);

/// Checks the message of every mistake. The file of each check has only this mistake.
fn are_told(right: &str, mistakes: &[Mistake<'_>]) {
    let folder = tempfile::tempdir().unwrap();
    make_key(folder.path());
    assert!(check(folder.path(), right).status.success(), "the file is right");
    for (from, to, told) in mistakes {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right, "{from} stands in the file");
        let output = check(folder.path(), &wrong);
        assert_eq!(output.status.code(), Some(2), "{to}: {output:?}");
        assert!(output.stdout.is_empty(), "{to}: {output:?}");
        assert_eq!(stderr(&output), format!("error: box.toml:{told}\n"), "{to}");
    }
}

fn check(folder: &Path, file: &str) -> Output {
    fs::write(folder.join("box.toml"), file).unwrap();
    forebay(folder, &["check-config", "box.toml"])
}

fn make_key(folder: &Path) {
    assert!(forebay(folder, &["keygen", "berlin.key"]).status.success());
}

fn forebay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn reports_values_without_unit_or_out_of_range() {
    are_told(
        SENDBOX,
        &[
            ("\"900Mbit/s\"", "\"900mbit\"", format!("16: bundle.max_rate = \"900mbit\": {RATE}")),
            ("\"2Mbit/s\"", "\"2Mbps\"", format!("15: bundle.min_rate = \"2Mbps\": {RATE}")),
            ("\"2Mbit/s\"", "2", format!("15: bundle.min_rate = 2: {RATE}")),
            ("\"2Mbit/s\"", "\"0Mbit/s\"", format!("15: bundle.min_rate = \"0Mbit/s\": {RATE}")),
            (
                "\"2Mbit/s\"",
                "\"1Gbit/s\"",
                "16: bundle.max_rate = \"900Mbit/s\": allowed is a rate of at least min_rate, 1Gbit/s".into(),
            ),
            (
                "= 1\n",
                "= 70000\n",
                "9: bundle.id = 70000: allowed is a whole number, 0 to 65535".into(),
            ),
            (
                "[[bundle]]",
                "realtime = \"yes\"\n[[bundle]]",
                "7: box.realtime = \"yes\": allowed is true or false".into(),
            ),
            (
                "[[bundle]]",
                "[trace]\nfile = \"box.trace\"\nlimit = \"64\"\n[[bundle]]",
                "9: trace.limit = \"64\": allowed is a size such as \"1MB\", 1MB or more".into(),
            ),
        ],
    );
}

#[test]
fn reports_missing_and_misplaced_keys() {
    are_told(
        SENDBOX,
        &[
            (
                "max_rate",
                "[trace]\nfile = \"box.trace\"\nmax_rate",
                "18: trace.max_rate = \"900Mbit/s\": no such key: allowed is one of file, limit; `max_rate` belongs to \
                 [[group]] and [[bundle]]: move it there"
                    .into(),
            ),
            (
                "cc       = \"copa\"\n",
                "",
                "7: bundle.cc is missing: allowed is an algorithm such as \"copa\"".into(),
            ),
            ("peer     = \"10.1.2.2\"\n", "", format!("7: bundle.peer is missing: {PEER}")),
            (
                "min_rate",
                "weight   = 3\nmin_rate",
                "15: bundle.weight = 3: allowed is nothing without [uplink], which these shares divide".into(),
            ),
        ],
    );
}

#[test]
fn reports_impossible_addresses_devices_and_names() {
    are_told(
        SENDBOX,
        &[
            ("\"10.1.2.2\"", "\"10.1.2.2:\"", format!("10: bundle.peer = \"10.1.2.2:\": {PEER}")),
            ("\"10.1.2.2\"", "\"10.1.2.2/24\"", format!("10: bundle.peer = \"10.1.2.2/24\": {PEER}")),
            ("\"10.1.1.2\"", "\"0.0.0.0\"", format!("5: box.listen = \"0.0.0.0\": {ADDRESS}")),
            (
                "\"10.1.2.2\"",
                "\"2001:db8::2\"",
                "10: bundle.peer = \"2001:db8::2\": allowed is an address of the same IP version as box.listen"
                    .into(),
            ),
            (
                "\"10.1.2.2\"",
                "\"10.1.1.2\"",
                "10: bundle.peer = \"10.1.1.2\": allowed is the address of the other box, which differs from box.listen"
                    .into(),
            ),
            ("\"lan0\"", "\"wan0\"", "3: box.lan = \"wan0\": allowed is a device other than box.wan".into()),
            (
                "\"sendbox\"",
                "\"sender\"",
                "2: box.role = \"sender\": allowed is \"sendbox\" or \"receivebox\"".into(),
            ),
            ("\"berlin\"", "\"Berlin office\"", format!("8: bundle.name = \"Berlin office\": {NAME}")),
        ],
    );
}

#[test]
fn addresses_that_mislead_are_refused() {
    let peer =
        |value: &str, allowed: &str| format!("10: bundle.peer = \"{value}\": allowed is {allowed}");
    let to =
        |value: &str, allowed: &str| format!("11: bundle.to = \"{value}\": allowed is {allowed}");
    let [octal, mapped, own] = ["010.1.2.0/24", "::ffff:10.1.2.0/120", "10.1.0.0/16"];
    let quoted = |value: &str| format!("\"{value}\"");
    let [of_octal, of_mapped, of_own] = [octal, mapped, own].map(quoted);
    are_told(
        SENDBOX,
        &[
            ("\"10.1.2.0/24\"", &of_octal, to(octal, PREFIX)),
            (
                "\"10.1.2.0/24\"",
                &of_mapped,
                to(mapped, "the IPv4 prefix itself, \"10.1.2.0/24\""),
            ),
            (
                "\"10.1.2.0/24\"",
                &of_own,
                to(
                    own,
                    "a prefix of the other site that does not contain box.listen: list the networks of a wider prefix one by one",
                ),
            ),
            (
                "\"10.1.2.2\"",
                "\"127.0.0.1\"",
                peer("127.0.0.1", "an address of the other box, not one of this machine alone"),
            ),
            (
                "\"10.1.2.2\"",
                "\"10.1.2.255\"",
                peer("10.1.2.255", "an address of one host, not the last (broadcast) address of a network in `to`"),
            ),
            (
                "\"10.1.2.2\"",
                "\"255.255.255.255\"",
                format!("10: bundle.peer = \"255.255.255.255\": {PEER}"),
            ),
            (
                "\"10.1.1.2\"",
                "\"::ffff:10.1.1.2\"",
                "5: box.listen = \"::ffff:10.1.1.2\": allowed is the IPv4 address itself, \"10.1.1.2\"".into(),
            ),
        ],
    );
}

#[test]
fn brackets_need_no_port() {
    let folder = tempfile::tempdir().unwrap();
    make_key(folder.path());
    let text = SENDBOX.replace("\"10.1.1.2\"", "\"[2001:db8::1]\"");
    let text = text.replace("\"10.1.2.2\"", "\"[2001:db8::2]\"");
    let output = check(folder.path(), &text);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("sendbox on [2001:db8::1]:61475"), "{said}");
    assert!(said.contains("peer [2001:db8::2]:61476"), "{said}");
}

#[test]
fn reports_wrong_and_shared_prefixes() {
    let second = |change: [&str; 2]| {
        let second = &SENDBOX[SENDBOX.find("[[bundle]]").unwrap()..];
        let second =
            second.replace("10.1.2.0/24", "10.1.4.0/24").replace("\"berlin\"", "\"paris\"");
        format!("\n{}", second.replace("= 1\n", "= 2\n").replace(change[0], change[1]))
    };
    let twice = second(["\"paris\"", "\"berlin\""]);
    let same_id = second(["= 2\n", "= 1\n"]);
    let same_prefix = second(["10.1.4.0/24", "10.1.2.0/24"]);
    let end = "\"900Mbit/s\"\n";
    let [twice, same_id, same_prefix] =
        [twice, same_id, same_prefix].map(|second| format!("{end}{second}"));
    are_told(
        SENDBOX,
        &[
            (
                "\"10.1.2.0/24\"",
                "\"2001:db8:2::1/48\"",
                "11: bundle.to = \"2001:db8:2::1/48\": allowed is a prefix without host bits: \"2001:db8:2::/48\""
                    .into(),
            ),
            ("\"10.1.2.0/24\"", "\"10.1.2.*\"", format!("11: bundle.to = \"10.1.2.*\": allowed is {PREFIX}")),
            (
                "[\"10.1.2.0/24\"]",
                "\"10.1.2.0/24\"",
                format!("11: bundle.to = \"10.1.2.0/24\": allowed is a list: {PREFIX}"),
            ),
            (
                end,
                same_prefix.as_str(),
                "22: bundle.to = \"10.1.2.0/24\": allowed is a prefix that bundle \"berlin\" does not have".into(),
            ),
            (
                end,
                twice.as_str(),
                "19: bundle.name = \"berlin\": allowed is a name that no other bundle has".into(),
            ),
            (
                end,
                same_id.as_str(),
                "20: bundle.id = 1: allowed is a number that bundle \"berlin\" does not have".into(),
            ),
        ],
    );
}

#[test]
fn reports_unknown_names_with_closest_match() {
    let folder = tempfile::tempdir().unwrap();
    make_key(folder.path());
    let version = env!("CARGO_PKG_VERSION");
    let newer = format!("; this is forebay {version}; a newer version may have more keys\n");
    for (from, to, line, nearest) in [
        (
            "max_rate",
            "maxrate",
            "16: bundle.maxrate = \"900Mbit/s\": no such key: allowed is one of name, id, ",
            "; nearest is max_rate\n",
        ),
        (
            "max_rate",
            "compression",
            "16: bundle.compression = \"900Mbit/s\": no such key: allowed is one of name, id, ",
            newer.as_str(),
        ),
        (
            "\"copa\"",
            "\"cope\"",
            "13: bundle.cc.kind = cope: allowed is one of ",
            "; nearest is copa\n",
        ),
        (
            "\"fq_codel\"",
            "\"fqcodel\"",
            "14: bundle.qdisc.kind = fqcodel: allowed is one of ",
            "; nearest is fq_codel\n",
        ),
        (
            "\"fq_codel\"",
            "{ kind = \"fq_codel\", limits = \"150ms\" }",
            "14: bundle.qdisc.limits = \"150ms\": allowed is one of ",
            "; nearest is limit\n",
        ),
        (
            "\"fq_codel\"",
            "{ kind = \"fq_codel\", limit = \"150\" }",
            "14: bundle.qdisc.limit = \"150\": allowed is ",
            "1ms to 10s of the rate (at least 10 packets)\n",
        ),
    ] {
        let output = check(folder.path(), &SENDBOX.replacen(from, to, 1));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = stderr(&output);
        assert!(told.starts_with(&format!("error: box.toml:{line}")), "{told}");
        assert!(told.ends_with(nearest) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn reports_broken_toml_with_allowed_syntax() {
    are_told(
        SENDBOX,
        &[
            (
                "\"900Mbit/s\"",
                "900Mbit/s",
                format!(
                    "16:12: `max_rate = 900Mbit/s`: string values must be quoted, expected literal string: {TOML}"
                ),
            ),
            (
                "\"lan0\"",
                "“lan0”",
                format!(
                    "3:10: `lan    = “lan0”`: string values must be quoted, expected literal string: {TOML}"
                ),
            ),
            (
                "\"copa\"",
                "\"copa",
                format!("13:17: `cc       = \"copa`: invalid basic string, expected `\"`: {TOML}"),
            ),
            ("peer  ", "id    ", format!("10:1: `id       = \"10.1.2.2` {TWICE}")),
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    let output = check(folder.path(), &SENDBOX.replace("[[bundle]]", "[bundle]"));
    let told = "error: box.toml:7: bundle = [bundle]: allowed is a list of tables: [[bundle]]\n";
    assert_eq!(stderr(&output), told);
}

#[test]
fn reports_keys_of_the_other_role() {
    are_told(
        RECEIVEBOX,
        &[
            (
                "key_file",
                "max_rate = \"900Mbit/s\"\nkey_file",
                "12: bundle.max_rate = \"900Mbit/s\": allowed is nothing: the sendbox shapes".into(),
            ),
            (
                "wan ",
                "lan    = \"lan0\"\nwan ",
                "3: box.lan = \"lan0\": allowed is nothing: a receivebox only watches box.wan".into(),
            ),
            (
                "from     = [\"10.1.1.0/24\"]\n",
                "",
                "6: bundle.from is missing: allowed is at least one prefix: a receivebox distinguishes the bundles of several sites by their sources"
                    .into(),
            ),
        ],
    );
}

#[test]
fn reports_mistakes_in_files_of_two_boxes() {
    let end = "\"900Mbit/s\"\n";
    let sources = "from     = [\"10.1.1.0/24\"]\n";
    let end_of_second = "from     = [\"10.1.1.0/24\"]\nkey_file = \"berlin.key\"\n";
    are_told(
        &both(),
        &[
            (end, "\"900mbit\"\n", format!("16: box.bundle.max_rate = \"900mbit\": {RATE}")),
            (
                "max_rate",
                "[box.trace]\nfile = \"box.trace\"\nmax_rate",
                "18: box.trace.max_rate = \"900Mbit/s\": no such key: allowed is one of file, limit; `max_rate` belongs \
                 to [[box.group]] and [[box.bundle]]: move it there"
                    .into(),
            ),
            (
                end,
                "\"900Mbit/s\"\n[trace]\nfile = \"box.trace\"\n",
                "17: trace = [trace]: no such key: allowed is one of box; `trace` belongs to [[box]]: move it there".into(),
            ),
            (
                end,
                "\"900Mbit/s\"\n[box.xdp]\nbusy_poll = \"2ms\"\n",
                "18: box.xdp.busy_poll = \"2ms\": allowed is a duration such as \"1ms\", 1us to 1ms".into(),
            ),
            (
                end_of_second,
                "from     = [\"10.1.1.0/24\"]\nkey_file = \"berlin.key\"\n[box.xdp]\nzero_copy = true\n",
                "30: box.xdp = [box.xdp]: allowed is nothing: a receivebox only watches box.wan".into(),
            ),
            (
                "min_rate",
                "weight   = 3\nmin_rate",
                "15: box.bundle.weight = 3: allowed is nothing without [box.uplink], which these shares divide".into(),
            ),
            (
                end,
                "\"900Mbit/s\"\ngroup = \"x\"\n[box.uplink]\nrate = \"1Gbit/s\"\n",
                "17: box.bundle.group = \"x\": allowed is the name of a [[box.group]]".into(),
            ),
            (
                sources,
                "",
                "23: box.bundle.from is missing: allowed is at least one prefix: a receivebox distinguishes the bundles of several sites by their sources"
                    .into(),
            ),
            (
                "peer  ",
                "id    ",
                "10:1: `id       = \"10.1.2.2` is repeated: allowed is once in a table; delete one, or begin \
                 another [[box]] or [[box.group]] or [[box.bundle]]"
                    .into(),
            ),
            (
                "listen = \"10.1.2.2\"",
                "listen = \"10.1.2.2\"\nlan    = \"lan1\"",
                "22: box.lan = \"lan1\": allowed is nothing: a receivebox only watches box.wan".into(),
            ),
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    let told = |file: &str| stderr(&check(folder.path(), file)).to_string();
    let absent = "box.bundle.key_file: berlin.key: no such file";
    assert!(told(&both()).starts_with(&format!("error: box.toml:12: {absent}")));
    make_key(folder.path());
    let file = both();
    let bare = &file[..=file.rfind("\n[[box.bundle]]").unwrap()];
    let missing = "box.bundle is missing: allowed is a list of tables: [[box.bundle]]";
    assert_eq!(told(bare), format!("error: box.toml:18: {missing}\n"));
}

#[test]
fn reports_bad_key_files_with_line() {
    let folder = tempfile::tempdir().unwrap();
    let told = || {
        let output = check(folder.path(), SENDBOX);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told =
            stderr(&output).strip_prefix("error: box.toml:12: bundle.key_file: berlin.key: ");
        told.unwrap_or_else(|| panic!("{output:?}")).trim_end().to_string()
    };
    assert_eq!(told(), "no such file: `forebay keygen` makes one, for both boxes of the bundle");
    let key = folder.path().join("berlin.key");
    fs::write(&key, "kL0nsv3gB2nWz2zN3r0nW0cZ5V2bq1w0b1d1a2s3d4E=\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(told(), "mode 0644: allowed is 0600 or narrower; run `chmod 600 berlin.key`");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        told(),
        "line 1: 44 characters; a key is 64 hexadecimal digits; `forebay keygen` makes a new file, for both boxes \
         of the bundle"
    );
}
