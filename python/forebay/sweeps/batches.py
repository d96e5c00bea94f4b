"""Groups runs into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.errors import RunError
from forebay.sweeps.stored import Job

#: Target duration of a batch in seconds. Its overhead is a few ms.
_BATCH_S = 1.5
#: Largest number of runs in a batch. Their rows wait in memory.
_RUNS_MAX = 1000
#: Workers that a run may crash before it is stored as failed.
_LOSSES_MAX = 3
#: Workers that may crash in a row, besides all workers of a failed machine. More crashes have another cause than a run:
#: halving a batch of 1,000 takes ten.
_IN_A_ROW_MAX = 32


@dataclass(frozen=True)
class Batch:
    """Runs that are made one after the other."""

    jobs: tuple[Job, ...]
    #: Workers that this batch has crashed.
    losses: int = 0


class Batches:
    """Remaining runs, in batches whose size follows from the duration of earlier runs."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._next = 0
        self._again: list[Batch] = []
        self._run_s: float | None = None
        self._in_a_row = 0
        self._workers = 0

    def __bool__(self) -> bool:
        return bool(self._again) or self._next < len(self._jobs)

    def take(self, workers: int) -> Batch:
        """The next batch. Batches shrink towards the end, so that ``workers`` finish together."""
        self._workers = max(self._workers, workers)
        if self._again:
            return self._again.pop()
        wanted = 1 if self._run_s is None else max(1, int(_BATCH_S / self._run_s))
        share = -(-(len(self._jobs) - self._next) // (2 * workers))
        first, self._next = self._next, self._next + min(wanted, share, _RUNS_MAX)
        return Batch(tuple(self._jobs[first : self._next]))

    def made(self, batch: Batch, wall_s: float) -> None:
        """Takes the duration of a batch into account."""
        self._in_a_row = 0
        run_s = max(wall_s / len(batch.jobs), 1e-6)
        self._run_s = run_s if self._run_s is None else (self._run_s + run_s) / 2

    def lost(self, batch: Batch, reason: str) -> Job | None:
        """Repeats a batch that crashed its worker, in halves, until it finds the run that crashes.

        Returns:
            The run, if it has crashed three workers alone.

        Raises:
            RunError: Workers end one after the other, with any run.
        """
        self._in_a_row += 1
        # If a machine fails, all of its workers end.
        if self._in_a_row > _IN_A_ROW_MAX + self._workers:
            raise RunError(f"{self._in_a_row} workers in a row have ended, the last: {reason}")
        half = len(batch.jobs) // 2
        if half:
            self._again += [Batch(batch.jobs[half:]), Batch(batch.jobs[:half])]
        elif batch.losses + 1 < _LOSSES_MAX:
            self._again.append(Batch(batch.jobs, batch.losses + 1))
        else:
            return batch.jobs[0]
        return None
