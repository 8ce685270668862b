"""The four tables of the paper's Section 7, each in two parts: D1 to train on, D2 to retrain on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from apas._typing import Floats, Integers
from apas._validation import check_flag, check_integer
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError
from apas.paper import package_table
from apas.paper.data_folder import dataset_path, reading

#: The columns in the order of both files, the label last: how many levels the ordinal and the categorical ones have (a
#: level that no record has is an input all the same), and the old file's symbols in the order of the levels, two of
#: which joined by "+" are one level.
_CODING: Final = package_table("credit.csv")
COLUMNS: Final = tuple(line["column"] for line in _CODING)
LABEL: Final = COLUMNS[-1]
NUMBERS: Final = tuple(line["column"] for line in _CODING if line["kind"] == "continuous")
LEVELS: Final = {
    kind: {line["column"]: int(line["levels"]) for line in _CODING if line["kind"] == kind}
    for kind in ("ordinal", "categorical")
}
_FROM_ZERO: Final = ("credit-history", "purpose")  # columns of the new file whose codes start at 0 already


def old_credit() -> pd.DataFrame:
    """The old file: levels from 0, three columns of numbers, and the label (1 is good)."""
    frame = pd.read_csv(dataset_path("credit"), header=None, names=list(COLUMNS))
    for line in (line for line in _CODING if line["symbols"]):
        levels = enumerate(line["symbols"].split())
        known = {symbol: level for level, joined in levels for symbol in joined.split("+")}
        frame[line["column"]] = frame[line["column"]].map(known)
    for column in ("rate", "residence", "num-credits", "liable"):
        frame[column] -= 1
    frame[LABEL] = 2 - frame[LABEL]
    return frame.astype("int64")


def new_credit(*, aligned: bool = False) -> pd.DataFrame:
    """The new file in the same form; as published, or with its rows put right."""
    frame = pd.read_csv(dataset_path("credit-new")).drop(columns="Id").set_axis(list(COLUMNS), axis=1)
    for column in (*LEVELS["ordinal"], *LEVELS["categorical"]):
        frame[column] -= column not in _FROM_ZERO
    if aligned:
        return frame.astype("int64")
    # The encoded columns were numbered from 0 and the others from 1, so that joining them put the levels of one record
    # beside the duration, amount, age and label of the record before it.
    others = [*NUMBERS, LABEL]
    frame[others] = frame[others].shift(1)
    return frame.iloc[1:].reset_index(drop=True).astype("int64")


def credit_space(frame: pd.DataFrame) -> FeatureSpace:
    """The 20 features in the order of the file, numbers scaled by their range in `frame`; 72 inputs together."""
    kinds = {line["column"]: line["kind"] for line in _CODING if line["kind"] != "label"}
    values = {column: range(levels) for columns in LEVELS.values() for column, levels in columns.items()}
    codes = dict.fromkeys(LEVELS["ordinal"], "thermometer")
    return FeatureSpace.from_frame(frame[list(kinds)], kinds=kinds, values=values, codes=codes, scale="minmax")


_SBA = (
    "Term", "NoEmp", "CreateJob", "RetainedJob", "DisbursementGross", "ChgOffPrinGr", "GrAppv", "SBA_Appv", "daysterm",
)  # fmt: skip
_SBA_FIRST_NEW_YEAR = 2006


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a table."""

    raw: pd.DataFrame  # as in the file, levels as integers from 0; a column per feature, rows numbered from 0
    X: Floats  # the same rows as the network sees them, (rows, inputs), read-only
    y: Integers  # labels; 1 is the class to be reached

    def __post_init__(self) -> None:
        self.X.flags.writeable = False
        self.y.flags.writeable = False

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_distinct(self) -> int:
        """How many different rows there are."""
        return len(np.unique(self.X, axis=0))


@dataclass(frozen=True, eq=False)
class Tables:
    """Both parts of a dataset."""

    name: str
    space: FeatureSpace  # a feature per column, in their order; a feature's inputs stand together, in the same order
    d1: Part  # what the base network is trained on
    d2: Part  # what came later
    aligned: bool = True  # False for the credit data as published, whose D2 has rows made of two records each

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the network's inputs."""
        return self.space.coding.names


