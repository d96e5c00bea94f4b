//! Start of a box, and its run until a signal stops it: its signals, its log, its account, its keys.

use std::io;
use std::time::Instant;

use caps::{CapSet, Capability};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Group, geteuid};

use super::keys::reader::{KeyReader, Loaded};
use super::metrics::Server;
use super::reload::start::{self, Left};
use super::reload::{ReloadChange, Reloader};
use super::status::Status;
use super::{Config, DaemonError, Role};
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::{self, Worker, block_signals};

/// The default account of a box, if the machine has such an account.
pub(super) const DEFAULT_USER: &str = "forebay";

/// State of a box before it touches a device.
pub struct Prepared {
    pub role: Role,
    pub(super) signals: SignalFd,
    /// Reads configuration and keys, now and at a reload.
    pub reader: KeyReader,
    /// Confinement of its threads.
    pub confinement: Confinement,
    /// The socket of its metrics, which are not served yet.
    metrics: Option<Server>,
    /// Latest time for confirming its start, if that is on trial.
    pub(super) confirm_until: Option<Instant>,
}

/// Prepares a box: its trial, its signals, its log, its account, the reader of its keys, and the port of its
/// metrics. Call it before any thread is started.
pub fn prepare(config: &Config) -> Result<Prepared, DaemonError> {
    let confirm_until = match start::left(&config.control).map_err(DaemonError::SetUp)? {
        Left::NoTrial => None,
        Left::For(time) => Some(Instant::now() + time),
        Left::Nothing => return Err(DaemonError::Unconfirmed),
    };
    let confinement = confinement(config)?;
    let signals = block_signals().map_err(DaemonError::SetUp)?;
    let reader = KeyReader::start(config, &confinement).map_err(DaemonError::SetUp)?;
    let metrics = Server::bind(config).map_err(DaemonError::SetUp)?;
    confinement.start_log().map_err(DaemonError::SetUp)?;
    Ok(Prepared { role: config.role, signals, reader, confinement, metrics, confirm_until })
}

/// Runs the worker of a box, which has begun with the configuration `loaded`, until SIGTERM or SIGINT;
/// returns its last state. SIGHUP reloads the files.
pub fn supervise(
    loaded: Loaded,
    prepared: Prepared,
    worker: impl Worker<Status = Status, Change = ReloadChange>,
) -> io::Result<Status> {
    let Prepared { signals, reader, confinement, metrics, confirm_until, .. } = prepared;
    if let Some(metrics) = metrics {
        metrics.start(confinement.clone())?;
    }
    let (control, role) = (loaded.config.control.clone(), loaded.config.role);
    let within = confirm_until.map(|until| until.saturating_duration_since(Instant::now()));
    let desk = Reloader::new(reader, loaded, within)?;
    let ended = supervisor::supervise(&control, &role, signals, Some(&confinement), worker, desk)?;
    if let Some(said) = start::parting(&control) {
        tracing::info!(target: "reload", "{said}");
    }
    Ok(ended)
}

/// The confinement of the threads of a box, by its configuration.
fn confinement(config: &Config) -> Result<Confinement, DaemonError> {
    let refused = |key: &'static str, value: &str, problem: &str| {
        config.refuse(None, key, format!(" = {value:?}: {problem}"))
    };
    let failed = |error: nix::Error| DaemonError::SetUp(error.into());
    let status_group = match &config.status_group {
        None => None,
        Some(name) => {
            let missing =
                || refused("box.status_group", name, "allowed is a group of this machine");
            Some(Group::from_name(name).map_err(failed)?.ok_or_else(missing)?.gid)
        }
    };
    let name = config.user.as_deref().unwrap_or(DEFAULT_USER);
    let account = Account::named(name).map_err(DaemonError::SetUp)?;
    let held = caps::read(None, CapSet::Effective);
    let held = held.map_err(|error| DaemonError::SetUp(io::Error::other(error)))?;
    let may_change = [Capability::CAP_SETUID, Capability::CAP_SETGID];
    let may_change = may_change.iter().all(|capability| held.contains(capability));
    let own = geteuid();
    let mut confinement = Confinement { status_group, ..Confinement::default() };
    match (account, &config.user) {
        (Some(account), _) if account.uid == own => {}
        (Some(account), _) if may_change => confinement.account = Some(account),
        (Some(_), Some(_)) => {
            let problem = "only root can become another user: start as root, or as this user";
            return Err(refused("box.user", name, problem).into());
        }
        (None, Some(_)) => {
            return Err(refused("box.user", name, "allowed is an account of this machine").into());
        }
        // No surprise for other users: they have chosen the account themselves.
        (_, None) if own.is_root() => {
            confinement.surprise = Some(format!(
                "there is no account {name}: the box stays root, with few capabilities (`useradd \
                 --system {name}`, or set box.user)"
            ));
        }
        (_, None) => {}
    }
    Ok(confinement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_account_matches_the_packages() {
        let account = include_str!("../../../../packaging/sysusers.d/forebay.conf");
        assert!(account.contains(&format!("\nu {DEFAULT_USER} ")));
    }
}
