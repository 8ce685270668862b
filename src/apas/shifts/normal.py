"""Standard normal numbers, as a pure function of a stream and their numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.shifts.ball import uniform
from apas.shifts.cube import PART, SMALL, TILE

__all__ = ["LARGEST", "standard_normals"]

_Array = NDArray[np.float64]
#: No number is larger than this: the smallest share is 2**-54, and half of it the quantile of -8.3744.
LARGEST = 8.4


def standard_normals(size: int, stream: Stream, start: int, stop: int) -> _Array:
    """Points number `start` to `stop` of a row of independent points with `size` standard normal coordinates.

    A coordinate takes one 64-bit word: its highest 53 bits are a share, by which the distribution function of the size
    is inverted, and its lowest bit is the sign. As in `unit_cube`, 128 points of up to 1024 coordinates are laid out
    together, coordinate by coordinate.

    Examples
    --------
    >>> points = standard_normals(3, Stream(0, "doc"), 10, 12)
    >>> points.shape, bool((points == standard_normals(3, Stream(0, "doc"), 0, 12)[10:]).all())
    ((2, 3), True)
    """
    if size > SMALL:
        points = np.empty((stop - start) * size)
        for part in range(0, len(points), PART):
            some = points[part : part + PART]
            some[:] = _normals(stream.words(start * size + part, len(some)))
        return points.reshape(-1, size)
    first, last = start // TILE, -(-stop // TILE)
    words = stream.words(first * TILE * size, (last - first) * TILE * size).reshape(-1, size, TILE)
    numbers = _normals(np.ascontiguousarray(words.transpose(1, 0, 2)).reshape(size, -1))
    if numbers.shape[1] != stop - start:
        numbers = np.ascontiguousarray(numbers[:, start - first * TILE : stop - first * TILE])
    return numbers.T


def _normals(words: NDArray[np.uint64]) -> _Array:
    from scipy.special import ndtri

    sizes: _Array = -ndtri(0.5 * uniform(words))
    return np.where(words & np.uint64(1), -sizes, sizes)
