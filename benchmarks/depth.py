"""How deep and wide a trained network may be for exact answers: `python -m benchmarks.depth` prints a table.

Networks are trained (scikit-learn's `MLPClassifier`) on points of two classes in 20 dimensions, and one with layers
784-100-100-10 on scikit-learn's digits blown up to 28 x 28. `max_shift(method="exact")` is asked about a few test rows
of each; the *bracket* is the broken delta over the proved one. Times and time limits are of the processor, so that a
busy machine does not change the table; the solver's own clock is the exception.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import apas

__all__ = ["main"]

_Array = NDArray[np.float64]
DEPTHS, WIDTHS = (1, 2, 3, 4, 5, 6), (10, 25, 50, 100, 500)


def trained(depth: int, width: int, rows: int) -> tuple[MLPClassifier, _Array]:
    """A network with so many hidden layers of so many units, and rows that it has not seen."""
    X, y = make_classification(1500, 20, n_informative=10, class_sep=1.5, random_state=depth)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = MLPClassifier((width,) * depth, max_iter=20, alpha=1e-3, random_state=0, early_stopping=True)
    return model.fit(X[:1000], y[:1000]), X[1000 : 1000 + rows]


def trained_digits(rows: int) -> tuple[MLPClassifier, _Array]:
    """784-100-100-10 on digits of 28 x 28 pixels."""
    X, y = load_digits(return_X_y=True)
    images = np.pad(np.kron(X.reshape(-1, 8, 8) / 16, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2))).reshape(-1, 784)
    model = MLPClassifier((100, 100), max_iter=30, alpha=1e-3, random_state=0)
    return model.fit(images[:1400], y[:1400]), images[1400 : 1400 + rows]


def line(name: str, model: MLPClassifier, X: _Array, seconds: float) -> str:
    """A line of the table: exact rows, median and largest bracket, median and longest time."""
    found, times = [], []
    for x in X:
        began = time.process_time()
        found.append(apas.max_shift(model, x[None, :], target="predicted", method=apas.Exact(time_limit=seconds))[0])
        times.append(time.process_time() - began)
    brackets = [answer.upper / answer.delta for answer in found]
    exact, wide = sum(answer.exact for answer in found), f"{statistics.median(brackets):.3f} | {max(brackets):.3f}"
    return f"| {name} | {exact} of {len(found)} | {wide} | {statistics.median(times):.2f} | {max(times):.2f} |"


def decisions(model: MLPClassifier, X: _Array, seconds: float) -> str:
    """What verdicts around the breaking delta of each row are, and how long the slowest took."""
    texts = []
    for factor in (0.9, 1.03):
        counts: dict[str, int] = {}
        longest = 0.0
        for x in X:
            answer = apas.max_shift(model, x[None, :], target="predicted", method=apas.Exact(time_limit=seconds))[0]
            began = time.process_time()
            verdict = apas.certify(
                model, x[None, :], factor * answer.upper, target="predicted", method=apas.Exact(time_limit=seconds)
            )[0].verdict
            longest = max(longest, time.process_time() - began)
            counts[verdict.name] = counts.get(verdict.name, 0) + 1
        told = ", ".join(f"{count} {name}" for name, count in counts.items())
        texts.append(f"at {factor} of the breaking delta {told}, at most {longest:.2f} s")
    return "784-100-100-10: " + "; ".join(texts)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depth", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of a row (default 10)")
    parser.add_argument("--rows", type=int, default=2, help="rows per network (default 2)")
    parser.add_argument("--depths", type=int, nargs="*", default=DEPTHS)
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    time.monotonic = time.process_time  # the clock of all time limits
    print("| Hidden layers | Exact | Bracket, median | largest | Seconds, median | longest |")
    print("|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for depth in chosen.depths:
            for width in chosen.widths:
                model, X = trained(depth, width, chosen.rows)
                print(line(f"{depth} x {width}", model, X, chosen.seconds), flush=True)
        model, X = trained_digits(chosen.rows)
        print(line("100, 100 (784 inputs, 10 classes)", model, X, chosen.seconds), flush=True)
        print()
        print(decisions(model, X, 10.0))


if __name__ == "__main__":
    main()
