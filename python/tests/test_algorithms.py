"""Congestion control in Python, simulated."""

import copy
import pickle
import re

import numpy as np
import pytest
from conftest import figures

import forebay


class Aimd:
    """Additive increase, multiplicative decrease"""

    def init(self, start):
        self.mss = start.mss_bytes
        self.cwnd = start.initial_cwnd_bytes
        self.threshold = float("inf")

    def on_measurement(self, now_ns, measurement):
        acked = measurement.acked_bytes
        self.cwnd += acked if self.cwnd < self.threshold else self.mss * acked / self.cwnd
        return forebay.Limits(cwnd_bytes=self.cwnd)

    def on_event(self, now_ns, event, value):
        if event in ("loss", "rto"):
            self.threshold = self.cwnd = max(self.cwnd / 2, 2 * self.mss)
            return forebay.Limits(cwnd_bytes=self.cwnd, ssthresh_bytes=self.threshold)


def run(plan, name, out, **options):
    return forebay.run(plan.with_algorithms([name]), out=out, progress=False, **options)


@pytest.mark.parametrize("every", ["round", "ack", "10ms"])
def test_a_class_fills_the_link(plan, tmp_path, every):
    forebay.algorithm("aimd", every=every)(Aimd)
    result = run(plan, "aimd", tmp_path)
    assert result.valid
    assert all(run["flows"][0]["metrics"]["goodput_mbps"] > 6 for run in result.runs)


def test_threads_and_repetitions_give_the_same_figures(plan, tmp_path):
    forebay.algorithm("aimd")(Aimd)
    one, other = (run(plan, "aimd", tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert figures(one) == figures(other)


def test_each_connection_has_its_own_instance(plan, tmp_path):
    seen = []

    @forebay.algorithm("looks", needs=["rtt"])
    class Looks(Aimd):
        def init(self, start):
            super().init(start)
            self.seen = {"start": start}
            seen.append(self.seen)

        def on_measurement(self, now_ns, measurement):
            self.seen["last"] = measurement
            return super().on_measurement(now_ns, measurement)

    run(plan.with_sets({"flow.bulk.count": 2}), "looks", tmp_path, seeds=1)
    assert len(seen) >= 2
    last = seen[0]["last"]
    assert last.rtt_min_ns >= 40_000_000 and last.acked_bytes > 0 and last.app_limited is False
    assert seen[0]["start"].mss_bytes in range(500, 1501)


def test_exception_ends_run_and_reaches_caller(plan, tmp_path):
    @forebay.algorithm("breaks")
    class Breaks(Aimd):
        def on_event(self, now_ns, event, value):
            raise LookupError(f"no idea of {event}")

    for jobs in (1, 2):
        with pytest.raises(LookupError, match="no idea of") as caught:
            run(plan, "breaks", tmp_path, jobs=jobs)
        assert any(entry.name == "on_event" for entry in caught.traceback)
        place = r'algorithm "breaks" \(.*Breaks\), flow bulk, on_event at \d+\.\d+ s of simulated time'
        assert [note for note in caught.value.__notes__ if re.fullmatch(place, note)]
    with pytest.raises(LookupError, match="no idea of"):
        forebay.search("breaks", space="alone", runs=3, jobs=2, out=tmp_path, progress=False)


@pytest.mark.parametrize("answer", [5, "wide", forebay.Limits(float("nan")), forebay.Limits(-1)])
def test_an_answer_that_is_no_limits_is_refused(plan, tmp_path, answer):
    @forebay.algorithm("wrong")
    class Wrong(Aimd):
        def on_measurement(self, now_ns, measurement):
            return answer

    place = r'algorithm "wrong" .*, flow bulk, on_measurement at 0\.\d+ s of simulated time: answered .*: allowed'
    with pytest.raises(forebay.InputError, match=place):
        run(plan, "wrong", tmp_path)


def test_limits_survive_copy_and_pickle():
    limits = forebay.Limits(3000, pacing_rate_bits_per_s=np.float32(1e7))
    for other in (copy.deepcopy(limits), pickle.loads(pickle.dumps(limits))):
        assert other == limits != forebay.Limits(3000)
    assert repr(limits) == "Limits(cwnd_bytes=3000.0, ssthresh_bytes=None, pacing_rate_bits_per_s=10000000.0)"
    with pytest.raises(TypeError):
        forebay.Limits("wide")


def test_existing_plan_uses_redefined_class(plan, tmp_path):
    @forebay.algorithm("stands")
    class Narrow(Aimd):
        def on_measurement(self, now_ns, measurement):
            return forebay.Limits(cwnd_bytes=4 * self.mss)

    narrow = plan.with_algorithms(["stands"])
    before = forebay.run(narrow, out=tmp_path, force=True, progress=False)
    forebay.algorithm("stands")(Aimd)
    after = forebay.run(narrow, out=tmp_path, force=True, progress=False)
    goodput = [it.summary[0]["flows"][0]["metrics"]["goodput_mbps"] for it in (before, after)]
    assert goodput[0] < goodput[1]


def test_refuses_invalid_names_and_classes():
    for name, match in [("cubic", "no other algorithm"), ("My CC", "a-z, 0-9")]:
        with pytest.raises(forebay.InputError, match=match):
            forebay.algorithm(name)(Aimd)
    with pytest.raises(forebay.InputError, match="on_event"):
        forebay.algorithm("bare")(type("Bare", (), {"init": Aimd.init, "on_measurement": None}))
    with pytest.raises(forebay.InputError, match='"round", "ack"'):
        forebay.algorithm("often", every="often")(Aimd)
    with pytest.raises(forebay.InputError, match="delivery_rate"):
        forebay.algorithm("needy", needs=["luck"])(Aimd)


def test_class_is_tested_without_a_simulation():
    aimd = Aimd()
    aimd.init(forebay.Start(initial_cwnd_bytes=10_000, mss_bytes=1000))
    measurement = forebay.Measurement(acked_bytes=3000, rtt_min_ns=20_000_000)
    assert aimd.on_measurement(0, measurement) == forebay.Limits(13_000)
    assert measurement.lost_bytes is None and measurement.app_limited is False
    told = "Measurement(interval_ns=0, acked_bytes=3000, rtt_min_ns=20000000, delivered_bytes=0, prior_delivered_bytes=0, app_limited=False)"
    assert str(measurement) == told and str(forebay.Start(seed=5)).endswith("seed=5)")
    for one in (measurement, forebay.Start(seed=5)):
        assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))
    for wrong in ({"acked": 1}, {"acked_bytes": "many"}, {"acked_bytes": -1}):
        with pytest.raises((TypeError, OverflowError)):
            forebay.Measurement(**wrong)


@pytest.mark.parametrize("answer", [forebay.Limits(0), forebay.Limits(float("inf")), forebay.Limits(None, None, 0)])
def test_limits_without_sense_are_counted(plan, tmp_path, answer):
    @forebay.algorithm("senseless")
    class Senseless(Aimd):
        def on_measurement(self, now_ns, measurement):
            return answer if now_ns > 1_000_000_000 else super().on_measurement(now_ns, measurement)

    with pytest.warns(UserWarning, match=r"senseless seed 1: an algorithm set invalid limits \d+ times"):
        result = run(plan, "senseless", tmp_path, seeds=1)
    assert result.runs[0]["flows"][0]["metrics"]["limits_clamped"] > 1
    assert result.valid
    forebay.algorithm("senseless")(Aimd)
    flow = run(plan, "senseless", tmp_path, seeds=1).runs[0]["flows"][0]
    assert "limits_clamped" not in flow["metrics"]
