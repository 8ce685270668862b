"""The verbs that ask about shifts of given sizes: `certify`, `robust_fraction` and `output_range`.

Shares: with `Sampling` each end of each band is a one-sided Clopper-Pearson bound that is wrong with probability at
most ``(1 - confidence) / (2 * len(deltas))``: by the union bound all hold together; `Enumeration` computes them.
Ranges: of n shifts drawn the least margin is exceeded by at least a share ``(1 - confidence) ** (1 / n)`` of all, with
that confidence (Lemma 4 of the paper); what is proved is a set that contains the margins of every shift.
"""

from __future__ import annotations

import reprlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from apas._fields import EqualByContent, as_json
from apas._random import Stream
from apas._typing import Floats
from apas._validation import read_only
from apas.certification.certificate import NOT_TODAY, Certificate, Evidence
from apas.certification.claims import Claim, Most, is_proof
from apas.certification.derived_seed import DerivedSeed, decide_derived
from apas.certification.question import BoundsShare, Draws, EnclosesOutput, Method, Question, decide, default_delta
from apas.certification.region import Region
from apas.certification.region_claims import asked_regions, certify_sizes, check_regions
from apas.certification.results import Certificates, UnderShifts
from apas.display.numbers import at_least, at_most, exactly, plain
from apas.errors import InputError, Unsupported
from apas.models.base import Capability, offers
from apas.shifts.base import Listed, Refitted, ShiftSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


def certify(
    model: Any,
    X: Any,
    delta: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    simultaneous: bool = False,
    region: Any = None,
    n_jobs: int = 1,
    rng: int | np.random.Generator | DerivedSeed | str | None = None,
) -> Certificates:
    """Certify that rows keep their class while the model's parameters shift by up to `delta`.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The counterfactual explanations, in the units the model was trained with. Data frames are matched by name.
    delta : float or array_like of shape (rows,)
        How far the parameters may move; what that means is up to `shifts`. For `ObservedShifts` 1 or None.
    target : label, array_like of labels or "predicted"
        The class each row must keep; ``"predicted"`` asks for the one that the model gives it. Required: with a
        default, a rejected applicant would be certified as robustly rejected.
    shifts : ShiftSet or str, default "linf"
        The set of shifted models: `LinfShifts` ("linf"), `LpShifts` ("l1", "l2"), `GaussianShifts` ("gaussian"), or
        others.
    method : Method or str, default "sampling"
        How to decide. ``"sampling"`` speaks of most shifts; of every shift speak ``"interval"``, ``"linear"``,
        ``"attack"``, ``"exact"`` and ``"cascade"``, which takes them in turn; ``"enumeration"`` of either.
    simultaneous : bool, default False
        Let the confidence hold for all rows together rather than for each by itself.
    region : Region, mapping or "beyond", optional
        Certify not the row alone but all rows of a region together: see `Region`. ``"beyond"`` is for what `generate`
        returned, passed as `X`: the numbers that were changed, further in the direction of the change.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The certificates do not depend on it.
    rng : None, int, numpy.random.Generator, "derived" or DerivedSeed
        Seed of the draws; recorded in the certificates. None takes 128 bits from the operating system. A `DerivedSeed`
        ("derived") follows from model, rows and claim, so that nobody can choose it; the risk is then 2^-64.

    Returns
    -------
    Certificates
        One per row. A row that the model itself does not put into its target class is refuted without drawing; one
        whose class is owed to the rounding of a model that computes in float32 is ``UNKNOWN``.

    Notes
    -----
    All rows see the same shifted models; each certificate by itself has the stated confidence. What voids the
    guarantee: choosing the rows or `delta` by looking at the same draws (the same `rng`), or repeating the call until
    it certifies.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> [c.verdict.name for c in apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)]
    ['CERTIFIED', 'REFUTED']
    """
    began, wanted = time.perf_counter(), None if region is None else Region.wanted(region)
    inputs = space = None
    items: Sequence[Certificate]
    if wanted is not None and offers(X, FromInputs):
        X, inputs, space = X.points, X.inputs, X.space
    question = Question.ask(
        model, X, target=target, delta=delta, shifts=shifts, method=method, simultaneous=simultaneous, n_jobs=n_jobs
    )
    derived = DerivedSeed.wanted(rng)
    if wanted is not None:
        if derived is not None:
            told = "does not go with `region`, which its seed does not bind"
            raise InputError(f'`rng="derived"` {told}; leave `rng` out.')
        question = replace(question, regions=asked_regions(question, wanted, inputs, space))
        check_regions(question)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
        if wanted is not None and wanted.sizes > 1:
            items = certify_sizes(question, question.method, Stream.seeded(rng, "certify"), wanted.sizes)
        elif derived is None:
            items = decide(question, question.method, Stream.seeded(rng, "certify"))
        else:
            items = decide_derived(derived.ask(question), derived)
    seconds = (time.perf_counter() - began) / max(1, len(items))
    # made a moment ago and seen by nobody yet; a copy of each would cost more than deciding it
    for item in getattr(items, "distinct", items):
        object.__setattr__(item, "seconds", seconds)
    return Certificates(items, **question.context, inputs=inputs)


