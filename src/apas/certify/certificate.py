"""One answer about one row: the claim, the verdict, and the evidence anyone can go through again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from apas.certify.claims import Every, Most, Verdict
from apas.certify.witness import Witness
from apas.display.numbers import exactly

__all__ = ["BaseEvidence", "BoundEvidence", "Certificate", "Evidence"]

#: Reason of every row whose explanation is not valid to begin with, and what readers are told about it.
NOT_VALID = "not valid on the model itself"
NOT_TODAY = "not valid today: the model itself does not give the target class"
#: Reason of every row of which nobody can say whether it is.
NEAR_BOUNDARY = "on the model itself its margin is within float32 rounding of 0"


class Evidence(Protocol):
    """What was found: integers, strings and exact bounds, so that two runs can be compared."""

    @property
    def draws(self) -> int:
        """How many shifted models were looked at."""
        ...

    @property
    def failures(self) -> int:
        """On how many of them the row was not valid."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        ...


@dataclass(frozen=True)
class BaseEvidence:
    """The unshifted model alone decided."""

    draws: int = 0
    failures: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return {"kind": "model", "draws": 0, "failures": 0}


@dataclass(frozen=True)
class BoundEvidence:
    """A statement about every shift: a bound that was proved, or a shift that was found.

    Attributes
    ----------
    step : str
        What decided: "interval", "linear", "attack", "splitting", "solver" or "ball"; "models" where each of a
        list was asked. If nothing did, "none", or "attack" where nothing else was tried.
    bound : float or None
        The margin is at least this on every shifted model, rounded down to six digits; None if no bound is known.
    nodes : int
        How many cases were distinguished; of an attack, how many shifts were tried.
    exact : bool
        Whether the bound is the least margin itself, up to rounding.
    """

    step: str
    bound: float | None
    nodes: int = 0
    exact: bool = False
    draws: int = 0
    failures: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return {
            "kind": "bound", "step": self.step, "bound": self.bound, "nodes": self.nodes, "exact": self.exact,
        }  # fmt: skip


@dataclass(frozen=True)
class Certificate:
    """What was shown about one counterfactual explanation.

    Attributes
    ----------
    claim : Every or Most
    verdict : Verdict
    delta : float
        Size of the shifts.
    target : object
        The class that must be kept.
    method : str
        How it was shown.
    evidence : Evidence
    reason : str
        Why the verdict is what it is.
    witness : Witness or None
        A shift on which the row is not valid, if one was found.
    seconds : float
        Wall time of the call divided by its rows; not part of equality.
    """

    claim: Every | Most
    verdict: Verdict
    delta: float
    target: Any
    method: str
    evidence: Evidence
    reason: str
    witness: Witness | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_certified(self) -> bool:
        """Whether the claim was certified."""
        return self.verdict is Verdict.CERTIFIED

    @property
    def valid_today(self) -> bool:
        """Whether the model itself gives the class, or may by its rounding; if not, it is refuted without draws."""
        return self.reason != NOT_VALID

    def __bool__(self) -> bool:
        raise TypeError(
            "a certificate is neither true nor false: use .is_certified, or compare .verdict with a Verdict."
        )

    def sentence(self) -> str:
        """Say the verdict in words that are true as they stand."""
        if not self.valid_today:
            why = f"the model itself does not give class {self.target!r} here, so there is nothing to keep"
            return f"{self.verdict}, not valid today: {why}; nothing is said about the shifts."
        what = f"class {self.target!r} under shifts by delta = {exactly(self.delta)} ({self.claim.measure})"
        if isinstance(self.claim, Most):
            least = "fewer than" if self.verdict is Verdict.REFUTED else "at least"
            subject = f"{least} {self.claim.share} of the shifts"
            odds = f"with confidence {self.claim.confidence!r}"
            odds += f" for all {self.claim.rows} rows together" if self.claim.rows > 1 else ""
            odds = "for certain" if self.claim.confidence == 1.0 else odds
        else:
            subject, odds = "every one of the shifts", "for certain"
            if self.verdict is Verdict.REFUTED:
                subject = "not every one of the shifts"
        keeps = "keep" if isinstance(self.claim, Most) else "keeps"
        if self.verdict is Verdict.UNKNOWN:
            return f"UNKNOWN: it is not settled whether {subject} {keeps} {what}; {self.reason}."
        return f"{self.verdict}: {odds}, {subject} {keeps} {what}; {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """All but the time, as JSON values."""
        return {
            "verdict": self.verdict.name, "claim": self.claim.to_dict(), "delta": self.delta, "target": self.target,
            "method": self.method, "reason": self.reason, "evidence": self.evidence.to_dict(),
            "witness": None if self.witness is None else self.witness.to_dict(),
        }  # fmt: skip

    def __str__(self) -> str:
        return self.sentence()
