"""`output_range`: between which margins shifted models put each row.

Drawn: of n independent shifts the least margin is exceeded by at least a share ``(1 - confidence) ** (1 / n)`` of all
shifts, with that confidence (Lemma 4 of the paper, solved for the share); the largest one likewise. Proved: a set that
contains the margins of every shift, attained at its ends where that is known.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._random import Stream, entropy_of
from apas._typing import Floats, Indices
from apas._validation import check_delta
from apas.certification.api import METHODS, SHIFTS, check_agreement, check_target, pick
from apas.certification.claims import Every, Most
from apas.certification.methods.bounds import IntervalBounds
from apas.certification.methods.exact import Exact
from apas.certification.methods.sampling import ROWS, Sampling, block_size, default_delta
from apas.certification.question import Method, Question
from apas.certification.results import UnderShifts
from apas.display.numbers import at_least, at_most, exactly, plain
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.convert import as_model, encoded_rows
from apas.models.digest import model_digest
from apas.models.feedforward import FeedForward
from apas.shifts.base import ShiftSet
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts
from apas.stats import coverage_lower
from apas.worst_case.ball.bounds import least_margins_ball
from apas.worst_case.decide import ALL_STEPS, worst_cases
from apas.worst_case.intervals import Boxes, is_exact, rivals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    low_claim, high_claim : Every or Most
        What each end is worth by itself: `Most` with the share of shifts whose margin does not pass it, or `Every`.
    attained : tuple of bool
        Whether a shift is known that reaches each end, up to rounding.
    margin : float
        On the model itself.
    delta : float
    target : object
    method : str
    undefined : int
        How many drawn models gave no number; one is enough that no end is known.
    """

    low: float
    high: float
    low_claim: Every | Most
    high_claim: Every | Most
    attained: tuple[bool, bool]
    margin: float
    delta: float
    target: Any
    method: str
    undefined: int = 0

    @property
    def side(self) -> str:
        """Where the range lies: "above" or "below" the decision threshold, or "across" it (the paper's Figure 2)."""
        return "above" if self.low > 0 else "below" if self.high < 0 else "across"

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        size = f"delta = {exactly(self.delta)} ({self.low_claim.measure})"
        what = f"margins towards class {self.target!r} under shifts by {size}"
        ends = [
            f"{write(end)} or {word}"
            for end, write, word in ((self.low, at_least, "more"), (self.high, at_most, "less"))
            if isfinite(end)
        ]
        missing = self._missing()
        if not ends:
            return f"no range is known of the {what}: {missing}."
        but = f"; no {'upper' if isfinite(self.low) else 'lower'} end is known: {missing}" if len(ends) < 2 else ""
        if isinstance(self.low_claim, Most):
            share = _shortened(self.low_claim).share
            odds = f"{'each ' if len(ends) > 1 else ''}with confidence {self.low_claim.confidence!r}"
            return f"at least {share} of the shifts have {what} of {', and as many of '.join(ends)}, {odds}{but}."
        between = f"lies between {at_least(self.low)} and {at_most(self.high)}" if not but else f"is {ends[0]}"
        return f"every one of the {what} {between}{but}."

    def _missing(self) -> str:
        """Why an end is infinite."""
        if not isinstance(self.low_claim, Most):
            return "the bound is no finite number"
        if self.undefined:
            return f"{self.undefined} of the drawn models give{'s' if self.undefined == 1 else ''} no number"
        return "a drawn model gives an infinite one"

    def to_dict(self) -> dict[str, Any]:
        """The range as JSON values; what is infinite or no number as null."""
        return {
            "low": _finite(self.low),
            "high": _finite(self.high),
            "low_claim": self.low_claim.to_dict(),
            "high_claim": self.high_claim.to_dict(),
            "attained": list(self.attained),
            "margin": _finite(self.margin),
            "delta": self.delta,
            "target": plain(self.target),
            "method": self.method,
            "side": self.side,
            "undefined": self.undefined,
        }

    def __str__(self) -> str:
        return self.sentence()


class OutputRanges(UnderShifts[OutputRange]):
    """One range per row, in the order of the rows.

    Attributes
    ----------
    points : ndarray or data frame
        The rows that were asked about, in the user's units.
    model_digest : str
    shifts : ShiftSet
    """

    FORMAT = "apas-output-ranges"
    COLUMNS = ("low", "high", "margin", "side", "target", "delta", "method", "claim")
    UNSHOWN = ("claim",)

    def summary(self) -> str:
        """How many ranges lie on which side of the decision threshold, in one sentence."""
        if not len(self):
            return "No rows, no ranges."
        sides = [item.side for item in self]
        counts = ", ".join(f"{sides.count(s)} {s}" for s in ("above", "across", "below") if s in sides)
        endless = sum(not (isfinite(item.low) and isfinite(item.high)) for item in self)
        but = f"; {endless} without a known end" if endless else ""
        claim = self[0].low_claim
        alone = f"{' of each row' if len(self) > 1 else ''} by itself"
        odds = f" for each end{alone}" if isinstance(claim, Most) and claim.confidence < 1 else ""
        return f"{self._counted()}: {counts} the threshold{but} ({_rounded(claim)}{odds})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ranges against the decision threshold, as in Figure 2 of the paper."""
        from apas.display.plots import range_plot

        return range_plot(self, ax)

    def _shown_frame(self) -> DataFrame:
        """Ends in few digits, rounded outwards."""
        frame = super()._shown_frame()
        return frame.assign(low=[at_least(item.low) for item in self], high=[at_most(item.high) for item in self])

    def _line(self, item: OutputRange) -> dict[str, Any]:
        return {**{name: getattr(item, name) for name in self.COLUMNS[:-1]}, "claim": _rounded(item.low_claim)}


