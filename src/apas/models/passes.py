"""Forward passes of many shifted copies of a dense network at once.

Two memory layouts of the directions are served, because each is several times faster than the other on its own
ground. *Samples last*: direction arrays that are Fortran-contiguous, (k, samples) in memory, as the shift sets draw
them for small networks; every operation then runs along contiguous samples. *Samples first*: anything else; the
products become one matrix product per sample, which is what large layers want.

With few rows the product ``a @ (W + delta U)`` is taken as ``a @ W + (delta a) @ U``, which saves writing the shifted
weights; with many rows these are written once and shared by all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from apas.models.activations import activate

__all__ = ["scores", "shifted_scores"]

_Array = NDArray[np.float64]
#: Up to this many rows, shifted weights are not written down.
FEW_ROWS = 8
#: How many activations of one layer are held at a time: they should stay in the processor's cache.
BLOCK = 1 << 16


def scores(weights: Sequence[_Array], biases: Sequence[_Array], activations: Sequence[str], X: _Array) -> _Array:
    """Outputs of the network itself, shape (rows, outputs)."""
    a = X
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        a = a @ w
        a += b
        if i < len(activations):
            activate(activations[i], a)
    return a


def shifted_scores(
    theta: _Array,
    shapes: Sequence[tuple[int, int]],
    activations: Sequence[str],
    X: _Array,
    directions: _Array,
    delta: float,
) -> Iterator[tuple[slice, _Array]]:
    """Outputs of the networks ``theta + delta * direction``, a block of rows at a time.

    Parameters
    ----------
    theta : ndarray of shape (k,)
        Per layer the weights (inputs, outputs) in C order, then the biases.
    shapes : sequence of (int, int)
        Inputs and outputs of each layer.
    activations : sequence of str
        One per hidden layer.
    X : ndarray of shape (rows, features)
    directions : ndarray of shape (samples, k)
    delta : float

    Yields
    ------
    rows : slice
    scores : ndarray of shape (samples, rows in the slice, outputs)
        Not necessarily contiguous, and overwritten by the caller at will.
    """
    last = directions.flags.f_contiguous and len(directions) > 1
    run = _samples_last if last else _samples_first
    widest = max(max(outputs for _, outputs in shapes), 1)
    step = max(1, BLOCK // max(1, widest * len(directions)))
    few = len(X) <= FEW_ROWS
    # the bias is the weight of an input that is always 1, which saves a pass over the result
    extended = np.ones((len(X), X.shape[1] + 1))
    extended[:, :-1] = X
    if not few:
        directions = directions * delta
        directions += theta
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        yield rows, run(theta, shapes, activations, extended[rows], directions, delta if few else None)


def _samples_last(
    theta: _Array,
    shapes: Sequence[tuple[int, int]],
    activations: Sequence[str],
    a: _Array,
    directions: _Array,
    delta: float | None,
) -> _Array:
    flat = directions.T
    rows, samples = len(a), flat.shape[1]
    for i, (part, (inputs, outputs)) in enumerate(zip(_layers(shapes), shapes, strict=True)):
        base = theta[part].reshape(inputs + 1, outputs)
        layer = flat[part].reshape(inputs + 1, outputs, samples)
        if i == 0:
            z = ((a if delta is None else delta * a) @ layer.reshape(inputs + 1, -1)).reshape(rows, outputs, samples)
            if delta is not None:
                z += (a @ base)[:, :, None]
        else:
            if delta is not None:
                layer = layer * delta
                layer += base[:, :, None]
            z = np.einsum("mis,ios->mos", a, layer[:-1])
            z += layer[-1]
        a = activate(activations[i], z) if i < len(activations) else z
    return a.transpose(2, 0, 1)


def _samples_first(
    theta: _Array,
    shapes: Sequence[tuple[int, int]],
    activations: Sequence[str],
    a: _Array,
    directions: _Array,
    delta: float | None,
) -> _Array:
    samples = len(directions)
    for i, (part, (inputs, outputs)) in enumerate(zip(_layers(shapes), shapes, strict=True)):
        base = theta[part].reshape(inputs + 1, outputs)
        layer = directions[:, part].reshape(samples, inputs + 1, outputs)
        if i == 0:
            z = (a if delta is None else delta * a) @ layer
            if delta is not None:
                z += a @ base
        elif delta is None:
            z = a @ layer[:, :-1]
            z += layer[:, -1:]
        else:
            z = (delta * a) @ layer[:, :-1]
            # all samples share the unshifted weights: one product for them all
            z += (a.reshape(-1, inputs) @ base[:-1]).reshape(z.shape)
            z += layer[:, -1:] * delta + base[-1]
        a = activate(activations[i], z) if i < len(activations) else z
    return a


def _layers(shapes: Sequence[tuple[int, int]]) -> Iterator[slice]:
    start = 0
    for inputs, outputs in shapes:
        stop = start + (inputs + 1) * outputs
        yield slice(start, stop)
        start = stop
