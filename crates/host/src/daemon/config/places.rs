//! Where values of a box stand in its file, for errors that are found only once files and devices are looked at.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::document::as_it_stands;
use super::{Config, ConfigError, Problem};

/// Where values of a box stand in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    is_one_of_several: bool,
    lines: BTreeMap<Place, usize>,
}

/// A key as a file of one box has it, behind the place of the bundle whose key it is, if it is one's.
type Place = (Option<usize>, &'static str);

impl Places {
    /// The lines of values, as far as these are there, in a file of one box or of several.
    pub(super) fn new(
        is_one_of_several: bool,
        lines: impl IntoIterator<Item = (Place, Option<usize>)>,
    ) -> Self {
        let lines = lines.into_iter().filter_map(|(place, line)| Some((place, line?)));
        Self { is_one_of_several, lines: lines.collect() }
    }
}

impl Config {
    /// A key as it stands in the box's file. All are named as a file of one box has them: `box.wan`, `bundle.peer`.
    pub fn key(&self, key: &str) -> String {
        as_it_stands(self.places.is_one_of_several, key)
    }

    /// What is wrong with the value of a key of the bundle at that place, or of the box: `what` stands behind the key.
    pub(in crate::daemon) fn problem(
        &self,
        bundle: Option<usize>,
        key: &'static str,
        what: impl Display,
    ) -> Problem {
        let line = self.places.lines.get(&(bundle, key)).copied();
        Problem { line, column: None, text: format!("{}{what}", self.key(key)) }
    }

    /// As [`Config::problem`], alone.
    pub(in crate::daemon) fn refuse(
        &self,
        bundle: Option<usize>,
        key: &'static str,
        what: impl Display,
    ) -> ConfigError {
        let problems = vec![self.problem(bundle, key, what)];
        ConfigError { file: self.file.clone(), problems }
    }
}
