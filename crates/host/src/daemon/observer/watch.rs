//! The process that looks at the devices: `forebay observe`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use caps::Capability;
use nix::errno::Errno;
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockProtocol;

use super::names::{LookUp, Names};
use super::{Observation, is_of_destinations, take_destinations};
use crate::bridge;
use crate::daemon::conditions::Devices;
use crate::daemon::config::{DatapathKind, Forward};
use crate::daemon::machine_addresses;
use crate::ethernet;
use crate::netlink;
use crate::offload::{self, Offload};
use crate::port::{XdpProgram, xdp_program};
use crate::service::privileges::{self, Account};
use crate::service::supervisor::block_signals;

/// Shortest time between two looks, so that the changes of one script come in one look.
const SPACING: Duration = Duration::from_millis(50);
/// Longest time between two looks, because the kernel does not report changes of tcx and sysctls.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks take at most one part in this many of the time, as far as [`PERIOD`] allows. The routes of some
/// machines change all the time, and looking up 16,384 routes takes a tenth of a second.
const LOOKS_SHARE: u32 = 10;
/// Half of the Ethernet addresses that the capture program holds: any station may pretend to be many.
const STATIONS: usize = 512;

/// Multicast group of links and ports of bridges (include/uapi/linux/rtnetlink.h).
const RTMGRP_LINK: u32 = 1;
/// Multicast group of IPv4 addresses (include/uapi/linux/rtnetlink.h).
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
/// Multicast group of IPv6 addresses (include/uapi/linux/rtnetlink.h).
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
/// Routes and rules of both IP versions, next-hop objects, and changes of forwarding by sysctls.
const ROUTING: u32 = 0x40 | 0x400 | 0x80 | 1 << 18 | 1 << 31 | 1 << 23 | 1 << 24;
/// Multicast group 7, changes of nftables (include/uapi/linux/netfilter/nfnetlink.h).
const NFNLGRP_NFTABLES: u32 = 1 << 6;

/// Watches the devices of a box and writes each observation to standard output, until standard input ends. A
/// process that switches to `account` looks up names.
///
/// The function needs netlink(7) sockets, ioctl(2) of devices, bpf(2) to query programs, and the files of
/// `/proc/sys/net/bridge`, with `CAP_NET_ADMIN`.
pub fn run(devices: &Devices, account: Option<&Account>) -> io::Result<()> {
    // Signals for the box reach its whole process group or control group: the box ends this process.
    let _signals = block_signals()?;
    // Before the privileges are dropped: without them it could not become another user.
    let mut names = LookUp::start(account)?;
    // A box with classes in the kernel would get a message for each rate that it sets itself. The thread that
    // sets them gets the removals by other programs at once. This process looks for other qdiscs each PERIOD.
    let of_tc = if devices.datapath == DatapathKind::Kernel { 0 } else { netlink::RTMGRP_TC };
    let of_routes = if devices.forward == Forward::Route { ROUTING } else { 0 };
    let groups = RTMGRP_LINK | of_tc | of_routes | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    let mut changes = vec![netlink::subscribe(SockProtocol::NetlinkRoute, groups)?];
    // A kernel without nftables sends no messages.
    changes.extend(netlink::subscribe(SockProtocol::NetlinkNetFilter, NFNLGRP_NFTABLES));
    privileges::drop_all_but(&[Capability::CAP_NET_ADMIN], None)?;
    let mut merging: Vec<Merging> = devices.watched().iter().map(|it| Merging::new(it)).collect();
    let mut indices = Indices::default();
    let mut devices = devices.clone();
    let mut told = None;
    loop {
        let began = Instant::now();
        for device in &mut merging {
            device.keep_off();
        }
        // A failed look writes no line; the reader notices the missing line.
        if let Ok(seen) = look(&devices, &mut indices, names.names()) {
            let line = if told.as_ref() == Some(&seen) {
                String::new()
            } else {
                serde_json::to_string(&seen)?
            };
            match writeln!(io::stdout(), "{line}") {
                // The box has ended without closing standard input first.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            told = Some(seen);
        }
        let looked = began.elapsed();
        let stdin = io::stdin();
        let sources = changes.iter().map(AsFd::as_fd).chain(names.as_fd()).chain([stdin.as_fd()]);
        let mut fds: Vec<_> = sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(PERIOD).map_err(io::Error::other)?;
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_asked = fds.last().and_then(PollFd::any) == Some(true);
        let mut of_devices = |line: &str| {
            let is_of_devices = is_of_destinations(line);
            if is_of_devices {
                take_destinations(&mut devices.to, line);
            }
            is_of_devices
        };
        if has_asked && !names.take_but(stdin.lock(), &mut of_devices)? {
            return Ok(());
        }
        let of_routes = if devices.to.is_empty() { Duration::ZERO } else { looked * LOOKS_SHARE };
        let spacing = of_routes.clamp(SPACING, PERIOD);
        std::thread::sleep(spacing.saturating_sub(began.elapsed()));
        changes.iter().try_for_each(netlink::drain)?;
    }
}

/// Indices of the ports. A device that has another name for a while is the same device, with everything
/// attached to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Indices {
    lan: Option<u32>,
    wan: Option<u32>,
}

