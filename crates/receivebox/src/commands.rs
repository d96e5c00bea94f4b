//! The subcommands of the program.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forebay_host::daemon::config::{Config, Role};
use forebay_host::daemon::helpers::Helper;
use forebay_host::daemon::status::Status;
use forebay_host::daemon::{DaemonError, keys, receivebox};
use forebay_host::service::control::{self, Answer, Request};

/// Folder with the control sockets of running boxes.
const SOCKETS: &str = "/run/forebay";

/// The subcommands, in the order of the help text.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Run a receivebox: report to the sendboxes when their packets arrive.
    ///
    /// The receivebox only watches: the kernel forwards, even if this process ends. On SIGHUP it
    /// reads its files again, as after `forebay-receivebox reload`.
    Receivebox {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Name of the receivebox; required if FILE has several.
        #[arg(long = "box", value_name = "NAME")]
        name: Option<String>,
    },
    /// Check a configuration file and its key files.
    CheckConfig {
        /// The configuration file.
        file: PathBuf,
    },
    /// Make the shared key of a bundle.
    Keygen {
        /// The new key file; an existing one is never overwritten.
        file: PathBuf,
    },
    /// Show the state of a running receivebox.
    Status {
        /// Control socket of the box; without it, the only one in /run/forebay.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Have a running receivebox read its configuration and key files again.
    Reload {
        /// Control socket of the box; without it, the only one in /run/forebay.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// A helper process that a box starts from its own program.
    #[command(flatten)]
    Helper(Helper),
}

/// Why the program ends without having run its command.
#[derive(Debug)]
pub enum Failure {
    /// A wrong argument or configuration.
    Input(String),
    /// A failure of the machine, or of the box that runs on it.
    Run(String),
}

impl Failure {
    /// Exit code of the program: 2 for wrong input, else 1.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Input(_) => ExitCode::from(2),
            Self::Run(_) => ExitCode::FAILURE,
        }
    }

    fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }

    fn run(error: impl fmt::Display) -> Self {
        Self::Run(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(text) | Self::Run(text)) = self;
        f.write_str(text)
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        if error.is_bad_input() { Self::input(error) } else { Self::run(error) }
    }
}

impl Command {
    /// Runs the subcommand.
    pub fn execute(self) -> Result<(), Failure> {
        match self {
            Self::Receivebox { config, name } => {
                let config = Config::load_of(&config, Role::Receivebox, name.as_deref());
                receivebox::run_by_socket(&config.map_err(Failure::input)?)?;
                Ok(())
            }
            Self::CheckConfig { file } => check_config(&file),
            Self::Keygen { file } => {
                keys::generate(&file).map_err(Failure::input)?;
                print(&format!(
                    "{}: new key, mode 0600; copy it to the other box\n",
                    file.display()
                ))
            }
            Self::Status { socket, json } => status(&socket_of(socket)?, json),
            Self::Reload { socket } => reload(&socket_of(socket)?),
            Self::Helper(helper) => helper.execute().map_err(Failure::run),
        }
    }
}

/// Prints a line for each receivebox of a file.
fn check_config(file: &Path) -> Result<(), Failure> {
    let boxes = Config::load_all(file).map_err(Failure::input)?;
    let mut text = String::new();
    for config in &boxes {
        config.expect_role(Role::Receivebox).map_err(Failure::input)?;
        keys::read_all(config).map_err(Failure::input)?;
        let bundles: Vec<&str> = config.bundles.iter().map(|bundle| &*bundle.name).collect();
        let (file, name, wan) = (file.display(), &config.name, &config.wan);
        text += &format!("{file}: {name} watches {wan} for {}\n", bundles.join(", "));
    }
    print(&text)
}

/// The control socket given on the command line, or the only one in /run/forebay.
fn socket_of(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(socket) = named {
        return Ok(socket);
    }
    let entries = std::fs::read_dir(SOCKETS).into_iter().flatten().flatten();
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|it| it == "sock");
    let mut found = entries.map(|entry| entry.path()).filter(is_socket);
    match (found.next(), found.next()) {
        (Some(socket), None) => Ok(socket),
        (Some(_), Some(_)) => {
            Err(Failure::Input(format!("{SOCKETS} has several sockets: name one with --socket")))
        }
        (None, _) => {
            let none = "no box has a socket in";
            Err(Failure::Run(format!(
                "{none} {SOCKETS}: start one, or name its socket with --socket"
            )))
        }
    }
}

fn ask(socket: &Path, request: Request) -> Result<Answer<Status>, Failure> {
    match control::ask(socket, request) {
        Ok(Answer::Failed(reason)) => Err(Failure::Run(reason)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(Failure::Run(format!("{}: {error}", socket.display()))),
    }
}

fn status(socket: &Path, json: bool) -> Result<(), Failure> {
    let Answer::Status(status) = ask(socket, Request::Status)? else { return Err(another()) };
    if !json {
        return print(&status.table());
    }
    print(&format!("{}\n", serde_json::json!({ "boxes": [status] })))
}

fn reload(socket: &Path) -> Result<(), Failure> {
    let Answer::Changed(outcome) = ask(socket, Request::Reload)? else { return Err(another()) };
    if outcome.refused.is_empty() {
        return print(&outcome.to_string());
    }
    Err(Failure::input(outcome))
}

fn another() -> Failure {
    Failure::Run("the daemon sent an answer to another request".into())
}

/// Prints on stdout. A reader that closes the pipe early, such as `head`, causes no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
