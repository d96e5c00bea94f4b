//! Changes by other programs to the qdisc of a sendbox and to everything below it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::SockProtocol;
use socket2::{SockFilter, Socket};

use super::{
    RTM_DELQDISC, RTM_DELTCLASS, RTM_NEWQDISC, RTM_NEWTCLASS, TCA_HTB_CEIL64, TCA_HTB_PARMS,
    TCA_HTB_RATE64, TCA_OPTIONS, TCA_TBF_PARMS, TCA_TBF_RATE64,
};
use crate::egress::{self, QDISC_HEADER};
use crate::netlink::{self, HEADER, attribute};

/// The object that a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Qdisc,
    Class,
}

/// A qdisc or class that another program has changed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignChange {
    pub what: What,
    /// The other program has removed it.
    pub is_gone: bool,
    pub ifindex: u32,
    pub handle: u32,
    pub parent: u32,
    pub kind: String,
    /// Options in the format of the kernel.
    pub options: Vec<u8>,
}

impl ForeignChange {
    fn parse(message: &[u8]) -> Option<Self> {
        let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
        let (what, is_gone) = match kind {
            RTM_NEWQDISC => (What::Qdisc, false),
            RTM_DELQDISC => (What::Qdisc, true),
            RTM_NEWTCLASS => (What::Class, false),
            RTM_DELTCLASS => (What::Class, true),
            _ => return None,
        };
        let ifindex = u32::from_ne_bytes(message.get(HEADER + 4..HEADER + 8)?.try_into().ok()?);
        let egress::Qdisc { kind, handle, parent } = egress::qdisc_of(message, ifindex)?;
        let options = attribute(&message[HEADER + QDISC_HEADER..], TCA_OPTIONS);
        let options = options.unwrap_or_default().to_vec();
        Some(Self { what, is_gone, ifindex, handle, parent, kind, options })
    }

    /// Whether the class has the rates, buckets, turns and priority of these HTB options.
    pub fn has_class(&self, options: &[u8]) -> bool {
        // struct tc_htb_opt: all but the level, which the kernel computes.
        let parameters = |options| {
            let all = attribute(options, TCA_HTB_PARMS)?;
            Some((all.get(..36)?.to_vec(), all.get(40..44)?.to_vec()))
        };
        let rates = |options| [TCA_HTB_RATE64, TCA_HTB_CEIL64].map(|kind| rate64(options, kind));
        self.kind == "htb"
            && parameters(&self.options) == parameters(options)
            && rates(&self.options) == rates(options)
    }

    /// Whether the qdisc has the rate and limit of these TBF options. The kernel does not report the size above which
    /// it splits packets.
    pub fn has_leaf(&self, options: &[u8]) -> bool {
        // struct tc_tbf_qopt: both rates and the limit.
        let parameters = |options| Some(attribute(options, TCA_TBF_PARMS)?.get(..28)?.to_vec());
        self.kind == "tbf"
            && parameters(&self.options) == parameters(options)
            && rate64(&self.options, TCA_TBF_RATE64) == rate64(options, TCA_TBF_RATE64)
    }
}

/// A rate that does not fit into 32 bits (bytes per second). The parameters have smaller ones.
fn rate64(options: &[u8], kind: u16) -> Option<u64> {
    let rate = u64::from_ne_bytes(attribute(options, kind)?.try_into().ok()?);
    (rate > u32::MAX.into()).then_some(rate)
}

/// Writes the name of the object in the syntax of tc(8).
impl fmt::Display for ForeignChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, handle, parent, .. } = self;
        let [major, minor] = [handle >> 16, handle & 0xffff];
        match self.what {
            What::Class => write!(f, "class {kind} {major:x}:{minor:x}"),
            What::Qdisc if *parent == super::TC_H_ROOT => write!(f, "qdisc {kind} {major:x}: root"),
            What::Qdisc => {
                let [of, at] = [parent >> 16, parent & 0xffff];
                write!(f, "qdisc {kind} {major:x}: parent {of:x}:{at:x}")
            }
        }
    }
}

/// Changes of qdiscs and classes by programs other than the one at a given socket. Readable when there may be new ones.
#[derive(Debug)]
pub struct Changes {
    told: OwnedFd,
}

impl Changes {
    pub(super) fn subscribe(port: u32) -> io::Result<Self> {
        let told = netlink::subscribe(SockProtocol::NetlinkRoute, netlink::RTMGRP_TC)?;
        let told = Socket::from(told);
        told.attach_filter(&all_but(port))?;
        Ok(Self { told: told.into() })
    }

    /// Takes the changes since the last call, in order; `None`: some were lost for want of room.
    pub fn take(&self) -> io::Result<Option<Vec<ForeignChange>>> {
        let (mut changes, mut are_all) = (Vec::new(), true);
        netlink::take(&self.told, |message| {
            are_all &= !message.is_empty();
            changes.extend(ForeignChange::parse(message));
        })?;
        Ok(are_all.then_some(changes))
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }
}

/// A socket filter that passes only messages about qdiscs and classes that were not caused by the socket at `port`. The
/// kernel also reports each rate that a sendbox sets, and each qdisc that a remade leaf replaces.
fn all_but(port: u32) -> [SockFilter; 9] {
    let step = |code: u32, jt: u8, jf: u8, k: u32| SockFilter::new(code as u16, jt, jf, k);
    let load = |width: u32, at: usize| step(libc::BPF_LD | width | libc::BPF_ABS, 0, 0, at as u32);
    let compare = |jt, jf, k| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let answer = |len| step(libc::BPF_RET | libc::BPF_K, 0, 0, len);
    // BPF loads a value in network byte order, but the kernel writes it in its own.
    let kind = |kind: u16| u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
    [
        load(libc::BPF_H, 4),
        compare(3, 0, kind(RTM_NEWQDISC)),
        compare(2, 0, kind(RTM_DELQDISC)),
        compare(1, 0, kind(RTM_NEWTCLASS)),
        compare(0, 3, kind(RTM_DELTCLASS)),
        load(libc::BPF_W, 12),
        compare(1, 0, u32::from_be_bytes(port.to_ne_bytes())),
        answer(u32::MAX),
        answer(0),
    ]
}
