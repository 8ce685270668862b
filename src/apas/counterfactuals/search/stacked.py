"""The models that a search looks at, side by side: networks of one form share a product per layer.

Nothing here certifies: the arithmetic may be float32. Two memory layouts, as in `apas.models.forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from apas._random import Stream
from apas._typing import Floats, Indices
from apas.certification.failing_draws import block_size
from apas.certification.question import Question
from apas.models.base import class_indices
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, margins_from_scores
from apas.worst_case.regions import AffineBox, DrawnNetworks

CACHED = 1 << 16  # so many activations of a layer are held at a time: they should stay in the processor's cache
#: From this many numbers on, networks are kept in float32: half the memory, and twice as fast.
LARGE = 1_000_000


class SideBySide(Protocol):
    """Models that a search asks about the same points."""

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row, as numbers per cell, on every model, shape (models, points)."""

    def take(self, places: Indices, dtype: Any = None) -> SideBySide:
        """Some of the models, in another arithmetic if one is named."""


class NetworkStack:
    """Networks of the form of one: the same layers, activations and classes, with parameters of their own."""

    def __init__(self, net: FeedForward, layers: list[Floats]) -> None:
        self.net, self._layers, self._last = net, layers, len(net.weights) <= 2
        self._widest = max(w.shape[1] for w in net.weights)

    @classmethod
    def of(cls, net: FeedForward, blocks: Iterable[Floats], count: int) -> NetworkStack:
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

    def take(self, places: Indices, dtype: Any = None) -> NetworkStack:
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
class StackedNetworks:
    """Networks that all read rows alike, of which `encoded` makes what they read."""

    stack: NetworkStack
    encoded: Callable[[Floats], Floats]

    def margins(self, points: Floats, target: Any) -> Floats:
        """Margins of points of one row, as numbers per cell, on every network, shape (networks, points)."""
        wanted = int(class_indices(self.stack.net.classes, target, 1)[0])
        return self.stack.margins(self.encoded(points), wanted)

    def take(self, places: Indices, dtype: Any = None) -> StackedNetworks:
        """Some of the networks, in another arithmetic if one is named."""
        return replace(self, stack=self.stack.take(places, dtype))


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

    def take(self, places: Indices, dtype: Any = None) -> DrawnModels:
        """Some of the models, drawn for good."""
        blocks, begin, found = self._blocks(self.question(np.empty(0), None)), 0, []
        for block in blocks:
            inside = places[(places >= begin) & (places < begin + len(block))]
            found.append(block[np.sort(inside) - begin])
            begin += len(block)
        return replace(self, samples=len(places), directions=np.concatenate(found))

    def _blocks(self, question: Question) -> Iterator[Floats]:
        step = block_size(question)
        for start in range(0, self.samples, step):
            stop = min(start + step, self.samples)
            if self.directions is not None:
                yield self.directions[start:stop]
            else:
                yield question.directions(self.stream, start, stop).copy()
