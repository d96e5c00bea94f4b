//! Waits for the devices of a box that are missing or fail a condition. A machine may bring up some things
//! long after its start, such as an adapter, a bridge, settings of a device, or an address. The wait has no
//! limit.
//!
//! The box reports to the service manager that it is ready, so that nothing fails during the wait, and the
//! reason for the wait. The log gets the reason, too, again each minute; `forebay status` shows it. The box
//! does not wait for obstacles that a person has put in its way, such as a filter: it refuses to start. If
//! the start is on trial, a person waits, and the box refuses in all cases.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;

use super::claim::Claim;
use super::conditions::{Devices, FailedCondition, Fault};
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

/// Time before the first message: a bridge that was just put up learns of its ports' carrier up to a second
/// later (net/core/link_watch.c).
const PATIENCE: Duration = Duration::from_secs(2);
/// Time until the next look at the devices, which doubles each time ...
const LOOK_MIN: Duration = Duration::from_millis(10);
/// ... up to this.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How often the log repeats the reason for the wait.
const SAY: Duration = Duration::from_secs(60);

/// End of the wait of a box.
pub enum Begun {
    /// All is there: the box may begin with this configuration. A sendbox has claimed its WAN port, which is
    /// its own until it drops the claim.
    With(Box<Loaded>, Option<Claim>),
    /// A signal has ended the wait; the last state of the box.
    Ended(Box<Status>),
}

/// Loads the files of a box, and waits until its devices meet their conditions. `settle` fills in settings
/// that the configuration leaves to the machine. SIGHUP reloads the files.
///
/// # Errors
///
/// The files have errors, a condition needs a change by the operator, or another sendbox has the WAN port.
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
        // Before this box finds conditions that the other sendbox has caused.
        if prepared.role == Role::Sendbox {
            claim = claimed(&loaded.config.wan, claim, &prepared.confinement)?;
        }
        let missing = missing(&loaded.config)?;
        let Some(first) = missing.first() else {
            if waiting.is_some() {
                let waited_s = began.elapsed().as_secs();
                tracing::info!(target: "waiting", "all devices and addresses are ready after \
                                                   {waited_s} s: the box starts");
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
                    failed_conditions: missing.clone(),
                    ..Status::new(prepared.role, dry_run)
                };
                waiting.iter_mut().for_each(|waiting| waiting.answer(&missing, state));
            }
            Pause::Signalled(Signal::SIGHUP) => match load() {
                Ok(other) => (loaded, claim) = (other, None),
                Err(error) => {
                    tracing::warn!(target: "reload", "{error}: the previous files stay in force");
                }
            },
            Pause::Signalled(signal) => {
                let (role, signal) = (prepared.role, signal.as_str());
                tracing::info!(target: "stopping", "{role} ends by {signal}");
                notify_systemd("STOPPING=1");
                return Ok(Begun::Ended(Box::new(Status {
                    failed_conditions: missing,
                    ..Status::new(prepared.role, dry_run)
                })));
            }
        }
    }
}

/// The claim to a WAN port, renewed if the device has changed; `None`: there is no device.
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

/// Missing devices and listen addresses; if there are none, the box may begin.
fn missing(config: &Config) -> Result<Vec<FailedCondition>, FailedCondition> {
    let missing = Devices::of(config).awaited()?;
    let addresses = config.listen.iter().map(|listen| listen.ip());
    let is_missing = |ip: &std::net::IpAddr| {
        let bound = UdpSocket::bind((*ip, 0));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    };
    let failed = |ip| FailedCondition {
        condition: "address".into(),
        fault: Fault {
            found: format!("no device that is up has the address {ip} of box.listen"),
            fix: format!("`ip address add {ip}/LENGTH dev DEVICE`, or another box.listen"),
        },
    };
    Ok(missing.into_iter().chain(addresses.filter(is_missing).map(failed)).collect())
}

/// A box that waits.
struct Waiting {
    control: ControlSocket,
    watchdog: Option<Watchdog>,
    /// The last message, and its time.
    said: Option<(Vec<FailedCondition>, Instant)>,
}

impl Waiting {
    fn begin(prepared: &Prepared, config: &Config) -> Result<Self, DaemonError> {
        let control = ControlSocket::bind(&config.control, &prepared.confinement);
        let control = control.map_err(DaemonError::SetUp)?;
        notify_systemd("READY=1");
        Ok(Self { control, watchdog: Watchdog::of_environment(), said: None })
    }

    /// Reports a changed reason to the log and the service manager, and repeats it in the log once a minute.
    fn say(&mut self, missing: &[FailedCondition]) {
        let before = self.said.as_ref().map(|(before, at)| (&before[..], at.elapsed()));
        if !is_to_be_said(before, missing) {
            return;
        }
        let is_other = before.is_none_or(|(before, _)| before != missing);
        self.said = Some((missing.to_vec(), Instant::now()));
        let all: Vec<String> = missing.iter().map(FailedCondition::sentence).collect();
        let all = all.join("; ");
        tracing::warn!(target: "waiting", "the box waits: {all}");
        if is_other {
            // A line is one assignment.
            notify_systemd(&format!("STATUS=waits: {}", all.replace('\n', " ")));
        }
    }

    fn answer(&mut self, missing: &[FailedCondition], state: impl Fn() -> Status) {
        self.control.serve(|request| match request {
            Request::Status => Some(Answer::Status(Box::new(state()))),
            _ => {
                let all: Vec<String> = missing.iter().map(FailedCondition::sentence).collect();
                let all = all.join("; ");
                Some(Answer::Failed(format!("the box does not run yet, it waits: {all}")))
            }
        });
    }
}

/// Whether the log should report `missing`, given its last report and the time since then.
fn is_to_be_said(
    before: Option<(&[FailedCondition], Duration)>,
    missing: &[FailedCondition],
) -> bool {
    before.is_none_or(|(before, ago)| before != missing || ago >= SAY)
}

/// End of a pause.
enum Pause {
    Over,
    /// A client of the control socket waits.
    Asked,
    Signalled(Signal),
}

/// Pauses for at most `time`.
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
            // No packets are carried yet, so nothing can hang.
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
            vec![FailedCondition { condition: "device".into(), fault }]
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
