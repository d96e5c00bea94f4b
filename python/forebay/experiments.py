"""Runs, benchmarks, searches and comparisons."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay import _forebay
from forebay import algorithms as classes
from forebay.errors import InputError
from forebay.pages import ROWS_MAX, as_html
from forebay.plans import Plan, Sets, pairs
from forebay.progress import Told, shown
from forebay.results import Result, load

Folder = str | os.PathLike[str]
Seeds = int | str | range


def run(
    plan: Plan | str | os.PathLike[str] | Mapping[str, Any],
    *,
    seeds: Seeds | None = None,
    out: Folder | None = None,
    jobs: int = 1,
    force: bool = False,
    progress: bool | Told | None = None,
) -> Result:
    """Simulates the runs of a plan that the folder of results does not have yet, and writes the report.

    Ctrl-C ends the call at once and keeps finished runs. The next call continues there.

    Args:
        plan: A plan, or an argument of ``Plan``.
        seeds: Seeds instead of the plan's: ``7``, ``"1..3"`` (both ends included), or ``range(1, 4)``.
        out: Folder of the results, made if it does not exist. Default: the plan's name, below ``out``.
        jobs: Runs at a time, each on a thread. Figures do not depend on it. With algorithms in Python more than 1 is
            slower than 1, because threads take turns in Python.
        force: Make runs again that the folder has.
        progress: True for a bar, False for none, None for a bar in a terminal or notebook, or a function. The function gets
            the name of the run, its number, the number of runs, the finished share of the run (0 to 1), and its result or
            None.

    Raises:
        PlanError: The plan is invalid.
        InputError: Another argument is wrong.
        RunError: A run failed.
        Exception: The exception of an algorithm in Python, which ends the run.
    """
    if not isinstance(plan, Plan):
        plan = Plan(plan)
    classes.refresh(plan._native.own_algorithms)
    return simulated(plan, how_of(out, seeds, jobs, force, progress))


def simulated(plan: Plan, how: dict[str, Any]) -> Result:
    """Runs a plan with the current versions of the classes."""
    document, valid, report = _forebay.run(plan._native, how)
    result = Result(Path(report).parent, json.loads(document), valid)
    for run in result.runs:
        times = sum(flow["metrics"].get("limits_clamped", 0) for flow in run["flows"])
        if times:
            which = " ".join(filter(None, (run["arm"], run["cell"], f"seed {run['seed']}")))
            message = f"{which}: an algorithm set invalid limits {times:.0f} times; they were clamped to the bounds"
            warnings.warn(message, stacklevel=3)
    return result


class Benchmark:
    """The results of a benchmark.

    Attributes:
        document: The output of ``forebay bench --json``: the ``experiments``, and the ``scorecard`` or the ``criteria``.
        fine: Whether every plan finished and confirmed the published figures of the algorithms.
        report: The report over all plans.
        folders: Folder of the results of each plan.
    """

    def __init__(
        self, document: dict[str, Any], fine: bool, report: Path, folders: dict[str, Path]
    ) -> None:
        self.document = document
        self.fine = fine
        self.report = report
        self.folders = folders

    @property
    def results(self) -> dict[str, Result]:
        """The results by plan, of plans with results."""
        is_there = {plan: (it / "results.sqlite").is_file() for plan, it in self.folders.items()}
        return {plan: load(it) for plan, it in self.folders.items() if is_there[plan]}

    def __repr__(self) -> str:
        return f"Benchmark({str(self.report)!r}: {len(self.folders)} plans)"

    def _repr_html_(self) -> str:
        rows = [(plan, str(folder)) for plan, folder in self.folders.items()]
        return as_html(repr(self), ["plan", "folder"], rows)


def bench(
    algorithms: Sequence[str],
    *,
    suite: str = "ccperf",
    only: Sequence[str] = (),
    sets: Sets | None = None,
    as_published: bool = False,
    until: float | None = None,
    seeds: Seeds | None = None,
    out: Folder | None = None,
    jobs: int = 1,
    force: bool = False,
    progress: bool | Told | None = None,
) -> Benchmark:
    """Runs algorithms through every plan of a suite, and scores them.

    Args:
        algorithms: Names as in a flow's ``cc``, such as ``"cubic"``, ``"cubic(hystart=off)"`` or the name of a class.
        suite: ``ccperf``, which gives scores, or ``rfc9743``, which gives verdicts on the criteria of RFC 9743.
        only: Names of plans, with or without their folder; empty for all.
        sets: Values to replace in every plan; see ``Plan``.
        as_published: With the settings of the published experiments. The report has the published figures, too.
        until: Add seeds until the interval of each score is at most this share of its scale, 0 to 1.
        seeds, out, jobs, force, progress: As in ``run``. Algorithms from earlier calls stay in the report.

    Raises:
        InputError: No such suite or plan, or a plan refuses an algorithm or a value (``PlanError``).
        RunError: A file could not be read or written.
    """
    if isinstance(algorithms, str):
        algorithms = [algorithms]
    what = {
        "algorithms": list(algorithms),
        "suite": suite,
        "only": list(only),
        "sets": pairs(sets),
        "as_published": as_published,
        "until": until,
    }
    classes.refresh(lambda: map(_kind, algorithms))
    how = how_of(out, seeds, jobs, force, progress)
    document, fine, report, folders = _forebay.bench(what, how)
    paths = {plan: Path(folder) for plan, folder in folders}
    return Benchmark(json.loads(document), fine, Path(report), paths)


def search(
    algorithm: str,
    *,
    metric: str = "utilization",
    space: str = "default",
    runs: int = 6000,
    budget_s: float | None = None,
    seed: int = 1,
    out: Folder = "out/search",
    jobs: int | None = None,
    progress: bool | Told | None = None,
) -> dict[str, Any]:
    """Finds the path and the events on it with which an algorithm is worst.

    Args:
        algorithm: Name as in a flow's ``cc``.
        metric: The metric to make worst: ``utilization``, ``queueing``, ``queueing_p99``, ``share`` or ``stall``.
        space: The cases to search: ``default``, ``alone``, or the path of a file.
        runs: Number of simulated runs. The same number and seed give the same plan.
        budget_s: Seconds instead of a number of runs.
        seed: Seed of all random choices.
        out: Folder of the plan that the search finds, and of the results so far: the next call continues there.
        jobs: Runs at a time. Default: one per processor.
        progress: As in ``run``.

    Returns:
        The output of ``forebay search --json``: the ``worst`` case, the ``simple`` case made from it, and the path of its
        ``plan``.
    """
    if jobs is None:
        jobs = os.cpu_count() or 1
    what = {
        "algorithm": algorithm,
        "metric": metric,
        "space": space,
        "runs": runs,
        "budget_s": budget_s,
        "seed": seed,
    }
    classes.refresh(lambda: [_kind(algorithm)])
    how = how_of(out, None, jobs, False, progress)
    found: dict[str, Any] = json.loads(_forebay.search(what, how))
    return found


class Comparison:
    """The significant differences between two folders of results.

    Attributes:
        document: The output of ``forebay compare --json``; ``document["changed"]`` lists the metrics that differ.
        equal: Whether everything could be compared and nothing differs.
    """

    def __init__(self, document: dict[str, Any], equal: bool, sentence: str) -> None:
        self.document = document
        self.equal = equal
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence

    def __repr__(self) -> str:
        return f"Comparison({self._sentence!r})"

    def _repr_html_(self) -> str:
        changed = self.document["changed"]
        head = list(dict.fromkeys(key for it in changed for key in it))
        rows = [[it.get(key, "") for key in head] for it in changed]
        return as_html(self._sentence, head, rows[:ROWS_MAX], len(rows[ROWS_MAX:]))


def compare(
    old: Folder | Result,
    new: Folder | Result,
    *,
    metric: str = "",
    above: float = 0.02,
    level: float = 0.01,
) -> Comparison:
    """Compares two folders of results, seed by seed if both have the same seeds.

    Args:
        old, new: Folders of a plan or of a benchmark, or results.
        metric: Only metrics whose name contains this text.
        above: Smallest change of a median to report, relative to the larger median, 0 to 1.
        level: Chance of any false alarm if nothing differs, 0.001 to 0.5.

    Raises:
        InputError: A folder has no results, a number is out of range, or no metric has such a name.
    """
    before, after = (side.folder if isinstance(side, Result) else side for side in (old, new))
    document, equal, sentence = _forebay.compare(before, after, metric, above, level)
    return Comparison(json.loads(document), equal, sentence)


def _kind(algorithm: str) -> str:
    """The name of an algorithm without its parameters."""
    return algorithm.partition("(")[0].strip()


def how_of(
    out: Folder | None, seeds: Seeds | None, jobs: int, force: bool, progress: bool | Told | None
) -> dict[str, Any]:
    """The options of a run as ``_forebay`` takes them."""
    if not 1 <= jobs <= 1024:
        raise InputError(f"jobs = {jobs}: allowed is 1 to 1024")
    return {
        "out": out,
        "seeds": written(seeds),
        "jobs": jobs,
        "force": force,
        "progress": shown(progress),
    }


def written(seeds: Seeds | None) -> str | None:
    """Seeds as written in plans."""
    if not isinstance(seeds, range):
        return None if seeds is None else str(seeds)
    if seeds.step != 1 or not seeds:
        raise InputError(f"seeds = {seeds}: allowed is a range with a step of 1 that is not empty")
    return f"{seeds[0]}..{seeds[-1]}"
