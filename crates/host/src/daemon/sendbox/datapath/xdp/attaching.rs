//! Follows the devices of a running sendbox as they change.
//!
//! If a device is deleted and created again, the box attaches to the new one. It uses sockets that it opened
//! before it dropped its privileges: one per queue of the device at the start, or fewer.

use std::io;

use crate::daemon::DaemonError;
use crate::daemon::conditions::FailedCondition;
use crate::daemon::observer::Observation;
use crate::port::{SpareSocket, XdpOptions, XdpPort};

/// How often either device may be created again: a running box has no privilege to open sockets.
const SPARES: usize = 8;

/// State for following the devices.
pub struct Attaching {
    /// LAN and WAN: the device of the port has gone. A device that is created again may have its index.
    is_gone: [bool; 2],
    /// Number of queues of LAN and WAN in use. A port whose sockets readers own does not report it.
    used: [u32; 2],
    /// Devices that were created again and could not be attached to.
    failed: Vec<FailedCondition>,
    /// Sockets for each of LAN and WAN, in sets of one port each.
    spares: [Vec<Vec<SpareSocket>>; 2],
}

impl Attaching {
    /// Opens sockets for later, which takes all privileges, for ports with these numbers of queues and these
    /// options.
    pub fn prepare(ports: [(usize, XdpOptions); 2]) -> io::Result<Self> {
        let used = ports.map(|(queues, _)| queues as u32);
        let [lan, wan] = ports.map(spares);
        Ok(Self { is_gone: [false; 2], used, failed: Vec::new(), spares: [lan?, wan?] })
    }

    /// Devices that were created again and could not be attached to.
    pub fn failed(&self) -> &[FailedCondition] {
        &self.failed
    }

    /// Attaches ports to devices that have replaced earlier ones, once all conditions hold.
    pub fn follow(&mut self, seen: &Observation, ports: [&mut XdpPort; 2], names: &[String; 2]) {
        self.failed.clear();
        let indices = [seen.lan, seen.wan];
        // The box uses one queue of the WAN, however many there are.
        let queues = [seen.lan_queues, None];
        for (is_gone, index) in self.is_gone.iter_mut().zip(indices) {
            *is_gone |= index.is_none();
        }
        if !seen.failed_conditions.is_empty() {
            return;
        }
        for (at, (port, name)) in ports.into_iter().zip(names).enumerate() {
            let is_another = |index: &u32| self.is_gone[at] || *index != port.ifindex();
            if let Some(ifindex) = indices[at].filter(is_another) {
                if let Err(error) = self.attach(at, port, name, ifindex, queues[at]) {
                    self.failed.push(FailedCondition::made_again(name, &error));
                    continue;
                }
                self.is_gone[at] = false;
                let used = port.queues().count() as u32;
                self.used[at] = used;
                tracing::info!(target: "device", "{name} was made again: attached to it, queues: {used}");
            }
            // A device that was created again with fewer queues may get more.
            let read = self.used[at];
            if let Some(there) = queues[at].filter(|there| *there > read) {
                self.failed.push(FailedCondition::unread_queues(name, there, read));
            }
        }
    }

    fn attach(
        &mut self,
        at: usize,
        port: &mut XdpPort,
        name: &str,
        ifindex: u32,
        queues: Option<u32>,
    ) -> Result<(), DaemonError> {
        let mut spares = self.spares[at].pop().ok_or_else(|| {
            DaemonError::SetUp(io::Error::other(format!("no socket is left after {SPARES} times")))
        })?;
        spares.truncate(queues.map_or(spares.len(), |queues| queues as usize));
        let mut fresh = port.anew(spares, name, ifindex)?;
        if let Some(mut capture) = port.release() {
            let attached =
                capture.attach_anew(name, ifindex).and_then(|()| fresh.take_from(&capture));
            if let Err(error) = attached {
                // The program stays with the old port, for another attempt.
                port.hold(capture);
                return Err(error.into());
            }
            fresh.hold(capture);
        }
        *port = fresh;
        Ok(())
    }
}

/// Sockets for a port with this many queues, [`SPARES`] times.
fn spares((queues, options): (usize, XdpOptions)) -> io::Result<Vec<Vec<SpareSocket>>> {
    let port = |_| (0..queues).map(|_| SpareSocket::open(options)).collect();
    (0..SPARES).map(port).collect()
}

#[cfg(test)]
mod tests {
    use forebay_ebpf::{Capture, CaptureOptions};
    use nix::net::if_::if_nametoindex;

    use super::*;
    use crate::port::Direction;
    use crate::port::tests::{on_a_veth_pair, run};

    /// Creates the device `lan` with this many queues.
    fn make(queues: u32) {
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        run(&format!("ip link add lan {queues} type veth peer name host"));
        for device in ["lan", "host"] {
            run(&format!("ip link set {device} up"));
        }
    }

    #[test]
    fn recreated_device_with_fewer_queues_is_attached_again() {
        on_a_veth_pair(|| {
            make(2);
            let options = XdpOptions::default();
            let mut lan = XdpPort::open_to_receive("lan", options).unwrap();
            let capture = Capture::attach(lan.ifindex(), CaptureOptions::All, false).unwrap();
            lan.take_from(&capture).unwrap();
            lan.hold(capture);
            let mut wan = XdpPort::open("left", Direction::Transmit).unwrap();
            let mut attaching = Attaching::prepare([(2, options), (1, options)]).unwrap();
            let names = ["lan", "left"].map(String::from);
            let index = |name: &str| if_nametoindex(name).ok();
            run("ip link del lan");
            make(1);
            for (queues, faults) in [(1, 0), (2, 1), (1, 0)] {
                let (lan_index, wan_index) = (index("lan"), index("left"));
                let seen = Observation {
                    lan: lan_index,
                    lan_queues: Some(queues),
                    wan: wan_index,
                    ..Observation::default()
                };
                attaching.follow(&seen, [&mut lan, &mut wan], &names);
                let failed = attaching.failed();
                assert_eq!(failed.len(), faults, "{failed:?}");
                assert!(
                    failed.iter().all(|failed| failed.condition == "receive queues"),
                    "{failed:?}"
                );
                assert_eq!((Some(lan.ifindex()), lan.queues().count()), (lan_index, 1));
                assert!(lan.capture().is_some_and(|capture| capture.mode().is_some()));
            }
        });
    }

    #[test]
    fn queues_read_by_readers_are_used() {
        on_a_veth_pair(|| {
            let options = XdpOptions { threads: true, ..XdpOptions::default() };
            let mut lan = XdpPort::open_to_receive("right", options).unwrap();
            let mut wan = XdpPort::open("left", Direction::Transmit).unwrap();
            let queues = lan.queues().count();
            let mut attaching = Attaching::prepare([(queues, options), (1, options)]).unwrap();
            let _of_readers = lan.split();
            let names = ["right", "left"].map(String::from);
            for (more, faults) in [(0, 0), (1, 1)] {
                let seen = Observation {
                    lan: Some(lan.ifindex()),
                    lan_queues: Some(queues as u32 + more),
                    wan: Some(wan.ifindex()),
                    ..Observation::default()
                };
                attaching.follow(&seen, [&mut lan, &mut wan], &names);
                let failed = attaching.failed();
                assert_eq!(failed.len(), faults, "{failed:?}");
            }
        });
    }
}
