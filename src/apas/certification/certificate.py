"""One certificate: claim, verdict, evidence, and the witness that anyone can replay.

Nothing that found a failing shift is believed: `confirmed_witness` keeps what lies in the set and fails for sure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from apas._fields import Fields, Kinds, Saved
from apas._random import Stream
from apas._typing import Floats
from apas._validation import is_frame, read_only
from apas.certification.claims import CLAIMS, Claim, Verdict
from apas.certification.region import RowRegion
from apas.display.numbers import exactly, plain
from apas.errors import InputError
from apas.models.base import Capability, Dense, as_model, encoded_rows, offers
from apas.models.dense_chain import dense_chain
from apas.models.forward import margins_from_scores, scores
from apas.shifts.base import Box, Embedded, MovesInput, OtherMoves, ShiftSet, coordinates, drawn_margins
from apas.shifts.geometry import inside_box, within_box
from apas.worst_case.exact_arithmetic import exact_sign, is_piecewise_linear
from apas.worst_case.intervals import margin_error

if TYPE_CHECKING:
    from apas.certification.question import Question

#: Stream of the one draw that asks a listed model, which takes no random number.
LISTED = (0, "listed")
#: Witnesses and evidence that a certificate file may hold.
_KEPT_AS = {"draw": "DrawnShift", "corner": "CornerShift", "parameters": "KeptShift", "row": "RowWitness"}
WITNESSES = Kinds({kind: f"{__name__}.{name}" for kind, name in _KEPT_AS.items()})
_PLACES = {"model": "certificate.Base", "bound": "certificate.Bound", "calibration": "calibration.Calibration"}
_PLACES |= {kind: f"methods.{kind}.{kind.capitalize()}" for kind in ("sampling", "enumeration", "refit")}
_PLACES |= {"partition": "methods.enumeration.Enumeration", "share": "methods.enumeration.Share"}
EVIDENCE = Kinds({kind: f"apas.certification.{place}Evidence" for kind, place in _PLACES.items()})


class Witness(Protocol):
    """A shifted model on which a row is not valid."""

    @property
    def delta(self) -> float:
        """Size of the shift."""

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""

    def to_dict(self) -> dict[str, Any]:
        """What is needed to replay it, as JSON values."""


@dataclass(frozen=True)
class DrawnShift:
    """A shift kept as the number of the draw that found it, on the stream of `entropy` and `purpose`."""

    shifts: ShiftSet
    delta: float
    entropy: int
    purpose: str
    index: int
    kind: ClassVar[str] = "draw"

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

    @classmethod
    def from_dict(cls, about: Fields, shifts: Any, delta: float, evidence: Evidence) -> DrawnShift:
        """The draw that a file names, of the stream that its evidence tells."""
        index = about.only("kind", "index").integer("index")
        return cls(shifts, delta, *((evidence.entropy, evidence.purpose) if offers(evidence, Drawn) else LISTED), index)


class _KeptMoves:
    """A shift kept as what moves in a set, inside it without any tolerance."""

    delta: float
    shifts: Any
    #: The field that it is kept in, and what numbers these are.
    KEPT: ClassVar[tuple[str, Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, self.KEPT[0], read_only(self._kept, self.KEPT[1]))

    @property
    def _kept(self) -> NDArray[Any]:
        return np.asarray(getattr(self, self.KEPT[0]))

    def moved(self, model: Any) -> Floats:
        """What moves in the set, where the shift has moved it to."""
        return self._kept

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""
        values = self.moved(model)
        return self.shifts.parameters_at(as_model(model), values) if offers(self.shifts, MovesInput) else values

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin on the shifted model of one row, given as the user gave it: 2-D with one row, or a data frame."""
        net, rows_move = as_model(model), offers(self.shifts, MovesInput)
        rows, values = encoded_rows(net, X)[1], self.moved(net)
        chain = dense_chain(net) if rows_move or not offers(net, Dense) else None
        if chain is not None:
            chain = self.shifts.embed(chain) if rows_move else chain
            return float(chain.network.with_parameters(chain.at(values)).margin(rows, target)[0])
        if offers(net, Dense):  # on these very parameters, not on base + difference, which rounds
            return float(net.as_feedforward().with_parameters(values).margin(rows, target)[0])
        return float(net.shifted_margins(rows, target, (values - net.parameters.values)[None, :], 1.0)[0, 0])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _KeptMoves) or type(self) is not type(other) or self.delta != other.delta:
            return False
        return np.array_equal(self._kept, other._kept) and bool(self.shifts == other.shifts)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.delta, (self._kept + 0).tobytes()))  # -0.0, equal to 0.0, made 0.0


