//! The qdisc at the egress of a device.
//!
//! Frames from an AF_XDP socket go straight to the driver (`__dev_direct_xmit` in net/core/dev.c),
//! past the qdisc of the device. If an operator shapes there, a running sendbox would silently
//! bypass that shaper, so it refuses such a device.

use std::io;

use forebay_core::units::ByteCount;
use nix::net::if_::if_nametoindex;

use crate::netlink::{self, HEADER, attribute};

/// Why a sendbox must not bypass the qdisc of a device.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The operator, or a program, has installed a qdisc there.
    #[error(
        "{device} has the configured qdisc {kind}, which packets of bundles would bypass; run \
         `{}`, or shape elsewhere",
        fix(device)
    )]
    Foreign {
        /// Device name.
        device: String,
        /// Kind of the qdisc, such as `htb`.
        kind: String,
    },
    /// The kernel refused the request.
    #[error("reading the qdisc of {device}: {source}")]
    Os {
        /// Device name.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl EgressError {
    /// A text that names the device and its qdisc.
    pub fn found(&self) -> String {
        match self {
            Self::Foreign { device, kind } => {
                format!("{device} has the configured qdisc {kind}")
            }
            Self::Os { .. } => self.to_string(),
        }
    }
}

/// The command that restores the kernel's own qdisc of a device.
pub fn fix(device: &str) -> String {
    format!("tc qdisc del dev {device} root")
}

/// A qdisc at the root of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootQdisc {
    /// Kind of the qdisc, such as `htb`.
    pub kind: String,
    handle: u32,
}

impl RootQdisc {
    /// Whether an operator or a program has installed it. Only a qdisc that the kernel chose itself
    /// (`net.core.default_qdisc`, `mq`, `noqueue`) has no handle (sch_generic.c, sch_api.c).
    pub fn is_foreign(&self) -> bool {
        // A `noqueue` that an operator has set holds nothing back either.
        self.handle != 0 && self.kind != "noqueue"
    }
}

/// The root qdisc of `device`, in the current network namespace; `None` if the device was never up.
pub fn root_qdisc(device: &str) -> Result<Option<RootQdisc>, EgressError> {
    let os = |source| EgressError::Os { device: device.into(), source };
    let ifindex = if_nametoindex(device).map_err(|error| os(error.into()))?;
    let root = root(ifindex).map_err(os)?;
    Ok(root.map(|qdisc| RootQdisc { kind: qdisc.kind, handle: qdisc.handle }))
}

/// A qdisc and the handle of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub kind: String,
    pub handle: u32,
    pub parent: u32,
}

/// All qdiscs of a device.
pub(crate) fn qdiscs(ifindex: u32) -> io::Result<Vec<Qdisc>> {
    // Some kernels ignore the device in the request, and list the qdiscs of all devices.
    let messages = netlink::dump(RTM_GETQDISC, &about(ifindex, 0))?;
    Ok(messages.iter().filter_map(|message| qdisc_of(message, ifindex)).collect())
}

/// The qdisc at the root of a device, which the kernel lists first: there may be thousands below it.
pub(crate) fn root(ifindex: u32) -> io::Result<Option<Qdisc>> {
    let is_root = |qdisc: &Qdisc| qdisc.parent == TC_H_ROOT;
    netlink::find(RTM_GETQDISC, &about(ifindex, 0), |message| {
        qdisc_of(message, ifindex).filter(is_root)
    })
}

/// Bytes queued at the egress of a device: in its root qdisc and all qdiscs below.
pub fn backlog(ifindex: u32) -> io::Result<ByteCount> {
    let at_root = |message: &[u8]| root_backlog(message, ifindex);
    let bytes = netlink::find(RTM_GETQDISC, &about(ifindex, 0), at_root)?;
    Ok(ByteCount::new(bytes.unwrap_or(0).into()))
}

/// `struct tcmsg`: a request for the qdiscs below `parent` at a device.
pub(crate) fn about(ifindex: u32, parent: u32) -> [u8; QDISC_HEADER] {
    let mut body = [0; QDISC_HEADER];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}

/// Refuses a `device` whose root qdisc an operator or a program has installed.
pub fn check(device: &str) -> Result<(), EgressError> {
    match root_qdisc(device)? {
        Some(qdisc) if qdisc.is_foreign() => {
            Err(EgressError::Foreign { device: device.into(), kind: qdisc.kind })
        }
        _ => Ok(()),
    }
}

