"""Data frames as HTML, everything escaped, and as Markdown."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["html_table", "markdown_table"]

#: How many lines of a long table are shown at each end.
ENDS = 10
#: Classes by which notebooks know that a dollar sign is a dollar sign.
NO_FORMULAS = "tex2jax_ignore mathjax_ignore"


def html_table(frame: DataFrame, *, caption: str, ends: int = ENDS) -> str:
    """Show a data frame with a caption; of a long one only so many lines at both ends, and how many there are besides.

    Examples
    --------
    >>> import pandas as pd
    >>> "&lt;b&gt;" in html_table(pd.DataFrame({"a": ["<b>"]}), caption="one")
    True
    """
    head = "".join(f"<th>{escape(str(c))}</th>" for c in ["", *frame.columns])
    hidden = max(0, len(frame) - 2 * ends)
    if not hidden:
        body = _lines(frame)
    else:
        said = f"... {hidden} more row{'s' if hidden > 1 else ''}; to_frame() has all of them ..."
        between = f'<tr><td colspan="{len(frame.columns) + 1}">{said}</td></tr>'
        body = _lines(frame.iloc[:ends]) + between + _lines(frame.iloc[-ends:])
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="{NO_FORMULAS}">{table}</div>'


def _lines(frame: DataFrame) -> str:
    rows = zip(frame.index, frame.itertuples(index=False, name=None), strict=True)
    return "".join(_line(index, cells) for index, cells in rows)


def _line(index: Any, cells: Any) -> str:
    shown = "".join(f"<td>{escape(_shown(c))}</td>" for c in cells)
    return f"<tr><th>{escape(str(index))}</th>{shown}</tr>"


def _shown(cell: Any) -> str:
    """What is missing as nothing, numbers in six digits."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


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
