"""From scores to margins, and the one place that decides what "valid" means.

The margin of a row towards a class is, for a binary model, ``logit(p) - logit(threshold)`` for class 1 and its
negative for class 0 (for scores compared with a threshold themselves: ``score - threshold``); with more classes it
is the wanted score minus the best other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.errors import InputError

__all__ = ["class_indices", "margins_from_scores", "needs_strict", "valid"]

_Array = NDArray[np.float64]


def class_indices(classes: tuple[Any, ...], target: Any, rows: int) -> NDArray[np.intp]:
    """Position in `classes` of the wanted class of each row.

    Examples
    --------
    >>> class_indices(("no", "yes"), "yes", 2)
    array([1, 1])
    """
    positions = {label: i for i, label in enumerate(classes)}
    if isinstance(target, str | int | float | np.generic):
        return np.full(rows, _position(positions, target, classes))
    labels = np.asarray(target, dtype=object)
    if labels.ndim > 1:
        raise InputError(f"`target` must be one class or one per row, got an array of shape {labels.shape}.")
    if labels.ndim == 1 and len(labels) != rows:
        raise InputError(
            f"`target` must be one class or one per row ({rows}), got {len(labels)} values; "
            "pass a single label to want the same class for all rows."
        )
    found = [_position(positions, label, classes) for label in labels.reshape(-1).tolist()]
    return np.broadcast_to(np.array(found, dtype=np.intp), (rows,))


def _position(positions: dict[Any, int], label: Any, classes: tuple[Any, ...]) -> int:
    try:
        return positions[label]
    except (KeyError, TypeError):  # TypeError: an unhashable label, such as a list
        hint = " (a text, while the classes are not)" if _same_text(classes, label) else ""
        message = f"`target` must be one of the model's classes {_listed(classes)}, got {label!r}{hint}."
        raise InputError(message) from None


def _same_text(classes: tuple[Any, ...], label: Any) -> bool:
    return isinstance(label, str) and label in [str(c) for c in classes]


def _listed(classes: tuple[Any, ...]) -> str:
    shown = ", ".join(repr(c.item() if isinstance(c, np.generic) else c) for c in classes[:10])
    return f"({shown}{', ...' if len(classes) > 10 else ''})"


def margins_from_scores(scores: _Array, wanted: NDArray[np.intp], offset: float) -> _Array:
    """Reduce scores of shape (..., rows, outputs) to margins of shape (..., rows).

    Parameters
    ----------
    scores : ndarray of shape (..., rows, outputs)
        One score (class 1 of a binary model) or one per class.
    wanted : ndarray of int, shape (rows,)
        Position of the wanted class.
    offset : float
        What the score of a binary model is compared with (the threshold's logit).

    Examples
    --------
    >>> margins_from_scores(np.array([[1.0, 4.0, 3.0]]), np.array([1]), 0.0)
    array([1.])
    """
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


def needs_strict(classes: tuple[Any, ...], target: NDArray[Any]) -> NDArray[np.bool_]:
    """Rows whose margin must be above 0 rather than at least 0: all but those that want class 1 of a binary model.

    Examples
    --------
    >>> needs_strict((0, 1), np.array([0, 1]))
    array([ True, False])
    """
    return np.asarray(target != classes[1]) if len(classes) == 2 else np.ones(len(target), dtype=bool)


def valid(margins: _Array, strict: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each margin means "the model gives the target class"; NaN never does.

    Examples
    --------
    >>> valid(np.array([0.0, 0.0, float("nan")]), np.array([False, True, False]))
    array([ True, False, False])
    """
    return np.asarray(np.where(strict, margins > 0, margins >= 0))
