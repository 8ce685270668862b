"""The models that a search looks at, side by side: networks of one form share a product per layer.

Listed models are cut in two parts, to search with and to certify on. Nothing here certifies: the arithmetic may be
float32, and rows are read as sums over features, while the test encodes them as each model itself does. Two memory
layouts, as in `apas.models.forward`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas.certification.claims import Most
from apas.certification.failing_draws import block_size
from apas.certification.question import Draws, LeastDraws, Question
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.space.encoder import CodedModel, Piece, Pieces, pieces_of
from apas.errors import ApasError, InputError, Unsupported
from apas.models.base import Capability, Dense, Model, Raw, class_indices, offers
from apas.models.digest import model_digest
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, margins_from_scores
from apas.shifts.base import Listed, ShiftSet, in_training_order
from apas.stats import sample_size
from apas.worst_case.regions import AffineBox, DrawnNetworks

CACHED = 1 << 16  # so many activations of a layer are held at a time: they should stay in the processor's cache
#: From this many numbers on, networks are kept in float32: half the memory, and twice as fast.
LARGE = 1_000_000


Encoded = Callable[[Floats], Floats]  # makes of points, as numbers per cell, what models read


class SideBySide(Protocol):
    """Models that a search asks about the same points."""

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row, as numbers per cell, on every model, shape (models, points)."""

    def take(self, places: Indices, dtype: Any = None) -> Self:
        """Some of the models, in another arithmetic if one is named."""


