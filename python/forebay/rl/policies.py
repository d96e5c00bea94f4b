"""Policies: layers of numpy as a file, and files as functions."""

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

#: Numbers of a row of an observation: a value and whether it is known, for each feature.
_WIDTH = 2 * len(_forebay.FEATURES)
#: Most rows of an observation.
_HISTORY_MAX = 64

#: What ONNX calls what stands between layers.
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}

#: Versions of ONNX's operators and of its format: of 2022, which any onnxruntime of today reads.
_OPSET, _IR_VERSION = 17, 8


class Policy:
    """A policy from an ONNX file, evaluated as simulator, sendbox and agent do it: in Rust, without onnxruntime.

    Plans that name this file have it from here on as it is now.

    Args:
        file: What ``export`` wrote or anything that ``docs/research/train-a-policy.md`` allows.

    Raises:
        InputError: The file cannot be read, or has what is not allowed: the node, and what is allowed.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._native = _forebay.Policy.load(os.fspath(file))

    @property
    def history(self) -> int:
        """Rows of an observation."""
        return self._native.observation_len() // _WIDTH

    def __call__(self, observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The actions for observations, as the file gives them: hosts bring them to -1 to 1.

        Args:
            observations: Shape ``(history, 14)``, or with further dimensions before these.

        Returns:
            float32 of shape ``(1,)``, or with the further dimensions before it.

        Raises:
            InputError: Observations of another history.
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

    A file that is there is replaced once the new one is whole.

    Args:
        file: Path of the file.
        layers: From the observation, flattened row by row, to the action: the first has 14 inputs for each row of the
            history, each of the others as many as the one before it has outputs, and the last has one output.
        hidden: What stands behind all layers but the last.
        output: What stands behind the last one. Of ``linear`` hosts bring the result to -1 to 1.

    Returns:
        The policy as it is read from the file.

    Raises:
        InputError: Layers that do not fit together, or numbers that are not finite.
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
            raise InputError(f"{at}: allowed are {inputs} inputs, as the layer before has outputs")
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise InputError(f"{at}: allowed are finite numbers")
        inputs = weights.shape[1]
    if inputs != 1:
        raise InputError(f"{len(layers)} layers: allowed are some, the last with one output")
    rows, rest = divmod(len(layers[0][0]), _WIDTH)
    if rest or not 1 <= rows <= _HISTORY_MAX:
        allowed = f"{_WIDTH} for each of 1 to {_HISTORY_MAX} rows"
        raise InputError(f"layer 1: {len(layers[0][0])} inputs: allowed are {allowed}")
