//! Linux user space of forebay: boxes, agent, and what they share.
//!
//! Without the feature `bpf` no program of the kernel is loaded: what is left is the receivebox by packet socket.

// What boxes with programs need beside.
#![cfg_attr(not(feature = "bpf"), allow(dead_code, unused_imports))]

#[cfg(feature = "bpf")]
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
mod overhead;
pub mod port;
mod prefix;
pub mod probe;
pub mod route;
pub mod service;
pub mod tcp_info;
pub mod triangle;
