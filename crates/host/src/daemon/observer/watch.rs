//! The process that looks: `forebay observe`.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use caps::Capability;
use nix::errno::Errno;
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockProtocol;

use super::Observation;
use super::names::{LookUp, Names};
use crate::bridge;
use crate::daemon::conditions::Devices;
use crate::daemon::config::DatapathKind;
use crate::daemon::machine_addresses;
use crate::ethernet;
use crate::netlink;
use crate::offload::{self, Offload};
use crate::port::{XdpProgram, xdp_program};
use crate::service::privileges::{self, Account};
use crate::service::supervisor::block_signals;

/// At least this long between two looks: what a script changes comes in one.
const SPACING: Duration = Duration::from_millis(50);
/// At most this long: for what nobody tells of (tcx, sysctls).
const PERIOD: Duration = Duration::from_secs(1);
/// Half of the Ethernet addresses that the capture program holds: anybody may pretend to be many.
const STATIONS: usize = 512;

// include/uapi/linux/rtnetlink.h: links and ports of bridges, addresses.
const RTMGRP_LINK: u32 = 1;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
// include/uapi/linux/netfilter/nfnetlink.h: the seventh group.
const NFNLGRP_NFTABLES: u32 = 1 << 6;

/// Watches the devices of a box, and writes what it sees on standard output, until standard input ends. Names are
/// looked up by a process that becomes this account.
///
/// It needs netlink(7) sockets, ioctl(2) of devices, bpf(2) to ask for programs, and the files of
/// `/proc/sys/net/bridge`, with `CAP_NET_ADMIN`.
pub fn run(devices: &Devices, account: Option<&Account>) -> io::Result<()> {
    // What is meant for the box reaches its whole process group or control group: the box ends it.
    let _signals = block_signals()?;
    // Without these privileges it could not become another user.
    let mut names = LookUp::start(account)?;
    // A box with classes in the kernel would be told of each rate that it sets itself. Who sets them is told at once of
    // what others take away, and other qdiscs are looked for each PERIOD.
    let of_tc = if devices.datapath == DatapathKind::Kernel { 0 } else { netlink::RTMGRP_TC };
    let groups = RTMGRP_LINK | of_tc | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    let mut changes = vec![netlink::subscribe(SockProtocol::NetlinkRoute, groups)?];
    // A kernel without nftables has nothing to tell.
    changes.extend(netlink::subscribe(SockProtocol::NetlinkNetFilter, NFNLGRP_NFTABLES));
    privileges::drop_all_but(&[Capability::CAP_NET_ADMIN], None)?;
    let mut merging: Vec<Merging> = devices.names().map(Merging::new).collect();
    let mut indices = Indices::default();
    let mut told = None;
    loop {
        let began = Instant::now();
        for device in &mut merging {
            device.keep_off();
        }
        // Whoever waits for a line hears of a look that fails by getting none.
        if let Ok(seen) = look(devices, &mut indices, names.names()) {
            let line = if told.as_ref() == Some(&seen) {
                String::new()
            } else {
                serde_json::to_string(&seen)?
            };
            match writeln!(io::stdout(), "{line}") {
                // The box has ended, and not by closing standard input first.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            told = Some(seen);
        }
        let stdin = io::stdin();
        let sources = changes.iter().map(AsFd::as_fd).chain(names.as_fd()).chain([stdin.as_fd()]);
        let mut fds: Vec<_> = sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(PERIOD).map_err(io::Error::other)?;
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_asked = fds.last().and_then(PollFd::any) == Some(true);
        if has_asked && !names.take(stdin.lock())? {
            return Ok(());
        }
        std::thread::sleep(SPACING.saturating_sub(began.elapsed()));
        changes.iter().try_for_each(netlink::drain)?;
    }
}

/// Indices of the ports. One that has another name for a while is the same device still, with all that is attached to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Indices {
    lan: Option<u32>,
    wan: Option<u32>,
}

impl Indices {
    /// Looks at the ports again.
    fn look(&mut self, devices: &Devices) {
        let index = |name: &str, before: Option<u32>| {
            // Of an index without a device nix 0.31 says an empty name, and no error.
            let name_of = |index: u32| if_indextoname(index).unwrap_or_default();
            let is_renamed = |index: &u32| !name_of(*index).is_empty();
            if_nametoindex(name).ok().or(before.filter(is_renamed))
        };
        self.lan = devices.lan.as_deref().and_then(|lan| index(lan, self.lan));
        self.wan = index(&devices.wan, self.wan);
    }

    /// What of these still holds: a device that went meanwhile is gone, though one like it may be there.
    fn and(self, later: Self) -> Self {
        let same = |before: Option<u32>, later| before.filter(|_| before == later);
        Self { lan: same(self.lan, later.lan), wan: same(self.wan, later.wan) }
    }
}

fn look(devices: &Devices, indices: &mut Indices, names: &Names) -> io::Result<Observation> {
    // Before the conditions and after them: of what is replaced meanwhile the next look tells.
    indices.look(devices);
    let before = *indices;
    let void = devices.void();
    indices.look(devices);
    let Indices { lan, wan } = before.and(*indices);
    let mut macs = ethernet::own_addresses()?;
    let mut vlans = None;
    if let Some(lan) = &devices.lan {
        // What the LAN's hosts send to these the bridge carries past the WAN: a router there, perhaps.
        // Devices that are not there are a matter of the conditions.
        macs.extend(bridge::stations_elsewhere(lan, &devices.wan, STATIONS).unwrap_or_default());
        vlans = bridge::passage(lan, &devices.wan).ok().and_then(|it| it.vlans);
    }
    Ok(Observation {
        lan,
        lan_queues: devices.lan.as_deref().and_then(|lan| offload::receive_queues(lan).ok()),
        wan,
        void,
        addresses: machine_addresses()?,
        macs,
        vlans,
        names: names.clone(),
    })
}

/// Keeps GRO off where it was before a box attached its program: with that the kernel switches it on
/// at a veth (veth_enable_xdp). Whoever switches it on later is left alone, and the box told.
struct Merging {
    device: String,
    was_off: bool,
    /// The program whose coming was seen.
    program: Option<XdpProgram>,
}

impl Merging {
    fn new(device: &str) -> Self {
        Self { device: device.into(), was_off: false, program: None }
    }

    /// A device that is not there, or cannot be asked, is a matter of the conditions.
    fn keep_off(&mut self) {
        // In this order: when a program shows, GRO is on.
        let Ok(program) = xdp_program(&self.device) else { return };
        let Ok(is_on) = offload::is_on(&self.device, Offload::Gro) else { return };
        if program.is_none() {
            self.was_off = !is_on;
        } else if self.program != program && is_on && self.was_off {
            // The condition says so if that fails.
            let _ = offload::disable(&self.device, Offload::Gro);
        }
        self.program = program;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::Role;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn renamed_ports_keep_their_index_deleted_ones_not() {
        on_a_veth_pair(|| {
            let devices = Devices {
                role: Role::Sendbox,
                lan: Some("left".into()),
                wan: "right".into(),
                datapath: DatapathKind::User,
                room_bytes: None,
                queues: None,
                by_socket: false,
            };
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
            // Another device has taken its name.
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
