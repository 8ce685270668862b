"""The flat parameter vector of a model, with the names of its parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apas.errors import InputError

__all__ = ["ABSENT", "Parameters"]

#: The kind of a tensor that stands for one that the model does not have.
ABSENT = "absent"


@dataclass(frozen=True, eq=False)
class Parameters:
    """All parameters of a model as one read-only vector, cut into named tensors.

    Build it with `Parameters.from_arrays`. Tensor ``i`` is ``values[slices[i]].reshape(shapes[i])``.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Every parameter, read-only float64.
    names : tuple of str
        One name per tensor, such as ``"layer0.weight"``.
    kinds : tuple of str
        ``"weight"`` or ``"bias"`` per tensor, or ``"absent"``: the zeros of a bias that does not exist, which no shift
        set moves.
    layers : tuple of str
        The layer each tensor belongs to.
    shapes : tuple of tuple of int
        Shape per tensor.
    slices : tuple of slice
        Where each tensor lies in `values`.

    Examples
    --------
    >>> p = Parameters.from_arrays([[[1.0, 2.0]], [3.0, 4.0]], names=["out.weight", "out.bias"],
    ...                            kinds=["weight", "bias"], layers=["out", "out"])
    >>> p.values, p.shapes
    (array([1., 2., 3., 4.]), ((1, 2), (2,)))
    >>> p.layer_names
    ('out',)
    """

    values: NDArray[np.float64]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    layers: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    slices: tuple[slice, ...]

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[ArrayLike],
        *,
        names: Sequence[str],
        kinds: Sequence[str],
        layers: Sequence[str],
    ) -> Parameters:
        """Join arrays into one vector.

        Parameters
        ----------
        arrays : sequence of array_like
            One array per tensor, in the order in which the vector shall hold them.
        names, kinds, layers : sequence of str
            One entry per tensor; `kinds` holds ``"weight"``, ``"bias"`` or ``"absent"``.
        """
        if not len(arrays) == len(names) == len(kinds) == len(layers):
            raise InputError(
                "`arrays`, `names`, `kinds` and `layers` of Parameters.from_arrays must have the same length, "
                f"got {len(arrays)}, {len(names)}, {len(kinds)} and {len(layers)}."
            )
        for kind in kinds:
            if kind not in ("weight", "bias", ABSENT):
                raise InputError(f'`kinds` must hold "weight", "bias" or "{ABSENT}", got {kind!r}.')
        tensors = [np.asarray(array, dtype=np.float64) for array in arrays]
        ends = np.cumsum([0, *(t.size for t in tensors)]).tolist()
        values = np.concatenate([t.ravel() for t in tensors]) if tensors else np.empty(0)
        values.flags.writeable = False
        return cls(
            values=values,
            names=tuple(names),
            kinds=tuple(kinds),
            layers=tuple(layers),
            shapes=tuple(t.shape for t in tensors),
            slices=tuple(slice(a, b) for a, b in itertools.pairwise(ends)),
        )

    def __len__(self) -> int:
        return self.values.size

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The distinct layers, in the order in which they appear."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def exist(self) -> NDArray[np.bool_]:
        """Which entries of `values` are parameters of the model, rather than stand for absent ones, shape (k,)."""
        sizes = [part.stop - part.start for part in self.slices]
        return np.repeat([kind != ABSENT for kind in self.kinds], sizes)

    def tensor(self, index: int) -> NDArray[np.float64]:
        """Tensor number `index`, a read-only view in its own shape."""
        return self.values[self.slices[index]].reshape(self.shapes[index])
