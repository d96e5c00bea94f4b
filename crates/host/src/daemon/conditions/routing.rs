//! What must hold of the routes of a sendbox's machine, and what of them an operator should know.

use std::io;

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;

use super::{Condition, Devices, Fault};
use crate::ethernet;
use crate::route;

/// Of the device towards the Internet; any other may have whatever header.
pub(super) const LINK: Condition = Condition {
    name: "link",
    reason: "a sendbox reads Ethernet frames, or IP packets without a header of a link",
    is_ground: true,
    is_awaited: false,
    look: |devices| {
        ethernet::check_or_bare(&devices.wan).map_err(Fault::from)?;
        Ok(if ethernet::is_bare(&devices.wan)? { "bare IP packets" } else { "Ethernet" }.into())
    },
};

pub(super) const FORWARDS: Condition = Condition {
    name: "IP forwarding",
    reason: "the machine would forward no packets of hosts",
    is_ground: false,
    is_awaited: true,
    look: forwards,
};

pub(super) const ROUTES: Condition = Condition {
    name: "routes",
    reason: "packets of bundles would leave elsewhere, and not be seen",
    is_ground: false,
    is_awaited: true,
    look: routes,
};

/// Faults, or things to know, that are named one by one.
const NAMED: usize = 8;

/// IP versions of the bundles' destinations: whether each is IPv4.
fn versions(devices: &Devices) -> impl Iterator<Item = bool> {
    let has = |is_v4: bool| devices.to.iter().any(|to| to.addr().is_ipv4() == is_v4);
    [true, false].into_iter().filter(move |is_v4| has(*is_v4)).collect::<Vec<_>>().into_iter()
}

fn forwards(devices: &Devices) -> Result<String, Fault> {
    if devices.own {
        // What the machine itself sends needs none, and hosts may be there or not.
        return Ok("not asked for with box.own".into());
    }
    let lan = devices.lan.as_deref();
    for is_v4 in versions(devices) {
        if route::forwards(is_v4, lan)? {
            continue;
        }
        let (version, setting) = match (is_v4, lan) {
            (true, None) => ("IPv4", "net.ipv4.ip_forward".into()),
            (true, Some(lan)) => ("IPv4", format!("net/ipv4/conf/{lan}/forwarding")),
            (false, _) => ("IPv6", "net.ipv6.conf.all.forwarding".into()),
        };
        let more = if is_v4 {
            ""
        } else {
            "; a device that has its address and routes by router advertisements needs accept_ra = 2 before that"
        };
        let found = format!("this machine does not forward {version}");
        return Err(Fault::new(found, format!("sysctl -w {setting}=1{more}")));
    }
    Ok("on".into())
}

fn routes(devices: &Devices) -> Result<String, Fault> {
    let wan = if_nametoindex(devices.wan.as_str()).map_err(io::Error::from)?;
    let mut elsewhere = Vec::new();
    for to in &devices.to {
        match route::whole(*to)? {
            Some(route) if route.is_through(wan) => {}
            Some(route) => elsewhere.push(format!("{to} leaves {}", route.way())),
            None => elsewhere.push(format!("{to} has no route")),
        }
    }
    if elsewhere.is_empty() {
        return Ok(format!("through {}", devices.wan));
    }
    let fix = format!(
        "routes through {}, as `ip route get` says of an address of each, or that device as box.wan",
        devices.wan
    );
    Err(Fault::new(listed(elsewhere), fix))
}

/// The first of these, and how many more there are.
fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

impl Devices {
    /// What packets of bundles may meet where the machine routes: several next hops, rules, and parts of `to` that leave
    /// elsewhere. None of it keeps a box from running.
    ///
    /// # Errors
    ///
    /// What the kernel does not say.
    pub fn routing(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        if self.to.is_empty() {
            return Ok(found);
        }
        let wan = if_nametoindex(self.wan.as_str())?;
        for to in &self.to {
            if let Some(route) = route::whole(*to)?
                && route.devices.len() > 1
            {
                found.push(format!("{to} leaves {}", route.way()));
            }
        }
        found.extend(self.parts_elsewhere(wan)?);
        let more = found.len().saturating_sub(NAMED);
        found.truncate(NAMED);
        if more > 0 {
            found.push(format!("{more} prefixes more of the like"));
        }
        let rules = route::policy_rules()?;
        if !rules.is_empty() {
            let rules = listed(rules);
            found.push(format!("rules may route packets elsewhere (policy routing): {rules}"));
        }
        Ok(found)
    }

