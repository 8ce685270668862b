"""Certificate files: written in one step, read with every field checked.

This is the one place that knows the format; objects say with `to_dict` and `from_dict` what they are in it. What no
reader would know (a shift set, a claim or evidence of somebody's own) is refused here, when it is written.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import platform
import reprlib
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apas._atomic import write_text
from apas._fields import Fields
from apas._validation import is_frame
from apas.certification.certificate import Certificate
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.results import Certificates
from apas.contracts.certified_model import Origin, Reading, known_readings
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import plain
from apas.errors import InputError, UnsafeFile
from apas.models.files.json import parse_json
from apas.shifts.base import KINDS as SETS

FORMAT, VERSION = "apas-certificates", 2
#: Larger files are refused before they are read; a thousand certificates take one or two million bytes.
MOST_BYTES = 1 << 28


def read_object(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """The object that a file holds."""
    try:
        file = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a {what}, got {type(path).__name__}.") from None
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # before it is opened, as a pipe would keep us waiting
            raise InputError(f"{file} cannot be read: it is not a plain file.")
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # a zero byte in the name
        if isinstance(error, InputError):
            raise
        raise InputError(f"`path` must be the name of a {what}, got {str(file)!r}: {error}.") from None
    if len(raw) > MOST_BYTES:
        raise InputError(f"{file} is larger than a {what} may be ({MOST_BYTES} bytes); keep fewer rows in a file.")
    if raw[:1] == b"\x80" or raw[:2] == b"PK":
        raise UnsafeFile(f"{file} is not JSON but looks like a pickle or an archive, which could run code when read.")
    try:
        content = parse_json(file, raw, finite=True)
    except MemoryError:
        raise InputError(f"{file} needs more memory than there is; keep fewer rows in a file.") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} is not a {what}: it must hold an object, got {type(content).__name__}.")
    return content


def as_json(content: Any) -> str:
    """The content as JSON, one certificate per line: strict, and every float with all the digits that it needs."""
    parts = []
    for key, value in content.items():
        if key == "certificates" and value:
            lines = ",\n  ".join(json.dumps(entry, allow_nan=False) for entry in value)
            parts.append(f' "{key}": [\n  {lines}\n ]')
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def content_digest(content: dict[str, Any]) -> str:
    """SHA-256 of all but the field `digest`: keys sorted, no spaces, ASCII."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def stored_content(found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None) -> dict[str, Any]:
    """What a file holds, its digest included."""
    certificates, radii = (found, max_shifts) if isinstance(found, Certificates) else (None, found)
    if radii is not None and radii is not found:
        check_same_rows(found, radii)
    unknown = unsaved(found, radii)
    if unknown:
        raise InputError(f"certificates {unknown}.")
    read = known_readings(found)
    inputs = [None] * len(found) if found.inputs is None else table_cells(found.inputs)
    answers = zip(*(answers or [None] * len(found) for answers in (certificates, radii)), strict=True)
    lines = zip(found._labels(), table_cells(found.points), inputs, read, answers, strict=True)
    entries = [
        {
            "row": plain(label),
            "values": values,
            "encoded": list(reading.encoded),
            "input": start,
            "margins": {"model": reading.margin, "first_draw": reading.first_draw},
            "certificate": None if certificate is None else certificate.to_dict(),
            "max_shift": None if radius is None else radius.to_dict(),
        }
        for label, values, start, reading, (certificate, radius) in lines
    ]
    origin = read[0].origin if read else Origin(False, None, None)
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "versions": own_versions(),
        "model": {"digest": found.model_digest, "preprocessing": origin.preprocessing, "network": origin.network},
        "shifts": found.shifts.to_dict(),
        "space": origin.space,
        "feature_names": None if found.feature_names is None else list(found.feature_names),
        "points": described_table(found.points),
        "inputs": None if found.inputs is None else described_table(found.inputs),
        "certificates": entries,
    }
    return {**content, "digest": content_digest(content)}


