//! The arithmetic of graphs, over memory that [`super::graph`] has laid out: a step writes behind all that
//! it reads.

use alloc::vec::Vec;
use core::array;

use wide::f32x8;

/// Where the numbers of a tensor lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorPlace {
    /// Among the constants, else among the values.
    pub is_constant: bool,
    pub from: usize,
    pub len: usize,
}

impl TensorPlace {
    pub const fn value(from: usize, len: usize) -> Self {
        Self { is_constant: false, from, len }
    }

    pub const fn constant(from: usize, len: usize) -> Self {
        Self { is_constant: true, from, len }
    }

    pub fn of(self, numbers: &[f32]) -> &[f32] {
        &numbers[self.from..self.from + self.len]
    }
}

/// Operation on two numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pairwise {
    Add,
    Sub,
    Mul,
    Div,
}

/// Operation on each number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Relu,
    Tanh,
    Sigmoid,
    Clip { min: f32, max: f32 },
}

/// An operator with the places of its inputs and its output.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Rows of `inner` numbers times a matrix of `inner` rows and `width` columns.
    Dense {
        input: TensorPlace,
        weights: TensorPlace,
        bias: Option<TensorPlace>,
        inner: usize,
        width: usize,
        out: TensorPlace,
    },
    Pairwise {
        operation: Pairwise,
        left: TensorPlace,
        right: TensorPlace,
        out: TensorPlace,
    },
    Each {
        function: Function,
        input: TensorPlace,
        out: TensorPlace,
    },
    Softmax {
        input: TensorPlace,
        width: usize,
        out: TensorPlace,
    },
    /// Rows as long as `scale`.
    Normalize {
        input: TensorPlace,
        scale: TensorPlace,
        bias: Option<TensorPlace>,
        epsilon: f32,
        out: TensorPlace,
    },
    /// The places of the inputs, each with its length along the axis.
    Concat {
        parts: Vec<(TensorPlace, usize)>,
        out: TensorPlace,
    },
    /// The weights are `width` rows and the recurrent ones `hidden` rows of 3 `hidden` columns: update,
    /// reset, new. Room for two rows of 3 `hidden` numbers lies behind the output.
    Gru {
        input: TensorPlace,
        weights: TensorPlace,
        recurrent: TensorPlace,
        biases: TensorPlace,
        width: usize,
        hidden: usize,
        out: TensorPlace,
    },
}

impl Step {
    /// Multiplications, or operations that take as long.
    pub fn work(&self) -> usize {
        /// An exponential or a division takes as long as this many vectorised multiplications.
        const SLOW: usize = 16;
        match self {
            Self::Dense { inner, out, .. } => out.len.saturating_mul(*inner),
            Self::Pairwise { out, .. } | Self::Concat { out, .. } => out.len,
            Self::Each { out, .. } | Self::Softmax { out, .. } | Self::Normalize { out, .. } => {
                SLOW * out.len
            }
            Self::Gru { width, hidden, out, .. } => {
                out.len.saturating_mul(3 * (width + hidden + SLOW))
            }
        }
    }

