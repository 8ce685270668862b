"""Means and variances of drawn outputs: sums that are added up in blocks, a t-test, and bounds for bounded outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALTERNATIVES", "Moments", "mean_reach", "spread_reach", "t_test"]

_Array = NDArray[np.float64]
ALTERNATIVES = ("two-sided", "less", "greater")


@dataclass
class Moments:
    """Count, mean, sum of squares about it, and mean magnitude, of several columns of numbers at once.

    Examples
    --------
    >>> moments = Moments.none(1)
    >>> moments.add(np.array([[1.0], [2.0]]))
    >>> moments.add(np.array([[6.0]]))
    >>> moments.mean, moments.variance
    (array([3.]), array([7.]))
    """

    count: int
    mean: _Array
    squares: _Array
    magnitude: _Array

    @classmethod
    def none(cls, columns: int) -> Moments:
        """Before the first number."""
        return cls(0, np.zeros(columns), np.zeros(columns), np.zeros(columns))

    def add(self, values: _Array) -> None:
        """Take in a block of numbers, shape (numbers, columns); merged pairwise, so that no digits cancel."""
        new = len(values)
        total = self.count + new
        mean = values.mean(axis=0)
        step = mean - self.mean
        self.squares += ((values - mean) ** 2).sum(axis=0) + step**2 * (self.count * new / total)
        self.mean = self.mean + step * (new / total)
        self.magnitude += (np.abs(values).mean(axis=0) - self.magnitude) * (new / total)
        self.count = total

    @property
    def variance(self) -> _Array:
        """The unbiased sample variances."""
        return np.asarray(self.squares / (self.count - 1))


def t_test(moments: Moments, alternative: str) -> tuple[_Array, _Array]:
    """Student's t and its p-value, per column, for the hypothesis that the expectation is 0.

    Exact for normal numbers; for others an approximation that gets better with their count. Numbers that are all the
    same have t = 0 and p = 1 if they are 0, else an infinite t.

    Examples
    --------
    >>> moments = Moments.none(2)
    >>> moments.add(np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]))
    >>> [array.round(4).tolist() for array in t_test(moments, "two-sided")]
    [[3.4641, 0.0], [0.0742, 1.0]]
    """
    from scipy.special import stdtr

    error = np.sqrt(moments.variance / moments.count)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(moments.mean == 0, 0.0, moments.mean / error)
    below = stdtr(moments.count - 1, t)
    above = stdtr(moments.count - 1, -t)
    p = {"less": below, "greater": above, "two-sided": np.minimum(1.0, 2 * np.minimum(below, above))}[alternative]
    return t, np.asarray(p)


def mean_reach(count: int, deviation: _Array, width: _Array, risk: float) -> _Array:
    """How far an expectation can be above (or below) the mean of independent numbers from a range of this width.

    Each side is passed with a probability of at most `risk`, for every distribution and every count of at least 2.

    References
    ----------
    Maurer and Pontil (2009), "Empirical Bernstein bounds and sample variance penalization", COLT, Theorem 4.

    Examples
    --------
    >>> mean_reach(1000, np.array([0.1]), np.array([1.0]), 0.05).round(4)
    array([0.0172])
    """
    log = math.log(2 / risk)
    return np.asarray(deviation * math.sqrt(2 * log / count) + width * 7 * log / (3 * (count - 1)))


def spread_reach(count: int, width: _Array, risk: float) -> _Array:
    """How far the standard deviation can be above (or below) that of the sample, likewise (Theorem 10)."""
    return np.asarray(width * math.sqrt(2 * math.log(1 / risk) / (count - 1)))
