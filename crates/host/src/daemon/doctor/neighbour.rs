//! Checks of the other end of a device without a cable. The end may be another device of this kernel, or a
//! virtual machine. It may leave checksums of its packets unfinished.

use super::{Check, DeviceUse};
use crate::offload::{self, Offload};

/// Looks for a neighbour that sends packets with unfinished checksums; `None` if there is no candidate.
/// `link` is the output of `ip -json link` for the device.
pub(super) fn checksums(
    name: &str,
    device: &str,
    place: DeviceUse,
    link: &serde_json::Value,
) -> Option<Check> {
    if place == DeviceUse::Wan {
        return None;
    }
    let effect = match place {
        DeviceUse::Watched => {
            "the receivebox would count packets of that neighbour but match \
                               these to no boundary packet"
        }
        _ => {
            "a sendbox completes the checksums of TCP, UDP and SCTP, also in VXLAN, Geneve, GRE \
             and IP tunnels, which costs CPU; packets of that neighbour in other tunnels would be \
             lost"
        }
    };
    let line = "ethtool -K DEVICE tx off txvlan off";
    let fix = match offload::driver(device).unwrap_or_default().as_str() {
        // In this network namespace the other end has a name.
        "veth" => match link.get("link").and_then(|peer| peer.as_str()) {
            Some(peer) => {
                let on = |offload| offload::is_on(peer, offload).unwrap_or(false);
                if !on(Offload::TxChecksum) && !on(Offload::TxVlan) {
                    return Some(Check::ok(name, format!("{peer} completes checksums")));
                }
                let found = format!("{peer} leaves checksums unfinished: {effect}");
                return Some(Check::warn(name, found, line.replace("DEVICE", peer)));
            }
            None => format!("{line}, in the network namespace of its other end"),
        },
        "tun" => format!("{line}, in the virtual machine or by the program behind it"),
        "virtio_net" => format!("{line}, in the other virtual machines of its host"),
        _ => return None,
    };
    let found = format!("unreadable, and may leave checksums unfinished: {effect}");
    Some(Check::warn(name, found, fix))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::{Verdict, ip_json};
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn veth_peer_checksums_are_read_or_peer_named() {
        on_a_veth_pair(|| {
            let look = |device: &str, place| {
                let link = ip_json(&["link", "show", "dev", device]).unwrap();
                checksums("neighbour", device, place, &link)
            };
            let check = look("left", DeviceUse::Lan).unwrap();
            assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
            assert_eq!(check.fix, "ethtool -K right tx off txvlan off");
            assert!(look("left", DeviceUse::Watched).unwrap().found.contains("to no boundary"));
            assert_eq!(look("left", DeviceUse::Wan), None);
            run(&check.fix);
            assert_eq!(look("left", DeviceUse::Lan).unwrap().verdict, Verdict::Ok);

            let elsewhere = std::thread::spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                std::fs::File::open("/proc/thread-self/ns/net").unwrap()
            });
            let elsewhere = elsewhere.join().unwrap();
            let path = format!("/proc/{}/fd/{}", std::process::id(), elsewhere.as_raw_fd());
            run(&format!("ip link set dev right netns {path}"));
            let check = look("left", DeviceUse::Lan).unwrap();
            assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
            assert!(check.fix.contains("in the network namespace of its other end"), "{check:?}");

            run("ip tuntap add dev tap0 mode tap");
            assert!(look("tap0", DeviceUse::Lan).unwrap().fix.contains("virtual machine"));
            run("ip link add br0 type bridge");
            assert_eq!(look("br0", DeviceUse::Lan), None);
        });
    }
}
