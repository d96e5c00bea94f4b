//! Sizes and schedules of requests.

use forebay_core::units::ByteCount;

use super::error::PlanError;
use super::library::Source;

/// Largest answer: a gigabyte takes longer than any run at the rates emulated here.
const MAX_SIZE: u64 = 1_000_000_000;

/// How sizes of answers are distributed.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// All alike.
    Fixed(ByteCount),
}

impl Sizes {
    /// One size; `None` outside 1 byte to 1 GB.
    pub fn fixed(size: ByteCount) -> Option<Self> {
        (1..=MAX_SIZE).contains(&size.as_u64()).then_some(Self::Fixed(size))
    }

    /// The distribution that a CDF file describes.
    pub fn from_cdf(_source: &Source) -> Result<Self, PlanError> {
        todo!()
    }
}
