"""`python -m benchmarks.data_change`: certified and broken numbers of changed rows, and refits against the bounds.

Needs the datasets (APAS_DATA or ../shared). `--refits N` sets how many changed tables are really fitted again per table
and kind; `--picture FOLDER` saves the picture of the documentation.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from apas._typing import Floats, Indices
from apas.shifts.data_change import AddedRows
from apas.shifts.fit_problem import FitProblem
from apas.worst_case.data_change import RefitScores, least_breaking

__all__ = ["Contradictions", "TrainingTable", "compare", "picture", "refits_against_bounds"]

KINDS = ("removed", "relabelled", "added", "replaced")
TABLES = {"no2": 1000, "diabetes": 1000, "compas": 100, "heloc": 50, "adult": 25}
LABELS = {"no2": "binaryClass", "diabetes": "Outcome", "compas": "score", "heloc": "RiskPerformance", "adult": "income"}
MARGINS = (0.25, 0.5, 1.0)


def _folder() -> Path:
    return Path(os.environ.get("APAS_DATA", Path(__file__).parents[2] / "shared")) / "datasets"


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """A table in model units: numbers standardised once, categories as columns of 0 and 1."""

    X: Floats
    y: Floats
    categories: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, name: str, rows: int | None = None) -> TrainingTable:
        """One of the tables, or its first rows."""
        frame = pd.read_csv(_folder() / name / f"{name}.csv").iloc[:rows]
        label = frame.pop(LABELS[name])
        y = np.asarray(label == "P" if name == "no2" else label, dtype=np.float64)
        frame = frame.drop(columns="no2_concentration") if name == "no2" else frame
        columns, categories, width = list[Floats](), list[tuple[int, ...]](), 0
        for column in frame:
            numeric = pd.api.types.is_numeric_dtype(frame[column])
            part = frame[column].to_numpy(float)[:, None] if numeric else pd.get_dummies(frame[column]).to_numpy(float)
            if numeric:
                part = (part - part.mean()) / (part.std() or 1.0)
            else:
                categories.append(tuple(range(width, width + part.shape[1])))
            width += part.shape[1]
            columns.append(part)
        return cls(np.hstack(columns), y, tuple(categories))

    @cached_property
    def problem(self) -> FitProblem:
        """L2 logistic regression with C = 1."""
        ones = np.ones(len(self.X))
        return FitProblem(np.column_stack([self.X, ones]), self.y, ones, ones, logistic=True)

    @cached_property
    def squared(self) -> FitProblem:
        """The ridge classifier with alpha = 1."""
        return FitProblem(self.problem.Z, 2 * self.y - 1, self.problem.weights, self.problem.weights, logistic=False)

    def scores(self, kind: str, tolerance: float = 1e-6, *, logistic: bool = True) -> RefitScores:
        """The bounds over refits after changes of a kind."""
        added = AddedRows(self.X.min(axis=0), self.X.max(axis=0), self.categories, 1.0)
        return RefitScores(self.problem if logistic else self.squared, kind, tolerance, added)

    def explanations(self, theta: Floats, margin: float, count: int, seed: int = 0) -> Iterator[Floats]:
        """Cheapest moves of rejected rows to a margin, in units of the columns' ranges and inside of them."""
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        fixed = {column for group in self.categories for column in group}
        free = sorted((j for j in range(len(low)) if j not in fixed), key=lambda j: -abs(theta[j]) * (high - low)[j])
        rejected = np.flatnonzero(self.X @ theta[:-1] + theta[-1] < 0)
        found = 0
        for i in np.random.default_rng(seed).permutation(rejected):
            x, need = self.X[i].copy(), margin - float(self.X[i] @ theta[:-1] + theta[-1])
            for j in free:
                step = min(((high if theta[j] > 0 else low)[j] - x[j]) * theta[j], need)
                x[j], need = x[j] + step / theta[j] if theta[j] else x[j], need - step
            if need < 1e-9:
                found += 1
                yield np.append(x, 1.0)
            if found == count:
                return


@dataclass
class Contradictions:
    """Refits that were compared with bounds: how many, how many contradicted one, and the smallest slack."""

    refits: int = 0
    comparisons: int = 0
    violations: int = 0
    outside: int = 0
    slack: float = np.inf


