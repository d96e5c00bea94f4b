//! A box whose devices are not there yet, or not as they must be, waits for them: what a machine brings up late after its
//! start, such as an adapter, a bridge, settings of a device or an address, may take as long as it takes.
//!
//! The box tells the service manager that it is ready, so that nothing fails for the wait, and what it waits for.
//! The log says that too, and again each minute; `forebay status` shows it. What a person has put in the way of a box,
//! such as a filter, is refused instead, and so is everything where the start is on trial: a person waits there.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;

use super::claim::Claim;
use super::conditions::{Devices, Fault, Void};
use super::config::Config;
use super::keys::reader::{Loaded, Source};
use super::starting::Prepared;
use super::status::Status;
use super::{DaemonError, Role};
use crate::clock;
use crate::service::clients::timeout;
use crate::service::control::{Answer, ControlSocket, Request};
use crate::service::privileges::Confinement;
use crate::service::supervisor::notify_systemd;
use crate::service::watchdog::Watchdog;

/// So long nothing is said: the kernel tells a bridge that was just put up of its ports' carrier up to a second later
/// (net/core/link_watch.c).
const PATIENCE: Duration = Duration::from_secs(2);
/// The devices are looked at again after this time, and after twice as long each time ...
const LOOK_MIN: Duration = Duration::from_millis(10);
/// ... up to this.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How often the log says what is waited for.
const SAY: Duration = Duration::from_secs(60);

/// How the wait of a box ends.
pub enum Begun {
    /// All is there: the box may begin with this. A sendbox has claimed its WAN port, which is its own until the claim is
    /// dropped.
    With(Box<Loaded>, Option<Claim>),
    /// A signal has ended the wait; the last state of the box.
    Ended(Box<Status>),
}

/// Loads the files of a box, and waits until its devices are as they must be. `settle` settles what the configuration
/// leaves to the machine. SIGHUP has the files loaded again.
///
/// # Errors
///
/// What is wrong with the files, what of the devices does not come by itself, and that another sendbox has the WAN port.
pub fn wait(
    prepared: &Prepared,
    dry_run: bool,
    settle: impl Fn(&mut Config),
) -> Result<Begun, DaemonError> {
    let load = || {
        let mut loaded = prepared.reader.load(Source::Own)?;
        loaded.config.expect_role(prepared.role)?;
        loaded.config.expect_lan()?;
        settle(&mut loaded.config);
        Ok::<Loaded, DaemonError>(loaded)
    };
    let mut loaded = load()?;
    let (began, mut look) = (Instant::now(), LOOK_MIN);
    let mut waiting: Option<Waiting> = None;
    let mut claim = None;
    loop {
        // Before anything is found that the other one has brought about.
        if prepared.role == Role::Sendbox {
            claim = claimed(&loaded.config.wan, claim, &prepared.confinement)?;
        }
        let missing = missing(&loaded.config)?;
        let Some(first) = missing.first() else {
            if waiting.is_some() {
                let waited_s = began.elapsed().as_secs();
                tracing::info!(target: "waiting", "all is there, after {waited_s} s: the box begins");
            }
            return Ok(Begun::With(Box::new(loaded), claim));
        };
        let is_long = began.elapsed() >= PATIENCE;
        if is_long && prepared.confirm_until.is_some() {
            return Err(first.clone().into());
        }
        if is_long && waiting.is_none() {
            waiting = Some(Waiting::begin(prepared, &loaded.config)?);
        }
        if let Some(waiting) = &mut waiting {
            waiting.say(&missing);
        }
        match pause(prepared, waiting.as_mut(), look)? {
            Pause::Over => look = (look * 2).min(LOOK_MAX),
            Pause::Asked => {
                let state = || Status {
                    at_ns: clock::now().as_nanos(),
                    void: missing.clone(),
                    ..Status::new(prepared.role, dry_run)
                };
                waiting.iter_mut().for_each(|waiting| waiting.answer(&missing, state));
            }
            Pause::Signalled(Signal::SIGHUP) => match load() {
                Ok(other) => (loaded, claim) = (other, None),
                Err(error) => {
                    tracing::warn!(target: "reload", "{error}: the files before stay in force");
                }
            },
            Pause::Signalled(signal) => {
                let (role, signal) = (prepared.role, signal.as_str());
                tracing::info!(target: "stopping", "{role} ends by {signal}");
                notify_systemd("STOPPING=1");
                return Ok(Begun::Ended(Box::new(Status {
                    void: missing,
                    ..Status::new(prepared.role, dry_run)
                })));
            }
        }
    }
}

/// The claim to a WAN port, taken again where the device is another than before; `None`: there is none.
fn claimed(
    wan: &str,
    before: Option<Claim>,
    confinement: &Confinement,
) -> Result<Option<Claim>, DaemonError> {
    let Ok(index) = if_nametoindex(wan) else { return Ok(before) };
    if before.as_ref().is_some_and(|claim| claim.index() == index) {
        return Ok(before);
    }
    drop(before);
    Claim::take(wan, index, confinement).map(Some)
}

