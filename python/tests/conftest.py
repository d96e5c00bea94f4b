"""Plan and fixtures of several tests."""

import pytest

import forebay

#: A link with one greedy flow, short enough for a debug build.
DOCUMENT = {
    "name": "one_flow",
    "stop": "4s",
    "warmup": "1s",
    "seeds": "1..2",
    "start_jitter": "1rtt",
    "aut": "cubic",
    "bottleneck": {"rate": "12Mbit/s", "rtt": "40ms", "qdisc": {"kind": "fifo", "limit": "60p"}},
    "flow": [{"name": "bulk", "cc": "aut", "traffic": {"kind": "greedy"}}],
}


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run tests that are marked as slow")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: make test-python"))


@pytest.fixture(scope="session")
def plan():
    return forebay.Plan(DOCUMENT)


@pytest.fixture(scope="session")
def result(plan, tmp_path_factory):
    return forebay.run(plan, out=tmp_path_factory.mktemp("cubic"), progress=False)


def figures(result):
    """The parts of a result that depend on no machine or clock."""
    return [{key: value for key, value in run.items() if key != "host"} for run in result.runs]
