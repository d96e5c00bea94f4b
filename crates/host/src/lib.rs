//! Linux user space of forebay: boxes, agent, and what they share.

pub mod agent;
pub mod bridge;
pub mod clock;
pub mod daemon;
pub mod egress;
pub mod ethernet;
pub mod filters;
pub mod fix;
mod htb;
pub mod kernel;
pub mod lateness;
pub mod live;
pub mod log;
mod lower;
mod netlink;
pub mod offload;
pub mod port;
mod prefix;
pub mod probe;
pub mod route;
pub mod service;
pub mod tcp_info;
pub mod triangle;
