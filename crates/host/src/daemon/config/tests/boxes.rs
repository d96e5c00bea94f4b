//! Files of several boxes.

use super::*;

/// A file with a sendbox and a receivebox.
fn both_roles() -> String {
    let sendbox = SENDBOX.replace("[box]", "[[box]]").replace("[[bundle]]", "[[box.bundle]]");
    format!(
        "{sendbox}[box.uplink]\nrate = \"100Mbit/s\"\n[[box]]\nrole = \"receivebox\"\nwan = \"s1\"\n\
         listen = \"10.1.3.1\"\n[[box.bundle]]\nname = \"b\"\nid = 2\npeer = \"10.1.3.2\"\n\
         to = [\"10.1.1.0/24\"]\nfrom = [\"10.1.2.0/24\"]\nkey_file = \"back.key\"\n"
    )
}

#[test]
fn boxes_of_one_file_are_parsed_by_name() {
    let file = Path::new("/etc/forebay/a.toml");
    let boxes = Config::parse_all(file, &both_roles()).unwrap();
    let [sendbox, receivebox] = &boxes[..] else { panic!("{boxes:?}") };
    assert_eq!((sendbox.name.as_str(), receivebox.name.as_str()), ("sendbox", "receivebox"));
    assert_eq!(sendbox.bundles[0].id, BundleId(1));
    assert_eq!(receivebox.bundles[0].id, BundleId(2));
    assert!(sendbox.uplink.is_some() && receivebox.uplink.is_none());
    assert!(sendbox.is_only_of_role && receivebox.is_only_of_role);
    assert_eq!(&Config::parse_of(file, &both_roles(), "receivebox").unwrap(), receivebox);
    let alone = SENDBOX.replace("key_file", "# the same as before\nkey_file");
    assert_eq!(Config::parse_of(file, &alone, "another").unwrap().name, "sendbox");
    for (told, expected) in [
        (Config::parse(file, &both_roles()), "more than one box: sendbox, receivebox"),
        (Config::parse_of(file, &both_roles(), "x"), "there is no box \"x\""),
    ] {
        let told = told.unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    }
}

/// Each row: the replaced text, its replacement, and texts that the message must contain.
#[test]
fn colliding_boxes_of_one_file_are_refused() {
    let rows: &[(&str, &str, &[&str])] = &[
        (
            "listen = \"10.1.3.1\"\n[[",
            "listen = \"10.1.3.1:61475\"\n[[",
            &["box.listen", "\"sendbox\" does not use"],
        ),
        (
            "role = \"receivebox\"",
            "name = \"sendbox\"\nrole = \"receivebox\"",
            &["box.name", "no other box"],
        ),
        (
            "role = \"receivebox\"",
            "control = \"/run/forebay/sendbox.sock\"\nrole = \"receivebox\"",
            &["box.control"],
        ),
        (
            "[[box]]\nrole = \"receivebox\"",
            "[trace]\nfile = \"t\"\n[[box]]\nrole = \"receivebox\"",
            &["trace = [trace]: no such key", "`trace` belongs to [[box]]: move it there"],
        ),
        (
            "wan = \"s1\"\nlisten = \"10.1.3.1\"\n[[",
            "wan = \"s0\"\nlisten = \"10.1.3.1\"\n[[",
            &[":21: box.wan = \"s0\"", "not the LAN of box \"sendbox\""],
        ),
        (
            "role = \"receivebox\"",
            "lann = \"x\"\nrole = \"receivebox\"",
            &["box.lann", "no such key"],
        ),
    ];
    for (from, to, named) in rows {
        let text = both_roles().replace(from, to);
        assert_ne!(text, both_roles(), "{from} stands in the sample");
        let error = Config::parse_all(Path::new("a.toml"), &text).expect_err(to).to_string();
        for part in *named {
            assert!(error.contains(part), "{to}: {error:?} does not name {part:?}");
        }
    }
    let second = "role = \"sendbox\"\nname = \"second\"\nlan = \"s0\"";
    let text = both_roles().replace("role = \"receivebox\"", second);
    let text = text.replace("\"back.key\"", "\"back.key\"\ncc = \"copa\"");
    let told = |text: &str| Config::parse_all(Path::new("a.toml"), text).unwrap_err().to_string();
    let error = told(&text);
    for part in [
        ":22: box.lan = \"s0\": allowed is a device that box",
        ":23: box.wan = \"s1\": allowed is a device that is not the WAN of sendbox \"sendbox\"",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = told(
        &text.replace("second\"\nlan = \"s0\"\nwan = \"s1", "second\"\nlan = \"s1\"\nwan = \"s2"),
    );
    let named = ":22: box.lan = \"s1\": allowed is a device that is not the WAN of box \"sendbox\"";
    assert!(error.contains(named), "{error}");
    let watching = "role = \"receivebox\"\nname = \"second\"";
    let second = both_roles()[both_roles().find("[[box]]\nrole = \"receivebox\"").unwrap()..]
        .replace("role = \"receivebox\"", watching)
        .replace("\"10.1.3.1\"", "\"10.1.3.8\"");
    let error = told(&format!("{}{second}", both_roles()));
    let named =
        "box.wan = \"s1\": allowed is a device that is not the WAN of receivebox \"receivebox\"";
    assert!(error.contains(named) && error.lines().count() == 1, "{error}");
    let error = told("box = []\n");
    assert_eq!(error, "a.toml:1: box = []: allowed is at least one [[box]]");
}
