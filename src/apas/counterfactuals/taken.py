"""Counterfactuals of other tools, as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from apas._validation import is_frame
from apas.counterfactuals.result import Counterfactual, Counterfactuals, Status
from apas.counterfactuals.space import FeatureSpace
from apas.counterfactuals.wanted import default_space, wanted_classes, with_gaps
from apas.errors import InputError
from apas.models.convert import as_model, encoded_rows
from apas.shifts.linf import LinfShifts

__all__ = ["read_points", "taken"]


def taken(
    kind: type[Counterfactuals], model: Any, X: Any, points: Any, target: Any, space: FeatureSpace | None
) -> Counterfactuals:
    """What `Counterfactuals.from_frame` gives."""
    net = as_model(model)
    space = default_space(net, space, X, without_gaps(points))
    bound = space.bind(net)
    origins, numbers = space.numbers(X), read_points(space, points, "points")
    if len(numbers) != len(origins):
        raise InputError(f"`points` must have a row for each of the {len(origins)} inputs, got {len(numbers)}.")
    targets = wanted_classes(bound, encoded_rows(bound, space.table(origins))[1], target)
    costs = space.costs(numbers, origins)
    items = [
        Counterfactual(i, 0, targets[i], Status.EXHAUSTED if np.isnan(cost) else Status.FOUND, float(cost), 0, 0, None,
                       "no row was given" if np.isnan(cost) else "taken as given, not certified")
        for i, cost in enumerate(costs)
    ]  # fmt: skip
    rows = np.arange(len(origins))
    return kind(
        items, points=with_gaps(space, numbers, X, rows), inputs=space.like(origins, X), numbers=numbers,
        origins=origins, model=bound, space=space, shifts=LinfShifts(),
    )  # fmt: skip


def read_points(space: FeatureSpace, points: Any, argument: str) -> Any:
    """Rows in raw units as numbers per cell; a row in which all is missing as NaN."""
    gaps = missing_rows(points)
    numbers = np.full((len(gaps), len(space)), np.nan)
    kept = points.iloc[~gaps] if is_frame(points) else np.asarray(points)[~gaps]
    numbers[~gaps] = space.numbers(kept, argument)
    return numbers


def missing_rows(points: Any) -> Any:
    """Which rows hold nothing at all."""
    import pandas as pd

    return pd.DataFrame(points).isna().all(axis=1).to_numpy(dtype=bool)


def without_gaps(points: Any) -> Any:
    """The rows that hold something."""
    gaps = missing_rows(points)
    return points.iloc[~gaps] if is_frame(points) else np.asarray(points)[~gaps]
