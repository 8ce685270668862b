"""Where the paper's datasets can be had, and what the files must be to the last byte.

Addresses in repositories name a revision. That of the news archive cannot; what it unpacks to is checked all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["SOURCES", "Source"]

#: The experiments' data under the MIT licence, and the paper's own repository, which names no licence.
_FIRST = "https://raw.githubusercontent.com/junqi-jiang/robust-ce-inn/c4678bb802cd5fa98c851101d5068455a2886695/datasets"
_PAPER = "https://raw.githubusercontent.com/lmarza/APAS/e2a66fdfb9d7ef81821ededd5510c9e68db862b8"
_SOUTH_GERMAN = (
    "https://raw.githubusercontent.com/SarthakPhatate/Ineuron_Internship/a63338e1163c997fc11e3c18143176f0ed5b1c5f"
)
_SPAMBASE = (
    "https://raw.githubusercontent.com/archienorman11/machine-learning-models/e29ec7920dd43fc8d495ed67d3771bb0cbc760c9"
)
_NEWS = "https://archive.ics.uci.edu/static/public/332/online+news+popularity.zip"


@dataclass(frozen=True)
class Source:
    """A file of others.

    Attributes
    ----------
    sha256 : str
        Of the file; of what it unpacks to where the name ends in ".gz".
    addresses : tuple of str
        To be tried in this order.
    member : str, optional
        What lies at the addresses is a zip archive; the name of the file in it, without folders.

    Examples
    --------
    >>> SOURCES["news"].member
    'OnlineNewsPopularity.csv'
    """

    sha256: str
    addresses: tuple[str, ...]
    member: str | None = None


def _both(sha256: str, path: str) -> Source:
    return Source(sha256, (f"{_FIRST}/{path}", f"{_PAPER}/exp_sec7/datasets/{path}"))


#: By the names of `apas.datasets.DATASETS`.
SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "diabetes": _both("b78029447fae2743b3218bb2b76ef0d04afe8d7e55ce2faf4d1ec82d8f8ae8ac", "diabetes/diabetes.csv"),
        "no2": _both("6b09933651b3924fb9ce8d6e344edd64cc695d11cacacd676fe538201e2c0671", "no2/no2.csv"),
        "sba": _both("9c6ba3e04189457d084f168a78b47eb8ed20d3fcb24ec540e3ec54ced79ce89f", "sba/SBAcase.11.13.17.csv"),
        "credit": _both("ec12a88b9fc14d74ba646ea0410cf7ff4533bec2eb61652f8ad76796bbfec017", "credit/old/german.data"),
        "credit-new": _both("867cd637e04a0be2b4f3ef2c5c2e5e0a47853fd51bc02cfbe0c5725b9d0578dc", "credit/new/train.csv"),
        "credit-new-complete": Source(
            "f0caee5ff54c4a4e9689bc10d5b23ccf5088862a846ab603f9536f135aae30d3",
            (f"{_SOUTH_GERMAN}/data/SouthGermanCredit.asc",),
        ),
        "spam": Source(
            "af8bf9d76c8e22a2677d5c98c4ffa0c7252fa8049ef317aa3042b33f8424cee9",
            (f"{_PAPER}/exp_sec5/datasets/spam/spam.csv",),
        ),
        "spam-complete": Source(
            "73152697481767e4712e97663f5bfac69e5bc65585ba2e82510f14157bca0d40", (f"{_SPAMBASE}/data/spambase.data",)
        ),
        "news": Source(
            "b66d9088632308cc27fa35af847650d174a5a50503987c4e511de94a99d1c218", (_NEWS,), "OnlineNewsPopularity.csv"
        ),
    }
)