def _chosen(scores: RefitScores, rows: list[Floats], count: int, way: str, rng: np.random.Generator) -> Indices:
    """Rows to change: at random, greedily against a row, by their norm, or by their leverage."""
    problem = scores.problem
    if way == "random":
        return rng.choice(len(scores.m), count, replace=False)
    if way == "leverage":
        return np.argsort(-problem.curvatures(scores.m) * scores.norms**2)[: 4 * count][
            rng.permutation(4 * count)[:count]
        ]
    pull = np.abs(problem.weights * problem.residuals(scores.m))
    if way == "norm":
        return np.argsort(-pull * scores.norms)[: 2 * count][rng.permutation(2 * count)[:count]]
    direction = scores.W @ rows[rng.integers(len(rows))] if way == "greedy" else rng.normal(size=len(scores.W))
    effects = (scores.zt @ direction) * problem.weights * problem.residuals(scores.m)
    return np.argsort(effects)[:count]


def changed(scores: RefitScores, rows: list[Floats], count: int, way: str, rng: np.random.Generator) -> FitProblem:
    """A table with so many changes."""
    problem, kind = scores.problem, scores.kind
    if kind == "relabelled":
        return problem.relabelled(_chosen(scores, rows, count, way, rng))
    if kind in ("removed", "replaced"):
        problem = problem.without(_chosen(scores, rows, count, way, rng))
    if kind in ("added", "replaced"):
        if way in ("greedy", "norm"):
            _, row, label, _ = scores.worst_added(scores.W @ rows[rng.integers(len(rows))], 0.0)
            row = scores.added.snapped(row)
        else:  # a random corner
            points, starts = scores.added.points
            ends = [*starts[1:].tolist(), len(points)]
            row = np.sum([points[rng.integers(a, b)] for a, b in zip(starts.tolist(), ends, strict=True)], axis=0)
            label = float(rng.choice([0.0, 1.0] if problem.logistic else [-1.0, 1.0]))
        problem = problem.with_copies(row, label, scores.added.weight, count)
    return problem


