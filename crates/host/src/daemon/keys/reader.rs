//! Reads the configuration file again, with its key files. The box itself reads them. If it runs as another user, a
//! separate process reads them and keeps only the capability for this.
//!
//! The process gets the name of the configuration file when it is started, as root. Its stdin is a socket. It
//! answers each request with one line: the texts of the file (or of its candidate) and of the key files. It
//! ends with the box. A request has a number that its answer repeats, so that a late answer is not taken for
//! the next. For a key file it returns only valid key files: no other file that only root may read gets out.

use std::cell::Cell;
use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_core::bundle::keys::KeyRing;
use forebay_core::spec::Spec;
use serde::{Deserialize, Serialize};

use super::{KeyFileError, MAX_FILE, parse, read_all};
use crate::daemon::DaemonError;
use crate::daemon::config::{self, Config, MAX_BUNDLES};
use crate::foreign_python;
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::block_signals;

/// Longest time of the process for reading the files.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time of the process at the start of a box, when it must be loaded first: long on a machine that
/// boots.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer in bytes: JSON may escape each byte of a file into six.
const MAX_ANSWER: u64 = 6 * config::MAX_FILE + MAX_BUNDLES as u64 * (6 * MAX_FILE + 64);

/// Bytes of a request: its source and its number.
const REQUEST: usize = 9;

/// Selects the file to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// The box's own file.
    Own = b'\n',
    /// The file next to it ([`candidate_of`]), read as if it were in its place.
    Candidate = b'c',
}

/// Path of the candidate of a configuration file.
pub fn candidate_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".candidate");
    name.into()
}

/// A configuration with its keys.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The text of the file.
    pub text: String,
    /// The parsed configuration.
    pub config: Config,
    /// The keys of its bundles, in their order.
    pub keys: Vec<KeyRing>,
}

/// Texts of the files: of the configuration, and of the key file of each bundle.
#[derive(Serialize, Deserialize)]
struct Texts {
    config: String,
    keys: Vec<String>,
}

/// Answer of the process: the number of the request, and the texts or the error.
type Numbered = (u64, Result<Texts, String>);

/// Source of a box's configuration and keys.
#[derive(Debug)]
pub struct KeyReader {
    file: PathBuf,
    /// The name of the box in the file.
    name: String,
    /// Controller of all bundles, whatever the file says.
    cc: Option<Spec>,
    process: Option<UnixStream>,
    /// Number of the last request.
    asked: Cell<u64>,
}

impl KeyReader {
    /// Chooses the reader of the configuration and its keys: another process if the box will switch to
    /// another user.
    pub fn start(config: &Config, confinement: &Confinement) -> io::Result<Self> {
        let (file, name) = (config.file.clone(), config.name.clone());
        let Some(account) = &confinement.account else { return Ok(Self::with(file, name, None)) };
        let (own, other) = UnixStream::pair()?;
        own.set_read_timeout(Some(START_PATIENCE))?;
        own.set_write_timeout(Some(PATIENCE))?;
        let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
        // No wait is needed: it ends with its stdin, and then this process ends, too.
        Command::new("/proc/self/exe")
            .args(["read-keys", "--uid", &uid, "--gid", &gid, "--box", &name, "--"])
            .arg(&file)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self::with(file, name, Some(own)))
    }

    const fn with(file: PathBuf, name: String, process: Option<UnixStream>) -> Self {
        Self { file, name, cc: None, process, asked: Cell::new(0) }
    }

    /// If `python` names a file, it controls all bundles in every configuration that is read from now on.
    pub fn steer_by(&mut self, python: Option<&Path>) {
        self.cc = python.map(|file| foreign_python::named::of(file, None));
    }

    /// Reads the configuration and all its keys.
    pub fn load(&self, source: Source) -> Result<Loaded, DaemonError> {
        let Texts { config: text, keys: texts } = match &self.process {
            None => read_texts(&self.file, &self.name, source, 0, |_| Ok(()))?,
            Some(process) => {
                let number = self.asked.get() + 1;
                self.asked.set(number);
                let failed = |error| format!("the reader of the key files: {error}");
                let answer = ask(process, source, number).map_err(failed);
                // From now on packets may wait for this call.
                process.set_read_timeout(Some(PATIENCE)).map_err(DaemonError::SetUp)?;
                answer.flatten().map_err(KeyFileError::Reader)?
            }
        };
        let mut config = Config::parse_of(&self.file, &text, &self.name)?;
        if let Some(cc) = &self.cc {
            let shapings = config.bundles.iter_mut().filter_map(|bundle| bundle.shaping.as_mut());
            shapings.for_each(|shaping| shaping.cc = cc.clone());
        }
        if texts.len() != config.bundles.len() {
            let reason = "the reader of the key files returned too few keys";
            return Err(KeyFileError::Reader(reason.into()).into());
        }
        let files = config.bundles.iter().map(|bundle| &bundle.key_file);
        let keys = files.zip(&texts).map(|(file, text)| parse(file, text));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Loaded { text, config, keys })
    }
}

