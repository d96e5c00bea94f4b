//! Algorithms from outside of this crate: a user's own, in any language.
//!
//! ```text
//! Described ──► Algorithm: called as rarely as it wants (seldom), every answer within bounds (bounded)
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
