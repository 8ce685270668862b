"""The usual worst-case test: a mixed-integer program with one binary per hidden unit and a fixed big M, in HiGHS."""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

__all__ = ["bisect", "least_margin"]

_Array = NDArray[np.float64]
BIG = 10_000.0


def least_margin(weights: list[_Array], biases: list[_Array], x: _Array, delta: float) -> float:
    """Least logit over all shifts by `delta` of a network with one hidden ReLU layer; inputs must not be negative.

    Built from arrays in one call; variables are the hidden units h and one binary per unit.
    """
    hidden = weights[0].shape[1]
    low = x @ (weights[0] - delta) + biases[0] - delta
    high = x @ (weights[0] + delta) + biases[0] + delta
    out = weights[1][:, 0] - delta  # activations are not negative, so the lower end is the worst
    infinite = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = 2 * hidden, 3 * hidden
    lp.col_cost_ = np.concatenate([out, np.zeros(hidden)])
    lp.col_lower_ = np.zeros(2 * hidden)
    lp.col_upper_ = np.concatenate([np.full(hidden, BIG), np.ones(hidden)])
    # h >= low,  h <= high + BIG (1 - a),  h <= BIG a
    lp.row_lower_ = np.concatenate([low, np.full(2 * hidden, -infinite)])
    lp.row_upper_ = np.concatenate([np.full(hidden, infinite), high + BIG, np.zeros(hidden)])
    units = np.arange(hidden)
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.full(hidden, 3), np.full(hidden, 2)]))])
    rows = [np.array([i, hidden + i, 2 * hidden + i]) for i in units] + [
        np.array([hidden + i, 2 * hidden + i]) for i in units
    ]
    values = [np.array([1.0, 1.0, 1.0])] * hidden + [np.array([BIG, -BIG])] * hidden
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = starts.astype(np.int32)
    lp.a_matrix_.index_ = np.concatenate(rows).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate(values)
    lp.integrality_ = [highspy.HighsVarType.kContinuous] * hidden + [highspy.HighsVarType.kInteger] * hidden
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    return float(solver.getInfo().objective_function_value) + float(biases[1][0]) - delta


def bisect(weights: list[_Array], biases: list[_Array], x: _Array) -> float:
    """Largest delta by doubling from 1e-4 and bisection to 1e-4, as published."""
    low, high = 0.0, 1e-4
    while least_margin(weights, biases, x, high) >= 0:
        low, high = high, 2 * high
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        if least_margin(weights, biases, x, middle) >= 0:
            low = middle
        else:
            high = middle
    return low
