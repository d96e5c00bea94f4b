//! Common parts of boxes and agent as services. The main thread watches a worker thread ([`supervisor`]) and answers
//! clients on a socket ([`control`]). Each thread has its own rights ([`privileges`]).

pub(crate) mod clients;
pub mod control;
pub mod outcome;
pub mod privileges;
pub mod supervisor;
pub(crate) mod watchdog;
