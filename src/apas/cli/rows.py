"""Rows from CSV files, and class labels from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from apas.errors import InputError
from apas.models.protocol import Model, Named, offers

if TYPE_CHECKING:
    from pandas import DataFrame, Series

__all__ = ["parse_target", "read_rows"]


def read_rows(path: Path, model: Model) -> DataFrame:
    """Read a CSV file with a header line.

    A byte order mark is skipped, and a first column without a name (a saved index) becomes the index.
    """
    import pandas as pd

    try:
        # as text, so that Python's own exact parser reads the numbers whatever the version of pandas
        frame = pd.read_csv(path, encoding="utf-8-sig", skipinitialspace=True, dtype=str, keep_default_na=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8; save it as CSV.") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} is empty; it must have a header line and a line per row.") from None
    except (pd.errors.ParserError, ValueError) as error:
        raise InputError(f"{path} is not a CSV file: {str(error).strip().splitlines()[-1]}") from None
    if len(frame.columns) and all(_is_number(name) for name in frame.columns):
        raise InputError(
            f"{path} must begin with a header line that names the columns, but its first line is "
            f"{','.join(map(str, frame.columns[:4]))}...; add one."
        )
    first = str(frame.columns[0])
    names = model.feature_names if offers(model, Named) else None
    if first.startswith("Unnamed:") and (names is None or first not in names):
        frame = frame.set_index(frame.columns[0]).rename_axis(None)
    return frame.apply(_as_numbers)


def _as_numbers(column: Series[str]) -> Any:
    """The column as numbers if all of it is (an empty cell is NaN), else as it is."""
    if not all(_is_number(text) or not text.strip() for text in column):
        return column
    return column.map(lambda text: float(text) if text.strip() else float("nan")).astype(float)


def _is_number(text: Any) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def parse_target(text: str, model: Model) -> Any:
    """The class that is written as `text`, or "predicted"."""
    matches = [label for label in model.classes if str(label) == text]
    if matches:
        return matches[0]
    if text == "predicted":
        return text
    known = ", ".join(str(label) for label in model.classes)
    raise InputError(f'`--target` must be one of the model\'s classes ({known}) or "predicted", got {text!r}.')
