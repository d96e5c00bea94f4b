//! Address of a number of a run or of one of its parts, in plans and reports.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::statistics::mean;
use super::{Metrics, Part};

/// Place of a number: `slowdown_p50` of the run, `links/forward/queue_mean_packets` of a part. The name `*`
/// selects every part; where one number is needed, it means their mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `run`, `flow`, `link` or `bundle`.
    pub part: String,
    /// Name of the part; empty for the run.
    pub name: String,
    /// The metric, or the quantity over time.
    pub quantity: String,
}

impl Address {
    /// The number at this address among the metrics of a run and of its flows, links and bundles. For parts
    /// called `*`: their mean.
    pub fn find(&self, run: &Metrics, [flows, links, bundles]: [&[Part]; 3]) -> Option<f64> {
        let parts = match self.part.as_str() {
            "flow" => flows,
            "link" => links,
            "bundle" => bundles,
            _ => return run.get(&self.quantity),
        };
        let named = parts.iter().filter(|part| ["*", &part.name].contains(&self.name.as_str()));
        mean(named.filter_map(|part| part.metrics.get(&self.quantity)))
    }
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
