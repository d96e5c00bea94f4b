"""Plans: experiments with their arms and cells."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from forebay import _forebay
from forebay.errors import InputError

Sets = Mapping[str, Any]


class Plan:
    """An experiment: a network, its traffic, and the arms that are compared in each cell of a grid.

    Args:
        source: The path of a TOML file, a name such as ``"bundler/main"`` (``forebay list plans`` lists all), or a dict
            with the keys of such a file (``PlanKeys`` has their types). Relative paths in a dict start from the current
            folder.
        sets: Values to replace, by dotted keys: ``{"bottleneck.rate": "48Mbit/s", "stop": "20s"}``. Values that an arm
            or a cell sets stay.
        as_published: With the settings of the published experiment. The plan must have them, and must not be a dict.

    Raises:
        PlanError: The plan is invalid. All runs are checked here, so every ``Plan`` can run.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        sets: Sets | None = None,
        *,
        as_published: bool = False,
    ) -> None:
        if isinstance(source, Mapping):
            if as_published:
                raise TypeError("as_published: allowed with the path or the name of a plan")
            document = json.dumps(source, allow_nan=False)
            self._native = _forebay.Plan.from_json(document, os.getcwd(), pairs(sets))
        else:
            self._native = _forebay.Plan.load(os.fspath(source), pairs(sets), as_published)

    @property
    def name(self) -> str:
        """Name of the plan, and of its folder of results below ``out``."""
        return self._native.name

    @property
    def title(self) -> str:
        """Title of the report."""
        return self._native.title

    @property
    def description(self) -> str:
        """Description of the experiment."""
        return self._native.description

    @property
    def arms(self) -> dict[str, str]:
        """The arms in order: name and summary."""
        return dict(self._native.arms)

    @property
    def cells(self) -> list[str]:
        """Names of the cells, such as ``"rtt=20ms rate=24Mbit/s"``; one empty name without a grid."""
        return self._native.cells

    @property
    def seeds(self) -> range:
        """The default seeds of the plan."""
        first, last = self._native.seeds
        return range(first, last + 1)

    def with_sets(self, sets: Sets) -> Plan:
        """This plan with further values replaced; see the argument ``sets`` of the class."""
        return self._changed(sets, ())

    def with_arms(self, names: Iterable[str]) -> Plan:
        """This plan with only these arms, in this order."""
        return self._changed({}, names)

    def with_algorithms(self, names: Iterable[str]) -> Plan:
        """This plan with an arm for each of these algorithms; for plans with a flow under test (``aut``)."""
        return self._changed({"aut": list(names)}, ())

    def grid(self, axes: Mapping[str, Sequence[Any]]) -> Plan:
        """This plan in every combination of values.

        Args:
            axes: Values by dotted key. ``{"bottleneck.rate": ["12Mbit/s", "48Mbit/s"], "rtt": ["10ms", "80ms"]}`` makes
                four cells from each cell of the plan. The plan's axes of other keys stay. At most 256 cells.
        """
        return self._changed({f"cells.{key}": list(values) for key, values in axes.items()}, ())

    def __getstate__(self) -> tuple[Any, ...]:
        return self._native.pack()

    def __setstate__(self, packed: tuple[Any, ...]) -> None:
        self._native = _forebay.Plan.unpack(*packed)

    def _changed(self, sets: Sets, arms: Iterable[str]) -> Plan:
        changed = Plan.__new__(Plan)
        changed._native = self._native.with_changes(pairs(sets), list(arms))
        return changed

    def __repr__(self) -> str:
        arms, cells = list(self.arms), len(self.cells)
        return f"Plan({self.name!r}, arms={arms}, cells={cells}, seeds={self.seeds})"


def pairs(sets: Sets | None) -> list[tuple[str, str]]:
    """Dotted keys and values in JSON.

    Raises:
        InputError: A value has a type that plans do not have.
    """
    return [(key, _written(key, value)) for key, value in (sets or {}).items()]


def _written(key: str, value: Any) -> str:
    try:
        # Grids are often made with numpy, whose numbers JSON does not accept.
        return json.dumps(value, ensure_ascii=False, default=lambda it: it.item())
    except (AttributeError, TypeError, ValueError) as error:
        allowed = "a truth value, a number, a text, or a list or dict of these"
        raise InputError(f"{key} = {value!r}: allowed is {allowed}") from error
