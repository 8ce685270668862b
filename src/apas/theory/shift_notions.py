"""Notions of shifts: naturally occurring ones (Definition 5), tested by draws, and plausible ones (Definition 6).

Lemma 3 has both directions: plausible shifts that are not natural, and the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import expit, stdtr

from apas._random import Stream, entropy_of
from apas._typing import Bools, Floats
from apas._validation import check_integer, check_matrix, check_numbers, check_probability
from apas.certification.api import output_range
from apas.certification.claims import Verdict
from apas.certification.failing_draws import drawn_blocks
from apas.certification.methods.sampling import models_used
from apas.certification.question import Question
from apas.display.numbers import at_most
from apas.errors import InputError, Unsupported
from apas.models import forward
from apas.models.base import Dense, Described, Model, as_model, offers
from apas.models.feedforward import FeedForward
from apas.models.forward import activate
from apas.shifts.base import Ball, DefaultDelta, Listed, Region, ShiftSet

if TYPE_CHECKING:
    from pandas import DataFrame

ALTERNATIVES, QUANTITIES = ("two-sided", "less", "greater"), ("output", "margin")


@dataclass
class Moments:
    """Count, mean, sum of squares about it, and mean magnitude, of several columns of numbers at once."""

    count: int
    mean: Floats
    squares: Floats
    magnitude: Floats

    @classmethod
    def none(cls, columns: int) -> Self:
        """Before the first number."""
        return cls(0, np.zeros(columns), np.zeros(columns), np.zeros(columns))

    def add(self, values: Floats) -> None:
        """Take in a block of numbers, shape (numbers, columns); merged pairwise, so that no digits cancel."""
        new, mean = len(values), values.mean(axis=0)
        total, step = self.count + new, mean - self.mean
        self.squares += ((values - mean) ** 2).sum(axis=0) + step**2 * (self.count * new / total)
        self.mean = self.mean + step * (new / total)
        self.magnitude += (np.abs(values).mean(axis=0) - self.magnitude) * (new / total)
        self.count = total

    @property
    def variance(self) -> Floats:
        """The unbiased sample variances."""
        return np.asarray(self.squares / (self.count - 1))


def t_test(moments: Moments, alternative: str) -> tuple[Floats, Floats]:
    """Student's t and its p-value, per column, that the expectation is 0: exact for normal numbers."""
    # numbers that are all the same have t = 0 and p = 1 if they are 0, else an infinite t
    error = np.sqrt(moments.variance / moments.count)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(moments.mean == 0, 0.0, moments.mean / error)
    below, above = stdtr(moments.count - 1, t), stdtr(moments.count - 1, -t)
    p = {"less": below, "greater": above, "two-sided": np.minimum(1.0, 2 * np.minimum(below, above))}[alternative]
    return t, np.asarray(p)


def mean_reach(count: int, deviation: Floats, width: Floats, risk: float) -> Floats:
    """How far an expectation can be above (or below) the mean of independent numbers from a range of this width."""
    # Each side is passed with a probability of at most `risk`, for every distribution and every count of at least 2:
    # Maurer and Pontil (2009), "Empirical Bernstein bounds and sample variance penalization", COLT, Theorem 4.
    log = math.log(2 / risk)
    return np.asarray(deviation * math.sqrt(2 * log / count) + width * 7 * log / (3 * (count - 1)))


def spread_reach(count: int, width: Floats, risk: float) -> Floats:
    """How far the standard deviation can be above (or below) that of the sample, likewise (Theorem 10)."""
    return np.asarray(width * math.sqrt(2 * math.log(1 / risk) / (count - 1)))


