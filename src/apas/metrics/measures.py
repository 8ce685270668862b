"""The metrics by name: what each needs, and how it is computed from the counterfactuals that were found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.entry import certify
from apas.certify.fraction import robust_fraction
from apas.certify.radius import max_shift
from apas.counterfactuals.result import Counterfactuals
from apas.metrics.distance import broken, l1, linf, share_changed
from apas.metrics.plausibility import distance_to_data, lof
from apas.metrics.table import retrained_columns
from apas.metrics.validity import valid_rows
from apas.models.convert import encoded_rows
from apas.models.protocol import Model

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["DRAWING", "METRICS", "NEEDED", "Asked", "Columns"]

_Array = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Asked:
    """What metrics are computed from: only the counterfactuals that were found."""

    counterfactuals: Counterfactuals
    background: _Array | None
    retrained: tuple[Model, ...]
    delta: float | None
    n_jobs: int
    entropy: int

    @cached_property
    def found(self) -> Counterfactuals:
        """The counterfactuals that were found."""
        return self.counterfactuals[self.counterfactuals.found]

    @cached_property
    def table(self) -> DataFrame:
        """The counterfactuals in raw units."""
        return self.found.space.table(self.found.numbers)

    @cached_property
    def points(self) -> _Array:
        """The counterfactuals as the model sees them."""
        return encoded_rows(self.found.model, self.table)[1]

    @cached_property
    def inputs(self) -> _Array:
        """The inputs as the model sees them."""
        return encoded_rows(self.found.model, self.found.space.table(self.found.origins))[1]

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Which are valid on the model itself."""
        return valid_rows(self.found.model, self.table, self.found.target, "`model`")

    @property
    def shifted(self) -> dict[str, Any]:
        """What all questions about shifts share."""
        found = self.found
        return {"target": found.target, "shifts": found.shifts, "n_jobs": self.n_jobs}


def _validity(asked: Asked) -> Columns:
    later = [
        valid_rows(model, asked.table, asked.found.target, f"`retrained[{i}]`")
        for i, model in enumerate(asked.retrained)
    ]
    return {"valid": asked.valid, **dict(zip(retrained_columns(len(later)), later, strict=True))}


def _l0(asked: Asked) -> Columns:
    found = asked.found
    return {"l0": share_changed(found.space.differences(found.numbers, found.origins))}


def _cost(asked: Asked) -> Columns:
    found = asked.found
    return {"cost": found.space.costs(found.numbers, found.origins, found.distance)}


def _violations(asked: Asked) -> Columns:
    found = asked.found
    return {"violations": broken(found.space, found.numbers, found.origins)}


def _delta_validity(asked: Asked) -> Columns:
    answers = certify(asked.found.model, asked.table, asked.delta, method="interval", **asked.shifted)
    return {"delta_validity": answers.certified}


def _robust_fraction(asked: Asked) -> Columns:
    curves = robust_fraction(asked.found.model, asked.table, asked.delta, rng=asked.entropy, **asked.shifted)
    return {"robust_fraction": np.array([curve.estimate[0] for curve in curves])}


def _max_shift(asked: Asked) -> Columns:
    answers = max_shift(asked.found.model, asked.table, rng=asked.entropy, **asked.shifted)
    return {"max_shift": np.array([answer.delta for answer in answers])}


#: How each metric is computed: columns with an entry per counterfactual that was found.
METRICS: Mapping[str, Callable[[Asked], Columns]] = {
    "validity": _validity,
    "l1": lambda asked: {"l1": l1(asked.inputs, asked.points)},
    "l0": _l0,
    "linf": lambda asked: {"linf": linf(asked.inputs, asked.points)},
    "cost": _cost,
    "lof": lambda asked: {"lof": lof(asked.background, asked.points)},
    "distance_to_data": lambda asked: {"distance_to_data": distance_to_data(asked.background, asked.points)},
    "violations": _violations,
    "delta_validity": _delta_validity,
    "robust_fraction": _robust_fraction,
    "max_shift": _max_shift,
}
#: What a metric cannot do without, and what to pass.
NEEDED = {
    "lof": ("background", "the known rows, such as the training table"),
    "distance_to_data": ("background", "the known rows, such as the training table"),
    "delta_validity": ("delta", "how far the model may move"),
    "robust_fraction": ("delta", "how far the model may move"),
}
#: Which metrics draw.
DRAWING = ("robust_fraction", "max_shift")
