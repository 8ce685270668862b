"""What a report is about: certificates, the largest shifts of the same rows, the model, and what a later one does.

What the page draws anew, shares of valid shifts and margins on shifted models, is never from the draws that certified.
"""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from apas._fields import Fields
from apas._random import Stream
from apas._typing import Floats
from apas._validation import is_frame, is_path
from apas.certification.api import robust_fraction
from apas.certification.max_shift.result import MaxShifts
from apas.certification.methods.sampling import Sampling
from apas.certification.question import Question
from apas.certification.results import Certificates
from apas.contracts import certificate_file as files, certified_model as behind
from apas.contracts.audit import AuditReport, AuditRow, audit as audited
from apas.contracts.certificate_lines import table_digest
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import at_least, at_most, plain
from apas.display.progress import Progress
from apas.errors import InputError
from apas.models.base import offers
from apas.models.digest import model_digest
from apas.shifts.base import Fingerprinted, Listed, Refitted
from apas.shifts.distance import ShiftReport, read_model


@dataclass(frozen=True, eq=False)
class Subject:
    """Rows with what is known about them, and how to tell them from others."""

    certificates: Certificates | None
    radii: MaxShifts | None
    digest: str
    versions: dict[str, str]
    matched: behind.Matched | None = None
    searches: int | None = None
    is_saved: bool = True

    @property
    def rows(self) -> Certificates | MaxShifts:
        """What knows the rows: their values, labels and readings."""
        rows = self.certificates if self.certificates is not None else self.radii
        assert rows is not None
        return rows

    @property
    def searched(self) -> bool:
        """Whether a published search led to largest shifts."""
        return any(radius.per_test for radius in self.radii or ())

    @property
    def labels(self) -> list[Any]:
        """What the rows are called, as JSON values."""
        return [plain(label) for label in self.rows._labels()]


def read_subject(certificates: Any, max_shifts: Any, model: Any) -> Subject:
    """Check what `write_report` was given, and bring it into one form."""
    stored, searches = files.as_stored(certificates), None
    digest, versions = stored.digest, stored.versions
    found: Any = stored.max_shifts if stored.certificates is None else stored.certificates
    if isinstance(certificates, Counterfactuals):
        searches = len(certificates)
        if not len(found):
            raise InputError(
                "`certificates` must hold at least one certificate, but none of these counterfactuals has one; "
                "pass a delta to generate, or certify their points."
            )
    radii = _radii(max_shifts)
    if radii is not None and stored.certificates is None:
        already = (
            "the file already holds largest shifts alone" if digest else "`certificates` are largest shifts already"
        )
        raise InputError(f"`max_shifts` goes with certificates, but {already}.")
    if not len(found):
        raise InputError("`certificates` must hold at least one row, got none; there is nothing to report.")
    found = behind.with_readings(found)
    if radii is not None:
        files.check_same_rows(found, radii)
        digest, versions = "", files.own_versions()
    elif stored.certificates is not None:
        radii = found.max_shifts
    is_saved = bool(digest) or not files.unsaved(found, radii)
    digest = digest or (files.stored_content(found, radii)["digest"] if is_saved else _digest(found, radii))
    matched: Any = None if found.model is None else behind.Matched(found.model)
    if model is not None and isinstance(matched := behind.match_model(found, read_model(model, "`model`")), str):
        wanted = "the model that the certificates are about"
        raise InputError(f"`model` must be {wanted}, but {matched}; pass that model.")
    certificates, radii = (None, found) if stored.certificates is None else (found, radii)
    return Subject(certificates, radii, digest, versions, matched, searches, is_saved)