class NetworkStack:
    """Networks of the form of one: the same layers, activations and classes, with parameters of their own.

    All read rows alike: `encoded` makes of points what they read.
    """

    def __init__(self, net: FeedForward, layers: list[Floats], encoded: Encoded = np.asarray) -> None:
        self.net, self.encoded, self._layers, self._last = net, encoded, layers, len(net.weights) <= 2
        self._widest = max(w.shape[1] for w in net.weights)

    @classmethod
    def of(cls, net: FeedForward, blocks: Iterable[Floats], count: int, encoded: Encoded = np.asarray) -> Self:
        """So many networks, of which each block holds some: a vector of parameters per network."""
        last, layers, begin, slices = len(net.weights) <= 2, [], 0, net.parameters.slices
        dtype = np.float32 if count * len(net.parameters) > LARGE else np.float64
        forms = [(w.shape[0] + 1, w.shape[1]) for w in net.weights]  # the bias is the weight of an input that is 1
        for i, (rows, units) in enumerate(forms):
            shape = (rows, units, count) if last else (count, rows, units) if i else (rows, count, units)
            layers.append(np.empty(shape, dtype))
        for block in blocks:
            end = begin + len(block)
            for i, layer in enumerate(layers):
                part = block[:, slices[2 * i].start : slices[2 * i + 1].stop].reshape(len(block), *forms[i])
                if last:
                    layer[:, :, begin:end] = part.transpose(1, 2, 0)
                elif i:
                    layer[begin:end] = part
                else:
                    layer[:, begin:end] = part.transpose(1, 0, 2)
            begin = end
        return cls(net, layers, encoded)

    @classmethod
    def behind(cls, nets: Sequence[FeedForward]) -> Self:
        """What is behind the first layers of networks, which may read different columns: for `margins_after` alone."""
        layers = [np.empty((0, 0, len(nets)))]
        for i in range(1, len(nets[0].weights)):
            stack = np.stack([np.vstack([n.weights[i], n.biases[i]]) for n in nets])
            layers.append(stack.transpose(1, 2, 0).copy() if len(nets[0].weights) <= 2 else stack)
        return cls(nets[0], layers)

    def __len__(self) -> int:
        return int(self._layers[0].shape[2 if self._last else 1])

    def take(self, places: Indices, dtype: Any = None) -> Self:
        """Some of the networks, in another arithmetic if one is named."""
        first = self._layers[0][:, :, places] if self._last else self._layers[0][:, places]
        rest = [layer[:, :, places] if self._last else layer[places] for layer in self._layers[1:]]
        return type(self)(self.net, [np.asarray(layer, dtype) for layer in (first, *rest)], self.encoded)

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row, as numbers per cell, on every network, shape (networks, points)."""
        X, wanted, first = self.encoded(points), self.wanted(target), self._layers[0]
        rows, units = np.ones((len(X), X.shape[1] + 1), first.dtype), self.net.weights[0].shape[1]
        rows[:, :-1] = X
        count, found = len(self), np.empty((len(X), len(self)))
        flat, step = first.reshape(len(first), -1), max(1, CACHED // max(1, len(X) * self._widest))
        for a in range(0, count, step):
            some = slice(a, min(a + step, count))
            if self._last:  # a product per unit, for some of the networks
                z = np.matmul(rows, first[:, :, some].transpose(1, 0, 2)).transpose(1, 2, 0)
            else:
                z = (rows @ flat[:, a * units : some.stop * units]).reshape(len(X), -1, units)
            found[:, some] = self.margins_after(z, wanted, some)
        return found.T

    def wanted(self, target: Any) -> int:
        """The number of a class."""
        return int(class_indices(self.net.classes, target, 1)[0])

    def meeting(self, box: AffineBox) -> DrawnNetworks:
        """The networks as they meet a region of rows."""
        first = self._layers[0]
        rows = np.zeros((1 + len(box.ways), len(first)), first.dtype)
        rows[0, :-1], rows[0, -1], rows[1:, :-1] = box.corner, 1.0, box.ways
        z = (rows @ first.reshape(len(first), -1)).reshape(len(rows), *first.shape[1:])
        lines = z.transpose((2, 0, 1) if self._last else (1, 0, 2))
        rest = [layer.transpose(2, 0, 1) if self._last else layer for layer in self._layers[1:]]
        return DrawnNetworks(self.net, np.ascontiguousarray(lines), [(part[:, :-1], part[:, -1]) for part in rest])

    def margins_after(self, z: Floats, wanted: int, some: Any = slice(None)) -> Floats:
        """Margins (rows, networks) of pre-activations (rows, networks, units) of the first layer of some networks."""
        for i, layer in enumerate(self._layers[1:]):
            a = activate(self.net.activations[i], z)
            if self._last:
                part = layer[:, :, some]
                z = (np.einsum("ris,ios->ros", a.transpose(0, 2, 1), part[:-1]) + part[-1]).transpose(0, 2, 1)
            else:
                part = layer[some]
                z = a.transpose(1, 0, 2) @ part[:, :-1]
                z += part[:, -1:]
                z = z.transpose(1, 0, 2)
        return margins_from_scores(z, np.full(z.shape[1], wanted), self.net.offset)


@dataclass(frozen=True)
class DrawnModels:
    """Shifted models of any kind, asked as `certify` would; those without `directions` are drawn whenever asked."""

    question: Callable[[Floats, Any], Question]  # about points, as numbers per cell, and a class
    samples: int
    stream: Stream
    directions: Floats | None = None

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins on all of them less what may be owed to rounding, shape (models, points)."""
        question = self.question(points, target)
        return np.concatenate([question.margins(block) for block in self._blocks(question)]) - question.band

    def take(self, places: Indices, dtype: Any = None) -> Self:
        """Some of the models, drawn for good."""
        blocks, begin, found = self._blocks(self.question(np.empty(0), None)), 0, []
        for block in blocks:
            inside = places[(places >= begin) & (places < begin + len(block))]
            found.append(block[np.sort(inside) - begin])
            begin += len(block)
        return replace(self, samples=len(places), directions=np.concatenate(found))

    def _blocks(self, question: Question) -> Iterator[Floats]:
        kept, step = self.directions, block_size(question)
        for start in range(0, self.samples, step):
            stop = min(start + step, self.samples)
            yield question.directions(self.stream, start, stop).copy() if kept is None else kept[start:stop]