@dataclass(frozen=True, eq=False, kw_only=True)
class NaturalEvidence:
    """Evidence about a set of shifts, row by row; from `is_naturally_occurring`.

    Arrays have an entry per row.
    """

    measure: str  # the distribution of the shifts, in words
    delta: float
    draws: int
    entropy: int  # seed of the draws
    quantity: str  # what was looked at: "output" or "margin"
    confidence: float  # with which the bounds of a row hold together; of all rows together if `simultaneous`
    simultaneous: bool
    alternative: str  # what the t-test looks for
    original: Floats  # what the model itself gives
    mean: Floats  # what shifted models give on average
    difference: Floats  # mean magnitude of what shifted models give differently
    variance: Floats  # of the sample
    t: Floats
    p_values: Floats  # of the t-test, each row by itself; an approximation unless the outputs are normal
    mean_low: Floats  # bounds on the expectation, for every distribution; infinite where no range of outputs is known
    mean_high: Floats
    variance_low: Floats  # bounds on the variance, likewise
    variance_high: Floats
    variance_limit: float | None  # the largest variance that counts as small, if given
    # upper bounds on the Lipschitz constants of the model itself and of every shifted model (of `ObservedShifts` only
    # those listed), not the constants themselves; None where no bound is known
    lipschitz_base: float | None
    lipschitz_shifted: float | None

    def __len__(self) -> int:
        return len(self.original)

    def __bool__(self) -> bool:
        raise TypeError("draws can only speak against naturally occurring shifts: look at .verdict and .rejected.")

    @property
    def level(self) -> float:
        """Below which p-value the t-test rejects."""
        return (1 - self.confidence) / (len(self) if self.simultaneous else 1)

    @property
    def rejected(self) -> Bools:
        """Rows on which the t-test rejects that the expected output is that of the model itself."""
        return np.asarray(self.p_values < self.level)

    @property
    def moved(self) -> Bools:
        """Rows on which the expected output is not that of the model itself, by bounds for every distribution."""
        return np.asarray((self.original < self.mean_low) | (self.original > self.mean_high))

    @property
    def scattered(self) -> Bools:
        """Rows whose variance exceeds the limit, by bounds for every distribution."""
        limit = np.inf if self.variance_limit is None else self.variance_limit
        return np.asarray(self.variance_low > limit)

    @property
    def verdict(self) -> Verdict:
        """``REFUTED`` if the bounds on a mean or variance speak against it, with `confidence`; else ``UNKNOWN``."""
        return Verdict.REFUTED if (self.moved | self.scattered).any() else Verdict.UNKNOWN

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        rows, together = len(self), " for all rows together" if self.simultaneous and len(self) > 1 else ""
        each = " for each row by itself" if not self.simultaneous and len(self) > 1 else ""
        what = f"{self.draws} shifted models ({self.measure}, delta = {self.delta:g})"
        moved = (
            f"the expected {self.quantity} is shown to differ from that of the model on {self.moved.sum()} of {rows} "
            f"rows with confidence {self.confidence:g}{together}{each}"
        )
        tested = f"the t-test, an approximation, rejects equality on {self.rejected.sum()} at level {self.level:.3g}"
        variance = f"the largest variance seen is {self.variance.max():.3g}"
        if self.variance_limit is not None:
            below = int((self.variance_high <= self.variance_limit).sum())
            exceeds = f"shown to exceed {self.variance_limit:g} on {self.scattered.sum()} rows"
            variance += f", {exceeds} and to stay within it on {below}"
        smooth = "no bound on Lipschitz constants is known"
        if self.lipschitz_shifted is not None:
            own = "" if self.lipschitz_base is None else f", of the model itself at most {at_most(self.lipschitz_base)}"
            smooth = f"Lipschitz constants are at most {at_most(self.lipschitz_shifted)}{own} (upper bounds)"
        return f"{self.verdict}: on {what}, {moved}; {tested}; {variance}; {smooth}."

    def to_frame(self) -> DataFrame:
        """One line per row."""
        import pandas as pd

        return pd.DataFrame({n: getattr(self, n) for n in (*self._columns(), "rejected", "moved", "scattered")})

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; None stands for what is infinite."""
        arrays = {
            name: [v if np.isfinite(v) else None for v in getattr(self, name).tolist()] for name in self._columns()
        }
        return {name: arrays.get(name, getattr(self, name)) for name in self.__dataclass_fields__}

    def _columns(self) -> list[str]:
        return [field.name for field in fields(self) if field.type == "Floats"]

    def __str__(self) -> str:
        return self.sentence()


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
        What the t-test looks for in the expected output.
    quantity : {"output", "margin"}
        ``"output"``: the probability of class 1, or the number itself of networks with ``output="identity"``.
        ``"margin"``: what decides the class, for any model.
    target : label, optional
        Towards which class the margin is; of two, the second unless given.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the result.

    Notes
    -----
    The conditions are those of the paper's Definition 5, the t-test that of its appendix. Beside it stand bounds that
    hold for every distribution, where the outputs are known to lie in a range: empirical Bernstein bounds on the mean
    and those of Maurer and Pontil on the standard deviation. The verdict rests on these alone. Lipschitz constants are
    those of dense networks (`lipschitz_bound`), with respect to the Euclidean distance of inputs in model units.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[2.0]]], [[0.0]])
    >>> found = is_naturally_occurring(net, [[1.0]], delta=1.0, n_samples=20_000, rng=0)
    >>> found.verdict.name, bool(found.mean[0] < found.original[0])
    ('REFUTED', True)
    """
    net = as_model(model)
    for name, value, known in (("alternative", alternative, ALTERNATIVES), ("quantity", quantity, QUANTITIES)):
        if value not in known:
            raise InputError(f"`{name}` must be one of {', '.join(map(repr, known))}, got {value!r}.")
    level = check_probability(confidence, "confidence", "is_naturally_occurring")
    if variance_limit is not None and not (isinstance(variance_limit, int | float) and variance_limit > 0):
        raise InputError(f"`variance_limit` must be a positive number, or None, got {variance_limit!r}.")
    if delta is None and not offers(shifts, DefaultDelta):
        raise InputError("`delta` must be given: it is how far the parameters move.")
    label = _label(net, quantity, target)
    offset, logistic = _reading(net, shifts) if quantity == "output" else (0.0, False)
    about: dict[str, Any] = {"target": label, "delta": delta, "shifts": shifts, "simultaneous": simultaneous}
    question = Question.ask(net, X, method="sampling", **about)
    if not len(question):
        raise InputError("`X` of is_naturally_occurring must hold at least one row, got none.")
    samples = _samples(question.shifts, n_samples)
    entropy = entropy_of(rng)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
        original = _read(question.base_margins, offset, logistic)
        moments = Moments.none(len(question))  # of the difference from the original outputs
        for _, _, directions in drawn_blocks(question, Stream(entropy, "natural"), samples):
            moments.add(_read(question.margins(directions), offset, logistic) - original)
    t, p = t_test(moments, alternative)
    risk = (1 - level) / (len(question) if simultaneous else 1)
    low, high = _range(question, original, offset, logistic)
    # four bounds per row, each with a quarter of its risk
    spread = np.sqrt(moments.variance)
    mean, reach = original + moments.mean, mean_reach(samples, spread, high - low, risk / 4)
    wide = spread_reach(samples, high - low, risk / 4)
    base, shifted = _lipschitz(question, quantity == "margin")
    asked: dict[str, Any] = {"measure": question.measure, "delta": float(question.delta[0]), "draws": samples}
    asked |= {"entropy": entropy, "quantity": quantity, "confidence": level, "simultaneous": bool(simultaneous)}
    asked |= {"variance_limit": None if variance_limit is None else float(variance_limit), "alternative": alternative}
    asked |= {"original": original, "mean": mean, "difference": moments.magnitude, "variance": moments.variance}
    asked |= {"mean_low": np.maximum(low, mean - reach), "mean_high": np.minimum(high, mean + reach)}
    asked |= {"variance_low": np.maximum(0.0, spread - wide) ** 2, "t": t, "p_values": p}
    asked |= {"variance_high": np.minimum((spread + wide) ** 2, ((high - low) / 2) ** 2)}
    return NaturalEvidence(**asked, lipschitz_base=base, lipschitz_shifted=shifted)