def unsaved(found: Certificates | MaxShifts, radii: MaxShifts | None) -> str:
    """Why certificates cannot be written to a file, in words; empty if they can."""
    if not SETS.know(found.shifts):
        return (
            f"about {type(found.shifts).__name__} cannot be written to a file: a reader would not know the set; use "
            "LinfShifts, LpShifts, SparseShifts, EllipsoidShifts, GaussianShifts, ObservedShifts, InputNoise or "
            "JointShifts"
        )
    # what can be saved is a matter of classes: one answer of each combination of them is asked
    each = {tuple(map(type, vars(item).values())): item for item in (*found, *(radii or ()))}
    unknown = next((said for item in each.values() if (said := item.unsaved())), None)
    why = "cannot be written to a file: a reader would not know it; use the methods of apas"
    return f"with {unknown} {why}" if unknown else ""


def own_versions() -> dict[str, str]:
    """What computes here."""
    return {"apas": str(sys.modules["apas"].__version__), "numpy": np.__version__, "python": platform.python_version()}


def check_same_rows(found: Certificates | MaxShifts, radii: Any) -> None:
    """Refuse largest shifts that are not about the very question of certificates."""
    if not isinstance(radii, MaxShifts):
        raise InputError(f"`max_shifts` must be what max_shift returns, got {type(radii).__name__}.")
    if not (
        radii.model_digest == found.model_digest
        and radii.shifts.to_dict() == found.shifts.to_dict()
        and table_cells(radii.points) == table_cells(found.points)
        and [plain(item.target) for item in radii] == [plain(item.target) for item in found]
    ):
        raise InputError(
            "`max_shifts` must be about the same rows, targets, shifts and model as `certificates`; ask max_shift "
            "about certificates.points."
        )


_TOP = ("format", "version", "versions", "model", "shifts", "space", "feature_names", "points", "inputs")
_ENTRY = ("row", "values", "encoded", "input", "margins", "certificate", "max_shift")


@dataclass(frozen=True)
class Stored:
    """What a file holds: certificates, largest shifts, or both about the same rows."""

    certificates: Certificates | None
    max_shifts: MaxShifts | None
    digest: str
    versions: dict[str, str]


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
    """Make of JSON values what was written, in this or an older version."""
    version = content.get("version")
    if "version" not in content:
        raise InputError("it has no version: this is what --json prints, not a file; write one with --save.")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise InputError(
            f"it has version {reprlib.repr(version)}, but this apas reads versions 1 to {VERSION}; use a newer apas."
        )
    top = Fields(content).only(*_TOP, "certificates", "digest")
    if top.digest("digest") != content_digest(content):
        raise InputError(
            "its digest does not match what it holds, so it was damaged or edited since it was written; get it again."
        )
    top = top if version == VERSION else Fields(_upgraded(content))
    about, listed = _about(top), enumerate(top.items("certificates"))
    entries = [Fields.of(entry, f"certificates[{i}]").only(*_ENTRY) for i, entry in listed]
    common: dict[str, Any] = {**about, **_rows(top, entries), "readings": _readings(top, entries)}
    stated = [e.inner("certificate") for e in entries if not e.is_null("certificate")]
    certificates = [Certificate.from_dict(told, about["shifts"]) for told in stated]
    radii = [MaxShift.from_dict(e.inner("max_shift")) for e in entries if not e.is_null("max_shift")]
    if not all(len(found) in (0, len(entries)) for found in (certificates, radii)):
        raise InputError("either every row or none must have a certificate, and likewise a largest shift.")
    if entries and not certificates and not radii:
        raise InputError("each row must have a certificate or a largest shift.")
    shifts = MaxShifts(radii, **common) if radii else None
    own = getattr(certificates[0].claim, "results", Certificates) if certificates else Certificates
    found = None if radii and not certificates else own(certificates, **common, max_shifts=shifts)
    return Stored(found, shifts, content["digest"], content["versions"])


