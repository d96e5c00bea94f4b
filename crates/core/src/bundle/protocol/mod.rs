//! Protocol between the two boxes of a bundle, and the state of the peer that each derives from it.

pub mod endpoint;
pub(crate) mod exchange;
pub mod keys;
pub(crate) mod monitor;
pub mod mtu;
pub(crate) mod negotiation;
pub mod paths;
pub mod peer;
mod replay;
pub mod scope;
pub(crate) mod session;
mod telling;
pub mod wire;
