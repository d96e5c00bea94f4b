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

#: Each class and its registration entry, by the name of the algorithm.
defined: dict[str, tuple[type, dict[str, Any]]] = {}

#: Methods that an algorithm class must have.
_CALLBACKS = ("init", "on_measurement", "on_event")


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter of an algorithm, which a plan can set: ``gentle(keep=0.7)``.

    Args:
        default: A truth value, a whole number, another number, or a text. Values in plans must have the same type.
        low, high: Smallest and largest allowed number. ``high`` needs ``low``.
        summary: One line about its effect.
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
    """Registers a class as an algorithm, so that plans, ``bench`` and ``search`` can name it.

    Each connection has its own instance, which is made when the connection starts, with the parameters of ``params`` as
    keyword arguments. Then forebay calls

    - ``init(start)`` with a ``Start``: ``now_ns``, ``mss_bytes``, ``initial_cwnd_bytes``, and a ``seed`` for all random
      choices;
    - ``on_measurement(now_ns, measurement)`` with a ``Measurement`` of the time since the last one. Names of fields end in
      their unit, and an unknown field is None;
    - ``on_event(now_ns, event, value)`` at once with an event: ``loss`` (once per episode), ``recovery_end``, ``rto``,
      ``spurious``, ``ecn_ce``, ``resume``, ``idle_restart``, ``underused``, ``rtt_shift``, ``slow_start_end``,
      ``feedback_lost``, ``unenforced``, ``enforced``, ``delay_noise``. Ignore unknown events. ``forebay_cc.h`` defines
      ``value`` for each event, in ns, bytes or a number; for the rest it is 0.

    Each returns ``Limits``, or None to keep the current limits. An exception ends the run, and the caller gets it.

    A run is stored under the version of the class: its code, and every value that the code reads (see
    ``forebay.versions``). If one changes, the run is made again. A class that reads a value without a comparable state, such
    as an open file, has no version. Then a warning names the value, and every call makes the runs again. The version does
    not cover random choices without ``start.seed`` and the content of files.

    Args:
        name: At most 24 characters of a-z, 0-9 and ``_``, beginning with a letter. A class replaces an earlier class of the
            same name.
        needs: Fields that the algorithm needs: ``lost``, ``ecn_ce``, ``ect1``, ``rtt``, ``feedback_delay``,
            ``send_rate``, ``delivery_rate``, ``train_rate``, ``in_flight``, ``idle``, ``backlog``.
        every: How often it gets measurements: ``"round"`` trip, ``"ack"`` (half as fast), or a time such as
            ``"10ms"``, 1us to 1s. Measurements in between are merged. An event comes at once, after a measurement of the
            time until then.
        params: Parameters by name, each a ``Param`` or its default. The class is called with all parameters by name.
        limit_s: Time limit of a callback in seconds; 0 for none. In a simulation a callback that takes longer ends the run
            (``CallbackTimeout``). Sendbox and agent do not wait for answers.

    Raises:
        InputError: A name or parameter is wrong or taken, a callback is missing, or the class does not take the parameters.
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
    """Computes the version of every class again, since a value that it reads may have changed.

    Warns about classes without a version.

    Args:
        used: Gives the names of the algorithms in the next run. Only these get a warning.
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
    """The version of a class. If it has none, a unique version and the reason."""
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
