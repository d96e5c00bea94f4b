"""Engines that make batches: threads, processes, or the workers of a Ray cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from forebay import _forebay
from forebay.errors import InputError
from forebay.sweeps.batches import Batch
from forebay.sweeps.work import Made, Work, run_packed


class Engine(Protocol):
    """Makes batches."""

    #: Exceptions of a batch whose worker has ended.
    lost: tuple[type[BaseException], ...]

    @property
    def workers(self) -> int:
        """Batches that run at a time."""

    @property
    def pending_max(self) -> int:
        """Batches that are submitted at a time, so that no worker has to wait."""

    def submit(self, batch: Batch) -> Future[Made]:
        """Submits a batch."""

    def ended(self, future: Future[Made]) -> None:
        """Notes that a batch has ended, successfully or not."""

    def close(self) -> None:
        """Ends running batches at once."""


def check(on: str) -> None:
    """Refuses an unknown engine."""
    if on not in ("threads", "processes", "ray") and not on.startswith("ray://"):
        raise InputError(f"on = {on!r}: allowed is threads, processes, ray or ray://HOST:PORT")


def opened(on: str, work: Work, jobs: int | None) -> Engine:
    """The engine with the valid name ``on``, with ``jobs`` workers; by default one per processor.

    Raises:
        InputError: Another cluster is connected.
        ModuleNotFoundError: Ray is not installed.
    """
    workers = jobs or os.cpu_count() or 1
    if on == "threads":
        return Threads(work, workers)
    return Processes(work, workers) if on == "processes" else Ray(on, work, jobs)


class Threads:
    """Threads of this process."""

    # A thread that crashes takes the whole process with it.
    lost: tuple[type[BaseException], ...] = ()

    def __init__(self, work: Work, workers: int) -> None:
        self.workers = self.pending_max = workers
        self._work = work
        self._stop = _forebay.Stop()
        self._pool = ThreadPoolExecutor(workers)

    def submit(self, batch: Batch) -> Future[Made]:
        return self._pool.submit(self._work.run, batch.jobs, self._stop)

    def ended(self, future: Future[Made]) -> None:
        pass

    def close(self) -> None:
        self._stop.ask()
        self._pool.shutdown(cancel_futures=True)


class Processes:
    """Processes of this machine. Each is a separate pool, so that its end identifies its batch."""

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, work: Work, workers: int) -> None:
        self.workers = self.pending_max = workers
        self._packed = work.packed()
        self._free = [_started() for _ in range(workers)]
        self._busy: dict[Future[Made], ProcessPoolExecutor] = {}

    def submit(self, batch: Batch) -> Future[Made]:
        pool = self._free.pop()
        try:
            future = pool.submit(run_packed, self._packed, batch.jobs)
        except BrokenProcessPool:
            # The process ended while it was idle.
            pool = _started()
            future = pool.submit(run_packed, self._packed, batch.jobs)
        self._busy[future] = pool
        return future

    def ended(self, future: Future[Made]) -> None:
        pool = self._busy.pop(future)
        if isinstance(future.exception(), self.lost):
            pool.shutdown(wait=False)
            pool = _started()
        self._free.append(pool)

    def close(self) -> None:
        for pool in [*self._free, *self._busy.values()]:
            # `shutdown` would wait for running batches.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)


def _started() -> ProcessPoolExecutor:
    # A fork would copy locks that other threads hold at that moment.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_begin)


def _begin() -> None:
    """Makes this process end with its parent, also after ``kill -9``. Otherwise it would wait for work for ever."""

    def watch(parent: Any) -> None:
        parent.join()
        os._exit(1)

    # The parent process handles ctrl-C and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=watch, args=(parent,), daemon=True).start()


class Ray:
    """The workers of a Ray cluster, one per processor: of an existing cluster, or of one that is started here."""

    def __init__(self, on: str, work: Work, jobs: int | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        from ray import exceptions

        self.lost: tuple[type[BaseException], ...] = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.LocalRayletDiedError,
            exceptions.OutOfMemoryError,
            exceptions.ObjectLostError,
        )
        packed = work.packed()
        self._ray = ray
        self._jobs = jobs
        self._is_ours = not ray.is_initialized()
        if not self._is_ours and on != "ray":
            allowed = "ray for the cluster that this process is connected to, or ray.shutdown() before"
            raise InputError(f"on = {on!r}: Ray is connected already: allowed is {allowed}")
        if self._is_ours and on == "ray":
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        elif self._is_ours:
            ray.init(on)
        # The sweep decides whether to repeat a lost batch, not Ray.
        self._task = ray.remote(num_cpus=1, max_retries=0)(run_packed)
        self._packed = ray.put(packed)
        self._under_way: dict[Future[Made], Any] = {}

    @property
    def workers(self) -> int:
        # Machines may join and leave.
        processors = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return min(processors, self._jobs or processors)

    @property
    def pending_max(self) -> int:
        return self._jobs or 2 * self.workers

    def submit(self, batch: Batch) -> Future[Made]:
        reference = self._task.remote(self._packed, batch.jobs)
        future: Future[Made] = reference.future()
        self._under_way[future] = reference
        return future

    def ended(self, future: Future[Made]) -> None:
        del self._under_way[future]

    def close(self) -> None:
        for reference in self._under_way.values():
            self._ray.cancel(reference, force=True)
        if self._is_ours:
            self._ray.shutdown()
