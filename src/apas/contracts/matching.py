"""Whether a model is the one that a file is about, and the rows are those that it was asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.certificate import Certificate
from apas.certify.certificates import Certificates
from apas.certify.maxshifts import MaxShift, MaxShifts
from apas.certify.problem import Problem
from apas.contracts.readings import Origin, Reading, origin_of, question, readings, rows_of
from apas.counterfactuals.space import FeatureSpace
from apas.errors import ApasError
from apas.models.digest import model_digest, unidentified
from apas.models.protocol import Dense, Model, Named, Raw, offers
from apas.shifts.protocol import OtherMoves

__all__ = ["Matched", "asked", "match_model", "row_complaints", "wrong_targets"]

#: How far a preprocessing may be off on another machine, and a margin of nine digits.
SAME_UNITS, NINE_DIGITS = 1e-12, 1e-8


@dataclass(frozen=True)
class Matched:
    """The model of a file.

    Attributes
    ----------
    model : Model
        Takes rows in the file's raw units, unless only the network is known.
    network_only : bool
        Whether it is the network behind a preprocessing that is not at hand: rows are then taken in model units.
    borrowed_space : bool
        Whether only the file says how raw rows are encoded, so that whoever wrote it could say anything.
    unidentified : str
        What of the model has no fingerprint, so that the file may be about a model that differs in it; else empty.
    """

    model: Model
    network_only: bool = False
    borrowed_space: bool = False
    unidentified: str = ""


def match_model(found: Certificates | MaxShifts, model: Model) -> Matched | str:
    """The model as the file needs it, or why it is another one."""
    origin = found.readings[0].origin if found.readings else None
    own, borrowed = model, False
    if origin is not None and origin.space is not None and model_digest(model) != found.model_digest:
        borrowed = True
        try:
            own = FeatureSpace.from_dict(origin.space).bind(model)
        except (ApasError, TypeError, ValueError, KeyError, AttributeError) as error:
            return f"the file's space does not fit the model: {error}"
    digest = model_digest(own)
    if digest == found.model_digest:
        complaint = _other(found, own, origin)
        matched = Matched(own, borrowed_space=borrowed, unidentified=unidentified(own))
        return matched if complaint is None else complaint
    network = model.as_feedforward() if offers(model, Dense) and not offers(model, Raw) else None
    behind = origin is not None and origin.preprocessing and network is not None
    if behind and origin is not None and network is not None and model_digest(network) == origin.network:
        return Matched(model, network_only=True)
    return (
        f"this is not the model that the file is about: its SHA-256 is {digest[:12]}..., the file says "
        f"{found.model_digest[:12]}..."
    )


def _other(found: Certificates | MaxShifts, model: Model, origin: Origin | None) -> str | None:
    """What the file says about the model besides its fingerprint and does not hold, or None."""
    names = model.feature_names if offers(model, Named) else None
    told = found.feature_names  # largest shifts were once written without
    if (told is not None or isinstance(found, Certificates)) and sorted(names or ()) != sorted(told or ()):
        return "the file's feature names are not those of the model"
    if origin is not None and origin != origin_of(model):
        return "what the file says about the network or the space behind the model is not true of it"
    return None


def asked(found: Certificates | MaxShifts, matched: Matched) -> tuple[Problem, NDArray[np.float64]]:
    """The question that the file answers, and its rows in model units as the model reads them now."""
    width = matched.model.n_features
    missing = (np.nan,) * width  # of a row that has another number of values, which is then no row of the model
    told = np.array([r.encoded if len(r.encoded) == width else missing for r in found.readings or ()], dtype=np.float64)
    points, encoded = None, told
    if not matched.network_only:
        points, encoded = rows_of(matched.model, found.points, found.feature_names)
    problem = question(matched.model, encoded, points, list(found), found.shifts)
    return problem, told


def row_complaints(found: Certificates | MaxShifts, problem: Problem, told: NDArray[np.float64]) -> list[str | None]:
    """Per row what its target, its values in model units or its margins are not, or None."""
    exact = not offers(problem.model, Raw)
    allowed = 0.0 if exact else SAME_UNITS * np.maximum(1.0, np.abs(problem.X))
    close: list[bool] = np.all(np.abs(told - problem.X) <= allowed, axis=1).tolist()
    now = readings(problem, list(found))
    # margins of a dense network are computed in float64, whatever it is used in
    same = problem.single and problem.network is not None and not offers(problem.shifts, OtherMoves)
    precise = replace(problem, model=problem.network.with_dtype("float64")) if same and problem.network else problem
    band = precise.band if len(problem) else np.empty(0)
    return [
        "its values in model units are not what the model makes of its raw values" if not close[i]
        else _margins(told_row, now_row, float(band[i]), isinstance(found, Certificates))
        for i, (told_row, now_row) in enumerate(zip(found.readings or (), now, strict=True))
    ]  # fmt: skip


def wrong_targets(items: Sequence[Certificate | MaxShift], classes: tuple[Any, ...]) -> list[str | None]:
    """Per row whether its target is no class of the model."""
    known = {(type(c), c) for c in (c.item() if isinstance(c, np.generic) else c for c in classes)}
    return [
        None if (type(item.target), item.target) in known else f"its target {item.target!r} is no class of the model"
        for item in items
    ]


def _margins(told: Reading, now: Reading, band: float, drawn: bool) -> str | None:
    """Which margin is another one, or None; that on the first draw belongs to a certificate."""
    pairs = [("model itself", told.margin, now.margin)]
    pairs += [("first draw", told.first_draw, now.first_draw)] if drawn else []
    for name, was, is_ in pairs:
        known = was is not None and is_ is not None
        if was != is_ and not (known and abs(was - is_) <= NINE_DIGITS * abs(is_) + band):  # type: ignore[operator, arg-type]
            return f"its margin on the {name} is {is_!r}, the file says {was!r}"
    return None
