"""Dense feed-forward networks in NumPy: the model every worst-case method understands.

What float32 arithmetic can do to their margins is bounded, not measured. Let u = 2**-24. A float32 operation is off by
at most u of its result, so a sum of n products and a bias, added up in any order, with or without fused operations, is
off by at most ``gamma(n + 1)`` of the sum of their magnitudes, where ``gamma(m) = m u / (1 - m u)``. Let c be what the
numbers that enter a layer are off by, as a share of the magnitudes behind them (those of `FeedForward.margin_scale`).
Behind the layer it is ``(1 + c) (1 + gamma(n + 4)) - 1``: one unit is for rounding each weight to float32, two are to
spare. An activation that is nowhere steeper than 1 keeps c and adds its own error. The inputs begin with u, since they
are rounded to float32 too. That holds for every network of a box of parameters if the magnitudes do. It says nothing
about arithmetic that is coarser than float32, such as TF32 or bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Array, Floats
from apas._validation import check_names, check_probability
from apas.errors import InputError
from apas.models import forward
from apas.models.base import ABSENT, ROUNDING, Gradients, Parameters, class_indices
from apas.models.forward import ACTIVATIONS

ROUNDOFF = 2.0**-24  # half the distance from 1 to the next float32 number
#: How many times that an activation function of a library may be off, as a share of its argument's magnitude or of 1.
FUNCTION = 16
#: Added to every magnitude, so that the bound covers what underflow does; and from where on numbers may overflow.
SMALL, LARGEST = 2.0**-100, 1e38


def check_layers(
    weights: Sequence[ArrayLike], biases: Sequence[ArrayLike | None]
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Weights and biases as read-only arrays whose shapes fit each other; zeros for biases that are None."""
    counts = [len(v) if isinstance(v, Sequence | np.ndarray) else None for v in (weights, biases)]
    if not counts[0] or counts[0] != counts[1]:
        got = [type(v).__name__ if n is None else n for v, n in zip((weights, biases), counts, strict=True)]
        must = "`weights` and `biases` of FeedForward must have one entry per layer,"
        raise InputError(f"{must} in a list, and at least one, got {got[0]} and {got[1]}.")
    matrices = tuple(_freeze(w, "weights", i, 2) for i, w in enumerate(weights))
    given = [np.zeros(w.shape[1]) if b is None else b for w, b in zip(matrices, biases, strict=True)]
    vectors = tuple(_freeze(b, "biases", i, 1) for i, b in enumerate(given))
    for i, (w, b) in enumerate(zip(matrices, vectors, strict=True)):
        if i and w.shape[0] != matrices[i - 1].shape[1]:
            raise InputError(
                f"`weights[{i}]` of FeedForward must have {matrices[i - 1].shape[1]} rows, as layer {i - 1} has "
                f"outputs, got {w.shape[0]}; weights are (inputs, outputs): from (outputs, inputs) use .T."
            )
        if len(b) != w.shape[1]:
            said = f"`biases[{i}]` of FeedForward must have {w.shape[1]} entries,"
            raise InputError(f"{said} as layer {i} has outputs, got {len(b)}.")
    return matrices, vectors


def _freeze(array: ArrayLike, name: str, i: int, ndim: int) -> Floats:
    try:
        given = np.asarray(array)
    except (TypeError, ValueError):
        given = np.empty(0, dtype=object)  # rows of different lengths
    if given.dtype.kind not in "biuf":
        raise InputError(f"`{name}[{i}]` of FeedForward must be a {ndim}-D array of real numbers.")
    copy = np.array(given, dtype=np.float64, order="C")
    if copy.ndim != ndim or copy.size == 0:
        raise InputError(f"`{name}[{i}]` of FeedForward must be a non-empty {ndim}-D array, got shape {copy.shape}.")
    if not np.isfinite(copy).all():
        must = f"`{name}[{i}]` of FeedForward must hold finite numbers, got {copy[~np.isfinite(copy)][0]};"
        raise InputError(f"{must} was the training stable?")
    copy.flags.writeable = False
    return copy


