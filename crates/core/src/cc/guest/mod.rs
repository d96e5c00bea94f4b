//! Algorithms that are no part of this crate: somebody's own, in whatever language.
//!
//! ```text
//! Described ──► Algorithm: told as seldom as it asks (seldom), whatever it answers within bounds (bounded)
//! ```

mod bounded;
mod described;
mod seldom;
mod setting;
mod told;

pub use bounded::{bounded, within_bounds};
pub use described::{Described, Values};
pub use seldom::{Every, seldom};
pub use setting::Setting;
pub use told::Told;
