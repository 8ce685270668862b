"""Dense networks in which what moves stands beside numbers that do not: how worst-case methods see a model.

A *chain* is a `FeedForward` each of whose parameters is a coordinate of what moves, with its sign, or a fixed number: a
residual addition carries its summand through the layers beside it as units with weight 1, a batch norm is a layer with
a diagonal of weights, a row that moves a layer of the identity whose biases move. Entries are copied and never computed
with, so that the chain of shifted coordinates is exactly the shifted model.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np

from apas._typing import Floats, Indices
from apas.models.base import Chained, Dense, Gradients, Parameters, offers
from apas.models.digest import canonical
from apas.models.feedforward import FeedForward
from apas.models.forward import ACTIVATIONS, gradients

NUMBERS = 1 << 20  # how many numbers of lifted moves are held at a time


class NotDense(Exception):
    """What of a model has no place in a dense chain, in words."""


class ChainNetwork(FeedForward):
    """A dense network whose activations may have settings, and be others from unit to unit (`apas.models.forward`)."""

    @staticmethod
    def _check_activations(activation: Any, hidden: int) -> tuple[str, ...]:
        return (activation,) * hidden if isinstance(activation, str) else tuple(activation)


@dataclass(frozen=True, eq=False)
class DenseChain:
    """A dense network, and which of `count` coordinates each of its parameters is."""

    network: FeedForward
    #: Per parameter the number of the coordinate, or -1 for one that does not move, and its sign, then 0.
    source: Indices
    sign: Floats
    count: int
    #: What coordinates are used more than once, in words. As a box the chain then has more shifts than the model: what
    #: is proved of all of them is proved, but they are not all there.
    tied: str = ""

    @classmethod
    def of(cls, network: FeedForward) -> Self:
        """A network whose parameters are the coordinates."""
        count = len(network.parameters)
        return cls(network, np.arange(count), np.ones(count), count)

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

    def gather(self, lifted: Floats, count: int) -> Floats:
        """Sums over the parameters that stand for each of the `count` coordinates, from `lifted` (..., parameters)."""
        where, found = self._moving, np.zeros((count, *lifted.shape[:-1]))
        np.add.at(found, self.source[where], (lifted[..., where] * self.sign[where]).T)
        return found.T

    def lower(self, lifted: Floats, base: Floats) -> Floats:
        """Coordinates (..., n) of parameters or moves `lifted`: means where several stand for one, else `base`."""
        uses = np.bincount(self.source[self._moving], minlength=len(base))
        return np.where(uses > 0, self.gather(lifted, len(base)) / np.maximum(uses, 1), base)

    def at(self, values: Floats) -> Floats:
        """The network's parameters where the coordinates have such values."""
        where, found = self._moving, np.array(self.network.parameters.values)
        found[where] = values[self.source[where]] * self.sign[where]
        return found

    def shifted_margins(self, X: Floats, target: Any, moves: Floats, delta: float | Floats) -> Floats:
        """Margins where the coordinates move by ``delta * moves``, shape (moves, rows)."""
        margins, some = np.empty((len(moves), len(X))), max(1, NUMBERS // len(self.source))
        for first in range(0, len(moves), some):
            part = slice(first, first + some)
            margins[part] = self.network.shifted_margins(X, target, self.lift(moves[part]), delta)
        return margins

    def plain(self) -> FeedForward | None:
        """The network alone, if each of its numbers moves by itself (but for biases that it has not)."""
        net = self.network
        parts = net.parameters.split(np.where(self.source >= 0, 1.0, 0.0))
        given = [b if moves.any() or b.any() else None for moves, b in zip(parts[1::2], net.biases, strict=True)]
        there = [b is not None for pair in zip(net.weights, given, strict=True) for b in pair]
        fits = all(moves.all() for moves, exists in zip(parts, there, strict=True) if exists)
        if not fits or self.tied or not ACTIVATIONS.keys() >= set(net.activations):
            return None
        return FeedForward(net.weights, given, activation=net.activations, **net.meaning())

    def with_moving_row(self, *, alone: bool) -> Self:
        """The same behind a row whose features are coordinates, behind the others or `alone`: nothing else moves."""
        net, count, first = self.network, self.network.n_features, 0 if alone else self.count
        layers = [np.eye(count), *net.weights], [np.zeros(count), *net.given_biases]
        network = ChainNetwork(*layers, activation=("identity", *net.activations), **self.network.meaning())
        still, moving = np.full(count * count, -1), np.arange(first, first + count)
        source, sign = (np.full_like(self.source, -1), np.zeros_like(self.sign)) if alone else (self.source, self.sign)
        sources, signs = [still, moving, source], [np.zeros(count * count), np.ones(count), sign]
        placed = np.concatenate(sources), np.concatenate(signs), first + count
        return type(self)(network, *placed, "" if alone else self.tied)


#: An array of numbers, then of the coordinate that each is (-1 if it does not move), then of its sign; as `DenseChain`.
Entries: TypeAlias = Floats


def fixed(values: Any) -> Entries:
    """Numbers that do not move."""
    array = np.asarray(values, dtype=np.float64)
    return np.stack([array, np.full(array.shape, -1.0), np.zeros(array.shape)])


def moving(values: Any, first: int) -> Entries:
    """The coordinates from `first` on, in C order."""
    array = np.asarray(values, dtype=np.float64)
    return np.stack([array, first + np.arange(array.size).reshape(array.shape), np.ones(array.shape)])


def _diagonal(entries: Entries) -> Entries:
    count = entries.shape[1]
    found = fixed(np.zeros((count, count)))
    found[:, np.arange(count), np.arange(count)] = entries
    return found


@dataclass
class _Node:
    """``activation(sum of value @ weights + bias)``, None for the weights of the identity; no terms for the input."""

    width: int
    terms: list[tuple[int, Entries | None]]
    bias: Entries | None = None
    activation: str = "identity"


#: A softplus falls by exp(-threshold) where it becomes the identity: from here on less than float32 can tell there.
SMOOTH_FROM = 12.0
#: Names of `FeedForward` for activations with the usual settings.
_USUAL = {"leaky_relu(0.01)": "leaky_relu", "leaky_relu(0.0)": "relu", "elu(1.0)": "elu", "clip(-1.0,1.0)": "hard_tanh"}
_USUAL |= {"clip(0.0,inf)": "relu"}


class ChainBuilder:
    """Takes the operations of a model one by one, and makes a chain; what it cannot take is a `ValueError`."""

    def __init__(self, n_features: int) -> None:
        self.nodes = [_Node(n_features, [])]
        self._coordinates: dict[str, tuple[Entries, str, str]] = {}

    def coordinates(self, name: str, values: Any, kind: str, layer: str) -> Entries:
        """Numbers that move, each time the same ones for a name; how they are called in the model's parameters."""
        if name not in self._coordinates:
            first = sum(entries[0].size for entries, _, _ in self._coordinates.values())
            self._coordinates[name] = moving(values, first), kind, layer
        return self._coordinates[name][0]

    def parameters(self) -> Parameters:
        """Everything that moves."""
        entries, kinds, layers = zip(*self._coordinates.values(), strict=True)
        return Parameters.from_arrays(
            [e[0] for e in entries], names=list(self._coordinates), kinds=kinds, layers=layers
        )

    def width(self, value: int) -> int:
        """How many numbers a value has."""
        return self.nodes[value].width

    def _new(self, width: int, terms: Any, bias: Entries | None = None, activation: str = "identity") -> int:
        if bias is not None and bias.shape != (3, width):
            raise ValueError(f"biases of shape {bias.shape[1:]} meet {width} numbers")
        self.nodes.append(_Node(width, terms, bias, activation))
        return len(self.nodes) - 1

    def affine(self, value: int, weights: Entries, bias: Entries | None = None) -> int:
        """A layer: the weights are (inputs, outputs)."""
        if weights.ndim != 3 or weights.shape[1] != self.width(value):
            raise ValueError(f"weights of shape {weights.shape[1:]} meet {self.width(value)} numbers")
        return self._new(weights.shape[2], [(value, weights)], bias)

    def scale(self, value: int, factors: Entries | None, bias: Entries | None = None) -> int:
        """Each number times a factor of its own, if there are any."""
        if factors is not None:
            return self.affine(value, _diagonal(factors), bias)
        return value if bias is None else self._new(self.width(value), [(value, None)], bias)

    def normalize(
        self, value: int, mean: Any, variance: Any, eps: float, factors: Entries | None, bias: Entries | None
    ) -> int:
        """A batch norm: a layer that does not move, of what the running statistics do, and one of what was learned."""
        spread = np.asarray(variance, dtype=np.float64) + eps
        if not (spread > 0).all() or not np.isfinite(spread).all():
            raise ValueError("a variance is no number above 0")
        factor = 1.0 / np.sqrt(spread)
        level = -np.asarray(mean, dtype=np.float64) * factor
        return self.scale(self.scale(value, fixed(factor), fixed(level)), factors, bias)

    def add(self, *values: int) -> int:
        """The sum of values."""
        if len({self.width(value) for value in values}) > 1:
            raise ValueError("values of different sizes are added")
        return self._new(self.width(values[0]), [(value, None) for value in values])

    def activate(self, value: int, kind: str, *settings: float) -> int:
        """An activation with its settings; of a leaky relu whose slope is none between 0 and 1, by its two halves."""
        if kind == "leaky_relu" and not 0 <= settings[0] <= 1:
            return self.slopes(value, fixed(np.full(self.width(value), settings[0])))
        if (kind == "elu" and not settings[0] > 0) or (kind == "clip" and not -np.inf < settings[0] < settings[1]):
            raise ValueError(f"{kind} has the settings {settings}")
        if kind == "softplus" and settings and not (settings[0] > 0 and settings[1] >= SMOOTH_FROM):
            raise ValueError(f"softplus has a threshold below {SMOOTH_FROM:g}, where it jumps, or no beta above 0")
        name = f"{kind}({','.join(repr(float(s)) for s in settings)})" if settings else kind
        return self._new(self.width(value), [(value, None)], None, _USUAL.get(name, name))

    def slopes(self, value: int, slopes: Entries) -> int:
        """A PReLU: ``max(z, 0) - slope * max(-z, 0)``, with slopes that may move, or one slope for all units."""
        count = self.width(value)
        if slopes[0].size not in (1, count):
            raise ValueError(f"{slopes[0].size} slopes meet {count} numbers")
        slopes = np.repeat(slopes.reshape(3, -1), count // slopes[0].size, axis=1)
        halves = self.activate(self.affine(value, fixed(np.hstack([np.eye(count), -np.eye(count)]))), "relu")
        negative = _diagonal(slopes * [[-1.0], [1.0], [-1.0]])
        return self.affine(halves, np.concatenate([fixed(np.eye(count)), negative], axis=1))

    def before(self, last: int, *heads: str) -> tuple[int, str]:
        """The value in front of a sigmoid or softmax at the end, and its name; itself if the end is none of these."""
        name = self.nodes[last].activation
        return (self.nodes[last].terms[0][0], name) if name in heads else (last, "")

    def finish(self, last: int, theta: Parameters, **options: Any) -> DenseChain:
        """The chain up to a value, in which `theta` moves, with the options of `FeedForward`."""
        self._fuse(last)
        needed, users = self._users(last)
        if any("softmax" in self.nodes[value].activation for value in needed):
            raise ValueError("a softmax stands between layers")
        if self.nodes[last].activation != "identity" or not self.nodes[last].terms:
            raise ValueError("it does not end in a linear layer")
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
        source, sign = (np.concatenate([e[part].ravel() for e in arrays]) for part in (1, 2))
        source, told = source.astype(np.intp), ([e[0] for e in weights], [e[0] for e in biases])
        uses = np.bincount(source[source >= 0], minlength=len(theta)).astype(np.float64)
        tied = [name for name, part in zip(theta.names, theta.split(uses), strict=True) if part.max(initial=0) > 1]
        words = f"{', '.join(tied[:3])} {'is' if len(tied) == 1 else 'are'} used more than once" if tied else ""
        network = ChainNetwork(*told, activation=names[:-1], **options)
        return DenseChain(network, source, sign, len(theta), words)

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
            terms = list[tuple[int, Entries | None]]()
            for i, (v, weights) in enumerate(node.terms):
                inner, others = self.nodes[v], {u for u, _ in terms + node.terms[i + 1 :]}
                alone = len(users.get(v, ())) == 1 and inner.terms and inner.activation == "identity"
                # two moving layers of one value have no common place: the weights would be sums of coordinates
                apart = others.isdisjoint(u for u, _ in inner.terms)
                one_bias = node.bias is None or inner.bias is None
                if value in users and alone and apart and weights is None and one_bias:
                    terms += inner.terms
                    node.bias = inner.bias if node.bias is None else node.bias
                else:
                    terms.append((v, weights))
            node.terms = terms

    def _layer(self, before: list[int], units: list[int], computed: list[bool]) -> tuple[Entries, Entries, str]:
        """Weights, biases and activation of a layer between the values below it and its own."""
        starts = dict(zip(before, np.cumsum([0, *map(self.width, before)]).tolist(), strict=False))
        count, blocks, biases, names = sum(map(self.width, before)), list[Entries](), list[Entries](), list[str]()
        for value, own in zip(units, computed, strict=True):
            node, width = self.nodes[value], self.width(value)
            block = fixed(np.zeros((count, width)))
            for v, weights in node.terms if own else [(value, None)]:
                rows = slice(starts[v], starts[v] + self.width(v))
                if weights is None:  # more than once for a value that is added to itself
                    block[0, rows] += np.eye(width)
                else:
                    block[:, rows] = weights
            blocks.append(block)
            biases.append(node.bias if own and node.bias is not None else fixed(np.zeros(width)))
            names.append(f"{node.activation if own else 'identity'}*{width}")
        kinds = {name.rpartition("*")[0] for name in names}
        weights, bias = (np.concatenate(parts, axis=-1) for parts in (blocks, biases))
        return weights, bias, kinds.pop() if len(kinds) == 1 else "+".join(names)


class ChainModel(Gradients):
    """A model that is a dense chain: what moves are its own parameters, under their own names."""

    def __init__(self, chain: DenseChain, parameters: Parameters) -> None:
        self._chain, self.parameters, net = chain, parameters, chain.network
        self.classes, self.n_features, self.feature_names = net.classes, net.n_features, net.feature_names
        self.dtype, self.margin, self.shifted_margins = net.dtype, net.margin, chain.shifted_margins

    def margin_scale(self, X: Floats, radii: Floats, delta: float | Floats = 1.0) -> Floats:
        """Magnitudes behind any margin of each row while parameter i moves by at most ``delta * radii[i]``."""
        return self._chain.network.margin_scale(X, self._chain.reach(radii), delta)

    def _gradients(self, X: Floats, wanted: Indices, moves: Floats | None, *, by_input: bool) -> tuple[Floats, Floats]:
        lifted = None if moves is None else self._chain.lift(moves)
        margins, slopes = gradients(self._chain.network, X, wanted, lifted, by_input=by_input)
        return margins, slopes if by_input else self._chain.gather(slopes, len(self.parameters))

    def dense_chain(self) -> DenseChain:
        """The network in which the parameters stand."""
        return self._chain

    def describe(self) -> dict[str, Any]:
        """Architecture, the numbers that do not move, and where each parameter stands, as JSON values."""
        chain = self._chain
        fixed = np.where(chain.source < 0, chain.network.parameters.values, 0.0)
        places = {"fixed": fixed, "source": chain.source, "sign": chain.sign}
        return {**chain.network.describe(), "kind": "chain", **{key: canonical(v) for key, v in places.items()}}

    def __repr__(self) -> str:
        return f"<{len(self.parameters)} parameters in {self._chain.network!r}>"


def dense_chain(model: object) -> DenseChain | None:
    """The chain whose coordinates are the parameters of a model; None if it is no dense network."""
    if offers(model, Chained):
        return None if isinstance(found := model.dense_chain(), str) else found
    if not offers(model, Dense):
        return None
    network = model.as_feedforward()
    theta = getattr(model, "parameters", network.parameters)
    same = network.parameters.shapes == theta.shapes and np.array_equal(network.parameters.values, theta.values)
    return DenseChain.of(network) if same else None