def refits_against_bounds(
    scores: RefitScores, rows: list[Floats], refits: int, rng: np.random.Generator, solver: Any = None
) -> Contradictions:
    """Fit changed tables again, and compare with the numeric bound of each row and with the ball."""
    found, ways = Contradictions(), ("random", "greedy", "norm", "leverage", "direction")
    if not scores.balls:
        return found
    curves = [[scores.curve(u, ball) for u in rows] for ball in scores.balls]
    for number in range(refits):
        place = int(rng.integers(len(scores.balls)))
        ball = scores.balls[place]
        count = min(ball.changes, len(scores.m) // 5)
        problem = changed(scores, rows, count, ways[number % len(ways)], rng)
        theta = problem.minimiser(start=scores.theta) if solver is None else solver(problem)
        if scores.gradient_norm(problem, theta) > scores.tolerance:
            raise AssertionError("a refit that the claim does not speak of")
        slacks = [float(u @ theta) - float(curve[count]) for u, curve in zip(rows, curves[place], strict=True)]
        moved = float(np.linalg.norm(np.linalg.solve(scores.W.T, theta - scores.theta)))
        found.refits, found.comparisons = found.refits + 1, found.comparisons + len(rows)
        found.violations += sum(slack < 0 for slack in slacks)
        found.outside += moved > ball.radius
        found.slack = min(found.slack, *slacks)
    return found


def library_solver(problem: FitProblem) -> Floats:
    """The parameters of scikit-learn's `LogisticRegression` with its defaults."""
    import warnings

    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = LogisticRegression().fit(problem.Z[:, :-1], problem.y, sample_weight=problem.weights)
    return np.append(fitted.coef_[0], fitted.intercept_)


def library_tolerance(problem: FitProblem, share: float = 1.1) -> float:
    """What |gradient| <= C n tol, where the library's default stops, is worth in the norm of the inverse Hessian."""
    inverse = np.linalg.inv(problem.hessian(problem.minimiser()))
    return share * len(problem.Z) * 1e-4 * float(np.sqrt(np.abs(inverse).sum()))


def compare(refits: float = 1.0, names: Sequence[str] = tuple(TABLES), explanations: int = 20) -> None:
    """Print medians, ratios, contradictions and times."""
    for name in names:
        table = TrainingTable.read(name)
        for kind in KINDS:
            began = time.process_time()
            scores = table.scores(kind)
            setup = time.process_time() - began
            for margin in MARGINS:
                rows = list(table.explanations(scores.theta, margin, explanations))
                began = time.process_time()
                certified = np.array([scores.largest(u, 0.0)[0] for u in rows])
                each = (time.process_time() - began) / len(rows)
                attacked = rows[: explanations if kind == "removed" and name != "adult" else 6]
                broken = [
                    least_breaking(scores, u, 0.0, k, len(table.X)) for u, k in zip(attacked, certified, strict=False)
                ]
                least = np.array([np.inf if b is None else b[0] for b in broken])
                ratio = np.median(least / np.maximum(certified[: len(least)], 0.5))
                said = f"certified {np.median(certified):g}, broken {np.median(least):g}, ratio {ratio:.2f}"
                print(f"{name} {kind} margin {margin}: {said}, {1e3 * each:.0f} ms, set-up {setup:.1f} s", flush=True)
            rng, rows = np.random.default_rng(1), list(table.explanations(scores.theta, 0.5, 12, seed=1))
            found = refits_against_bounds(scores, rows, int(refits * TABLES[name]), rng)
            print(f"{name} {kind} refits: {found}", flush=True)
        if name != "adult":
            loose = table.scores("removed", library_tolerance(table.problem))
            rows = list(table.explanations(loose.theta, 1.0, 10))
            found = refits_against_bounds(loose, rows, int(refits * 120), np.random.default_rng(2), library_solver)
            print(f"{name} library's defaults, tolerance {loose.tolerance:.3g}: {found}", flush=True)
        ridge = table.scores("removed", logistic=False)
        rows = list(table.explanations(ridge.theta, 0.25, 10))
        found = refits_against_bounds(ridge, rows, int(refits * TABLES[name] / 4), np.random.default_rng(3))
        print(f"{name} ridge: certified {np.median([ridge.largest(u, 0.0)[0] for u in rows]):g}, {found}", flush=True)


def spread(draws: int, names: Sequence[str], explanations: int = 20) -> None:
    """Print how much the median certified k depends on which rejected rows are explained."""
    for name in names:
        table = TrainingTable.read(name)
        scores = table.scores("removed")
        for margin in MARGINS:
            lists = [table.explanations(scores.theta, margin, explanations, seed) for seed in range(draws)]
            medians = [np.median([scores.largest(u, 0.0)[0] for u in rows]) for rows in lists]
            print(f"{name} removed margin {margin}: {min(medians):g} to {max(medians):g}, mean {np.mean(medians):.1f}")


def picture(folder: Path, names: Sequence[str] = ("diabetes", "heloc")) -> None:
    """Save the picture of certified and broken numbers of removed rows against the margin."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    margins = np.array([0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 3.4), layout="constrained")
    for ax, name in zip(axes, names, strict=True):
        table = TrainingTable.read(name)
        for kind, colour in (("removed", "#1b5e9b"), ("relabelled", "#b3261e")):
            scores = table.scores(kind)
            medians = []
            for margin in margins:
                rows = list(table.explanations(scores.theta, float(margin), 12))
                certified = [scores.largest(u, 0.0)[0] for u in rows]
                broken = [least_breaking(scores, u, 0.0, k, len(table.X)) for u, k in zip(rows, certified, strict=True)]
                medians.append((np.median(certified), np.median([np.inf if b is None else b[0] for b in broken])))
            for line, style, word in zip(np.array(medians).T, ("-", "--"), ("certified", "broken"), strict=True):
                ax.plot(margins, line, style, color=colour, marker=".", label=f"{kind}: {word}")
            print(
                name,
                kind,
                *(f"{margin:g}: {low:g} / {high:g}" for margin, (low, high) in zip(margins, medians, strict=True)),
            )
        ax.set(title=f"{name}, {len(table.X):,} rows", xlabel="margin (logits)", ylabel="rows", yscale="log")
    axes[0].legend(fontsize=8)
    figure.savefig(folder / "data-change.png", dpi=110)


if __name__ == "__main__":
    from threadpoolctl import threadpool_limits

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refits", type=float, default=1.0, help="this times the number of refits")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--draws", type=int, help="only: medians of removal for so many choices of rows")
    asked = parser.parse_args()
    with threadpool_limits(1):
        if asked.picture is not None:
            picture(asked.picture)
        elif asked.draws is not None:
            spread(asked.draws, asked.tables)
        else:
            compare(asked.refits, asked.tables)
