"""Certificate files: written in one step, read with every field checked."""

from __future__ import annotations

import math
import os
import platform
import reprlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apas._atomic import write_text
from apas._validation import is_frame
from apas.certification.certificate import (
    BaseEvidence,
    BoundEvidence,
    Certificate,
    CornerShift,
    DrawnShift,
    Evidence,
    KeptShift,
    Witness,
)
from apas.certification.claims import Every, Most, Verdict
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.methods.enumeration import EnumerationEvidence
from apas.certification.methods.sampling import SamplingEvidence
from apas.certification.results import Certificates
from apas.contracts.json_values import (
    Fields,
    as_number,
    content_digest,
    described_table,
    read_object,
    read_table,
    table_cells,
    written,
)
from apas.contracts.row_fingerprints import Origin, Reading, question_of, readings, rows_of
from apas.contracts.shiftsets import described_shifts, read_shifts
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import plain
from apas.errors import InputError
from apas.models.digest import model_digest
from apas.shifts.linf import LinfShifts

_CERTIFICATE = ("verdict", "claim", "delta", "target", "method", "reason", "evidence", "witness")
_MAX_SHIFT = ("delta", "upper", "provable", "broken_at", "exact", "reached_limit", "reason", "target", "claim", "trace")
#: Stream of the one draw that asks a listed model, as `apas.certification.methods.sampling` has it.
_LISTED = (0, "listed")
_SIGNS = {"-": -1, "0": 0, "+": 1}


def described_certificate(certificate: Certificate) -> dict[str, Any]:
    """A certificate as JSON values."""
    evidence = certificate.evidence
    if not isinstance(evidence, BaseEvidence | BoundEvidence | SamplingEvidence | EnumerationEvidence):
        raise InputError(
            f"certificates with evidence of type {type(evidence).__name__} cannot be written to a file: a reader would "
            "not know it; use the methods of apas."
        )
    return {**certificate.to_dict(), "target": plain(certificate.target)}


def read_certificate(about: Fields, shifts: Any) -> Certificate:
    """The certificate that an entry of a file holds."""
    about.only(*_CERTIFICATE)
    evidence, delta = _read_evidence(about.inner("evidence")), about.number("delta", above=0)
    witness = None if about.is_null("witness") else _read_witness(about.inner("witness"), shifts, delta, evidence)
    return Certificate(
        _read_claim(about.inner("claim")),
        Verdict[about.choice("verdict", *Verdict.__members__)],
        delta,
        read_label(about, "target"),
        about.text("method"),
        evidence,
        about.text("reason"),
        witness,
    )


def read_max_shift(about: Fields) -> MaxShift:
    """The largest shift that an entry of a file holds; null stands for infinity."""
    about.only(*_MAX_SHIFT)
    names = ("delta", "upper", "provable", "broken_at")
    sizes = {name: math.inf if about.is_null(name) else about.number(name) for name in names}
    if min(sizes.values()) < 0 or not math.isfinite(sizes["delta"]):
        raise InputError(f"{about.where} must hold a finite delta, and numbers of at least 0.")
    trace = about.inner("trace")
    for key, value in trace.content.items():
        if key == "rungs":
            if None in map(as_number, trace.items(key)):
                raise trace.wrong(key, "a list of finite numbers")
        elif not isinstance(value, str | bool | int | float):
            raise trace.wrong(key, "a number, a text or a truth value")
    if "rungs_ratio" in trace.content:  # `MaxShift.rungs` counts from these: a ratio of almost 1 would not end
        trace.number("rungs_ratio", above=1.001)
        trace.number("rungs_from", above=0)
        trace.number("limit", above=0)
    return MaxShift(
        **sizes,
        exact=about.flag("exact"),
        reached_limit=about.flag("reached_limit"),
        claim=_read_claim(about.inner("claim")),
        target=read_label(about, "target"),
        reason=about.text("reason"),
        trace=trace.content,
    )


