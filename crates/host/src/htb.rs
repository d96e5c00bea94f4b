//! The HTB qdisc at the root of a WAN port (rtnetlink(7), sch_htb.c): a class per bundle with the rate that the sendbox
//! sets.
//!
//! HTB and not TBF: TBF refills its bucket at every change of the rate (sch_tbf.c), so it would exceed the rate with
//! frequent changes. Packets outside the bundles leave unshaped, with priority, from a separate class. They wait in the
//! qdisc that the device would have without a sendbox.
//!
//! Each leaf is a TBF nevertheless, with a rate that never limits: it splits super-packets that are longer than its
//! bucket into packets ([`Leaf`]). HTB would send a super-packet whole, and delay the next packet by as much.

mod changes;
mod own;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use forebay_core::units::{ByteCount, Rate};

use self::changes::What;
pub use self::changes::{Changes, ForeignChange};
use self::own::Own;
use crate::egress::{self, about};
use crate::netlink::{self, Commands, attribute_of};

/// Netlink message that creates a qdisc (include/uapi/linux/rtnetlink.h).
const RTM_NEWQDISC: u16 = 36;
/// Netlink message that removes a qdisc (include/uapi/linux/rtnetlink.h).
const RTM_DELQDISC: u16 = 37;
/// Netlink message that creates or changes a class (include/uapi/linux/rtnetlink.h).
const RTM_NEWTCLASS: u16 = 40;
/// Netlink message that removes a class (include/uapi/linux/rtnetlink.h).
const RTM_DELTCLASS: u16 = 41;
/// Attribute: the kind of a qdisc (include/uapi/linux/rtnetlink.h).
const TCA_KIND: u16 = 1;
/// Attribute: the options of a qdisc or class (include/uapi/linux/rtnetlink.h).
const TCA_OPTIONS: u16 = 2;
/// Attribute: the shared block of filters at an ingress (include/uapi/linux/rtnetlink.h).
const TCA_INGRESS_BLOCK: u16 = 13;
/// Parent of a root qdisc (include/uapi/linux/pkt_sched.h, as the following constants).
const TC_H_ROOT: u32 = 0xffff_ffff;
/// Option of an HTB class: `struct tc_htb_opt`.
const TCA_HTB_PARMS: u16 = 1;
/// Option of the HTB qdisc: `struct tc_htb_glob`.
const TCA_HTB_INIT: u16 = 2;
/// Option of an HTB class: its rate as 64 bits, in bytes per second.
const TCA_HTB_RATE64: u16 = 6;
/// Option of an HTB class: its ceiling as 64 bits, in bytes per second.
const TCA_HTB_CEIL64: u16 = 7;
/// Version of the options of HTB that the kernel requires.
const TC_HTB_PROTOVER: u32 = 3;
/// Option of TBF: `struct tc_tbf_qopt`.
const TCA_TBF_PARMS: u16 = 1;
/// Option of TBF: its rate as 64 bits, in bytes per second.
const TCA_TBF_RATE64: u16 = 4;
/// Option of TBF: its bucket, in bytes.
const TCA_TBF_BURST: u16 = 6;
/// Option of fq_codel: the target, in microseconds.
const TCA_FQ_CODEL_TARGET: u16 = 1;
/// Option of fq_codel: the interval, in microseconds.
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
/// Link layer of a `struct tc_ratespec`: sizes are Ethernet frames, without ATM cells.
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// Size of `struct tcmsg`, behind the header of a message.
const TC_HEADER: usize = 20;
/// First handle that the kernel assigns by itself (`qdisc_alloc_handle`).
const GIVEN_HANDLES: u32 = 0x8000_0000;
/// Nanoseconds per tick, the unit of buckets (`PSCHED_SHIFT`).
const TICK_NS: f64 = 64.0;