class Relistable(Capability, Protocol):
    """A listed set that can be made of other models: of a part of them, or of the same ones read in another way."""

    def with_models(self, models: Sequence[Any]) -> ShiftSet:
        """The same set of other models."""


class AsTheyAre(Capability, Protocol):
    """A listed set whose draw number i is, with delta 1, model number i as it is."""

    def margins_read(
        self, model: Model, rows: Callable[[int, Model], Floats], numbers: Sequence[int], count: int, target: Any
    ) -> Floats:
        """Margins of `count` rows on models of these numbers, each given what it reads, shape (numbers, count)."""


def relisted(shifts: Listed, models: Any) -> Any:
    """The same set of other models."""
    if not offers(shifts, Relistable):
        raise Unsupported(
            f"generate searches on some of the models of {type(shifts).__name__} and certifies on others, read in the "
            "units of the space, for which the set needs a method `with_models(models)`; add it, or use ObservedShifts."
        )
    return shifts.with_models(models)


def split_models(shifts: Listed, method: Draws, together: int, alone: Model | None = None) -> tuple[Any, Any]:
    """The models to search with (or `alone`), and the last ones, as many as a claim needs, to certify on."""
    models, name = shifts.models, type(shifts).__name__
    if in_training_order(shifts):
        raise Unsupported("generate searches on some models and certifies on others, so that it needs a list: retrain.")
    claim = Most(method.coverage, method.confidence, "", together)
    needed = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
    needed = method.least_draws(claim) if offers(method, LeastDraws) else needed
    certifying = method.n_samples or (needed if alone is None else max(needed, len(models)))
    if certifying < needed or len(models) < certifying + (alone is None):
        count = f"{'more than' if alone is None else 'at least'} {max(needed, certifying)}"
        few = "retrain more, or search on the model alone with source=apas.RobustOptimum(alone=True)"
        told = f"that many certify, and the search needs others; {few}" if alone is None else "retrain more"
        rows = f" for {together} rows together" * (together > 1)
        raise InputError(
            f"`models` of {name} must number {count} to generate with coverage {method.coverage} and confidence "
            f"{method.confidence}{rows}, got {len(models)}: {told}."
        )
    searched = models[:-certifying] if alone is None else [alone]
    parts = [relisted(shifts, part) for part in (searched, models[-certifying:])]
    known = [set(part.to_dict().get("models") or map(model_digest, part.models)) for part in parts]
    if both := len(known[0] & known[1]):
        raise InputError(
            f"`models` of {name} must differ, but {both} of those to certify on are among those to search: "
            "what a search has seen certifies nothing; retrain each with a seed of its own."
        )
    return parts[0], parts[1]


def models_together(shifts: ShiftSet, task: Task) -> SideBySide | None:
    """The listed models, asked together about points of a row; None if they must be asked one by one."""
    if not offers(shifts, Listed) or not offers(shifts, AsTheyAre):
        return None
    model, models = task.model, shifts.models
    reads_alike = not offers(model, Raw) or isinstance(model, CodedModel)
    if offers(model, Dense) and reads_alike:
        net, nets = model.as_feedforward(), [m.as_feedforward() for m in models if type(m) is type(model)]
        if len(nets) == len(models) and all(_alike(other, net) for other in nets):
            vectors = np.stack([other.parameters.values for other in nets])
            return NetworkStack.of(net, [vectors], len(nets), task.encoded)
    return AdditiveModels.of(shifts, task)


def quick_encoder(task: Task) -> Callable[[Floats], Floats]:
    """What encodes points of a row for a search: as the model does, up to rounding, and without its preprocessing."""
    if not offers(task.model, Raw) or isinstance(task.model, CodedModel):
        return task.encoded  # there is none
    if (pieces := _pieces(task)) is None:
        return task.encoded
    return task.once("additive", lambda: AdditiveEncoder(task, pieces.parts, pieces.inputs, task.encoded)).encoded


