use std::sync::Arc;

use forebay_core::cc::policy::graph::Evaluation;
use forebay_core::cc::policy::observation::WIDTH;

use super::*;
use crate::wire::writing::{bytes, float, integer};

/// A tensor of floats, its numbers raw.
fn tensor(name: &str, shape: &[i64], numbers: &[f32]) -> Vec<u8> {
    let dims = shape.iter().flat_map(|size| integer(1, *size));
    let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    dims.chain(integer(2, 1)).chain(bytes(8, name.as_bytes())).chain(bytes(9, &raw)).collect()
}

fn value(name: &str, sizes: &[Option<i64>]) -> Vec<u8> {
    let dims = sizes.iter().flat_map(|size| match size {
        Some(size) => bytes(1, &integer(1, *size)),
        None => bytes(1, &bytes(2, b"batch")),
    });
    let shape: Vec<u8> = dims.collect();
    let tensor = [integer(1, 1), bytes(2, &shape)].concat();
    [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat()
}

/// A node with attributes that are messages.
pub fn node(op_type: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| bytes(1, name.as_bytes()));
    let attributes = attributes.iter().flat_map(|it| bytes(5, it));
    let names = [bytes(2, output.as_bytes()), bytes(4, op_type.as_bytes())].concat();
    inputs.chain(names).chain(attributes).collect()
}

fn attribute(name: &str, value: Vec<u8>) -> Vec<u8> {
    [bytes(1, name.as_bytes()), value].concat()
}

/// A model of opset 17 whose input is `x` of a policy with one row, and its output `y`.
pub fn model(nodes: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    model_of(&[None, Some(WIDTH as i64)], nodes, initializers)
}

fn model_of(input: &[Option<i64>], nodes: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    model_with(&[value("x", input)], nodes, initializers)
}

fn model_with(inputs: &[Vec<u8>], nodes: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|input| bytes(11, input));
    let nodes = nodes.iter().flat_map(|node| bytes(1, node));
    let initializers = initializers.iter().flat_map(|tensor| bytes(5, tensor));
    let output = bytes(12, &value("y", &[None, Some(1)]));
    let graph: Vec<u8> = nodes.chain(initializers).chain(inputs).chain(output).collect();
    [integer(1, 8), bytes(7, &graph), bytes(8, &integer(2, 17))].concat()
}

/// Two layers: the first weighs the flag that the last feature is known, the second halves and bounds
/// the mean.
pub fn policy() -> Vec<u8> {
    let mut weights = [0.0; 2 * WIDTH];
    // Two outputs, each of a row of weights, as PyTorch writes them.
    weights[WIDTH - 1] = 1.0;
    weights[2 * WIDTH - 1] = 2.0;
    let first = node(
        "Gemm",
        &["x", "w", "b"],
        "h",
        &[attribute("transB", integer(3, 1)), attribute("alpha", float(2, 1.0))],
    );
    let second = node("MatMul", &["h", "v"], "m", &[]);
    model(
        &[first, second, node("Tanh", &["m"], "y", &[])],
        &[
            tensor("w", &[2, WIDTH as i64], &weights),
            tensor("b", &[2], &[0.5, 0.0]),
            tensor("v", &[2, 1], &[0.25, 0.25]),
        ],
    )
}

