"""Download the paper's datasets, each file checked to the last byte before it is put in place.

Addresses in repositories name a revision. That of the news archive cannot; what it unpacks to is checked all the same.

Nothing else in apas uses the network, and this only when `apas paper data` is run.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from apas._atomic import write_bytes
from apas._optional import require
from apas.display.progress import Progress
from apas.errors import ApasError, InputError
from apas.paper.data_folder import DATASETS


@dataclass(frozen=True)
class Source:
    """A file of others."""

    sha256: str
    addresses: tuple[str, ...]
    member: str | None = None


#: By the names of `apas.datasets.DATASETS`. First come addresses of the experiments' data under the MIT licence, then
#: those of the paper's own repository, which names no licence.
SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        name: Source(told["sha256"], tuple(told["addresses"]), told.get("member"))
        for name, told in json.loads(files("apas.paper").joinpath("sources.json").read_text(encoding="utf-8")).items()
    }
)


MOST = 64 * 2**20  # bytes of a file or of what it unpacks to, at most; the largest has 24 million
PATIENCE = 30.0  # seconds to wait for a server before it counts as absent
_CHUNK = 2**16


class State(StrEnum):
    """What has become of a file."""

    there = "was there"
    downloaded = "downloaded"
    missing = "missing"
    other = "another file"


@dataclass(frozen=True)
class Fetched:
    """A dataset's file after `fetch`."""

    name: str
    path: Path
    state: State
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the right file is in its place."""
        return self.state in (State.there, State.downloaded)


class _Failed(ApasError):
    """An address did not give the right file."""


def fetch(
    folder: str | os.PathLike[str],
    names: Iterable[str] | None = None,
    *,
    sources: Mapping[str, Source] = SOURCES,
    patience: float = PATIENCE,
) -> list[Fetched]:
    """Download the files that are not there yet; each is whole and right, or not there at all."""
    asked = list(DATASETS) if names is None else list(names)
    for name in asked:
        if name not in DATASETS or name not in sources:
            raise InputError(f"`names` of fetch must be among {', '.join(DATASETS)}, got {name!r}.")
    found = []
    with Progress(len(asked), "downloading") as progress:
        for name in asked:
            found.append(_fetch(name, Path(folder).expanduser().absolute() / DATASETS[name], sources[name], patience))
            progress.advance(1)
    return found


def _fetch(name: str, path: Path, source: Source, patience: float) -> Fetched:
    if path.exists():
        if _digest(path) == source.sha256:
            return Fetched(name, path, State.there)
        reason = f"{path} is not the file of the dataset {name!r}: its SHA-256 is another; move it away and run again."
        return Fetched(name, path, State.other, reason)
    failures = []
    for address in source.addresses:
        try:
            content = _unpack(_download(address, patience), source.member)
            if (digest := hashlib.sha256(content).hexdigest()) != source.sha256:
                raise _Failed(f"what came has the SHA-256 {digest[:12]}..., not {source.sha256[:12]}...")
        except _Failed as failed:
            failures.append(str(failed))
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}; name another folder.") from None
        return Fetched(name, path, State.downloaded)
    what = f"{path} of the dataset {name!r} is missing ({'; then '.join(dict.fromkeys(failures))})"
    packed = ", compressed with gzip," if path.suffix == ".gz" else ""
    file = " and put it" if source.member is None else f", unpack it and put its {source.member}"
    where = f"{' or '.join(source.addresses)} on a machine with a network"
    return Fetched(name, path, State.missing, f"{what}: get {where}{file}{packed} there.")


class _Bounded(io.BytesIO):
    """Bytes in memory that do not grow without end."""

    def write(self, content: Any, /) -> int:
        if self.tell() + len(content) > MOST:
            raise _Failed(f"it has more than {MOST} bytes")
        return super().write(content)


def _download(address: str, patience: float) -> bytes:
    what = "Downloading the paper's datasets"
    pooch, requests = (require(name, feature=what, extra="data") for name in ("pooch", "requests"))
    content = _Bounded()
    try:
        pooch.HTTPDownloader(chunk_size=_CHUNK, timeout=patience)(address, content, None)
    except requests.HTTPError as error:
        raise _Failed(f"the server answered {error.response.status_code}") from None
    except requests.Timeout:
        raise _Failed(f"no answer within {patience:g} s") from None
    except requests.exceptions.ChunkedEncodingError:
        raise _Failed("the connection was cut before the file was whole") from None
    except requests.RequestException as error:
        raise _Failed(f"no connection: {type(error).__name__}") from None
    return content.getvalue()


def _unpack(content: bytes, member: str | None) -> bytes:
    """The bytes themselves, or those of a file in the archive that they are."""
    if member is None:
        return content
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inside = [file for file in archive.infolist() if PurePosixPath(file.filename).name == member]
            if len(inside) != 1 or inside[0].file_size > MOST:
                raise _Failed(f"the archive has no usable {member}")
            return archive.read(inside[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise _Failed("what came is no zip archive that can be read") from None


def _digest(path: Path) -> str | None:
    """SHA-256 of a file, unpacked if its name ends in ".gz"; None if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return digest.hexdigest()
