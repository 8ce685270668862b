"""`IntervalNetwork`: a dense network whose parameters run through intervals, the INN of the paper.

Ends of intervals are rational numbers, so that membership and volume are decided without rounding; what must be float64
numbers is rounded to the side on which it stays true.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Floats, Indices, Integers
from apas._validation import check_number
from apas.certification.question import SHIFTS, Question, pick
from apas.errors import InputError, Unsupported
from apas.models.base import Described, Model, ModelWrapper, as_model, class_indices, encoded_rows, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Box, ShiftSet
from apas.worst_case.enumeration.box_bounds import margin_ranges, margin_slopes
from apas.worst_case.enumeration.splitting import BoxTree, float_above, float_below

#: An interval of this share of the whole one is not halved: where a part begins must be a float64 number.
THINNEST = 2.0**-50


@dataclass(frozen=True, eq=False, repr=False)
class IntervalNetwork:
    """All shifts of a dense network by at most delta, or a part of them: an interval per parameter.

    Make one with `IntervalNetwork.of`, and parts of it with `split`; the evidence of `Enumeration` has such parts.

    Attributes
    ----------
    model, network : Model, FeedForward
        The model whose shifts these are, and the same as a dense network in model units.
    radii : ndarray of shape (k,)
        How far each parameter moves when delta is 1; 0 for those that do not move.
    start, width : ndarray of shape (k,)
        Where the intervals begin and how wide they are, as shares of those of the whole box: exact.

    Examples
    --------
    >>> import apas
    >>> whole = apas.IntervalNetwork.of(apas.FeedForward([[[1.0], [-1.0]]], [[0.0]]), 0.5)
    >>> lower, upper = whole.split("layer0.weight[0, 0]")
    >>> print(lower.low, lower.high, lower.volume)
    [ 0.5 -1.5 -0.5] [ 1.  -0.5  0.5] 1/2
    """

    model: Model
    network: FeedForward
    radii: Floats
    delta: float
    start: Floats
    width: Floats

    @classmethod
    def of(cls, model: Any, delta: float, *, shifts: ShiftSet | str = "linf") -> IntervalNetwork:
        """The interval network of all shifts of a dense network by at most `delta`, in `LinfShifts` or another box."""
        given, chosen = as_model(model), pick(shifts, SHIFTS, ShiftSet, "shifts")
        size = check_number(delta, "delta", "IntervalNetwork", above=0)
        asked = Question(given, np.empty((0, given.n_features)), np.empty(0, dtype=object), np.empty(0), chosen)
        if not isinstance(asked.geometry, Box):
            got = type(chosen).__name__
            raise Unsupported(f"an interval network is a box, so `shifts` must be LinfShifts(...), got {got}.")
        if asked.network is None:
            got = f"{type(given).__name__} cannot be written as one with the same parameters"
            raise Unsupported(f"`model` of an interval network must be a dense network, but {got}.")
        return cls(given, asked.network, asked.radii, size, np.zeros(len(asked.radii)), np.ones(len(asked.radii)))

    @property
    def volume(self) -> Fraction:
        """The share of the whole box that this is, exactly."""
        return math.prod((Fraction(width) for width in self.width.tolist() if width < 1), start=Fraction(1))

    @cached_property
    def _ends(self) -> list[tuple[Fraction, Fraction]]:
        about, ends = (self.network.parameters.values, self.radii, self.start, self.width), []
        for value, radius, start, width in zip(*(map(Fraction, numbers.tolist()) for numbers in about), strict=True):
            reach = Fraction(self.delta) * radius
            low = value + reach * (2 * start - 1)
            ends.append((low, low + 2 * reach * width))
        return ends

    @cached_property
    def low(self) -> Floats:
        """The least value of each parameter, shape (k,), rounded down to float64."""
        return np.array([float_below(low) for low, _ in self._ends])

    @cached_property
    def high(self) -> Floats:
        """The largest value of each parameter, shape (k,), rounded up to float64."""
        return np.array([float_above(high) for _, high in self._ends])

    def reach(self, X: Any, target: Any = None) -> tuple[Floats, Floats]:
        """Between which margins all networks of the set put each row, by interval arithmetic: least, largest.

        Rounding, also of a model in float32, is accounted for. `target` is a label, or one per row; unless given, class
        1 of two.
        """
        rows, wanted, ends = self._asked(X, target)
        with np.errstate(over="ignore", invalid="ignore"):
            least, most, error = margin_ranges(self.network, rows, wanted, *ends)
            error = error + self.network.rounding(rows, self.radii, self.delta)
            low, high = least - error, most + error
        # where numbers overflow, infinity less infinity may stand for an end: none is known then
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def effects(self, X: Any, target: Any = None) -> Floats:
        """At most how far the margin of each row changes while one parameter runs through its interval, (rows, k)."""
        rows, wanted, ends = self._asked(X, target)
        with np.errstate(over="ignore", invalid="ignore"):
            # both operations are rounded up
            wide = np.where(self.radii > 0, np.nextafter(self.high - self.low, np.inf), 0.0)
            effects = np.nextafter(margin_slopes(self.network, rows, wanted, *ends)[2] * wide, np.inf)
        return np.where(wide > 0, np.where(np.isnan(effects), np.inf, effects), 0.0)

    def split(self, parameter: int | str) -> tuple[IntervalNetwork, IntervalNetwork]:
        """The sets with a parameter, told by place or by name ("layer0.weight[1, 0]"), in its lower and upper half."""
        i = self._place(parameter)
        if not self.radii[i] > 0 or self.width[i] <= THINNEST:
            why = "was halved 50 times" if self.radii[i] > 0 else "does not move"
            raise InputError(f"`parameter` must be one that can be halved, got {parameter!r}, which {why}.")
        width, start = self.width.copy(), self.start.copy()
        width[i] *= 0.5
        start[i] += width[i]
        return replace(self, width=width), replace(self, start=start, width=width)

    def realization(self, t: ArrayLike) -> Model:
        """One network of the set, which takes rows as the model does.

        `t` says where each parameter lies in its interval, from 0 to 1; one number for all, or an array of shape (k,).
        """
        shares = np.asarray(t)
        right = shares.dtype.kind in "iuf" and shares.shape in ((), self.radii.shape)
        if not right or not ((shares >= 0) & (shares <= 1)).all():
            wanted = f"a number from 0 to 1, or one per parameter ({len(self.radii)})"
            raise InputError(f"`t` of realization must be {wanted}, got {reprlib.repr(t)}.")
        values = []
        for i, (share, (low, high)) in enumerate(zip((shares + 0 * self.radii).tolist(), self._ends, strict=True)):
            nearest = float_below(low + Fraction(share) * (high - low))
            values.append(nearest if nearest >= low else float_above(low))
            if values[i] > high:
                told = f"parameter {i} has no float64 number in its interval, which was halved too often"
                raise InputError(f"{told}; ask a network that this one is a part of.")
        network = self.network.with_parameters(np.array(values))
        return network if self.model is self.network else Realization(self.model, network)

    def contains(self, model: Any) -> bool:
        """Whether a model like that of the set has each parameter in its interval, decided without rounding."""
        other = as_model(model)
        said = [one.describe() if offers(one, Described) else one.classes for one in (self.model, other)]
        values, same = other.parameters.values, other.parameters.shapes == self.model.parameters.shapes
        if said[0] != said[1] or not same or not np.isfinite(values).all():
            return False
        return all(low <= value <= high for value, (low, high) in zip(values.tolist(), self._ends, strict=True))

    def _asked(self, X: Any, target: Any) -> tuple[Floats, Indices, tuple[Floats, Floats]]:
        """Rows in model units, the place of each row's class, and the ends of the intervals per row."""
        rows, classes = encoded_rows(self.model, X)[1], self.model.classes
        if target is None and len(classes) > 2:
            raise InputError(f"`target` must be one of the model's {len(classes)} classes, got None.")
        wanted = class_indices(classes, classes[1] if target is None else target, len(rows))
        low, high = (np.broadcast_to(end, (len(rows), len(end))) for end in (self.low, self.high))
        return rows, wanted, (low, high)

    def _place(self, parameter: int | str) -> int:
        theta = self.model.parameters
        known = [f"{n}{list(at)}" for n, s in zip(theta.names, theta.shapes, strict=True) for at in np.ndindex(s)]
        i = known.index(parameter) if isinstance(parameter, str) and parameter in known else parameter
        if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < len(known):
            wanted = f"a number from 0 to {len(known) - 1}, or a name such as {known[0]!r}"
            raise InputError(f"`parameter` must be {wanted}, got {reprlib.repr(parameter)}.")
        return int(i)

    def __repr__(self) -> str:
        return f"<IntervalNetwork of {self.network!r}, delta {self.delta!r}, volume {self.volume}>"


