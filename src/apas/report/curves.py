"""What the page draws anew, never from the draws that certified: shares of valid shifts, margins on shifted models."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Array, Floats, Integers
from apas._validation import is_frame
from apas.certification.api import FractionCurves, robust_fraction
from apas.certification.methods.sampling import Sampling
from apas.certification.question import Question
from apas.contracts.certified_model import ask_again, rows_of
from apas.display.numbers import at_least, at_most
from apas.display.progress import Progress
from apas.models.base import offers
from apas.report.subject import Later, Subject
from apas.shifts.base import Fingerprinted, Listed, Refitted

WORK = 4_000_000_000  # about how many products of a parameter and a number a page may cost: some ten seconds
FEWEST, MOST = 500, 4000  # draws per row: as many as the work allows between the two
#: How many deltas a curve has besides those that rows were certified at, and how many bars a histogram.
DELTAS, BARS = 12, 30
OWN = 3  # of certified deltas, so many are put on the curve
CONFIDENCE = 0.999
UNCERTIFIED = "No row is certified at any size of shifts."
NO_MODEL = "It needs the model that was certified: pass model (--model)."
BLOCK = 4_000_000  # numbers of a block of directions


@dataclass(frozen=True, eq=False)
class Curves:
    """The share of shifts that keep the class, for the first rows, at deltas that all rows share."""

    found: FractionCurves
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """As the page's plots read it."""
        first = self.found[0]
        order = first.deltas.argsort()
        # the ends of a band are rounded outwards, so that it holds as it is written
        return {
            "deltas": first.deltas[order].tolist(),
            "estimate": [_digits(c.estimate[order]) for c in self.found],
            "lower": [[float(at_least(v)) for v in c.lower[order].tolist()] for c in self.found],
            "upper": [[float(at_most(v)) for v in c.upper[order].tolist()] for c in self.found],
            **{name: getattr(first, name) for name in ("draws", "confidence", "measure")},
        }


@dataclass(frozen=True, eq=False)
class Histograms:
    """Per row the margins on shifted models of the size that the row was certified at, counted in bars."""

    starts: Floats
    widths: Floats
    counts: Integers
    unfit: Integers
    failures: Integers
    deltas: Floats
    draws: int
    listed: bool

    @property
    def rows(self) -> int:
        """For how many rows there is one."""
        return len(self.counts)

    def to_dict(self) -> dict[str, Any]:
        """As the page's plots read it."""
        counted = {name: getattr(self, name).tolist() for name in ("counts", "unfit", "failures", "deltas")}
        edges = {"starts": _digits(self.starts), "widths": _digits(self.widths)}
        return {**edges, **counted, "draws": self.draws, "listed": self.listed}


def draw_curves(subject: Subject, later: Later | None, entropy: int) -> Curves | str:
    """One curve per row, or why there is none."""
    matched = subject.matched
    if matched is None:
        return NO_MODEL
    if offers(subject.rows.shifts, Refitted):
        return f"There is nothing to draw: {subject.rows.shifts.no_draws}."
    if offers(subject.rows.shifts, Fingerprinted) or offers(subject.rows.shifts, Listed):
        return "The shifted models are a list of models that exist; there is no size of shifts to vary."
    deltas = _deltas(subject, later)
    if not len(deltas):
        return UNCERTIFIED
    question, _ = ask_again(subject.rows, matched)
    rows, draws = _affordable(question)
    points: Any = question.X
    if not matched.network_only:
        points, _ = rows_of(matched.model, subject.rows.points, subject.rows.feature_names)
    points = points.iloc[:rows] if is_frame(points) else points[:rows]
    how: dict[str, Any] = {"shifts": subject.rows.shifts, "method": Sampling(confidence=CONFIDENCE, n_samples=draws)}
    found = robust_fraction(matched.model, points, deltas, target=question.target[:rows], rng=entropy, **how)
    return Curves(found, rows)


