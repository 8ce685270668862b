"""What makes a dense network: the arguments of `FeedForward`, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apas._validation import check_probability
from apas.errors import InputError
from apas.models.activations import ACTIVATIONS

__all__ = ["check_activations", "check_classes", "check_layers", "check_threshold"]

_Array = NDArray[np.float64]


def check_layers(
    weights: Sequence[ArrayLike], biases: Sequence[ArrayLike | None]
) -> tuple[tuple[_Array, ...], tuple[_Array, ...]]:
    """Weights and biases as read-only arrays whose shapes fit each other; zeros for biases that are None."""
    counts = [len(v) if isinstance(v, Sequence | np.ndarray) else None for v in (weights, biases)]
    if not counts[0] or counts[0] != counts[1]:
        got = [type(v).__name__ if n is None else n for v, n in zip((weights, biases), counts, strict=True)]
        raise InputError(
            "`weights` and `biases` of FeedForward must have one entry per layer, in a list, and at least one, "
            f"got {got[0]} and {got[1]}."
        )
    matrices = tuple(_frozen(w, "weights", i, 2) for i, w in enumerate(weights))
    given = [np.zeros(w.shape[1]) if b is None else b for w, b in zip(matrices, biases, strict=True)]
    vectors = tuple(_frozen(b, "biases", i, 1) for i, b in enumerate(given))
    for i, (w, b) in enumerate(zip(matrices, vectors, strict=True)):
        if i and w.shape[0] != matrices[i - 1].shape[1]:
            raise InputError(
                f"`weights[{i}]` of FeedForward must have {matrices[i - 1].shape[1]} rows, as layer {i - 1} has "
                f"outputs, got {w.shape[0]}; weights are (inputs, outputs): from (outputs, inputs) use .T."
            )
        if len(b) != w.shape[1]:
            raise InputError(
                f"`biases[{i}]` of FeedForward must have {w.shape[1]} entries, as layer {i} has outputs, got {len(b)}."
            )
    return matrices, vectors


def _frozen(array: ArrayLike, name: str, index: int, ndim: int) -> _Array:
    try:
        given = np.asarray(array)
    except (TypeError, ValueError):
        given = np.empty(0, dtype=object)  # rows of different lengths
    if given.dtype.kind not in "biuf":
        raise InputError(f"`{name}[{index}]` of FeedForward must be a {ndim}-D array of real numbers.")
    copy = np.array(given, dtype=np.float64, order="C")
    if copy.ndim != ndim or copy.size == 0:
        raise InputError(
            f"`{name}[{index}]` of FeedForward must be a non-empty {ndim}-D array, got shape {copy.shape}."
        )
    if not np.isfinite(copy).all():
        raise InputError(
            f"`{name}[{index}]` of FeedForward must hold finite numbers, got {copy[~np.isfinite(copy)][0]}; "
            "was the training stable?"
        )
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
        raise InputError(
            f"`activation` of FeedForward must be one name or one per hidden layer ({hidden}), got {len(names)}."
        )
    return names


def check_classes(classes: Sequence[Any] | None, output: str, outputs: int) -> tuple[Any, ...]:
    """Class labels, as many as the output can tell apart."""
    if output == "softmax" and outputs < 2:
        raise InputError(
            '`output` of FeedForward is "softmax", which needs a score per class, but the last layer has 1 output.'
        )
    if output != "softmax" and outputs != 1:
        raise InputError(
            f'`output` of FeedForward is "{output}", which needs 1 output, but the last layer has {outputs}; '
            'use "softmax".'
        )
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
        raise InputError(
            f"`threshold` of FeedForward only applies to two classes, but there are {n_classes}; leave it out."
        )
    return value
