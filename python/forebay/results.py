"""Results in a folder: runs, summaries and tables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.errors import InputError
from forebay.pages import ROWS_MAX, as_html

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Table(dict[str, "np.ndarray[Any, Any]"]):
    """A dict of columns by name, each a numpy array of shape ``(rows,)``. ``pandas.DataFrame`` takes it, too.

    Whole numbers are int64, other numbers float64, and texts objects. A column with a missing whole number is float64, with
    NaN in its place. A missing text is None. Names end in the unit.
    """

    @property
    def rows(self) -> int:
        """Number of rows."""
        return next((len(column) for column in self.values()), 0)

    def to_arrow(self) -> pa.Table:
        """The table as a pyarrow table (extra ``data``)."""
        import pyarrow as pa

        return pa.table(dict(self))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table for libraries that read Arrow's C stream, such as duckdb (extra ``data``)."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> pl.DataFrame:
        """The table as a polars frame (extra ``data``)."""
        import polars as pl

        texts = {name: it.tolist() for name, it in self.items() if it.dtype == object}
        strings = dict.fromkeys(texts, pl.String)
        return pl.DataFrame({**self, **texts}, schema_overrides=strings)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas frame (extra ``data``)."""
        import pandas as pd

        return pd.DataFrame(dict(self))

    def __repr__(self) -> str:
        return f"Table({self.rows} rows: {', '.join(self)})"

    def _repr_html_(self) -> str:
        rows = [[column[row] for column in self.values()] for row in range(min(self.rows, ROWS_MAX))]
        return as_html(f"{self.rows} rows", list(self), rows, self.rows - len(rows))


class Result:
    """Runs of plans, and their folder.

    Attributes:
        folder: Folder of the store ``results.sqlite`` and of the report.
        runs: Each run as a dict, as in ``forebay run --json``: ``plan``, ``arm``, ``cell``, ``seed``, ``valid``,
            ``metrics`` by name, and ``flows``, ``links`` and ``bundles`` with a name and metrics each. Names of metrics
            end in their unit; ``forebay list metrics`` defines them.
        summary: Each arm in each cell as a dict, with valid runs pooled: the ``metrics``, and their ``spread`` over seeds.
        valid: Whether every run is valid.
    """

    def __init__(self, folder: Path, document: Mapping[str, Any], valid: bool) -> None:
        self.folder = folder
        self.runs: list[dict[str, Any]] = document["runs"]
        self.summary: list[dict[str, Any]] = document["summary"]
        self.valid = valid

    @property
    def report(self) -> Path:
        """The report on all runs in the folder, an HTML file that needs no network."""
        return self.folder / "report.html"

    @property
    def metrics(self) -> Table:
        """One row per metric of each run.

        Columns: ``plan``, ``arm``, ``cell``, ``seed``, ``valid``, ``part`` (``run``, ``flow``, ``link`` or ``bundle``),
        ``name`` of the part, ``metric``, ``value``.
        """
        import numpy as np

        keys = ("plan", "arm", "cell", "seed", "valid")
        rows: list[tuple[Any, ...]] = []
        for run in self.runs:
            key = tuple(run[name] for name in keys)
            rows += [(*key, "run", "", metric, value) for metric, value in run["metrics"].items()]
            for part in ("flow", "link", "bundle"):
                for one in run[part + "s"]:
                    of_part = one["metrics"].items()
                    rows += [(*key, part, one["name"], metric, value) for metric, value in of_part]
        types = (object, object, object, np.int64, np.bool_, object, object, object, np.float64)
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        names = (*keys, "part", "name", "metric", "value")
        made = zip(names, columns, types, strict=True)
        return Table({name: np.array(values, dtype=kind) for name, values, kind in made})

    def table(self, name: str) -> Table:
        """A table of the store: ``runs``, ``flows``, ``links``, ``bundles``, ``metrics``, ``transitions``, ``requests``,
        ``series`` and ``samples`` (quantities over time), ``plans``, ``figures``.

        Raises:
            InputError: There is no such table.
        """
        columns = _forebay.table(self.folder, name)
        return Table({column: _array(kind, values) for column, kind, values in columns})

    def series(
        self, run: int, part: str, name: str, quantity: str
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """One quantity of one run over time.

        Args:
            run: ``id`` of the run in ``table("runs")``.
            part: ``flow``, ``link`` or ``bundle``.
            name: Name of the part, such as ``forward``.
            quantity: For example ``queue_packets``; ``table("series")`` lists all.

        Returns:
            Times in seconds and values, float64 arrays of one shape ``(samples,)``.

        Raises:
            InputError: There is no such series. The message lists the series.
        """
        times, values = _forebay.series(self.folder, run, part, name, quantity)
        if not times:
            self._check_series(run, part, name, quantity)
        return _array("<f8", times), _array("<f8", values)

    def _check_series(self, run: int, part: str, name: str, quantity: str) -> None:
        known = self.table("series")
        found = zip(*(known[key] for key in ("run", "part", "name", "quantity")), strict=True)
        asked, series = (run, part, name, quantity), sorted(set(found))
        for place, key in enumerate(("run", "part", "name", "quantity")):
            fit = [it for it in series if it[:place] == asked[:place]]
            if asked[place] not in {it[place] for it in fit}:
                allowed = ", ".join(dict.fromkeys(str(it[place]) for it in fit)) or "none: it has no series"
                raise InputError(f"{key} = {asked[place]!r}: allowed is one of {allowed}")

    def __repr__(self) -> str:
        valid = sum(run["valid"] for run in self.runs)
        return f"Result({str(self.folder)!r}: {valid} valid runs of {len(self.runs)})"

    def _repr_html_(self) -> str:
        keys = ("plan", "cell", "arm", "runs")
        metrics = sorted({metric for arm in self.summary for metric in arm["metrics"]})
        head = [*(key for key in keys if any(arm.get(key) for arm in self.summary)), *metrics]
        rows = [[arm["metrics"].get(name, arm.get(name, "")) for name in head] for arm in self.summary]
        return as_html(repr(self), head, rows[:ROWS_MAX], len(rows[ROWS_MAX:]))


def load(folder: str | os.PathLike[str]) -> Result:
    """The newest runs in a folder that ``run``, ``bench`` or the ``forebay`` command wrote.

    In a benchmark each plan has its own folder; see ``Benchmark.results``.

    Raises:
        InputError: The folder has no results, or results of another version.
    """
    folder = Path(folder)
    document = json.loads(_forebay.read(folder))
    return Result(folder, document, all(run["valid"] for run in document["runs"]))


def _array(kind: str | None, values: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.array(values, dtype=object) if kind is None else np.frombuffer(values, dtype=kind)