class Realization(ModelWrapper):
    """A shifted network that reads rows as the model does whose shift it is."""

    def __init__(self, model: Model, network: FeedForward) -> None:
        super().__init__(network)
        for name in ("encode", "n_raw_features", "feature_names", "describe"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))


class IntervalNetworks(Sequence[IntervalNetwork]):
    """Parts of one interval network that share no more than faces; each is made when it is asked for."""

    def __init__(self, whole: IntervalNetwork, tree: BoxTree, nodes: Integers) -> None:
        self._whole, self._tree, self._nodes = whole, tree, nodes

    @property
    def volume(self) -> Fraction:
        """The share of the whole box that they make up together, exactly."""
        return self._tree.volume(self._nodes)

    def __repr__(self) -> str:
        return f"<IntervalNetworks: {len(self)} parts, volume {self.volume}>"

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return IntervalNetworks(self._whole, self._tree, self._nodes[index])
        return next(iter(IntervalNetworks(self._whole, self._tree, self._nodes[[index]])))

    def __iter__(self) -> Iterator[IntervalNetwork]:
        for first in range(0, len(self), 1024):  # to locate many together is faster, to locate all takes memory
            for ends in zip(*self._tree.coordinates(self._nodes[first : first + 1024]), strict=True):
                start, width = self._whole.start.copy(), self._whole.width.copy()
                start[self._whole.radii > 0], width[self._whole.radii > 0] = ends
                yield replace(self._whole, start=start, width=width)
