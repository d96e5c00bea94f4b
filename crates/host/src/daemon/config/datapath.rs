//! Forwarder and datapath of a sendbox's bundles, and the qdisc of packets that stay in the kernel.

use serde::{Deserialize, Serialize};

forebay_core::named! {
    /// Forwarder of the packets of a sendbox's bundles, which also forwards without the box.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Forward {
        /// A bridge with the ports LAN and WAN.
        #[default]
        Bridge => "bridge",
        /// The machine's routes.
        Route => "route",
    }
}

/// Calls the macro `$with` with one line per datapath. A line has the kind, the name in files, the module
/// below `sendbox/datapath/`, and whether packets stay in the kernel.
macro_rules! datapaths {
    ($with:ident) => {
        $with! {
            User, "user", xdp, false;
            Kernel, "kernel", kernel, true;
            #[cfg(test)] Stub, "stub", stub, true;
        }
    };
}
pub(in crate::daemon) use datapaths;

macro_rules! kinds {
    ($($(#[$cfg:meta])? $kind:ident, $name:literal, $folder:ident, $in_kernel:literal;)*) => {
        /// Datapath of a sendbox's bundles.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum DatapathKind {
            $(
                $(#[$cfg])?
                #[doc = concat!("The one in `sendbox/datapath/", stringify!($folder), "`.")]
                $kind,
            )*
            /// The kernel's if the machine supports it, else the user's.
            Auto,
        }

        impl DatapathKind {
            /// The names in files, each with its datapath.
            pub(super) const CHOICES: &[(&str, Self)] =
                &[$($(#[$cfg])? ($name, Self::$kind),)* ("auto", Self::Auto)];
            /// The names in files, for the schema.
            pub(super) const NAMES: &[(&str, &str)] =
                &[$($(#[$cfg])? ($name, ""),)* ("auto", "")];

            /// The name in files.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[$cfg])? Self::$kind => $name,)*
                    Self::Auto => "auto",
                }
            }

            /// Whether packets stay in the kernel, with super-packets unchanged; else they pass the process
            /// one by one.
            pub const fn is_in_kernel(self) -> bool {
                match self {
                    $($(#[$cfg])? Self::$kind => $in_kernel,)*
                    Self::Auto => false,
                }
            }
        }
    };
}
datapaths!(kinds);

forebay_core::named! {
    /// Qdisc of a bundle's packets while they stay in the kernel: with the kernel's defaults, without
    /// options.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum KernelQdisc {
        /// The queue of a leaf: first in, first out, within the limit of the bundle.
        Fifo => "fifo",
        /// Flow queues under CoDel (RFC 8290; sch_fq_codel.c).
        FqCodel => "fq_codel",
        /// Flow queues under CoDel, hosts treated alike (sch_cake.c).
        Cake => "cake",
        /// Flow queues in turns (sch_fq.c).
        Fq => "fq",
        /// Flows by their hash in turns (sch_sfq.c).
        Sfq => "sfq",
    }
}

impl KernelQdisc {
    /// The kind of the qdisc to put into a leaf, as in rtnetlink(7).
    pub const fn kind(self) -> Option<&'static str> {
        match self {
            Self::Fifo => None,
            Self::FqCodel | Self::Cake | Self::Fq | Self::Sfq => Some(self.name()),
        }
    }

    /// The closest discipline of `forebay_core::qdisc`.
    pub const fn nearest(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FqCodel | Self::Cake => "fq_codel",
            Self::Fq | Self::Sfq => "sfq",
        }
    }
}
