//! Reno and Cubic in the kernel alone, with the arithmetic of `forebay_core::cc`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::load::{attach, check_name, set_name, verified};
use crate::skel::tcp_native as skel;
use crate::{Error, program};

forebay_core::named! {
    /// Which algorithm.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NativeKind {
        /// One segment per round trip, half the window at a loss; slow start until a loss (RFC
        /// 5681).
        Reno => "fb_native_reno",
        /// CUBIC as in Linux: core's `cubic(hystart=classic, linux_growth=true)`.
        Cubic => "fb_native_cubic",
    }
}

/// A registered congestion control that runs in the kernel alone. Dropping it frees the name;
/// connections that use it keep it.
#[derive(Debug)]
pub struct Native {
    name: String,
    instructions: Vec<(&'static str, u32)>,
    _link: OwnedFd,
}

impl Native {
    /// Loads the programs and registers them under `name`, for all network namespaces. Errors are
    /// as for [`super::Datapath::register`].
    pub fn register(kind: NativeKind, name: &str) -> Result<Self, Error> {
        Ok(load(kind, name, false, 0)?.0)
    }

    /// Registers it with a ring of its calls (`struct step` of `bpf/tcp_native.bpf.c`).
    #[cfg(test)]
    pub(super) fn record(kind: NativeKind, name: &str) -> Result<(Self, MapHandle), Error> {
        let (native, steps) = load(kind, name, true, 0)?;
        Ok((native, steps.expect("recorded")))
    }

    /// As [`super::Datapath::left_out`].
    #[cfg(test)]
    pub(super) fn left_out(kind: NativeKind, name: &str, left_out: u32) -> Result<Self, Error> {
        Ok(load(kind, name, false, left_out)?.0)
    }

    /// The congestion control that `link` has registered.
    pub(super) fn held(name: &str, instructions: Vec<(&'static str, u32)>, link: OwnedFd) -> Self {
        Self { name: name.to_string(), instructions, _link: link }
    }

    /// The name to select it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Instructions that the verifier looked at, program by program (0 before Linux 5.16).
    pub fn instructions(&self) -> &[(&'static str, u32)] {
        &self.instructions
    }
}

fn load(
    kind: NativeKind,
    name: &str,
    is_recorded: bool,
    left_out: u32,
) -> Result<(Native, Option<MapHandle>), Error> {
    check_name(name)?;
    program::quiet_libbpf();
    let mut storage = MaybeUninit::uninit();
    let mut open = skel::TcpNativeSkelBuilder::default()
        .open(&mut storage)
        .map_err(Error::load("tcp_native"))?;
    set_name(&mut open.maps.native, name, false);
    open.maps.steps.set_autocreate(is_recorded).map_err(Error::map("steps"))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        // enum native_kind and enum slow_start.
        (rodata.settings.kind, rodata.settings.slow_start) = match kind {
            NativeKind::Reno => (0, 1),
            NativeKind::Cubic => (1, 2),
        };
        rodata.settings.is_recorded.write(is_recorded);
        rodata.settings.left_out = left_out;
    }
    let mut loaded = open.load().map_err(Error::load("tcp_native"))?;
    let progs = &loaded.progs;
    let instructions = [
        ("cong_avoid", &progs.native_cong_avoid),
        ("in_ack_event", &progs.native_in_ack_event),
        ("init", &progs.native_init),
        ("ssthresh", &progs.native_ssthresh),
        ("set_state", &progs.native_set_state),
        ("undo_cwnd", &progs.native_undo_cwnd),
    ]
    .map(|(name, program)| (name, verified(program.as_fd())))
    .to_vec();
    let maps = &mut loaded.maps;
    let steps = is_recorded.then(|| program::handle("steps", &maps.steps)).transpose()?;
    let link = attach(&mut maps.native, name, None)?;
    Ok((Native::held(name, instructions, link), steps))
}
