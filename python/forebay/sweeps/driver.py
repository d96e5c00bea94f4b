"""Makes the missing runs of a sweep."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from forebay.plans import Plan
from forebay.progress import Told
from forebay.sweeps.batches import Batch, Batches
from forebay.sweeps.engines import Engine, check, opened
from forebay.sweeps.stored import Job, Kept, Stored
from forebay.sweeps.work import Made, Work


def drive(
    plan: Plan,
    wanted: Iterable[tuple[str, str, str, int]],
    out: str,
    on: str,
    workers: int | None,
    over_time: bool,
    retry_failed: bool,
    told: Told | None,
) -> tuple[Stored, dict[str, Kept]]:
    """Makes the wanted runs that ``out`` does not have. Returns the store, and the place of each run by key."""
    check(on)
    jobs = [Job(*job) for job in wanted]
    # A worker may have another working directory.
    out = out if "://" in out else os.path.abspath(out)
    stored = Stored(out)
    stored.remove_stale()
    kept = stored.index()
    telling = _Telling(plan, jobs, told)
    left: list[Job] = []
    for job in jobs:
        it = kept.get(job.key)
        if it is None or (retry_failed if it.is_invalid else over_time and it.is_short):
            left.append(job)
        else:
            telling.tell(job, "in the store")
    if left:
        work = Work(plan, out, over_time)
        engine = opened(on, work, workers)
        try:
            for batch, made in _driven(left, work, engine):
                stored.check(made.batch)
                for job, ending in zip(batch.jobs, made.endings, strict=True):
                    kept[job.key] = Kept(ending != "valid", not over_time, made.batch)
                    telling.tell(job, ending)
        finally:
            engine.close()
    return stored, {job.key: kept[job.key] for job in jobs}


def _driven(jobs: Sequence[Job], work: Work, engine: Engine) -> Iterator[tuple[Batch, Made]]:
    """Makes all jobs. Yields each batch with its result when it ends."""
    batches = Batches(jobs)
    pending: dict[Future[Made], Batch] = {}
    while batches or pending:
        while batches and len(pending) < engine.pending_max:
            batch = batches.take(engine.workers)
            pending[engine.submit(batch)] = batch
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            batch = pending.pop(future)
            engine.ended(future)
            try:
                made = future.result()
            except engine.lost as error:
                reason = f"its worker ended: {error}"
                job = batches.lost(batch, reason)
                if job is not None:
                    yield Batch((job,)), work.give_up(job, reason)
            else:
                batches.made(batch, made.wall_s)
                yield batch, made


class _Telling:
    """Reports the progress of a sweep."""

    def __init__(self, plan: Plan, jobs: Sequence[Job], told: Told | None) -> None:
        self._plan = plan.name
        self._numbers = {job.key: number for number, job in enumerate(jobs, 1)}
        self._told = told

    def tell(self, job: Job, ending: str) -> None:
        if self._told is not None:
            name = " ".join(filter(None, [self._plan, job.arm, job.cell, "seed", str(job.seed)]))
            self._told(name, self._numbers[job.key], len(self._numbers), 1.0, ending)
