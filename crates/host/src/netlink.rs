//! Questions to the kernel over rtnetlink(7), in the current network namespace.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Bytes of `struct nlmsghdr`: length, type, flags, sequence number and port.
pub const HEADER: usize = 16;

// include/uapi/linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
/// `NLM_F_ROOT | NLM_F_MATCH`: all that there are.
const NLM_F_DUMP: u16 = 0x300;
/// More than the kernel puts into one datagram, and than one link without its virtual functions takes.
const ANSWER_BYTES: usize = 1 << 16;

/// The kernel's one message in answer to `kind` about what `body` says; it may be a [`refusal`].
pub fn ask(kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    receive(&request(kind, 0, body)?)
}

/// All messages of the kernel in answer to a dump of `kind`.
///
/// # Errors
///
/// What the kernel refuses with, and a message that is cut off.
pub fn dump(kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let kernel = request(kind, NLM_F_DUMP, body)?;
    let mut messages = Vec::new();
    loop {
        let datagram = receive(&kernel)?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let header: &[u8; HEADER] = rest.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
            let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let message = rest.get(..len.max(HEADER)).ok_or(io::ErrorKind::InvalidData)?;
            refusal(message)?;
            if kind_of(message) == Some(NLMSG_DONE) {
                return Ok(messages);
            }
            messages.push(message.to_vec());
            rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The error that a message of the kernel is, if it is one or too short for a message.
pub fn refusal(message: &[u8]) -> io::Result<()> {
    if kind_of(message).ok_or(io::ErrorKind::InvalidData)? != NLMSG_ERROR {
        return Ok(());
    }
    let code = message.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok());
    let code = i32::from_ne_bytes(code.ok_or(io::ErrorKind::InvalidData)?);
    Err(io::Error::from_raw_os_error(-code))
}

/// The payload of the attribute `wanted` (`struct rtattr`: length, type, payload, padding to 4).
pub fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [len0, len1, kind0, kind1, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([len0, len1]));
        let payload = attributes.get(4..len)?;
        if u16::from_ne_bytes([kind0, kind1]) == wanted {
            return Some(payload);
        }
        attributes = attributes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn kind_of(message: &[u8]) -> Option<u16> {
    let header: &[u8; HEADER] = message.first_chunk()?;
    Some(u16::from_ne_bytes([header[4], header[5]]))
}

fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<OwnedFd> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut request = vec![0; HEADER];
    request[..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    request.extend_from_slice(body);
    send(kernel.as_raw_fd(), &request, MsgFlags::empty())?;
    Ok(kernel)
}

fn receive(kernel: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; ANSWER_BYTES];
    let len = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(len);
    Ok(answer)
}
