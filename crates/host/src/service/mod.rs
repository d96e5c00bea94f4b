//! What boxes and agent share as services: a worker thread and the main thread that watches it ([`supervisor`]), the
//! socket by which others ask ([`control`]), and what each thread may do ([`privileges`]).

pub(crate) mod clients;
pub mod control;
pub mod outcome;
pub mod privileges;
pub mod supervisor;
pub(crate) mod watchdog;
