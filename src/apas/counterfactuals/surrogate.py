"""A straight line in place of a model: how it is fitted to the model's answers, and its worst case when it moves.

`Surrogate` scores points by ``slopes @ point + intercept``, at least 0 for the wanted class. When slopes and intercept
together move within a ball, the lowest score of a point is known in closed form: the score minus the radius times the
dual norm of the point with a 1 for the intercept appended.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BALLS", "Surrogate", "fitted", "fitted_by_default"]

_Array = NDArray[np.float64]
BALLS = ("linf", "l1")
#: Decimals that are kept of slopes and intercept.
DECIMALS = 4
#: Newton steps of a fit at most, halvings of each, and the step that ends it.
STEPS, HALVINGS, SMALL = 50, 30, 1e-9


@dataclass(frozen=True)
class Surrogate:
    """Scores along a line.

    Attributes
    ----------
    slopes : ndarray of shape (columns,)
    intercept : float

    Examples
    --------
    >>> line = Surrogate(np.array([2.0, -1.0]), -0.5)
    >>> line.worst(np.array([[1.0, 0.5]]), np.array([0.1]), "linf")
    (array([0.75]), array([[ 1.9, -1.1]]))
    """

    slopes: _Array
    intercept: float

    def worst(self, points: _Array, radii: _Array, ball: str) -> tuple[_Array, _Array]:
        """The lowest scores (rows,) of lines within the radius of each row, and their derivatives (rows, columns)."""
        scores = points @ self.slopes + self.intercept
        sizes, signs = np.abs(points), np.sign(points)
        if ball == "linf":  # every entry moves against the point, and the intercept down
            return scores - radii * (sizes.sum(axis=1) + 1.0), self.slopes - radii[:, None] * signs
        rows, largest = np.arange(len(points)), sizes.argmax(axis=1)  # all of the move goes where it does most harm
        by_point = np.tile(self.slopes, (len(points), 1))
        by_point[rows, largest] -= np.where(sizes[rows, largest] > 1.0, radii * signs[rows, largest], 0.0)
        return scores - radii * np.maximum(sizes.max(axis=1), 1.0), by_point

    def in_units(self, origin: _Array, units: _Array) -> Surrogate:
        """The same line for points p, where it was made for ``(p - origin) / units``."""
        slopes = self.slopes / units
        return Surrogate(slopes, self.intercept - float(slopes @ origin))

    def rounded(self) -> Surrogate:
        """The line with the decimals that are kept."""
        return Surrogate(self.slopes.round(DECIMALS), round(self.intercept, DECIMALS))


def fitted(points: _Array, hit: NDArray[np.bool_], weights: _Array) -> Surrogate | None:
    """Logistic regression of hits on points, each with its weight, and half the squared slopes as a penalty.

    Parameters
    ----------
    points : ndarray of shape (rows, columns)
    hit : ndarray of bool, shape (rows,)
        Which points are of the wanted class.
    weights : ndarray of shape (rows,)

    Returns
    -------
    Surrogate or None
        None if all points are of one class, since there is no line between them then.

    Examples
    --------
    >>> line = fitted(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([False, False, True, True]), np.ones(4))
    >>> round(float(-line.intercept / line.slopes[0]), 6)
    1.5
    """
    from scipy.special import expit

    if hit.all() or not hit.any():
        return None
    columns = np.column_stack([points, np.ones(len(points))])
    penalty = np.append(np.ones(points.shape[1]), 0.0)
    wanted, found = hit.astype(np.float64), np.zeros(points.shape[1] + 1)

    def loss(theta: _Array) -> float:
        scores = columns @ theta
        return float(weights @ (np.logaddexp(0.0, scores) - wanted * scores) + 0.5 * penalty @ theta**2)

    reached = loss(found)
    for _ in range(STEPS):
        chance = expit(columns @ found)
        gradient = columns.T @ (weights * (chance - wanted)) + penalty * found
        bend = (columns * (weights * chance * (1.0 - chance))[:, None]).T @ columns + np.diag(penalty)
        bend[-1, -1] += np.finfo(float).eps * (1.0 + weights.sum())  # so that it can be solved where weights vanish
        step = np.linalg.solve(bend, gradient)
        for _ in range(HALVINGS):
            tried = loss(found - step)
            if tried <= reached:
                break
            step = 0.5 * step
        else:
            break  # nothing but rounding is left
        found, reached = found - step, tried
        if np.abs(step).max() < SMALL:
            break
    return Surrogate(found[:-1], float(found[-1]))


def fitted_by_default(points: _Array, hit: NDArray[np.bool_], weights: _Array) -> Surrogate | None:
    """The same by scikit-learn with its default settings, whose 100 iterations need not be enough.

    With many columns of levels they are not: the published lines are where these iterations ended.

    Examples
    --------
    >>> hit = np.array([False, False, True, True])
    >>> line = fitted_by_default(np.array([[0.0], [1.0], [2.0], [3.0]]), hit, np.ones(4))
    >>> round(float(-line.intercept / line.slopes[0]), 3)
    1.5
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if hit.all() or not hit.any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = LogisticRegression().fit(points, hit, sample_weight=weights)
    return Surrogate(found.coef_[0], float(found.intercept_[0]))
