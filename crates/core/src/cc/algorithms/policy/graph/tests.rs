use super::*;

/// Output of the graph of one `operator` for `input`; the other inputs are constants.
fn result(
    operator: &Operator,
    input: (&[usize], &[f32]),
    others: &[(&[usize], &[f32])],
) -> Result<(Vec<usize>, Vec<f32>), GraphError> {
    let (mut builder, first) = Builder::new(input.0)?;
    let mut inputs = vec![Some(first)];
    for (shape, numbers) in others {
        inputs.push(Some(builder.constant(shape, numbers)?));
    }
    let output = builder.apply(operator, &inputs)?;
    let shape = output.shape().to_vec();
    let mut evaluation = Evaluation::new(Arc::new(builder.finish(&output)?));
    evaluation.input().copy_from_slice(input.1);
    Ok((shape, evaluation.run().to_vec()))
}

/// Numbers that were worked out by hand to seven digits.
#[track_caller]
fn close(made: &[f32], by_hand: &[f32]) {
    assert_eq!(made.len(), by_hand.len(), "{made:?}");
    let far = made.iter().zip(by_hand).any(|(made, hand)| (made - hand).abs() > 1e-6);
    assert!(!far, "{made:?} for {by_hand:?}");
}

const PAIR: &[usize] = &[1, 2];

