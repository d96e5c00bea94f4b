//! The file of a recording: a tar archive in gzip (RFC 1952), of bounded size, with members of a few names.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Largest file (bytes).
const FILE_MAX: u64 = 64 << 20;
/// Most bytes of all members and their headers together, unpacked.
const UNPACKED_MAX: u64 = 256 << 20;
/// Most members.
const MEMBERS_MAX: usize = 64;

/// Members that stand there once.
const NAMES: [&str; 4] = ["about.json", "status.jsonl", "path.jsonl", "log.txt"];
/// How the names of numbered members begin and end.
const NUMBERED: [(&str, &str); 2] = [("config/", ".toml"), ("trace/", ".jsonl")];

/// Whether a file begins like a gzip file; `false` if it cannot be read, or only once.
pub fn is_archive(file: &Path) -> bool {
    if !std::fs::metadata(file).is_ok_and(|it| it.is_file()) {
        return false;
    }
    let mut magic = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == [0x1f, 0x8b]
}

/// An archive under construction.
pub struct Archive {
    tar: tar::Builder<GzEncoder<Vec<u8>>>,
    made_s: u64,
}

impl Archive {
    /// An archive without members, created at `made_s` (s since 1970).
    pub fn new(made_s: u64) -> Self {
        Self { tar: tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default())), made_s }
    }

    /// Adds a member.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(is_known(name), "{name}");
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.made_s);
        self.tar.append_data(&mut header, name, bytes)
    }

    /// The bytes of the file.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.tar.into_inner()?.finish()
    }
}

/// Unpacks the archive `file`, and passes each member with its name to `visit`. Only the data that `visit`
/// keeps stays in memory. `Err`: the problem in the archive and the allowed values, or the error of `visit`.
pub fn visit(
    file: &Path,
    visit: &mut dyn FnMut(&str, &mut dyn BufRead) -> Result<(), String>,
) -> Result<(), String> {
    visit_at_most(file, UNPACKED_MAX, visit)
}

/// As [`visit`], with at most `unpacked_max` bytes unpacked.
fn visit_at_most(
    file: &Path,
    unpacked_max: u64,
    visit: &mut dyn FnMut(&str, &mut dyn BufRead) -> Result<(), String>,
) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("not an archive of `forebay record`: {error}");
    let opened = File::open(file).map_err(|error| error.to_string())?;
    let length = opened.metadata().map_err(|error| error.to_string())?.len();
    if length > FILE_MAX {
        return Err(format!("{length} bytes: allowed are at most {FILE_MAX}"));
    }
    let unpacked = GzDecoder::new(opened.take(FILE_MAX)).take(unpacked_max);
    let mut archive = tar::Archive::new(unpacked);
    let mut names = BTreeSet::new();
    for entry in archive.entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let shown = name.escape_debug();
        if !entry.header().entry_type().is_file() || !is_known(&name) {
            let allowed = "the members of a recording, which are files";
            return Err(format!("member \"{shown}\": allowed are {allowed}"));
        }
        if names.len() == MEMBERS_MAX {
            return Err(format!("member \"{shown}\": allowed are at most {MEMBERS_MAX}"));
        }
        let size = entry.size();
        let mut member = BufReader::new(Counting { entry, bytes: 0 });
        let visited = visit(&name, &mut member);
        // The part that `visit` did not read must be complete, too.
        let rest = io::copy(&mut member, &mut io::sink());
        if rest.is_ok() && member.get_ref().bytes != size {
            let allowed = format!("allowed are {unpacked_max} bytes in all, unpacked");
            return Err(format!("member \"{shown}\": cut off: {allowed}"));
        }
        visited?;
        rest.map_err(unreadable)?;
        if !names.insert(name.clone()) {
            return Err(format!("member \"{shown}\" exists twice"));
        }
    }
    Ok(())
}

/// A member that counts the bytes read from it.
struct Counting<'a, R: Read> {
    entry: tar::Entry<'a, R>,
    bytes: u64,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.entry.read(buffer)?;
        self.bytes += len as u64;
        Ok(len)
    }
}

