"""Plans from names, files and dicts, and errors of invalid plans."""

import numpy as np
import pytest
from conftest import DOCUMENT

import forebay


def test_a_plan_is_read_by_its_name():
    plan = forebay.Plan("bundler/queue_shift", {"stop": "10s"})
    assert plan.name == "queue_shift"
    assert plan.seeds == range(1, 4)
    assert list(plan.arms) == ["status_quo", "copa_sfq", "copa_default", "setpoint_sfq"]
    assert list(plan.with_arms(["setpoint_sfq"]).arms) == ["setpoint_sfq"]
    assert plan.cells == [""]


def test_a_grid_has_every_combination(plan):
    grid = plan.grid({"bottleneck.rate": ["12Mbit/s", "24Mbit/s"], "bottleneck.rtt": ["10ms", "80ms"]})
    assert len(grid.cells) == 4
    assert sorted(grid.cells)[0] == "rate=12Mbit/s rtt=10ms"
    assert list(plan.with_algorithms(["cubic", "newreno"]).arms) == ["cubic", "newreno"]


def test_an_error_carries_file_line_and_key(tmp_path):
    file = tmp_path / "wrong.toml"
    head = 'name = "p"\nstop = "2s"\nwarmup = "1s"\n\n[bottleneck]\n'
    flow = '[[flow]]\nname = "f"\ncc = "newreno"\ntraffic = { kind = "greedy" }\n'
    file.write_text(f'{head}rate = "fast"\nrtt = "10ms"\nqdisc = {{ kind = "fifo", limit = "60p" }}\n{flow}')
    with pytest.raises(forebay.PlanError) as caught:
        forebay.Plan(file)
    error = caught.value
    assert (error.file, error.line, error.key) == (str(file), 6, "bottleneck.rate")
    assert "fast" in error.value and error.allowed
    assert f"{file}:6" in str(error)


def test_dict_error_has_key_without_line():
    with pytest.raises(forebay.PlanError) as caught:
        forebay.Plan({**DOCUMENT, "stop": "soon"})
    assert (caught.value.file, caught.value.line, caught.value.key) == ("dict", None, "stop")
    assert str(caught.value).startswith("dict: stop")
    with pytest.raises(forebay.PlanError, match="dict"):
        forebay.Plan({**DOCUMENT, "stop": None})


@pytest.mark.parametrize("value", [None, {"nothing": None}])
def test_a_value_that_toml_cannot_have_is_refused(plan, value):
    with pytest.raises(forebay.PlanError, match="stop: .*allowed is"):
        plan.with_sets({"stop": value})


def test_sets_accept_numpy_numbers_only(plan):
    assert len(plan.grid({"flow.bulk.count": np.arange(1, 4)}).cells) == 3
    with pytest.raises(forebay.InputError, match="stop = .*allowed is a truth value"):
        plan.with_sets({"stop": object()})


def test_a_table_replaces_a_table(plan):
    changed = plan.with_sets({"bottleneck.qdisc": {"kind": "fifo", "limit": "9p"}})
    assert changed.name == plan.name
    with pytest.raises(forebay.PlanError):
        plan.with_sets({"bottleneck.qdisc": {"kind": "fifo", "limit": "many"}})


def test_unknown_names_are_refused_with_known_ones():
    with pytest.raises(forebay.PlanError, match="bundler/main"):
        forebay.Plan("bundler/mian")
    with pytest.raises(forebay.PlanError, match="setpoint_sfq"):
        forebay.Plan("bundler/queue_shift").with_arms(["nobody"])
    with pytest.raises(TypeError, match="as_published"):
        forebay.Plan(DOCUMENT, as_published=True)
