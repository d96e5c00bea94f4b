"""The child that decides for connections of an agent."""

import json
import socket
import subprocess
import sys

import pytest

ALGORITHM = """
import forebay

@forebay.algorithm("fixed", needs=["rtt"], every="ack")
class Fixed:
    'Always the same'

    def init(self, start):
        self.cwnd = 4 * start.mss_bytes

    def on_measurement(self, now_ns, measurement):
        if measurement.rtt_min_ns is None:
            raise LookupError("no round trip")
        return forebay.Limits(cwnd_bytes=self.cwnd)

    def on_event(self, now_ns, event, value):
        return 5 if event == "rto" else None
"""


@pytest.fixture
def ask(tmp_path):
    """Starts a child, checks what it says of itself, and asks it."""
    file = tmp_path / "fixed.py"
    file.write_text(ALGORITHM)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "forebay.live", file]
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, text=True) as child:
        theirs.close()
        ours.settimeout(60)
        (entry,) = json.loads(ours.recv(65_536))["algorithms"]
        assert (entry["name"], entry["needs"], entry["every"]) == ("fixed", ["rtt"], "ack")

        def ask(number, call, told, connection=1):
            question = {"connection": connection, "number": number, "now_ns": number}
            ours.send(json.dumps({**question, "call": call, "told": told}).encode())
            return json.loads(ours.recv(65_536))

        ask.child = child
        yield ask
        ours.close()
        child.stderr.read()
        assert child.wait(timeout=60) == 0, "a child ends with the agent"


START = {"now_ns": 0, "mss_bytes": 1000, "initial_cwnd_bytes": 10_000, "seed": 1}


def test_each_question_has_an_answer_and_connections_an_instance(ask):
    told = {"algorithm": "fixed", "start": START}
    assert ask(1, "init", told) == {"connection": 1, "number": 1, "limits": None}
    ask(1, "init", {**told, "start": {**START, "mss_bytes": 500}}, connection=2)
    for connection, cwnd in [(1, 4000), (2, 2000)]:
        answer = ask(2, "on_measurement", {"rtt_min_ns": 20_000_000}, connection)
        assert answer["limits"] == [cwnd, None, None]
    assert ask(3, "on_event", {"event": "loss", "value": 0})["limits"] is None


@pytest.mark.parametrize(
    ("call", "told"),
    [("on_measurement", {"rtt_min_ns": None}), ("on_event", {"event": "rto", "value": 0})],
)
def test_an_exception_is_the_end_for_its_connection_alone(ask, call, told):
    for connection in (1, 2):
        ask(1, "init", {"algorithm": "fixed", "start": START}, connection)
    assert ask(2, call, told)["failed"]
    assert ask(3, "on_measurement", {"rtt_min_ns": 1})["limits"] is None
    assert ask(2, "on_measurement", {"rtt_min_ns": 1}, 2)["limits"] == [4000, None, None]