@dataclass(frozen=True, eq=False)
class KeptShift(_KeptMoves):
    """A shift kept as the parameters of the shifted model, which lie inside the set without any tolerance.

    Where the row moves too, `values` are what moves in `shifts`, the set.

    Examples
    --------
    >>> from apas import FeedForward
    >>> KeptShift(0.5, np.array([1.0, -0.5])).margin(FeedForward([[[1.0]]], [[0.0]]), [[0.25]], 1)
    -0.25
    """

    delta: float
    values: Floats
    shifts: Any = None
    kind: ClassVar[str] = "parameters"
    KEPT: ClassVar[tuple[str, Any]] = ("values", np.float64)

    def to_dict(self) -> dict[str, Any]:
        """The parameters, every bit of them."""
        return {"kind": "parameters", "delta": self.delta, "values": self.values.tolist()}

    @classmethod
    def from_dict(cls, about: Fields, shifts: Any, delta: float, evidence: Evidence) -> KeptShift:
        """The parameters that a file holds; the certificate's delta must be theirs, which `verify` looks at."""
        size = about.only("kind", "delta", "values").number("delta", above=0)
        kept = shifts if offers(shifts, MovesInput) else None
        return cls(size, np.array(about.numbers("values"), dtype=np.float64), kept)


@dataclass(frozen=True, eq=False)
class CornerShift(_KeptMoves):
    """A shift to a corner of a box, kept as one sign per parameter: an eighth of what the parameters take.

    A sign, -1, 0 or 1, says to which end of its range a parameter moves, as far as fits inside without tolerance.

    Examples
    --------
    >>> from apas import FeedForward, LinfShifts
    >>> corner = CornerShift(LinfShifts(), 0.5, np.array([0, -1], dtype=np.int8))
    >>> corner.margin(FeedForward([[[1.0]]], [[0.0]]), [[0.25]], 1)
    -0.25
    """

    shifts: ShiftSet
    delta: float
    signs: NDArray[np.int8]
    kind: ClassVar[str] = "corner"
    KEPT: ClassVar[tuple[str, Any]] = ("signs", np.int8)

    def moved(self, model: Any) -> Floats:
        """What moves in the set, where the shift has moved it to: the parameters."""
        base, signs = as_model(model).parameters, self.signs
        if signs.shape != base.values.shape:
            raise InputError(f"`model` must have {signs.size} parameters, as the corner has signs, got {len(base)}.")
        return inside_box(base.values, self.shifts.radii(base), self.delta, signs.astype(np.float64))

    def to_dict(self) -> dict[str, Any]:
        """The signs as a text of ``-``, ``0`` and ``+``."""
        return {"kind": "corner", "delta": self.delta, "signs": "".join("0+-"[sign] for sign in self.signs.tolist())}

    @classmethod
    def from_dict(cls, about: Fields, shifts: Any, delta: float, evidence: Evidence) -> CornerShift:
        """The corner that a file describes, of the box that its certificates are about."""
        size = about.number("delta", above=0)
        text, places = about.only("kind", "delta", "signs").text("signs"), {"-": -1, "0": 0, "+": 1}
        if getattr(shifts, "kind", None) != "linf" or not set(text) <= set(places):
            raise about.wrong("signs", "a text of -, 0 and +, with shifts in a box")
        return cls(shifts, size, np.array([places[sign] for sign in text], dtype=np.int8))


@dataclass(frozen=True)
class RowWitness:
    """A row of a region, column by column as the user has it, that fails on a shifted model, or on the model itself."""

    cells: tuple[Any, ...]
    shift: Any
    delta: float
    kind: ClassVar[str] = "row"

    def parameters(self, model: Any) -> Floats:
        """Parameters of the shifted model, shape (k,)."""
        return as_model(model).parameters.values if self.shift is None else self.shift.parameters(model)

    def table(self, X: Any) -> Any:
        """The row as a table of one line, like that of the row that was certified."""
        if not is_frame(X):
            return np.array([self.cells], dtype=None if np.asarray(X).dtype == object else np.float64)
        return X.iloc[:1].assign(**dict(zip([str(c) for c in X.columns], self.cells, strict=True)))

    def margin(self, model: Any, X: Any, target: Any) -> float:
        """Margin of the row that fails on the shifted model; `X` is the certified row as the user gave it."""
        if self.shift is not None:
            return float(self.shift.margin(model, self.table(X), target))
        net = as_model(model)
        return float(net.margin(encoded_rows(net, self.table(X))[1], target)[0])

    def to_dict(self) -> dict[str, Any]:
        """The row, and what is needed to replay the shift."""
        return {"kind": "row", "cells": list(self.cells), "shift": None if self.shift is None else self.shift.to_dict()}

    @classmethod
    def from_dict(cls, about: Fields, shifts: Any, delta: float, evidence: Evidence) -> RowWitness:
        """The row that a file holds."""
        cells = about.only("kind", "cells", "shift").items("cells")
        if not all(cell is None or isinstance(cell, str | int | float) for cell in cells):
            raise about.wrong("cells", "a list of texts and numbers")
        kept = None if about.is_null("shift") else WITNESSES.read(about.inner("shift"), shifts, delta, evidence)
        if isinstance(kept, cls):
            raise about.wrong("shift", "a shifted model")
        return cls(tuple(cells), kept, delta)