/// Rate of an unshaped class: above the rate of any port.
const UNSHAPED: Rate = Rate::from_bits_per_sec(100_000_000_000);
/// Rate of a leaf (bytes per second). It is so high that a bucket, which the kernel counts in whole nanoseconds, never
/// empties, not even for the longest super-packet (`psched_l2t_ns`). If packets could empty a bucket of one frame, the
/// second of two packets would wait for a timer. A super-packet that was queued before the leaf began to split would
/// then wait for ever.
const LEAF_BYTES_PER_S: u64 = 1 << 50;
/// Class of the packets outside all bundles; its number is above the numbers of the bundles' classes.
const OTHERS: u32 = 0x4000;
/// Bytes per turn of this class. The value has no effect, since no other class has its priority.
const OTHERS_QUANTUM: u32 = 1 << 16;
/// Bytes per turn of a class that shares its rate with no other. The value has no effect.
const QUANTUM: u32 = 1514;

/// The HTB qdisc of one device. A drop leaves it installed; it never limits packets outside its bundle classes.
#[derive(Debug)]
pub struct Htb {
    kernel: Commands,
    ifindex: u32,
    handle: u32,
    /// Bytes added to each packet's length for the rates of bundles; 0 at first.
    overhead_bytes: u16,
    own: Own,
}

impl Htb {
    /// Installs the qdisc with `handle` (a major number, shifted by 16) at the root of a device of the current network
    /// namespace. It replaces the kernel's own qdisc, or one left behind by a sendbox.
    pub fn create(ifindex: u32, handle: u32) -> io::Result<Self> {
        let kernel = Commands::open()?;
        let own = own_of(&kernel, ifindex, handle)?;
        let htb = Self { kernel, ifindex, handle, overhead_bytes: 0, own };
        // The operator may have chosen `noqueue`, which counts as an existing qdisc.
        htb.make(netlink::NLM_F_REPLACE)?;
        Ok(htb)
    }

    /// Sets the bytes that rates add to each packet's length at this device; once per super-packet that is not split.
    pub fn set_overhead(&mut self, bytes: u16) {
        self.overhead_bytes = bytes;
    }

    /// Whether a bundle's class has this rate after a change.
    pub fn is_bundle_as(&self, change: &ForeignChange, rate: Option<Rate>) -> bool {
        change.has_class(&bundle_options(rate, self.overhead_bytes))
    }

    /// Index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Switches to another device, which does not have the qdisc yet.
    pub fn follow(&mut self, ifindex: u32) -> io::Result<()> {
        self.ifindex = ifindex;
        self.own = own_of(&self.kernel, ifindex, self.handle)?;
        Ok(())
    }

    /// Installs the qdisc at the root if it was removed, or is not at this device yet.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`]: another program has installed a qdisc there, which stays. Any other refusal of
    /// the kernel.
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

    /// Makes the class of the packets outside all bundles, with the device's own qdisc below, as far as they are
    /// missing.
    pub fn set_others(&self) -> io::Result<()> {
        let class = self.handle | OTHERS;
        self.change(RTM_NEWTCLASS, class, self.handle, "htb", &others_options())?;
        if self.own.is_at(&self.kernel, self.ifindex, class)? {
            return Ok(());
        }
        // For some kinds the kernel cannot change all options.
        self.remove_leaf(class)?;
        let leaf = self.leaf_handle(class);
        self.change(RTM_NEWQDISC, leaf, class, &self.own.kind, &self.own.options)
    }

    /// Restores the length of the device's queue. If it is 0, the kernel sets it to 1000 for each new qdisc
    /// (`qdisc_create`, sch_api.c).
    pub fn keep_queue_length(&self) -> io::Result<()> {
        self.own.keep_length(&self.kernel, self.ifindex)
    }

    /// Whether the class of the packets outside all bundles, or its qdisc, is as it was made after a change. `None`:
    /// the change concerns neither.
    pub fn is_others_as(&self, change: &ForeignChange) -> Option<bool> {
        let class = self.handle | OTHERS;
        match change.what {
            What::Class if change.handle == class => Some(change.has_class(&others_options())),
            What::Qdisc if change.parent == class => {
                Some(self.own.is(&change.kind, &change.options))
            }
            _ => None,
        }
    }

    /// Whether a change concerns this class itself.
    pub fn is_class(&self, change: &ForeignChange, class: u32) -> bool {
        change.what == What::Class && change.handle == class
    }

