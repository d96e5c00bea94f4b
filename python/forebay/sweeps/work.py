"""The work of a worker: it makes the runs of a batch and stores their rows."""

from __future__ import annotations

import functools
import json
import pickle
import socket
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from forebay import _forebay
from forebay.algorithms import defined
from forebay.errors import RunError
from forebay.plans import Plan
from forebay.sweeps.stored import Columns, Job, Stored


class Made(NamedTuple):
    """The result of a batch."""

    #: Name of the batch in the store.
    batch: str
    #: Duration in seconds.
    wall_s: float
    #: Result of each run: ``valid``, or why it is not valid.
    endings: list[str]


class Work:
    """A plan whose runs are made, the store of their rows, and whether to keep quantities over time."""

    def __init__(self, plan: Plan, out: str, over_time: bool = False) -> None:
        self._plan = plan
        self._stored = Stored(out)
        self._over_time = over_time

    def run(self, jobs: Sequence[Job], stop: _forebay.Stop) -> Made:
        """Makes a batch, unless ``stop`` ends it.

        Raises:
            Error: The plan has no such runs here, or the rows cannot be stored.
            Exception: The exception of an algorithm in Python.
        """
        began_s = time.perf_counter()
        tables = _forebay.simulate(self._plan._native, jobs, self._over_time, stop)
        return self._keep(jobs, tables, began_s)

    def give_up(self, job: Job, reason: str) -> Made:
        """Stores a run that crashes its workers as failed."""
        tables = _forebay.failed(self._plan._native, job, reason)
        return self._keep([job], tables, time.perf_counter())

    def _keep(
        self, jobs: Sequence[Job], tables: list[tuple[str, Columns]], began_s: float
    ) -> Made:
        reasons = next(values for name, _, values in dict(tables)["runs"] if name == "reasons")
        endings = ["; ".join(json.loads(it)) or "valid" for it in reasons]
        batch = self._stored.put(jobs, endings, tables)
        return Made(batch, time.perf_counter() - began_s, endings)

    def packed(self) -> bytes:
        """This work and the plan's algorithms in Python, for ``run_packed`` in another process or on another machine."""
        import cloudpickle

        named = {name: defined[name] for name in self._plan._native.own_algorithms()}
        # Not every machine has the module of a class, and it may have changed since it was imported.
        modules = {cls.__module__ for cls, _ in named.values()} & set(sys.modules)
        modules -= {"__main__"} | cloudpickle.list_registry_pickle_by_value()
        for name in modules:
            cloudpickle.register_pickle_by_value(sys.modules[name])
        try:
            algorithms = cloudpickle.dumps(named)
        finally:
            for name in modules:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])
        inner = pickle.dumps((self._plan, self._stored.out, self._over_time))
        return pickle.dumps((_forebay.COMMIT, _forebay.SOURCES, algorithms, inner))


def run_packed(packed: bytes, jobs: Sequence[Job]) -> Made:
    """Makes a batch of packed work; see ``Work.run``."""
    return _unpacked(packed).run(jobs, _forebay.Stop())


# Algorithms of different works may have the same names, so only the last work stays registered.
@functools.lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> Work:
    commit, sources, algorithms, inner = pickle.loads(packed)
    if sources != _forebay.SOURCES:
        here = f"worker on {socket.gethostname()}: forebay has commit {_forebay.COMMIT}"
        raise RunError(f"{here}, the sweep has {commit}: allowed is the same wheel on all machines")
    for name, (cls, entry) in pickle.loads(algorithms).items():
        _forebay.register(entry, cls)
        defined[name] = (cls, entry)
    # Plans look algorithms up when they are read, so registration comes first.
    return Work(*pickle.loads(inner))
