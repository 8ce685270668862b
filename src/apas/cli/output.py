"""How a command prints its result, and the files that it writes beside.

Whatever is not the result goes to standard error: notes, warnings, progress.
"""

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from apas._atomic import same_file
from apas._sanitise import for_terminal
from apas.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table
    from rich.text import Text

#: How the names of files end that are written block by block.
STREAMED = (".jsonl", ".parquet")


def check_outputs(outputs: Mapping[str, Path | None], *inputs: Path | None) -> None:
    """Refuse outputs that could not be written, that are inputs, or two that are one file; before any work."""
    chosen = {name: path for name, path in outputs.items() if path is not None}
    for name, path in chosen.items():
        wrong = name == "--save" and path.suffix.lower() not in (".json", ".jsonl")
        why = "it must end in .json or .jsonl" if wrong else _unwritable(path)
        if why is not None:
            raise InputError(f"`{name}` must be a file that can be written, got {str(path)!r}: {why}.")
        for other in inputs:
            if other is not None and same_file(path, other):
                known = "" if str(other) == str(path) else f", which is {str(other)!r}"
                raise InputError(
                    f"`{name}` must be another file than those that are read, got {str(path)!r}{known}; it would be "
                    "overwritten, so name another."
                )
    for (first, a), (second, b) in itertools.combinations(chosen.items(), 2):
        if same_file(a, b):
            raise InputError(
                f"`{first}` and `{second}` must be two files, by names that differ in more than capitals, got "
                f"{str(a)!r} and {str(b)!r}; name another."
            )


def _unwritable(path: Path) -> str | None:
    """Why a file cannot be written at this place, as far as one can see."""
    try:
        if path.is_dir():
            return "it is a folder"
        if path.exists() and not path.is_file():
            return "it is not a plain file"
        return None if path.parent.is_dir() else f"there is no folder {str(path.parent)!r}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)


def cell(value: Any, style: str = "") -> "Text":
    """A cell of a table whose text may come from a file: no markup, no line breaks, nothing that a terminal obeys."""
    from rich.text import Text

    return value if isinstance(value, Text) else Text(for_terminal(str(value)), style)


#: How many rows a table shows: the first of thousands say as much, and printing all took longer than certifying them.
PAGE = 50


def print_json(content: dict[str, Any]) -> None:
    """Print what a result's `to_dict` gives, indented by one space; of long lists an entry per line, one by one."""
    long = {key for key, value in content.items() if isinstance(value, list) and len(value) > PAGE}
    if not long:
        typer.echo(json.dumps(content, indent=1, allow_nan=False))
        return
    before = "{\n "
    for key, value in content.items():
        if key not in long:
            typer.echo(f"{before}{json.dumps(key)}: {json.dumps(value, allow_nan=False)}", nl=False)
        else:  # the encoder that indents is the slow one
            lines = (json.dumps(entry, allow_nan=False) for entry in value)
            typer.echo(f"{before}{json.dumps(key)}: [\n  {next(lines)}", nl=False)
            while some := list(itertools.islice(lines, 1000)):
                typer.echo("".join(f",\n  {line}" for line in some), nl=False)
            typer.echo("\n ]", nl=False)
        before = ",\n "
    typer.echo("\n}")


def give(found: Any, show: Callable[[Any], None], *, as_json: bool, save: Path | None = None) -> None:
    """Write what was found, if that was asked for, and print it."""
    if save is not None:
        from apas import save_certificates

        save_certificates(found, save)
    if as_json:
        print_json(found.to_dict())
    else:
        show(found)


def json_rows(frame: "DataFrame") -> list[dict[str, Any]]:
    """The lines of a table as JSON values; what is missing, infinite or no number is null."""
    columns = [str(name) for name in frame.columns]
    lines = frame.astype(object).itertuples(index=False, name=None)

    def value(cell: Any) -> Any:
        if isinstance(cell, float) and not math.isfinite(cell):
            return None
        return cell if cell is None or isinstance(cell, str | int | float) else str(cell)

    return [dict(zip(columns, map(value, line), strict=True)) for line in lines]


def print_line(text: str) -> None:
    """Print one line of the result, in which names of files and the like may stand."""
    typer.echo(for_terminal(text))


def print_note(text: str) -> None:
    """Print a remark beside the result."""
    typer.echo(for_terminal(text), err=True)


def new_table(*headings: str, right: Sequence[str] = (), no_wrap: bool = False, **options: Any) -> "Table":
    """A table without lines; headings `right` are those of numbers, behind the others."""
    from rich.table import Table

    table = Table(*headings, box=None, pad_edge=False, **options)
    for name in right:
        table.add_column(name, justify="right", no_wrap=no_wrap)
    return table


def print_table(table: "Table", summary: str, rows: int = 0) -> None:
    """Print a table, an empty line, and what the table says in one sentence; of so many `rows` it may show a page."""
    from rich.console import Console

    # a pipe has no width; leave the wrapping to whoever reads it
    watched = sys.stdout.isatty()
    console = Console(width=None if watched else 200)
    console.print(table)
    console.print()
    if rows > PAGE:
        summary = f"The table shows {PAGE} of {rows} rows; --json prints all of them.\n{summary}"
    for line in summary.split("\n"):
        console.print(cell(line), soft_wrap=not watched)


def print_rows(
    found: Any,
    table: "Table",
    cells: Callable[[int], Sequence[Any]],
    summary: str = "",
    *,
    urgent: Callable[[Any], bool] | None = None,
) -> None:
    """Print a table of rows by their names, of many a page: those that are `urgent` rather than others."""
    rows, labels = range(len(found)), found._labels()
    ranked = sorted(rows, key=lambda i: not urgent(found[i])) if urgent and len(rows) > PAGE else rows
    for i in sorted(ranked[:PAGE]):
        table.add_row(cell(labels[i]), *map(cell, cells(i)))
    print_table(table, summary or found.summary(), len(rows))
