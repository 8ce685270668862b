"""How far counterfactuals are from their inputs and from the data, and whether they keep to what is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np

from apas._typing import Array, Bools, Floats
from apas._validation import check_integer, is_frame
from apas.counterfactuals.space.space import DISTANCES, FeatureSpace, check_space, own_columns
from apas.errors import InputError

#: From this difference on a feature counts as changed.
CHANGED = 1e-4
#: Digits that the share of changed features is rounded to.
DIGITS = 3
_NAMES, _KNOWN = ("inputs", "points"), ("background", "points")


def matrix(X: Any, argument: str, *, gaps: bool = True) -> Floats:
    """Give `X` as finite numbers of shape (rows, columns); rows that miss all cells may stay, as NaN."""
    try:
        values = np.asarray(X.detach().cpu() if hasattr(X, "detach") else X)
        if np.iscomplexobj(values) or values.dtype.kind in "mMSU":
            raise TypeError
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        wanted = "rows of numbers of equal length; encode what is not a number"
        raise InputError(f"`{argument}` must hold {wanted}.") from None
    if found.ndim == 1 and not len(found):
        return np.empty((0, 0))
    if found.ndim != 2:
        hint = "; for one row pass x[None, :]" if found.ndim == 1 else ""
        raise InputError(f"`{argument}` must be 2-D (rows, columns), got {found.ndim} dimensions{hint}.")
    bad = ~np.isfinite(found) & ~(gaps & missing_points(found))[:, None]
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        either = ", or rows in which all is missing" if gaps else ""
        told = f"`{argument}` must hold finite numbers{either}, but row {row}, column {column} is {found[row, column]};"
        raise InputError(f"{told} fill or drop it.")
    return found


def pair(first: Any, second: Any, names: tuple[str, str], *, rows: bool = True) -> tuple[Floats, Floats]:
    """Two tables with the same columns (by name if both have names) and, with `rows`, rows; the second with gaps."""
    if is_frame(first) and is_frame(second):
        apart = {*first.columns} ^ {*second.columns}
        if apart:
            told = f"`{names[1]}` must have the columns of `{names[0]}`, but {str(min(map(str, apart)))!r} is in one of"
            raise InputError(f"{told} them only; give both the same columns.")
        second = second[list(first.columns)]
    a, b = matrix(first, names[0], gaps=False), matrix(second, names[1])
    if rows and not len(a) and not len(b):
        return a, b
    if (a.shape != b.shape if rows else a.shape[1] != b.shape[1] and len(b)) or not a.shape[1]:
        what = f"the shape {a.shape}" if rows else f"the {a.shape[1]} columns"
        got = b.shape if rows else b.shape[1]
        raise InputError(f"`{names[1]}` must have {what} of `{names[0]}`, and at least one column, got {got}.")
    return a, b


def missing_points(rows: Floats) -> Bools:
    """Which rows hold nothing."""
    return np.asarray(np.isnan(rows).all(axis=1))


def fill_gaps(there: Bools, values: Array) -> Floats:
    """Values of the rows that are there, NaN for the others."""
    found = np.full(len(there), np.nan)
    found[there] = values
    return found


def l1(inputs: Any, points: Any) -> Floats:
    """Mean absolute difference over the columns, per row; all columns count alike, those of a one-hot feature too.

    Parameters
    ----------
    inputs, points : array_like or data frame of shape (rows, columns)
        Rows as the model sees them (scaled and encoded), and their counterfactuals; missing rows of `points` give NaN.

    Examples
    --------
    >>> l1([[0.0, 0.5]], [[0.5, 0.25]])
    array([0.375])
    """
    start, end = pair(inputs, points, _NAMES)
    return np.abs(end - start).mean(axis=1) if len(end) else np.empty(0)


def linf(inputs: Any, points: Any) -> Floats:
    """Largest absolute difference of any column, per row; see `l1`.

    Examples
    --------
    >>> linf([[0.0, 0.5]], [[0.5, 0.25]])
    array([0.5])
    """
    start, end = pair(inputs, points, _NAMES)
    return np.abs(end - start).max(axis=1) if len(end) else np.empty(0)


def l0(inputs: Any, points: Any, *, features: Any = None) -> Floats:
    """Share of the features that change by at least 1e-4, rounded to three digits, per row.

    Parameters
    ----------
    inputs, points : array_like or data frame of shape (rows, columns)
        As in `l1`.
    features : sequence of shape (columns,), optional
        Which feature each column belongs to, by name or number, so that the columns of a one-hot or thermometer code
        count once; unless given each column is a feature.

    Examples
    --------
    >>> l0([[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]], features=["income", "housing", "housing"])
    array([0.5])
    """
    start, end = pair(inputs, points, _NAMES)
    if not len(end):
        return np.empty(0)
    labels = list(range(end.shape[1])) if features is None else list(features)
    if len(labels) != end.shape[1]:
        raise InputError(f"`features` must name a feature for each of {end.shape[1]} columns, got {len(labels)}.")
    groups = [[j for j, other in enumerate(labels) if other == label] for label in dict.fromkeys(labels)]
    changes = np.stack([np.abs(end - start)[:, columns].max(axis=1) for columns in groups], axis=1)
    return np.where(missing_points(end), np.nan, share_changed(changes))


def share_changed(differences: Floats) -> Floats:
    """Share of the features whose difference is large enough, rounded as published."""
    return np.asarray(np.round((differences >= CHANGED).mean(axis=1), DIGITS))


def cost(space: FeatureSpace, inputs: Any, points: Any, *, distance: str = "l1") -> Floats:
    """What the changes cost by feature: numbers and levels in units of their ranges, categories 0 or 1.

    Parameters
    ----------
    space : FeatureSpace
    inputs, points : array_like or data frame of shape (rows, features)
        In raw units; missing rows of `points` give NaN.
    distance : {"l1", "linf"}, default "l1"
        The mean over the features, or the largest.

    Examples
    --------
    >>> from apas.counterfactuals.space.feature import Feature
    >>> space = FeatureSpace([Feature("age", low=20, high=70), Feature("home", "binary", values=("rent", "own"))])
    >>> cost(space, [[30, "rent"]], [[35, "own"]])
    array([0.55])
    """
    if distance not in DISTANCES:
        raise InputError(f'`distance` of cost must be "l1" or "linf", got {distance!r}.')
    start, end, there = _raw(space, inputs, points)
    return fill_gaps(there, space.costs(end[there], start[there], distance))


def violations(space: FeatureSpace, inputs: Any, points: Any) -> Floats:
    """Number of cells that break a constraint of the space, per row; the rows are as in `cost`.

    Examples
    --------
    >>> from apas.counterfactuals.space.feature import Feature
    >>> space = FeatureSpace([Feature("age", direction="increase"), Feature("income", low=0, high=9000, step=100)])
    >>> violations(space, [[30, 2000], [30, 2000]], [[29, 2150], [31, 2100]])
    array([2., 0.])
    """
    start, end, there = _raw(space, inputs, points)
    return fill_gaps(there, count_violations(space, end[there], start[there]))


def count_violations(space: FeatureSpace, points: Floats, inputs: Floats) -> Floats:
    """The same for numbers per cell."""
    return np.asarray((~space.allowed(points, inputs)).sum(axis=1), dtype=np.float64)


def _raw(space: FeatureSpace, inputs: Any, points: Any) -> tuple[Floats, Floats, Bools]:
    check_space(space)
    start, table = space.numbers(inputs, "inputs", missing=True), own_columns(points, space)
    end = space.numbers(table, "points", gaps=True, missing=True)
    if len(start) != len(end):
        raise InputError(f"`points` must have a row for each of the {len(start)} inputs, got {len(end)}.")
    return start, end, ~missing_points(end)


def lof(background: Any, points: Any, *, n_neighbors: int = 20) -> Floats:
    """Whether rows are as dense in neighbours as the data, by scikit-learn's local outlier factor: 1, or -1 if not.

    Parameters
    ----------
    background : array_like or data frame of shape (b, columns)
        The known rows as the model sees them; all of them are used, whatever their class.
    points : array_like or data frame of shape (rows, columns)
        The rows to judge, in the same units; missing rows give NaN.
    n_neighbors : int, default 20
        Neighbours whose density a row is compared with; the default is that of the published tables.

    References
    ----------
    Breunig, Kriegel, Ng and Sander (2000), "LOF: identifying density-based local outliers", SIGMOD.

    Examples
    --------
    >>> grid = [[0.1 * i, 0.1 * j] for i in range(10) for j in range(10)]
    >>> lof(grid, [[0.45, 0.45], [3.0, 3.0]])
    array([ 1., -1.])
    """
    known, rows = pair(background, points, _KNOWN, rows=False)
    count = check_integer(n_neighbors, "n_neighbors", "lof", least=1)
    if len(known) <= count:
        told = f"`background` must have more rows than the {count} neighbours that the local outlier factor looks at,"
        raise InputError(f"{told} got {len(known)}; give more rows, or leave this metric out.")
    if not (there := ~missing_points(rows)).any():
        return fill_gaps(there, np.empty(0))
    from sklearn.neighbors import LocalOutlierFactor

    return fill_gaps(there, LocalOutlierFactor(n_neighbors=count, novelty=True).fit(known).predict(rows[there]))


def distance_to_data(background: Any, points: Any) -> Floats:
    """Distance to the nearest known row, measured as by `l1`; the rows are as in `lof`.

    Examples
    --------
    >>> distance_to_data([[0.0, 0.0], [1.0, 1.0]], [[1.0, 0.5]])
    array([0.25])
    """
    known, rows = pair(background, points, _KNOWN, rows=False)
    if not len(known):
        raise InputError("`background` must have at least one row, got none; give rows, or leave this metric out.")
    if not (there := ~missing_points(rows)).any():
        return fill_gaps(there, np.empty(0))
    from sklearn.metrics import pairwise_distances_argmin_min

    return fill_gaps(there, pairwise_distances_argmin_min(rows[there], known, metric="manhattan")[1] / known.shape[1])
