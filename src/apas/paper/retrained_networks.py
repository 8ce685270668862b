"""Networks trained from scratch on bootstrap samples, many at once.

A hundred small networks take hardly longer than one, since most of the time of one goes into calling small operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import expit

from apas._typing import Floats, Integers
from apas.models.feedforward import FeedForward
from apas.paper.networks import RECIPES, Preparation, Recipe

#: scikit-learn's settings of Adam, its penalty, and when it stops: after more than so many passes without progress.
BETAS, EPSILON, PENALTY = (0.9, 0.999), 1e-8, 1e-4
TOLERANCE, PATIENCE = 1e-4, 10
#: Probabilities are kept so far from 0 and 1 in the loss.
CLIP: Final = float(np.finfo(np.float64).eps)


def fit_together(
    recipe: Recipe,
    X: Floats,
    y: Integers,
    rows: Integers,
    *,
    seeds: Sequence[int],
    feature_names: Sequence[str] | None = None,
) -> list[FeedForward]:
    """Train one network per line of `rows` as `fit` would on these rows."""
    states = [np.random.RandomState(seed) for seed in seeds]
    flat = np.stack([_start(state, X.shape[1], recipe.hidden) for state in states])
    order = rows.copy()
    training, going = _Training(recipe, X, np.asarray(y, dtype=float), flat), np.arange(len(rows))
    best, stale = np.full(len(rows), np.inf), np.zeros(len(rows), dtype=int)
    for _ in range(recipe.epochs):
        for i in going:
            shuffled = np.arange(rows.shape[1])
            states[i].shuffle(shuffled)
            order[i] = order[i][shuffled]
        loss = training.run(going, order[going])
        stale[going] = np.where(loss > best[going] - TOLERANCE, stale[going] + 1, 0)
        best[going] = np.minimum(best[going], loss)
        going = going[stale[going] <= PATIENCE]
        if not going.size:
            break
    parts = (training.parts(values[None]) for values in training.values)
    return [FeedForward([w[0], v[0]], [b[0, 0], c[0, 0]], feature_names=feature_names) for w, v, b, c in parts]


def _start(state: np.random.RandomState, inputs: int, hidden: int) -> Floats:
    """Parameters before training, in scikit-learn's order: weights and biases layer by layer, then weights first."""
    weights, biases = [], []
    for size_in, size_out in ((inputs, hidden), (hidden, 1)):
        bound = np.sqrt(6.0 / (size_in + size_out))
        weights.append(state.uniform(-bound, bound, (size_in, size_out)).ravel())
        biases.append(state.uniform(-bound, bound, size_out))
    return np.concatenate([*weights, *biases])


class _Training:
    """Parameters and Adam's averages of all networks, one line each; passes over rows change some of them."""

    def __init__(self, recipe: Recipe, X: Floats, y: Floats, values: Floats) -> None:
        self.recipe, self.X, self.y, self.values = recipe, X, y, values
        self.first, self.second, self.steps = np.zeros_like(values), np.zeros_like(values), 0

    def parts(self, values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Weights of both layers and biases of both, per network, as views."""
        count, inputs, hidden = len(values), self.X.shape[1], self.recipe.hidden
        a, b, c = inputs * hidden, (inputs + 1) * hidden, (inputs + 2) * hidden
        weights = values[:, :a].reshape(count, inputs, hidden)
        return weights, values[:, a:b, None], values[:, None, b:c], values[:, None, c:]

    def run(self, going: Integers, order: Integers) -> Floats:
        """One pass of the networks `going` over their rows; their losses."""
        values, first, second = self.values[going], self.first[going], self.second[going]
        grads, total = np.empty_like(values), np.zeros(len(going))
        w, v, b, c = self.parts(values)
        dw, dv, db, dc = self.parts(grads)
        biases = w[0].size + v[0].size
        (one, two), rate = BETAS, self.recipe.learning_rate
        for start in range(0, order.shape[1], self.recipe.batch):
            picked = order[:, start : start + self.recipe.batch]
            X, y, size = self.X[picked], self.y[picked][:, :, None], picked.shape[1]
            hidden = np.maximum(X @ w + b, 0)
            scores = hidden @ v + c
            chance = expit(scores)
            total += size * _loss(chance, y) + 0.5 * PENALTY * np.square(values[:, :biases]).sum(axis=1)
            error = chance - y
            np.matmul(hidden.transpose(0, 2, 1), error, out=dv)
            dc[:] = error.mean(axis=1, keepdims=True)
            back = error * v.transpose(0, 2, 1) * (hidden > 0)
            np.matmul(X.transpose(0, 2, 1), back, out=dw)
            db[:] = back.mean(axis=1, keepdims=True)
            grads[:, :biases] = (grads[:, :biases] + PENALTY * values[:, :biases]) / size
            self.steps += 1
            first = one * first + (1 - one) * grads
            second = two * second + (1 - two) * grads**2
            step = rate * np.sqrt(1 - two**self.steps) / (1 - one**self.steps)
            values -= step * first / (np.sqrt(second) + EPSILON)
        self.values[going], self.first[going], self.second[going] = values, first, second
        return np.asarray(total / order.shape[1])


def _loss(chance: Floats, y: Floats) -> Floats:
    """Mean log loss per network."""
    clipped = np.clip(chance, CLIP, 1 - CLIP)
    loss: Floats = -np.where(y > 0, np.log(clipped), np.log(1 - clipped)).mean(axis=(1, 2))
    return loss


#: Networks that are trained together.
TOGETHER = 100


def trained_anew(preparation: Preparation, count: int, *, seed: int) -> list[FeedForward]:
    """Networks of the dataset's recipe, each on as many rows as D1 and D2 have together, drawn from both."""
    X = np.vstack([preparation.d1.X, preparation.d2.X])
    y = np.concatenate([preparation.d1.y, preparation.d2.y]).astype(np.int64)
    rng = np.random.default_rng([seed, len(X)])
    networks: list[FeedForward] = []
    while (size := min(TOGETHER, count - len(networks))) > 0:
        rows, seeds = rng.integers(0, len(X), (size, len(X))), rng.integers(0, 2**31, size).tolist()
        names = preparation.tables.inputs
        networks += fit_together(RECIPES[preparation.name], X, y, rows, seeds=seeds, feature_names=names)
    return networks


def accepted_by(networks: Sequence[FeedForward], points: Floats) -> Integers:
    """How many networks put each point into class 1; points as the networks see them."""
    counts = np.zeros(len(points), dtype=np.int64)
    for network in networks:
        counts += network.margin(points, 1) >= 0
    return counts
