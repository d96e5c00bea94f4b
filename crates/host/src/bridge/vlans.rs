//! The VLANs of a bridge's ports, and which frames pass between two of them as they are.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};

use super::{LINK_HEADER, RTM_GETLINK};
use crate::netlink::{self, HEADER, all_attributes, attribute};

/// A VLAN of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortVlan {
    /// `BRIDGE_VLAN_INFO_*`.
    flags: u16,
    vid: u16,
}

impl PortVlan {
    const fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// `struct bridge_vlan_info`.
    fn parse((kind, payload): (u16, &[u8])) -> Option<Self> {
        let [flags0, flags1, vid0, vid1] = *payload else { return None };
        let vlan = Self {
            flags: u16::from_ne_bytes([flags0, flags1]),
            vid: u16::from_ne_bytes([vid0, vid1]),
        };
        (kind == IFLA_BRIDGE_VLAN_INFO).then_some(vlan)
    }
}

/// The VLANs of a port.
pub fn of(ifindex: u32) -> io::Result<Vec<PortVlan>> {
    let mut body = vec![0; LINK_HEADER];
    body[0] = libc::AF_BRIDGE as u8;
    let mask = [8_u16.to_ne_bytes(), IFLA_EXT_MASK.to_ne_bytes()].concat();
    body.extend_from_slice(&mask);
    // In ranges: all that there are would not fit a message.
    body.extend_from_slice(&RTEXT_FILTER_BRVLAN_COMPRESSED.to_ne_bytes());
    let ports = netlink::dump(RTM_GETLINK, &body)?;
    let port = ports.iter().find(|message| {
        message.get(HEADER + 4..HEADER + 8).is_some_and(|index| index == ifindex.to_ne_bytes())
    });
    let link = port.and_then(|port| port.get(HEADER + LINK_HEADER..)).unwrap_or_default();
    Ok(listed(attribute(link, IFLA_AF_SPEC).unwrap_or_default()))
}

/// The VLANs of these attributes, of which a range has two: where it begins and where it ends.
fn listed(attributes: &[u8]) -> Vec<PortVlan> {
    let mut vlans = Vec::new();
    let mut first = None;
    for vlan in all_attributes(attributes).filter_map(PortVlan::parse) {
        if vlan.has(BRIDGE_VLAN_INFO_RANGE_BEGIN) {
            first = Some(vlan.vid);
            continue;
        }
        let from = first.take().unwrap_or(vlan.vid);
        vlans.extend((from..=vlan.vid).map(|vid| PortVlan { vid, ..vlan }));
    }
    vlans
}

/// The VLAN that frames without a tag are of, if the port takes any.
pub fn untagged(port: &[PortVlan]) -> Option<u16> {
    port.iter().find(|vlan| vlan.has(BRIDGE_VLAN_INFO_PVID)).map(|vlan| vlan.vid)
}

/// What becomes of the tags of frames from one port to another. A bridge drops those with other tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlans {
    /// Frames of these VLANs leave with the tag that they came with, those of 0 without one.
    pub kept: BTreeSet<u16>,
    /// Frames of these VLANs leave without the tag that they came with; 0 is that of a tag without a VLAN.
    pub untagged: BTreeSet<u16>,
}

impl Vlans {
    /// What becomes of the tags of frames that come in at `lan` and leave by `wan`.
    pub fn between(lan: &[PortVlan], wan: &[PortVlan]) -> Self {
        let mut vlans = Self::default();
        for vlan in wan {
            let is_taken = lan.iter().any(|of_lan| of_lan.vid == vlan.vid);
            let leaves_untagged = vlan.has(BRIDGE_VLAN_INFO_UNTAGGED);
            if is_taken {
                let tagged = if leaves_untagged { &mut vlans.untagged } else { &mut vlans.kept };
                tagged.insert(vlan.vid);
            }
            // A tag without a VLAN has a priority alone: the frame is of the port's VLAN, as without it.
            if leaves_untagged && untagged(lan) == Some(vlan.vid) {
                vlans.kept.insert(0);
                vlans.untagged.insert(0);
            }
        }
        vlans
    }
}