def draw_histograms(subject: Subject, entropy: int) -> Histograms | str:
    """The margins of each row on shifted models, or why there are none; the arguments are those of `draw_curves`."""
    if subject.matched is None:
        return NO_MODEL
    if offers(subject.rows.shifts, Refitted):
        return f"There is nothing to draw: {subject.rows.shifts.no_draws}."
    if offers(subject.rows.shifts, Fingerprinted) and not offers(subject.rows.shifts, Listed):
        return "The shifted models are a list of models of which the file holds only fingerprints."
    items: Any = subject.rows
    deltas = np.array([item.delta for item in items], dtype=np.float64)
    if not deltas.any():
        return UNCERTIFIED
    # where none is certified, a delta in the middle of the others
    deltas = np.where(deltas > 0, deltas, np.median(deltas[deltas > 0]))
    question = ask_again(subject.rows, subject.matched)[0].at(deltas)
    rows, draws = _affordable(question)
    listed = offers(question.shifts, Listed)
    draws = len(question.shifts.models) if offers(question.shifts, Listed) else draws
    some, block = question.take(slice(0, rows)), max(1, min(draws, BLOCK // max(1, len(question.coordinates))))
    parts, stream = [], Stream(entropy, "report")
    with Progress(draws, "margins on shifted models") as progress, np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, draws, block):
            stop = min(start + block, draws)
            parts.append(some.margins(some.directions(stream, start, stop)))
            progress.advance(stop - start)
    margins = np.concatenate(parts)
    return _count_bars(margins, np.count_nonzero(~(margins > some.band), axis=0), some.delta, listed=listed)


def _count_bars(margins: Floats, failures: Array, deltas: Floats, *, listed: bool) -> Histograms:
    """Count the margins (draws, rows) of each row in bars of its own."""
    finite = np.isfinite(margins)
    ends = np.where(finite, margins, np.inf).min(axis=0), np.where(finite, margins, -np.inf).max(axis=0)
    lows, highs = (np.where(finite.any(axis=0), end, 0.0) for end in ends)
    widths = np.where(highs > lows, (highs - lows) / (BARS - 1), 1.0 / BARS)
    starts = np.floor(lows / widths) * widths  # so that 0 is the end of a bar: none stands on both sides
    with np.errstate(invalid="ignore"):
        bars = np.clip((margins - starts) / widths, 0, BARS - 1)
    counts = np.zeros((margins.shape[1], BARS), dtype=np.int64)
    for i in range(margins.shape[1]):
        counts[i] = np.bincount(bars[finite[:, i], i].astype(np.intp), minlength=BARS)
    return Histograms(starts, widths, counts, np.count_nonzero(~finite, axis=0), failures, deltas, len(margins), listed)


def _deltas(subject: Subject, later: Later | None) -> Floats:
    """Sizes up to beyond what was certified and measured, and the sizes themselves that rows were certified at."""
    own = sorted({c.delta for c in subject.certificates or ()})
    reached = sorted({item.delta for item in subject.radii or () if item.delta > 0})
    ends = [*own[-1:], *([float(np.percentile(reached, 90))] if reached else [])]
    if later is not None and later.measured is not None and later.comparable:
        ends += [later.measured.delta] if 0 < later.measured.delta < np.inf else []
    if not ends:
        return np.empty(0)
    grid = np.linspace(0, 1.3 * max(ends), DELTAS + 1)[1:]
    return np.unique([float(f"{delta:.4g}") for delta in grid] + (own if len(own) <= OWN else []))


def _affordable(question: Question) -> tuple[int, int]:
    """How many rows to draw for, and how many models, if each row is looked at on a whole curve and a histogram."""
    each = (DELTAS + OWN + 1) * max(1, len(question.coordinates))
    rows = max(1, min(len(question), WORK // (each * FEWEST)))
    return rows, int(min(MOST, max(FEWEST, WORK // (each * rows))))


def _digits(values: Floats) -> list[float | None]:
    """Six digits, which no screen shows; what is not finite as null."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]
