//! A network that is cut into parts, each a simulation of its own.
//!
//! ```text
//!  part 0   ├── window ──┤├── window ──┤├── window ──┤
//!                         ╳             ╳               packets that left for the other part
//!  part 1   ├── window ──┤├── window ──┤├── window ──┤
//! ```
//! A packet takes at least [`Parts::delay`] from one part to another, and a window is no longer. So no packet of
//! a window arrives in the same window elsewhere, and the parts need no news of one another within it. They may
//! run in any order or at the same time: the results are the same.

use forebay_core::units::Duration;

/// The parts of a network. All of its flows are halves of connections with requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of parts, at least 2.
    pub count: usize,
    /// Least delay of a packet from one part to another.
    pub delay: Duration,
    /// For each link, the part of its queue and the part that it leads to.
    pub links: Vec<[usize; 2]>,
    /// For each flow, the part of its sender and of its receiver.
    pub flows: Vec<[usize; 2]>,
    /// For each bundle, the part of its sendbox and of its receivebox.
    pub bundles: Vec<[usize; 2]>,
}

impl Parts {
    /// Whether `link` leads to another part.
    pub(crate) fn cuts(&self, link: usize) -> bool {
        let [from, to] = self.links[link];
        from != to
    }
}
