//! Attaching XDP programs through BPF links.

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
        refuse_foreign(&device, ifindex)?;
        for (mode, flags) in
            [(XdpMode::Native, XDP_FLAGS_DRV_MODE), (XdpMode::Generic, XDP_FLAGS_SKB_MODE)]
        {
            match link_create(program, ifindex, flags) {
                Ok(fd) => return Ok(Self { _fd: fd, mode }),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return Err(Error::Privilege);
                }
                Err(error) if mode == XdpMode::Native => {
                    tracing::debug!(%device, %error, "driver refuses native XDP");
                    // Somebody may have been faster than us since the check above.
                    refuse_foreign(&device, ifindex)?;
                }
                Err(source) => return Err(Error::Attach { device, source }),
            }
        }
        unreachable!("the last mode returns")
    }
}

fn link_create(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: the options are plain numbers and null pointers, for which zero is valid.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    options.flags = flags;
    // SAFETY: the program is an open descriptor and the options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &options,
        )
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
