//! Whether this machine can do what a datapath needs, tried on the loopback device of a network namespace that ends with
//! a thread.

use std::error::Error;
use std::time::Duration;

use forebay_core::units::ByteCount;
use forebay_ebpf::{Classes, ClassesOptions, QDISC};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};

use super::config::{Config, DatapathKind, KernelQdisc};
use crate::htb::{Htb, Leaf};

/// Runs `attempt` in a network namespace of its own; answers what went wrong.
pub fn apart(
    attempt: impl FnOnce() -> Result<(), Box<dyn Error>> + Send + 'static,
) -> Result<(), String> {
    let outcome = std::thread::spawn(move || {
        let tried = unshare(CloneFlags::CLONE_NEWNET).map_err(Into::into).and_then(|()| attempt());
        tried.map_err(|error| error.to_string())
    });
    outcome.join().unwrap_or_else(|_| Err("the attempt panicked".into()))
}

/// Makes a class with a queue and loads its programs, as for packets that stay in the kernel and wait there in a
/// `qdisc`.
pub fn classes(qdisc: Option<KernelQdisc>) -> Result<(), String> {
    apart(move || {
        let lo = if_nametoindex("lo")?;
        Classes::attach(ClassesOptions {
            lan: lo,
            wan: lo,
            leaves: 0,
            most_packets: 1,
            most_bytes: 1,
            stale_after: Duration::from_secs(1),
        })?;
        let htb = Htb::create(lo, QDISC)?;
        let class = QDISC | 1;
        htb.set_class(class, None)?;
        htb.set_leaf(class, Leaf { limit: ByteCount::new(1 << 16), longest: 1518 })?;
        if let Some(kind) = qdisc.and_then(KernelQdisc::kind) {
            htb.set_queue(class, kind).map_err(|error| format!("{error} (sch_{kind})"))?;
        }
        Ok(())
    })
}

/// The datapath that a box can have on this machine, where the choice is left to the box.
pub fn settled(config: &Config) -> DatapathKind {
    if config.datapath != DatapathKind::Auto {
        return config.datapath;
    }
    let (settled, why) = match classes(config.kernel_qdisc) {
        Ok(()) => (DatapathKind::Kernel, "packets stay in the kernel".into()),
        Err(error) => (DatapathKind::User, format!("packets pass the process: {error}")),
    };
    let name = settled.name();
    tracing::info!(target: "datapath", "box.datapath = \"auto\" is \"{name}\": {why}");
    settled
}
