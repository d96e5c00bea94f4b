//! Location of the other box of a bundle.

use std::fmt;
use std::net::SocketAddr;

/// Location of the other box of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// At this address.
    At(SocketAddr),
    /// At any address of the name, on this port.
    Named {
        /// A host name (RFC 1123 section 2.1) of two labels and more.
        name: String,
        /// The UDP port.
        port: u16,
    },
}

impl Peer {
    /// The address in the file; `None`: the file has a name.
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(*address),
            Self::Named { .. } => None,
        }
    }

    /// The name in the file; `None`: the file has an address.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::At(_) => None,
            Self::Named { name, .. } => Some(name),
        }
    }

    /// A name with its optional port; the default is `port`.
    pub(super) fn named(port: u16, text: &str) -> Option<Self> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
            None => (text, port),
        };
        is_host_name(name).then(|| Self::Named { name: name.to_ascii_lowercase(), port })
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Named { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

/// Whether `text` is a host name. It needs two labels or more, which excludes a mistyped word. The last label is not
/// a number, which excludes a mistyped address.
fn is_host_name(text: &str) -> bool {
    /// Longest host name, in bytes without the final dot (RFC 1035, section 2.3.4).
    const NAME_MAX: usize = 253;
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit_once('.').map(|(_, last)| last);
    text.len() <= NAME_MAX
        && text.split('.').all(is_label)
        && last.is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_labels_and_no_mistyped_address() {
        let named = |text: &str| Peer::named(7, text).map(|peer| peer.to_string());
        for (text, expected) in [
            ("Site-B.example.org", "site-b.example.org:7"),
            ("b.example:9000", "b.example:9000"),
            ("1.2.example", "1.2.example:7"),
        ] {
            assert_eq!(named(text).as_deref(), Some(expected));
        }
        let long = format!("{}.example", "a".repeat(64));
        let longer = format!("{}example", "a.".repeat(124));
        for text in [
            "here",
            "10.1.3.300",
            "10.1.3",
            "a..b",
            ".a.b",
            "a.b.",
            "-a.b",
            "a-.b",
            "a_b.c",
            "a b.c",
            "a.b:0",
            "a.b:65536",
            "a.b:",
            "fd00::1",
            "",
            ".",
            &long,
            &longer,
        ] {
            assert_eq!(named(text), None, "{text}");
        }
    }
}
