//! What becomes of the ports of a sendbox whose devices change while it runs.
//!
//! Where a device is deleted and made again the box attaches to the new one, with a socket that it opened before
//! it gave up its privileges.

use std::io;

use crate::daemon::DaemonError;
use crate::daemon::conditions::Void;
use crate::daemon::observer::Observation;
use crate::port::{Port, SpareSocket, XdpPort};

/// How often devices may be made again: the box has no privilege to open sockets once it runs.
const SPARES: usize = 16;

/// What it takes to follow the devices.
pub struct Attaching {
    /// LAN and WAN: the device that the port is on has gone. One that is made again may have its index.
    is_gone: [bool; 2],
    /// Devices that could not be attached to since they were made again.
    failed: Vec<Void>,
    spares: Vec<SpareSocket>,
}

impl Attaching {
    /// Opens sockets for later, which takes all privileges.
    pub fn prepare() -> io::Result<Self> {
        let spares = (0..SPARES).map(|_| SpareSocket::open()).collect::<io::Result<_>>()?;
        Ok(Self { is_gone: [false; 2], failed: Vec::new(), spares })
    }

    /// Devices that could not be attached to since they were made again.
    pub fn failed(&self) -> &[Void] {
        &self.failed
    }

    /// Attaches ports to devices that have taken the place of those before, once all holds of them.
    pub fn follow(&mut self, seen: &Observation, ports: [&mut XdpPort; 2], names: &[String; 2]) {
        self.failed.clear();
        let indices = [seen.lan, seen.wan];
        for (is_gone, index) in self.is_gone.iter_mut().zip(indices) {
            *is_gone |= index.is_none();
        }
        if !seen.void.is_empty() {
            return;
        }
        for (at, (port, name)) in ports.into_iter().zip(names).enumerate() {
            let is_another = |index: &u32| self.is_gone[at] || *index != port.ifindex();
            let Some(ifindex) = indices[at].filter(is_another) else { continue };
            match self.attach(port, name, ifindex) {
                Ok(()) => {
                    self.is_gone[at] = false;
                    tracing::info!(target: "device", "{name} was made again: attached to it");
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
