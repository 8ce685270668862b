"""Least margins over what a set is around the parameters: sparse sets and ellipsoids here, boxes and balls elsewhere.

Where at most a few parameters move, the largest of the falls of a sum count; a bias is the weight of an input of 1. A
range is kept per *budget*, the moves spent on it, which layers share: units of the first one divide theirs as in a
knapsack (exact with one hidden layer), deeper ones get all that was spent.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from apas._typing import Floats, Indices
from apas.models.feedforward import FeedForward
from apas.models.forward import activation_range, lowest
from apas.shifts.base import Ball, Ellipsoid, Region, Sparse, largest_entries
from apas.worst_case.ball import Balls, BallSlopes, is_exact_ball, margins_against
from apas.worst_case.intervals import Boxes, is_exact, output_signs, rivals

#: Behind several hidden layers up to so many moves are shared by all layers; of more, each layer has them all.
SHARED = 8
PRODUCTS = 1 << 19  # how many products are held at a time
#: By what share the radius of an ellipsoid is lowered until its bound, rounding included, is above 0.
CUTS = (2.0**-40, 1e-9, 1e-6, 1e-3)
_Ends = Sequence[tuple[Floats, Floats]]  # per budget the ends of what enters a layer, (rows, inputs + 1) each


class SparseBoxes(Boxes):
    """Rows against growing sets of sparse shifts; exact with at most one hidden layer."""

    def __init__(self, net: FeedForward, X: Floats, wanted: Indices, sparse: Sparse) -> None:
        super().__init__(net, X, wanted, sparse.radii)
        self.region, self.count = sparse, min(sparse.count, int(np.count_nonzero(sparse.radii)))
        self.budgets = range(0 if is_exact(net) or self.count <= SHARED else self.count, self.count + 1)
        reach = [np.vstack(pair) for pair in zip(self.reach[::2], self.reach[1::2], strict=True)]
        self.layers = [np.vstack(pair)[None] for pair in zip(net.weights, net.biases, strict=True)]
        self.reaches, self.rivals, self.heads = [r[None] for r in reach], rivals(net, wanted), []
        for (v, _, bias, _), rival in zip(self.outputs, self.rivals.T, strict=True):
            # a difference of scores has two parameters per term: the one of larger reach moves first, then both do
            both = [reach[-1][:, wanted].T, reach[-1][:, rival].T] if len(net.biases[-1]) > 1 else [reach[-1].T]
            stages = [np.maximum.reduce(both), sum(both)][: len(both)]
            self.heads.append((_with_one(v, bias), [np.broadcast_to(s, (len(X), len(reach[-1]))) for s in stages]))
        if self.count == 1:  # one of the two biases, not both
            stated = zip(self.outputs, self.heads, strict=True)
            self.outputs = [(*terms[:3], stages[0][:, -1]) for terms, (_, stages) in stated]

    def error(self, delta: Floats) -> Floats:
        """What rounding can add to `bound` at most."""
        # differences of products, and up to two of them per term of a sum: four times what the sums of a box need
        return np.asarray(4 * super().error(delta))

    def _bound(self, delta: Floats) -> Floats:
        return np.asarray(self._leasts(delta).min(axis=0))

    def _leasts(self, delta: Floats) -> Floats:
        least, last = np.empty((len(self.heads), len(self.X))), len(self.net.activations)
        step = max(1, PRODUCTS // (max(w.size for w in self.layers) * (2 + min(self.count, 16))))
        for start in range(0, len(self.X), step):
            rows = slice(start, start + step)
            ends = self._entering(delta[rows], rows)
            for i in range(len(self.heads)):
                least[i, rows] = self._sums(last, ends, *self._head(i, rows, delta))[-1][:, 0]
        return least

    def _head(self, rival: int, rows: slice, delta: Floats) -> tuple[Floats, list[Floats]]:
        """Weights of the margin against a rival, (rows, inputs + 1, 1), and how far they move by stages."""
        w, stages = self.heads[rival]
        return w[rows, :, None], [delta[rows, None, None] * stage[rows, :, None] for stage in stages]

    def _entering(self, delta: Floats, rows: slice) -> _Ends:
        """Ends of what enters the output layer."""
        ends: _Ends = [(_with_one(self.X[rows]),) * 2]
        for i, name in enumerate(self.net.activations):
            w, reach = self.layers[i], [delta[:, None, None] * self.reaches[i]]
            lows, highs = self._sums(i, ends, w, reach), self._sums(i, ends, -w, reach)  # these turned round
            ranges = (activation_range(name, low, -high) for low, high in zip(lows, highs, strict=True))
            ends = [(_with_one(low), _with_one(high)) for low, high in ranges]
        return ends

    def _sums(self, layer: int, ends: _Ends, w: Floats, reaches: list[Floats]) -> list[Floats]:
        """Per budget the least sums that enter a layer's units, (rows, units)."""
        if layer == 1 and self.budgets[0] == 0:
            *_, divided = _divided(self._terms(ends, w, reaches), self.count)
            return list(divided)
        found: list[Floats] = [np.full((), np.inf)] * len(self.budgets)
        for spent, pair in enumerate(ends):
            stages = [_least(*pair, w, reach) for reach in (np.zeros(()), *reaches)]
            falls = np.sort(np.concatenate([after - before for before, after in pairwise(stages)], axis=1), axis=1)
            sums = np.concatenate([stages[0].sum(axis=1, keepdims=True), falls[:, : self.count]], axis=1).cumsum(axis=1)
            for i, budget in enumerate(self.budgets):
                if budget >= spent:
                    found[i] = np.minimum(found[i], sums[:, min(budget - spent, sums.shape[1] - 1)])
        return found

    def _terms(self, ends: _Ends, w: Floats, reaches: list[Floats]) -> list[Floats]:
        """Least terms of sums over the first layer, (rows, inputs + 1, units), per budget, as long as it matters."""
        stages, most = [np.zeros(()), *reaches], min(self.count, self.layers[0].shape[1] + len(reaches))
        own = [[_least(*ends[m - q], w, reach) for q, reach in enumerate(stages[: m + 1])] for m in range(most + 1)]
        return [np.minimum.reduce(choices) for choices in own]

    def worst(self, delta: Floats) -> Floats | None:
        """Per row a shift of delta 1 whose margin at `delta` is the bound; None if it is not known."""
        net = self.net
        if not is_exact(net) or (net.activations and lowest(net.activations[0]) is not None):
            return None
        rival = self._leasts(delta).argmin(axis=0)
        signs = output_signs(net, self.wanted, self.rivals[np.arange(len(rival)), rival])
        if not net.activations:
            slopes = (_with_one(self.X)[:, :, None] * signs[:, None, :]).reshape(len(rival), -1)
            return np.asarray(self.region.steepest(slopes))
        return np.stack([self._worst(i, int(rival[i]), signs[i], delta) for i in range(len(rival))])

    def _worst(self, row: int, rival: int, signs: Floats, delta: Floats) -> Floats:
        """The same for one row, by going back through the division of the moves among the units."""
        one, left = slice(row, row + 1), self.count
        ends, (w, reaches) = self._entering(delta[one], one), self._head(rival, one, delta)
        terms, x = self._terms(ends, w, reaches), _with_one(self.X[one])[0]
        tables, stages = list(_divided(terms, left)), [np.zeros_like(w), *reaches]
        hidden, output = (np.zeros_like(reach[0]) for reach in self.reaches)
        for k in reversed(range(len(output))):
            totals = [tables[k][left - j][0, 0] + terms[j][0, k, 0] for j in range(min(left + 1, len(terms)))]
            spent = int(np.argmin(totals))
            left -= spent
            choices = [
                (a * w[0, k, 0] - abs(a) * reach[0, k, 0], q, side, a)
                for q, reach in enumerate(stages[: spent + 1])
                for side, a in ((-1.0, ends[spent - q][0][0, k]), (1.0, ends[spent - q][1][0, k]))
            ]
            _, own, side, a = min(choices)
            moved = largest_entries(self.reaches[1][0, k] * np.abs(signs), own)
            output[k, moved] = (-np.sign(a) * signs * self.reaches[1][0, k])[moved]
            if k < hidden.shape[1]:  # the last input of the output layer is the 1 of its bias
                moved = largest_entries(np.abs(x) * self.reaches[0][0, :, k], spent - own)
                hidden[moved, k] = (side * np.sign(x) * self.reaches[0][0, :, k])[moved]
        return np.concatenate([hidden.ravel(), output.ravel()])