// include/uapi/linux/if_link.h, if_bridge.h, rtnetlink.h
const IFLA_AF_SPEC: u16 = 26;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 4;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const BRIDGE_VLAN_INFO_PVID: u16 = 2;
const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 4;
const BRIDGE_VLAN_INFO_RANGE_BEGIN: u16 = 8;

#[cfg(test)]
mod tests {
    use forebay_skips::{Need, skip_without};

    use super::*;
    use crate::bridge::passage;
    use crate::port::tests::{on_a_veth_pair, run};

    fn vlans(kept: &[u16], untagged: &[u16]) -> Vlans {
        let [kept, untagged] = [kept, untagged].map(|of| of.iter().copied().collect());
        Vlans { kept, untagged }
    }

    /// As the kernel lists VLANs of a port.
    fn port(vlans: &[(u16, u16)]) -> Vec<PortVlan> {
        let info = |(flags, vid): &(u16, u16)| {
            let header = [8_u16, IFLA_BRIDGE_VLAN_INFO].map(u16::to_ne_bytes);
            [header.concat(), [*flags, *vid].map(u16::to_ne_bytes).concat()].concat()
        };
        listed(&vlans.iter().flat_map(info).collect::<Vec<u8>>())
    }

    #[test]
    fn a_frame_keeps_its_tag_or_loses_it_as_both_ports_have_its_vlan() {
        const BEGINS: u16 = BRIDGE_VLAN_INFO_RANGE_BEGIN;
        const ENDS: u16 = 16;
        const OWN: u16 = BRIDGE_VLAN_INFO_PVID | BRIDGE_VLAN_INFO_UNTAGGED;
        let trunk = port(&[(OWN, 1), (BEGINS, 2), (ENDS, 4094)]);
        assert_eq!((trunk.len(), untagged(&trunk)), (4094, Some(1)));
        let some =
            port(&[(OWN, 1), (BEGINS, 7), (ENDS, 9), (0, 12), (BRIDGE_VLAN_INFO_UNTAGGED, 20)]);
        let tagged = port(&[(0, 1), (0, 7)]);
        assert_eq!((untagged(&some), untagged(&tagged)), (Some(1), None));
        for (lan, wan, kept, stripped) in [
            (&trunk, &some, &[0, 7, 8, 9, 12][..], &[0, 1, 20][..]),
            (&some, &trunk, &[0, 7, 8, 9, 12, 20], &[0, 1]),
            (&trunk, &tagged, &[1, 7], &[]),
            (&tagged, &trunk, &[7], &[1]),
            (&trunk, &port(&[]), &[], &[]),
        ] {
            assert_eq!(Vlans::between(lan, wan), vlans(kept, stripped));
        }
    }

    #[test]
    fn what_a_bridge_that_heeds_vlans_sends_on_as_it_comes_is_told() {
        if skip_without(Need::Root) || skip_without(Need::VlanBridges) {
            return;
        }
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            for port in ["left", "right"] {
                run(&format!("ip link set dev {port} master br0"));
            }
            let passage = || passage("left", "right").unwrap();
            assert_eq!((passage().vlans, passage().other_vlan), (None, None));
            let found = || (passage().vlans.unwrap(), passage().other_vlan);
            run("ip link set dev br0 type bridge vlan_filtering 1");
            assert_eq!(found(), (vlans(&[0], &[0, 1]), None));
            run("bridge vlan add dev left vid 2-4094");
            for vids in ["7-9", "12", "20 untagged"] {
                run(&format!("bridge vlan add dev right vid {vids}"));
            }
            assert_eq!(found(), (vlans(&[0, 7, 8, 9, 12], &[0, 1, 20]), None));
            run("bridge vlan del dev left vid 8");
            assert_eq!(found(), (vlans(&[0, 7, 9, 12], &[0, 1, 20]), None));
            run("bridge vlan add dev right vid 1");
            assert_eq!(found(), (vlans(&[1, 7, 9, 12], &[20]), Some(1)));
            run("bridge vlan del dev left vid 1");
            assert_eq!(found(), (vlans(&[7, 9, 12], &[20]), None));
            assert_eq!(passage().other_tags, None);
            run("ip link set dev br0 type bridge vlan_protocol 802.1ad");
            assert_eq!(passage().other_tags, Some(0x88a8));
        });
    }
}