def quick_margins(search: Search, points: Floats) -> Floats:
    """Margins of points on the model itself, read in this way."""
    return search.task.model.margin(quick_encoder(search.task)(points), search.target)


def _pieces(task: Task) -> Pieces | None:
    """What each feature adds to the columns; None if the preprocessing bends or mixes features, or lacks a level."""
    try:
        pieces = pieces_of(task)
    except ApasError:
        return None
    return pieces if pieces.complaint is None else None


def _alike(one: FeedForward, other: FeedForward, first: int = 0) -> bool:
    """Whether two networks have the same form, from tensor number `first` on."""
    same = all(getattr(one, name) == getattr(other, name) for name in ("activations", "output", "threshold", "classes"))
    return same and one.parameters.shapes[first:] == other.parameters.shapes[first:]


PROBES = 9  # rows that tell whether features still enter a model by themselves where some cells are missing


class AdditiveEncoder:
    """What a row is to a model as a sum of what each feature adds; the inputs of the task are `whole` to it."""

    def __init__(
        self, task: Task, parts: Sequence[Piece | None], whole: Floats | None, slowly: Callable[[Floats], Floats]
    ) -> None:
        self._slowly, self._fixed = slowly, np.array([piece is None for piece in parts])
        self._levels = [(i, piece) for i, piece in enumerate(parts) if piece is not None and piece.line is None]
        width = next((piece.added.shape[1] for piece in parts if piece is not None), task.model.n_features)
        self._lines = np.zeros((len(parts), width))
        self._low, self._high = np.full(len(parts), -np.inf), np.full(len(parts), np.inf)
        for i, piece in enumerate(parts):
            if piece is not None and piece.line is not None:
                self._lines[i] = piece.line
                self._low[i], self._high[i] = piece.numbers[0], piece.numbers[-1]
        self._numbers = [np.empty(0) if piece is None else piece.numbers for piece in parts]
        self._rest: dict[bytes, Floats | None] = {}
        for row, sums in zip(() if task.inputs is None else task.inputs, () if whole is None else whole, strict=False):
            added = self._added(row[None], self._fixed)
            if added is not None:
                self._rest[row[self._fixed].tobytes() + self._fixed.tobytes()] = sums - added[0]

    def encoded(self, points: Floats) -> Floats:
        """Points in the units of the model, fast if they agree in what never changes, as all points of one row do."""
        holes = np.isnan(points)
        if (holes != holes[:1]).any():  # a missing cell is whatever the preprocessing makes of it, among its like
            found = np.empty((len(points), self._lines.shape[1]))
            kinds, which = np.unique(holes, axis=0, return_inverse=True)
            for kind in range(len(kinds)):
                found[which.ravel() == kind] = self.encoded(points[which.ravel() == kind])
            return found
        fixed = self._fixed | holes[0] if len(points) else self._fixed
        first = np.broadcast_to(points[:1, fixed], points[:, fixed].shape)
        added = self._added(points, fixed) if np.array_equal(points[:, fixed], first, equal_nan=True) else None
        if added is None:
            return self._slowly(points)
        key = points[0, fixed].tobytes() + fixed.tobytes()
        if key not in self._rest:
            rows = points[:1]
            if holes.any():  # an imputer may mix features where one is missing: rows of all their numbers tell
                draws, rows = np.random.default_rng(0), np.repeat(rows, PROBES, axis=0)
                for i in np.flatnonzero(~fixed):
                    rows[1:, i] = draws.choice(self._numbers[i], PROBES - 1)
            whole, sums = self._slowly(rows), self._added(rows, fixed)
            rest = whole[0] - added[0]
            self._rest[key] = None if sums is None or not np.allclose(sums + rest, whole, equal_nan=True) else rest
        known = self._rest[key]
        return self._slowly(points) if known is None else np.asarray(added + known)

    def _added(self, points: Floats, fixed: Bools) -> Floats | None:
        """What the features that are not `fixed` add; None if that of some number is not known."""
        if not ((points >= self._low) & (points <= self._high) | fixed).all():
            return None
        sums = np.where(fixed, 0.0, points) @ self._lines
        for i, piece in self._levels:
            if not fixed[i]:
                places = np.minimum(np.searchsorted(piece.numbers, points[:, i]), len(piece.numbers) - 1)
                if (piece.numbers[places] != points[:, i]).any():
                    return None
                sums += piece.added[places]
        return sums


