//! Linux user space of forebay: boxes, agent, link emulator, testbed and traffic generators.

pub mod agent;
pub mod bridge;
pub mod clock;
pub mod cost;
pub mod daemon;
pub mod egress;
pub mod emulator;
pub mod ethernet;
pub mod filters;
pub mod generator;
pub mod log;
mod lower;
mod netlink;
pub mod offload;
pub mod port;
pub mod process;
pub mod record;
pub mod roles;
pub mod scenario;
pub mod testbed;
