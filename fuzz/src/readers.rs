//! Commands that read files: none may panic, take long or much memory over a file with any contents.
//!
//! The formats are in `readers.toml`. Each run is its own process, so an operator would see the same
//! failures.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;

use crate::mutate::Mutator;

/// The table of formats.
pub const TABLE: &str = include_str!("../readers.toml");
/// Most CPU time over a file.
const LONGEST: Duration = Duration::from_secs(10);
/// Time limit of a command. Beyond it the command hangs, or gets a processor for less than a sixth of the time.
const HANG: Duration = Duration::from_secs(60);
/// Most memory of a process beyond the size of its file (KiB, as `ru_maxrss` of getrusage(2) counts).
const MEMORY_KIB: i64 = 256 * 1024;
/// The exit code of a Rust program that panics.
const PANICKED: i32 = 101;
/// Text that Rust writes on stderr at a panic, also at one that only ends a run of several (`std::panic`).
const PANICKED_AT: &str = " panicked at ";
/// Name of the file with a command's stderr.
const STDERR: &str = "stderr";
/// Longest file that is made: the samples are shorter.
const LEN_MAX: usize = 1 << 16;
/// How often a running command is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A key, for files that name one.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// A format and the command that reads it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reader {
    /// The name of the format, also of the folder of findings.
    pub format: String,
    /// Arguments of the command; `FILE` is the mutated file, or its folder.
    pub command: Vec<String>,
    /// Name of the mutated file, where another file names it.
    #[serde(default = "mutated")]
    file: String,
    /// Folders of valid files, from the root of the repository.
    samples: Vec<PathBuf>,
    /// Files next to the mutated one, by name.
    #[serde(default)]
    beside: BTreeMap<String, String>,
    /// Keys next to the mutated file.
    #[serde(default)]
    keys: Vec<String>,
    /// The command takes the folder of the file.
    #[serde(default)]
    takes_folder: bool,
    /// The file is a tar archive in gzip of the files in the sample's folder, with one member mutated. Mutating the
    /// archive itself would be pointless: its checksum detects nearly every change.
    #[serde(default)]
    is_packed: bool,
    /// Arguments of commands and keys of files that take this format.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Whether it may take longer than [`LONGEST`].
    #[serde(default)]
    may_last: bool,
}

#[derive(Deserialize)]
struct Table {
    reader: Vec<Reader>,
}

fn mutated() -> String {
    "mutated.toml".into()
}

/// All formats.
///
/// # Panics
///
/// The table cannot be read, which a test of it finds.
pub fn readers() -> Vec<Reader> {
    let table: Table = toml::from_str(TABLE).expect("readers.toml can be read");
    table.reader
}

/// A valid file, or a member of an archive.
struct Sample {
    /// Path below the folder of samples.
    name: PathBuf,
    bytes: Vec<u8>,
}

/// A tar archive in gzip.
fn pack(members: &[Sample]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for Sample { name, bytes } in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, name, &bytes[..]).expect("memory takes all");
    }
    archive.into_inner().and_then(GzEncoder::finish).expect("memory takes all")
}

/// Results of the files of a format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Files that the command accepted.
    pub taken: u64,
    /// Files that the command refused.
    pub refused: u64,
    /// The most CPU time of a run.
    pub longest: Duration,
    /// The most memory of a run (KiB).
    pub most_kib: i64,
}

impl Reader {
    /// Runs `program` on mutated files for `time`. The first files are the unchanged samples.
    ///
    /// # Errors
    ///
    /// A command that panicked, was killed by a signal, or took too long or too much memory, with its file; also
    /// missing samples.
    pub fn fuzz(&self, program: &Path, time: Duration, seed: u64) -> Result<Outcome, String> {
        let mut samples = self.samples().map_err(|error| format!("samples: {error}"))?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        self.prepare(folder.path()).map_err(|error| error.to_string())?;
        let (started, mut mutator) = (Instant::now(), Mutator::of_length(seed, LEN_MAX));
        let mut outcome = Outcome::default();
        let mut as_they_are = self.whole(&samples).into_iter();
        let mut turn = 0;
        while started.elapsed() < time || as_they_are.len() > 0 {
            let input = as_they_are.next().unwrap_or_else(|| {
                turn += 1;
                self.mutated(&mut samples, turn, &mut mutator)
            });
            self.run(program, folder.path(), &input, &mut outcome).map_err(|what| {
                let path = crate::save(&format!("readers-{}", self.format), &input);
                format!("{what}; the file is {path}")
            })?;
        }
        if outcome.taken == 0 {
            return Err(
                "the command accepted no sample: code after the first refusal is untested".into()
            );
        }
        Ok(outcome)
    }

    /// Returns the samples as whole files.
    fn whole(&self, samples: &[Sample]) -> Vec<Vec<u8>> {
        match self.is_packed {
            true => vec![pack(samples)],
            false => samples.iter().map(|sample| sample.bytes.clone()).collect(),
        }
    }

    /// A mutated file; for an archive, one member is mutated, each in turn.
    fn mutated(&self, samples: &mut [Sample], turn: usize, mutator: &mut Mutator) -> Vec<u8> {
        if !self.is_packed {
            let corpus: Vec<Vec<u8>> = samples.iter().map(|sample| sample.bytes.clone()).collect();
            return mutator.next(&corpus);
        }
        let at = turn % samples.len();
        let changed = mutator.next(std::slice::from_ref(&samples[at].bytes));
        let before = std::mem::replace(&mut samples[at].bytes, changed);
        let file = pack(samples);
        samples[at].bytes = before;
        file
    }

