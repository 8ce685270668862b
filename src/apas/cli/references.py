"""References from files: whom each row of a certificate file belongs to."""

from __future__ import annotations

import csv
from pathlib import Path

from apas._sanitise import from_csv
from apas.errors import InputError

__all__ = ["read_references"]


def read_references(path: Path | None, column: str | None) -> list[str] | None:
    r"""One text per row: the lines of a text file, or a column of a CSV file.

    Parameters
    ----------
    path : Path or None
        The file; None if rows are called by their names.
    column : str or None
        The column of a CSV file with a header line; None for a file with one reference per line.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "applicants.csv"
    >>> _ = path.write_text("id,branch\nA-17,north\nA-18,south\n")
    >>> read_references(path, "id")
    ['A-17', 'A-18']
    """
    if path is None:
        if column is not None:
            raise InputError("`--reference-column` names a column of the file of `--references`; give that, too.")
        return None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8.") from None
    if column is None:
        return [line.strip() for line in text.splitlines()]
    try:
        lines = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}.") from None
    column = next((name for name in lines[0] if name and from_csv(name) == column), column) if lines else column
    if not lines or column not in lines[0]:
        known = ", ".join(repr(name) for name in (lines[0] if lines else {}) if name) or "none"
        raise InputError(f"{path} must have the column {column!r}, but its columns are: {known}.")
    return [from_csv(str(line[column] or "").strip()) for line in lines]