def read_label(about: Fields, key: str) -> Any:
    """A class label: a number, a text or a truth value."""
    value = about.any(key)
    if not isinstance(value, str | bool) and as_number(value) is None:
        raise about.wrong(key, "a class label, a number or a text")
    return value


def _read_claim(about: Fields) -> Every | Most:
    if about.choice("kind", "every", "most") == "every":
        about.only("kind", "measure", "rows")
        return Every(about.text("measure"), about.integer("rows", 1))
    about.only("kind", "coverage", "confidence", "measure", "rows", "tries")
    return Most(
        about.number("coverage"),
        about.number("confidence"),
        about.text("measure"),
        about.integer("rows", 1),
        about.integer("tries", 1),
    )


def _read_evidence(about: Fields) -> Evidence:
    return _EVIDENCE[about.choice("kind", *_EVIDENCE)](about)


def _base(about: Fields) -> BaseEvidence:
    if any(about.only("kind", "draws", "failures").integer(key) for key in ("draws", "failures")):
        raise InputError(f"{about.where} must have no draws: the unshifted model alone decided.")
    return BaseEvidence()


def _bound(about: Fields) -> BoundEvidence:
    about.only("kind", "step", "bound", "nodes", "exact")
    bound = None if about.is_null("bound") else about.number("bound")
    return BoundEvidence(about.text("step"), bound, about.integer("nodes"), about.flag("exact"))


def _sampling(about: Fields) -> SamplingEvidence:
    counts = ("samples", "allowed", "refuting", "draws", "failures", "doubtful")
    about.only("kind", "entropy", "purpose", *counts, "first_failure")
    first = None if about.is_null("first_failure") else about.integer("first_failure")
    numbers = {key: about.integer(key) for key in counts}
    return SamplingEvidence(about.entropy("entropy"), about.text("purpose"), **numbers, first_failure=first)


def _enumeration(about: Fields) -> EnumerationEvidence:
    about.only("kind", "lower", "upper", "evaluated", "open", "stopped")
    lower, upper = about.number("lower"), about.number("upper")
    if not 0 <= lower <= upper <= 1:
        raise InputError(f"{about.where} must have bounds on a share, of which the lower one is not the larger.")
    stopped = about.choice("stopped", "settled", "decided", "gap", "limit", "rounding")
    return EnumerationEvidence(lower, upper, about.integer("evaluated", 1), about.integer("open"), stopped, None)


_EVIDENCE: dict[str, Callable[[Fields], Evidence]] = {
    "model": _base,
    "bound": _bound,
    "sampling": _sampling,
    "enumeration": _enumeration,
}


def _read_witness(about: Fields, shifts: Any, delta: float, evidence: Evidence) -> Witness:
    kind = about.choice("kind", "draw", "corner", "parameters")
    if kind == "draw":
        index = about.only("kind", "index").integer("index")
        stream = (evidence.entropy, evidence.purpose) if isinstance(evidence, SamplingEvidence) else _LISTED
        return DrawnShift(shifts, delta, *stream, index)
    size = about.number("delta", above=0)
    if kind == "parameters":
        values = [as_number(value) for value in about.only("kind", "delta", "values").items("values")]
        if None in values:
            raise about.wrong("values", "a list of finite numbers")
        return KeptShift(size, np.array(values, dtype=np.float64))
    text = about.only("kind", "delta", "signs").text("signs")
    if not isinstance(shifts, LinfShifts) or not set(text) <= set(_SIGNS):
        raise about.wrong("signs", "a text of -, 0 and +, with shifts in a box")
    return CornerShift(shifts, size, np.array([_SIGNS[sign] for sign in text], dtype=np.int8))


FORMAT, VERSION = "apas-certificates", 1


