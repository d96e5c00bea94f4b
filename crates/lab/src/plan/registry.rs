//! What algorithms only kernels have.

/// Congestion controls of Linux (net/ipv4/tcp_*.c) that are no algorithms of ours.
pub const LINUX_ONLY: [&str; 2] = ["cdg", "nv"];
