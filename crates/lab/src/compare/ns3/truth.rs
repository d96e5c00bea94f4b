//! The runs of ns-3 in their file.

use std::path::Path;

use serde_json::Value;

/// How much ns-3's throughput in a run varies when immaterial settings change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// At most 2 %.
    Tight,
    /// At most 8 %.
    Loose,
    /// More than 8 %.
    Unstable,
    /// Random losses: means over ten seeds.
    Loss,
}

/// One run of ns-3.
pub struct Truth {
    /// Name of the run in the file.
    pub name: String,
    /// Class of the bounds for its metrics.
    pub class: Class,
    /// All parameters of the run.
    pub(super) params: Value,
    /// Least and greatest value of each metric over immaterial variants and both versions.
    pub(super) ensemble: Value,
    /// Means over ten seeds, for 3.37 and 3.44; null if absent.
    pub(super) seeds: [Value; 2],
    /// The nominal run's flows, for 3.37 and 3.44, with their series.
    pub(super) flows: [Value; 2],
}

/// A file of runs.
pub struct Truths {
    /// The runs.
    pub runs: Vec<Truth>,
    /// How many pairs of each class held at the file's first comparison, and how many there were; null if
    /// unknown.
    pub first_look: Value,
}

impl Truths {
    /// Reads `file`.
    ///
    /// # Errors
    /// Names the file, and the part of it that does not fit the format of files of runs.
    pub fn read(file: &Path) -> Result<Self, String> {
        let of_file = |error: String| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| of_file(error.to_string()))?;
        let all: Value = serde_json::from_str(&text).map_err(|error| of_file(error.to_string()))?;
        let runs = all["runs"].as_array().ok_or_else(|| of_file("no list `runs`".into()))?;
        let runs = runs.iter().map(truth).collect::<Result<_, _>>().map_err(of_file)?;
        Ok(Self { runs, first_look: all["first_look"].clone() })
    }
}

fn truth(run: &Value) -> Result<Truth, String> {
    let name = run["name"].as_str().ok_or("a run without a name")?.to_string();
    let has_seeds = !run["seeds_1_10"].is_null();
    let class = match run["stability"]["class"].as_str() {
        _ if has_seeds => Class::Loss,
        Some("tight") => Class::Tight,
        Some("loose") => Class::Loose,
        Some("unstable") => Class::Unstable,
        other => {
            let class = other.unwrap_or("(absent)");
            let allowed = "allowed is tight, loose or unstable";
            return Err(format!("{name}: stability.class = {class}: {allowed}"));
        }
    };
    Ok(Truth {
        name,
        class,
        params: run["params"].clone(),
        ensemble: run["ensemble_with_3_44"].clone(),
        seeds: [run["seeds_1_10"].clone(), run["seeds_1_10_ns3_44"].clone()],
        flows: [run["flows"].clone(), run["ns3_44"]["flows"].clone()],
    })
}

impl Truth {
    /// The names of all parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.params.as_object().into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// A parameter as text, whatever its type in the file; empty if absent.
    pub(super) fn text(&self, name: &str) -> String {
        match &self.params[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }

    /// A parameter as a list of numbers, empty if absent.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        let text = self.text(name);
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| part.trim().parse().map_err(|_| format!("{name} = {text}"))).collect()
    }

    /// A parameter as one number.
    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        self.numbers(name)?.first().copied().ok_or_else(|| format!("no {name}"))
    }

    /// Least and greatest value of a metric of the ensemble, for a flow; with `None`, for the link.
    pub(super) fn range(&self, flow: Option<usize>, metric: &str) -> Option<(f64, f64)> {
        let of = match flow {
            Some(flow) => &self.ensemble["flows"][flow][metric],
            None => &self.ensemble["link"][metric],
        };
        Some((of["min"].as_f64()?, of["max"].as_f64()?))
    }
}
