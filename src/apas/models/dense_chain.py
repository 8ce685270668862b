"""Dense networks in which what moves stands beside numbers that do not: how worst-case methods see a model.

A *chain* is a `FeedForward` each of whose parameters is a coordinate of what moves, with its sign, or a fixed number. A
model that is no plain chain of layers becomes one: a residual addition carries its summand through the layers beside it
as units with weight 1, a batch norm is a layer with a diagonal of weights. A row that moves is one more layer, at the
beginning, whose weights are those of the identity and whose biases move. Entries are copied and never computed with, so
that the chain of shifted coordinates is exactly the shifted model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from apas._typing import Floats, Indices
from apas.models.base import Chained, Dense, offers
from apas.models.feedforward import FeedForward
from apas.models.forward import shape_of


class ChainNetwork(FeedForward):
    """A dense network whose activations may have settings, and be others from unit to unit (`apas.models.forward`)."""

    @staticmethod
    def _check_activations(activation: Any, hidden: int) -> tuple[str, ...]:
        return (activation,) * hidden if isinstance(activation, str) else tuple(activation)


@dataclass(frozen=True, eq=False)
class DenseChain:
    """A dense network, and which coordinate each of its parameters is.

    Parameters
    ----------
    network : FeedForward
    source : ndarray of int, shape (parameters,)
        Number of the coordinate, or -1 for a parameter that does not move.
    sign : ndarray of shape (parameters,)
        1 or -1: the parameter is the coordinate or its negative; 0 for one that does not move.
    tied : str
        What coordinates are used more than once, in words; empty if none is. As a box the chain then has more shifts
        than the model: what is proved of all of them is proved, but they are not all there.
    """

    network: FeedForward
    source: Indices
    sign: Floats
    tied: str = ""

    @classmethod
    def of(cls, network: FeedForward) -> DenseChain:
        """A network whose parameters are the coordinates."""
        return cls(network, np.arange(len(network.parameters)), np.ones(len(network.parameters)))

    @cached_property
    def _moving(self) -> Indices:
        return np.flatnonzero(self.source >= 0)

    def lift(self, moves: Floats) -> Floats:
        """Moves of the coordinates (..., n) as moves of the network's parameters, in the same memory order."""
        rows = moves.shape[:-1]
        fortran = moves.ndim == 2 and moves.flags.f_contiguous and not moves.flags.c_contiguous
        lifted = np.zeros((*rows, len(self.source)), order="F" if fortran else "C")
        where = self._moving
        lifted[..., where] = moves[..., self.source[where]] * self.sign[where]
        return lifted

    def reach(self, radii: Floats) -> Floats:
        """How far each parameter of the network moves if the coordinates move by so much."""
        return np.abs(self.lift(radii))

    def lower(self, lifted: Floats, base: Floats) -> Floats:
        """The coordinates of parameters, or of moves, `lifted` (..., parameters); where it has several, their mean.

        Coordinates that no parameter stands for are those of `base`.
        """
        where, found = self._moving, np.zeros((len(base), *lifted.shape[:-1]))
        count = np.bincount(self.source[where], minlength=len(base))
        np.add.at(found, self.source[where], (lifted[..., where] * self.sign[where]).T)
        found = found.T
        return np.where(count > 0, found / np.maximum(count, 1), base)

    def at(self, values: Floats) -> Floats:
        """The network's parameters where the coordinates have such values."""
        where, found = self._moving, np.array(self.network.parameters.values)
        found[where] = values[self.source[where]] * self.sign[where]
        return found

    def with_moving_row(self, first: int, *, alone: bool) -> DenseChain:
        """The same behind a row whose features are the coordinates from `first` on; `alone` if nothing else moves."""
        net, count = self.network, self.network.n_features
        names = ("output", "threshold", "classes", "feature_names", "dtype")
        said: dict[str, Any] = {name: getattr(net, name) for name in names}
        layers = [np.eye(count), *net.weights], [np.zeros(count), *net.given_biases]
        network = ChainNetwork(*layers, activation=("identity", *net.activations), **said)
        still, moving = np.full(count * count, -1), np.arange(first, first + count)
        source, sign = (np.full_like(self.source, -1), np.zeros_like(self.sign)) if alone else (self.source, self.sign)
        sources, signs = [still, moving, source], [np.zeros(count * count), np.ones(count), sign]
        return DenseChain(network, np.concatenate(sources), np.concatenate(signs), "" if alone else self.tied)


