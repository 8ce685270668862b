"""`evaluate`: ask for metrics by name, get a table."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas._random import entropy_of
from apas._validation import check_delta, check_jobs, is_frame
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.wanted import own_columns
from apas.errors import InputError
from apas.metrics.measures import DRAWING, METRICS, NEEDED, Asked, Columns
from apas.metrics.table import Evaluation
from apas.metrics.validity import read_retrained
from apas.models.convert import encoded_rows

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["evaluate"]

DEFAULT = ("validity", "l1", "l0", "lof")

_Array = NDArray[np.float64]


def evaluate(
    counterfactuals: Counterfactuals,
    *,
    background: Any = None,
    retrained: Sequence[Any] = (),
    metrics: Sequence[str] = DEFAULT,
    delta: float | None = None,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> Evaluation:
    """Measure counterfactuals: one row per counterfactual, and a summary.

    Parameters
    ----------
    counterfactuals : Counterfactuals
        From `generate`, or those of another tool through `Counterfactuals.from_frame`.
    background : array_like or data frame of shape (b, features), optional
        Known rows in raw units, of all classes, such as the training table. For "lof" and "distance_to_data".
    retrained : sequence of models, optional
        Models that came after the one the counterfactuals are for. For "validity".
    metrics : sequence of str, default ("validity", "l1", "l0", "lof")
        What to measure; see the notes. Without `background` the default is without "lof".
    delta : float, optional
        How far the parameters may move, in the terms of the counterfactuals' shift set. For "delta_validity" and
        "robust_fraction".
    n_jobs : int, default 1
        Number of processes; the metrics do not depend on it.
    rng : None, int or numpy.random.Generator
        Seed of the draws of "robust_fraction" and "max_shift"; recorded in the result.

    Returns
    -------
    Evaluation

    Notes
    -----
    Encoded variables are the inputs as the model sees them: scaled, one-hot and so on, by the space or by the model's
    own pipeline.

    - "validity": whether the model gives the wanted class (column ``valid``), and whether each retrained model does
      (``valid_retrained``, or ``valid_retrained_0``, ... for several).
    - "l1", "linf": mean and largest absolute difference over the encoded variables.
    - "l0": share of the features, not the encoded variables, that change by at least 1e-4 of their range (categories:
      at all), rounded to three digits.
    - "cost": the distance that the counterfactuals were made for, feature by feature: numbers and levels in units of
      their range, categories 0 or 1.
    - "lof": 1, or -1 for an outlier among the background rows by scikit-learn's `LocalOutlierFactor` with 20
      neighbours, in encoded variables.
    - "distance_to_data": distance to the nearest background row, measured as l1.
    - "violations": number of cells that break a constraint of the space.
    - "delta_validity": whether interval bounds prove that every shift up to `delta` keeps the class.
    - "robust_fraction": estimated share of the shifts of size `delta` that keep the class.
    - "max_shift": the largest shift at which sampling certifies the class, with the defaults of `max_shift`.

    References
    ----------
    Marzari, Leofante, Cicalese and Farinelli (2024), "Rigorous Probabilistic Guarantees for Robust Counterfactual
    Explanations", ECAI, Section 7.

    Examples
    --------
    >>> import apas
    >>> from apas.counterfactuals.result import Counterfactuals
    >>> net, later = (apas.FeedForward([[[1.0], [1.0]]], [[b]]) for b in (-1.0, -1.1))
    >>> given = Counterfactuals.from_frame(net, [[0.2, 0.3], [0.3, 0.3]], [[0.9, 0.3], [0.3, 0.75]])
    >>> found = evaluate(given, retrained=[later], metrics=("validity", "l1", "l0", "max_shift"), rng=0)
    >>> found.summary()[["vm1", "vm2", "l1", "l0"]].round(4).tolist()
    [1.0, 0.5, 0.2875, 0.5]
    """
    names = _names(metrics if metrics is not DEFAULT or background is not None else DEFAULT[:-1])
    if not isinstance(counterfactuals, Counterfactuals):
        raise InputError(
            f"`counterfactuals` must be what apas.generate gives, got {type(counterfactuals).__name__}; take those of "
            "other tools with Counterfactuals.from_frame(model, X, points)."
        )
    _check_given(names, {"background": background, "delta": delta})
    if isinstance(delta, Iterable) and not isinstance(delta, str):
        raise InputError(f"`delta` of evaluate must be one number for all rows, got {reprlib.repr(delta)}.")
    draws = any(name in DRAWING for name in names)
    asked = Asked(
        counterfactuals,
        None if background is None else _encoded_background(counterfactuals, background),
        read_retrained(retrained, counterfactuals.space, counterfactuals.model.classes),
        None if delta is None else float(check_delta(delta, 1)[0]),
        check_jobs(n_jobs),
        entropy_of(rng),
    )
    return Evaluation(
        _table(counterfactuals, {k: v for name in names for k, v in METRICS[name](asked).items()}),
        _spread(counterfactuals.found, asked.valid, False), names, len(asked.retrained), asked.delta,
        asked.entropy if draws else None,
    )  # fmt: skip


def _names(metrics: Any) -> tuple[str, ...]:
    known = ", ".join(repr(name) for name in METRICS)
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise InputError(f"`metrics` must be a list of names out of {known}, got {metrics!r}; pass [name] for one.")
    names = tuple(dict.fromkeys(metrics))
    for name in names:
        if not isinstance(name, str) or name not in METRICS:
            raise InputError(f"`metrics` must be out of {known}, got {name!r}.")
    return names


def _check_given(names: tuple[str, ...], given: Mapping[str, Any]) -> None:
    for name in names:
        argument, what = NEEDED.get(name, ("", ""))
        if argument and given[argument] is None:
            raise InputError(f"`{argument}` must be given for the metric {name!r}: {what}; or leave the metric out.")


def _encoded_background(counterfactuals: Counterfactuals, background: Any) -> _Array:
    space = counterfactuals.space
    known = space.numbers(own_columns(background, space), "background")
    return encoded_rows(counterfactuals.model, space.table(known))[1]


def _table(counterfactuals: Counterfactuals, columns: Columns) -> DataFrame:
    """One line per counterfactual, with gaps where nothing was found."""
    import pandas as pd

    points, found = counterfactuals.points, counterfactuals.found
    index = points.index if is_frame(points) else pd.RangeIndex(len(counterfactuals))
    shown: dict[str, Any] = {"row": counterfactuals.row, "rank": counterfactuals.rank, "found": found}
    for name, values in columns.items():
        whole = _spread(found, values, None if values.dtype == bool else np.nan)
        shown[name] = pd.array(whole, dtype="boolean") if values.dtype == bool else whole
    return pd.DataFrame(shown, index=index)


def _spread(found: NDArray[np.bool_], values: NDArray[Any], gap: Any) -> NDArray[Any]:
    """Values of those that were found among all, the others filled up with `gap`."""
    whole = np.full(len(found), gap, dtype=object if gap is None else values.dtype)
    whole[found] = values
    return whole
