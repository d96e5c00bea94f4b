//! Traffic as data: sizes, schedules and send times, drawn from a seed. Sockets are the host's.

mod cdf;
pub mod media;
mod receiving;
mod requests;
mod source;
pub mod video;

pub use self::cdf::SizeCdf;
pub use self::receiving::{Conduct, RECEIVERS, Receiver, Receiving};
pub use self::requests::{
    Connections, LARGE, LARGE_SHARE, MAX_REQUESTS, Request, RequestPlan, Sampling, Schedule,
};
pub use self::source::{SendTimes, Source, Timing};