fn is_known(name: &str) -> bool {
    let is_number = |text: &str| {
        (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut numbers = NUMBERED.iter().filter_map(|(start, end)| {
        name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end))
    });
    NAMES.contains(&name) || numbers.any(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        make: impl FnOnce(&mut tar::Builder<GzEncoder<Vec<u8>>>),
    ) -> tempfile::NamedTempFile {
        let mut archive = Archive::new(0);
        make(&mut archive.tar);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), archive.finish().unwrap()).unwrap();
        file
    }

    fn refused(make: impl FnOnce(&mut tar::Builder<GzEncoder<Vec<u8>>>)) -> String {
        visit(written(make).path(), &mut |_, _| Ok(())).expect_err("it is refused")
    }

    /// Adds a member that `tar::Builder` would not make: the name goes into the header unchanged.
    fn raw(
        tar: &mut tar::Builder<GzEncoder<Vec<u8>>>,
        name: &str,
        kind: tar::EntryType,
        size: u64,
    ) {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        tar.append(&header, io::empty()).unwrap();
    }

    #[test]
    fn escaping_names_links_and_unknown_entries_are_refused() {
        for name in ["../../etc/cron.d/x", "/etc/passwd", "config/../x.toml", "config/.toml", "x"] {
            let error = refused(|tar| raw(tar, name, tar::EntryType::Regular, 0));
            assert!(error.contains(name) && error.contains("allowed are the members"), "{error}");
        }
        for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Char] {
            let error = refused(|tar| raw(tar, "log.txt", kind, 0));
            assert!(error.contains("which are files"), "{error}");
        }
        let twice = refused(|tar| {
            (0..2).for_each(|_| raw(tar, "log.txt", tar::EntryType::Regular, 0));
        });
        assert!(twice.contains("twice"), "{twice}");
    }

    #[test]
    fn archive_above_the_size_limit_is_refused() {
        // A member with a false size.
        let lying = refused(|tar| raw(tar, "log.txt", tar::EntryType::Regular, 1 << 40));
        assert!(lying.contains("log.txt") || lying.contains("not an archive"), "{lying}");
        // Zeros shrink to a thousandth of their size.
        let zeros = vec![0; 1 << 20];
        let file = written(|tar| {
            let mut header = tar::Header::new_ustar();
            header.set_size(zeros.len() as u64);
            tar.append_data(&mut header, "log.txt", &zeros[..]).unwrap();
        });
        assert!(std::fs::metadata(file.path()).unwrap().len() < 1 << 14);
        assert!(visit(file.path(), &mut |_, _| Ok(())).is_ok());
        let bomb = visit_at_most(file.path(), 1 << 19, &mut |_, _| Ok(())).unwrap_err();
        assert!(bomb.contains("cut off: allowed are") || bomb.contains("not an archive"), "{bomb}");
    }

    #[test]
    fn a_file_that_is_no_archive_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bytes in [&b"text"[..], &[0x1f, 0x8b], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2]] {
            std::fs::write(file.path(), bytes).unwrap();
            let error = visit(file.path(), &mut |_, _| Ok(()));
            assert!(error.is_err(), "{bytes:?}");
            assert_eq!(is_archive(file.path()), bytes.starts_with(&[0x1f, 0x8b]));
        }
        let absent = visit(Path::new("/nonexistent/x"), &mut |_, _| Ok(())).unwrap_err();
        assert!(absent.contains("No such file"), "{absent}");
    }

    #[test]
    fn members_are_handed_over_in_order_and_counted() {
        let file = written(|tar| {
            for name in ["trace/0.jsonl", "log.txt", "trace/3.jsonl"] {
                let mut header = tar::Header::new_ustar();
                header.set_size(name.len() as u64);
                tar.append_data(&mut header, name, name.as_bytes()).unwrap();
            }
        });
        let mut seen = Vec::new();
        let mut keep = |name: &str, member: &mut dyn BufRead| {
            let mut text = String::new();
            // The first member is not read.
            if !seen.is_empty() {
                member.read_to_string(&mut text).map_err(|error| error.to_string())?;
            }
            seen.push((name.to_string(), text));
            Ok(())
        };
        visit(file.path(), &mut keep).unwrap();
        let expected = ["", "log.txt", "trace/3.jsonl"];
        let names = ["trace/0.jsonl", "log.txt", "trace/3.jsonl"];
        assert!(
            seen.iter()
                .map(|(name, text)| (&name[..], &text[..]))
                .eq(names.into_iter().zip(expected))
        );
        let stopped = visit(file.path(), &mut |_, _| Err("no".into())).unwrap_err();
        assert_eq!(stopped, "no");
        let many = refused(|tar| {
            for number in 0..=MEMBERS_MAX {
                raw(tar, &format!("trace/{number}.jsonl"), tar::EntryType::Regular, 0);
            }
        });
        assert!(many.contains("at most 64"), "{many}");
    }
}
