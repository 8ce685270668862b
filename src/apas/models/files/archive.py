"""Zip archives from anywhere, read in memory that is bounded by the size of the file."""

from __future__ import annotations

import io
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from apas._sanitise import for_error
from apas.errors import InputError

#: What libraries raise when a file is not what it should be.
BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
MEMBERS = 100_000
#: How far members may expand: this many bytes, and so many times the size of the file.
FREE, TIMES = 2**25, 4
PIECE = 2**20


def read_archive(path: Path, raw: bytes) -> dict[str, bytes]:
    """Members of the archive `raw` by name, none of them larger than it declares to be."""
    # every member has this signature, so that a directory of millions is refused before it is built
    if raw.count(b"PK\x01\x02") > MEMBERS:
        raise InputError(f"{path} has more than {MEMBERS} members, so it is not a model file.")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            listed = archive.infolist()
            _check(path, listed, FREE + TIMES * len(raw))
            return {info.filename: _member(archive, info) for info in listed}
    except BROKEN as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a whole zip archive: {first_line(error)}") from None


def _check(path: Path, listed: list[zipfile.ZipInfo], most: int) -> None:
    total = sum(info.file_size for info in listed)
    if total > most:
        raise InputError(
            f"{path} would expand to {total} bytes, more than the {most} that a file of its size may; it is damaged or "
            "made to fill the memory."
        )
    names = [info.filename for info in listed]
    if len(set(names)) < len(names):
        raise InputError(f"{path} holds several members of the same name, so it is not a model file.")
    if any(info.flag_bits & 1 for info in listed):
        raise InputError(f"{path} is encrypted; write it without a password.")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    # piece by piece: all at once, zipfile would expand a member that lies about its size before it cuts it off
    pieces = []
    with archive.open(info) as member:
        while piece := member.read(PIECE):
            pieces.append(piece)
    content = b"".join(pieces)
    if len(content) != info.file_size:
        raise zipfile.BadZipFile(f"{info.filename} is cut off")
    return content


def pack(members: Mapping[str, bytes]) -> bytes:
    """An archive of exactly these members, uncompressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def first_line(error: BaseException) -> str:
    """What another library complains about, to end a sentence of ours."""
    line = for_error((str(error).splitlines() or [type(error).__name__])[0], 300)
    line = re.sub(r" at 0x[0-9a-fA-F]+", "", line)  # an address in memory is another one each time
    return line if line.endswith((".", "?")) else f"{line}."
