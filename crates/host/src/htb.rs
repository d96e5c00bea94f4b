//! The HTB qdisc at the root of a WAN port (rtnetlink(7), sch_htb.c): a class for each bundle, whose rate the sendbox sets.
//!
//! HTB and not TBF, which fills its bucket anew at every change of its rate (sch_tbf.c) and so sends more the more often
//! it is changed. Packets that are put into none of them leave unshaped, before all others, from a class of their own:
//! they wait in the qdisc that the device would have by itself.
//!
//! Each leaf is a TBF all the same: of a rate that holds nothing back, for a super-packet that is longer than its bucket
//! is cut up into packets there ([`Leaf`]). HTB would send it whole, and the next packet as much later.

mod changes;
mod own;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use forebay_core::units::{ByteCount, Rate};

use self::changes::What;
pub use self::changes::{Change, Changes};
use self::own::Own;
use crate::egress::{self, about};
use crate::netlink::{self, Commands, attribute_of};

// include/uapi/linux/rtnetlink.h, pkt_sched.h
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_INGRESS_BLOCK: u16 = 13;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_HTB_PROTOVER: u32 = 3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TCA_FQ_CODEL_TARGET: u16 = 1;
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// `struct tcmsg`, behind the header of a message.
const TC_HEADER: usize = 20;
/// Handles from here on the kernel gives by itself (`qdisc_alloc_handle`).
const GIVEN_HANDLES: u32 = 0x8000_0000;
/// Nanoseconds of a tick, in which buckets are told (`PSCHED_SHIFT`).
const TICK_NS: f64 = 64.0;

/// What is as good as no rate: more than any port has.
const UNSHAPED: Rate = Rate::from_bits_per_sec(100_000_000_000);
/// What a leaf lets pass (bytes per second): so much that its bucket, which is counted in whole nanoseconds, loses none
/// for any super-packet (`psched_l2t_ns`). A bucket of one frame that packets do empty would have the second of two wait
/// for a timer, and hold back for ever a super-packet that was queued before the leaf began to cut them up.
const LEAF_BYTES_PER_S: u64 = 1 << 50;
/// The class of packets that are put into no other, behind those of all bundles.
const OTHERS: u32 = 0x4000;
/// Bytes that this class sends in its turn: no matter, for it has none to share its priority with.
const OTHERS_QUANTUM: u32 = 1 << 16;
/// Bytes that a class sends in its turn, where no others share its rate: no matter.
const QUANTUM: u32 = 1514;

/// The qdisc of one device. It stays where it is when this is dropped, and holds nothing back that is put into no class.
#[derive(Debug)]
pub struct Htb {
    kernel: Commands,
    ifindex: u32,
    handle: u32,
    /// Bytes that each packet counts for beside its own, to the rates of bundles: 0 at first.
    overhead_bytes: u16,
    own: Own,
}

impl Htb {
    /// Puts the qdisc, called `handle` (a major number, shifted by 16), at the root of a device of the current network
    /// namespace, in place of what is there: the kernel's own, or one that was left behind.
    pub fn create(ifindex: u32, handle: u32) -> io::Result<Self> {
        let kernel = Commands::open()?;
        let own = own_of(&kernel, ifindex, handle)?;
        let htb = Self { kernel, ifindex, handle, overhead_bytes: 0, own };
        // Somebody may have asked for none (`noqueue`), which is one.
        htb.make(netlink::NLM_F_REPLACE)?;
        Ok(htb)
    }

    /// From now on rates count each packet for so many bytes more than it has at this device; a super-packet that is left
    /// whole once.
    pub fn set_overhead(&mut self, bytes: u16) {
        self.overhead_bytes = bytes;
    }

    /// Whether a change of the class of a bundle leaves it with this rate.
    pub fn is_bundle_as(&self, change: &Change, rate: Option<Rate>) -> bool {
        change.has_class(&bundle_options(rate, self.overhead_bytes))
    }

    /// Index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Is about another device from now on, which has not got the qdisc yet.
    pub fn follow(&mut self, ifindex: u32) -> io::Result<()> {
        self.ifindex = ifindex;
        self.own = own_of(&self.kernel, ifindex, self.handle)?;
        Ok(())
    }

    /// Puts the qdisc, which was taken away or is not at this device yet, at the root.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`]: somebody else has put one there, which stays; and what the kernel refuses it
    /// with.
    pub fn put(&self) -> io::Result<()> {
        self.make(0)
    }