@dataclass(frozen=True)
class AdditiveModels:
    """Models of a search whose encoders are all additive; networks of one form behind them are asked together."""

    shifts: AsTheyAre
    model: Model
    encoders: Sequence[AdditiveEncoder]
    numbers: Indices  # those that are asked
    first: AdditiveEncoder | None = None  # what a row is to the first layers of all of them, one behind the other
    behind: NetworkStack | None = None

    @classmethod
    def of(cls, shifts: Any, task: Task) -> Self | None:
        """The models, or None if one of them bends or mixes features, or does not know a level."""
        tasks = [replace(task, model=m, _kept={}) for m in shifts.models]
        # the first listed models are those of the search; they have read these rows with the inputs, if all could
        read: tuple[Floats, ...] = task.once("refits/read", tuple)
        for own, rows in zip(tasks, read, strict=False):
            own.once("pieces/encoded", partial(np.asarray, rows))
        pieces = [_pieces(own) for own in tasks]
        known = [p for p in pieces if p is not None]
        if len(known) < len(tasks):
            return None
        encoders = [AdditiveEncoder(own, p.parts, p.inputs, own.encoded) for own, p in zip(tasks, known, strict=True)]
        found = cls(shifts, task.model, encoders, np.arange(len(tasks)))
        nets = [m.as_feedforward() for m in shifts.models if offers(m, Dense)]
        if len(nets) < len(tasks) or not all(_alike(net, nets[0], first=1) for net in nets):
            return found
        weights = [net.weights[0] for net in nets]
        biases = np.concatenate([net.biases[0] for net in nets])
        whole = [p.inputs @ w for p, w in zip(known, weights, strict=True) if p.inputs is not None]

        def slowly(points: Floats) -> Floats:
            columns = [e.encoded(points) @ w for e, w in zip(encoders, weights, strict=True)]
            return np.asarray(np.hstack(columns) + biases)

        parts = [_joined([p.parts[i] for p in known], weights) for i in range(len(task.space))]
        first = AdditiveEncoder(task, parts, np.hstack(whole) + biases, slowly)
        return replace(found, first=first, behind=NetworkStack.behind(nets))

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row on every model, shape (models, points)."""
        if self.first is not None and self.behind is not None:
            units = self.behind.net.weights[0].shape[1]
            z = self.first.encoded(points).reshape(len(points), len(self.encoders), units)[:, self.numbers]
            return self.behind.margins_after(z, self.behind.wanted(target), self.numbers).T
        asked = self.numbers.tolist(), len(points), target
        return self.shifts.margins_read(self.model, lambda i, _: self.encoders[i].encoded(points), *asked)

    def take(self, places: Indices, dtype: Any = None) -> Self:
        """Some of the models."""
        return replace(self, numbers=self.numbers[places])


def _joined(pieces: Sequence[Piece | None], weights: Sequence[Floats]) -> Piece | None:
    """What a feature adds to the first layers of several networks, one behind the other."""
    through = [piece.through(w) for piece, w in zip(pieces, weights, strict=True) if piece is not None]
    if not through:
        return None
    lines = [piece.line for piece in through if piece.line is not None]
    line = np.concatenate(lines) if len(lines) == len(through) else None
    return Piece(through[0].numbers, np.hstack([piece.added for piece in through]), line)
