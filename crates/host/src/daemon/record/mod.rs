//! Recordings of boxes over some minutes, for a bug report: `forebay record` writes a file, `forebay replay`
//! reads it. `forebay probe --record` writes one without looks.
//!
//! ```text
//! about.json       who recorded what, for how long, and what was left out and why
//! status.jsonl     a look at all boxes a line: the time, and their status
//! path.jsonl       the path of each bundle, a row of 100 ms a line; not in archives of before
//! log.txt          the boxes' log of these minutes
//! config/N.toml    the boxes' configuration files without comments; key files are never read
//! trace/N.jsonl    the newest rows of their traces, if there are any
//! ```
//! The file is a tar archive in gzip, which people can look into. Its reader got it from another person. So
//! its contents are bounded, no part of it is unpacked to a file, and each line is checked.

mod archive;
mod figures;
mod path;
mod story;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use forebay_core::record::PathRow;
use forebay_core::text::of_parser;
use serde::{Deserialize, Serialize};
use tracing::Level;

use self::archive::Archive;
pub use self::archive::is_archive;
pub use self::figures::Figures;
use self::figures::Summaries;
use self::path::Spans;
pub use self::path::{PROBED, Paths};
use self::story::Story;
pub use self::story::{MOMENTS_MAX, Moment};
use super::config::Config;
use super::status::Status;
use crate::log::events::EVENTS;

/// Version of the file; it grows when a part changes its meaning or is removed.
pub const FORMAT: u32 = 1;

/// Longest text of a log, in bytes.
pub const LOG_MAX: usize = 8 << 20;
/// Longest part of a trace, in bytes.
pub const TRACE_MAX: usize = 32 << 20;
/// Longest configuration file that is taken in (bytes).
const CONFIG_MAX: u64 = 4 << 20;
/// Most configuration files that are taken in.
const CONFIGS_MAX: usize = 16;
/// Longest line that is read (bytes): a look at some thousands of bundles. One line at a time takes up to
/// seven times its length in memory. The story also keeps the state of each of up to [`story::BOXES_MAX`]
/// boxes, as large as in one line.
const LINE_MAX: u64 = 8 << 20;
/// Bytes of looks above which no look is added.
const LOOKS_MAX: usize = 96 << 20;

/// Reason why a recording cannot be read: the file, the problem in it, and the allowed values.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct ArchiveError {
    file: PathBuf,
    problem: String,
}

/// Origin of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// Commit that the program was built from.
    pub commit: String,
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// Start of the recording (s since 1970, UTC).
    pub began_s: u64,
    /// Duration of the recording (s).
    pub took_s: f64,
    /// Parts that are missing, and why.
    pub left_out: Vec<String>,
}

/// Status of all boxes at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Time since the beginning (s).
    pub at_s: f64,
    /// The boxes that answered.
    pub boxes: Vec<Status>,
}

/// A recording of some minutes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Origin of the recording.
    pub about: About,
    /// All looks in order.
    pub looks: Vec<Look>,
    /// The log.
    pub log: String,
    /// Configuration files without comments.
    pub configs: Vec<String>,
    /// Rows of traces.
    pub traces: Vec<String>,
    /// The path as a probe loaded it.
    pub probed: Vec<PathRow>,
    /// What the paths carried.
    spans: Spans,
    /// Bytes of the looks as they are written.
    bytes: usize,
}

impl Recording {
    /// An empty recording of this origin.
    pub fn new(about: About) -> Self {
        Self { about, ..Self::default() }
    }

