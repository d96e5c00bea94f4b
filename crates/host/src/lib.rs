//! Linux user space of forebay: boxes, link emulator, testbed and traffic generators.

pub mod clock;
pub mod daemon;
pub mod offload;
pub mod port;
pub mod record;
pub mod scenario;
