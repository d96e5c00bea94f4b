"""Progress of a call, as a bar in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

Told = Callable[[str, int, int, float, str | None], None]

#: Smallest time between two updates of the bar, in seconds.
_INTERVAL_S = 0.1
_WIDTH = 30


def shown(progress: bool | Told | None) -> Told | None:
    """The function to call with the progress of a call.

    Args:
        progress: True for a bar, False for none, None for a bar in a terminal or notebook, or a function. The function gets
            the name of the run, its number, the number of runs, the finished share of the run (0 to 1), and its result or
            None.
    """
    if callable(progress):
        return progress
    if progress is None:
        progress = _in_notebook() or sys.stderr.isatty()
    if not progress:
        return None
    return _Bar(_notebook_line() if _in_notebook() else _terminal_line)


def _in_notebook() -> bool:
    try:
        shell: Any = sys.modules["IPython"].get_ipython()
    except (KeyError, AttributeError):
        return False
    return shell is not None and hasattr(shell, "kernel")


def _terminal_line(text: str) -> None:
    # \x1b[K clears the rest of a longer previous line.
    sys.stderr.write(f"\r{text}\x1b[K")
    sys.stderr.flush()


def _notebook_line() -> Callable[[str], None]:
    from IPython.display import display

    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


class _Bar:
    def __init__(self, draw: Callable[[str], None]) -> None:
        self._draw = draw
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._shares: dict[int, float] = {}
        self._done = 0.0
        self._reused = 0

    def __call__(
        self, what: str, number: int, total: int, share: float, ending: str | None
    ) -> None:
        self._done += share - self._shares.get(number, 0.0)
        self._shares[number] = share
        self._reused += ending == "in the store"
        now_s = time.monotonic()
        # Sums of shares have rounding errors.
        done = 1.0 if self._done > total - 1e-6 else self._done / total
        if now_s - self._drawn_s < _INTERVAL_S and done < 1.0:
            return
        self._drawn_s = now_s
        filled = min(_WIDTH, int(done * _WIDTH))
        left = self._left(now_s - self._began_s, total) if done < 1.0 else ""
        text = what if ending in (None, "valid") else f"{what}: {ending}"
        bar = "█" * filled + "░" * (_WIDTH - filled)
        end = "\n" if done >= 1.0 else ""
        self._draw(f"{bar} {number}/{total}{left}  {text}{end}")
        if done >= 1.0:
            # The next report belongs to another plan.
            self._shares.clear()
            self._done, self._reused, self._began_s = 0.0, 0, now_s

    def _left(self, elapsed_s: float, total: int) -> str:
        # Runs from the store took no time.
        made = self._done - self._reused
        return f", about {elapsed_s * (total - self._done) / made:.0f} s left" if made > 0 else ""
