"""Rows from CSV files, and class labels from the command line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apas._sanitise import from_csv
from apas.errors import InputError
from apas.models.protocol import Model, Named, offers

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["parse_target", "read_rows"]


def read_rows(path: Path, model: Model, names: Sequence[str] | None = None) -> DataFrame:
    """Read a CSV file with a header line.

    A byte order mark is skipped, and so is the apostrophe before what a spreadsheet would take for a formula. A first
    column without a name (a saved index) becomes the index, and so does one that is not among `names`, those of the
    model unless told otherwise, if the others are exactly these.
    """
    import pandas as pd

    header, *lines = _lines(path)
    if names is None and offers(model, Named):
        names = model.feature_names
    unknown = header[0] == "" if names is None else header[0] not in names
    indexed = unknown and (header[0] == "" or sorted(header[1:]) == sorted(names or ()))
    columns = header[1:] if indexed else header
    cells = [line[1:] if indexed else line for line in lines]
    index = pd.Index([line[0] for line in lines], name=header[0] or None) if indexed else None
    frame = pd.DataFrame(cells, columns=columns, index=index)
    numbers = [_as_numbers(frame.iloc[:, i].tolist()) for i in range(len(columns))]
    return pd.concat([pd.Series(n, index=frame.index, name=c) for n, c in zip(numbers, columns, strict=True)], axis=1)


def _lines(path: Path) -> list[list[str]]:
    """The cells of a CSV file, every line as long as the header line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[from_csv(cell.strip()) for cell in line] for line in csv.reader(file) if line]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8; save it as CSV.") from None
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}.") from None
    if not lines:
        raise InputError(f"{path} is empty; it must have a header line and a line per row.")
    if all(_is_number(name) for name in lines[0]):
        raise InputError(
            f"{path} must begin with a header line that names the columns, but its first line is "
            f"{','.join(lines[0][:4])}...; add one."
        )
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(lines[0]):
            raise InputError(
                f"{path} must have as many cells in each line as the header names columns ({len(lines[0])}), "
                f"but line {number} has {len(line)}."
            )
    return lines


def _as_numbers(column: list[str]) -> list[Any]:
    """The column as numbers if all of it is (an empty cell is NaN), else as it is; by Python's own exact parser."""
    if not all(_is_number(text) or not text for text in column):
        return column
    return [float(text) if text else float("nan") for text in column]


def _is_number(text: Any) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def parse_target(text: str, model: Model, *, predicted: bool = True) -> Any:
    """The class that is written as `text`; or "predicted", if that may be asked for."""
    matches = [label for label in model.classes if str(label) == text]
    if matches:
        return matches[0]
    if predicted and text == "predicted":
        return text
    known = ", ".join(str(label) for label in model.classes)
    also = ' or "predicted"' if predicted else ""
    raise InputError(f"`--target` must be one of the model's classes ({known}){also}, got {text!r}.")
