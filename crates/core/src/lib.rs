//! The pure core of forebay: congestion control, schedulers, links, bundles and traffic.
//!
//! Nothing in this crate reads a clock, does I/O or draws randomness of its own. Time, bytes and
//! seeds come in as arguments, so the sendbox daemon, the link emulator and the simulator run the
//! same code. A run can be repeated bit for bit. Numbers leave as plain values (decisions,
//! counters, epochs); there is no recorder.
#![cfg_attr(not(any(test, feature = "testing")), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bundle;
pub mod cc;
pub mod clock;
pub mod link;
mod named;
pub mod packet;
pub mod probe;
pub mod qdisc;
pub mod random;
pub mod record;
pub mod spec;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod traffic;
pub mod units;
