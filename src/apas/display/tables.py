"""Data frames as HTML, everything escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["html_table"]

#: How many lines of a long table are shown at each end.
ENDS = 10


def html_table(frame: DataFrame, *, caption: str) -> str:
    """Show a data frame with a caption; of a long one only both ends.

    Examples
    --------
    >>> import pandas as pd
    >>> "&lt;b&gt;" in html_table(pd.DataFrame({"a": ["<b>"]}), caption="one")
    True
    """
    head = "".join(f"<th>{escape(str(c))}</th>" for c in ["", *frame.columns])
    lines = [_line(index, cells) for index, cells in zip(frame.index, frame.itertuples(index=False), strict=True)]
    if len(lines) > 2 * ENDS:
        hidden = f'<tr><td colspan="{len(frame.columns) + 1}">... {len(lines) - 2 * ENDS} more rows ...</td></tr>'
        lines = [*lines[:ENDS], hidden, *lines[-ENDS:]]
    body = "".join(lines)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _line(index: Any, cells: Any) -> str:
    shown = [f"{c:g}" if isinstance(c, float) else str(c) for c in cells]
    return f"<tr><th>{escape(str(index))}</th>" + "".join(f"<td>{escape(c)}</td>" for c in shown) + "</tr>"
