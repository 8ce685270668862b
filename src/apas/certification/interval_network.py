"""`IntervalNetwork`: a dense network whose parameters run through intervals, the INN of the paper.

It stands for all networks of a box of shifts, or of a part of one that halving gives. The ends of the intervals are
rational numbers: a float64 number, more or less a product of two others, times a power of one half. Whether a model
belongs to the set and what its volume is are decided with them, without rounding; what must be float64 numbers (ends,
realizations, ranges of the margin) is rounded to the side on which it stays true.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Floats, Indices, Integers
from apas._validation import check_number
from apas.certification.question import SHIFTS, Question, pick
from apas.errors import InputError, Unsupported
from apas.models.as_model import as_model, encoded_rows
from apas.models.base import Described, Model, ModelWrapper, Parameters, class_indices, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Box, ShiftSet
from apas.worst_case.enumeration.box_bounds import margin_ranges, margin_slopes
from apas.worst_case.enumeration.splitting import BoxTree, float_above, float_below

#: An interval of this share of the whole one is not halved: where a part begins must be a float64 number.
THINNEST = 2.0**-50
#: How many parts are located together.
LOCATED = 1024


@dataclass(frozen=True, eq=False, repr=False)
class IntervalNetwork:
    """All shifts of a dense network by at most delta, or a part of them: an interval per parameter.

    Make one with `IntervalNetwork.of`, and parts of it with `split`; `Enumeration` gives those that it has settled.

    Attributes
    ----------
    model : Model
        The model whose shifts these are.
    network : FeedForward
        The same as a dense network, in model units.
    radii : ndarray of shape (k,)
        How far each parameter moves when delta is 1; 0 for those that do not move.
    delta : float
        Size of the shifts.
    start, width : ndarray of shape (k,)
        Where the intervals begin and how wide they are, as shares of those of the whole box: exact, as multiples of
        powers of one half.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> whole = IntervalNetwork.of(net, 0.5)
    >>> [round(float(end[0]), 9) for end in whole.reach([[2.0, 1.5]])]
    [-1.75, 2.75]
    >>> lower, upper = whole.split("layer0.weight[0, 0]")
    >>> print(lower.low, lower.high, lower.volume)
    [ 0.5 -1.5 -0.5] [ 1.  -0.5  0.5] 1/2
    >>> lower.contains(net), upper.contains(upper.realization(0.5)), lower.contains(upper.realization(0.5))
    (True, True, False)
    """

    model: Model
    network: FeedForward
    radii: Floats
    delta: float
    start: Floats
    width: Floats

    @classmethod
    def of(cls, model: Any, delta: float, *, shifts: ShiftSet | str = "linf") -> IntervalNetwork:
        """The interval network of all shifts of a model by at most `delta`.

        Parameters
        ----------
        model : object
            A fitted classifier that is a dense network: see `as_model`.
        delta : float
            How far the parameters may move.
        shifts : LinfShifts or "linf"
            Or another set that is a box.
        """
        given, chosen = as_model(model), pick(shifts, SHIFTS, ShiftSet, "shifts")
        size = check_number(delta, "delta", "IntervalNetwork", above=0)
        nobody = np.empty((0, given.n_features)), np.empty(0, dtype=object), np.empty(0)
        asked = Question(given, *nobody, chosen)
        if not isinstance(asked.geometry, Box):
            got = type(chosen).__name__
            raise Unsupported(f"an interval network is a box, so `shifts` must be LinfShifts(...), got {got}.")
        if asked.network is None:
            raise Unsupported(
                f"an interval network needs a dense network, but {type(given).__name__} cannot be written as one with "
                "the same parameters."
            )
        ends = np.zeros(len(asked.radii)), np.ones(len(asked.radii))
        return cls(given, asked.network, asked.radii, size, *ends)

    @cached_property
    def volume(self) -> Fraction:
        """The share of the whole box that this is, exactly."""
        return math.prod((Fraction(width) for width in self.width.tolist() if width < 1), start=Fraction(1))

    @cached_property
    def _ends(self) -> list[tuple[Fraction, Fraction]]:
        """Both ends of every interval, exactly."""
        delta, ends = Fraction(self.delta), []
        about = (self.network.parameters.values, self.radii, self.start, self.width)
        for value, radius, start, width in zip(*(numbers.tolist() for numbers in about), strict=True):
            reach = delta * Fraction(radius)
            low = Fraction(value) + reach * (2 * Fraction(start) - 1)
            ends.append((low, low + 2 * reach * Fraction(width)))
        return ends

    @cached_property
    def low(self) -> Floats:
        """The least value of each parameter, shape (k,); rounded down where float64 has no such number."""
        return np.array([float_below(low) for low, _ in self._ends])

    @cached_property
    def high(self) -> Floats:
        """The largest value of each parameter, shape (k,); rounded up where float64 has no such number."""
        return np.array([float_above(high) for _, high in self._ends])

    def reach(self, X: Any, target: Any = None) -> tuple[Floats, Floats]:
        """Between which margins all networks of the set put each row, by interval arithmetic.

        Parameters
        ----------
        X : array_like or data frame of shape (rows, features)
        target : label or array_like of labels, optional
            Towards which class; unless given, class 1 of two.

        Returns
        -------
        low, high : ndarray of shape (rows,)
            The class is kept by every network of the set where `low` is above 0, and lost by every one where `high` is
            below 0. They hold in real arithmetic, and for a model that computes in float32 within its rounding. With at
            most one hidden layer and two classes they are attained, up to rounding.
        """
        rows, wanted, ends = self._asked(X, target, "reach")
        with np.errstate(over="ignore", invalid="ignore"):
            least, most, error = margin_ranges(self.network, rows, wanted, *ends)
            error = error + self.network.rounding(rows, self.radii, self.delta)
            low, high = least - error, most + error
        # where numbers overflow, infinity less infinity may stand for an end: none is known then
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def effects(self, X: Any, target: Any = None) -> Floats:
        """At most how far the margin of each row changes while one parameter runs through its interval.

        Takes what `reach` takes. All other parameters may be anywhere in theirs. To halve the interval with the largest
        effect is how `Enumeration` chooses.

        Returns
        -------
        ndarray of shape (rows, k)
        """
        rows, wanted, ends = self._asked(X, target, "effects")
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = margin_slopes(self.network, rows, wanted, *ends)[2]
            # each of the two operations is rounded up
            effects = np.nextafter(slopes * np.nextafter(self.high - self.low, np.inf), np.inf)
        return np.where(self.radii > 0, np.where(np.isnan(effects), np.inf, effects), 0.0)

    def split(self, parameter: int | str) -> tuple[IntervalNetwork, IntervalNetwork]:
        """Two halves of the set: those in which one parameter lies in the lower and in the upper half of its interval.

        Parameters
        ----------
        parameter : int or str
            Its place in the vector of parameters, or its name: that of its tensor with the place in brackets, such as
            ``"layer0.weight[1, 0]"``; of a tensor with one entry, its name alone.
        """
        i = self._place(parameter)
        if not self.radii[i] > 0:
            raise InputError(f"`parameter` must be one that moves, got {parameter!r}, which does not.")
        if self.width[i] <= THINNEST:
            raise InputError(
                f"`parameter` must have an interval of more than 2**-50 of its first width, got {parameter!r}, which "
                "was halved too often; halve another."
            )
        width, start = self.width.copy(), self.start.copy()
        width[i] *= 0.5
        start[i] += width[i]
        return replace(self, width=width), replace(self, start=start, width=width)

    def realization(self, t: ArrayLike) -> Model:
        """One network of the set.

        Parameters
        ----------
        t : float or array_like of shape (k,)
            Where each parameter lies in its interval: 0 is the lower end, 1 the upper one. One number is taken for all.

        Returns
        -------
        Model
            It takes rows as `model` does. Each parameter is a float64 number of its interval, next to what was asked
            for.
        """
        values, base = [], self.network.parameters.values.tolist()
        for i, (share, (low, high)) in enumerate(zip(self._shares(t), self._ends, strict=True)):
            value = base[i] if low == high else float_below(low + Fraction(share) * (high - low))
            value = value if low <= value else math.nextafter(value, math.inf)
            if not low <= value <= high:
                raise InputError(
                    f"`realization` must find a float64 number for each parameter, but the interval of number {i} lies "
                    "between two neighbours; take one that was halved less often."
                )
            values.append(value)
        network = self.network.with_parameters(np.array(values))
        return network if self.model is self.network else Realization(self.model, network)

    def contains(self, model: Any) -> bool:
        """Whether a model is one of the set, decided without rounding.

        It must be the same as the model of the set in all but its parameters (architecture, preprocessing, classes,
        threshold), and each of these must lie in its interval, whose ends belong to it.
        """
        other = as_model(model)
        if other.parameters.shapes != self.model.parameters.shapes or not _same_kind(self.model, other):
            return False
        values = other.parameters.values
        pairs = zip(values.tolist(), self._ends, strict=True)
        return bool(np.isfinite(values).all()) and all(low <= value <= high for value, (low, high) in pairs)

    def part(self, start: Floats, width: Floats) -> IntervalNetwork:
        """The part whose moving parameters have these shares of the whole intervals, shape (axes,) each."""
        moving, starts, widths = self.radii > 0, np.zeros(len(self.radii)), np.ones(len(self.radii))
        starts[moving], widths[moving] = start, width
        return replace(self, start=starts, width=widths)

    def _asked(self, X: Any, target: Any, name: str) -> tuple[Floats, Indices, tuple[Floats, Floats]]:
        """Rows in model units, the place of each row's class, and the ends of the intervals per row."""
        rows, classes = encoded_rows(self.model, X)[1], self.model.classes
        if target is None and len(classes) > 2:
            raise InputError(f"`target` of {name} must be one of the model's {len(classes)} classes, got None.")
        wanted = class_indices(classes, classes[1] if target is None else target, len(rows))
        low, high = (np.broadcast_to(end, (len(rows), len(end))) for end in (self.low, self.high))
        return rows, wanted, (low, high)

    def _place(self, parameter: int | str) -> int:
        theta = self.model.parameters
        if isinstance(parameter, int | np.integer) and not isinstance(parameter, bool) and 0 <= parameter < len(theta):
            return int(parameter)
        named = re.fullmatch(r"(.*?)(?:\[(\d+(?:, *\d+)*)\])?", parameter) if isinstance(parameter, str) else None
        if named is not None and named[1] in theta.names:
            tensor = theta.names.index(named[1])
            shape = theta.shapes[tensor]
            alone = (0,) * len(shape) if math.prod(shape) == 1 else ()
            place = tuple(map(int, named[2].split(","))) if named[2] else alone
            if len(place) == len(shape) and all(i < n for i, n in zip(place, shape, strict=True)):
                return int(theta.slices[tensor].start + np.ravel_multi_index(place, shape))
        known = f"{theta.names[0]}[{', '.join('0' for _ in theta.shapes[0])}]"
        raise InputError(
            f"`parameter` must be a number from 0 to {len(theta) - 1}, or a name such as {known!r}, "
            f"got {reprlib.repr(parameter)}."
        )

    def _shares(self, t: ArrayLike) -> list[float]:
        """Where each parameter lies in its interval."""
        try:
            given = np.asarray(t, dtype=np.float64)
        except (TypeError, ValueError):
            given = np.array(np.nan)
        if given.shape not in ((), self.radii.shape) or not ((given >= 0) & (given <= 1)).all():
            wanted = f"a number from 0 to 1, or one per parameter ({len(self.radii)})"
            raise InputError(f"`t` of realization must be {wanted}, got {reprlib.repr(t)}.")
        return np.broadcast_to(given, self.radii.shape).tolist()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        moving = int(np.count_nonzero(self.radii))
        return f"<IntervalNetwork of {self.network!r}, delta {self.delta!r}, {moving} move, volume {self.volume}>"


