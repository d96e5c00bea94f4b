//! How a box starts and runs until it is told to stop: its signals, its log, who it becomes, its keys.

use std::io;

use caps::{CapSet, Capability};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Group, geteuid};

use super::keys::reader::KeyReader;
use super::status::Status;
use super::{Config, ConfigError, DaemonError};
use crate::service::control::{Answer, Request};
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::{self, Command, Handle, Worker, block_signals};

/// The account of a box whose configuration names none, where there is one.
const DEFAULT_USER: &str = "forebay";

/// What a box has before it touches a device.
pub struct Prepared {
    signals: SignalFd,
    /// Reads the keys, now and at a reload.
    pub keys: KeyReader,
    /// What its threads go over to.
    pub confinement: Confinement,
}

/// Prepares a box: its signals, its log, who it becomes, and who reads its keys then. Call it before any
/// thread is started.
pub fn prepare(config: &Config) -> Result<Prepared, DaemonError> {
    let confinement = confinement(config)?;
    let signals = block_signals().map_err(DaemonError::SetUp)?;
    let files = config.bundles.iter().map(|bundle| bundle.key_file.clone()).collect();
    let keys = KeyReader::start(files, &confinement).map_err(DaemonError::SetUp)?;
    confinement.start_log().map_err(DaemonError::SetUp)?;
    Ok(Prepared { signals, keys, confinement })
}

/// Runs the worker of a box until SIGTERM or SIGINT; answers its last state. SIGHUP reloads the key
/// files.
pub fn supervise(
    config: &Config,
    prepared: Prepared,
    worker: impl Worker<Status = Status>,
) -> io::Result<Status> {
    let Prepared { signals, keys, confinement } = prepared;
    let answer = |worker: &Handle<Status>, request| answer(&keys, worker, request);
    supervisor::supervise(
        &config.control,
        &config.role,
        signals,
        Some(&confinement),
        worker,
        answer,
    )
}

/// What the threads of a box go over to, by its configuration.
fn confinement(config: &Config) -> Result<Confinement, DaemonError> {
    let refused = |key: &str, value: &str, problem: &str| {
        ConfigError::of(&config.file, format!("box.{key} = {value:?}: {problem}"))
    };
    let failed = |error: nix::Error| DaemonError::SetUp(error.into());
    let status_group = match &config.status_group {
        None => None,
        Some(name) => {
            let missing = || refused("status_group", name, "allowed is a group of this machine");
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
            return Err(refused("user", name, problem).into());
        }
        (None, Some(_)) => {
            return Err(refused("user", name, "allowed is an account of this machine").into());
        }
        // Who is not root has chosen whom to start it as.
        (_, None) if own.is_root() => {
            confinement.surprise = Some(format!(
                "there is no account {name} to become: the box stays root, with few capabilities \
                 (`useradd --system {name}`, or box.user)"
            ));
        }
        (_, None) => {}
    }
    Ok(confinement)
}

fn answer(keys: &KeyReader, worker: &Handle<Status>, request: Request) -> Answer<Status> {
    let answer = match request {
        Request::Status => worker.status().map(|status| Answer::Status(Box::new(status))),
        Request::ReloadKeys => match keys.load() {
            Err(error) => return Answer::Failed(error.to_string()),
            Ok(keys) => {
                let done = Answer::Done(format!("{} key files read", keys.len()));
                worker.send(Command::Keys(keys)).map(|()| done)
            }
        },
    };
    answer.unwrap_or_else(|reason| Answer::Failed(reason.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_that_packages_make_is_the_one_looked_for() {
        let account = include_str!("../../../../packaging/sysusers.d/forebay.conf");
        assert!(account.contains(&format!("\nu {DEFAULT_USER} ")));
    }
}
