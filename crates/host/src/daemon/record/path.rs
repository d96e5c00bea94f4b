//! The path of each bundle in a recording: rows of 100 ms ([`PathRow`]), a line each in `path.jsonl`.
//!
//! Looks hand over the newest spans of each bundle. A recording works out the rows at its end, since a row needs what
//! was measured after it.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;

use forebay_core::record::{PathRecord, PathRow, path_rows, path_times};
use forebay_core::text::of_parser;
use serde::{Deserialize, Serialize};

use super::figures::BUNDLES_MAX;
use super::{ArchiveError, Look, archive, each_line};

/// Most rows of a recording: five busy bundles for an hour, in some 30 MB of text. Half of it cuts such a recording
/// short; twice of it fills a quarter of what a recording may unpack to.
const ROWS_MAX: usize = 200_000;

/// The place of a bundle's name in the recording of a probe.
pub const PROBED: &str = "probe";

/// The spans of each bundle, as looks bring them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spans {
    bundles: BTreeMap<String, Vec<PathRecord>>,
    count: usize,
    is_full: bool,
}

impl Spans {
    /// Takes the spans out of a look. `false`: from this look on spans are left out, for there are too many.
    pub fn take(&mut self, look: &mut Look) -> bool {
        let was_full = self.is_full;
        for bundle in look.boxes.iter_mut().flat_map(|status| &mut status.bundles) {
            let Some(shaping) = &mut bundle.shaping else { continue };
            let spans = std::mem::take(&mut shaping.path);
            if spans.is_empty() {
                continue;
            }
            let known = self.bundles.entry(bundle.name.clone()).or_default();
            let mut before_ns = known.last().map_or(0, |it| it.at_ns);
            for span in spans {
                // After a shorter round trip, a span may end before the previous kept span.
                if span.at_ns <= before_ns {
                    continue;
                }
                before_ns = span.at_ns;
                if self.count == ROWS_MAX {
                    self.is_full = true;
                    break;
                }
                known.push(span);
                self.count += 1;
            }
        }
        was_full || !self.is_full
    }

    /// The member `path.jsonl`, with these rows of a probe; `None`: there are neither spans nor rows.
    pub fn to_member(&self, probed: &[PathRow]) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let of_bundles = self.bundles.iter().map(|(name, spans)| (name.as_str(), path_rows(spans)));
        for (bundle, rows) in of_bundles.chain([(PROBED, probed.to_vec())]) {
            for row in rows {
                serde_json::to_writer(&mut bytes, &Line { bundle: bundle.into(), row })?;
                bytes.push(b'\n');
            }
        }
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

/// A line of `path.jsonl`.
#[derive(Serialize, Deserialize)]
struct Line {
    bundle: String,
    #[serde(flatten)]
    row: PathRow,
}

/// The rows of each bundle of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paths(BTreeMap<String, Vec<PathRow>>);

impl Paths {
    /// Reads the paths in the archive `file`; none of an archive without paths.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is no recording, or one of its rows is invalid.
    pub fn read_archive(file: &Path) -> Result<Self, ArchiveError> {
        let mut paths = Self::default();
        archive::visit(file, &mut |name, member| {
            if name == MEMBER {
                paths = Self::read(member)?;
            }
            Ok(())
        })
        .map_err(|problem| ArchiveError { file: file.to_owned(), problem })?;
        Ok(paths)
    }

    /// Reads one row per line; `Err`: the number of the first invalid line, and its problem.
    pub fn read(member: &mut dyn BufRead) -> Result<Self, String> {
        let mut paths = BTreeMap::<String, Vec<PathRow>>::new();
        each_line(member, |number, line| {
            if number > ROWS_MAX {
                return Err(format!("allowed are at most {ROWS_MAX} rows"));
            }
            let Line { bundle, row } =
                serde_json::from_str(line).map_err(|error| of_parser(&error.to_string()))?;
            if !(0.0..=1.0).contains(&row.loss) {
                return Err(format!("loss = {}: allowed is 0 to 1", row.loss));
            }
            if paths.len() == BUNDLES_MAX && !paths.contains_key(&bundle) {
                return Err(format!("bundle: allowed are at most {BUNDLES_MAX} in all"));
            }
            let rows = paths.entry(bundle).or_default();
            if rows.last().is_some_and(|last| last.at_ns >= row.at_ns) {
                return Err(format!("at_ns = {}: allowed are times in their order", row.at_ns));
            }
            rows.push(row);
            Ok(())
        })
        .map_err(|problem| format!("{MEMBER}:{problem}"))?;
        Ok(Self(paths))
    }

    /// Names of the bundles that have rows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Name and rows of the bundle `name`, or if `None`, of the bundle that carried most.
    pub fn of(&self, name: Option<&str>) -> Option<(&str, &[PathRow])> {
        let carried = |rows: &[PathRow]| -> f64 {
            rows.iter().map(|row| row.rate_bps as f64 * row.took_ns as f64).sum()
        };
        let named = self.0.iter().filter(|(bundle, _)| name.is_none_or(|name| name == *bundle));
        let most = named.max_by(|one, other| carried(one.1).total_cmp(&carried(other.1)));
        most.map(|(bundle, rows)| (bundle.as_str(), rows.as_slice()))
    }

