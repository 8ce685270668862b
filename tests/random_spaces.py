"""Random feature spaces of all kinds, and rows in them, some of which break their ranges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apas import FeedForward
from apas.counterfactuals.space.feature import Feature
from apas.counterfactuals.space.space import FeatureSpace

KINDS = ("continuous", "ranged", "stepped", "listed", "integer", "ordinal", "categorical", "binary")
LEVELS = ("low", "a b", 'q"uote', "ü", "", "5", "x.y", "[z]", "new\nline", "back\\slash")


def random_feature(rng: np.random.Generator, name: str, kind: str | None = None) -> Feature:
    kind = kind or str(rng.choice(KINDS))
    rules: dict = {"mutable": bool(rng.random() > 0.2)}
    if rules["mutable"] and kind != "categorical" and rng.random() < 0.4:
        rules["direction"] = str(rng.choice(["increase", "decrease"]))
    low = float(np.round(rng.normal(0, 10), int(rng.integers(0, 4))))
    width = float(np.round(rng.uniform(1, 30), int(rng.integers(0, 3))))
    if kind == "continuous":
        return Feature(name, low=low if rng.random() < 0.3 else None, **rules)
    if kind == "ranged":
        return Feature(name, low=low, high=low + width, **rules)
    if kind == "stepped":
        step = float(rng.choice([0.01, 0.05, 0.1, 0.25, 0.3, 1.5, 1 / 3]))
        ends = {"low": low if rng.random() < 0.7 else None, "high": low + width if rng.random() < 0.7 else None}
        return Feature(name, step=step, **ends, **rules)
    if kind == "listed":
        return Feature(name, values=rng.choice(np.arange(-20, 20) / 4, rng.integers(1, 7), replace=False), **rules)
    if kind == "integer":
        step = float(rng.integers(1, 5)) if rng.random() < 0.5 else None
        return Feature(name, "integer", low=round(low), high=round(low) + int(width), step=step, **rules)
    count = 2 if kind == "binary" else int(rng.integers(2, 6))
    if rng.random() < 0.5:
        values = [str(v) for v in rng.choice(LEVELS, count, replace=False)]
    else:
        values = sorted(rng.choice(np.arange(9), count, replace=False).tolist())
    codes = {"categorical": ["onehot"], "binary": ["number", "onehot"], "ordinal": ["number", "thermometer", "onehot"]}
    return Feature(name, kind, values=tuple(values), code=str(rng.choice(codes[kind])), **rules)


def random_space(rng: np.random.Generator, size: int | None = None) -> FeatureSpace:
    return FeatureSpace([random_feature(rng, f"f{i}") for i in range(size or int(rng.integers(1, 7)))])


def random_rows(rng: np.random.Generator, space: FeatureSpace, count: int, allowed: bool = False) -> np.ndarray:
    """Numbers per cell; unless `allowed`, numeric ones may be outside the range and between the steps."""
    found = np.empty((count, len(space)))
    for i, feature in enumerate(space):
        if feature.is_level:
            found[:, i] = rng.integers(0, len(feature.values), count)
            continue
        low, high = np.clip(feature.ends, -25, 45)
        values = rng.uniform(low - 3, high + 3, count)
        if rng.random() < 0.5 or feature.kind == "integer":
            values = np.round(values * 4) / 4 if feature.kind == "continuous" else np.rint(values)
        if allowed:
            values = replace(feature, mutable=True, direction=None).snapped(values, np.full(count, np.nan))
            assert np.isfinite(values).all()
        found[:, i] = values
    return found


def random_network(rng: np.random.Generator, inputs: int, outputs: int = 1, width: int = 6, **options) -> FeedForward:
    """A network of which no class is rare on numbers of ordinary size."""
    weights = [rng.normal(size=(inputs, width)) / np.sqrt(inputs), rng.normal(size=(width, outputs))]
    kind = {"output": "softmax"} if outputs > 1 else {}
    return FeedForward(weights, [rng.normal(size=width), rng.normal(size=outputs)], **kind, **options)
