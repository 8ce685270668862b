"""How much counterfactuals look like the data: outliers by density, and the nearest row that is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from apas._typing import Floats
from apas._validation import check_integer
from apas.errors import InputError
from apas.metrics.distance import filled, missing, pair

#: Neighbours whose density a row is compared with, as published.
NEIGHBOURS = 20
_NAMES = ("background", "points")


def lof(background: Any, points: Any, *, n_neighbors: int = NEIGHBOURS) -> Floats:
    """Whether rows are as dense in neighbours as the data, by scikit-learn's local outlier factor: 1, or -1 if not.

    Parameters
    ----------
    background : array_like or data frame of shape (b, columns)
        The known rows as the model sees them; all of them are used, whatever their class.
    points : array_like or data frame of shape (rows, columns)
        The rows to judge, in the same units; missing rows give NaN.
    n_neighbors : int, default 20

    Returns
    -------
    ndarray of shape (rows,)

    References
    ----------
    Breunig, Kriegel, Ng and Sander (2000), "LOF: identifying density-based local outliers", SIGMOD.

    Examples
    --------
    >>> grid = [[0.1 * i, 0.1 * j] for i in range(10) for j in range(10)]
    >>> lof(grid, [[0.45, 0.45], [3.0, 3.0]])
    array([ 1., -1.])
    """
    known, rows = pair(background, points, _NAMES, rows=False)
    count = check_integer(n_neighbors, "n_neighbors", "lof", least=1)
    if len(known) <= count:
        raise InputError(
            f"`background` must have more rows than the {count} neighbours that the local outlier factor looks at, "
            f"got {len(known)}; give more rows, or leave this metric out."
        )
    there = ~missing(rows)
    if not there.any():
        return filled(there, np.empty(0))
    from sklearn.neighbors import LocalOutlierFactor

    fitted = LocalOutlierFactor(n_neighbors=count, novelty=True).fit(known)
    return filled(there, fitted.predict(rows[there]))


def distance_to_data(background: Any, points: Any) -> Floats:
    """Distance to the nearest known row, measured as by `l1`: the mean absolute difference over the columns.

    Parameters
    ----------
    background : array_like or data frame of shape (b, columns)
        The known rows as the model sees them.
    points : array_like or data frame of shape (rows, columns)
        In the same units; missing rows give NaN.

    Returns
    -------
    ndarray of shape (rows,)

    Examples
    --------
    >>> distance_to_data([[0.0, 0.0], [1.0, 1.0]], [[1.0, 0.5]])
    array([0.25])
    """
    known, rows = pair(background, points, _NAMES, rows=False)
    if not len(known):
        raise InputError("`background` must have at least one row, got none; give rows, or leave this metric out.")
    there = ~missing(rows)
    if not there.any():
        return filled(there, np.empty(0))
    from sklearn.metrics import pairwise_distances_argmin_min

    apart = pairwise_distances_argmin_min(rows[there], known, metric="manhattan")[1]
    return filled(there, apart / known.shape[1])
