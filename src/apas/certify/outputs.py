"""`output_range`: between which margins shifted models put each row.

Drawn: of n independent shifts the least margin is exceeded by at least a share ``(1 - confidence) ** (1 / n)`` of all
shifts, with that confidence (Lemma 4 of the paper, solved for the share); the largest one likewise. Proved: a set that
contains the margins of every shift, attained at its ends where that is known.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream, entropy_of
from apas._validation import check_delta
from apas.bounds.balls import least_margins_ball
from apas.bounds.interval import Boxes, is_exact, rivals
from apas.bounds.worstcase import ALL_STEPS, worst_cases
from apas.certify.claims import Every, Most
from apas.certify.entry import METHODS, SHIFTS, check_agreement, check_target, pick
from apas.certify.exact import Exact
from apas.certify.interval import IntervalBounds
from apas.certify.listed import default_delta
from apas.certify.outputranges import OutputRange, OutputRanges
from apas.certify.problem import Method, Problem
from apas.certify.sampling import Sampling
from apas.certify.scan import ROWS, block_size
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.convert import as_model, encoded_rows
from apas.models.digest import model_digest
from apas.models.feedforward import FeedForward
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts
from apas.shifts.protocol import ShiftSet
from apas.stats import coverage_lower

__all__ = ["output_range"]

_Array = NDArray[np.float64]
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
    problem = Problem(
        model=net, X=encoded, target=check_target(net, encoded, target),
        delta=check_delta(default_delta(shift_set, delta), len(encoded)), shifts=shift_set, points=points,
    )  # fmt: skip
    if not isinstance(chosen, Sampling | IntervalBounds | Exact):
        raise InputError(
            f"`method` of output_range must be sampling, interval or exact, got {type(chosen).__name__}."
        )  # fmt: skip
    if isinstance(shift_set, ObservedShifts) and not isinstance(chosen, Sampling):
        raise Unsupported('output_range asks models that exist (ObservedShifts) with method="sampling" alone.')
    complaint = chosen.unsupported(problem)
    if complaint is not None:
        raise Unsupported(complaint)
    check_agreement(net, points, encoded, shift_set)
    items: list[OutputRange] = []
    if len(problem):
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(chosen, Sampling):
                items = _drawn(problem, chosen, Stream(entropy_of(rng), "range"))
            else:
                items = _proved(problem, chosen)
    return OutputRanges(items, points=points, model_digest=model_digest(net), shifts=shift_set)


def _drawn(problem: Problem, method: Sampling, stream: Stream) -> list[OutputRange]:
    asked = method.claim(problem)
    samples = method.plan(problem, asked)[0]
    # what Lemma 4 attaches to the extreme of so many draws: at least the share that was asked for
    share = max(method.coverage, coverage_lower(samples, 0, confidence=method.confidence))
    claim = Most(share, method.confidence, asked.measure)
    low, high = np.full(len(problem), np.inf), np.full(len(problem), -np.inf)
    undefined = np.zeros(len(problem), dtype=np.int64)
    block = block_size(problem)
    with Progress(samples, "drawing shifted models") as progress:
        for begin in range(0, samples, block):
            end = min(begin + block, samples)
            directions = problem.directions(stream, begin, end)
            for chunk in range(0, len(problem), ROWS):
                part = problem if len(problem) <= ROWS else problem.take(slice(chunk, chunk + ROWS))
                margins = part.margins(directions)
                rows = slice(chunk, chunk + len(part))
                # a model that gives no number is on neither side of any: then no end is known
                missing = np.isnan(margins)
                undefined[rows] += np.count_nonzero(missing, axis=0)
                low[rows] = np.minimum(low[rows], np.where(missing, -np.inf, margins).min(axis=0))
                high[rows] = np.maximum(high[rows], np.where(missing, np.inf, margins).max(axis=0))
            progress.advance(end - begin)
    if problem.single:  # what the draws give in float32, whatever the order of its sums
        low, high = low - problem.band, high + problem.band
    base = problem.model.margin(problem.X, problem.one_target)
    return [
        OutputRange(
            float(low[i]), float(high[i]), claim, claim, (bool(np.isfinite(low[i])), bool(np.isfinite(high[i]))),
            float(base[i]), float(problem.delta[i]),
            problem.target[i], "sampling", int(undefined[i]),
        )
        for i in range(len(problem))
    ]  # fmt: skip


def _proved(problem: Problem, method: IntervalBounds | Exact) -> list[OutputRange]:
    network = problem.network
    assert network is not None
    claim = Every(problem.region)
    base = problem.model.margin(problem.X, problem.one_target)
    low, high = _enclosed(problem, network)
    # where the bounds overflow, infinity less infinity may stand for an end: none is known then
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    binary = len(network.classes) == 2
    closed = is_exact(network) and isinstance(problem.shifts, LinfShifts)
    name = "exact" if isinstance(method, Exact) else "interval"
    items = []
    with Progress(len(problem), "going through the rows") as progress:
        for i in range(len(problem)):
            ends, attained = (float(low[i]), float(high[i])), (closed, closed and binary)
            if isinstance(method, Exact) and not closed and isinstance(problem.shifts, LinfShifts):
                deadline = time.monotonic() + method.time_limit
                below = _edge(problem, network, i, int(problem.wanted[i]), ends[0], float(base[i]), deadline)
                above = (-ends[1], False)
                if binary:  # the largest margin is the least one towards the other class, turned round
                    other = 1 - int(problem.wanted[i])
                    above = _edge(problem, network, i, other, -ends[1], -float(base[i]), deadline)
                ends, attained = (below[0], -above[0]), (below[1], above[1])
            reached = (attained[0] and bool(np.isfinite(ends[0])), attained[1] and bool(np.isfinite(ends[1])))
            items.append(
                OutputRange(
                    *ends, claim, claim, reached, float(base[i]), float(problem.delta[i]), problem.target[i], name
                )
            )
            progress.advance(1)
    return items


def _enclosed(problem: Problem, network: FeedForward) -> tuple[_Array, _Array]:
    """Ends of a set that contains the margin of every shifted model."""

    def least(wanted: NDArray[np.intp]) -> _Array:
        if isinstance(problem.shifts, LpShifts):
            bound, error = least_margins_ball(
                network, problem.X, wanted, problem.radii, problem.shifts.p, problem.delta
            )
            return bound - error
        boxes = Boxes(network, problem.X, wanted, problem.radii)
        return boxes.bound(problem.delta) - boxes.error(problem.delta)

    low = least(problem.wanted)
    if len(network.classes) == 2:
        return low, -least(1 - problem.wanted)
    if isinstance(problem.shifts, LpShifts):
        raise Unsupported("output_range in a ball needs a model with two classes; use LinfShifts, or Sampling.")
    # the margin is at most what the wanted score can exceed any one rival by
    high = np.full(len(problem), np.inf)
    for rival in rivals(network, problem.wanted).T:
        boxes = Boxes(network, problem.X, rival, problem.radii)
        place = (rivals(network, rival) == problem.wanted[:, None]).argmax(axis=1)
        against = np.stack([boxes.against(problem.delta, j) for j in range(len(boxes.outputs))])
        least_lead = against[place, np.arange(len(problem))] - boxes.error(problem.delta)
        high = np.minimum(high, -least_lead)
    return low, high


def _edge(
    problem: Problem, network: FeedForward, row: int, wanted: int, low: float, known: float, deadline: float
) -> tuple[float, bool]:
    """The least margin of one row: proved from below, and whether a shift attains it; by bisection over verdicts.

    Whether every margin exceeds s is the question whether every shift keeps the row of a network whose wanted score is
    lowered by s.
    """
    x, delta = problem.X[row : row + 1], float(problem.delta[row])
    high = known

    def above(level: float) -> bool | None:
        nonlocal high
        lowered = _lowered(network, wanted, level)

        def accept(_: int, direction: _Array) -> bool:
            nonlocal high
            label = network.classes[wanted]
            margin = float(lowered.shifted_margins(x, label, (problem.radii * direction)[None, :], delta)[0, 0])
            high = min(high, margin + level)
            return margin <= 0

        left = max(deadline - time.monotonic(), 0.0)
        found = worst_cases(
            lowered, x, np.array([wanted]), problem.radii, delta, steps=ALL_STEPS, time_limit=left, accept=accept
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
        network.weights, [*network.given_biases[:-1], biases], activation=network.activations, output=network.output,
        threshold=network.threshold, classes=network.classes, dtype=network.dtype,
    )  # fmt: skip
