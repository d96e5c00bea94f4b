//! The HTTP server of the metrics, with the part of RFC 9112 that a scrape needs.
//!
//! The server answers `GET /metrics`, one request per connection. A slow client does not delay the other
//! clients (`service/clients.rs`): it has [`PATIENCE`] to send its request, and the same time to read the
//! answer. The head of a request has at most [`MAX_HEAD`] bytes, and the server ignores a body. The answers
//! contain no secrets, and no request changes anything. To restrict who may connect, choose the address and
//! set the machine's firewall.

use std::io;
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::super::config::Config;
use super::super::status::Status;
use super::Format;
use crate::service::clients::{ClientLimits, Clients, Guest, REQUEST_MAX, Reply, timeout};
use crate::service::control::{self, Answer, Request};
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;

/// Longest head of a request (bytes).
const MAX_HEAD: usize = REQUEST_MAX;
/// Time for which the server reuses a status before it requests a new one from the box.
const FRESH: Duration = Duration::from_secs(1);
/// Longest time for a client to send its request, and to read the answer: the default `scrape_timeout` of Prometheus.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most connections, in all and from each address: several machines may each run several scrapers.
const LIMITS: ClientLimits = ClientLimits { all: 64, each: 16, patience: PATIENCE };

/// A listening socket whose clients have to wait until [`Server::start`].
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    control: PathBuf,
}

impl Server {
    /// Binds the address for metrics from the configuration, if there is one.
    ///
    /// # Errors
    ///
    /// The address is not an address of this machine, or another process uses the port. The error names file, key
    /// and value.
    pub fn bind(config: &Config) -> io::Result<Option<Self>> {
        let Some(listen) = config.metrics else { return Ok(None) };
        let listener = TcpListener::bind(listen).map_err(|error| {
            let what = format!(
                " = \"{listen}\": {error}: allowed is an address of this machine with a free port, such as \
                 \"127.0.0.1:{}\"",
                config.role.metrics_port()
            );
            io::Error::new(error.kind(), config.refuse(None, "metrics.listen", what))
        })?;
        listener.set_nonblocking(true)?;
        Ok(Some(Self { listener, control: config.control.clone() }))
    }

    /// Serves clients in a thread of its own until the process ends.
    pub fn start(self, confinement: Confinement) -> io::Result<()> {
        let serve = move || match confinement.confine(Task::Metrics) {
            Ok(()) => self.serve(),
            Err(error) => tracing::error!(target: "metrics", %error, "metrics are not served"),
        };
        std::thread::Builder::new().name("metrics".into()).spawn(serve).map(drop)
    }

    fn serve(self) {
        let mut latest = Latest::default();
        let control = self.control;
        let error = serve(&self.listener, |format| latest.metrics(&control, format));
        tracing::error!(target: "metrics", %error, "metrics are no longer served");
    }
}

/// Serves clients until an error, which it returns.
fn serve(
    listener: &TcpListener,
    mut scrape: impl FnMut(Format) -> Result<Arc<[u8]>, String>,
) -> io::Error {
    let failed =
        |error: &io::Error| tracing::debug!(target: "metrics", %error, "client of the metrics");
    let mut clients = Clients::new(LIMITS, failed);
    loop {
        let door = PollFd::new(listener.as_fd(), PollFlags::POLLIN);
        let door = clients.is_open().then_some(door);
        let mut fds: Vec<PollFd<'_>> = door.into_iter().chain(clients.fds()).collect();
        match poll(&mut fds, timeout(clients.next_timer())) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return error.into(),
        }
        clients.let_in(|| {
            let (stream, address) = listener.accept()?;
            Ok((stream, Guest { of: source(address.ip()), goes_first: false }))
        });
        clients.serve(|_, text, _| reply(text, &mut scrape));
    }
}

/// The address that [`LIMITS`] count by. An IPv6 host may use a whole /64 (RFC 4291 section 2.5.4), so a /64 counts as
/// one address.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// The newest status, and its metrics in the requested formats.
#[derive(Default)]
struct Latest {
    status: Option<(Instant, Result<Status, String>)>,
    texts: Vec<(Format, Arc<[u8]>)>,
}

