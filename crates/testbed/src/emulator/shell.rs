//! A command behind an emulated link: `forebay link .. -- CMD`.
//!
//! ```text
//!  namespace of the command                                   namespace of the caller
//!  eth0 100.64.N.2 ══ left0  emulator (a thread of ours)  right0 ══ forebay-link-N 100.64.N.1
//! ```
//! The command's only way out is the emulated link to the caller's namespace. The caller's address
//! is its default route, and `FOREBAY_LINK_OUTSIDE` contains it. Services on the caller's loopback
//! stay out of reach. The command reaches the outside world only if the caller forwards and
//! translates addresses (`ip_forward`, masquerading), which this code does not change.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::ifaddrs::getifaddrs;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{geteuid, pipe};

use super::{DevicePair, Emulator, EmulatorError, EmulatorSpec};
use crate::namespace::Namespace;
use crate::orders::Order;
use forebay_core::record::LinkRecord;
use forebay_host::{clock, offload};
use forebay_scenario::Link;

/// Prevents two callers from taking the same addresses.
const LOCK_FILE: &str = "/run/forebay-link.lock";

/// Interval of the checks of command and emulator.
const TICK: Duration = Duration::from_millis(10);

/// Links between a command and the caller.
#[derive(Clone, Debug)]
pub struct ShellSpec {
    /// Seed of loss, reordering and queues.
    pub seed: u64,
    /// From the command to the caller's namespace.
    pub forward: Link,
    /// The link back.
    pub reverse: Link,
    /// An existing directory for the truth log, see [`EmulatorSpec::out`].
    pub out: Option<PathBuf>,
}

/// Result of a command.
#[derive(Debug)]
pub struct ShellOutcome {
    /// Exit status of the command.
    pub status: ExitStatus,
    /// Run time of the command.
    pub elapsed: Duration,
    /// The forward and the reverse link.
    pub links: [LinkRecord; 2],
}

/// Why a command could not be run behind a link.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// Namespaces and devices need root.
    #[error("network namespaces need root: run it with sudo")]
    NotRoot,
    /// All of 100.64.0.0/16 is in use.
    #[error("no free network among 100.64.0.0/24 to 100.64.255.0/24")]
    NoAddress,
    /// A tool failed.
    #[error("`{line}`: {message}")]
    Tool {
        /// The command line.
        line: String,
        /// Output of the tool.
        message: String,
    },
    /// The command could not be started.
    #[error("{program}: {source}")]
    Start {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The emulator failed.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// A system call failed.
    #[error("{operation}: {source}")]
    Os {
        /// The failed operation.
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl ShellError {
    /// Whether the request was impossible, as opposed to a failure.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Start { .. } => true,
            Self::Emulator(error) => error.is_bad_input(),
            _ => false,
        }
    }
}

/// Runs `command` behind the links and waits for its end. The command dies with the calling thread.
pub fn run_behind(spec: &ShellSpec, mut command: Command) -> Result<ShellOutcome, ShellError> {
    if !geteuid().is_root() {
        return Err(ShellError::NotRoot);
    }
    let namespace = || Namespace::new().map_err(os("making a namespace"));
    let (inside, middle) = (namespace()?, namespace()?);
    let cable = Cable::lay(&inside, &middle)?;
    let pairs = vec![DevicePair { left: "left0".into(), right: "right0".into(), beside: None }];
    let (forward, reverse) = (spec.forward.clone(), spec.reverse.clone());
    let out = spec.out.clone();
    let (seed, cpu, routed, keeps_headers) = (spec.seed, None, false, false);
    let own = Vec::new();
    let emulator =
        EmulatorSpec { seed, pairs, forward, reverse, own, out, keeps_headers, cpu, routed };
    let opened = middle.within(|| Ok(Emulator::open(&emulator)));
    let mut emulator = opened.map_err(os("entering a namespace"))??;

    let (orders, order_end) = pipe().map_err(|errno| os("a pipe")(errno.into()))?;
    emulator.obey(&orders)?;
    drop(orders);
    let mut order_end = File::from(order_end);
    writeln!(order_end, "{}", Order::Start(clock::now().as_nanos())).map_err(os("a pipe"))?;
    let emulation = std::thread::Builder::new()
        .name("emulator".into())
        .spawn(move || emulator.run().and_then(|()| emulator.finish()))
        .map_err(os("a thread"))?;

    command.env("FOREBAY_LINK_OUTSIDE", cable.outside().to_string());
    command.env("FOREBAY_LINK_INSIDE", cable.inside().to_string());
    let started = clock::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let start_error = |source| ShellError::Start { program, source };
    inside.host(&mut command).map_err(os("entering a namespace"))?;
    let mut child = command.spawn().map_err(start_error)?;
    // The command receives the terminal's ^C itself; this program continues in order to print the
    // summary.
    outlive_interrupt();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(os("waiting for the command"))? {
            break status;
        }
        if emulation.is_finished() {
            let _ = child.kill();
        }
        std::thread::sleep(TICK);
    };
    let elapsed = clock::now().saturating_since(started);
    drop(order_end);
    let links = emulation.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    if let Some(out) = &spec.out {
        super::write_links(out, &links).map_err(os("writing the links"))?;
    }
    Ok(ShellOutcome { status, elapsed, links })
}

