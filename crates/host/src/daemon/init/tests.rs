use super::*;

/// A machine with these devices, where all packets leave through `device` from 10.1.1.2.
fn seen(device: &str, links: &[SurveyedLink]) -> Survey {
    let way = Way {
        device: device.into(),
        source: Some("10.1.1.2".parse().unwrap()),
        is_local: false,
        port: None,
    };
    Survey {
        release: "6.18.44".into(),
        forwards: [true, true],
        links: links.to_vec(),
        networks: vec![("eth0".into(), "10.1.1.0/24".parse().unwrap())],
        peer: Some(way.clone()),
        far: vec![("10.2.0.0/16".parse().unwrap(), Some(way))],
        ..Survey::default()
    }
}

fn link(name: &str, kind: &str, bridge: Option<&str>) -> SurveyedLink {
    SurveyedLink {
        name: name.into(),
        kind: kind.into(),
        is_ethernet: !["wireguard", "tun"].contains(&kind),
        mtu: 1500,
        bridge: bridge.map(str::to_string),
        ..SurveyedLink::default()
    }
}

fn asked() -> Asked {
    Asked {
        peer: "203.0.113.9".into(),
        to: vec!["10.2.0.0/16".into()],
        from: Vec::new(),
        id: None,
        listen: None,
        lan: None,
        wan: None,
        own: false,
        name: None,
        out: None,
        key: None,
    }
}

fn sendbox(seen: &Survey, edit: impl FnOnce(&mut Asked)) -> Draft {
    let mut asked = asked();
    edit(&mut asked);
    Draft::of(&Wanted::of(Role::Sendbox, &asked).unwrap(), seen)
}

fn receivebox(seen: &Survey, edit: impl FnOnce(&mut Asked)) -> Draft {
    let mut asked = Asked { to: Vec::new(), from: asked().to, ..asked() };
    edit(&mut asked);
    Draft::of(&Wanted::of(Role::Receivebox, &asked).unwrap(), seen)
}

fn value<'a>(draft: &'a Draft, key: &str) -> &'a str {
    let chosen = draft.chosen.iter().find(|chosen| chosen.key == key);
    chosen.and_then(|chosen| chosen.value.as_deref()).unwrap_or("(none)")
}

#[test]
fn one_nic_gateway_routes() {
    let draft = sendbox(&seen("eth0", &[link("eth0", "", None)]), |_| ());
    assert_eq!(draft.open, [""; 0], "{draft:?}");
    let config = draft.check().unwrap();
    assert_eq!((config.wan.as_str(), config.lan.as_deref()), ("eth0", None));
    assert_eq!(value(&draft, "box.forward"), "\"route\"");
    assert_eq!((value(&draft, "box.own"), value(&draft, "bundle.from")), ("false", "(none)"));
    assert_eq!(draft.file, Path::new("/etc/forebay/to-203.0.113.9.toml"));
    assert_eq!(draft.start, "systemctl enable --now forebay-sendbox@to-203.0.113.9");
    assert_eq!(
        draft.other.init,
        "forebay init receivebox --peer 10.1.1.2 --to 10.2.0.0/16 --from 10.1.1.0/24 \
         --key /etc/forebay/to-203.0.113.9.key"
    );
}

#[test]
fn server_without_forwarding_sends_its_own() {
    let here = Survey { forwards: [false; 2], ..seen("eth0", &[link("eth0", "", None)]) };
    let draft = sendbox(&here, |_| ());
    assert_eq!(value(&draft, "box.own"), "true");
    assert!(draft.other.init.contains("--from 10.1.1.2/32"), "{}", draft.other.init);
    let other = receivebox(&here, |_| ());
    assert_eq!(value(&other, "bundle.to"), "[\"10.1.1.2/32\"]", "the host itself");
    other.check().unwrap();
    let gateway = receivebox(&seen("eth0", &[link("eth0", "", None)]), |_| ());
    assert_eq!(value(&gateway, "bundle.to"), "[\"10.1.1.0/24\"]");
}

