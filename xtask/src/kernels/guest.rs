//! A guest: one run of qemu, and its output.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Longest run: emulation is ten to twenty times as slow.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Boots `kernel` with `initramfs` until it powers off; `log` gets its output, too. The guest is emulated unless
/// it `has_kvm`. It has one processor: several wait for each other where a map is updated, and emulated ones do so
/// for a long time.
pub fn run(kernel: &Path, initramfs: &Path, log: &Path, has_kvm: bool) -> Result<String> {
    let mut child = Command::new("qemu-system-x86_64")
        .args(["-accel", if has_kvm { "kvm" } else { "tcg" }])
        // The host of a virtual machine may deny it some registers of its processor.
        .args(["-cpu", "max,arch-capabilities=off", "-smp", "1", "-m", "3G"])
        .args(["-nographic", "-monitor", "none", "-no-reboot", "-nic", "none"])
        .args(["-append", "console=ttyS0 loglevel=1 panic=-1 rdinit=/init systemd.show_status=0"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .stdin(Stdio::null())
        .stdout(File::create(log)?)
        .spawn()
        .context("qemu-system-x86_64 (`make test-kernels` installs it)")?;
    await_end(&mut child, PATIENCE)?;
    Ok(String::from_utf8_lossy(&std::fs::read(log)?).into_owned())
}

/// Waits until a machine is off, or ends it after `patience`: its output until then is judged.
pub fn await_end(machine: &mut Child, patience: Duration) -> io::Result<()> {
    let started = Instant::now();
    while machine.try_wait()?.is_none() {
        if started.elapsed() > patience {
            machine.kill()?;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The output of a check and its exit code.
pub struct Outcome<'a> {
    pub text: &'a str,
    /// `None`: it did not end.
    pub exit: Option<i32>,
}

impl<'a> Outcome<'a> {
    pub fn lines(&self) -> impl Iterator<Item = &'a str> {
        self.text.lines()
    }
}

/// Finds a check in a guest's output.
pub fn outcome<'a>(text: &'a str, name: &str) -> Option<Outcome<'a>> {
    let begin = format!("@@ {name}\r\n");
    let (_, rest) = text.split_once(begin.as_str())?;
    let Some((text, end)) = rest.split_once("@@ ended with ") else {
        return Some(Outcome { text: rest, exit: None });
    };
    let exit = end.lines().next().and_then(|code| code.trim().parse().ok());
    Some(Outcome { text, exit })
}
