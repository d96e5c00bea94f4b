//! What becomes of the ports of a sendbox whose devices change while it runs.
//!
//! Where a device is deleted and made again the box attaches to the new one, with a socket that it opened before
//! it gave up its privileges.

use std::io;

use forebay_core::units::Timestamp;

use super::super::DaemonError;
use super::super::conditions::{Devices, Void};
use super::super::observer::{Observation, Observer};
use crate::port::{Port, SpareSocket, XdpPort};

/// How often devices may be made again: the box has no privilege to open sockets once it runs.
const SPARES: usize = 16;

/// What follows where nobody looks any more.
const UNWATCHED: &str = "nobody watches the devices: the process that does it is stopped or hangs";

/// What is known of the devices, and what it takes to follow them.
pub struct Attaching {
    observer: Observer,
    seen: Observation,
    /// LAN and WAN: the device that the port is on has gone. One that is made again may have its index.
    is_gone: [bool; 2],
    /// Devices that could not be attached to since they were made again.
    failed: Vec<Void>,
    spares: Vec<SpareSocket>,
}

impl Attaching {
    /// Call it with all privileges, and before a program is attached.
    pub fn start(devices: &Devices) -> Result<Self, DaemonError> {
        let (observer, seen) = Observer::start(devices).map_err(DaemonError::SetUp)?;
        let spares = (0..SPARES).map(|_| SpareSocket::open()).collect::<io::Result<_>>();
        let spares = spares.map_err(DaemonError::SetUp)?;
        Ok(Self { observer, seen, is_gone: [false; 2], failed: Vec::new(), spares })
    }

    /// Readable when the devices may have changed.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// What was seen last.
    pub fn seen(&self) -> &Observation {
        &self.seen
    }

    /// Whether addresses of the machine have changed; `None`: nothing has.
    pub fn latest(&mut self) -> io::Result<Option<bool>> {
        let Some(seen) = self.observer.latest()? else { return Ok(None) };
        let is_other = seen.addresses != self.seen.addresses;
        self.seen = seen;
        Ok(Some(is_other))
    }

    /// All that does not hold.
    pub fn void(&self) -> impl Iterator<Item = &Void> {
        self.seen.void.iter().chain(&self.failed)
    }

    /// What follows from what does not hold.
    pub fn reason(&self, now: Timestamp) -> Option<&'static str> {
        let void = self.void().next().map(Void::reason);
        void.or_else(|| self.observer.is_silent(now).then_some(UNWATCHED))
    }

    /// Attaches ports to devices that have taken the place of those before, once all holds of them.
    pub fn follow(&mut self, ports: [&mut XdpPort; 2], names: &[String; 2]) {
        self.failed.clear();
        let indices = [self.seen.lan, self.seen.wan];
        for (is_gone, index) in self.is_gone.iter_mut().zip(indices) {
            *is_gone |= index.is_none();
        }
        if !self.seen.void.is_empty() {
            return;
        }
        for (at, (port, name)) in ports.into_iter().zip(names).enumerate() {
            let is_another = |index: &u32| self.is_gone[at] || *index != port.ifindex();
            let Some(ifindex) = indices[at].filter(is_another) else { continue };
            match self.attach(port, name, ifindex) {
                Ok(()) => {
                    self.is_gone[at] = false;
                    tracing::info!("{name} was made again: attached to it");
                }
                Err(error) => self.failed.push(Void::made_again(name, &error)),
            }
        }
    }

    fn attach(&mut self, port: &mut XdpPort, name: &str, ifindex: u32) -> Result<(), DaemonError> {
        let spare = self.spares.pop().ok_or_else(|| {
            DaemonError::SetUp(io::Error::other(format!("no socket is left after {SPARES} times")))
        })?;
        let mut fresh = port.anew(spare, name, ifindex)?;
        if let Some(mut capture) = port.release() {
            let attached = capture
                .attach_anew(name, ifindex)
                .and_then(|()| capture.set_socket(fresh.queue(), fresh.as_fd()));
            if let Err(error) = attached {
                // It stays with the port before, for another attempt.
                port.hold(capture);
                return Err(error.into());
            }
            fresh.hold(capture);
        }
        *port = fresh;
        Ok(())
    }
}
