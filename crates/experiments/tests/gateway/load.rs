//! Bulk flows and small requests from site to site, for as long as a test takes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::clock;
use forebay_testbed::namespace::Namespace;
use nix::sys::socket::{setsockopt, sockopt};

/// Bulk flows, under Cubic.
const FLOWS: u16 = 4;
/// Port of the first bulk flow; each further flow has the next one.
const BULK_PORT: u16 = 7000;
/// Port of the requests.
const REQUEST_PORT: u16 = 7100;
/// Length of a request, and of its answer.
const REQUEST_BYTES: usize = 40;
/// A flow that receives nothing for this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(5);

/// The traffic; it ends with [`Load::finish`].
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    received: AtomicU64,
    errors: Mutex<Vec<String>>,
    /// Arrival time of each answer (ns), and its response time (ns).
    answers: Mutex<Vec<(u64, u64)>>,
}

/// Traffic that arrived during some time.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Beginning on `CLOCK_MONOTONIC` (ns).
    pub from_ns: u64,
    /// End on `CLOCK_MONOTONIC` (ns).
    pub to_ns: u64,
    /// Of all bulk flows.
    pub goodput_bps: f64,
    /// Median round trip of the requests; infinite where none was answered.
    pub request_ms: f64,
}

impl Load {
    /// Begins to send from a machine to `target`, the address of another.
    pub fn start(from: &Namespace, to: &Namespace, target: Ipv4Addr) -> Self {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for flow in 0..FLOWS {
            let address = SocketAddr::from((target, BULK_PORT + flow));
            let listener = to.within(|| TcpListener::bind(address)).unwrap();
            let sender = from.within(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
            setsockopt(&sender, sockopt::TcpCongestion, &"cubic".into()).unwrap();
            let receiver = listener.accept().unwrap().0;
            for socket in [&sender, &receiver] {
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
            }
            let (sending, receiving) = (shared.clone(), shared.clone());
            threads.push(thread::spawn(move || sending.note(sending.send(sender))));
            threads.push(thread::spawn(move || receiving.note(receiving.receive(receiver))));
        }
        let address = SocketAddr::from((target, REQUEST_PORT));
        let server = to.within(|| UdpSocket::bind(address)).unwrap();
        let client = from.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        client.connect(address).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        }
        let (answering, asking) = (shared.clone(), shared.clone());
        threads.push(thread::spawn(move || answering.answer(&server)));
        threads.push(thread::spawn(move || asking.ask(&client)));
        Self { shared, threads }
    }

    /// Measures the traffic that arrives from now on, for this time.
    pub fn measure(&self, time: Duration) -> Span {
        let (began, from_ns) = (Instant::now(), clock::now().as_nanos());
        let before = self.shared.received.load(Ordering::Relaxed);
        thread::sleep(time);
        let bytes = self.shared.received.load(Ordering::Relaxed) - before;
        let goodput_bps = 8.0 * bytes as f64 / began.elapsed().as_secs_f64();
        let to_ns = clock::now().as_nanos();
        let answers = self.shared.answers.lock().unwrap();
        let within = answers.iter().filter(|(at_ns, _)| (from_ns..to_ns).contains(at_ns));
        let mut times: Vec<u64> = within.map(|(_, took_ns)| *took_ns).collect();
        times.sort_unstable();
        let request_ms = times.get(times.len() / 2).map_or(f64::INFINITY, |ns| *ns as f64 / 1e6);
        Span { from_ns, to_ns, goodput_bps, request_ms }
    }

    /// Ends the load. Fails where a connection was reset or stalled.
    pub fn finish(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let errors = self.shared.errors.lock().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

impl Shared {
    fn note(&self, done: std::io::Result<()>) {
        if let Err(error) = done {
            self.errors.lock().unwrap().push(error.to_string());
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn send(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let chunk = [7; 16_384];
        while !self.is_over() {
            socket.write_all(&chunk)?;
        }
        socket.shutdown(Shutdown::Write)?;
        // Bytes in the buffer still arrive: the other end closes behind them.
        socket.read(&mut [0; 1]).map(drop)
    }

    fn receive(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let mut chunk = [0; 65_536];
        loop {
            match socket.read(&mut chunk)? {
                0 => return Ok(()),
                bytes => self.received.fetch_add(bytes as u64, Ordering::Relaxed),
            };
        }
    }

    fn answer(&self, socket: &UdpSocket) {
        let mut request = [0; REQUEST_BYTES];
        while !self.is_over() {
            if let Ok((bytes, from)) = socket.recv_from(&mut request) {
                // The client repeats requests that are lost.
                let _ = socket.send_to(&request[..bytes], from);
            }
        }
    }

    fn ask(&self, socket: &UdpSocket) {
        let (mut request, mut answer) = ([0; REQUEST_BYTES], [0; REQUEST_BYTES]);
        for number in 0_u64.. {
            if self.is_over() {
                return;
            }
            request[..8].copy_from_slice(&number.to_be_bytes());
            let began = Instant::now();
            let _ = socket.send(&request);
            while socket.recv(&mut answer).is_ok() {
                if answer == request {
                    let took_ns = began.elapsed().as_nanos() as u64;
                    self.answers.lock().unwrap().push((clock::now().as_nanos(), took_ns));
                    break;
                }
            }
            thread::sleep(PAUSE);
        }
    }
}