class FromInputs(Capability, Protocol):
    """Rows that were made from others in a space, as `generate` returns them."""

    points: Any
    inputs: Any
    space: Any


#: What a curve says at each delta.
NUMBERS = ("deltas", "estimate", "lower", "upper")
#: A sentence names at most this many deltas.
NAMED = 6


@dataclass(frozen=True, eq=False)
class FractionCurve(EqualByContent):
    """The share of shifts on which one row keeps its class, between two bounds at each delta.

    Attributes
    ----------
    deltas, estimate, lower, upper : ndarray of shape (deltas,)
        `estimate` is the share of the draws that keep the class, or the middle of the bounds if they were computed.
    draws : int
        How many shifts were drawn; 0 if the bounds were computed.
    confidence : float
        With this confidence the share lies between `lower` and `upper` at all the deltas together; 1 if computed.
    measure : str
        The distribution of the shifts, in words.
    valid : bool
        Whether the model itself gives the class, or could but for the rounding of float32. The share is defined either
        way.
    evidence : tuple of Evidence
        Of `Enumeration` with a `precision` the interval networks and their volumes at each delta, else nothing.
    """

    deltas: Floats
    estimate: Floats
    lower: Floats
    upper: Floats
    draws: int
    confidence: float
    target: Any
    measure: str
    valid: bool
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        for name in NUMBERS:
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @classmethod
    def computed(cls, deltas: Floats, lower: Floats, upper: Floats, *about: Any) -> FractionCurve:
        """A curve between certain bounds; `about` are target, measure, whether it is valid today, and evidence."""
        return cls(deltas, 0.5 * (lower + upper), lower, upper, 0, 1.0, *about)

    def sentence(self) -> str:
        """Say it in words that are true as they stand; of many deltas the first, the middle one and the last."""
        count = len(self.deltas)
        shown = range(count) if count <= NAMED else (0, count // 2, count - 1)
        shares = ", ".join(_share(self.lower[i], self.upper[i], self.deltas[i]) for i in shown)
        together = f" for all {count} deltas together" if count > 1 else ""
        sure = f"with confidence {self.confidence!r}{together}{f', by {self.draws} draws' if self.draws else ''}"
        odds = sure if self.confidence < 1 else "for certain"
        more = "" if count <= NAMED else f" (of {count} deltas)"
        but = "" if self.valid else "; the model itself does not give that class"
        return f"{odds}: the share of shifts that keep class {self.target!r} is {shares}{more} ({self.measure}){but}."

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON values."""
        told = {name: as_json(value) for name, value in vars(self).items() if name != "evidence" or value}
        return {**told, "target": plain(self.target)}

    __hash__ = None  # type: ignore[assignment]

    __str__ = sentence


def _share(lower: float, upper: float, delta: float) -> str:
    ends = f"{at_least(lower)} to {at_most(upper)}" if lower < upper else exactly(lower)
    return f"{ends} at delta = {float(delta)!r}"


class FractionCurves(UnderShifts[FractionCurve]):
    """One curve per row, in the order of the rows; what else it has is as in `Certificates`.

    `entropy` is the seed of the draws, None if nothing was drawn; `to_dict` gives it as hexadecimal text.
    """

    FORMAT = "apas-fraction-curves"
    COLUMNS = ("delta", "estimate", "lower", "upper", "draws", "confidence", "target", "valid_today")

    def __init__(self, items: Sequence[FractionCurve], *, entropy: int | None, **known: Any) -> None:
        super().__init__(items, **known)
        self.entropy = entropy

    def to_frame(self) -> DataFrame:
        """One line per row and delta; the rows keep the index of the data frame that was asked about."""
        import pandas as pd

        places, lines = [i for i, curve in enumerate(self) for _ in curve.deltas], list[tuple[Any, ...]]()
        for curve in self:
            numbers = zip(*(getattr(curve, name).tolist() for name in NUMBERS), strict=True)
            lines += [(*line, curve.draws, curve.confidence, curve.target, curve.valid) for line in numbers]
        index = pd.DataFrame(index=self._labels()).index[places]
        return pd.DataFrame(lines, index=index, columns=list(self.COLUMNS))

    def summary(self) -> str:
        """Between what the shares lie at the smallest and at the largest delta, in one sentence."""
        if not len(self):
            return "No rows, no curves."
        first, ends = self[0], []
        for j in dict.fromkeys((int(first.deltas.argmin()), int(first.deltas.argmax()))):
            low, high = min(c.lower[j] for c in self), max(c.upper[j] for c in self)
            ends.append(_share(low, high, first.deltas[j]))
        together = " at all deltas together" if len(first.deltas) > 1 else ""
        alone = " for each row by itself" if len(self) > 1 else ""
        odds = f"with confidence {first.confidence!r}{alone}{together}" if first.confidence < 1 else "for certain"
        not_today = sum(not curve.valid for curve in self)
        but = f", {not_today} {NOT_TODAY}" if not_today else ""
        shares = f"share of shifts that keep the class {', '.join(ends)}"
        return f"{self._counted()}: {shares}{but} ({odds}; {first.measure})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of valid shifts against delta, with its band, for each row."""
        return self._drawn("fraction_plot", ax)

    def _shown_frame(self) -> DataFrame:
        write = {"lower": at_least, "upper": at_most, "confidence": exactly}
        frame = super()._shown_frame()
        return frame.assign(**{name: [how(float(v)) for v in frame[name]] for name, how in write.items()})

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "entropy": None if self.entropy is None else hex(self.entropy)}


