"""`robust_fraction`: the share of shifts on which each row keeps its class, as a function of their size.

With `Sampling` each end of each band is a one-sided Clopper-Pearson bound that is wrong with probability at most
``(1 - confidence) / (2 * len(deltas))``: by the union bound all hold together. With `Enumeration` they are computed.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._fields import EqualByContent, as_json
from apas._random import Stream
from apas._typing import Floats
from apas._validation import read_only
from apas.certification.certificate import NOT_TODAY, Evidence
from apas.certification.question import BoundsShare, Draws, Question, default_delta
from apas.certification.results import UnderShifts
from apas.display.numbers import at_least, at_most, exactly, plain
from apas.errors import InputError, Unsupported
from apas.models.base import offers
from apas.shifts.base import Refitted, ShiftSet

if TYPE_CHECKING:
    from pandas import DataFrame


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

    def __str__(self) -> str:
        return self.sentence()


def _share(lower: float, upper: float, delta: float) -> str:
    ends = f"{at_least(lower)} to {at_most(upper)}" if lower < upper else exactly(lower)
    return f"{ends} at delta = {float(delta)!r}"


class FractionCurves(UnderShifts[FractionCurve]):
    """One curve per row, in the order of the rows; what else it has is as in `Certificates`.

    `entropy` is the seed of the draws, None if nothing was drawn; `to_dict` gives it as hexadecimal text. `plot` draws
    the share of valid shifts against delta, with its band, for each row.
    """

    PLOT, NOTHING = "fraction_plot", "No rows, no curves."
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

    def _summary(self) -> str:
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
    sizes = _check_deltas(default_delta(shifts, deltas))
    question = Question.ask(model, X, target=target, delta=sizes.max(), shifts=shifts, method=method, n_jobs=n_jobs)
    stream = Stream.seeded(rng, "fraction")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
        items = question.method.shares(question, sizes, stream) if len(question) else []
    drawn = offers(question.method, Draws) or any(curve.draws for curve in items)
    return FractionCurves(items, **question.context, entropy=stream.entropy if drawn else None)


def _check_deltas(deltas: Any) -> Floats:
    try:
        given = np.atleast_1d(np.asarray(deltas))
        values = given.astype(np.float64) if given.dtype.kind in "iuf" else np.empty(0)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not len(values) or not ((values > 0) & np.isfinite(values)).all():
        got = reprlib.repr(getattr(deltas, "tolist", lambda: deltas)())
        told = f"must be one or more positive finite numbers, got {got}"
        raise InputError(f"`deltas` {told}; they say how far the parameters move.")
    return values
