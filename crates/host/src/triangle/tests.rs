use std::process::Command;

use super::*;
use crate::port::tests::{on_a_veth_pair, run};

/// Output of a command.
fn shown(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// All rules, routes and devices of triangles.
fn left() -> String {
    let rules = ["ip rule", "ip -6 rule"].map(shown).concat();
    let rules: Vec<&str> = rules.lines().filter(|line| line.starts_with("26")).collect();
    let routes = ["ip route show table all proto 102", "ip -6 route show table all proto 102"];
    format!(
        "{}{}{}",
        rules.join("\n"),
        routes.map(shown).concat(),
        shown("ip -o link show type veth")
    )
}

fn spec(name: &str) -> Spec {
    let to = ["10.1.2.0/24", "fd00:2::/64"].map(|net| net.parse().unwrap()).to_vec();
    Spec { name: name.into(), wan: "left".into(), lan: None, to, own: false }
}

/// Lets the machine route packets from any device. Without any address it would refuse routes.
fn forward() {
    run("ip link set lo up");
    for (key, value) in
        [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/right/rp_filter", "0")]
    {
        fs::write(format!("/proc/sys/net/ipv4/{key}"), value).unwrap();
    }
}

/// Removes a triangle at the end of a test, even after a panic.
struct Removed(Names);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

/// A name that no other test uses.
fn name(what: &str) -> String {
    format!("t{}{what}", std::process::id())
}

#[test]
fn names_follow_from_the_box_and_fit() {
    let names = Names::of("berlin");
    assert_eq!(names.namespace, "forebay-berlin");
    assert_eq!([&names.entrance[..], &names.exit], ["fbin-berlin", "fbout-berlin"]);
    for long in ["a-long-name-of-a-box", "Zürich", "", "a b", "../x"] {
        let names = Names::of(long);
        assert!(names.exit.len() <= 15 && names.exit.is_ascii(), "{names:?}");
        assert!(!names.namespace.contains('/'), "{names:?}");
        assert_eq!(names, Names::of(long));
        assert_ne!(names.exit, Names::of(&format!("{long}2")).exit);
    }
}

#[test]
fn a_triangle_is_made_checked_and_removed_whole() {
    let spec = spec(&name("a"));
    on_a_veth_pair(move || {
        forward();
        let _removed = Removed(spec.names());
        let (names, before) = (spec.names(), left());
        run("ip link set left mtu 1420");
        assert!(check(&names).is_err());
        make(&spec).unwrap();
        assert_eq!(check(&names), Ok(()));
        assert!(path_of(&names).exists());
        let host = Commands::open().unwrap();
        let taken = || routes::is_taken(&host, &spec, &names).unwrap();
        assert!(!taken());
        routes::take(&host, &spec, &names).unwrap();
        assert!(taken());
        // Routes of packets from elsewhere, of packets out of the triangle, and of the machine's
        // own packets.
        let way = |from: &str| shown(&format!("ip route get 10.1.2.9{from}"));
        run("ip address add 10.1.1.2/24 dev left");
        run("ip route add 10.1.2.0/24 via 10.1.1.1");
        let iif = |device: &str| way(&format!(" from 10.1.1.7 iif {device}"));
        assert!(iif("left").contains(&names.entrance), "{}", iif("left"));
        assert!(iif(&names.entrance).contains("dev left"), "{}", iif(&names.entrance));
        assert!(iif(&names.exit).contains("dev left"), "{}", iif(&names.exit));
        assert!(way("").contains("dev left"), "{}", way(""));
        routes::leave(&host, &names).unwrap();
        let of_lan = Spec { lan: Some("right".into()), ..spec.clone() };
        routes::take(&host, &of_lan, &names).unwrap();
        run("ip address add 10.1.3.1/24 dev right");
        assert!(iif("right").contains(&names.entrance) && iif("left").contains("dev left"));
        // A new start makes the triangle again; the rule appears only once its keeper installs it.
        make(&spec).unwrap();
        assert!(!taken());
        run("ip link set left mtu 1300");
        follow_mtu(&host, &spec, &names, 1420).unwrap();
        for (end, _) in names.ends() {
            let link = TriangleLink::named(end).unwrap().unwrap();
            assert_eq!((link.mtu, link.other_end().unwrap().unwrap().mtu), (1300, 1420));
            assert_eq!(offload::active(end).unwrap(), []);
        }
        assert_eq!(check(&names), Ok(()), "no device was moved");
        remove(&names).unwrap();
        run("ip link set left mtu 1500");
        run("ip route del 10.1.2.0/24 via 10.1.1.1");
        let strip = |text: &str| text.replace("mtu 1420", "mtu 1500");
        assert_eq!(strip(&left()), strip(&before));
        assert!(!path_of(&names).exists());
        remove(&names).unwrap();
    });
}

#[test]
fn what_leaves_elsewhere_is_thrown_back() {
    let spec = Spec { to: vec!["0.0.0.0/0".parse().unwrap()], ..spec(&name("b")) };
    on_a_veth_pair(move || {
        forward();
        let _removed = Removed(spec.names());
        let names = spec.names();
        run("ip address add 192.0.2.1/24 dev left");
        run("ip address add 10.1.1.1/24 dev right");
        run("ip route add default via 192.0.2.9");
        make(&spec).unwrap();
        let host = Commands::open().unwrap();
        routes::take(&host, &spec, &names).unwrap();
        let way = |to: &str, from: &str, iif: &str| {
            shown(&format!("ip route get {to} from {from} iif {iif}"))
        };
        assert!(way("8.8.8.8", "10.1.1.7", "right").contains(&names.entrance));
        assert!(way("10.1.1.7", "192.0.2.7", "left").contains("dev right"), "the way back");
        run("ip route add 198.51.100.0/24 via 10.1.1.8");
        routes::set(&host, &spec, &names).unwrap();
        assert!(way("198.51.100.7", "192.0.2.7", "left").contains("dev right"));
        run("ip route del 198.51.100.0/24 via 10.1.1.8");
        routes::set(&host, &spec, &names).unwrap();
        assert!(way("198.51.100.7", "10.1.1.7", "right").contains(&names.entrance));
        remove(&names).unwrap();
    });
}

#[test]
fn devices_of_somebody_else_are_left_alone() {
    let spec = spec(&name("c"));
    on_a_veth_pair(move || {
        forward();
        let _removed = Removed(spec.names());
        let names = spec.names();
        run(&format!("ip link add {} type bridge", names.entrance));
        let error = make(&spec).unwrap_err().to_string();
        assert!(error.contains("not a triangle's") && error.contains("--clean"), "{error}");
        remove(&names).unwrap();
        assert!(TriangleLink::named(&names.entrance).unwrap().is_some());
        run(&format!("ip link del {}", names.entrance));
        make(&spec).unwrap();
        let other = Spec { wan: "right".into(), ..spec.clone() };
        assert!(make(&other).unwrap_err().to_string().contains("for left"));
        assert_eq!(check(&names), Ok(()));
        remove(&names).unwrap();
    });
}

#[test]
fn what_is_missing_is_said_and_found() {
    let spec = spec(&name("d"));
    on_a_veth_pair(move || {
        forward();
        let _removed = Removed(spec.names());
        let names = spec.names();
        make(&spec).unwrap();
        let inside = |command: &str| run(&format!("ip -n {} {command}", names.namespace));
        inside("link set bridge down");
        inside("link del bridge");
        assert!(check(&names).unwrap_err().contains("leads to no bridge"));
        make(&spec).unwrap();
        inside("link set wan down");
        assert!(check(&names).unwrap_err().contains("is down"), "{:?}", check(&names));
        let of = |found: &[FoundTriangle]| found.iter().filter(|it| it.name == spec.name).count();
        assert_eq!(of(&found().unwrap()), 1);
        run(&format!("ip link del {}", names.exit));
        assert!(check(&names).unwrap_err().contains("is missing"));
        run(&format!("ip link del {}", names.entrance));
        // Only the namespace and the rules are left.
        assert_eq!(of(&found().unwrap()), 1);
        assert!(
            remove_orphans(std::slice::from_ref(&names)).unwrap() == 0 && left().contains("26100")
        );
        remove(&names).unwrap();
        assert_eq!(of(&found().unwrap()), 0);
        assert_eq!(remove_orphans(&[]).unwrap(), 0);
    });
}
