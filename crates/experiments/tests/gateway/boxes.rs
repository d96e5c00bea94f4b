//! The two boxes of a bundle, as an operator starts them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::service::control::{self, Answer, Request};
use forebay_testbed::namespace::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::course::Ends;

/// Time limit for each condition that a test awaits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sendbox and a receivebox, which end with this.
pub struct Boxes<'a> {
    ends: &'a Ends<'a>,
    folder: TempDir,
    sendbox: Option<Child>,
    receivebox: Option<Child>,
}

impl<'a> Boxes<'a> {
    /// Starts both, and waits until they hear each other.
    pub fn start(ends: &'a Ends<'a>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        keys::generate(&folder.path().join("bundle.key")).unwrap();
        let mut both = Self { ends, folder, sendbox: None, receivebox: None };
        both.write("receivebox", "");
        both.set_max_rate(None);
        both.receivebox = Some(both.spawn(ends.receivebox, "receivebox"));
        both.start_sendbox();
        both
    }

    /// Starts the sendbox, and waits until it hears its peer.
    pub fn start_sendbox(&mut self) {
        self.sendbox = Some(self.spawn(self.ends.sendbox, "sendbox"));
        self.await_sendbox("hears its peer", |status| {
            status.failed_conditions.is_empty() && status.bundles[0].peer.state == "alive"
        });
    }

    /// Writes this bound into the file of the sendbox; [`Boxes::reload`] applies it.
    pub fn set_max_rate(&self, bps: Option<u64>) {
        let bound = bps
            .map(|bps| format!("max_rate = \"{}Mbit/s\"\n", bps / 1_000_000))
            .unwrap_or_default();
        self.write("sendbox", &format!("cc = \"copa\"\n{bound}"));
    }

    /// Has the sendbox read its file again.
    pub fn reload(&self) {
        match control::ask::<Status>(&self.socket("sendbox"), Request::Reload).unwrap() {
            Answer::Changed(outcome) => assert!(outcome.refused.is_empty(), "{outcome}"),
            other => panic!("{other:?}"),
        }
    }

    /// Kills the sendbox with a signal that it cannot handle.
    pub fn kill_sendbox(&mut self) {
        let mut sendbox = self.sendbox.take().unwrap();
        sendbox.kill().unwrap();
        sendbox.wait().unwrap();
    }

    /// Ends both as their units do.
    pub fn stop(mut self) {
        for child in [&mut self.sendbox, &mut self.receivebox] {
            let mut child = child.take().unwrap();
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
            assert!(child.wait().unwrap().success());
        }
    }

    /// The sendbox's status, as soon as `is_so` accepts it.
    pub fn await_sendbox(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = match control::ask(&self.socket("sendbox"), Request::Status) {
                Ok(Answer::Status::<Status>(status)) => Some(*status),
                _ => None,
            };
            if let Some(status) = status.as_ref().filter(|status| is_so(status)) {
                return status.clone();
            }
            assert!(Instant::now() < deadline, "waited until the sendbox {what}: {status:#?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn spawn(&self, namespace: &Namespace, role: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.args([role, "--config"]).arg(self.path(&format!("{role}.toml")));
        namespace.host(&mut command).unwrap();
        command.spawn().unwrap()
    }

    fn socket(&self, role: &str) -> PathBuf {
        self.path(&format!("{role}.sock"))
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    fn write(&self, role: &str, shaping: &str) {
        let at = usize::from(role == "receivebox");
        let Ends { wan, listen, networks, more, .. } = self.ends;
        let routed = match at {
            0 => format!("forward = \"route\"\n{more}"),
            _ => String::new(),
        };
        let text = format!(
            "[box]\nrole = \"{role}\"\n{routed}wan = \"{}\"\nlisten = \"{}\"\ncontrol = \"{role}.sock\"\n\n\
             [[bundle]]\nname = \"b\"\nid = 1\npeer = \"{}\"\nto = [\"{}\"]\nfrom = [\"{}\"]\n\
             key_file = \"bundle.key\"\n{shaping}",
            wan[at],
            listen[at],
            listen[1 - at],
            networks[1],
            networks[0],
        );
        fs::write(self.path(&format!("{role}.toml")), text).unwrap();
    }
}

impl Drop for Boxes<'_> {
    fn drop(&mut self) {
        for child in [&mut self.sendbox, &mut self.receivebox].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
