"""The figures of a report as Altair charts (extra ``charts``).

Charts can be changed as any of Altair, and saved without network: ``chart.save("queue.svg")``, or ``.png``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay import _forebay
from forebay.results import Result

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Figure:
    """A figure of a report: the heading that it stands under, what is to be seen in it, and its chart."""

    section: str
    caption: str
    chart: alt.TopLevelMixin


def figures(result: Result) -> list[Figure]:
    """The figures of the report on the folder of a result, in its order.

    Raises:
        ModuleNotFoundError: Altair is not installed.
        RunError: The folder cannot be read.
    """
    import altair as alt

    drawn = json.loads(_forebay.figures(result.folder))
    return [Figure(it["section"], it["caption"], alt.Chart.from_dict(it["spec"])) for it in drawn]
