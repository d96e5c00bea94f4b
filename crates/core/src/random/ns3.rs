//! The random numbers of ns-3 (RngStream): MRG32k3a, so that a run can draw the losses that ns-3 draws.
//!
//! Source: L'Ecuyer, Simard, Chen and Kelton, "An object-oriented random-number package with many long streams and
//! substreams", Operations Research 50(6), 2002: two recurrences of order 3. Streams begin 2^127 numbers apart, and
//! the substreams of a stream 2^76; ns-3 gives each run a substream.

type Matrix = [[u64; 3]; 3];

/// Moduli of the recurrences.
const MODULI: [u64; 2] = [4_294_967_087, 4_294_944_443];
/// One step of each recurrence.
const STEPS: [Matrix; 2] = [
    [[0, 1, 0], [0, 0, 1], [MODULI[0] - 810_728, 1_403_580, 0]],
    [[0, 1, 0], [0, 0, 1], [MODULI[1] - 1_370_589, 0, 527_612]],
];
/// Numbers between two streams, as a power of two.
const STREAM_LOG2: u32 = 127;
/// Numbers between two substreams, as a power of two.
const RUN_LOG2: u32 = 76;
/// The first stream that a program numbers itself in ns-3 (RandomVariableStream::SetStream).
const NUMBERED_FROM: u64 = 1 << 63;
/// `RngSeed` of all runs (ccperf).
const SEED: u64 = 42;

/// A stream of ns-3 in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ns3Stream([[u64; 3]; 2]);

impl Ns3Stream {
    /// Stream `number` (`AssignStreams`) of the run `run` (`RngRun`).
    pub fn new(number: u64, run: u64) -> Self {
        let begin = |part: usize| {
            let (step, modulus) = (STEPS[part], MODULI[part]);
            let stream = ahead(step, NUMBERED_FROM.wrapping_add(number), STREAM_LOG2, modulus);
            applied(
                stream,
                applied(ahead(step, run, RUN_LOG2, modulus), [SEED; 3], modulus),
                modulus,
            )
        };
        Self([begin(0), begin(1)])
    }

    /// Uniform in `(0, 1)`, 32 bits (`RandU01`).
    pub fn unit(&mut self) -> f64 {
        for (part, state) in self.0.iter_mut().enumerate() {
            *state = applied(STEPS[part], *state, MODULI[part]);
        }
        let [one, two] = self.0.map(|state| state[2]);
        let less = if one > two { one - two } else { one + MODULI[0] - two };
        less as f64 / (MODULI[0] + 1) as f64
    }
}

/// `step` repeated `count` x 2^`log2` times.
fn ahead(mut step: Matrix, mut count: u64, log2: u32, modulus: u64) -> Matrix {
    for _ in 0..log2 {
        step = product(step, step, modulus);
    }
    let mut all = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    while count > 0 {
        if count & 1 == 1 {
            all = product(all, step, modulus);
        }
        step = product(step, step, modulus);
        count >>= 1;
    }
    all
}

fn product(one: Matrix, two: Matrix, modulus: u64) -> Matrix {
    let column = |at: usize| applied(one, [two[0][at], two[1][at], two[2][at]], modulus);
    let columns = [column(0), column(1), column(2)];
    [0, 1, 2].map(|row| columns.map(|column| column[row]))
}

/// `matrix` times `vector`; all factors are below 2^32.
fn applied(matrix: Matrix, vector: [u64; 3], modulus: u64) -> [u64; 3] {
    matrix.map(|row| {
        let terms = row.iter().zip(vector);
        terms.fold(0, |sum, (factor, value)| (sum + factor * value % modulus) % modulus)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_the_losses_of_ns3() {
        // The first packets below 1 % of stream 1000 in run 1 of ns-3.37.
        let mut stream = Ns3Stream::new(1000, 1);
        let lost = (0..200).filter(|_| stream.unit() < 0.01);
        assert!(lost.eq([8, 63, 173, 199]));
    }
}