def _label(model: Model, quantity: str, target: Any) -> Any:
    if len(model.classes) == 2 and target is None:
        return model.classes[1]
    if quantity == "output":
        if target is not None:
            raise InputError('`target` goes with quantity="margin"; the output is that of class 1: leave it out.')
        raise Unsupported('quantity="output" needs a model with two classes; use quantity="margin" and a `target`.')
    return target


def _reading(model: Model, shifts: ShiftSet | str) -> tuple[float, bool]:
    """What to add to a margin towards class 1, and whether the logistic function then makes it the output."""
    readings = []
    for each in (model, *(shifts.models if offers(shifts, Listed) else ())):
        if offers(each, Dense):
            network = each.as_feedforward()
            readings.append((network.offset, network.output != "identity"))
            continue
        threshold = each.describe().get("threshold") if offers(each, Described) else None
        if not isinstance(threshold, float) or not 0 < threshold < 1:
            raise Unsupported('quantity="output" needs a model whose threshold is known; use quantity="margin".')
        readings.append((math.log(threshold) - math.log1p(-threshold), True))
    if any(reading != readings[0] for reading in readings):
        raise Unsupported('quantity="output" needs models with the same kind of output and threshold; use "margin".')
    return readings[0]


def _read(margins: Floats, offset: float, logistic: bool) -> Floats:
    values = expit(margins + offset) if logistic else margins + offset
    if not np.isfinite(values).all():
        raise InputError("`shifts` must give models whose outputs are numbers, got one that is not finite.")
    return np.asarray(values)


