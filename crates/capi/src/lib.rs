//! Congestion control in C: runs an algorithm that is a structure of callbacks like one in Rust.
//!
//! ```text
//! my_cc.c ── struct forebay_cc_algorithm ──► Callbacks ──► build() ──► Box<dyn CongestionControl>
//!               include/forebay_cc.h
//! ```
//! The crate of an algorithm compiles its C with `compile` (feature `compile`), declares the static with the callbacks,
//! and makes its registry entry from them. `forebay new-algorithm NAME --c` writes such a crate. The header documents
//! the arguments of each callback and its duties; copy it to wherever the C lives.

mod abi;
#[cfg(feature = "compile")]
mod compile;
mod foreign;

pub use abi::Callbacks;
#[cfg(feature = "compile")]
pub use compile::compile;
pub use foreign::build;

#[cfg(test)]
mod tests;
