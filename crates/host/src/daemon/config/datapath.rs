//! What forwards and what carries the packets of a sendbox's bundles, and what they wait in where that is the kernel.

use serde::{Deserialize, Serialize};

/// What forwards the packets of a sendbox's bundles, and does so without the box, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// A bridge, whose ports LAN and WAN are.
    #[default]
    Bridge,
    /// The machine's routes.
    Route,
}

impl Forward {
    const ALL: [Self; 2] = [Self::Bridge, Self::Route];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Route => "route",
        }
    }

    /// The one of this name, if there is one.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|forward| forward.name() == name)
    }
}

/// What carries the packets of a sendbox's bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatapathKind {
    /// Sockets (AF_XDP): packets pass the process one by one, with its own queueing disciplines.
    #[default]
    User,
    /// Classes of the WAN port's HTB: packets stay in the kernel, super-packets as they are.
    Kernel,
    /// The latter where the machine can do that.
    Auto,
}

impl DatapathKind {
    const ALL: [Self; 3] = [Self::User, Self::Kernel, Self::Auto];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Auto => "auto",
        }
    }

    /// The kind of this name, if there is one.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A qdisc that the packets of a bundle wait in while they stay in the kernel: as the kernel makes it, without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelQdisc {
    /// The queue of a leaf: first in, first out, for the time that leaves hold at the rate.
    Fifo,
    /// Flow queues under CoDel (RFC 8290; sch_fq_codel.c).
    FqCodel,
    /// Flow queues under CoDel, hosts treated alike (sch_cake.c).
    Cake,
    /// Flow queues in turns (sch_fq.c).
    Fq,
    /// Flows by their hash in turns (sch_sfq.c).
    Sfq,
}

impl KernelQdisc {
    const ALL: [Self; 5] = [Self::Fifo, Self::FqCodel, Self::Cake, Self::Fq, Self::Sfq];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FqCodel => "fq_codel",
            Self::Cake => "cake",
            Self::Fq => "fq",
            Self::Sfq => "sfq",
        }
    }

    /// The qdisc of this name, if there is one.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|qdisc| qdisc.name() == name)
    }

    /// The kind of what has to be put into a leaf, as rtnetlink(7) calls it.
    pub const fn kind(self) -> Option<&'static str> {
        match self {
            Self::Fifo => None,
            Self::FqCodel | Self::Cake | Self::Fq | Self::Sfq => Some(self.name()),
        }
    }

    /// The discipline of `forebay_core::qdisc` that comes nearest to it.
    pub const fn nearest(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FqCodel | Self::Cake => "fq_codel",
            Self::Fq | Self::Sfq => "sfq",
        }
    }
}