def _finite(value: float) -> float | None:
    """The number as JSON has it."""
    return value if isfinite(value) else None


def _rounded(claim: Every | Most) -> str:
    """The claim in words."""
    return str(_shortened(claim) if isinstance(claim, Most) else claim)


def _shortened(claim: Most) -> Most:
    """With a share that follows from the number of draws rounded down to six digits."""
    return replace(claim, coverage=float(at_least(claim.coverage)))


#: Relative width at which the bracket around an end counts as closed.
CLOSED = 1e-6


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
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
    delta : float or array_like of shape (rows,)
        How far the parameters may move. For `ObservedShifts` 1 or None.
    target : label, array_like of labels or "predicted"
        The class towards which margins are counted: 0 is the decision threshold.
    shifts : ShiftSet or str, default "linf"
    method : Method or str, default "sampling"
        ``"sampling"``: the least and the largest margin of its draws, with the share of shifts that each end stands
        for. ``"interval"``: a set that contains every margin. ``"exact"``: its ends are attained (dense piecewise
        linear networks with two classes).
    rng : None, int or numpy.random.Generator
        Seed of the draws.

    Returns
    -------
    OutputRanges

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> found = apas.output_range(net, [[2.0, 0.5]], 0.1, target=1, method="interval")[0]
    >>> round(found.low, 6), round(found.high, 6), found.side
    (1.15, 1.85, 'above')
    """
    net = as_model(model)
    chosen: Method = pick(method, METHODS, Method, "method")
    shift_set = pick(shifts, SHIFTS, ShiftSet, "shifts")
    points, encoded = encoded_rows(net, X)
    question = Question(
        model=net,
        X=encoded,
        target=check_target(net, encoded, target),
        delta=check_delta(default_delta(shift_set, delta), len(encoded)),
        shifts=shift_set,
        points=points,
    )
    if not isinstance(chosen, Sampling | IntervalBounds | Exact):
        raise InputError(f"`method` of output_range must be sampling, interval or exact, got {type(chosen).__name__}.")
    if isinstance(shift_set, ObservedShifts) and not isinstance(chosen, Sampling):
        raise Unsupported('output_range asks models that exist (ObservedShifts) with method="sampling" alone.')
    complaint = chosen.unsupported(question)
    if complaint is not None:
        raise Unsupported(complaint)
    check_agreement(net, points, encoded, shift_set)
    items: list[OutputRange] = []
    if len(question):
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(chosen, Sampling):
                items = _drawn(question, chosen, Stream(entropy_of(rng), "range"))
            else:
                items = _proved(question, chosen)
    return OutputRanges(items, points=points, model_digest=model_digest(net), shifts=shift_set)


def _drawn(question: Question, method: Sampling, stream: Stream) -> list[OutputRange]:
    asked = method.claim(question)
    samples = method.plan(question, asked)[0]
    # what Lemma 4 attaches to the extreme of so many draws: at least the share that was asked for
    share = max(method.coverage, coverage_lower(samples, 0, confidence=method.confidence))
    claim = Most(share, method.confidence, asked.measure)
    low, high = np.full(len(question), np.inf), np.full(len(question), -np.inf)
    undefined = np.zeros(len(question), dtype=np.int64)
    block = block_size(question)
    with Progress(samples, "drawing shifted models") as progress:
        for begin in range(0, samples, block):
            end = min(begin + block, samples)
            directions = question.directions(stream, begin, end)
            for chunk in range(0, len(question), ROWS):
                part = question if len(question) <= ROWS else question.take(slice(chunk, chunk + ROWS))
                margins = part.margins(directions)
                rows = slice(chunk, chunk + len(part))
                # a model that gives no number is on neither side of any: then no end is known
                missing = np.isnan(margins)
                undefined[rows] += np.count_nonzero(missing, axis=0)
                low[rows] = np.minimum(low[rows], np.where(missing, -np.inf, margins).min(axis=0))
                high[rows] = np.maximum(high[rows], np.where(missing, np.inf, margins).max(axis=0))
            progress.advance(end - begin)
    if question.single:  # what the draws give in float32, whatever the order of its sums
        low, high = low - question.band, high + question.band
    base = question.model.margin(question.X, question.one_target)
    return [
        OutputRange(
            float(low[i]),
            float(high[i]),
            claim,
            claim,
            (bool(np.isfinite(low[i])), bool(np.isfinite(high[i]))),
            float(base[i]),
            float(question.delta[i]),
            question.target[i],
            "sampling",
            int(undefined[i]),
        )
        for i in range(len(question))
    ]


def _proved(question: Question, method: IntervalBounds | Exact) -> list[OutputRange]:
    network = question.network
    assert network is not None
    claim = Every(question.region)
    base = question.model.margin(question.X, question.one_target)
    low, high = _enclosed(question, network)
    # where the bounds overflow, infinity less infinity may stand for an end: none is known then
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    binary = len(network.classes) == 2
    closed = is_exact(network) and isinstance(question.shifts, LinfShifts)
    name = "exact" if isinstance(method, Exact) else "interval"
    items = []
    with Progress(len(question), "going through the rows") as progress:
        for i in range(len(question)):
            ends, attained = (float(low[i]), float(high[i])), (closed, closed and binary)
            if isinstance(method, Exact) and not closed and isinstance(question.shifts, LinfShifts):
                deadline = time.monotonic() + method.time_limit
                below = _edge(question, network, i, int(question.wanted[i]), ends[0], float(base[i]), deadline)
                above = (-ends[1], False)
                if binary:  # the largest margin is the least one towards the other class, turned round
                    other = 1 - int(question.wanted[i])
                    above = _edge(question, network, i, other, -ends[1], -float(base[i]), deadline)
                ends, attained = (below[0], -above[0]), (below[1], above[1])
            reached = (attained[0] and bool(np.isfinite(ends[0])), attained[1] and bool(np.isfinite(ends[1])))
            items.append(
                OutputRange(
                    *ends, claim, claim, reached, float(base[i]), float(question.delta[i]), question.target[i], name
                )
            )
            progress.advance(1)
    return items


def _enclosed(question: Question, network: FeedForward) -> tuple[Floats, Floats]:
    """Ends of a set that contains the margin of every shifted model."""

    def least(wanted: Indices) -> Floats:
        if isinstance(question.shifts, LpShifts):
            bound, error = least_margins_ball(
                network, question.X, wanted, question.radii, question.shifts.p, question.delta
            )
            return bound - error
        boxes = Boxes(network, question.X, wanted, question.radii)
        return boxes.bound(question.delta) - boxes.error(question.delta)

    low = least(question.wanted)
    if len(network.classes) == 2:
        return low, -least(1 - question.wanted)
    if isinstance(question.shifts, LpShifts):
        raise Unsupported("output_range in a ball needs a model with two classes; use LinfShifts, or Sampling.")
    # the margin is at most what the wanted score can exceed any one rival by
    high = np.full(len(question), np.inf)
    for rival in rivals(network, question.wanted).T:
        boxes = Boxes(network, question.X, rival, question.radii)
        place = (rivals(network, rival) == question.wanted[:, None]).argmax(axis=1)
        against = np.stack([boxes.against(question.delta, j) for j in range(len(boxes.outputs))])
        least_lead = against[place, np.arange(len(question))] - boxes.error(question.delta)
        high = np.minimum(high, -least_lead)
    return low, high


def _edge(
    question: Question, network: FeedForward, row: int, wanted: int, low: float, known: float, deadline: float
) -> tuple[float, bool]:
    """The least margin of one row: proved from below, and whether a shift attains it; by bisection over verdicts.

    Whether every margin exceeds s is the question whether every shift keeps the row of a network whose wanted score is
    lowered by s.
    """
    x, delta = question.X[row : row + 1], float(question.delta[row])
    high = known

    def above(level: float) -> bool | None:
        nonlocal high
        lowered = _lowered(network, wanted, level)

        def accept(_: int, direction: Floats) -> bool:
            nonlocal high
            label = network.classes[wanted]
            margin = float(lowered.shifted_margins(x, label, (question.radii * direction)[None, :], delta)[0, 0])
            high = min(high, margin + level)
            return margin <= 0

        left = max(deadline - time.monotonic(), 0.0)
        found = worst_cases(
            lowered, x, np.array([wanted]), question.radii, delta, steps=ALL_STEPS, time_limit=left, accept=accept
        )[0]
        return None if found.open else found.proved

    scale = max(abs(known), abs(low), 1e-12)
    while high - low > CLOSED * scale:
        middle = 0.5 * (low + high)
        answer = above(middle)
        if answer is None:
            break
        if answer:
            low = middle
        else:
            high = min(high, middle)
    return low, high - low <= 2 * CLOSED * scale


def _lowered(network: FeedForward, wanted: int, level: float) -> FeedForward:
    """The network whose margin towards a class is less by `level`, or by a rounding error more: never by less."""
    biases = network.biases[-1].copy()
    place, sign = (0, 1.0 if wanted == 1 else -1.0) if len(biases) == 1 else (wanted, 1.0)
    biases[place] = np.nextafter(biases[place] - sign * level, -sign * np.inf)
    return FeedForward(  # with a bias, which the last layer may lack; how far each parameter moves is told apart
        network.weights,
        [*network.given_biases[:-1], biases],
        activation=network.activations,
        output=network.output,
        threshold=network.threshold,
        classes=network.classes,
        dtype=network.dtype,
    )
