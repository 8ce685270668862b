"""A generated table of loan applications whose law drifts from this year to the next.

The same arguments give the same table on every machine, bit for bit: the random words come from a Philox bit
stream, and everything after them uses only ``+ - * /``, comparisons and rounding, which IEEE arithmetic fixes
to the last bit. The C library's ``exp`` is not fixed like that, hence the small one here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from apas._typing import Floats, Integers
from apas._validation import check_integer, check_number
from apas.paper import package_table

if TYPE_CHECKING:
    import pandas as pd

Words = NDArray[np.uint64]
_COLUMNS: Final = package_table("loans.csv")
#: All feature columns of :func:`make_loans`, in the order of the table; the label ``approved`` follows them.
LOAN_FEATURES: Final = tuple(line["column"] for line in _COLUMNS)
#: Those that hold numbers.
NUMERIC: Final = tuple(line["column"] for line in _COLUMNS if not line["words"])
#: Those that hold words, and all words each may hold; ``credit_history`` goes from worst to best.
CATEGORICAL: Final[Mapping[str, tuple[str, ...]]] = {
    line["column"]: tuple(line["words"].split()) for line in _COLUMNS if line["words"]
}

_SELF_EMPLOYED, _STUDENT, _UNEMPLOYED, _OWN = 1, 3, 4, 0  # codes: places in CATEGORICAL
_WORDS_PER_ROW = 16  # 14 in use; row i always owns words 16 i to 16 i + 15, so a shorter table is a prefix
_STREAM = int.from_bytes(b"loans", "big")  # keeps clear of other users of Philox with the same key


def make_loans(n_rows: int = 1000, *, drift: float = 0.0, rng: int = 0) -> pd.DataFrame:
    """Generate a table of loan applications and the lender's decisions.

    No row is a real person. The columns are correlated as one would expect, and the decision follows a hidden logistic
    rule with thresholds, saturation and interactions. It is noisy: a small network decides 86 to 90 % of unseen rows as
    the lender did, and no model can reach more than about 91 %.

    Parameters
    ----------
    n_rows : int, default 1000
        A shorter table is the beginning of a longer one.
    drift : float in [0, 5], default 0.0
        How far the world has moved on: 0 is this year, 1 next year. Incomes grow, loans and debts grow faster, more
        people are out of work, and the lender looks harder at debt and less at credit history. With the same `rng` the
        same people apply, so that tables can be compared row by row.
    rng : int in [0, 2**128), default 0
        Seed. Unlike elsewhere in apas it must be an integer: a table is to be the same for everyone who names it.

    Returns
    -------
    pandas.DataFrame
        The columns `LOAN_FEATURES`, then the label ``approved`` (1 or 0). ``income`` is per month, ``years_employed``
        counts all years of paid work, ``debt_ratio`` is the monthly cost of housing and existing loans divided by
        income, without the loan applied for.

    Examples
    --------
    >>> make_loans(500)[["income", "debt_ratio", "credit_history", "employment", "approved"]].head(2)
       income  debt_ratio credit_history employment  approved
    0    4810       0.158           fair   employed         1
    1    2850       0.128           fair   employed         1
    """
    import pandas as pd

    n_rows = check_integer(n_rows, "n_rows", "make_loans", least=0, below=2**32)
    rng = check_integer(rng, "rng", "make_loans", least=0, below=2**128)
    drift = check_number(drift, "drift", "make_loans", least=0, most=5)
    # the 64-bit words of each row: bit streams are what NumPy keeps stable
    words: Words = np.random.Philox(key=rng, counter=_STREAM << 192).random_raw(n_rows * _WORDS_PER_ROW)
    words = words.reshape(n_rows, _WORDS_PER_ROW)
    columns = _people(words, drift)
    columns |= _finances(columns, words, drift)
    columns["approved"] = (_uniform(words[:, 13]) < _logistic(_score(columns, drift))).astype(np.int64)
    for name, levels in CATEGORICAL.items():
        columns[name] = pd.Series(np.array(levels)[columns[name]], dtype=str)
    return pd.DataFrame({name: columns[name] for name in (*LOAN_FEATURES, "approved")})


def _uniform(words: Words) -> Floats:
    """Turn each word into a number strictly between 0 and 1."""
    return np.asarray(((words >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52)


def _bell(words: Words) -> Floats:
    """Turn each word into a bell-shaped number (variance 1, within 3.5): the sum of its 16-bit parts."""
    parts = [(words >> np.uint64(position)) & np.uint64(0xFFFF) for position in (0, 16, 32, 48)]
    total: Integers = np.sum(parts, axis=0).astype(np.int64)
    return (total - 131_070).astype(np.float64) * (1.7320508 / 65_536)


def _exp(x: Floats) -> Floats:
    """Exponential, to about ten digits near 0: a cubic of x / 1024, squared ten times."""
    step = x / 1024
    result = 1 + step * (1 + step * (0.5 + step / 6))
    for _ in range(10):
        result = result * result
    return result


def _logistic(x: Floats) -> Floats:
    return 1 / (1 + _exp(-np.clip(x, -30, 30)))


def _round_to(x: Floats, unit: int, low: int, high: int) -> Integers:
    return np.asarray(np.clip(np.rint(x / unit) * unit, low, high), dtype=np.int64)


def _pick(u: Floats, *weights: Floats) -> Integers:
    """Draw one category per row with chances in proportion to the weights."""
    edges = np.cumsum(weights, axis=0)
    return np.asarray((u * edges[-1] > edges[:-1]).sum(axis=0), dtype=np.int64)


def _people(words: Words, drift: float) -> dict[str, Any]:
    u = _uniform(words[:, :5])
    age = 18 + np.floor(63 * (0.8 * u[:, 0] + 0.2 * u[:, 1] * u[:, 2]))
    young, old = _logistic((25 - age) / 1.5), _logistic((age - 64) / 1.2)
    working = (1 - young) * (1 - old)
    job = _pick(
        u[:, 3],
        0.78 * working + 0.45 * young + 0.04 * old,
        0.14 * working + 0.03 * young + 0.04 * old,
        0.92 * old,
        0.42 * young,
        (0.07 + 0.02 * drift) * working + (0.10 + 0.02 * drift) * young,
    )
    share = u[:, 4]
    share = np.array([1.0, 1.0, 1.0, 0.3, 0.7])[job] * np.where(job < _STUDENT, 1 - 0.6 * share * share, share)
    years = np.floor(10 * np.minimum(share, 0.98) * np.minimum(age - 16, 48)) / 10

    pay = np.array([2100.0, 2200.0, 2000.0, 1000.0, 1100.0])[job]
    climb = 1 + np.where(job <= _SELF_EMPLOYED, 0.9 * years / (years + 12), 0.0)
    growth = 1 + 0.09 * drift * np.array([1.0, 0.6, 0.7, 0.8, 0.5])[job]
    luck = _exp(np.array([0.36, 0.55, 0.30, 0.30, 0.30])[job] * _bell(words[:, 5]))
    income = _round_to(pay * climb * growth * luck, 10, 300, 30_000)

    settled = _logistic((age - 38) / 7 + (income - 2800) / 1500)
    middle = _logistic((age - 28) / 4) * _logistic((52 - age) / 5)
    own, rent, family = 0.1 + 0.9 * settled, 0.9 - 0.55 * settled, 0.02 + 0.8 * young
    loans = _bell(words[:, 8]) + 0.5 * middle + 0.15 * drift
    drawn = {"age": age.astype(np.int64), "employment": job, "years_employed": years, "income": income}
    return drawn | {
        "housing": _pick(_uniform(words[:, 6]), own, rent, family),
        "dependants": np.searchsorted((0.7, 1.3, 2.1, 2.9, 3.6), _bell(words[:, 7]) + 1.5 * middle),
        "existing_loans": np.searchsorted((0.1, 0.9, 1.6, 2.3, 3.0), loans),
    }


def _finances(people: Mapping[str, Any], words: Words, drift: float) -> dict[str, Any]:
    income, years, job = people["income"], people["years_employed"], people["employment"]
    shelter = np.array([330.0, 620.0, 150.0])[people["housing"]] * (0.75 + income / 12_000)
    shelter = shelter * (1 + 0.12 * drift)
    debts = 165.0 * people["existing_loans"] * (0.6 + income / 7_000) * (1 + 0.15 * drift)
    ratio = (shelter + debts) / income * _exp(0.3 * _bell(words[:, 9]))
    standing = 0.9 * _bell(words[:, 10]) + 0.8 * years / (years + 8)
    standing = standing - 0.5 * (ratio > 0.6) - 0.4 * (job == _UNEMPLOYED)
    amount = _round_to((1 + 0.13 * drift) * (1500 + 2.6 * income) * _exp(0.6 * _bell(words[:, 11])), 100, 500, 60_000)
    return {
        "debt_ratio": np.rint(1000 * np.minimum(ratio, 1.5)) / 1000,
        "credit_history": np.searchsorted((-1.1, -0.35, 0.45, 1.2), standing),
        "loan_amount": amount,
        "duration_months": _round_to(12 + 40 * amount / (amount + 9_000) + 11 * _bell(words[:, 12]), 6, 6, 84),
    }


def _score(columns: Mapping[str, Any], drift: float) -> Floats:
    """Return the lender's hidden score: positive means more likely approved than not."""
    income, ratio, years = columns["income"], columns["debt_ratio"], columns["years_employed"]
    history, job = columns["credit_history"], columns["employment"]
    burden = columns["loan_amount"] / columns["duration_months"] / income
    trouble = np.maximum(ratio - 0.2, 0)
    score = 8.0 * income / (income + 2500.0 * (1 + 0.15 * drift)) + (1.0 - 0.15 * drift) * (history - 2)
    score = score - (2.5 + 3.0 * drift) * trouble - (6.0 + 2.0 * drift) * trouble * (history < 2)
    score = score - 16.0 * np.maximum(burden - 0.12, 0) - 0.8 * np.abs(columns["existing_loans"] - 1)
    score = score + 1.8 * years / (years + 4) - 0.15 * columns["dependants"]
    score = score + 0.4 * (columns["housing"] == _OWN)
    score = score + np.array([0.0, -0.5 - 0.4 * drift, 0.4, 0.8, -0.4])[job]
    return np.asarray(2.2 * (score - 4.3))