    /// Adds a look. Of a bundle's newest decisions it keeps those after the previous look, since repeated
    /// ones would fill the file. `false`: the recording is full.
    pub fn add(&mut self, mut look: Look) -> bool {
        if self.bytes > LOOKS_MAX {
            return false;
        }
        for status in &mut look.boxes {
            let mut before = self.looks.iter().rev().flat_map(|look| &look.boxes);
            let since_ns = before.find(|it| it.pid == status.pid).map(|it| it.at_ns);
            let shaping = status.bundles.iter_mut().filter_map(|bundle| bundle.shaping.as_mut());
            for shaping in shaping {
                shaping.decisions.retain(|it| since_ns.is_none_or(|since_ns| it.at_ns > since_ns));
            }
        }
        if !self.spans.take(&mut look) {
            self.left_out(format!(
                "paths end after {:.0} s: the file would get too \
                                   large",
                look.at_s
            ));
        }
        self.bytes += serde_json::to_vec(&look).map_or(0, |line| line.len() + 1);
        self.looks.push(look);
        true
    }

    /// Adds a configuration file, and the newest rows of the trace that it names. Its comments are removed,
    /// since they may hold anything. A file that cannot be read is noted as left out.
    pub fn add_config(&mut self, file: &Path) {
        let shown = file.display();
        if self.configs.len() == CONFIGS_MAX {
            return self
                .left_out(format!("{shown}: a recording holds at most {CONFIGS_MAX} files"));
        }
        let text = std::fs::metadata(file)
            .and_then(|it| {
                if it.len() > CONFIG_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
            })
            .and_then(|()| std::fs::read_to_string(file));
        let parsed = text.map_err(|error| error.to_string()).and_then(|text| {
            text.parse::<toml::Table>().map_err(|error| of_parser(error.message()))
        });
        let table = match parsed {
            Ok(table) => table,
            Err(reason) => return self.left_out(format!("{shown}: {reason}")),
        };
        self.configs.push(table.to_string());
        let boxes = Config::load_all(file).unwrap_or_default();
        for trace in boxes.into_iter().filter_map(|config| config.trace) {
            match newest_lines(&trace.file, TRACE_MAX) {
                Ok(rows) => self.traces.push(rows),
                Err(error) => self.left_out(format!("{}: {error}", trace.file.display())),
            }
        }
    }

    /// Notes a missing part and the reason.
    pub fn left_out(&mut self, what: String) {
        self.about.left_out.push(what);
    }

    /// The bytes of the file.
    pub fn to_file(&self) -> io::Result<Vec<u8>> {
        let mut archive = Archive::new(self.about.began_s);
        archive.add("about.json", &serde_json::to_vec_pretty(&self.about)?)?;
        let mut looks = Vec::new();
        for look in &self.looks {
            serde_json::to_writer(&mut looks, look)?;
            looks.push(b'\n');
        }
        archive.add("status.jsonl", &looks)?;
        if let Some(rows) = self.spans.to_member(&self.probed)? {
            archive.add(path::MEMBER, &rows)?;
        }
        archive.add("log.txt", self.log.as_bytes())?;
        for (place, config) in self.configs.iter().enumerate() {
            archive.add(&format!("config/{place}.toml"), config.as_bytes())?;
        }
        for (place, trace) in self.traces.iter().enumerate() {
            archive.add(&format!("trace/{place}.jsonl"), trace.as_bytes())?;
        }
        archive.finish()
    }
}

/// Summary of a recording, made look by look, so that memory does not grow with the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Origin of the recording.
    pub about: About,
    /// Number of looks.
    pub looks: usize,
    /// Events, in order of time.
    pub story: Vec<Moment>,
    /// Moments that are not in the story, beyond the first [`MOMENTS_MAX`].
    pub moments_left_out: usize,
    /// Measurements of each bundle, the busiest bundle first.
    pub figures: Vec<Figures>,
    /// Bundles whose path was recorded, and what it was like.
    pub paths: Vec<(String, String)>,
    /// Lines of the log that have these ids of events.
    pub logged: BTreeMap<&'static str, usize>,
}