impl Indices {
    /// Looks at the ports again.
    fn look(&mut self, devices: &Devices) {
        let index = |name: &str, before: Option<u32>| {
            // For an index without a device, nix 0.31 returns an empty name, and no error.
            let name_of = |index: u32| if_indextoname(index).unwrap_or_default();
            let is_renamed = |index: &u32| !name_of(*index).is_empty();
            if_nametoindex(name).ok().or(before.filter(is_renamed))
        };
        let (lan, wan) = devices.ports();
        self.lan = lan.and_then(|lan| index(&lan, self.lan));
        self.wan = index(&wan, self.wan);
    }

    /// The indices that still hold: a device that went meanwhile is gone, even if a similar one has come.
    fn and(self, later: Self) -> Self {
        let same = |before: Option<u32>, later| before.filter(|_| before == later);
        Self { lan: same(self.lan, later.lan), wan: same(self.wan, later.wan) }
    }
}

fn look(devices: &Devices, indices: &mut Indices, names: &Names) -> io::Result<Observation> {
    // Before the conditions and after them: the next look reports devices replaced meanwhile.
    indices.look(devices);
    let before = *indices;
    let failed_conditions = devices.failed_conditions();
    indices.look(devices);
    let Indices { lan, wan } = before.and(*indices);
    // Packets out of a triangle are addressed to this machine, which routes them on.
    let is_in_triangle = devices.triangle.is_some();
    let mut macs = if is_in_triangle { BTreeSet::new() } else { ethernet::own_addresses()? };
    let mut vlans = None;
    if devices.forward == Forward::Bridge
        && let Some(lan) = &devices.lan
    {
        // Packets of the LAN's hosts to these addresses pass the bridge, but not the WAN: a router there,
        // perhaps. The conditions report missing devices.
        macs.extend(bridge::stations_elsewhere(lan, &devices.wan, STATIONS).unwrap_or_default());
        vlans = bridge::passage(lan, &devices.wan).ok().and_then(|it| it.vlans);
    }
    Ok(Observation {
        lan,
        lan_queues: devices.ports().0.and_then(|lan| offload::receive_queues(&lan).ok()),
        wan,
        mtu: offload::mtu(&devices.wan).ok(),
        failed_conditions,
        addresses: machine_addresses()?,
        macs,
        vlans,
        names: names.clone(),
        // The conditions report if the kernel gives no answer about routes.
        routing: devices.routing().unwrap_or_default(),
    })
}

/// Keeps GRO off if it was off before a box attached its program: at a veth the kernel then switches it on
/// (veth_enable_xdp). If a user switches it on later, this process leaves it on and informs the box.
struct Merging {
    device: String,
    was_off: bool,
    /// The program that was last seen attached.
    program: Option<XdpProgram>,
}

impl Merging {
    fn new(device: &str) -> Self {
        Self { device: device.into(), was_off: false, program: None }
    }

    /// The conditions report a device that is missing or gives no answer.
    fn keep_off(&mut self) {
        // In this order: once a program is visible, GRO is on.
        let Ok(program) = xdp_program(&self.device) else { return };
        let Ok(is_on) = offload::is_on(&self.device, Offload::Gro) else { return };
        if program.is_none() {
            self.was_off = !is_on;
        } else if self.program != program && is_on && self.was_off {
            // The condition reports a failure.
            let _ = offload::disable(&self.device, Offload::Gro);
        }
        self.program = program;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn renamed_ports_keep_their_index_deleted_ones_not() {
        on_a_veth_pair(|| {
            let devices = Devices::bridged("left", "right", DatapathKind::User);
            let mut indices = Indices::default();
            let mut look = || {
                indices.look(&devices);
                (indices.lan, indices.wan)
            };
            let (lan, wan) = look();
            assert!(lan.is_some() && wan.is_some());
            run("ip link set left down");
            run("ip link set left name away");
            assert_eq!(look(), (lan, wan));
            // Another device has taken the first one's name.
            run("ip link add left type veth peer name spare");
            let (other, _) = look();
            assert!(other.is_some() && other != lan);
            run("ip link del left");
            assert_eq!(look(), (None, wan));
            run("ip link set away name left");
            assert_eq!(look(), (lan, wan));
            run("ip link del left");
            assert_eq!(look(), (None, None));
        });
    }
}