def check_activations(activation: str | Sequence[str], hidden: int) -> tuple[str, ...]:
    """One activation per hidden layer."""
    listed = isinstance(activation, Sequence) and not isinstance(activation, str)
    names: tuple[Any, ...] = tuple(activation) if listed else (activation,) * hidden
    for name in names if listed else (activation,):
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise InputError(f"`activation` of FeedForward must be one of {', '.join(ACTIVATIONS)}, got {name!r}.")
    if len(names) != hidden:
        must = f"`activation` of FeedForward must be one name or one per hidden layer ({hidden}),"
        raise InputError(f"{must} got {len(names)}.")
    return names


def check_classes(classes: Sequence[Any] | None, output: str, outputs: int) -> tuple[Any, ...]:
    """Class labels, as many as the output can tell apart."""
    if output == "softmax" and outputs < 2:
        said = '`output` of FeedForward is "softmax",'
        raise InputError(f"{said} which needs a score per class, but the last layer has 1 output.")
    if output != "softmax" and outputs != 1:
        why = f'`output` of FeedForward is "{output}", which needs 1 output, but the last layer has {outputs};'
        raise InputError(f'{why} use "softmax".')
    needed = outputs if output == "softmax" else 2
    given = range(needed) if classes is None else classes
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
        raise InputError(f"`classes` of FeedForward must hold {needed} different labels, got {given!r}.")
    chosen = tuple(c.item() if isinstance(c, np.generic) else c for c in given)
    for label in chosen:
        if not isinstance(label, str | int | float) or label != label:
            raise InputError(f"`classes` of FeedForward must hold texts or numbers, got {label!r}.")
    if len(chosen) != needed or len(set(chosen)) != needed:
        raise InputError(f"`classes` of FeedForward must hold {needed} different labels, got {list(chosen)}.")
    return chosen


def check_threshold(threshold: float, output: str, n_classes: int) -> float:
    """The threshold: a probability, or any number for scores that are compared with it themselves."""
    if output == "identity":
        number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool | np.complexfloating)
        if not number or not abs(threshold) < math.inf:
            raise InputError(f"`threshold` of FeedForward must be a finite number, got {threshold!r}.")
        try:
            return float(threshold)
        except OverflowError:
            raise InputError("`threshold` of FeedForward must be a finite number, got one beyond floats.") from None
    value = check_probability(threshold, "threshold", "FeedForward")
    if n_classes > 2 and value != 0.5:
        why = f"`threshold` of FeedForward only applies to two classes, but there are {n_classes};"
        raise InputError(f"{why} leave it out.")
    return value


OUTPUTS = ("sigmoid", "softmax", "identity")


