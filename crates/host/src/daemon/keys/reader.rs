//! Who reads the key files: the box itself, or, once it is another user's, a process that keeps the one
//! capability for that.
//!
//! The process is told the files when it is started, as root, and no others later. It answers each byte on its
//! stdin, a socket, with the contents of all of them as one line, and ends with the box.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_core::bundle::keys::KeyRing;
use nix::unistd::{Gid, Uid};

use super::{KeyFileError, MAX_FILE, parse, read};
use crate::daemon::config::MAX_BUNDLES;
use crate::service::privileges::seccomp::Task;
use crate::service::privileges::{Account, Confinement};
use crate::service::supervisor::block_signals;

/// How long the process may take to read the files.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer: each byte of a key file may be escaped (JSON) into six.
const MAX_ANSWER: u64 = MAX_BUNDLES as u64 * (6 * MAX_FILE + 64);

/// Texts of the files, in order; or why not.
type Texts = Result<Vec<String>, String>;

/// Where a box gets its keys from.
#[derive(Debug)]
pub struct KeyReader {
    files: Vec<PathBuf>,
    process: Option<UnixStream>,
}

impl KeyReader {
    /// Who is to read `files`, in the order of the bundles: another process where the box will be another user.
    pub fn start(files: Vec<PathBuf>, confinement: &Confinement) -> io::Result<Self> {
        let Some(account) = &confinement.account else { return Ok(Self { files, process: None }) };
        let (own, other) = UnixStream::pair()?;
        own.set_read_timeout(Some(PATIENCE))?;
        own.set_write_timeout(Some(PATIENCE))?;
        let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
        // Not waited for: it ends with its stdin, and then so does this process.
        Command::new("/proc/self/exe")
            .args(["read-keys", "--uid", &uid, "--gid", &gid, "--"])
            .args(&files)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { files, process: Some(own) })
    }

    /// Reads all keys, in the order of the bundles.
    pub fn load(&self) -> Result<Vec<KeyRing>, KeyFileError> {
        let Some(process) = &self.process else {
            return self.files.iter().map(|file| super::load(file)).collect();
        };
        let texts = ask(process).map_err(|error| {
            KeyFileError::Reader(format!("the reader of the key files: {error}"))
        })?;
        let texts = texts.map_err(KeyFileError::Reader)?;
        if texts.len() != self.files.len() {
            return Err(KeyFileError::Reader("the reader of the key files left some out".into()));
        }
        self.files.iter().zip(&texts).map(|(file, text)| parse(file, text)).collect()
    }
}

fn ask(mut process: &UnixStream) -> io::Result<Texts> {
    process.write_all(b"\n")?;
    let mut answer = Vec::new();
    BufReader::new(process).take(MAX_ANSWER).read_until(b'\n', &mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// Is that process, for these files, as this user, until stdin ends.
pub fn serve(files: &[PathBuf], uid: u32, gid: u32) -> io::Result<()> {
    // Signals of the terminal are for the box, which ends this process in its time.
    let _signals = block_signals()?;
    let account = Account { name: String::new(), uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) };
    // Without the buffer of the standard library's.
    let stream = UnixStream::from(nix::unistd::dup(io::stdin())?);
    Confinement::to(account).confine(Task::Keys)?;
    serve_on(&stream, files)
}

fn serve_on(mut stream: &UnixStream, files: &[PathBuf]) -> io::Result<()> {
    loop {
        let mut request = [0];
        if stream.read(&mut request)? == 0 {
            return Ok(());
        }
        let texts: Texts = files.iter().map(|file| read_as_text(file)).collect();
        let mut answer = serde_json::to_vec(&texts)?;
        answer.push(b'\n');
        stream.write_all(&answer)?;
    }
}

fn read_as_text(file: &Path) -> Result<String, String> {
    read(file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::generate;
    use super::*;

    #[test]
    fn what_is_read_for_a_box_is_what_it_would_read_itself() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = ["a", "b"].map(|name| folder.path().join(name)).into();
        files.iter().for_each(|file| generate(file).unwrap());
        let (own, other) = UnixStream::pair().unwrap();
        let served = files.clone();
        let server = std::thread::spawn(move || serve_on(&other, &served));
        let direct = KeyReader { files: files.clone(), process: None };
        let reader = KeyReader { files: files.clone(), process: Some(own) };
        assert_eq!(reader.load().unwrap(), direct.load().unwrap());
        // A key that is replaced is seen, and what is wrong is said of its file.
        std::fs::remove_file(&files[0]).unwrap();
        generate(&files[0]).unwrap();
        assert_eq!(reader.load().unwrap(), direct.load().unwrap());
        std::fs::write(&files[1], "no key\n").unwrap();
        let error = reader.load().unwrap_err().to_string();
        assert_eq!(error, direct.load().unwrap_err().to_string());
        std::fs::remove_file(&files[1]).unwrap();
        let error = reader.load().unwrap_err().to_string();
        assert_eq!(error, direct.load().unwrap_err().to_string());
        drop(reader);
        server.join().unwrap().unwrap();
        let (own, _) = UnixStream::pair().unwrap();
        let error = KeyReader { files, process: Some(own) }.load().unwrap_err().to_string();
        assert!(error.starts_with("the reader of the key files: "), "{error}");
    }
}
