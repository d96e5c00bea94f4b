//! Linux user space of forebay: boxes, agent, and their common parts.
//!
//! Without the feature `bpf` no BPF program is loaded: only the receivebox with a packet socket is left.

// Without that feature, code of the other boxes is unused.
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
pub mod foreign_python;
mod htb;
pub mod kernel;
pub mod lateness;
pub mod log;
mod lower;
mod netlink;
pub mod offload;
mod overhead;
pub mod port;
mod prefix;
pub mod probe;
pub mod route;
mod rtnetlink;
pub mod service;
pub mod tcp_info;
pub mod triangle;
