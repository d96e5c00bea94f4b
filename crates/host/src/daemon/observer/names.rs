//! Names of the other boxes, looked up by a process of its own: an answer may take many seconds, and a packet
//! thread waits for nothing. The system's resolver parses the answers, which come from the network.
//!
//! ```text
//!  box ── a name a line ──► `forebay observe` ── a name a line ──► `forebay look-up` ──► name servers
//!      ◄── observations ──                    ◄── a line each ──
//! ```
//! The process runs under the box's account, without capabilities and under a filter of system calls. It ends
//! with the observer. The observer ignores answers for names that it did not ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;

use forebay_ebpf::MAX_OWN_ADDRESSES;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::{Deserialize, Serialize};

use super::arguments;
use crate::daemon::config::MAX_BUNDLES;
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::block_signals;

/// Most addresses kept per name: the box tries this many.
const ADDRESSES_MAX: usize = 8;
/// Packets to all of these pass the bundles. The table of the capture program holds the addresses of as many
/// names as there are bundles, in addition to the boxes' own.
const _: () = assert!((ADDRESSES_MAX + 1) * MAX_BUNDLES < MAX_OWN_ADDRESSES);
/// Longest line: an answer with a name of 253 bytes, all addresses, and the reason of a failure. A pipe takes
/// such a line atomically (PIPE_BUF).
const LINE_MAX: usize = 4096;
/// Longest text of a problem, in characters.
const PROBLEM_MAX: usize = 200;

/// Results for each name that was asked for.
pub type Names = BTreeMap<String, Resolved>;

/// Result for one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The addresses, in the order in which RFC 6724 tries them. If a later look-up failed, the last ones
    /// stay.
    pub addresses: Vec<IpAddr>,
    /// The reason why the last look-up failed, if it did.
    pub problem: Option<String>,
}

/// The names that a box asks for, one per line, and the process that looks them up.
pub struct LookUp {
    process: Option<Process>,
    names: Names,
    /// Names that are being looked up or wait for it.
    asked: BTreeSet<String>,
    /// The part of a line of the box read so far.
    part: Part,
}

struct Process {
    names: ChildStdin,
    answers: ChildStdout,
    /// The part of a line of the process read so far.
    part: Part,
}

impl LookUp {
    /// Starts the process, which switches to this account, if there is one.
    pub fn start(account: Option<&Account>) -> io::Result<Self> {
        // The same program, even if its file was replaced meanwhile.
        let mut program = Command::new("/proc/self/exe");
        program.arg("look-up").args(arguments(account));
        Self::start_as(program)
    }

