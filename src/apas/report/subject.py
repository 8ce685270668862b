"""What a report is about: certificates, the largest shifts of the same rows, and the model if it is at hand."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

from apas._validation import is_path
from apas.certification.max_shift.result import MaxShifts
from apas.certification.results import Certificates
from apas.contracts.certificate_file import check_same_rows, own_versions, read_stored, stored_content, unsaved
from apas.contracts.certified_model import Matched, match_model, with_readings
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import plain
from apas.errors import InputError
from apas.shifts.distance import read_model


@dataclass(frozen=True, eq=False)
class Subject:
    """Rows with what is known about them, and how to tell them from others."""

    certificates: Certificates | None
    radii: MaxShifts | None
    digest: str
    versions: dict[str, str]
    matched: Matched | None = None
    searches: int | None = None
    is_saved: bool = True

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
    searches, found, digest, versions, already = None, certificates, "", own_versions(), "`certificates` are"
    if is_path(certificates):
        stored = read_stored(certificates)
        found = stored.certificates if stored.certificates is not None else stored.max_shifts
        digest, versions, already = stored.digest, stored.versions, "the file already holds"
    elif isinstance(certificates, Counterfactuals):
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
        words = "largest shifts alone" if is_path(certificates) else "largest shifts already"
        raise InputError(f"`max_shifts` goes with certificates, but {already} {words}.")
    if not len(found):
        raise InputError("`certificates` must hold at least one row, got none; there is nothing to report.")
    found = with_readings(found)
    if radii is not None:
        check_same_rows(found, radii)
        digest, versions = "", own_versions()
    elif isinstance(found, Certificates):
        radii = found.max_shifts
    is_saved = bool(digest) or not unsaved(found, radii)
    digest = digest or (stored_content(found, radii)["digest"] if is_saved else _digest(found, radii))
    matched: Any = None if found.model is None else Matched(found.model)
    if model is not None and isinstance(matched := match_model(found, read_model(model, "`model`")), str):
        wanted = "the model that the certificates are about"
        raise InputError(f"`model` must be {wanted}, but {matched}; pass that model.")
    certificates, radii = (found, radii) if isinstance(found, Certificates) else (None, found)
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
    found = read_stored(max_shifts).max_shifts
    if found is None:
        raise InputError(f"{os.fsdecode(max_shifts)} holds no largest shifts; write them with `apas max-shift --save`.")
    return found
