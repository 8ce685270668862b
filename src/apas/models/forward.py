"""Forward passes and gradients of dense networks: activations, scores, and many shifted networks at once.

Two memory layouts of the directions are served, because each is several times faster than the other on its own
ground. *Samples last*: direction arrays that are Fortran-contiguous, (k, samples) in memory, as the shift sets draw
them for small networks; every operation then runs along contiguous samples. *Samples first*: anything else; the
products become one matrix product per sample, which is what large layers want.

With few rows the product ``a @ (W + delta U)`` is taken as ``a @ W + (delta a) @ U``, which saves writing the shifted
weights; with many rows these are written once and shared by all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from apas._typing import Floats, Indices
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.models.feedforward import FeedForward

LEAKY_SLOPE = 0.01  # slope of the leaky ReLU on the negative side (the default of the large frameworks)


def _sigmoid(z: Floats) -> None:
    z *= 0.5  # tanh never overflows, where exp would for large negative z
    np.tanh(z, out=z)
    z += 1.0
    z *= 0.5


def _gelu(z: Floats) -> None:
    from scipy.special import erf

    z *= 0.5 * (1.0 + erf(z * 0.5**0.5))  # z Phi(z), where Phi(z) = (1 + erf(z / sqrt(2))) / 2


#: Each changes its argument in place: the pre-activations of many shifted copies are written down once only.
ACTIVATIONS: dict[str, Callable[[Floats], object]] = {
    "relu": lambda z: np.maximum(z, 0.0, out=z),
    "leaky_relu": lambda z: np.maximum(z, LEAKY_SLOPE * z, out=z),
    "hard_tanh": lambda z: np.clip(z, -1.0, 1.0, out=z),
    "tanh": lambda z: np.tanh(z, out=z),
    "sigmoid": _sigmoid,
    "identity": lambda z: z,
    "softplus": lambda z: np.logaddexp(z, 0.0, out=z),
    # the larger one is z above 0 and exp(z) - 1 below; `expm1` keeps the digits that this difference loses near 0
    "elu": lambda z: np.maximum(z, np.expm1(np.minimum(z, 0.0)), out=z),
    "gelu": _gelu,
}


def _cubic(z: Floats) -> Floats:
    return np.asarray((2.0 / np.pi) ** 0.5 * (z + 0.044715 * z**3))


#: What dense chains have besides, also in place; a softplus has its steepness as a setting, and from what product of it
#: and the argument on it is the identity.
_OF_CHAINS: dict[str, Callable[..., object]] = {
    "silu": lambda z: np.multiply(z, _sigmoid_of(z), out=z),
    "gelu_tanh": lambda z: np.multiply(z, 0.5 * (1.0 + np.tanh(_cubic(z))), out=z),
    "leaky_relu": lambda z, slope: np.maximum(z, slope * z, out=z),
    "clip": lambda z, low, high: np.clip(z, low, high, out=z),
    "elu": lambda z, height: np.copyto(z, np.where(z > 0, z, height * np.expm1(np.minimum(z, 0.0)))),
    "softplus": lambda z, steep, last: np.copyto(
        z, np.where(steep * z > last, z, np.logaddexp(steep * z, 0.0) / steep)
    ),
}
#: What older names stand for.
_SHORT: dict[str, tuple[str, tuple[float, ...]]] = {"relu": ("leaky_relu", (0.0,)), "hard_tanh": ("clip", (-1.0, 1.0))}
_SHORT |= {"leaky_relu": ("leaky_relu", (LEAKY_SLOPE,)), "elu": ("elu", (1.0,))}


@cache
def shape_of(name: str) -> tuple[str, tuple[float, ...]]:
    """What an activation is, and its settings: "leaky_relu(0.2)" is a leaky_relu of slope 0.2, and so is relu, of 0."""
    if name in _SHORT:
        return _SHORT[name]
    kind, _, rest = name.partition("(")
    return kind, tuple(float(text) for text in rest.rstrip(")").split(",")) if rest else ()


@cache
def units_of(name: str) -> tuple[tuple[str, slice], ...]:
    """The activations of a layer whose units have several, "relu*3+identity*2": which units have each."""
    parts, start = [], 0
    for text in name.split("+") if "*" in name else ():
        inner, _, count = text.rpartition("*")
        parts.append((inner, slice(start, start + int(count))))
        start += int(count)
    return tuple(parts)


def inner_names(name: str) -> tuple[str, ...]:
    """The different activations of a layer."""
    return tuple(dict.fromkeys(inner for inner, _ in units_of(name))) or (name,)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def by_units(function: _Function) -> _Function:
    """Let a function of an activation and arrays, whose last axis are units, take layers whose units have several."""

    @wraps(function)
    def whole(name: str, *arrays: Floats, **options: Any) -> Any:
        if "*" not in name:
            return function(name, *arrays, **options)
        return _joined([function(n, *(a[..., part] for a in arrays), **options) for n, part in units_of(name)])

    return cast(_Function, whole)


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=-1)
    columns = zip(*(part if isinstance(part, tuple) else vars(part).values() for part in parts), strict=True)
    joined = tuple(_joined(list(column)) for column in columns)
    return joined if isinstance(parts[0], tuple) else type(parts[0])(*joined)


def activate(name: str, z: Floats) -> Floats:
    """Apply the activation `name` to `z` in place and return `z`."""
    if name in ACTIVATIONS:
        ACTIVATIONS[name](z)
    elif "*" in name:
        for inner, part in units_of(name):
            activate(inner, z[..., part])
    else:
        kind, numbers = shape_of(name)
        _OF_CHAINS[kind](z, *numbers)
    return z


@by_units
def derivative(name: str, z: Floats) -> Floats:
    """Derivative of the activation `name` at the pre-activations `z`; at a kink that of the flatter piece."""
    kind, numbers = shape_of(name)
    if name == "relu":
        return (z > 0).astype(np.float64)
    if kind == "leaky_relu":
        return np.where(z > 0, 1.0, numbers[0])
    if kind == "clip":
        return ((z > numbers[0]) & (z < numbers[1])).astype(np.float64)
    if name == "identity":
        return np.ones_like(z)
    if name == "tanh":
        return np.asarray(1 - np.tanh(z) ** 2)
    if kind == "softplus":
        return _sigmoid_of(z if not numbers else np.where(numbers[0] * z > numbers[1], np.inf, numbers[0] * z))
    if kind == "elu":
        return np.where(z > 0, 1.0, numbers[0] * np.exp(np.minimum(z, 0.0)))
    if name == "sigmoid":
        s = _sigmoid_of(z)
        return s * (1 - s)
    if name == "silu":
        s = _sigmoid_of(z)
        return np.asarray(s * (1 + z * (1 - s)))
    if name == "gelu_tanh":
        t = np.tanh(_cubic(z))
        slope = (2.0 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * z * z)
        # far out the slope overflows where the other factor is 0
        return np.asarray(0.5 * (1 + t) + 0.5 * z * np.where(np.abs(t) == 1, 0.0, (1 - t * t) * slope))
    from scipy.special import erf

    # gelu: Phi(z) + z phi(z), with phi the density of the normal distribution
    return np.asarray(0.5 * (1.0 + erf(z * 0.5**0.5)) + z * np.exp(-0.5 * z * z) * (2 * np.pi) ** -0.5)


def _sigmoid_of(z: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


#: Up to this many rows, shifted weights are not written down. The two ways round differently, by far less
#: than the 1e-12 of `margin_scale` that every method allows for.
FEW_ROWS = 8
BLOCK = 1 << 16  # how many activations of one layer are held at a time: they should stay in the processor's cache


def scores(weights: Sequence[Floats], biases: Sequence[Floats], activations: Sequence[str], X: Floats) -> Floats:
    """Outputs of the network itself, shape (rows, outputs)."""
    a = X
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        a = a @ w
        a += b
        if i < len(activations):
            activate(activations[i], a)
    return a


def fill_margins(
    out: Floats, net: FeedForward, rows: Indices | None, X: Floats, wanted: Indices, directions: Floats, delta: float
) -> None:
    """Write margins on the networks ``parameters + delta * direction`` into the columns `rows`, or into all of them."""
    run = _samples_last if directions.flags.f_contiguous and len(directions) > 1 else _samples_first
    step = max(1, BLOCK // (max(w.shape[1] for w in net.weights) * max(1, len(directions))))
    few = len(X) <= FEW_ROWS
    # the bias is the weight of an input that is always 1, which saves a pass over the result
    extended = np.ones((len(X), X.shape[1] + 1))
    extended[:, :-1] = X
    if not few:
        directions = directions * delta
        directions += net.parameters.values
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        block = run(net, extended[part], directions, delta if few else None)
        out[:, part if rows is None else rows[part]] = margins_from_scores(block, wanted[part], net.offset)


def _samples_last(net: FeedForward, a: Floats, directions: Floats, delta: float | None) -> Floats:
    """Outputs (samples, rows, outputs); `delta` is None where `directions` are the shifted parameters themselves."""
    flat = directions.T
    rows, samples = len(a), flat.shape[1]
    for i, (part, base) in enumerate(_layers(net)):
        layer = flat[part].reshape(*base.shape, samples)
        if i == 0:
            z = ((a if delta is None else delta * a) @ layer.reshape(len(base), -1)).reshape(rows, -1, samples)
            if delta is not None:
                z += (a @ base)[:, :, None]
        else:
            if delta is not None:
                layer = layer * delta
                layer += base[:, :, None]
            z = np.einsum("mis,ios->mos", a, layer[:-1])
            z += layer[-1]
        if i < len(net.activations):
            activate(net.activations[i], z.transpose(0, 2, 1) if "*" in net.activations[i] else z)
        a = z
    return a.transpose(2, 0, 1)


def _samples_first(net: FeedForward, a: Floats, directions: Floats, delta: float | None) -> Floats:
    """The same for any other memory order."""
    for i, (part, base) in enumerate(_layers(net)):
        layer = directions[:, part].reshape(len(directions), *base.shape)
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
            z += (a.reshape(-1, a.shape[-1]) @ base[:-1]).reshape(z.shape)
            z += layer[:, -1:] * delta + base[-1]
        a = activate(net.activations[i], z) if i < len(net.activations) else z
    return a


def _layers(net: FeedForward) -> Iterator[tuple[slice, Floats]]:
    """Where weights and biases of a layer lie in the vector, and they themselves, the biases as the last row."""
    parts = net.parameters.slices
    for weights, biases, w in zip(parts[::2], parts[1::2], net.weights, strict=True):
        part = slice(weights.start, biases.stop)
        yield part, net.parameters.values[part].reshape(-1, w.shape[1])


#: How many shifted parameters are written down at a time: they should stay in the processor's cache.
GRADIENT_BLOCK = 1 << 17


def gradients(
    net: FeedForward, X: Floats, wanted: Indices, moves: Floats | None, *, by_input: bool
) -> tuple[Floats, Floats]:
    """Margins (rows,) and their gradients by the input (rows, features), or else by the parameters (rows, k)."""
    margins, found = np.empty(len(X)), np.empty(X.shape if by_input else (len(X), len(net.parameters)))
    for rows, weights, biases in _blocks(net, X, moves):
        enters, slopes = [X[rows]], []  # inputs of each layer, and derivatives at its pre-activations
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            z = enters[-1] @ w if w.ndim == 2 else (enters[-1][:, None, :] @ w)[:, 0]
            z += b
            if i < len(net.activations):
                slopes.append(derivative(net.activations[i], z))
                enters.append(activate(net.activations[i], z))
        margins[rows], g = margins_from_scores(z, wanted[rows], net.offset), _score_gradients(z, wanted[rows])
        # views, filled from the last layer to the first
        tensors = [] if by_input else net.parameters.split(found[rows])
        for i in reversed(range(len(weights))):
            if not by_input:
                np.multiply(enters[i][:, :, None], g[:, None, :], out=tensors[2 * i])
                tensors[2 * i + 1][...] = g
            if i or by_input:
                g = np.asarray(g @ weights[i].T if weights[i].ndim == 2 else (weights[i] @ g[:, :, None])[:, :, 0])
            if i:
                g *= slopes[i - 1]
        if by_input:
            found[rows] = g
    return margins, found


def _blocks(net: FeedForward, X: Floats, moves: Floats | None) -> Iterator[tuple[slice, list[Floats], list[Floats]]]:
    """Blocks of rows with the weights and biases of each row, or with those that all of them share."""
    widest = max(max(w.shape) for w in net.weights)
    if moves is None:
        step = max(1, GRADIENT_BLOCK // widest)
        for start in range(0, len(X), step):
            yield slice(start, start + step), list(net.weights), list(net.biases)
        return
    theta = net.parameters
    if moves.shape != (len(X), len(theta)):
        must = "`moves` must hold one change per row and parameter,"
        raise InputError(f"{must} shape {(len(X), len(theta))}, got {moves.shape}.")
    step = max(1, GRADIENT_BLOCK // len(theta))
    for start in range(0, len(X), step):
        parts = theta.split(moves[start : start + step] + theta.values)
        yield slice(start, start + step), parts[::2], parts[1::2]


def _score_gradients(scores: Floats, wanted: Indices) -> Floats:
    """How each score enters the margin: that of the wanted class, and that of the rival that is best."""
    rows, outputs = scores.shape
    sign = np.where(wanted == 1, 1.0, -1.0)
    if outputs == 1:
        return sign[:, None]
    if outputs == 2:
        return np.stack([-sign, sign], axis=1)
    every, others = np.arange(rows), scores.copy()
    others[every, wanted] = -np.inf
    gradients = np.zeros((rows, outputs))
    gradients[every, others.argmax(axis=1)] = -1.0
    gradients[every, wanted] = 1.0
    return gradients


@by_units
def activation_range(name: str, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Least and largest value of an activation over ``[low, high]``."""
    least, most = activate(name, low.copy()), activate(name, high.copy())
    if name.startswith("softplus("):  # which falls a little where it becomes the identity
        return least - drop(name, low, high), most + drop(name, low, high)
    if name not in LOWEST:  # the others never fall
        return least, most
    lowest = LOWEST[name]
    bottom = float(activate(name, np.array([lowest]))[0])
    return np.where((low < lowest) & (lowest < high), bottom, np.minimum(least, most)), np.maximum(least, most)


