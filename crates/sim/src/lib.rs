//! A deterministic packet simulator: TCP connections and datagrams over links, with the algorithms and
//! disciplines of `forebay-core`.
//!
//! Time is integer nanoseconds and events have a total order, so a run depends on its
//! [`forebay_scenario::Scenario`] alone. A [`Setup`] turns a scenario into a [`network::Network`]. Nothing
//! here reads a clock, starts a thread or touches a file.
//!
//! ```text
//!  setup                     a scenario as links with routes over them, and clients
//!  simulation ── event      (time, insertion number)
//!      ├── tcp/              sender and receiver, one mechanism a file
//!      ├── route, classes    next steps and priority classes, compiled before the run
//!      ├── link, server      qdisc of core, device, loss; rate or trace
//!      ├── line              propagation
//!      ├── bundle            sendbox and receivebox of core with their shaper, sessions and messages
//!      └── metrics           integrals over time
//!  part, parts               simulations side by side, each of a part of a network
//! ```
#![forbid(unsafe_code)]
pub mod bench;
mod bundle;
mod bundle_log;
mod classes;
mod ended;
mod event;
mod line;
mod link;
mod machine;
mod media;
mod metrics;
pub mod network;
mod packet;
mod packet_log;
mod part;
mod parts;
mod process;
mod reorder;
mod requests;
mod route;
mod server;
mod setup;
mod simulation;
mod tcp;
mod topology;
mod video;
mod written;

pub use self::bundle::BundleMetrics;
pub use self::bundle_log::BundleLog;
pub use self::metrics::{BIN_NS, Bin, FlowMeter, FlowMetrics, Integral, LinkMetrics, Observed};
pub use self::packet_log::Owner;
pub use self::part::Part;
pub use self::parts::Parts;
pub use self::requests::{Halves, INTERVAL_NS, Outcome, Requests};
pub use self::setup::{FORWARD, LINGER, OTHERS, Place, Setup, Unsupported};
pub use self::simulation::{
    Conversation, PING_FRAME_BYTES, Pings, REQUEST_BYTES, Read, Received, Seen, Segment, Sent,
    Simulation, Slots, flags,
};
pub use self::tcp::ecn::EcnMode;
pub use self::tcp::sender::{Rtt, SUPPLIED, TcpState};
pub use self::tcp::stack::{Device, MinRto, PrrBound, Reduction, RttSource, Stack, Tcp};
pub use self::topology::{Change, Dumbbell, Flow};
