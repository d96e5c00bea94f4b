"""The example algorithms of the package."""

import pytest

import forebay
from forebay import conformance
from forebay.examples import copa


def run(plan, sets, arms, out):
    """Metrics of the parts of each run, by arm and cell."""
    plan = forebay.Plan(plan, sets).with_arms(arms)
    result = forebay.run(plan, seeds=1, out=out, progress=False)
    assert result.valid
    return {
        (run["arm"], run["cell"]): {
            part["name"]: part["metrics"] for part in run["flows"] + run["links"] + run["bundles"]
        }
        for run in result.runs
    }


@pytest.mark.slow
def test_copa_keeps_the_rules():
    assert copa.Copa.__doc__
    conformance.check("copa_py")


def test_bundle_copa_moves_queue_to_sendbox(tmp_path):
    sets = {"bundle.a.cc": "copa_py", "stop": "20s"}
    found = run("bundler/queue_shift", sets, ["status_quo", "copa_sfq"], tmp_path)
    before, after = (found[arm, ""] for arm in ("status_quo", "copa_sfq"))
    assert after["forward"]["queue_mean_packets"] <= 15
    assert after["a"]["queue_share_at_sendbox"] >= 0.85
    assert after["forward"]["throughput_mbps"] >= 0.96 * before["forward"]["throughput_mbps"]


def test_flow_copa_fills_link_with_short_queue(tmp_path):
    sets = {"flow.flow.cc": "agent:copa_py"}
    found = run("platforms/aggregate_algorithms", sets, ["copa"], tmp_path)
    for parts in found.values():
        assert parts["flow"]["goodput_mbps"] >= 0.9 * 46
    assert found["copa", "reports_10ms"]["forward"]["sojourn_mean_ms"] <= 8