    /// The samples, in order of their names.
    fn samples(&self) -> io::Result<Vec<Sample>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut samples = Vec::new();
        for folder in self.samples.iter().map(|sample| root.join(sample)) {
            let mut folders = vec![folder.clone()];
            while let Some(path) = folders.pop() {
                for entry in fs::read_dir(path)? {
                    let path = entry?.path();
                    if path.is_dir() {
                        folders.push(path);
                        continue;
                    }
                    let name = path.strip_prefix(&folder).unwrap_or(&path).to_owned();
                    samples.push(Sample { name, bytes: fs::read(&path)? });
                }
            }
        }
        samples.sort_by(|a, b| a.name.cmp(&b.name));
        match samples.is_empty() {
            true => Err(io::Error::other("no samples")),
            false => Ok(samples),
        }
    }

    fn prepare(&self, folder: &Path) -> io::Result<()> {
        for (name, text) in &self.beside {
            fs::write(folder.join(name), text)?;
        }
        self.keys.iter().try_for_each(|name| write_secret(&folder.join(name), KEY.as_bytes()))
    }

    /// Runs the command once.
    fn run(
        &self,
        program: &Path,
        folder: &Path,
        input: &[u8],
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let file = folder.join(&self.file);
        write_secret(&file, input).map_err(|error| error.to_string())?;
        let taken = if self.takes_folder { "." } else { self.file.as_str() };
        let arguments =
            self.command.iter().map(|it| if it == "FILE" { taken } else { it.as_str() });
        let mut command = Command::new(program);
        command.current_dir(folder).args(arguments).stdin(Stdio::null());
        let stderr = folder.join(STDERR);
        command.stdout(Stdio::null());
        command.stderr(fs::File::create(&stderr).map_err(|error| error.to_string())?);
        let started = Instant::now();
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let Ended { status, cpu, most_kib } = loop {
            if let Some(ended) = ended(&child).map_err(|error| error.to_string())? {
                break ended;
            }
            let patience = if self.may_last { LONGEST } else { HANG };
            if started.elapsed() > patience {
                let _ = child.kill();
                let _ = child.wait();
                return if self.may_last { Ok(()) } else { Err(format!("more than {HANG:?}")) };
            }
            thread::sleep(LOOK_EVERY);
        };
        outcome.most_kib = outcome.most_kib.max(most_kib);
        outcome.longest = outcome.longest.max(cpu);
        if let Some(signal) = status.signal() {
            return Err(format!("killed by signal {signal}"));
        }
        let said = fs::read(&stderr).map_err(|error| error.to_string())?;
        if status.code() == Some(PANICKED) || String::from_utf8_lossy(&said).contains(PANICKED_AT) {
            return Err("panicked".into());
        }
        if most_kib > MEMORY_KIB + input.len().div_ceil(1024) as i64 {
            return Err(format!("{} MiB of memory", most_kib / 1024));
        }
        if cpu > LONGEST && !self.may_last {
            return Err(format!("{cpu:?} of CPU time"));
        }
        *if status.success() { &mut outcome.taken } else { &mut outcome.refused } += 1;
        Ok(())
    }
}

/// A process that has ended.
struct Ended {
    status: ExitStatus,
    cpu: Duration,
    most_kib: i64,
}

/// Whether and how `child` has ended; `None` while it runs. Only this function waits for it.
fn ended(child: &Child) -> io::Result<Option<Ended>> {
    let pid = child.id().cast_signed();
    let mut status = 0;
    // SAFETY: `rusage` is a plain structure of integers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers point to local values of the types that wait4(2) writes.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) } {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => {
            let time =
                |it: libc::timeval| Duration::new(it.tv_sec as u64, it.tv_usec as u32 * 1_000);
            Ok(Some(Ended {
                status: ExitStatus::from_raw(status),
                cpu: time(usage.ru_utime) + time(usage.ru_stime),
                most_kib: usage.ru_maxrss,
            }))
        }
    }
}

/// Writes a file that only its owner may read, as keys must be.
fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_samples_and_unique_name() {
        let readers = readers();
        for reader in &readers {
            assert!(!reader.samples().unwrap().is_empty(), "{}", reader.format);
            let alike = readers.iter().filter(|other| other.format == reader.format);
            assert_eq!(alike.count(), 1, "{}", reader.format);
            let takes_file = reader.command.iter().any(|it| it == "FILE");
            assert_ne!(takes_file, !reader.beside.is_empty(), "{}", reader.format);
        }
    }

    #[test]
    fn panics_and_signals_are_findings() {
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str| {
            let mut reader = readers().remove(0);
            reader.command = vec!["-c".into(), script.into()];
            reader.run(Path::new("sh"), folder.path(), b"x", &mut Outcome::default())
        };
        assert_eq!(run("exit 2"), Ok(()));
        assert!(run("exit 101").unwrap_err().contains("panicked"));
        assert!(
            run("echo \"thread 'x' panicked at y\" >&2; exit 1").unwrap_err().contains("panicked")
        );
        assert!(run("kill -9 $$").unwrap_err().contains("signal 9"));
    }
}
