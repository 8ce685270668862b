"""Certificate files: written in one step, read with every field checked.

This is the one place that knows the format; objects say with `to_dict` and `from_dict` what they are in it. What no
reader would know (a shift set, a claim or evidence of somebody's own) is refused here, when it is written.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import reprlib
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from apas._atomic import refusing, write_parts
from apas._fields import Fields, parse_json
from apas._validation import is_frame, is_path
from apas.certification.certificate import Certificate
from apas.certification.max_shift.result import MaxShift, MaxShifts
from apas.certification.results import AnswerColumn, Certificates
from apas.contracts import certificate_lines as codec
from apas.contracts.certified_model import Origin, Readings, known_readings
from apas.counterfactuals.result import Counterfactuals
from apas.display.numbers import plain
from apas.errors import InputError, UnsafeFile
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
    with refusing(f"{file} cannot be read"):
        try:
            mode = file.stat().st_mode
        except ValueError as error:  # a zero byte in the name
            raise InputError(f"`path` must be the name of a {what}, got {str(file)!r}: {error}.") from None
        if not stat.S_ISREG(mode):  # before it is opened, as a pipe would keep us waiting
            raise InputError(f"{file} cannot be read: it is not a plain file.")
        with file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
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


def content_digest(content: dict[str, Any]) -> str:
    """SHA-256 of all but the field `digest`: keys sorted, no spaces, ASCII."""
    text = codec.write_sorted({key: value for key, value in content.items() if key != "digest"})
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def stored_content(found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None) -> dict[str, Any]:
    """What a file holds, its digest included."""
    return json.loads(b"".join(_written(found, max_shifts)))  # type: ignore[no-any-return]


def _blocks_of(
    found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None
) -> tuple[dict[str, Any], Iterator[tuple[list[str], list[str]]]]:
    """What a file says about all rows, and its entries in blocks."""
    certificates, radii = (found, max_shifts) if isinstance(found, Certificates) else (None, found)
    if radii is not None and radii is not found:
        check_same_rows(found, radii)
    unknown = unsaved(found, radii)
    if unknown:
        raise InputError(f"certificates {unknown}.")
    read = known_readings(found)
    top = described(found, read.origin if len(read) else Origin(False, None, None))
    items = [None if part is None else part._items for part in (certificates, radii)]
    return top, codec.entry_lines(found, items[0], items[1], read)


def line_parts(found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None) -> Iterator[bytes]:
    """The first line of a file in JSON Lines, and the lines of its rows, block by block."""
    top, blocks = _blocks_of(found, max_shifts)
    yield f"{codec.write_line(top)}\n".encode()
    for block, _ in blocks:
        yield "".join(f"{line}\n" for line in block).encode()


def _written(found: Certificates | MaxShifts, max_shifts: MaxShifts | None = None) -> Iterator[bytes]:
    """The bytes of a file, block by block."""
    top, blocks = _blocks_of(found, max_shifts)
    yield "".join(["{\n", *(f' "{key}": {codec.write_line(value)},\n' for key, value in top.items())]).encode()
    digest, between = hashlib.sha256(b'{"certificates":['), (b' "certificates": [\n  ', b"")
    for block, texts in blocks:
        yield between[0] + ",\n  ".join(block).encode()
        digest.update(between[1] + ",".join(texts).encode())
        between = (b",\n  ", b",")
    digest.update(b"]," + codec.write_sorted(top)[1:].encode())  # of all keys "certificates" is the first
    end = ' "certificates": []' if not len(found) else "\n ]"
    yield f'{end},\n "digest": "{digest.hexdigest()}"\n}}\n'.encode()


def described(found: Certificates | MaxShifts, origin: Origin) -> dict[str, Any]:
    """What a file says about all rows."""
    model = {"digest": found.model_digest, "preprocessing": origin.preprocessing, "network": origin.network}
    about = {"format": FORMAT, "version": VERSION, "versions": own_versions(), "model": model}
    about |= {"shifts": found.shifts.to_dict(), "space": origin.space}
    about["feature_names"] = None if found.feature_names is None else list(found.feature_names)
    tables = {"points": found.points, "inputs": found.inputs}
    return about | {name: None if t is None else codec.described_table(t) for name, t in tables.items()}


def sealed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of lines, and a last line that says how many rows they hold and the SHA-256 of all bytes above it."""
    digest, count = hashlib.sha256(), -1  # the first line is no row
    for block in blocks:
        digest.update(block)
        count += block.count(b"\n")
        yield block
    yield f"{codec.write_line({'rows': count, 'digest': digest.hexdigest()})}\n".encode()


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
        and codec.table_cells(radii.points) == codec.table_cells(found.points)
        and [plain(item.target) for item in radii] == [plain(item.target) for item in found]
    ):
        raise InputError(
            "`max_shifts` must be about the same rows, targets, shifts and model as `certificates`; ask max_shift "
            "about certificates.points."
        )


