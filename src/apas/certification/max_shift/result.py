"""The largest certified shift of each row, with what was found on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from apas._fields import Fields
from apas._random import DERIVED, Stream
from apas._typing import Floats
from apas.certification.certificate import NEAR_BOUNDARY, NOT_TODAY, NOT_VALID
from apas.certification.claims import CLAIMS, Claim, Most, is_proof
from apas.certification.results import UnderShifts
from apas.display.numbers import at_least, at_most, exactly, plain
from apas.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


#: What the trace of a search says whose confidence is that of each test, and what readers are told about it.
PER_TEST, ONLY_TESTS = "per test", "per test only, as published"
#: The deltas that an answer holds.
ENDS = ("delta", "upper", "provable", "broken_at")
#: How many draws, how many failures certify at most, how many refute at least; and what a search says that it did.
Plan: TypeAlias = tuple[int, int, int]
Trace: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class MaxShift:
    """How far the model may shift before a row is no longer certified.

    Attributes
    ----------
    delta : float
        The largest delta at which the claim was certified; 0 if none was. `rungs` says at which smaller ones it holds
        as well.
    upper : float
        The same number as `way_refuted_at`.
    provable : float
        The largest delta proved for every shift; 0 if none is known.
    broken_at : float
        The smallest delta with a known failing shift; infinite if none is known.
    exact : bool
        Whether `delta` is the largest one at which the claim holds, up to rounding.
    reached_limit : bool
        Whether the search ended at its limit: nothing more was asked.
    claim : Claim
        `Every`, `Most`, or one of a method's own.
    target : object
    reason : str
    trace : mapping
        What the search did: draws, tests, forward passes, rungs, and the entropy of its streams.
    seconds : float
        Wall time of the call divided by its rows; not part of equality.
    """

    delta: float
    upper: float
    provable: float
    broken_at: float
    exact: bool
    reached_limit: bool
    claim: Claim
    target: Any
    reason: str
    trace: Mapping[str, Any] = field(hash=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def valid_today(self) -> bool:
        """Whether the model itself gives the class, or may by its rounding; if not, no delta is certified."""
        return self.reason != NOT_VALID

    @property
    def stream(self) -> Stream:
        """The stream that its draws are parts of."""
        purpose = f"{DERIVED}max_shift" if "siblings" in self.trace else "max_shift"
        return Stream(Fields(dict(self.trace), "trace").entropy("entropy"), purpose)

    def found_again(self, now: MaxShift) -> MaxShift:
        """The answer of the same search once more, with what such a search does not know: its limit, its seed."""
        known = {key: self.trace[key] for key in ("siblings", "limit") if key in self.trace}
        return replace(now, trace={**now.trace, **known}, seconds=self.seconds)

    @property
    def per_test(self) -> bool:
        """Whether the confidence is that of each test of a search, and not that of the delta they led to."""
        return self.trace.get("claim") == PER_TEST and (self.delta > self.provable or not self.delta)

    @property
    def rungs(self) -> tuple[float, ...] | None:
        """The deltas at which the claim holds together; None if it does at every delta up to `delta`.

        With None, ``delta >= x`` certifies the claim at x. Else it does so for an x that is one of these, or at most
        `provable`: the network may break between two rungs, and recover. There are none of a search that has no
        confidence of its own (`per_test`).
        """
        if is_proof(self.claim) or self.trace.get("exact_roots") or 0 < self.delta <= self.provable:
            return None
        if "rungs" in self.trace or not self.delta or self.per_test:
            return tuple(self.trace.get("rungs", ()))
        if "rungs_ratio" in self.trace:
            ratio, start = self.trace["rungs_ratio"], self.trace["rungs_from"]
            # how many lie below delta, which is a rung itself: with rounding nearly a whole number, or the limit
            below = math.ceil((math.log(self.delta) - math.log(start)) / math.log(ratio) - 1e-6)
            with np.errstate(over="ignore"):
                rungs = np.minimum(start * ratio ** np.arange(below), self.delta)
            return (*rungs.tolist(), self.delta)
        return (self.delta,)

    @property
    def way_refuted_at(self) -> float:
        """From this delta on it is refuted that the claim holds along the whole way; infinite if nothing is refuted.

        `Every`: the smallest delta with a witness against it. `Most`: with the confidence of the claim, fewer shifts
        than it asks for keep the class all the way from 0 to this delta. A network may recover: at a larger delta by
        itself the claim may hold again.
        """
        return self.upper

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        who = f"class {self.target!r}"
        if self.per_test and isinstance(self.claim, Most):
            together = f" for all {self.claim.rows} rows together" if self.claim.rows > 1 else ""
            asked = f"whether at least {self.claim.share} of the shifts keep {who} ({self.claim.measure})"
            ended = f"ended at delta = {self.written()}" if self.delta else "passed no test"
            sure = f"with confidence {self.claim.confidence!r}{together}"
            but = "the delta that they led to has no confidence of its own"
            return f"the published search {ended}: each of its tests asks, {sure}, {asked}; {but}."
        if not self.delta:
            return f"nothing is certified for {who}: {self.reason}."
        if isinstance(self.claim, Most):
            what = f"{self.claim}{self.claim.variants}, keep {who} at delta = {self.written()} ({self.claim.measure})"
        elif is_proof(self.claim):
            what = f"every shift by up to delta = {self.written()} keeps {who} ({self.claim.measure})"
        else:
            sure = f"{self.claim.sureness()}, {self.claim.subject()} {who}"
            what = f"{sure} at delta = {self.written()} ({self.claim.measure})"
        if is_proof(self.claim) or not np.isfinite(self.upper):
            return f"{what}; {self.reason}."
        return f"{what}; {self.reason}; along the whole way up to delta = {at_most(self.upper)} it is refuted."

    def written(self) -> str:
        """The delta in six digits, rounded down, where the claim holds for smaller ones too; else in all its digits."""
        return at_least(self.delta) if self.rungs is None or not self.delta else repr(float(self.delta))

    def to_dict(self) -> dict[str, Any]:
        """All but the time, as JSON values; an infinite number as null."""
        finite = {n: float(value) if np.isfinite(value := getattr(self, n)) else None for n in ENDS}
        flags = {"exact": self.exact, "reached_limit": self.reached_limit, "reason": self.reason}
        about = {"target": plain(self.target), "claim": self.claim.to_dict(), "trace": dict(self.trace)}
        return {**finite, **flags, **about}

    def unsaved(self) -> str:
        """What of it no reader of a file would know, in words; empty if it can be saved."""
        return "" if CLAIMS.know(self.claim) else f"a claim of type {type(self.claim).__name__}"

    @classmethod
    def from_dict(cls, about: Fields) -> MaxShift:
        """The largest shift that an entry of a file holds; null stands for infinity."""
        about.only(*ENDS, "exact", "reached_limit", "reason", "target", "claim", "trace")
        sizes: dict[str, Any] = {name: math.inf if about.is_null(name) else about.number(name) for name in ENDS}
        if min(sizes.values()) < 0 or not math.isfinite(sizes["delta"]):
            raise InputError(f"{about.where} must hold a finite delta, and numbers of at least 0.")
        trace = about.inner("trace")
        for key, value in trace.content.items():
            if key in ("rungs", "rows", "added"):
                trace.numbers(key)
            elif not isinstance(value, str | bool | int | float):
                raise trace.wrong(key, "a number, a text or a truth value")
        if "rungs_ratio" in trace.content:  # `rungs` counts from these: a ratio of almost 1 would not end
            for key, least in (("rungs_ratio", 1.001), ("rungs_from", 0), ("limit", 0)):
                trace.number(key, above=least)
        flags: dict[str, Any] = {name: about.flag(name) for name in ("exact", "reached_limit")}
        claim, target = CLAIMS.read(about.inner("claim")), about.label("target")
        return cls(**sizes, **flags, claim=claim, target=target, reason=about.text("reason"), trace=trace.content)

    __str__ = sentence


def without_search(target: Any, claim: Claim, *, near: bool) -> MaxShift:
    """What is said of a row that the model itself does not give its class, or, `near` the boundary, maybe not."""
    end, reason = (math.inf, NEAR_BOUNDARY) if near else (0.0, NOT_VALID)
    return MaxShift(0.0, end, 0.0, end, not near, False, claim, target, reason, {})


def _claim_words(item: MaxShift, count: int) -> str:
    """What the delta of an item, one of so many, is worth."""
    said = item.claim.among(count)
    return f"{said}{' and' if said != str(item.claim) else ''} {ONLY_TESTS}" if item.per_test else said


class MaxShifts(UnderShifts[MaxShift]):
    """One answer per row, in the order of the rows, with `points`, `model_digest` and `shifts` as in `Certificates`."""

    FORMAT = "apas-max-shifts"
    COLUMNS = (*ENDS, "exact", "reached_limit", "target", "claim", "reason", "valid_today")
    UNSHOWN = ("claim",)

    @property
    def deltas(self) -> Floats:
        """The largest certified delta of each row; which smaller ones are certified too, `MaxShift.rungs` says."""
        return np.array([item.delta for item in self], dtype=np.float64)

    def summary(self) -> str:
        """The spread of the largest certified deltas, in one sentence."""
        if not len(self):
            return "No rows, no shifts."
        # between rungs nothing is certified, so a delta that is one must not be rounded
        write = at_least if all(item.rungs is None for item in self if item.delta) else exactly
        low, middle, high = (write(float(delta)) for delta in np.percentile(self.deltas, [0, 50, 100]))
        asked = [item for item in self if item.valid_today] or list(self)
        claims = "; or ".join(dict.fromkeys(_claim_words(item, len(self)) for item in asked))
        measures = "; or ".join(dict.fromkeys(item.claim.measure for item in self))
        not_today = sum(not item.valid_today for item in self)
        but = f", {not_today} {NOT_TODAY}" if not_today else ""
        return f"{self._counted()}: largest delta {low} to {high}, median {middle}{but} ({claims}; {measures})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the certified, the provable and the breaking delta of each row, sorted by the certified one."""
        return self._drawn("radius_plot", ax)

    def continued(self, *, n_samples: int, model: Any = None, n_jobs: int = 1) -> MaxShifts:
        """Look along more rays, up to `n_samples`: the answers of `max_shift` with that number and the same seed."""
        from apas.certification.max_shift.api import continue_shifts  # which makes such results

        return self._continued(continue_shifts, n_samples, model, n_jobs)

    def _shown_frame(self) -> DataFrame:
        """Numbers in few digits, rounded to the side that promises less."""
        shown = {"delta": [item.written() for item in self], "provable": [at_least(item.provable) for item in self]}
        limits = {name: [at_most(getattr(item, name)) for item in self] for name in ("upper", "broken_at")}
        return super()._shown_frame().assign(**shown, **limits).rename(columns={"upper": "way_refuted_at"})

    def _line(self, item: MaxShift) -> dict[str, Any]:
        return {**super()._line(item), "claim": _claim_words(item, 1)}
