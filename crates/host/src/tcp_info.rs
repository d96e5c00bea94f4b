//! State of a TCP connection in the kernel.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use socket2::Socket;

/// `TCP_INFO` of `socket`.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes. All fields are integers, for which zero is
    // valid.
    let (status, info) = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        let to = info.as_mut_ptr().cast();
        let status = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut length);
        (status, info.assume_init())
    };
    if status == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// The congestion control of `socket`.
pub fn congestion_control(socket: &Socket) -> Option<String> {
    let name = socket.tcp_congestion().ok()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}
