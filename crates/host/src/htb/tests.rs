//! The qdisc on real devices.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};

use super::*;
use crate::port::tests::{on_a_veth_pair, run};

const HANDLE: u32 = 1 << 16;

fn tc(arguments: &str) -> String {
    let output = std::process::Command::new("tc").args(arguments.split(' ')).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn classes_have_their_rates_and_leave_no_trace() {
    on_a_veth_pair(|| {
        let ifindex = if_nametoindex("left").unwrap();
        assert!(!is_left_behind(ifindex, HANDLE).unwrap());
        let htb = Htb::create(ifindex, HANDLE).unwrap();
        assert!(is_left_behind(ifindex, HANDLE).unwrap());
        for (rate, shown) in [
            (Some(Rate::from_mbit_per_sec(96)), "rate 96Mbit ceil 96Mbit"),
            (Some(Rate::from_bits_per_sec(120_000)), "rate 120Kbit ceil 120Kbit"),
            (Some(Rate::from_mbit_per_sec(40_000)), "rate 40Gbit ceil 40Gbit"),
            (None, "rate 100Gbit ceil 100Gbit"),
        ] {
            htb.set_class(HANDLE | 1, rate).unwrap();
            let classes = tc("class show dev left");
            assert!(classes.contains(shown), "{classes}");
            assert_eq!(classes.lines().count(), 2, "and unclassified packets");
        }
        for longest in [1518, 70_000] {
            htb.set_sharer(HANDLE | 0x400, HANDLE | 1, longest).unwrap();
            let classes = tc("-d class show dev left");
            assert!(classes.contains(&format!("quantum {longest} ")), "{classes}");
            let limit = ByteCount::new(40_000);
            htb.set_leaf(HANDLE | 0x400, Leaf { limit, longest }).unwrap();
            let qdiscs = tc("qdisc show dev left");
            assert!(qdiscs.contains("qdisc tbf ") && qdiscs.contains("parent 1:400"), "{qdiscs}");
        }
        htb.remove().unwrap();
        assert!(!is_left_behind(ifindex, HANDLE).unwrap());
    });
}

/// Changes that other programs have made to the qdisc since the last call.
fn told(changes: &Changes, htb: &Htb) -> Vec<ForeignChange> {
    let mut told = changes.take().unwrap().unwrap();
    told.retain(|change| htb.is_of(change));
    told
}

#[test]
fn only_foreign_removal_of_own_parts_is_reported() {
    on_a_veth_pair(|| {
        let ifindex = if_nametoindex("left").unwrap();
        let htb = Htb::create(ifindex, HANDLE).unwrap();
        let changes = htb.changes().unwrap();
        let (class, leaf) = (HANDLE | 1, HANDLE | 0x400);
        let make = || {
            htb.set_class(class, Some(Rate::from_mbit_per_sec(96)))?;
            htb.set_sharer(leaf, class, 1518)?;
            htb.set_leaf(leaf, Leaf { limit: ByteCount::new(40_000), longest: 1518 })?;
            htb.set_queue(leaf, "pfifo", &[])
        };
        for taken in [
            "tc qdisc del dev left parent 401:1",
            "tc qdisc del dev left parent 1:400",
            "tc class del dev left classid 1:400",
            "tc qdisc del dev left root",
        ] {
            make().unwrap();
            make().unwrap();
            run("tc qdisc add dev left clsact");
            run("tc qdisc del dev left clsact");
            run("tc qdisc replace dev right root handle 1: pfifo");
            run("tc qdisc del dev right root");
            assert!(told(&changes, &htb).is_empty(), "before `{taken}`");
            run(taken);
            assert!(told(&changes, &htb).iter().any(|change| change.is_gone), "{taken}");
            assert!(told(&changes, &htb).is_empty(), "told once");
        }
        assert_eq!(make().unwrap_err().kind(), io::ErrorKind::NotFound);
        run("tc qdisc add dev left root pfifo");
        assert_eq!(htb.put().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        run("tc qdisc del dev left root");
        htb.put().unwrap();
        make().unwrap();
        assert!(told(&changes, &htb).iter().all(|change| change.kind == "pfifo"));
    });
}

#[test]
fn foreign_change_is_compared_with_the_setting() {
    on_a_veth_pair(|| {
        let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
        let changes = htb.changes().unwrap();
        let (class, sharer) = (HANDLE | 1, HANDLE | 0x400);
        let leaf = Leaf { limit: ByteCount::new(40_000), longest: 1518 };
        let is_as_set = |rate: Option<Rate>, change: &ForeignChange| {
            if htb.is_class(change, class) {
                change.has_class(&bundle_options(rate, 0))
            } else {
                htb.is_at(change, sharer) && htb.is_leaf_as(change, sharer, leaf, 1518)
            }
        };
        for rate in [None, Some(Rate::from_mbit_per_sec(96)), Some(Rate::from_bits_per_sec(9000))] {
            htb.set_class(class, rate).unwrap();
            htb.set_sharer(sharer, class, 1518).unwrap();
            htb.set_leaf(sharer, leaf).unwrap();
            for (line, is_other) in [
                // The kernel reports the state after the change.
                (
                    "tc class change dev left parent 1:1 classid 1:400 htb rate 1mbit quantum 9",
                    true,
                ),
                ("tc class change dev left parent 1: classid 1:1 htb rate 50mbit", true),
                (
                    "tc qdisc change dev left handle 401: parent 1:400 tbf rate 64kbit burst 1600 limit 9000",
                    true,
                ),
                ("tc qdisc add dev left handle 999: parent 401:1 pfifo", true),
            ] {
                run(line);
                let told = told(&changes, &htb);
                assert_eq!(
                    told.iter().any(|it| !is_as_set(rate, it)),
                    is_other,
                    "{line}: {told:?}"
                );
            }
            htb.remove_queue(sharer).unwrap();
        }
        // Another program that sets the same values. The kernel reports its changes.
        let other = Htb { kernel: Commands::open().unwrap(), own: htb.own.clone(), ..htb };
        for rate in [None, Some(Rate::from_mbit_per_sec(96)), Some(Rate::from_bits_per_sec(9000))] {
            other.set_class(class, rate).unwrap();
            other.set_sharer(sharer, class, 1518).unwrap();
            other.set_leaf(sharer, leaf).unwrap();
            let told = told(&changes, &other);
            assert_eq!(told.len(), 3, "{told:?}");
            for change in &told {
                let is_as_set = if other.is_class(change, class) {
                    change.has_class(&bundle_options(rate, 0))
                } else {
                    other.is_leaf_as(change, sharer, leaf, 1518)
                };
                assert!(is_as_set, "{change:?}");
            }
        }
    });
}

#[test]
fn unclassified_packets_wait_in_the_default_qdisc() {
    on_a_veth_pair(|| {
        run("ip link add multi numtxqueues 2 type veth peer name far");
        run("ip link set far up");
        run("ip link set multi up");
        for (line, expected) in [
            ("tc qdisc replace dev multi root noqueue", "qdisc pfifo_fast 4001: parent 1:4000 "),
            (
                "tc qdisc replace dev multi root pfifo limit 77",
                "qdisc pfifo 4001: parent 1:4000 limit 77p",
            ),
            (
                "tc qdisc replace dev multi root handle 7: mq",
                "qdisc pfifo_fast 4001: parent 1:4000 ",
            ),
            (
                "tc qdisc replace dev multi parent 7:1 bfifo limit 5000",
                "qdisc bfifo 4001: parent 1:4000 limit 5000b",
            ),
        ] {
            if line.contains("parent 7:") {
                run("tc qdisc replace dev multi root handle 7: mq");
            }
            run(line);
            let htb = Htb::create(if_nametoindex("multi").unwrap(), HANDLE).unwrap();
            let shown = tc("qdisc show dev multi");
            assert!(shown.contains(expected), "{line}: {shown}");
            // An unchanged qdisc keeps its packets, and a removed one comes back.
            htb.set_others().unwrap();
            for taken in
                ["tc qdisc del dev multi parent 1:4000", "tc class del dev multi classid 1:4000"]
            {
                run(taken);
                assert!(!tc("qdisc show dev multi").contains(expected));
                htb.set_others().unwrap();
                assert!(tc("qdisc show dev multi").contains(expected), "{line}: {taken}");
            }
            htb.remove().unwrap();
        }
    });
}

#[test]
fn fq_codel_of_the_device_keeps_its_options() {
    if forebay_skips::skip_without(forebay_skips::Need::FlowQdiscs) {
        return;
    }
    on_a_veth_pair(|| {
        run("tc qdisc replace dev left root fq_codel limit 600 flows 64 target 7ms noecn");
        let before = tc("qdisc show dev left");
        let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
        htb.set_others().unwrap();
        let options = before.split(" root refcnt 2 ").nth(1).unwrap();
        let after = tc("qdisc show dev left");
        assert!(after.contains(options.trim()), "{before}{after}");
    });
}

#[test]
fn another_device_is_followed_despite_an_existing_qdisc() {
    on_a_veth_pair(|| {
        run("tc qdisc replace dev right root pfifo limit 77");
        let mut htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
        htb.follow(if_nametoindex("right").unwrap()).unwrap();
        run("tc qdisc del dev right root");
        htb.put().unwrap();
        let shown = tc("qdisc show dev right");
        assert!(shown.contains("qdisc pfifo 4001: parent 1:4000 limit 77p"), "{shown}");
        htb.follow(htb.ifindex()).unwrap();
        assert!(!tc("qdisc show dev right").contains("htb"), "{}", tc("qdisc show dev right"));
        htb.put().unwrap();
        assert!(tc("qdisc show dev right").contains("qdisc pfifo_fast 4001: parent 1:4000 "));
    });
}

#[test]
fn length_of_the_queue_stays() {
    on_a_veth_pair(|| {
        let length = || {
            let output = std::process::Command::new("ip").args(["link", "show", "left"]).output();
            let shown = String::from_utf8(output.unwrap().stdout).unwrap();
            shown.split(" qlen ").nth(1).and_then(|it| it.split(['\n', ' ']).next()?.parse().ok())
        };
        for before in [0_u32, 77] {
            run(&format!("ip link set left txqueuelen {before}"));
            let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
            htb.set_class(HANDLE | 1, None).unwrap();
            htb.set_leaf(HANDLE | 1, Leaf { limit: ByteCount::new(40_000), longest: 1518 })
                .unwrap();
            htb.keep_queue_length().unwrap();
            // A length of 0 is not shown.
            assert_eq!(length().unwrap_or(0), before);
            htb.remove().unwrap();
            assert_eq!(length().unwrap_or(0), before);
        }
    });
}

#[test]
fn probing_qdisc_kinds_creates_none() {
    on_a_veth_pair(|| {
        let ifindex = if_nametoindex("left").unwrap();
        for others in [None, Some("tc qdisc add dev left root handle 2: htb")] {
            others.into_iter().for_each(run);
            // Meanwhile the kernel counts its own packets, such as router solicitations.
            let qdiscs = || {
                let all = tc("qdisc show dev left");
                all.split(" direct_packets_stat").next().unwrap_or_default().to_owned()
            };
            let before = qdiscs();
            for kind in ["htb", "tbf", "pfifo"] {
                look_for(kind, ifindex, HANDLE).unwrap();
            }
            let error = look_for("none_such", ifindex, HANDLE).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            assert_eq!(qdiscs(), before);
        }
    });
}

#[test]
fn packets_stay_in_named_qdisc_when_leaf_changes() {
    on_a_veth_pair(|| {
        let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
        let class = HANDLE | 1;
        htb.set_class(class, None).unwrap();
        for longest in [70_000, 1518] {
            htb.set_leaf(class, Leaf { limit: ByteCount::new(40_000), longest }).unwrap();
            htb.set_queue(class, "pfifo", &[]).unwrap();
            let qdiscs = tc("qdisc show dev left");
            assert!(qdiscs.contains("qdisc tbf 2: parent 1:1 "), "{qdiscs}");
            let of_pfifo: Vec<&str> =
                qdiscs.lines().filter(|line| line.contains("pfifo ")).collect();
            assert!(of_pfifo.len() == 1 && of_pfifo[0].contains("parent 2:1 "), "{qdiscs}");
        }
        let error = htb.set_queue(class, "none_such", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    });
}

#[test]
fn fq_codel_keeps_packets_across_option_change() {
    if forebay_skips::skip_without(forebay_skips::Need::FlowQdiscs) {
        return;
    }
    on_a_veth_pair(|| {
        run("ip address add 10.9.0.1/24 dev left");
        run("ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:09 dev left");
        let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
        let changes = htb.changes().unwrap();
        let class = HANDLE | 1;
        htb.set_class(class, Some(Rate::from_bits_per_sec(100_000))).unwrap();
        htb.set_leaf(class, Leaf { limit: ByteCount::new(1 << 20), longest: 1518 }).unwrap();
        htb.set_queue(class, "fq_codel", &[]).unwrap();
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        setsockopt(&socket, sockopt::Priority, &(class as i32)).unwrap();
        for _ in 0..20 {
            socket.send_to(&[7; 1400], "10.9.0.2:9").unwrap();
        }
        let shown = || {
            let all = tc("-s qdisc show dev left");
            all.split("qdisc fq_codel").nth(1).unwrap().to_owned()
        };
        let waiting = |shown: &str| -> u32 {
            let backlog = shown.split("backlog ").nth(1).unwrap();
            let packets = backlog.split(' ').nth(1).unwrap();
            packets.trim_end_matches('p').parse().unwrap()
        };
        let before = shown();
        assert!(before.contains("interval 100ms") && waiting(&before) > 10, "{before}");
        let options = fq_codel_options(Duration::from_millis(20), Duration::from_millis(400));
        htb.set_queue(class, "fq_codel", &options).unwrap();
        let after = shown();
        // A frame leaves in 115 ms.
        assert!(after.contains("interval 400ms"), "{after}");
        assert!(waiting(&after) + 5 >= waiting(&before), "{before}{after}");
        assert!(after.contains("dropped 0,"), "{after}");
        assert!(told(&changes, &htb).is_empty(), "nothing was changed by another program");
    });
}

#[test]
fn waiting_super_packets_leave_after_segmentation_begins() {
    on_a_veth_pair(|| {
        run("ip address add 10.9.0.1/24 dev left");
        run("ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:09 dev left");
        let htb = Htb::create(if_nametoindex("left").unwrap(), HANDLE).unwrap();
        let class = HANDLE | 1;
        htb.set_class(class, Some(Rate::from_bits_per_sec(100_000))).unwrap();
        let limit = ByteCount::new(1 << 20);
        htb.set_leaf(class, Leaf { limit, longest: 1 << 18 }).unwrap();
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        setsockopt(&socket, sockopt::Priority, &(class as i32)).unwrap();
        setsockopt(&socket, sockopt::UdpGsoSegment, &1000).unwrap();
        for _ in 0..3 {
            socket.send_to(&[7; 30_000], "10.9.0.2:9").unwrap();
        }
        // The first has emptied the bucket of the class for 2.5 s, whatever its rate from then on.
        let queued = || tc("-s qdisc show dev left").split("backlog ").nth(1).unwrap().to_owned();
        assert!(queued().contains("b 2p "), "{}", queued());
        htb.set_leaf(class, Leaf { limit, longest: 1518 }).unwrap();
        htb.set_class(class, None).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !queued().starts_with("0b 0p ") {
            assert!(Instant::now() < deadline, "{}", queued());
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn foreign_qdisc_is_not_taken_for_own_remains() {
    on_a_veth_pair(|| {
        let ifindex = if_nametoindex("left").unwrap();
        run("tc qdisc add dev left root handle 2: htb");
        assert!(!is_left_behind(ifindex, HANDLE).unwrap());
        run("tc qdisc replace dev left root handle 1: pfifo");
        assert!(!is_left_behind(ifindex, HANDLE).unwrap());
        assert!(Htb::create(9999, HANDLE).is_err());
        run("tc qdisc replace dev left root noqueue");
        Htb::create(ifindex, HANDLE).unwrap();
    });
}
