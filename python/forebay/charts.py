"""The figures of a report as Altair charts (extra ``charts``).

You can change them like any chart of Altair, and save them without a network: ``chart.save("queue.svg")``, or ``.png``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.errors import InputError
from forebay.results import Result

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Figure:
    """A figure of a report: its section, its caption and its chart."""

    section: str
    caption: str
    chart: alt.TopLevelMixin


def figures(result: Result, only: str = "") -> list[Figure]:
    """The figures of the report on a result, in the order of the report.

    Args:
        result: A result of a run, a benchmark or ``load``.
        only: Only figures whose section or caption contains this text, in any case: ``figures(result, "queue")``.

    Raises:
        InputError: No section or caption contains it. The message lists all captions.
        ModuleNotFoundError: Altair is not installed.
        RunError: The folder cannot be read.
    """
    import altair as alt

    drawn = json.loads(_forebay.figures(result.folder))
    wanted = [it for it in drawn if only.lower() in f"{it['section']} {it['caption']}".lower()]
    if drawn and not wanted:
        captions = "; ".join(dict.fromkeys(it["caption"] for it in drawn))
        raise InputError(f"only = {only!r}: allowed is a part of one of: {captions}")
    return [Figure(it["section"], it["caption"], _chart(alt, it["spec"])) for it in wanted]


def _chart(alt: Any, spec: dict[str, Any]) -> Any:
    """The chart of a document. It refers to its rows by name, so Altair does not check each row."""
    rows = spec.pop("data", {}).get("values", [])
    chart = alt.Chart.from_dict({**spec, "data": {"name": "rows"}})
    # Altair would check each row against its schema, at 3 ms per row. These rows come from the report, and the
    # document that refers to them is checked above.
    with alt.utils.schemapi.debug_mode(False):
        chart.data = alt.InlineData(values=rows)
    return chart
