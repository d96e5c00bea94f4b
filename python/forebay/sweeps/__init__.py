"""Many runs: on threads, processes or a Ray cluster, with their rows as Parquet in a folder or a bucket.

::

    sweep ──► drive ──► Batches ──► Engine ──► Work: simulates a batch ──► Stored: a Parquet file a batch
      └─ Sweep: queries by DuckDB, or the store and the report of a folder

Slow imports are inside functions, so that ``import forebay`` stays fast.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.algorithms import refresh
from forebay.errors import InputError
from forebay.experiments import Folder, Seeds, how_of, simulated, written
from forebay.plans import Plan
from forebay.progress import Told, shown
from forebay.results import Result

if TYPE_CHECKING:
    import duckdb

    from forebay.sweeps.stored import Kept, Stored

__all__ = ["Sweep", "sweep"]


def sweep(
    plan: Plan | str | os.PathLike[str] | Mapping[str, Any],
    seeds: Seeds | None = None,
    out: Folder | None = None,
    *,
    on: str = "threads",
    jobs: int | None = None,
    over_time: bool = False,
    retry_failed: bool = False,
    progress: bool | Told | None = None,
) -> Sweep:
    """Simulates the runs of a plan that ``out`` does not have yet, many at a time, and keeps their results there.

    Runs are made in batches of a second or two. After an interruption, a call with the same plan, seeds and ``out``
    continues there, on any machine and engine. Figures are the same as in ``run``. If a batch crashes its worker, the sweep
    repeats the batch in halves until it finds the run that crashes. It stores that run as failed, like a run that fails by
    itself.

    Needs the extra ``data``.

    Args:
        plan: A plan, or an argument of ``Plan``. Workers read files that the plan names by relative paths.
        seeds: Seeds instead of the plan's, as in ``run``; at most 10,000.
        out: Folder, or a URI such as ``s3://bucket/folder``. For other stores than Amazon's, append
            ``?endpoint_override=HOST:PORT&scheme=http``. Each machine takes the keys from its environment
            (``AWS_ACCESS_KEY_ID`` and so on). Default: the plan's name, below ``out``.
        on: ``"threads"``; ``"processes"`` for algorithms in Python with a call per acknowledgement, in a script below
            ``if __name__ == "__main__":``; ``"ray"`` for the cluster of this machine, or for a new one on this machine;
            ``"ray://HOST:PORT"`` for another cluster. Ray needs the extra ``ray``, and the same wheel on each machine.
        jobs: Runs at a time. Default: one per processor; with Ray, of all machines.
        over_time: Keep quantities over time, too, at tens of kilobytes per run. Figures over time in the report need them.
            Stored runs without them are made again.
        retry_failed: Make failed and invalid runs again.
        progress: As in ``run``.

    Raises:
        PlanError: The plan is invalid.
        InputError: Another argument is wrong, or a worker sees another folder ``out`` or other files of the plan.
        RunError: Rows cannot be written or read, a worker has another version, or one worker after the other ends.
        Exception: The exception of an algorithm in Python, which ends the sweep.
    """
    from forebay.sweeps.driver import drive

    if not isinstance(plan, Plan):
        plan = Plan(plan)
    if jobs is not None and not 1 <= jobs <= 1024:
        raise InputError(f"jobs = {jobs}: allowed is 1 to 1024")
    refresh(plan._native.own_algorithms)
    wanted = _forebay.jobs(plan._native, written(seeds))
    place = os.fspath(out) if out is not None else os.path.join("out", plan.name)
    told = shown(progress)
    stored, kept = drive(plan, wanted, place, on, jobs, over_time, retry_failed, told)
    return Sweep(plan, seeds, stored, kept)


class Sweep:
    """The results of a sweep.

    Attributes:
        plan: The plan.
        out: Place of the rows, below ``runs``.
        valid: Whether every run is valid.
    """

    def __init__(
        self, plan: Plan, seeds: Seeds | None, stored: Stored, kept: Mapping[str, Kept]
    ) -> None:
        self.plan = plan
        self.out = stored.out
        self.valid = not any(it.is_invalid for it in kept.values())
        self._seeds = seeds
        self._stored = stored
        self._kept = kept

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """The answer of DuckDB to a query; ``.df()``, ``.pl()`` and ``.to_arrow_table()`` make frames and tables of it.

        The table ``runs`` has a row per run, with ``key``, ``plan``, ``arm``, ``cell``, ``seed``, ``valid``, ``reasons``
        (why it is not valid), and all ``parameters`` in JSON. The other tables are ``metrics`` (``part``, ``name``,
        ``metric``, ``value``), ``flows``, ``links``, ``bundles``, ``transitions``, ``requests`` and ``series`` (a row per
        sample). Their first columns are key, arm, cell, seed and ``valid`` of the run. Names end in the unit.
        """
        return self._connection.sql(query)

    @functools.cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        import duckdb
        import pyarrow as pa

        from forebay.sweeps.stored import parts

        connection = duckdb.connect()
        connection.register("stored", self._stored.dataset())
        # The same run may be in two batches if two callers made it independently.
        columns = {"key": list(self._kept), "batch": [it.batch for it in self._kept.values()]}
        connection.register("chosen", pa.table(columns))
        whole = "stored JOIN chosen USING (key, batch)"
        lists = ", ".join(parts())
        connection.execute(
            f"CREATE TEMP VIEW runs AS SELECT * EXCLUDE (batch, over_time, {lists}) FROM {whole}"
        )
        of_run = "key, arm, cell, seed, valid"
        for table in parts():
            rows = f"SELECT {of_run}, unnest({table}, max_depth := 2) FROM {whole}"
            if table == "series":
                of_part = "part, name, quantity, unnest(at_s) AS at_s, unnest(value) AS value"
                rows = f"SELECT {of_run}, {of_part} FROM ({rows})"
            connection.execute(f"CREATE TEMP VIEW {table} AS {rows}")
        return connection

    def store(self, folder: Folder | None = None) -> Path:
        """Adds missing runs to the store of a folder, as ``run`` makes it. Returns the folder.

        Args:
            folder: Default: the folder of the rows; for rows in a bucket the plan's name, below ``out``.
        """
        folder = folder or self._stored.folder or Path("out") / self.plan.name
        batches: dict[str, list[str]] = {}
        for key, it in self._kept.items():
            batches.setdefault(it.batch, []).append(key)
        for batch, keys in batches.items():
            _forebay.adopt(folder, self.plan._native, self._stored.tables(batch, keys))
        return Path(folder)

    def result(self, folder: Folder | None = None) -> Result:
        """The runs as a ``Result``, with the report in ``folder``. All runs are in memory.

        Args:
            folder: As in ``store``.
        """
        # Use the classes that the sweep has run.
        return simulated(self.plan, how_of(self.store(folder), self._seeds, 1, False, False))

    def __repr__(self) -> str:
        valid = sum(not it.is_invalid for it in self._kept.values())
        return f"Sweep({self.out!r}: {valid} valid runs of {len(self._kept)})"
