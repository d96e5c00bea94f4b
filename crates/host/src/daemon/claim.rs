//! Claims of WAN ports. A WAN port belongs to a single sendbox: two would remove each other's qdisc or queue.
//! A sendbox claims its port before it changes anything there, with any datapath, and a second sendbox is
//! refused.
//!
//! The claim is a pair of Unix sockets with names in the abstract namespace (unix(7)). One is for the name of
//! the device, and one for its index. A device that is created again keeps its name; a renamed device keeps
//! its index. Like devices, these names belong to one network namespace. They are free again once the process
//! has ended for any reason.
//!
//! Any user may take such a name. If its holder cannot be the user of a sendbox, the claim succeeds
//! nevertheless.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::sys::socket::SockProtocol;
use nix::unistd::geteuid;

use super::DaemonError;
use super::udp::process_of;
use crate::netlink::{self, attribute};
use crate::service::privileges::Confinement;

/// Prefix of all names.
const PREFIX: &str = "forebay/sendbox/wan";

/// Netlink message that asks for sockets of a family (include/uapi/linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Asks for the names of sockets (include/uapi/linux/unix_diag.h).
const UDIAG_SHOW_NAME: u32 = 1;
/// Asks for the owners of sockets (include/uapi/linux/unix_diag.h).
const UDIAG_SHOW_UID: u32 = 0x40;
/// Attribute: the name of a socket (include/uapi/linux/unix_diag.h).
const UNIX_DIAG_NAME: u16 = 0;
/// Attribute: the owner of a socket (include/uapi/linux/unix_diag.h).
const UNIX_DIAG_UID: u16 = 7;
/// Bytes of `struct unix_diag_msg`.
const UNIX_DIAG_MSG: usize = 16;
/// Offset of the inode in `struct unix_diag_msg`, in bytes.
const INODE_AT: usize = 4;

/// The claim of this process to a WAN port; dropping it releases the port.
#[derive(Debug)]
pub struct Claim {
    index: u32,
    _names: Vec<UnixDatagram>,
}

impl Claim {
    /// Claims a device of the current network namespace, for a sendbox that will run under `confinement`.
    ///
    /// # Errors
    ///
    /// Another sendbox has the device; the error names its process.
    pub fn take(wan: &str, index: u32, confinement: &Confinement) -> Result<Self, DaemonError> {
        let account = confinement.account.as_ref().map(|account| account.uid.as_raw());
        let may_be = |uid: u32| [0, geteuid().as_raw()].contains(&uid) || account == Some(uid);
        let names = [format!("{PREFIX}/name/{wan}"), format!("{PREFIX}/index/{index}")];
        let mut held = Vec::with_capacity(names.len());
        for name in names {
            let address = SocketAddr::from_abstract_name(&name).map_err(DaemonError::SetUp)?;
            match UnixDatagram::bind_addr(&address) {
                Ok(socket) => held.push(socket),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => match Holder::of(&name) {
                    Some(Holder { uid, .. }) if !may_be(uid) => tracing::warn!(
                        target: "device",
                        "user {uid} holds the Unix socket @{name}, by which sendboxes claim {wan}, \
                         but runs no sendbox: a second sendbox there would not be noticed"
                    ),
                    holder => return Err(taken(wan, holder.as_ref())),
                },
                Err(error) => return Err(DaemonError::SetUp(error)),
            }
        }
        Ok(Self { index, _names: held })
    }

    /// The index of the device at the time of the claim.
    pub fn index(&self) -> u32 {
        self.index
    }
}

fn taken(wan: &str, holder: Option<&Holder>) -> DaemonError {
    let who = holder.map_or("another process".into(), |it| process_of(it.inode, it.uid));
    DaemonError::SetUp(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!(
            "{wan} is in use by another sendbox, {who}: only one sendbox may use a WAN port; stop \
             that sendbox, or set box.wan to another device"
        ),
    ))
}

/// Owner of a Unix socket.
struct Holder {
    uid: u32,
    inode: u32,
}

impl Holder {
    /// The owner of the socket with this abstract name; `None` if the kernel does not answer, or the socket
    /// is gone.
    fn of(name: &str) -> Option<Self> {
        // struct unix_diag_req: family, protocol, padding, all states, any inode, what to show, any cookie.
        let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
        for word in [u32::MAX, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_UID, u32::MAX, u32::MAX] {
            request.extend_from_slice(&word.to_ne_bytes());
        }
        let all = netlink::dump_of(SockProtocol::NetlinkSockDiag, SOCK_DIAG_BY_FAMILY, &request);
        let wanted = [b"\0", name.as_bytes()].concat();
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
        all.ok()?.iter().find_map(|message| {
            let socket = message.get(netlink::HEADER..)?;
            let attributes = socket.get(UNIX_DIAG_MSG..)?;
            if attribute(attributes, UNIX_DIAG_NAME)? != wanted {
                return None;
            }
            let uid = word(attribute(attributes, UNIX_DIAG_UID)?)?;
            Some(Self { uid, inode: word(socket.get(INODE_AT..INODE_AT + 4)?)? })
        })
    }
}

#[cfg(test)]
mod tests {
    use nix::net::if_::if_nametoindex;

    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    fn claim(wan: &str) -> Result<Claim, String> {
        let index = if_nametoindex(wan).unwrap();
        Claim::take(wan, index, &Confinement::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_device_is_claimed_by_name_and_index() {
        on_a_veth_pair(|| {
            let first = claim("left").unwrap();
            let error = claim("left").unwrap_err();
            let own = format!("(pid {})", std::process::id());
            assert!(error.starts_with("left is in use by another sendbox, `"), "{error}");
            assert!(error.contains(&own), "{error}");
            let other = claim("right").unwrap();
            // After renaming it is the same device; created again, it has the same name.
            drop(other);
            run("ip link set left down");
            run("ip link set left name other");
            assert!(claim("other").is_err());
            run("ip link add left type veth peer name spare");
            assert!(claim("left").is_err());
            drop(first);
            claim("other").unwrap();
            claim("left").unwrap();
        });
    }

    #[test]
    fn devices_of_other_namespaces_are_others() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (claimed, next) = std::sync::mpsc::channel();
        let first = std::thread::spawn(move || {
            on_a_veth_pair(move || {
                let _claim = claim("left").unwrap();
                claimed.send(()).unwrap();
                let _ = wait.recv();
            });
        });
        // Without the privilege there is no other namespace.
        if next.recv().is_ok() {
            on_a_veth_pair(|| drop(claim("left").unwrap()));
        }
        drop(done);
        first.join().unwrap();
    }

    #[test]
    fn a_strangers_name_keeps_no_box_away() {
        on_a_veth_pair(|| {
            let index = if_nametoindex("left").unwrap();
            let stranger = std::thread::spawn(move || {
                // SAFETY: only the user of this thread changes, and the thread ends with the test.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setfsuid, 65_534) }, 0);
                let name = format!("{PREFIX}/index/{index}");
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
            });
            let _squatter = stranger.join().unwrap();
            let _claim = claim("left").unwrap();
            assert!(claim("left").unwrap_err().contains("another sendbox"), "by its name");
        });
    }
}
