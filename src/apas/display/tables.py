"""Data frames as HTML, everything escaped, and as Markdown."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["html_table", "markdown_table"]

#: How many lines of a long table are shown at each end.
ENDS = 10


def html_table(frame: DataFrame, *, caption: str, ends: int = ENDS) -> str:
    """Show a data frame with a caption; of a long one only so many lines at both ends.

    Examples
    --------
    >>> import pandas as pd
    >>> "&lt;b&gt;" in html_table(pd.DataFrame({"a": ["<b>"]}), caption="one")
    True
    """
    head = "".join(f"<th>{escape(str(c))}</th>" for c in ["", *frame.columns])
    lines = [_line(index, cells) for index, cells in zip(frame.index, frame.itertuples(index=False), strict=True)]
    if len(lines) > 2 * ends:
        hidden = f'<tr><td colspan="{len(frame.columns) + 1}">... {len(lines) - 2 * ends} more rows ...</td></tr>'
        lines = [*lines[:ends], hidden, *lines[-ends:]]
    body = "".join(lines)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _line(index: Any, cells: Any) -> str:
    shown = [f"{c:g}" if isinstance(c, float) else str(c) for c in cells]
    return f"<tr><th>{escape(str(index))}</th>" + "".join(f"<td>{escape(c)}</td>" for c in shown) + "</tr>"


def markdown_table(frame: DataFrame, *, digits: int = 3) -> str:
    r"""Show a data frame as a Markdown table, numbers with so many decimals, without its index.

    Examples
    --------
    >>> import pandas as pd
    >>> print(markdown_table(pd.DataFrame({"name": ["a|b"], "l1": [0.12345], "n": [3]})))
    | name | l1 | n |
    |---|---|---|
    | a\|b | 0.123 | 3 |
    """
    rows = [[str(column) for column in frame.columns], ["---"] * len(frame.columns)]
    for cells in frame.itertuples(index=False):
        rows.append([f"{c:.{digits}f}" if isinstance(c, float) else str(c).replace("|", "\\|") for c in cells])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines[1] = lines[1].replace(" ", "")
    return "\n".join(lines)
