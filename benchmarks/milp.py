"""The usual worst-case test: a mixed-integer program with one binary per hidden unit and a fixed big M, in HiGHS."""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

__all__ = ["bisect", "least_margin"]

_Array = NDArray[np.float64]
BIG = 10_000.0


def least_margin(weights: list[_Array], biases: list[_Array], x: _Array, delta: float) -> float:
    """Least logit over all shifts by `delta` of a network of ReLU layers; inputs must not be negative.

    Built from arrays in one call; variables are the hidden units h and one binary per unit.
    """
    sizes = [w.shape[1] for w in weights[:-1]]
    units, starts = sum(sizes), np.cumsum([0, *sizes])
    infinite = highspy.kHighsInf
    # three blocks of rows: h >= low(a),  h <= high(a) + BIG (1 - z),  h <= BIG z
    matrix = np.zeros((3 * units, 2 * units))
    row_low, row_high = np.full(3 * units, -infinite), np.full(3 * units, infinite)
    everyone = np.arange(units)
    for block in range(3):
        matrix[block * units + everyone, everyone] = 1.0
    matrix[units + everyone, units + everyone] = BIG
    matrix[2 * units + everyone, units + everyone] = -BIG
    row_high[2 * units :] = 0.0
    for i, (w, b) in enumerate(zip(weights[:-1], biases[:-1], strict=True)):
        here = np.arange(starts[i], starts[i + 1])
        row_low[here], row_high[units + here] = b - delta, b + delta + BIG
        if i == 0:
            row_low[here] += x @ (w - delta)
            row_high[units + here] += x @ (w + delta)
        else:
            before = slice(starts[i - 1], starts[i])
            matrix[here, before] = -(w - delta).T
            matrix[units + here, before] = -(w + delta).T
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = 2 * units, 3 * units
    cost = np.zeros(2 * units)
    cost[starts[-2] : units] = weights[-1][:, 0] - delta  # activations are not negative: the lower end is the worst
    lp.col_cost_ = cost
    lp.col_lower_, lp.col_upper_ = np.zeros(2 * units), np.concatenate([np.full(units, BIG), np.ones(units)])
    lp.row_lower_, lp.row_upper_ = row_low, row_high
    rows, columns = np.nonzero(matrix)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(rows, np.arange(3 * units + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = columns.astype(np.int32), matrix[rows, columns]
    lp.integrality_ = [highspy.HighsVarType.kContinuous] * units + [highspy.HighsVarType.kInteger] * units
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    return float(solver.getInfo().objective_function_value) + float(biases[-1][0]) - delta


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