def confirmed_witness(question: Question, row: int, values: Floats) -> Witness | None:
    """Keep the shifted parameters if they lie in the set, without tolerance, and row number `row` is not valid on them.

    The margin, in float64 on these very parameters, must fail beyond what rounding could do; else exact rational
    arithmetic decides for piecewise linear networks in float64.
    """
    delta, base, shifts = float(question.delta[row]), question.model.parameters, question.shifts
    values, chain = np.asarray(values, dtype=np.float64), None
    box, reach = isinstance(question.geometry, Box), question.reach
    if offers(shifts, Embedded):  # what is kept are the coordinates of the set, not the parameters of the chain
        base, chain, shifts = shifts.base, shifts.chain, shifts.shifts
        values, reach = chain.lower(values, base.values), shifts.radii(base)
    if box:
        inside = bool(within_box(base.values, reach, delta, values).all())
    else:
        inside = bool(np.isfinite(values).all()) and shifts.contains(base, replace(base, values=values), delta)
    if not inside or not _fails(question, row, values if chain is None else chain.at(values)):
        return None
    if offers(shifts, MovesInput):
        return KeptShift(delta, values, shifts)
    if box:  # a corner as its signs: large models have large witnesses
        signs = np.sign(values - base.values)
        if np.array_equal(inside_box(base.values, reach, delta, signs), values):
            return CornerShift(shifts, delta, signs.astype(np.int8))
    return KeptShift(delta, values)


def _fails(question: Question, row: int, values: Floats) -> bool:
    network, one = question.network, slice(row, row + 1)
    if network is None:
        alone, move = question.take(one), (values - question.model.parameters.values)[None, :]
        margin = float(question.model.shifted_margins(alone.X, alone.target[0], move, 1.0)[0, 0])
        return bool(margin < -alone.band[0])  # written so that a NaN does not count
    X, wanted, tensors = question.X[one], question.wanted[one], network.parameters.split(values)
    parts = tensors[::2], tensors[1::2], network.activations
    margin = float(margins_from_scores(scores(*parts, X), wanted, network.offset)[0])
    if not is_piecewise_linear(network.activations) or question.single:
        return bool(margin < -question.take(one).band[0])
    strict = bool(question.strict[row])
    if margin > 0 or (margin == 0 and not strict):  # written so that a NaN is left to exact arithmetic
        return False
    # what rounding can have done to it: as a rule far less, and then its sign is that of real arithmetic
    reach = question.reach if isinstance(question.reach, float) else network.parameters.split(question.radii)
    if margin < -margin_error(network, X, reach, question.delta[one])[0]:
        return True
    sign = exact_sign(*parts, X[0], int(wanted[0]), network.offset)
    return sign < 0 or (sign == 0 and strict)


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

    @property
    def failures(self) -> int:
        """On how many of them the row was not valid."""

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values."""


class Drawn(Capability, Protocol):
    """Evidence from draws of a random stream, which it names."""

    entropy: int
    purpose: str


class Rechecked(Capability, Protocol):
    """Evidence, or a claim, that says what checks it again; `verify` knows how to check that of the package."""

    def recheck(self, question: Question, certificate: Any) -> tuple[bool | None, str]:
        """Whether a certificate, or a `MaxShift` at the question's delta, holds for its row (None: unknown) and why."""


@dataclass(frozen=True)
class BaseEvidence(Saved):
    """The unshifted model alone decided."""

    draws: int = 0
    failures: int = 0
    kind: ClassVar[str] = "model"

    @classmethod
    def from_dict(cls, about: Fields) -> BaseEvidence:
        """The evidence that a file describes."""
        if any(about.only("kind", "draws", "failures").integer(key) for key in ("draws", "failures")):
            raise InputError(f"{about.where} must have no draws: the unshifted model alone decided.")
        return cls()


