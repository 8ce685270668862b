"""What a certificate speaks about, and what can be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Protocol, runtime_checkable

from apas._fields import Fields, Kinds, Saved
from apas._validation import check_integer, check_probability
from apas.errors import InputError
from apas.stats import simultaneous

#: How a claim about all shifts is printed, also in reports that hold the text of a claim alone.
EVERY = "every shift"


class Verdict(Enum):
    """What is known about a claim; the value says it in a sentence."""

    CERTIFIED = "The claim holds, with the confidence it states."
    REFUTED = (
        "There is evidence against the claim about the shifts; or the row is not valid today, since the model itself "
        "does not give the target class, and nothing is said about the shifts."
    )
    UNKNOWN = "The evidence decides nothing."

    def __str__(self) -> str:
        return self.name


@runtime_checkable
class Claim(Protocol):
    """What a certificate speaks about: `Every`, `Most`, or one that a method brings.

    What knows no file (`CLAIMS`) can be certified, audited and reported, but not saved; see also `Rechecked`.
    """

    @property
    def measure(self) -> str:
        """The set or the distribution of the shifts, in words."""

    @property
    def rows(self) -> int:
        """How many rows it speaks of together."""

    @property
    def coverage(self) -> float:
        """The share of the shifts that it speaks of; 1 for every one."""

    @property
    def confidence(self) -> float:
        """``1 - risk``, or the next float below; 1 for what is certain alone."""

    @property
    def risk(self) -> Fraction:
        """How often such a claim may be false, exactly and also below what a float can say; 0 if it never is."""

    @property
    def row_confidence(self) -> Fraction:
        """The confidence at which each single row is tested, exactly."""

    @property
    def against(self) -> str:
        """Why a row that the model itself gives its class is refuted."""

    def among(self, count: int, what: str = "row") -> str:
        """The claim in words, as one of so many."""

    def subject(self, *, refuted: bool = False) -> str:
        """Which shifts keep the class, or do not, with the verb: "every one of the shifts keeps"."""

    def sureness(self) -> str:
        """How sure that is: "for certain", or the confidence, and for how many rows."""

    def meaning(self, size: str, *, per_test: bool = False) -> str:
        """What a reader is told that it means, at shifts of a size; `per_test` of a search as it was published."""

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON values, with its kind."""


def is_proof(claim: Claim) -> bool:
    """Whether a claim speaks of every shift, and for certain: a single one against it shows that it is wrong."""
    return claim.coverage == 1 and not claim.risk


#: Claims that a certificate file may hold.
CLAIMS = Kinds(
    {"every": f"{__name__}.Every", "most": f"{__name__}.Most", "update": "apas.certification.calibration.NextUpdate"}
)


def percent(share: float) -> str:
    """A share as it was typed, such as "99.5 %"."""
    # the decimal point of what was typed is moved, and no digit lost: 0.9999999999999999 * 100 may print as 100
    exact = Decimal(repr(share)).scaleb(2).normalize()
    return f"{exact:f} %" if exact > Decimal("1e-6") else f"{exact:e} %"


@dataclass(frozen=True)
class Every(Saved):
    """Every shift of the set that `measure` names keeps the target class; said of so many `rows` together."""

    measure: str
    rows: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.measure, str):
            raise InputError(f"`measure` of Every must be a text that names the set, got {self.measure!r}.")
        check_integer(self.rows, "rows", "Every", least=1)

    kind: ClassVar[str] = "every"
    coverage: ClassVar[float] = 1.0
    confidence: ClassVar[float] = 1.0
    risk: ClassVar[Fraction] = Fraction(0)
    row_confidence: ClassVar[Fraction] = Fraction(1)
    against: ClassVar[str] = "with a failing shift"

    def __str__(self) -> str:
        return EVERY

    def among(self, count: int, what: str = "row") -> str:
        """The claim in words, as one of so many: what is proved holds for all of them together."""
        return str(self)

    def subject(self, *, refuted: bool = False) -> str:
        """That every shift keeps the class, or not every one, with the verb."""
        return f"{'not ' if refuted else ''}every one of the shifts keeps"

    def sureness(self) -> str:
        """What is proved is certain."""
        return "for certain"

    def meaning(self, size: str, *, per_test: bool = False) -> str:
        """What a reader is told that it means."""
        return f"it is proved that every shift of the set ({self.measure}; {size}) keeps the promised class."

    @classmethod
    def from_dict(cls, about: Fields) -> Every:
        """The claim that a file describes."""
        about.only("kind", "measure", "rows")
        return cls(about.text("measure"), about.integer("rows", 1))


