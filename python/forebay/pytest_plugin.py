"""``pytest --forebay FILE``: the rules of ``forebay.conformance``, asked of the algorithms that FILE defines."""

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
        help="ask the rules of every algorithm of those that the files on the command line define",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> AlgorithmFile | None:
    """Takes the files that are named on the command line."""
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
        """Asks the rule."""
        conformance.check(self.algorithm, self.rule)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        """A broken rule in its own words, and an exception of the class with its traceback."""
        if excinfo.errisinstance(AssertionError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is."""
        return self.path, None, self.name
