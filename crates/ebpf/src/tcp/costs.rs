//! Run times of programs of congestion controls, from the kernel's own statistics.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::load::{attach, check_name, set_name};
use crate::skel::tcp_empty as skel;
use crate::{Error, program};

/// While this lives, the kernel times every BPF program of all processes, as with
/// `kernel.bpf_stats_enabled`. That costs each call some tens of nanoseconds, most of which the
/// figures contain ([`Empty`] shows how much).
#[derive(Debug)]
pub struct RunTimes {
    _enabled: OwnedFd,
}

impl RunTimes {
    /// Begins to time. Needs `CAP_SYS_ADMIN` and Linux 5.8.
    pub fn enable() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the kernel just gave us this descriptor.
        Ok(Self { _enabled: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// A program of a congestion control that the kernel holds, and its run time while run times were
/// taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTime {
    /// Number of the program in the kernel.
    pub id: u32,
    /// Name of the program, at most its first 15 bytes.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// Run time of all calls (ns), with a part of the time that timing takes.
    pub time_ns: u64,
    /// Instructions that the verifier looked at (0 before Linux 5.16).
    pub instructions: u32,
}

/// All programs of congestion controls in the kernel, except the numbers in `known`, by number.
pub fn program_times(known: &BTreeSet<u32>) -> io::Result<Vec<ProgramTime>> {
    let mut found = Vec::new();
    let mut id = 0;
    // SAFETY: the number outlives the call.
    while unsafe { libbpf_sys::bpf_prog_get_next_id(id, &mut id) } == 0 {
        if !known.contains(&id) {
            found.extend(program_time(id)?);
        }
    }
    Ok(found)
}

fn program_time(id: u32) -> io::Result<Option<ProgramTime>> {
    // SAFETY: no pointers.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    match -fd {
        // The program has gone meanwhile.
        libc::ENOENT => return Ok(None),
        errno if errno > 0 => return Err(io::Error::from_raw_os_error(errno)),
        _ => {}
    }
    // SAFETY: the kernel just gave us this descriptor.
    let held = unsafe { OwnedFd::from_raw_fd(fd) };
    let info = program::info(held.as_fd())?;
    if info.type_ != libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS {
        return Ok(None);
    }
    // SAFETY: the kernel ends the name with a zero byte.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Ok(Some(ProgramTime {
        id,
        name: name.to_string_lossy().into_owned(),
        calls: info.run_cnt,
        time_ns: info.run_time_ns,
        instructions: info.verified_insns,
    }))
}

/// A registered congestion control whose program does nothing, to measure the cost of a call. Its
/// window never moves: for connections with hardly any round trip time, and never for real ones.
/// Dropping it frees the name.
#[derive(Debug)]
pub struct Empty {
    _link: OwnedFd,
}

impl Empty {
    /// Loads and registers it under `name`, for all network namespaces. Errors are as for
    /// [`super::Datapath::register`].
    pub fn register(name: &str) -> Result<Self, Error> {
        check_name(name)?;
        program::quiet_libbpf();
        let mut storage = MaybeUninit::uninit();
        let mut open = skel::TcpEmptySkelBuilder::default()
            .open(&mut storage)
            .map_err(Error::load("tcp_empty"))?;
        set_name(&mut open.maps.empty, name, false);
        let mut loaded = open.load().map_err(Error::load("tcp_empty"))?;
        Ok(Self { _link: attach(&mut loaded.maps.empty, name, None)? })
    }
}
