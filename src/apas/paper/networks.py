"""The networks of the paper's Section 7, how far retraining moves them, and the 50 inputs that are explained.

"Retrained" means one more pass over data of D2, with the optimiser's state carried over and without D1. Refits are
networks trained from scratch on bootstrap samples, many at once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import apas
from apas._typing import Floats, Integers
from apas._validation import check_flag
from apas.paper.datasets import Part, Tables, read_tables

INPUTS = 50  # how many inputs are explained


class Chosen(NamedTuple):
    """Rows to explain."""

    rows: Integers
    n_class_0: int
    n_certified: int


def choose_inputs(
    network: apas.FeedForward, X: Floats, delta: float, *, seed: int, most: int | None = None, count: int = INPUTS
) -> Chosen:
    """Rows of class 0: different ones, or as published, with so many draws at `most`, those that keep it for sure."""
    class_0 = refused_rows(network, X, different=most is None)
    if most is None:
        drawn = np.random.default_rng(seed).permutation(class_0)[:count]
    else:  # with replacement
        drawn = class_0[np.random.RandomState(seed).choice(len(class_0), min(len(class_0), most))]
    certified = apas.certify(network, X[drawn], delta, target=0, method="interval").certified
    # as published 29 to 43 of 50 inputs differ, and rows near the boundary, the easiest to explain, are left out
    rows = drawn if most is None else drawn[certified][:count]
    return Chosen(rows, len(class_0), int(certified.sum()))


def refused_rows(network: Any, X: Floats, *, different: bool = True) -> Integers:
    """Numbers of the rows that a model puts into class 0; of equal ones the first, if they are to be different."""
    refused = np.flatnonzero(network.margin(X, 1) < 0)
    return refused[np.sort(np.unique(X[refused], axis=0, return_index=True)[1])] if different else refused


ROUNDS, MOST = 5, 0.99  # passes over drawn parts of D2, seeded 0 to 4; and the share of D2 for the most shifted network
INPUT_SEED = 1  # the seed of drawing the inputs that are explained


@dataclass(frozen=True)
class Recipe:
    """How the network of a dataset, with one hidden layer, is trained and its inputs are drawn."""

    hidden: int
    learning_rate: float
    batch: int
    epochs: int  # at most; training stops long before
    fraction: float  # share of D2 drawn in each round that measures the shift
    most_inputs: int  # how many inputs are drawn at most
    split_seed: int = 0  # of the stratified split of D1 into 80 % and 20 %


#: The settings of the published experiments.
RECIPES: Final[Mapping[str, Recipe]] = {
    "diabetes": Recipe(8, 0.01, 8, 7000, 0.25, 500),
    "no2": Recipe(16, 0.005, 8, 2000, 0.15, 200),
    "sba": Recipe(18, 0.005, 8, 9000, 0.25, 200, split_seed=5),
    "credit": Recipe(5, 0.02, 32, 7000, 0.04, 2000),
}


@dataclass(frozen=True, eq=False)
class Preparation:
    """Everything that the experiments on a dataset start from."""

    tables: Tables
    training: Integers  # rows of D1 that the base network was trained on
    testing: Integers  # the others
    estimator: Any  # the base network as scikit-learn has it, to be trained further; copy it first
    network: apas.FeedForward  # M
    retrained: apas.FeedForward  # M2: M after one pass over D2
    most_shifted: apas.FeedForward  # the farthest of five, each M after one pass over rows drawn from D2, 99 % as many
    delta: float  # largest change of a parameter in five passes over a part of D2: the shift explanations are made for
    delta_max: float  # the same over 99 % of D2
    n_class_0: int  # rows of D1 that M puts into class 0 (with distinct inputs: how many differ)
    n_certified: int  # how many of those drawn from them keep class 0 under every shift up to `delta`
    rows: Integers  # rows of D1 to explain, 50; as published some of them several times

    @property
    def name(self) -> str:
        """Of the dataset."""
        return self.tables.name

    @property
    def d1(self) -> Part:
        """What the base network was trained on and the inputs are from."""
        return self.tables.d1

    @property
    def d2(self) -> Part:
        """What came later."""
        return self.tables.d2

    @property
    def inputs(self) -> Floats:
        """The inputs to explain, as the network sees them, shape (50, inputs)."""
        return self.d1.X[self.rows]

    @property
    def raw_inputs(self) -> pd.DataFrame:
        """The same as in the file; the index holds row numbers of D1."""
        return self.d1.raw.iloc[self.rows]

    @property
    def n_distinct(self) -> int:
        """How many of the inputs differ."""
        return len(np.unique(self.inputs, axis=0))

    @property
    def shift(self) -> float:
        """Largest change of any weight or bias from M to M2."""
        return float(apas.measure_shift(self.network, self.retrained))

    @property
    def published_shift(self) -> float:
        """The paper's delta_e: the largest change from M to M2 of a *first-layer weight*; nothing else was counted."""
        return float(np.abs(self.retrained.weights[0] - self.network.weights[0]).max())


