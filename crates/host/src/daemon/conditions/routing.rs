//! Conditions on the routes of a sendbox's machine, and notes about these routes for the operator.

use std::{fs, io};

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;

use super::{Condition, Devices, Fault};
use crate::ethernet;
use crate::route;

/// Condition on the device towards the Internet. Any other device may have any header.
pub(super) const LINK: Condition = Condition {
    name: "link",
    reason: "a sendbox reads Ethernet frames, or IP packets without a link-layer header",
    is_ground: true,
    is_awaited: false,
    look: |devices| {
        ethernet::check_or_bare(&devices.wan).map_err(Fault::from)?;
        Ok(if ethernet::is_bare(&devices.wan)? { "bare IP packets" } else { "Ethernet" }.into())
    },
};

/// Condition of a sendbox on a router: the kernel forwards the IP versions of its bundles.
pub(super) const FORWARDS: Condition = Condition {
    name: "IP forwarding",
    reason: "this machine would not forward packets of hosts",
    is_ground: false,
    is_awaited: true,
    look: forwards,
};

/// Condition of a sendbox on a router: routes lead packets of bundles through the WAN.
pub(super) const ROUTES: Condition = Condition {
    name: "routes",
    reason: "packets of bundles would leave through another device, unseen by the sendbox",
    is_ground: false,
    is_awaited: true,
    look: routes,
};

/// Most faults or notes that are named one by one.
const NAMED: usize = 8;

/// Whether a device takes packets only from the direction of the machine's own routes (RFC 3704; only IPv4
/// has a setting).
pub(super) fn is_strict(device: &str) -> bool {
    let value = |of: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    // The kernel takes the larger one (Documentation/networking/ip-sysctl.rst).
    value("all").max(value(device)) == 1
}

/// Sources of bundles that the kernel drops at `lan`, because the route back to them leaves through another
/// device.
///
/// # Errors
///
/// The kernel does not answer.
pub fn dropped_at(lan: &str, from: &[IpNet]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    if !is_strict(lan) {
        return Ok(found);
    }
    let lan = if_nametoindex(lan)?;
    for from in from.iter().filter(|from| from.addr().is_ipv4() && from.prefix_len() > 0) {
        match route::whole(*from)? {
            // A route without a device leads to an address of this machine, which NAT sets before packets are
            // matched.
            Some(route) if route.devices.is_empty() || route.devices.contains(&lan) => {}
            Some(route) => found.push(format!("the way back to {from} leaves {}", route.way())),
            None => found.push(format!("{from} has no way back")),
        }
    }
    Ok(found)
}

/// IP versions of the bundles' destinations: whether each is IPv4.
fn versions(devices: &Devices) -> impl Iterator<Item = bool> {
    let has = |is_v4: bool| devices.to.iter().any(|to| to.addr().is_ipv4() == is_v4);
    [true, false].into_iter().filter(move |is_v4| has(*is_v4)).collect::<Vec<_>>().into_iter()
}

fn forwards(devices: &Devices) -> Result<String, Fault> {
    if devices.own {
        // Packets of the machine itself need no forwarding, and there may be no hosts.
        return Ok("not required with box.own".into());
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
            "; a device configured by router advertisements needs accept_ra = 2 first"
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
        "add routes through {} (`ip route get ADDRESS` shows the device in use), or set box.wan to \
         that device",
        devices.wan
    );
    Err(Fault::new(listed(elsewhere), fix))
}

/// The first few, and how many more there are.
fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

