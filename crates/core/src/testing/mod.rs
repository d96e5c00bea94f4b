//! Conformance suites: the duties of every registered algorithm and discipline, as models that take
//! operations one at a time. Property tests draw the operations, fuzz targets decode them from
//! bytes. The models panic where a rule is broken.

pub mod cc;
pub mod qdisc;
pub mod session;

/// Parts of a bundle's endpoints, for tests and benches that drive them alone.
pub use crate::bundle::control::Control;
pub use crate::bundle::protocol::session::{Role, Session};
