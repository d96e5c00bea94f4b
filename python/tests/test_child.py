"""Confinement of the Python child that decides for a box, by ``forebay keep-python``."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from test_live import START

#: Uses numpy and onnxruntime, then tries to leave something behind. The traceback lists the successful attempts.
ALGORITHM = """
import ctypes, os, tempfile
import numpy as np
import forebay
try:
    import onnxruntime
except ModuleNotFoundError:
    onnxruntime = None

libc = ctypes.CDLL(None, use_errno=True)
MODEL = {model!r}

def left():
    found = []
    for name, arguments in (("shmget", (0, 4096, 0o1600)), ("semget", (0, 1, 0o1600)), ("msgget", (0, 0o1600))):
        if getattr(libc, name)(*arguments) >= 0:
            found.append(name)
    if libc.mq_open(b"/forebay-test", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
        found.append("mq_open")
    for folder in ("/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~")):
        for make in (lambda: os.mkdir(folder + "/forebay-left"), lambda: open(folder + "/forebay-file", "w")):
            try:
                make()
            except OSError:
                continue
            found.append(folder)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("0")
        found.append("oom_score_adj")
    except OSError:
        pass
    memory = os.memfd_create("left")
    try:
        os.write(memory, b"x")
        found.append("memfd")
    except OSError:
        pass
    return found

@forebay.algorithm("tries", every="ack")
class Tries:
    'Computes, and tries to leave something'

    def init(self, start):
        rows = np.ones((10, 14), np.float32)
        assert (rows @ rows.T).shape == (10, 10)
        if onnxruntime is not None:
            session = onnxruntime.InferenceSession(MODEL)
            (answer,) = session.run(None, {session.get_inputs()[0].name: rows.reshape(1, 140)})
            assert np.isfinite(answer).all()
        score = open("/proc/self/oom_score_adj").read().strip()
        raise RuntimeError(f"left {left()}, score {score}, onnxruntime {onnxruntime is not None}")

    def on_measurement(self, now_ns, measurement):
        return None

    def on_event(self, now_ns, event, value):
        return None
"""


def program():
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
    programs = [it for it in target.glob("*/forebay") if it.is_file()]
    if not programs:
        pytest.skip(f"no program forebay in {target} (cargo build)")
    return max(programs, key=lambda it: it.stat().st_mtime)


def model(file):
    np = pytest.importorskip("numpy")
    pytest.importorskip("onnx")
    rl = pytest.importorskip("forebay.rl")
    weights = np.full((140, 1), 0.01, np.float32)
    rl.export(file, [(weights, np.zeros(1, np.float32))])
    return str(file)


def test_child_leaves_nothing_behind(tmp_path):
    file = tmp_path / "tries.py"
    file.write_text(ALGORITHM.replace("{model!r}", repr(model(tmp_path / "policy.onnx"))))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(60)
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    environment = {"PATH": ":".join(folders), "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [program(), "keep-python", "--", file]
    with subprocess.Popen(command, stdin=theirs, env=environment) as keeper:
        theirs.close()
        (entry,) = json.loads(ours.recv(65_536))["algorithms"]
        assert entry["name"] == "tries"
        told = {"algorithm": "tries", "params": {}, "start": START}
        question = {"connection": 1, "number": 1, "now_ns": 0, "call": "init", "told": told}
        ours.send(json.dumps(question).encode())
        failed = json.loads(ours.recv(65_536))["failed"].splitlines()[-1]
        ours.close()
        assert keeper.wait(timeout=60) == 0
    assert failed.startswith("RuntimeError: left [], score 1000, onnxruntime "), failed