@dataclass(frozen=True, eq=False)
class Entries:
    """An array of numbers, each a coordinate or its negative, or fixed; as in `DenseChain`."""

    values: Floats
    source: Indices
    sign: Floats

    @classmethod
    def fixed(cls, values: Any) -> Entries:
        """Numbers that do not move."""
        array = np.asarray(values, dtype=np.float64)
        return cls(array, np.full(array.shape, -1), np.zeros(array.shape))

    @classmethod
    def moving(cls, values: Any, first: int) -> Entries:
        """The coordinates from `first` on, in C order."""
        array = np.asarray(values, dtype=np.float64)
        return cls(array, first + np.arange(array.size).reshape(array.shape), np.ones(array.shape))

    def mapped(self, function: Any) -> Entries:
        """The same in another arrangement."""
        return Entries(*(function(part) for part in (self.values, self.source, self.sign)))

    def diagonal(self) -> Entries:
        """A matrix with the numbers on its diagonal, and zeros that do not move."""
        place = np.eye(len(self.values), dtype=bool)
        source = np.where(place, self.source[None, :], -1)
        return Entries(np.diag(self.values), source, np.where(place, self.sign[None, :], 0.0))

    @property
    def is_identity(self) -> bool:
        """Whether it is the identity, and does not move."""
        square = self.values.shape[0] == self.values.shape[-1] and self.values.ndim == 2
        return square and bool((self.source < 0).all()) and np.array_equal(self.values, np.eye(len(self.values)))


@dataclass
class _Node:
    """``activation(sum of value @ weights + bias)``; no terms for the input."""

    width: int
    terms: list[tuple[int, Entries]]
    bias: Entries | None = None
    activation: str = "identity"


