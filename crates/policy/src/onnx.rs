//! From the bytes of an ONNX model to a graph. An operator that is not among [`OPERATORS`], or that
//! needs a feature missing here, is refused by its name. The bytes may be anything.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use forebay_core::cc::policy::graph::{Builder, Graph, Operator, Tensor};

use crate::error::{OnnxError, Refused, printable};
use crate::message::{self, Model, Node, Numbers, ValueInfo};

/// The operators that a policy may have, as ONNX calls them.
pub const OPERATORS: [&str; 17] = [
    "Gemm",
    "MatMul",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Relu",
    "Tanh",
    "Sigmoid",
    "Clip",
    "Softmax",
    "LayerNormalization",
    "Concat",
    "Identity",
    "Flatten",
    "Reshape",
    "GRU",
];

/// Versions of ONNX's operators in which the operators above have the meaning they have here.
const OPSETS: RangeInclusive<i64> = 13..=28;

/// The graph of the model in `bytes`, with one input and one output of floats. A first dimension of the
/// input without a size is 1.
///
/// # Errors
///
/// The model is broken, too large, or has an operator that is not among [`OPERATORS`]: the node and the
/// allowed values.
pub fn read(bytes: &[u8]) -> Result<Graph, OnnxError> {
    let of_model = |refused| OnnxError::new("model", refused);
    let mut reading = Reading::begin(bytes).map_err(of_model)?;
    for node in std::mem::take(&mut reading.nodes) {
        let node = Node::read(node).map_err(of_model)?;
        let name = [node.name, node.outputs.first().copied().unwrap_or_default()]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or("without a name");
        let at = format!("node {} ({})", printable(name), printable(node.op_type));
        reading.add(node).map_err(|refused| OnnxError::new(&at, refused))?;
    }
    reading.finish().map_err(of_model)
}

/// A value with a name.
#[derive(Clone)]
enum Value {
    Tensor(Tensor),
    Integers(Vec<i64>),
}

/// A model that is being read.
struct Reading<'a> {
    nodes: Vec<&'a [u8]>,
    output: &'a str,
    values: BTreeMap<&'a str, Value>,
    builder: Builder,
}

impl<'a> Reading<'a> {
    fn begin(bytes: &'a [u8]) -> Result<Self, Refused> {
        let model = Model::read(bytes)?;
        let opset = model.opset.unwrap_or_default();
        if !OPSETS.contains(&opset) {
            let allowed = format!("opset {} to {}", OPSETS.start(), OPSETS.end());
            return Err(Refused::new(format!("opset {opset}"), allowed));
        }
        let graph = model.graph.ok_or_else(|| Refused::new("no graph", "a model with one"))?;
        let graph = message::Graph::read(graph)?;
        let initializers: Vec<message::Tensor<'a>> =
            graph.initializers.into_iter().map(message::Tensor::read).collect::<Result<_, _>>()?;
        let [output] = graph.outputs[..] else {
            return Err(Refused::new(format!("{} outputs", graph.outputs.len()), "one output"));
        };
        let inputs = graph.inputs.into_iter().map(ValueInfo::read);
        let inputs: Vec<ValueInfo<'a>> = inputs.collect::<Result<_, _>>()?;
        let constants: BTreeSet<&str> = initializers.iter().map(|it| it.name).collect();
        // Older models list constants among the inputs, too.
        let inputs: Vec<&ValueInfo<'a>> =
            inputs.iter().filter(|input| !constants.contains(input.name)).collect();
        let Some((input, more)) = inputs.split_first() else {
            return Err(Refused::new("no input", "one input"));
        };
        if let Some(second) = more.first() {
            let allowed = format!("one input, here {}", printable(input.name));
            return Err(Refused::new(format!("the input {}", printable(second.name)), allowed));
        }
        let (builder, tensor) = Builder::new(&input_shape(input)?)?;
        let (nodes, output) = (graph.nodes, ValueInfo::read(output)?.name);
        let mut reading = Self { nodes, output, values: BTreeMap::new(), builder };
        reading.name(input.name, Value::Tensor(tensor))?;
        for constant in initializers {
            let name = constant.name;
            let value = reading.constant(constant)?;
            reading.name(name, value)?;
        }
        Ok(reading)
    }

    fn constant(&mut self, tensor: message::Tensor<'_>) -> Result<Value, Refused> {
        Ok(match tensor.numbers {
            Numbers::Floats(numbers) => {
                Value::Tensor(self.builder.constant(&tensor.shape, &numbers)?)
            }
            Numbers::Integers(numbers) => Value::Integers(numbers),
        })
    }

    fn name(&mut self, name: &'a str, value: Value) -> Result<(), Refused> {
        if self.values.insert(name, value).is_some() {
            let what = format!("{} made twice", printable(name));
            return Err(Refused::new(what, "each name once"));
        }
        Ok(())
    }

