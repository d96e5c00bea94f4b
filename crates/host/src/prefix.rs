//! Prefixes of addresses, as people write them.

use std::net::IpAddr;

use ipnet::IpNet;

/// Parses a prefix such as `10.1.2.0/24`. Refuses numbers with a leading zero, which some programs read as octal.
pub fn parse(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let is_plain = length == "0" || !length.starts_with(['0', '+']);
    IpNet::new(address.parse().ok()?, length.parse().ok().filter(|_| is_plain)?).ok()
}

/// The IPv4 equivalent of an IPv6 prefix of IPv4-mapped addresses (RFC 4291 section 2.5.5.2). Packets never carry such
/// addresses.
pub fn of_mapped(prefix: IpNet) -> Option<IpNet> {
    let IpNet::V6(mapped) = prefix else { return None };
    let length = mapped.prefix_len().checked_sub(96)?;
    IpNet::new(IpAddr::V4(mapped.network().to_ipv4_mapped()?), length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_others_read_otherwise_are_refused() {
        for text in ["10.1.2.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "10.0.1.7/32"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in [
            "010.1.2.0/24",
            "10.01.2.0/24",
            "10.1.2.00/24",
            "10.1.2.0/024",
            "10.1.2.0/+24",
            "10.1.2.0/00",
            "0x0a.1.2.0/24",
            "10.1.2/24",
            "10.1.2.0",
            "10.1.2.0/33",
            "::/129",
            "10.1.2.0/",
            "/24",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn mapped_prefixes_mean_others() {
        let mapped = |text: &str| of_mapped(parse(text).unwrap()).map(|prefix| prefix.to_string());
        assert_eq!(mapped("::ffff:10.1.2.0/120").as_deref(), Some("10.1.2.0/24"));
        assert_eq!(mapped("::ffff:0:0/96").as_deref(), Some("0.0.0.0/0"));
        for text in ["::/0", "::/95", "::10.1.2.0/120", "10.1.2.0/24", "2001:db8::/96"] {
            assert_eq!(mapped(text), None, "{text}");
        }
    }
}
