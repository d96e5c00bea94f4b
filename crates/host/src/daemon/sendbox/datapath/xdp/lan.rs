//! The LAN port: the capture program, its heartbeat, and what passes it.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use forebay_core::units::Timestamp;
use forebay_ebpf::{Capture, CaptureOptions, XdpMode};
use ipnet::IpNet;

use super::super::{BATCH, STALE_AFTER};
use crate::daemon::config::Config;
use crate::daemon::observer::Observation;
use crate::daemon::{DaemonError, message_addresses};
use crate::offload;
use crate::port::{Direction, Port, XdpPort};

/// A port that holds the capture program.
pub struct Lan {
    /// The socket that the program redirects to.
    pub port: XdpPort,
    /// Destinations that the program captures packets to.
    prefixes: BTreeSet<IpNet>,
    /// Addresses of the boxes' messages, which are in no bundle.
    message_addresses: BTreeSet<IpAddr>,
}

impl Lan {
    /// Attaches the capture program to a device, for frames of up to `frame_bytes`. Nothing is
    /// captured before the first heartbeat.
    pub fn open(
        config: &Config,
        device: &str,
        frame_bytes: usize,
        seen: &Observation,
    ) -> Result<Self, DaemonError> {
        let mut port = XdpPort::open(device, Direction::Receive)?;
        let options = CaptureOptions::Bundles { stale_after: STALE_AFTER };
        let capture = Capture::attach(port.ifindex(), options)?;
        capture.set_longest_frame(frame_bytes.min(port.longest_frame()));
        capture.set_socket(port.queue(), port.as_fd())?;
        port.hold(capture);
        // The kernel switches GRO on where a program is attached to a veth (veth_enable_xdp): packets
        // that pass would be merged from then on.
        offload::disable_all(device)?;
        let (prefixes, message_addresses) = (BTreeSet::new(), BTreeSet::new());
        let mut lan = Self { port, prefixes, message_addresses };
        lan.set_bundles(config)?;
        lan.set_own(seen)?;
        Ok(lan)
    }

    /// Captures the packets of these bundles and of no others from now on. Call [`Lan::set_own`] then.
    ///
    /// # Errors
    ///
    /// That the program has no room for another prefix; then all is as before.
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
        self.message_addresses = message_addresses(config);
        Ok(())
    }

    fn forget(&self, prefixes: &[IpNet]) {
        for prefix in prefixes {
            // What is captured still is in no bundle, and goes its way.
            let _ = self.capture().remove_prefix(*prefix);
        }
    }

    fn capture(&self) -> &Capture {
        self.port.capture().expect("held since the port was opened")
    }

    /// Lets what is to the machine itself pass.
    pub fn set_own(&self, seen: &Observation) -> Result<(), forebay_ebpf::Error> {
        self.capture().set_own_addresses(&(&seen.addresses | &self.message_addresses))?;
        self.capture().set_own_macs(&seen.macs)
    }

    /// Hands captured frames to `take`, at most [`BATCH`]; answers how many.
    pub fn receive(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        self.port.receive(BATCH, &mut |bytes, _: Timestamp| take(bytes))
    }

    /// Has the program capture for the next [`STALE_AFTER`].
    pub fn beat(&self) {
        self.capture().beat();
    }

    /// Has the program pass everything to the kernel until the next beat.
    pub fn stop_beating(&self) {
        self.capture().stop_beating();
    }

    /// How frames are taken from the device.
    pub fn mode(&self) -> &'static str {
        match self.capture().mode() {
            Some(XdpMode::Native) => "xdp native",
            Some(XdpMode::Generic) => "xdp generic",
            None => "detached",
        }
    }

    /// What became of the frames of the device, with what the box `counts` of those it took.
    pub fn counters(&self, counts: [(&str, u64); 4], hand_backs: u64) -> Vec<(String, u64)> {
        // Reading a map fails only where the kernel took the privilege away.
        let fates = self.capture().counters().unwrap_or_default();
        let taken = [("captured", fates.redirected), ("ring_drops", self.port.ring_drops())];
        let passed = [
            ("passed_not_ip", fates.not_ip),
            ("passed_malformed", fates.malformed),
            ("passed_discovery", fates.discovery),
            ("passed_own", fates.own),
            ("passed_own_mac", fates.own_mac),
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

impl AsFd for Lan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}
