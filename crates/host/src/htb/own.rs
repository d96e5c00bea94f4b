//! The qdisc that a device has by itself: what its packets wait in where no sendbox stands.

use std::fs;
use std::io;

use super::{TC_H_ROOT, TCA_OPTIONS};
use crate::egress::{self, QDISC_HEADER, Qdisc, RTM_GETQDISC, about};
use crate::netlink::{self, Commands, HEADER, attribute, attribute_of};

// include/uapi/linux/rtnetlink.h, if_link.h
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_TXQLEN: u16 = 13;
/// `struct ifinfomsg`: family, type, index, flags, which of them to change.
const LINK_HEADER: usize = 16;
/// Names the qdisc that the kernel gives a device with a queue.
const DEFAULT_QDISC: &str = "/proc/sys/net/core/default_qdisc";
/// Qdisc of such a device where the file cannot be read, as in a network namespace other than the first: what a kernel has that was built
/// without another choice (net/sched/Kconfig).
const BUILT_IN: &str = "pfifo_fast";

/// Kind and options of a qdisc, and the length that some kinds take from the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub kind: String,
    /// As the kernel tells them, and takes them; empty: this kind takes none.
    pub options: Vec<u8>,
    /// `txqueuelen` in packets.
    length: u32,
}

impl Own {
    /// Reads the qdisc of a device, of the current network namespace: its root, and of a root with a qdisc for each queue of the device
    /// (`mq`) the first below it.
    pub fn of(kernel: &Commands, ifindex: u32) -> io::Result<Self> {
        let length = length(kernel, ifindex)?;
        let messages = kernel.dump(RTM_GETQDISC, &about(ifindex, 0))?;
        let all: Vec<(Qdisc, &[u8])> =
            messages.iter().filter_map(|message| with_options(message, ifindex)).collect();
        let root = all.iter().find(|(qdisc, _)| qdisc.parent == TC_H_ROOT);
        let found = root.and_then(|(root, options)| match root.kind.as_str() {
            "mq" | "mqprio" => {
                let is_below =
                    |qdisc: &Qdisc| qdisc.parent > 0 && qdisc.parent >> 16 == root.handle >> 16;
                let below = all.iter().filter(|(qdisc, _)| is_below(qdisc));
                let first = below.min_by_key(|(qdisc, _)| qdisc.parent);
                first.map(|(qdisc, options)| (&qdisc.kind, *options))
            }
            // A device that has none waits for nothing, and one that was never up has one that drops all.
            "noqueue" | "noop" => None,
            _ => Some((&root.kind, *options)),
        });
        let Some((kind, options)) = found else {
            return Ok(Self { kind: default_kind(), options: Vec::new(), length });
        };
        // It says what it does and takes nothing (`pfifo_fast_init`, sch_generic.c).
        let options = if kind == BUILT_IN { &[] } else { options };
        Ok(Self { kind: kind.clone(), options: options.to_vec(), length })
    }

    /// Whether it stands below a class of a device.
    pub fn is_at(&self, kernel: &Commands, ifindex: u32, class: u32) -> io::Result<bool> {
        let messages = kernel.dump(RTM_GETQDISC, &about(ifindex, 0))?;
        let mut all = messages.iter().filter_map(|message| with_options(message, ifindex));
        let is_it = |(qdisc, options): (Qdisc, &[u8])| {
            qdisc.parent == class && self.is(&qdisc.kind, options)
        };
        Ok(all.any(is_it))
    }

    /// Whether a qdisc of this kind with these options is one like it.
    pub fn is(&self, kind: &str, options: &[u8]) -> bool {
        self.kind == kind && (self.options.is_empty() || self.options == options)
    }

    /// Gives the device its own length of the queue again, if it has another.
    pub fn keep_length(&self, kernel: &Commands, ifindex: u32) -> io::Result<()> {
        if self.length != 0 || length(kernel, ifindex)? == 0 {
            return Ok(());
        }
        let length = attribute_of(IFLA_TXQLEN, &self.length.to_ne_bytes());
        kernel.command(RTM_NEWLINK, 0, &[&link(ifindex)[..], &length].concat())
    }
}

/// The qdisc of the kernel's message, if it is of this device, with its options.
fn with_options(message: &[u8], ifindex: u32) -> Option<(Qdisc, &[u8])> {
    let qdisc = egress::qdisc_of(message, ifindex)?;
    Some((qdisc, attribute(&message[HEADER + QDISC_HEADER..], TCA_OPTIONS).unwrap_or_default()))
}

fn default_kind() -> String {
    fs::read_to_string(DEFAULT_QDISC).map_or(BUILT_IN.into(), |kind| kind.trim().to_owned())
}

/// Packets that the queue of a device holds, as far as its qdisc goes by that.
fn length(kernel: &Commands, ifindex: u32) -> io::Result<u32> {
    let message = kernel.ask(RTM_GETLINK, &link(ifindex))?;
    netlink::refusal(&message)?;
    let length = message.get(HEADER + LINK_HEADER..).and_then(|link| attribute(link, IFLA_TXQLEN));
    let length = length.and_then(|length| length.try_into().ok());
    Ok(u32::from_ne_bytes(length.ok_or(io::ErrorKind::InvalidData)?))
}

/// `struct ifinfomsg` about a device.
fn link(ifindex: u32) -> [u8; LINK_HEADER] {
    let mut link = [0; LINK_HEADER];
    link[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    link
}
