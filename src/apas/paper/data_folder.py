"""Where the datasets of the experiments lie on this machine, and their download, checked to the last byte.

Nothing else in apas uses the network, and this only when `apas paper data` is run.
"""

import gzip
import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Final

from apas._atomic import refusing, write_bytes
from apas._lazy import require
from apas.display.progress import Progress
from apas.errors import ApasError, InputError
from apas.paper import package_text


@dataclass(frozen=True)
class Source:
    """A file of others."""

    sha256: str
    addresses: Sequence[str]  # which name a revision where they can; what comes is checked in any case
    member: str | None = None
    file: str = ""  # below the data folder


#: First come addresses of the experiments' data under the MIT licence, then those of the paper's own repository, which
#: names no licence.
SOURCES: Final = {name: Source(**told) for name, told in json.loads(package_text("sources.json")).items()}
#: Name of each dataset and its file below the data folder. The paper trains on ``credit`` and retrains on
#: ``credit-new``, a part of ``credit-new-complete``; its ``spam`` lacks one row of ``spam-complete``. The last three
#: are not the paper's, but what others report on: the league table reads them.
DATASETS: Final[Mapping[str, str]] = {name: source.file for name, source in SOURCES.items()}
_VARIABLE = "APAS_DATA"
_FOLDERS: Final = tuple(dict.fromkeys(file.split("/")[0] for file in DATASETS.values()))
_FETCH = "apas paper data --data"
_LAYOUT = f"a folder with the sub-folders {', '.join(_FOLDERS)} (or one whose sub-folder 'datasets' has them)"
_CHOSEN: ContextVar[Path | None] = ContextVar("chosen data folder", default=None)


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder that holds the datasets.

    The folder given decides; without one, that of the enclosing `data_from`; then the environment variable
    ``APAS_DATA`` if it is set; otherwise ``../shared`` is tried, seen from the current directory.

    Parameters
    ----------
    folder : path, optional
        The folder itself, or one whose sub-folder ``datasets`` it is.

    Examples
    --------
    >>> import os, pathlib, tempfile
    >>> from unittest import mock
    >>> from apas.datasets import data_folder
    >>> with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, APAS_DATA=folder):
    ...     (pathlib.Path(folder) / "datasets" / "diabetes").mkdir(parents=True)
    ...     data_folder().name
    'datasets'
    """
    chosen = _CHOSEN.get() if folder is None else Path(folder)
    named = os.environ.get(_VARIABLE, "").strip()
    start = Path(chosen or named or Path("..", "shared")).expanduser()
    for place in (start, start / "datasets"):
        if any((place / name).is_dir() for name in _FOLDERS):
            return place.resolve()
    gone, again, example = "which has none of them", f"{_FETCH} DIR", f"e.g. export {_VARIABLE}=/path/to/datasets"
    if chosen is not None:
        got = f"the data folder must be {_LAYOUT}, got {str(chosen)!r}, {gone}"
        raise InputError(f"{got}. Name another, or fetch the data: {_FETCH} {chosen}")
    if named:
        got = f"{_VARIABLE} must be {_LAYOUT}, got {named!r}, {gone}"
        raise InputError(f"{got}. Correct the variable, {example}, or fetch the data: {again}")
    got = f"{_VARIABLE} must be {_LAYOUT}, but it is not set and there is no such folder at {start.resolve()}"
    raise InputError(f"{got}. Say where the data lie, {example}, or fetch them: {again}")


@contextmanager
def data_from(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Read datasets from a folder, as `data_folder` takes it, whatever the environment says; None changes nothing."""
    token = _CHOSEN.set(_CHOSEN.get() if folder is None else data_folder(folder))
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def dataset_path(name: str) -> Path:
    """Return the path of a dataset's file, after checking that it is there.

    Parameters
    ----------
    name : str
        ``"diabetes"``, ``"no2"``, ``"sba"``, ``"credit"``, ``"spam"`` or ``"news"``. The paper's credit data
        have a second file, ``"credit-new"``, on which the model is retrained; ``"credit-new-complete"`` and
        ``"spam-complete"`` are the full tables from which the paper's were cut.

    Examples
    --------
    >>> dataset_path("iris")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    apas.errors.InputError: name of dataset_path must be one of diabetes, no2, sba, credit, credit-new, ...
    """
    if not isinstance(name, str) or name not in DATASETS:
        known = ", ".join(DATASETS)
        raise InputError(f"name of dataset_path must be one of {known}, got {name!r}. Pick one of these names.")
    path = data_folder() / DATASETS[name]
    if not path.is_file():
        wanted = f"a folder with the file {DATASETS[name]} for the dataset {name!r}, but {path} is no file"
        advice = f"Put it there, or fetch it: {_FETCH} {path.parents[1]}"
        raise InputError(f"{_VARIABLE} (or --data) must be {wanted}. {advice}")
    return path


def oracle_path(name: str) -> Path | None:
    """A file of what the authors computed: in the folder ``oracle`` beside that of the datasets; None if not there."""
    try:
        path = data_folder().parent / "oracle" / name
    except InputError:  # who has no data is told so by what needs them
        return None
    return path if path.is_file() else None


@contextmanager
def reading(*names: str) -> Iterator[None]:
    """Refuse files of datasets that cannot be read as what they should be, in one sentence that says which."""
    try:
        yield
    except ApasError:
        raise
    except (KeyError, ValueError, TypeError, OSError, EOFError, zlib.error) as error:
        files = " and ".join(str(dataset_path(name)) for name in names)
        raise InputError(
            f"the files of the dataset {names[0]!r} must be those of the paper, but {files} cannot be read as such "
            f"({type(error).__name__}: {error}). Move away what is there and fetch it: {_FETCH} {data_folder()}"
        ) from error


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
        with refusing(f"{path} cannot be written", "; name another folder."):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
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
    import zipfile  # the commands are listed without it

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
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error):
        return None