fn ask(mut process: &UnixStream, source: Source, number: u64) -> io::Result<Result<Texts, String>> {
    let mut request = [source as u8; REQUEST];
    request[1..].copy_from_slice(&number.to_be_bytes());
    process.write_all(&request)?;
    let mut answers = BufReader::new(process);
    loop {
        let mut answer = Vec::new();
        answers.by_ref().take(MAX_ANSWER).read_until(b'\n', &mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
        }
        // Other answers, or the rest of a partly read one, belong to requests that were given up.
        if let Ok((of, texts)) = serde_json::from_slice::<Numbered>(&answer)
            && of == number
        {
            return Ok(texts);
        }
    }
}

/// Runs as that process, for the box `name` of this configuration file, as this user, until stdin ends.
pub fn serve(file: &Path, name: &str, uid: u32, gid: u32) -> io::Result<()> {
    // Signals of the terminal are meant for the box, which ends this process when it is ready.
    let _signals = block_signals()?;
    // Without the buffer of the standard library.
    let stream = UnixStream::from(nix::unistd::dup(io::stdin())?);
    Confinement::to(Account::of(uid, gid)).confine(Task::Keys)?;
    serve_on(&stream, file, name)
}

fn serve_on(stream: &UnixStream, file: &Path, name: &str) -> io::Result<()> {
    // At the start, root has chosen the file, which may have any owner. Later the box requests it, and a user
    // who may write the file has a say in which key files are read.
    let mut check: fn(&Metadata) -> Result<(), String> = |_| Ok(());
    let mut flags = 0;
    while let Some((source, number)) = next_request(stream)? {
        let texts = read_texts(file, name, source, flags, check);
        let texts = texts.map_err(|error| error.to_string());
        answer(stream, &(number, texts))?;
        // From now on no read may block: a box waits for it.
        (flags, check) = (libc::O_NONBLOCK, require_of_root);
    }
    Ok(())
}

/// The source and the number of the next request; `None`: the box has ended.
fn next_request(mut stream: &UnixStream) -> io::Result<Option<(Source, u64)>> {
    let mut request = [0; REQUEST];
    match stream.read_exact(&mut request) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let [kind, number @ ..] = request;
    let is_candidate = kind == Source::Candidate as u8;
    let source = if is_candidate { Source::Candidate } else { Source::Own };
    Ok(Some((source, u64::from_be_bytes(number))))
}

fn answer(mut stream: &UnixStream, answer: &Numbered) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Refuses anything but a regular file: a pipe, for example, may have no end.
fn require_file(file: &Metadata) -> Result<(), String> {
    if file.is_file() { Ok(()) } else { Err("allowed is a regular file".into()) }
}

/// Refuses a file that users other than root may write.
fn require_of_root(file: &Metadata) -> Result<(), String> {
    require_file(file)?;
    let (owner, mode) = (file.uid(), file.mode() & 0o7777);
    if owner == 0 && mode & 0o022 == 0 {
        return Ok(());
    }
    Err(format!(
        "owned by user {owner}, mode {mode:04o}: after a box has switched its user, allowed is a \
         file that only root may write, since it names the key files to read: `chown root` and \
         `chmod go-w` it, or start the box again"
    ))
}

