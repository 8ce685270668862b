"""Uniform points of a cube, as a pure function of a stream and their numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas._random import UNIT, Stream

__all__ = ["unit_cube"]

#: Directions of small models are drawn in groups of this many, parameter by parameter.
TILE = 128
#: Up to this many moving parameters a model counts as small.
SMALL = 1024
#: Random numbers of larger models are made in parts of this many, which stay in the processor's cache.
PART = 1 << 15


def unit_cube(size: int, stream: Stream, start: int, stop: int) -> NDArray[np.float64]:
    """Points number `start` to `stop` of a row of independent uniform points of [-1, 1)**size.

    For up to 1024 coordinates, 128 points are laid out together, coordinate by coordinate, and the result is
    Fortran-contiguous: the order in which small networks are fastest.

    Examples
    --------
    >>> unit_cube(3, Stream(0, "doc"), 10, 12).shape
    (2, 3)
    """
    if size > SMALL:
        points = np.empty((stop - start) * size)
        for part in range(0, len(points), PART):
            some = points[part : part + PART]
            np.copyto(some, stream.integers(start * size + part, len(some)))
            some *= UNIT
        return points.reshape(-1, size)
    first, last = start // TILE, -(-stop // TILE)
    tiles = stream.integers(first * TILE * size, (last - first) * TILE * size).reshape(-1, size, TILE)
    cube = np.empty((size, last - first, TILE))
    np.copyto(cube.transpose(1, 0, 2), tiles)
    cube *= UNIT
    flat = cube.reshape(size, -1)
    if len(tiles) * TILE != stop - start:
        flat = np.ascontiguousarray(flat[:, start - first * TILE : stop - first * TILE])
    return flat.T
