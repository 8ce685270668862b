"""Shares of valid shifts that need no draws: where the margin is linear in what moves, their law is known.

With what enters the output layer, h, the margin over a rival is its value on the model itself plus ``delta * sum of
c_i s_i``, where ``c_i = radii_i * abs(h_i)`` and s is a draw; the set says what share of its draws keeps such a sum
above a level (`LinearShare`). Failures against several rivals add up to at most their sum, and to at least the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._fields import Fields
from apas._typing import Floats
from apas.certification.certificate import Certificate, CornerShift, Witness
from apas.certification.claims import Most, Verdict
from apas.certification.confirmation import confirmed_witness
from apas.certification.question import Question
from apas.display.numbers import at_least, at_most
from apas.errors import InputError
from apas.models.base import offers
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, margins_from_scores
from apas.shifts.base import Box, LinearShare, OtherMoves

#: What certificates call it.
METHOD = "closed form"
#: Bounds are kept as multiples of this, rounded outward, so that no library's last digits show.
DIGITS = 10**9
#: How far bounds may be from those of a file: on another machine, a digit may have been rounded to the other side.
SAME = 3 / DIGITS


@dataclass(frozen=True)
class ShareEvidence:
    """Bounds on the share of valid shifts, computed from its law and rounded outward to nine decimals.

    They are no closer than it took to decide the claim.
    """

    lower: float
    upper: float
    draws: int = 0
    failures: int = 0
    kind: ClassVar[str] = "share"

    def coverage_lower(self, confidence: Any) -> float:
        """Lower bound on the share of valid shifts, certain and so good for every `confidence`."""
        return self.lower

    def coverage_upper(self, confidence: Any) -> float:
        """Upper bound on the share of valid shifts, certain and so good for every `confidence`."""
        return self.upper

    def verdict(self, coverage: float) -> Verdict:
        """What the bounds decide about a share."""
        if self.lower >= coverage:
            return Verdict.CERTIFIED
        return Verdict.REFUTED if self.upper < coverage else Verdict.UNKNOWN

    def reason(self) -> str:
        """The bounds in words."""
        ends = (
            f"between {at_least(self.lower)} and {at_most(self.upper)}"
            if self.lower < self.upper
            else f"{self.lower:g}"
        )
        return f"the valid share is {ends}, computed without draws"

    def recheck(self, question: Question, certificate: Any) -> tuple[bool | None, str]:
        """Whether the same bounds are computed again for the one row of a question, and decide what they did."""
        claim = certificate.claim
        if claim != Most(claim.coverage, 1.0, question.measure, claim.rows) or certificate.method != METHOD:
            return False, "a share that is computed has confidence 1, is about this set, and stands in place of draws"
        (now,) = computed_shares(question, question.delta, claim.coverage) or (None,)
        if now is None:
            return False, "the share of these shifts is not known without draws"
        if max(abs(now.lower - self.lower), abs(now.upper - self.upper)) > SAME:
            return False, f"computed again, {now.reason()}, the file says {self.lower!r} and {self.upper!r}"
        if certificate.verdict is Verdict.UNKNOWN or self.verdict(claim.coverage) is not certificate.verdict:
            return False, f"its bounds do not decide {certificate.verdict} at a share of {claim.coverage}"
        witness = certificate.witness
        if witness is not None and confirmed_witness(question, 0, witness.parameters(question.model)) is None:
            return False, "its witness does not lie in the set or does not break the row"
        return now.verdict(claim.coverage) is certificate.verdict, f"computed again: {now.reason()}"

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return {"kind": self.kind, "lower": self.lower, "upper": self.upper}

    @classmethod
    def from_dict(cls, about: Fields) -> ShareEvidence:
        """The evidence that a file describes."""
        lower, upper = (about.only("kind", "lower", "upper").number(key) for key in ("lower", "upper"))
        if not 0 <= lower <= upper <= 1:
            raise InputError(f"{about.where} must have bounds on a share, of which the lower one is not the larger.")
        return cls(lower, upper)


def closed_certificates(question: Question, coverage: float) -> list[Certificate | None] | None:
    """One certificate per row, None for a row that the bounds leave open; None if the share is not known at all."""
    shares = computed_shares(question, question.delta, coverage)
    if shares is None:
        return None
    claim, answers = Most(coverage, 1.0, question.measure, question.claim_rows), list[Certificate | None]()
    for i, share in enumerate(shares):
        verdict = share.verdict(coverage)
        witness = _failing_corner(question, question.network, i) if verdict is Verdict.REFUTED else None  # type: ignore[arg-type]
        told = (float(question.delta[i]), question.target[i], METHOD, share, share.reason(), witness)
        answers.append(None if verdict is Verdict.UNKNOWN else Certificate(claim, verdict, *told))
    return answers


def computed_shares(question: Question, deltas: Floats, coverage: float | None = None) -> list[ShareEvidence] | None:
    """Bounds on each row's share of valid shifts at its delta, close enough to decide `coverage`; None if unknown."""
    network, shifts = question.network, question.shifts
    if question.regions is not None or not offers(shifts, LinearShare) or offers(shifts, OtherMoves):
        return None
    if network is None or type(network) is not FeedForward or not _own_law(shifts):  # a subclass may compute others
        return None
    last = network.parameters.slices[-2].start
    if question.radii[:last].any():  # a hidden layer moves
        return None
    asked = question if deltas is question.delta else question.at(deltas)
    found: list[ShareEvidence] = []
    coverage = None if network.weights[-1].shape[1] > 2 else coverage  # of several rivals each share counts
    reach = network.parameters.split(question.radii)[-2:]
    for i, (delta, band) in enumerate(zip(deltas.tolist(), asked.band.tolist(), strict=True)):
        fails, most = 0.0, 1.0
        h = _entering(network, question.X[i : i + 1])  # by itself: in a product of many rows its last bits are others
        for margin, columns in _rivals(network, h, int(question.wanted[i])):
            sizes = np.concatenate([(reach[0][:, columns] * np.abs(h[0])[:, None]).ravel(), reach[1][columns]])
            if not math.isfinite((margin + band) / delta + float(sizes.sum())):  # of what overflows nothing is known
                fails, most = 1.0, 1.0
                break
            # what is within rounding of 0 fails in the lower bound and is valid in the upper one; sizes and level are
            # off by less than a few units of their own last place
            slack = (band / delta + 2.0**-50 * (float(sizes.sum()) + abs(margin) / delta)) * (1 + 2.0**-50)
            lower, upper = shifts.linear_share(question.coordinates, sizes, margin / delta, slack, coverage)
            fails, most = fails + (1 - lower), min(most, upper)
        least = max(0.0, 1 - fails * (1 + 2.0**-50))
        found.append(ShareEvidence(math.floor(least * DIGITS) / DIGITS, math.ceil(most * DIGITS) / DIGITS))
    return found


