"""Small random problems whose allowed points can all be listed, to compare with whatever claims to be cheapest."""

from __future__ import annotations

import itertools

import numpy as np

from apas import FeedForward
from apas.counterfactuals.sources.base import Search, Task
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace

PIECEWISE = ("relu", "leaky_relu", "hard_tanh", "identity")
KINDS = ("integer", "ordinal", "categorical", "binary", "listed", "stepped", "coarse")


def random_feature(rng: np.random.Generator, name: str, kind: str) -> Feature:
    mutable = bool(rng.random() > 0.15)
    way = {"mutable": mutable}
    if mutable and kind != "categorical":
        way["direction"] = [None, None, "increase", "decrease"][rng.integers(4)]
    if kind == "integer":
        return Feature(name, "integer", low=int(rng.integers(-2, 1)), high=int(rng.integers(1, 4)), **way)
    if kind == "ordinal":
        code = ["number", "thermometer", "onehot"][rng.integers(3)]
        return Feature(name, "ordinal", values=tuple("abcd"[: rng.integers(2, 5)]), code=code, **way)
    if kind == "categorical":
        return Feature(name, "categorical", values=tuple("abcd"[: rng.integers(2, 5)]), **way)
    if kind == "binary":
        return Feature(name, "binary", values=(0, 1), **way)
    if kind == "listed":
        return Feature(name, values=tuple(np.unique(rng.normal(size=4)).tolist()), **way)
    if kind == "stepped":
        return Feature(name, low=-1.0, high=1.0, step=0.4, **way)
    if kind == "coarse":
        return Feature(name, "integer", low=0, high=9, step=3, **way)
    return Feature(name, low=-1.0, high=1.5, **way)


def random_number(rng: np.random.Generator, feature: Feature) -> float:
    """A number of a feature, now and then one that it could not change to."""
    strange = rng.random() < 0.25
    if feature.is_level:
        return float(rng.integers(len(feature.values)))
    if feature.values is not None:
        return float(rng.normal()) if strange else float(rng.choice(feature.values))
    low, high = feature.ends
    value = rng.uniform(low - 1, high + 1) if strange else rng.uniform(low, high)
    if feature.step is not None and not strange:
        value = feature.on_grid(np.floor((value - low) / feature.step))
    return float(np.rint(value)) if feature.kind == "integer" else float(value)


def random_network(rng: np.random.Generator, inputs: int, depth: int) -> FeedForward:
    outputs = int(rng.integers(1, 4))
    sizes = [inputs, *rng.integers(2, 6, depth).tolist(), outputs]
    weights = [rng.normal(size=shape) for shape in itertools.pairwise(sizes)]
    return FeedForward(
        weights,
        [0.5 * rng.normal(size=size) for size in sizes[1:]],
        activation=[str(rng.choice(PIECEWISE)) for _ in range(depth)],
        output="sigmoid" if outputs == 1 else "softmax",
        threshold=float(rng.uniform(0.2, 0.8)) if outputs < 3 else 0.5,
    )


def random_problem(seed: int, distance: str, continuous: int = 0) -> tuple[Task, np.ndarray]:
    """A task and an input; the first features are continuous, if any."""
    rng = np.random.default_rng(seed)
    kinds = ["continuous"] * continuous + [str(rng.choice(KINDS)) for _ in range(int(rng.integers(1, 4)))]
    space = FeatureSpace([random_feature(rng, f"f{i}", kind) for i, kind in enumerate(kinds)])
    net = random_network(rng, space.coding.n_columns, int(rng.integers(0, 4)))
    return Task(space.bind(net), space, distance), np.array([random_number(rng, f) for f in space])


def allowed_numbers(feature: Feature, own: float, grid: int = 41) -> np.ndarray:
    """What a feature may be; of a continuous one some of it."""
    low, high = feature.ends
    if feature.listed is not None:
        numbers = feature.listed
    elif feature.step is not None:
        numbers = feature.on_grid(np.arange(0.0, np.floor((high - low) / feature.step + 1e-9) + 1))
    else:
        numbers = np.linspace(low, high, grid)
    numbers = np.unique(np.append(numbers, own))
    return numbers[feature.allows(numbers, np.full(len(numbers), own))]


def enumerated(search: Search) -> tuple[np.ndarray, np.ndarray]:
    """Costs and margins of all points that are allowed and different enough."""
    task = search.task
    listed = [allowed_numbers(f, own) for f, own in zip(task.space, search.input, strict=True)]
    points = np.array(list(itertools.product(*listed)))
    if search.avoid:
        points = points[[search.is_different(point) for point in points]]
    costs = task.space.costs(points, np.broadcast_to(search.input, points.shape), task.distance)
    return costs, task.margins(points, search.target)
