"""Questions about models that exist: about each of them, and how many a claim about their process needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.certificate import BoundEvidence, Certificate
from apas.certify.claims import Every, Most, Verdict
from apas.certify.problem import Problem
from apas.certify.scan import block_size
from apas.certify.witness import DrawnShift
from apas.display.numbers import at_least
from apas.errors import GuaranteeWarning, InputError
from apas.models.convert import encoded_rows
from apas.models.protocol import Described, Model, offers
from apas.shifts.observed import ObservedShifts
from apas.shifts.protocol import ShiftSet
from apas.stats import sample_size

__all__ = ["check_models", "decided_one_by_one", "default_delta", "models_used", "too_few_models"]


def default_delta(shifts: ShiftSet, delta: Any) -> Any:
    """The delta of models that exist is 1 unless given; of other sets there is no default."""
    return 1.0 if delta is None and isinstance(shifts, ObservedShifts) else delta


def models_used(shifts: ObservedShifts, asked: int | None) -> int:
    """How many of the models `Sampling` takes: all, or as many as it was told to."""
    if asked is not None and asked > len(shifts):
        raise InputError(
            f"`n_samples` of Sampling must be at most {len(shifts)}, as ObservedShifts has models, got {asked}; none "
            "is used twice, so leave it out, or retrain more."
        )
    return len(shifts) if asked is None else asked


def too_few_models(claim: Most, models: int) -> str:
    """The error a user reads, with the confidence that so many models reach.

    Examples
    --------
    >>> too_few_models(Most(0.95, 0.95, "models"), 30).split("; ")[0]
    '`models` of ObservedShifts must number at least 59 for coverage 0.95 with confidence 0.95, got 30'
    """
    needed = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
    together = f" for {claim.rows} rows together" if claim.rows > 1 else ""
    risk = claim.rows * Fraction(repr(claim.coverage)) ** models
    # rounded down, so that the confidence as printed is reached
    reached = Fraction(int((1 - risk) * 10_000), 10_000)
    reach = f"{models} reach a confidence of {float(reached):g}{together}" if reached > 0 else "they reach none"
    return (
        f"`models` of ObservedShifts must number at least {needed} for coverage {claim.coverage} with confidence "
        f"{claim.confidence}{together}, got {models}; {reach}, so retrain more or ask Sampling for less."
    )


def check_models(
    shifts: ObservedShifts, model: Model, points: Any
) -> Iterator[tuple[Model, NDArray[np.float64], str]]:  # fmt: skip
    """Each listed model, the rows as it reads them, and what to call it; warn of another threshold than the model's."""
    warned = False
    for number, other in enumerate(shifts.models):
        name = f"`models[{number}]` of ObservedShifts"
        ours, theirs = (m.describe().get("threshold") if offers(m, Described) else None for m in (model, other))
        if None not in (ours, theirs) and ours != theirs and not warned:
            warned = True
            warnings.warn(
                f"{name} gives its second class from {theirs:g} on, but the model itself from {ours:g} on; the claim "
                "is about models with thresholds of their own.",
                GuaranteeWarning,
                stacklevel=4,
            )
        try:
            yield other, encoded_rows(other, points)[1], name
        except InputError as error:
            raise InputError(f"{name} cannot read the rows: {error}") from error


def decided_one_by_one(problem: Problem, method: str) -> list[Certificate]:
    """Ask every listed model: one certificate per row about all of them."""
    shifts = problem.shifts
    assert isinstance(shifts, ObservedShifts)
    claim = Every(problem.region, problem.claim_rows)
    nowhere = Stream(0, "listed")  # nothing is drawn
    least, doubtful = np.full(len(problem), np.inf), np.zeros(len(problem), dtype=bool)
    broken = np.full(len(problem), -1)
    for begin in range(0, len(shifts), block_size(problem)):
        margins = problem.margins(problem.directions(nowhere, begin, begin + block_size(problem)))
        fails = ~(margins >= -problem.band)  # written so that a NaN fails
        first = np.where(fails.any(axis=0) & (broken < 0), begin + fails.argmax(axis=0), -1)
        broken = np.where(broken < 0, first, broken)
        doubtful |= (~fails & ~(margins > problem.band)).any(axis=0)
        least = np.minimum(least, (margins - problem.band).min(axis=0))
    answers = []
    for i, number in enumerate(broken.tolist()):
        delta, witness, bound = float(problem.delta[i]), None, None
        if number >= 0:
            verdict, reason = Verdict.REFUTED, f"model number {number} does not keep it"
            witness = DrawnShift(shifts, delta, nowhere.entropy, nowhere.purpose, number)
        elif doubtful[i]:
            verdict, reason = Verdict.UNKNOWN, "on some model it is within rounding of the boundary"
        else:
            written = at_least(float(least[i]))
            verdict, bound = Verdict.CERTIFIED, float(written)
            asked = f"each of the {len(shifts)}" if len(shifts) > 1 else "it"
            reason = f"{asked} was asked, and the least margin is {written}"
        evidence = BoundEvidence("models", bound, len(shifts), exact=bound is not None)
        answers.append(Certificate(claim, verdict, delta, problem.target[i], method, evidence, reason, witness))
    return answers
