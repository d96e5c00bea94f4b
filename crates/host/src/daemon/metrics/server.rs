//! The HTTP server of the metrics: as much of RFC 9112 as a scrape needs.
//!
//! It answers `GET /metrics`, one client at a time and one request a connection. A client has a second to ask and a
//! second to read, and a head of at most [`MAX_HEAD`]; a body is not read. There are no secrets in what is served, and
//! nothing can be changed by it: who may connect is for the address and the machine's firewall to say.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::config::Config;
use super::super::status::Status;
use super::Format;
use crate::service::control::{self, Answer, Request};
use crate::service::impatient::Impatient;
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;

/// Longest head of a request (bytes).
const MAX_HEAD: usize = 8 << 10;
/// For how long a status is told again instead of asking for another one.
const FRESH: Duration = Duration::from_secs(1);
/// Pause after a client could not be taken, as where the process has too many files open.
const PAUSE: Duration = Duration::from_secs(1);

/// A socket that clients may connect to, and that nobody serves yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    control: PathBuf,
}

impl Server {
    /// Binds the address that the configuration has for metrics, if it has one.
    ///
    /// # Errors
    ///
    /// The address is not of this machine, or another process has the port: the error names file, key and value.
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
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let mut scrape = |format| latest.metrics(&self.control, format);
                    if let Err(error) = serve_client(&stream, &mut scrape) {
                        tracing::debug!(target: "metrics", %error, "client of the metrics");
                    }
                }
                Err(error) => {
                    tracing::debug!(target: "metrics", %error, "a client cannot be taken");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// The newest status.
#[derive(Default)]
struct Latest(Option<(Instant, Status)>);

impl Latest {
    /// The metrics now, or why there are none.
    fn metrics(&mut self, control: &Path, format: Format) -> Result<String, String> {
        if self.0.as_ref().is_none_or(|(asked_at, _)| asked_at.elapsed() >= FRESH) {
            self.0 = None;
            let answer = control::ask(control, Request::Status);
            self.0 = match answer.map_err(|error| format!("no status: {error}"))? {
                Answer::Status(status) => Some((Instant::now(), *status)),
                Answer::Failed(reason) => return Err(reason),
                Answer::Done(_) | Answer::Changed(_) => {
                    return Err("the box answered another question".into());
                }
            };
        }
        let (_, status) = self.0.clone().ok_or("no status")?;
        super::encode(status, format).map_err(|error| error.to_string())
    }
}

/// An answer to a client.
#[derive(Debug, PartialEq)]
struct Response {
    /// Code and reason.
    status: &'static str,
    content_type: &'static str,
    body: String,
    /// Whether the client wants the body, and not the head alone.
    has_body: bool,
}

impl Response {
    fn refusal(status: &'static str, reason: impl Into<String>) -> Self {
        let body = reason.into() + "\n";
        Self { status, content_type: "text/plain; charset=utf-8", body, has_body: true }
    }

    fn head(&self) -> String {
        let Self { status, content_type, body, .. } = self;
        // RFC 9110 section 15.5.6 wants it with 405; elsewhere it does no harm.
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        )
    }
}

fn serve_client(
    stream: &TcpStream,
    scrape: &mut impl FnMut(Format) -> Result<String, String>,
) -> io::Result<()> {
    let response = match read_head(&mut Impatient::of(stream))? {
        Some(head) => respond(&head, scrape),
        None => {
            let reason = format!("allowed is a head of at most {MAX_HEAD} bytes");
            Response::refusal("431 Request Header Fields Too Large", reason)
        }
    };
    let mut out = Impatient::of(stream);
    out.write_all(response.head().as_bytes())?;
    if response.has_body {
        out.write_all(response.body.as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)
}

/// The lines before the empty one that ends the head; `None`: they are too long.
fn read_head(client: &mut impl Read) -> io::Result<Option<String>> {
    const END: &[u8] = b"\r\n\r\n";
    let (mut head, mut part) = (Vec::new(), [0; 1 << 10]);
    loop {
        let length = client.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..length]);
        if let Some(end) = head.windows(END.len()).position(|window| window == END) {
            head.truncate(end);
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if head.len() > MAX_HEAD {
            return Ok(None);
        }
    }
}

/// What a client gets that sent this head.
fn respond(head: &str, scrape: &mut impl FnMut(Format) -> Result<String, String>) -> Response {
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
    fn metrics_have_a_port_by_the_role_and_an_address_that_must_be_free() {
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

    fn respond_to(head: &str) -> Response {
        respond(head, &mut |format| Ok(format!("{format:?}")))
    }

    #[test]
    fn a_scrape_is_answered_in_the_format_it_asks_for() {
        let plain = respond_to("GET /metrics HTTP/1.1\r\nHost: box");
        assert_eq!((plain.status, &plain.body[..], plain.has_body), ("200 OK", "Prometheus", true));
        assert_eq!(plain.content_type, "text/plain; version=0.0.4; charset=utf-8");
        let asked =
            "GET /metrics?x=1 HTTP/1.1\r\nhost: box\r\naCCept: application/openmetrics-text";
        let asked = respond_to(asked);
        assert_eq!(asked.body, "OpenMetrics");
        assert!(asked.content_type.starts_with("application/openmetrics-text; version=1.0.0;"));
        assert!(asked.head().contains("\r\nContent-Length: 11\r\n"), "{}", asked.head());
        assert!(!respond_to("HEAD /metrics HTTP/1.1").has_body);
    }

    #[test]
    fn what_is_no_scrape_is_refused_without_asking_the_box() {
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
        assert_eq!((silent.status, &silent.body[..]), ("503 Service Unavailable", "it hangs\n"));
    }

    #[test]
    fn a_head_is_bounded_and_may_come_in_pieces() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nbody";
        for split in [1, 20, 34] {
            let (first, rest) = whole.split_at(split);
            let head = read_head(&mut first.chain(rest)).unwrap().unwrap();
            assert_eq!(head, "GET /metrics HTTP/1.1\r\nHost: a");
        }
        assert!(read_head(&mut &b"GET /metrics HTTP/1.1\r\n"[..]).is_err(), "it ends too soon");
        let endless = [&b"GET /metrics HTTP/1.1\r\n"[..], &[b'a'; 1 << 20]].concat();
        assert_eq!(read_head(&mut &endless[..]).unwrap(), None);
    }

    #[test]
    fn a_client_that_says_nothing_is_given_up_and_the_next_one_is_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mute = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let mut scrape = |_| Ok("metrics".to_string());
        assert!(serve_client(&accepted, &mut scrape).is_err());
        drop(mute);
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let (accepted, _) = listener.accept().unwrap();
        serve_client(&accepted, &mut scrape).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nmetrics"));
    }
}
