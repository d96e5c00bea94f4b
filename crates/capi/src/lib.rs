//! Congestion control in C: an algorithm that is a structure of callbacks, as one of core's.
//!
//! ```text
//! my_cc.c ── struct forebay_cc_algorithm ──► Callbacks ──► build() ──► Box<dyn CongestionControl>
//!               include/forebay_cc.h
//! ```
//! The crate of an algorithm compiles its C with `compile` (of the feature with that name), says where the callbacks
//! are, and makes its registry entry from them; `forebay new-algorithm NAME --c` writes such a crate. What callbacks are
//! told, and what is asked of them, stands in the header, which may be copied to wherever the C lives.

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
