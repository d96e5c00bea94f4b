//! Time, bytes and rates as types: the only place that multiplies by 8 or by 10^9.
//!
//! Only dimensionally valid operators exist. Text forms carry their unit (`"96Mbit/s"`, `"50ms"`,
//! `"15KB"`, `"1200p"`, `"1%"`); a bare number is an error wherever a quantity has a unit.
//! Decimal prefixes are powers of 1000 (`KB` = 1000 bytes), `KiB`/`MiB` powers of 1024.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::num::NonZeroU64;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use core::str::FromStr;
pub use core::time::Duration;

/// Nanoseconds in a second.
const NANOS_PER_SEC: u128 = 1_000_000_000;

/// A point in time: nanoseconds since an origin that the host chooses (boot, start of a run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The last representable instant, 584 years after the origin.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin, for printing and plotting.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// Time elapsed since `earlier`, zero if `earlier` lies in the future.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time elapsed since `earlier`, `None` if `earlier` lies in the future.
    pub fn checked_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// Signed nanoseconds from `earlier` to `self`, saturating at the range of `i64`.
    pub fn signed_nanos_since(self, earlier: Self) -> i64 {
        let difference = i128::from(self.0) - i128::from(earlier.0);
        difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

/// Nanoseconds, `u64::MAX` beyond 584 years.
pub(crate) const fn duration_nanos(duration: Duration) -> u64 {
    const SECS_MAX: u64 = u64::MAX / NANOS_PER_SEC as u64;
    // This does not use `as_nanos`: BPF has no product of 128 bits.
    if duration.as_secs() > SECS_MAX {
        return u64::MAX;
    }
    let nanos = duration.as_secs() * NANOS_PER_SEC as u64;
    nanos.saturating_add(duration.subsec_nanos() as u64)
}

/// `duration` times `factor`: zero where the product is negative or no number, [`Duration::MAX`] where it
/// exceeds a duration. `Duration::mul_f64` panics there.
pub fn stretched(duration: Duration, factor: f64) -> Duration {
    seconds(factor * duration.as_secs_f64())
}

/// A number of seconds as a duration, bounded like [`stretched`].
pub fn seconds(seconds: f64) -> Duration {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => duration,
        Err(_) if seconds > 0.0 => Duration::MAX,
        Err(_) => Duration::ZERO,
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration_nanos(duration)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration_nanos(duration)))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct ByteCount(u64);

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// From a number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The number of bytes as a float.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// `self - other`, zero where `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The rate that moves `self` in `duration`; `None` for a zero duration.
    pub fn per(self, duration: Duration) -> Option<Rate> {
        let nanos = duration_nanos(duration);
        (nanos > 0).then(|| Rate(mul_div(self.0, BIT_NANOS, nanos)))
    }

    /// The time that `self` takes at `rate`, rounded up to a nanosecond; `None` at rate zero.
    pub fn time_at(self, rate: Rate) -> Option<Duration> {
        if rate.0 == 0 {
            return None;
        }
        let nanos = (u128::from(self.0) * 8 * NANOS_PER_SEC).div_ceil(u128::from(rate.0));
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Like [`ByteCount::time_at`], rounded down, with the remainder kept in `carry` for the next
    /// packet: a server that stays busy keeps `rate` exactly. `carry` is in bit nanoseconds, below
    /// `rate`; start it at 0 and reset it when the server idles or the rate changes.
    pub fn time_at_carrying(self, rate: Rate, carry: &mut u64) -> Option<Duration> {
        if rate.0 == 0 {
            return None;
        }
        let work = u128::from(self.0) * 8 * NANOS_PER_SEC + u128::from(*carry);
        *carry = (work % u128::from(rate.0)) as u64;
        let nanos = work / u128::from(rate.0);
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Bit nanoseconds of a byte second.
const BIT_NANOS: u64 = 8 * NANOS_PER_SEC as u64;

/// `a b / by` rounded down, `u64::MAX` where that is more or `by` is 0. This uses 64-bit operations alone,
/// which BPF has. A small product takes few operations.
#[inline]
pub(crate) fn mul_div(a: u64, b: u64, by: u64) -> u64 {
    let (high, low) = product(a, b);
    match NonZeroU64::new(by) {
        Some(by) if high == 0 => low / by,
        Some(by) if high < by.get() => long_quotient(high, low, by),
        _ => u64::MAX,
    }
}

/// Lower half of 64 bits.
const HALF: u64 = u32::MAX as u64;

/// High and low word of a product.
pub(crate) const fn product(a: u64, b: u64) -> (u64, u64) {
    let low = (a & HALF) * (b & HALF);
    let one = (a >> 32) * (b & HALF) + (low >> 32);
    let other = (a & HALF) * (b >> 32) + (one & HALF);
    ((a >> 32) * (b >> 32) + (one >> 32) + (other >> 32), other << 32 | low & HALF)
}

/// `(high << 64 | low) / by` for `high` below `by`: long division by digits of 32 bits, each guessed from the
/// upper half of `by` and at most two too large (Knuth, The Art of Computer Programming 2, 4.3.1, D).
fn long_quotient(high: u64, low: u64, by: NonZeroU64) -> u64 {
    let shift = by.leading_zeros();
    let by = by.get() << shift;
    let high = high << shift | low >> 1 >> (63 - shift);
    let low = low << shift;
    let Some(upper) = NonZeroU64::new(by >> 32) else { return u64::MAX };
    let digit = |rest: u64, next: u64| {
        let (mut digit, mut left) = (rest / upper, rest % upper);
        for _ in 0..2 {
            if left <= HALF && (digit > HALF || digit * (by & HALF) > (left << 32 | next)) {
                digit -= 1;
                left += upper.get();
            }
        }
        let rest = (rest << 32 | next).wrapping_sub(digit.wrapping_mul(by));
        (digit, rest)
    };
    let (first, rest) = digit(high, low >> 32);
    let (second, _) = digit(rest, low & HALF);
    first << 32 | second
}

impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ByteCount {
    type Output = Self;
    /// Panics in debug builds where `other` is larger; see [`ByteCount::saturating_sub`].
    fn sub(self, other: Self) -> Self {
        debug_assert!(self.0 >= other.0, "byte count below zero");
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for ByteCount {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for ByteCount {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl core::iter::Sum for ByteCount {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// A rate in bits per second, 1 bit/s to 18 Ebit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Rate(u64);

impl Rate {
    /// Nothing moves.
    pub const ZERO: Self = Self(0);
    /// The largest representable rate.
    pub const MAX: Self = Self(u64::MAX);

    /// From bits per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(bits)
    }

    /// From 10^6 bits per second.
    pub const fn from_mbit_per_sec(mbit: u64) -> Self {
        Self(mbit.saturating_mul(1_000_000))
    }

    /// From bytes per second; negative and NaN become zero.
    pub fn from_bytes_per_sec_f64(bytes: f64) -> Self {
        Self((bytes * 8.0) as u64)
    }

    /// Bits per second.
    pub const fn as_bits_per_sec(self) -> u64 {
        self.0
    }

    /// Bytes per second.
    pub fn as_bytes_per_sec_f64(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// 10^6 bits per second.
    pub fn as_mbit_per_sec_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The bytes that `self` moves in `duration`, rounded down.
    pub fn bytes_in(self, duration: Duration) -> ByteCount {
        ByteCount(mul_div(self.0, duration_nanos(duration), BIT_NANOS))
    }

    /// `self` times a non-negative factor; NaN and negative factors give zero.
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }
}

/// A share or probability, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(try_from = "f64"))]
pub struct Ratio(f64);

impl Ratio {
    /// Nothing: 0.
    pub const ZERO: Self = Self(0.0);
    /// All: 1.
    pub const ONE: Self = Self(1.0);

    /// `None` unless `value` lies in 0..=1.
    pub const fn new(value: f64) -> Option<Self> {
        if 0.0 <= value && value <= 1.0 { Some(Self(value)) } else { None }
    }

    /// The share as a float, 0 to 1.
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Ratio {
    type Error = &'static str;
    fn try_from(value: f64) -> Result<Self, Self::Error> {
        Self::new(value).ok_or("allowed is a share from 0 to 1")
    }
}

/// A queue limit, in packets, in bytes or in time. Limits of one unit are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many packets.
    Packets(u64),
    /// At most this many bytes.
    Bytes(ByteCount),
    /// The bytes that the present rate sends in this time, at most.
    Time(Duration),
}

impl PartialOrd for Limit {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        match (self, other) {
            (Self::Packets(one), Self::Packets(other)) => one.partial_cmp(other),
            (Self::Bytes(one), Self::Bytes(other)) => one.partial_cmp(other),
            (Self::Time(one), Self::Time(other)) => one.partial_cmp(other),
            _ => None,
        }
    }
}

/// A text that is no quantity of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseQuantityError {
    text: String,
    /// The allowed form, with an example.
    pub expected: &'static str,
}

/// Splits `"12.5ms"` into a non-negative number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, text[end..].trim()))
}

fn scaled(
    text: &str,
    units: &[(&str, f64)],
    expected: &'static str,
) -> Result<u64, ParseQuantityError> {
    let error = || ParseQuantityError { text: text.to_string(), expected };
    let (number, unit) = number_and_unit(text).ok_or_else(error)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    let value = libm::round(number * factor);
    if value >= u64::MAX as f64 { Err(error()) } else { Ok(value as u64) }
}

/// Parses a duration such as `"50ms"`, `"1.5s"`, `"100us"`, `"10ns"`, `"2min"`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseQuantityError> {
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9)];
    scaled(text, &units, "a duration such as \"50ms\", \"1.5s\" or \"100us\"")
        .map(Duration::from_nanos)
}