def _samples(shifts: ShiftSet, asked: int | None) -> int:
    if asked is not None:
        check_integer(asked, "n_samples", "is_naturally_occurring", least=2)
    count = models_used(shifts, asked) if offers(shifts, Listed) else asked or 1000
    if count < 2:
        name = type(shifts).__name__
        raise InputError(f"`models` of {name} must number at least 2 here, got 1; a variance needs two.")
    return count


def _range(question: Question, original: Floats, offset: float, logistic: bool) -> tuple[Floats, Floats]:
    """Between which numbers every output lies, as far as that is known."""
    if logistic:
        return np.zeros(len(question)), np.ones(len(question))
    geometry, many = question.geometry, len(question.model.classes) > 2
    if question.network is None or not isinstance(geometry, Region) or (isinstance(geometry, Ball) and many):
        return np.full(len(question), -np.inf), np.full(len(question), np.inf)
    asked: dict[str, Any] = {"target": question.one_target, "shifts": question.shifts, "method": "interval"}
    found = output_range(question.network, question.X, question.delta, **asked)
    low, high = (np.array([getattr(item, end) for item in found]) + offset for end in ("low", "high"))
    # the outputs are computed in float64
    room = 1e-9 * (1 + np.maximum(np.abs(low), np.abs(high)))
    return np.minimum(low, original) - room, np.maximum(high, original) + room


def _lipschitz(question: Question, margin: bool) -> tuple[float | None, float | None]:
    """Bounds on the constants of the model itself, and of every shifted one; None where none is known."""
    model, shifts = question.model, question.shifts
    base = lipschitz_bound(model.as_feedforward(), margin=margin) if offers(model, Dense) else None
    if offers(shifts, Listed):
        dense = [other.as_feedforward() for other in shifts.models if offers(other, Dense)]
        if (question.delta != 1).any() or len(dense) < len(shifts.models):
            return base, None
        return base, max(lipschitz_bound(other, margin=margin) for other in dense)
    if question.network is None or not isinstance(question.geometry, Region):
        return base, None
    # balls and sparse shifts lie in the box of their radii
    return base, lipschitz_bound(question.network, float(question.delta.max()) * question.radii, margin=margin)


NORM_ROUNDING = 1e-9  # room for the rounding of norms and products, which are exact to about 1e-14 of their size