#: Where activations that first fall and then rise have their least value: the float64 nearest to the root of the
#: derivative, that of gelu being Phi(z) + z phi(z) with the root -0.75179152469356445746.
LOWEST = {"gelu": -0.7517915246935645, "silu": -1.2784645427610737, "gelu_tanh": -0.7524614220710163}
#: Between minus and plus these numbers they are convex, and their derivative is least and largest there.
BEND = {"gelu": 2.0**0.5, "silu": 2.399357280515467, "gelu_tanh": 1.4185040087908285}


@by_units
def drop(name: str, low: Floats, high: Floats) -> Floats:
    """More than what a softplus falls by where it becomes the identity, if it does so in ``[low, high]``; else 0."""
    if not name.startswith("softplus("):
        return np.zeros_like(high)
    steep, last = shape_of(name)[1]
    # from a little before it on: rounding may have put an argument on the other side
    return np.where(steep * high >= last - 1e-6 * (1 + last), 1.01 * np.exp(-last) / steep, 0.0)


def lowest(name: str) -> Floats | float | None:
    """Where an activation is least if it is not monotone, per unit if these differ (-inf for those that are)."""
    if "*" not in name:
        return LOWEST.get(name)
    if not any(inner in LOWEST for inner in inner_names(name)):
        return None
    return np.concatenate([np.full(p.stop - p.start, LOWEST.get(n, -np.inf)) for n, p in units_of(name)])


