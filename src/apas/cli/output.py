"""How a command prints its result: as a table with a sentence below, or as one JSON document.

Whatever is not the result goes to standard error: notes, warnings, progress.
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import typer

from apas._sanitise import for_terminal

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table
    from rich.text import Text

__all__ = ["cell", "json_rows", "print_json", "print_line", "print_note", "print_table"]


def cell(value: Any, style: str = "") -> Text:
    """A cell of a table whose text may come from a file: no markup, no line breaks, nothing that a terminal obeys."""
    from rich.text import Text

    return Text(for_terminal(str(value)), style)


def print_json(content: dict[str, Any]) -> None:
    """Print what a result's `to_dict` gives, indented by one space.

    Examples
    --------
    >>> print_json({"rows": []})
    {
     "rows": []
    }
    """
    typer.echo(json.dumps(content, indent=1, allow_nan=False))


def json_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The lines of a table as JSON values; what is missing, infinite or no number is null.

    Examples
    --------
    >>> import pandas as pd
    >>> json_rows(pd.DataFrame({"name": ["a", None], "delta": [0.5, math.inf]}))
    [{'name': 'a', 'delta': 0.5}, {'name': None, 'delta': None}]
    """
    columns = [str(name) for name in frame.columns]
    lines = frame.astype(object).itertuples(index=False, name=None)
    return [dict(zip(columns, map(_json_value, line), strict=True)) for line in lines]


def _json_value(cell: Any) -> Any:
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return cell if cell is None or isinstance(cell, str | int | float) else str(cell)


def print_line(text: str) -> None:
    """Print one line of the result, in which names of files and the like may stand."""
    typer.echo(for_terminal(text))


def print_note(text: str) -> None:
    """Print a remark beside the result."""
    typer.echo(for_terminal(text), err=True)


def print_table(table: Table, summary: str) -> None:
    """Print a table, an empty line, and what the table says in one sentence."""
    from rich.console import Console

    # a pipe has no width; leave the wrapping to whoever reads it
    watched = sys.stdout.isatty()
    console = Console(width=None if watched else 200)
    console.print(table)
    console.print()
    for line in summary.split("\n"):
        console.print(cell(line), soft_wrap=not watched)
