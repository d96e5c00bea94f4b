//! Filter for packets that the kernel need not deliver: a filter of a socket (classic BPF,
//! Documentation/networking/filter.rst). Any process may set it, and no verifier can refuse it.
//!
//! It passes IP packets to one station with a source in a bundle's prefixes. It also passes packets behind a
//! VLAN tag that the kernel has left in the frame. So a gateway's other traffic causes no wake-up. The
//! sampler checks passed packets again.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use ipnet::IpNet;

use crate::port::set_option;

/// Instructions of the longest program that the kernel takes (BPF_MAXINSNS, include/uapi/linux/bpf_common.h).
const LONGEST: usize = 4096;
/// Bytes of a packet to deliver: all.
const WHOLE: u32 = u32::MAX;

/// Instruction: load a 32-bit word at a fixed offset.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// Instruction: jump if the accumulator equals a constant.
const EQUALS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
/// Instruction: jump always.
const GO: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
/// Instruction: mask the accumulator with a constant.
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
/// Instruction: deliver this many bytes of the packet; 0 drops it.
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offset that reads the EtherType of a packet (include/uapi/linux/filter.h).
const PROTOCOL: i32 = libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL;
/// Offset that reads the packet type, such as PACKET_HOST (include/uapi/linux/filter.h).
const KIND: i32 = libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE;
/// Offset of the source address in an IPv4 header (RFC 791).
const V4_SOURCE: i32 = libc::SKF_NET_OFF + 12;
/// Offset of the source address in an IPv6 header (RFC 8200).
const V6_SOURCE: i32 = libc::SKF_NET_OFF + 8;

/// A socket filter of the kernel, ready to be attached.
#[derive(Debug)]
pub struct PacketFilter(Vec<libc::sock_filter>);

impl PacketFilter {
    /// Passes packets from these prefixes. If there are too many prefixes, it passes packets from any source.
    pub fn of(sources: &BTreeSet<IpNet>) -> Self {
        let (v4, v6): (Vec<&IpNet>, Vec<&IpNet>) =
            sources.iter().partition(|prefix| prefix.addr().is_ipv4());
        let v4: Vec<_> = v4.into_iter().flat_map(passes).chain([answer(0)]).collect();
        let v6: Vec<_> = v6.into_iter().flat_map(passes).chain([answer(0)]).collect();
        let filter = Self::behind_head(&v4, &v6);
        if filter.0.len() > LONGEST { Self::of_any_source() } else { filter }
    }

    /// Passes packets from any source.
    pub fn of_any_source() -> Self {
        Self::behind_head(&[answer(WHOLE)], &[answer(WHOLE)])
    }

    /// Drops packets to groups, and packets that are not IP. These two programs decide about the rest.
    fn behind_head(v4: &[libc::sock_filter], v6: &[libc::sock_filter]) -> Self {
        let mut program = vec![
            load(KIND),
            equals(libc::PACKET_HOST.into(), 2, 0),
            equals(libc::PACKET_OTHERHOST.into(), 1, 0),
            answer(0),
            load(PROTOCOL),
            equals(libc::ETH_P_8021Q as u32, 5, 0),
            equals(libc::ETH_P_8021AD as u32, 4, 0),
            equals(libc::ETH_P_QINQ1 as u32, 3, 0),
            equals(libc::ETH_P_IP as u32, 3, 0),
            equals(libc::ETH_P_IPV6 as u32, 3, 0),
            answer(0),
            answer(WHOLE),
            step(GO, 1, (0, 0)),
            step(GO, v4.len() as u32, (0, 0)),
        ];
        program.extend_from_slice(v4);
        program.extend_from_slice(v6);
        Self(program)
    }

    /// Attaches the program to a socket, and replaces an earlier one.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: self.0.len() as libc::c_ushort,
            // The kernel only reads the program.
            filter: self.0.as_ptr().cast_mut(),
        };
        set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }
}

/// Passes a packet with a source in the prefix; otherwise continues behind these steps.
fn passes(prefix: &IpNet) -> Vec<libc::sock_filter> {
    let (source, octets) = match prefix.network() {
        std::net::IpAddr::V4(network) => (V4_SOURCE, network.octets().to_vec()),
        std::net::IpAddr::V6(network) => (V6_SOURCE, network.octets().to_vec()),
    };
    let mut steps = Vec::new();
    let words = octets.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word));
    for (place, word) in (0..).zip(words) {
        let bits = u32::from(prefix.prefix_len()).saturating_sub(32 * place).min(32);
        if bits == 0 {
            break;
        }
        steps.push(load(source + 4 * place as i32));
        if bits < 32 {
            steps.push(step(AND, u32::MAX << (32 - bits), (0, 0)));
        }
        steps.push(equals(word, 0, 0));
    }
    steps.push(answer(WHOLE));
    let len = steps.len();
    for (at, step) in steps.iter_mut().enumerate().filter(|(_, step)| step.code == EQUALS) {
        step.jf = (len - 1 - at) as u8;
    }
    steps
}

fn step(code: u16, k: u32, (jt, jf): (u8, u8)) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn load(at: i32) -> libc::sock_filter {
    step(LOAD, at as u32, (0, 0))
}

/// Skips `then` steps if the value is equal, otherwise `otherwise` steps.
fn equals(value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    step(EQUALS, value, (then, otherwise))
}

fn answer(bytes: u32) -> libc::sock_filter {
    step(RETURN, bytes, (0, 0))
}
