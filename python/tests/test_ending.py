"""Runs that end early: ctrl-C, and callbacks that take too long."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import DOCUMENT
from test_algorithms import Aimd

import forebay

SHORT = {**DOCUMENT, "seeds": "1", "stop": "2s"}

#: A callback that never ends, and ctrl-C half a second later.
STUCK = """
import os, signal, threading, time
import forebay
from test_algorithms import Aimd
from test_ending import SHORT

signal.signal(signal.SIGINT, signal.default_int_handler)

@forebay.algorithm("stuck", limit_s=0)
class Stuck(Aimd):
    def on_measurement(self, now_ns, measurement):
        if not begun.is_set():
            begun.set()
        {loop}

begun, at = threading.Event(), []

def interrupt():
    begun.wait()
    time.sleep(0.3)
    at.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
plan = forebay.Plan(SHORT).with_algorithms(["stuck"])
try:
    {call}
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - at[0], flush=True)
    print("stored", len(forebay.load("out").runs) if os.path.exists("out/results.sqlite") else 0, flush=True)
    os._exit(0)
"""

LOOPS = {
    "loop": "while True: pass",
    "catches": """while True:
            try:
                while True: pass
            except BaseException:
                pass""",
    "sleeps": "time.sleep(3600)",
}
CALLS = {
    "run": 'forebay.run(plan, out="out", progress=False)',
    "jobs": 'forebay.run(plan, out="out", seeds="1..2", jobs=2, progress=False)',
    "search": 'forebay.search("stuck", space="alone", runs=3, jobs=2, out="search", progress=False)',
    "sweep": 'forebay.sweep(plan, out="out", jobs=1, progress=False)',
    "rl": 'import forebay.rl as rl; rl.make({**SHORT, "flow": SHORT["flow"] + [{**SHORT["flow"][0], "name": "o", "cc": "stuck"}]}).reset(seed=1)',
}


def stuck(loop, call, folder):
    environment = {"PYTHONPATH": str(Path(__file__).parent)}
    script = STUCK.replace("{loop}", LOOPS[loop]).replace("{call}", CALLS[call])
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[-2:] == ["stored", "0"]
    return float(words[2])


@pytest.mark.parametrize(
    ("loop", "call"),
    [*((loop, "run") for loop in LOOPS), *(("loop", call) for call in CALLS if call != "run")],
)
def test_interrupt_ends_a_stuck_callback(loop, call, tmp_path):
    if call == "sweep":
        pytest.importorskip("pyarrow")
    if call == "rl":
        pytest.importorskip("gymnasium")
    assert stuck(loop, call, tmp_path) < 1


def test_interrupt_of_a_notebook_cell(tmp_path):
    manager = pytest.importorskip("jupyter_client").KernelManager(kernel_name="python3")
    environment = {"PYTHONPATH": str(Path(__file__).parent)}
    manager.start_kernel(cwd=str(tmp_path), env={**os.environ, **environment})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        script = STUCK[: STUCK.index("begun, at")].replace("{loop}", LOOPS["loop"])
        script = script.replace("begun.set()", "print('begun', flush=True); begun.set()")
        script = script.replace("signal.signal(signal.SIGINT, signal.default_int_handler)\n", "")
        script += "begun = threading.Event()\nplan = forebay.Plan(SHORT).with_algorithms(['stuck'])\n"
        asked = client.execute(script + CALLS["run"])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = client.get_iopub_msg(timeout=60)
            if message["msg_type"] == "stream" and "begun" in message["content"]["text"]:
                break
        began_s = time.monotonic()
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=60)
        while reply["parent_header"].get("msg_id") != asked:
            reply = client.get_shell_msg(timeout=60)
        reply = reply["content"]
        took_s = time.monotonic() - began_s
        assert reply["status"] == "error" and reply["ename"] == "KeyboardInterrupt", reply
        assert took_s < 1
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def slow(loop, limit_s=0.5):
    text = f"""
import time
def on_measurement(self, now_ns, measurement):
    if now_ns < 1_000_000_000:
        return None
    {loop}
"""
    names = {}
    exec(text, names)
    cls = type("Slow", (Aimd,), {"on_measurement": names["on_measurement"]})
    return forebay.algorithm("slow", limit_s=limit_s)(cls)


@pytest.mark.parametrize("loop", ["while True: pass", "time.sleep(5)"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_slow_callback_ends_the_run(loop, jobs, tmp_path):
    slow(loop)
    plan = forebay.Plan(SHORT).with_algorithms(["slow"])
    for _ in range(2):
        began_s = time.monotonic()
        told = r"algorithm \"slow\" \(Slow\), flow bulk, on_measurement at 1\.\d+ s of simulated time: no answer within 0\.5 s"
        with pytest.raises(forebay.CallbackTimeout, match=told):
            forebay.run(plan, out=tmp_path, jobs=jobs, seeds="1..2", progress=False)
        assert time.monotonic() - began_s < 3
        assert not forebay.load(tmp_path).runs, "it is not stored"


def test_limit_of_a_callback_can_be_off(tmp_path):
    slow("time.sleep(0.01)", limit_s=0)
    plan = forebay.Plan(SHORT).with_algorithms(["slow"])
    assert forebay.run(plan, out=tmp_path, progress=False).valid
    for limit_s in (-1, float("nan"), float("inf")):
        with pytest.raises(forebay.InputError, match="limit_s = .*allowed is a time in seconds"):
            slow("pass", limit_s)


def test_slow_callback_ends_an_episode():
    rl = pytest.importorskip("forebay.rl")
    slow("while True: pass")
    other = {**SHORT["flow"][0], "name": "other", "cc": "slow"}
    plan = {**SHORT, "flow": [SHORT["flow"][0], other]}
    for env, action in ((rl.make(plan), [0.0]), (rl.make_vec(2, plan, threads=2), [[0.0], [0.0]])):
        env.reset(seed=1)
        with pytest.raises(forebay.CallbackTimeout, match="flow other, on_measurement at"):
            for _ in range(1000):
                env.step(np.float32(action))


def test_slow_callback_is_reported_by_conformance():
    slow("while True: pass")
    began_s = time.monotonic()
    with pytest.raises(forebay.CallbackTimeout, match="no answer within 0.5 s"):
        forebay.conformance.check("slow", "is_batch_invariant")
    assert time.monotonic() - began_s < 10


def test_other_callbacks_go_on_while_one_is_stopped(tmp_path):
    slow("while True: pass")
    forebay.algorithm("quick")(Aimd)
    found = []

    def run():
        plan = forebay.Plan(SHORT).with_algorithms(["quick"])
        found.append(forebay.run(plan, out=tmp_path / "quick", seeds="1..4", progress=False).valid)

    other = threading.Thread(target=run)
    other.start()
    with pytest.raises(forebay.CallbackTimeout):
        plan = forebay.Plan(SHORT).with_algorithms(["slow"])
        forebay.run(plan, out=tmp_path / "slow", progress=False)
    other.join()
    assert found == [True]