    /// The path of each bundle in a sentence.
    pub fn sentences(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(bundle, rows)| (bundle.clone(), sentence(rows))).collect()
    }
}

/// The member that has the rows.
pub const MEMBER: &str = "path.jsonl";

/// How long the rows last, and the ranges of what was measured.
fn sentence(rows: &[PathRow]) -> String {
    let [whole, measured] = path_times(rows).map(|time| time.as_secs_f64());
    let share = 100.0 * (measured / whole.max(1e-9)).min(1.0);
    let rates = rows.iter().filter(|row| row.is_measured).map(|row| row.rate_bps);
    let rate = range(rates, 1e6).map_or_else(
        || "the bundle never filled it".into(),
        |range| format!("{range} Mbit/s where the bundle filled it"),
    );
    let rtt = range(rows.iter().map(|row| row.rtt_ns), 1e6).unwrap_or_default();
    format!(
        "path over {whole:.0} s, measured {share:.0} % of the time: {rate}, round trip without \
         queue {rtt} ms"
    )
}

fn range(values: impl Iterator<Item = u64> + Clone, unit: f64) -> Option<String> {
    let (least, most) = (values.clone().min()? as f64 / unit, values.max()? as f64 / unit);
    Some(format!("{least:.1} to {most:.1}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, sendbox};
    use super::super::{About, FORMAT, Recording, Told};
    use super::*;

    /// A look at this second, with the spans of the last 3.2 s at 8 Mbit/s.
    fn look_at(second: u64) -> Look {
        let span = |number: u64| PathRecord {
            at_ns: (100 * number) * 1_000_000,
            took_ns: 100_000_000,
            received_bytes: 100_000,
            least_rtt_ns: 40_000_000,
            least_raw_rtt_ns: 40_000_000,
            median_rtt_ns: if number.is_multiple_of(50) { 40_000_000 } else { 50_000_000 },
            ..PathRecord::default()
        };
        let mut status = sendbox(second, &[(second, "shaping")]);
        let newest = 10 * second;
        let spans = (newest.saturating_sub(31).max(1)..=newest).map(span).collect();
        status.bundles[0].shaping.as_mut().unwrap().path = spans;
        look(second as f64, status)
    }

    fn written(recording: &Recording) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), recording.to_file().unwrap()).unwrap();
        file
    }

    #[test]
    fn recorded_rows_are_read_once_each() {
        let about = About { format: FORMAT, ..About::default() };
        let mut recording = Recording::new(about);
        for second in 1..=20 {
            assert!(recording.add(look_at(second)));
        }
        let mut stripped = recording.looks.iter().flat_map(|look| &look.boxes[0].bundles);
        assert!(stripped.all(|bundle| bundle.shaping.as_ref().unwrap().path.is_empty()));
        let file = written(&recording);
        let paths = Paths::read_archive(file.path()).unwrap();
        let (name, rows) = paths.of(None).unwrap();
        assert_eq!((name, rows.len()), ("b", 200));
        assert!(rows.iter().all(|row| row.rate_bps == 8_000_000 && row.rtt_ns == 40_000_000));
        assert_eq!(rows.iter().filter(|row| !row.is_measured).count(), 4);
        assert!(paths.of(Some("c")).is_none());
        let told = Told::read(file.path()).unwrap();
        let expected = "path over 20 s, measured 98 % of the time: 8.0 to 8.0 Mbit/s where the bundle filled it, \
                        round trip without queue 40.0 to 40.0 ms";
        assert_eq!(told.paths, [("b".to_string(), expected.to_string())]);
    }

    #[test]
    fn archives_without_rows_have_no_path() {
        let mut recording = Recording::new(About { format: FORMAT, ..About::default() });
        assert!(recording.add(look(0.0, sendbox(5, &[(4, "measuring")]))));
        let file = written(&recording);
        assert!(Paths::read_archive(file.path()).unwrap().of(None).is_none());
        assert!(Told::read(file.path()).unwrap().paths.is_empty());
    }

    #[test]
    fn spans_are_bounded_and_the_rest_noted() {
        let mut spans = Spans { count: ROWS_MAX - 5, ..Spans::default() };
        assert!(!spans.take(&mut look_at(1)));
        assert!(spans.take(&mut look_at(2)), "noted once");
        assert_eq!(spans.bundles["b"].len(), 5);
    }

    #[test]
    fn wrong_rows_are_refused_with_their_line() {
        let row = |at_ns: u64, loss: f64| {
            let row = PathRow { at_ns, loss, ..PathRow::default() };
            serde_json::to_string(&Line { bundle: "b".into(), row }).unwrap()
        };
        for (text, problem) in [
            (row(1, 2.0), "path.jsonl:1: loss = 2: allowed is 0 to 1"),
            (format!("{}\n{}", row(1, 0.0), row(1, 0.0)), "path.jsonl:2: at_ns = 1: allowed are"),
            ("{}".into(), "path.jsonl:1: missing field"),
        ] {
            let error = Paths::read(&mut text.as_bytes()).unwrap_err();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
