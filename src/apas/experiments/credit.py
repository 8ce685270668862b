"""The German credit data, old and new: two files with different codes, brought to one scale of levels.

The new file's codes are the scale; the old file's symbols are translated to it. In the published experiments the new
rows went astray: the encoded columns were numbered from 0 and the others from 1, so that joining them put the levels of
one record beside the duration, amount, age and label of the record before it. `new_credit` gives either version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from apas.counterfactuals.space import FeatureSpace
from apas.datasets import dataset_path

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "LABEL", "LEVELS", "credit_space", "new_credit", "old_credit"]

#: All columns in the order of both files; the label comes last.
COLUMNS: Final = (
    "checking-status", "duration", "credit-history", "purpose", "amount", "savings", "employment", "rate",
    "sex-status", "guarantors", "residence", "property", "age", "installment", "housing", "num-credits", "job",
    "liable", "phone", "foreign", "good-credit",
)  # fmt: skip
LABEL: Final = "good-credit"
NUMBERS: Final = ("duration", "amount", "age")

#: Number of levels of the ordinal and of the categorical columns; a level that no record has is an input all the same.
LEVELS: Final = {
    "ordinal": {
        "checking-status": 4, "savings": 5, "employment": 5, "rate": 4, "guarantors": 3, "residence": 4,
        "property": 4, "housing": 3, "num-credits": 4, "job": 4, "liable": 2,
    },
    "categorical": {
        "credit-history": 5, "purpose": 11, "sex-status": 4, "installment": 3, "phone": 2, "foreign": 2,
    },
}  # fmt: skip

#: The old file's symbols in the order of the levels; two symbols joined by "+" are one level.
_SYMBOLS: Final = {
    "checking-status": "A14 A11 A12 A13",
    "credit-history": "A33 A34 A30 A32 A31",
    "purpose": "A410 A40 A41 A42 A43 A44 A45 A46 A47 A48 A49",
    "savings": "A65 A61 A62 A63 A64",
    "employment": "A71 A72 A73 A74 A75",
    "sex-status": "A91 A92+A93 A94 A95",
    "guarantors": "A101 A102 A103",
    "property": "A124 A123 A122 A121",
    "installment": "A141 A142 A143",
    "housing": "A153 A151 A152",
    "job": "A171 A172 A173 A174",
    "phone": "A191 A192",
    "foreign": "A201 A202",
}
#: Columns of the new file whose codes start at 0 already.
_FROM_ZERO: Final = ("credit-history", "purpose")


def levels_of(symbols: str) -> dict[str, int]:
    """Level of each symbol.

    Examples
    --------
    >>> levels_of("A91 A92+A93 A94")
    {'A91': 0, 'A92': 1, 'A93': 1, 'A94': 2}
    """
    return {symbol: level for level, joined in enumerate(symbols.split()) for symbol in joined.split("+")}


def old_credit() -> pd.DataFrame:
    """The old file: levels from 0, three columns of numbers, and the label (1 is good)."""
    import pandas as pd

    frame = pd.read_csv(dataset_path("credit"), header=None, names=list(COLUMNS))
    for column, symbols in _SYMBOLS.items():
        frame[column] = frame[column].map(levels_of(symbols))
    for column in ("rate", "residence", "num-credits", "liable"):
        frame[column] -= 1
    frame[LABEL] = 2 - frame[LABEL]
    return frame.astype("int64")


def new_credit(*, aligned: bool = False) -> pd.DataFrame:
    """The new file in the same form.

    Parameters
    ----------
    aligned : bool, default False
        True gives the 800 records. False gives the 799 rows of the published experiments: row i has the levels of
        record i and the numbers and label of record i - 1.
    """
    import pandas as pd

    frame = pd.read_csv(dataset_path("credit-new")).drop(columns="Id").set_axis(list(COLUMNS), axis=1)
    levels = [column for column in COLUMNS if column not in (*NUMBERS, LABEL)]
    for column in levels:
        frame[column] -= column not in _FROM_ZERO
    if aligned:
        return frame.astype("int64")
    others = [*NUMBERS, LABEL]
    frame[others] = frame[others].shift(1)
    return frame.iloc[1:].reset_index(drop=True).astype("int64")


def credit_space(frame: pd.DataFrame) -> FeatureSpace:
    """The 20 features in the order of the file, numbers scaled by their range in `frame`; 72 inputs together."""
    levelled = {column: kind for kind, columns in LEVELS.items() for column in columns}
    return FeatureSpace.from_frame(
        frame[[column for column in COLUMNS if column != LABEL]],
        kinds={**dict.fromkeys(NUMBERS, "continuous"), **levelled},
        values={column: range(levels) for columns in LEVELS.values() for column, levels in columns.items()},
        codes=dict.fromkeys(LEVELS["ordinal"], "thermometer"),
        scale="minmax",
    )