    fn add(&mut self, mut node: Node<'a>) -> Result<(), Refused> {
        if !node.domain.is_empty() && node.domain != "ai.onnx" {
            let what = format!("an operator of {}", printable(node.domain));
            return Err(Refused::new(what, "operators of ONNX itself"));
        }
        let made = self.result(&mut node)?;
        if let Some(name) = node.attributes.keys().next() {
            let what = format!("the attribute {}", printable(name));
            return Err(Refused::new(what, "the other attributes of this operator"));
        }
        let last = match (&made, node.op_type) {
            (Value::Tensor(made), "GRU") => Some(Value::Tensor(self.builder.last_of(made))),
            _ => None,
        };
        let values = [Some(made), last].into_iter().flatten();
        if node.outputs.iter().skip(values.clone().count()).any(|name| !name.is_empty()) {
            let what = format!("{} outputs", node.outputs.len());
            return Err(Refused::new(what, "fewer outputs: forebay does not compute the rest"));
        }
        for (name, value) in node.outputs.into_iter().zip(values) {
            if !name.is_empty() {
                self.name(name, value)?;
            }
        }
        Ok(())
    }

    /// The result of `node`; takes the attributes that it knows.
    fn result(&mut self, node: &mut Node<'a>) -> Result<Value, Refused> {
        if node.op_type == "Constant" {
            only_inputs(node, 0)?;
            return self.constant_of(node);
        }
        let operator = self.operator(node)?;
        only_inputs(node, inputs_max(&operator))?;
        let mut inputs = Vec::new();
        for name in &node.inputs {
            inputs.push(match self.values.get(name) {
                Some(Value::Tensor(tensor)) => Some(tensor.clone()),
                // A shape, which is among the operator's own attributes here.
                Some(Value::Integers(_)) if node.op_type == "Reshape" => None,
                None if name.is_empty() => None,
                Some(Value::Integers(_)) => {
                    return Err(Refused::new(format!("{}: integers", printable(name)), "floats"));
                }
                None => {
                    let what = format!("the input {}", printable(name));
                    return Err(Refused::new(what, "a value that an earlier node computes"));
                }
            });
        }
        Ok(Value::Tensor(self.builder.apply(&operator, &inputs)?))
    }

    fn constant_of(&mut self, node: &mut Node<'a>) -> Result<Value, Refused> {
        let mut taken = |name: &str| node.attributes.remove(name);
        if let Some(tensor) = taken("value").and_then(|it| it.tensor) {
            return self.constant(message::Tensor::read(tensor)?);
        }
        if let Some(number) = taken("value_float").and_then(|it| it.float) {
            return Ok(Value::Tensor(self.builder.constant(&[], &[number])?));
        }
        if let Some(numbers) = taken("value_floats").map(|it| it.floats) {
            return Ok(Value::Tensor(self.builder.constant(&[numbers.len()], &numbers)?));
        }
        Err(Refused::new("no value", "value, value_float or value_floats"))
    }

    fn operator(&self, node: &mut Node<'a>) -> Result<Operator, Refused> {
        let mut attributes = Attributes(&mut node.attributes);
        Ok(match node.op_type {
            "Gemm" => {
                attributes.only("transA", 0, 0)?;
                Operator::Gemm {
                    alpha: attributes.float("alpha", 1.0)?,
                    beta: attributes.float("beta", 1.0)?,
                    is_transposed: attributes.integer("transB", 0)? != 0,
                }
            }
            "MatMul" => Operator::MatMul,
            "Add" => Operator::Add,
            "Sub" => Operator::Sub,
            "Mul" => Operator::Mul,
            "Div" => Operator::Div,
            "Relu" => Operator::Relu,
            "Tanh" => Operator::Tanh,
            "Sigmoid" => Operator::Sigmoid,
            "Clip" => Operator::Clip {
                min: self.number(node.inputs.get(1), f32::MIN)?,
                max: self.number(node.inputs.get(2), f32::MAX)?,
            },
            "Softmax" => Operator::Softmax { axis: attributes.integer("axis", -1)? },
            "LayerNormalization" => {
                attributes.only("stash_type", 1, 1)?;
                Operator::LayerNormalization {
                    axis: attributes.integer("axis", -1)?,
                    epsilon: attributes.float("epsilon", 1e-5)?,
                }
            }
            "Concat" => Operator::Concat { axis: attributes.integer("axis", 0)? },
            "Identity" => Operator::Identity,
            "Flatten" => Operator::Flatten { axis: attributes.integer("axis", 1)? },
            "Reshape" => {
                attributes.only("allowzero", 0, 0)?;
                match node.inputs.get(1).and_then(|name| self.values.get(name)) {
                    Some(Value::Integers(shape)) => Operator::Reshape { shape: shape.clone() },
                    _ => {
                        return Err(Refused::new(
                            "a shape that a node computes",
                            "a constant shape",
                        ));
                    }
                }
            }
            "GRU" => {
                attributes.only("layout", 0, 0)?;
                attributes.only("linear_before_reset", 0, 1)?;
                let direction = attributes.0.remove("direction");
                if direction.is_some_and(|it| it.text != Some(&b"forward"[..])) {
                    return Err(Refused::new("direction", "forward"));
                }
                // The weights say it, too.
                attributes.0.remove("hidden_size");
                Operator::Gru
            }
            _ => {
                let allowed = format!("one of {}", OPERATORS.join(", "));
                return Err(Refused::new("this operator", allowed));
            }
        })
    }