    /// As [`LookUp::start`], with a program that answers as `forebay look-up` would.
    fn start_as(mut program: Command) -> io::Result<Self> {
        // No wait is needed: it ends with its standard input, and then this process ends, too.
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let names = child.stdin.take().expect("piped");
        let answers = child.stdout.take().expect("piped");
        fcntl(&names, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(&answers, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let process = Some(Process { names, answers, part: Part::default() });
        Ok(Self { process, names: Names::new(), asked: BTreeSet::new(), part: Part::default() })
    }

    /// Reads the names that the box asks for; false: the box has ended.
    pub fn take(&mut self, asked: impl BufRead) -> io::Result<bool> {
        self.take_but(asked, |_| false)
    }

    /// As [`LookUp::take`], except for lines that `is_taken` has handled.
    pub fn take_but(
        &mut self,
        mut asked: impl BufRead,
        mut is_taken: impl FnMut(&str) -> bool,
    ) -> io::Result<bool> {
        let bytes = asked.fill_buf()?;
        let (len, lines) = (bytes.len(), self.part.lines(bytes));
        asked.consume(len);
        for name in lines {
            if is_taken(&name) {
                continue;
            }
            let Some(process) = &mut self.process else {
                let ended = "the process that resolves names has ended: start the box again";
                self.names.entry(name).or_default().problem = Some(ended.into());
                continue;
            };
            // If the pipe is full, the box asks for the name again.
            if !self.asked.contains(&name)
                && process.names.write_all(format!("{name}\n").as_bytes()).is_ok()
            {
                self.asked.insert(name);
            }
        }
        Ok(len > 0)
    }

    /// The results so far.
    pub fn names(&mut self) -> &Names {
        let mut bytes = [0; 1 << 14];
        let read = self.process.as_mut().map(|process| process.answers.read(&mut bytes));
        match read {
            Some(Ok(0)) => self.process = None,
            // Answers are short: the rest is read next time.
            Some(Ok(len)) => self.hear(&bytes[..len]),
            Some(Err(_)) | None => {}
        }
        &self.names
    }

    fn hear(&mut self, bytes: &[u8]) {
        let Some(process) = &mut self.process else { return };
        for line in process.part.lines(bytes) {
            let Ok((name, found)) = serde_json::from_str::<(String, Resolved)>(&line) else {
                continue;
            };
            if !self.asked.remove(&name) {
                continue;
            }
            let before = self.names.entry(name).or_default();
            before.problem = found.problem;
            if before.problem.is_none() {
                before.addresses = found.addresses;
                before.addresses.truncate(ADDRESSES_MAX);
            }
        }
    }

    /// Readable when there may be a result.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|process| process.answers.as_fd())
    }
}

/// The part of an incomplete line read so far.
#[derive(Default)]
struct Part(Vec<u8>);

impl Part {
    /// The lines that these bytes complete. A line longer than [`LINE_MAX`] is cut.
    fn lines(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                lines.extend(String::from_utf8(std::mem::take(&mut self.0)));
            } else if self.0.len() < LINE_MAX {
                self.0.push(*byte);
            }
        }
        lines
    }
}

/// Runs as that process, under this account if there is one, until standard input ends.
pub fn serve(account: Option<Account>) -> io::Result<()> {
    // Signals for the box reach its whole process group: the observer ends this process.
    let _signals = block_signals()?;
    let confinement = account.map_or_else(Confinement::default, Confinement::to);
    // The end must not wait for a look-up: without name servers one may take longer than the patience of
    // systemd.
    let ((names, asked), own) = (channel(), confinement.clone());
    let looking = std::thread::Builder::new().name("names".into()).spawn(move || {
        own.confine(Task::Names)?;
        answer(asked, io::stdout())
    })?;
    confinement.confine(Task::Names)?;
    for name in io::stdin().lock().lines() {
        if names.send(name?).is_err() {
            let panicked = |_| Err(io::Error::other("the thread that resolves names panicked"));
            return looking.join().unwrap_or_else(panicked);
        }
    }
    Ok(())
}

/// Looks up each name in `asked`, and writes a line with the result.
fn answer(asked: impl IntoIterator<Item = String>, mut answers: impl Write) -> io::Result<()> {
    for name in asked {
        let found = look_up(&name);
        let mut line = serde_json::to_vec(&(name, found))?;
        line.push(b'\n');
        answers.write_all(&line)?;
        answers.flush()?;
    }
    Ok(())
}

