"""``pytest --forebay FILE`` tests the algorithms in FILE against the rules of ``forebay.conformance``."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import conformance
from forebay.algorithms import defined


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.getgroup("forebay").addoption(
        "--forebay",
        action="store_true",
        help="test the algorithms in the given files against the rules of every algorithm",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> AlgorithmFile | None:
    """Collects the files that the command line names."""
    is_named = file_path.suffix == ".py" and parent.session.isinitpath(file_path)
    if is_named and parent.config.getoption("forebay"):
        return AlgorithmFile.from_parent(parent, path=file_path)
    return None


class AlgorithmFile(pytest.File):
    """A file that defines algorithms."""

    def collect(self) -> Iterator[Rule]:
        """Every rule for every algorithm."""
        before = dict(defined)
        runpy.run_path(str(self.path))
        names = [name for name, entry in defined.items() if entry is not before.get(name)]
        if not names:
            raise self.CollectError(f"{self.path}: no class in it is a forebay.algorithm")
        for algorithm in names:
            for rule in conformance.RULES:
                yield Rule.from_parent(
                    self, name=f"{algorithm}::{rule}", algorithm=algorithm, rule=rule
                )


class Rule(pytest.Item):
    """A rule for an algorithm."""

    def __init__(self, *, algorithm: str, rule: str, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.algorithm = algorithm
        self.rule = rule

    def runtest(self) -> None:
        """Tests the rule."""
        conformance.check(self.algorithm, self.rule)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        """The message of a broken rule, or the traceback of an exception of the class."""
        if excinfo.errisinstance(AssertionError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        """File and name of the test."""
        return self.path, None, self.name