    fn make(&self, flags: u16) -> io::Result<()> {
        // struct tc_htb_glob: version, rate2quantum, default class, debug, direct packets.
        let global = words(&[TC_HTB_PROTOVER, 10, OTHERS, 0, 0]);
        let options = attribute_of(TCA_OPTIONS, &attribute_of(TCA_HTB_INIT, &global));
        let body = body_of(tcmsg(self.ifindex, self.handle, TC_H_ROOT), "htb", &options);
        self.kernel.command(RTM_NEWQDISC, flags | netlink::NLM_F_CREATE, &body)?;
        self.set_others()
    }

    /// Makes the class of packets that are put into no other, with the device's own qdisc, or what is not there of both.
    pub fn set_others(&self) -> io::Result<()> {
        let class = self.handle | OTHERS;
        self.change(RTM_NEWTCLASS, class, self.handle, "htb", &others_options())?;
        if self.own.is_at(&self.kernel, self.ifindex, class)? {
            return Ok(());
        }
        // Of some kinds not all options can be changed.
        self.remove_leaf(class)?;
        let leaf = self.leaf_handle(class);
        self.change(RTM_NEWQDISC, leaf, class, &self.own.kind, &self.own.options)
    }

    /// Gives the device its own length of the queue again: where that is 0 the kernel makes it 1000 for each qdisc that is
    /// made (`qdisc_create`, sch_api.c).
    pub fn keep_queue_length(&self) -> io::Result<()> {
        self.own.keep_length(&self.kernel, self.ifindex)
    }

    /// Whether a change of the class of what is put into no other, or of what stands below it, leaves them as they were
    /// made; `None`: it is of neither.
    pub fn is_others_as(&self, change: &Change) -> Option<bool> {
        let class = self.handle | OTHERS;
        match change.what {
            What::Class if change.handle == class => Some(change.has_class(&others_options())),
            What::Qdisc if change.parent == class => {
                Some(self.own.is(&change.kind, &change.options))
            }
            _ => None,
        }
    }

    /// Whether a change is of a class ...
    pub fn is_class(&self, change: &Change, class: u32) -> bool {
        change.what == What::Class && change.handle == class
    }

    /// ... or of it, its leaf, or the queue of that.
    pub fn is_at(&self, change: &Change, class: u32) -> bool {
        let is_below = || [class, self.leaf_handle(class) | 1].contains(&change.parent);
        self.is_class(change, class) || (change.what == What::Qdisc && is_below())
    }

    /// Whether a change of a class whose rate another one shares with it, or of what is below it, leaves the class with
    /// turns of so many bytes, and its leaf like this one. No change of the queue of a leaf does.
    pub fn is_leaf_as(&self, change: &Change, class: u32, leaf: Leaf, turn_bytes: u32) -> bool {
        if self.is_class(change, class) {
            change.has_class(&sharer_options(turn_bytes))
        } else {
            change.parent == class && change.has_leaf(&leaf.options())
        }
    }

    /// Takes away what stands in the place of the queue of a leaf, if there is anything, with the packets in it.
    pub fn remove_queue(&self, class: u32) -> io::Result<()> {
        self.remove_leaf(self.leaf_handle(class) | 1)
    }

