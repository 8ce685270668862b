"""The anytime test of a share: counts that may be looked at after every draw, and boundaries that are exact integers.

With q = 1 - coverage, of n draws k failed. Likelihood ratios of "the odds of failing are g times those of q" against q,
in a fixed mixture, are non-negative supermartingales that start at 1, if what they speak against is true:

    E_n(k) = sum_i w_i g_i**k / (1 - (1 - g_i) q)**n,  g_i < 1, if at least a share q fails;
    F_n(k) = sum_i v_i h_i**k / (1 + (h_i - 1) q)**n,  h_i > 1, if at most a share q fails.

By Ville's inequality such a process ever reaches 1 / risk with probability at most `risk`. So the claim is certified as
soon as E does and refuted as soon as F does, and it is legal to stop, to look at any time, and to go on. E rises with n
and falls with k, and F the other way round: the test is two rows of integers, N_k and L_r, whatever the draws are.

The mixture is part of the test and has a version, `ANYTIME`: who could choose it could choose it after the draws.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import SupportsIndex

import numpy as np

from apas.stats.binomial import Number, as_confidence, as_count, as_counts, as_probability, precision

ANYTIME = "anytime/1"  # name of the test with the mixtures below, as evidence has it
#: Odds ratios of the mixtures that certify and refute, with their weights.
_CERTIFY = tuple((Fraction(g, 8), Fraction(w, 20)) for g, w in ((0, 6), (1, 3), (2, 3), (4, 3), (6, 3), (7, 2)))
_REFUTE = tuple((Fraction(h, 4), Fraction(v, 10)) for h, v in ((5, 2), (6, 2), (8, 2), (16, 2), (64, 1), (1024, 1)))
MOST_DOUBTFUL = 1000  # a row is given up once so many draws are in doubt, and would refute if all of them were sure
_DIGITS = 60


@dataclass(frozen=True)
class Mixture:
    """Weights and odds ratios of likelihood ratios against a share q; `crosses` tells whether they reach 1 / risk."""

    prior: tuple[tuple[Fraction, Fraction], ...]
    q: Fraction
    risk: Fraction
    _known: dict[int, tuple[float, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _logs(self) -> tuple[tuple[float, float, float], ...]:
        """Per ratio: log of its weight, of itself (-inf of 0), and by how much a draw that does not fail raises it."""
        logs = []
        for g, w in self.prior:
            x = (g - 1) * self.q  # its log(1 + x) is right to a few units of the last digit
            rate = math.log1p(float(x)) if x > Fraction(-1, 2) else math.log(1 + x)
            logs.append((math.log(w), math.log(g) if g else -math.inf, -rate))
        return tuple(logs)

    @cached_property
    def _level(self) -> float:
        # by a power of two near it, as a risk may be too small for a float, and logarithms of long integers too large
        bits = self.risk.denominator.bit_length() - self.risk.numerator.bit_length()
        return bits * math.log(2) - math.log(self.risk * 2**bits)

    def crosses(self, n: int, k: int) -> bool:
        """Whether the mixture is at least 1 / risk with k failures among n draws, decided without rounding."""
        # in n it only rises, or only falls: per k it is known up to which n the answer is one, and from which the other
        low, high = self._known.get(k, (-math.inf, math.inf))
        rises = self._logs[0][2] > 0
        if n <= low or n >= high:
            return (n >= high) == rises
        found = self._decided(n, k)
        self._known[k] = (low, n) if found == rises else (n, high)
        return found

    def _decided(self, n: int, k: int) -> bool:
        gap, _, error = self._gap(n, k)
        if abs(gap) > error:
            return gap > 0
        with localcontext(precision(_DIGITS)):
            total = Decimal(0)
            for g, w in self.prior:
                if g or not k:
                    base, ratio = 1 + (g - 1) * self.q, Decimal(g.numerator) / g.denominator
                    power = (Decimal(base.denominator) / base.numerator) ** n
                    total += Decimal(w.numerator) / w.denominator * (ratio**k if k else 1) * power
            beyond = total * self.risk.numerator / self.risk.denominator - 1
            # each factor of a term is rounded once, and powers multiply the error of their base
            if abs(beyond) > (abs(beyond) + 1) * 8 * (n + k + 9) * Decimal(10) ** (1 - _DIGITS):
                return beyond > 0
        terms = (w * g**k / (1 + (g - 1) * self.q) ** n for g, w in self.prior)  # a tie, which fractions settle
        return sum(terms, Fraction(0)) * self.risk >= 1

    def _gap(self, n: float, k: int) -> tuple[float, float, float]:
        """Logarithm of the mixture less that of 1 / risk, its slope in n, and a bound on the error of the former."""
        terms = [(w + (k * g if k else 0.0) + n * rate, rate) for w, g, rate in self._logs if k == 0 or g > -math.inf]
        top = max(term for term, _ in terms)
        parts = [math.exp(term - top) for term, _ in terms]
        total = sum(parts)
        slope = sum(part * rate for part, (_, rate) in zip(parts, terms, strict=True)) / total
        # all logarithms are right to some 2e-16 of themselves, and no term of the sum is larger than `size`; what is
        # not decided beyond ten times that is decided with 60 digits
        size = max(abs(n * rate) + abs(k * g if k else 0.0) for _, g, rate in self._logs if k == 0 or g > -math.inf)
        return top + math.log(total) - self._level, slope, 4e-15 * (size + abs(self._level) + 10)

    def root(self, k: int, start: float) -> float:
        """About the n at which the mixture is 1 / risk: it is log-convex in n, so that Newton's method goes one way."""
        n = start
        for _ in range(200):
            gap, slope, _ = self._gap(n, k)
            step = -gap / slope
            n = max(n + step, float(k))
            if abs(step) < 0.25:
                break
        return n