impl Latest {
    /// The metrics now, or why the box gave none.
    fn metrics(&mut self, control: &Path, format: Format) -> Result<Arc<[u8]>, String> {
        if self.status.as_ref().is_none_or(|(asked_at, _)| asked_at.elapsed() >= FRESH) {
            let status = status_of(control);
            *self = Self { status: Some((Instant::now(), status)), texts: Vec::new() };
        }
        if let Some((_, text)) = self.texts.iter().find(|(of, _)| *of == format) {
            return Ok(text.clone());
        }
        let (_, status) = self.status.clone().ok_or("no status")?;
        let text = super::encode(status?, format).map_err(|error| error.to_string())?;
        let text: Arc<[u8]> = text.into_bytes().into();
        self.texts.push((format, text.clone()));
        Ok(text)
    }
}

/// The status of the box, or why it gave none.
fn status_of(control: &Path) -> Result<Status, String> {
    let answer = control::ask(control, Request::Status);
    match answer.map_err(|error| format!("no status: {error}"))? {
        Answer::Status(status) => Ok(*status),
        Answer::Failed(reason) => Err(reason),
        Answer::Done(_) | Answer::Changed(_) => Err("the box answered a different request".into()),
    }
}

/// An answer to a client.
#[derive(Debug, PartialEq)]
struct Response {
    /// Code and reason.
    status: &'static str,
    content_type: &'static str,
    body: Arc<[u8]>,
    /// Whether the client requests the body, and not only the head.
    has_body: bool,
}

impl Response {
    fn refusal(status: &'static str, reason: impl Into<String>) -> Self {
        let body = (reason.into() + "\n").into_bytes().into();
        Self { status, content_type: "text/plain; charset=utf-8", body, has_body: true }
    }

    fn head(&self) -> String {
        let Self { status, content_type, body, .. } = self;
        // RFC 9110 section 15.5.6 requires `Allow` with 405. It does no harm in other answers.
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        )
    }
}

/// The reply to the bytes that a client has sent.
fn reply(text: &[u8], scrape: &mut impl FnMut(Format) -> Result<Arc<[u8]>, String>) -> Reply {
    /// End of the head of a request (RFC 9112, section 2.1).
    const END: &[u8] = b"\r\n\r\n";
    let response = match text.windows(END.len()).position(|window| window == END) {
        Some(end) => respond(&String::from_utf8_lossy(&text[..end]), scrape),
        None if text.len() > MAX_HEAD => {
            let reason = format!("allowed is a head of at most {MAX_HEAD} bytes");
            Response::refusal("431 Request Header Fields Too Large", reason)
        }
        None => return Reply::NotYet,
    };
    let head = response.head().into_bytes();
    Reply::Now(head, if response.has_body { response.body } else { Arc::default() })
}