#[test]
fn tunnel_of_the_route_is_the_wan() {
    let links = [link("eth0", "", None), link("wg0", "wireguard", None)];
    let mut here = seen("wg0", &links);
    here.peer.as_mut().unwrap().device = "eth0".into();
    let draft = sendbox(&here, |_| ());
    assert_eq!(
        (value(&draft, "box.wan"), value(&draft, "box.listen")),
        ("\"wg0\"", "\"10.1.1.2\"")
    );
    assert!(
        draft.seen.iter().any(|it| it.contains("without Ethernet headers")),
        "{:?}",
        draft.seen
    );
    assert_eq!(value(&receivebox(&here, |_| ()), "box.wan"), "\"wg0\"");
}

#[test]
fn bridge_ports_differ_by_the_next_hop() {
    let links =
        [link("br0", "bridge", None), link("p1", "veth", Some("br0")), link("p2", "", Some("br0"))];
    let mut here = seen("br0", &links);
    let draft = sendbox(&here, |_| ());
    assert!(draft.open[0].contains("p1 and p2") && draft.open[0].contains("--wan"), "{draft:?}");
    assert!(draft.text.contains("\n# wan = \"eth0\"\n"), "{}", draft.text);
    let given = sendbox(&here, |asked| asked.wan = Some("p2".into()));
    assert_eq!((value(&given, "box.lan"), value(&given, "box.wan")), ("\"p1\"", "\"p2\""));
    here.far[0].1.as_mut().unwrap().port = Some("p1".into());
    let draft = sendbox(&here, |_| ());
    assert_eq!((value(&draft, "box.lan"), value(&draft, "box.wan")), ("\"p2\"", "\"p1\""));
    assert_eq!(value(&draft, "box.forward"), "\"bridge\"");
    assert_eq!(value(&receivebox(&here, |_| ()), "box.wan"), "\"p1\"");
}

#[test]
fn masquerading_asks_for_the_public_address() {
    let mut here = seen("eth0", &[link("eth0", "", None)]);
    let has_step = |draft: &Draft| draft.before.iter().any(|it| it.why.contains("--from"));
    let has_comment = |draft: &Draft| draft.text.contains("ip nat post of this machine");
    let draft = sendbox(&here, |_| ());
    assert!(!has_step(&draft) && !has_comment(&draft), "{draft:?}");
    here.source_nat = Some("nftables' chain ip nat post".into());
    let draft = sendbox(&here, |_| ());
    assert!(has_step(&draft) && has_comment(&draft), "{draft:?}");
    assert_eq!(draft.check().unwrap().bundles[0].nat, None, "both boxes see what it does");
    assert!(!has_step(&receivebox(&here, |_| ())));
}

#[test]
fn what_must_go_first_is_listed() {
    let mut port = link("eth0", "", None);
    port.foreign_qdisc = Some("cake".into());
    port.offloads = vec!["gro".into(), "rxvlan".into()];
    let here = seen("eth0", &[port]);
    let commands =
        |draft: &Draft| draft.before.iter().map(|it| it.command.clone()).collect::<Vec<_>>();
    let sent = commands(&sendbox(&here, |_| ()));
    assert_eq!(sent[0], "tc qdisc del dev eth0 root", "{sent:?}");
    let watched = commands(&receivebox(&here, |_| ()));
    assert_eq!(watched[0], "ethtool -K eth0 rxvlan off", "{watched:?}");
    assert!(!watched.iter().any(|it| it.starts_with("tc")), "{watched:?}");
}

