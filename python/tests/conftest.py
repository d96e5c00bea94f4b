"""What several tests run."""

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
    parser.addoption("--slow", action="store_true", help="tests that are marked as slow, too")


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
    """What a result has that no machine and no clock has a part in."""
    return [{key: value for key, value in run.items() if key != "host"} for run in result.runs]
