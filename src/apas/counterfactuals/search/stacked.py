"""The models that a search looks at, side by side: those that are networks of one form share a product per layer.

A search asks about hundreds of points on hundreds of networks, a few at a time. To go from network to network, or to
draw them again, takes far longer than the arithmetic; so their parameters are written down once, layer by layer. The
arithmetic may be float32, and sums may come in another order than in the model: nothing that is seen here certifies
anything.

Two memory layouts, as in `apas.models.forward`: with one hidden layer at most, networks come last, so that every
operation runs along them; with more layers they come before the units, and each layer is a product per network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas.certification.methods.sampling import block_size
from apas.certification.question import Question
from apas.models.base import class_indices
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, margins_from_scores

CACHED = 1 << 16  # so many activations of a layer are held at a time: they should stay in the processor's cache
#: From this many numbers on, networks are kept in float32: half the memory, and twice as fast.
LARGE = 1_000_000


class SideBySide(Protocol):
    """Models that a search asks about the same points."""

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row, as numbers per cell, on every model, shape (models, points)."""

    def take(self, places: Indices | Bools, dtype: Any = None) -> SideBySide:
        """Some of the models, in another arithmetic if one is named."""


class NetworkStack:
    """Networks of the form of one: the same layers, activations and classes, with parameters of their own."""

    def __init__(self, net: FeedForward, layers: list[Floats]) -> None:
        self.net, self._layers, self._last = net, layers, len(net.weights) <= 2
        self._widest = max(w.shape[1] for w in net.weights)

    @classmethod
    def of(cls, net: FeedForward, blocks: Iterable[Floats], count: int, dtype: Any = np.float64) -> NetworkStack:
        """So many networks, of which each block holds some: a vector of parameters per network."""
        last, layers = len(net.weights) <= 2, []
        for i, w in enumerate(net.weights):
            rows, units = w.shape[0] + 1, w.shape[1]  # the bias is the weight of an input that is always 1
            shape = (rows, units, count) if last else (rows, count, units) if not i else (count, rows, units)
            layers.append(np.empty(shape, dtype))
        begin, slices = 0, net.parameters.slices
        for block in blocks:
            end = begin + len(block)
            for i, layer in enumerate(layers):
                part = block[:, slices[2 * i].start : slices[2 * i + 1].stop].reshape(len(block), *_form(net, i))
                if last:
                    layer[:, :, begin:end] = part.transpose(1, 2, 0)
                elif not i:
                    layer[:, begin:end] = part.transpose(1, 0, 2)
                else:
                    layer[begin:end] = part
            begin = end
        return cls(net, layers)

    @classmethod
    def behind(cls, nets: Sequence[FeedForward]) -> NetworkStack:
        """What is behind the first layers of networks, which may read different columns: for `margins_after` alone."""
        layers = [np.empty((0, 0, len(nets)))]
        for i in range(1, len(nets[0].weights)):
            stack = np.stack([np.vstack([n.weights[i], n.biases[i]]) for n in nets])
            layers.append(stack.transpose(1, 2, 0).copy() if len(nets[0].weights) <= 2 else stack)
        return cls(nets[0], layers)

    def __len__(self) -> int:
        return int(self._layers[0].shape[2 if self._last else 1])

    def take(self, places: Indices | Bools, dtype: Any = None) -> NetworkStack:
        """Some of the networks, in another arithmetic if one is named."""
        first = self._layers[0][:, :, places] if self._last else self._layers[0][:, places]
        rest = [layer[:, :, places] if self._last else layer[places] for layer in self._layers[1:]]
        return NetworkStack(self.net, [np.asarray(layer, dtype) for layer in (first, *rest)])

    def margins(self, X: Floats, wanted: int) -> Floats:
        """Margins of rows in model units towards class number `wanted`, shape (networks, rows)."""
        first = self._layers[0]
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