class FeedForward(Gradients):
    """A dense network: weights, biases, activations, and what its output means.

    Parameters
    ----------
    weights, biases : sequence of array_like
        One (inputs, outputs) matrix and one vector per layer; None for a layer that has no biases that could move.
    activation : str or sequence of str, default "relu"
        For all hidden layers, or one per hidden layer: relu, leaky_relu, hard_tanh, tanh, sigmoid, identity,
        softplus, elu, gelu.
    output : {"sigmoid", "softmax", "identity"}, default "sigmoid"
        ``"sigmoid"``: one logit, compared with the logit of `threshold`. ``"softmax"``: one score per class, the
        largest wins (of two, class 1 from probability `threshold` on). ``"identity"``: one number, compared with
        `threshold` itself.
    threshold : float, default 0.5
        From where on a binary model says class 1.
    classes, feature_names : sequence, optional
        Class labels, (0, 1) or 0..m-1 unless given, and names of the inputs, by which data frames are then matched.
    dtype : {"float64", "float32"}, default "float64"
        In which arithmetic the network is computed where it is used: with ``"float32"`` a claim has to hold for what
        that makes of it too, whatever the order of its sums.

    Examples
    --------
    >>> net = FeedForward([[[1.0], [-1.0]]], [[0.5]])
    >>> net.margin(np.array([[2.0, 1.0]]), target=1)
    array([1.5])
    """

    #: That all but the numbers themselves stays what it is: `__setattr__` refuses to change it.
    frozen: ClassVar[bool] = True
    # plain attributes, since worst-case methods ask for them thousands of times; `__setattr__` keeps them as they are
    classes: tuple[Any, ...]
    n_features: int
    parameters: Parameters
    """Weights and biases, layer by layer, as one vector."""
    feature_names: tuple[str, ...] | None
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    """One read-only vector per layer, of zeros where there are none."""
    given_biases: tuple[Floats | None, ...]
    """The same as they are given to `FeedForward`: None for a layer that has none."""
    activations: tuple[str, ...]
    output: str
    threshold: float
    offset: float
    """What the score of class 1 of a binary network is compared with: the threshold, or its logit."""
    dtype: str

    def __init__(
        self,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike | None],
        *,
        activation: str | Sequence[str] = "relu",
        output: str = "sigmoid",
        threshold: float = 0.5,
        classes: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        dtype: str = "float64",
    ) -> None:
        matrices, vectors = check_layers(weights, biases)
        activations = self._check_activations(activation, len(matrices) - 1)
        if output not in OUTPUTS:
            raise InputError(f"`output` of FeedForward must be one of {', '.join(map(repr, OUTPUTS))}, got {output!r}.")
        labels = check_classes(classes, output, matrices[-1].shape[1])
        level = check_threshold(threshold, output, len(labels))
        names = check_names(feature_names, len(matrices[0]))
        if not isinstance(dtype, str) or dtype not in ("float64", "float32"):
            raise InputError(f'`dtype` of FeedForward must be "float64" or "float32", got {dtype!r}.')
        arrays = [tensor for layer in zip(matrices, vectors, strict=True) for tensor in layer]
        layers = [f"layer{i // 2}" for i in range(len(arrays))]
        named = [f"{layer}.{('weight', 'bias')[i % 2]}" for i, layer in enumerate(layers)]
        kinds = [kind for b in biases for kind in ("weight", ABSENT if b is None else "bias")]
        theta = Parameters.from_arrays(arrays, names=named, kinds=kinds, layers=layers)
        given = tuple(None if old is None else new for old, new in zip(biases, vectors, strict=True))
        # a logit is compared with the logit of the threshold, in the form that keeps its digits near 1
        offset = level if output == "identity" else math.log(level) - math.log1p(-level)
        vars(self).update(classes=labels, n_features=len(matrices[0]), feature_names=names)
        vars(self).update(weights=matrices, biases=vectors, activations=activations, output=output, threshold=level)
        vars(self).update(parameters=theta, given_biases=given, offset=offset, dtype=dtype)

    @cached_property
    def layer_sizes(self) -> list[tuple[Floats, float, float]]:
        """Per layer the magnitudes of each input's weights added up, the largest of these sums, that of the biases."""
        sums = [np.abs(w).sum(axis=1) for w in self.weights]
        return [(s, float(s.max()), float(np.abs(b).sum())) for s, b in zip(sums, self.biases, strict=True)]

    _check_activations = staticmethod(check_activations)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FeedForward.__annotations__:
            raise AttributeError(f"{name!r} of a FeedForward cannot be changed; make a new one.")
        super().__setattr__(name, value)

    def margin(self, X: Floats, target: Any) -> Floats:
        """Margins of the rows `X` towards `target`, shape (rows,)."""
        wanted = class_indices(self.classes, target, len(X))
        scores = forward.scores(self.weights, self.biases, self.activations, X)
        return forward.margins_from_scores(scores, wanted, self.offset)

    def shifted_margins(self, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the networks ``parameters + delta * direction``, shape (directions, rows)."""
        wanted = class_indices(self.classes, target, len(X))
        margins = np.empty((len(directions), len(X)), order="F" if directions.flags.f_contiguous else "C")
        if isinstance(delta, np.ndarray) and delta.ndim:
            for value in np.unique(delta):  # rows that share a delta share the shifted networks
                rows = np.flatnonzero(delta == value)
                forward.fill_margins(margins, self, rows, X[rows], wanted[rows], directions, float(value))
        else:
            forward.fill_margins(margins, self, None, X, wanted, directions, float(delta))
        return margins

    def margin_scale(self, X: Floats, radii: Floats, delta: float | Floats = 1.0) -> Floats:
        """Sum of magnitudes behind any margin of each row while parameter i moves by at most ``delta * radii[i]``."""
        # A margin is a sum of products; rounding disturbs it by a small multiple of this number times 2**-53. For a
        # network that is computed in float32 it is so much larger that 1e-12 of it covers that rounding as well.
        scale = np.asarray(self._sizes(X, radii, delta).sum(axis=-1) + abs(self.offset))
        return scale if self.dtype == "float64" else scale + self.rounding(X, radii, delta) / ROUNDING

    def rounding(self, X: Floats, radii: Floats, delta: float | Floats = 1.0) -> Floats:
        """How far margins can be from real arithmetic's on any network whose parameter i is within delta * radii[i]."""
        # see the top of this file; 0 for float64, whose rounding all methods allow for anyway
        if self.dtype == "float64":
            return np.zeros(len(X))
        share, fixed = self._float32_errors
        sizes = self._sizes(X, radii, delta, single=True)
        behind = sizes.sum(axis=-1) if sizes.shape[-1] < 3 else 2 * sizes.max(axis=-1)  # a margin has two scores
        return np.asarray(share * (behind + abs(self.offset)) + fixed)

    @cached_property
    def _float32_errors(self) -> tuple[float, float]:
        """How far float32 scores can be from real ones, as a share of the magnitudes behind them, and the head's part.

        That is how far from 0 a margin can be whose probability float32 puts on the other side of the threshold.
        """
        error, fixed = ROUNDOFF, 0.0
        for i, weights in enumerate(self.weights):
            share = (len(weights) + 4) * ROUNDOFF
            # beyond 160,000 inputs nothing is promised
            error += (1 + error) * share / (1 - share) if share <= 0.01 else math.inf
            if i < len(self.activations):
                error *= max(1.0, forward.steepest(self.activations[i]))
                error += FUNCTION * ROUNDOFF * (1 + error)
        error += 8 * ROUNDOFF  # the difference of two scores, and its comparison with a threshold that is rounded too
        if self.output != "identity":
            # A relative error e of a probability p moves its logit by at most ``2 e / (1 - p)`` while ``e p / (1 - p)``
            # is at most one half. Behind a softmax stand two exponentials, a sum and a quotient.
            wrong, other = (2 * FUNCTION + len(self.classes) + 8) * ROUNDOFF, 1 - self.threshold
            fixed = 2 * wrong / other if wrong * self.threshold <= 0.5 * other else math.inf
        return error, fixed

    def _sizes(self, X: Floats, radii: Floats, delta: float | Floats, *, single: bool = False) -> Floats:
        """Sums of magnitudes behind the scores, (rows, outputs); in `single` precision with under- and overflow."""
        sizes, reach = np.abs(self.parameters.values), np.asarray(delta, dtype=np.float64)
        a = np.abs(X)
        largest: Any = 0.0
        if single:
            a, sizes = a + SMALL, sizes + SMALL
            largest = np.maximum(a.max(axis=-1, initial=0.0), sizes.max() + reach * radii.max())
        reach = reach[:, None] if reach.ndim else reach
        layers, moves = self.parameters.split(sizes), self.parameters.split(radii)
        for i in range(len(self.weights)):
            z = a @ layers[2 * i]
            z += reach * (a @ moves[2 * i])
            z += layers[2 * i + 1] + reach * moves[2 * i + 1]
            if i < len(self.activations):
                name = self.activations[i]
                # Rounding may put an argument on the other side of a softplus's jump, which then is what rounding does:
                # in units of `ROUNDING`, so that the band of the margin covers it. Of float32 the bound for activations
                # does: 16 roundoffs of an argument of 12 or more, where a jump is 6e-6 or less.
                beyond = forward.drop(name, -z, z) / ROUNDING if "softplus(" in name and not single else 0.0
                z *= forward.growth(name)
                z += forward.excess(name) + beyond
                if single and any(forward.shape_of(inner)[0] == "elu" for inner in forward.inner_names(name)):
                    z += forward.growth(name)  # computed as exp(z) - 1, it is off by units of 1
            a = z
            if single:
                largest = np.maximum(largest, a.max(axis=-1))
        if single:
            a[~(largest <= LARGEST)] = math.inf
        return a

    _gradients = forward.gradients

    def classes_of(self, raw: Array, kind: str) -> Array:
        """Classes by the numbers (rows, outputs) that a library gives: a "logit", "logits" or some probability."""
        if len(self.classes) > 2:
            chosen = raw.argmax(axis=-1)
        elif kind == "logits":
            chosen = (raw[:, 1] - raw[:, 0] >= self.offset).astype(np.intp)
        else:
            chosen = (raw[:, -1] >= (self.offset if kind == "logit" else self.threshold)).astype(np.intp)
        labels = np.empty(len(self.classes), dtype=object)
        labels[:] = self.classes
        return np.asarray(labels[chosen])

    def as_feedforward(self) -> Self:
        """Itself."""
        return self

    def meaning(self) -> dict[str, Any]:
        """The arguments besides the layers."""
        names = ("output", "threshold", "classes", "feature_names", "dtype")
        return {name: getattr(self, name) for name in names}

    def with_options(self, **changed: Any) -> Self:
        """The same network with other arguments."""
        layers = {"weights": self.weights, "biases": self.given_biases, "activation": self.activations}
        return type(self)(**{**layers, **self.meaning(), **changed})

    def with_names(self, feature_names: Sequence[str]) -> Self:
        """The same network with other names of its inputs."""
        return self.with_options(feature_names=feature_names)

    def with_dtype(self, dtype: str) -> Self:
        """The same network computed in another arithmetic where it is used."""
        return self.with_options(dtype=dtype)

    def with_parameters(self, values: Floats) -> Self:
        """The same network with other weights and biases, given as one vector in the order of `parameters`."""
        theta, parts = self.parameters, self.parameters.split(values)
        for name, kind, part in zip(theta.names, theta.kinds, parts, strict=True):
            if kind == ABSENT and part.any():
                raise InputError(f"`values` of with_parameters must be 0 for {name}, which does not exist.")
        biases = [None if old is None else new for old, new in zip(self.given_biases, parts[1::2], strict=True)]
        return self.with_options(weights=parts[::2], biases=biases)

    def describe(self) -> dict[str, Any]:
        """Architecture as JSON values."""
        absent = [i for i, b in enumerate(self.given_biases) if b is None]
        return {
            "kind": "feedforward",
            **({"dtype": self.dtype} if self.dtype != "float64" else {}),
            **({"without_biases": absent} if absent else {}),
            "shapes": [list(w.shape) for w in self.weights],
            "activation": list(self.activations),
            "output": self.output,
            "threshold": self.threshold,
            "classes": [c.item() if isinstance(c, np.generic) else c for c in self.classes],
            "feature_names": None if self.feature_names is None else list(self.feature_names),
        }

    def __repr__(self) -> str:
        sizes = "-".join(str(n) for n in [self.n_features, *(w.shape[1] for w in self.weights)])
        kinds = ", ".join(dict.fromkeys(self.activations)) or "no hidden layer"
        return f"<FeedForward {sizes}, {kinds}, {self.output} output, classes {list(self.classes)}>"