impl Told {
    /// Reads `file`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is larger than a recording gets, or has members that a recording does not
    /// have. Or a line in it does not have the form that [`Recording::to_file`] writes.
    pub fn read(file: &Path) -> Result<Self, ArchiveError> {
        let wrong = |problem: String| ArchiveError { file: file.to_owned(), problem };
        let (mut about, mut looks, mut logged) = (None, None, None);
        let mut paths = Vec::new();
        archive::visit(file, &mut |name, member| {
            match name {
                "about.json" => about = Some(read_about(member)?),
                "status.jsonl" => looks = Some(Looks::read(member)?),
                "log.txt" => logged = Some(count_events(member)?),
                path::MEMBER => paths = Paths::read(member)?.sentences(),
                _ => {}
            }
            Ok(())
        })
        .map_err(wrong)?;
        let missing = |name: &str| wrong(format!("{name} is missing"));
        let about = about.ok_or_else(|| missing("about.json"))?;
        let looks: Looks = looks.ok_or_else(|| missing("status.jsonl"))?;
        let logged = logged.ok_or_else(|| missing("log.txt"))?;
        let (story, moments_left_out) = looks.story.finish();
        let (looks, figures) = (looks.count, looks.figures.finish());
        Ok(Self { about, looks, story, moments_left_out, figures, paths, logged })
    }
}

fn read_about(member: &mut dyn BufRead) -> Result<About, String> {
    let mut bytes = Vec::new();
    member.take(LINE_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let about: About = serde_json::from_slice(&bytes)
        .map_err(|error| format!("about.json: {}", of_parser(&error.to_string())))?;
    let format = about.format;
    if format != FORMAT {
        return Err(format!("about.json: format = {format}: allowed is {FORMAT}"));
    }
    Ok(about)
}

/// Counts the lines of a log with the ids of events of level WARN or worse.
fn count_events(member: &mut dyn BufRead) -> Result<BTreeMap<&'static str, usize>, String> {
    let mut counts = BTreeMap::new();
    each_line(member, |_, line| {
        for event in EVENTS.iter().filter(|event| event.level <= Level::WARN) {
            if line.contains(event.id) {
                *counts.entry(event.id).or_insert(0) += 1;
            }
        }
        Ok(())
    })
    .map_err(|problem| format!("log.txt:{problem}"))?;
    Ok(counts)
}

/// Summary of the looks, one after the other.
#[derive(Default)]
pub struct Looks {
    count: usize,
    last_s: Option<f64>,
    story: Story,
    figures: Summaries,
}

impl Looks {
    /// Reads one look per line; `Err`: the number of a line that is no look, and the problem in it.
    pub fn read(member: &mut dyn BufRead) -> Result<Self, String> {
        let mut looks = Self::default();
        each_line(member, |_, line| {
            let look = serde_json::from_str(line).map_err(|error| of_parser(&error.to_string()))?;
            looks.add(&look)
        })
        .map_err(|problem| format!("status.jsonl:{problem}"))?;
        Ok(looks)
    }

    fn add(&mut self, look: &Look) -> Result<(), String> {
        if self.last_s.is_some_and(|before| before > look.at_s) {
            return Err("at_s: allowed are times in their order".into());
        }
        self.last_s = Some(look.at_s);
        self.count += 1;
        self.story.add(look)?;
        self.figures.add(look)
    }

    /// The events and the measurements.
    pub fn finish(self) -> (Vec<Moment>, Vec<Figures>) {
        (self.story.finish().0, self.figures.finish())
    }
}

/// Passes each line to `take`, with its number from 1. Bytes that are not UTF-8 are replaced. `Err`: the
/// number of a line and the problem in it.
fn each_line(
    member: &mut dyn BufRead,
    mut take: impl FnMut(usize, &str) -> Result<(), String>,
) -> Result<(), String> {
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let wrong = |problem: String| format!("{number}: {problem}");
        let read = member.take(LINE_MAX + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|error| wrong(error.to_string()))? == 0 {
            break;
        }
        if bytes.len() as u64 > LINE_MAX {
            return Err(wrong(format!("allowed are lines of at most {LINE_MAX} bytes")));
        }
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        take(number, &String::from_utf8_lossy(line)).map_err(wrong)?;
    }
    Ok(())
}

