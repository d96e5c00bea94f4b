//! `forebay confirm`, killed at each of its system calls.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use forebay_host::daemon::status::Status;
use forebay_host::service::control::{Answer, Request, ask};
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::by_hand::{await_status, bridged, end, start, write_sendbox};
use crate::turns::together;

struct Scene {
    boxes: [Child; 1],
    own: PathBuf,
    other: PathBuf,
    socket: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        end(&mut self.boxes);
    }
}

impl Scene {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.args(words).arg("--socket").arg(&self.socket).arg("--config").arg(&self.own);
        command
    }

    /// Has the box run with the configuration in its file, and puts another one on trial.
    fn put_on_trial(&self, before: &str) {
        fs::write(&self.own, before).unwrap();
        let Answer::Changed(outcome) = ask::<Status>(&self.socket, Request::Reload).unwrap() else {
            panic!("it is another answer");
        };
        assert_eq!(outcome.refused, [""; 0]);
        let other = self.other.to_str().unwrap();
        let applied = self.command(&["apply", other, "--confirm", "600s", "--json"]);
        let applied = { applied }.output().unwrap();
        assert!(applied.status.success(), "{applied:?}");
    }

    fn in_force(&self) -> String {
        let answer = ask::<Status>(&self.socket, Request::Config).unwrap();
        let Answer::Done(text) = answer else { panic!("{answer:?}") };
        text
    }

    fn is_on_trial(&self) -> bool {
        await_status(&self.socket).trial.is_some()
    }

    fn confirm(&self) -> Output {
        self.command(&["confirm"]).output().unwrap()
    }
}

#[test]
fn confirm_killed_anywhere_can_be_repeated() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = write_sendbox(folder.path(), "5Mbit/s");
    let before = fs::read_to_string(&own).unwrap();
    let after = before.replace("5Mbit/s", "6Mbit/s");
    let [other, socket] = ["other.toml", "box.sock"].map(|name| folder.path().join(name));
    fs::write(&other, &after).unwrap();
    let boxes = [start(&topology.pairs[0].left_box, "sendbox", &own)];
    await_status(&socket);
    let scene = Scene { boxes, own, other, socket };

    let (mut confirmed, mut on_trial) = (0, 0);
    let mut calls = 0;
    loop {
        scene.put_on_trial(&before);
        let is_killed = killed_at(&mut scene.command(&["confirm"]), calls);
        // Once the trial is over, a start of the box uses the configuration in force.
        let is_left_on_trial = scene.is_on_trial();
        assert_eq!(scene.in_force(), after, "call {calls}");
        let says = fs::read_to_string(&scene.own).unwrap();
        assert!(says == after || is_left_on_trial && says == before, "call {calls}: {says}");
        *if is_left_on_trial { &mut on_trial } else { &mut confirmed } += 1;
        let repeated = scene.confirm();
        assert!(repeated.status.success(), "call {calls}: {repeated:?}");
        assert!(!scene.is_on_trial(), "call {calls}");
        assert_eq!(
            [scene.in_force(), fs::read_to_string(&scene.own).unwrap()],
            [(); 2].map(|()| after.clone())
        );
        if !is_killed {
            break;
        }
        calls += 1;
    }
    println!(
        "killed at {calls} calls: the trial went on after {on_trial}, and was over after {confirmed}"
    );
    assert!(calls > 50 && on_trial > 20 && confirmed > 2);

    // Killed after writing the file, and not repeated in time.
    for killed in [2, 4].map(|part| on_trial * part / 5).into_iter().chain([on_trial - 1]) {
        scene.put_on_trial(&before);
        assert!(killed_at(&mut scene.command(&["confirm"]), killed));
        assert!(matches!(ask::<Status>(&scene.socket, Request::Revert), Ok(Answer::Done(_))));
        while scene.is_on_trial() {}
        assert_eq!(scene.in_force(), before);
        let repeated = scene.confirm();
        assert_eq!(repeated.status.code(), Some(1), "{repeated:?}");
        assert_eq!(fs::read_to_string(&scene.own).unwrap(), before, "call {killed}: {repeated:?}");
    }
    assert!(!Path::new(&format!("{}.new", scene.own.display())).exists());
}

/// Runs a command, and kills it before its `calls`-th system call, counted from its first connect(2). Returns false
/// if the command ended earlier.
fn killed_at(command: &mut Command, calls: usize) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: one system call with plain numbers.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    // waitpid(2) below waits for it.
    #[expect(clippy::zombie_processes)]
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    assert!(matches!(waitpid(pid, None), Ok(WaitStatus::Stopped(..))), "it has become its program");
    // SAFETY: plain numbers; the process is stopped.
    let set = unsafe {
        libc::ptrace(libc::PTRACE_SETOPTIONS, pid.as_raw(), 0, libc::PTRACE_O_TRACESYSGOOD)
    };
    assert_eq!(set, 0);
    let mut seen = None;
    loop {
        // SAFETY: plain numbers; the process is stopped.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid.as_raw(), 0, 0) }, 0);
        match waitpid(pid, None).unwrap() {
            WaitStatus::Exited(..) => return false,
            WaitStatus::PtraceSyscall(_) => {}
            other => panic!("{other:?}"),
        }
        let Some(call) = entered(pid) else { continue };
        if seen.is_none() && call == libc::SYS_connect as u64 {
            seen = Some(0);
        }
        if let Some(seen) = &mut seen {
            if *seen == calls {
                child.kill().unwrap();
                while !matches!(waitpid(pid, None), Ok(WaitStatus::Signaled(..))) {}
                return true;
            }
            *seen += 1;
        }
    }
}

/// The system call that a process is about to make (ptrace(2), `PTRACE_GET_SYSCALL_INFO`).
fn entered(pid: Pid) -> Option<u64> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes there, and zeros are a value of all fields.
    let info = unsafe {
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid.as_raw(), size, info.as_mut_ptr());
        info.assume_init()
    };
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: at an entry the kernel has written this part.
    Some(unsafe { info.u.entry.nr })
}