def robust_fraction(
    model: Any,
    X: Any,
    deltas: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: BoundsShare | str = "sampling",
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> FractionCurves:
    """Bound the share of shifted models on which each row keeps its class, at several sizes of the shifts.

    Parameters
    ----------
    model, X, target, shifts, n_jobs
        As in `certify`.
    deltas : float or array_like
        Sizes of the shifts, the same for all rows. For `ObservedShifts` 1 or None.
    method : Sampling, Enumeration, "sampling" or "enumeration"
        `Sampling` estimates from its number of draws, with its confidence; its coverage plays no part. `Enumeration`
        computes bounds to its gap or limit of boxes, for dense networks with few moving parameters.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the result.

    Notes
    -----
    The band of a row holds at all deltas together with the stated confidence, each row by itself, whether the model
    itself gives the class (`valid`) or not. Margins within rounding of 0 count as failing in the lower end and in the
    estimate, and as valid in the upper end. What voids the confidence: choosing the deltas or rows by looking at the
    same draws.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> curve = robust_fraction(net, [[2.0, 0.5]], [0.1, 1.0], target=1, rng=0)[0]
    >>> [round(share, 2) for share in curve.estimate.tolist()]
    [1.0, 0.85]
    """
    known = method in ("sampling", "enumeration") if isinstance(method, str) else offers(method, BoundsShare)
    if isinstance(method, type) or not known:
        wanted = '"sampling", "enumeration", a Sampling(...) or an Enumeration(...)'
        raise InputError(f"`method` of robust_fraction must be {wanted}, got {method!r}.")
    if offers(shifts, Refitted):
        what = f"robust_fraction speaks of a share of the shifts, but {type(shifts).__name__} has no distribution"
        raise Unsupported(f'{what}: {shifts.no_draws}; use certify or max_shift with method="refit".')
    given = default_delta(shifts, deltas)
    try:
        sizes = np.atleast_1d(np.asarray(given))
        sizes = sizes.astype(np.float64) if sizes.dtype.kind in "iuf" else np.empty(0)
    except (TypeError, ValueError):
        sizes = np.empty(0)
    if sizes.ndim != 1 or not len(sizes) or not ((sizes > 0) & np.isfinite(sizes)).all():
        got = reprlib.repr(getattr(given, "tolist", lambda: given)())
        told = f"must be one or more positive finite numbers, got {got}"
        raise InputError(f"`deltas` {told}; they say how far the parameters move.")
    question = Question.ask(model, X, target=target, delta=sizes.max(), shifts=shifts, method=method, n_jobs=n_jobs)
    stream = Stream.seeded(rng, "fraction")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
        items = question.method.shares(question, sizes, stream) if len(question) else []
    drawn = offers(question.method, Draws) or any(curve.draws for curve in items)
    # nobody continues them: they need no model, which may be large, or of a class that cannot be pickled
    context = question.context | {"model": None}
    return FractionCurves(items, **context, entropy=stream.entropy if drawn else None)


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
        missing = "the bound is no finite number" if is_proof(self.low_claim) else "a drawn model gives an infinite one"
        if self.undefined:
            missing = f"{self.undefined} of the drawn models give{'s' if self.undefined == 1 else ''} no number"
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

    def to_dict(self) -> dict[str, Any]:
        """The range as JSON values; what is infinite or no number as null."""
        told = as_json({**vars(self), "target": plain(self.target), "side": self.side})
        told |= {name: told[name] if isfinite(told[name]) else None for name in ("low", "high", "margin")}
        undefined = told.pop("undefined")
        return {**told, "undefined": undefined}

    __str__ = sentence


class OutputRanges(UnderShifts[OutputRange]):
    """One range per row, in the order of the rows, with `points`, `model_digest` and `shifts` as in `Certificates`."""

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
        odds = f" for each end{' of each row' if len(self) > 1 else ''} by itself" if claim.risk else ""
        return f"{self._counted()}: {counts} the threshold{but} ({_end_words(claim)}{odds})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ranges against the decision threshold, as in Figure 2 of the paper."""
        return self._drawn("range_plot", ax)

    def _shown_frame(self) -> DataFrame:
        frame = super()._shown_frame()
        return frame.assign(low=[at_least(item.low) for item in self], high=[at_most(item.high) for item in self])

    def _line(self, item: OutputRange) -> dict[str, Any]:
        return {**{name: getattr(item, name) for name in self.COLUMNS[:-1]}, "claim": _end_words(item.low_claim)}


def _end_words(claim: Claim) -> str:
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
    return OutputRanges(items, **question.context | {"model": None})  # as for `robust_fraction`
