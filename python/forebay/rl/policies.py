"""Policies: numpy layers as files, and files as functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from forebay import _forebay
from forebay.errors import InputError

#: Weights of shape ``(inputs, outputs)`` and biases of shape ``(outputs,)`` of a dense layer.
Layer = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

#: Numbers in a row of an observation: for each feature its value and whether it is known.
_WIDTH = 2 * len(_forebay.FEATURES)
#: Largest number of rows in an observation.
_HISTORY_MAX = 64

#: ONNX operators of the activations between layers.
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}

#: Versions of ONNX operators and format. They are from 2022, so every current onnxruntime reads them.
_OPSET, _IR_VERSION = 17, 8


class Policy:
    """A policy from an ONNX file. It runs in Rust without onnxruntime, as in simulator, sendbox and agent.

    From now on plans that name this file use its current content. A file is ONNX of opset 13 to 28, with at most 8 MiB,
    256 operators and 4,194,304 multiplications per evaluation. Its one float32 input has ``history * 14`` numbers in any
    fixed shape, and its one float32 output is the action. The operators are

    - ``Gemm`` and ``MatMul`` with constant weights, ``transA`` 0;
    - ``Add``, ``Sub``, ``Mul`` and ``Div`` of equal shapes, or if one shape is the end of the other;
    - ``Relu``, ``Tanh``, ``Sigmoid``, and ``Clip`` with constant bounds;
    - ``Softmax`` and ``LayerNormalization`` over the last axis;
    - ``Concat``, ``Identity``, ``Flatten`` and ``Reshape`` with constant shapes;
    - ``GRU``: forward, ``linear_before_reset`` 1, from zeros at each decision.

    Args:
        file: A file from ``export``, or from another program within these limits.

    Raises:
        InputError: The file cannot be read or is not allowed. The message names the node and the allowed content.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._native = _forebay.Policy.load(os.fspath(file))

    @property
    def history(self) -> int:
        """Rows of an observation."""
        return self._native.observation_len() // _WIDTH

    def __call__(self, observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The actions for observations, as the file gives them. Hosts clamp them to -1 to 1.

        Args:
            observations: Shape ``(history, 14)``, optionally with more dimensions in front.

        Returns:
            float32 of shape ``(1,)``, with the same dimensions in front.

        Raises:
            InputError: The observations have another history.
        """
        observations = np.ascontiguousarray(observations, np.float32)
        actions = np.empty((*observations.shape[:-2], 1), np.float32)
        self._native.run(observations, actions)
        return actions


def export(
    file: str | os.PathLike[str],
    layers: Sequence[Layer],
    *,
    hidden: Literal["tanh", "relu", "sigmoid"] = "tanh",
    output: Literal["tanh", "linear"] = "tanh",
) -> Policy:
    """Writes dense layers as an ONNX file that the algorithm ``policy`` takes (extra ``onnx``).

    An existing file is replaced when the new one is complete.

    Args:
        file: Path of the file.
        layers: From the observation, flattened row by row, to the action. The first layer has 14 inputs for each row of the
            history. Each later layer has as many inputs as the previous one has outputs. The last has one output.
        hidden: Activation after all layers except the last.
        output: Activation after the last layer. With ``linear``, hosts clamp the result to -1 to 1.

    Returns:
        The policy, read from the file.

    Raises:
        InputError: Layers do not fit together, or numbers are not finite.
        ModuleNotFoundError: onnx is not installed.
    """
    from onnx import TensorProto, helper, numpy_helper

    _check(layers)
    for key, value, allowed in (
        ("hidden", hidden, tuple(_ACTIVATIONS)),
        ("output", output, ("tanh", "linear")),
    ):
        if value not in allowed:
            raise InputError(f"{key} = {value!r}: allowed is one of {', '.join(allowed)}")
    constants: list[Any] = []
    nodes: list[Any] = []
    made = "observation"
    for number, layer in enumerate(layers, start=1):
        names = [f"weights_{number}", f"biases_{number}"]
        for name, numbers in zip(names, layer, strict=True):
            constants.append(numpy_helper.from_array(np.ascontiguousarray(numbers, np.float32), name))
        is_last = number == len(layers)
        behind = output if is_last else hidden
        end = "action" if is_last else f"layer_{number}"
        total = end if behind == "linear" else f"sum_{number}"
        nodes.append(helper.make_node("Gemm", [made, *names], [total]))
        if behind != "linear":
            nodes.append(helper.make_node(_ACTIVATIONS[behind], [total], [end]))
        made = end
    inputs = len(layers[0][0])
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, [1, inputs])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, [1, 1])],
        constants,
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)
    path = Path(file)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(model.SerializeToString())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return Policy(path)


def _check(layers: Sequence[Layer]) -> None:
    inputs: int | None = None
    for number, (weights, biases) in enumerate(layers, start=1):
        weights, biases = np.asarray(weights), np.asarray(biases)
        at = f"layer {number}: weights {weights.shape}, biases {biases.shape}"
        if weights.ndim != 2 or biases.shape != weights.shape[1:]:
            raise InputError(f"{at}: allowed are (inputs, outputs) and (outputs,)")
        if inputs is not None and len(weights) != inputs:
            raise InputError(f"{at}: allowed are {inputs} inputs, the outputs of the layer before")
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise InputError(f"{at}: allowed are finite numbers")
        inputs = weights.shape[1]
    if inputs != 1:
        raise InputError(f"{len(layers)} layers: allowed are some, the last with one output")
    rows, rest = divmod(len(layers[0][0]), _WIDTH)
    if rest or not 1 <= rows <= _HISTORY_MAX:
        allowed = f"{_WIDTH} for each of 1 to {_HISTORY_MAX} rows"
        raise InputError(f"layer 1: {len(layers[0][0])} inputs: allowed are {allowed}")
