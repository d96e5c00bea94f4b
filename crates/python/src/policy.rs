//! Policies as functions: the action of simulator, sendbox and agent for an observation.

use forebay_core::cc::policy::graph::Evaluation;
use forebay_core::spec::{Spec, Value};
use forebay_policy::{ALGORITHM, FILE, graph_of, refresh};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::error;

/// A policy that was read from its file.
#[pyclass(module = "forebay._forebay")]
pub struct Policy {
    evaluation: Evaluation,
}

#[pymethods]
impl Policy {
    /// Reads `file`, an ONNX model. Plans that name this file use it from here on, too.
    #[staticmethod]
    fn load(py: Python<'_>, file: String) -> PyResult<Self> {
        let spec = Spec::named(ALGORITHM.name).with(FILE.name, Value::Text(file));
        let graph = refresh(&spec).and_then(|_| graph_of(&spec));
        let graph = graph.map_err(|error| error::input(py, &error.to_string()))?;
        Ok(Self { evaluation: Evaluation::new(graph) })
    }

    /// Length of an observation.
    fn observation_len(&mut self) -> usize {
        self.evaluation.input().len()
    }

    /// Fills `actions` with the output of the graph for each of `observations`, one after the other. The
    /// output is not clamped to -1 to 1, and may be NaN or infinite.
    fn run(
        &mut self,
        py: Python<'_>,
        observations: PyBuffer<f32>,
        actions: PyBuffer<f32>,
    ) -> PyResult<()> {
        let len = self.evaluation.input().len();
        let (rows, wanted) = (observations.to_vec(py)?, actions.item_count());
        if rows.len() != len * wanted {
            let message = format!(
                "{} numbers for {wanted} actions: allowed are {len} per action",
                rows.len()
            );
            return Err(error::input(py, &message));
        }
        let answer = |row: &[f32]| {
            self.evaluation.input().copy_from_slice(row);
            self.evaluation.run()[0]
        };
        let answers: Vec<f32> = rows.chunks_exact(len).map(answer).collect();
        actions.copy_from_slice(py, &answers)
    }
}