impl Devices {
    /// Notes about routes that packets of bundles may take on a machine that routes: several next hops,
    /// rules, and parts of `to` that leave elsewhere. A box runs in spite of them.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
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
            found.push(format!("{more} more prefixes"));
        }
        let rules = route::policy_rules()?;
        if !rules.is_empty() {
            let rules = listed(rules);
            found.push(format!("rules may route packets elsewhere (policy routing): {rules}"));
        }
        Ok(found)
    }

    /// Parts of the bundles' destinations that leave through other devices, and so in no bundle. Networks
    /// attached to the machine do not count.
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
    use super::super::FailedCondition;
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

    fn failed(devices: &Devices) -> Vec<(String, String)> {
        let said = |FailedCondition { condition, fault }| (condition, fault.found);
        devices.failed_conditions().into_iter().map(said).collect()
    }

    /// A machine with two network cards. The other end of the first one is here, too.
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
    fn router_must_forward_its_bundles_ip_versions() {
        on_a_router(|| {
            let v4 = routed("left", &["10.2.0.0/16"]);
            assert_eq!(failed(&v4), []);
            let both = routed("left", &["10.2.0.0/16", "2001:db8:2::/48"]);
            run("ip -6 route add 2001:db8:2::/48 via 2001:db8:1::2");
            let found = "this machine does not forward IPv6";
            assert_eq!(failed(&both), [("IP forwarding".to_string(), found.to_string())]);
            assert!(
                both.failed_conditions()[0].fault.fix.contains("accept_ra"),
                "{:?}",
                both.failed_conditions()
            );
            run("sysctl -qw net.ipv6.conf.all.forwarding=1");
            assert_eq!(failed(&both), []);
            run("sysctl -qw net.ipv4.ip_forward=0");
            assert_eq!(failed(&v4)[0].1, "this machine does not forward IPv4");
            assert_eq!(failed(&Devices { own: true, ..v4 }), []);
        });
    }

    #[test]
    fn bundles_must_leave_through_the_wan() {
        on_a_router(|| {
            let devices = routed("left", &["10.2.0.0/16", "10.3.0.0/16"]);
            assert_eq!(failed(&devices), []);
            run("ip route add 10.3.0.0/16 via 198.51.100.2");
            let said = failed(&devices);
            assert_eq!(said, [("routes".into(), "10.3.0.0/16 leaves through other".into())]);
            run("ip route del 10.3.0.0/16");
            assert_eq!(failed(&devices), []);
            run("ip route del default");
            let said = failed(&devices).remove(0).1;
            assert_eq!(said, "10.2.0.0/16 has no route, 10.3.0.0/16 has no route");
            run("ip route add 10.0.0.0/8 nexthop via 192.0.2.2 nexthop via 198.51.100.2");
            assert!(failed(&devices)[0].1.contains("(multipath) through left, other"));
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
            assert_eq!(failed(&devices), []);
            let hops = "by 2 next hops (multipath) through left";
            let expected = [
                &format!("10.2.0.0/16 leaves {hops}"),
                &format!("198.51.0.0/16 leaves {hops}"),
                "10.2.1.0/24 of 10.2.0.0/16 leaves through other",
                "rules may route packets elsewhere (policy routing): 90: fwmark 0x7 table 100",
            ];
            assert_eq!(devices.routing().unwrap(), expected);
            // A bridge has no routes to look up.
            let bridged = Devices::bridged("left", "right", DatapathKind::Kernel);
            assert_eq!(bridged.routing().unwrap(), [""; 0]);
        });
    }

    #[test]
    fn strict_filters_drop_what_has_another_way_back() {
        on_a_router(|| {
            let dropped = |from: &str| dropped_at("left", &[from.parse().unwrap()]).unwrap();
            run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.left.rp_filter=2");
            run("ip route add 10.3.0.0/16 via 198.51.100.2");
            assert_eq!(dropped("10.3.0.0/16"), [""; 0], "any way back will do");
            run("sysctl -qw net.ipv4.conf.left.rp_filter=1");
            assert_eq!(
                dropped("10.3.0.0/16"),
                ["the way back to 10.3.0.0/16 leaves through other"]
            );
            for from in ["192.0.2.0/24", "10.4.0.0/16", "192.0.2.1/32", "2001:db8:9::/48"] {
                assert_eq!(dropped(from), [""; 0], "{from}");
            }
            // The larger value of the two is in force.
            run("sysctl -qw net.ipv4.conf.all.rp_filter=2");
            assert_eq!(dropped("10.3.0.0/16"), [""; 0]);
            run("ip route del default");
            run("sysctl -qw net.ipv4.conf.all.rp_filter=1");
            assert_eq!(dropped("10.4.0.0/16"), ["10.4.0.0/16 has no way back"]);
        });
    }

    #[test]
    fn devices_without_ethernet_may_be_the_wan() {
        on_a_router(|| {
            run("ip tuntap add dev tun0 mode tun");
            run("ip link set dev tun0 up");
            run("ip route add 10.2.0.0/16 dev tun0");
            assert_eq!(failed(&routed("tun0", &["10.2.0.0/16"])), []);
        });
    }
}
