"""One answer about one row: the claim, the verdict, and the evidence anyone can go through again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas.certify.claims import Every, Most, Verdict
from apas.models.convert import as_model, encoded_rows
from apas.shifts.protocol import ShiftSet

__all__ = ["BaseEvidence", "Certificate", "DrawnShift", "Evidence"]

#: Reason of every row whose explanation is not valid to begin with.
NOT_VALID = "not valid on the model itself"


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
class DrawnShift:
    """A shift that breaks the explanation, kept as the number of the draw that found it.

    Parameters
    ----------
    shifts : ShiftSet
    delta : float
    entropy : int
    purpose : str
        Together with `entropy` the stream of random words.
    index : int
        Number of the draw.
    """

    shifts: ShiftSet
    delta: float
    entropy: int
    purpose: str
    index: int

    def direction(self, model: Any) -> NDArray[np.float64]:
        """The direction that was drawn, shape (k,)."""
        stream = Stream(self.entropy, self.purpose)
        return np.asarray(self.shifts.directions(as_model(model).parameters, stream, self.index, self.index + 1)[0])

    def parameters(self, model: Any) -> NDArray[np.float64]:
        """Parameters of the shifted model, shape (k,)."""
        return as_model(model).parameters.values + self.delta * self.direction(model)

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        net = as_model(model)
        rows = encoded_rows(net, X)[1]
        return float(self.shifts.margins(net, rows, target, self.direction(net)[None, :], self.delta)[0, 0])


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
    witness : DrawnShift or None
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
    witness: DrawnShift | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_certified(self) -> bool:
        """Whether the claim was certified."""
        return self.verdict is Verdict.CERTIFIED

    def __bool__(self) -> bool:
        raise TypeError(
            "a certificate is neither true nor false: use .is_certified, or compare .verdict with a Verdict."
        )

    def sentence(self) -> str:
        """Say the verdict in words that are true as they stand."""
        if self.reason == NOT_VALID:
            return f"REFUTED: the model itself does not give class {self.target!r} here, so there is nothing to keep."
        what = f"class {self.target!r} under shifts by delta = {self.delta:g} ({self.claim.measure})"
        if isinstance(self.claim, Most):
            subject = f"at least {str(self.claim).split('at least ', 1)[1].split(',', 1)[0]}"
            odds = f"with confidence {self.claim.confidence!r}"
            odds += f" for all {self.claim.rows} rows together" if self.claim.rows > 1 else ""
            if self.verdict is Verdict.REFUTED:
                subject = subject.replace("at least", "fewer than", 1)
        else:
            subject, odds = "every one of the shifts", "for certain"
            if self.verdict is Verdict.REFUTED:
                subject = "not every one of the shifts"
        if self.verdict is Verdict.UNKNOWN:
            return f"UNKNOWN: it is not settled whether {subject} keep {what}; {self.reason}."
        return f"{self.verdict}: {odds}, {subject} keep {what}; {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """All but the time, as JSON values."""
        return {
            "verdict": self.verdict.name, "claim": self.claim.to_dict(), "delta": self.delta, "target": self.target,
            "method": self.method, "reason": self.reason, "evidence": self.evidence.to_dict(),
            "witness": None if self.witness is None else self.witness.index,
        }  # fmt: skip

    def __str__(self) -> str:
        return self.sentence()