/// The response to a request with this head.
fn respond(head: &str, scrape: &mut impl FnMut(Format) -> Result<Arc<[u8]>, String>) -> Response {
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or("").split(' ').collect();
    let [method, target, version] = request[..] else {
        return Response::refusal(
            "400 Bad Request",
            "allowed is a request such as GET /metrics HTTP/1.1",
        );
    };
    if !version.starts_with("HTTP/1.") {
        return Response::refusal("505 HTTP Version Not Supported", "allowed is HTTP/1.1");
    }
    if !["GET", "HEAD"].contains(&method) {
        return Response::refusal("405 Method Not Allowed", "allowed are GET and HEAD");
    }
    if target.split('?').next() != Some("/metrics") {
        return Response::refusal("404 Not Found", "the metrics are at /metrics");
    }
    let accept = lines.filter_map(|line| line.split_once(':'));
    let accept = accept.filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
    let accept: Vec<&str> = accept.map(|(_, value)| value).collect();
    let format = Format::accepted(&accept.join(","));
    let response = match scrape(format) {
        Ok(body) => {
            let content_type = format.content_type();
            Response { status: "200 OK", content_type, body, has_body: true }
        }
        Err(reason) => Response::refusal("503 Service Unavailable", reason),
    };
    Response { has_body: method == "GET", ..response }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A receivebox with this value of `metrics.listen`.
    fn config(listen: &str) -> Result<Config, crate::daemon::ConfigError> {
        let text = format!(
            "[box]\nrole = \"receivebox\"\nwan = \"w\"\nlisten = \"192.0.2.2\"\n\
             [metrics]\nlisten = \"{listen}\"\n\
             [[bundle]]\nname = \"b\"\nid = 1\npeer = \"192.0.2.1\"\nto = [\"10.1.2.0/24\"]\n\
             from = [\"10.1.1.0/24\"]\nkey_file = \"b.key\"\n"
        );
        Config::parse(Path::new("box.toml"), &text)
    }

    #[test]
    fn metrics_port_follows_role_and_must_be_free() {
        let listen = config("127.0.0.1").unwrap().metrics.unwrap();
        assert_eq!(listen.to_string(), "127.0.0.1:9476");
        for wrong in ["0.0.0.0", "localhost", "", "127.0.0.1:0"] {
            let error = config(wrong).unwrap_err().to_string();
            assert!(
                error.contains(&format!("box.toml:6: metrics.listen = \"{wrong}\": allowed is")),
                "{error}"
            );
        }
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = Server::bind(&config(&address).unwrap()).unwrap_err().to_string();
        let named = format!("box.toml:6: metrics.listen = \"{address}\": Address already in use");
        assert!(error.starts_with(&named) && error.contains("\"127.0.0.1:9476\""), "{error}");
    }

    fn text(response: &Response) -> &str {
        std::str::from_utf8(&response.body).unwrap()
    }

    fn respond_to(head: &str) -> Response {
        respond(head, &mut |format| Ok(format!("{format:?}").into_bytes().into()))
    }

    #[test]
    fn scrape_gets_the_requested_format() {
        let plain = respond_to("GET /metrics HTTP/1.1\r\nHost: box");
        assert_eq!((plain.status, text(&plain), plain.has_body), ("200 OK", "Prometheus", true));
        assert_eq!(plain.content_type, "text/plain; version=0.0.4; charset=utf-8");
        let asked =
            "GET /metrics?x=1 HTTP/1.1\r\nhost: box\r\naCCept: application/openmetrics-text";
        let asked = respond_to(asked);
        assert_eq!(text(&asked), "OpenMetrics");
        assert!(asked.content_type.starts_with("application/openmetrics-text; version=1.0.0;"));
        assert!(asked.head().contains("\r\nContent-Length: 11\r\n"), "{}", asked.head());
        assert!(!respond_to("HEAD /metrics HTTP/1.1").has_body);
    }

    #[test]
    fn other_requests_are_refused_without_the_box() {
        for (head, status) in [
            ("GET / HTTP/1.1", "404"),
            ("GET /metrics/ HTTP/1.1", "404"),
            ("POST /metrics HTTP/1.1", "405"),
            ("GET /metrics HTTP/2", "505"),
            ("GET /metrics", "400"),
            ("GET  /metrics HTTP/1.1", "400"),
            ("", "400"),
            ("\u{0}\u{1b}[2J", "400"),
        ] {
            let refused = respond(head, &mut |_| panic!("{head:?} asks the box"));
            assert!(refused.status.starts_with(status), "{head:?}: {refused:?}");
        }
        let silent = respond("GET /metrics HTTP/1.1", &mut |_| Err("it hangs".into()));
        assert_eq!((silent.status, text(&silent)), ("503 Service Unavailable", "it hangs\n"));
    }

    #[test]
    fn head_is_bounded_and_may_be_split() {
        let mut scrape = |_| Ok(Arc::from(*b"metrics"));
        let whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nbody";
        for (length, is_whole) in [(1, false), (33, false), (34, true), (whole.len(), true)] {
            let got = reply(&whole[..length], &mut scrape);
            let is_now = matches!(got, Reply::Now(head, body) if head.starts_with(b"HTTP/1.1 200") && *body == *b"metrics");
            assert_eq!(is_now, is_whole, "{length}");
        }
        let endless = [b'a'; MAX_HEAD + 1];
        assert!(
            matches!(reply(&endless, &mut scrape), Reply::Now(head, _) if head.starts_with(b"HTTP/1.1 431"))
        );
    }

    /// The answer to a client at this address, and the time that it takes.
    fn scrape_from(source: [u8; 4], server: SocketAddr) -> (String, Duration) {
        let began = Instant::now();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&server.into()).unwrap();
        let mut client = TcpStream::from(socket);
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        (answer, began.elapsed())
    }

    #[test]
    fn silent_clients_delay_no_scrape() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, |_| Ok(vec![b'x'; 1 << 20].into())));
        let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        for source in [[127, 0, 0, 2], [127, 0, 0, 1]] {
            let (answer, took) = scrape_from(source, address);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("xx"));
            assert!(answer.len() > 1 << 20 && took < Duration::from_secs(1), "{took:?}");
        }
        // One address may have 16 connections.
        let is_closed = |mut client: &TcpStream| {
            client.set_nonblocking(true).unwrap();
            client.read(&mut [0]).is_ok()
        };
        assert_eq!(silent.iter().filter(|client| !is_closed(client)).count(), LIMITS.each - 1);
    }

    #[test]
    fn one_host_s_network_counts_as_one_address() {
        let same = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| source(text.parse().unwrap()));
            one == other
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