#[test]
fn a_product_has_its_factors_and_its_bias() {
    let weights: (&[usize], &[f32]) = (&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (shape, made) = result(&Operator::MatMul, (PAIR, &[10.0, 1.0]), &[weights]).unwrap();
    assert_eq!((shape, made), (vec![1, 3], vec![14.0, 25.0, 36.0]));

    // The same matrix lying transposed, halved, with twice the bias.
    let turned: (&[usize], &[f32]) = (&[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let gemm = Operator::Gemm { alpha: 0.5, beta: 2.0, is_transposed: true };
    let bias: (&[usize], &[f32]) = (&[3], &[1.0, 0.0, -1.0]);
    let (_, made) = result(&gemm, (PAIR, &[10.0, 1.0]), &[turned, bias]).unwrap();
    assert_eq!(made, [9.0, 12.5, 16.0]);

    // Two rows, each by itself.
    let rows: (&[usize], &[f32]) = (&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let (shape, made) = result(&Operator::MatMul, rows, &[weights]).unwrap();
    assert_eq!((shape, made), (vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
}

#[test]
fn shorter_shape_is_broadcast_on_either_side() {
    let long: (&[usize], &[f32]) = (&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let row: (&[usize], &[f32]) = (PAIR, &[10.0, 20.0]);
    let made = |operator, left, right| result(&operator, left, &[right]).unwrap().1;
    assert_eq!(made(Operator::Add, long, row), [11.0, 22.0, 13.0, 24.0]);
    assert_eq!(made(Operator::Sub, row, long), [9.0, 18.0, 7.0, 16.0]);
    assert_eq!(made(Operator::Mul, long, (&[], &[2.0])), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(made(Operator::Div, (&[1], &[12.0]), long), [12.0, 6.0, 4.0, 3.0]);
    let column: (&[usize], &[f32]) = (&[2, 1], &[1.0, 2.0]);
    let error = result(&Operator::Add, long, &[column]).unwrap_err();
    assert_eq!(error.what, "[2, 2] with [2, 1]");
}

#[test]
fn functions_are_those_of_onnx() {
    let made = |operator, numbers: &[f32]| result(&operator, (&[1, 3], numbers), &[]).unwrap().1;
    let numbers = [-1.0, 0.0, 2.0];
    assert_eq!(made(Operator::Relu, &numbers), [0.0, 0.0, 2.0]);
    assert_eq!(made(Operator::Clip { min: -0.5, max: 1.0 }, &numbers), [-0.5, 0.0, 1.0]);
    close(&made(Operator::Tanh, &numbers), &[-0.761_594_2, 0.0, 0.964_027_6]);
    close(&made(Operator::Sigmoid, &numbers), &[0.268_941_4, 0.5, 0.880_797_1]);
    let softmax = made(Operator::Softmax { axis: -1 }, &[0.0, 1.0, 2.0]);
    close(&softmax, &[0.090_030_6, 0.244_728_5, 0.665_240_9]);
    // Far from zero the shares are the same.
    close(&made(Operator::Softmax { axis: 1 }, &[1000.0, 1001.0, 1002.0]), &softmax);
}

#[test]
fn row_is_normalized_by_its_mean_and_variance() {
    let operator = Operator::LayerNormalization { axis: -1, epsilon: 0.0 };
    let scale: (&[usize], &[f32]) = (PAIR, &[1.0, 2.0]);
    let bias: (&[usize], &[f32]) = (&[2], &[0.0, 1.0]);
    // Mean 3 and variance 4; mean 0 and variance 1.
    let rows: (&[usize], &[f32]) = (&[2, 2], &[1.0, 5.0, 1.0, -1.0]);
    close(&result(&operator, rows, &[scale, bias]).unwrap().1, &[-1.0, 3.0, 1.0, -1.0]);
    let other = Operator::LayerNormalization { axis: 0, epsilon: 0.0 };
    assert_eq!(result(&other, rows, &[scale]).unwrap_err().allowed, "the last one");
}

#[test]
fn tensors_are_joined_and_reshaped() {
    let (mut builder, input) = Builder::new(&[2, 2]).unwrap();
    let constant = builder.constant(&[2, 1], &[8.0, 9.0]).unwrap();
    let joined = builder
        .apply(&Operator::Concat { axis: -1 }, &[Some(input.clone()), Some(constant)])
        .unwrap();
    assert_eq!(joined.shape(), [2, 3]);
    let flat = builder.apply(&Operator::Flatten { axis: 0 }, &[Some(joined)]).unwrap();
    assert_eq!(flat.shape(), [1, 6]);
    let shape = vec![3, -1];
    let turned = builder.apply(&Operator::Reshape { shape }, &[Some(flat.clone())]).unwrap();
    assert_eq!(turned.shape(), [3, 2]);
    for shape in [vec![4, -1], vec![-1, -1], vec![5], vec![-2, 3]] {
        assert!(builder.apply(&Operator::Reshape { shape }, &[Some(flat.clone())]).is_err());
    }
    let same = builder.apply(&Operator::Identity, &[Some(turned)]).unwrap();
    let graph = builder.finish(&same).unwrap();
    assert_eq!((graph.input_len(), graph.output_len()), (4, 6));
    let mut evaluation = Evaluation::new(Arc::new(graph));
    evaluation.input().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(evaluation.run(), [1.0, 2.0, 8.0, 3.0, 4.0, 9.0]);
}

#[test]
fn a_gru_remembers() {
    // One number, one state: W and R of the gates z, r, h, and their biases.
    let weights: (&[usize], &[f32]) = (&[1, 3, 1], &[0.0, 0.0, 1.0]);
    let recurrent: (&[usize], &[f32]) = (&[1, 3, 1], &[0.0, 0.0, 2.0]);
    let input: (&[usize], &[f32]) = (&[2, 1, 1], &[1.0, 0.0]);
    let (shape, made) = result(&Operator::Gru, input, &[weights, recurrent]).unwrap();
    assert_eq!(shape, [2, 1, 1, 1]);
    // z = r = 0.5. h1 = 0.5 tanh(1); h2 = 0.5 tanh(0.5 x 2 h1) + 0.5 h1.
    let first = 0.380_797_1;
    close(&made, &[first, 0.5 * libm::tanhf(first) + 0.5 * first]);

    let (mut builder, input) = Builder::new(&[2, 1, 1]).unwrap();
    let [weights, recurrent] = [weights, recurrent]
        .map(|(shape, numbers)| Some(builder.constant(shape, numbers).unwrap()));
    let all = builder.apply(&Operator::Gru, &[Some(input), weights, recurrent]).unwrap();
    let last = builder.last_of(&all);
    assert_eq!(last.shape(), [1, 1, 1]);
    let mut evaluation = Evaluation::new(Arc::new(builder.finish(&last).unwrap()));
    evaluation.input().copy_from_slice(&[1.0, 0.0]);
    let last = evaluation.run().to_vec();
    assert_eq!(last, made[1..]);
    assert_eq!(evaluation.run(), last, "no evaluation leaves anything to the next one");
}

#[test]
fn nan_propagates_to_the_output() {
    for operator in [Operator::Relu, Operator::Clip { min: -1.0, max: 1.0 }, Operator::Tanh] {
        let made = result(&operator, (&[1], &[f32::NAN]), &[]).unwrap().1;
        assert!(made[0].is_nan(), "{operator:?}");
    }
    let made = result(&Operator::Div, (&[1], &[0.0]), &[(&[1], &[0.0])]).unwrap().1;
    assert!(made[0].is_nan());
}

#[test]
fn graphs_are_bounded() {
    let words = |error: GraphError| error.to_string();
    assert!(Builder::new(&[]).is_ok(), "a scalar has one number");
    for shape in [&[0_usize][..], &[1 << 17], &[usize::MAX, 2], &[1; 5]] {
        let error = words(Builder::new(shape).unwrap_err());
        let allowed = "allowed is at most 4 dimensions and 1 to 65536 numbers";
        assert!(error.ends_with(allowed), "{error}");
    }
    let (mut builder, input) = Builder::new(&[1, 4096]).unwrap();
    let numbers = vec![1.0; 1 << 19];
    let first = builder.constant(&[4096, 128], &numbers).unwrap();
    builder.constant(&[4096, 128], &numbers).unwrap();
    assert!(builder.constant(&[1], &[1.0]).is_err(), "all constants together");
    let inputs = [Some(input.clone()), Some(first)];
    let error = loop {
        if let Err(error) = builder.apply(&Operator::MatMul, &inputs) {
            break words(error);
        }
    };
    assert_eq!(error, "4718592 multiplications: allowed is at most 4194304");

    let (mut builder, input) = Builder::new(&[1]).unwrap();
    for _ in 0..OPERATORS_MAX {
        builder.apply(&Operator::Relu, &[Some(input.clone())]).unwrap();
    }
    let error = words(builder.apply(&Operator::Relu, &[Some(input)]).unwrap_err());
    assert_eq!(error, "257 operators: allowed is at most 256");
}

#[test]
fn what_an_operator_does_not_take_is_told() {
    let row: (&[usize], &[f32]) = (PAIR, &[1.0, 2.0]);
    let refused = |operator: &Operator, others: &[(&[usize], &[f32])]| {
        result(operator, row, others).unwrap_err().to_string()
    };
    let wide: (&[usize], &[f32]) = (&[3, 1], &[1.0; 3]);
    assert_eq!(
        refused(&Operator::MatMul, &[wide]),
        "[1, 2] times [3, 1]: allowed is 2 rows of the matrix"
    );
    assert_eq!(refused(&Operator::Add, &[]), "no input 1: allowed is a tensor");
    assert_eq!(
        refused(&Operator::Softmax { axis: 0 }, &[]),
        "axis 0 of [1, 2]: allowed is the last one"
    );
    assert_eq!(
        refused(&Operator::Add, &[(&[1], &[f32::INFINITY])]),
        "a constant with inf: allowed is finite numbers"
    );
    let (builder, input) = Builder::new(PAIR).unwrap();
    let product = builder.clone().apply(&Operator::MatMul, &[Some(input.clone()), Some(input)]);
    assert!(product.unwrap_err().to_string().ends_with("allowed is a constant matrix"));
}
