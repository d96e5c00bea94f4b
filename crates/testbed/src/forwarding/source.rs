//! Sends frames into one end and counts the frames that leave the other.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_core::units::Rate;
use forebay_host::port::{Direction, PacketPort, Port, PortError, XdpPort};
use forebay_host::service::privileges::go_realtime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::scene::{DESTINATION, SOURCE, Scene};
use crate::TestbedError;
use crate::namespace::Namespace;
use crate::topology::step;

/// Most frames on the way. Fewer than the 256 that a veth's ring holds (`VETH_RING_SIZE`), so that none is
/// lost, and more than two batches of the carrying process.
const WINDOW: u64 = 192;
/// Frames handed to the kernel at once, as many as it takes in one call (`TX_BATCH_SIZE`).
const BATCH: u64 = 32;
/// A frame that has not arrived after this time is lost.
const PATIENCE: Duration = Duration::from_millis(50);
/// Distinct frames, sent in rotation: more than are on the way.
const FRAMES: usize = 1024;
/// Flows among them.
const FLOWS: usize = 16;
/// Bytes of an echo request.
const ECHO_BYTES: usize = 100;
/// Place of the UDP header in a frame: after Ethernet (14 bytes) and IPv4 (20 bytes).
const UDP_HEADER_AT: usize = 34;
/// Place of the number in an echo request: after the UDP header (8 bytes).
const NUMBER_AT: usize = 42;
/// Port 7, echo (RFC 862), in network order.
const ECHO_PORT: [u8; 2] = [0, 7];

/// Frames that arrived in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivered {
    pub frames: u64,
    pub lost: u64,
    pub time: Duration,
}

/// Sends frames and counts arrivals.
pub(super) struct Source {
    port: XdpPort,
    frames: Vec<Vec<u8>>,
    counters: File,
    sent: u64,
    lost: u64,
    /// Count of arrived frames when the source was opened.
    before: u64,
}

impl Source {
    /// Opens a source of frames with this many bytes.
    pub fn open(scene: &Scene<'_>, frame_bytes: usize) -> Result<Self, TestbedError> {
        let open = || Ok(XdpPort::open("eth0", Direction::Transmit));
        let port = scene.hosts.within(open).map_err(step("enter", "hosts"))?.map_err(failed)?;
        let frames = (0..FRAMES).map(|number| frame(number, frame_bytes)).collect();
        let counters = scene.counters()?;
        let before = received(&counters)?;
        Ok(Self { port, frames, counters, sent: 0, lost: 0, before })
    }

    /// Keeps [`WINDOW`] frames on the way.
    pub fn saturate(&mut self, duration: Duration) -> Result<Delivered, TestbedError> {
        self.run(duration, |_, on_the_way| WINDOW.saturating_sub(on_the_way).min(BATCH))
    }

    /// Sends at a rate, one frame at a time, with at most [`WINDOW`] on the way.
    pub fn pace(&mut self, rate: Rate, duration: Duration) -> Result<Delivered, TestbedError> {
        let frame_ns = self.frames[0].len() as f64 * 8e9 / rate.as_bits_per_sec() as f64;
        let mut due_ns = 0.0;
        self.run(duration, move |elapsed, on_the_way| {
            let early_ns = due_ns - elapsed.as_nanos() as f64;
            if early_ns > 0.0 {
                std::thread::sleep(Duration::from_nanos(early_ns as u64));
            }
            due_ns += frame_ns;
            u64::from(on_the_way < WINDOW)
        })
    }

    /// Sends repeatedly; `wanted` gives the number of frames from the elapsed time and the frames on the way.
    fn run(
        &mut self,
        duration: Duration,
        mut wanted: impl FnMut(Duration, u64) -> u64,
    ) -> Result<Delivered, TestbedError> {
        let began = Instant::now();
        let (mut arrived, mut arrived_at) = (0, began);
        while began.elapsed() < duration {
            let on_the_way = self.sent - self.lost - arrived;
            for _ in 0..wanted(began.elapsed(), on_the_way) {
                let frame = &self.frames[self.sent as usize % FRAMES];
                self.sent += u64::from(self.port.send(frame));
            }
            self.port.flush().map_err(step("send", "hosts"))?;
            let now = (received(&self.counters)? - self.before).min(self.sent - self.lost);
            if now > arrived {
                (arrived, arrived_at) = (now, Instant::now());
            } else if arrived_at.elapsed() > PATIENCE {
                self.lost = self.sent - arrived;
            }
        }
        Ok(Delivered { frames: arrived, lost: self.lost, time: began.elapsed() })
    }
}

/// Frames that the far side's device has received.
fn received(counters: &File) -> Result<u64, TestbedError> {
    let mut bytes = [0; 4096];
    let len = counters.read_at(&mut bytes, 0).map_err(TestbedError::Proc)?;
    let table = String::from_utf8_lossy(&bytes[..len]);
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
    let packets = row.and_then(|row| row.split_ascii_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| TestbedError::Proc(io::ErrorKind::InvalidData.into()))
}

