//! What becomes of the ports of a sendbox whose devices change while it runs.
//!
//! Where a device is deleted and made again the box attaches to the new one, with a socket that it opened before
//! it gave up its privileges.

use std::io;

use crate::daemon::DaemonError;
use crate::daemon::conditions::Void;
use crate::daemon::observer::Observation;
use crate::port::{SpareSocket, XdpOptions, XdpPort};

/// How often either device may be made again: the box has no privilege to open sockets once it runs.
const SPARES: usize = 8;

/// What it takes to follow the devices.
pub struct Attaching {
    /// LAN and WAN: the device that the port is on has gone. One that is made again may have its index.
    is_gone: [bool; 2],
    /// Devices that could not be attached to since they were made again.
    failed: Vec<Void>,
    /// Sockets of a port each, LAN and WAN.
    spares: [Vec<Vec<SpareSocket>>; 2],
}

impl Attaching {
    /// Opens sockets for later, which takes all privileges: of ports with so many queues and these options.
    pub fn prepare(ports: [(usize, XdpOptions); 2]) -> io::Result<Self> {
        let [lan, wan] = ports.map(spares);
        Ok(Self { is_gone: [false; 2], failed: Vec::new(), spares: [lan?, wan?] })
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
            match self.attach(at, port, name, ifindex) {
                Ok(()) => {
                    self.is_gone[at] = false;
                    tracing::info!(target: "device", "{name} was made again: attached to it");
                }
                Err(error) => self.failed.push(Void::made_again(name, &error)),
            }
        }
    }

    fn attach(
        &mut self,
        at: usize,
        port: &mut XdpPort,
        name: &str,
        ifindex: u32,
    ) -> Result<(), DaemonError> {
        let spares = self.spares[at].pop().ok_or_else(|| {
            DaemonError::SetUp(io::Error::other(format!("no socket is left after {SPARES} times")))
        })?;
        let mut fresh = port.anew(spares, name, ifindex)?;
        if let Some(mut capture) = port.release() {
            let attached =
                capture.attach_anew(name, ifindex).and_then(|()| fresh.take_from(&capture));
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

/// Sockets of a port with so many queues, for [`SPARES`] times.
fn spares((queues, options): (usize, XdpOptions)) -> io::Result<Vec<Vec<SpareSocket>>> {
    let port = |_| (0..queues).map(|_| SpareSocket::open(options)).collect();
    (0..SPARES).map(port).collect()
}
