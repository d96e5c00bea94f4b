"""Versions of classes, which decide which stored results are reused."""

import importlib
import json
import subprocess
import sys
import warnings

import pytest
from conftest import DOCUMENT

import forebay
from forebay.algorithms import defined
from forebay.versions import Unkeyed, version

SHORT = {**DOCUMENT, "seeds": "1", "stop": "2s"}
KEEP = 0.5
TABLE = {"loss": {"keep": 0.5}}


def base(keep):
    class Base:
        """A share of 40 segments"""

        KEEP = keep

        def init(self, start):
            self.mss = start.mss_bytes

        def share(self):
            return self.KEEP

        def on_measurement(self, now_ns, measurement):
            return forebay.Limits(cwnd_bytes=40 * self.share() * self.mss)

        def on_event(self, now_ns, event, value):
            return None

    return Base


def closure(keep):
    class Closure(base(0)):
        def share(self):
            return keep

    return Closure


def default(value):
    class Default(base(0)):
        def share(self, keep=value):
            return keep

    return Default


def keyword(value):
    class Keyword(base(0)):
        def share(self, *, keep=value):
            return keep

    return Keyword


def of_global(keep):
    global KEEP
    KEEP = keep

    class Global(base(0)):
        def share(self):
            return KEEP

    return Global


def helper(keep):
    TABLE["loss"]["keep"] = keep

    def read():
        return TABLE["loss"]["keep"]

    class Helper(base(0)):
        def share(self):
            return read()

    return Helper


def of_instance(value):
    class Curve:
        def __init__(self):
            self.points = [(0, value)]

    curve = Curve()

    class Instance(base(0)):
        def share(self):
            return curve.points[0][1]

    return Instance


def of_module(keep):
    constants = importlib.import_module("constants")
    constants.KEEP = keep

    class Module(base(0)):
        def share(self):
            return constants.KEEP

    return Module


def bound(keep):
    class Law:
        def __init__(self, keep):
            self.kept = keep

        def share(self):
            return self.kept

    class Bound(base(0)):
        def share(self):
            return law()

    law = Law(keep).share
    return Bound


MAKERS = [base, closure, default, keyword, of_global, helper, of_instance, of_module, bound]


@pytest.fixture(autouse=True)
def constants(tmp_path, monkeypatch):
    (tmp_path / "constants.py").write_text("KEEP = 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("constants", None)


def run(name, out, **options):
    plan = forebay.Plan(SHORT).with_algorithms([name])
    return forebay.run(plan, out=out, progress=False, **options)


def goodput(result):
    return result.runs[0]["flows"][0]["metrics"]["goodput_mbps"]


@pytest.mark.parametrize("make", MAKERS)
def test_another_value_is_another_version(make, tmp_path):
    found = {}
    for keep in (0.5, 0.05, 0.5):
        forebay.algorithm("keeps")(make(keep))
        found.setdefault(keep, []).append(goodput(run("keeps", tmp_path)))
    assert found[0.5][0] == found[0.5][1] != found[0.05][0]
    assert run("keeps", tmp_path).table("runs").rows == 2, "the third was in the store"


def test_value_changed_after_registration_is_seen(tmp_path):
    forebay.algorithm("keeps")(of_global(0.5))
    first = goodput(run("keeps", tmp_path))
    globals()["KEEP"] = 0.05
    assert goodput(run("keeps", tmp_path)) != first


def test_processes_agree_on_a_version(tmp_path):
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_versions
print(json.dumps([test_versions.version(make(0.5)) for make in test_versions.MAKERS]))
"""
    told = []
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", script, __file__.rpartition("/")[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        told.append(json.loads(done.stdout))
    assert told[0] == told[1] and len(set(told[0])) == len(MAKERS)


def test_class_without_key_is_run_again(tmp_path):
    handle = (tmp_path / "constants.py").open()

    class Reads(base(0.5)):
        def on_measurement(self, now_ns, measurement):
            handle.seek(0)
            return super().on_measurement(now_ns, measurement)

    with pytest.raises(Unkeyed, match="on_measurement.*handle.*TextIOWrapper"):
        version(Reads)
    forebay.algorithm("reads")(Reads)
    for rows in (1, 2):
        with pytest.warns(UserWarning, match="reads.*handle.*run again each time"):
            result = run("reads", tmp_path / "out")
        assert len(result.runs) == 1 and result.table("runs").rows == rows
    handle.close()


def test_libraries_count_by_name_and_version():
    import numpy as np

    class Computes(base(0.5)):
        def share(self):
            return float(np.median([0.5, json.loads("0.5")]))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forebay.algorithm("computes")(Computes)
    assert version(Computes) == version(Computes)


def test_parameters_are_named_in_plans(tmp_path):
    @forebay.algorithm("gentle", params={"keep": forebay.Param(0.5, 0.01, 0.95), "rounds": 1, "fast": False})
    class Gentle(base(0)):
        def __init__(self, keep, rounds, fast):
            assert type(rounds) is int and type(fast) is bool
            self.kept = keep

        def share(self):
            return self.kept

    by_default = goodput(run("gentle", tmp_path))
    assert goodput(run("gentle(keep=0.5, fast=true)", tmp_path)) == by_default
    assert goodput(run("gentle(keep=0.05, rounds=3)", tmp_path)) != by_default
    for written, match in [
        ("gentle(keep=2)", "a number, 0.01 to 0.95"),
        ("gentle(rounds=1.5)", "a whole number"),
        ("gentle(fast=1)", "true or false"),
        ("gentle(kep=0.5)", "kep.*keep"),
    ]:
        with pytest.raises(forebay.PlanError, match=match):
            forebay.Plan(SHORT).with_algorithms([written])
    assert defined["gentle"][1]["params"][0]["name"] == "keep"


def test_wrong_parameters_are_refused():
    class Takes(base(0.5)):
        def __init__(self, **params):
            pass

    for cls, params, match in [
        (Takes, {"keep": None}, "keep = None: allowed is a truth value, a number or a text"),
        (Takes, {"kind": 1}, "parameter = kind: allowed is letters"),
        (Takes, {"a b": 1}, "parameter = a b"),
        (Takes, {"keep": forebay.Param(2, 0, 1)}, "keep = 2: allowed is a whole number, 0 to 1"),
        (base(0.5), {"keep": 0.5}, "cannot be called with keep"),
    ]:
        with pytest.raises(forebay.InputError, match=match):
            forebay.algorithm("wrong", params=params)(cls)

    class Needs(base(0.5)):
        def __init__(self, keep):
            self.kept = keep

    with pytest.raises(forebay.InputError, match="cannot be called without arguments"):
        forebay.algorithm("wrong")(Needs)
