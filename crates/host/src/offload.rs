//! What network devices do to frames on their own: offloads that merge packets or leave checksums
//! to the hardware, and their limits.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The device's MTU, in bytes.
pub(crate) fn mtu(device: &str) -> io::Result<u32> {
    let mut request = request(device)?;
    ioctl(libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: SIOCGIFMTU has filled this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
}

fn request(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: plain numbers and null pointers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(command: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request is a whole ifreq, and what it points to outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), command, request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
