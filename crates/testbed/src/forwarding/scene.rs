//! Three namespaces in a row, and the programs in them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_core::units::Rate;
use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::offload;
use forebay_host::service::control::{self, Answer, Request};

use super::forwarder::ForwarderSpec;
use crate::TestbedError;
use crate::namespace::Namespace;
use crate::process;
use crate::program::Program;
use crate::run::{READY_TIMEOUT, Starter};
use crate::topology::{ip, plain, step};

/// Source of the frames. All addresses here are of 192.0.2.0/24, reserved for documentation
/// (RFC 5737).
pub(super) const SOURCE: [u8; 4] = [192, 0, 2, 1];
/// Destination of the frames. No machine has it: a packet to a box itself is in no bundle.
pub(super) const DESTINATION: [u8; 4] = [192, 0, 2, 2];
/// Address of the sendbox.
const SENDBOX: &str = "192.0.2.3";
/// Address of the receivebox.
const RECEIVEBOX: &str = "192.0.2.4";

/// Longest time until the boxes hear each other.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// The namespaces, and the receivebox.
pub(super) struct Scene<'a> {
    start: Starter<'a>,
    /// Origin of the frames.
    pub hosts: Namespace,
    between: Namespace,
    /// Destination of the frames.
    pub far: Namespace,
    /// The processor of source and receivebox ...
    source: usize,
    /// ... and the processors of the carrying process.
    carriers: Vec<usize>,
    /// The sendbox has a thread for its receive queue.
    threads: bool,
    receivebox: Program,
}

impl<'a> Scene<'a> {
    /// Builds everything, and keeps the calling thread to the processor `source`.
    pub fn build(
        binary: &'a Path,
        dir: &'a Path,
        source: usize,
        carriers: &[usize],
        threads: bool,
    ) -> Result<Self, TestbedError> {
        process::try_keep_to(source);
        let (hosts, between, far) = (plain("hosts", &[])?, plain("box", &[])?, plain("far", &[])?);
        let paths = [&hosts, &far].map(|namespace| namespace.path().display().to_string());
        let lines = format!(
            "link add lan type veth peer name eth0 netns {}\n\
             link add wan type veth peer name eth0 netns {}\n\
             link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set dev lan master br0\n\
             link set dev wan master br0\n\
             link set dev lan up\n\
             link set dev wan up\n\
             link set dev br0 up\n\
             address add {SENDBOX}/24 dev br0\n",
            paths[0], paths[1]
        );
        ip("box", &between, &lines)?;
        ip("hosts", &hosts, "link set dev eth0 up\n")?;
        ip("far", &far, &format!("link set dev eth0 up\naddress add {RECEIVEBOX}/24 dev eth0\n"))?;
        for (place, namespace, device) in [
            ("hosts", &hosts, "eth0"),
            ("box", &between, "lan"),
            ("box", &between, "wan"),
            ("far", &far, "eth0"),
        ] {
            let off = namespace.within(|| Ok(offload::disable_all(device)));
            let off = off.map_err(step("switch offloads off", place))?;
            off.map_err(|source| TestbedError::Offload { place, source })?;
        }
        let file = |path: PathBuf| move |source: io::Error| TestbedError::File { path, source };
        let key = dir.join("bundle.key");
        keys::generate(&key)
            .map_err(|error| file(key.clone())(io::Error::other(error.to_string())))?;
        let config = dir.join("receivebox.toml");
        let text = config_text("receivebox", "eth0", RECEIVEBOX, SENDBOX, "");
        fs::write(&config, text).map_err(file(config.clone()))?;
        let start = Starter { binary, dir };
        let arguments = ["receivebox".into(), "--config".into(), config.into_os_string()];
        let receivebox = start.program("receivebox", &far, &arguments)?;
        let carriers = carriers.to_vec();
        Ok(Self { start, hosts, between, far, source, carriers, threads, receivebox })
    }

    /// Starts the bare forwarder.
    pub fn forwarder(&self) -> Result<Program, TestbedError> {
        let spec = ForwarderSpec { from: "lan".into(), to: "wan".into() };
        let mut forwarder =
            self.beside_source(|| self.start.role("forwarder", &self.between, "forwarder", &spec))?;
        forwarder.await_line("ready", READY_TIMEOUT)?;
        Ok(forwarder)
    }