def _upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """What a file of version 1 says in the words of this version: its sampling tests were fixed, and did not say so."""
    entries = copy.deepcopy(content["certificates"]) if isinstance(content.get("certificates"), list) else None
    for entry in entries or ():
        certificate = entry.get("certificate") if isinstance(entry, dict) else None
        evidence = certificate.get("evidence") if isinstance(certificate, dict) else None
        if isinstance(evidence, dict) and evidence.get("kind") == "sampling":
            if "test" in evidence:
                raise InputError("evidence.test is a field that version 1 does not know.")
            evidence["test"] = "fixed"
    return {**content, "certificates": entries}


def _about(top: Fields) -> dict[str, Any]:
    """What a file says about all rows."""
    versions = top.inner("versions")
    for key in versions.content:
        versions.text(key)
    names = None if top.is_null("feature_names") else tuple(top.items("feature_names"))
    if names is not None and not all(isinstance(name, str) for name in names):
        raise top.wrong("feature_names", "a list of texts or null")
    digest = top.inner("model").only("digest", "preprocessing", "network").digest("digest")
    return {"model_digest": digest, "shifts": SETS.read(top.inner("shifts")), "feature_names": names}


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
    origin, found = Origin(about.flag("preprocessing"), network, space), []
    for entry in entries:
        encoded, margins = tuple(entry.numbers("encoded")), entry.inner("margins").only("model", "first_draw")
        known = [None if margins.is_null(key) else margins.number(key) for key in ("model", "first_draw")]
        found.append(Reading(origin, encoded, *known))
    return tuple(found)


def save_certificates(
    certificates: Certificates | Counterfactuals | MaxShifts,
    path: str | os.PathLike[str],
    *,
    max_shifts: MaxShifts | None = None,
) -> None:
    """Write certificates to a file that anyone can check again, in one step.

    Parameters
    ----------
    certificates : Certificates, Counterfactuals or MaxShifts
        What `certify`, `generate` or `max_shift` returned, or a part of it. Of counterfactuals those that were found
        and certified.
    path : path
        Must end in ``.json``.
    max_shifts : MaxShifts, optional
        What `max_shift` said about the same rows of the same model, to be kept beside the certificates.

    Notes
    -----
    The format is described on the page "Certificate file". Nobody ever sees half of a file: it is written beside
    `path`, made durable, and put in place.

    Examples
    --------
    >>> import apas, tempfile
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)
    >>> path = tempfile.mkdtemp() + "/certificates.json"
    >>> save_certificates(certificates, path)
    >>> load_certificates(path) == certificates
    True
    """
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    if target.suffix.lower() != ".json":
        raise InputError(f"`path` must end in .json, got {str(target)!r}.")
    found = certificates.certificates if isinstance(certificates, Counterfactuals) else certificates
    if not isinstance(found, Certificates | MaxShifts):
        raise InputError(
            f"`certificates` must be what certify, generate or max_shift returns, got {type(certificates).__name__}."
        )
    kept = found.max_shifts if isinstance(found, Certificates) and max_shifts is None else max_shifts
    try:
        write_text(target, as_json(stored_content(found, kept)))
    except OSError as error:
        raise InputError(f"`path` must be a file that can be written, but {target} cannot: {error.strerror}.") from None


def load_certificates(path: str | os.PathLike[str]) -> Certificates:
    """Read certificates that `save_certificates` wrote, in this or an older version.

    Parameters
    ----------
    path : path

    Returns
    -------
    Certificates
        Equal to those that were saved; `max_shifts` holds the largest shifts, if the file does. Nothing is checked
        against a model: see `verify`.
    """
    found = read_stored(path)
    if found.certificates is None:
        raise InputError(
            f"{path} holds the largest shifts of rows but no certificates; apas.verify and `apas verify` read it."
        )
    return found.certificates


