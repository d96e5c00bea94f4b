"""Tests classes against the rules of every algorithm."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_algorithms import Aimd

import forebay
from forebay import conformance

#: Two algorithms. The second one does not allow for unknown fields.
FILE = """
import forebay

class Fixed:
    'Always the same'

    def init(self, start):
        self.mss = start.mss_bytes

    def on_measurement(self, now_ns, measurement):
        return forebay.Limits(cwnd_bytes=20 * self.mss)

    def on_event(self, now_ns, event, value):
        pass

class Hasty(Fixed):
    'Assumes that all fields are known'

    def on_measurement(self, now_ns, measurement):
        return forebay.Limits(cwnd_bytes=20 * self.mss + 0 * measurement.rtt_min_ns)

forebay.algorithm("fixed_window")(Fixed)
forebay.algorithm("hasty")(Hasty)
"""


@pytest.mark.parametrize(
    "every", ["round", *(pytest.param(it, marks=pytest.mark.slow) for it in ("ack", "10ms"))]
)
def test_a_class_that_breaks_no_rule_conforms(every):
    forebay.algorithm("conforms", every=every)(Aimd)
    conformance.check("conforms")


def test_closed_window_reports_shortest_sequence(capfd):
    @forebay.algorithm("closes")
    class Closes(Aimd):
        def on_event(self, now_ns, event, value):
            return forebay.Limits(cwnd_bytes=0) if event == "rto" else None

    with pytest.raises(AssertionError, match="closes: keeps_a_valid_window: ") as caught:
        conformance.check("closes", "keeps_a_valid_window")
    assert "window of 0" in str(caught.value) and "Rto" in str(caught.value)
    assert "panicked" not in capfd.readouterr().err


def test_rules_broken_on_several_threads_print_nothing(capfd):
    @forebay.algorithm("closes_at_once")
    class Closes(Aimd):
        def on_event(self, now_ns, event, value):
            return forebay.Limits(cwnd_bytes=0)

    def ask(rule):
        with pytest.raises(AssertionError, match="window of 0"):
            conformance.check("closes_at_once", rule)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(ask, ["keeps_a_valid_window"] * 6))
    assert "panicked" not in capfd.readouterr().err


def test_window_by_call_frequency_is_not_batch_invariant():
    @forebay.algorithm("counts", every="ack")
    class Counts(Aimd):
        def on_measurement(self, now_ns, measurement):
            is_often = measurement.interval_ns < 5_000_000
            return forebay.Limits(cwnd_bytes=(10 if is_often else 50) * self.mss)

    with pytest.raises(AssertionError, match="packets per packet"):
        conformance.check("counts", "is_batch_invariant")


def test_exception_keeps_type_and_gets_sequence():
    @forebay.algorithm("raises")
    class Raises(Aimd):
        def on_event(self, now_ns, event, value):
            raise LookupError(f"no idea of {event}")

    with pytest.raises(LookupError, match="no idea of") as caught:
        conformance.check("raises", "keeps_a_valid_window")
    assert "minimal failing input" in caught.value.__notes__[-1]
    assert any(entry.name == "on_event" for entry in caught.traceback)


def test_what_there_is_not_is_refused_by_name():
    for arguments in [("nonesuch",), ("cubic",)]:
        with pytest.raises(forebay.InputError, match="algorithm = "):
            conformance.check(*arguments)
    forebay.algorithm("conforms")(Aimd)
    with pytest.raises(forebay.InputError, match="allowed is one of keeps_a_valid_window, "):
        conformance.check("conforms", "is_polite")


@pytest.mark.slow
def test_pytest_option_checks_every_algorithm(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "--forebay", "--quiet", "-rA", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    passed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert [name for name in passed if "fixed_window" in name] == [
        f"mine.py::fixed_window::{rule}" for rule in conformance.RULES
    ]
    assert done.returncode == 1 and "TypeError: unsupported operand" in done.stdout