    /// Starts a sendbox that shapes to `rate`, or does not shape, and waits until it hears the receivebox.
    pub fn sendbox(&self, rate: Option<Rate>) -> Result<Program, TestbedError> {
        let config = self.start.dir.join("sendbox.toml");
        let law = rate.map_or("\"const\"".into(), |rate| {
            format!("{{ kind = \"const\", rate = \"{rate}\" }}")
        });
        let xdp = if self.threads { "[xdp]\nthreads = true\n" } else { "" };
        let shaping = format!("cc = {law}\nqdisc = \"sfq\"\n{xdp}");
        let text = config_text("sendbox", "wan", SENDBOX, RECEIVEBOX, &shaping);
        fs::write(&config, text)
            .map_err(|source| TestbedError::File { path: config.clone(), source })?;
        let arguments = ["sendbox".into(), "--config".into(), config.into_os_string()];
        let mut sendbox =
            self.beside_source(|| self.start.program("sendbox", &self.between, &arguments))?;
        let deadline = Instant::now() + PEER_TIMEOUT;
        while !self.sendbox_status().is_some_and(|status| hears_peer(&status)) {
            sendbox.check()?;
            if Instant::now() > deadline {
                let (name, seconds) = (sendbox.name.clone(), PEER_TIMEOUT.as_secs());
                return Err(TestbedError::NoPeer { name, seconds, tail: sendbox.tail() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(sendbox)
    }

    /// Frames of the bundle that the kernel carried past the running sendbox.
    pub fn passed(&self) -> Option<u64> {
        /// Counters of frames that a port leaves to the kernel although they may belong to the
        /// bundle.
        const PAST: [&str; 3] = ["passed_stale", "passed_no_socket", "passed_long"];
        let status = self.sendbox_status()?;
        let counters = status.ports.iter().flat_map(|port| &port.counters);
        Some(counters.filter(|(name, _)| PAST.contains(&&name[..])).map(|(_, count)| count).sum())
    }

    fn sendbox_status(&self) -> Option<Status> {
        let socket = self.start.dir.join("sendbox.sock");
        match control::ask::<Status>(&socket, Request::Status) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// Runs `start` on the carriers' processors: a child inherits the processors of its parent.
    fn beside_source<T>(&self, start: impl FnOnce() -> T) -> T {
        process::try_keep_among(&self.carriers);
        let started = start();
        process::try_keep_to(self.source);
        started
    }

    /// The counters of the far side's device; the file can be read repeatedly.
    pub fn counters(&self) -> Result<File, TestbedError> {
        let open = || File::open("/proc/thread-self/net/dev");
        self.far.within(open).map_err(TestbedError::Proc)
    }

    /// Ends the receivebox.
    pub fn stop(mut self) -> Result<(), TestbedError> {
        self.receivebox.stop(Some(nix::sys::signal::Signal::SIGTERM))
    }
}

fn hears_peer(status: &Status) -> bool {
    status.bundles.iter().all(|bundle| bundle.peer.state == "alive")
}

/// Configuration of a box whose bundle contains all frames sent here.
fn config_text(role: &str, wan: &str, listen: &str, peer: &str, shaping: &str) -> String {
    let lan = if role == "sendbox" { "lan = \"lan\"\n" } else { "" };
    let [from, to] = [SOURCE, DESTINATION].map(std::net::Ipv4Addr::from);
    format!(
        "[box]\nrole = \"{role}\"\n{lan}wan = \"{wan}\"\nlisten = \"{listen}\"\n\
         control = \"{role}.sock\"\n\n[[bundle]]\nname = \"b\"\nid = 1\npeer = \"{peer}\"\n\
         from = [\"{from}/32\"]\nto = [\"{to}/32\"]\nkey_file = \"bundle.key\"\n{shaping}"
    )
}

#[cfg(test)]
mod tests {
    use forebay_host::daemon::config::Config;

    use super::*;

    #[test]
    fn both_boxes_accept_files_and_select_same_packets() {
        let shaping = "cc = \"const\"\nqdisc = \"sfq\"\n[xdp]\nthreads = true\n";
        let files = [
            config_text("sendbox", "wan", SENDBOX, RECEIVEBOX, shaping),
            config_text("receivebox", "eth0", RECEIVEBOX, SENDBOX, ""),
        ];
        let [sendbox, receivebox] =
            files.map(|text| Config::parse(Path::new("/x/box.toml"), &text).unwrap());
        assert_eq!(sendbox.bundles[0].to, receivebox.bundles[0].to);
        assert_eq!(sendbox.bundles[0].from, receivebox.bundles[0].from);
        assert_eq!(sendbox.bundles[0].peer, receivebox.listen[0].into());
    }
}
