"""Cost of learning: steps of environments compared with simulation alone, a policy in Rust compared with onnxruntime.

Needs an optimised wheel, the extras ``rl`` and ``onnx``, onnxruntime, and an otherwise idle machine.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from paths import B1, cpu_s

import forebay
from forebay import rl

ENVIRONMENTS, STEPS, ROUNDS = 64, 2000, 5


def actions(observations):
    """Keeps a queue of a fifth of the smallest round trip."""
    return 0.15 - 0.75 * observations[:, -1, 1:2]


def segments_a_step():
    env = rl.make(B1)
    observation, _ = env.reset(seed=1)
    segments = []
    for _ in range(STEPS):
        observation, _, _, _, info = env.step(actions(observation[None])[0])
        segments.append(info["outcome"].acked_bytes / info["outcome"].mss_bytes)
    return statistics.mean(segments), info["outcome"].mss_bytes


def steps():
    """Steps per second of processor time."""
    environments = rl.make_vec(ENVIRONMENTS, B1, threads=1)
    observations, _ = environments.reset(seed=1)

    def work():
        nonlocal observations
        for _ in range(STEPS):
            observations, *_ = environments.step(actions(observations))

    _, took_s = cpu_s(work)
    return ENVIRONMENTS * STEPS / took_s


def segments_simulated(mss_bytes, folder):
    """Segments per second of processor time in a run of the plan."""
    result, took_s = cpu_s(lambda: forebay.run(B1, seeds=1, out=folder, force=True, progress=False))
    carried_bytes = result.runs[0]["flows"][0]["metrics"]["goodput_mbps"] * 1e6 / 8 * 1000
    return carried_bytes / mss_bytes / took_s


def call_us(call, calls=20_000):
    began_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began_s) / calls * 1e6


def main():
    with tempfile.TemporaryDirectory() as folder:
        a_step, mss_bytes = segments_a_step()
        shares = []
        for _ in range(ROUNDS):
            wanted = segments_simulated(mss_bytes, folder) / a_step
            shares.append(steps() / wanted)
        print(f"{a_step:.0f} segments per step; steps, relative to the simulation alone:", end=" ")
        print(f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})")

        draw, file = np.random.default_rng(1), Path(folder) / "policy.onnx"
        ends = [28, 64, 64, 1]
        layers = [
            (draw.standard_normal((inputs, outputs)) / np.sqrt(inputs), np.zeros(outputs))
            for inputs, outputs in zip(ends, ends[1:], strict=False)
        ]
        policy = rl.export(file, layers)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        observation = draw.standard_normal((2, 14)).astype(np.float32)
        flat = {"observation": observation.reshape(1, -1)}
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(call_us(lambda: policy(observation)))
            theirs.append(call_us(lambda: session.run(None, flat)))
        print(f"a decision of 28-64-64-1: {statistics.median(ours):.1f} us", end=", ")
        print(f"onnxruntime {statistics.median(theirs):.1f} us")


if __name__ == "__main__":
    main()
