//! The LAN port: the capture program with its heartbeat, captured frames, and frames that pass.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use forebay_core::units::{Rate, Timestamp};
use forebay_ebpf::{Capture, CaptureCounters, CaptureOptions, NO_VLAN, XdpMode};
use ipnet::IpNet;
use nix::poll::{PollFd, PollFlags};

use super::super::{BATCH, STALE_AFTER};
use super::frame::{Found, Frame, Pool};
use super::readers::Readers;
use crate::clock;
use crate::daemon::DaemonError;
use crate::daemon::apart::Apart;
use crate::daemon::config::{Config, ConfigError};
use crate::daemon::observer::Observation;
use crate::offload;
use crate::port::{Port, XdpPort};
use crate::service::privileges::Confinement;

/// Highest rate for a box whose program runs behind the driver (generic mode). There each packet already has
/// an skb. A core that carries 300,000 packets/s carries this rate in packets of 400 bytes.
const GENERIC_MAX: Rate = Rate::from_mbit_per_sec(1000);

/// Count of frames that the kernel always forwards, and the log text about them.
type Passing = (fn(&CaptureCounters) -> u64, &'static str);

/// Frames that the kernel forwards, unshaped. The log has one line about each kind.
const PASSING: [Passing; 4] = [
    (|fates| fates.mpls, "MPLS frames pass unshaped: packets behind labels belong to no bundle"),
    (
        |fates| fates.pppoe,
        "PPPoE frames pass unshaped: place the box between the hosts and the end of PPPoE",
    ),
    (
        |fates| fates.vlan,
        "packets of bundles arrive in VLANs that the bridge does not pass to the WAN; the sendbox \
         leaves these to the bridge: `bridge vlan show`",
    ),
    (
        |fates| fates.long,
        "packets of bundles pass unshaped in frames longer than the MTU plus one VLAN tag: for a \
         second tag, raise the MTU of both ports by 4 bytes",
    ),
];

/// Time between two checks of these counts.
const LOOK: Duration = Duration::from_secs(5);

/// A port with the capture program.
pub struct Lan {
    /// The sockets that the program redirects to, unless readers own them.
    pub port: XdpPort,
    /// Receive queues of the device.
    pub queues: usize,
    /// One thread per queue, if configured. Declared after the port, whose program must be dropped first.
    readers: Option<Readers>,
    /// Destination prefixes that the program captures.
    prefixes: BTreeSet<IpNet>,
    /// Addresses of this machine, and of receiveboxes that do not count packets to themselves.
    own: [BTreeSet<IpAddr>; 2],
    /// Entries of [`PASSING`] that the log already has.
    told: [bool; PASSING.len()],
    next_look: Timestamp,
}

impl Lan {
    /// Attaches the capture program to a device, for frames of up to `frame_bytes`. It captures nothing
    /// before the first heartbeat. `confinement` applies to the threads that are started.
    pub fn open(
        config: &Config,
        device: &str,
        frame_bytes: usize,
        seen: &Observation,
        confinement: &Confinement,
    ) -> Result<Self, DaemonError> {
        let mut port = XdpPort::open_to_receive(device, config.xdp)?;
        let options = CaptureOptions::Bundles { stale_after: STALE_AFTER };
        let capture = Capture::attach(port.ifindex(), options, port.is_in_pieces())?;
        check_rates(config, device, capture.mode())?;
        capture.set_longest_frame(frame_bytes.min(port.longest_frame()));
        port.take_from(&capture)?;
        port.hold(capture);
        // The kernel switches GRO on when a program is attached to a veth (veth_enable_xdp): from then on it
        // would merge packets that pass.
        offload::disable_all(device)?;
        let (prefixes, own) = (BTreeSet::new(), Default::default());
        let (told, next_look) = ([false; PASSING.len()], Timestamp::ZERO);
        let queues = port.queues().count();
        let readers = if config.xdp.threads {
            let ports = port.split();
            let readers = Readers::start(ports, frame_bytes, config.realtime, confinement);
            Some(readers.map_err(DaemonError::SetUp)?)
        } else {
            None
        };
        let mut lan = Self { port, queues, readers, prefixes, own, told, next_look };
        lan.set_bundles(config)?;
        lan.set_own(seen)?;
        Ok(lan)
    }

    /// Captures exactly the packets of these bundles from now on.
    ///
    /// # Errors
    ///
    /// The program has no room for another prefix; the set before it stays in force.
    pub fn set_bundles(&mut self, config: &Config) -> Result<(), forebay_ebpf::Error> {
        let wanted: BTreeSet<IpNet> =
            config.bundles.iter().flat_map(|bundle| &bundle.to).copied().collect();
        let added: Vec<IpNet> = wanted.difference(&self.prefixes).copied().collect();
        for (count, prefix) in added.iter().enumerate() {
            if let Err(error) = self.capture().add_prefix(*prefix) {
                self.forget(&added[..count]);
                return Err(error);
            }
        }
        let stale: Vec<IpNet> = self.prefixes.difference(&wanted).copied().collect();
        self.forget(&stale);
        self.prefixes = wanted;
        Ok(())
    }

    fn forget(&self, prefixes: &[IpNet]) {
        for prefix in prefixes {
            // A packet that is still captured is in no bundle and is sent on.
            let _ = self.capture().remove_prefix(*prefix);
        }
    }

    /// Refuses rates that the device cannot carry.
    pub fn check_rates(&self, config: &Config, device: &str) -> Result<(), ConfigError> {
        check_rates(config, device, self.capture().mode())
    }

    fn capture(&self) -> &Capture {
        self.port.capture().expect("held since the port was opened")
    }

    fn capture_mut(&mut self) -> &mut Capture {
        self.port.capture_mut().expect("held since the port was opened")
    }

    /// Lets packets to the machine itself pass, and packets that the bridge would drop.
    pub fn set_own(&mut self, seen: &Observation) -> Result<(), forebay_ebpf::Error> {
        let tag = |vlan: u16| if vlan == 0 { NO_VLAN } else { vlan };
        let taken = seen.vlans.as_ref().map(|vlans| {
            let untagged = vlans.untagged.iter().map(|vlan| tag(*vlan));
            vlans.kept.iter().copied().chain(untagged).collect()
        });
        self.capture().set_kept_vlans(taken.as_ref());
        self.own[0].clone_from(&seen.addresses);
        let own = &self.own[0] | &self.own[1];
        let capture = self.capture_mut();
        capture.set_own_macs(&seen.macs)?;
        capture.set_own_addresses(&own)
    }

    /// Lets the boxes' messages pass, and packets to receiveboxes that do not count them.
    pub fn leave_out(&mut self, apart: &Apart) -> Result<(), forebay_ebpf::Error> {
        self.own[1].clone_from(&apart.addresses);
        let own = &self.own[0] | &self.own[1];
        let capture = self.capture_mut();
        capture.set_messages(&apart.messages)?;
        capture.set_own_addresses(&own)
    }

    /// Logs, once per kind, that there are frames that the kernel always forwards.
    pub fn tell_of_passing(&mut self, now: Timestamp) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        let Ok(fates) = self.capture().counters() else { return };
        for ((count, what), is_told) in PASSING.iter().zip(&mut self.told) {
            if !*is_told && count(&fates) > 0 {
                tracing::warn!(target: "passing", "{what}");
                *is_told = true;
            }
        }
    }

    /// Passes captured frames to `take` with `pool`, at most [`BATCH`], and adds their counts to `found`.
    /// Returns how many frames there were.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        found: &mut Found,
        take: &mut dyn FnMut(Frame, &mut Pool),
    ) -> io::Result<usize> {
        if let Some(readers) = &mut self.readers {
            return readers.receive(pool, found, take);
        }
        self.port.receive(BATCH, &mut |bytes, arrived| {
            if let Some(frame) = pool.take_in(bytes, arrived, found) {
                take(frame, pool);
            }
        })
    }

    /// Adopts a port that was attached again. The readers, if there are any, read its sockets from now on.
    pub fn hand_over(&mut self) {
        let queues = self.port.queues().count();
        if queues == 0 {
            // The readers own the sockets.
            return;
        }
        self.queues = queues;
        if let Some(readers) = &mut self.readers {
            readers.read_from(self.port.split());
        }
    }

    /// Whether frames come faster than they are taken.
    pub fn is_overrun(&self) -> bool {
        self.readers.as_ref().map_or_else(|| self.port.is_overrun(), Readers::is_overrun)
    }

    /// Largest delay of a reader's next turn.
    pub fn overdue(&self) -> Duration {
        let readers = self.readers.as_ref();
        readers.map_or(Duration::ZERO, |readers| readers.overdue(clock::now()))
    }

    /// Polls the driver for frames, as [`XdpPort::busy_poll`]; readers do so themselves.
    pub fn busy_poll(&self, until: Timestamp) -> bool {
        self.readers.is_none() && self.port.busy_poll(until)
    }

    /// Adds the descriptors to wake for.
    pub fn wake_for<'a>(&'a mut self, fds: &mut Vec<PollFd<'a>>) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        match &mut self.readers {
            Some(readers) => fds.push(readable(readers.wake())),
            None => fds.extend(self.port.queues().map(|(_, socket)| readable(socket))),
        }
    }

    /// Has the program capture for the next [`STALE_AFTER`].
    pub fn beat(&self) {
        self.capture().beat();
    }

    /// Has the program pass everything to the kernel until the next beat.
    pub fn stop_beating(&self) {
        self.capture().stop_beating();
    }

    /// The mode in which frames are taken from the device.
    pub fn mode(&self) -> String {
        let place = match self.capture().mode() {
            Some(XdpMode::Native) => "xdp native",
            Some(XdpMode::Generic) => "xdp generic",
            None => return "detached".into(),
        };
        let readers = self.readers.as_ref();
        let is_zero_copy = readers.map_or_else(|| self.port.is_zero_copy(), Readers::is_zero_copy);
        let copying = if is_zero_copy { ", zero copy" } else { "" };
        let queues = match self.queues {
            1 => String::new(),
            queues => format!(", {queues} queues"),
        };
        let threads = if readers.is_some() { ", reader threads" } else { "" };
        format!("{place}{copying}{queues}{threads}")
    }

    /// Counters of the frames of the device, with the box's own `counts` of the frames that it took.
    pub fn counters(&self, counts: [(&str, u64); 5], hand_backs: u64) -> Vec<(String, u64)> {
        // Reading a map fails only if the kernel took the privilege away.
        let fates = self.capture().counters().unwrap_or_default();
        let of_readers = self.readers.as_ref().map_or(0, Readers::ring_drops);
        let ring_drops = self.port.ring_drops() + of_readers;
        let taken = [("captured", fates.redirected), ("ring_drops", ring_drops)];
        let passed = [
            ("passed_not_ip", fates.not_ip),
            ("passed_malformed", fates.malformed),
            ("passed_discovery", fates.discovery),
            ("passed_own", fates.own),
            ("passed_own_mac", fates.own_mac),
            ("passed_vlan", fates.vlan),
            ("passed_mpls", fates.mpls),
            ("passed_pppoe", fates.pppoe),
            ("passed_outside", fates.outside),
            ("passed_long", fates.long),
            ("passed_stale", fates.stale),
            ("handed_back", hand_backs),
            ("passed_no_socket", fates.no_socket),
        ];
        let all = taken.into_iter().chain(counts).chain(passed);
        all.map(|(name, count)| (name.into(), count)).collect()
    }
}

