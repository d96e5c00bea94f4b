//! The maps of `bpf/bundles.h`, which several programs have.

use libbpf_rs::MapHandle;

use crate::program::KeySet;

/// Handles of their own, which stay when the skeleton goes.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) destinations: MapHandle,
    pub(crate) pairs: MapHandle,
    pub(crate) left_out: MapHandle,
    pub(crate) messages: KeySet,
    pub(crate) bundles: MapHandle,
    pub(crate) counters: MapHandle,
    pub(crate) boundaries: MapHandle,
    pub(crate) lost: MapHandle,
}

/// The maps of a skeleton that is loaded. Each skeleton is of a type of its own.
macro_rules! maps {
    ($maps:expr) => {
        $crate::sampler::maps::Maps {
            destinations: $crate::program::handle("destinations", &$maps.destinations)?,
            pairs: $crate::program::handle("pairs", &$maps.pairs)?,
            left_out: $crate::program::handle("left_out", &$maps.left_out)?,
            messages: $crate::program::KeySet::of("messages", &$maps.messages)?,
            bundles: $crate::program::handle("bundles", &$maps.bundles)?,
            counters: $crate::program::handle("counters", &$maps.counters)?,
            boundaries: $crate::program::handle("boundaries", &$maps.boundaries)?,
            lost: $crate::program::handle("lost", &$maps.lost)?,
        }
    };
}
pub(crate) use maps;
