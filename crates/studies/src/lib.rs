//! Studies: each makes many runs of [`forebay_lab`] for one answer. The laboratory does not depend
//! on this crate.

pub mod bench;
pub mod chaos;
mod json_lines;
mod parallel;
pub mod regret;
pub mod reproduce;
pub mod rl;
pub mod search;
pub mod sensitivity;
