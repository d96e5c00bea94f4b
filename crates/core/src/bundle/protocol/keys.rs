//! The secrets that two boxes share, and the keys derived from them.
//!
//! One pre-shared key serves every bundle of the two boxes. Each bundle, direction and purpose gets its own
//! derived key. A message is therefore invalid for another bundle and cannot be sent back to its sender. Its
//! tag does not show which packets are sampled.

use core::fmt;
use core::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::bundle::{BundleId, SamplingKey};

/// Bytes of a message's authentication tag.
pub const TAG_LEN: usize = 16;

/// Direction of a message; each direction has its own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// Sendbox to receivebox.
    ToReceivebox = 1,
    /// Receivebox to sendbox.
    ToSendbox = 2,
}

/// 32 random bytes known to both boxes, written as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct PresharedKey([u8; 32]);

impl PresharedKey {
    /// From random bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The sampling key of `bundle`.
    pub fn sampling_key(&self, bundle: BundleId) -> SamplingKey {
        let mut key = [0; 16];
        key.copy_from_slice(&self.expand(b"forebay 1 sampling", bundle, 0)[..16]);
        SamplingKey(key)
    }

    /// The key that authenticates the messages of `bundle` in one direction.
    pub fn message_key(&self, bundle: BundleId, direction: Direction) -> MessageKey {
        let key = self.expand(b"forebay 1 messages", bundle, direction as u8);
        MessageKey(mac_with(&key))
    }

    /// HKDF-Expand (RFC 5869 section 2.3) for one block. The key is uniform, so the extraction step may be
    /// skipped (section 3.3). The labels are equally long and no label is another's prefix, so distinct inputs
    /// cannot give the same info string.
    fn expand(&self, label: &[u8; 18], bundle: BundleId, direction: u8) -> [u8; 32] {
        let mut mac = mac_with(&self.0);
        mac.update(label);
        mac.update(&bundle.0.to_le_bytes());
        mac.update(&[direction, 1]);
        mac.finalize().into_bytes().into()
    }
}

/// Keeps the key out of logs.
impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.as_bytes();
        let found = digits.len();
        if found != 64 {
            return Err(KeyError::Length { line: 1, found });
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).map(|digit| digit as u8);
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err(KeyError::NotHex { line: 1 });
            };
            *byte = high << 4 | low;
        }
        Ok(Self(key))
    }
}

/// The valid keys: the one to send with, and during a rotation a second one that is accepted too.
///
/// To rotate without a gap: add the new key as the second on both boxes, then make it the first on both, then
/// remove the old one from both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    current: PresharedKey,
    other: Option<PresharedKey>,
}

impl KeyRing {
    /// Sends with `current`, accepts `other` too.
    pub const fn new(current: PresharedKey, other: Option<PresharedKey>) -> Self {
        Self { current, other }
    }

    /// Reads the text of a key file: one key or two, each on its own line, the one to send with
    /// first. Blank lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = [None, None];
        let mut found = 0;
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let slot = keys.get_mut(found).ok_or(KeyError::TooMany { line: number })?;
            *slot = Some(line.parse().map_err(|error: KeyError| error.at_line(number))?);
            found += 1;
        }
        let [current, other] = keys;
        Ok(Self { current: current.ok_or(KeyError::None)?, other })
    }

    /// The keys, the one to send with first.
    pub fn keys(&self) -> impl Iterator<Item = &PresharedKey> {
        core::iter::once(&self.current).chain(&self.other)
    }

    /// The key to send with.
    pub const fn current(&self) -> &PresharedKey {
        &self.current
    }
}

/// An invalid key file. Names the line, never its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A line that is neither blank, nor a comment, nor as long as a key.
    #[error("line {line}: {found} characters; a key is 64 hexadecimal digits")]
    Length {
        /// Line, from 1.
        line: usize,
        /// Characters on it.
        found: usize,
    },
    /// A line that is as long as a key but has other characters.
    #[error("line {line}: a key is 64 hexadecimal digits and nothing else")]
    NotHex {
        /// Line, from 1.
        line: usize,
    },
    /// A third key.
    #[error("line {line}: at most two keys are valid at a time")]
    TooMany {
        /// Line, from 1.
        line: usize,
    },
    /// Only blank lines and comments.
    #[error("no key: a line of 64 hexadecimal digits, such as `openssl rand -hex 32` prints")]
    None,
}

impl KeyError {
    fn at_line(self, number: usize) -> Self {
        match self {
            Self::Length { found, .. } => Self::Length { line: number, found },
            Self::NotHex { .. } => Self::NotHex { line: number },
            other => other,
        }
    }
}

/// Authenticates the messages of one bundle in one direction: HMAC-SHA-256 (RFC 2104), cut to
/// 128 bits (section 5 asks for at least half of the hash).
#[derive(Clone)]
pub struct MessageKey(Hmac<Sha256>);

impl MessageKey {
    /// The tag of `bytes`.
    pub fn tag(&self, bytes: &[u8]) -> [u8; TAG_LEN] {
        let mut mac = self.0.clone();
        mac.update(bytes);
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG_LEN]);
        tag
    }

    /// Whether `tag` is the tag of `bytes`, compared in constant time.
    pub fn verifies(&self, bytes: &[u8], tag: &[u8; TAG_LEN]) -> bool {
        let mut mac = self.0.clone();
        mac.update(bytes);
        mac.verify_truncated_left(tag).is_ok()
    }
}

/// Keeps the key out of logs.
impl fmt::Debug for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageKey(..)")
    }
}

fn mac_with(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn each_bundle_direction_and_purpose_has_its_key() {
        let key: PresharedKey = HEX.parse().unwrap();
        let tag = |bundle, direction| key.message_key(BundleId(bundle), direction).tag(b"message");
        let forward = tag(1, Direction::ToReceivebox);
        assert_eq!(forward, tag(1, Direction::ToReceivebox));
        assert_ne!(forward, tag(1, Direction::ToSendbox));
        assert_ne!(forward, tag(2, Direction::ToReceivebox));
        assert_ne!(key.sampling_key(BundleId(1)), key.sampling_key(BundleId(2)));
        let other = PresharedKey::new([7; 32]);
        assert_ne!(key.sampling_key(BundleId(1)), other.sampling_key(BundleId(1)));
    }

    #[test]
    fn a_key_file_holds_one_key_or_two() {
        let other = "f".repeat(64);
        let ring = KeyRing::parse(&format!("# both\n{HEX}\r\n\n{other}\n")).unwrap();
        assert_eq!(ring, KeyRing::new(HEX.parse().unwrap(), Some(PresharedKey::new([0xff; 32]))));
        assert_eq!(KeyRing::parse(HEX).unwrap().keys().count(), 1);
    }

    #[test]
    fn bad_key_file_is_refused_without_its_content() {
        let cases = [
            ("# nothing\n\n".to_string(), KeyError::None),
            (format!("\n{}", &HEX[1..]), KeyError::Length { line: 2, found: 63 }),
            (format!("{HEX}\n{}", HEX.replace('0', "g")), KeyError::NotHex { line: 2 }),
            (format!("{HEX}\n{HEX}\n{HEX}"), KeyError::TooMany { line: 3 }),
        ];
        for (text, expected) in cases {
            let error = KeyRing::parse(&text).unwrap_err();
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("0102"));
        }
        assert!(!format!("{:?}", KeyRing::parse(HEX)).contains("0102"));
    }
}
