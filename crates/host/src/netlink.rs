//! Requests to the kernel over netlink(7), mostly rtnetlink(7), in the current network namespace.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname,
    recv, send, socket,
};

/// Changes of qdiscs, classes and filters, to [`subscribe`] to (include/uapi/linux/rtnetlink.h).
pub const RTMGRP_TC: u32 = 8;
/// Bytes of `struct nlmsghdr`: length, type, flags, sequence number and port.
pub const HEADER: usize = 16;

/// Message: an error, or with number 0 the acknowledgement (include/uapi/linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
/// Message: the end of a dump (include/uapi/linux/netlink.h).
const NLMSG_DONE: u16 = 3;
/// Flag: a request to the kernel (include/uapi/linux/netlink.h).
const NLM_F_REQUEST: u16 = 1;
/// Flag: the kernel acknowledges the command (include/uapi/linux/netlink.h).
const NLM_F_ACK: u16 = 4;
/// Flag: the command replaces an existing object.
pub const NLM_F_REPLACE: u16 = 0x100;
/// Flag: the command fails if the object exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Flag: the command creates the object if it does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// `NLM_F_ROOT | NLM_F_MATCH`: return all objects.
const NLM_F_DUMP: u16 = 0x300;
/// Mask for the type of an attribute, without the flags that some kernels and families add.
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Bytes of the receive buffer: more than the kernel puts into one datagram, and than one link without its virtual
/// functions needs.
const ANSWER_BYTES: usize = 1 << 16;

/// Sends the request `kind` with `body`, and returns the kernel's one message; it may be a [`refusal`].
pub fn ask(kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    receive(&request(SockProtocol::NetlinkRoute, kind, 0, body)?)
}

/// Sends commands to rtnetlink(7), over one socket. Each needs `CAP_NET_ADMIN`.
#[derive(Debug)]
pub struct Commands(OwnedFd);