/// What is waited for, of the devices and of the addresses that the box listens on; nothing: the box may begin.
fn missing(config: &Config) -> Result<Vec<Void>, Void> {
    let missing = Devices::of(config).awaited()?;
    let addresses = config.listen.iter().map(|listen| listen.ip());
    let is_missing = |ip: &std::net::IpAddr| {
        let bound = UdpSocket::bind((*ip, 0));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    };
    let void = |ip| Void {
        condition: "address".into(),
        fault: Fault {
            found: format!("no device that is up has the address {ip} of box.listen"),
            fix: format!("`ip address add {ip}/LENGTH dev DEVICE`, or another box.listen"),
        },
    };
    Ok(missing.into_iter().chain(addresses.filter(is_missing).map(void)).collect())
}

/// A box that waits.
struct Waiting {
    control: ControlSocket,
    watchdog: Option<Watchdog>,
    /// What was said last, and when.
    said: Option<(Vec<Void>, Instant)>,
}

impl Waiting {
    fn begin(prepared: &Prepared, config: &Config) -> Result<Self, DaemonError> {
        let control = ControlSocket::bind(&config.control, &prepared.confinement);
        let control = control.map_err(DaemonError::SetUp)?;
        notify_systemd("READY=1");
        Ok(Self { control, watchdog: Watchdog::of_environment(), said: None })
    }

    /// Tells log and service manager what is waited for, where that is something else, and the log once a minute.
    fn say(&mut self, missing: &[Void]) {
        let before = self.said.as_ref().map(|(before, at)| (&before[..], at.elapsed()));
        if !is_to_be_said(before, missing) {
            return;
        }
        let is_other = before.is_none_or(|(before, _)| before != missing);
        self.said = Some((missing.to_vec(), Instant::now()));
        let all: Vec<String> = missing.iter().map(Void::sentence).collect();
        let all = all.join("; ");
        tracing::warn!(target: "waiting", "the box waits: {all}");
        if is_other {
            // A line is one assignment.
            notify_systemd(&format!("STATUS=waits: {}", all.replace('\n', " ")));
        }
    }

    fn answer(&mut self, missing: &[Void], state: impl Fn() -> Status) {
        self.control.serve(|request| match request {
            Request::Status => Some(Answer::Status(Box::new(state()))),
            _ => {
                let all: Vec<String> = missing.iter().map(Void::sentence).collect();
                let all = all.join("; ");
                Some(Answer::Failed(format!("the box does not run yet, it waits: {all}")))
            }
        });
    }
}

/// Whether the log is to say what is missing, after what it said how long ago.
fn is_to_be_said(before: Option<(&[Void], Duration)>, missing: &[Void]) -> bool {
    before.is_none_or(|(before, ago)| before != missing || ago >= SAY)
}

/// How a pause ends.
enum Pause {
    Over,
    /// A client of the control socket waits.
    Asked,
    Signalled(Signal),
}

/// Waits for so long, at most.
fn pause(
    prepared: &Prepared,
    mut waiting: Option<&mut Waiting>,
    time: Duration,
) -> Result<Pause, DaemonError> {
    let until = Instant::now() + time;
    let watchdog = waiting.as_mut().and_then(|waiting| waiting.watchdog.as_mut());
    let due = watchdog.map_or(until, |watchdog| {
        let now = Instant::now();
        if watchdog.next() <= now {
            // Nothing carries packets yet that could hang.
            watchdog.look(now, 0);
            notify_systemd("WATCHDOG=1");
        }
        watchdog.next().min(until)
    });
    let waiting = waiting.as_deref();
    let turn = waiting.and_then(|waiting| waiting.control.next_timer());
    let mut fds = vec![PollFd::new(prepared.signals.as_fd(), PollFlags::POLLIN)];
    fds.extend(waiting.iter().flat_map(|waiting| waiting.control.fds()));
    match poll(&mut fds, timeout(turn.into_iter().chain([due]).min())) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(DaemonError::SetUp(error.into())),
    }
    let failed = |error: Errno| DaemonError::SetUp(error.into());
    if let Some(signal) = prepared.signals.read_signal().map_err(failed)? {
        let signal = Signal::try_from(signal.ssi_signo.cast_signed()).map_err(failed)?;
        return Ok(Pause::Signalled(signal));
    }
    let is_asked = fds[1..].iter().any(|fd| fd.any() == Some(true));
    let is_turn = turn.is_some_and(|turn| turn <= Instant::now());
    Ok(if is_asked || is_turn { Pause::Asked } else { Pause::Over })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_repeats_each_minute_what_is_missing() {
        let of = |found: &str| {
            let fault = Fault { found: found.into(), fix: String::new() };
            vec![Void { condition: "device".into(), fault }]
        };
        let (lan, wan) = (of("no lan"), of("no wan"));
        assert!(is_to_be_said(None, &lan));
        for (seconds, same, other) in [(1, false, true), (59, false, true), (60, true, true)] {
            let before = Some((&lan[..], Duration::from_secs(seconds)));
            assert_eq!(is_to_be_said(before, &lan), same, "{seconds}");
            assert_eq!(is_to_be_said(before, &wan), other, "{seconds}");
        }
    }
}