/// The complete lines in the last `bytes_max` bytes of a file.
///
/// # Errors
///
/// The file cannot be read.
pub fn newest_lines(file: &Path, bytes_max: usize) -> io::Result<String> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(bytes_max as u64);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(bytes_max as u64).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line may lack its beginning, and the last line may be incomplete.
    let text =
        if begin == 0 { &text[..] } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok(text.rfind('\n').map_or("", |end| &text[..=end]).to_string())
}

#[cfg(test)]
mod tests {
    use forebay_core::record::DecisionRecord;

    use super::*;
    use crate::daemon::Role;
    use crate::daemon::status::{BundleStatus, ShapingStatus};

    /// A sendbox with one bundle, `at_s` seconds after the start, with decisions at the given seconds.
    pub(super) fn sendbox(at_s: u64, decisions: &[(u64, &str)]) -> Status {
        let record = |(at_s, state): &(u64, &str)| DecisionRecord {
            at_ns: at_s * 1_000_000_000,
            rate_bps: (*state == "shaping").then_some(90_000_000),
            state: (*state).into(),
            reason: "for a test".into(),
            ..DecisionRecord::default()
        };
        let decisions: Vec<DecisionRecord> = decisions.iter().map(record).collect();
        let shaping = ShapingStatus {
            cc: "copa".into(),
            qdisc: "fq_codel(limit=150ms)".into(),
            decision: decisions.last().cloned().unwrap_or_default(),
            decisions,
            ..ShapingStatus::default()
        };
        let bundle = BundleStatus {
            name: "b".into(),
            id: 1,
            shaping: Some(shaping),
            ..BundleStatus::default()
        };
        Status {
            at_ns: at_s * 1_000_000_000,
            uptime_ns: at_s * 1_000_000_000,
            bundles: vec![bundle],
            ..Status::new(Role::Sendbox, false)
        }
    }

    pub(super) fn look(at_s: f64, status: Status) -> Look {
        Look { at_s, boxes: vec![status] }
    }