def _own_law(shifts: Any) -> bool:
    """Whether the law is that of the draws: a subclass with draws or margins of its own has none until it says so."""
    for kind in type(shifts).__mro__:
        if "linear_share" in vars(kind) or not {"directions", "margins"}.isdisjoint(vars(kind)):
            return "linear_share" in vars(kind)
    return True


def _entering(network: FeedForward, X: Floats) -> Floats:
    for w, b, name in zip(network.weights, network.biases, network.activations, strict=False):
        X = activate(name, X @ w + b)
    return X


def _rivals(network: FeedForward, h: Floats, wanted: int) -> list[tuple[float, list[int]]]:
    """Per rival the margin over it on the model itself, and the outputs that it depends on."""
    scores = h @ network.weights[-1] + network.biases[-1]
    if len(network.biases[-1]) <= 2:
        margins = margins_from_scores(scores, np.array([wanted]), network.offset)
        return [(float(margins[0]), list(range(len(network.biases[-1]))))]
    rivals = [j for j in range(scores.shape[1]) if j != wanted]
    return [(float(scores[0, wanted] - scores[0, j]), [wanted, j]) for j in rivals]


def _failing_corner(question: Question, network: FeedForward, i: int) -> Witness | None:
    """The corner of a box at which the margin is least, if it is below 0 there by more than rounding."""
    if not isinstance(question.geometry, Box):
        return None
    delta, radii = float(question.delta[i]), question.radii
    margins, gradients = network.parameter_gradient(question.X[i : i + 1], question.target[i])
    least = float(margins[0]) - delta * float(np.abs(gradients[0]) @ radii)
    # rounding at the corner, and in computing that it is one, are each covered by the band
    signs = np.where(radii > 0, -np.sign(gradients[0]), 0.0)
    return CornerShift(question.shifts, delta, signs.astype(np.int8)) if least < -2 * question.band[i] else None
