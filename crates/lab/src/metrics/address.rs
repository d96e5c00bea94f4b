//! How plans and reports name a number of a run or of one of its parts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a number stands: `slowdown_p50` of the run, `links/forward/queue_mean_packets` of a part. The
/// name `*` stands for every part: for the mean over them where one number is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `run`, `flow`, `link` or `bundle`.
    pub part: String,
    /// Name of the part; empty for the run.
    pub name: String,
    /// The metric, or the quantity over time.
    pub quantity: String,
}

impl FromStr for Address {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split('/').collect();
        let (part, name, quantity) = match parts[..] {
            [quantity] => ("run", "", quantity),
            ["flows", name, quantity] => ("flow", name, quantity),
            ["links", name, quantity] => ("link", name, quantity),
            ["bundles", name, quantity] => ("bundle", name, quantity),
            _ => return Err(()),
        };
        Ok(Self { part: part.into(), name: name.into(), quantity: quantity.into() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part.as_str() {
            "run" => f.write_str(&self.quantity),
            part => write!(f, "{part}s/{}/{}", self.name, self.quantity),
        }
    }
}
