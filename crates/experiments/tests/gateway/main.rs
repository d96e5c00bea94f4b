//! Routed sendboxes on real traffic: a gateway with one NIC, a tunnel, and hosts that are their own boxes.
//!
//! `make test` runs the short form of the first; `make test-gateway` runs the whole course of each.
#![cfg(feature = "host")]

mod boxes;
mod course;
mod link;
mod load;
mod machine;
mod own;
mod triangle;
mod tunnel;
mod vpc;
mod wireguard;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Traffic of two tests at once would disturb the times of both.
fn alone() -> MutexGuard<'static, ()> {
    /// Lock that one test at a time holds.
    static TRAFFIC: Mutex<()> = Mutex::new(());
    TRAFFIC.lock().unwrap_or_else(PoisonError::into_inner)
}