class Realization(ModelWrapper):
    """A shifted network that reads rows as the model does whose shift it is."""

    def __init__(self, model: Model, network: FeedForward) -> None:
        super().__init__(network)
        self._parameters = replace(model.parameters, values=network.parameters.values)
        for name in ("encode", "n_raw_features", "feature_names", "describe"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    @property
    def parameters(self) -> Parameters:
        """The parameters of the shifted model, with the names of the model."""
        return self._parameters


def _same_kind(one: Model, other: Model) -> bool:
    """Whether two models are the same but for their parameters, as far as they can say."""
    if not offers(one, Described) or not offers(other, Described):
        return one.classes == other.classes
    said = one.describe(), other.describe()
    if None in (about.get("feature_names") for about in said):  # nobody can compare names with none
        said = tuple({**about, "feature_names": None} for about in said)  # type: ignore[assignment]
    return said[0] == said[1]


class IntervalNetworks(Sequence[IntervalNetwork]):
    """Parts of one interval network that share no more than faces; each is made when it is asked for.

    Attributes
    ----------
    volume : Fraction
        The share of the whole box that they make up together, exactly.
    """

    def __init__(self, whole: IntervalNetwork, tree: BoxTree, nodes: Integers) -> None:
        self._whole, self._tree, self._nodes = whole, tree, nodes

    @property
    def volume(self) -> Fraction:
        """The share of the whole box that they make up together, exactly."""
        return self._tree.volume(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> IntervalNetwork: ...

    @overload
    def __getitem__(self, index: slice) -> IntervalNetworks: ...

    def __getitem__(self, index: int | slice) -> IntervalNetwork | IntervalNetworks:
        if isinstance(index, slice):
            return IntervalNetworks(self._whole, self._tree, self._nodes[index])
        start, width = self._tree.coordinates(self._nodes[[index]])
        return self._whole.part(start[0], width[0])

    def __iter__(self) -> Iterator[IntervalNetwork]:
        for first in range(0, len(self), LOCATED):
            for start, width in zip(*self._tree.coordinates(self._nodes[first : first + LOCATED]), strict=True):
                yield self._whole.part(start, width)

    def __repr__(self) -> str:
        return f"<{len(self)} interval networks, volume {self.volume}>"
