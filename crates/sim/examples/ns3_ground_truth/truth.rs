//! The runs of ns-3, as their file has them.

use std::path::Path;

use serde_json::Value;

/// How far ns-3 differs from itself in a run, by its throughput when immaterial settings change.
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
    pub name: String,
    pub class: Class,
    /// Everything that was set.
    pub params: Value,
    /// Least and greatest value of each metric over immaterial variants and both versions.
    pub ensemble: Value,
    /// Means over ten seeds, of 3.37 and of 3.44; null where there are none.
    pub seeds: [Value; 2],
    /// The nominal run's flows, of 3.37 and of 3.44, for their series.
    pub flows: [Value; 2],
}

fn document(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The pairs that held when `file` was first compared; null where it does not say.
pub fn first_look(file: &Path) -> Result<Value, String> {
    Ok(document(file)?["first_look"].clone())
}

/// Reads all runs of `file`.
pub fn read(file: &Path) -> Result<Vec<Truth>, String> {
    let all = document(file)?;
    let runs = all["runs"].as_array().ok_or("no runs in this file")?;
    runs.iter().map(truth).collect()
}

fn truth(run: &Value) -> Result<Truth, String> {
    let name = run["name"].as_str().ok_or("a run without a name")?.to_string();
    let has_seeds = !run["seeds_1_10"].is_null();
    let class = match run["stability"]["class"].as_str() {
        _ if has_seeds => Class::Loss,
        Some("tight") => Class::Tight,
        Some("loose") => Class::Loose,
        Some("unstable") => Class::Unstable,
        other => return Err(format!("{name}: class {other:?}")),
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
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.params.as_object().into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// A parameter as text, whatever the file has it as; empty where it has none.
    pub fn text(&self, name: &str) -> String {
        match &self.params[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }

    /// A parameter as a list of numbers, empty where it is not there.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        let text = self.text(name);
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| part.trim().parse().map_err(|_| format!("{name} = {text}"))).collect()
    }

    /// A parameter as one number.
    pub fn number(&self, name: &str) -> Result<f64, String> {
        self.numbers(name)?.first().copied().ok_or_else(|| format!("no {name}"))
    }

    /// Least and greatest value of a metric of the ensemble: of a flow, or of the link for `None`.
    pub fn range(&self, flow: Option<usize>, metric: &str) -> Option<(f64, f64)> {
        let of = match flow {
            Some(flow) => &self.ensemble["flows"][flow][metric],
            None => &self.ensemble["link"][metric],
        };
        Some((of["min"].as_f64()?, of["max"].as_f64()?))
    }
}
