"""How a command prints its result: as a table with a sentence below, or as JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["print_json", "print_table"]


def print_json(content: dict[str, Any]) -> None:
    """Print what a result's `to_dict` gives, indented by one space.

    Examples
    --------
    >>> print_json({"rows": []})
    {
     "rows": []
    }
    """
    typer.echo(json.dumps(content, indent=1))


def print_table(table: Table, summary: str) -> None:
    """Print a table, an empty line, and what the table says in one sentence."""
    from rich.console import Console
    from rich.text import Text

    # a pipe has no width; leave the wrapping to whoever reads it
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print()
    console.print(Text(summary))
