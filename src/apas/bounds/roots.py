"""The first failure along a ray, exactly, for networks with at most one hidden layer of piecewise linear units.

Such a unit is a sum of terms ``c max(z, 0)`` and a linear part, so that along a ray, where ``c`` and ``z`` are linear
in t, the margin is a quadratic between the points where some ``z`` crosses 0. The pieces are gone through in order: a
root finder without this order would return *some* failure, while the guarantee needs the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apas.bounds.interval import rivals
from apas.bounds.rays import Rays
from apas.models.activations import LEAKY_SLOPE

__all__ = ["PIECEWISE_LINEAR", "first_failures"]

_Array = NDArray[np.float64]
#: Activations as sums of kinks: (scale, shift) of each ``max(z + shift, 0)``, then slope and value of the linear part.
PIECEWISE_LINEAR = {
    "relu": ([(1.0, 0.0)], 0.0, 0.0),
    "leaky_relu": ([(1 - LEAKY_SLOPE, 0.0)], LEAKY_SLOPE, 0.0),
    "identity": ([], 1.0, 0.0),
    "hard_tanh": ([(1.0, 1.0), (-1.0, -1.0)], 0.0, -1.0),
}


def first_failures(rays: Rays, rows: NDArray[np.intp], samples: NDArray[np.intp], t: _Array, band: _Array) -> _Array:
    """For each pair of a row and a sample the least s in [0, t] at which the margin is not above `band`, else inf.

    Parameters
    ----------
    rays : Rays
    rows, samples : ndarray of int, shape (pairs,)
    t, band : ndarray of shape (pairs,)
    """
    first = np.full(len(rows), np.inf)
    for rival in rivals(rays.net, rays.wanted).T:
        kinks, smooth = _terms(rays, rows, samples, rival[rows])
        smooth[:, 0] -= band
        first = np.minimum(first, _first_root(*kinks, smooth, t))
    return first


def _terms(
    rays: Rays, rows: NDArray[np.intp], samples: NDArray[np.intp], rival: NDArray[np.intp]
) -> tuple[tuple[_Array, _Array, _Array, _Array], _Array]:
    """The margin as sum of (c0 + t c1) max(z0 + t z1, 0), plus a quadratic with coefficients (pairs, 3)."""
    z0, z1 = rays.z0[rows, :, 0], rays.z1[rows, :, samples]
    if not rays.net.activations:  # the first layer is the output itself
        value, slope = _scored(rays, rows, rival, z0), _scored(rays, rows, rival, z1)
        value = value - _threshold(rays, rows)
        empty = np.empty((len(rows), 0))
        return (empty, empty, empty, empty), np.stack([value, slope, np.zeros(len(rows))], axis=1)
    w, b = rays.net.weights[1], rays.net.biases[1]
    slope, bias_slope = rays.slopes[1]
    c0 = _scored(rays, rows, rival, np.broadcast_to(w.T, (len(rows), *w.T.shape)))
    c1 = _scored(rays, rows, rival, slope[:, :, samples].transpose(2, 1, 0))
    smooth = np.zeros((len(rows), 3))
    smooth[:, 0] = _scored(rays, rows, rival, np.broadcast_to(b, (len(rows), len(b)))) - _threshold(rays, rows)
    smooth[:, 1] = _scored(rays, rows, rival, bias_slope[:, samples].T)
    units, tilt, level = PIECEWISE_LINEAR[rays.net.activations[0]]
    a0, a1 = tilt * z0 + level, tilt * z1
    smooth[:, 0] += (c0 * a0).sum(axis=1)
    smooth[:, 1] += (c0 * a1 + c1 * a0).sum(axis=1)
    smooth[:, 2] += (c1 * a1).sum(axis=1)
    empty = np.empty((len(rows), 0))
    kinks = (
        np.hstack([empty, *(scale * c0 for scale, _ in units)]),
        np.hstack([empty, *(scale * c1 for scale, _ in units)]),
        np.hstack([empty, *(z0 + shift for _, shift in units)]),
        np.hstack([empty, *(z1 for _ in units)]),
    )
    return kinks, smooth


def _scored(rays: Rays, rows: NDArray[np.intp], rival: NDArray[np.intp], values: _Array) -> _Array:
    """Values per output (pairs, outputs, ...) as the wanted one minus the rival, or signed for one output."""
    wanted = rays.wanted[rows]
    if values.shape[1] == 1:
        sign = np.where(wanted == 1, 1.0, -1.0)
        return np.asarray(sign.reshape(-1, *[1] * (values.ndim - 2)) * values[:, 0])
    pairs = np.arange(len(rows))
    return np.asarray(values[pairs, wanted] - values[pairs, rival])


def _threshold(rays: Rays, rows: NDArray[np.intp]) -> _Array:
    """What the margin is diminished by: the offset of a binary network, towards the wanted class."""
    if len(rays.net.classes) > 2:
        return np.zeros(len(rows))
    return np.where(rays.wanted[rows] == 1, rays.net.offset, -rays.net.offset)


def _first_root(c0: _Array, c1: _Array, z0: _Array, z1: _Array, smooth: _Array, t: _Array) -> _Array:
    """Least s in [0, t] at which the sum of kinks and quadratic is at most 0, else inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = np.where(z0 * z1 < 0, -z0 / z1, np.inf)
        # a unit that begins at its kink comes alive at once if it rises, and never if it falls
        crossing = np.where((z0 == 0) & (z1 > 0), 0.0, crossing)
    crossing = np.where(crossing < t[:, None], crossing, np.inf)
    order = np.argsort(crossing, axis=1)
    starts = np.hstack([np.zeros((len(t), 1)), np.take_along_axis(crossing, order, axis=1)])
    ends = np.minimum(np.hstack([starts[:, 1:], np.full((len(t), 1), np.inf)]), t[:, None])
    active = (z0 > 0).astype(float)
    turns = np.where(np.isfinite(crossing), np.sign(z1), 0.0)  # +1: the unit comes alive, -1: it dies
    pieces = []
    for term, base in zip((c0 * z0, c0 * z1 + c1 * z0, c1 * z1), smooth.T, strict=True):
        change = np.take_along_axis(turns * term, order, axis=1)
        begin = base + (active * term).sum(axis=1)
        pieces.append(np.hstack([begin[:, None], begin[:, None] + np.cumsum(change, axis=1)]))
    found = _root_in_piece(pieces[2], pieces[1], pieces[0], starts, ends)
    return np.asarray(found.min(axis=1))