/// Times from frames to their echoes, one after the other (ns), ascending.
pub(super) fn echoes(scene: &Scene<'_>, count: u32) -> Result<Vec<u64>, TestbedError> {
    let mut near = packet_port(&scene.hosts, "hosts")?;
    let mut far = packet_port(&scene.far, "far")?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echoing = scope.spawn(|| echo(&mut far, &is_over));
        let times = send_and_await(&mut near, count);
        is_over.store(true, Ordering::Relaxed);
        echoing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut times = times?;
        times.sort_unstable();
        Ok(times)
    })
    .map_err(step("echo", "far"))
}

fn packet_port(namespace: &Namespace, place: &'static str) -> Result<PacketPort, TestbedError> {
    let open = || Ok(PacketPort::open("eth0", Direction::Both));
    namespace.within(open).map_err(step("enter", place))?.map_err(failed)
}

fn failed(error: PortError) -> TestbedError {
    TestbedError::Setup { action: "open a port", place: "eth0", source: io::Error::other(error) }
}

/// Answers echo requests.
fn echo(port: &mut PacketPort, is_over: &AtomicBool) -> io::Result<()> {
    go_realtime();
    let mut answers = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        wait(port, Duration::from_millis(20))?;
        port.receive(usize::MAX, &mut |bytes, _| answers.extend(answer(bytes)))?;
        for answer in answers.drain(..) {
            port.send(&answer);
        }
    }
    Ok(())
}

/// The echo of a frame, if it is an echo request.
fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_asked = bytes.len() == ECHO_BYTES
        && bytes.get(30..34) == Some(&DESTINATION[..])
        && bytes.get(UDP_HEADER_AT + 2..UDP_HEADER_AT + 4) == Some(&ECHO_PORT[..]);
    is_asked.then(|| {
        let mut back = bytes.to_vec();
        back[..6].copy_from_slice(&bytes[6..12]);
        back[6..12].copy_from_slice(&bytes[..6]);
        // The order of the parts does not change a checksum (RFC 1071).
        back[26..30].copy_from_slice(&bytes[30..34]);
        back[30..34].copy_from_slice(&bytes[26..30]);
        back
    })
}

fn send_and_await(port: &mut PacketPort, count: u32) -> io::Result<Vec<u64>> {
    /// Long enough for all processes to sleep again.
    const SPACING: Duration = Duration::from_millis(2);
    let mut times = Vec::with_capacity(count as usize);
    for number in 0..count {
        let mut question = frame(number as usize, ECHO_BYTES);
        question[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&number.to_be_bytes());
        std::thread::sleep(SPACING);
        let began = Instant::now();
        port.send(&question);
        let mut is_back = false;
        while !is_back && began.elapsed() < PATIENCE {
            wait(port, PATIENCE)?;
            port.receive(usize::MAX, &mut |bytes, _| {
                is_back |= bytes.get(26..30) == Some(&DESTINATION[..])
                    && bytes.get(NUMBER_AT..NUMBER_AT + 4) == Some(&number.to_be_bytes()[..]);
            })?;
        }
        if is_back {
            times.push(began.elapsed().as_nanos() as u64);
        }
    }
    Ok(times)
}

fn wait(port: &PacketPort, longest: Duration) -> io::Result<()> {
    let timeout = PollTimeout::try_from(longest).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(port.as_fd(), PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A UDP datagram without a UDP checksum (RFC 768). Each number gives another identification and perhaps
/// another flow.
fn frame(number: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    frame[18..20].copy_from_slice(&(number as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&SOURCE);
    frame[30..34].copy_from_slice(&DESTINATION);
    let words = frame[14..34].chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!folded as u16).to_be_bytes());
    let flow = 1024 + (number % FLOWS) as u16;
    frame[UDP_HEADER_AT..UDP_HEADER_AT + 2].copy_from_slice(&flow.to_be_bytes());
    frame[UDP_HEADER_AT + 2..UDP_HEADER_AT + 4].copy_from_slice(&ECHO_PORT);
    frame[38..40].copy_from_slice(&(len as u16 - UDP_HEADER_AT as u16).to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use forebay_core::packet::Headers;

    use super::*;

    #[test]
    fn frames_are_valid_for_several_flows_and_echoed() {
        let hashes: std::collections::BTreeSet<u64> = (0..FRAMES)
            .map(|number| Headers::parse(&frame(number, 66)).unwrap().flow_hash(1))
            .collect();
        assert_eq!(hashes.len(), FLOWS);
        let asked = frame(7, ECHO_BYTES);
        let back = answer(&asked).unwrap();
        let (there, home) = (Headers::parse(&asked).unwrap(), Headers::parse(&back).unwrap());
        assert_eq!((there.source, there.destination), (home.destination, home.source));
        assert_eq!(back[14..26], asked[14..26], "the sum holds for both");
        assert_eq!(answer(&back), None, "an echo is not echoed");
        assert_eq!(answer(&frame(7, 66)), None, "load is not echoed");
    }
}