    #[test]
    fn recording_round_trips_without_duplicate_decisions() {
        let mut recording = Recording {
            about: About { format: FORMAT, version: "1".into(), ..About::default() },
            log: "a line\nand FB0303 in another\nFB0101 is no news".into(),
            configs: vec!["[box]\n".into()],
            traces: vec!["{}\n".into()],
            ..Recording::default()
        };
        assert!(recording.add(look(0.0, sendbox(5, &[(4, "measuring")]))));
        assert!(recording.add(look(1.0, sendbox(6, &[(4, "measuring"), (6, "shaping")]))));
        let kept = |look: &Look| look.boxes[0].bundles[0].shaping.as_ref().unwrap().decisions.len();
        assert_eq!(recording.looks.iter().map(kept).collect::<Vec<_>>(), [1, 1]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tar.gz");
        std::fs::write(&file, recording.to_file().unwrap()).unwrap();
        assert!(is_archive(&file));
        let told = Told::read(&file).unwrap();
        assert_eq!((told.about, told.looks, told.figures[0].looks), (recording.about, 2, 2));
        assert_eq!((told.story.len(), told.moments_left_out), (3, 0), "{:?}", told.story);
        assert_eq!(told.logged, [("FB0303", 1)].into());
    }

    /// The sample was recorded when a bundle without feedback was `silent`, and a failed condition was `void`.
    #[test]
    fn archives_with_old_names_are_told() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/samples/archive");
        let text = |name| std::fs::read_to_string(sample.join(name)).unwrap();
        let fault =
            r#""void":[{"condition":"device","found":"wan0 is gone","fix":"bring it back"}]"#;
        let looks = text("status.jsonl").replacen(r#""void":[]"#, fault, 1);
        assert!(looks.contains(fault) && looks.contains(r#""state":"silent""#));
        let mut archive = Archive::new(0);
        for (name, text) in [
            ("about.json", text("about.json")),
            ("status.jsonl", looks),
            ("log.txt", text("log.txt")),
        ] {
            archive.add(name, text.as_bytes()).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.tar.gz");
        std::fs::write(&file, archive.finish().unwrap()).unwrap();
        let told = Told::read(&file).unwrap();
        for part in ["wan0 is gone: ", "silent, unshaped: no authentic message"] {
            assert!(
                told.story.iter().any(|it| it.what.starts_with(part)),
                "{part}: {:#?}",
                told.story
            );
        }
    }

    #[test]
    fn recorded_configuration_omits_comments_and_keys() {
        let folder = tempfile::tempdir().unwrap();
        let [file, trace] = ["box.toml", "box.trace"].map(|name| folder.path().join(name));
        std::fs::write(folder.path().join("b.key"), "SECRET").unwrap();
        let text = "# SECRET\n[box]\nrole = \"receivebox\" # SECRET\nwan = \"w\"\nlisten = \"192.0.2.2\"\n\
                    [[bundle]]\nname = \"b\"\nid = 1\npeer = \"192.0.2.1\"\nto = [\"10.1.2.0/24\"]\n\
                    from = [\"10.1.1.0/24\"]\nkey_file = \"b.key\"\n[trace]\nfile = \"box.trace\"\n";
        std::fs::write(&file, text).unwrap();
        let mut recording = Recording::default();
        recording.add_config(&file);
        assert_eq!(recording.about.left_out.len(), 1, "there is no trace yet");
        std::fs::write(&trace, "row\nrow that is being wri").unwrap();
        recording.add_config(&file);
        assert_eq!(recording.traces, ["row\n"]);
        assert!(recording.configs[1].contains("key_file = \"b.key\""), "{:?}", recording.configs);
        assert!(!recording.configs.concat().contains("SECRET"));
        recording.add_config(&folder.path().join("absent.toml"));
        assert!(recording.about.left_out[1].contains("absent.toml: No such file"));
    }

    #[test]
    fn long_file_keeps_its_newest_whole_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo\nthree\nfo").unwrap();
        for (bytes_max, lines) in
            [(100, "one\ntwo\nthree\n"), (13, "two\nthree\n"), (12, "three\n"), (8, ""), (0, "")]
        {
            assert_eq!(newest_lines(file.path(), bytes_max).unwrap(), lines, "{bytes_max}");
        }
    }

    #[test]
    fn invalid_recording_is_refused_with_its_position() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tar.gz");
        let about =
            |format: u32| serde_json::to_vec(&About { format, ..About::default() }).unwrap();
        for (members, problem) in [
            (vec![("about.json", about(FORMAT))], "status.jsonl is missing"),
            (vec![("log.txt", vec![b'x'; LINE_MAX as usize + 1])], "log.txt:1: allowed are lines"),
            (vec![("about.json", b"{".to_vec())], "about.json: EOF"),
            (vec![("about.json", about(9))], "format = 9: allowed is 1"),
            (
                vec![("about.json", about(FORMAT)), ("status.jsonl", b"{}\n".to_vec())],
                "status.jsonl:1: missing field",
            ),
            (
                vec![
                    ("about.json", about(FORMAT)),
                    (
                        "status.jsonl",
                        b"{\"at_s\":2,\"boxes\":[]}\n{\"at_s\":1,\"boxes\":[]}\n".to_vec(),
                    ),
                ],
                "at_s: allowed are times in their order",
            ),
        ] {
            let mut archive = Archive::new(0);
            for (name, bytes) in &members {
                archive.add(name, bytes).unwrap();
            }
            std::fs::write(&file, archive.finish().unwrap()).unwrap();
            let error = Told::read(&file).unwrap_err().to_string();
            assert!(
                error.starts_with(&*file.to_string_lossy()) && error.contains(problem),
                "{error}"
            );
        }
    }
}
