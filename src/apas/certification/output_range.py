"""`output_range`: between which margins shifted models put each row.

Drawn: of n shifts the least margin is exceeded by at least a share ``(1 - confidence) ** (1 / n)`` of all, with that
confidence (Lemma 4 of the paper). Proved: a set that contains the margins of every shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._fields import as_json
from apas._random import Stream
from apas.certification.claims import Claim, Most, is_proof
from apas.certification.question import Draws, EnclosesOutput, Method, Question
from apas.certification.results import UnderShifts
from apas.display.numbers import at_least, at_most, exactly, plain
from apas.errors import InputError, Unsupported
from apas.models.base import offers
from apas.shifts.base import Listed, ShiftSet

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class OutputRange:
    """Between which margins the shifted models put a row.

    It is valid where its margin is at least 0; for other targets than class 1 of two, where it is above 0.

    Attributes
    ----------
    low, high : float
        Drawn: the least and the largest margin of the draws. Proved: all margins lie between them. Infinite where no
        end is known.
    low_claim, high_claim : Claim
        What each end is worth by itself: `Most` with the share of shifts whose margin does not pass it, or `Every`.
    attained : tuple of bool
        Whether a shift is known that reaches each end, up to rounding.
    margin : float
        On the model itself.
    undefined : int
        How many drawn models gave no number; one is enough that no end is known.
    """

    low: float
    high: float
    low_claim: Claim
    high_claim: Claim
    attained: tuple[bool, bool]
    margin: float
    delta: float
    target: Any
    method: str
    undefined: int = 0

    @classmethod
    def of(
        cls, question: Question, i: int, ends: Sequence[float], claim: Claim, attained: Any, method: str, nans: int = 0
    ) -> OutputRange:
        """The range of row `i`, of which so many models give no number; an end that is not finite is not attained."""
        low, high = ends
        reached = (attained[0] and isfinite(low), attained[1] and isfinite(high))
        base, delta, target = float(question.base_margins[i]), float(question.delta[i]), question.target[i]
        return cls(low, high, claim, claim, reached, base, delta, target, method, nans)

    @property
    def side(self) -> str:
        """Where the range lies: "above" or "below" the decision threshold, or "across" it (the paper's Figure 2)."""
        return "above" if self.low > 0 else "below" if self.high < 0 else "across"

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        size = f"delta = {exactly(self.delta)} ({self.low_claim.measure})"
        what = f"margins towards class {self.target!r} under shifts by {size}"
        ends = [f"{at_least(self.low)} or more"] if isfinite(self.low) else []
        ends += [f"{at_most(self.high)} or less"] if isfinite(self.high) else []
        missing = self._why_infinite()
        if not ends:
            return f"no range is known of the {what}: {missing}."
        but = f"; no {'upper' if isfinite(self.low) else 'lower'} end is known: {missing}" if len(ends) < 2 else ""
        if isinstance(self.low_claim, Most):
            share = _shorten_share(self.low_claim).share
            odds = f"{'each ' if len(ends) > 1 else ''}with confidence {self.low_claim.confidence!r}"
            return f"at least {share} of the shifts have {what} of {', and as many of '.join(ends)}, {odds}{but}."
        if not is_proof(self.low_claim):
            return f"the {what} are {' and '.join(ends)}, each end by itself for: {self.low_claim}{but}."
        between = f"lies between {at_least(self.low)} and {at_most(self.high)}" if not but else f"is {ends[0]}"
        return f"every one of the {what} {between}{but}."

    def _why_infinite(self) -> str:
        if is_proof(self.low_claim):
            return "the bound is no finite number"
        if self.undefined:
            return f"{self.undefined} of the drawn models give{'s' if self.undefined == 1 else ''} no number"
        return "a drawn model gives an infinite one"

    def to_dict(self) -> dict[str, Any]:
        """The range as JSON values; what is infinite or no number as null."""
        told = as_json({**vars(self), "target": plain(self.target), "side": self.side})
        told |= {name: told[name] if isfinite(told[name]) else None for name in ("low", "high", "margin")}
        undefined = told.pop("undefined")
        return {**told, "undefined": undefined}

    def __str__(self) -> str:
        return self.sentence()


class OutputRanges(UnderShifts[OutputRange]):
    """One range per row, in the order of the rows, with `points`, `model_digest` and `shifts` as in `Certificates`.

    `plot` draws the ranges against the decision threshold, as in Figure 2 of the paper.
    """

    PLOT, NOTHING = "range_plot", "No rows, no ranges."
    FORMAT = "apas-output-ranges"
    COLUMNS = ("low", "high", "margin", "side", "target", "delta", "method", "claim")
    UNSHOWN = ("claim",)

    def _summary(self) -> str:
        sides = [item.side for item in self]
        counts = ", ".join(f"{sides.count(s)} {s}" for s in ("above", "across", "below") if s in sides)
        endless = sum(not (isfinite(item.low) and isfinite(item.high)) for item in self)
        but = f"; {endless} without a known end" if endless else ""
        claim = self[0].low_claim
        odds = f" for each end{' of each row' if len(self) > 1 else ''} by itself" if claim.risk else ""
        return f"{self._counted()}: {counts} the threshold{but} ({_claim_words(claim)}{odds})."

    def _shown_frame(self) -> DataFrame:
        frame = super()._shown_frame()
        return frame.assign(low=[at_least(item.low) for item in self], high=[at_most(item.high) for item in self])

    def _line(self, item: OutputRange) -> dict[str, Any]:
        return {**{name: getattr(item, name) for name in self.COLUMNS[:-1]}, "claim": _claim_words(item.low_claim)}


def _claim_words(claim: Claim) -> str:
    return str(_shorten_share(claim) if isinstance(claim, Most) else claim)


def _shorten_share(claim: Most) -> Most:
    """With a share that follows from the number of draws rounded down to six digits."""
    return replace(claim, coverage=float(at_least(claim.coverage)))


def output_range(
    model: Any,
    X: Any,
    delta: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    rng: int | np.random.Generator | None = None,
) -> OutputRanges:
    """Find between which margins the shifted models put each row.

    Parameters
    ----------
    model, X, delta, shifts, rng
        As in `certify`; no seed is derived.
    target : label, array_like of labels or "predicted"
        The class towards which margins are counted: 0 is the decision threshold.
    method : Method or str, default "sampling"
        ``"sampling"``: the least and the largest margin of its draws, with the share of shifts that each end stands
        for. ``"interval"``: a set that contains every margin. ``"exact"``: its ends are attained (dense piecewise
        linear networks with two classes).

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> found = apas.output_range(net, [[2.0, 0.5]], 0.1, target=1, method="interval")[0]
    >>> round(found.low, 6), round(found.high, 6), found.side
    (1.15, 1.85, 'above')
    """
    drawn = method == "sampling" if isinstance(method, str) else offers(method, Draws)
    if offers(shifts, Listed) and not drawn:
        what = f"models that exist ({type(shifts).__name__})"
        raise Unsupported(f'output_range asks {what} with method="sampling" alone.')
    question = Question.ask(model, X, target=target, delta=delta, shifts=shifts, method=method)
    chosen, stream = question.method, Stream.seeded(rng, "range")
    if not offers(chosen, EnclosesOutput):
        raise InputError(f"`method` of output_range must be sampling, interval or exact, got {type(chosen).__name__}.")
    with np.errstate(over="ignore", invalid="ignore"):
        items = chosen.ranges(question, stream) if len(question) else []
    return OutputRanges(items, **question.context)
