"""Congestion control in Python."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from forebay import _forebay
from forebay.errors import InputError

_Class = TypeVar("_Class", bound=type)

#: Classes by the names of their algorithms, each with what was said of it.
defined: dict[str, tuple[type, dict[str, Any]]] = {}

#: What is called of a class.
_CALLBACKS = ("init", "on_measurement", "on_event")


def algorithm(
    name: str, *, needs: Sequence[str] = (), every: str = "round"
) -> Callable[[_Class], _Class]:
    """Makes the class below known as an algorithm, which plans, ``bench`` and ``search`` may name.

    Each connection has an instance of its own, made without arguments when it starts. Then are called

    - ``init(start)`` with a ``Start``: ``now_ns``, ``mss_bytes``, ``initial_cwnd_bytes``, and a ``seed`` for all that is
      random;
    - ``on_measurement(now_ns, measurement)`` with a ``Measurement``: what the path did since the one before, each field
      with its unit in the name and None where it is not known;
    - ``on_event(now_ns, event, value)`` with what cannot wait: ``loss`` (once an episode), ``recovery_end``, ``rto``,
      ``spurious``, ``ecn_ce``, ``resume``, ``idle_restart``, ``underused``, ``rtt_shift``, ``slow_start_end``,
      ``feedback_lost``, ``unenforced``, ``time_of_day``, ``enforced``, ``delay_noise``; ignore others. ``value`` is what
      ``forebay_cc.h`` says of it, in ns, bytes or a number, and else 0.

    Each answers ``Limits``, or None for those in force. An exception ends the run and is raised by what called it.

    What a run gives is known by the text of the file, or of the notebook's cell, that the class is in: after a change of
    it, runs are made again. Modules that it imports are not looked at, nor what the class keeps outside its instances: for
    the same figures each time there must be none that changes.

    Args:
        name: At most 24 of a-z, 0-9 and ``_``, the first of them a letter. A class takes the place of an earlier one of
            its name.
        needs: Fields without which the algorithm cannot do: ``lost``, ``ecn_ce``, ``ect1``, ``rtt``, ``feedback_delay``,
            ``send_rate``, ``delivery_rate``, ``train_rate``, ``in_flight``, ``idle``, ``backlog``.
        every: How often it hears of measurements: ``"round"`` trip, ``"ack"`` (half as fast), or a time such as
            ``"10ms"``, 1us to 1s; several measurements are told as one. Events are told at once, with what was measured
            until then before them.

    Raises:
        InputError: A name is wrong or taken, a callback is missing, or the text of the class cannot be found.
    """

    def register(cls: _Class) -> _Class:
        missing = [callback for callback in _CALLBACKS if not callable(getattr(cls, callback, None))]
        if missing:
            allowed = f"allowed is a class with {', '.join(_CALLBACKS)}"
            raise InputError(f"algorithm {name!r}: no {', '.join(missing)}: {allowed}")
        files = sorted({getattr(cls, callback).__code__.co_filename for callback in _CALLBACKS})
        text = "".join(_text(name, file) for file in files)
        entry = {
            "name": name,
            "summary": (cls.__doc__ or "in Python").strip().splitlines()[0],
            "needs": list(needs),
            "every": every,
            "file": files[0],
            "sources": hashlib.sha256(text.encode()).hexdigest()[:16],
        }
        _forebay.register(entry, cls)
        defined[name] = (cls, entry)
        return cls

    return register


def _text(name: str, file: str) -> str:
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file))
    if not text:
        allowed = "allowed is a class in a file or in a notebook"
        raise InputError(f"algorithm {name!r}: the text of {file} is not there: {allowed}")
    return text
