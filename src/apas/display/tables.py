"""Data frames as HTML, Markdown and CSV, with every text made harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apas._sanitise import for_csv, for_html, for_markdown

if TYPE_CHECKING:
    from pandas import DataFrame


#: Classes by which notebooks know that a dollar sign is a dollar sign.
NO_FORMULAS = "tex2jax_ignore mathjax_ignore"


def html_table(frame: DataFrame, *, caption: str, ends: int = 10) -> str:
    """A data frame with a caption; of a long one `ends` lines at both ends, and how many there are besides."""
    head = "".join(f"<th>{for_html(str(c))}</th>" for c in ["", *frame.columns])
    hidden = max(0, len(frame) - 2 * ends)
    if not hidden:
        body = _lines(frame)
    else:
        said = f"... {hidden} more row{'s' if hidden > 1 else ''}; to_frame() has all of them ..."
        between = f'<tr><td colspan="{len(frame.columns) + 1}">{said}</td></tr>'
        body = _lines(frame.iloc[:ends]) + between + _lines(frame.iloc[-ends:])
    table = f"<table><caption>{for_html(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="{NO_FORMULAS}">{table}</div>'


def _lines(frame: DataFrame) -> str:
    lines = []
    for index, cells in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        shown = "".join(f"<td>{for_html(_cell_text(c))}</td>" for c in cells)
        lines.append(f"<tr><th>{for_html(str(index))}</th>{shown}</tr>")
    return "".join(lines)


def _cell_text(cell: Any) -> str:
    """What is missing as nothing, numbers in six digits."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def markdown_table(frame: DataFrame, *, digits: int = 3) -> str:
    r"""Show a data frame as a Markdown table, numbers with so many decimals, without its index."""
    rows = [[for_markdown(str(column)) for column in frame.columns], ["---"] * len(frame.columns)]
    for cells in frame.itertuples(index=False):
        rows.append([f"{c:.{digits}f}" if isinstance(c, float) else for_markdown(str(c)) for c in cells])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines[1] = lines[1].replace(" ", "")
    return "\n".join(lines)


def csv_text(frame: DataFrame, **options: Any) -> str:
    r"""A data frame as CSV in which no name, label or text is a formula to a spreadsheet; numbers are as they are."""
    import pandas as pd

    safe = frame.rename(index=_csv_cell, columns=_csv_cell)
    if not pd.api.types.is_numeric_dtype(frame.index.dtype):
        safe.index = safe.index.astype(object)
    safe.index.names = [_csv_cell(name) for name in frame.index.names]
    for place, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            texts = [_csv_cell(value) for value in frame.iloc[:, place]]
            column: Any = pd.Series(texts, index=safe.index, dtype=object)
            safe.isetitem(place, column)
    return str(safe.to_csv(lineterminator="\n", **options))


def _csv_cell(value: Any) -> Any:
    return for_csv(value) if isinstance(value, str) else value