_Known = tuple[codec.Distinct, codec.Distinct]
_TOP = ("format", "version", "versions", "model", "shifts", "space", "feature_names", "points", "inputs")


@dataclass(frozen=True)
class Stored:
    """What a file holds: certificates, largest shifts, or both about the same rows."""

    certificates: Certificates | None
    max_shifts: MaxShifts | None
    digest: str
    versions: dict[str, str]


def read_stored(path: str | os.PathLike[str]) -> Stored:
    """Read a certificate file."""
    if str(path).lower().endswith((LINES, ".parquet")):
        (stored,) = stored_blocks(path, None)
        return stored
    try:
        return _read_laid_out(Path(path))
    except (InputError, OSError, TypeError, ValueError):  # what is wrong, if anything is, the whole of it tells
        pass
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


def as_stored(certificates: Any) -> Stored:
    """What a user passed, or named a file of; the digest of what was passed is not known yet."""
    if is_path(certificates):
        return read_stored(os.fsdecode(certificates))
    found = as_results(certificates, f"certify, generate, max_shift or {LOADED}")
    if isinstance(found, MaxShifts):
        return Stored(None, found, "", own_versions())
    return Stored(found, found.max_shifts, "", own_versions())


#: What else a user may pass who asks about results.
LOADED = "load_certificates returns, or the name of a certificate file"


def as_results(certificates: Any, made: str, kind: Any = Certificates | MaxShifts) -> Any:
    """Results that a user passed, those of counterfactuals among them; `made` says where one gets them."""
    found = certificates.certificates if isinstance(certificates, Counterfactuals) else certificates
    if not isinstance(found, kind):
        raise InputError(f"`certificates` must be what {made}, got {type(certificates).__name__}.")
    return found


def read_content(content: dict[str, Any]) -> Stored:
    """Make of JSON values what was written, in this or an older version."""
    version = _version(content)
    top = Fields(content).only(*_TOP, "certificates", "digest")
    if top.digest("digest") != content_digest(content):
        raise InputError(_DAMAGED)
    about, entries = _about(top), top.items("certificates")
    known = _answers(about, version)
    return _stored(about, [codec.read_entries(entries, 0, known)], known, content["digest"])


def read_rows_of(content: dict[str, Any], entries: Sequence[Any], labels: list[Any]) -> Certificates:
    """Certificates of entries that come from several files about one table, called by the labels."""
    about = _about(Fields(content).only(*_TOP))
    known = _answers(about, _version(content))
    # without largest shifts, which of one table some rows may have and others not
    block = codec.read_entries(entries, 0, known)._replace(labels=labels, radii=[-1] * len(entries))
    found = _stored(about, [block], known, "").certificates
    assert found is not None
    return found


_DAMAGED = "its digest does not match what it holds, so it was damaged or edited since it was written; get it again."


def _version(content: dict[str, Any]) -> int:
    version = content.get("version")
    if "version" not in content:
        raise InputError("it has no version: this is what --json prints, not a file; write one with --save.")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise InputError(
            f"it has version {reprlib.repr(version)}, but this apas reads versions 1 to {VERSION}; use a newer apas."
        )
    return version


def _read_laid_out(path: Path) -> Stored:
    """Read a file whose lines are as `save_certificates` writes them, block by block; an error if any is not."""
    if path.stat().st_size > MOST_BYTES or not path.is_file():
        raise InputError("it is no such file.")
    digest = hashlib.sha256(b'{"certificates":[')

    def blocks() -> Iterator[codec.Block]:
        comma = ""
        for block in _blocks(_entry_texts(file), codec.BLOCK, known):
            digest.update(f"{comma}{','.join(block.texts)}".encode())
            comma = ","
            yield block

    with path.open(encoding="ascii", newline="") as file:
        above = "".join(itertools.takewhile(lambda line: line != ' "certificates": [\n', file))
        told = parse_json(path, f'{above} "certificates": []}}'.encode(), finite=True)
        about = _about(Fields(told).only(*_TOP, "certificates"))
        known = _answers(about, _version(told))
        stored = _stored(about, blocks(), known, "")
        below = parse_json(path, f"{{{file.read()}".encode())
    digest.update(b"]," + codec.write_sorted({key: told[key] for key in _TOP})[1:].encode())
    if below != {"digest": digest.hexdigest()}:
        raise InputError(_DAMAGED)
    return replace(stored, digest=digest.hexdigest())


