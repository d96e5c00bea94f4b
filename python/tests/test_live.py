"""The Python child that decides for a sendbox or an agent."""

import json
import socket
import subprocess
import sys

import pytest

import forebay
from forebay.live import Connections

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
        answers = {"rto": 5, "resume": forebay.Limits(-1), "ecn_ce": forebay.Limits(float("inf"))}
        return answers.get(event)
"""


def start(file, theirs):
    """A child that runs ``file`` and has ``theirs`` as its standard input."""
    return subprocess.Popen([sys.executable, "-m", "forebay.live", file], stdin=theirs)


class Daemon:
    """The daemon's end of the socket of a child."""

    def __init__(self):
        self.socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)

    def hear(self):
        return json.loads(self.socket.recv(65_536))

    def put(self, number, call, told, connection=1):
        question = {"connection": connection, "number": number, "now_ns": number}
        self.socket.send(json.dumps({**question, "call": call, "told": told}).encode())

    def ask(self, *question, **options):
        self.put(*question, **options)
        return self.hear()


@pytest.fixture
def daemon():
    daemon = Daemon()
    yield daemon
    daemon.socket.close()
    daemon.theirs.close()


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "fixed.py"
    file.write_text(ALGORITHM)
    return file


@pytest.fixture
def ask(daemon, file):
    """Starts a child, checks its list of algorithms, and calls it."""
    with start(file, daemon.theirs) as child:
        daemon.theirs.close()
        (entry,) = daemon.hear()["algorithms"]
        assert (entry["name"], entry["needs"], entry["every"]) == ("fixed", ["rtt"], "ack")
        yield daemon.ask
        daemon.socket.close()
        assert child.wait(timeout=60) == 0, "a child ends with its daemon"


START = {"now_ns": 0, "mss_bytes": 1000, "initial_cwnd_bytes": 10_000, "seed": 1}


def test_child_answers_calls_per_connection(ask):
    told = {"algorithm": "fixed", "start": START}
    assert ask(1, "init", told) == {"connection": 1, "number": 1, "limits": None}
    ask(1, "init", {**told, "start": {**START, "mss_bytes": 500}}, connection=2)
    for connection, cwnd in [(1, 4000), (2, 2000)]:
        answer = ask(2, "on_measurement", {"rtt_min_ns": 20_000_000}, connection)
        assert answer["limits"] == [cwnd, None, None]
    assert ask(3, "on_event", {"event": "loss", "value": 0})["limits"] is None
    assert ask(4, "on_event", {"event": "ecn_ce", "value": 0})["limits"] == [2**63, None, None]


def test_connections_that_have_ended_leave_nothing():
    connections, gone = Connections(), []

    @forebay.algorithm("ends")
    class Ends:
        """Records its deletion"""

        def init(self, start):
            self.seed = start.seed

        def on_measurement(self, now_ns, measurement):
            return None

        def on_event(self, now_ns, event, value):
            return None

        def __del__(self):
            gone.append(self.seed)

    for number in (1, 2, 3):
        told = {"algorithm": "ends", "start": {**START, "seed": number}}
        question = {"connection": number, "number": 1, "now_ns": 0, "call": "init", "told": told}
        assert connections.answer(question)["limits"] is None
    assert connections.answer({"call": "end", "connections": [1, 3, 99]}) is None
    assert gone == [1, 3]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("on_measurement", {"rtt_min_ns": None}),
        ("on_event", {"event": "rto", "value": 0}),
        ("on_event", {"event": "resume", "value": 0}),
    ],
)
def test_exception_ends_only_its_connection(daemon, ask, call, told):
    for connection in (1, 2):
        ask(1, "init", {"algorithm": "fixed", "start": START}, connection)
    traceback = ask(2, call, told)["failed"]
    assert traceback.startswith("Traceback") and "Error" in traceback.splitlines()[-1]
    # The failed connection gets no answer, so the next answer is for the other one.
    daemon.put(3, "on_measurement", {"rtt_min_ns": 1})
    answer = ask(2, "on_measurement", {"rtt_min_ns": 1}, 2)
    assert (answer["connection"], answer["limits"]) == (2, [4000, None, None])


@pytest.mark.parametrize(
    ("text", "says"),
    [("import forebay\n1 +\n", "SyntaxError"), ("", "no class in it"), ("exit()", "SystemExit")],
)
def test_a_file_that_cannot_be_run_says_why(daemon, file, text, says):
    file.write_text(text)
    with start(file, daemon.theirs) as child:
        assert says in daemon.hear()["error"]
        assert child.wait(timeout=60) == 1


def test_new_child_of_socket_starts_without_connections(daemon, file):
    start_of = {"algorithm": "fixed", "start": START}
    with start(file, daemon.theirs) as child:
        assert daemon.hear()["algorithms"]
        assert "failed" not in daemon.ask(1, "init", start_of)
        child.kill()
    with start(file, daemon.theirs) as child:
        assert daemon.hear()["algorithms"]
        daemon.put(2, "on_measurement", {"rtt_min_ns": 1})
        assert daemon.ask(3, "init", start_of)["number"] == 3, "the unknown connection gets no answer"
        daemon.socket.close()
        daemon.theirs.close()
        child.wait(timeout=60)
