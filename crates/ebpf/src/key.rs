//! Addresses and prefixes as the BPF programs keep them in map keys (`bpf/packet.h`).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::Error;

const ADDRESS_LEN: usize = 20;
const FAMILY_BITS: u32 = 32;

/// `struct address`: the family in host order, then the address padded to 16 bytes.
pub(crate) fn address_key(address: IpAddr) -> [u8; ADDRESS_LEN] {
    let mut key = [0; ADDRESS_LEN];
    let family = match address {
        IpAddr::V4(address) => {
            key[4..8].copy_from_slice(&address.octets());
            libc::AF_INET
        }
        IpAddr::V6(address) => {
            key[4..20].copy_from_slice(&address.octets());
            libc::AF_INET6
        }
    };
    key[..4].copy_from_slice(&(family as u32).to_ne_bytes());
    key
}

/// Length of a prefix in bits, the family's included.
pub(crate) fn prefix_length(prefix: IpNet) -> u32 {
    FAMILY_BITS + u32::from(prefix.prefix_len())
}

/// `struct prefix`: the length in bits, the family's included, then the address.
pub(crate) fn prefix_key(prefix: IpNet) -> Result<[u8; 4 + ADDRESS_LEN], Error> {
    if let IpNet::V6(v6) = prefix
        && v6.prefix_len() >= 96
        && v6.network().to_ipv4_mapped().is_some()
    {
        return Err(Error::MappedPrefix(prefix));
    }
    let mut key = [0; 4 + ADDRESS_LEN];
    key[..4].copy_from_slice(&prefix_length(prefix).to_ne_bytes());
    key[4..].copy_from_slice(&address_key(prefix.network()));
    Ok(key)
}

/// `struct mac` of `capture.bpf.c`: the address, filled up with zeros.
pub(crate) fn mac_key(mac: [u8; 6]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..6].copy_from_slice(&mac);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_internet_of_one_family_is_a_prefix_as_long_as_the_family() {
        let v4 = prefix_key("0.0.0.0/0".parse().unwrap()).unwrap();
        let v6 = prefix_key("::/0".parse().unwrap()).unwrap();
        assert_eq!(v4[..4], 32_u32.to_ne_bytes());
        assert_ne!(v4, v6);
    }

    #[test]
    fn host_bits_below_the_prefix_do_not_reach_the_key() {
        let host = prefix_key("10.1.2.3/8".parse().unwrap()).unwrap();
        assert_eq!(host, prefix_key("10.0.0.0/8".parse().unwrap()).unwrap());
    }

    #[test]
    fn mapped_prefixes_are_refused() {
        assert!(prefix_key("::ffff:10.0.0.0/104".parse().unwrap()).is_err());
        assert!(prefix_key("::/0".parse().unwrap()).is_ok());
    }
}