    /// Parts of the bundles' destinations, as far as these are no networks of the machine's own, that leave through other
    /// devices, and so in no bundle.
    fn parts_elsewhere(&self, wan: u32) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut parts: Vec<(IpNet, IpNet)> = route::parts(&self.to)?
            .into_iter()
            .filter(|part| !part.is_attached)
            .map(|part| (part.prefix, part.of))
            .collect();
        parts.sort();
        parts.dedup();
        for (part, of) in parts {
            if let Some(route) = route::whole(part)?
                && !route.is_through(wan)
            {
                found.push(format!("{part} of {of} leaves {}", route.way()));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Void;
    use super::*;
    use crate::daemon::config::{DatapathKind, Forward};
    use crate::port::tests::{on_a_veth_pair, run};

    fn routed(wan: &str, to: &[&str]) -> Devices {
        Devices {
            lan: None,
            forward: Forward::Route,
            to: to.iter().map(|to| to.parse().unwrap()).collect(),
            ..Devices::bridged("none", wan, DatapathKind::Kernel)
        }
    }

    fn void(devices: &Devices) -> Vec<(String, String)> {
        let said = |Void { condition, fault }| (condition, fault.found);
        devices.void().into_iter().map(said).collect()
    }

    /// A machine with a network card, of which the other end is here, too, and a second one.
    fn on_a_router(test: impl FnOnce() + Send + 'static) {
        on_a_veth_pair(|| {
            run("ip link add other type veth peer name rehto");
            for device in ["left", "right", "other", "rehto"] {
                run(&format!("ip link set dev {device} up"));
            }
            run("ip address add 192.0.2.1/24 dev left");
            run("ip address add 198.51.100.1/24 dev other");
            run("ip -6 address add 2001:db8:1::1/64 dev left nodad");
            run("sysctl -qw net.ipv4.ip_forward=1");
            run("ip route add default via 192.0.2.2");
            test();
        });
    }

    #[test]
    fn a_router_must_forward_the_versions_of_its_bundles() {
        on_a_router(|| {
            let v4 = routed("left", &["10.2.0.0/16"]);
            assert_eq!(void(&v4), []);
            let both = routed("left", &["10.2.0.0/16", "2001:db8:2::/48"]);
            run("ip -6 route add 2001:db8:2::/48 via 2001:db8:1::2");
            let found = "this machine does not forward IPv6";
            assert_eq!(void(&both), [("IP forwarding".to_string(), found.to_string())]);
            assert!(both.void()[0].fault.fix.contains("accept_ra"), "{:?}", both.void());
            run("sysctl -qw net.ipv6.conf.all.forwarding=1");
            assert_eq!(void(&both), []);
            run("sysctl -qw net.ipv4.ip_forward=0");
            assert_eq!(void(&v4)[0].1, "this machine does not forward IPv4");
            assert_eq!(void(&Devices { own: true, ..v4 }), []);
        });
    }

    #[test]
    fn bundles_must_leave_through_the_wan() {
        on_a_router(|| {
            let devices = routed("left", &["10.2.0.0/16", "10.3.0.0/16"]);
            assert_eq!(void(&devices), []);
            run("ip route add 10.3.0.0/16 via 198.51.100.2");
            let said = void(&devices);
            assert_eq!(said, [("routes".into(), "10.3.0.0/16 leaves through other".into())]);
            run("ip route del 10.3.0.0/16");
            assert_eq!(void(&devices), []);
            run("ip route del default");
            let said = void(&devices).remove(0).1;
            assert_eq!(said, "10.2.0.0/16 has no route, 10.3.0.0/16 has no route");
            run("ip route add 10.0.0.0/8 nexthop via 192.0.2.2 nexthop via 198.51.100.2");
            assert!(void(&devices)[0].1.contains("(multipath) through left, other"));
        });
    }

    #[test]
    fn what_may_lead_elsewhere_is_named() {
        on_a_router(|| {
            let devices = routed("left", &["10.2.0.0/16", "198.51.0.0/16"]);
            assert_eq!(devices.routing().unwrap(), [""; 0]);
            run("ip route add 10.2.1.0/24 via 198.51.100.2");
            run("ip route add 10.2.2.0/24 via 192.0.2.3");
            run("ip rule add fwmark 7 table 100 priority 90");
            run("ip route replace default nexthop via 192.0.2.2 nexthop via 192.0.2.3");
            assert_eq!(void(&devices), []);
            let hops = "by 2 next hops (multipath) through left";
            let expected = [
                &format!("10.2.0.0/16 leaves {hops}"),
                &format!("198.51.0.0/16 leaves {hops}"),
                "10.2.1.0/24 of 10.2.0.0/16 leaves through other",
                "rules may route packets elsewhere (policy routing): 90: fwmark 0x7 table 100",
            ];
            assert_eq!(devices.routing().unwrap(), expected);
            // A bridge has no routes to ask for.
            let bridged = Devices::bridged("left", "right", DatapathKind::Kernel);
            assert_eq!(bridged.routing().unwrap(), [""; 0]);
        });
    }

    #[test]
    fn devices_without_ethernet_may_be_the_wan() {
        on_a_router(|| {
            run("ip tuntap add dev tun0 mode tun");
            run("ip link set dev tun0 up");
            run("ip route add 10.2.0.0/16 dev tun0");
            assert_eq!(void(&routed("tun0", &["10.2.0.0/16"])), []);
        });
    }
}
