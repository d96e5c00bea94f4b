"""HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

#: Largest number of rows shown, about one screen.
ROWS_MAX = 20


def as_html(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0) -> str:
    """A table with a title; ``more`` rows are not shown."""
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    rest = f"<p>and {more} rows more</p>" if more > 0 else ""
    return f"<p>{escape(title)}</p><table><tr>{first}</tr>{body}</table>{rest}"


def _cell(value: Any) -> str:
    is_number = isinstance(value, float) or hasattr(value, "dtype")
    text = f"{float(value):.4g}" if is_number and not isinstance(value, (str, bool)) else str(value)
    return f"<td>{escape(text)}</td>"
