//! Attaches programs for XDP, tc and tracepoints through BPF links.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use crate::{Error, program};

/// Flag of `BPF_LINK_CREATE`: generic XDP, on packets of the kernel (include/uapi/linux/if_link.h).
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
/// Flag of `BPF_LINK_CREATE`: native XDP, in the driver (include/uapi/linux/if_link.h).
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Programs that a place at tc has room for (BPF_MPROG_MAX, include/linux/bpf_mprog.h).
const TCX_MAX: usize = 64;

/// Where on the receive path an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel has built a packet of its own.
    Native,
    /// In the network stack, for drivers that refuse native mode. Frames that the stack has
    /// merged (GRO) are seen as one.
    Generic,
}

/// An attached program; dropping it detaches.
#[derive(Debug)]
pub(crate) struct XdpLink {
    _fd: OwnedFd,
    pub(crate) mode: XdpMode,
}

impl XdpLink {
    /// Attaches `program` to the device, natively where the driver can.
    pub(crate) fn attach(program: BorrowedFd<'_>, ifindex: u32) -> Result<Self, Error> {
        let device = device_name(ifindex)?;
        // Asked again once the driver has refused: another process may have been faster.
        Self::attach_unless(program, &device, ifindex, || refuse_foreign(&device, ifindex))
    }

    /// Attaches to a device that has replaced a deleted one, by bpf(2) alone: the caller may have given up
    /// all other rights. A link never replaces a program.
    pub(crate) fn attach_anew(
        program: BorrowedFd<'_>,
        device: &str,
        ifindex: u32,
    ) -> Result<Self, Error> {
        Self::attach_unless(program, device, ifindex, || Ok(()))
    }

    fn attach_unless(
        program: BorrowedFd<'_>,
        device: &str,
        ifindex: u32,
        refuse: impl Fn() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        refuse()?;
        for (mode, flags) in
            [(XdpMode::Native, XDP_FLAGS_DRV_MODE), (XdpMode::Generic, XDP_FLAGS_SKB_MODE)]
        {
            match link_create(program, ifindex, libbpf_sys::BPF_XDP, flags) {
                Ok(fd) => return Ok(Self { _fd: fd, mode }),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return Err(Error::Privilege);
                }
                Err(error) if mode == XdpMode::Native => {
                    tracing::debug!(target: "device", %device, %error, "driver refuses native XDP");
                    refuse()?;
                }
                Err(source) => {
                    let device = device.to_string();
                    return Err(Error::Attach { device, program: "an XDP program", source });
                }
            }
        }
        unreachable!("the last mode returns")
    }
}

/// Where at tc a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcxSide {
    /// On packets that have come in, after the kernel has merged them.
    Ingress,
    /// On packets that go out, in front of the qdisc.
    Egress,
}

impl TcxSide {
    const fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }

    /// A program that sees packets on their way out must run in front of programs whose verdict on a packet
    /// is final.
    const fn flags(self) -> u32 {
        match self {
            Self::Ingress => 0,
            Self::Egress => libbpf_sys::BPF_F_BEFORE,
        }
    }
}

/// A program at tc. At a way in it runs behind the programs that are there already, at a way out before
/// these. Dropping it detaches.
#[derive(Debug)]
pub(crate) struct TcxLink {
    _fd: OwnedFd,
}

impl TcxLink {
    /// Attaches `program` to the device. Kernels before 6.6 refuse it.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        ifindex: u32,
        side: TcxSide,
    ) -> Result<Self, Error> {
        Self::attach_anew(program, &device_name(ifindex)?, ifindex, side)
    }

    /// As [`TcxLink::attach`], by bpf(2) alone: the caller may have given up all other rights.
    pub(crate) fn attach_anew(
        program: BorrowedFd<'_>,
        device: &str,
        ifindex: u32,
        side: TcxSide,
    ) -> Result<Self, Error> {
        match link_create(program, ifindex, side.attach_type(), side.flags()) {
            Ok(fd) => Ok(Self { _fd: fd }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(Error::Privilege),
            Err(source) => {
                let device = device.to_string();
                Err(Error::Attach { device, program: "a program at tc (tcx)", source })
            }
        }
    }
}

