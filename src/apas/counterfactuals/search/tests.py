"""The tests of a search: looks at candidates on draws of the search, and the tests that certify them.

Each certifying test has a stream of its own, and test number j the part 1 / (j (j + 1)) of the risk (parts of 1).
Where an offer has to bear more than its own numbers, looks ask for linear bounds on the draws of the search; fresh ones
certify (`apas.certification.region_claims`).
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

from apas._random import Stream
from apas._sanitise import shown
from apas._typing import Array, Floats
from apas._validation import check_flag
from apas.certification.certificate import BoundEvidence, Certificate
from apas.certification.claims import Most, Verdict, search_tries
from apas.certification.derived_seed import DerivedSeed, decide_derived
from apas.certification.failing_draws import block_size
from apas.certification.question import Cuts, Draws, LeastDraws, Method, Question, decide
from apas.certification.region import AT_LEAST, AT_MOST, BETWEEN, Region, RowRegion, Span, cells_of, names_of
from apas.certification.region_claims import AskedRegion, check_regions
from apas.counterfactuals.search import stacked
from apas.counterfactuals.sources.base import SearchTest, Task
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError
from apas.models.base import encoded_rows, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Listed, OnPoints, OtherMoves, ShiftSet
from apas.stats import allowed_failures, sample_size
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR, exact_sign
from apas.worst_case.regions import AffineBox, DrawnNetworks

#: Into how many parts half-lines are cut where the search bounds margins, by their number.
PARTS = {1: 6, 2: 3, 3: 2}
#: Of many draws those that do worst at a few rows of a region are looked at more closely.
CLOSELY = 300
#: Sizes of windows that are tried, and on how many draws of the search.
SIZES, LOOKS = 10, 2048
#: Failures that a window may have on these, as a share of those that a test would bear.
SPARE = 0.5


@dataclass(frozen=True)
class OfferRegion:
    """What every offer of a call has to bear."""

    space: FeatureSpace
    tolerance: Mapping[str, float]
    beyond: bool = False
    window: bool = False  # go as far beyond as the draws of the search bear, rather than to the end

    @classmethod
    def wanted(cls, space: FeatureSpace, tolerance: Any, beyond: Any) -> Self | None:
        """What a user passed to `generate`, or None for single rows."""
        numeric = {f.name: f for f in space if not f.is_level and f.listed is None}
        told: dict[str, float] = {}
        share: Any = tolerance
        if isinstance(tolerance, Mapping):
            told = dict(tolerance)
            if strange := [name for name in told if name not in numeric]:
                raise InputError(f"`tolerance` names {strange[0]!r}, which is no number of the space; leave it out.")
        elif tolerance is not None:
            if not isinstance(tolerance, Real) or isinstance(tolerance, bool):
                raise InputError(
                    f"`tolerance` must be a share of ranges, or numbers by feature, got {shown(tolerance)}."
                )
            told = dict.fromkeys((name for name, f in numeric.items() if f.mutable), share)
        if bad := [v for v in told.values() if not isinstance(v, Real) or isinstance(v, bool) or not 0 <= v < np.inf]:
            raise InputError(f"`tolerance` must be at least 0 and finite, got {shown(bad[0])}.")
        if not isinstance(tolerance, Mapping):
            spans = {name: numeric[name].ends[1] - numeric[name].ends[0] for name in told}
            if unknown := [name for name, span in spans.items() if not np.isfinite(span)]:
                raise InputError(f"`tolerance` is a share of each range, but {unknown[0]!r} has none; give it one.")
            told = {name: float(share) * span for name, span in spans.items()}
        check_flag(beyond, "beyond")
        return cls(space, told, beyond) if beyond or any(told.values()) else None

    def ask(self, question: Question, inputs: Floats, entropy: int) -> Question:
        """The question about rows made from inputs, as one about their regions."""
        names = names_of(question.model, question.points)
        spans = {name: value for name, value in self.tolerance.items() if value > 0}
        region = Region(spans, beyond=self.beyond, space=self.space)
        regions = region.rows(question.points, names, self.space.table(inputs))
        asked = tuple(AskedRegion(r, question.points, i) for i, r in enumerate(regions))
        question = replace(question, regions=asked)
        check_regions(question)
        return self._windows(question, names, entropy) if self.window else question

    def _windows(self, question: Question, names: tuple[str, ...], entropy: int) -> Question:
        """Half-lines cut to what the draws of the search bear; the draws that certify have no say in it."""
        drawn = question.directions(Stream(entropy, "generate/search"), 0, LOOKS)
        coverage = getattr(question.method, "coverage", 1.0)
        bearable, found = int(SPARE * (1 - coverage) * len(drawn)), []
        for i, full in enumerate(question.regions or ()):
            cells, low, high = cells_of(full.table, 0, names), 0, SIZES + 1
            alone = question.take(np.array([i]))

            def cut(number: int, full: AskedRegion = full, cells: Any = cells) -> AskedRegion:
                parts = tuple(self._part(s, number / SIZES, cells) for s in full.region.spans)
                return AskedRegion(RowRegion(parts), full.table)

            while high - low > 1:
                middle = (low + high) // 2
                margins = replace(alone, regions=(cut(middle),)).margins(drawn)[:, 0]
                fits = np.count_nonzero(~(margins > 0)) <= bearable
                low, high = (middle, high) if fits else (low, middle)
            found.append(cut(low))
        return replace(question, regions=tuple(found))

    def _part(self, span: Span, size: float, cells: Mapping[str, Any]) -> Span:
        if span.side not in (AT_LEAST, AT_MOST):
            return span
        own, off = float(cells[span.feature]), self.tolerance.get(span.feature, 0.0)
        part = span.part(size, own)  # but never less than the tolerance
        low, high = min(part.low, max(span.low, own - off)), max(part.high, min(span.high, own + off))
        return Span(span.feature, BETWEEN, low, high, span.step)

    def ends(self, points: Floats, origin: Floats) -> tuple[Floats, Floats, Floats]:
        """Least and largest numbers per cell of points made from one input, and which features go beyond."""
        off = np.array([self.tolerance.get(f.name, 0.0) for f in self.space])
        least, most = np.array([f.ends for f in self.space]).T
        low = np.maximum(points - off, np.minimum(least, points))
        high = np.minimum(points + off, np.maximum(most, points))
        numeric = np.array([not f.is_level for f in self.space])
        up, down = (points > origin) & numeric, (points < origin) & numeric
        if self.beyond and not self.window:
            low, high = np.where(down, np.minimum(least, points), low), np.where(up, np.maximum(most, points), high)
        return low, high, (up | down) & self.beyond & (not self.window)

    def margins(self, models: stacked.SideBySide, points: Floats, target: Any, origin: Floats) -> Floats:
        """Least margins over the regions of points, as far as a search needs to know them, shape (models, points)."""
        low, high, further = self.ends(points, origin)
        if not isinstance(models, stacked.NetworkStack):  # no bounds: a few rows of each region
            signs = np.random.default_rng(0).integers(0, 2, (6, points.shape[1])).astype(bool)
            rows = [points, low, high, *(np.where(sign, low, high) for sign in signs)]
            return np.asarray(np.minimum.reduce([models.margins(part, target) for part in rows]))
        wanted, found = models.wanted(target), []
        for point, a, b, far in zip(points, low, high, further, strict=True):
            moving = np.flatnonzero(b > a)
            corners = np.tile(np.where(b > a, a, point), (1 + len(moving), 1))
            corners[np.arange(1, len(corners)), moving] = b[moving]
            encoded = models.encoded(corners)
            box = AffineBox(encoded[0], encoded[1:] - encoded[0], np.zeros(len(moving)))
            parts = np.where(far[moving], PARTS.get(int(far.sum()), 1), 1)
            if len(models) <= 2 * CLOSELY:
                found.append(_least(models.meeting(box), parts, wanted))
                continue
            seen = models.margins(np.vstack([point, a, b]), target).min(axis=1)
            worst = np.argpartition(seen, CLOSELY)[:CLOSELY]
            seen[worst] = _least(models.take(worst).meeting(box), parts, wanted)
            found.append(seen)
        return np.stack(found, axis=1) if found else np.empty((len(models), 0))


def _least(networks: DrawnNetworks, parts: Any, wanted: int) -> Floats:
    """Linear bounds over a box that is cut into so many parts along each coordinate."""
    draws = np.arange(len(networks.lines))
    least = np.full(len(draws), np.inf)
    for place in itertools.product(*(range(n) for n in parts)):
        a, b = (np.tile((np.array(place, dtype=float) + end) / np.asarray(parts), (len(draws), 1)) for end in (0, 1))
        least = np.minimum(least, networks.bounds(draws, a, b, wanted)[0])
    return np.asarray(np.nan_to_num(least, nan=-np.inf))


KEPT = 800  # how many of the draws that do worst at a point are kept to look at points near it
HELD = 64_000_000  # so many numbers of draws are kept for all rows of a call; more are drawn again each time
SEEN = 4_000_000  # so many margins are held at a time
FEW = 1000  # fewer draws than this leave the worst shift of all much worse than the worst that was drawn
REMEMBERED = 16  # points whose margins are remembered: one of them is likely to be asked about next
TOGETHER = 256  # points that are looked at together
#: So many standard deviations fewer failures than a test allows are asked of the look, so that most tests pass.
CAUTION = 2.0
#: Slacks are cut to a grid, in units of the rounding band: what a source does next must not depend on the last bits of
#: a margin, which depend on how many rows are looked at together.
GRID = 1024.0


@dataclass(frozen=True)
class BoundSearchTest(SearchTest):
    """Bounds over every shift, by the method itself: one holds for all, and costs the same everywhere."""

    test: "CertifyingTest"
    target: Any
    delta: float
    origin: Floats | None  # the input of the row, if its region counts

    def scores(self, points: Floats) -> Floats:
        """Proved bounds on the margin, 0 or more where the claim is certified."""
        looks = self.test.look(Candidates.of_row(points, self.target, self.delta, self.origin))
        return np.array([np.nan if slack is None else slack for slack, _, _ in looks])

    def cut(self, point: Floats) -> Floats | None:
        """A linear score of the last layer that is at least the bound, if the method has a bound that is concave."""
        method, question = self.test.method, self.test.question(Candidates.of_row(point[None], self.target, self.delta))
        return method.cut(question) if offers(method, Cuts) else None


@dataclass(frozen=True)
class DrawnSearchTest(SearchTest):
    """Draws of the search: the slack is the margin that all but a number of them exceed."""

    test: "CertifyingTest"
    target: Any
    delta: float
    origin: Floats | None  # as above
    samples: int
    rank: int
    some: stacked.SideBySide | None = None  # of all the models those that matter near a point
    _seen: dict[bytes, Floats] = field(default_factory=dict, repr=False, compare=False)

    @property
    def models(self) -> stacked.SideBySide:
        """Those that are looked at, not kept here: they may be large, and what is passed to workers should not be."""
        return self.some or self.test.search_models(self.delta)

    def scores(self, points: Floats) -> Floats:
        """The margin that all but `rank` draws exceed."""
        together = max(1, min(TOGETHER, SEEN // self.samples))
        parts = (self._margins(points[a : a + together]) for a in range(0, len(points), together))
        return np.concatenate([np.empty(0), *(np.partition(m, self.rank, axis=0)[self.rank] for m in parts)])

    def _margins(self, points: Floats) -> Floats:
        """Margins on all models, shape (models, points); those of the last few points are remembered one by one."""
        mark = b"" if self.origin is None else b"region"
        if (key := points.tobytes() + mark) in self._seen:
            return self._seen[key]
        margins = self.test.margins_on(self.models, points, self.target, self.origin)
        margins = np.where(np.isnan(margins), -np.inf, margins) if np.isnan(margins.sum()) else margins
        if len(points) <= REMEMBERED:
            self._seen.clear()
            self._seen.update((point.tobytes() + mark, margins[:, i : i + 1]) for i, point in enumerate(points))
        return margins

    def slopes(self, point: Floats, others: Floats) -> Floats:
        """Mean over the draws whose margins are next to the slack: one draw alone would lead astray."""
        width = max(3, self.rank // 2)
        ranks = np.argsort(self._margins(point[None])[:, 0])[max(0, self.rank - width) : self.rank + width + 1]
        # small differences of large numbers: they are taken in float64
        some = self.models.take(ranks, np.float64)
        margins = self.test.margins_on(some, np.vstack([point[None], others]), self.target, self.origin)
        return np.asarray(np.nan_to_num(margins[:, 1:] - margins[:, :1]).mean(axis=0))

    def near(self, point: Floats) -> Self:
        """The draws that do worst at `point`."""
        keep = max(KEPT, 8 * (self.rank + 1))
        if self.samples <= keep or self.some is not None or self.test.searched is not None:
            return self
        worst = np.argpartition(self._margins(point[None])[:, 0], keep)[:keep]
        return replace(self, some=self.models.take(worst), samples=keep, _seen={})


def smallest_margins(blocks: Iterable[Floats], count: int) -> Floats:
    """The least margins of each row over all blocks of draws, shape (count, rows); NaN is least of all."""
    least: Floats | None = None
    for margins in blocks:
        margins = np.nan_to_num(margins, nan=-np.inf)
        least = np.full((count, margins.shape[1]), np.inf) if least is None else least
        least = np.partition(np.concatenate([least, margins]), count - 1, axis=0)[:count]
    return np.empty((count, 0)) if least is None else least


class Candidates(NamedTuple):
    """Points that are asked about, each with its class, its delta, and what it was made from if its region counts."""

    points: Floats
    targets: Array
    deltas: Floats
    inputs: Floats | None = None

    @classmethod
    def of_row(cls, points: Floats, target: Any, delta: float, origin: Floats | None = None) -> Self:
        """Points of one row."""
        labels = np.array([target] * len(points), dtype=object)
        inputs = None if origin is None else np.broadcast_to(origin, points.shape)
        return cls(points, labels, np.full(len(points), delta), inputs)

    def one_by_one(self) -> Iterable[tuple[Floats, Any, float, Any]]:
        """Each point as a table of one line, with its class, its delta and its input."""
        origins = [None] * len(self.points) if self.inputs is None else self.inputs
        return zip(self.points[:, None], self.targets, self.deltas.tolist(), origins, strict=True)


#: What is seen of a candidate before its test: its slack, whether a test is worth it, and its certificate, if known.
Look = tuple[float | None, bool, Certificate | None]


@dataclass(frozen=True)
class CertifyingTest:
    """Looks at candidates, and certifies them; of listed models it has some, and the search has others (`searched`)."""

    task: Task
    shifts: ShiftSet
    method: Method
    entropy: int
    searched: ShiftSet | None = None
    n_deltas: int = 1  # how many different deltas the rows of the call have
    together: int = 1  # how many counterfactuals the confidence must hold for
    seed: DerivedSeed | None = None
    region: OfferRegion | None = None  # what offers have to bear besides their own numbers

    @cached_property
    def draws(self) -> Draws | None:
        """The method as one that draws, or None if it proves its claim."""
        return self.method if offers(self.method, Draws) else None

    def question(self, asked: Candidates, tries: int = 1, shifts: ShiftSet | None = None) -> Question:
        """The question about candidates, as `certify` would ask it about the same rows in raw units."""
        points, targets, deltas, inputs = asked
        raw, encoded = encoded_rows(self.task.model, self.task.space.table(points))
        risk = {"claim_rows": self.together, "tries": tries, "bits": self.seed.bits if self.seed else None}
        about: dict[str, Any] = {**risk, "points": raw, "method": self.method}
        found = Question(self.task.model, encoded, targets, deltas, shifts or self.shifts, **about)
        return found if self.region is None or inputs is None else self.region.ask(found, inputs, self.entropy)

    def margins_on(self, models: stacked.SideBySide, points: Floats, target: Any, origin: Floats | None) -> Floats:
        """Margins of points of one row on models of the search, or the least over their regions."""
        if self.region is None or origin is None:
            return models.margins(points, target)
        return self.region.margins(models, points, target, origin)

    def can_test(self, rank: int, number: int) -> bool:
        """Whether test number `number` of a rank (0: that of a path) could certify anything: with few draws not all."""
        if self.searched is not None:  # of listed models there are enough for one test of whatever kind
            return number <= 1
        if self.draws is None or self.draws.n_samples is None:
            return True
        claim = self._claim(self.draws, search_tries(rank, number))
        if offers(self.draws, LeastDraws):
            return self.draws.n_samples >= self.draws.least_draws(claim)
        return self.draws.n_samples >= sample_size(coverage=claim.coverage, confidence=claim.row_confidence)

    def look(self, asked: Candidates, rank: int = 0) -> list[Look]:
        """What is seen of each candidate for a rank without spending anything."""
        if self.searched is not None:
            slacks = [float(self.for_search(t, d, origin=x).slacks(p)[0]) for p, t, d, x in asked.one_by_one()]
            return [(slack, slack >= 0, None) for slack in slacks]
        if self.draws is not None:
            return self._look_at_draws(self.draws, asked, search_tries(rank, 1))
        looks: list[Look] = []  # for a method that proves, to look is to test: proofs cost no confidence
        for certificate in self.decided(self.question(asked), Stream(self.entropy, "generate")):
            bound = getattr(certificate.evidence, "bound", None)
            if certificate.is_certified:
                looks.append((max(0.0, bound or 0.0), True, certificate))
                continue
            # what is not certified must have a slack below 0, also where the bound itself is 0 and the class needs more
            looks.append((None if bound is None else min(bound, -np.finfo(float).tiny), False, certificate))
        return looks

    def certify(self, asked: Candidates, rank: int, number: int) -> list[Certificate]:
        """Certificates of test number `number` for counterfactuals of a rank; number 0 is the one test of a path."""
        # listed models certify one candidate of a row once, so that there is nothing to divide the risk among
        question = self.question(asked, tries=1 if self.searched is not None else search_tries(rank, number))
        if self.seed is not None:  # that of each candidate follows from it alone, so that its draws are fresh
            alone = [question.take(slice(i, i + 1)) for i in range(len(question))]
            return [c for one in alone for c in decide_derived(one, self.seed)]
        return self.decided(question, Stream(self.entropy, f"generate/{rank}/{number}"))

    def decided(self, question: Question, stream: Stream) -> list[Certificate]:
        """What the method says."""
        return list(decide(question, self.method, stream))

    def for_search(self, target: Any, delta: float, rank: int = 0, origin: Floats | None = None) -> SearchTest:
        """What the search for one counterfactual of a row may ask as often as it likes."""
        shifts = self.shifts if self.draws is None else self.searched  # those that certify only where all must accept
        about: dict[str, Any] = {"of_regions": self.region is not None}
        if delta == 1 and offers(shifts, Listed) and offers(shifts, stacked.AsTheyAre):
            about["refits"] = shifts.models
        test: BoundSearchTest | DrawnSearchTest = BoundSearchTest(self, target, delta, origin, **about)
        if self.draws is not None:
            samples, allowed = self.allowance
            if rank:  # its test allows fewer failures, so that the search had better aim at fewer
                allowed = max(0, _most_failures(samples, self._claim(self.draws, search_tries(rank, 0))))
            about |= {"few": samples < FEW, "all_accept": False}
            test = DrawnSearchTest(self, target, delta, origin, samples, allowed, **about)
        single = self.region is not None and not self.region.beyond
        return replace(test, alone=replace(test, origin=None)) if single else test

    def search_models(self, delta: float) -> stacked.SideBySide:
        """All shifted models that the search looks at."""
        return self.task.once(("search models", delta), lambda: self._search_models(delta))

    def _search_models(self, delta: float) -> stacked.SideBySide:
        if self.searched is not None and delta == 1 and self.listed_models is not None:
            return self.listed_models
        samples, stream, net = self.allowance[0], Stream(self.entropy, "generate/search"), self._network
        if net is None or self.n_deltas * samples * len(net.parameters) > HELD:
            drawn = stacked.DrawnModels(partial(self._about, delta=delta), samples, stream)
            fits = self.searched is None and 8 * samples * len(self._nobody.coordinates) <= HELD
            return drawn.take(np.arange(samples)) if fits else drawn
        step = max(1, min(2048, SEEN // len(net.parameters)))
        draws = (self._nobody.directions(stream, a, min(a + step, samples)) for a in range(0, samples, step))
        moved = (net.parameters.values + delta * block for block in draws)
        return stacked.NetworkStack.of(net, moved, samples, stacked.quick_encoder(self.task))

    @cached_property
    def _network(self) -> FeedForward | None:
        """The model as a network whose parameters move, if it is one and they do."""
        others = self.searched is not None or offers(self.shifts, OnPoints) or offers(self.shifts, OtherMoves)
        return None if others else self._nobody.network

    def _about(self, points: Floats, target: Any, *, delta: float) -> Question:
        """The question about points of a row on the draws of the search."""
        if not len(points):
            return replace(self._nobody, shifts=self.searched or self.shifts)
        asked = Candidates.of_row(points, target, delta)
        if self.searched is not None or offers(self.shifts, OnPoints):
            return self.question(asked, shifts=self.searched)
        # without a detour through data frames, which costs more than the margins
        return Question(self.task.model, self.task.encoded(points), asked.targets, asked.deltas, self.shifts)

    @cached_property
    def listed_models(self) -> stacked.SideBySide | None:
        """The listed models of the search as they are, where they can be asked together."""
        return None if self.searched is None else stacked.models_together(self.searched, self.task)

    @cached_property
    def _nobody(self) -> Question:
        """A question without rows."""
        model = self.task.model
        nothing = np.empty((0, model.n_features)), np.empty(0, dtype=object), np.empty(0)
        return Question(model, *nothing, self.shifts)

    @cached_property
    def allowance(self) -> tuple[int, int]:
        """How many draws the search looks at, and how many of them may fail: those of a test at full confidence."""
        if offers(self.searched, Listed):
            return len(self.searched.models), 0  # the test allows next to none
        assert self.draws is not None
        claim = self._claim(self.draws)
        samples = self.draws.samples(self._nobody, claim)
        return samples, _most_failures(samples, claim)

    def _claim(self, method: Draws, tries: int = 1) -> Most:
        """What a test of so many tries claims, without words: nobody reads it."""
        bits = None if self.seed is None else self.seed.bits
        return Most(method.coverage, method.confidence, "", self.together, tries, bits)

    def _look_at_draws(self, method: Draws, asked: Candidates, tries: int) -> list[Look]:
        """How candidates do on the draws of the search: the margin that all but the bearable number of draws exceed."""
        question, claim = self.question(asked._replace(inputs=None), tries=tries), self._claim(method, tries)
        samples = method.samples(question, claim)
        allowed = _most_failures(samples, claim)
        if allowed < 0:  # enough for the one test of a path only, which has the whole risk
            allowed = max(0, _most_failures(samples, self._claim(method)))
        # the largest m with m + CAUTION sqrt(m) <= allowed: counts of failures have a standard deviation of about
        # sqrt(m), so that a candidate with m of them in the search seldom has more than `allowed` in the test
        bearable = int((np.sqrt(allowed + CAUTION**2 / 4) - CAUTION / 2) ** 2)
        if self._network is not None and samples <= self.allowance[0]:  # row by row: no digit depends on the others
            rows = asked.one_by_one()
            kept = [self.margins_on(self.search_models(d), p, t, x)[:samples] for p, t, d, x in rows]
            least = smallest_margins([np.hstack(kept)], allowed + 1)
        else:
            stream, block = Stream(self.entropy, "generate/search"), block_size(question)
            drawn = (question.directions(stream, a, min(a + block, samples)) for a in range(0, samples, block))
            least = smallest_margins((question.margins(directions) for directions in drawn), allowed + 1)
        slacks = np.partition(least, bearable, axis=0)[bearable] - question.band
        # rounded down to multiples of a power of two, which is exact; what is negative stays so
        grid = np.exp2(np.ceil(np.log2(GRID * np.maximum(question.band, np.finfo(float).tiny))))
        slacks = np.floor(slacks / grid) * grid
        hopeful = least.max(axis=0) > question.band
        return [(float(slack), bool(hope), None) for slack, hope in zip(slacks, hopeful, strict=True)]


def _most_failures(samples: int, claim: Most) -> int:
    return allowed_failures(samples, coverage=claim.coverage, confidence=claim.row_confidence)


@dataclass(frozen=True)
class UnshiftedTest(CertifyingTest):
    """The test at delta 0: what is called certified is valid on the model itself, no more."""

    def decided(self, question: Question, stream: Stream) -> list[Certificate]:
        """Whether rows are valid beyond what rounding could do, or else in float64 and in exact arithmetic."""
        sure, slacks, net = question.valid_rows(), question.base_margins - question.band, question.network
        for i in np.flatnonzero(sure & ~(slacks > 0)).tolist():
            sign = -1  # of others nobody knows
            if net is not None and not question.single and PIECEWISE_LINEAR.issuperset(net.activations):
                tensors, wanted = (net.weights, net.biases, net.activations), int(question.wanted[i])
                sign = exact_sign(*tensors, question.X[i], wanted, net.offset)
            sure[i], slacks[i] = sign > 0 or (sign == 0 and not question.strict[i]), 0.0
        verdicts = [Verdict.CERTIFIED if ok else Verdict.REFUTED for ok in sure & ~question.doubtful_rows()]
        rows = zip(verdicts, question.target, np.nan_to_num(slacks, nan=-np.inf).tolist(), strict=True)
        claim, why = self.method.claim(question), "valid on the model itself"
        return [Certificate(claim, v, 0.0, t, "model", BoundEvidence("model", s), why) for v, t, s in rows]