    /// The one number of a constant; `default` where it is left out.
    fn number(&self, name: Option<&&'a str>, default: f32) -> Result<f32, Refused> {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(default) };
        let numbers = match self.values.get(*name) {
            Some(Value::Tensor(tensor)) => self.builder.numbers_of(tensor),
            _ => None,
        };
        match numbers {
            Some([number]) => Ok(*number),
            _ => Err(Refused::new(format!("the bound {}", printable(name)), "a constant number")),
        }
    }

    fn finish(self) -> Result<Graph, Refused> {
        match self.values.get(self.output) {
            Some(Value::Tensor(output)) => {
                let output = output.clone();
                Ok(self.builder.finish(&output)?)
            }
            _ => {
                let what = format!("the output {}", printable(self.output));
                Err(Refused::new(what, "an output of a node"))
            }
        }
    }
}

/// How many inputs `operator` has at most.
fn inputs_max(operator: &Operator) -> usize {
    match operator {
        Operator::Relu
        | Operator::Tanh
        | Operator::Sigmoid
        | Operator::Softmax { .. }
        | Operator::Identity
        | Operator::Flatten { .. } => 1,
        Operator::MatMul
        | Operator::Add
        | Operator::Sub
        | Operator::Mul
        | Operator::Div
        | Operator::Reshape { .. } => 2,
        Operator::Gemm { .. } | Operator::Clip { .. } | Operator::LayerNormalization { .. } => 3,
        // The graph refuses the last two in words of their own.
        Operator::Gru => 6,
        Operator::Concat { .. } => usize::MAX,
    }
}

/// Refuses the first input beyond `most` that is not left out.
fn only_inputs(node: &Node<'_>, most: usize) -> Result<(), Refused> {
    match node.inputs.iter().skip(most).find(|name| !name.is_empty()) {
        None => Ok(()),
        Some(name) => {
            let what = format!("the input {}", printable(name));
            Err(Refused::new(what, format!("at most {most} inputs")))
        }
    }
}

fn input_shape(input: &ValueInfo<'_>) -> Result<Vec<usize>, Refused> {
    let refused = |what: &str| {
        let allowed = "floats of a fixed shape, only the first dimension without a size";
        Refused::new(format!("the input {}: {what}", printable(input.name)), allowed)
    };
    if !input.is_float {
        return Err(refused("other numbers"));
    }
    let shape = input.shape.as_ref().ok_or_else(|| refused("no shape"))?;
    let size = |(place, size): (usize, &Option<i64>)| match size {
        None if place == 0 => Some(1),
        size => usize::try_from((*size)?).ok(),
    };
    let sizes: Option<Vec<usize>> = shape.iter().enumerate().map(size).collect();
    sizes.ok_or_else(|| refused("a dimension without a size"))
}

/// The attributes of a node that have not been read yet.
struct Attributes<'n, 'a>(&'n mut BTreeMap<&'a str, message::Attribute<'a>>);

impl Attributes<'_, '_> {
    fn integer(&mut self, name: &str, default: i64) -> Result<i64, Refused> {
        let Some(attribute) = self.0.remove(name) else { return Ok(default) };
        let refused = || Refused::new(format!("{name} of another type"), "an integer");
        attribute.integer.ok_or_else(refused)
    }

    fn float(&mut self, name: &str, default: f32) -> Result<f32, Refused> {
        let Some(attribute) = self.0.remove(name) else { return Ok(default) };
        let refused = || Refused::new(format!("{name} of another type"), "a float");
        attribute.float.ok_or_else(refused)
    }

    /// Refuses another value than `allowed`.
    fn only(&mut self, name: &str, default: i64, allowed: i64) -> Result<(), Refused> {
        let value = self.integer(name, default)?;
        if value == allowed {
            return Ok(());
        }
        Err(Refused::new(format!("{name} = {value}"), format!("{allowed}")))
    }
}

#[cfg(test)]
pub(crate) mod tests;
