//! Who reads the configuration file again, and the key files that it names: the box itself, or, once it is
//! another user's, a process that keeps the one capability for that.
//!
//! The process is told the configuration file when it is started, as root. It answers each request on its stdin, a
//! socket, with the texts of the file (or of its candidate) and of the key files as one line, and ends with
//! the box. A request has a number, which comes back: an answer that came too late is not taken for the next.
//! What it answers of a key file is a key file's: nothing else that root alone may read gets out.

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
use crate::live;
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::block_signals;

/// How long the process may take to read the files.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the process may take at the start of a box, when it has to be loaded itself: on a machine that boots, long.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer: each byte of a file may be escaped (JSON) into six.
const MAX_ANSWER: u64 = 6 * config::MAX_FILE + MAX_BUNDLES as u64 * (6 * MAX_FILE + 64);

/// Bytes of a request: its source and its number.
const REQUEST: usize = 9;

/// Which file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// The box's own.
    Own = b'\n',
    /// What stands beside it ([`candidate_of`]), as though it stood in its place.
    Candidate = b'c',
}

/// Where the candidate of a configuration file stands.
pub fn candidate_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".candidate");
    name.into()
}

/// A configuration with what it names.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The text of the file.
    pub text: String,
    /// What it says.
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

/// What the process answers: the number of the request, and the texts or why there are none.
type Numbered = (u64, Result<Texts, String>);

/// Where a box gets its configuration and its keys from.
#[derive(Debug)]
pub struct KeyReader {
    file: PathBuf,
    /// The name of the box, of those of the file.
    name: String,
    /// What steers all bundles, whatever the file says.
    cc: Option<Spec>,
    process: Option<UnixStream>,
    /// Number of the last request.
    asked: Cell<u64>,
}

impl KeyReader {
    /// Who is to read the configuration and its keys: another process where the box will be another user.
    pub fn start(config: &Config, confinement: &Confinement) -> io::Result<Self> {
        let (file, name) = (config.file.clone(), config.name.clone());
        let Some(account) = &confinement.account else { return Ok(Self::with(file, name, None)) };
        let (own, other) = UnixStream::pair()?;
        own.set_read_timeout(Some(START_PATIENCE))?;
        own.set_write_timeout(Some(PATIENCE))?;
        let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
        // Not waited for: it ends with its stdin, and then so does this process.
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

    /// A file in Python that is given steers all bundles of whatever is read from now on.
    pub fn steer_by(&mut self, python: Option<&Path>) {
        self.cc = python.map(|file| live::named::of(file, None));
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
                // From now on packets may wait for it.
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
            let reason = "the reader of the key files left some out";
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
        // Others, and the rest of one of which a part was read, are of requests that nobody waits for.
        if let Ok((of, texts)) = serde_json::from_slice::<Numbered>(&answer)
            && of == number
        {
            return Ok(texts);
        }
    }
}

/// Is that process, for the box `name` of this configuration file, as this user, until stdin ends.
pub fn serve(file: &Path, name: &str, uid: u32, gid: u32) -> io::Result<()> {
    // Signals of the terminal are for the box, which ends this process in its time.
    let _signals = block_signals()?;
    // Without the buffer of the standard library's.
    let stream = UnixStream::from(nix::unistd::dup(io::stdin())?);
    Confinement::to(Account::of(uid, gid)).confine(Task::Keys)?;
    serve_on(&stream, file, name)
}

fn serve_on(stream: &UnixStream, file: &Path, name: &str) -> io::Result<()> {
    // What root has started the box with is root's word, whoever owns it. Later the box asks, and whoever may
    // write the file has a say in what is read for it.
    let mut check: fn(&Metadata) -> Result<(), String> = |_| Ok(());
    let mut flags = 0;
    while let Some((source, number)) = next_request(stream)? {
        let texts = read_texts(file, name, source, flags, check);
        let texts = texts.map_err(|error| error.to_string());
        answer(stream, &(number, texts))?;
        // Nothing may keep the one waiting who reads for the box.
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

/// Refuses what is no file, such as a pipe, which may have no end.
fn require_file(file: &Metadata) -> Result<(), String> {
    if file.is_file() { Ok(()) } else { Err("allowed is a regular file".into()) }
}

/// Refuses a file that others than root may write.
fn require_of_root(file: &Metadata) -> Result<(), String> {
    require_file(file)?;
    let (owner, mode) = (file.uid(), file.mode() & 0o7777);
    if owner == 0 && mode & 0o022 == 0 {
        return Ok(());
    }
    Err(format!(
        "owned by user {owner}, mode {mode:04o}: once a box has become another user, allowed is a file that \
         root alone may write, for it says which key files are read: `chown root` and `chmod go-w` it, or \
         start the box again"
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
        // `forebay apply` writes it, and no link.
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
    fn what_is_read_for_a_box_is_what_it_would_read_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = files(folder.path());
        let (own, other) = UnixStream::pair().unwrap();
        let served = file.clone();
        let server = std::thread::spawn(move || serve_on(&other, &served, NAME));
        let direct = KeyReader::with(file.clone(), NAME.into(), None);
        let reader = KeyReader::with(file.clone(), NAME.into(), Some(own));
        let first = told(&reader, Source::Own).unwrap();
        assert_eq!(Ok(first.clone()), told(&direct, Source::Own));
        // Later reads are of files of root's.
        if nix::unistd::geteuid().is_root() {
            // A key that is replaced is seen, a file with fewer bundles, and what is wrong is said of its file.
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
            // Whoever may write the file could have any key file read.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
            let error = told(&reader, Source::Own).unwrap_err();
            assert!(error.contains("mode 0664: once a box has become another user"), "{error}");
        }
        drop(reader);
        server.join().unwrap().unwrap();
        let (own, _) = UnixStream::pair().unwrap();
        let error = told(&KeyReader::with(file, NAME.into(), Some(own)), Source::Own).unwrap_err();
        assert!(error.starts_with("the reader of the key files: "), "{error}");
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next() {
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
        // The answer to the first is there before the second is asked for.
        waiting.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut fds = [PollFd::new(waiting.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1));
        // Later reads are of files of root's.
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
    fn a_candidate_is_a_file_and_no_link_or_pipe() {
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
