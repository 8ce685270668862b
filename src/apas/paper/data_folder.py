"""Where the datasets of the experiments lie on this machine; nothing is read, copied or downloaded here."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Final

from apas.errors import ApasError, InputError

#: Name of each dataset and its file below the data folder. The paper trains on ``credit`` and retrains on
#: ``credit-new``, a part of ``credit-new-complete``; its ``spam`` lacks one row of ``spam-complete``. The last three
#: are not the paper's, but what others report on: the league table reads them.
DATASETS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "diabetes": "diabetes/diabetes.csv",
        "no2": "no2/no2.csv",
        "sba": "sba/SBAcase.11.13.17.csv",
        "credit": "credit/german.data",
        "credit-new": "credit/south_german_train.csv",
        "credit-new-complete": "credit/SouthGermanCredit.asc",
        "spam": "spam/spam.csv",
        "spam-complete": "spam/spambase.data",
        "news": "news/OnlineNewsPopularity.csv.gz",
        "adult": "adult/adult.csv",
        "compas": "compas/compas.csv",
        "heloc": "heloc/heloc.csv",
    }
)

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

    Returns
    -------
    pathlib.Path
        Absolute path of the folder with the sub-folders diabetes, no2, sba, credit, spam and news.

    Raises
    ------
    InputError
        If `folder` or ``APAS_DATA`` names a folder without datasets, or neither is given and ``../shared`` has none.

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
    if chosen is not None:
        raise InputError(
            f"the data folder must be {_LAYOUT}, got {str(chosen)!r}, which has none of them. "
            f"Name another, or fetch the data: {_FETCH} {chosen}"
        )
    if named:
        raise InputError(
            f"{_VARIABLE} must be {_LAYOUT}, got {named!r}, which has none of them. "
            f"Correct the variable, e.g. export {_VARIABLE}=/path/to/datasets, or fetch the data: {_FETCH} DIR"
        )
    raise InputError(
        f"{_VARIABLE} must be {_LAYOUT}, but it is not set and there is no such folder at {start.resolve()}. "
        f"Say where the data lie, e.g. export {_VARIABLE}=/path/to/datasets, or fetch them: {_FETCH} DIR"
    )


@contextmanager
def data_from(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Read datasets from a folder, whatever the environment says; None changes nothing.

    Parameters
    ----------
    folder : path or None
        As `data_folder` takes it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from apas.datasets import data_folder, data_from
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (pathlib.Path(folder) / "no2").mkdir()
    ...     with data_from(folder):
    ...         data_folder() == pathlib.Path(folder).resolve()
    True
    """
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

    Returns
    -------
    pathlib.Path
        An existing file; `DATASETS` maps every name to its place below `data_folder`.

    Raises
    ------
    InputError
        If there is no dataset of that name, no data folder, or no such file in it.

    Examples
    --------
    >>> from apas.datasets import DATASETS, dataset_path
    >>> DATASETS["credit"]
    'credit/german.data'
    >>> dataset_path("iris")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    apas.errors.InputError: name of dataset_path must be one of diabetes, no2, sba, credit, credit-new, ...
    """
    if not isinstance(name, str) or name not in DATASETS:
        raise InputError(
            f"name of dataset_path must be one of {', '.join(DATASETS)}, got {name!r}. Pick one of these names."
        )
    path = data_folder() / DATASETS[name]
    if not path.is_file():
        raise InputError(
            f"{_VARIABLE} (or --data) must be a folder with the file {DATASETS[name]} for the dataset {name!r}, "
            f"but {path} is no file. Put it there, or fetch it: {_FETCH} {path.parents[1]}"
        )
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
