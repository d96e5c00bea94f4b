//! Attaching XDP programs, and those at tc and at tracepoints, through BPF links.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use crate::Error;

/// Flags of `BPF_LINK_CREATE` for XDP (include/uapi/linux/if_link.h).
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

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
        // Asked again once the driver has refused: somebody may have been faster.
        Self::attach_unless(program, &device, ifindex, || refuse_foreign(&device, ifindex))
    }

    /// Attaches to a device that has taken the place of one that was deleted, by bpf(2) alone: the
    /// caller may have given up all else. A link never replaces a program.
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
    /// On what has come in, behind what merges packets.
    Ingress,
    /// On what goes out, in front of the qdisc.
    Egress,
}

impl TcxSide {
    const fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// A program at tc, behind those that are there already; dropping it detaches.
#[derive(Debug)]
pub(crate) struct TcxLink {
    _fd: OwnedFd,
}

impl TcxLink {
    /// Attaches `program` to the device, which takes bpf(2) alone. Kernels before 6.6 refuse it.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        ifindex: u32,
        side: TcxSide,
    ) -> Result<Self, Error> {
        let device = device_name(ifindex)?;
        match link_create(program, ifindex, side.attach_type(), 0) {
            Ok(fd) => Ok(Self { _fd: fd }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(Error::Privilege),
            Err(source) => Err(Error::Attach { device, program: "a program at tc (tcx)", source }),
        }
    }
}

/// A program at a tracepoint of the kernel, of which it says itself; dropping it detaches.
#[derive(Debug)]
pub(crate) struct TracepointLink {
    _fd: OwnedFd,
}

impl TracepointLink {
    /// Attaches a program, one of those called `name` in errors.
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

/// Whether programs stand at a device's way in or out (tcx), of the current network namespace: its
/// filters since Linux 6.6. Needs `CAP_NET_ADMIN`.
pub fn has_tcx(ifindex: u32, is_egress: bool) -> io::Result<bool> {
    let side = if is_egress { TcxSide::Egress } else { TcxSide::Ingress };
    // SAFETY: the options are plain numbers and null pointers, for which zero is valid.
    let mut options: libbpf_sys::bpf_prog_query_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    // SAFETY: the options outlive the call.
    let status = unsafe {
        libbpf_sys::bpf_prog_query_opts(ifindex as i32, side.attach_type(), &mut options)
    };
    match -status {
        // Kernels before know no such place.
        0 | libc::ENOENT | libc::EINVAL => {
            // SAFETY: both members of the union are this number.
            Ok(status == 0 && unsafe { options.__bindgen_anon_1.prog_cnt } > 0)
        }
        error => Err(io::Error::from_raw_os_error(error)),
    }
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