def _digest(*parts: Certificates | MaxShifts | None) -> str:
    """SHA-256 of what no file can hold, as `to_dict` gives it."""
    text = json.dumps([None if part is None else part.to_dict() for part in parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _radii(max_shifts: Any) -> MaxShifts | None:
    if max_shifts is None or isinstance(max_shifts, MaxShifts):
        return max_shifts
    if not is_path(max_shifts):
        raise InputError(
            "`max_shifts` must be what max_shift returns, or the name of a file that holds it, got "
            f"{type(max_shifts).__name__}."
        )
    found = files.read_stored(max_shifts).max_shifts
    if found is None:
        raise InputError(f"{os.fsdecode(max_shifts)} holds no largest shifts; write them with `apas max-shift --save`.")
    return found


@dataclass(frozen=True)
class Later:
    """A later model beside the one that was certified: how far it moved, the margins on it, and what an audit says."""

    measured: ShiftReport | None
    comparable: bool
    margins: tuple[float, ...] | None
    digest: str
    notes: tuple[str, ...]
    audit: AuditReport | None = None

    @property
    def beyond(self) -> str:
        """What differs besides parameters, or may, in sentences; empty if nothing does."""
        beginnings = (behind.DIFFERS, behind.NOT_IDENTIFIED, behind.OF_THE_PROCESS)
        return " ".join(note for note in self.notes if note.startswith((*beginnings, behind.NOT_MEASURED)))

    @property
    def layers(self) -> list[tuple[str, str, int, float]]:
        """Layer, kind, size and measured shift of each part of the model."""
        if self.measured is None:
            return []
        distances = self.measured.distances[1:, self.measured.norms.index(self.measured.p)].max(axis=1, initial=0.0)
        return [(*part, distance) for part, distance in zip(self.measured.parts, distances.tolist(), strict=True)]

    @property
    def counts(self) -> Counter[str]:
        """How many rows had which outcome."""
        return Counter(row.outcome.name for row in self.audit or ())


def read_later(subject: Subject, audit: Any, new_model: Any) -> Later | None:
    """What is known about a later model, or None."""
    if audit is None and new_model is None:
        return None
    told = None if audit is None else _read_audit(audit, subject)
    rows: Any = subject.rows
    margins, shift = None, None
    if new_model is not None:
        new = read_model(new_model, "`new_model`")
        digest = model_digest(new)
        if told is not None and told.new_digest != digest:
            raise InputError("`audit` must be about `new_model`, but it is about a model with another SHA-256.")
        base = None if told is not None or subject.matched is None else subject.matched.model
        successor = behind.read_successor(rows, new, base, validity_only=told is not None)
        margins = tuple(behind.rows_on(rows, successor).base_margins.tolist())
        shift, notes = successor.shift(rows.shifts), successor.notes
        if told is None and subject.certificates is not None:
            told = audited(subject.certificates, new, base=base, repairs=False)
    if told is not None:
        shift, digest, notes = told.shifts.get(rows.model_digest), told.new_digest, told.notes
    found = Later(shift, False, margins, digest, notes, told)
    same = shift is not None and behind.bounds_distance(rows.shifts) and shift.p == rows.shifts.order
    return replace(found, comparable=same and not found.beyond)


def _read_audit(audit: Any, subject: Subject) -> AuditReport:
    """An audit, or what a file holds of it, if it is about the very rows."""
    if isinstance(audit, AuditReport):
        report, points = audit, None if audit.points is None else table_digest(audit.points)
    elif is_path(audit):
        report, points = _from_file(os.fsdecode(audit))
    else:
        raise InputError(
            f"`audit` must be what audit returns, or the name of a file that `apas audit --json` wrote, got "
            f"{type(audit).__name__}."
        )
    items: Any = subject.rows
    asked = [(label, plain(item.target), item.delta) for label, item in zip(subject.labels, items, strict=True)]
    labels = [plain(label) for label in report._labels()]
    same = [(label, plain(row.target), row.delta) for label, row in zip(labels, report, strict=True)] == asked
    if subject.certificates is not None:
        answers = [(item.verdict.name, str(item.claim)) for item in subject.certificates]
        same = same and [(row.verdict, row.claim) for row in report] == answers
    if not same or points != table_digest(subject.rows.points):
        raise InputError("`audit` must be about the rows of `certificates`, but it is about others; audit these.")
    if report.shifts and subject.rows.model_digest not in report.shifts:
        raise InputError("`audit` must measure from the model that `certificates` are about, but its base is another.")
    return report


def _from_file(name: str) -> tuple[AuditReport, str]:
    """The audit that a file holds, and the digest of its rows."""
    try:
        top = Fields(files.read_object(name, "audit"))
        if top.content.get("format") != AuditReport.FORMAT:
            wanted = f'an object with "format": "{AuditReport.FORMAT}"'
            raise InputError(f"it must hold {wanted}; write it with `apas audit --json`.")
        rows = [Fields.of(row, f"rows[{i}]") for i, row in enumerate(top.items(AuditReport.ROWS))]
        told = top.inner("shifts")
        report = AuditReport(
            [AuditRow.from_dict(row) for row in rows],
            points=None,
            new_digest=top.digest("new_digest"),
            shifts={key: ShiftReport.from_dict(told.inner(key)) for key in told.content},
            notes=[str(note) for note in top.items("notes")],
            index=[row.any("row") for row in rows],
        )
        return report, top.digest("points_digest")
    except InputError as error:
        raise InputError(f"{name} is not a usable audit: {error}") from None


WORK = 4_000_000_000  # about how many products of a parameter and a number a page may cost: some ten seconds
FEWEST, MOST = 500, 4000  # draws per row: as many as the work allows between the two
#: How many deltas a curve has besides those that rows were certified at, and how many bars a histogram.
DELTAS, BARS = 12, 30
OWN = 3  # of certified deltas, so many are put on the curve
CONFIDENCE = 0.999
UNCERTIFIED = "No row is certified at any size of shifts."
NO_MODEL = "It needs the model that was certified: pass model (--model)."
BLOCK = 4_000_000  # numbers of a block of directions


Drawn: TypeAlias = dict[str, dict[str, Any]]


def draw(subject: Subject, later: Later | None, entropy: int) -> tuple[Drawn, dict[str, str]]:
    """The curves and histograms that the page draws anew, as its plots read them; and why a part is left out."""
    found = {"curves": _draw_curves(subject, later, entropy), "histograms": _draw_histograms(subject, entropy)}
    why = {name: part for name, part in found.items() if isinstance(part, str)}
    return {name: part for name, part in found.items() if not isinstance(part, str)}, why


def _draw_curves(subject: Subject, later: Later | None, entropy: int) -> dict[str, Any] | str:
    """The share of shifts that keep the class, for the first rows, at deltas that all rows share; or why not."""
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
    question, _ = behind.ask_again(subject.rows, matched)
    rows, draws = _affordable(question)
    points: Any = question.X
    if not matched.network_only:
        points, _ = behind.rows_of(matched.model, subject.rows.points, subject.rows.feature_names)
    points = points.iloc[:rows] if is_frame(points) else points[:rows]
    how: dict[str, Any] = {"shifts": subject.rows.shifts, "method": Sampling(confidence=CONFIDENCE, n_samples=draws)}
    found = robust_fraction(matched.model, points, deltas, target=question.target[:rows], rng=entropy, **how)
    first = found[0]
    order = first.deltas.argsort()
    # the ends of a band are rounded outwards, so that it holds as it is written
    return {
        "deltas": first.deltas[order].tolist(),
        "estimate": [_digits(c.estimate[order]) for c in found],
        "lower": [[float(at_least(v)) for v in c.lower[order].tolist()] for c in found],
        "upper": [[float(at_most(v)) for v in c.upper[order].tolist()] for c in found],
        **{name: getattr(first, name) for name in ("draws", "confidence", "measure")},
    }


def _draw_histograms(subject: Subject, entropy: int) -> dict[str, Any] | str:
    """The margins on models shifted by what each row was certified at, counted in bars; or why there are none."""
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
    question = behind.ask_again(subject.rows, subject.matched)[0].at(deltas)
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
    told = {"failures": np.count_nonzero(~(margins > some.band), axis=0).tolist(), "deltas": some.delta.tolist()}
    return {**_count_bars(margins), **told, "draws": draws, "listed": listed}


def _count_bars(margins: Floats) -> dict[str, list[Any]]:
    """Count the margins (draws, rows) of each row in bars of its own."""
    finite = np.isfinite(margins)
    ends = np.where(finite, margins, np.inf).min(axis=0), np.where(finite, margins, -np.inf).max(axis=0)
    lows, highs = (np.where(finite.any(axis=0), end, 0.0) for end in ends)
    widths = np.where(highs > lows, (highs - lows) / (BARS - 1), 1.0 / BARS)
    starts = np.floor(lows / widths) * widths  # so that 0 is the end of a bar: none stands on both sides
    with np.errstate(invalid="ignore"):
        bars = np.clip((margins - starts) / widths, 0, BARS - 1)
    columns = zip(bars.T, finite.T, strict=True)
    counts = [np.bincount(bar[fine].astype(np.intp), minlength=BARS).tolist() for bar, fine in columns]
    unfit = np.count_nonzero(~finite, axis=0).tolist()
    return {"starts": _digits(starts), "widths": _digits(widths), "counts": counts, "unfit": unfit}


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
