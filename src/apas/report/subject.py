"""What a report is about: certificates, the largest shifts of the same rows, and the model if it is at hand."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from apas._validation import is_path
from apas.certification.max_shift.result import MaxShifts
from apas.certification.results import Certificates
from apas.contracts.audit import Matched, match_model
from apas.contracts.file import read_content, read_stored, stored_content
from apas.contracts.json_values import read_object
from apas.contracts.shiftsets import with_models
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import plain
from apas.errors import InputError
from apas.shifts.distance import read_model
from apas.shifts.observed import ObservedShifts


@dataclass(frozen=True, eq=False)
class Subject:
    """Rows with what is known about them, as a certificate file holds them."""

    certificates: Certificates | None
    radii: MaxShifts | None
    digest: str
    versions: dict[str, str]
    matched: Matched | None = None
    searches: int | None = None

    @property
    def rows(self) -> Certificates | MaxShifts:
        """What knows the rows: their values, labels and readings."""
        rows = self.certificates if self.certificates is not None else self.radii
        assert rows is not None
        return rows

    @property
    def labels(self) -> list[Any]:
        """What the rows are called, as JSON values."""
        return [plain(label) for label in self.rows._labels()]


def read_subject(certificates: Any, max_shifts: Any, model: Any) -> Subject:
    """Check what `write_report` was given, and bring it into one form."""
    searches, known, shifts = None, None, None
    if is_path(certificates):
        content = read_object(certificates, "certificate file")
        stored = read_stored(certificates)
        radii = _radii(max_shifts)
        if radii is not None:
            if stored.certificates is None:
                raise InputError(
                    "`max_shifts` goes with certificates, but the file already holds largest shifts alone."
                )
            content = stored_content(stored.certificates, radii)
    else:
        found = certificates
        if isinstance(certificates, Counterfactuals):
            searches, found = len(certificates), certificates.certificates
            if not len(found):
                raise InputError(
                    "`certificates` must hold at least one certificate, but none of these counterfactuals has one; "
                    "pass a delta to generate, or certify their points."
                )
        if not isinstance(found, Certificates | MaxShifts):
            raise InputError(
                "`certificates` must be what certify, generate, max_shift or load_certificates returns, or the name of "
                f"a certificate file, got {type(certificates).__name__}."
            )
        radii = _radii(max_shifts)
        if radii is not None and isinstance(found, MaxShifts):
            raise InputError("`max_shifts` goes with certificates, but `certificates` are largest shifts already.")
        own = found.max_shifts if isinstance(found, Certificates) else None
        content, known = stored_content(found, own if radii is None else radii), found.model
        shifts = found.shifts if isinstance(found.shifts, ObservedShifts) else None
    subject = _of_content(content, shifts)
    return replace(subject, matched=_matched(subject.rows, model, known), searches=searches)


def _radii(max_shifts: Any) -> MaxShifts | None:
    if max_shifts is None or isinstance(max_shifts, MaxShifts):
        return max_shifts
    if not is_path(max_shifts):
        raise InputError(
            "`max_shifts` must be what max_shift returns, or the name of a file that holds it, got "
            f"{type(max_shifts).__name__}."
        )
    found = read_stored(max_shifts).max_shifts
    if found is None:
        raise InputError(f"{os.fsdecode(max_shifts)} holds no largest shifts; write them with `apas max-shift --save`.")
    return found


def _of_content(content: dict[str, Any], shifts: ObservedShifts | None) -> Subject:
    if not content["certificates"]:
        raise InputError("`certificates` must hold at least one row, got none; there is nothing to report.")
    stored = read_content(content)
    if shifts is not None:  # a file has only the fingerprints of listed models
        for found in (stored.certificates, stored.max_shifts):
            if found is not None:
                found.shifts = with_models(found.shifts, shifts.models)
    return Subject(stored.certificates, stored.max_shifts, content["digest"], dict(content["versions"]))


def _matched(rows: Certificates | MaxShifts, model: Any, known: Any) -> Matched | None:
    if model is None:
        return None if known is None else Matched(known)
    matched = match_model(rows, read_model(model, "`model`"))
    if isinstance(matched, str):
        raise InputError(f"`model` must be the model that the certificates are about, but {matched}; pass that model.")
    return matched
