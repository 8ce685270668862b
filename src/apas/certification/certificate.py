"""One certificate: claim, verdict, evidence, and the witness that anyone can replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apas._random import Stream
from apas._typing import Floats
from apas.certification.claims import Every, Most, Verdict
from apas.display.numbers import exactly
from apas.models.base import Dense, offers
from apas.models.convert import as_model, encoded_rows
from apas.shifts.base import OtherMoves, ShiftSet, coordinates, drawn_margins
from apas.shifts.box import inside_box


class Witness(Protocol):
    """A shifted model on which a row is not valid."""

    @property
    def delta(self) -> float:
        """Size of the shift."""
        ...

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""
        ...

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What is needed to replay it, as JSON values."""
        ...


@dataclass(frozen=True)
class DrawnShift:
    """A shift kept as the number of the draw that found it.

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

    def direction(self, model: Any) -> Floats:
        """The direction that was drawn: one number per parameter, or per coordinate of what moves instead."""
        moving, stream = coordinates(self.shifts, as_model(model)), Stream(self.entropy, self.purpose)
        return np.asarray(self.shifts.directions(moving, stream, self.index, self.index + 1)[0])

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""
        net, direction = as_model(model), self.direction(model)
        if offers(self.shifts, OtherMoves):
            return self.shifts.shifted_parameters(net, direction, self.delta)
        return net.parameters.values + self.delta * direction

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        net = as_model(model)
        points, rows = encoded_rows(net, X)
        direction = self.direction(net)[None, :]
        return float(drawn_margins(self.shifts, net, points, rows, target, direction, self.delta)[0, 0])

    def to_dict(self) -> dict[str, Any]:
        """The number of the draw; stream and size stand in the certificate."""
        return {"kind": "draw", "index": self.index}


@dataclass(frozen=True, eq=False)
class KeptShift:
    """A shift kept as the parameters of the shifted model, which lie inside the set without any tolerance.

    Parameters
    ----------
    delta : float
    values : ndarray of shape (k,)
        Parameters of the shifted model.

    Examples
    --------
    >>> from apas import FeedForward
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> KeptShift(0.5, np.array([1.0, -0.5])).margin(net, [[0.25]], 1)
    -0.25
    """

    delta: float
    values: Floats

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""
        return self.values

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        net = as_model(model)
        rows = encoded_rows(net, X)[1]
        if offers(net, Dense):  # on these very parameters, not on base + difference, which rounds
            return float(net.as_feedforward().with_parameters(self.values).margin(rows, target)[0])
        move = (self.values - net.parameters.values)[None, :]
        return float(net.shifted_margins(rows, target, move, 1.0)[0, 0])

    def to_dict(self) -> dict[str, Any]:
        """The parameters, every bit of them."""
        return {"kind": "parameters", "delta": self.delta, "values": self.values.tolist()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptShift) and self.delta == other.delta and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.delta, self.values.tobytes()))


@dataclass(frozen=True, eq=False)
class CornerShift:
    """A shift to a corner of a box, kept as one sign per parameter: an eighth of what the parameters take.

    Parameters
    ----------
    shifts : ShiftSet
        With a box for its geometry.
    delta : float
    signs : ndarray of int8, shape (k,)
        -1, 0 or 1 per parameter: to which end of its range it moves, as far as fits inside without tolerance.

    Examples
    --------
    >>> from apas import FeedForward, LinfShifts
    >>> net = FeedForward([[[1.0]]], [[0.0]])
    >>> CornerShift(LinfShifts(), 0.5, np.array([0, -1], dtype=np.int8)).margin(net, [[0.25]], 1)
    -0.25
    """

    shifts: ShiftSet
    delta: float
    signs: NDArray[np.int8]

    def __post_init__(self) -> None:
        signs = np.array(self.signs, dtype=np.int8)
        signs.flags.writeable = False
        object.__setattr__(self, "signs", signs)

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""
        base = as_model(model).parameters
        return inside_box(base.values, self.shifts.radii(base), self.delta, self.signs.astype(np.float64))

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        return KeptShift(self.delta, self.parameters(model)).margin(model, X, target)

    def to_dict(self) -> dict[str, Any]:
        """The signs as a text of ``-``, ``0`` and ``+``."""
        text = np.array(["-", "0", "+"])[self.signs + 1]
        return {"kind": "corner", "delta": self.delta, "signs": "".join(text.tolist())}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CornerShift) and self.to_dict() == other.to_dict() and self.shifts == other.shifts

    def __hash__(self) -> int:
        return hash((self.delta, self.signs.tobytes()))


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
        return {"kind": "bound", "step": self.step, "bound": self.bound, "nodes": self.nodes, "exact": self.exact}


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
            "verdict": self.verdict.name,
            "claim": self.claim.to_dict(),
            "delta": self.delta,
            "target": self.target,
            "method": self.method,
            "reason": self.reason,
            "evidence": self.evidence.to_dict(),
            "witness": None if self.witness is None else self.witness.to_dict(),
        }

    def __str__(self) -> str:
        return self.sentence()