def _form(net: FeedForward, i: int) -> tuple[int, int]:
    rows, units = net.weights[i].shape
    return rows + 1, units


@dataclass(frozen=True)
class StackedNetworks:
    """Networks that all read rows alike, kept or, without a stack, written down again whenever they are asked.

    Attributes
    ----------
    net : FeedForward
        Of whose form they are.
    count : int
    blocks : callable
        Gives their vectors of parameters, some at a time.
    encoded : callable
        Turns numbers per cell into what the networks read.
    stack : NetworkStack or None
    """

    net: FeedForward
    count: int
    blocks: Callable[[], Iterable[Floats]]
    encoded: Callable[[Floats], Floats]
    stack: NetworkStack | None = None

    @property
    def dtype(self) -> Any:
        """In what the networks are computed: it must not depend on whether they are kept."""
        return np.float32 if self.count * len(self.net.parameters) > LARGE else np.float64

    def kept(self) -> StackedNetworks:
        """The same, written down for good."""
        return replace(self, stack=NetworkStack.of(self.net, self.blocks(), self.count, self.dtype))

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row, as numbers per cell, on every network, shape (networks, points)."""
        X, wanted = self.encoded(points), int(class_indices(self.net.classes, target, 1)[0])
        if self.stack is not None:
            return self.stack.margins(X, wanted)
        stacks = (NetworkStack.of(self.net, [block], len(block), self.dtype) for block in self.blocks())
        return np.concatenate([stack.margins(X, wanted) for stack in stacks])

    def take(self, places: Indices | Bools, dtype: Any = None) -> StackedNetworks:
        """Some of the networks, in another arithmetic if one is named."""
        some = np.zeros(self.count, dtype=bool)
        some[places] = True
        if self.stack is not None:
            return replace(self, count=int(some.sum()), stack=self.stack.take(some, dtype))
        parts, begin = [], 0
        for block in self.blocks():
            parts.append(block[some[begin : begin + len(block)]])
            begin += len(block)
        stack = NetworkStack.of(self.net, parts, int(some.sum()), dtype or self.dtype)
        return replace(self, count=int(some.sum()), stack=stack)


@dataclass(frozen=True)
class DrawnModels:
    """Shifted models of any kind, asked as `certify` would.

    Attributes
    ----------
    question : callable
        The question about points, given as numbers per cell, and a class.
    samples : int
    stream : Stream
        Where they are drawn from.
    directions : list of ndarray or None
        Their directions, some at a time; None if they are drawn again whenever they are asked.
    """

    question: Callable[[Floats, Any], Question]
    samples: int
    stream: Stream
    directions: Sequence[Floats] | None = None

    def kept(self, numbers: int) -> DrawnModels:
        """The same, drawn for good if that takes no more than so many numbers."""
        nobody = self.question(np.empty(0), None)
        fits = self.samples * len(nobody.coordinates) <= numbers
        return replace(self, directions=list(self._blocks(nobody))) if fits else self

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins on all of them less what may be owed to rounding, shape (models, points)."""
        question = self.question(points, target)
        return np.concatenate([question.margins(block) for block in self._blocks(question)]) - question.band

    def take(self, places: Indices | Bools, dtype: Any = None) -> DrawnModels:
        """Some of the models."""
        some, begin, found = np.zeros(self.samples, dtype=bool), 0, []
        some[places] = True
        for block in self._blocks(self.question(np.empty(0), None)):
            found.append(block[some[begin : begin + len(block)]])
            begin += len(block)
        return replace(self, samples=int(some.sum()), directions=[np.concatenate(found)])

    def _blocks(self, question: Question) -> Iterable[Floats]:
        return self._drawn(question) if self.directions is None else self.directions

    def _drawn(self, question: Question) -> Iterator[Floats]:
        step = block_size(question)
        for start in range(0, self.samples, step):
            yield question.directions(self.stream, start, min(start + step, self.samples)).copy()