class ChainBuilder:
    """Takes the operations of a model one by one, and makes a chain of them; values are known by their numbers."""

    def __init__(self, n_features: int) -> None:
        self.nodes = [_Node(n_features, [])]

    def width(self, value: int) -> int:
        """How many numbers a value has."""
        return self.nodes[value].width

    def affine(self, value: int, weights: Entries, bias: Entries | None = None) -> int:
        """A layer: the weights are (inputs, outputs)."""
        self.nodes.append(_Node(weights.values.shape[1], [(value, weights)], bias))
        return len(self.nodes) - 1

    def scale(self, value: int, factors: Entries, bias: Entries | None = None) -> int:
        """Each number times a factor of its own."""
        return self.affine(value, factors.diagonal(), bias)

    def add(self, *values: int) -> int:
        """The sum of values."""
        same = Entries.fixed(np.eye(self.width(values[0])))
        self.nodes.append(_Node(self.width(values[0]), [(value, same) for value in values]))
        return len(self.nodes) - 1

    def activate(self, value: int, name: str) -> int:
        """An activation; of a leaky relu whose slope is none between 0 and 1, by its two halves."""
        if name.startswith("leaky_relu(") and not 0 <= shape_of(name)[1][0] <= 1:
            return self.slopes(value, Entries.fixed(np.full(self.width(value), shape_of(name)[1][0])))
        self.nodes.append(_Node(self.width(value), [(value, Entries.fixed(np.eye(self.width(value))))], None, name))
        return len(self.nodes) - 1

    def slopes(self, value: int, slopes: Entries) -> int:
        """A PReLU: ``max(z, 0) - slope * max(-z, 0)``, with slopes that may move."""
        count = self.width(value)
        halves = self.activate(self.affine(value, Entries.fixed(np.hstack([np.eye(count), -np.eye(count)]))), "relu")
        negative = Entries(-slopes.values, slopes.source, -slopes.sign).diagonal()
        parts = zip(vars(Entries.fixed(np.eye(count))).values(), vars(negative).values(), strict=True)
        return self.affine(halves, Entries(*(np.vstack(pair) for pair in parts)))

    def finish(self, last: int, tied: str = "", **options: Any) -> DenseChain | None:
        """The chain up to a value, with the options of `FeedForward`; None if it does not end in a layer."""
        self._fuse(last)
        needed, users = self._users(last)
        if self.nodes[last].activation != "identity" or not self.nodes[last].terms:
            return None
        level = {0: 0}
        for value in needed[1:]:
            level[value] = 1 + max(level[v] for v, _ in self.nodes[value].terms)
        depth, before, layers = level[last], [0], list[tuple[Entries, Entries, str]]()
        for i in range(1, depth + 1):
            # what is computed here, and what is carried past this layer to one above
            kept = [v for v in needed if level[v] < i < max((level[u] for u in users[v]), default=0)]
            units = [v for v in needed if level[v] == i] + kept
            layers.append(self._layer(before, units, [v not in kept for v in units]))
            before = units
        weights, biases, names = zip(*layers, strict=True)
        arrays = [entries for pair in zip(weights, biases, strict=True) for entries in pair]
        source, sign = (np.concatenate([getattr(e, part).ravel() for e in arrays]) for part in ("source", "sign"))
        told: list[Any] = [[e.values for e in weights], [e.values for e in biases]]
        return DenseChain(ChainNetwork(*told, activation=names[:-1], **options), source, sign, tied)

    def _users(self, output: int) -> tuple[list[int], dict[int, list[int]]]:
        """The values that an output needs, in order, and which of them use each."""
        users: dict[int, list[int]] = {output: []}
        for value in range(output, -1, -1):
            for v, _ in self.nodes[value].terms if value in users else ():
                users.setdefault(v, []).append(value)
        return sorted(users), users

    def _fuse(self, output: int) -> None:
        """Take layers into the activations and sums behind them, where nothing else needs them."""
        for value, node in enumerate(self.nodes):
            _, users = self._users(output)
            terms = []
            for v, weights in node.terms:
                inner = self.nodes[v]
                alone = len(users.get(v, ())) == 1 and inner.terms and inner.activation == "identity"
                if value in users and alone and weights.is_identity and None in (node.bias, inner.bias):
                    terms += inner.terms
                    node.bias = node.bias or inner.bias
                else:
                    terms.append((v, weights))
            node.terms = terms

    def _layer(self, before: list[int], units: list[int], computed: list[bool]) -> tuple[Entries, Entries, str]:
        """Weights, biases and activation of a layer between the values below it and its own."""
        starts = dict(zip(before, np.cumsum([0, *map(self.width, before)]).tolist(), strict=False))
        count, blocks, biases, names = sum(map(self.width, before)), list[Entries](), list[Entries](), list[str]()
        for value, own in zip(units, computed, strict=True):
            node, width = self.nodes[value], self.width(value)
            block = Entries.fixed(np.zeros((count, width)))
            for v, weights in node.terms if own else [(value, Entries.fixed(np.eye(width)))]:
                rows = slice(starts[v], starts[v] + self.width(v))
                for into, part in zip(vars(block).values(), vars(weights).values(), strict=True):
                    if into is block.values and into[rows].any():  # a value that is added to itself
                        part = part + into[rows]
                    into[rows] = part
            blocks.append(block)
            biases.append(node.bias if own and node.bias is not None else Entries.fixed(np.zeros(width)))
            names.append(f"{node.activation if own else 'identity'}*{width}")
        kinds = {name.rpartition("*")[0] for name in names}
        joined = [zip(*(vars(e).values() for e in some), strict=True) for some in (blocks, biases)]
        weights, bias = (Entries(*(np.concatenate(column, axis=-1) for column in columns)) for columns in joined)
        return weights, bias, kinds.pop() if len(kinds) == 1 else "+".join(names)


def dense_chain(model: object) -> DenseChain | None:
    """The chain whose coordinates are the parameters of a model; None if it is no dense network."""
    if offers(model, Chained):
        return model.dense_chain()
    if not offers(model, Dense):
        return None
    network = model.as_feedforward()
    theta = getattr(model, "parameters", network.parameters)
    same = network.parameters.shapes == theta.shapes and np.array_equal(network.parameters.values, theta.values)
    return DenseChain.of(network) if same else None
