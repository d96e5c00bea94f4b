//! Sensitivity: how much each tuning number of a bundle's control changes the results that users see.
//!
//! ```text
//! numbers, halved and doubled ─┐
//! cells of plans ──────────────┼──► runs ──► rows (JSON lines) ──► changes in units of noise ──► sensitivity.csv, .md
//! seeds ───────────────────────┘
//! ```
//! A change is the difference between a figure and the same figure with the defaults and the same seeds.
//! Noise is the standard deviation of the figure over seeds with the defaults alone, at least a small share
//! of the figure. A figure that appears or vanishes is also a change.

mod cases;
mod page;
mod run;
mod scaled;
mod table;
#[cfg(test)]
mod tests;

pub use run::{SensitivityProgress, SensitivityRequest, sensitivity, sensitivity_numbers};
pub use table::{
    BEYOND, Change, DefaultFigure, NOISE_SHARE, NOISE_STEP, Presence, Sensitivity, SensitivityTable,
};
