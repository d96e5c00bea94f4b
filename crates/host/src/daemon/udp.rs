//! Who has a UDP port: proc_pid_net(5) names the socket, and proc_pid_fd(5) the process.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Most characters of a command line that are told.
const COMMAND_MAX: usize = 100;

/// The process whose socket keeps others from `address`, for an error; without the privilege to look into that process,
/// its user. `None`: there is no such socket any more.
pub fn holder(address: SocketAddr) -> Option<String> {
    let (uid, inode) = socket(address)?;
    let link = format!("socket:[{inode}]");
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Some(match pids.find(|pid| has(*pid, &link)) {
        Some(pid) => {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let line: String = line.chars().take(COMMAND_MAX).collect();
            format!("`{}` (pid {pid})", line.trim())
        }
        None => format!("a process of user {uid}"),
    })
}

/// Owner and inode of the socket that is bound to `address`, or to all addresses with its port.
fn socket(address: SocketAddr) -> Option<(String, String)> {
    let locals = |ip: IpAddr| format!("{}:{:04X}", in_words(ip), address.port());
    let any_v6 = locals(Ipv6Addr::UNSPECIFIED.into());
    let candidates = match address.ip() {
        ip @ IpAddr::V4(_) => {
            [("udp", locals(ip)), ("udp", locals([0; 4].into())), ("udp6", any_v6)]
        }
        ip @ IpAddr::V6(_) => [("udp6", locals(ip)), ("udp6", any_v6.clone()), ("udp6", any_v6)],
    };
    candidates.iter().find_map(|(table, local)| {
        let sockets = fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()?;
        sockets.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.get(1) != Some(&local.as_str()) {
                return None;
            }
            Some((fields.get(7)?.to_string(), fields.get(9)?.to_string()))
        })
    })
}

/// An address as the kernel writes it there: words of 32 bits in the machine's own order.
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
    fn a_socket_is_found_with_its_process_also_where_it_has_all_addresses() {
        let own = format!("(pid {})", std::process::id());
        for (bound, asked) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::1", "::1"),
            ("::", "::1"),
            ("::", "127.0.0.1"),
        ] {
            let socket = UdpSocket::bind((bound, 0)).unwrap();
            let asked =
                SocketAddr::new(asked.parse().unwrap(), socket.local_addr().unwrap().port());
            let found = holder(asked).unwrap();
            assert!(found.ends_with(&own), "{bound}: {found}");
        }
        assert_eq!(holder(SocketAddr::from(([127, 0, 0, 1], 0))), None, "nobody has this port");
    }
}
