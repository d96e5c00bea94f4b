//! Lines of a box's values in its file, for errors that are found only by looking at files and devices.

use std::collections::BTreeMap;
use std::fmt::Display;

use forebay_reader::Problem;

use super::{Config, ConfigError};

/// Lines of a box's values in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    is_one_of_several: bool,
    lines: BTreeMap<KeyPlace, usize>,
}

/// A key as in a file of one box, with the index of its bundle, if it belongs to one.
type KeyPlace = (Option<usize>, &'static str);

impl Places {
    /// The lines of the existing values, in a file of one box or of several.
    pub(super) fn new(
        is_one_of_several: bool,
        lines: impl IntoIterator<Item = (KeyPlace, Option<usize>)>,
    ) -> Self {
        let lines = lines.into_iter().filter_map(|(place, line)| Some((place, line?)));
        Self { is_one_of_several, lines: lines.collect() }
    }
}

impl Config {
    /// A key as it appears in the box's file. Callers name keys as in a file of one box: `box.wan`,
    /// `bundle.peer`.
    pub fn key(&self, key: &str) -> String {
        let is_within = key.split('.').next().is_some_and(|table| table != "box");
        if self.places.is_one_of_several && is_within { format!("box.{key}") } else { key.into() }
    }

    /// An error in the value of a key of this bundle, or of the box. In the text, `what` follows the key.
    pub(in crate::daemon) fn problem(
        &self,
        bundle: Option<usize>,
        key: &'static str,
        what: impl Display,
    ) -> Problem {
        let line = self.places.lines.get(&(bundle, key)).copied();
        Problem::of_line(self.file.display(), line, format!("{}{what}", self.key(key)))
    }

    /// As [`Config::problem`], as a [`ConfigError`].
    pub(in crate::daemon) fn refuse(
        &self,
        bundle: Option<usize>,
        key: &'static str,
        what: impl Display,
    ) -> ConfigError {
        self.problem(bundle, key, what).into()
    }
}
