//! The VLANs of a bridge's ports, and which frames pass between two ports unchanged.

use std::collections::BTreeSet;
use std::io;

use netlink_packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags as Flags, LinkAttribute, LinkMessage,
};
use serde::{Deserialize, Serialize};

use crate::rtnetlink::{self, first};

/// The VLANs of a port.
pub fn of(ifindex: u32) -> io::Result<Vec<BridgeVlanInfo>> {
    let ports = rtnetlink::bridge_ports()?;
    let port = ports.iter().find(|port| port.header.index == ifindex);
    Ok(port.map(vlans_of).unwrap_or_default())
}

/// The VLANs that a message lists. A range of VLANs has two entries: its first and its last.
fn vlans_of(port: &LinkMessage) -> Vec<BridgeVlanInfo> {
    let listed = first!(port.attributes, LinkAttribute::AfSpecBridge);
    let mut vlans = Vec::new();
    let mut first = None;
    for listed in listed.into_iter().flatten() {
        let AfSpecBridge::VlanInfo(vlan) = listed else { continue };
        if vlan.flags.contains(Flags::RangeBegin) {
            first = Some(vlan.vid);
            continue;
        }
        let from = first.take().unwrap_or(vlan.vid);
        vlans.extend((from..=vlan.vid).map(|vid| BridgeVlanInfo { vid, ..*vlan }));
    }
    vlans
}

/// The VLAN of frames without a tag, if the port accepts such frames.
pub fn untagged(port: &[BridgeVlanInfo]) -> Option<u16> {
    port.iter().find(|vlan| vlan.flags.contains(Flags::Pvid)).map(|vlan| vlan.vid)
}

/// Treatment of the tags of frames from one port to another. A bridge drops frames with other tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlans {
    /// VLANs of frames that leave with the tag that they came with; 0: frames without a tag.
    pub kept: BTreeSet<u16>,
    /// VLANs of frames that leave without the tag that they came with; 0: frames with a priority tag.
    pub untagged: BTreeSet<u16>,
}

impl Vlans {
    /// Derives the treatment for frames that come in at `lan` and leave by `wan`.
    pub fn between(lan: &[BridgeVlanInfo], wan: &[BridgeVlanInfo]) -> Self {
        let mut vlans = Self::default();
        for vlan in wan {
            let is_taken = lan.iter().any(|of_lan| of_lan.vid == vlan.vid);
            let leaves_untagged = vlan.flags.contains(Flags::Untagged);
            if is_taken {
                let tagged = if leaves_untagged { &mut vlans.untagged } else { &mut vlans.kept };
                tagged.insert(vlan.vid);
            }
            // A tag of VLAN 0 only has a priority: the frame belongs to the same VLAN as without it.
            if leaves_untagged && untagged(lan) == Some(vlan.vid) {
                vlans.kept.insert(0);
                vlans.untagged.insert(0);
            }
        }
        vlans
    }
}

#[cfg(test)]
mod tests {
    use forebay_skips::{Need, skip_without};
    use netlink_packet_core::Parseable;

    use super::*;
    use crate::bridge::passage;
    use crate::netlink::attribute_of;
    use crate::port::tests::{on_a_veth_pair, run};

    fn vlans(kept: &[u16], untagged: &[u16]) -> Vlans {
        let [kept, untagged] = [kept, untagged].map(|of| of.iter().copied().collect());
        Vlans { kept, untagged }
    }

    /// Reads the message in which the kernel lists these VLANs of a port.
    fn port(vlans: &[(Flags, u16)]) -> Vec<BridgeVlanInfo> {
        // include/uapi/linux/if_bridge.h
        const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
        let info = |(flags, vid): &(Flags, u16)| {
            let info = [flags.bits(), *vid].map(u16::to_ne_bytes).concat();
            attribute_of(IFLA_BRIDGE_VLAN_INFO, &info)
        };
        let mut message = vec![libc::AF_BRIDGE as u8];
        message.resize(size_of::<libc::ifinfomsg>(), 0);
        if !vlans.is_empty() {
            let listed: Vec<u8> = vlans.iter().flat_map(info).collect();
            message.extend(attribute_of(libc::IFLA_AF_SPEC, &listed));
        }
        vlans_of(&LinkMessage::parse(&message).unwrap())
    }

    #[test]
    fn frame_tag_follows_both_ports_vlan_settings() {
        const BEGINS: Flags = Flags::RangeBegin;
        const ENDS: Flags = Flags::RangeEnd;
        const OWN: Flags = Flags::Pvid.union(Flags::Untagged);
        const NONE: Flags = Flags::empty();
        let trunk = port(&[(OWN, 1), (BEGINS, 2), (ENDS, 4094)]);
        assert_eq!((trunk.len(), untagged(&trunk)), (4094, Some(1)));
        let some = port(&[(OWN, 1), (BEGINS, 7), (ENDS, 9), (NONE, 12), (Flags::Untagged, 20)]);
        let tagged = port(&[(NONE, 1), (NONE, 7)]);
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
    fn vlans_forwarded_unchanged_are_listed() {
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
