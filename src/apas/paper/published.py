"""The paper's own procedures as its programs ran them: the search for delta, and the sampling test.

`apas.max_shift(search="paper")` is the same search with draws of our own, fresh for each test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas._validation import check_integer, check_probability
from apas.certification.api import certify
from apas.certification.certificate import Certificate, KeptShift
from apas.certification.claims import Most, Verdict
from apas.certification.question import Method, Question
from apas.models.feedforward import FeedForward
from apas.shifts.box import inside_box
from apas.shifts.linf import LinfShifts
from apas.shifts.selection import placed
from apas.stats import coverage_lower

#: Where the search starts, and how narrow the bracket becomes.
FIRST = 1e-4
#: Nothing passes for ever: the search ends here.
LAST = 1e6


def largest_passing(passes: Callable[[Indices, Floats], Bools], rows: int) -> Floats:
    """Double from 1e-4 while the test passes, then bisect until the bracket is narrower than 1e-4; its lower end."""
    low, high = np.zeros(rows), np.full(rows, FIRST)
    going = np.arange(rows)
    while len(going):
        going = going[passes(going, high[going])]
        low[going] = high[going]
        going = going[high[going] < LAST]
        high[going] *= 2
    going = np.flatnonzero((low > 0) & (low < high))
    while len(going := going[high[going] - low[going] >= FIRST]):
        middle = 0.5 * (low[going] + high[going])
        passed = passes(going, middle)
        low[going[passed]], high[going[~passed]] = middle[passed], middle[~passed]
    return low


def published_delta(
    network: FeedForward, X: Floats, method: Method | str, shifts: LinfShifts | None = None, *, target: Any = 1
) -> Floats:
    """The largest delta of each row that the search finds with a method of `certify` as its test.

    With `PublishedSampling` it is Algorithm 1 with the published draws, with ``"interval"`` Algorithm 4. Neither makes
    the delta itself a certificate at the claim's confidence: draws chose it.
    """
    moves = LinfShifts() if shifts is None else shifts

    def passes(rows: Indices, delta: Floats) -> Bools:
        return certify(network, X[rows], delta, target=target, shifts=moves, method=method).certified

    return largest_passing(passes, len(X))


#: Draws looked at together; and how many numbers are kept for the next call at most (128 MiB).
BLOCK, KEPT = 1024, 1 << 24
#: Decimals of the coverage that a test without failures shows, rounded down.
DECIMALS = 6


@dataclass(frozen=True)
class PublishedEvidence:
    """What the test saw of a row."""

    seed: int
    samples: int
    draws: int
    failures: int

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return {
            "kind": "published sampling",
            "seed": self.seed,
            "samples": self.samples,
            "draws": self.draws,
            "failures": self.failures,
        }


@dataclass(frozen=True, kw_only=True)
class PublishedSampling:
    """Decide by drawing shifts until one fails, with the same draws in every test.

    For comparison with the paper; to certify, use `apas.Sampling`. The draws come from NumPy's `RandomState`, seeded
    anew for each test: model by model, each parameter in the order of `Model.parameters` (of a dense network layer
    by layer, weights before biases), uniform on the box.

    Parameters
    ----------
    n_samples : int, default 10_000
        How many shifts to draw. The paper states 1378, its program took 10,000 to generate.
    confidence : float, default 0.999
        The paper's alpha. The claim's coverage is what as many draws without a failure show at this confidence.
    seed : int, default 1

    Notes
    -----
    No allowance is made for the search. The confidence holds for a row that was chosen without looking at these draws.
    A row that came out of a loop which tries candidates until one passes was chosen by looking at them, and no
    confidence is known for it; claims and reasons say so. A row that fails is `UNKNOWN`, since one failing shift does
    not refute a claim about most of them; the shift is kept as witness.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> found = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, method=PublishedSampling(n_samples=1378))
    >>> found.certified.tolist(), found[0].claim.coverage
    ([True, False], 0.994999)
    >>> found[1].reason
    'draw number 2 of 1378 failed'
    """

    n_samples: int = 10_000
    confidence: float = 0.999
    seed: int = 1

    def __post_init__(self) -> None:
        owner = "PublishedSampling"
        object.__setattr__(self, "n_samples", check_integer(self.n_samples, "n_samples", owner, least=1))
        object.__setattr__(self, "confidence", check_probability(self.confidence, "confidence", owner))
        object.__setattr__(self, "seed", check_integer(self.seed, "seed", owner, least=0))

    def claim(self, question: Question) -> Most:
        """What the method will speak about: each test by itself, whatever the number of tries."""
        measure = f"{question.measure}; the confidence is per test only, as published, with no allowance for a search"
        per_row = Most(0.5, self.confidence, measure, question.claim_rows).row_confidence
        shown = coverage_lower(self.n_samples, 0, confidence=per_row)
        return Most(np.floor(shown * 10**DECIMALS) / 10**DECIMALS, self.confidence, measure, question.claim_rows)

    def unsupported(self, question: Question) -> str | None:
        """None in boxes of shifts, else why not."""
        if isinstance(question.shifts, LinfShifts):
            return None
        return (
            "PublishedSampling draws from boxes of shifts only, as the paper did; "
            f"use Sampling for {type(question.shifts).__name__}."
        )

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """Test all rows on the same draws; the stream is not used."""
        first = np.full(len(question), self.n_samples)
        witnesses: dict[int, KeptShift] = {}
        active = np.arange(len(question))
        for start, unit in self._unit(question):
            margins = question.margins(unit * question.reach, active)
            failed = ~(margins > question.band[active])  # written so that a NaN fails
            for column in np.flatnonzero(failed.any(axis=0)):
                row, place = int(active[column]), int(failed[:, column].argmax())
                first[row] = start + place
                if not margins[place, column] >= -question.band[row]:  # else its sign may be owed to rounding
                    witnesses[row] = self._witness(question, row, unit[place])
            active = active[~failed.any(axis=0)]
            if not len(active):
                break
        claim = self.claim(question)
        return [self._certificate(question, i, claim, int(first[i]), witnesses.get(i)) for i in range(len(question))]

    def _unit(self, question: Question) -> Iterator[tuple[int, Floats]]:
        """Number of the first draw of each block, and the block, in units of how far each parameter may move."""
        movers = np.flatnonzero(question.radii)
        for start, unit in _unit_blocks(self.seed, self.n_samples, len(movers)):
            yield start, unit if len(movers) == len(question.radii) else placed(unit, movers, len(question.radii))

    def _witness(self, question: Question, row: int, unit: Floats) -> KeptShift:
        delta = float(question.delta[row])
        return KeptShift(delta, inside_box(question.model.parameters.values, question.radii, delta, unit))

    def _certificate(
        self, question: Question, i: int, claim: Most, first: int, witness: KeptShift | None
    ) -> Certificate:
        failed = first < self.n_samples
        verdict = Verdict.UNKNOWN if failed else Verdict.CERTIFIED
        reason = f"draw number {first + 1} of {self.n_samples} failed"
        if not failed:
            reason = (
                f"none of {self.n_samples} draws failed; as published, the confidence holds for this test by itself, "
                "not for a row that such tests have chosen"
            )
        evidence = PublishedEvidence(self.seed, self.n_samples, first + failed, int(failed))
        name = type(self).__name__.lower()
        return Certificate(
            claim, verdict, float(question.delta[i]), question.target[i], name, evidence, reason, witness
        )


def _unit_blocks(seed: int, samples: int, numbers: int) -> Iterator[tuple[int, Floats]]:
    """Points of the cube [-1, 1), in the order in which the published program drew them."""
    if samples * numbers <= KEPT:
        unit = _kept(seed, samples, numbers)
        yield from ((start, unit[start : start + BLOCK]) for start in range(0, samples, BLOCK))
        return
    source = np.random.RandomState(seed)
    for start in range(0, samples, BLOCK):
        yield start, source.uniform(-1.0, 1.0, (min(BLOCK, samples - start), numbers))


@lru_cache(maxsize=2)
def _kept(seed: int, samples: int, numbers: int) -> Floats:
    unit = np.random.RandomState(seed).uniform(-1.0, 1.0, (samples, numbers))
    unit.flags.writeable = False
    return unit