@dataclass(frozen=True)
class Boundary:
    """The anytime test of one coverage at one risk: which counts certify, and which refute."""

    certify: Mixture
    refute: Mixture
    _needed: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    def needed(self, failures: int) -> int:
        """N_k: the least number of draws at which so many failures certify."""
        if failures not in self._needed:
            n = math.ceil(self.certify.root(failures, self._needed.get(failures - 1, failures + 1)))
            while not self.certify.crosses(n, failures):
                n += 1
            while n > failures + 1 and self.certify.crosses(n - 1, failures):
                n -= 1
            self._needed[failures] = n
        return self._needed[failures]

    def last(self, failures: int) -> int:
        """L_r: the last draw at which failure number r refutes, 0 if it never does."""
        if not self.refute.crosses(failures, failures):
            return 0
        n = max(failures, math.floor(self.refute.root(failures, failures)))
        while not self.refute.crosses(n, failures):
            n -= 1
        while self.refute.crosses(n + 1, failures):
            n += 1
        return n

    def most(self, draws: int) -> int:
        """The largest number of failures that certifies after so many draws, -1 if none does."""
        return bisect_left(range(draws), True, key=lambda k: not self.certify.crosses(draws, k)) - 1

    def least(self, draws: int) -> int:
        """The smallest number of failures that refutes after so many draws; one more than the draws if none does."""
        return bisect_left(range(draws + 1), True, key=lambda k: self.refute.crosses(draws, k))

    def may_decide(self, first: int, end: int, before: tuple[int, int], more: tuple[int, int]) -> bool:
        """Whether a draw up to `end` may decide, if `more` of them fail and are sure, none before number `first`."""
        (count, clear), (failures, sure) = before, more
        if count + failures - clear - sure >= MOST_DOUBTFUL:
            return True
        # E rises with the draws and falls with the failures, F the other way round: each is largest at these ends
        return self.refute.crosses(first + 1, clear + sure) or self.certify.crosses(end, count)

    def gives_up(self, draws: int, count: int, clear: int) -> bool:
        """Whether so many failures are in doubt that a row is left open for good: F falls with the draws, so at one."""
        return count - clear >= MOST_DOUBTFUL and self.refute.crosses(draws, count)

    def decide(
        self, failing: Iterable[tuple[int, bool]], cap: int, before: tuple[int, int] = (0, 0)
    ) -> tuple[str, int, int]:
        """Verdict, the draw that decides, and how many of the failing draws lie up to it.

        `failing` are numbers of failing draws, from 0 and in order, each with whether it is beyond doubt; none from
        `cap` on is looked at. `before` counts those of earlier draws of the same row, which decided nothing.
        """
        (count, clear), taken = before, 0
        # N_k rises with the failures, and so does with the draws the count that refutes: most failures are beyond both
        until, many = 0, 0
        for at, sure in failing:
            if at >= cap:
                break
            if at >= until:
                until = self.needed(count)
                if at >= until:
                    break
            count, clear, taken = count + 1, clear + bool(sure), taken + 1
            if sure and clear >= many:
                if self.refute.crosses(at + 1, clear):
                    return "REFUTED", at + 1, taken
                many = clear + (1 if self.refute.crosses(at + 1, clear + 8) else 9)
            if self.gives_up(at + 1, count, clear):
                return "UNKNOWN", at + 1, taken
        certified = self.certify.crosses(cap, count)  # E rises with the draws: then it did so at N_k of them
        return ("CERTIFIED", self.needed(count), taken) if certified else ("UNKNOWN", cap, taken)


