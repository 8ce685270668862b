"""`is_naturally_occurring`: whether shifts leave the expected output, its variance and its smoothness alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream, entropy_of
from apas._validation import check_delta, check_flag, check_integer, check_probability
from apas.certify.entry import SHIFTS, check_agreement, check_target, pick
from apas.certify.listed import default_delta, models_used
from apas.certify.outputs import output_range
from apas.certify.problem import Problem
from apas.certify.scan import block_size
from apas.errors import InputError, Unsupported
from apas.models.convert import as_model, encoded_rows
from apas.models.protocol import Dense, Described, Model, offers
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts
from apas.shifts.protocol import ShiftSet
from apas.theory.evidence import NaturalEvidence
from apas.theory.lipschitz import lipschitz_bound
from apas.theory.moments import ALTERNATIVES, Moments, mean_reach, spread_reach, t_test

__all__ = ["NaturalEvidence", "is_naturally_occurring"]

_Array = NDArray[np.float64]
QUANTITIES = ("output", "margin")


def is_naturally_occurring(
    model: Any,
    X: Any,
    shifts: ShiftSet | str = "linf",
    *,
    delta: float | None = None,
    n_samples: int | None = None,
    confidence: float = 0.95,
    simultaneous: bool = True,
    variance_limit: float | None = None,
    alternative: str = "two-sided",
    quantity: str = "output",
    target: Any = None,
    rng: int | np.random.Generator | None = None,
) -> NaturalEvidence:
    """Test whether shifts of a model are naturally occurring: same expected output, small variance, Lipschitz.

    Draws can speak against it, never for it: that an expectation is exactly what it was cannot be shown by sampling.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        Where to look.
    shifts : ShiftSet or str, default "linf"
        The set, with the distribution that it draws from.
    delta : float
        Size of the shifts. For `ObservedShifts` 1 or None.
    n_samples : int, optional
        How many models to draw; 1000 unless given. Of `ObservedShifts` all are taken.
    confidence : float, default 0.95
        Of everything that is stated about one row; about all rows together with `simultaneous`.
    simultaneous : bool, default True
        Divide the risk by the number of rows, since one row speaks against the whole set.
    variance_limit : float, optional
        The largest variance that counts as small.
    alternative : {"two-sided", "less", "greater"}
        What the t-test looks for in the expected output: any difference, or a lesser or a greater one.
    quantity : {"output", "margin"}
        ``"output"``: the probability of class 1, or the number itself of networks with ``output="identity"``.
        ``"margin"``: what decides the class, for any model.
    target : label, optional
        Towards which class the margin is; of two, the second unless given.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the result.

    Returns
    -------
    NaturalEvidence

    Notes
    -----
    The conditions are those of the paper's Definition 5. The t-test is that of its appendix; its p-value is exact for
    normal outputs and approximate for others. Beside it stand bounds that hold for every distribution, where the
    outputs are known to lie in a range: empirical Bernstein bounds on the mean and those of Maurer and Pontil on the
    standard deviation. The verdict rests on these alone.
    Lipschitz constants are bounded from above, for dense networks (`apas.theory.lipschitz`), with respect to the
    Euclidean distance of inputs in model units.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[2.0]]], [[0.0]])
    >>> found = is_naturally_occurring(net, [[1.0]], delta=1.0, n_samples=20_000, rng=0)
    >>> found.verdict.name, bool(found.mean[0] < found.original[0])
    ('REFUTED', True)
    """
    net = as_model(model)
    shift_set = pick(shifts, SHIFTS, ShiftSet, "shifts")
    _check_choice(alternative, ALTERNATIVES, "alternative")
    _check_choice(quantity, QUANTITIES, "quantity")
    check_flag(simultaneous, "simultaneous")
    level = check_probability(confidence, "confidence", "is_naturally_occurring")
    if variance_limit is not None and not (isinstance(variance_limit, int | float) and variance_limit > 0):
        raise InputError(f"`variance_limit` must be a positive number, or None, got {variance_limit!r}.")
    points, encoded = encoded_rows(net, X)
    if not len(encoded):
        raise InputError("`X` of is_naturally_occurring must hold at least one row, got none.")
    if delta is None and not isinstance(shift_set, ObservedShifts):
        raise InputError("`delta` must be given: it is how far the parameters move.")
    problem = Problem(
        model=net, X=encoded, target=check_target(net, encoded, _label(net, quantity, target)),
        delta=check_delta(default_delta(shift_set, delta), len(encoded)), shifts=shift_set, points=points,
    )  # fmt: skip
    offset, logistic = _reading(net, shift_set) if quantity == "output" else (0.0, False)
    check_agreement(net, points, encoded, shift_set)
    samples = _samples(shift_set, n_samples)
    entropy = entropy_of(rng)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
        original = _read(net.margin(encoded, problem.one_target), offset, logistic)
        moments = _drawn(problem, Stream(entropy, "natural"), samples, original, offset, logistic)
    t, p = t_test(moments, alternative)
    risk = (1 - level) / (len(encoded) if simultaneous else 1)
    low, high = _range(problem, original, offset, logistic)
    # four bounds per row, each with a quarter of its risk
    spread = np.sqrt(moments.variance)
    reach = mean_reach(samples, spread, high - low, risk / 4)
    wide = spread_reach(samples, high - low, risk / 4)
    base, shifted = _lipschitz(problem, quantity == "margin")
    return NaturalEvidence(
        measure=problem.measure, delta=float(problem.delta[0]), draws=samples, entropy=entropy, quantity=quantity,
        confidence=level, simultaneous=bool(simultaneous), alternative=alternative, original=original,
        mean=original + moments.mean, difference=moments.magnitude, variance=moments.variance, t=t, p_values=p,
        mean_low=np.maximum(low, original + moments.mean - reach),
        mean_high=np.minimum(high, original + moments.mean + reach),
        variance_low=np.maximum(0.0, spread - wide) ** 2,
        variance_high=np.minimum((spread + wide) ** 2, ((high - low) / 2) ** 2),
        variance_limit=None if variance_limit is None else float(variance_limit),
        lipschitz_base=base, lipschitz_shifted=shifted,
    )  # fmt: skip


def _check_choice(value: Any, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise InputError(f"`{name}` must be one of {', '.join(map(repr, known))}, got {value!r}.")


def _label(model: Model, quantity: str, target: Any) -> Any:
    if len(model.classes) == 2 and target is None:
        return model.classes[1]
    if quantity == "output":
        if target is not None:
            raise InputError('`target` goes with quantity="margin"; the output is that of class 1: leave it out.')
        raise Unsupported('quantity="output" needs a model with two classes; use quantity="margin" and a `target`.')
    return target


def _reading(model: Model, shifts: ShiftSet) -> tuple[float, bool]:
    """What to add to a margin towards class 1, and whether the logistic function then makes it the output."""
    read = _threshold(model)
    others = shifts.models if isinstance(shifts, ObservedShifts) else ()
    if any(_threshold(other) != read for other in others):
        raise Unsupported('quantity="output" needs models with the same kind of output and threshold; use "margin".')
    return read


def _threshold(model: Model) -> tuple[float, bool]:
    if offers(model, Dense):
        network = model.as_feedforward()
        return network.offset, network.output != "identity"
    threshold = model.describe().get("threshold") if offers(model, Described) else None
    if not isinstance(threshold, float) or not 0 < threshold < 1:
        raise Unsupported('quantity="output" needs a model whose threshold is known; use quantity="margin".')
    return math.log(threshold) - math.log1p(-threshold), True


def _read(margins: _Array, offset: float, logistic: bool) -> _Array:
    from scipy.special import expit

    values = expit(margins + offset) if logistic else margins + offset
    if not np.isfinite(values).all():
        raise InputError("`shifts` must give models whose outputs are numbers, got one that is not finite.")
    return np.asarray(values)


def _samples(shifts: ShiftSet, asked: int | None) -> int:
    if asked is not None:
        check_integer(asked, "n_samples", "is_naturally_occurring", least=2)
    count = models_used(shifts, asked) if isinstance(shifts, ObservedShifts) else asked or 1000
    if count < 2:
        raise InputError("`models` of ObservedShifts must number at least 2 here, got 1; a variance needs two.")
    return count


def _drawn(
    problem: Problem, stream: Stream, samples: int, original: _Array, offset: float, logistic: bool
) -> Moments:  # fmt: skip
    """Moments of the difference from the original outputs."""
    moments, block = Moments.none(len(problem)), block_size(problem)
    for begin in range(0, samples, block):
        margins = problem.margins(problem.directions(stream, begin, min(begin + block, samples)))
        moments.add(_read(margins, offset, logistic) - original)
    return moments


def _range(problem: Problem, original: _Array, offset: float, logistic: bool) -> tuple[_Array, _Array]:
    """Between which numbers every output lies, as far as that is known."""
    if logistic:
        return np.zeros(len(problem)), np.ones(len(problem))
    known = problem.network is not None and isinstance(problem.shifts, LinfShifts | LpShifts)
    if not known or (len(problem.model.classes) > 2 and isinstance(problem.shifts, LpShifts)):
        return np.full(len(problem), -np.inf), np.full(len(problem), np.inf)
    found = output_range(
        problem.network, problem.X, problem.delta, target=problem.one_target, shifts=problem.shifts, method="interval"
    )
    low, high = (np.array([getattr(item, end) for item in found]) + offset for end in ("low", "high"))
    # the outputs are computed in float64
    room = 1e-9 * (1 + np.maximum(np.abs(low), np.abs(high)))
    return np.minimum(low, original) - room, np.maximum(high, original) + room


def _lipschitz(problem: Problem, margin: bool) -> tuple[float | None, float | None]:
    """Bounds on the constants of the model itself, and of every shifted one; None where none is known."""
    model, shifts = problem.model, problem.shifts
    base = lipschitz_bound(model.as_feedforward(), margin=margin) if offers(model, Dense) else None
    if isinstance(shifts, ObservedShifts):
        if (problem.delta != 1).any() or not all(offers(other, Dense) for other in shifts.models):
            return base, None
        return base, max(lipschitz_bound(other.as_feedforward(), margin=margin) for other in shifts.models)
    if problem.network is None or not isinstance(shifts, LinfShifts | LpShifts):
        return base, None
    # the ball of an LpShifts lies in the box of its radii
    return base, lipschitz_bound(problem.network, float(problem.delta.max()) * problem.radii, margin=margin)
