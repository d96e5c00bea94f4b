//! Tests whether this machine supports a datapath, and leaves no change behind.

use std::error::Error;
use std::time::Duration;

use forebay_ebpf::{Classes, ClassesOptions, QDISC};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};

use super::config::{Config, DatapathKind, KernelQdisc};
use crate::htb;

/// Runs `attempt` in a network namespace of its own; returns the error, if any.
pub fn apart(
    attempt: impl FnOnce() -> Result<(), Box<dyn Error>> + Send + 'static,
) -> Result<(), String> {
    let outcome = std::thread::spawn(move || {
        let tried = unshare(CloneFlags::CLONE_NEWNET).map_err(Into::into).and_then(|()| attempt());
        tried.map_err(|error| error.to_string())
    });
    outcome.join().unwrap_or_else(|_| Err("the attempt panicked".into()))
}

/// Loads the programs for packets that stay in the kernel and attaches them for a moment to the loopback
/// device, whose packets they leave alone. Also checks for the qdiscs in which packets would wait there, with
/// `qdisc`. A box under its unit may not create a network namespace, and this needs only the rights that it
/// has.
pub fn classes(qdisc: Option<KernelQdisc>) -> Result<(), Box<dyn Error>> {
    let lo = if_nametoindex("lo")?;
    Classes::attach(ClassesOptions {
        lan: Some(lo),
        takes_own: false,
        is_bare: false,
        wan: lo,
        leaves: 0,
        most_packets: 1,
        most_bytes: 1,
        stale_after: Duration::from_secs(1),
    })?;
    for kind in ["htb", "tbf"].into_iter().chain(qdisc.and_then(KernelQdisc::kind)) {
        htb::look_for(kind, lo, QDISC).map_err(|error| format!("sch_{kind}: {error}"))?;
    }
    Ok(())
}

/// The datapath of a box on this machine, and the reason if the choice is left to the box. The box itself
/// uses it, and so do commands that report the choice in advance.
pub fn settled(config: &Config) -> (DatapathKind, Option<String>) {
    if config.datapath != DatapathKind::Auto {
        return (config.datapath, None);
    }
    let (settled, why) = match classes(config.kernel_qdisc) {
        Ok(()) => (DatapathKind::Kernel, "packets stay in the kernel".into()),
        Err(error) => (DatapathKind::User, format!("packets pass the process: {error}")),
    };
    (settled, Some(format!("\"{}\": {why}", settled.name())))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use forebay_skips::{Need, skip_without};

    use super::*;
    use crate::port::tests::on_a_veth_pair;
    use crate::service::privileges;

    #[test]
    fn unit_privileges_suffice_to_try_the_kernel() {
        if skip_without(Need::QueueSampling) {
            return;
        }
        on_a_veth_pair(|| {
            let unit = include_str!("../../../../packaging/systemd/forebay-ROLE@.service");
            let lists = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
            let left: Vec<caps::Capability> =
                lists.flat_map(|list| list.split(' ')).map(|name| name.parse().unwrap()).collect();
            privileges::drop_all_but(&left, None).unwrap();
            assert!(unshare(CloneFlags::CLONE_NEWNET).is_err());
            classes(None).unwrap();
            classes(Some(KernelQdisc::Fifo)).unwrap();
            let output = Command::new("tc").args(["qdisc", "show", "dev", "lo"]).output().unwrap();
            let shown = String::from_utf8(output.stdout).unwrap();
            assert!(!shown.contains("htb") && !shown.contains("tbf"), "{shown}");
            let lo = if_nametoindex("lo").unwrap();
            assert!(!forebay_ebpf::has_tcx(lo, true).unwrap());
        });
    }
}
