"""Tables of rows: CSV files with a header line, and Parquet files; whole, or block by block.

A byte order mark is skipped, and so is the apostrophe before what a spreadsheet would take for a formula. A first
column without a name (a saved index) becomes the index, and so does one that is not among the names of the features if
the others are exactly these.
"""

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apas._sanitise import from_csv
from apas.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from apas.models.base import Model


class CsvTable:
    """A CSV file; columns are numbers if all of their cells are, so that blocks of them are alike."""

    def __init__(self, path: Path, model: "Model", names: Sequence[str] | None = None) -> None:
        self.path = path
        self.header = next(self._lines(), [])
        if not self.header:
            raise InputError(f"{path} is empty; it must have a header line and a line per row.")
        if all(is_number(name) for name in self.header):
            raise InputError(
                f"{path} must begin with a header line that names the columns, but its first line is "
                f"{','.join(self.header[:4])}...; add one."
            )
        self.indexed = _has_index(self.header, model, names)

    def __len__(self) -> int:
        return self._scan()[0]

    def read(self) -> "DataFrame":
        """All rows."""
        return self._frame(list(self._rows()), 0)

    def blocks(self, size: int, start: int) -> "Iterator[DataFrame]":
        """The rows from number `start` on, so many at a time."""
        text, lines = self._scan()[1], islice(self._rows(), start, None)
        while some := list(islice(lines, size)):
            yield self._frame(some, start, text)
            start += len(some)

    def _scan(self) -> tuple[int, set[int]]:
        """How many rows there are, and which columns are no numbers."""
        count, text, places = 0, set[int](), range(len(self.header))
        for line in self._rows():
            count += 1
            for i in places:  # a loop, since this is asked of every cell
                if i not in text and line[i] and not is_number(line[i]):
                    text.add(i)
        return count, text

    def _frame(self, rows: list[list[str]], start: int, text: Collection[int] = ()) -> "DataFrame":
        import pandas as pd

        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in self.header]
        names, index = self.header, pd.RangeIndex(start, start + len(rows))
        found = {i: column if i in text else as_numbers(column) for i, column in enumerate(columns)}
        if self.indexed:  # what rows are called stays as it is written
            del found[0]
            index, names = pd.Index(columns[0], name=names[0] or None), names[1:]
        return pd.DataFrame(found, index=index).set_axis(names, axis=1)

    def _rows(self) -> Iterator[list[str]]:
        """The cells below the header line, every line as long as it."""
        for number, line in enumerate(islice(self._lines(), 1, None), start=2):
            if len(line) != len(self.header):
                raise InputError(
                    f"{self.path} must have as many cells in each line as the header names columns "
                    f"({len(self.header)}), but line {number} has {len(line)}."
                )
            yield line

    def _lines(self) -> Iterator[list[str]]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                for line in csv.reader(file):
                    if line:
                        yield [from_csv(cell.strip()) for cell in line]
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise InputError(f"{self.path} is not a text file in UTF-8; save it as CSV.") from None
        except csv.Error as error:
            raise InputError(f"{self.path} is not a CSV file: {error}.") from None


class ParquetTable:
    """A Parquet file; columns of numbers are read as those of a CSV file with the same cells."""

    def __init__(self, path: Path, model: "Model", names: Sequence[str] | None = None) -> None:
        from apas._lazy import require

        arrow, parquet = (require(name, feature=".parquet", extra="parquet") for name in ("pyarrow", "pyarrow.parquet"))
        try:
            self.file = parquet.ParquetFile(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
        except arrow.ArrowException as error:
            raise InputError(f"{path} is not a Parquet file: {error}.") from None
        self.indexed = _has_index(self.file.schema_arrow.names, model, names)

    def __len__(self) -> int:
        return int(self.file.metadata.num_rows)

    def read(self) -> "DataFrame":
        """All rows."""
        import pandas as pd

        parts = list(self.blocks(max(1, len(self)), 0))
        return parts[0] if parts else pd.DataFrame(columns=self.file.schema_arrow.names[self.indexed :])

    def blocks(self, size: int, start: int) -> "Iterator[DataFrame]":
        """The rows from number `start` on, so many at a time."""
        import pandas as pd

        first = 0
        for batch in self.file.iter_batches(size):
            begin, first = first, first + batch.num_rows
            if first <= start:
                continue
            frame = batch.to_pandas().set_axis(pd.RangeIndex(begin, first), axis=0).iloc[max(0, start - begin) :]
            frame = frame.astype({c: "float64" for c in frame if frame[c].dtype.kind in "iuf"})
            yield frame.set_index(frame.columns[0]) if self.indexed else frame


def open_table(path: Path, model: "Model", names: Sequence[str] | None = None) -> CsvTable | ParquetTable:
    """The table that a file holds; `names` of its columns are those of the model unless told otherwise."""
    return (ParquetTable if path.suffix.lower() == ".parquet" else CsvTable)(path, model, names)


def read_rows(path: Path, model: "Model", names: Sequence[str] | None = None) -> "DataFrame":
    """All rows of a table."""
    return open_table(path, model, names).read()


def whole_numbers(table: "DataFrame") -> "DataFrame":
    """Columns of whole numbers as integers, as `pandas.read_csv` has them."""
    whole = [c for c in table if table[c].dtype.kind == "f" and (table[c] % 1 == 0).all() and len(table)]
    return table.astype(dict.fromkeys(whole, "int64"))


def _has_index(header: Sequence[str], model: "Model", names: Sequence[str] | None) -> bool:
    from apas.models.base import Named, offers

    if names is None and offers(model, Named):
        names = model.feature_names
    unknown = header[0] == "" if names is None else header[0] not in names
    return unknown and (header[0] == "" or sorted(header[1:]) == sorted(names or ()))


def as_numbers(column: list[str]) -> list[Any]:
    """The column as numbers if all of it is (an empty cell is NaN), else as it is; by Python's own exact parser."""
    try:
        return [float(text) if text else float("nan") for text in column]
    except ValueError:
        return column


def is_number(text: Any) -> bool:
    """Whether a text is one."""
    try:
        float(str(text))
    except ValueError:
        return False
    return True
