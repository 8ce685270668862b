"""`RefitBounds`: proofs about every refit on a changed training table, and changes that break a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from apas._fields import Fields, Saved
from apas._random import Stream
from apas._typing import Floats
from apas._validation import check_flag
from apas.certification.certificate import Certificate, KeptShift
from apas.certification.claims import Every, Verdict
from apas.certification.max_shift.result import MaxShift
from apas.certification.methods.bounds import every
from apas.certification.question import Question
from apas.display.numbers import at_least, exactly
from apas.models.base import ROUNDING, offers
from apas.shifts.base import Refitted
from apas.shifts.data_change import LastLayer
from apas.shifts.fit_problem import last_layer_rows
from apas.worst_case.data_change import BreakingChange, RefitScores, breaking_change, least_breaking

#: How much a bound may differ on another machine.
SAME_BOUND = 1e-5
#: So many rows of a change are named in a reason.
NAMED = 5


@dataclass(frozen=True)
class RefitEvidence(Saved):
    """A statement about every refit on a changed table: the bound with what proves it, or the change that breaks it.

    Attributes
    ----------
    bound : float or None
        The margin is at least this on every refit, rounded down to six digits; None if nothing holds the refits.
    radius, threshold, spared
        What proves it: all refits lie within this radius of the minimiser, in the norm of the Hessian, as the quadratic
        bound with this threshold shows, from which so many rows are taken out (0 and 0: the plain sum).
    rows : tuple of int
        Of a change that breaks the row: numbers of the training rows that are removed or relabelled.
    added : tuple of float
        The row that is added, delta times, as it enters the last layer; with its label behind it. Empty if none is.
    table : str
        SHA-256 of the training table in model units: columns, labels, weights, weights with the other label.
    """

    bound: float | None
    radius: float
    threshold: float
    spared: int
    rows: tuple[int, ...]
    added: tuple[float, ...]
    table: str
    draws: ClassVar[int] = 0
    failures: ClassVar[int] = 0
    kind: ClassVar[str] = "refit"

    @classmethod
    def from_dict(cls, about: Fields) -> RefitEvidence:
        """The evidence that a file describes."""
        about.only("kind", *cls.__dataclass_fields__)
        bound = None if about.is_null("bound") else about.number("bound")
        proof = about.number("radius"), about.number("threshold"), about.integer("spared")
        rows = tuple(Fields({"rows": row}, about.where).integer("rows") for row in about.items("rows"))
        return cls(bound, *proof, rows, tuple(about.numbers("added")), about.digest("table"))

    def recheck(self, question: Question, certificate: Any) -> tuple[bool | None, str]:
        """Compute the bound again, or replay the change that breaks the row."""
        complaint, claim, verdict = RefitBounds().unsupported(question), certificate.claim, certificate.verdict
        if complaint is not None:
            return False, complaint
        if claim.coverage < 1 or claim.measure != question.region:
            return False, f"the set is {question.region!r}, the file says {claim.measure!r}"
        asked = _Asked(question, 0)
        if asked.layer.digest != self.table:
            return False, "the training table is another one"
        now, proved, _ = asked.decided(attack=False)
        numbers = [(self.radius, now.radius), (self.threshold, now.threshold), (self.spared, now.spared)]
        numbers += [] if self.bound is None or now.bound is None else [(self.bound, now.bound)]
        same = (self.bound is None) == (now.bound is None)
        same = same and all(abs(a - b) <= SAME_BOUND * max(1.0, abs(b)) for a, b in numbers)
        if not same or proved != (verdict is Verdict.CERTIFIED):
            return False, f"computed again, the bound is {now.bound!r}, the file says {self.bound!r} and {verdict}"
        if (certificate.witness is not None) != (verdict is Verdict.REFUTED) or certificate.method != RefitBounds.name:
            return False, f"the verdict {verdict} does not go with its witness or its method"
        if verdict is Verdict.REFUTED:
            breaks = asked.replay(self, certificate.witness)
            return breaks, f"the change that it keeps {'breaks' if breaks else 'does not break'} the row"
        return True, f"computed again: {asked.reason(now, verdict)}"


@dataclass(frozen=True)
class _Asked:
    """One row of a question, against the refits."""

    question: Question
    row: int

    @cached_property
    def layer(self) -> LastLayer:
        """The table behind the model."""
        return self.question.shifts.bind(self.question.model)  # type: ignore[attr-defined, no-any-return]

    @cached_property
    def scores(self) -> RefitScores:
        """The bounds, which are set up once per table and model."""
        layer, shifts = self.layer, self.question.shifts
        if "scores" not in layer.kept:
            made = RefitScores(layer.problem, shifts.kind, shifts.tolerance, layer.added)  # type: ignore[attr-defined]
            layer.kept["scores"] = made
        return layer.kept["scores"]  # type: ignore[no-any-return]

    @cached_property
    def _side(self) -> tuple[Floats, float, float]:
        """The row towards its class, what its score is compared with, and what rounding can take or give."""
        question, network, scores, i = self.question, self.layer.network, self.scores, self.row
        sign, x = 1.0 if question.wanted[i] == 1 else -1.0, question.X[i : i + 1]
        # a refit computes in floats, too, with other weights than the model: those of the widest ball
        moved, width = np.zeros(len(network.parameters)), len(scores.theta)
        widest = max((ball.radius for ball in scores.balls), default=0.0)
        moved[-width:] = np.abs(scores.theta - network.parameters.values[-width:])
        moved[-width:] += widest * np.linalg.norm(scores.W, axis=0)
        rounding = ROUNDING * float(network.margin_scale(x, moved)[0])
        return sign * last_layer_rows(network, x)[0], sign * network.offset, rounding

    def against(self, way: int) -> tuple[Floats, float]:
        """The row, and above (1) or below (-1) what its score is surely on the side of its class, or on the other."""
        u, offset, rounding = self._side
        return u, offset + way * rounding

    @property
    def changes(self) -> int:
        """How many rows may change."""
        return int(self.question.delta[self.row])

    def decided(self, *, attack: bool) -> tuple[RefitEvidence, bool, BreakingChange | None]:
        """What was found, whether that is a proof, and where it is none the change of an attack."""
        bound, ball = self.scores.at(*self.against(1), self.changes)
        broken = breaking_change(self.scores, *self.against(-1), self.changes) if attack and not bound > 0 else None
        proof = (0.0, 0.0, 0) if ball is None else (ball.radius, ball.threshold, ball.spared)
        written = float(at_least(bound)) if np.isfinite(bound) else None
        return RefitEvidence(written, *proof, *_named(broken), self.layer.digest), bound > 0, broken

    def reason(self, found: RefitEvidence, verdict: Verdict) -> str:
        """Why the verdict is what it is."""
        if verdict is Verdict.CERTIFIED:
            return f"the margin cannot fall below {at_least(found.bound or 0.0)} on any refit"
        if verdict is Verdict.REFUTED:
            return f"a change is known whose refit does not keep it: {_told(found.rows, found.added, self.changes)}"
        if found.bound is None:
            return "no ball is known that holds the refits after so many changes, and no breaking change is known"
        return f"the bound on the margin, {at_least(found.bound)}, is not above 0, and no breaking change is known"

    def replay(self, found: RefitEvidence, witness: Any) -> bool:
        """Whether a change of a file is one of the set, and its refit breaks the row."""
        base, width, kind = self.layer.network.parameters.values, len(self.scores.theta), self.scores.kind
        values, rows = witness.parameters(self.question.model), np.array(found.rows, dtype=np.intp)
        adds, labels = kind in ("added", "replaced"), (0, 1) if self.scores.problem.logistic else (-1, 1)
        fits = values.shape == base.shape and np.array_equal(values[:-width], base[:-width])
        fits = fits and len(found.added) == (width + 1 if adds else 0) and (rows < len(self.scores.m)).all()
        fits = fits and not (kind == "added" and len(rows)) and witness.delta == self.changes
        if not fits or (adds and (found.added[-2] != 1 or found.added[-1] not in labels)):
            return False
        row, label = (np.array(found.added[:-1]), found.added[-1]) if adds else (None, 0.0)
        return BreakingChange(values[-width:], rows, row, label).breaks(self.scores, *self.against(-1), self.changes)


def _named(broken: BreakingChange | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if broken is None:
        return (), ()
    return tuple(broken.rows.tolist()), () if broken.added is None else (*broken.added.tolist(), broken.label)


def _told(rows: tuple[int, ...], added: tuple[float, ...], count: int) -> str:
    shown = ", ".join(map(str, rows[:NAMED])) + (", ..." if len(rows) > NAMED else "")
    parts = [f"that of training row{'s' if len(rows) > 1 else ''} {shown}"] if rows else []
    parts += [f"{count} added cop{'ies' if count > 1 else 'y'} of one row"] if added else []
    return " and ".join(parts)


@dataclass(frozen=True, kw_only=True)
class RefitBounds:
    """Decide `Every` for refits on a changed training table (`DataChange`): a proof, or a change that breaks the row.

    Parameters
    ----------
    attack : bool, default True
        Whether to look for a change that breaks a row which is not proved.
    """

    attack: bool = True
    name: ClassVar[str] = "refit"
    speaks_of_refits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_flag(self.attack, "attack")

    def claim(self, question: Question) -> Every:
        """What the method will speak about."""
        return every(question)

    def unsupported(self, question: Question) -> str | None:
        """None for refits of a last layer, and whole numbers of changes; else why not."""
        if not offers(question.shifts, Refitted):
            return f"RefitBounds speaks of refits on a changed table (DataChange), got {question.shifts!r}."
        question.shifts.bind(question.model)  # which says what it needs of the model
        odd = [delta for delta in question.delta.tolist() if delta != int(delta)]
        if odd:
            return f"`delta` must be a whole number of training rows with DataChange, got {exactly(odd[0])}."
        return None

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row; the stream is not used."""
        claim, answers = self.claim(question), list[Certificate]()
        for i in range(len(question)):
            asked = _Asked(question, i)
            found, proved, broken = asked.decided(attack=self.attack)
            witness, verdict = None, Verdict.CERTIFIED if proved else Verdict.UNKNOWN
            if broken is not None:  # the witness is the refit, as parameters of the whole model
                still = asked.layer.network.parameters.values[: -len(broken.theta)]
                witness = KeptShift(float(asked.changes), np.append(still, broken.theta))
                verdict = verdict if proved else Verdict.REFUTED
            told = (float(asked.changes), question.target[i], self.name, found, asked.reason(found, verdict))
            answers.append(Certificate(claim, verdict, *told, witness))
        return answers

    def largest_shift(self, question: Question, stream: Stream, *, limit: float, search: Any = None) -> list[MaxShift]:
        """The most changes that are proved, and the fewest that an attack breaks the row with, with their rows."""
        claim, answers = self.claim(question), list[MaxShift]()
        for i in range(len(question)):
            asked = _Asked(question, i)
            proved = min(max(asked.scores.largest(*asked.against(1))[0], 0), int(limit))
            found = least_breaking(asked.scores, *asked.against(-1), proved, int(limit)) if self.attack else None
            broken = np.inf if found is None else float(found[0])
            rows, added = _named(None if found is None else found[1])
            trace = {"method": self.name, "claim": "every shift up to delta", "rows": list(rows), "added": list(added)}
            reason = "proved for every refit" if proved else "no number of changes is proved"
            if found is not None:
                reason += f"; broken by {found[0]}: {_told(rows, added, found[0])}"
            ends = (float(proved), broken, float(proved), broken, broken == proved + 1, proved >= limit)
            answers.append(MaxShift(*ends, claim, question.target[i], reason, trace))
        return answers

    def cut(self, question: Question) -> Floats:
        """Of the one row of a question, a linear score of the last layer; a row with one below 0 is not certified."""
        asked = _Asked(question, 0)
        u, offset = asked.against(1)
        ball = asked.scores.at(u, offset, asked.changes)[1]
        found = asked.scores.theta if ball is None else asked.scores.cut(u, asked.changes, ball)
        sign = 1.0 if question.wanted[0] == 1 else -1.0
        return np.append(sign * found[:-1], sign * found[-1] - offset)