@dataclass(frozen=True)
class Most:
    """At least a share `coverage` of the shifts keeps the target class; true with the given confidence.

    The confidence is about the sample: a claim made this way is false in at most a share ``1 - confidence`` of all
    samples that could have been drawn. It says nothing about shifts that follow another distribution than `measure`.

    Parameters
    ----------
    coverage : float
        The share of shifts, in (0, 1).
    confidence : float
        In (0, 1), or 1 where the share was computed rather than estimated.
    measure : str
        The distribution of the shifts, in words.
    rows : int, default 1
        How many rows the confidence holds for together; each is then tested at ``1 - (1 - confidence) / rows``.
    tries : int, default 1
        By what the remaining risk was divided once more because a search found the row, see `search_tries`.
    bits : int, optional
        That the seed was derived (`DerivedSeed`) and the risk is ``2**-bits``; `confidence` is then the largest float
        that is not above, whatever was given.

    Examples
    --------
    >>> str(Most(0.995, 0.999, "uniform on a box", bits=64))
    'at least 99.5 % of the shifts, confidence 1 - 2^-64'
    """

    coverage: float
    confidence: float
    measure: str
    rows: int = 1
    tries: int = 1
    bits: int | None = None
    kind: ClassVar[str] = "most"
    against: ClassVar[str] = "with too small a share"

    def __post_init__(self) -> None:
        object.__setattr__(self, "coverage", check_probability(self.coverage, "coverage", "Most"))
        if self.bits is not None:
            if check_integer(self.bits, "bits", "Most", least=1) > 256:  # a seed has no more
                raise InputError(f"`bits` of Most must be at most 256, got {self.bits}.")
            # 1 - 2**-54 and what is closer to 1 would be rounded to 1
            object.__setattr__(self, "confidence", 1 - 2.0 ** -min(self.bits, 53))
        if self.confidence != 1.0:  # 1 where the share was computed rather than estimated
            object.__setattr__(self, "confidence", check_probability(self.confidence, "confidence", "Most"))
        check_integer(self.rows, "rows", "Most", least=1)
        check_integer(self.tries, "tries", "Most", least=1)

    @property
    def risk(self) -> Fraction:
        """In what share of all samples such a claim may be false, exactly as the confidence was typed."""
        return 1 - Fraction(repr(self.confidence)) if self.bits is None else Fraction(1, 2**self.bits)

    @property
    def row_confidence(self) -> Fraction:
        """The confidence at which each single row is tested, exactly."""
        parts = self.rows * self.tries
        if self.bits is not None:
            return 1 - self.risk / parts
        if parts == 1 or self.confidence == 1.0:  # what is certain is so for any number of rows
            return Fraction(repr(self.confidence))
        return simultaneous(self.confidence, parts)

    @property
    def share(self) -> str:
        """The coverage as it was typed, such as "99.5 %"."""
        return percent(self.coverage)

    def __str__(self) -> str:
        return f"at least {self.share} of the shifts, {self._level().removeprefix('with ')}"

    def among(self, count: int, what: str = "row") -> str:
        """The claim in words, as one of so many: whether its confidence is for each by itself or for all together."""
        alone = count > 1 and self.rows == 1 and self.confidence < 1.0
        return f"{self}{f' for each {what} by itself' if alone else ''}"

    def subject(self, *, refuted: bool = False) -> str:
        """That so many shifts keep the class, or fewer, with the verb."""
        return f"{'fewer than' if refuted else 'at least'} {self.share} of the shifts keep"

    def sureness(self) -> str:
        """The confidence, for how many rows it holds together, and what a derived seed is good for."""
        return f"{self._level()}{self.variants}"

    def _level(self) -> str:
        if self.confidence == 1.0:
            return "for certain"
        together = f" for all {self.rows} rows together" if self.rows > 1 else ""
        return f"with confidence {self.shown_confidence}{together}"

    @property
    def shown_confidence(self) -> float | str:
        """The confidence as it was typed, or a text where no float can say it."""
        return self.confidence if self.bits is None else f"1 - 2^-{self.bits}"

    @property
    def variants(self) -> str:
        """What a derived seed is good for, in words; empty for one that was chosen."""
        told = f"whoever tries N variants gets a false certificate with probability at most N / 2^{self.bits}"
        return f" (derived seed: {told})" if self.bits else ""

    def meaning(self, size: str, *, per_test: bool = False) -> str:
        """What a reader is told that it means; a delta that tests searched for has no confidence of its own."""
        share = f"of all shifts ({self.measure}; {size}), at least {self.share} keep the promised class"
        if self.confidence == 1.0:
            return f"{share}, which is computed, not estimated."
        if per_test:
            asked, sure = f"each test of the published search asks whether {share}", repr(self.confidence)
            return f"{asked}. The confidence of {sure} holds for each test of the search, not for its result."
        return f"{share}, {self._level()}{'' if self.rows > 1 else ' for each explanation by itself'}{self.variants}."

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON values; of a derived seed with the logarithm of the risk in place of the confidence."""
        told = {"kind": self.kind, **vars(self)}
        del told["confidence" if self.bits else "bits"]
        return told

    @classmethod
    def from_dict(cls, about: Fields) -> Most:
        """The claim that a file describes."""
        derived = "bits" in about.content
        about.only("kind", "coverage", "bits" if derived else "confidence", "measure", "rows", "tries")
        bits = about.integer("bits", 1) if derived else None
        shares = about.number("coverage"), 0.5 if derived else about.number("confidence")
        return cls(*shares, about.text("measure"), about.integer("rows", 1), about.integer("tries", 1), bits)


def search_tries(rank: int, test: int) -> int:
    """By what a search divides the risk of a test, whose draws are on the stream ``generate/<rank>/<test>``.

    Test j of a counterfactual has 1 / (j (j + 1)) of the risk, which adds up to 1; test 0, that of a path, has all. A
    further counterfactual of a row, of rank r, has 1 / (r (r + 1)) of that: each rank has draws of its own.
    """
    return max(1, rank * (rank + 1)) * max(1, test * (test + 1))
