//! Bundles over the simulator's links: real sessions, messages and epochs, real TCP above.

mod boxes;
mod bulk_flow;
mod clocks;
mod control;
mod outside;
mod path;
mod paths;
mod site;
mod supervised;
mod uplink;
mod upsets;
