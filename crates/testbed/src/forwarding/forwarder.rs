//! The bare forwarder, a role of the testbed: it only copies from one AF_XDP socket into another.

use std::io;
use std::os::fd::AsFd;

use forebay_host::port::{Direction, Port, PortError, XdpPort, open_all};
use forebay_host::service::privileges::go_realtime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::orders::{self, Heard, Orders};

/// Frames per batch, as many as a sendbox takes.
const BATCH: usize = 64;

/// Devices of a forwarder, in the namespace in which it runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForwarderSpec {
    /// All frames received here ...
    pub from: String,
    /// ... leave here.
    pub to: String,
}

/// Why a forwarder ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ForwarderError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("forwarding: {0}")]
    Io(#[from] io::Error),
}

/// Forwards until stdin ends.
pub fn run(spec: &ForwarderSpec) -> Result<(), ForwarderError> {
    // Like a sendbox: latency depends on which program has the processor.
    go_realtime();
    let mut from = open_all(&spec.from, Direction::Receive)?;
    let mut to = XdpPort::open(&spec.to, Direction::Transmit)?;
    let mut orders = Orders::from(&io::stdin())?;
    orders::tell("ready");
    loop {
        let taken = from.receive(BATCH, &mut |frame, _| {
            // A frame that finds no room is lost, as at any port.
            let _ = to.send(frame) || to.flush().is_ok() && to.send(frame);
        })?;
        to.flush()?;
        if taken > 0 {
            continue;
        }
        let mut fds = [from.as_fd(), orders.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let is_told = fds[1].any().unwrap_or(true);
        if is_told && orders.hear() == Heard::End {
            return Ok(());
        }
    }
}
