//! The qdisc that a device would have without a sendbox.

use std::fs;
use std::io;

use netlink_packet_route::link::LinkAttribute::TxQueueLen;

use super::{TC_H_ROOT, TCA_OPTIONS};
use crate::egress::{self, QDISC_HEADER, Qdisc, RTM_GETQDISC, about};
use crate::netlink::{Commands, HEADER, attribute};
use crate::rtnetlink::{about_link, first};

/// File with the name of the qdisc that the kernel gives a device with a queue.
const DEFAULT_QDISC: &str = "/proc/sys/net/core/default_qdisc";
/// Qdisc of such a device if the file cannot be read, as in a network namespace other than the first. It is the default
/// of a kernel built without another choice (net/sched/Kconfig).
const BUILT_IN: &str = "pfifo_fast";

/// Kind and options of a qdisc, and the queue length that some kinds take from the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub kind: String,
    /// Options in the format of the kernel; empty if this kind takes none.
    pub options: Vec<u8>,
    /// `txqueuelen` in packets.
    length: u32,
}

impl Own {
    /// Reads the root qdisc of a device of the current network namespace. If the root has a qdisc per queue (`mq`),
    /// reads the first of these.
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
            // `noqueue` queues nothing, and `noop`, of a device that was never up, drops everything.
            "noqueue" | "noop" => None,
            _ => Some((&root.kind, *options)),
        });
        let Some((kind, options)) = found else {
            return Ok(Self { kind: default_kind(), options: Vec::new(), length });
        };
        // This kind reports options but accepts none (`pfifo_fast_init`, sch_generic.c).
        let options = if kind == BUILT_IN { &[] } else { options };
        Ok(Self { kind: kind.clone(), options: options.to_vec(), length })
    }

    /// Whether this qdisc is installed below a class of a device.
    pub fn is_at(&self, kernel: &Commands, ifindex: u32, class: u32) -> io::Result<bool> {
        let messages = kernel.dump(RTM_GETQDISC, &about(ifindex, 0))?;
        let mut all = messages.iter().filter_map(|message| with_options(message, ifindex));
        let is_it = |(qdisc, options): (Qdisc, &[u8])| {
            qdisc.parent == class && self.is(&qdisc.kind, options)
        };
        Ok(all.any(is_it))
    }

    /// Whether this kind and these options match.
    pub fn is(&self, kind: &str, options: &[u8]) -> bool {
        self.kind == kind && (self.options.is_empty() || self.options == options)
    }

    /// Restores the device's queue length, if it has changed from 0.
    pub fn keep_length(&self, kernel: &Commands, ifindex: u32) -> io::Result<()> {
        if self.length != 0 || length(kernel, ifindex)? == 0 {
            return Ok(());
        }
        let length = about_link(ifindex, vec![TxQueueLen(self.length)]);
        kernel.execute(libc::RTM_NEWLINK, 0, &length)
    }
}

/// The qdisc in the kernel's message with its options, if it belongs to this device.
fn with_options(message: &[u8], ifindex: u32) -> Option<(Qdisc, &[u8])> {
    let qdisc = egress::qdisc_of(message, ifindex)?;
    Some((qdisc, attribute(&message[HEADER + QDISC_HEADER..], TCA_OPTIONS).unwrap_or_default()))
}

fn default_kind() -> String {
    fs::read_to_string(DEFAULT_QDISC).map_or(BUILT_IN.into(), |kind| kind.trim().to_owned())
}

/// Length of the device's queue in packets, which some qdiscs use.
fn length(kernel: &Commands, ifindex: u32) -> io::Result<u32> {
    let link = kernel.link(&about_link(ifindex, Vec::new()))?;
    let length = first!(link.attributes, TxQueueLen).copied();
    length.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
