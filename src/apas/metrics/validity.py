"""Whether counterfactuals have the wanted class: on a model, on retrained ones, on every shifted one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from apas._typing import Array, Bools
from apas._validation import check_matrix, is_frame
from apas.certification.api import certify
from apas.certification.question import check_agreement, check_target
from apas.counterfactuals.space.encoder import missing_rows
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError, Unsupported
from apas.models.as_model import as_model, encoded_rows
from apas.models.base import Model, Predicts, Raw, needs_strict, offers, valid
from apas.shifts.base import ShiftSet


def validity(model: Any, points: Any, target: Any) -> Bools:
    """Which rows a model puts into the wanted class.

    Parameters
    ----------
    model : object
        See `as_model`.
    points : array_like or data frame of shape (rows, features)
        In the units the model takes; a missing row is not valid.
    target : label or array_like of labels
        The wanted class, one for all rows or one per row.

    Returns
    -------
    ndarray of bool, shape (rows,)

    Examples
    --------
    >>> import apas
    >>> validity(apas.FeedForward([[[1.0]]], [[0.0]]), [[0.5], [-0.5], [float("nan")]], 1)
    array([ True, False, False])
    """
    net = as_model(model)
    rows, labels, there = _there(net, points, target)
    there[there] = valid_rows(net, rows, labels, "`model`")
    return there


def delta_validity(
    model: Any, points: Any, delta: float, *, target: Any, shifts: ShiftSet | str = "linf", n_jobs: int = 1
) -> Bools:
    """Which rows keep the wanted class under every shift of the model up to `delta`, as interval bounds prove it.

    Parameters
    ----------
    model : object
        See `as_model`.
    points : array_like or data frame of shape (rows, features)
        In the units the model takes; a missing row is not valid.
    delta : float
        How far the parameters may move.
    target : label or array_like of labels
    shifts : ShiftSet or str, default "linf"
    n_jobs : int, default 1

    Returns
    -------
    ndarray of bool, shape (rows,)
        False also where the bounds prove nothing, which happens only with two or more hidden layers.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> delta_validity(net, [[2.0, 0.5], [1.0, 0.9]], 0.4, target=1)
    array([ True, False])
    """
    net = as_model(model)
    rows, labels, there = _there(net, points, target)
    there[there] = certify(net, rows, delta, target=labels, shifts=shifts, method="interval", n_jobs=n_jobs).certified
    return there


def _there(net: Predicts, points: Any, target: Any) -> tuple[Any, Array, Bools]:
    """The rows that are there, their wanted classes, and which they are."""
    if isinstance(target, str) and target == "predicted" and target not in net.classes:
        raise InputError(f"`target` must be the wanted class, one of {list(net.classes)}, got 'predicted'.")
    width = net.n_raw_features if offers(net, Raw) else net.n_features
    try:
        table = check_matrix(points, width, None)
    except InputError as error:
        raise InputError(str(error).replace("`X`", "`points`")) from None
    there = ~missing_rows(table)
    labels = check_target(net, np.empty((len(there), 0)), target)
    return (table.iloc[there] if is_frame(table) else table[there]), labels[there], there


def valid_rows(model: Predicts, rows: Any, target: Array, name: str) -> Bools:
    """Which complete rows in raw units have their wanted class; `name` is for errors."""
    raw, encoded = encoded_rows(model, rows)
    if offers(model, Model):  # what only predicts says itself what it says
        check_agreement(model, raw, encoded, name=name)
    if not len(encoded):
        return np.empty(0, dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not valid
        return valid(model.margin(encoded, target), needs_strict(model.classes, target))


def read_retrained(retrained: Any, space: FeatureSpace, classes: tuple[Any, ...]) -> tuple[Model, ...]:
    """Retrained models as ones that take raw rows of the space and know the same classes."""
    if not isinstance(retrained, Sequence) or isinstance(retrained, str | bytes):
        raise InputError(f"`retrained` must be a list of models, got {type(retrained).__name__}; pass [model] for one.")
    found = []
    for i, model in enumerate(retrained):
        try:
            found.append(space.bind(model))
        except (InputError, Unsupported) as error:
            raise type(error)(f"`retrained[{i}]` cannot be read: {error}") from error
        if {*found[i].classes} != {*classes}:
            raise InputError(
                f"`retrained[{i}]` must have the classes {list(classes)} of the model that the counterfactuals are "
                f"for, got {list(found[i].classes)}."
            )
    return tuple(found)
