"""Models that exist, in two parts: some to search with, the others to certify on, which no search has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.sampling import Sampling
from apas.counterfactuals.coded import CodedModel
from apas.counterfactuals.space import FeatureSpace
from apas.errors import InputError
from apas.models.protocol import Dense, Model, Raw, offers
from apas.shifts.observed import ObservedShifts
from apas.shifts.protocol import ShiftSet
from apas.stats import sample_size

__all__ = ["bound_models", "differences", "parted"]


def bound_models(shifts: ShiftSet, space: FeatureSpace, model: Model) -> ShiftSet:
    """Models behind the coding of the space, if the model itself is."""
    if not isinstance(shifts, ObservedShifts) or not isinstance(model, CodedModel):
        return shifts
    return ObservedShifts([space.bind(other) for other in shifts.models], process=shifts.process)


def parted(shifts: ObservedShifts, method: Sampling) -> tuple[ObservedShifts, ObservedShifts]:
    """The models to search with, and the last ones, as many as the claim needs, to certify on.

    Examples
    --------
    >>> from apas import FeedForward
    >>> models = [FeedForward([[[1.0 + i / 100]]], [[0.0]]) for i in range(40)]
    >>> [len(part) for part in parted(ObservedShifts(models), Sampling(coverage=0.9, confidence=0.9))]
    [18, 22]
    """
    needed = sample_size(coverage=method.coverage, confidence=method.confidence)
    certifying = needed if method.n_samples is None else method.n_samples
    if certifying < needed or len(shifts) <= certifying:
        raise InputError(
            f"`models` of ObservedShifts must number more than {max(needed, certifying)} to generate with coverage "
            f"{method.coverage} and confidence {method.confidence}, got {len(shifts)}: that many certify, and the "
            "search needs others; retrain more."
        )
    models, process = shifts.models, shifts.process
    first = ObservedShifts(models[:-certifying], process=process)
    last = ObservedShifts(models[-certifying:], process=process)
    both = len(set(first.to_dict()["models"]) & set(last.to_dict()["models"]))
    if both:
        raise InputError(
            f"`models` of ObservedShifts must differ, but {both} of those to certify on are among those to search: "
            "what a search has seen certifies nothing; retrain each with a seed of its own."
        )
    return first, last


def differences(shifts: ObservedShifts, model: Model) -> NDArray[np.float64] | None:
    """By how much the parameters of the models differ from those of one, if all read rows alike; else None."""
    if not offers(model, Dense) or (offers(model, Raw) and not isinstance(model, CodedModel)):
        return None
    base = model.parameters
    if any(type(m) is not type(model) or not _alike(m, model) for m in shifts.models):
        return None
    return np.stack([m.parameters.values - base.values for m in shifts.models])


def _alike(one: Any, other: Any) -> bool:
    a, b = one.as_feedforward(), other.as_feedforward()
    settings = ("activations", "output", "threshold", "classes")
    same = all(getattr(a, name) == getattr(b, name) for name in settings)
    return bool(same and one.parameters.shapes == other.parameters.shapes)