#: Kinds of columns that a file may ask for; others are written as texts and read back as such.
KINDS = (
    *("float64", "float32", "float16"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (64, 32, 16, 8)),
    *("bool", "object", "str", "string", "category"),
    *(f"datetime64[{unit}]" for unit in ("ns", "us", "s")),
    *("Int64", "Int32", "Float64", "boolean"),
)
MOST_COLUMNS = 1 << 24  # wider tables are not read, also where there is no row to show how wide they are
_STRANGE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def described_table(rows: Any) -> dict[str, Any]:
    """What a table is besides its cells."""
    if not is_frame(rows):
        array = np.asarray(rows)
        return {"kind": "array", "columns": int(array.shape[1]), "dtype": _kind(array.dtype)}
    columns = [c if isinstance(c, str) else plain(c) for c in rows.columns]
    return {"kind": "frame", "columns": columns, "dtypes": [_kind(dtype) for dtype in rows.dtypes]}


def table_cells(rows: Any) -> list[list[Any]]:
    """The cells row by row as JSON values; a number that JSON lacks as an object, a missing one as null."""
    values = rows.to_numpy(dtype=object) if is_frame(rows) else np.asarray(rows)
    return [[_cell(cell) for cell in row] for row in values.tolist()]


def table_digest(rows: Any) -> str:
    """SHA-256 of the cells, by which two tables can be told apart."""
    return hashlib.sha256(json.dumps(table_cells(rows), allow_nan=False).encode()).hexdigest()


def read_table(about: Fields, cells: list[list[Any]], where: str) -> Any:
    """The table that was described, as an array or a data frame."""
    if about.choice("kind", "array", "frame") == "array":
        width = about.only("kind", "columns", "dtype").integer("columns")
        dtype = about.choice("dtype", *KINDS)
        if width > MOST_COLUMNS:
            raise about.wrong("columns", f"an integer up to {MOST_COLUMNS}")
        rows = [_read_row(row, width, where.format(i)) for i, row in enumerate(cells)]
        table = np.empty((len(rows), width), dtype=object)  # now that the rows are known to be as wide as they say
        for i, row in enumerate(rows):
            table[i] = row
        numpy_kind = dtype if dtype not in ("string", "category") else "object"
        return _cast(lambda: table.astype(numpy_kind), where.format(0))
    import pandas as pd

    names = about.only("kind", "columns", "dtypes").items("columns")
    kinds = [Fields({"dtype": d}, about.name("dtypes")).choice("dtype", *KINDS) for d in about.items("dtypes")]
    if len(kinds) != len(names) or not all(isinstance(n, str | int | float) for n in names):
        raise InputError(f"{about.where} must have a name and a dtype per column.")
    rows = [_read_row(row, len(names), where.format(i)) for i, row in enumerate(cells)]
    columns = [
        _cast(lambda c=c, d=d: pd.Series([row[c] for row in rows], dtype=d), f"column {names[c]!r}")
        for c, d in enumerate(kinds)
    ]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(len(rows)))
    return frame.set_axis(names, axis=1)


def _kind(dtype: Any) -> str:
    name = str(dtype)
    return name if name in KINDS else "object"


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    found = plain(value)
    return _cell(found) if isinstance(found, float) and not math.isfinite(found) else found


def _read_row(row: Any, width: int, where: str) -> list[Any]:
    if not isinstance(row, list) or len(row) != width:
        raise InputError(f"{where} must be a list of {width} cells.")
    cells = list(row)
    for i, cell in enumerate(row):
        if isinstance(cell, dict) and cell.keys() == {"number"} and str(cell["number"]) in _STRANGE:
            cells[i] = _STRANGE[str(cell["number"])]
        elif isinstance(cell, dict | list):
            raise InputError(f"{where} must hold numbers, texts, truth values or null.")
    return cells


def _cast(make: Any, where: str) -> Any:
    try:
        return make()
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where} must hold cells of the dtype that the file states ({error}).") from None
