"""`DataChange`: every model that is fitted again after some rows of the training table have changed.

The last layer of the model is an L2-regularised logistic regression, or a ridge classifier, on the features that enter
it: of a linear model the encoded columns themselves, of a network what its hidden layers make of them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np

from apas._fields import EqualByContent, Fields
from apas._typing import Bools, Floats, Indices
from apas._validation import check_number
from apas.display.numbers import at_most, exactly, plain
from apas.errors import ApasError, InputError, Unsupported
from apas.models.as_model import as_model, encoded_rows
from apas.models.base import Arithmetic, Dense, FromEstimator, Model, Parameters, class_indices, offers
from apas.models.forward import activate
from apas.shifts.base import ShiftWords

KINDS = ("removed", "relabelled", "added", "replaced")
LOSSES = ("logistic", "squared")
#: Scikit-learn's classifiers whose refits are spoken of, with their loss and the name of what regularises them.
CLASSIFIERS = {"LogisticRegression": ("logistic", "C"), "RidgeClassifier": ("squared", "alpha")}
#: Newton's method ends below this norm of the gradient, or when it gets no smaller.
SMALL_GRADIENT, STEPS = 1e-11, 60


@dataclass(frozen=True, eq=False)
class FitProblem:
    """What is minimised: ``|w|^2 / 2 + sum_i c_i loss(z_i @ theta, y_i)`` with ``theta = (w, intercept)``.

    Parameters
    ----------
    Z : ndarray of shape (n, features + 1)
        Rows as they enter the last layer, with a 1 behind them.
    y : ndarray of shape (n,)
        0 or 1; -1 or 1 for the squared loss ``(m - y)^2 / 2``.
    weights : ndarray of shape (n,)
        The c_i: C times the weights of the row and of its class.
    turned : ndarray of shape (n,)
        The c_i of the same rows with the other label.
    logistic : bool
    """

    Z: Floats
    y: Floats
    weights: Floats
    turned: Floats
    logistic: bool

    @property
    def other(self) -> Floats:
        """The other label of each row."""
        return 1.0 - self.y if self.logistic else -self.y

    @cached_property
    def penalised(self) -> Floats:
        """1 for each weight, 0 for the intercept."""
        return np.append(np.ones(self.Z.shape[1] - 1), 0.0)

    def residuals(self, m: Floats) -> Floats:
        """Derivatives of the losses at scores; small ones as exact as large ones."""
        if not self.logistic:
            return m - self.y
        sign = 1.0 - 2.0 * self.y
        return sign * expit(sign * m)

    def gradient(self, theta: Floats) -> Floats:
        """Gradient of what is minimised."""
        return np.asarray(self.Z.T @ (self.weights * self.residuals(self.Z @ theta)) + self.penalised * theta)

    def curvatures(self, m: Floats) -> Floats:
        """Second derivatives of the losses at scores, weighted."""
        return np.asarray(self.weights * (slope(m) if self.logistic else 1.0))

    def hessian(self, theta: Floats) -> Floats:
        """Hessian of what is minimised."""
        return np.asarray((self.Z.T * self.curvatures(self.Z @ theta)) @ self.Z + np.diag(self.penalised))

    def value(self, theta: Floats) -> float:
        """What is minimised."""
        m = self.Z @ theta
        losses = np.logaddexp(0.0, m) - self.y * m if self.logistic else 0.5 * (m - self.y) ** 2
        return float(0.5 * (self.penalised * theta) @ theta + self.weights @ losses)

    def minimiser(self, start: Floats | None = None) -> Floats:
        """The minimiser by Newton's method, as exactly as floats allow; how exact it is, who uses it must measure."""
        theta = np.zeros(self.Z.shape[1]) if start is None else start
        gradient, least = self.gradient(theta), math.inf
        for _ in range(STEPS):
            step = np.linalg.lstsq(self.hessian(theta), gradient, rcond=None)[0]
            decrement = math.sqrt(max(0.0, float(gradient @ step)))
            if decrement <= SMALL_GRADIENT or (decrement < 1e-7 and decrement > 0.5 * least):
                break
            least, length = decrement, 1.0
            if decrement > 0.1:  # far away a full step may lead farther
                value = self.value(theta)
                while self.value(theta - length * step) > value - 0.1 * length * decrement**2 and length > 1e-6:
                    length *= 0.5
            theta = theta - length * step
            gradient = self.gradient(theta)
        return np.asarray(theta)

    def without(self, rows: Indices) -> FitProblem:
        """The problem on the data without some rows."""
        weights = self.weights.copy()
        weights[rows] = 0.0  # a loss that does not count is as good as none
        return replace(self, weights=weights)

    def relabelled(self, rows: Indices) -> FitProblem:
        """The problem on the data with the other label of some rows."""
        y, weights = self.y.copy(), self.weights.copy()
        y[rows], weights[rows] = self.other[rows], self.turned[rows]
        return replace(self, y=y, weights=weights)

    def with_copies(self, row: Floats, label: float, weight: float, count: int) -> FitProblem:
        """The problem on the data with so many copies of one row more: one of so many times the weight."""
        parts = (self.Z, row[None]), (self.y, [label]), (self.weights, [count * weight]), (self.turned, [0.0])
        Z, y, weights, turned = (np.concatenate(part) for part in parts)
        return FitProblem(Z, y, weights, turned, self.logistic)


def expit(m: Floats) -> Floats:
    """The logistic function with a small relative error on both sides."""
    tail = np.exp(-np.abs(m))
    return np.asarray(np.where(m >= 0, 1.0, tail) / (1.0 + tail))


def slope(m: Floats) -> Floats:
    """The derivative of the logistic function."""
    tail = np.exp(-np.abs(m))
    return np.asarray(tail / (1.0 + tail) ** 2)


@dataclass(frozen=True, eq=False)
class AddedRows:
    """Where added rows may lie as they enter the last layer: a box, and of the columns of each category one is 1."""

    low: Floats
    high: Floats
    categories: Sequence[Sequence[int]]
    weight: float

    @cached_property
    def points(self) -> tuple[Floats, Indices]:
        """Rows that are 0 outside of their group, and where groups begin: a row is a sum of one, or a mix, of each.

        Groups are the two ends of a column, a 1 in one of the columns of a category, and the 1 of the intercept.
        """
        unit, within = np.eye(len(self.low) + 1), {column for group in self.categories for column in group}
        alone = [j for j in range(len(self.low)) if j not in within]
        groups = [unit[list(group)] for group in self.categories]
        groups += [np.stack([self.low[j] * unit[j], self.high[j] * unit[j]]) for j in alone]
        return np.concatenate([*groups, unit[-1:]]), np.cumsum([0, *map(len, groups)])

    def snapped(self, row: Floats) -> Floats:
        """A row that lies there but for rounding, with the 1 of the intercept behind it, as one that does."""
        row = np.append(np.clip(row[:-1], self.low, self.high), 1.0)
        for group in self.categories:
            row[list(group)] = np.rint(row[list(group)])
        return row

    def contain(self, rows: Floats) -> Bools:
        """Which rows lie there."""
        inside = ((rows >= self.low) & (rows <= self.high)).all(axis=1)
        for group in self.categories:
            inside &= (np.isin(rows[:, group], (0.0, 1.0))).all(axis=1) & (rows[:, group].sum(axis=1) == 1)
        return np.asarray(inside)
