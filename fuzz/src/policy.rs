//! Any bytes are refused or are a graph, whose evaluation ends.

use std::sync::Arc;

use forebay_core::cc::policy::graph::{Evaluation, VALUES_MAX};
use forebay_policy::onnx;

/// The bytes are an ONNX model.
pub fn run(bytes: &[u8]) {
    let graph = match onnx::read(bytes) {
        Ok(graph) => Arc::new(graph),
        Err(error) => {
            assert!(!error.at.is_empty() && !error.what.is_empty() && !error.allowed.is_empty());
            return;
        }
    };
    assert!((1..=VALUES_MAX).contains(&graph.input_len()));
    let (len, mut evaluation) = (graph.output_len(), Evaluation::new(graph));
    for number in [0.0, -1e30, f32::NAN] {
        evaluation.input().fill(number);
        assert_eq!(evaluation.run().len(), len);
    }
}
