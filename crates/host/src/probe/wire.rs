//! Datagrams between a probe and its answering side: a question and an answer of the same length.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `FBPQ` of a question, `FBPA` of an answer |
//! | 4..12 | number of the probe, drawn at its start; only hosts on the path can know it |
//! | 12..16 | number of the question, little-endian |
//! | 16..24 | arrival of the question (ns, on the clock of the answering side); 0 in a question |
//! | 24..40 | zeros |

/// Bytes of either datagram.
pub const LEN: usize = 40;

/// First bytes of a question.
const QUESTION: &[u8; 4] = b"FBPQ";
/// First bytes of an answer.
const ANSWER: &[u8; 4] = b"FBPA";

/// Encodes a question.
pub fn question(probe: u64, number: u32) -> [u8; LEN] {
    let mut datagram = [0; LEN];
    datagram[..4].copy_from_slice(QUESTION);
    datagram[4..12].copy_from_slice(&probe.to_le_bytes());
    datagram[12..16].copy_from_slice(&number.to_le_bytes());
    datagram
}

/// The answer to `datagram`, which arrived at `came_ns`; `None` unless it is a question.
pub fn answer(datagram: &[u8], came_ns: u64) -> Option<[u8; LEN]> {
    let mut answer =
        *<&[u8; LEN]>::try_from(datagram).ok().filter(|it| it.starts_with(QUESTION))?;
    answer[..4].copy_from_slice(ANSWER);
    answer[16..24].copy_from_slice(&came_ns.to_le_bytes());
    Some(answer)
}

/// The number of the question that `datagram` answers, and when the question arrived (ns). `None` unless it is
/// an answer to this probe.
pub fn answered(datagram: &[u8], probe: u64) -> Option<(u32, u64)> {
    let datagram = <&[u8; LEN]>::try_from(datagram).ok().filter(|it| it.starts_with(ANSWER))?;
    let word = |at: usize| u64::from_le_bytes(datagram[at..at + 8].try_into().expect("8 bytes"));
    (word(4) == probe).then(|| ((word(12) & u64::from(u32::MAX)) as u32, word(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_matches_its_question_in_length_and_probe() {
        let question = question(7, 0x0102_0304);
        let answer = answer(&question, 99).unwrap();
        assert_eq!(answered(&answer, 7), Some((0x0102_0304, 99)));
        assert_eq!(answered(&answer, 8), None);
        assert_eq!(answered(&question, 7), None);
    }

    #[test]
    fn nothing_but_a_whole_question_is_answered() {
        let question = question(7, 1);
        for len in 0..LEN {
            assert_eq!(answer(&question[..len], 0), None);
        }
        assert_eq!(answer(&[&question[..], &[0]].concat(), 0), None);
        assert_eq!(answer(&answer(&question, 0).unwrap(), 0), None, "two cannot answer each other");
    }
}