/// Rates outside are typing errors: the range reaches from modems to ten years ahead of the fastest port.
pub const LINK_RATES: core::ops::RangeInclusive<Rate> = Rate(1_000)..=Rate(400_000_000_000);

/// Parses the rate of a link, as plans and options have it.
///
/// # Errors
///
/// The allowed values, where `text` is no rate or outside 1 kbit/s to 400 Gbit/s.
pub fn parse_link_rate(text: &str) -> Result<Rate, String> {
    let rate = text.parse().ok().filter(|rate| LINK_RATES.contains(rate));
    rate.ok_or_else(|| format!("allowed is {LINK_RATE}"))
}

/// The values that [`parse_link_rate`] allows.
pub const LINK_RATE: &str = "a rate such as \"96Mbit/s\", 1kbit/s to 400Gbit/s";

impl FromStr for Rate {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let units =
            [("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)];
        scaled(text, &units, "a rate such as \"96Mbit/s\" or \"500kbit/s\"").map(Self)
    }
}

impl FromStr for ByteCount {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let units = [
            ("B", 1.0),
            ("KB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
        ];
        scaled(text, &units, "a size such as \"1500B\", \"15KB\" or \"2MiB\"").map(Self)
    }
}

impl FromStr for Limit {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected =
            "a queue limit such as \"1200p\" (packets), \"1800KB\" (bytes) or \"150ms\" (time)";
        let packets = || scaled(text, &[("p", 1.0)], expected).map(Self::Packets);
        let time = || parse_duration(text).map(Self::Time);
        let limit = packets().or_else(|_| text.parse().map(Self::Bytes)).or_else(|_| time());
        limit.map_err(|_| ParseQuantityError { text: text.to_string(), expected })
    }
}

