//! An agent that runs, and its needs.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use forebay_skips::{Need, skip_without};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{forebay, registered};

/// A running agent with one algorithm.
pub struct Running {
    pub child: Child,
    folder: PathBuf,
    name: String,
}

impl Running {
    /// Starts it; `None` where this machine cannot carry one.
    pub fn start(folder: &Path, algorithm: &str, arguments: &[&str]) -> Option<Self> {
        if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
            return None;
        }
        let all = ["agent", "--algorithm", algorithm, "--control", "agent.sock", "--seed", "1"];
        let mut command = forebay(folder, &[&all[..], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        let name = format!("fb_{algorithm}");
        if first.starts_with(&format!("{name} is registered: ")) {
            return Some(Self { child, folder: folder.to_path_buf(), name });
        }
        panic!("{first}{:?}", child.wait_with_output().unwrap());
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// The agent's status, once `is_wanted`.
    pub fn status(&self, is_wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let started = Instant::now();
        loop {
            let output = forebay(&self.folder, &["status", "--json", "--socket", "agent.sock"])
                .output()
                .unwrap();
            // The socket comes right after the name.
            let status = serde_json::from_slice::<serde_json::Value>(&output.stdout);
            let status = status.map(|mut document| document["agents"][0].take());
            if let Some(status) = status.ok().filter(|status| is_wanted(status)) {
                return status;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{output:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A counter of the kernel's side, from `status`.
    pub fn counter(status: &serde_json::Value, name: &str) -> u64 {
        let counters = status["algorithms"][0]["counters"].as_array().unwrap();
        let pair = counters.iter().find(|pair| pair[0] == name).unwrap();
        pair[1].as_u64().unwrap()
    }

    /// Ends it as an operator does.
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(status.success(), "{stderr}");
        assert!(!registered().contains(&self.name), "the name goes with its agent");
    }
}

/// A test that fails leaves no name behind for later tests.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A BPF file system for the pins of an agent, gone when dropped.
pub struct Bpffs(pub PathBuf);

impl Bpffs {
    /// Mounts it at `folder`/bpf; `None` where this machine cannot carry an agent.
    pub fn mount(folder: &Path) -> Option<Self> {
        if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
            return None;
        }
        let path = folder.join("bpf");
        fs::create_dir(&path).unwrap();
        let kind = Some("bpf");
        mount(kind, &path, kind, MsFlags::empty(), None::<&str>).unwrap();
        Some(Self(path))
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = umount(&self.0);
    }
}