impl Commands {
    /// Opens the socket, in the current network namespace.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let route = SockProtocol::NetlinkRoute;
        socket(AddressFamily::Netlink, SockType::Raw, flags, route)
            .map(Self)
            .map_err(io::Error::from)
    }

    /// The port that the kernel assigns to the socket at its first command. Notifications about the changes of a
    /// command carry it.
    pub fn port(&self) -> io::Result<u32> {
        Ok(getsockname::<NetlinkAddr>(self.0.as_raw_fd())?.pid())
    }

    /// Sends the request `kind` with `body`, and returns the kernel's one message; it may be a [`refusal`].
    pub fn ask(&self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        send_request(&self.0, kind, 0, body)?;
        receive(&self.0)
    }

    /// Returns all messages of the kernel in answer to a dump of `kind`, as [`dump`] does.
    pub fn dump(&self, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        send_request(&self.0, kind, NLM_F_DUMP, body)?;
        let mut messages = Vec::new();
        read_answers(&self.0, |message| {
            messages.push(message.to_vec());
            None::<()>
        })?;
        Ok(messages)
    }

    /// Sends the command `kind` with `body` and the `flags` that belong to it.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn command(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        send_request(&self.0, kind, flags | NLM_F_ACK, body)?;
        let answer = receive(&self.0)?;
        // An acknowledgement is an error without a code.
        match refusal(&answer) {
            Err(error) if error.raw_os_error() == Some(0) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// An attribute with this payload (`struct rtattr`), padded.
pub fn attribute_of(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut attribute = ((payload.len() + 4) as u16).to_ne_bytes().to_vec();
    attribute.extend_from_slice(&kind.to_ne_bytes());
    attribute.extend_from_slice(payload);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Returns all messages of the kernel in answer to a dump of `kind`.
///
/// # Errors
///
/// The kernel's refusal, or an error for a truncated message.
pub fn dump(kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    dump_of(SockProtocol::NetlinkRoute, kind, body)
}

/// As [`dump`], for another netlink protocol.
pub fn dump_of(protocol: SockProtocol, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    let keep = |message: &[u8]| {
        messages.push(message.to_vec());
        None::<()>
    };
    read_dump(protocol, kind, body, keep)?;
    Ok(messages)
}

/// Applies `wanted` to the messages of a dump of `kind` until it returns a value, and requests no more then.
///
/// # Errors
///
/// As for [`dump`].
pub fn find<T>(
    kind: u16,
    body: &[u8],
    wanted: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    read_dump(SockProtocol::NetlinkRoute, kind, body, wanted)
}

fn read_dump<T>(
    protocol: SockProtocol,
    kind: u16,
    body: &[u8],
    wanted: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    read_answers(&request(protocol, kind, NLM_F_DUMP, body)?, wanted)
}

/// Applies `wanted` to the answers of a dump until it returns a value, and reads no more then.
fn read_answers<T>(
    kernel: &OwnedFd,
    mut wanted: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    loop {
        let datagram = receive(kernel)?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let header: &[u8; HEADER] = rest.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
            let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let message = rest.get(..len.max(HEADER)).ok_or(io::ErrorKind::InvalidData)?;
            refusal(message)?;
            if kind_of(message) == Some(NLMSG_DONE) {
                return Ok(None);
            }
            if let Some(found) = wanted(message) {
                return Ok(Some(found));
            }
            rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Returns the error that the kernel's message carries, or one for a message that is too short.
pub fn refusal(message: &[u8]) -> io::Result<()> {
    if kind_of(message).ok_or(io::ErrorKind::InvalidData)? != NLMSG_ERROR {
        return Ok(());
    }
    let code = message.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok());
    let code = i32::from_ne_bytes(code.ok_or(io::ErrorKind::InvalidData)?);
    Err(io::Error::from_raw_os_error(-code))
}

/// The payload of the attribute `wanted`.
pub fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    all_attributes(attributes).find_map(|(kind, payload)| (kind == wanted).then_some(payload))
}

/// Type and payload of each attribute (`struct rtattr`: length, type, payload, padding to 4).
pub fn all_attributes(mut attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [len0, len1, kind0, kind1, ..] = *attributes else { return None };
        let len = usize::from(u16::from_ne_bytes([len0, len1]));
        let payload = attributes.get(4..len)?;
        attributes = attributes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([kind0, kind1]) & NLA_TYPE_MASK, payload))
    })
}

/// A socket that is readable after a change in one of `groups`, a bit each (the first group of a family is bit 0).
pub fn subscribe(protocol: SockProtocol, groups: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(kernel.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(kernel)
}

/// Discards all notifications of a subscription so far.
pub fn drain(subscription: &OwnedFd) -> io::Result<()> {
    take(subscription, |_| ())
}

/// Passes each notification so far to `told`. Of several in one datagram it passes the first; if the kernel had no room
/// for all, an empty one.
pub fn take(subscription: &OwnedFd, mut told: impl FnMut(&[u8])) -> io::Result<()> {
    let mut message = [0; 1 << 12];
    loop {
        match recv(subscription.as_raw_fd(), &mut message, MsgFlags::empty()) {
            Ok(len) => told(&message[..len]),
            Err(Errno::ENOBUFS) => told(&[]),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn kind_of(message: &[u8]) -> Option<u16> {
    let header: &[u8; HEADER] = message.first_chunk()?;
    Some(u16::from_ne_bytes([header[4], header[5]]))
}

fn request(protocol: SockProtocol, kind: u16, flags: u16, body: &[u8]) -> io::Result<OwnedFd> {
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    send_request(&kernel, kind, flags, body)?;
    Ok(kernel)
}

fn send_request(kernel: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let mut request = vec![0; HEADER];
    request[..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    request.extend_from_slice(body);
    send(kernel.as_raw_fd(), &request, MsgFlags::empty())?;
    Ok(())
}

fn receive(kernel: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; ANSWER_BYTES];
    let len = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(len);
    Ok(answer)
}
