//! A deterministic packet simulator: TCP connections and datagrams over one bottleneck, with the
//! algorithms and disciplines of `forebay-core`.
//!
//! Time is integer nanoseconds and events have a total order, so a run depends on its [`Dumbbell`]
//! alone. Nothing here reads a clock, starts a thread or touches a file.
//!
//! ```text
//!  simulation ── event      (time, insertion number)
//!      ├── tcp/              sender and receiver, one mechanism a file
//!      ├── bottleneck        qdisc of core, device, server, loss
//!      ├── pipe              propagation
//!      └── metrics           integrals over time
//! ```
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod bench;
mod bottleneck;
mod event;
mod metrics;
mod packet;
mod pipe;
mod simulation;
mod tcp;
mod topology;

pub use self::metrics::{BIN_NS, Bin, FlowMetrics, LinkMetrics};
pub use self::simulation::Simulation;
pub use self::tcp::stack::{MinRto, RttSource, Stack};
pub use self::topology::{Change, Dumbbell, Flow};