def fit(recipe: Recipe, X: Floats, y: Any, *, seed: int = 0) -> Any:
    """Train a network as the recipe says; the published ones have seed 0."""
    steps = {"learning_rate_init": recipe.learning_rate, "batch_size": recipe.batch, "max_iter": recipe.epochs}
    return MLPClassifier((recipe.hidden,), random_state=seed, **steps).fit(X, y)


def prepare(name: str, *, aligned: bool = False, seed: int | None = None, distinct: bool = False) -> Preparation:
    """Train the networks of a dataset, measure their shifts and choose the inputs, as published unless told otherwise.

    Parameters
    ----------
    name : {"diabetes", "no2", "sba", "credit"}
    aligned : bool, default False
        Whether to put right the rows of credit's D2: see `read_tables`.
    seed : int, optional
        Of everything that is drawn: D1, its split, training, parts of D2, inputs. As published each has its own.
    distinct : bool, default False
        Whether the inputs are different rows of class 0, drawn without replacement, certified or not.
    """
    check_flag(distinct, "distinct")
    tables = read_tables(name, aligned=aligned, seed=seed)
    recipe, d1, d2 = RECIPES[name], tables.d1, tables.d2
    split, own, drawing = (recipe.split_seed, 0, INPUT_SEED) if seed is None else (seed, seed, seed)
    rounds = range(ROUNDS * own, ROUNDS * (own + 1))
    training, testing = train_test_split(np.arange(len(d1)), stratify=d1.y, test_size=0.2, random_state=split)
    estimator = fit(recipe, d1.X[training], d1.y[training], seed=own)
    network = _network(estimator, tables)
    delta = float(apas.estimate_delta(estimator, d2.X, d2.y, rounds=ROUNDS, fraction=recipe.fraction, rng=rounds))
    # one more pass over D2, with the optimiser's state carried over
    passed = copy.deepcopy(estimator).partial_fit(d2.X, d2.y)
    farthest, delta_max = _most_shifted(estimator, d2, rounds)
    networks = network, _network(passed, tables), _network(farthest, tables)
    chosen = choose_inputs(network, d1.X, delta, seed=drawing, most=None if distinct else recipe.most_inputs)
    return Preparation(tables, training, testing, estimator, *networks, delta, delta_max, **chosen._asdict())


def _network(estimator: Any, tables: Tables) -> apas.FeedForward:
    return apas.FeedForward(estimator.coefs_, estimator.intercepts_, feature_names=tables.inputs)


def _most_shifted(estimator: Any, d2: Part, rounds: range) -> tuple[Any, float]:
    """The farthest of the networks after one pass over nearly as many rows as D2 has, and how far it is."""
    passed: list[Any] = []

    def update(changed: Any, X: Floats, y: Any) -> Any:
        passed.append(changed.partial_fit(X, y))
        return changed

    report = apas.estimate_delta(estimator, d2.X, d2.y, update=update, rounds=ROUNDS, fraction=MOST, rng=rounds)
    return passed[int(report.overall.loc[math.inf].to_numpy().argmax())], float(report)


#: scikit-learn's settings of Adam, its penalty, and when it stops: after more than so many passes without progress.
BETAS, EPSILON, PENALTY = (0.9, 0.999), 1e-8, 1e-4
TOLERANCE, PATIENCE = 1e-4, 10
TOGETHER = 100  # so many small networks take hardly longer than one, most of whose time goes into calls
CLIP: Final = float(np.finfo(np.float64).eps)  # probabilities are kept so far from 0 and 1 in the loss


def fit_together(
    recipe: Recipe, X: Floats, y: Integers, rows: Integers, *, seeds: Sequence[int], feature_names: Any = None
) -> list[apas.FeedForward]:
    """Train one network per line of `rows` as `fit` would on these rows."""
    if len(rows) > TOGETHER:
        parts = [slice(i, i + TOGETHER) for i in range(0, len(rows), TOGETHER)]
        each = (fit_together(recipe, X, y, rows[p], seeds=seeds[p], feature_names=feature_names) for p in parts)
        return list(chain.from_iterable(each))
    states = [np.random.RandomState(seed) for seed in seeds]
    flat = np.stack([_start(state, X.shape[1], recipe.hidden) for state in states])
    order, training = rows.copy(), np.stack([flat, np.zeros_like(flat), np.zeros_like(flat)])
    labels, going = np.asarray(y, dtype=float), np.arange(len(rows))
    best, stale = np.full(len(rows), np.inf), np.zeros(len(rows), dtype=int)
    for epoch in range(recipe.epochs):
        for i in going:
            states[i].shuffle(order[i])  # scikit-learn shuffles what it shuffled the time before
        state = training[:, going]
        loss = _train_once(recipe, X, labels, order[going], state, epoch)
        training[:, going] = state
        stale[going] = np.where(loss > best[going] - TOLERANCE, stale[going] + 1, 0)
        best[going] = np.minimum(best[going], loss)
        going = going[stale[going] <= PATIENCE]
        if not going.size:
            break
    layers = (_layers(values[None], X.shape[1], recipe.hidden) for values in training[0])
    return [apas.FeedForward([w[0], v[0]], [b[0, 0], c[0, 0]], feature_names=feature_names) for w, v, b, c in layers]


