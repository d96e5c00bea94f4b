//! Who reads the configuration file again, and the key files that it names: the box itself, or, once it is
//! another user's, a process that keeps the one capability for that.
//!
//! The process is told the configuration file when it is started, as root. It answers each byte on its stdin, a
//! socket, with the texts of the file (or of its candidate) and of the key files as one line, and ends with
//! the box. What it answers of a key file is a key file's: nothing else that root alone may read gets out.

use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_core::bundle::keys::KeyRing;
use nix::unistd::{Gid, Uid};
use serde::{Deserialize, Serialize};

use super::{KeyFileError, MAX_FILE, parse, read};
use crate::daemon::DaemonError;
use crate::daemon::config::{self, Config, MAX_BUNDLES};
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::block_signals;

/// How long the process may take to read the files.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer: each byte of a file may be escaped (JSON) into six.
const MAX_ANSWER: u64 = 6 * config::MAX_FILE + MAX_BUNDLES as u64 * (6 * MAX_FILE + 64);

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

/// Where a box gets its configuration and its keys from.
#[derive(Debug)]
pub struct KeyReader {
    file: PathBuf,
    process: Option<UnixStream>,
}

impl KeyReader {
    /// Who is to read the configuration `file` and its keys: another process where the box will be another user.
    pub fn start(file: PathBuf, confinement: &Confinement) -> io::Result<Self> {
        let Some(account) = &confinement.account else { return Ok(Self { file, process: None }) };
        let (own, other) = UnixStream::pair()?;
        own.set_read_timeout(Some(PATIENCE))?;
        own.set_write_timeout(Some(PATIENCE))?;
        let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
        // Not waited for: it ends with its stdin, and then so does this process.
        Command::new("/proc/self/exe")
            .args(["read-keys", "--uid", &uid, "--gid", &gid, "--"])
            .arg(&file)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { file, process: Some(own) })
    }

    /// Reads the configuration and all its keys.
    pub fn load(&self, source: Source) -> Result<Loaded, DaemonError> {
        let Texts { config: text, keys: texts } = match &self.process {
            None => read_texts(&self.file, source, |_| Ok(()))?,
            Some(process) => {
                let failed = |error| format!("the reader of the key files: {error}");
                let answer = ask(process, source).map_err(failed);
                answer.flatten().map_err(KeyFileError::Reader)?
            }
        };
        let config = Config::parse(&self.file, &text)?;
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

fn ask(mut process: &UnixStream, source: Source) -> io::Result<Result<Texts, String>> {
    process.write_all(&[source as u8])?;
    let mut answer = Vec::new();
    BufReader::new(process).take(MAX_ANSWER).read_until(b'\n', &mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// Is that process, for this configuration file, as this user, until stdin ends.
pub fn serve(file: &Path, uid: u32, gid: u32) -> io::Result<()> {
    // Signals of the terminal are for the box, which ends this process in its time.
    let _signals = block_signals()?;
    let account = Account { name: String::new(), uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) };
    // Without the buffer of the standard library's.
    let stream = UnixStream::from(nix::unistd::dup(io::stdin())?);
    Confinement::to(account).confine(Task::Keys)?;
    serve_on(&stream, file)
}

fn serve_on(mut stream: &UnixStream, file: &Path) -> io::Result<()> {
    // What root has started the box with is root's word, whoever owns it. Later the box asks, and whoever may
    // write the file has a say in what is read for it.
    let mut check: fn(&Metadata) -> Result<(), String> = |_| Ok(());
    loop {
        let mut request = [0];
        if stream.read(&mut request)? == 0 {
            return Ok(());
        }
        let is_candidate = request[0] == Source::Candidate as u8;
        let source = if is_candidate { Source::Candidate } else { Source::Own };
        let texts = read_texts(file, source, check).map_err(|error| error.to_string());
        let mut answer = serde_json::to_vec(&texts)?;
        answer.push(b'\n');
        stream.write_all(&answer)?;
        check = require_of_root;
    }
}

/// Refuses a file that others than root may write.
fn require_of_root(file: &Metadata) -> Result<(), String> {
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
    source: Source,
    check: impl FnOnce(&Metadata) -> Result<(), String>,
) -> Result<Texts, DaemonError> {
    let text = match source {
        Source::Own => Config::read(file, check)?,
        Source::Candidate => Config::read(&candidate_of(file), check)?,
    };
    let config = Config::parse(file, &text)?;
    let key_text = |bundle: &config::BundleConfig| {
        let text = read(&bundle.key_file)?;
        parse(&bundle.key_file, &text)?;
        Ok(text)
    };
    let keys = config.bundles.iter().map(key_text).collect::<Result<_, KeyFileError>>()?;
    Ok(Texts { config: text, keys })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::generate;
    use super::*;

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
        let server = std::thread::spawn(move || serve_on(&other, &served));
        let direct = KeyReader { file: file.clone(), process: None };
        let reader = KeyReader { file: file.clone(), process: Some(own) };
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
        let error = told(&KeyReader { file, process: Some(own) }, Source::Own).unwrap_err();
        assert!(error.starts_with("the reader of the key files: "), "{error}");
    }
}