def _with_one(a: Floats, last: Floats | float = 1.0) -> Floats:
    """Numbers (rows, inputs) with the input of the bias behind them."""
    return np.concatenate([a, np.broadcast_to(last, (len(a),))[:, None]], axis=1)


def _least(low: Floats, high: Floats, w: Floats, reach: Floats) -> Floats:
    """Least products of inputs and moving weights, (rows, inputs, units): concave in the input, so at an end of it."""
    a, b = low[:, :, None], high[:, :, None]
    return np.asarray(np.minimum(a * w - np.abs(a) * reach, b * w - np.abs(b) * reach))


def _divided(terms: list[Floats], count: int) -> Iterator[Floats]:
    """Per budget up to `count` the least sum of the first 0, 1, ... terms with budgets that add up to it."""
    table = np.zeros((count + 1, len(terms[0]), terms[0].shape[2]))
    yield table
    for k in range(terms[0].shape[1]):
        after = table + terms[0][:, k]
        for spent in range(1, min(len(terms) - 1, count) + 1):
            np.minimum(after[spent:], table[:-spent] + terms[spent][:, k], out=after[spent:])
        table = after
        yield table


class Ellipsoids(Boxes):
    """Rows against growing ellipsoids: ``f - delta |L'g|`` if only the output layer moves, else what a box allows."""

    step = "ellipsoid"

    def __init__(self, net: FeedForward, X: Floats, wanted: Indices, region: Ellipsoid) -> None:
        super().__init__(net, X, wanted, region.radii)
        self.region, self.exact = region, is_exact_ball(net, region.radii)

    @cached_property
    def terms(self) -> tuple[Floats, Floats, Floats]:
        """Margins, how fast they fall with delta, (rivals, rows) each, and their gradients (rivals, rows, k)."""
        against = margins_against(self.net, self.X, self.wanted, (self.radii > 0).astype(np.float64))
        starts = np.stack([BallSlopes(margin, 2.0).at(np.zeros(len(self.X)))[0] for margin in against])
        gradients = np.stack([margin.output_gradients() for margin in against])
        return starts, np.linalg.norm(gradients @ self.region.root, axis=-1), gradients

    def error(self, delta: Floats) -> Floats:
        """What rounding can add to a bound at most."""
        # the sums of a box are of the same numbers, and a norm of n terms is off by n rounding errors of a sum of them
        return np.asarray(4 * self.net.weights[-1].shape[1] * super().error(delta))

    def _bound(self, delta: Floats) -> Floats:
        if not self.exact:
            return super()._bound(delta)
        starts, slopes, _ = self.terms
        return np.asarray((starts - delta * slopes).min(axis=0))

    def radius(self, limit: float) -> tuple[Floats, Floats]:
        """Per row the largest delta up to `limit` at which every shift is proved to keep the class; none is open."""
        nothing = np.full(len(self.X), np.inf)
        if not self.exact:
            return Boxes(self.net, self.X, self.wanted, self.radii).radius(limit)[0], nothing
        starts, slopes, _ = self.terms
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.minimum(np.where(starts > 0, starts / slopes, 0.0).min(axis=0), limit)
        proved = np.zeros(len(self.X))
        for lower in (*(top * (1 - cut) for cut in reversed(CUTS)), np.full(len(self.X), limit)):
            proved = np.where(self.bound(lower) - self.error(lower) > 0, lower, proved)
        return proved, nothing

    def worst(self, delta: Floats) -> Floats | None:
        """Per row a shift of delta 1 with the least margin; None where it is not known."""
        if not self.exact:
            return None
        starts, slopes, gradients = self.terms
        steepest = gradients[(starts - delta * slopes).argmin(axis=0), np.arange(len(self.X))]
        return np.asarray(self.region.steepest(steepest))


def margins_in(net: FeedForward, X: Floats, wanted: Indices, region: Region) -> Boxes | Balls:
    """Bounds on the margins of rows over growing regions of parameters."""
    if isinstance(region, Ball):
        return Balls(net, X, wanted, region.radii, region.hull)
    if isinstance(region, Ellipsoid):
        return Ellipsoids(net, X, wanted, region)
    return SparseBoxes(net, X, wanted, region) if isinstance(region, Sparse) else Boxes(net, X, wanted, region.radii)
