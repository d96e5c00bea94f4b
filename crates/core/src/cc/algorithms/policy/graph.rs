//! Small neural networks of fixed sizes: [`Builder`] checks a graph, and [`Evaluation`] runs it without
//! allocating.
//!
//! ONNX defines the operators (onnx.ai/onnx/operators, opset 13 and later), here in single precision. Sums
//! are added in the order of their terms, without fused operations, so that a graph gives the same bits on
//! every machine.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::kernels::{Function, Pairwise, Step, TensorPlace};

/// Most numbers that a graph may hold as constants: 4 MB.
pub const CONSTANTS_MAX: usize = 1 << 20;
/// Most numbers in the input, the output and between operators together: 256 KB per evaluation.
pub const VALUES_MAX: usize = 1 << 16;
/// Most operators.
pub const OPERATORS_MAX: usize = 256;
/// Most multiplications of one evaluation: a few milliseconds of a core.
pub const WORK_MAX: usize = 1 << 22;
/// Most dimensions of a tensor.
const RANK_MAX: usize = 4;

/// Why a graph cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: allowed is {allowed}")]
pub struct GraphError {
    /// The offending shape, size or number.
    pub what: String,
    /// The values that are accepted.
    pub allowed: String,
}

impl GraphError {
    /// An error about `what`.
    pub fn new(what: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { what: what.into(), allowed: allowed.into() }
    }
}

/// An operator with its attributes. Its inputs have the order of ONNX.
#[derive(Clone, Debug, PartialEq)]
pub enum Operator {
    /// `alpha A B + beta C`. B and C are constants. If `is_transposed`, the given constant is B transposed.
    Gemm {
        /// Factor of the product.
        alpha: f32,
        /// Factor of C.
        beta: f32,
        /// `transB`.
        is_transposed: bool,
    },
    /// `A B`; B is a constant matrix.
    MatMul,
    /// `A + B`.
    Add,
    /// `A - B`.
    Sub,
    /// `A B`, element by element.
    Mul,
    /// `A / B`.
    Div,
    /// `max(0, x)`.
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// At least `min` and at most `max`.
    Clip {
        /// Least value.
        min: f32,
        /// Greatest value.
        max: f32,
    },
    /// `exp(x)` over its sum along the last axis.
    Softmax {
        /// The axis, which is the last one.
        axis: i64,
    },
    /// The last axis with mean 0 and variance 1, times a constant scale, plus a constant bias.
    LayerNormalization {
        /// The axis, which is the last one.
        axis: i64,
        /// Number added to the variance.
        epsilon: f32,
    },
    /// Concatenates its inputs along an axis.
    Concat {
        /// The axis; a negative one counts from the end.
        axis: i64,
    },
    /// The input itself.
    Identity,
    /// A matrix: the dimensions before `axis` become its rows.
    Flatten {
        /// First axis of the columns.
        axis: i64,
    },
    /// Keeps the numbers in another shape. 0 keeps a dimension, and one dimension may be -1: it takes the remaining
    /// elements.
    Reshape {
        /// The shape.
        shape: Vec<i64>,
    },
    /// Gated recurrent unit, forward, `linear_before_reset = 1`, from a state of zeros; W, R and B are
    /// constants. Its output is Y.
    Gru,
}

/// A tensor of a graph that is being built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    shape: Vec<usize>,
    place: TensorPlace,
}

impl Tensor {
    /// Dimensions, the outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many numbers it has.
    pub fn elements(&self) -> usize {
        self.place.len
    }

    /// The dimensions as a matrix: all before the last axis, and the last axis.
    fn matrix(&self) -> (usize, usize) {
        let width = self.shape.last().copied().unwrap_or(1);
        (self.place.len / width, width)
    }

    fn words(&self) -> String {
        format!("{:?}", self.shape)
    }
}

/// Number of elements of a tensor of `shape`: 1 to `most`.
fn elements(shape: &[usize], most: usize) -> Result<usize, GraphError> {
    let product = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    let fits = product.filter(|it| shape.len() <= RANK_MAX && (1..=most).contains(it));
    fits.ok_or_else(|| {
        let what = match shape.len() {
            ..=RANK_MAX => format!("a tensor of {shape:?}"),
            rank => format!("a tensor of {rank} dimensions"),
        };
        GraphError::new(what, format!("at most {RANK_MAX} dimensions and 1 to {most} numbers"))
    })
}