/// Refuses rates above [`GENERIC_MAX`] if the program runs behind the driver; warns of bundles without a
/// limit.
fn check_rates(config: &Config, device: &str, mode: Option<XdpMode>) -> Result<(), ConfigError> {
    if mode != Some(XdpMode::Generic) {
        return Ok(());
    }
    let of_bundles = config.bundles.iter().enumerate().filter_map(|(place, bundle)| {
        let rate = bundle.shaping.as_ref()?.max_rate?;
        Some((Some(place), "bundle.max_rate", rate))
    });
    let rates: Vec<(Option<usize>, &'static str, Rate)> = match &config.uplink {
        Some(uplink) => vec![(None, "uplink.rate", uplink.shares.rate)],
        None => of_bundles.collect(),
    };
    let why = format!("the driver of {device} runs no XDP program (generic mode)");
    if let Some((bundle, key, rate)) = rates.iter().find(|(.., rate)| *rate > GENERIC_MAX) {
        let what = format!(
            " = \"{rate}\": allowed is at most {GENERIC_MAX}, since {why}: set a lower rate, or \
             use a device whose driver runs XDP programs"
        );
        return Err(config.refuse(*bundle, key, what));
    }
    if config.uplink.is_none() && rates.len() < config.bundles.len() {
        tracing::warn!(target: "device", "{why}, which carries about {GENERIC_MAX}, and no \
                                          max_rate limits the bundle to that");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_core::bundle::uplink::{Member, UplinkConfig};

    use super::*;
    use crate::daemon::config::Uplink;
    use crate::daemon::sendbox::tests::config;

    #[test]
    fn rate_above_generic_mode_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let base = config(folder.path());
        let asking = |rate: u64, uplink: Option<u64>| {
            let mut config = base.clone();
            let bundle = config.bundles[0].shaping.as_mut().unwrap();
            bundle.max_rate = Some(Rate::from_mbit_per_sec(rate));
            config.uplink = uplink.map(|rate| {
                let shares = UplinkConfig {
                    rate: Rate::from_mbit_per_sec(rate),
                    groups: Vec::new(),
                    bundles: vec![Member::default()],
                };
                Uplink { shares, groups: Vec::new() }
            });
            config
        };
        let refusal = |config: &Config, mode| {
            check_rates(config, "lan0", Some(mode)).err().map(|error| error.to_string())
        };
        assert_eq!(refusal(&asking(2000, None), XdpMode::Native), None);
        assert_eq!(refusal(&asking(1000, None), XdpMode::Generic), None);
        assert_eq!(
            refusal(&asking(2000, Some(900)), XdpMode::Generic),
            None,
            "the uplink bounds it"
        );
        for (config, key) in [
            (asking(1001, None), "box.toml:19: bundle.max_rate = \"1001Mbit/s\""),
            (asking(900, Some(2000)), "uplink.rate = \"2Gbit/s\""),
        ] {
            let refused = refusal(&config, XdpMode::Generic).unwrap();
            assert!(refused.contains(key) && refused.contains("at most 1Gbit/s"), "{refused}");
            assert!(refused.contains("lan0") && refused.contains("set a lower rate"), "{refused}");
        }
    }
}