    /// Whether a change concerns this class, its leaf, or the queue of the leaf.
    pub fn is_at(&self, change: &ForeignChange, class: u32) -> bool {
        let is_below = || [class, self.leaf_handle(class) | 1].contains(&change.parent);
        self.is_class(change, class) || (change.what == What::Qdisc && is_below())
    }

    /// Whether a class that shares its parent's rate still has turns of `turn_bytes` and its leaf after a change. A
    /// change of the leaf's queue gives false.
    pub fn is_leaf_as(
        &self,
        change: &ForeignChange,
        class: u32,
        leaf: Leaf,
        turn_bytes: u32,
    ) -> bool {
        if self.is_class(change, class) {
            change.has_class(&sharer_options(turn_bytes))
        } else {
            change.parent == class && change.has_leaf(&leaf.options())
        }
    }

    /// Removes the qdisc that replaces the queue of a leaf, if there is one, with its packets.
    pub fn remove_queue(&self, class: u32) -> io::Result<()> {
        self.remove_leaf(self.leaf_handle(class) | 1)
    }

    /// Removes the qdisc below a class, if there is one.
    fn remove_leaf(&self, class: u32) -> io::Result<()> {
        match self.kernel.command(RTM_DELQDISC, 0, &tcmsg(self.ifindex, 0, class)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Subscribes to changes of the qdisc by other programs.
    pub fn changes(&self) -> io::Result<Changes> {
        Changes::subscribe(self.kernel.port()?)
    }

    /// Whether a change concerns this qdisc or one below it. Their major numbers follow its own, up to the first one
    /// that the kernel assigns.
    pub fn is_of(&self, change: &ForeignChange) -> bool {
        let ours = self.handle..GIVEN_HANDLES;
        change.ifindex == self.ifindex
            && (ours.contains(&change.handle) || ours.contains(&change.parent))
    }

    /// Makes a class below the qdisc, or sets the rate of an existing one; `None`: the speed of the device.
    pub fn set_class(&self, class: u32, rate: Option<Rate>) -> io::Result<()> {
        let options = bundle_options(rate, self.overhead_bytes);
        self.change(RTM_NEWTCLASS, class, self.handle, "htb", &options)
    }

    /// Makes or changes a class below the class `of`. It may use all of the rate of `of` that the classes next to it
    /// leave. If all of these have packets, they take turns of `turn_bytes`. That must be the number of bytes that a
    /// leaf passes at once. With less, each turn is one buffer, and a flow of single packets gets as many buffers as a
    /// flow of super-packets.
    pub fn set_sharer(&self, class: u32, of: u32, turn_bytes: u32) -> io::Result<()> {
        self.change(RTM_NEWTCLASS, class, of, "htb", &sharer_options(turn_bytes))
    }

    /// Puts a first-in, first-out queue below a class, or changes the existing queue.
    pub fn set_leaf(&self, class: u32, leaf: Leaf) -> io::Result<()> {
        self.change(RTM_NEWQDISC, self.leaf_handle(class), class, "tbf", &leaf.options())
    }

    /// Replaces the queue of the leaf by a qdisc of this kind. The leaf still splits packets. `options` override
    /// the kernel's defaults ([`fq_codel_options`]). An existing qdisc of this kind takes the options and keeps its
    /// packets.
    pub fn set_queue(&self, class: u32, kind: &str, options: &[u8]) -> io::Result<()> {
        // TBF calls its only class 1 (`tbf_find`, sch_tbf.c).
        self.change(RTM_NEWQDISC, 0, self.leaf_handle(class) | 1, kind, options)
    }

    /// The handle of the qdisc below a class. Its major number follows the number of the root, one per class.
    fn leaf_handle(&self, class: u32) -> u32 {
        self.handle + ((class & 0xffff) << 16)
    }

    /// Removes the qdisc: the kernel installs its own again.
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

/// The device's own qdisc. Removes an HTB qdisc with `handle` first, which a sendbox has left there.
fn own_of(kernel: &Commands, ifindex: u32, handle: u32) -> io::Result<Own> {
    let messages = kernel.dump(egress::RTM_GETQDISC, &about(ifindex, 0))?;
    let all = messages.iter().filter_map(|message| egress::qdisc_of(message, ifindex));
    let is_ours = |it: &egress::Qdisc| it.parent == TC_H_ROOT && it.handle == handle;
    if all.filter(is_ours).any(|it| it.kind == "htb") {
        kernel.command(RTM_DELQDISC, 0, &tcmsg(ifindex, handle, TC_H_ROOT))?;
    }
    Own::of(kernel, ifindex)
}

/// Body of a message about a qdisc or class of this `kind`, with `more` attributes.
fn body_of(tcmsg: [u8; TC_HEADER], kind: &str, more: &[u8]) -> Vec<u8> {
    let kind = [kind.as_bytes(), b"\0"].concat();
    [&tcmsg[..], &attribute_of(TCA_KIND, &kind), more].concat()
}

/// Makes sure that the kernel has qdiscs of a `kind`, and lets it load the module. Needs a device, which is not
/// changed, and an unused handle.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`]: the kernel has no qdisc of this kind. Any other refusal of the request.
pub fn look_for(kind: &str, ifindex: u32, handle: u32) -> io::Result<()> {
    // Only an ingress qdisc may share filters between devices. The kernel refuses this request for any other qdisc
    // after it has found the kind, and before it changes anything (`qdisc_block_indexes_set`, sch_api.c).
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
    /// Largest queue in bytes.
    pub limit: ByteCount,
    /// Super-packets longer than this are split (bytes): the length of a frame, or more than any super-packet has.
    pub longest: u32,
}

impl Leaf {
    /// The options of its qdisc.
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

/// Whether a sendbox has left its qdisc with `handle` at the root of a device.
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

/// A token bucket: its rate, and its depth as a time at that rate.
#[derive(Clone, Copy)]
struct Bucket {
    bytes_per_s: u64,
    ticks: u32,
    /// Bytes added to each packet's length.
    overhead_bytes: u16,
}

/// The options of the class of a bundle at a rate.
fn bundle_options(rate: Option<Rate>, overhead_bytes: u16) -> Vec<u8> {
    let bytes_per_s = bytes_per_s(rate.unwrap_or(UNSHAPED));
    // Two frames, or half a millisecond at the rate: more than the delay of the kernel's timers.
    let burst = (2.0 * 1514.0_f64).max(bytes_per_s as f64 * 0.5e-3);
    let ticks = ticks(burst / bytes_per_s as f64);
    let burst = Bucket { bytes_per_s, ticks, overhead_bytes };
    class_options(burst, burst, QUANTUM, Priority::Bundles)
}

/// The options of a class that uses the unused rate of its parent, in turns of this many bytes.
pub fn sharer_options(turn_bytes: u32) -> Vec<u8> {
    // A class may always send at its own rate, even if its parent has no rate left; the parent makes up for it later.
    // At 1 byte/s that is one packet, and the next one after a minute without any: HTB counts at most a minute of debt
    // (`mbuffer`, sch_htb.c).
    let own = Bucket { bytes_per_s: 1, ticks: 1, overhead_bytes: 0 };
    let most =
        Bucket { bytes_per_s: bytes_per_s(UNSHAPED), ticks: ticks(0.5e-3), overhead_bytes: 0 };
    class_options(own, most, turn_bytes, Priority::Bundles)
}

/// The options of the class of the packets outside all bundles.
fn others_options() -> Vec<u8> {
    let most = Bucket { bytes_per_s: LEAF_BYTES_PER_S, ticks: 1, overhead_bytes: 0 };
    class_options(most, most, OTHERS_QUANTUM, Priority::Others)
}

/// Priority of a class; the first one sends first.
#[derive(Clone, Copy)]
enum Priority {
    Others,
    Bundles,
}

/// The options of a class with the guaranteed rate `own` that sends up to the rate `most`, in turns of `quantum` bytes.
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

/// `struct tc_ratespec`: cell_log, linklayer, overhead, cell_align, mpu, rate in bytes per second. If a link layer is
/// set, the kernel requires no rate table.
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
