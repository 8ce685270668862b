"""A certificate file read back: every field is checked before anything is made of it."""

from __future__ import annotations

import os
import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from apas._validation import is_frame
from apas.certify.certificate import Certificate
from apas.certify.certificates import Certificates
from apas.certify.maxshifts import MaxShift, MaxShifts
from apas.contracts.contents import FORMAT, VERSION
from apas.contracts.entries import read_certificate, read_max_shift
from apas.contracts.fields import Fields, as_number
from apas.contracts.jsontext import content_digest, read_object
from apas.contracts.readings import Origin, Reading
from apas.contracts.shiftsets import read_shifts
from apas.contracts.tables import read_table
from apas.errors import InputError

__all__ = ["Stored", "read_content", "read_stored"]

_TOP = (
    "format", "version", "versions", "model", "shifts", "space", "feature_names", "points", "inputs", "certificates",
    "digest",
)  # fmt: skip
_ENTRY = ("row", "values", "encoded", "input", "margins", "certificate", "max_shift")


@dataclass(frozen=True)
class Stored:
    """What a file holds: certificates, largest shifts, or both about the same rows.

    Attributes
    ----------
    certificates : Certificates or None
    max_shifts : MaxShifts or None
    """

    certificates: Certificates | None
    max_shifts: MaxShifts | None


def read_stored(path: str | os.PathLike[str]) -> Stored:
    """Read a certificate file."""
    content = read_object(path, "certificate file")
    if content.get("format") != FORMAT:
        raise InputError(
            f'{path} is not a certificate file: it must hold an object with "format": "{FORMAT}"; write one with '
            "apas.save_certificates, or with the option --save of a command."
        )
    try:
        return read_content(content)
    except InputError as error:
        raise InputError(f"{path} is not a usable certificate file: {error}") from None


def read_content(content: dict[str, Any]) -> Stored:
    """Make of JSON values what was written.

    A content of an older version is brought to the present one first; there is only one so far.
    """
    version = content.get("version")
    if "version" not in content:
        raise InputError("it has no version: this is what --json prints, not a file; write one with --save.")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise InputError(
            f"it has version {reprlib.repr(version)}, but this apas reads versions 1 to {VERSION}; use a newer apas."
        )
    top = Fields(content).only(*_TOP)
    if top.digest("digest") != content_digest(content):
        raise InputError(
            "its digest does not match what it holds, so it was damaged or edited since it was written; get it again."
        )
    about = _about(top)
    entries = [
        Fields.of(entry, f"certificates[{i}]").only(*_ENTRY) for i, entry in enumerate(top.items("certificates"))
    ]
    common: dict[str, Any] = {**about, **_rows(top, entries), "readings": _readings(top, entries)}
    answers = [_answers(entry, about["shifts"]) for entry in entries]
    certificates, radii = ([a[i] for a in answers if a[i] is not None] for i in (0, 1))
    if not all(len(found) in (0, len(entries)) for found in (certificates, radii)):
        raise InputError("either every row or none must have a certificate, and likewise a largest shift.")
    if entries and not certificates and not radii:
        raise InputError("each row must have a certificate or a largest shift.")
    shifts = MaxShifts(radii, **common) if radii else None  # type: ignore[arg-type]
    if not certificates and radii:
        return Stored(None, shifts)
    return Stored(Certificates(certificates, **common, max_shifts=shifts), shifts)  # type: ignore[arg-type]


def _about(top: Fields) -> dict[str, Any]:
    """What a file says about all rows."""
    versions = top.inner("versions")
    for key in versions.content:
        versions.text(key)
    names = None if top.is_null("feature_names") else tuple(top.items("feature_names"))
    if names is not None and not all(isinstance(name, str) for name in names):
        raise top.wrong("feature_names", "a list of texts or null")
    digest = top.inner("model").only("digest", "preprocessing", "network").digest("digest")
    return {"model_digest": digest, "shifts": read_shifts(top.inner("shifts")), "feature_names": names}


def _rows(top: Fields, entries: list[Fields]) -> dict[str, Any]:
    """The rows, what they were made from, and what they are called."""
    points = read_table(top.inner("points"), [e.any("values") for e in entries], "certificates[{}].values")
    inputs = None
    if not top.is_null("inputs"):
        inputs = read_table(top.inner("inputs"), [e.any("input") for e in entries], "certificates[{}].input")
    elif any(not e.is_null("input") for e in entries):
        raise InputError("inputs must describe the table of the original rows, since there are some.")
    labels = [e.any("row") for e in entries]
    if any(isinstance(label, dict | list) for label in labels):
        raise InputError("certificates[...].row must be a number, a text or null.")
    if not is_frame(points) and labels == list(range(len(labels))):
        return {"points": points, "inputs": inputs}
    import pandas as pd

    index = pd.Index(labels)
    points, inputs = (t.set_axis(index, axis=0) if t is not None and is_frame(t) else t for t in (points, inputs))
    return {"points": points, "inputs": inputs, "index": None if is_frame(points) else index}


def _readings(top: Fields, entries: list[Fields]) -> tuple[Reading, ...]:
    about = top.inner("model")
    network = None if about.is_null("network") else about.digest("network")
    space = None if top.is_null("space") else top.inner("space").content
    origin = Origin(about.flag("preprocessing"), network, space)
    return tuple(_reading(entry, origin) for entry in entries)


def _reading(entry: Fields, origin: Origin) -> Reading:
    encoded = [as_number(value) for value in entry.items("encoded")]
    if None in encoded:
        raise entry.wrong("encoded", "a list of finite numbers")
    margins = entry.inner("margins").only("model", "first_draw")
    known = [None if margins.is_null(key) else margins.number(key) for key in ("model", "first_draw")]
    return Reading(origin, tuple(np.array(encoded, dtype=np.float64).tolist()), *known)


def _answers(entry: Fields, shifts: Any) -> tuple[Certificate | None, MaxShift | None]:
    certificate = None if entry.is_null("certificate") else read_certificate(entry.inner("certificate"), shifts)
    return certificate, None if entry.is_null("max_shift") else read_max_shift(entry.inner("max_shift"))