def lipschitz_bound(network: FeedForward, reach: Floats | None = None, *, margin: bool = False) -> float:
    """A bound on how fast the output changes with the input: ``|f(x) - f(y)| <= bound * ||x - y||_2``.

    For all inputs: the lesser of the product of the layers' norms and of the norm of the product of their magnitudes.

    Parameters
    ----------
    reach : ndarray of shape (k,), optional
        How far each parameter may move; the bound then holds for every network of that box.
    margin : bool, default False
        Take the margin (the logit, or the lead over the best other class) in place of the output.

    Examples
    --------
    >>> net = FeedForward([[[3.0], [4.0]]], [[0.0]])
    >>> round(lipschitz_bound(net, margin=True), 6), round(lipschitz_bound(net), 6)
    (5.0, 1.25)
    """
    theta = network.parameters
    moves = np.zeros(len(theta)) if reach is None else np.asarray(reach, dtype=np.float64)
    reaches = theta.split(moves)[::2]
    hidden = list(zip(network.weights[:-1], reaches[:-1], network.activations, strict=True))
    norm = 1.0
    for w, r, name in hidden:
        # by the triangle inequality: what a shift adds has at most the Frobenius norm of how far the entries move
        norm *= forward.steepest(name) * (float(np.linalg.norm(w, 2)) + float(np.linalg.norm(r)))
    bounds = []
    last, far = network.weights[-1].T, reaches[-1].T
    # weights and reaches of every difference of scores that a margin can be
    leads = [(last[i] - last[j], far[i] + far[j]) for i in range(len(last)) for j in range(i)]
    for v, r in leads or [(last[0], far[0])]:
        # backwards through magnitudes: each entry bounds the derivative with respect to one unit over the whole box
        slopes = np.abs(v) + r
        for w, r_w, name in reversed(hidden):
            slopes = forward.steepest(name) * ((np.abs(w) + r_w) @ slopes)
        bounds.append(min(float(np.linalg.norm(slopes)), norm * float(np.linalg.norm(v) + np.linalg.norm(r))))
    steepest = 1.0 if margin or network.output == "identity" else 0.25  # of the logistic function
    return steepest * max(bounds) * (1 + NORM_ROUNDING)


MOST_TERMS = 16  # a sum of so many uniform terms takes 65,536 corners
NODES, MOST_POINTS = 40, 10**7  # of the quadrature in each direction, and in all
#: Activations whose derivatives all exist, so that the quadrature converges faster than any power.
SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "identity")


def expected_relu(centre: Fraction, reaches: Sequence[Fraction]) -> Fraction:
    """The expectation of ``relu(centre + sum(reach * u))`` for independent u, uniform on [-1, 1]; without rounding."""
    # the iterated integral of relu is ``relu(z)**(k + 1) / (k + 1)!``: its alternating sum over the corners of the box,
    # divided by the volume
    moving = [abs(Fraction(reach)) for reach in reaches if reach]
    if len(moving) > MOST_TERMS:
        raise InputError(f"`reaches` must hold at most {MOST_TERMS} numbers other than 0, got {len(moving)}.")
    power = len(moving) + 1
    total = Fraction(0)
    for signs in product((-1, 1), repeat=len(moving)):
        corner = Fraction(centre) + sum((s * r for s, r in zip(signs, moving, strict=True)), Fraction(0))
        total += math.prod(signs) * max(corner, Fraction(0)) ** power
    return total / (math.factorial(power) * math.prod(2 * reach for reach in moving))