/// Both ends of the path, with their addresses. Dropping it removes the caller's end.
struct Cable {
    number: u8,
}

impl Cable {
    fn lay(inside: &Namespace, middle: &Namespace) -> Result<Self, ShellError> {
        let lock = File::create(LOCK_FILE).map_err(os(LOCK_FILE))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive)
            .map_err(|(_, errno)| os(LOCK_FILE)(errno.into()))?;
        let cable = Self { number: free_network()? };
        let device = cable.device();
        let (own_mac, peer_mac) = (cable.mac(1), cable.mac(2));
        let netns = middle.path();
        let netns = netns.display();
        let peer = format!("peer name right0 netns {netns}");
        tool(None, &format!("ip link add {device} address {own_mac} type veth {peer}"))?;
        for (namespace, device, end) in [(None, device.as_str(), 1), (Some(inside), "eth0", 2)] {
            if end == 2 {
                let peer = format!("peer name left0 netns {netns}");
                let line = format!("ip link add eth0 address {peer_mac} type veth {peer}");
                tool(namespace, &line)?;
                tool(namespace, "ip link set dev lo up")?;
            }
            // A frame must leave complete: no device behind the emulator computes a checksum.
            within(namespace, || offload::disable_all(device).map_err(io::Error::other))
                .map_err(os("switching offloads off"))?;
            quiet_ipv6(namespace, device)?;
            let address = cable.address(end);
            tool(namespace, &format!("ip address add {address}/30 dev {device}"))?;
            tool(namespace, &format!("ip link set dev {device} up"))?;
            // Fixed neighbours: no address resolution is lost or waits on the link.
            let (other, mac) = (cable.address(3 - end), cable.mac(3 - end));
            tool(
                namespace,
                &format!("ip neighbour add {other} lladdr {mac} dev {device} nud permanent"),
            )?;
        }
        tool(Some(inside), &format!("ip route add default via {}", cable.outside()))?;
        for device in ["left0", "right0"] {
            quiet_ipv6(Some(middle), device)?;
            tool(Some(middle), &format!("ip link set dev {device} up"))?;
        }
        Ok(cable)
    }

    fn address(&self, end: u8) -> Ipv4Addr {
        Ipv4Addr::new(100, 64, self.number, end)
    }

    /// The caller's end.
    fn outside(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// The command's end.
    fn inside(&self) -> Ipv4Addr {
        self.address(2)
    }

    /// A locally administered address, readable in a capture.
    fn mac(&self, end: u8) -> String {
        format!("02:00:64:40:{:02x}:{end:02x}", self.number)
    }

    fn device(&self) -> String {
        format!("forebay-link{}", self.number)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // The device would also vanish with the emulator's namespace; this is only sooner.
        let _ = tool(None, &format!("ip link delete {}", self.device()));
    }
}

/// The first 100.64.N.0/24 (shared address space, RFC 6598) without an address in use here.
fn free_network() -> Result<u8, ShellError> {
    let interfaces = getifaddrs().map_err(|errno| os("listing addresses")(errno.into()))?;
    let used: Vec<Ipv4Addr> = interfaces
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
        .collect();
    (0..=u8::MAX)
        .find(|number| used.iter().all(|address| address.octets()[..3] != [100, 64, *number]))
        .ok_or(ShellError::NoAddress)
}

/// Disables neighbour discovery and router solicitation over the link.
fn quiet_ipv6(namespace: Option<&Namespace>, device: &str) -> Result<(), ShellError> {
    let path = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    let write = || match std::fs::write(Path::new(&path), "1") {
        // A kernel without IPv6 sends none anyway.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    within(namespace, write).map_err(os("switching IPv6 off"))
}

/// Runs `work` in `namespace` or here.
fn within<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    match namespace {
        Some(namespace) => namespace.within(work),
        None => work(),
    }
}

/// Runs a tool, in `namespace` or here.
fn tool(namespace: Option<&Namespace>, line: &str) -> Result<(), ShellError> {
    let error = |message| ShellError::Tool { line: line.to_string(), message };
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    if let Some(namespace) = namespace {
        namespace.host(&mut command).map_err(os("entering a namespace"))?;
    }
    let output = command.output().map_err(|source| error(source.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(error(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

fn outlive_interrupt() {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it is safe at any time.
    let _ = unsafe { sigaction(Signal::SIGINT, &action) };
}

fn os(operation: &'static str) -> impl FnOnce(io::Error) -> ShellError {
    move |source| ShellError::Os { operation, source }
}
