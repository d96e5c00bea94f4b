//! Errors of a model that is no policy.

use forebay_core::cc::policy::graph::GraphError;

use crate::wire::WireError;

/// A part of a model that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    what: String,
    allowed: String,
}

impl Refused {
    pub fn new(what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { what: what.into(), allowed: allowed.into() }
    }
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        Self::new(error.to_string(), "a model in ONNX format")
    }
}

impl From<GraphError> for Refused {
    fn from(error: GraphError) -> Self {
        Self::new(error.what, error.allowed)
    }
}

/// Why a model is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}: allowed is {allowed}")]
pub struct OnnxError {
    /// The model, or the node with its operator.
    pub at: String,
    /// The problem.
    pub what: String,
    /// The values that would be accepted.
    pub allowed: String,
}

impl OnnxError {
    pub(crate) fn new(at: &str, Refused { what, allowed }: Refused) -> Self {
        Self { at: at.to_string(), what, allowed }
    }
}

/// A name of a model as it may come to a terminal.
pub(crate) fn printable(name: &str) -> String {
    /// Most letters of a name in a message.
    const MOST: usize = 60;
    name.chars().take(MOST).flat_map(char::escape_default).collect()
}
