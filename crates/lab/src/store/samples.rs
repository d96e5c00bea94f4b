//! The samples of a series in one value. A row for each sample would be several times as large, and take
//! longer to write than a simulation takes.
//!
//! ```text
//! number of samples, u32 | LZ4 block of the first bytes of all words, then of all second bytes, ..
//! words: steps of time in ns, i64, then values, f64                                    (all little-endian)
//! ```
//! Bytes at the same place in their words are stored together. They are alike if steps are equal, values are whole
//! numbers, or exponents are equal.

use lz4_flex::block::{compress, decompress};

/// Bytes of a word, and so the number of places.
const PLACES: usize = 8;
/// Most samples of a series: one each 100 us for an hour and a half.
const SAMPLES_MAX: usize = 1 << 26;

/// Why bytes are not samples.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoSamples(String);

/// Packs samples: seconds since the start, rounded to whole ns, and the value. At most 2^26 samples.
pub fn pack(samples: &[(f64, f64)]) -> Result<Vec<u8>, NoSamples> {
    if samples.len() > SAMPLES_MAX {
        return Err(NoSamples(format!("{}: allowed are {SAMPLES_MAX}", samples.len())));
    }
    let mut before = 0_i64;
    let steps = samples.iter().map(|(at_s, _)| {
        let at_ns = (at_s * 1e9).round() as i64;
        at_ns.wrapping_sub(std::mem::replace(&mut before, at_ns)) as u64
    });
    let words: Vec<u64> = steps.chain(samples.iter().map(|(_, value)| value.to_bits())).collect();
    let place = |place: usize| words.iter().map(move |word| word.to_le_bytes()[place]);
    let bytes: Vec<u8> = (0..PLACES).flat_map(place).collect();
    let mut packed = (samples.len() as u32).to_le_bytes().to_vec();
    packed.extend(compress(&bytes));
    Ok(packed)
}

/// Unpacks samples; an error if `packed` is not output of `pack`.
pub fn unpack(packed: &[u8]) -> Result<Vec<(f64, f64)>, NoSamples> {
    let (head, block) = packed
        .split_first_chunk()
        .ok_or_else(|| NoSamples("the number of samples is missing".into()))?;
    let samples = u32::from_le_bytes(*head) as usize;
    if samples > SAMPLES_MAX {
        return Err(NoSamples(format!("{samples}: allowed are {SAMPLES_MAX}")));
    }
    let words = 2 * samples;
    let bytes = decompress(block, words * PLACES).map_err(|error| NoSamples(error.to_string()))?;
    if bytes.len() != words * PLACES {
        return Err(NoSamples(format!("{} bytes of {samples} samples", bytes.len())));
    }
    let word = |index: usize| {
        u64::from_le_bytes(std::array::from_fn(|place| bytes[place * words + index]))
    };
    let mut at_ns = 0_i64;
    let sample = |index: usize| {
        at_ns = at_ns.wrapping_add(word(index) as i64);
        (at_ns as f64 / 1e9, f64::from_bits(word(samples + index)))
    };
    Ok((0..samples).map(sample).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back_bit_by_bit() {
        let odd = [
            (0.0, 0.1),
            (0.05, f64::NEG_INFINITY),
            (0.049_999_999, -0.0),
            (86_400.000_000_001, 1e300),
        ];
        for samples in [&[][..], &odd] {
            assert_eq!(unpack(&pack(samples).unwrap()).unwrap(), samples);
        }
        let at = |ns: u64| ns as f64 / 1e9;
        let uneven: Vec<(f64, f64)> =
            (0..10_000).map(|n| (at(n * n * 977), n as f64 / 7.0)).collect();
        assert_eq!(unpack(&pack(&uneven).unwrap()).unwrap(), uneven);
    }

    #[test]
    fn even_steps_and_whole_numbers_cost_little() {
        let queue: Vec<(f64, f64)> =
            (0..10_000).map(|n| (n as f64 / 100.0, (n % 50) as f64)).collect();
        assert!(pack(&queue).unwrap().len() < queue.len());
    }

    #[test]
    fn what_is_no_series_is_refused() {
        let packed = pack(&[(1.0, 2.0); 50]).unwrap();
        assert!(unpack(&packed[..3]).is_err(), "no number");
        assert!(unpack(&packed[..12]).is_err(), "cut");
        let more = [&51_u32.to_le_bytes(), &packed[4..]].concat();
        assert!(unpack(&more).unwrap_err().to_string().contains("800 bytes of 51"));
        let many = [&u32::MAX.to_le_bytes(), &packed[4..]].concat();
        assert!(unpack(&many).unwrap_err().to_string().contains("allowed are"));
    }
}
