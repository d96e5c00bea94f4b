"""Congestion control in Python."""

from __future__ import annotations

import dataclasses
import inspect
import math
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from forebay import _forebay
from forebay.errors import InputError
from forebay.versions import Unkeyed, version

_Class = TypeVar("_Class", bound=type)
_Value = bool | int | float | str

#: Classes by the names of their algorithms, each with what was said of it.
defined: dict[str, tuple[type, dict[str, Any]]] = {}

#: What is called of a class.
_CALLBACKS = ("init", "on_measurement", "on_event")


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter of an algorithm, which plans set: ``gentle(keep=0.7)``.

    Args:
        default: A truth value, a whole number, another number, or a text: values in plans are of the same kind.
        low, high: Least and greatest number that is allowed. ``high`` needs ``low``.
        summary: What it does, in a line.
    """

    default: _Value
    low: float | None = None
    high: float | None = None
    summary: str = ""

    def _entry(self, name: str) -> dict[str, Any]:
        default = self.default.item() if hasattr(self.default, "item") else self.default
        if not isinstance(default, _Value) or (isinstance(default, float) and math.isnan(default)):
            allowed = "allowed is a truth value, a number or a text"
            raise InputError(f"parameter {name} = {default!r}: {allowed}")
        bounds = {"low": self.low, "high": self.high}
        return {"name": name, "summary": self.summary, "default": default, **bounds}


def algorithm(
    name: str,
    *,
    needs: Sequence[str] = (),
    every: str = "round",
    params: Mapping[str, Param | _Value] | None = None,
    limit_s: float = 10.0,
) -> Callable[[_Class], _Class]:
    """Makes the class below known as an algorithm, which plans, ``bench`` and ``search`` may name.

    Each connection has an instance of its own, made when it starts, with the parameters of ``params`` as keyword arguments.
    Then are called

    - ``init(start)`` with a ``Start``: ``now_ns``, ``mss_bytes``, ``initial_cwnd_bytes``, and a ``seed`` for all that is
      random;
    - ``on_measurement(now_ns, measurement)`` with a ``Measurement``: what the path did since the one before, each field
      with its unit in the name and None where it is not known;
    - ``on_event(now_ns, event, value)`` with what cannot wait: ``loss`` (once an episode), ``recovery_end``, ``rto``,
      ``spurious``, ``ecn_ce``, ``resume``, ``idle_restart``, ``underused``, ``rtt_shift``, ``slow_start_end``,
      ``feedback_lost``, ``unenforced``, ``enforced``, ``delay_noise``; ignore others. ``value`` is what ``forebay_cc.h``
      says of it, in ns, bytes or a number, and else 0.

    Each answers ``Limits``, or None for those in force. An exception ends the run and is raised by what called it.

    What a run gives is stored under the version of the class: its code, and every value that its code reads (see
    ``forebay.versions``). After a change of one of them runs are made again. A class that reads a value without a state that
    could be compared, such as an open file, has no version: a warning names the value, and runs are made again each time.
    What a class draws at random, other than by ``start.seed``, or reads from files is not looked at.

    Args:
        name: At most 24 of a-z, 0-9 and ``_``, the first of them a letter. A class takes the place of an earlier one of
            its name.
        needs: Fields without which the algorithm cannot do: ``lost``, ``ecn_ce``, ``ect1``, ``rtt``, ``feedback_delay``,
            ``send_rate``, ``delivery_rate``, ``train_rate``, ``in_flight``, ``idle``, ``backlog``.
        every: How often it hears of measurements: ``"round"`` trip, ``"ack"`` (half as fast), or a time such as
            ``"10ms"``, 1us to 1s; several measurements are told as one. Events are told at once, with what was measured
            until then before them.
        params: Parameters by name, each a ``Param`` or its default. The class is called with all of them by name.
        limit_s: Longest time of a callback in seconds; 0 for any. One that takes longer ends the run in a simulation
            (``CallbackTimeout``). Sendbox and agent do not wait for answers.

    Raises:
        InputError: A name or parameter is wrong or taken, a callback is missing, or the class cannot be called so.
    """

    def register(cls: _Class) -> _Class:
        missing = [callback for callback in _CALLBACKS if not callable(getattr(cls, callback, None))]
        if missing:
            allowed = f"allowed is a class with {', '.join(_CALLBACKS)}"
            raise InputError(f"algorithm {name!r}: no {', '.join(missing)}: {allowed}")
        named = {it: param if isinstance(param, Param) else Param(param) for it, param in given.items()}
        written = [param._entry(it) for it, param in named.items()]
        _check_call(name, cls, named)
        entry = {
            "name": name,
            "summary": (cls.__doc__ or "in Python").strip().splitlines()[0],
            "needs": list(needs),
            "every": every,
            "limit_s": float(limit_s),
            "params": written,
            "file": inspect.unwrap(getattr(cls, _CALLBACKS[1])).__code__.co_filename,
            "sources": _version(cls)[0],
        }
        _forebay.register(entry, cls)
        defined[name] = (cls, entry)
        return cls

    given = params or {}
    return register


def refresh(used: Callable[[], Iterable[str]]) -> None:
    """Looks at every class again, since a value that it reads may have changed; warns of those without a version.

    Args:
        used: Gives the names of those that are about to decide: of others nobody is warned.
    """
    unkeyed = {}
    for name, (cls, entry) in list(defined.items()):
        sources, reason = _version(cls)
        if reason is not None:
            unkeyed[name] = reason
        if sources != entry["sources"]:
            entry = {**entry, "sources": sources}
            _forebay.register(entry, cls)
            defined[name] = (cls, entry)
    if unkeyed:
        for name in sorted(set(used()) & set(unkeyed)):
            message = f"algorithm {name!r}: {unkeyed[name]}, so its runs are run again each time"
            warnings.warn(message, stacklevel=3)


def _version(cls: type) -> tuple[str, str | None]:
    """The version of a class; of one that has none a version that no other run has, and why."""
    try:
        return version(cls), None
    except Unkeyed as error:
        return uuid.uuid4().hex[:16], str(error)


def _check_call(name: str, cls: type, params: Mapping[str, Param]) -> None:
    try:
        signature = inspect.signature(cls)
    except ValueError:
        # A class in C may have no signature.
        return
    try:
        signature.bind(**dict.fromkeys(params))
    except TypeError as error:
        how = f"with {', '.join(params)}" if params else "without arguments"
        raise InputError(f"algorithm {name!r}: it cannot be called {how}: {error}") from error
