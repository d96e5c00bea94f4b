//! Holders of UDP ports: proc_pid_net(5) names the socket, and proc_pid_fd(5) the process.

use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The process whose socket blocks `address`, for an error; without the privilege to look into that
/// process, its user. A command line may hold secrets, so only the name of the process is given
/// (`/proc/PID/comm`). `None`: the socket is gone.
pub fn holder(address: SocketAddr) -> Option<String> {
    let (uid, inode) = socket(address)?;
    Some(process_of(inode, uid))
}

/// The process that has the socket of this inode, for an error, or else its user.
pub fn process_of(inode: impl Display, uid: impl Display) -> String {
    let link = format!("socket:[{inode}]");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    match pids.find(|pid| has(*pid, &link)) {
        Some(pid) => {
            let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("`{}` (pid {pid})", printable(&name))
        }
        None => format!("a process of user {uid}"),
    }
}

/// Escapes the name of a process, which may contain any bytes, even such as move the cursor of a
/// terminal.
fn printable(name: &[u8]) -> String {
    let name = name.strip_suffix(b"\n").unwrap_or(name);
    String::from_utf8_lossy(name).escape_debug().to_string()
}

/// Owner and inode of the socket that is bound to `address`, or to all addresses with its port.
fn socket(address: SocketAddr) -> Option<(String, String)> {
    let any_v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let tables: Vec<(&str, [IpAddr; 2])> = match address.ip().to_canonical() {
        IpAddr::V4(ip) => vec![
            ("udp", [ip.into(), Ipv4Addr::UNSPECIFIED.into()]),
            ("udp6", [ip.to_ipv6_mapped().into(), any_v6]),
        ],
        IpAddr::V6(ip) => vec![("udp6", [ip.into(), any_v6])],
    };
    tables.into_iter().find_map(|(table, ips)| {
        let locals = ips.map(|ip| format!("{}:{:04X}", in_words(ip), address.port()));
        let sockets = fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()?;
        sockets.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let local = *fields.get(1)?;
            if !locals.iter().any(|held| held == local) {
                return None;
            }
            Some((fields.get(7)?.to_string(), fields.get(9)?.to_string()))
        })
    })
}

/// An address as the kernel writes it there: words of 32 bits in the machine's byte order.
fn in_words(ip: IpAddr) -> String {
    let word = |octets: &[u8]| {
        let octets: [u8; 4] = octets.try_into().expect("addresses are whole words");
        format!("{:08X}", u32::from_ne_bytes(octets))
    };
    match ip {
        IpAddr::V4(ip) => word(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks(4).map(word).collect(),
    }
}

fn has(pid: u32, link: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|target| target.as_os_str() == link)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn socket_owner_is_found_for_wildcard_addresses_too() {
        let own = format!("(pid {})", std::process::id());
        for (bound, asked) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::1", "::1"),
            ("::", "::1"),
            ("::", "127.0.0.1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
        ] {
            let socket = UdpSocket::bind((bound, 0)).unwrap();
            let asked =
                SocketAddr::new(asked.parse().unwrap(), socket.local_addr().unwrap().port());
            let found = holder(asked).unwrap();
            assert!(found.ends_with(&own), "{bound}: {found}");
        }
        assert_eq!(holder(SocketAddr::from(([127, 0, 0, 1], 0))), None, "no process has this port");
    }

    #[test]
    fn process_is_named_without_its_arguments() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = fs::read("/proc/self/comm").unwrap();
        let expected = format!("`{}` (pid {})", printable(&name), std::process::id());
        assert_eq!(holder(socket.local_addr().unwrap()), Some(expected));
        assert_eq!(printable(b"\x1b[2Jbox\n"), "\\u{1b}[2Jbox");
    }
}