@lru_cache(maxsize=4096)
def boundary(coverage: Number, confidence: Number) -> Boundary:
    """Return the anytime test of a coverage at a confidence."""
    q = 1 - as_probability("coverage", coverage, "give the share that must be valid, such as 0.995")
    risk = 1 - as_confidence(confidence)
    return Boundary(Mixture(_CERTIFY, q, risk), Mixture(_REFUTE, q, risk))


def anytime_sample_size(failures: SupportsIndex = 0, *, coverage: Number, confidence: Number) -> int:
    """Return after how many draws so few failures certify in the anytime test: N_k, the least n for k failures.

    Parameters
    ----------
    failures : int, default 0
        How many of the draws failed.
    coverage, confidence : float, Fraction or Decimal
        Share of the set that must be valid, and confidence that it is, strictly between 0 and 1.

    Notes
    -----
    The number of draws need not be fixed: whoever looks after every draw, stops when it suits and goes on later makes
    a false claim with probability at most ``1 - confidence`` all the same. Void if draws are left out, or another row
    of draws is begun because the first one disappointed.

    References
    ----------
    Ville, J. (1939). Étude critique de la notion de collectif. Robbins, H. (1970). Statistical methods related to the
    law of the iterated logarithm. Annals of Mathematical Statistics 41, 1397-1409.

    Examples
    --------
    >>> anytime_sample_size(0, coverage=0.995, confidence=0.999)  # 1379 if their number is fixed in advance
    1572
    >>> [anytime_sample_size(k, coverage=0.95, confidence=0.95) for k in range(3)]
    [73, 139, 179]
    """
    k = as_count("failures", failures, 0, "give how many of the draws failed")
    return boundary(coverage, confidence).needed(k)


def anytime_refuting_draw(failures: SupportsIndex, *, coverage: Number, confidence: Number) -> int:
    """Return the last draw at which failure number `failures`, from 1, refutes in the anytime test; 0 if it never does.

    If that failure comes by this draw, L_r, less than `coverage` is valid, with that confidence.

    Examples
    --------
    >>> [anytime_refuting_draw(r, coverage=0.95, confidence=0.95) for r in (1, 2, 3, 4)]
    [0, 2, 6, 12]
    """
    r = as_count("failures", failures, 1, "give the number of the failure, counted from 1")
    return boundary(coverage, confidence).last(r)


def anytime_coverage_lower(draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number) -> float:
    """Return a lower confidence bound on the share of valid draws that holds at every number of draws.

    With probability `confidence` it is at most the true share after every one of the draws, so that also a run that
    stopped because of what it saw has it. It is 0 where nothing is known. ``anytime_coverage_lower(n, k) >= R`` goes
    with ``n >= anytime_sample_size(k, coverage=R)``, at the same confidence.

    Parameters
    ----------
    draws, failures : int
        Draws that were counted so far, and how many of them failed.
    confidence : float, Fraction or Decimal
        Of all the bounds of a run together, strictly between 0 and 1.

    Examples
    --------
    >>> round(anytime_coverage_lower(1572, 0, confidence=0.999), 6)
    0.995003
    """
    share = _limiting_share(_CERTIFY, draws, failures, confidence)
    return float(np.nextafter(1.0 - share, 0.0)) if share < 1 else 0.0  # below, however the difference was rounded


def anytime_coverage_upper(draws: SupportsIndex, failures: SupportsIndex, *, confidence: Number) -> float:
    """Return an upper confidence bound on the share of valid draws, as `anytime_coverage_lower` does a lower one.

    It is 1 where nothing is known.

    Examples
    --------
    >>> round(anytime_coverage_upper(12, 4, confidence=0.95), 4)
    0.9496
    """
    share = _limiting_share(_REFUTE, draws, failures, confidence)
    return float(np.nextafter(1.0 - share, 1.0)) if share > 0 else 1.0


def _limiting_share(
    prior: tuple[tuple[Fraction, Fraction], ...], draws: SupportsIndex, failures: SupportsIndex, confidence: Number
) -> float:
    """Return the failing share at which a mixture reaches 1 / risk, rounded to where the claim is weaker."""
    # E rises with the share, so that the shares above are excluded: the bound is rounded up. F falls with it, the
    # shares below are excluded: it is rounded down.
    (n, k), risk = as_counts(draws, failures), 1 - as_confidence(confidence)
    low, high, rises = 0.0, 1.0, prior is _CERTIFY
    while True:
        # shares are small: until the order of magnitude is known, geometric means find it faster
        middle = math.sqrt(low * high) if low and high > 2 * low else high / 64 if not low else (low + high) / 2
        if not low < middle < high or middle < 1e-300:
            break
        above = Mixture(prior, Fraction(middle), risk).crosses(n, k) == rises
        low, high = (low, middle) if above else (middle, high)
    return high if rises else low