def expected_activation(
    name: str, centre: float, reaches: Sequence[float], *, nodes: int = NODES
) -> tuple[float, float]:
    """The same expectation for a smooth activation, by Gauss-Legendre quadrature in every direction."""
    if name not in SMOOTH:
        raise InputError(f"`name` must be one of {', '.join(SMOOTH)}, got {name!r}; for relu use expected_relu.")
    moving = [float(reach) for reach in reaches if reach]
    if nodes < 2 or nodes ** len(moving) > MOST_POINTS:
        raise InputError(f"`nodes` must be at least 2 and give at most {MOST_POINTS} points, got {nodes}.")
    values = []
    for count in (nodes, nodes // 2):
        points, weights = np.polynomial.legendre.leggauss(count)
        z, mass = np.array([float(centre)]), np.array([1.0])
        for reach in moving:
            z = np.add.outer(z, reach * points).ravel()
            mass = np.multiply.outer(mass, 0.5 * weights).ravel()
        values.append(math.fsum((activate(name, z) * mass).tolist()))
    return values[0], abs(values[0] - values[1])


_Rational = tuple[Fraction, ...]


@dataclass(frozen=True)
class PlausibleExample:
    """A network with one hidden layer and no biases, a row, and a delta, in rational numbers.

    A shifted model has every weight uniform within delta, independently.

    Parameters
    ----------
    hidden : tuple of tuples of Fraction
        One row of weights per input, one column per hidden unit.
    output : tuple of Fraction
        One weight per hidden unit.
    point : tuple of Fraction
        The row.

    Examples
    --------
    >>> float(LEMMA_EXAMPLE.value()), float(LEMMA_EXAMPLE.expectation())
    (0.52, 0.519875)
    """

    hidden: tuple[_Rational, ...]
    output: _Rational
    point: _Rational
    delta: Fraction

    def model(self, activation: str = "relu") -> FeedForward:
        """The network; what it computes is compared with 1/2, as in the paper."""
        weights = [np.array(self.hidden, dtype=np.float64), np.array(self.output, dtype=np.float64)[:, None]]
        return FeedForward(weights, [None, None], activation=activation, output="identity", threshold=0.5)

    @property
    def X(self) -> Floats:
        """The row as a matrix."""
        return np.array([self.point], dtype=np.float64)

    def value(self) -> Fraction:
        """The output of the model itself with relu units, without rounding."""
        return _dot(self.output, (max(z, Fraction(0)) for z in self._sums()))

    def expectation(self) -> Fraction:
        """The expected output of a shifted model with relu units, without rounding."""
        return _dot(self.output, (expected_relu(z, self._reaches()) for z in self._sums()))

    def difference(self, activation: str) -> tuple[float, float]:
        """Expected output minus output for a smooth activation, and how much of it changes with half of the nodes."""
        reaches = [float(reach) for reach in self._reaches()]
        found = [expected_activation(activation, float(z), reaches) for z in self._sums()]
        weights = [float(v) for v in self.output]
        mean = sum(v * value for v, (value, _) in zip(weights, found, strict=True))
        change = sum(abs(v) * error for v, (_, error) in zip(weights, found, strict=True))
        own = float(self.model(activation).margin(self.X, 1)[0]) + 0.5
        return mean - own, change

    def _sums(self) -> list[Fraction]:
        return [_dot(self.point, column) for column in zip(*self.hidden, strict=True)]

    def _reaches(self) -> list[Fraction]:
        return [self.delta * abs(x) for x in self.point]


def _dot(left: Iterable[Fraction], right: Iterable[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


#: The 2-2-1 network, counterfactual and delta by which the paper proves the first direction of Lemma 3. Its expected
#: output is 4159/8000 = 0.519875, below the 0.52 of the model itself; the paper says above, and needs "different".
LEMMA_EXAMPLE = PlausibleExample(
    hidden=((Fraction(1), Fraction(0)), (Fraction(0), Fraction(3, 5))),
    output=(Fraction(1), Fraction(-1)),
    point=(Fraction(1), Fraction(4, 5)),
    delta=Fraction(3, 10),
)


@dataclass(frozen=True)
class UnboundedFamily:
    """The other direction: ``relu(1/2 - relu(x - theta))``, with theta at or above all the data.

    Whatever `theta`, the largest number of the data, grows by, the output is 1/2 on all the data, so that shifts of any
    size occur naturally; and no delta contains them all.

    Examples
    --------
    >>> family = UnboundedFamily.of([[0.25], [3.0]])
    >>> family.model(1e9).margin(np.array([[0.25], [3.0]]), 1) + family.model().threshold
    array([0.5, 0.5])
    """

    theta: float

    @classmethod
    def of(cls, X: Any) -> Self:
        """The family that belongs to data with one feature, shape (rows, 1)."""
        rows = check_numbers(check_matrix(X, 1, None))
        if not len(rows):
            raise InputError("`X` of UnboundedFamily must hold at least one row, got none.")
        return cls(float(rows.max()))

    def model(self, shift: float = 0.0) -> FeedForward:
        """The model shifted by so much: the bias of its first unit is ``-(theta + shift)``."""
        if not (np.isfinite(shift) and shift >= 0):
            raise InputError(f"`shift` of UnboundedFamily.model must be a number of at least 0, got {shift!r}.")
        return FeedForward(
            [[[1.0]], [[-1.0]], [[1.0]]], [[-(self.theta + shift)], [0.5], None], output="identity", threshold=0.5
        )
