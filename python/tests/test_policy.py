"""Learnt policies as files, functions and algorithms."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from conftest import DOCUMENT

import forebay

pytest.importorskip("gymnasium")
rl = pytest.importorskip("forebay.rl")

HISTORY = 3
EXAMPLE = Path(__file__).parents[1] / "examples/policy"


def layers(hidden, seed=1, history=HISTORY):
    """Random layers, whose results are neither all small nor all at the bounds."""
    draw = np.random.default_rng(seed)
    ends = [14 * history, *hidden, 1]
    return [
        (draw.standard_normal((inputs, outputs)) / np.sqrt(inputs), draw.standard_normal(outputs))
        for inputs, outputs in zip(ends, ends[1:], strict=False)
    ]


@pytest.fixture
def observations():
    return np.random.default_rng(2).uniform(-1, 2, (50, HISTORY, 14)).astype(np.float32)


def agrees_with_onnxruntime(file, observations, shape):
    """Checks that Rust and onnxruntime give the same actions; ``shape`` is the input shape of the file."""
    runtime = pytest.importorskip("onnxruntime")
    policy = rl.Policy(file)
    assert policy.history == HISTORY
    actions = policy(observations)
    assert actions.shape == (len(observations), 1) and np.ptp(actions) > 0.01
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for observation, action in zip(observations, actions, strict=True):
        (theirs,) = session.run(None, {"observation": observation.reshape(shape)})
        assert action == pytest.approx(theirs[0], rel=1e-5, abs=1e-5)
        assert np.array_equal(policy(observation), action)


@pytest.mark.parametrize("hidden", ["tanh", "relu", "sigmoid"])
@pytest.mark.parametrize("output", ["tanh", "linear"])
def test_rust_and_onnxruntime_agree_on_layers(hidden, output, observations, tmp_path):
    pytest.importorskip("onnx")
    file = tmp_path / "policy.onnx"
    rl.export(file, layers([64, 64]), hidden=hidden, output=output)
    agrees_with_onnxruntime(file, observations, (1, -1))


def test_rust_and_onnxruntime_agree_on_every_operator(observations, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    draw = np.random.default_rng(5)

    def constant(name, *shape):
        numbers = np.asarray(draw.standard_normal(shape) / 3, np.float32)
        return numpy_helper.from_array(numbers, name)

    constants = [
        *(constant("w", 1, 24, 14), constant("r", 1, 24, 8), constant("b", 1, 48)),
        *(constant("scale", 8), constant("row", 8), constant("square", 8, 8)),
        *(constant("column", 16, 1), constant("end", 1)),
        numpy_helper.from_array(np.array([1, 8], np.int64), "shape"),
        *(numpy_helper.from_array(np.array(it, np.float32), f"{it}") for it in (-0.5, 0.5, 2.0)),
    ]
    node = helper.make_node
    nodes = [
        node("GRU", ["observation", "w", "r", "b"], ["", "state"], hidden_size=8, linear_before_reset=1),
        node("Reshape", ["state", "shape"], ["flat"]),
        node("LayerNormalization", ["flat", "scale", "row"], ["normal"], axis=-1),
        node("MatMul", ["normal", "square"], ["mixed"]),
        node("Add", ["mixed", "row"], ["added"]),
        node("Relu", ["added"], ["positive"]),
        node("Softmax", ["mixed"], ["shares"], axis=-1),
        node("Mul", ["positive", "shares"], ["weighted"]),
        node("Sub", ["weighted", "row"], ["less"]),
        node("Div", ["less", "2.0"], ["half"]),
        node("Sigmoid", ["half"], ["gate"]),
        node("Concat", ["gate", "flat"], ["both"], axis=1),
        node("Identity", ["both"], ["same"]),
        node("Flatten", ["same"], ["row_of_both"], axis=1),
        node("Gemm", ["row_of_both", "column", "end"], ["sum"]),
        node("Tanh", ["sum"], ["bounded"]),
        node("Clip", ["bounded", "-0.5", "0.5"], ["action"]),
    ]
    shape = [HISTORY, 1, 14]
    given = helper.make_tensor_value_info("observation", onnx.TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("action", onnx.TensorProto.FLOAT, [1, 1])
    graph = helper.make_graph(nodes, "every_operator", [given], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "policy.onnx"
    file.write_bytes(model.SerializeToString())
    agrees_with_onnxruntime(file, observations, shape)


def test_a_file_gives_what_its_layers_do(observations, tmp_path):
    pytest.importorskip("onnx")
    made = layers([8])
    policy = rl.export(tmp_path / "policy.onnx", made)
    values = observations.reshape(50, -1)
    for weights, biases in made:
        values = np.tanh(values @ weights + biases)
    assert np.allclose(policy(observations), values, atol=1e-5)
    assert np.array_equal(rl.Policy(tmp_path / "policy.onnx")(observations), policy(observations))


def test_a_policy_decides_in_a_plan(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    # The window grows until the queueing delay is a fifth of the least round trip: 0.15 less 0.75 times the
    # queueing.
    weights = np.zeros((14, 1))
    weights[[1, 8], 0] = -0.75, 0.15
    rl.export("policy.onnx", [(weights, np.zeros(1))], output="linear")
    plan = forebay.Plan(DOCUMENT).with_algorithms(["policy(file=policy.onnx)", "cubic"])
    runs = {run["arm"]: run for run in forebay.run(plan, seeds=1, out="out", progress=False).runs}
    cubic = runs.pop("cubic")
    (learnt,) = runs.values()
    for run in (learnt, cubic):
        assert run["valid"] and run["flows"][0]["metrics"]["goodput_mbps"] > 6
    srtt_ms = [run["flows"][0]["metrics"]["mean_srtt_l4"] for run in (learnt, cubic)]
    assert srtt_ms[0] < srtt_ms[1]


def test_refuses_invalid_layers_and_files(observations, tmp_path):
    pytest.importorskip("onnx")
    file = tmp_path / "policy.onnx"
    one = np.zeros(1)
    for wrong, match in [
        ([], "0 layers"),
        ([(np.zeros((14, 2)), np.zeros(2))], "the last with one output"),
        ([(np.zeros((13, 1)), one)], "13 inputs: allowed are 14 for each of 1 to 64 rows"),
        ([(np.zeros((14, 1)), np.zeros(2))], r"allowed are \(inputs, outputs\)"),
        ([(np.zeros((14, 3)), np.zeros(3)), (np.zeros((2, 1)), one)], "allowed are 3 inputs"),
        ([(np.full((14, 1), np.inf), one)], "finite"),
    ]:
        with pytest.raises(forebay.InputError, match=match):
            rl.export(file, wrong)
    with pytest.raises(forebay.InputError, match="hidden = 'elu': allowed is one of tanh, relu"):
        rl.export(file, layers([2]), hidden="elu")
    assert list(tmp_path.iterdir()) == []
    file.write_bytes(b"no model")
    with pytest.raises(forebay.InputError, match="policy.onnx: allowed is a policy"):
        rl.Policy(file)
    policy = rl.export(file, layers([2]))
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(forebay.InputError, match="allowed are 42 per action"):
        policy(observations[:, :2])


@pytest.mark.slow
def test_evolution_is_independent_of_threads():
    def learnt(threads, generations):
        envs = rl.make_vec(16, DOCUMENT, threads=threads, learner=f"learner(history={HISTORY})")
        made = rl.evolve(envs, hidden=[4], generations=generations, steps=40, progress=False)
        return envs, made

    envs, first = learnt(1, 30)
    _, again = learnt(2, 30)
    for (weights, biases), (other_weights, other_biases) in zip(first, again, strict=True):
        assert np.array_equal(weights, other_weights) and np.array_equal(biases, other_biases)
    assert [weights.shape for weights, _ in first] == [(14 * HISTORY, 4), (4, 1)]

    def reward(made):
        observations, _ = envs.reset(seed=9)
        total = 0.0
        for _ in range(60):
            values = observations.reshape(16, -1)
            for weights, biases in made:
                values = np.tanh(values @ weights + biases)
            observations, rewards, *_ = envs.step(values)
            total += rewards.mean() / 60
        return total

    nothing = [(np.zeros_like(weights), np.zeros_like(biases)) for weights, biases in first]
    assert reward(first) > reward(nothing) + 0.1


def test_evolution_refuses_invalid_numbers():
    envs = rl.make_vec(3, DOCUMENT)
    with pytest.raises(forebay.InputError, match="num_envs = 3: allowed is an even number"):
        rl.evolve(envs)
    with pytest.raises(forebay.InputError, match="steps = 0: allowed is 1 or more"):
        rl.evolve(rl.make_vec(2, DOCUMENT), steps=0)


@pytest.mark.slow
def test_example_trains_policy_for_its_plans(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLE / "train.py"))
    example["train"](generations=1, seed=1)
    assert rl.Policy("policy.onnx").history == example["HISTORY"]
    sendbox = forebay.Plan(EXAMPLE / "sendbox.toml")
    assert list(sendbox.arms) == ["status_quo", "policy", "copa", "setpoint", "nimbus"]
    held_out = forebay.Plan(EXAMPLE / "path.toml").grid(example["HELD_OUT"])
    assert len(held_out.cells) >= 20