    /// Takes away what stands below a class, if there is anything.
    fn remove_leaf(&self, class: u32) -> io::Result<()> {
        match self.kernel.command(RTM_DELQDISC, 0, &tcmsg(self.ifindex, 0, class)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// From now on, what anybody else does to the qdisc.
    pub fn changes(&self) -> io::Result<Changes> {
        Changes::subscribe(self.kernel.port()?)
    }

    /// Whether a change is of this qdisc or of what is below it: major numbers follow, up to those that the kernel gives.
    pub fn is_of(&self, change: &Change) -> bool {
        let ours = self.handle..GIVEN_HANDLES;
        change.ifindex == self.ifindex
            && (ours.contains(&change.handle) || ours.contains(&change.parent))
    }

    /// Makes a class below the qdisc, or sets the rate of one that is there; `None`: as fast as the device takes
    /// packets.
    pub fn set_class(&self, class: u32, rate: Option<Rate>) -> io::Result<()> {
        let options = bundle_options(rate, self.overhead_bytes);
        self.change(RTM_NEWTCLASS, class, self.handle, "htb", &options)
    }

    /// Makes a class below another, or changes it, of whose rate it may use all that others below leave it: where they
    /// want more all have turns of `turn_bytes`. That is to be what a leaf lets through at once: of less each turn is one
    /// buffer, and a flow of packets gets as many of them as one of super-packets does of those.
    pub fn set_sharer(&self, class: u32, of: u32, turn_bytes: u32) -> io::Result<()> {
        self.change(RTM_NEWTCLASS, class, of, "htb", &sharer_options(turn_bytes))
    }

    /// Puts a first-in, first-out queue below a class, or changes the one that is there.
    pub fn set_leaf(&self, class: u32, leaf: Leaf) -> io::Result<()> {
        self.change(RTM_NEWQDISC, self.leaf_handle(class), class, "tbf", &leaf.options())
    }

    /// Has packets wait in a qdisc of this kind, in the place of the queue of the leaf, which goes on cutting them up.
    /// `options` are the kernel's defaults but for these ([`fq_codel_options`]). One of this kind that is already there
    /// takes the options and keeps its packets.
    pub fn set_queue(&self, class: u32, kind: &str, options: &[u8]) -> io::Result<()> {
        // TBF calls its only class 1 (`tbf_find`, sch_tbf.c).
        self.change(RTM_NEWQDISC, 0, self.leaf_handle(class) | 1, kind, options)
    }

    /// The handle of the qdisc below a class: major numbers behind that of the root, as many as there are classes.
    fn leaf_handle(&self, class: u32) -> u32 {
        self.handle + ((class & 0xffff) << 16)
    }

    /// Takes the qdisc away: the device has the kernel's own again.
    pub fn remove(&self) -> io::Result<()> {
        self.kernel.command(RTM_DELQDISC, 0, &tcmsg(self.ifindex, self.handle, TC_H_ROOT))?;
        self.keep_queue_length()
    }

    fn change(
        &self,
        message: u16,
        handle: u32,
        parent: u32,
        kind: &str,
        options: &[u8],
    ) -> io::Result<()> {
        let options = match options {
            [] => Vec::new(),
            _ => attribute_of(TCA_OPTIONS, options),
        };
        let body = body_of(tcmsg(self.ifindex, handle, parent), kind, &options);
        self.kernel.command(message, netlink::NLM_F_CREATE | netlink::NLM_F_REPLACE, &body)
    }
}

/// What a device has by itself, once a qdisc called `handle` that a sendbox has left there is taken away.
fn own_of(kernel: &Commands, ifindex: u32, handle: u32) -> io::Result<Own> {
    let messages = kernel.dump(egress::RTM_GETQDISC, &about(ifindex, 0))?;
    let all = messages.iter().filter_map(|message| egress::qdisc_of(message, ifindex));
    let is_ours = |it: &egress::Qdisc| it.parent == TC_H_ROOT && it.handle == handle;
    if all.filter(is_ours).any(|it| it.kind == "htb") {
        kernel.command(RTM_DELQDISC, 0, &tcmsg(ifindex, handle, TC_H_ROOT))?;
    }
    Own::of(kernel, ifindex)
}

/// What a message says of a qdisc or class of this `kind`, with `more` attributes.
fn body_of(tcmsg: [u8; TC_HEADER], kind: &str, more: &[u8]) -> Vec<u8> {
    let kind = [kind.as_bytes(), b"\0"].concat();
    [&tcmsg[..], &attribute_of(TCA_KIND, &kind), more].concat()
}

/// Makes sure that the kernel has qdiscs of a `kind`, for which it may load a module; needs a device, to which nothing
/// happens, and the handle of a qdisc that is not there.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`]: the kernel has none of this kind; and what it refuses to say that with.
pub fn look_for(kind: &str, ifindex: u32, handle: u32) -> io::Result<()> {
    // Filters that devices share are for qdiscs at a way in: others are refused them, once their kind is known and
    // before anything is done (`qdisc_block_indexes_set`, sch_api.c).
    let block = attribute_of(TCA_INGRESS_BLOCK, &words(&[1]));
    let body = body_of(tcmsg(ifindex, handle, TC_H_ROOT), kind, &block);
    let flags = netlink::NLM_F_CREATE | netlink::NLM_F_REPLACE;
    match Commands::open()?.command(RTM_NEWQDISC, flags, &body) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A first-in, first-out queue below a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Bytes that wait in the queue at most.
    pub limit: ByteCount,
    /// Super-packets of more than these bytes are cut up: those of a frame, or more than there ever are.
    pub longest: u32,
}

impl Leaf {
    /// The options of the qdisc that it is.
    pub fn options(self) -> Vec<u8> {
        let limit = self.limit.as_u64().min(u32::MAX.into()) as u32;
        // struct tc_tbf_qopt: rate, peak rate, limit, bucket, MTU.
        let parameters =
            [ratespec(LEAF_BYTES_PER_S, 0).to_vec(), vec![0; 12], words(&[limit, 0, 0])].concat();
        [
            attribute_of(TCA_TBF_PARMS, &parameters),
            attribute_of(TCA_TBF_RATE64, &LEAF_BYTES_PER_S.to_ne_bytes()),
            attribute_of(TCA_TBF_BURST, &words(&[self.longest])),
        ]
        .concat()
    }
}

/// Whether a sendbox has left its qdisc, called `handle`, at the root of a device.
pub fn is_left_behind(ifindex: u32, handle: u32) -> io::Result<bool> {
    let root = egress::root(ifindex)?;
    Ok(root.is_some_and(|qdisc| qdisc.handle == handle && qdisc.kind == "htb"))
}

/// Options of `fq_codel` that set target and interval of CoDel.
pub fn fq_codel_options(target: Duration, interval: Duration) -> Vec<u8> {
    let micros = |time: Duration| words(&[u32::try_from(time.as_micros()).unwrap_or(u32::MAX)]);
    [
        attribute_of(TCA_FQ_CODEL_TARGET, &micros(target)),
        attribute_of(TCA_FQ_CODEL_INTERVAL, &micros(interval)),
    ]
    .concat()
}

/// A rate, and for how long at that rate the kernel lets packets through at once.
#[derive(Clone, Copy)]
struct Bucket {
    bytes_per_s: u64,
    ticks: u32,
    /// What each packet takes beside its own bytes.
    overhead_bytes: u16,
}

/// The options of the class of a bundle at a rate.
fn bundle_options(rate: Option<Rate>, overhead_bytes: u16) -> Vec<u8> {
    let bytes_per_s = bytes_per_s(rate.unwrap_or(UNSHAPED));
    // Two frames, and half a millisecond of the rate, which is more than the kernel's timers are late.
    let burst = (2.0 * 1514.0_f64).max(bytes_per_s as f64 * 0.5e-3);
    let ticks = ticks(burst / bytes_per_s as f64);
    let burst = Bucket { bytes_per_s, ticks, overhead_bytes };
    class_options(burst, burst, QUANTUM, Priority::Bundles)
}

/// The options of a class that uses what another one's rate has left, in turns of so many bytes.
pub fn sharer_options(turn_bytes: u32) -> Vec<u8> {
    // What a class has of its own it sends whatever the other has left, which pays for it later: a packet, and the
    // next one after a minute without any, beyond which no debt is counted (`mbuffer`, sch_htb.c).
    let own = Bucket { bytes_per_s: 1, ticks: 1, overhead_bytes: 0 };
    let most =
        Bucket { bytes_per_s: bytes_per_s(UNSHAPED), ticks: ticks(0.5e-3), overhead_bytes: 0 };
    class_options(own, most, turn_bytes, Priority::Bundles)
}

/// The options of the class of what is put into no other.
fn others_options() -> Vec<u8> {
    let most = Bucket { bytes_per_s: LEAF_BYTES_PER_S, ticks: 1, overhead_bytes: 0 };
    class_options(most, most, OTHERS_QUANTUM, Priority::Others)
}

/// Which classes send first.
#[derive(Clone, Copy)]
enum Priority {
    Others,
    Bundles,
}

/// The options of a class that has one of the rates of its own, and sends up to the other, in turns of `quantum` bytes.
fn class_options(own: Bucket, most: Bucket, quantum: u32, priority: Priority) -> Vec<u8> {
    // struct tc_htb_opt: rate, ceil, bucket and bucket of ceil, quantum, level, priority.
    let parameters = [
        ratespec(own.bytes_per_s, own.overhead_bytes).to_vec(),
        ratespec(most.bytes_per_s, most.overhead_bytes).to_vec(),
        words(&[own.ticks, most.ticks, quantum, 0, priority as u32]),
    ];
    [
        attribute_of(TCA_HTB_PARMS, &parameters.concat()),
        attribute_of(TCA_HTB_RATE64, &own.bytes_per_s.to_ne_bytes()),
        attribute_of(TCA_HTB_CEIL64, &most.bytes_per_s.to_ne_bytes()),
    ]
    .concat()
}

/// `struct tc_ratespec`: cell_log, linklayer, overhead, cell_align, mpu, rate in bytes per second. With a link layer the
/// kernel wants no table of rates.
fn ratespec(bytes_per_s: u64, overhead_bytes: u16) -> [u8; 12] {
    let mut spec = [0; 12];
    spec[1] = TC_LINKLAYER_ETHERNET;
    spec[2..4].copy_from_slice(&overhead_bytes.to_ne_bytes());
    spec[8..].copy_from_slice(&(bytes_per_s.min(u32::MAX.into()) as u32).to_ne_bytes());
    spec
}

fn bytes_per_s(rate: Rate) -> u64 {
    (rate.as_bits_per_sec() / 8).max(1)
}

fn ticks(seconds: f64) -> u32 {
    (1e9 * seconds / TICK_NS).clamp(1.0, f64::from(u32::MAX)) as u32
}

fn tcmsg(ifindex: u32, handle: u32, parent: u32) -> [u8; TC_HEADER] {
    let mut body = about(ifindex, parent);
    body[8..12].copy_from_slice(&handle.to_ne_bytes());
    body
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
