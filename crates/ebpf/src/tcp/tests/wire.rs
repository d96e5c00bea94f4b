//! A path in a network namespace of the test's own: a TUN device behind which every packet comes back
//! with its addresses exchanged. So a connection to the device's neighbour reaches a listener of the
//! namespace itself. Segments with data wait at a bottleneck; all packets take the delay.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::program::tests::command;

/// The namespace's address.
pub(super) const HOST: [u8; 4] = [10, 0, 0, 1];
/// Address of the far end, whose packets come back to [`HOST`].
pub(super) const NEIGHBOUR: [u8; 4] = [10, 0, 0, 2];

/// Rate of the path: 4 Mbit/s.
const BYTES_PER_MS: u32 = 500;
/// Delay of each direction.
const DELAY: Duration = Duration::from_millis(40);
/// Longest waiting time in the queue: 25 full packets.
const QUEUE: Duration = Duration::from_millis(75);
/// Acknowledgements and the ends of a connection are shorter.
const DATA_FROM: usize = 200;

/// The path of the calling thread's namespace; it ends with it.
pub(super) struct Wire {
    is_cut: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Wire {
    /// The path of the calling thread's namespace, where there are TUN devices.
    pub(super) fn new() -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let device = options.open("/dev/net/tun").expect("a TUN device");
        // SAFETY: plain numbers, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"wire") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: a structure of the kernel's layout, which outlives the call.
        let status = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        command("ip address add 10.0.0.1/24 dev wire");
        command("ip link set wire up");
        let [is_cut, has_ended] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let path = Path { device, data: VecDeque::new(), rest: VecDeque::new(), free_at: None };
        let told = [is_cut.clone(), has_ended.clone()];
        let carrier = Some(thread::spawn(move || path.carry(&told)));
        Self { is_cut, has_ended, carrier }
    }

    /// From now on nothing with data arrives, or everything does again.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let carried = self.carrier.take().map_or(Ok(()), JoinHandle::join);
        assert!(carried.is_ok() || thread::panicking());
    }
}

struct Path {
    device: File,
    /// Segments with data on their way, and when each arrives.
    data: VecDeque<(Instant, Vec<u8>)>,
    rest: VecDeque<(Instant, Vec<u8>)>,
    /// When the bottleneck has sent its queue.
    free_at: Option<Instant>,
}

impl Path {
    fn carry(mut self, [is_cut, has_ended]: &[Arc<AtomicBool>; 2]) {
        let mut bytes = [0; 2048];
        while !has_ended.load(Ordering::Relaxed) {
            if is_cut.load(Ordering::Relaxed) {
                self.data.clear();
            }
            while let Ok(len) = self.device.read(&mut bytes) {
                self.take(&mut bytes[..len], is_cut.load(Ordering::Relaxed));
            }
            self.deliver();
            self.wait();
        }
    }

    fn take(&mut self, packet: &mut [u8], is_cut: bool) {
        if packet.len() < 20 || packet[0] >> 4 != 4 {
            return;
        }
        // The checksums of IP and TCP are sums over both addresses.
        let (source, destination) = packet[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
        let now = Instant::now();
        if packet.len() < DATA_FROM {
            return self.rest.push_back((now + DELAY, packet.to_vec()));
        }
        let free_at = self.free_at.unwrap_or(now).max(now);
        if !is_cut && free_at - now < QUEUE {
            let sent_at = free_at + Duration::from_millis(1) * packet.len() as u32 / BYTES_PER_MS;
            self.free_at = Some(sent_at);
            self.data.push_back((sent_at + DELAY, packet.to_vec()));
        }
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        for queue in [&mut self.data, &mut self.rest] {
            while let Some((_, packet)) = queue.pop_front_if(|(at, _)| *at <= now) {
                self.device.write_all(&packet).expect("a device that is up");
            }
        }
    }

    /// Waits until something comes, for a millisecond at most.
    fn wait(&self) {
        let mut ready =
            libc::pollfd { fd: self.device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        unsafe { libc::poll(&mut ready, 1, 1) };
    }
}