/// A program at a tracepoint of the kernel, which the program names; dropping it detaches.
#[derive(Debug)]
pub(crate) struct TracepointLink {
    _fd: OwnedFd,
}

impl TracepointLink {
    /// Attaches a program, which is called `name` in errors.
    pub(crate) fn attach(program: BorrowedFd<'_>, name: &'static str) -> Result<Self, Error> {
        match link_create(program, 0, libbpf_sys::BPF_TRACE_RAW_TP, 0) {
            Ok(fd) => Ok(Self { _fd: fd }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(Error::Privilege),
            Err(error) => Err(Error::Kernel { program: name, reason: error.to_string() }),
        }
    }
}

fn link_create(
    program: BorrowedFd<'_>,
    target: u32,
    attach_type: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: the options are plain numbers and null pointers, for which zero is valid.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    options.flags = flags;
    // SAFETY: the program is an open descriptor and the options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target as i32, attach_type, &options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn refuse_foreign(device: &str, ifindex: u32) -> Result<(), Error> {
    // SAFETY: the options are plain numbers, for which zero is valid.
    let mut options: libbpf_sys::bpf_xdp_query_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    // SAFETY: the options outlive the call.
    let status = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut options) };
    if status < 0 {
        // Old kernels may refuse the query; attaching reports what matters.
        return Ok(());
    }
    let ids = [options.prog_id, options.drv_prog_id, options.skb_prog_id, options.hw_prog_id];
    match ids.into_iter().find(|&id| id != 0) {
        Some(program_id) => Err(Error::Foreign { device: device.to_string(), program_id }),
        None => Ok(()),
    }
}

/// Whether a device of the current network namespace has programs at its way in or out (tcx): its filters
/// since Linux 6.6. Needs `CAP_NET_ADMIN`.
pub fn has_tcx(ifindex: u32, is_egress: bool) -> io::Result<bool> {
    Ok(!tcx_ids(ifindex, is_egress)?.is_empty())
}

/// Names of the programs at a device's way in or out (tcx), in the order in which they see a packet; the name of one
/// that has just gone is empty. Needs `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
pub fn tcx_programs(ifindex: u32, is_egress: bool) -> io::Result<Vec<String>> {
    tcx_ids(ifindex, is_egress)?.into_iter().map(name_of).collect()
}

/// Numbers of these programs; the kernel gives each program of the machine its own.
pub(crate) fn tcx_ids(ifindex: u32, is_egress: bool) -> io::Result<Vec<u32>> {
    let side = if is_egress { TcxSide::Egress } else { TcxSide::Ingress };
    let mut ids = vec![0; TCX_MAX];
    // SAFETY: the options are plain numbers and null pointers, for which zero is valid.
    let mut options: libbpf_sys::bpf_prog_query_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    options.prog_ids = ids.as_mut_ptr();
    options.__bindgen_anon_1.prog_cnt = TCX_MAX as u32;
    // SAFETY: the options, and the numbers that they lead to, outlive the call.
    let status = unsafe {
        libbpf_sys::bpf_prog_query_opts(ifindex as i32, side.attach_type(), &mut options)
    };
    // SAFETY: both members of the union are this number.
    let count = unsafe { options.__bindgen_anon_1.prog_cnt };
    match -status {
        0 => ids.truncate(count as usize),
        // Kernels before know no such place.
        libc::ENOENT | libc::EINVAL => ids.clear(),
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    Ok(ids)
}

/// The name of a program of the machine.
fn name_of(id: u32) -> io::Result<String> {
    // SAFETY: a plain number.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return match -fd {
            libc::ENOENT => Ok(String::new()),
            error => Err(io::Error::from_raw_os_error(error)),
        };
    }
    // SAFETY: the kernel just gave us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let name = program::info(fd.as_fd())?.name.map(|letter| letter as u8);
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_string())
}

fn device_name(ifindex: u32) -> Result<String, Error> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: `name` has the IF_NAMESIZE bytes that the call may write.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    if found.is_null() {
        return Err(Error::NoDevice { ifindex });
    }
    // SAFETY: on success the call has written a terminated string into `name`.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}