def read_tables(name: str, *, aligned: bool = False, seed: int | None = None) -> Tables:
    """Read a dataset and form its two parts as the paper's experiments did.

    Parameters
    ----------
    name : {"diabetes", "no2", "sba", "credit"}
    aligned : bool, default False
        Whether to put right the rows of credit's D2, where the published ones join the levels of one record with the
        numbers and the label of the one before. The other tables have no such fault.
    seed : int, optional
        Of drawing D1 of diabetes and no2; the published one unless given. The parts of sba and credit are not drawn.

    Examples
    --------
    >>> read_tables("iris")
    Traceback (most recent call last):
        ...
    apas.errors.InputError: `name` of read_tables must be one of diabetes, no2, sba, credit, got 'iris'.
    """
    if not isinstance(name, str) or name not in TABLES:
        raise InputError(f"`name` of read_tables must be one of {', '.join(TABLES)}, got {name!r}.")
    check_flag(aligned, "aligned")
    drawing = None if seed is None else check_integer(seed, "seed", "read_tables", least=0)
    with reading(*files_of(name)):
        return TABLES[name](aligned, drawing)


def files_of(name: str) -> tuple[str, ...]:
    """Names in `DATASETS` of what a table is read from."""
    return ("credit", "credit-new") if name == "credit" else (name,)


def make_part(frame: pd.DataFrame, y: Any, space: FeatureSpace, rows: Any) -> Part:
    """Rows of a frame, and of its labels."""
    raw = frame.iloc[rows].reset_index(drop=True)
    return Part(raw, space.encode(raw), np.array(y, dtype=np.int64)[rows])


def read_labelled(name: str, label: str) -> tuple[pd.DataFrame, Any, FeatureSpace]:
    """Features of a table, which rows are of the class to be reached, and a space with its numbers scaled."""
    frame = pd.read_csv(dataset_path(name))
    features = frame.drop(columns=label)
    return features, frame[label] == ("P" if name == "no2" else 1), _scaled(features)


def _scaled(frame: pd.DataFrame) -> FeatureSpace:
    """A space with each number scaled by its least and largest value."""
    numbers = frame.select_dtypes("number").columns
    return FeatureSpace.from_frame(frame, kinds=dict.fromkeys(numbers, "continuous"), scale="minmax")


def _draw_tables(aligned: bool, seed: int | None, *, name: str, label: str, published_seed: int) -> Tables:
    """D1 are half as many rows as there are, drawn with replacement and sorted; D2 those never drawn."""
    frame, y, space = read_labelled(name, label)
    first = np.sort(np.random.RandomState(published_seed if seed is None else seed).choice(len(frame), len(frame) // 2))
    second = np.setdiff1d(np.arange(len(frame)), first)
    return Tables(name, space, make_part(frame, y, space, first), make_part(frame, y, space, second))


def _sba(aligned: bool, seed: int | None) -> Tables:
    frame = pd.read_csv(dataset_path("sba"), encoding="utf-8-sig", usecols=[*_SBA, "ApprovalFY", "Default"])
    new, y, frame = frame["ApprovalFY"].to_numpy() >= _SBA_FIRST_NEW_YEAR, 1 - frame["Default"], frame[[*_SBA]]
    space = _scaled(frame)
    return Tables("sba", space, make_part(frame, y, space, ~new), make_part(frame, y, space, new))


def _credit(aligned: bool, seed: int | None) -> Tables:
    old, new = old_credit(), new_credit(aligned=aligned)
    space = credit_space(old)  # the ranges of the new numbers are the same
    first, second = (make_part(frame.drop(columns=LABEL), frame[LABEL], space, slice(None)) for frame in (old, new))
    return Tables("credit", space, first, second, aligned)


#: Names of the tables, and what reads them.
TABLES: Final[Mapping[str, Callable[[bool, int | None], Tables]]] = {
    "diabetes": partial(_draw_tables, name="diabetes", label="Outcome", published_seed=1),
    "no2": partial(_draw_tables, name="no2", label="binaryClass", published_seed=4),
    "sba": _sba,
    "credit": _credit,
}
