//! The suites of plans that algorithms are put through.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_core::spec::one_of;
use forebay_lab::plan::library;

forebay_core::named! {
    /// A suite: plans, and the form in which algorithms are judged by these.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Suite {
        /// The experiments of ccperf, which a scorecard sums up.
        #[default]
        Ccperf => "ccperf",
        /// The evaluation criteria of RFC 9743, with a verdict on each.
        Rfc9743 => "rfc9743",
    }
}

impl Suite {
    /// The plans in the order in which they run.
    pub fn plans(self) -> impl Iterator<Item = &'static str> {
        library::in_folder(self.name())
    }

    /// Default folder for results: each suite has a report of its own.
    pub fn default_out(self) -> PathBuf {
        let folder = match self {
            Self::Ccperf => "bench",
            Self::Rfc9743 => self.name(),
        };
        Path::new("out").join(folder)
    }
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|suite| suite.name() == text);
        named.ok_or_else(|| format!("allowed is {}", one_of(text, &Self::ALL.map(Self::name))))
    }
}