@cache
def is_positive(name: str) -> bool:
    """Whether an activation is never below 0."""
    kinds = [(inner, *shape_of(inner)) for inner in inner_names(name)]
    return all(n in ("relu", "sigmoid") or kind == "softplus" or (kind == "clip" and v[0] >= 0) for n, kind, v in kinds)


@cache
def steepest(name: str) -> float:
    """A bound on the derivative, of the steepest units."""
    known = {"gelu": GELU_STEEPEST_ROUND, "gelu_tanh": GELU_STEEPEST_ROUND, "silu": 1.1, "sigmoid": 0.25}
    return max(known.get(inner, growth(inner)) for inner in inner_names(name))


@cache
def growth(name: str) -> float:
    """How many times larger than its argument an activation can be, apart from what `excess` says."""
    alphas = [numbers[0] for kind, numbers in map(shape_of, inner_names(name)) if kind == "elu"]
    return max([1.0, *alphas])


@cache
def excess(name: str) -> float:
    """By how much an activation can exceed the magnitude of its argument."""
    most = 0.0
    for kind, numbers in map(shape_of, inner_names(name)):
        if kind == "softplus":
            most = max(most, math.log(2.0) / (numbers[0] if numbers else 1.0))
        elif kind == "sigmoid":
            most = max(most, 0.5)
        elif kind == "clip":  # where 0 is not between the ends
            most = max(most, numbers[0], -numbers[1])
    return most


#: The slope of gelu is largest at sqrt(2): 1.12890414518515..., rounded up in its last digit. Rounding allowances
#: take a round 1.13: it is in what was saved, and a finer one would change the last digits of that.
GELU_STEEPEST, GELU_STEEPEST_ROUND = 1.12890415, 1.13


def margins_from_scores(scores: Floats, wanted: Indices, offset: float) -> Floats:
    """Reduce scores of shape (..., rows, outputs) to margins of shape (..., rows)."""
    outputs = scores.shape[-1]
    if outputs <= 2:
        score = scores[..., 0] if outputs == 1 else scores[..., 1] - scores[..., 0]
        margins = score - offset
        margins *= 2 * wanted - 1  # the sign flips for class 0
        return margins
    where = np.broadcast_to(wanted[:, None], (*scores.shape[:-1], 1))
    chosen = np.take_along_axis(scores, where, axis=-1)[..., 0]
    others = scores.copy()
    np.put_along_axis(others, where, -np.inf, axis=-1)
    # `max` keeps a NaN of another class, so that such a row is never valid
    return np.asarray(chosen - others.max(axis=-1))
