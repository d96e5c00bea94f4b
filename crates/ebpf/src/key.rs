//! Addresses and prefixes as the BPF programs keep them in map keys (`bpf/packet.h`).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::Error;
use crate::membership::refuse_mapped;
use crate::skel::Plain;
use crate::skel::capture::types::mac;
// Capture and sampler have the structures of `bpf/packet.h` each.
use crate::skel::sampler::types::{address, message_end, pair, prefix};
use crate::watched::MessageEnd;

impl MessageEnd {
    pub(crate) fn key(&self) -> Vec<u8> {
        let Self { address, port, is_source } = *self;
        let (address, port) = (address_key(address), port.to_be());
        message_end { address, port, is_source: is_source.into() }.as_bytes().to_vec()
    }
}

/// Bits of the address family at the start of a key.
const FAMILY_BITS: u32 = 32;
/// Bits of a destination's number.
const NUMBER_BITS: u32 = 32;

/// The octets of an IPv4 address are the first of the sixteen.
pub(crate) fn address_key(ip: IpAddr) -> address {
    let (family, octets) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut key = address { family: family as u32, ..address::default() };
    for (word, octets) in key.word.iter_mut().zip(octets.as_chunks().0) {
        *word = u32::from_ne_bytes(*octets);
    }
    key
}

/// Length of a prefix in bits, the family's included.
pub(crate) fn prefix_length(prefix: IpNet) -> u32 {
    FAMILY_BITS + u32::from(prefix.prefix_len())
}

/// Refuses prefixes of IPv4 addresses in IPv6 form, which no packet carries.
pub(crate) fn prefix_key(net: IpNet) -> Result<prefix, Error> {
    refuse_mapped(net)?;
    Ok(prefix { length: prefix_length(net), address: address_key(net.network()) })
}

/// A source prefix of a bundle that lists the destination prefix of this number.
pub(crate) fn pair_key(destination: u32, source: IpNet) -> pair {
    let length = NUMBER_BITS + prefix_length(source);
    pair { length, destination, source: address_key(source.network()) }
}

pub(crate) fn mac_key(octets: [u8; 6]) -> mac {
    let mut key = mac::default();
    key.octet[..6].copy_from_slice(&octets);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_zero_matches_all_of_its_family() {
        let v4 = prefix_key("0.0.0.0/0".parse().unwrap()).unwrap();
        let v6 = prefix_key("::/0".parse().unwrap()).unwrap();
        assert_eq!((v4.length, v6.length), (32, 32));
        assert_ne!(v4, v6);
    }

    #[test]
    fn host_bits_are_cleared_in_the_key() {
        let host = prefix_key("10.1.2.3/8".parse().unwrap()).unwrap();
        assert_eq!(host, prefix_key("10.0.0.0/8".parse().unwrap()).unwrap());
    }

    #[test]
    fn mapped_prefixes_are_refused() {
        assert!(prefix_key("::ffff:10.0.0.0/104".parse().unwrap()).is_err());
        assert!(prefix_key("::/0".parse().unwrap()).is_ok());
    }
}