impl FromStr for Ratio {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseQuantityError {
            text: text.to_string(),
            expected: "a share from 0 to 1 such as \"0.01\" or \"1%\"",
        };
        let (number, unit) = number_and_unit(text).ok_or_else(error)?;
        let value = match unit {
            "" => number,
            "%" => number / 100.0,
            _ => return Err(error()),
        };
        Self::new(value).ok_or_else(error)
    }
}

/// Writes `value` with the largest unit that divides it exactly, so that printing is lossless.
fn write_exact(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .copied()
        .find(|(_, factor)| value != 0 && value.is_multiple_of(*factor))
        .unwrap_or(units[units.len() - 1]);
    write!(f, "{}{name}", value / factor)
}

/// Prints a duration in the form that [`parse_duration`] reads, without loss.
pub fn format_duration(duration: Duration) -> String {
    struct Nanos(u64);
    impl fmt::Display for Nanos {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_exact(
                f,
                self.0,
                &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)],
            )
        }
    }
    Nanos(duration_nanos(duration)).to_string()
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(
            f,
            self.0,
            &[
                ("Tbit/s", 1_000_000_000_000),
                ("Gbit/s", 1_000_000_000),
                ("Mbit/s", 1_000_000),
                ("kbit/s", 1000),
                ("bit/s", 1),
            ],
        )
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(
            f,
            self.0,
            &[
                ("GB", 1_000_000_000),
                ("MB", 1_000_000),
                ("KB", 1000),
                ("GiB", 1 << 30),
                ("MiB", 1 << 20),
                ("B", 1),
            ],
        )
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Time(time) => f.write_str(&format_duration(*time)),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretched_durations_end_at_the_bounds() {
        let second = Duration::from_secs(1);
        for (duration, factor, expected) in [
            (second, 2.5, Duration::from_millis(2500)),
            (second, 1e30, Duration::MAX),
            (Duration::MAX, 1.0, Duration::MAX),
            (second, f64::INFINITY, Duration::MAX),
            (second, -1.0, Duration::ZERO),
            (second, f64::NAN, Duration::ZERO),
        ] {
            assert_eq!(stretched(duration, factor), expected, "{factor}");
        }
    }

    #[test]
    fn a_product_divided_is_that_of_128_bits() {
        // All bits, few bits, and those at which a digit is guessed too large.
        let numbers = [0, 1, 2, 9, 10, 1 << 31, HALF, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX];
        let near = numbers.iter().flat_map(|it| [it.wrapping_sub(1), *it, it.wrapping_mul(3)]);
        let numbers: alloc::vec::Vec<u64> = near.chain([0x8000_0000_ffff_fffe]).collect();
        for a in &numbers {
            for b in &numbers {
                for by in &numbers {
                    let exact = (u128::from(*a) * u128::from(*b)).checked_div(u128::from(*by));
                    let exact = exact.and_then(|it| u64::try_from(it).ok()).unwrap_or(u64::MAX);
                    assert_eq!(mul_div(*a, *b, *by), exact, "{a} {b} / {by}");
                }
            }
        }
    }

    #[test]
    fn quantities_carry_their_unit() {
        assert_eq!("96Mbit/s".parse(), Ok(Rate::from_mbit_per_sec(96)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!("15KB".parse(), Ok(ByteCount::new(15_000)));
        assert_eq!("1200p".parse(), Ok(Limit::Packets(1200)));
        assert_eq!("1800KB".parse(), Ok(Limit::Bytes(ByteCount::new(1_800_000))));
        assert_eq!("0.15s".parse(), Ok(Limit::Time(Duration::from_millis(150))));
        assert_eq!("1%".parse::<Ratio>().unwrap().as_f64(), 0.01);
        for bare in
            ["96", "", "-1Mbit/s", "1e3Mbit/s", "nanMbit/s", "96mbit/s", "9999999999999Tbit/s"]
        {
            assert!(bare.parse::<Rate>().is_err(), "{bare}");
        }
        assert!("1.5".parse::<Ratio>().is_err());
    }

    #[test]
    fn printing_is_lossless() {
        for text in ["96Mbit/s", "1500kbit/s", "1bit/s", "0bit/s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["50ms", "1500us", "7ns", "90s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn a_carried_remainder_keeps_the_rate_exact() {
        let rate = Rate::from_bits_per_sec(7);
        let mut carry = 0;
        let total: Duration =
            (0..7).map(|_| ByteCount::new(1).time_at_carrying(rate, &mut carry).unwrap()).sum();
        assert_eq!(total, Duration::from_secs(8));
        assert_eq!(carry, 0);
    }

    #[test]
    fn full_packet_takes_126_us_at_96_mbit() {
        let time = ByteCount::new(1514).time_at(Rate::from_mbit_per_sec(96)).unwrap();
        assert_eq!(time, Duration::from_nanos(126_167));
        assert_eq!(
            Rate::from_mbit_per_sec(96).bytes_in(Duration::from_millis(50)),
            ByteCount::new(600_000)
        );
        assert_eq!(
            ByteCount::new(600_000).per(Duration::from_millis(50)),
            Some(Rate::from_mbit_per_sec(96))
        );
        assert_eq!(ByteCount::new(1).per(Duration::ZERO), None);
    }
}
