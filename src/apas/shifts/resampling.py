"""Rows drawn with replacement, and the labels that go with them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.errors import InputError

__all__ = ["check_labels", "data_digest", "drawn_rows", "drawn_seeds", "take_rows"]


def drawn_rows(stream: Stream, start: int, count: int, rows: int) -> NDArray[np.int64]:
    """Row numbers from 0 to `rows` (exclusive), drawn with replacement: numbers `start` to ``start + count``.

    Examples
    --------
    >>> drawn_rows(Stream(0, "doc"), 0, 5, 3).tolist()
    [1, 0, 2, 2, 1]
    """
    numbers = stream.words(start, count) >> np.uint64(32)
    return (numbers * np.uint64(rows) >> np.uint64(32)).astype(np.int64)  # uniform, as rows are far below 2**32


def drawn_seeds(stream: Stream, start: int, count: int) -> list[int]:
    """Seeds in [0, 2**32), as NumPy and scikit-learn take them: numbers `start` to ``start + count``."""
    return (stream.words(start, count) >> np.uint64(32)).tolist()  # type: ignore[no-any-return]


def take_rows(values: Any, rows: NDArray[np.int64]) -> Any:
    """Rows of an array, data frame, series or tensor, by their positions."""
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def check_labels(
    y: Any, rows: int, classes: Sequence[Any] | None = None, *, name: str = "y", of: str = "X", owner: str
) -> Any:
    """Labels that can be indexed by row numbers, all of them known if `classes` are given."""
    try:
        labels = y if hasattr(y, "iloc") else np.asarray(y)
    except ValueError:
        raise InputError(f"`{name}` of {owner} must be 1-D, one label per row, got rows of labels.") from None
    if labels.ndim != 1:
        raise InputError(
            f"`{name}` of {owner} must be 1-D, one label per row, got {labels.ndim} dimensions; pass one column."
        )
    if len(labels) != rows:
        raise InputError(f"`{name}` of {owner} must hold one label per row of `{of}` ({rows}), got {len(labels)}.")
    unknown = [] if classes is None else [label for label in labels.tolist() if label not in classes]
    if unknown:
        raise InputError(
            f"`{name}` of {owner} must hold classes of the model ({', '.join(map(str, classes or ()))}), "
            f"got {unknown[0]!r}; drop these rows, or train a model that knows the class."
        )
    return labels


def data_digest(*tables: Any) -> str:
    """The first 12 hexadecimal digits of a SHA-256 over arrays, data frames and series, by which data can be told.

    Examples
    --------
    >>> data_digest(np.eye(2), [0, 1]) == data_digest(np.eye(2), [1, 0])
    False
    """
    digest = hashlib.sha256()
    for table in tables:
        if hasattr(table, "tocsr"):
            sparse = table.tocsr()
            digest.update(data_digest(sparse.indptr, sparse.indices, sparse.data).encode())
            continue
        frame = hasattr(table, "iloc") and hasattr(table, "columns")
        for name in table.columns if frame else [None]:
            values = np.asarray(table if name is None else table[name])
            digest.update(f"{name}{values.shape}{values.dtype.kind}".encode())
            if values.dtype.kind in "biufc":
                digest.update(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes())
            else:
                digest.update("\n".join(map(str, values.ravel().tolist())).encode())
    return digest.hexdigest()[:12]
