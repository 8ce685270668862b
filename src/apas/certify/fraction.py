"""`robust_fraction`: the share of shifts on which each row keeps its class, as a function of their size.

With `Sampling` the same directions are used at every delta, so that the curve is smooth in delta; the counts of each
delta are those of independent draws. Each end of each band is a one-sided Clopper-Pearson bound that is wrong with
probability at most ``(1 - confidence) / (2 * len(deltas))``; by the union bound all of them hold together with the
stated confidence. With `Enumeration` the bounds are computed and certain.
"""

from __future__ import annotations

import reprlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream, entropy_of
from apas._validation import check_jobs
from apas.certify.curves import FractionCurve, FractionCurves
from apas.certify.entry import SHIFTS, check_agreement, check_target, pick
from apas.certify.enumeration import Enumeration, enclosed_shares
from apas.certify.listed import default_delta
from apas.certify.problem import Problem
from apas.certify.sampling import Sampling
from apas.certify.scan import ALIGN, ROWS, block_size
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.convert import as_model, encoded_rows
from apas.models.digest import model_digest
from apas.shifts.protocol import ShiftSet
from apas.stats import coverage_lower, coverage_upper

__all__ = ["robust_fraction"]

_Counts = NDArray[np.int64]


def robust_fraction(
    model: Any,
    X: Any,
    deltas: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Sampling | Enumeration | str = "sampling",
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> FractionCurves:
    """Bound the share of shifted models on which each row keeps its class, at several sizes of the shifts.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The counterfactual explanations.
    deltas : float or array_like
        Sizes of the shifts, the same for all rows. For `ObservedShifts` 1 or None.
    target : label, array_like of labels or "predicted"
        The class each row must keep.
    shifts : ShiftSet or str, default "linf"
    method : Sampling, Enumeration, "sampling" or "enumeration"
        `Sampling` estimates from its number of draws, with its confidence; its coverage plays no part. `Enumeration`
        computes bounds to its gap or limit of boxes, for dense networks with few moving parameters.
    n_jobs : int, default 1
        Number of processes; the answer does not depend on it.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the result.

    Returns
    -------
    FractionCurves
        One `FractionCurve` per row. A row that the model itself does not put into its target class has a curve like
        any other, since the share is about shifted models; its `valid` is False.

    Notes
    -----
    The band of a row holds at all deltas together with the stated confidence, each row by itself. Margins within
    rounding of 0 count as failing in the lower end and in the estimate, and as valid in the upper end. What voids the
    confidence: choosing the deltas or rows by looking at the same draws (the same `rng`).

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> curve = robust_fraction(net, [[2.0, 0.5]], [0.1, 1.0], target=1, rng=0)[0]
    >>> [round(share, 2) for share in curve.estimate.tolist()]
    [1.0, 0.86]
    """
    net = as_model(model)
    chosen = _method(method)
    shift_set = pick(shifts, SHIFTS, ShiftSet, "shifts")
    sizes = _check_deltas(default_delta(shift_set, deltas))
    points, encoded = encoded_rows(net, X)
    entropy = entropy_of(rng)
    problem = Problem(
        model=net, X=encoded, target=check_target(net, encoded, target), delta=np.full(len(encoded), sizes.max()),
        shifts=shift_set, n_jobs=check_jobs(n_jobs), points=points,
    )  # fmt: skip
    complaint = chosen.unsupported(problem)
    if complaint is not None:
        raise Unsupported(complaint)
    check_agreement(net, points, encoded, shift_set)
    items: list[FractionCurve] = []
    if len(problem):
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            sampled = isinstance(chosen, Sampling)
            items = _sampled(problem, sizes, chosen, entropy) if sampled else _enclosed(problem, sizes, chosen)
    return FractionCurves(
        items, points=points, model_digest=model_digest(net), shifts=shift_set,
        entropy=entropy if isinstance(chosen, Sampling) else None,
    )  # fmt: skip


def _method(method: Any) -> Any:
    if isinstance(method, Sampling | Enumeration):
        return method
    known: dict[str, Any] = {"sampling": Sampling, "enumeration": Enumeration}
    if isinstance(method, str) and method in known:
        return known[method]()
    raise InputError(
        '`method` of robust_fraction must be "sampling", "enumeration", a Sampling(...) or an Enumeration(...), '
        f"got {method!r}."
    )


def _check_deltas(deltas: Any) -> NDArray[np.float64]:
    try:
        given = np.atleast_1d(np.asarray(deltas))
        values = given.astype(np.float64) if given.dtype.kind in "iuf" else np.empty(0)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not len(values) or not ((values > 0) & np.isfinite(values)).all():
        got = reprlib.repr(getattr(deltas, "tolist", lambda: deltas)())
        raise InputError(
            f"`deltas` must be one or more positive finite numbers, got {got}; they say how far the parameters move."
        )
    return values


def _enclosed(problem: Problem, deltas: NDArray[np.float64], method: Enumeration) -> list[FractionCurve]:
    measure, valid = problem.measure_at(deltas), problem.valid_rows() | problem.doubtful_rows()
    curves = []
    for i, bounds in enumerate(enclosed_shares(problem, deltas, method)):
        lower, upper = np.array(bounds).T
        middle = 0.5 * (lower + upper)
        curves.append(FractionCurve(deltas, middle, lower, upper, 0, 1.0, problem.target[i], measure, bool(valid[i])))
    return curves


def _sampled(problem: Problem, deltas: NDArray[np.float64], method: Sampling, entropy: int) -> list[FractionCurve]:
    samples = method.samples(problem, method.claim(problem))
    failures, sure = _counted(problem, deltas, Stream(entropy, "fraction"), samples)
    # every end of every band has the same part of the risk
    level = 1 - (1 - Fraction(repr(method.confidence))) / (2 * len(deltas))
    measure, valid = problem.measure_at(deltas), problem.valid_rows() | problem.doubtful_rows()
    return [
        FractionCurve(
            deltas,
            1 - failures[:, i] / samples,
            np.array([coverage_lower(samples, int(k), confidence=level) for k in failures[:, i]]),
            np.array([coverage_upper(samples, int(k), confidence=level) for k in sure[:, i]]),
            samples,
            method.confidence,
            problem.target[i],
            measure,
            bool(valid[i]),
        )
        for i in range(len(problem))
    ]


def _counted(problem: Problem, deltas: NDArray[np.float64], stream: Stream, samples: int) -> tuple[_Counts, _Counts]:
    """How many draws fail at each delta for each row: all of them, and those beyond rounding."""
    questions = [replace(problem, delta=np.full(len(problem), delta)) for delta in deltas]
    block = block_size(problem)
    blocks = -(-samples // block)
    size = block
    if problem.n_jobs != 1:
        from joblib import Parallel, delayed, effective_n_jobs

        # a few parts per worker, so that a slow one does not hold up the rest
        size *= -(-blocks // min(blocks, 4 * effective_n_jobs(problem.n_jobs)))
    ranges = [(a, min(a + size, samples)) for a in range(0, samples, size)]
    if problem.n_jobs == 1:
        parts = (_count(questions, stream, a, b, block) for a, b in ranges)
    else:
        work = Parallel(n_jobs=problem.n_jobs, return_as="generator")
        parts = work(delayed(_count)(questions, stream, a, b, block) for a, b in ranges)
    total = np.zeros((2, len(deltas), len(problem)), dtype=np.int64)
    with Progress(samples, "drawing shifted models") as progress:
        for (a, b), part in zip(ranges, parts, strict=True):
            total += part
            progress.advance(b - a)
    return total[0], total[1]


def _count(questions: list[Problem], stream: Stream, start: int, stop: int, block: int) -> _Counts:
    first = questions[0]
    counts = np.zeros((2, len(questions), len(first)), dtype=np.int64)
    for begin in range(start, stop, block):
        end = min(begin + block, stop)
        whole = -(-end // ALIGN) * ALIGN if block >= ALIGN else end  # whole groups of directions need no copy
        directions = first.directions(stream, begin, whole)
        for problem, count in zip(questions, counts.transpose(1, 0, 2), strict=True):
            for chunk in range(0, len(problem), ROWS):
                rows = slice(chunk, chunk + ROWS)
                margins = problem.margins(directions, rows)[: end - begin]
                band = problem.band[rows]
                # written so that a NaN fails beyond doubt
                count[0, rows] += np.count_nonzero(~(margins > band), axis=0)
                count[1, rows] += np.count_nonzero(~(margins >= -band), axis=0)
    return counts
