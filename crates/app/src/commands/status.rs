//! `forebay status` and `forebay top`: asking a running box or agent.

use std::path::PathBuf;
use std::process::ExitCode;
#[cfg(feature = "host")]
use std::time::Duration;

#[cfg(feature = "host")]
use super::print;

/// Which daemon is asked.
#[derive(clap::Args)]
pub struct Target {
    /// Control socket of the daemon (`box.control` in its configuration, or `agent --control`).
    /// Without it, every socket in /run/forebay is asked.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Arguments of `forebay status`.
#[derive(clap::Args)]
pub struct Status {
    #[command(flatten)]
    target: Target,
    /// Print one JSON document, and nothing else, on stdout.
    #[arg(long)]
    json: bool,
}

/// Arguments of `forebay top`.
#[derive(clap::Args)]
pub struct Top {
    #[command(flatten)]
    target: Target,
}

/// What is said of a daemon whose answer does not fit.
#[cfg(feature = "host")]
pub const ANOTHER_QUESTION: &str = "the daemon answered another question";

/// What the daemons that were asked say of themselves.
#[cfg(feature = "host")]
#[derive(Default)]
pub struct Answers {
    pub boxes: Vec<forebay_host::daemon::status::Status>,
    agents: Vec<forebay_host::agent::status::AgentStatus>,
}

#[cfg(feature = "host")]
impl Answers {
    fn tables(&self) -> Vec<String> {
        let boxes = self.boxes.iter().map(|status| status.table());
        boxes.chain(self.agents.iter().map(|status| status.table())).collect()
    }
}

/// What may answer.
#[cfg(feature = "host")]
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
pub enum State {
    Box(forebay_host::daemon::status::Status),
    Agent(forebay_host::agent::status::AgentStatus),
}

#[cfg(feature = "host")]
pub type Answer = forebay_host::service::control::Answer<State>;

#[cfg(feature = "host")]
impl Target {
    pub fn sockets(&self) -> anyhow::Result<Vec<PathBuf>> {
        const FOLDER: &str = "/run/forebay";
        if let Some(socket) = &self.socket {
            return Ok(vec![socket.clone()]);
        }
        let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let mut sockets: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
            .collect();
        sockets.sort();
        if sockets.is_empty() {
            anyhow::bail!("no daemon has a socket in {FOLDER}: start one, or name its --socket");
        }
        Ok(sockets)
    }

    pub fn ask(
        &self,
        request: forebay_host::service::control::Request,
    ) -> anyhow::Result<Vec<Answer>> {
        ask_all(&self.sockets()?, self.socket.is_some(), request)
    }

    pub fn status(&self) -> anyhow::Result<Answers> {
        use forebay_host::service::control::Request;
        let mut answers = Answers::default();
        for answer in self.ask(Request::Status)? {
            match answer {
                Answer::Status(state) => match *state {
                    State::Box(status) => answers.boxes.push(status),
                    State::Agent(status) => answers.agents.push(status),
                },
                Answer::Failed(reason) => anyhow::bail!(reason),
                Answer::Done(_) | Answer::Changed(_) => anyhow::bail!(ANOTHER_QUESTION),
            }
        }
        Ok(answers)
    }
}

/// The answers of all daemons at `sockets`. One that was killed has left its socket behind, and one
/// that is stopped does not answer: unless it `is_named`, it is passed over while others do.
#[cfg(feature = "host")]
fn ask_all(
    sockets: &[PathBuf],
    is_named: bool,
    request: forebay_host::service::control::Request,
) -> anyhow::Result<Vec<Answer>> {
    let (mut answers, mut dead) = (Vec::new(), None);
    for path in sockets {
        match forebay_host::service::control::ask(path, request) {
            Ok(answer) => answers.push(answer),
            Err(error) => {
                use std::io::ErrorKind::{ConnectionRefused, TimedOut, WouldBlock};
                let kind = error.kind();
                let error =
                    anyhow::Error::new(error).context(format!("no answer on {}", path.display()));
                if is_named || ![ConnectionRefused, TimedOut, WouldBlock].contains(&kind) {
                    return Err(error);
                }
                // One that is stopped, unlike one that is gone, may have traffic.
                if kind != ConnectionRefused {
                    eprintln!("warning: {error:#}");
                }
                dead = Some(error);
            }
        }
    }
    match dead {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

#[cfg(feature = "host")]
impl Status {
    /// Prints the state of each daemon: tables, or `{"boxes": [..], "agents": [..]}`.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let answers = self.target.status()?;
        if self.json {
            let Answers { boxes, agents } = answers;
            print(&format!("{}\n", serde_json::json!({ "boxes": boxes, "agents": agents })))?;
        } else {
            print(&answers.tables().join("\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(feature = "host")]
impl Top {
    /// Shows the tables of `forebay status` and renews them every second, until interrupted.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        loop {
            let tables = self.target.status()?.tables().join("\n");
            // ECMA-48: home, erase the display.
            if !print(&format!("\x1b[H\x1b[2J{tables}\n"))? {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

#[cfg(not(feature = "host"))]
mod without_host {
    use super::*;

    impl Status {
        /// Says what is missing.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let _ = (self.target.socket, self.json);
            Err(crate::commands::needs_host("status"))
        }
    }

    impl Top {
        /// Says what is missing.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let _ = self.target.socket;
            Err(crate::commands::needs_host("top"))
        }
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use std::os::unix::net::UnixListener;

    use forebay_host::service::control::{ControlSocket, Request};
    use forebay_host::service::privileges::Confinement;

    use super::*;

    #[test]
    fn a_daemon_that_was_killed_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let [dead, alive] = ["dead.sock", "live.sock"].map(|name| folder.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        // A child that another test starts holds the socket until it has become its program.
        while std::os::unix::net::UnixStream::connect(&dead).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ask = |sockets: &[&PathBuf], is_named| {
            let sockets: Vec<PathBuf> = sockets.iter().map(|path| (*path).clone()).collect();
            ask_all(&sockets, is_named, Request::Status)
        };
        let server = ControlSocket::bind(&alive, &Confinement::default()).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.try_recv().is_err() {
                server.serve(|_| forebay_host::service::control::Answer::<()>::Done("here".into()));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(ask(&[&dead, &alive], false).unwrap(), [Answer::Done("here".into())]);
        for (sockets, is_named) in [(&[&dead][..], false), (&[&dead, &alive], true)] {
            let error = ask(sockets, is_named).unwrap_err().to_string();
            assert!(error.contains("no answer on") && error.contains("dead.sock"), "{error}");
        }
        stop.send(()).unwrap();
        thread.join().unwrap();
    }
}