@dataclass(frozen=True)
class BoundEvidence(Saved):
    """A statement about every shift: a bound that was proved, or a shift that was found.

    Attributes
    ----------
    step : str
        What decided: "interval", "linear", "attack", "splitting", "solver", "ball" or "ellipsoid"; "models" where each
        of a list was asked. If nothing did, "none", or "attack" where nothing else was tried.
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
    draws: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    kind: ClassVar[str] = "bound"

    @classmethod
    def from_dict(cls, about: Fields) -> BoundEvidence:
        """The evidence that a file describes."""
        about.only("kind", "step", "bound", "nodes", "exact")
        bound = None if about.is_null("bound") else about.number("bound")
        return cls(about.text("step"), bound, about.integer("nodes"), about.flag("exact"))


@dataclass(frozen=True)
class Certificate:
    """What was shown about one counterfactual explanation.

    Attributes
    ----------
    claim : Claim
        `Every`, `Most`, or one of a method's own.
    method, reason : str
        How it was shown, and why the verdict is what it is.
    witness : Witness or None
        A shift on which the row is not valid, if one was found.
    seconds : float
        Wall time of the call divided by its rows; not part of equality.
    region : RowRegion or None
        Which rows the claim is about together; None for the row alone.
    """

    claim: Claim
    verdict: Verdict
    delta: float
    target: Any
    method: str
    evidence: Evidence
    reason: str
    witness: Witness | None = None
    seconds: float = field(default=0.0, compare=False)
    region: RowRegion | None = None

    @property
    def is_certified(self) -> bool:
        """Whether the claim was certified."""
        return self.verdict is Verdict.CERTIFIED

    @property
    def valid_today(self) -> bool:
        """Whether the model itself gives the class, or may by its rounding; if not, it is refuted without draws."""
        return self.reason != NOT_VALID

    def __bool__(self) -> bool:
        advice = "use .is_certified, or compare .verdict with a Verdict"
        raise TypeError(f"a certificate is neither true nor false: {advice}.")

    def sentence(self) -> str:
        """Say the verdict in words that are true as they stand."""
        if not self.valid_today:
            here, why = "here", ", so there is nothing to keep"
            if self.region is not None and isinstance(self.witness, RowWitness):
                cells = ", ".join(str(cell) for cell in self.witness.cells)
                here, why = f"to the row ({cells}) of the region ({self.region.words()})", ""
            why = f"the model itself does not give class {self.target!r} {here}{why}"
            return f"{self.verdict}, not valid today: {why}; nothing is said about the shifts."
        keeps = self.claim.subject(refuted=self.verdict is Verdict.REFUTED)
        where = "" if self.region is None else f" for every row of the region ({self.region.words()})"
        what = f"class {self.target!r}{where} under shifts by delta = {exactly(self.delta)} ({self.claim.measure})"
        if self.verdict is Verdict.UNKNOWN:
            return f"UNKNOWN: it is not settled whether {keeps} {what}; {self.reason}."
        return f"{self.verdict}: {self.claim.sureness()}, {keeps} {what}; {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """All but the time, as JSON values."""
        said = {"verdict": self.verdict.name, "claim": self.claim.to_dict(), "delta": self.delta}
        said |= {"target": plain(self.target), "method": self.method, "reason": self.reason}
        witness = None if self.witness is None else self.witness.to_dict()
        about = {} if self.region is None else {"region": self.region.to_dict()}
        return {**said, "evidence": self.evidence.to_dict(), "witness": witness, **about}

    @classmethod
    def from_dict(cls, about: Fields, shifts: Any) -> Certificate:
        """The certificate that an entry of a file holds; `shifts` are those of the file."""
        about.only("verdict", "claim", "delta", "target", "method", "reason", "evidence", "witness", "region")
        evidence, delta = EVIDENCE.read(about.inner("evidence")), about.number("delta", above=0)
        kept = None if about.is_null("witness") else about.inner("witness")
        claim, verdict = CLAIMS.read(about.inner("claim")), Verdict[about.choice("verdict", *Verdict.__members__)]
        said = (claim, verdict, delta, about.label("target"), about.text("method"), evidence, about.text("reason"))
        region = RowRegion.from_dict(about.inner("region")) if "region" in about.content else None
        witness = None if kept is None else WITNESSES.read(kept, shifts, delta, evidence)
        return cls(*said, witness, region=region)

    def unsaved(self) -> str:
        """What of the certificate no reader of a file would know, in words; empty if it can be saved."""
        parts: list[Any] = [("evidence", EVIDENCE, self.evidence), ("a claim", CLAIMS, self.claim)]
        parts += [] if self.witness is None else [("a witness", WITNESSES, self.witness)]
        odd = [f"{what} of type {type(part).__name__}" for what, known, part in parts if not known.know(part)]
        return odd[0] if odd else ""

    __str__ = sentence
