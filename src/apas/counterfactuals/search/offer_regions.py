"""What an offer has to bear besides its own numbers: a tolerance of each, and numbers beyond those it changes.

Searches ask for linear bounds on their own draws; fresh ones certify (`apas.certification.region_claims`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from apas._random import Stream
from apas._sanitise import shown
from apas._typing import Floats
from apas._validation import check_flag
from apas.certification.question import Question
from apas.certification.region import AT_LEAST, AT_MOST, BETWEEN, Region, RowRegion, Span, cells_of, names_of
from apas.certification.region_claims import AskedRegion, check_regions
from apas.counterfactuals.search.stacked import SideBySide, StackedNetworks
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError
from apas.models.base import class_indices
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
    def wanted(cls, space: FeatureSpace, tolerance: Any, beyond: Any) -> OfferRegion | None:
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

    def margins(self, models: SideBySide, points: Floats, target: Any, origin: Floats) -> Floats:
        """Least margins over the regions of points, as far as a search needs to know them, shape (models, points)."""
        low, high, further = self.ends(points, origin)
        if not isinstance(models, StackedNetworks):  # no bounds: a few rows of each region
            signs = np.random.default_rng(0).integers(0, 2, (6, points.shape[1])).astype(bool)
            rows = [points, low, high, *(np.where(sign, low, high) for sign in signs)]
            return np.asarray(np.minimum.reduce([models.margins(part, target) for part in rows]))
        wanted = int(class_indices(models.stack.net.classes, target, 1)[0])
        found = []
        for point, a, b, far in zip(points, low, high, further, strict=True):
            moving = np.flatnonzero(b > a)
            corners = np.tile(np.where(b > a, a, point), (1 + len(moving), 1))
            corners[np.arange(1, len(corners)), moving] = b[moving]
            encoded = models.encoded(corners)
            box = AffineBox(encoded[0], encoded[1:] - encoded[0], np.zeros(len(moving)))
            parts = np.where(far[moving], PARTS.get(int(far.sum()), 1), 1)
            if len(models.stack) <= 2 * CLOSELY:
                found.append(_least(models.stack.meeting(box), parts, wanted))
                continue
            seen = models.stack.margins(models.encoded(np.vstack([point, a, b])), wanted).min(axis=1)
            worst = np.argpartition(seen, CLOSELY)[:CLOSELY]
            seen[worst] = _least(models.stack.take(worst).meeting(box), parts, wanted)
            found.append(seen)
        return np.stack(found, axis=1) if found else np.empty((len(models.stack), 0))


def _least(networks: DrawnNetworks, parts: Any, wanted: int) -> Floats:
    """Linear bounds over a box that is cut into so many parts along each coordinate."""
    draws = np.arange(len(networks.lines))
    least = np.full(len(draws), np.inf)
    for place in itertools.product(*(range(n) for n in parts)):
        a, b = (np.tile((np.array(place, dtype=float) + end) / np.asarray(parts), (len(draws), 1)) for end in (0, 1))
        least = np.minimum(least, networks.bounds(draws, a, b, wanted)[0])
    return np.asarray(np.nan_to_num(least, nan=-np.inf))
