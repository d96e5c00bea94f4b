//! Plans: from a file, from a name, or from a dict.

use std::borrow::Cow;
use std::path::PathBuf;

use forebay_core::cc::Registry;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::{self, Override, PlanError};
use forebay_lab::versions;
use forebay_policy::algorithms;
use pyo3::prelude::*;

use crate::error;

/// File name in errors of a plan that was not read from a file.
pub const DICT: &str = "dict";

/// A plan, and its source.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct Plan {
    asked: Asked,
    /// The algorithms that `plan` knows.
    known: &'static Registry,
    plan: plan::Plan,
}

/// The text of a plan, the overrides, and the first selected arm, if any.
pub type Parts = (Source, Vec<Override>, Option<String>);

/// The source of a plan.
#[derive(Clone)]
struct Asked {
    text: Text,
    /// Dotted keys and values in JSON.
    sets: Vec<(String, String)>,
    /// The selected arms; empty: all.
    arms: Vec<String>,
}

/// See [`Plan::pack`].
type Packed = (String, Option<PathBuf>, Option<String>, Vec<(String, String)>, Vec<String>);

#[derive(Clone)]
enum Text {
    Own(Source),
    /// The plan of this name with the settings of its `as_published`.
    Published(String),
}

impl Asked {
    fn read(&self) -> Result<plan::Plan, PlanError> {
        let sets = parsed(&self.sets)?;
        let mut plan = match &self.text {
            Text::Own(source) => plan::Plan::from_source(source.clone(), &sets)?,
            Text::Published(reference) => plan::Plan::load_as_published(reference, &sets)?,
        };
        if !self.arms.is_empty() {
            plan.select_arms(&self.arms)?;
        }
        Ok(plan)
    }
}

impl Plan {
    fn new(py: Python<'_>, asked: Asked) -> PyResult<Self> {
        let known = algorithms::known();
        let plan = asked.read().map_err(|error| error::of_plan(py, &error))?;
        Ok(Self { asked, known, plan })
    }

    /// The plan with the current algorithms: a notebook cell may have redefined one.
    pub fn current(&self) -> Result<Cow<'_, plan::Plan>, PlanError> {
        match std::ptr::eq(self.known, algorithms::known()) {
            true => Ok(Cow::Borrowed(&self.plan)),
            false => self.asked.read().map(Cow::Owned),
        }
    }

    /// The parts of the plan; `None` for a plan as it was published.
    pub fn parts(&self) -> Result<Option<Parts>, PlanError> {
        let Text::Own(source) = &self.asked.text else { return Ok(None) };
        let arm = self.asked.arms.first().cloned();
        Ok(Some((source.clone(), parsed(&self.asked.sets)?, arm)))
    }
}

/// The text of a plan given as a JSON document; its relative paths start from `folder`.
pub fn of_json(py: Python<'_>, document: &str, folder: PathBuf) -> PyResult<Source> {
    let written = serde_json::from_str::<toml::Table>(document).map_err(|it| it.to_string());
    let written = written.and_then(|table| {
        toml::to_string(&toml::Value::Table(table)).map_err(|error| error.to_string())
    });
    let text = written.map_err(|reason| error::of_plan(py, &PlanError::of(DICT, reason)))?;
    Ok(Source { file: DICT.into(), folder: Some(folder), text })
}

/// The text of the plan called `reference`, a path or a name.
pub fn named(py: Python<'_>, reference: &str) -> PyResult<Source> {
    Source::plan(reference).map_err(|error| error::of_plan(py, &error))
}