fn read_texts(
    file: &Path,
    name: &str,
    source: Source,
    flags: i32,
    check: impl FnOnce(&Metadata) -> Result<(), String>,
) -> Result<Texts, DaemonError> {
    let text = match source {
        Source::Own => Config::read_checked(file, flags, check)?,
        // `forebay apply` writes a regular file, never a link.
        Source::Candidate => {
            Config::read_checked(&candidate_of(file), libc::O_NOFOLLOW | libc::O_NONBLOCK, |it| {
                require_file(it).and_then(|()| check(it))
            })?
        }
    };
    let config = Config::parse_of(file, &text, name)?;
    let keys = read_all(&config)?;
    Ok(Texts { config: text, keys })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::super::generate;
    use super::*;

    const NAME: &str = "receivebox";

    /// A configuration with two bundles, and its keys.
    fn files(folder: &Path) -> PathBuf {
        let bundle = |id: u32, key: &str| {
            format!(
                "[[bundle]]\nname = \"{key}\"\nid = {id}\npeer = \"192.0.2.1\"\n\
                 to = [\"10.{id}.0.0/16\"]\nfrom = [\"192.0.2.0/24\"]\nkey_file = \"{key}\"\n"
            )
        };
        let node = "[box]\nrole = \"receivebox\"\nwan = \"s0\"\nlisten = \"192.0.2.9\"\n";
        let file = folder.join("box.toml");
        fs::write(&file, [node.into(), bundle(1, "a"), bundle(2, "b")].concat()).unwrap();
        for key in ["a", "b"] {
            generate(&folder.join(key)).unwrap();
        }
        file
    }

    fn told(reader: &KeyReader, source: Source) -> Result<(Config, Vec<KeyRing>), String> {
        let loaded = reader.load(source).map_err(|error| error.to_string())?;
        Ok((loaded.config, loaded.keys))
    }

    #[test]
    fn reader_process_returns_the_same_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = files(folder.path());
        let (own, other) = UnixStream::pair().unwrap();
        let served = file.clone();
        let server = std::thread::spawn(move || serve_on(&other, &served, NAME));
        let direct = KeyReader::with(file.clone(), NAME.into(), None);
        let reader = KeyReader::with(file.clone(), NAME.into(), Some(own));
        let first = told(&reader, Source::Own).unwrap();
        assert_eq!(Ok(first.clone()), told(&direct, Source::Own));
        // Later reads require files of root.
        if nix::unistd::geteuid().is_root() {
            // The reader sees a replaced key and a file with fewer bundles, and it reports errors with their
            // file.
            fs::remove_file(folder.path().join("a")).unwrap();
            generate(&folder.path().join("a")).unwrap();
            let again = told(&reader, Source::Own);
            assert_eq!(again, told(&direct, Source::Own));
            assert_ne!(again.unwrap().1[0], first.1[0]);
            let text = fs::read_to_string(&file).unwrap();
            let one = &text[..text.rfind("[[bundle]]").unwrap()];
            fs::write(candidate_of(&file), one).unwrap();
            let candidate = told(&reader, Source::Candidate);
            assert_eq!(candidate, told(&direct, Source::Candidate));
            let (config, keys) = candidate.unwrap();
            assert_eq!((config.file, config.bundles.len(), keys.len()), (file.clone(), 1, 1));
            fs::write(folder.path().join("b"), "no key\n").unwrap();
            let error = told(&reader, Source::Own).unwrap_err();
            assert_eq!(Err(&error), told(&direct, Source::Own).as_ref());
            assert!(error.contains("b: line 1"), "{error}");
            // A user who may write the file could have any key file read.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
            let error = told(&reader, Source::Own).unwrap_err();
            assert!(error.contains("mode 0664: after a box has switched its user"), "{error}");
        }
        drop(reader);
        server.join().unwrap().unwrap();
        let (own, _) = UnixStream::pair().unwrap();
        let error = told(&KeyReader::with(file, NAME.into(), Some(own)), Source::Own).unwrap_err();
        assert!(error.starts_with("the reader of the key files: "), "{error}");
    }

    #[test]
    fn late_answer_is_not_taken_for_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let file = files(folder.path());
        let text = fs::read_to_string(&file).unwrap();
        fs::write(candidate_of(&file), &text[..text.rfind("[[bundle]]").unwrap()]).unwrap();
        let (own, other) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let waiting = own.try_clone().unwrap();
        let reader = KeyReader::with(file.clone(), NAME.into(), Some(own));
        assert!(told(&reader, Source::Own).is_err(), "nobody answers");
        let server = std::thread::spawn(move || serve_on(&other, &file, NAME));
        // The answer to the first request arrives before the second request is sent.
        waiting.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut fds = [PollFd::new(waiting.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1));
        // Later reads require files of root.
        let second = told(&reader, Source::Candidate);
        if nix::unistd::geteuid().is_root() {
            assert_eq!(second.unwrap().0.bundles.len(), 1);
        } else {
            assert!(second.unwrap_err().contains("owned by user"));
        }
        drop((reader, waiting));
        server.join().unwrap().unwrap();
    }

    #[test]
    fn candidate_must_be_a_regular_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = files(folder.path());
        let reader = KeyReader::with(file.clone(), NAME.into(), None);
        let candidate = candidate_of(&file);
        std::os::unix::fs::symlink(&file, &candidate).unwrap();
        assert!(told(&reader, Source::Candidate).unwrap_err().contains("cannot read it"));
        fs::remove_file(&candidate).unwrap();
        nix::unistd::mkfifo(&candidate, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = told(&reader, Source::Candidate).unwrap_err();
        assert!(error.contains("allowed is a regular file"), "{error}");
    }
}
