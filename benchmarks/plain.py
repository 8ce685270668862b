"""The baseline every ratio is taken against: one shifted model at a time, in plain NumPy."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

__all__ = ["largest_shift", "passes", "random_network", "sampling_test"]

_Arrays = list[NDArray[np.float64]]


def sampling_test(weights: _Arrays, biases: _Arrays, x: NDArray[np.float64], delta: float, n_samples: int) -> int:
    """How many of `n_samples` shifted models put `x` below 0: the loop anyone would write first."""
    rng = np.random.default_rng(1)
    failures = 0
    for _ in range(n_samples):
        a = x
        for i in range(len(weights)):
            shift_w = rng.uniform(-delta, delta, weights[i].shape)
            shift_b = rng.uniform(-delta, delta, biases[i].shape)
            a = a @ (weights[i] + shift_w) + (biases[i] + shift_b)
            if i < len(weights) - 1:
                a = np.maximum(a, 0.0)
        failures += int(a[0] < 0.0)
    return failures


def random_network(sizes: tuple[int, ...], seed: int) -> tuple[_Arrays, _Arrays]:
    """Weights and biases of a random dense network."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]
    biases = [0.1 * rng.normal(size=b) for b in sizes[1:]]
    return weights, biases


def largest_shift(weights: _Arrays, biases: _Arrays, x: NDArray[np.float64], n_samples: int) -> float:
    """Algorithm 1 as a loop over the plain test, which stops at its first failure: double from 1e-4, bisect to 1e-4."""
    low, high = 0.0, 1e-4
    while passes(weights, biases, x, high, n_samples):
        low, high = high, 2 * high
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        if passes(weights, biases, x, middle, n_samples):
            low = middle
        else:
            high = middle
    return low


def passes(weights: _Arrays, biases: _Arrays, x: NDArray[np.float64], delta: float, n_samples: int) -> bool:
    """Whether none of the shifted models fails; ends at the first that does."""
    rng = np.random.default_rng(1)
    for _ in range(n_samples):
        a = x
        for i in range(len(weights)):
            shift_w = rng.uniform(-delta, delta, weights[i].shape)
            shift_b = rng.uniform(-delta, delta, biases[i].shape)
            a = a @ (weights[i] + shift_w) + (biases[i] + shift_b)
            if i < len(weights) - 1:
                a = np.maximum(a, 0.0)
        if a[0] < 0.0:
            return False
    return True