fn error(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn a_policy_gives_what_its_layers_give() {
    let mut evaluation = Evaluation::new(Arc::new(read(&policy()).unwrap()));
    evaluation.input()[WIDTH - 1] = 1.0;
    // tanh(0.25 x 1.5 + 0.25 x 2)
    assert!((evaluation.run()[0] - 0.703_905_6).abs() < 1e-6);
}

#[test]
fn shapes_and_bounds_are_constants() {
    let head = [integer(1, 2), integer(2, 7), bytes(8, b"s")].concat();
    let shape = [head, integer(7, 7), integer(7, 2)].concat();
    let low = attribute("value", bytes(5, &tensor("", &[], &[-0.5])));
    let nodes = [
        node("Constant", &[], "low", &[low]),
        node("Reshape", &["x", "s"], "r", &[]),
        node("Clip", &["r", "low", ""], "c", &[]),
        node("Flatten", &["c"], "f", &[attribute("axis", integer(3, 0))]),
        node("Gemm", &["f", "w"], "y", &[]),
    ];
    let weights = tensor("w", &[WIDTH as i64, 1], &[1.0; WIDTH]);
    let graph = read(&model(&nodes, &[shape, weights])).unwrap();
    let mut evaluation = Evaluation::new(Arc::new(graph));
    evaluation.input()[..2].copy_from_slice(&[-3.0, 4.0]);
    assert_eq!(evaluation.run(), [3.5]);
}

#[test]
fn gru_second_output_is_last_state() {
    let mut gru = node(
        "GRU",
        &["x", "w", "r"],
        "all",
        &[attribute("hidden_size", integer(3, 1)), attribute("linear_before_reset", integer(3, 1))],
    );
    gru.extend(bytes(2, b"last"));
    let flat = node("Flatten", &["last"], "y", &[attribute("axis", integer(3, 2))]);
    let kernel = |name, width| tensor(name, &[1, 3, width], &vec![1.0; 3 * width as usize]);
    let input = [Some(4), Some(1), Some(WIDTH as i64)];
    let parts = [kernel("w", WIDTH as i64), kernel("r", 1)];
    let graph = read(&model_of(&input, &[gru, flat], &parts)).unwrap();
    assert_eq!((graph.input_len(), graph.output_len()), (4 * WIDTH, 1));
    let gru = node("GRU", &["x", "w", "r"], "all", &[]);
    assert_eq!(
        error(&model_of(&input, &[gru], &parts)),
        "node all (GRU): linear_before_reset = 0: allowed is 1"
    );
}

#[test]
fn unsupported_parts_are_refused_by_node() {
    let made = |op_type: &str, attributes: &[Vec<u8>]| {
        error(&model(&[node(op_type, &["x"], "y", attributes)], &[]))
    };
    let text = made("Conv", &[]);
    assert!(text.starts_with("node y (Conv): this operator: allowed is one of Gemm, "), "{text}");
    let axis = attribute("axis", integer(3, 0));
    let text = made("Softmax", std::slice::from_ref(&axis));
    assert!(text.starts_with("node y (Softmax): axis 0 of [1, 14]"), "{text}");
    // A zero that is not written, and a number that is no integer.
    let text = made("Softmax", &[attribute("axis", integer(20, 2))]);
    assert!(text.starts_with("node y (Softmax): axis 0 of [1, 14]"), "{text}");
    let text = made("Softmax", &[attribute("axis", float(2, 1.0))]);
    assert_eq!(text, "node y (Softmax): axis of another type: allowed is an integer");
    let text = made("Relu", &[axis]);
    assert!(text.starts_with("node y (Relu): the attribute axis: "), "{text}");
    let text = error(&model(&[node("MatMul", &["x", "x"], "y", &[])], &[]));
    assert!(text.ends_with("allowed is a constant matrix"), "{text}");
    let transposed = attribute("transA", integer(3, 1));
    assert_eq!(made("Gemm", &[transposed]), "node y (Gemm): transA = 1: allowed is 0");
    let text = error(&model(&[node("Relu", &["z\u{1b}"], "y", &[])], &[]));
    assert!(text.starts_with("node y (Relu): the input z\\u{1b}: "), "{text}");
    let text = error(&model(&[], &[]));
    assert_eq!(text, "model: the output y: allowed is an output of a node");
}

#[test]
fn unused_inputs_are_refused_by_name() {
    let row = [None, Some(WIDTH as i64)];
    let nodes = [node("Relu", &["x"], "y", &[])];
    let two = [value("x", &row), value("mask", &row)];
    let text = error(&model_with(&two, &nodes, &[]));
    assert_eq!(text, "model: the input mask: allowed is one input, here x");
    assert_eq!(error(&model_with(&[], &nodes, &[])), "model: no input: allowed is one input");
    // As older models list constants.
    let constant = [tensor("mask", &[1], &[0.0])];
    assert!(read(&model_with(&two, &nodes, &constant)).is_ok());
    let with = |op_type: &str, inputs: &[&str], attributes: &[Vec<u8>]| {
        error(&model(&[node(op_type, inputs, "y", attributes)], &[]))
    };
    let text = with("Relu", &["x", "", "alpha"], &[]);
    assert_eq!(text, "node y (Relu): the input alpha: allowed is at most 1 inputs");
    let text = with("Add", &["x", "x", "x"], &[]);
    assert_eq!(text, "node y (Add): the input x: allowed is at most 2 inputs");
    let number = attribute("value_float", float(2, 1.0));
    let text = with("Constant", &["x"], &[number]);
    assert_eq!(text, "node y (Constant): the input x: allowed is at most 0 inputs");
    assert!(read(&model(&[node("Relu", &["x", ""], "y", &[])], &[])).is_ok());
}

#[test]
fn broken_or_foreign_models_are_refused() {
    assert!(error(&[]).starts_with("model: opset 0: allowed is opset 13 to "));
    let whole = policy();
    for len in 0..whole.len() {
        // Cut behind the graph there is no word of the opset.
        assert!(read(&whole[..len]).is_err(), "{len}");
    }
    let nodes = [node("Identity", &["x"], "y", &[])];
    for shape in [&[Some(1), None][..], &[Some(-1), Some(14)], &[Some(0)], &[Some(1 << 40)]] {
        assert!(read(&model_of(shape, &nodes, &[])).is_err(), "{shape:?}");
    }
    let elsewhere = [tensor("w", &[1], &[0.0]), integer(14, 1)].concat();
    assert!(error(&model(&nodes, &[elsewhere])).contains("numbers in another file"));
    let wide = [node("Concat", &["x"; 257], "y", &[])];
    let text = error(&model(&wide, &[]));
    assert_eq!(text, "model: a node of 257 inputs: allowed is at most 256");
    // The message gives the number of dimensions, however many a tensor has.
    let deep = [tensor("w", &[1; 1000], &[0.0])];
    assert!(error(&model(&nodes, &deep)).starts_with("model: a tensor of 1000 dimensions: "));
    let twice = [tensor("w", &[1], &[0.0]), tensor("w", &[1], &[0.0])];
    assert_eq!(error(&model(&nodes, &twice)), "model: w made twice: allowed is each name once");
}
