//! What the devices of a sendbox must be like.

use std::io;

use forebay_core::packet::ETHERNET_HEADER;

use super::super::DaemonError;
use crate::{bridge, egress, ethernet, offload};

/// Refuses ports between which frames would be lost or changed, by us or whenever we are not there,
/// and a WAN whose qdisc, somebody else's, they would pass by.
pub fn check(lan: &str, wan: &str) -> Result<(), DaemonError> {
    ethernet::check(lan)?;
    ethernet::check(wan)?;
    bridge::await_forwarding(lan, wan)?;
    offload::check(lan)?;
    offload::check(wan)?;
    egress::check(wan)?;
    let mtu = |device: &str| offload::mtu(device).map_err(|error| named(device, error));
    let (lan_mtu, wan_mtu) = (mtu(lan)?, mtu(wan)?);
    if lan_mtu > wan_mtu {
        return Err(DaemonError::SetUp(io::Error::other(format!(
            "{lan} has an MTU of {lan_mtu} bytes, {wan} of {wan_mtu}: longer frames would be \
             lost; run `ip link set dev {lan} mtu {wan_mtu}`"
        ))));
    }
    Ok(())
}

/// Longest frame of a device: its MTU, the Ethernet header and a VLAN tag.
pub fn frame_bytes(device: &str) -> Result<usize, DaemonError> {
    let mtu = offload::mtu(device).map_err(|error| named(device, error))?;
    Ok(mtu as usize + ETHERNET_HEADER + 4)
}

fn named(device: &str, error: io::Error) -> DaemonError {
    DaemonError::SetUp(io::Error::new(error.kind(), format!("{device}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn a_qdisc_of_somebody_else_at_the_wan_is_refused_and_left_alone_and_one_at_the_lan_is_not() {
        on_a_veth_pair(|| {
            run("ip link add wan type veth peer name far");
            run("ip link set dev far up");
            run("ip link add br0 type bridge forward_delay 0");
            for port in ["left", "wan"] {
                run(&format!("ip link set dev {port} master br0"));
                run(&format!("ip link set dev {port} up"));
                offload::disable_all(port).unwrap();
            }
            run("ip link set dev br0 up");
            run("tc qdisc add dev left root pfifo");
            check("left", "wan").unwrap();
            run("tc qdisc add dev wan root pfifo");
            for _ in 0..2 {
                let error = check("left", "wan").unwrap_err();
                assert!(matches!(error, DaemonError::Egress(_)), "{error}");
                assert!(error.to_string().contains("tc qdisc del dev wan root"), "{error}");
            }
        });
    }
}
