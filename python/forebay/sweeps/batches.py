"""Which runs are made together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.errors import RunError
from forebay.sweeps.stored import Job

#: Time that a batch shall take, in seconds: what each costs beside its runs is a few ms.
_BATCH_S = 1.5
#: Most runs of a batch, whose rows wait in memory.
_RUNS_MAX = 1000
#: A run that ended its worker so often is given up.
_LOSSES_MAX = 3
#: So many workers in a row, besides those of machines that end, end by no fault of a run: halving a batch of 1,000 takes
#: ten.
_IN_A_ROW_MAX = 32


@dataclass(frozen=True)
class Batch:
    """Runs that are made one after the other."""

    jobs: tuple[Job, ...]
    #: How often it has ended its worker.
    losses: int = 0


class Batches:
    """What is left to do, in batches as large as the runs so far let expect."""

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
        """The next batch; smaller towards the end, so that ``workers`` end together."""
        self._workers = max(self._workers, workers)
        if self._again:
            return self._again.pop()
        wanted = 1 if self._run_s is None else max(1, int(_BATCH_S / self._run_s))
        share = -(-(len(self._jobs) - self._next) // (2 * workers))
        first, self._next = self._next, self._next + min(wanted, share, _RUNS_MAX)
        return Batch(tuple(self._jobs[first : self._next]))

    def made(self, batch: Batch, wall_s: float) -> None:
        """Learns how long a batch took."""
        self._in_a_row = 0
        run_s = max(wall_s / len(batch.jobs), 1e-6)
        self._run_s = run_s if self._run_s is None else (self._run_s + run_s) / 2

    def lost(self, batch: Batch, reason: str) -> Job | None:
        """Has a batch made again that ended its worker: in halves, until the run is found that does so.

        Returns:
            The run, once it has ended three workers alone.

        Raises:
            RunError: Workers end one after the other, whatever they run.
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