def _entry_texts(file: TextIO) -> Iterator[str]:
    """The entries of a file one by one, up to the line that ends their list."""
    lines = itertools.takewhile(lambda line: line != " ],\n", file)
    for line, after in itertools.pairwise(itertools.chain(lines, [""])):
        end = ",\n" if after else "\n"
        if not line.startswith("  ") or not line.endswith(end):
            raise InputError("its lines are others.")
        yield line[2 : -len(end)]


def _blocks(lines: Iterator[str], step: int, known: _Known) -> Iterator[codec.Block]:
    start = 0
    while some := list(itertools.islice(lines, step)):
        yield codec.read_lines(some, start, known)
        start += len(some)


#: How the names of files in JSON Lines end.
LINES = ".jsonl"


def stored_blocks(path: str | os.PathLike[str], rows: int | None = codec.BLOCK, start: int = 0) -> Iterator[Stored]:
    """What a file in JSON Lines or Parquet holds, so many rows at a time; all at once if None.

    Its digest is checked first, and rows up to number `start` are skipped.
    """
    file, seal = Path(path), checked_seal(Path(path))
    try:
        lines = raw_lines(file)
        told = parse_json(file, next(lines), finite=True)
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise InputError(f'its first line must hold an object with "format": "{FORMAT}".')
        version, about = _version(told), _about(Fields(told).only(*_TOP))
        known = _answers(about, version)
        texts = (line.decode().removesuffix("\n") for line in itertools.islice(lines, start, seal["rows"]))
        blocks = _blocks(texts, rows or codec.BLOCK, known)
        for some in [blocks] if rows is None else ([block] for block in blocks):
            yield _stored(about, some, known, seal["digest"])
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a usable certificate file: {error}") from None


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file in JSON Lines, or of one in Parquet that was made of them."""
    if path.suffix.lower() == ".parquet":
        yield from codec.parquet_lines(path)
        return
    if not stat.S_ISREG(path.stat().st_mode):  # before it is opened, as a pipe would keep us waiting
        raise InputError("it is not a plain file.")
    with path.open("rb") as file:
        while line := file.readline(MOST_BYTES):
            if not line.endswith(b"\n"):
                raise InputError("a line of it is too long, or its last one is cut off; get it again.")
            yield line


def checked_seal(path: Path) -> dict[str, Any]:
    """The last line of such a file, which must be about the bytes above it."""
    digest, count, last = hashlib.sha256(), -2, b""
    try:
        with refusing(f"{path} cannot be read"):
            for line in raw_lines(path):
                digest.update(last)
                last, count = line, count + 1
        seal = parse_json(path, last or b"{}")
        if seal != {"rows": count, "digest": digest.hexdigest()}:
            raise InputError(_DAMAGED)
    except InputError as error:
        raise InputError(f"{path} is not a usable certificate file: {error}") from None
    return dict(seal)


def _answers(about: dict[str, Any], version: int) -> _Known:
    shifts = about["common"]["shifts"]
    certificates = codec.Distinct(lambda told: Certificate.from_dict(_upgraded(told, version), shifts))
    return certificates, codec.Distinct(MaxShift.from_dict)


def _stored(about: dict[str, Any], blocks: Iterable[codec.Block], known: _Known, digest: str) -> Stored:
    labels, points, inputs, encoded = (list[Any]() for _ in range(4))
    margins, codes = [np.empty((0, 2))], [np.empty((2, 0), dtype=np.intp)]
    for block in blocks:
        labels += block.labels
        points.append(codec.as_floats(about["points"], block.values))
        inputs.append(codec.as_floats(about["inputs"], block.inputs))
        encoded.append(block.encoded)
        margins.append(block.margins)
        codes.append(np.array([block.certificates, block.radii], dtype=np.intp))
    numbers = np.concatenate(codes, axis=1)
    some = [bool((column >= 0).any()) for column in numbers]
    if any(is_some and not (column >= 0).all() for is_some, column in zip(some, numbers, strict=True)):
        raise InputError("either every row or none must have a certificate, and likewise a largest shift.")
    if labels and not any(some):
        raise InputError("each row must have a certificate or a largest shift.")
    try:
        rows: Any = np.concatenate([np.asarray(part, dtype=np.float64) for part in encoded] or [np.empty((0, 0))])
    except ValueError:  # rows of several lengths, of which `verify` complains
        rows = [list(row) for part in encoded for row in part]
    values = codec.read_table(about["points"], points, "certificates[{}].values")
    before = codec.read_table(about["inputs"], inputs, "certificates[{}].input")
    common = {**about["common"], **_rows(labels, values, before)}
    common["readings"] = Readings(about["origin"], rows, np.concatenate(margins))
    certificates, radii = (AnswerColumn(read.items, column) for read, column in zip(known, numbers, strict=True))
    shifts = MaxShifts(radii, **common) if some[1] else None
    own = getattr(certificates[0].claim, "results", Certificates) if some[0] else Certificates
    found = None if some[1] and not some[0] else own(certificates if some[0] else (), **common, max_shifts=shifts)
    return Stored(found, shifts, digest, about["versions"])


def _upgraded(told: Fields, version: int) -> Fields:
    """What version 1 says in the words of this version: its sampling tests were fixed, and did not say so."""
    evidence = told.content.get("evidence")
    if version > 1 or not isinstance(evidence, dict) or evidence.get("kind") != "sampling":
        return told
    if "test" in evidence:
        raise InputError("evidence.test is a field that version 1 does not know.")
    return Fields({**told.content, "evidence": {**evidence, "test": "fixed"}}, told.where)


def _about(top: Fields) -> dict[str, Any]:
    """What a file says about all rows."""
    versions = top.inner("versions")
    for key in versions.content:
        versions.text(key)
    names = None if top.is_null("feature_names") else tuple(top.items("feature_names"))
    if names is not None and not all(isinstance(name, str) for name in names):
        raise top.wrong("feature_names", "a list of texts or null")
    model = top.inner("model").only("digest", "preprocessing", "network")
    network = None if model.is_null("network") else model.digest("network")
    space = None if top.is_null("space") else top.inner("space").content
    shifts = SETS.read(top.inner("shifts"))
    return {
        "common": {"model_digest": model.digest("digest"), "shifts": shifts, "feature_names": names},
        "origin": Origin(model.flag("preprocessing"), network, space),
        "versions": versions.content,
        "points": top.inner("points"),
        "inputs": None if top.is_null("inputs") else top.inner("inputs"),
    }


def _rows(labels: list[Any], points: Any, inputs: Any) -> dict[str, Any]:
    if any(isinstance(label, dict | list) for label in labels):
        raise InputError("certificates[...].row must be a number, a text or null.")
    if not is_frame(points) and labels == list(range(len(labels))):
        return {"points": points, "inputs": inputs}
    import pandas as pd

    index = pd.Index(labels)
    points, inputs = (t.set_axis(index, axis=0) if t is not None and is_frame(t) else t for t in (points, inputs))
    return {"points": points, "inputs": inputs, "index": None if is_frame(points) else index}


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
        Must end in ``.json``, or in ``.jsonl`` for JSON Lines, of which any number of rows can be read in blocks.
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
    if target.suffix.lower() not in (".json", LINES):
        raise InputError(f"`path` must end in .json or .jsonl, got {str(target)!r}.")
    found = as_results(certificates, "certify, generate or max_shift returns")
    kept = found.max_shifts if isinstance(found, Certificates) and max_shifts is None else max_shifts
    with refusing(f"`path` must be a file that can be written, but {target} cannot"):
        lines = target.suffix.lower() == LINES
        write_parts(target, sealed(line_parts(found, kept)) if lines else _written(found, kept))


def load_certificates(path: str | os.PathLike[str]) -> Certificates:
    """Read certificates that `save_certificates` wrote, in this or an older version.

    They equal those that were saved; `max_shifts` holds the largest shifts, if the file does. Nothing is checked
    against a model: see `verify`.
    """
    found = read_stored(path)
    if found.certificates is None:
        raise InputError(
            f"{path} holds the largest shifts of rows but no certificates; apas.verify and `apas verify` read it."
        )
    return found.certificates