/// Looks a name up, which may take many seconds.
pub fn look_up(name: &str) -> Resolved {
    let found = match (name, 0).to_socket_addrs() {
        Ok(found) => found,
        Err(error) => {
            let problem = error.to_string().chars().take(PROBLEM_MAX).collect();
            return Resolved { problem: Some(problem), ..Resolved::default() };
        }
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in found.map(|address| address.ip()) {
        let is_host = !ip.is_unspecified() && !ip.is_multicast();
        if is_host && !addresses.contains(&ip) && addresses.len() < ADDRESSES_MAX {
            addresses.push(ip);
        }
    }
    Resolved { addresses, problem: None }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::service::privileges::seccomp;

    #[test]
    fn filtered_resolver_finds_names_in_hosts_files() {
        let confined = std::thread::spawn(|| {
            seccomp::install(&seccomp::filters(Task::Names).unwrap()).unwrap();
            let mut answers = Vec::new();
            answer(["localhost", "no\0name"].map(String::from), &mut answers).unwrap();
            answers
        });
        let answers = confined.join().unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let found: Vec<(String, Resolved)> =
            answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [(localhost, one), (invalid, none)] = &found[..] else { panic!("{answers}") };
        assert_eq!([localhost, invalid], ["localhost", "no\0name"]);
        assert!(one.addresses.iter().all(IpAddr::is_loopback), "{one:?}");
        assert!(!one.addresses.is_empty() && one.problem.is_none(), "{one:?}");
        assert!(none.addresses.is_empty() && none.problem.is_some(), "{none:?}");
    }

    /// A process that writes these lines at the first name, and ends at the second.
    fn saying(lines: &str) -> LookUp {
        let mut program = Command::new("sh");
        program.args(["-c", "read name; printf '%s' \"$0\"; read name", lines]);
        LookUp::start_as(program).unwrap()
    }

    fn await_that(look_up: &mut LookUp, is_so: impl Fn(&mut LookUp) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(look_up) {
            assert!(Instant::now() < deadline, "nothing was found: {:?}", look_up.names);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn split_request_is_answered_and_end_is_reported() {
        let mut look_up =
            saying("[\"b.example\",{\"addresses\":[\"192.0.2.1\"],\"problem\":null}]\n");
        assert!(look_up.take(&b"b.exa"[..]).unwrap());
        assert!(look_up.take(&b"mple\n"[..]).unwrap());
        assert!(!look_up.take(&b""[..]).unwrap());
        await_that(&mut look_up, |it| !it.names().is_empty());
        assert_eq!(
            look_up.names()["b.example"].addresses,
            ["192.0.2.1".parse::<IpAddr>().unwrap()]
        );
    }

    #[test]
    fn unrequested_names_and_excess_addresses_are_ignored() {
        let many: Vec<String> = (1..100).map(|last| format!("\"192.0.2.{last}\"")).collect();
        let answer = |name: &str| {
            format!("[\"{name}\",{{\"addresses\":[{}],\"problem\":null}}]\n", many.join(","))
        };
        let lines =
            ["no json\n", &"x".repeat(9000), "\n", &answer("c.example"), &answer("b.example")];
        let mut look_up = saying(&lines.concat());
        assert!(look_up.take(&b"b.example\n"[..]).unwrap());
        await_that(&mut look_up, |it| it.names().contains_key("b.example"));
        assert_eq!(look_up.names().len(), 1);
        assert_eq!(look_up.names()["b.example"].addresses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn addresses_survive_failed_lookup_and_ended_process() {
        let addresses = |it: &LookUp| it.names["b.example"].addresses.clone();
        let found = vec!["192.0.2.1".parse::<IpAddr>().unwrap()];
        let mut look_up = saying("");
        for (told, problem) in [
            ("{\"addresses\":[\"192.0.2.1\"],\"problem\":null}", None),
            ("{\"addresses\":[],\"problem\":\"no answer\"}", Some("no answer")),
        ] {
            look_up.asked.insert("b.example".into());
            look_up.hear(format!("[\"b.example\",{told}]\n").as_bytes());
            assert_eq!(look_up.names["b.example"].problem.as_deref(), problem);
            assert_eq!(addresses(&look_up), found);
        }
        assert!(look_up.take(&b"x.example\ny.example\n"[..]).unwrap());
        await_that(&mut look_up, |it| {
            it.names();
            it.as_fd().is_none()
        });
        assert!(look_up.take(&b"b.example\n"[..]).unwrap());
        assert!(look_up.names()["b.example"].problem.as_ref().unwrap().contains("has ended"));
        assert_eq!(addresses(&look_up), found);
    }
}
