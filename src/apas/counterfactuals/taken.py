"""Counterfactuals of other tools, as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from apas.counterfactuals.result import Counterfactual, Counterfactuals, Status
from apas.counterfactuals.space import FeatureSpace
from apas.counterfactuals.wanted import check_space, own_columns, read_off, wanted_classes, with_gaps
from apas.errors import InputError
from apas.models.convert import as_model, encoded_rows
from apas.shifts.linf import LinfShifts

__all__ = ["taken"]


def taken(
    kind: type[Counterfactuals], model: Any, X: Any, points: Any, target: Any, space: FeatureSpace | None
) -> Counterfactuals:
    """What `Counterfactuals.from_frame` gives."""
    net = as_model(model)
    space = read_off(net, {"X": X, "points": points}, X) if space is None else check_space(space)
    bound = space.bind(net)
    origins, numbers = space.numbers(X), space.numbers(own_columns(points, space), "points", gaps=True)
    if len(numbers) != len(origins):
        raise InputError(f"`points` must have a row for each of the {len(origins)} inputs, got {len(numbers)}.")
    targets = wanted_classes(bound, encoded_rows(bound, space.table(origins))[1], target, one_way=False)
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