def _start(state: np.random.RandomState, inputs: int, hidden: int) -> Floats:
    """Parameters before training, drawn in scikit-learn's order: weights and biases layer by layer; weights first."""
    drawn = []
    for size_in, size_out in ((inputs, hidden), (hidden, 1)):
        bound = np.sqrt(6.0 / (size_in + size_out))
        drawn += [state.uniform(-bound, bound, size) for size in (size_in * size_out, size_out)]
    return np.concatenate([*drawn[::2], *drawn[1::2]])


def _layers(values: Floats, inputs: int, hidden: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights of both layers and biases of both, of networks with a line of parameters each, as views."""
    a, b, c = inputs * hidden, (inputs + 1) * hidden, (inputs + 2) * hidden
    weights = values[:, :a].reshape(len(values), inputs, hidden)
    return weights, values[:, a:b, None], values[:, None, b:c], values[:, None, c:]


def _train_once(recipe: Recipe, X: Floats, y: Floats, order: Integers, state: Floats, epoch: int) -> Floats:
    """One pass of networks over their rows, which changes parameters and Adam's averages in place; their losses."""
    values, first, second = state
    grads, total = np.empty_like(values), np.zeros(len(values))
    # views: what is written to the layers is written to the flat vectors that Adam works on
    w, v, b, c = _layers(values, X.shape[1], recipe.hidden)
    dw, dv, db, dc = _layers(grads, X.shape[1], recipe.hidden)
    biases = w[0].size + v[0].size
    (one, two), batches = BETAS, range(0, order.shape[1], recipe.batch)
    for steps, start in enumerate(batches, start=1 + epoch * len(batches)):
        picked = order[:, start : start + recipe.batch]
        inputs, labels, size = X[picked], y[picked][:, :, None], picked.shape[1]
        hidden = np.maximum(inputs @ w + b, 0)
        chance = expit(hidden @ v + c)
        # as scikit-learn adds it up: the penalty of a batch is divided by its size, and the loss multiplied again
        clipped = np.clip(chance, CLIP, 1 - CLIP)
        loss = -np.where(labels > 0, np.log(clipped), np.log(1 - clipped)).mean(axis=(1, 2))
        total += size * loss + 0.5 * PENALTY * np.square(values[:, :biases]).sum(axis=1)
        error = chance - labels
        np.matmul(hidden.transpose(0, 2, 1), error, out=dv)
        dc[:] = error.mean(axis=1, keepdims=True)
        back = error * v.transpose(0, 2, 1) * (hidden > 0)
        np.matmul(inputs.transpose(0, 2, 1), back, out=dw)
        db[:] = back.mean(axis=1, keepdims=True)
        grads[:, :biases] = (grads[:, :biases] + PENALTY * values[:, :biases]) / size
        first[:] = one * first + (1 - one) * grads
        second[:] = two * second + (1 - two) * grads**2
        # the bias correction of both averages goes into the step, which rounds otherwise than correcting each
        step = recipe.learning_rate * np.sqrt(1 - two**steps) / (1 - one**steps)
        values -= step * first / (np.sqrt(second) + EPSILON)
    return np.asarray(total / order.shape[1])


def refitted_networks(preparation: Preparation, count: int, *, seed: int) -> list[apas.FeedForward]:
    """Networks of the dataset's recipe, each on as many rows as D1 and D2 have together, drawn from both."""
    X = np.vstack([preparation.d1.X, preparation.d2.X])
    y = np.concatenate([preparation.d1.y, preparation.d2.y]).astype(np.int64)
    rng = np.random.default_rng([seed, len(X)])
    networks: list[apas.FeedForward] = []
    names = preparation.tables.inputs
    while (size := min(TOGETHER, count - len(networks))) > 0:
        rows, seeds = rng.integers(0, len(X), (size, len(X))), rng.integers(0, 2**31, size).tolist()
        networks += fit_together(RECIPES[preparation.name], X, y, rows, seeds=seeds, feature_names=names)
    return networks