#[test]
fn ways_that_part_are_refused() {
    let mut here = seen("eth0", &[link("eth0", "", None), link("eth1", "", None)]);
    let mut other = here.far[0].clone();
    other.0 = "10.3.0.0/16".parse().unwrap();
    other.1.as_mut().unwrap().device = "eth1".into();
    here.far.push(other);
    let draft = sendbox(&here, |asked| asked.to.push("10.3.0.0/16".into()));
    assert!(draft.open[0].contains("10.3.0.0/16 through eth1"), "{:?}", draft.open);
    here.far.truncate(1);
    here.far[0].1.as_mut().unwrap().is_local = true;
    let draft = sendbox(&here, |_| ());
    assert!(draft.open[0].contains("contains an address of this machine"), "{:?}", draft.open);
}

#[test]
fn without_network_all_is_open_and_commented() {
    let nothing = Survey {
        peer_problem: "the kernel has no route to 203.0.113.9".into(),
        far: vec![("10.2.0.0/16".parse().unwrap(), None)],
        ..Survey::default()
    };
    for draft in [sendbox(&nothing, |_| ()), receivebox(&nothing, |_| ())] {
        let keys = ["box.wan: ", "box.listen: ", "bundle.to: "];
        let open = keys.iter().filter(|key| draft.open.iter().any(|it| it.starts_with(**key)));
        assert_eq!(
            open.count(),
            if draft.role == Role::Sendbox { 2 } else { 3 },
            "{:?}",
            draft.open
        );
        assert!(draft.text.contains("\n# listen = "), "{}", draft.text);
        // Only the open values are missing.
        let told = draft.check().unwrap_err().to_string();
        assert!(told.contains("box.wan is missing") && told.contains("box.listen is missing"));
        assert!(!told.contains("key_file"), "{told}");
    }
}

#[test]
fn wrong_options_name_value_and_what_is_allowed() {
    let told = |role: Role, edit: &dyn Fn(&mut Asked)| {
        let mut asked = asked();
        edit(&mut asked);
        Wanted::of(role, &asked).unwrap_err()
    };
    let of_sendbox = |edit: &dyn Fn(&mut Asked)| told(Role::Sendbox, edit);
    let host_bits = of_sendbox(&|it| it.to = vec!["10.2.0.1/16".into()]);
    assert!(host_bits.contains("--to \"10.2.0.1/16\"") && host_bits.contains("10.2.0.0/16\""));
    assert!(of_sendbox(&|it| it.to.clear()).contains("--to is missing"));
    assert!(of_sendbox(&|it| it.peer = "here".into()).contains("--peer \"here\": allowed is"));
    assert!(of_sendbox(&|it| it.name = Some("a/b".into())).contains("--name \"a/b\""));
    assert!(of_sendbox(&|it| it.wan = Some("a b".into())).contains("--wan \"a b\""));
    assert!(of_sendbox(&|it| it.listen = Some("x".into())).contains("--listen \"x\""));
    assert!(of_sendbox(&|it| it.from = vec!["fd00::/64".into()]).contains("one IP version"));
    assert!(told(Role::Receivebox, &|_| ()).contains("--from is missing"));
}

#[test]
fn nothing_is_overwritten_and_no_key_left_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("box.toml");
    let here = seen("eth0", &[link("eth0", "", None)]);
    let draft = sendbox(&here, |asked| asked.out = Some(file.clone()));
    assert!(matches!(draft.write(true), Err(WriteError::NoKey(_))));
    assert_eq!(draft.write(false).unwrap(), KeyState::Made);
    let (text, key) = (std::fs::read(&file).unwrap(), std::fs::read(&draft.key_file).unwrap());
    assert!(matches!(draft.write(false), Err(WriteError::There(_))));
    assert_eq!(
        (std::fs::read(&file).unwrap(), std::fs::read(&draft.key_file).unwrap()),
        (text, key)
    );
    std::fs::remove_file(&file).unwrap();
    assert_eq!(draft.write(true).unwrap(), KeyState::Read);
    let lost = sendbox(&here, |asked| asked.out = Some(folder.path().join("no/box.toml")));
    assert!(matches!(lost.write(false), Err(WriteError::Io { .. })));
    assert!(!lost.key_file.exists());
}
