//! Reads the TOML files that people write for forebay: plans of experiments, spaces of searches, and files of boxes.
//!
//! ```text
//!   text ─► tree (values that know their place) ─► document ─► reader: a table, key by key
//!                                                     │ schema: each key with its type, unit and range
//!                                                     └► problems: all that is wrong, at most 50
//! ```
//!
//! A [`schema::Section`] describes the keys of a table. [`Document::visit`] checks every key of a file
//! against it, and a [`Reader`] takes the values out. A problem is noted and the reading goes on, so that one
//! look at a file finds all problems. Every message has the form `FILE:LINE: KEY = VALUE: allowed is ..`.

mod document;
mod problem;
mod reader;
pub mod schema;
pub mod tree;

pub use document::{Document, Format};
pub use problem::{FileError, PROBLEMS_MAX, Problem, Wrong};
pub use reader::{Reader, spec_value};