#[pymethods]
impl Plan {
    /// The plan called `reference`, a path or a name; `sets` are dotted keys and their values in JSON.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        reference: &str,
        sets: Vec<(String, String)>,
        as_published: bool,
    ) -> PyResult<Self> {
        let text = match as_published {
            true => Text::Published(reference.into()),
            false => Text::Own(named(py, reference)?),
        };
        Self::new(py, Asked { text, sets, arms: Vec::new() })
    }

    /// The plan in `document`, an object in JSON. Its relative paths start from `folder`.
    #[staticmethod]
    fn from_json(
        py: Python<'_>,
        document: &str,
        folder: PathBuf,
        sets: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let text = Text::Own(of_json(py, document, folder)?);
        Self::new(py, Asked { text, sets, arms: Vec::new() })
    }

    /// The source of the plan, for [`Plan::unpack`] in another process: name in errors, folder of relative
    /// paths, text, overrides and arms. Without a text, the first is the name of a published plan.
    fn pack(&self) -> PyResult<Packed> {
        let Asked { text, sets, arms } = self.asked.clone();
        let (file, folder, text) = match text {
            Text::Own(Source { file, folder, text }) => (file, folder, Some(text)),
            Text::Published(reference) => (reference, None, None),
        };
        // The other process may have another working directory.
        let folder = folder.map(std::path::absolute).transpose()?;
        Ok((file, folder, text, sets, arms))
    }

    /// The plan packed by [`Plan::pack`].
    #[staticmethod]
    fn unpack(
        py: Python<'_>,
        file: String,
        folder: Option<PathBuf>,
        text: Option<String>,
        sets: Vec<(String, String)>,
        arms: Vec<String>,
    ) -> PyResult<Self> {
        let text = match text {
            Some(text) => Text::Own(Source { file, folder, text }),
            None => Text::Published(file),
        };
        Self::new(py, Asked { text, sets, arms })
    }

    /// Names of the user's algorithms that take part in runs of the plan.
    fn own_algorithms(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let read = || {
            let runs = self.current()?.experiments().collect::<Result<Vec<_>, PlanError>>()?;
            let is_in = |key: &String| runs.iter().any(|run| run.parameters.contains_key(key));
            let decides = |name: &&str| versions::version(name).is_some_and(|(key, _)| is_in(&key));
            let names = algorithms::own().iter().map(|own| own.algorithm.name);
            Ok::<_, PlanError>(names.filter(decides).map(String::from).collect())
        };
        read().map_err(|error| error::of_plan(py, &error))
    }

    /// This plan with further overrides and only the arms `arms`, in this order; all if it is empty.
    fn with_changes(
        &self,
        py: Python<'_>,
        sets: Vec<(String, String)>,
        arms: Vec<String>,
    ) -> PyResult<Self> {
        let mut asked = self.asked.clone();
        asked.sets.extend(sets);
        if !arms.is_empty() {
            asked.arms = arms;
        }
        Self::new(py, asked)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.plan.name
    }

    #[getter]
    fn title(&self) -> &str {
        &self.plan.title
    }

    #[getter]
    fn description(&self) -> &str {
        &self.plan.description
    }

    /// Name and summary of each arm.
    #[getter]
    fn arms(&self) -> Vec<(String, String)> {
        self.plan.arms.iter().map(|arm| (arm.name.clone(), arm.summary.clone())).collect()
    }

    /// Name of each cell. A plan without a grid has one cell with an empty name.
    #[getter]
    fn cells(&self) -> Vec<String> {
        self.plan.cells.iter().map(|cell| cell.name.clone()).collect()
    }

    /// First and last seed, both included.
    #[getter]
    fn seeds(&self) -> (u64, u64) {
        (self.plan.seeds.first, self.plan.seeds.last)
    }
}

/// Reads dotted keys with values in JSON.
pub fn overrides(py: Python<'_>, sets: &[(String, String)]) -> PyResult<Vec<Override>> {
    parsed(sets).map_err(|error| error::of_plan(py, &error))
}

fn parsed(sets: &[(String, String)]) -> Result<Vec<Override>, PlanError> {
    let read = |(key, json): &(String, String)| {
        let allowed = "a truth value, a number, a text, or a list or dict of these";
        let value: toml::Value = serde_json::from_str(json)
            .map_err(|_| PlanError::of(key, format!("{json}: allowed is {allowed}")))?;
        Override::parse(&format!("{key}={value}"))
    };
    sets.iter().map(read).collect()
}
