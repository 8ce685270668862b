"""The paper's Distinct-Realizations Problem: two shifted models on different sides of a threshold."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Any

import numpy as np

from apas._typing import Floats
from apas._validation import check_probability
from apas.certification.api import certify
from apas.certification.certificate import Certificate
from apas.certification.claims import Every, Verdict
from apas.certification.question import SHIFTS, Method, pick
from apas.errors import InputError, Unsupported
from apas.models.as_model import as_model, encoded_rows
from apas.models.base import ROUNDING, Dense, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Bounded, Box, Region, ShiftSet
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR, exact_sign


class Answer(StrEnum):
    """What is known about a yes-or-no question."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class DistinctRealizations:
    """Whether two models of the set give outputs below, and at or above, a threshold; with the two models.

    Attributes
    ----------
    answer : Answer
        "yes", "no" or "unknown".
    below, above : FeedForward or None
        Models of the set with an output below, and at or above, the threshold. Without a "yes" one of them at most is
        known: the model itself.
    threshold, delta : float
    certificate : Certificate
        The claim that every shift keeps the class of the model itself, which a "yes" refutes and a "no" proves.
    reason : str
    """

    answer: Answer
    below: FeedForward | None
    above: FeedForward | None
    threshold: float
    delta: float
    certificate: Certificate
    reason: str

    def __bool__(self) -> bool:
        raise TypeError('the answer may be "unknown": compare .answer with "yes", "no" or "unknown".')

    def sentence(self) -> str:
        """Say the answer in words that are true as they stand."""
        sides = f"outputs below, and at or above, {self.threshold:g}"
        what = f"at delta = {self.delta:g} there are two shifted models with {sides}"
        if self.answer is Answer.UNKNOWN:
            return f"unknown: it is not settled whether {what}; {self.reason}."
        said = what if self.answer is Answer.YES else f"it is not so that {what}"
        return f"{self.answer}: {said}; {self.reason}."

    def __str__(self) -> str:
        return self.sentence()


def distinct_realizations(
    model: Any, x: Any, delta: float, tau: float, *, shifts: ShiftSet | str = "linf", method: Method | str | None = None
) -> DistinctRealizations:
    """Answer the Distinct-Realizations Problem (DRP): whether ``M1(x) < tau <= M2(x)`` for two models of the set.

    The model itself is one of the set. So the question is whether some shift takes `x` to the other side of `tau`.

    Parameters
    ----------
    model : object
        A dense network with two classes: see `as_model`.
    x : array_like of shape (features,) or (1, features), or data frame with one row
    delta : float
        How far the parameters may move.
    tau : float
        What outputs are compared with: probabilities of class 1, or the number itself of networks with
        ``output="identity"``. Takes the place of the model's own threshold. Probabilities are compared by their logits,
        that of `tau` rounded to float64.
    shifts : LinfShifts, LpShifts, SparseShifts or str, default "linf"
    method : Method or str, optional
        One that speaks of every shift; unless given, ``"exact"`` in a box and ``"cascade"`` elsewhere.

    Returns
    -------
    DistinctRealizations

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0]]], [[0.0]], output="identity")
    >>> found = distinct_realizations(net, [2.0], 0.125, 1.75)
    >>> str(found.answer), found.above.margin(np.array([[2.0]]), 1), found.below.margin(np.array([[2.0]]), 1)
    ('yes', array([0.25]), array([-0.125]))
    """
    given = as_model(model)
    if not offers(given, Dense) or len(given.classes) != 2:
        raise Unsupported("`model` of distinct_realizations must be a dense network with two classes.")
    chosen = pick(shifts, SHIFTS, ShiftSet, "shifts")
    geometry = chosen.geometry(given.parameters) if offers(chosen, Bounded) else None
    if not isinstance(geometry, Region):
        sets = "a LinfShifts or an LpShifts, or a SparseShifts"
        raise Unsupported(f"`shifts` of distinct_realizations must be {sets}, got {chosen!r}.")
    flat = isinstance(x, list | tuple) and x and not isinstance(x[0], list | tuple | np.ndarray)
    rows = encoded_rows(given, [x] if flat else x[None, :] if isinstance(x, np.ndarray) and x.ndim == 1 else x)[1]
    if len(rows) != 1:
        raise InputError(f"`x` of distinct_realizations must be one row, got {len(rows)}; ask about one at a time.")
    network = _with_threshold(given.as_feedforward(), tau)
    label = network.classes[1 if float(network.margin(rows, network.classes[1])[0]) >= 0 else 0]
    method = method or ("exact" if isinstance(geometry, Box) else "cascade")
    found = certify(network, rows, delta, target=label, shifts=chosen, method=method, rng=0)[0]
    if not isinstance(found.claim, Every):
        raise InputError(f'`method` of distinct_realizations must speak of every shift, got {method!r}; use "exact".')
    sides: list[FeedForward | None] = [None, None]
    answer, reason, side = Answer.UNKNOWN, found.reason, _side(network, rows)
    if side is None:
        reason = "the output of the model itself is the threshold, up to rounding"
    else:
        sides[side] = network
        if found.verdict is Verdict.CERTIFIED:
            answer = Answer.NO
        elif found.witness is not None:
            answer, sides[1 - side] = Answer.YES, network.with_parameters(found.witness.parameters(network))
    return DistinctRealizations(answer, sides[0], sides[1], float(tau), float(found.delta), found, reason)


def _with_threshold(network: FeedForward, tau: Any) -> FeedForward:
    if network.output != "identity":
        tau = check_probability(tau, "tau", "distinct_realizations")
    elif isinstance(tau, bool) or not isinstance(tau, Real) or not math.isfinite(tau):
        raise InputError(f"`tau` of distinct_realizations must be a finite number, got {reprlib.repr(tau)}.")
    return network.with_options(threshold=float(tau), feature_names=None)


def _side(network: FeedForward, row: Floats) -> int | None:
    """1 if the output is at or above the threshold, 0 if below, None if rounding leaves that open."""
    margin = float(network.margin(row, network.classes[1])[0])
    if PIECEWISE_LINEAR.issuperset(network.activations):
        sign = exact_sign(network.weights, network.biases, network.activations, row[0], 1, network.offset)
        known = (sign >= 0) == (margin >= 0)
    else:
        still = np.zeros(len(network.parameters))
        known = abs(margin) > ROUNDING * float(network.margin_scale(row, still)[0])
    return int(margin >= 0) if known else None