    /// Reads `constants` and the outputs of earlier steps in `values`, and writes its own output there.
    pub fn run(&self, constants: &[f32], values: &mut [f32]) {
        let out = self.out();
        let (written, rest) = values.split_at_mut(out.from);
        let (out, room) = rest.split_at_mut(out.len);
        let written: &[f32] = written;
        let read =
            |place: TensorPlace| place.of(if place.is_constant { constants } else { written });
        match self {
            Self::Dense { input, weights, bias, inner, width, .. } => {
                let (bias, weights) = (bias.map(read), read(*weights));
                let rows = read(*input).chunks_exact(*inner);
                for (row, out) in rows.zip(out.chunks_exact_mut(*width)) {
                    dense(row, weights, bias, out);
                }
            }
            Self::Pairwise { operation, left, right, .. } => {
                let (left, right) = (read(*left), read(*right));
                match operation {
                    Pairwise::Add => pairwise(left, right, out, |left, right| left + right),
                    Pairwise::Sub => pairwise(left, right, out, |left, right| left - right),
                    Pairwise::Mul => pairwise(left, right, out, |left, right| left * right),
                    Pairwise::Div => pairwise(left, right, out, |left, right| left / right),
                }
            }
            Self::Each { function, input, .. } => {
                let input = read(*input);
                match *function {
                    // No comparison holds for NaN, so NaN passes.
                    Function::Relu => each(input, out, |x| if x < 0.0 { 0.0 } else { x }),
                    Function::Tanh => each(input, out, libm::tanhf),
                    Function::Sigmoid => each(input, out, sigmoid),
                    Function::Clip { min, max } => each(input, out, |x| {
                        let x = if x < min { min } else { x };
                        if x > max { max } else { x }
                    }),
                }
            }
            Self::Softmax { input, width, .. } => {
                let rows = read(*input).chunks_exact(*width);
                for (row, out) in rows.zip(out.chunks_exact_mut(*width)) {
                    softmax(row, out);
                }
            }
            Self::Normalize { input, scale, bias, epsilon, .. } => {
                let (scale, bias) = (read(*scale), bias.map(read));
                let rows = read(*input).chunks_exact(scale.len());
                for (row, out) in rows.zip(out.chunks_exact_mut(scale.len())) {
                    normalize(row, scale, bias, *epsilon, out);
                }
            }
            Self::Concat { parts, .. } => {
                let turn: usize = parts.iter().map(|(_, len)| len).sum();
                for (turn, out) in out.chunks_exact_mut(turn).enumerate() {
                    let mut rest = out;
                    for (place, len) in parts {
                        let (here, behind) = rest.split_at_mut(*len);
                        here.copy_from_slice(&read(*place)[turn * len..][..*len]);
                        rest = behind;
                    }
                }
            }
            Self::Gru { input, weights, recurrent, biases, width, hidden, .. } => {
                let (weights, recurrent) = (read(*weights), read(*recurrent));
                let (bias, recurrent_bias) = read(*biases).split_at(3 * hidden);
                let (new, rest) = room.split_at_mut(3 * hidden);
                let old = &mut rest[..3 * hidden];
                for (time, row) in read(*input).chunks_exact(*width).enumerate() {
                    let (states, out) = out.split_at_mut(time * hidden);
                    let state = &states[time.saturating_sub(1) * hidden..];
                    dense(row, weights, Some(bias), new);
                    // There is no first state, which counts as a state of zeros.
                    dense(state, recurrent, Some(recurrent_bias), old);
                    gru(state, new, old, &mut out[..*hidden]);
                }
            }
        }
    }

    fn out(&self) -> TensorPlace {
        match self {
            Self::Dense { out, .. }
            | Self::Pairwise { out, .. }
            | Self::Each { out, .. }
            | Self::Softmax { out, .. }
            | Self::Normalize { out, .. }
            | Self::Concat { out, .. }
            | Self::Gru { out, .. } => *out,
        }
    }
}

/// One row times `weights`. Sums of several outputs are taken together, each in the order of its terms.
fn dense(row: &[f32], weights: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    match bias {
        Some(bias) => out.copy_from_slice(bias),
        None => out.fill(0.0),
    }
    let width = out.len();
    let mut at = 0;
    while let Some(out) = out.get_mut(at..at + 4 * LANES) {
        add_products::<4>(row, &weights[at..], width, out);
        at += 4 * LANES;
    }
    while let Some(out) = out.get_mut(at..at + LANES) {
        add_products::<1>(row, &weights[at..], width, out);
        at += LANES;
    }
    if at < width {
        for (number, weights) in row.iter().zip(weights[at..].chunks(width)) {
            for (out, weight) in out[at..].iter_mut().zip(weights) {
                *out += number * weight;
            }
        }
    }
}

/// Numbers of a vector.
const LANES: usize = 8;