/// Netlink message that asks for qdiscs (include/uapi/linux/rtnetlink.h).
pub(crate) const RTM_GETQDISC: u16 = 38;
/// Attribute: the kind of a qdisc (include/uapi/linux/rtnetlink.h).
const TCA_KIND: u16 = 1;
/// Attribute: the statistics of a qdisc (include/uapi/linux/rtnetlink.h).
const TCA_STATS2: u16 = 7;
/// Attribute in [`TCA_STATS2`]: `struct gnet_stats_queue`, which begins with queued packets and
/// bytes (include/uapi/linux/gen_stats.h).
const TCA_STATS_QUEUE: u16 = 3;
/// Parent of a root qdisc (include/uapi/linux/pkt_sched.h).
const TC_H_ROOT: u32 = 0xffff_ffff;
/// `struct tcmsg`: family and padding, ifindex, handle, parent, info.
pub(crate) const QDISC_HEADER: usize = 20;

/// The qdisc, or the class, in the kernel's message, if it belongs to this device.
pub(crate) fn qdisc_of(message: &[u8], of: u32) -> Option<Qdisc> {
    let body: &[u8; QDISC_HEADER] = message.get(HEADER..)?.first_chunk()?;
    let word = |at: usize| u32::from_ne_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    if word(4) != of {
        return None;
    }
    let kind = attribute(&message[HEADER + QDISC_HEADER..], TCA_KIND)?;
    let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_string();
    Some(Qdisc { kind, handle: word(8), parent: word(12) })
}

/// Bytes queued in the qdisc of the kernel's message, if it is at the root of this device.
fn root_backlog(message: &[u8], of: u32) -> Option<u32> {
    qdisc_of(message, of).filter(|qdisc| qdisc.parent == TC_H_ROOT)?;
    let statistics = attribute(&message[HEADER + QDISC_HEADER..], TCA_STATS2)?;
    let bytes = attribute(statistics, TCA_STATS_QUEUE)?.get(4..8)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn configured_qdisc_is_refused_with_fix_default_accepted() {
        on_a_veth_pair(|| {
            check("left").unwrap();
            assert_eq!(root_qdisc("left").unwrap().unwrap().kind, "noqueue");
            run("tc qdisc add dev left root pfifo limit 100");
            check("right").unwrap();
            let error = check("left").unwrap_err().to_string();
            assert!(error.starts_with("left has the configured qdisc pfifo"), "{error}");
            let line = error.split('`').nth(1).unwrap();
            assert_eq!(line, "tc qdisc del dev left root");
            run(line);
            check("left").unwrap();
            run("tc qdisc add dev left root noqueue");
            check("left").unwrap();
            assert!(matches!(check("nowhere"), Err(EgressError::Os { .. })));
        });
    }

    #[test]
    fn default_qdisc_and_unused_device_are_accepted() {
        let default = RootQdisc { kind: "fq_codel".into(), handle: 0 };
        assert!(!default.is_foreign());
        assert!(RootQdisc { handle: 0x8001_0000, ..default }.is_foreign());
        on_a_veth_pair(|| {
            run("ip link add fresh type veth peer name new");
            assert_eq!(root_qdisc("fresh").unwrap(), None);
            check("fresh").unwrap();
        });
    }

    #[test]
    fn only_whole_messages_of_the_device_count() {
        let message = |ifindex: u32, handle: u32, parent: u32| {
            let words = [0, ifindex, handle, parent, 0].map(u32::to_ne_bytes).concat();
            [&[0; HEADER][..], &words, &[8, 0, 1, 0], b"htb\0"].concat()
        };
        let htb = Qdisc { kind: "htb".into(), handle: 0x1_0000, parent: TC_H_ROOT };
        assert_eq!(qdisc_of(&message(7, 0x1_0000, TC_H_ROOT), 7), Some(htb));
        assert_eq!(qdisc_of(&message(8, 0x2_0000, TC_H_ROOT), 7), None);
        assert_eq!(root_backlog(&message(7, 0x1_0000, TC_H_ROOT), 7), None, "without statistics");
        let whole = message(7, 0x1_0000, TC_H_ROOT);
        let waiting = [3_u32, 4542, 0, 0, 0].map(u32::to_ne_bytes).concat();
        let statistics = [&[28, 0, 7, 0, 24, 0, 3, 0][..], &waiting].concat();
        let full = [&whole[..], &statistics].concat();
        assert_eq!(root_backlog(&full, 7), Some(4542));
        assert_eq!(
            (root_backlog(&full, 8), root_backlog(&full[..full.len() - 1], 7)),
            (None, None)
        );
        for len in 0..whole.len() {
            assert_eq!(qdisc_of(&whole[..len], 7), None, "cut at {len}");
        }
    }
}
