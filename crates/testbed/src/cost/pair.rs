//! Two namespaces and a cable between them.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::TestbedError;
use crate::namespace::Namespace;
use crate::topology::{HOST_SETTINGS, ip, plain};

/// The sender's address. 192.0.2.0/24 is for documentation (RFC 5737), and stays inside the namespaces.
const SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The receiver's address.
const RECEIVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Link address of the sender, locally administered.
const SENDER_MAC: &str = "02:00:c0:00:02:01";
/// Link address of the receiver, locally administered.
const RECEIVER_MAC: &str = "02:00:c0:00:02:02";

/// A connection should not slow down after waiting for its turn: that is no idle time.
const AFTER_IDLE: &str = "net/ipv4/tcp_slow_start_after_idle";

/// The kernel's own limit, `GSO_LEGACY_MAX_SIZE` in segments (include/linux/netdevice.h).
const GSO_SEGMENTS_MAX: u32 = 65_535;

/// Address at which the receiver of a turn listens.
pub(super) fn receiver_of(turn: u32) -> SocketAddrV4 {
    SocketAddrV4::new(RECEIVER, crate::generator::FIRST_PORT + turn as u16)
}

/// Both namespaces; dropping it removes everything.
#[derive(Debug)]
pub(super) struct Pair {
    pub sender: Namespace,
    pub receiver: Namespace,
}

impl Pair {
    /// A veth between the two, MTU 1500; no address resolution crosses it.
    pub fn build() -> Result<Self, TestbedError> {
        let busy = |(key, value)| (key, if key == AFTER_IDLE { "0" } else { value });
        let sender = plain("sender", &HOST_SETTINGS.map(busy))?;
        let receiver = plain("receiver", &HOST_SETTINGS)?;
        let other = receiver.path();
        let other = other.display();
        let cable = format!(
            "link add eth0 address {SENDER_MAC} mtu 1500 type veth \
             peer name eth0 address {RECEIVER_MAC} mtu 1500 netns {other}\n"
        );
        ip("sender", &sender, &cable)?;
        for (place, namespace, own, peer, mac) in [
            ("sender", &sender, SENDER, RECEIVER, RECEIVER_MAC),
            ("receiver", &receiver, RECEIVER, SENDER, SENDER_MAC),
        ] {
            let lines = format!(
                "link set dev eth0 up\naddress add {own}/24 dev eth0\n\
                 neighbour add {peer} lladdr {mac} dev eth0 nud permanent\n"
            );
            ip(place, namespace, &lines)?;
        }
        Ok(Self { sender, receiver })
    }

    /// Sets how many segments the sender's kernel hands over in one piece, for later connections; `None`:
    /// no limit.
    pub fn set_gso(&self, segments: Option<u32>) -> Result<(), TestbedError> {
        let segments = segments.unwrap_or(GSO_SEGMENTS_MAX);
        ip("sender", &self.sender, &format!("link set dev eth0 gso_max_segs {segments}\n"))
    }
}
