"""How a model reads rows: in its own units, and with which margins, so that a changed row is noticed.

A certificate without a failing draw would look the same for a slightly different delta, seed or row. The margin on the
first of the drawn models would not: it depends on all of them. Where nothing was drawn one model is, from a stream of
its own. Margins are kept with nine digits, since the last ones depend on how a machine adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Floats, Indices
from apas._validation import is_frame
from apas.certification.certificate import Certificate
from apas.certification.max_shift.result import MaxShift
from apas.certification.methods.sampling import SamplingEvidence
from apas.certification.question import Question
from apas.counterfactuals.space.encoder import CodedModel
from apas.models.base import Dense, Described, Model, Named, Raw, offers
from apas.models.convert import encoded_rows
from apas.models.digest import model_digest

#: Stream (entropy and purpose) of the one model that is drawn where a certificate drew none.
PROBE = (0, "probe")


@dataclass(frozen=True)
class Origin:
    """What a file says about the model besides its fingerprint."""

    preprocessing: bool
    network: str | None
    space: dict[str, Any] | None


@dataclass(frozen=True)
class Reading:
    """What a model makes of one row."""

    origin: Origin
    encoded: tuple[float, ...]
    margin: float | None
    first_draw: float | None


def origin_of(model: Model) -> Origin:
    """What a file says about a model besides its fingerprint."""
    network = model_digest(model.as_feedforward()) if offers(model, Dense) else None
    described = model.describe() if offers(model, Described) else {"preprocessing": offers(model, Raw) or None}
    between = described.get("preprocessing") is not None or isinstance(model, CodedModel)
    return Origin(between, network, model.space.to_dict() if isinstance(model, CodedModel) else None)


def rows_of(model: Model, points: Any, names: tuple[str, ...] | None) -> tuple[Any, Floats]:
    """Rows as the model takes them, and in model units.

    A table without column names is in the order of `names`, which need not be that of the model.
    """
    own = model.feature_names if offers(model, Named) else None
    if names is not None and own is not None and tuple(own) != names and not is_frame(points):
        import pandas as pd

        points = pd.DataFrame(points, columns=list(names))
    return encoded_rows(model, points)


def question_of(
    model: Model, encoded: Floats, points: Any, items: Sequence[Certificate | MaxShift], shifts: Any
) -> Question:
    """The question that certificates answer, with the deltas and targets that they name."""
    target = np.empty(len(items), dtype=object)
    target[:] = [item.target for item in items]
    # a row of which nothing is certified has the delta 0, at which nothing is asked
    delta = np.array([item.delta or 1.0 for item in items], dtype=np.float64)
    return Question(model, encoded, target, delta, shifts, points=points)


def readings(question: Question, items: Sequence[Certificate | MaxShift]) -> list[Reading]:
    """What the model of a question makes of each of its rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        margins = question.model.margin(question.X, question.one_target) if len(question) else np.empty(0)
        drawn = np.full(len(question), np.nan)
        for (entropy, purpose), rows in streams(items).items():
            first = question.directions(Stream(entropy, purpose), 0, 1)
            drawn[rows] = question.margins(first, rows)[0]
    origin = origin_of(question.model)
    return [
        Reading(origin, tuple(row), _nine(margin), _nine(draw))
        for row, margin, draw in zip(question.X.tolist(), margins.tolist(), drawn.tolist(), strict=True)
    ]


def streams(items: Sequence[Certificate | MaxShift]) -> dict[tuple[int, str], Indices]:
    """The random streams of certificates, and the rows that share each."""
    found: dict[tuple[int, str], list[int]] = {}
    for i, item in enumerate(items):
        if isinstance(item, Certificate):
            e = item.evidence
            found.setdefault((e.entropy, e.purpose) if isinstance(e, SamplingEvidence) else PROBE, []).append(i)
    return {stream: np.array(rows, dtype=np.intp) for stream, rows in found.items()}


def _nine(value: float) -> float | None:
    return float(f"{value:.9g}") if np.isfinite(value) else None