def stored_content(found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None) -> dict[str, Any]:
    """What a file holds, its digest included."""
    certificates, radii = (found, max_shifts) if isinstance(found, Certificates) else (None, found)
    if radii is not None and radii is not found:
        _check_same_rows(found, radii)
    read = _fingerprints_of(found)
    inputs = [None] * len(found) if found.inputs is None else table_cells(found.inputs)
    lines = zip(found._labels(), table_cells(found.points), inputs, read, strict=True)
    entries = [
        {
            "row": plain(label),
            "values": values,
            "encoded": list(reading.encoded),
            "input": start,
            "margins": {"model": reading.margin, "first_draw": reading.first_draw},
            "certificate": None if certificates is None else described_certificate(certificates[i]),
            "max_shift": None if radii is None else radii[i].to_dict(),
        }
        for i, (label, values, start, reading) in enumerate(lines)
    ]
    origin = read[0].origin if read else Origin(False, None, None)
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "versions": _versions(),
        "model": {"digest": found.model_digest, "preprocessing": origin.preprocessing, "network": origin.network},
        "shifts": described_shifts(found.shifts),
        "space": origin.space,
        "feature_names": None if found.feature_names is None else list(found.feature_names),
        "points": described_table(found.points),
        "inputs": None if found.inputs is None else described_table(found.inputs),
        "certificates": entries,
    }
    return {**content, "digest": content_digest(content)}


def _versions() -> dict[str, str]:
    """What writes the file."""
    apas = str(sys.modules["apas"].__version__)
    return {"apas": apas, "numpy": np.__version__, "python": platform.python_version()}


def _fingerprints_of(found: Certificates | MaxShifts) -> list[Reading]:
    """What the model makes of each row: asked of the model if it is at hand, else as a file said."""
    model = found.model
    if model is None:
        if found.readings is None:
            raise InputError(
                "`certificates` must come from certify, generate, max_shift or load_certificates: the model that these "
                "are about is not known."
            )
        return list(found.readings)
    if model_digest(model) != found.model_digest:
        raise InputError("`certificates` are about a model that was changed since; certify again and save at once.")
    points, encoded = rows_of(model, found.points, found.feature_names)
    return readings(question_of(model, encoded, points, list(found), found.shifts), list(found))


def _check_same_rows(found: Certificates | MaxShifts, radii: Any) -> None:
    if not isinstance(radii, MaxShifts):
        raise InputError(f"`max_shifts` must be what max_shift returns, got {type(radii).__name__}.")
    same = (
        radii.model_digest == found.model_digest
        and radii.shifts.to_dict() == found.shifts.to_dict()
        and table_cells(radii.points) == table_cells(found.points)
        and [plain(item.target) for item in radii] == [plain(item.target) for item in found]
    )
    if not same:
        raise InputError(
            "`max_shifts` must be about the same rows, targets, shifts and model as `certificates`; ask max_shift "
            "about certificates.points."
        )


_TOP = (
    "format",
    "version",
    "versions",
    "model",
    "shifts",
    "space",
    "feature_names",
    "points",
    "inputs",
    "certificates",
    "digest",
)
_ENTRY = ("row", "values", "encoded", "input", "margins", "certificate", "max_shift")


@dataclass(frozen=True)
class Stored:
    """What a file holds: certificates, largest shifts, or both about the same rows."""

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
    common: dict[str, Any] = {**about, **_rows(top, entries), "readings": _read_fingerprints(top, entries)}
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


def _read_fingerprints(top: Fields, entries: list[Fields]) -> tuple[Reading, ...]:
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
    target = _json_path(path)
    found = certificates.certificates if isinstance(certificates, Counterfactuals) else certificates
    if not isinstance(found, Certificates | MaxShifts):
        raise InputError(
            f"`certificates` must be what certify, generate or max_shift returns, got {type(certificates).__name__}."
        )
    kept = found.max_shifts if isinstance(found, Certificates) and max_shifts is None else max_shifts
    content = stored_content(found, kept)
    try:
        write_text(target, written(content))
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


def _json_path(path: str | os.PathLike[str]) -> Path:
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    if target.suffix.lower() != ".json":
        raise InputError(f"`path` must end in .json, got {str(target)!r}.")
    return target