def _root_in_piece(a: _Array, b: _Array, c: _Array, start: _Array, end: _Array) -> _Array:
    """Least s in [start, end] with a s**2 + b s + c <= 0, else inf; elementwise."""
    inside = start <= end
    start, end = np.where(inside, start, 0.0), np.where(inside, end, 0.0)
    at_start, at_end = (a * start + b) * start + c, (a * end + b) * end + c
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if not np.isfinite(b * b - 4 * a * c).all():
            # a quadratic and a multiple of it have the same roots, and that of a large one has a finite discriminant
            largest = np.max([np.abs(a), np.abs(b), np.abs(c)], axis=0)
            a, b, c = (np.where(largest > 1e150, v / largest, v) for v in (a, b, c))
        # the form of the quadratic formula that loses no digits
        half = -0.5 * (b + np.where(b < 0, -1.0, 1.0) * np.sqrt(b * b - 4 * a * c))
        candidates = [np.where(a != 0, half / a, np.inf), np.where(half != 0, c / half, np.inf)]
    found = np.full(a.shape, np.inf)
    for candidate in candidates:  # NaN, where there is no root, fails both comparisons
        found = np.where((candidate > start) & (candidate <= end), np.minimum(found, candidate), found)
    # an end that is not above 0 is a failure even where rounding has pushed the root out of the piece
    found = np.where(at_end <= 0, np.minimum(found, end), found)
    found = np.where(at_start <= 0, start, found)
    return np.where(inside, found, np.inf)