/// Adds to `N` times [`LANES`] outputs, which stay in registers meanwhile. Their weights are the first in
/// each row of `width`. The vectors are written out, since in the package for Python no loop is vectorised.
/// With link-time optimisation the library's level decides that, and the level there is for size.
fn add_products<const N: usize>(row: &[f32], weights: &[f32], width: usize, out: &mut [f32]) {
    let Some(out) = out.as_chunks_mut::<LANES>().0.first_chunk_mut::<N>() else {
        unreachable!("the caller gives as many outputs");
    };
    let mut sums = out.map(f32x8::from);
    for (number, weights) in row.iter().zip(weights.chunks(width)) {
        let Some(weights) = weights.as_chunks::<LANES>().0.first_chunk::<N>() else {
            unreachable!("a graph that was checked has weights for each output");
        };
        sums = array::from_fn(|at| sums[at] + *number * f32x8::from(weights[at]));
    }
    *out = sums.map(|sum| sum.to_array());
}

fn each(input: &[f32], out: &mut [f32], function: impl Fn(f32) -> f32) {
    for (out, number) in out.iter_mut().zip(input) {
        *out = function(*number);
    }
}

/// The shorter of both is repeated.
fn pairwise(left: &[f32], right: &[f32], out: &mut [f32], of: impl Fn(f32, f32) -> f32) {
    let len = left.len().min(right.len());
    for (turn, out) in out.chunks_exact_mut(len).enumerate() {
        let at = |side: &[f32]| if side.len() == len { 0 } else { turn * len };
        let (left, right) = (&left[at(left)..][..len], &right[at(right)..][..len]);
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            *out = of(*left, *right);
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + libm::expf(-x))
}

fn softmax(row: &[f32], out: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for (out, number) in out.iter_mut().zip(row) {
        *out = libm::expf(number - most);
        sum += *out;
    }
    out.iter_mut().for_each(|out| *out /= sum);
}

fn normalize(row: &[f32], scale: &[f32], bias: Option<&[f32]>, epsilon: f32, out: &mut [f32]) {
    let count = row.len() as f32;
    let mean = row.iter().sum::<f32>() / count;
    let variance = row.iter().map(|number| (number - mean) * (number - mean)).sum::<f32>() / count;
    let factor = 1.0 / libm::sqrtf(variance + epsilon);
    for (place, out) in out.iter_mut().enumerate() {
        *out = (row[place] - mean) * factor * scale[place] + bias.map_or(0.0, |bias| bias[place]);
    }
}

/// The next state from the last one, empty for zeros, and the gates of the input and of the last state.
fn gru(state: &[f32], new: &[f32], old: &[f32], out: &mut [f32]) {
    let hidden = out.len();
    for (place, out) in out.iter_mut().enumerate() {
        let update = sigmoid(new[place] + old[place]);
        let reset = sigmoid(new[hidden + place] + old[hidden + place]);
        let candidate = libm::tanhf(new[2 * hidden + place] + reset * old[2 * hidden + place]);
        let state = state.get(place).copied().unwrap_or(0.0);
        *out = (1.0 - update) * candidate + update * state;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn dense_layer_sums_each_output_in_input_order() {
        let number = |at: usize| ((at * 7919 + 13) % 1000) as f32 / 499.0 - 1.0;
        let row: Vec<f32> = (0..29).map(number).collect();
        for width in 1..=3 * 4 * LANES + 1 {
            let weights: Vec<f32> = (0..row.len() * width).map(number).collect();
            let bias: Vec<f32> = (0..width).map(number).collect();
            for bias in [None, Some(&bias[..])] {
                let mut out = vec![f32::NAN; width];
                dense(&row, &weights, bias, &mut out);
                let sum = |place: usize| {
                    let first = bias.map_or(0.0, |bias| bias[place]);
                    let terms = row.iter().zip(weights[place..].iter().step_by(width));
                    terms.fold(first, |sum, (number, weight)| sum + number * weight)
                };
                assert_eq!(out, (0..width).map(sum).collect::<Vec<f32>>(), "{width} outputs");
            }
        }
    }
}
