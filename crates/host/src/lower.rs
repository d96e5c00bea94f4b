//! Devices that a frame passes on its way up to another device. The kernel merges packets (GRO) at the
//! lowest one, even if GRO is off at the upper device.

use std::io;

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkMessage};
use nix::net::if_::if_nametoindex;

use crate::offload::{self, Offload, OffloadError};
use crate::rtnetlink::{self, first};

/// Kind of a device (IFLA_INFO_KIND), such as `wireguard`; `None`: the kernel names no kind, as for
/// hardware.
pub fn kind(device: &str) -> io::Result<Option<String>> {
    let link = rtnetlink::link(if_nametoindex(device).map_err(|_| io::ErrorKind::NotFound)?)?;
    Ok(rtnetlink::kind(&link).map(ToString::to_string))
}

/// The device directly below a link, in this network namespace. A veth names its peer instead, which does
/// not count.
fn upon(link: &LinkMessage) -> Option<u32> {
    let kind = rtnetlink::kind(link)?;
    let is_upon = matches!(kind, InfoKind::Vlan | InfoKind::MacVlan | InfoKind::MacVtap)
        && first!(link.attributes, LinkAttribute::LinkNetNsId).is_none();
    first!(link.attributes, LinkAttribute::Link).copied().filter(|_| is_upon)
}

/// The names of all devices below `device`, of the current network namespace: its ports, the device directly
/// below it, and those below these.
pub fn below(device: &str) -> io::Result<Vec<String>> {
    let links = rtnetlink::links()?;
    let mut found = vec![if_nametoindex(device)?];
    let mut at = 0;
    while let Some(&index) = found.get(at) {
        let upon = links.iter().find(|link| link.header.index == index).and_then(upon);
        let ports =
            links.iter().filter(|link| link.attributes.contains(&LinkAttribute::Controller(index)));
        let lower = ports.map(|port| port.header.index).chain(upon);
        let lower: Vec<u32> = lower.filter(|lower| !found.contains(lower)).collect();
        found.extend(lower);
        at += 1;
    }
    let name = |index: u32| {
        let link = links.iter().find(|link| link.header.index == index)?;
        first!(link.attributes, LinkAttribute::IfName).cloned()
    };
    Ok(found.into_iter().skip(1).filter_map(name).collect())
}

/// A device below `device` that merges packets on their way up, if there is one.
pub fn merging_below(device: &str) -> Result<Option<String>, OffloadError> {
    let os = |source| OffloadError::Os { device: device.into(), offload: Offload::Gro, source };
    for lower in below(device).map_err(os)? {
        if offload::is_on(&lower, Offload::Gro)? || offload::is_on(&lower, Offload::Lro)? {
            return Ok(Some(lower));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn lower_devices_exclude_the_veth_peer() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            run("ip link add link br0 name mac0 type macvlan mode bridge");
            assert_eq!(below("mac0").unwrap(), ["br0", "left"]);
            assert_eq!(below("br0").unwrap(), ["left"]);
            assert_eq!(below("left").unwrap(), [""; 0]);
            assert!(below("nowhere").is_err());
            for device in ["br0", "left"] {
                let before = merging_below("mac0").unwrap();
                run(&format!("ethtool -K {device} gro on"));
                assert_eq!(
                    merging_below("mac0").unwrap().as_deref(),
                    before.as_deref().or(Some(device))
                );
                run(&format!("ethtool -K {device} gro off"));
            }
            assert_eq!(merging_below("mac0").unwrap(), None);
        });
    }
}