/// A graph that is being built: operators in the order in which they are evaluated.
#[derive(Clone, Debug)]
pub struct Builder {
    constants: Vec<f32>,
    values: usize,
    steps: Vec<Step>,
    work: usize,
    input: usize,
}

impl Builder {
    /// A graph with one input of the given `shape`, and that input.
    ///
    /// # Errors
    ///
    /// The shape has no numbers, or more than [`VALUES_MAX`].
    pub fn new(shape: &[usize]) -> Result<(Self, Tensor), GraphError> {
        let len = elements(shape, VALUES_MAX)?;
        let input = Tensor { shape: shape.to_vec(), place: TensorPlace::value(0, len) };
        let (constants, steps) = (Vec::new(), Vec::new());
        Ok((Self { constants, values: len, steps, work: 0, input: len }, input))
    }

    /// A constant of `shape` with these numbers, the last axis running fastest.
    ///
    /// # Errors
    ///
    /// The count of numbers does not fit `shape`, a number is not finite, or all constants together have more
    /// than [`CONSTANTS_MAX`] numbers.
    pub fn constant(&mut self, shape: &[usize], numbers: &[f32]) -> Result<Tensor, GraphError> {
        let len = elements(shape, CONSTANTS_MAX - self.constants.len().min(CONSTANTS_MAX))?;
        if len != numbers.len() {
            let allowed = format!("{len}, as its shape {shape:?} says");
            let what = format!("a constant of {} numbers", numbers.len());
            return Err(GraphError::new(what, allowed));
        }
        if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(GraphError::new(format!("a constant with {number}"), "finite numbers"));
        }
        let place = TensorPlace::constant(self.constants.len(), len);
        self.constants.extend_from_slice(numbers);
        Ok(Tensor { shape: shape.to_vec(), place })
    }

    /// The numbers of a constant; `None` if `tensor` is not constant.
    pub fn numbers_of(&self, tensor: &Tensor) -> Option<&[f32]> {
        tensor.place.is_constant.then(|| tensor.place.of(&self.constants))
    }

    /// The last element along the first axis: `Y_h` if `tensor` is the Y of a GRU.
    pub fn last_of(&self, tensor: &Tensor) -> Tensor {
        let shape: Vec<usize> = tensor.shape.iter().skip(1).copied().collect();
        let len = shape.iter().product::<usize>();
        let TensorPlace { from, len: all, is_constant } = tensor.place;
        Tensor { shape, place: TensorPlace { is_constant, from: from + all - len, len } }
    }

    /// Adds `operator` and returns its output. In `inputs`, `None` leaves out an optional input.
    ///
    /// # Errors
    ///
    /// The operator does not accept these inputs or their shapes, or the graph becomes too large.
    pub fn apply(
        &mut self,
        operator: &Operator,
        inputs: &[Option<Tensor>],
    ) -> Result<Tensor, GraphError> {
        let input = |place: usize| {
            let given = inputs.get(place).and_then(Option::as_ref);
            given.ok_or_else(|| GraphError::new(format!("no input {place}"), "a tensor"))
        };
        let first = input(0)?;
        match operator {
            Operator::Identity => Ok(first.clone()),
            Operator::Flatten { axis } => flatten(first, *axis),
            Operator::Reshape { shape } => reshape(first, shape),
            Operator::Gemm { alpha, beta, is_transposed } => {
                let (second, third) = (input(1)?, inputs.get(2).and_then(Option::as_ref));
                let weights = self.matrix(second, *is_transposed, *alpha)?;
                let width = weights.shape[1];
                let bias = third.map(|bias| self.bias(bias, width, *beta)).transpose()?;
                self.dense(first, &weights, bias)
            }
            Operator::MatMul => {
                let weights = self.matrix(input(1)?, false, 1.0)?;
                self.dense(first, &weights, None)
            }
            Operator::Add => self.pairwise(Pairwise::Add, first, input(1)?),
            Operator::Sub => self.pairwise(Pairwise::Sub, first, input(1)?),
            Operator::Mul => self.pairwise(Pairwise::Mul, first, input(1)?),
            Operator::Div => self.pairwise(Pairwise::Div, first, input(1)?),
            Operator::Relu => self.each(Function::Relu, first),
            Operator::Tanh => self.each(Function::Tanh, first),
            Operator::Sigmoid => self.each(Function::Sigmoid, first),
            Operator::Clip { min, max } => {
                self.each(Function::Clip { min: *min, max: *max }, first)
            }
            Operator::Softmax { axis } => {
                last_axis(first, *axis)?;
                let (input, width) = (first.place, first.matrix().1);
                self.add(&first.shape, |out| Step::Softmax { input, width, out })
            }
            Operator::LayerNormalization { axis, epsilon } => {
                last_axis(first, *axis)?;
                let width = first.matrix().1;
                let scale = self.bias(input(1)?, width, 1.0)?;
                let bias = inputs.get(2).and_then(Option::as_ref);
                let bias = bias.map(|bias| self.bias(bias, width, 1.0)).transpose()?;
                let (input, epsilon) = (first.place, *epsilon);
                self.add(&first.shape, |out| Step::Normalize { input, scale, bias, epsilon, out })
            }
            Operator::Concat { axis } => {
                let parts: Vec<&Tensor> = inputs.iter().flatten().collect();
                self.concat(*axis, &parts)
            }
            Operator::Gru => {
                if inputs.iter().skip(4).any(Option::is_some) {
                    let what = "sequence_lens or initial_h";
                    return Err(GraphError::new(what, "neither: the state begins as zeros"));
                }
                self.gru(first, input(1)?, input(2)?, inputs.get(3).and_then(Option::as_ref))
            }
        }
    }

    /// The graph with the output `output`.
    ///
    /// # Errors
    ///
    /// The output is a constant.
    pub fn finish(self, output: &Tensor) -> Result<Graph, GraphError> {
        if output.place.is_constant {
            return Err(GraphError::new("a constant as the output", "what depends on the input"));
        }
        let Self { constants, values, steps, input, .. } = self;
        Ok(Graph { constants, steps, values, input, output: output.place })
    }

    /// Adds the step that writes a tensor of `shape`.
    fn add(
        &mut self,
        shape: &[usize],
        step: impl FnOnce(TensorPlace) -> Step,
    ) -> Result<Tensor, GraphError> {
        self.add_with(shape, 0, step)
    }

    /// Adds a step that needs room for `room` numbers behind its output.
    fn add_with(
        &mut self,
        shape: &[usize],
        room: usize,
        step: impl FnOnce(TensorPlace) -> Step,
    ) -> Result<Tensor, GraphError> {
        let len = elements(shape, VALUES_MAX)?;
        let place = TensorPlace::value(self.values, len);
        let step = step(place);
        self.values += len + room;
        self.work = self.work.saturating_add(step.work());
        self.steps.push(step);
        let sizes = [
            ("numbers between operators", self.values, VALUES_MAX),
            ("operators", self.steps.len(), OPERATORS_MAX),
            ("multiplications", self.work, WORK_MAX),
        ];
        if let Some((what, count, most)) = sizes.into_iter().find(|(_, it, most)| it > most) {
            return Err(GraphError::new(format!("{count} {what}"), format!("at most {most}")));
        }
        Ok(Tensor { shape: shape.to_vec(), place })
    }

    /// The constant matrix `weights`, input by output, times `factor`.
    fn matrix(
        &mut self,
        weights: &Tensor,
        is_transposed: bool,
        factor: f32,
    ) -> Result<Tensor, GraphError> {
        let (Some(numbers), [rows, columns]) = (self.numbers_of(weights), &weights.shape[..])
        else {
            let what = format!("a second input of shape {}", weights.words());
            return Err(GraphError::new(what, "a constant matrix"));
        };
        let (rows, columns) = (*rows, *columns);
        if !is_transposed && factor == 1.0 {
            return Ok(weights.clone());
        }
        let at = |row: usize, column: usize| factor * numbers[row * columns + column];
        let (shape, numbers): (_, Vec<f32>) = if is_transposed {
            let all = (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
            ([columns, rows], all.map(|(row, column)| at(row, column)).collect())
        } else {
            ([rows, columns], numbers.iter().map(|number| factor * number).collect())
        };
        self.constant(&shape, &numbers)
    }

    /// The constant `bias` as `width` numbers, times `factor`.
    fn bias(
        &mut self,
        bias: &Tensor,
        width: usize,
        factor: f32,
    ) -> Result<TensorPlace, GraphError> {
        let is_row = bias.shape.iter().rev().skip(1).all(|size| *size == 1);
        let fits = |numbers: &&[f32]| is_row && [1, width].contains(&numbers.len());
        let numbers = self.numbers_of(bias).filter(fits);
        let Some(numbers) = numbers else {
            let what = format!("a bias or scale of shape {}", bias.words());
            return Err(GraphError::new(what, format!("a constant of 1 or {width} numbers")));
        };
        if factor == 1.0 && numbers.len() == width {
            return Ok(bias.place);
        }
        let numbers: Vec<f32> =
            numbers.iter().cycle().take(width).map(|number| factor * number).collect();
        Ok(self.constant(&[width], &numbers)?.place)
    }

    fn dense(
        &mut self,
        input: &Tensor,
        weights: &Tensor,
        bias: Option<TensorPlace>,
    ) -> Result<Tensor, GraphError> {
        let (_, inner) = input.matrix();
        let [from, width] = [weights.shape[0], weights.shape[1]];
        if inner != from || input.shape.is_empty() {
            let what = format!("{} times {}", input.words(), weights.words());
            return Err(GraphError::new(what, format!("{inner} rows of the matrix")));
        }
        let mut shape = input.shape.clone();
        shape.pop();
        shape.push(width);
        let (input, weights) = (input.place, weights.place);
        self.add(&shape, |out| Step::Dense { input, weights, bias, inner, width, out })
    }

    fn each(&mut self, function: Function, input: &Tensor) -> Result<Tensor, GraphError> {
        let place = input.place;
        self.add(&input.shape, |out| Step::Each { function, input: place, out })
    }

    /// An operation on two tensors, element by element. The shorter is repeated along the outer axes of the longer.
    fn pairwise(
        &mut self,
        operation: Pairwise,
        left: &Tensor,
        right: &Tensor,
    ) -> Result<Tensor, GraphError> {
        let is_left_longer = left.elements() >= right.elements();
        let (longer, shorter) = if is_left_longer { (left, right) } else { (right, left) };
        let outer = shorter.shape.iter().take_while(|size| **size == 1).count();
        if !longer.shape.ends_with(&shorter.shape[outer..]) {
            let what = format!("{} with {}", left.words(), right.words());
            let allowed = "equal shapes, or one that is the end of the other";
            return Err(GraphError::new(what, allowed));
        }
        let mut shape = vec![1; shorter.shape.len().saturating_sub(longer.shape.len())];
        shape.extend(&longer.shape);
        let (left, right) = (left.place, right.place);
        self.add(&shape, |out| Step::Pairwise { operation, left, right, out })
    }

    fn concat(&mut self, axis: i64, parts: &[&Tensor]) -> Result<Tensor, GraphError> {
        let first = parts[0];
        let axis = axis_of(first, axis)?;
        let beside = |it: &Tensor| {
            let mut shape = it.shape.clone();
            (shape.len() > axis).then(|| shape.remove(axis)).map(|_| shape)
        };
        if let Some(other) = parts.iter().find(|it| beside(it) != beside(first)) {
            let what = format!("{} behind {}", other.words(), first.words());
            return Err(GraphError::new(what, format!("shapes that differ on axis {axis} alone")));
        }
        let mut shape = first.shape.clone();
        shape[axis] = parts.iter().map(|it| it.shape[axis]).sum();
        let parts: Vec<(TensorPlace, usize)> =
            parts.iter().map(|it| (it.place, it.shape[axis..].iter().product())).collect();
        self.add(&shape, |out| Step::Concat { parts, out })
    }

    fn gru(
        &mut self,
        input: &Tensor,
        kernel: &Tensor,
        recurrent: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, GraphError> {
        let refused = |tensor: &Tensor, allowed: &str| {
            Err(GraphError::new(format!("a shape of {}", tensor.words()), allowed))
        };
        let [times, 1, width] = input.shape[..] else {
            return refused(input, "X of [steps, 1, numbers]");
        };
        let [1, gates, hidden] = recurrent.shape[..] else {
            return refused(recurrent, "R of [1, 3 hidden, hidden]");
        };
        if gates / 3 != hidden || gates % 3 != 0 || kernel.shape != [1, gates, width] {
            return refused(kernel, "W of [1, 3 hidden, numbers] and R of [1, 3 hidden, hidden]");
        }
        let [kernel, recurrent] =
            [kernel, recurrent].map(|it| Tensor { shape: it.shape[1..].to_vec(), place: it.place });
        let weights = self.matrix(&kernel, true, 1.0)?.place;
        let recurrent = self.matrix(&recurrent, true, 1.0)?.place;
        let biases = match bias {
            None => self.constant(&[2 * gates], &vec![0.0; 2 * gates])?.place,
            Some(bias) if bias.shape == [1, 2 * gates] && bias.place.is_constant => bias.place,
            Some(bias) => return refused(bias, "B, a constant of [1, 6 hidden]"),
        };
        let (input, shape) = (input.place, [times, 1, 1, hidden]);
        self.add_with(&shape, 2 * gates, |out| Step::Gru {
            input,
            weights,
            recurrent,
            biases,
            width,
            hidden,
            out,
        })
    }
}

/// The place of `axis` among the dimensions of `tensor`.
fn axis_of(tensor: &Tensor, axis: i64) -> Result<usize, GraphError> {
    let rank = tensor.shape.len();
    let from_end = usize::try_from(axis.unsigned_abs()).ok();
    let place = from_end.and_then(|it| if axis < 0 { rank.checked_sub(it) } else { Some(it) });
    place.filter(|place| *place < rank).ok_or_else(|| {
        GraphError::new(format!("axis {axis}"), format!("one of the {rank} of {}", tensor.words()))
    })
}

fn last_axis(tensor: &Tensor, axis: i64) -> Result<(), GraphError> {
    if axis_of(tensor, axis)? + 1 == tensor.shape.len() {
        return Ok(());
    }
    Err(GraphError::new(format!("axis {axis} of {}", tensor.words()), "the last one"))
}

fn flatten(tensor: &Tensor, axis: i64) -> Result<Tensor, GraphError> {
    let rank = tensor.shape.len();
    let axis = if axis == rank as i64 { rank } else { axis_of(tensor, axis)? };
    let rows: usize = tensor.shape[..axis].iter().product();
    Ok(Tensor { shape: vec![rows, tensor.elements() / rows], place: tensor.place })
}

fn reshape(tensor: &Tensor, shape: &[i64]) -> Result<Tensor, GraphError> {
    let refused = || {
        let allowed = format!("a shape of the {} numbers of {}", tensor.elements(), tensor.words());
        GraphError::new(format!("a shape of {shape:?}"), allowed)
    };
    if shape.len() > RANK_MAX || shape.iter().filter(|size| **size == -1).count() > 1 {
        return Err(refused());
    }
    let known = |(place, size): (usize, &i64)| match size {
        -1 => Some(1),
        0 => tensor.shape.get(place).copied(),
        size => usize::try_from(*size).ok(),
    };
    let sizes: Option<Vec<usize>> = shape.iter().enumerate().map(known).collect();
    let mut sizes = sizes.ok_or_else(refused)?;
    let product = elements(&sizes, VALUES_MAX.max(CONSTANTS_MAX))?;
    if let Some(place) = shape.iter().position(|size| *size == -1) {
        sizes[place] = tensor.elements() / product;
    }
    if sizes.iter().product::<usize>() != tensor.elements() {
        return Err(refused());
    }
    Ok(Tensor { shape: sizes, place: tensor.place })
}

/// A checked graph: for any input, its evaluation ends, allocates nothing and cannot fail.
#[derive(Clone, Debug)]
pub struct Graph {
    constants: Vec<f32>,
    steps: Vec<Step>,
    values: usize,
    input: usize,
    output: TensorPlace,
}

impl Graph {
    /// Count of numbers in the input.
    pub fn input_len(&self) -> usize {
        self.input
    }

    /// Count of numbers in the output.
    pub fn output_len(&self) -> usize {
        self.output.len
    }
}

/// A graph with the memory of its evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    graph: Arc<Graph>,
    values: Vec<f32>,
}

impl Evaluation {
    /// Takes the memory that `graph` needs.
    pub fn new(graph: Arc<Graph>) -> Self {
        Self { values: vec![0.0; graph.values], graph }
    }

    /// The input. Fill it before [`Evaluation::run`].
    pub fn input(&mut self) -> &mut [f32] {
        &mut self.values[..self.graph.input]
    }

    /// Runs the graph and returns its output, which may contain NaN and infinities.
    pub fn run(&mut self) -> &[f32] {
        for step in &self.graph.steps {
            step.run(&self.graph.constants, &mut self.values);
        }
        self.graph.output.of(&self.values)
    }
}

#[cfg(test)]
mod tests;
