"""Models compared with their own library: what apas reads of one must be what the library says of every row asked."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.errors import GuaranteeWarning, InputError
from apas.models import base as models
from apas.models.as_model import encoded_and_classified, predicted_classes
from apas.models.base import ROUNDING, Model, offers
from apas.shifts import base as sets

#: Rows closer to the boundary than this are left out when a model is compared with its own library.
AGREEMENT = 1e-9


def check_agreement(
    model: Model, points: Any, X: Floats, name: str = "`model`", margins: Floats | None = None, theirs: Any = None
) -> None:
    """Refuse a model whose own library says otherwise about rows; `margins` towards class 1 of two, if known."""
    if not offers(model, models.LibraryBacked) or not len(X):
        return
    ours, distance = predicted_classes(model, X, margins)
    theirs = model.library_classes(points) if theirs is None else theirs
    allowed: Any = AGREEMENT
    # about what is within its rounding it has no opinion
    if offers(model, models.Arithmetic) and model.dtype == "float32":
        still = np.zeros(len(model.parameters))
        allowed = AGREEMENT + ROUNDING * sets.magnitudes(model, X, model.classes[0], still, 0.0)
    differ = [i for i in np.flatnonzero(distance > allowed) if ours[i] != theirs[i]]
    if differ:
        i = int(differ[0])
        raise InputError(
            f"{name} does not agree with its own library on row {i}: apas reads class {ours[i]!r}, the library says "
            f"{theirs[i]!r}; this model is not what it seems, so nothing can be certified about it."
        )


def check_listed(shifts: sets.Listed, model: Model, points: Any, first: int = 0, beside: Any = None) -> list[Floats]:
    """Refuse listed models that cannot read the rows or are not what they seem; what they make of `beside` (`ask`)."""
    read: list[Floats] = []
    warned, ours = first > 0, model.describe().get("threshold") if offers(model, models.Described) else None
    for number, other in enumerate(shifts.models[first:], first):
        name = f"`models[{number}]` of {type(shifts).__name__}"
        theirs = other.describe().get("threshold") if ours is not None and offers(other, models.Described) else None
        if None not in (ours, theirs) and ours != theirs and not warned:
            warned = True
            warnings.warn(
                f"{name} gives its second class from {theirs:g} on, but the model itself from {ours:g} on; the claim "
                "is about models with thresholds of their own.",
                GuaranteeWarning,
                stacklevel=4,
            )
        try:
            rows, said = encoded_and_classified(other, points if beside is None else beside)
            read += [] if beside is None else [rows]
        except InputError as error:
            if beside is not None:  # the rows themselves may be fine
                return check_listed(shifts, model, points, number)
            raise InputError(f"{name} cannot read the rows: {error}") from error
        rows, said = rows[: len(points)], None if said is None else said[: len(points)]
        check_agreement(other, points, rows, name, theirs=said)
    return read
