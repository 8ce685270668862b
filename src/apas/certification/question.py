"""A checked question: which rows, towards which class, under which shifts, and how it is to be decided.

`Question.ask` is the one door of all verbs. What a method can do besides deciding a claim, small protocols say.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from apas._lazy import cached_property
from apas._random import Stream
from apas._typing import Array, Bools, Floats, Indices
from apas._validation import check_delta, check_flag, check_jobs, is_frame
from apas.certification.certificate import NEAR_BOUNDARY, NOT_VALID, BaseEvidence, Certificate
from apas.certification.claims import Claim, Most, Verdict
from apas.certification.results import AnswerColumn
from apas.errors import GuaranteeWarning, InputError, Unsupported
from apas.models import base as models
from apas.models.base import ROUNDING, Capability, Model, Parameters, as_model, class_indices, encoded_rows, offers
from apas.models.dense_chain import dense_chain
from apas.models.digest import model_digest
from apas.models.feedforward import FeedForward
from apas.shifts import base as sets
from apas.shifts.balls import GaussianShifts, LpShifts
from apas.shifts.linf import LinfShifts
from apas.worst_case.intervals import margin_error

if TYPE_CHECKING:
    from apas.certification.api import FractionCurve, OutputRange
    from apas.certification.max_shift.result import MaxShift

#: What a claim about a model that is computed in float32 says of it.
IN_FLOAT32 = "computed in float32, within its rounding"
#: The shift sets that have a short name.
SHIFTS = {"linf": LinfShifts, "l1": partial(LpShifts, 1), "l2": partial(LpShifts, 2), "gaussian": GaussianShifts}
_Value = TypeVar("_Value")

#: A strategy with its default settings, one for all calls: strategies are frozen, and what they know is kept.
_default = cache(lambda kind: kind())


def pick(value: Any, table: Mapping[str, Any], kind: type[Any], argument: str) -> Any:
    """Turn an alias into a strategy with its default settings; let an instance through."""
    if isinstance(value, str) and value in table:
        return _default(table[value])
    known = ", ".join(repr(name) for name in table) if isinstance(value, str | type) or not offers(value, kind) else ""
    if isinstance(value, str):
        raise InputError(f"`{argument}` must be one of {known}, or an instance, got {value!r}.")
    if known:
        what = f"the class {value.__name__} itself; call it" if isinstance(value, type) else repr(value)
        known += f", or an instance such as {next(iter(table.values())).__name__}()"
        raise InputError(f"`{argument}` must be one of {known}, got {what}.")
    return value


def default_delta(shifts: Any, delta: Any) -> Any:
    """The delta given, or the one that goes without saying for a set; most sets have none."""
    return shifts.default_delta if delta is None and offers(shifts, sets.DefaultDelta) else delta


def check_target(model: models.Predicts, X: Floats, target: Any) -> Array:
    """One class label per row."""
    if target is None:
        known, why = list(model.classes), "a default would certify a rejected applicant as robustly rejected"
        raise InputError(f'`target` must be the class to keep, one of {known}, or "predicted", got None; {why}.')
    labels = np.empty(len(X), dtype=object)
    if isinstance(target, str) and target == "predicted" and target not in model.classes:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused or fails later
            labels[:] = models.predicted_classes(model, X)[0] if len(X) else []
    else:
        labels[:] = [model.classes[i] for i in class_indices(model.classes, target, len(X))]
    return labels


#: By model and alias of a set: the digest of the model, and what depends on these two alone (`Question.plan`).
_PLANS: weakref.WeakKeyDictionary[Any, dict[str, tuple[str, dict[str, Any]]]] = weakref.WeakKeyDictionary()


def _planned(compute: Callable[[Any], _Value]) -> _Value:
    """A member that depends on model and shifts alone: computed once for a question and all that are made of it."""
    name = compute.__name__

    def kept(question: Any) -> _Value:
        if name not in question.plan:
            question.plan[name] = compute(question)
        return question.plan[name]  # type: ignore[no-any-return]

    return property(kept, doc=compute.__doc__)  # type: ignore[return-value]


@dataclass(frozen=True)
class Question:
    """What a method gets: everything checked, nothing left to convert.

    Attributes
    ----------
    X : ndarray of shape (rows, features)
        In model units.
    claim_rows : int
        How many rows the confidence must hold for together.
    tries, bits : int, int or None
        By what the risk of a search is divided, and that the seed is derived: see `Most`.
    regions : tuple of AskedRegion or None, or None
        Per row the region that has to be kept as a whole, None for a row by itself.
    points : array_like, data frame or None
        The rows in the user's units; parts of a question have them for shift sets that ask for them (`OnPoints`) alone.
    """

    model: Model
    X: Floats
    target: Array
    delta: Floats
    shifts: sets.ShiftSet
    claim_rows: int = 1
    tries: int = 1
    n_jobs: int = 1
    points: Any = None
    method: Any = None
    bits: int | None = None
    regions: tuple[Any, ...] | None = None
    read: tuple[Floats, ...] = ()  # what listed models made of a table that was read along with the rows
    plan: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # of model and shifts, see `_planned`

    def __post_init__(self) -> None:
        about = (id(self.model), id(self.shifts))
        if self.plan.setdefault("about", about) != about:  # made of a question about something else
            object.__setattr__(self, "plan", {"about": about})

    @classmethod
    def ask(
        cls,
        model: Any,
        X: Any,
        *,
        target: Any,
        delta: Any,
        shifts: Any,
        method: Any,
        simultaneous: Any = False,
        n_jobs: Any = 1,
        labels: Callable[[Model, Floats, Any], Array] = check_target,
        beside: Any = None,
    ) -> Question:
        """Check, convert and encode what a user passed to a verb; refuse what the method cannot answer (`Unsupported`).

        `labels` gives one label per row for the model, the encoded rows and what was passed as `target`; `beside` is a
        table that begins with the rows, which listed models read in one go.
        """
        from apas.certification.methods import METHODS  # whose modules import this one

        net = as_model(model)
        chosen: Method = pick(method, METHODS, Method, "method")
        shift_set: sets.ShiftSet = pick(shifts, SHIFTS, sets.ShiftSet, "shifts")
        check_flag(simultaneous, "simultaneous")
        points, encoded = encoded_rows(net, X)
        rows, wanted = len(encoded), labels(net, encoded, target)
        sizes = check_delta(default_delta(shift_set, delta), rows)
        about: dict[str, Any] = {"n_jobs": check_jobs(n_jobs), "points": points, "method": chosen}
        question = cls(net, encoded, wanted, sizes, shift_set, max(1, rows) if simultaneous else 1, **about)
        if isinstance(shifts, str) and vars(type(net)).get("frozen", False):  # all but its numbers stays what it is
            plans = _PLANS.setdefault(net, {})
            if shifts not in plans or plans[shifts][0] != question.digest:
                plans[shifts] = (question.digest, question.plan)
            object.__setattr__(question, "plan", plans[shifts][1])  # made a moment ago and seen by nobody yet
        _ = question.coordinates  # a set with nothing to move says so before a method complains
        complaint = chosen.unsupported(question)
        if offers(shift_set, sets.Refitted) and not offers(chosen, SpeaksOfRefits):
            cannot = f"{type(chosen).__name__} cannot speak of {type(shift_set).__name__}: {shift_set.no_draws}"
            complaint = f'{cannot}, and it has no box or ball of parameters; use method="refit".'
        if complaint is not None:
            raise Unsupported(complaint)
        if rows:
            if question.listed is not None:
                read = tuple(check_listed(shift_set, net, points, beside=beside))  # type: ignore[arg-type]
                object.__setattr__(question, "read", read)
            if offers(net, models.LibraryBacked):
                # predictions are read off margins towards class 1 of two, if that is what all rows want
                known = len(net.classes) == 2 and question.same_target and wanted[0] == net.classes[1]
                check_agreement(net, points, encoded, margins=question.base_margins if known else None)
        return question

    def grow(self, count: int) -> bool:
        """Have so many models listed, the last of them checked like the others; whether there are so many."""
        grown = len(self.shifts.models) < count  # type: ignore[attr-defined]
        there: bool = self.shifts.grow(count)  # type: ignore[attr-defined]
        if grown and there and self.points is not None:
            check_listed(self.shifts, self.model, self.points, count - 1)  # type: ignore[arg-type]
        return there

    def __len__(self) -> int:
        return len(self.X)

    def __getstate__(self) -> dict[str, Any]:
        # workers get the rows in the user's units only if the shift set asks for them
        return vars(self) if self.on_points else {**vars(self), "points": None}

    @cached_property
    def on_points(self) -> bool:
        """Whether the shift set wants the rows in the user's units, and they are known."""
        return self.points is not None and offers(self.shifts, sets.OnPoints)

    def take(self, rows: Array | slice) -> Question:
        """The same question about some of the rows."""
        # to take parts of a frame costs more than many a margin
        points = _part(self.points, rows) if self.on_points else None
        some: dict[str, Any] = {"target": self.target[rows], "delta": self.delta[rows], "points": points}
        if self.regions is not None:
            kept = [self.regions[i] for i in np.arange(len(self))[rows]]
            some["regions"] = tuple(kept) if any(region is not None for region in kept) else None
        return replace(self, X=self.X[rows], **some)

    def for_claim(self, claim: Claim) -> Question:
        """The same question, to be answered at the risk of a claim that was made."""
        return replace(self, claim_rows=claim.rows, tries=getattr(claim, "tries", 1), bits=getattr(claim, "bits", None))

    def at(self, delta: float | Floats) -> Question:
        """The same question at another delta, one for all rows or one per row."""
        return replace(self, delta=np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(self),)))

    @cached_property
    def same_target(self) -> bool:
        """Whether all rows want the same class."""
        first = self.target[0] if len(self.target) else None
        return len(self.target) > 0 and all(label == first for label in self.target)

    @property
    def one_target(self) -> Any:
        """The class of all rows if they share one, else one per row (what `Model.margin` takes)."""
        return self.target[0] if self.same_target else self.target

    @cached_property
    def one_delta(self) -> float | Floats:
        """The delta of all rows if they share one, else one per row (what `ShiftSet.margins` takes)."""
        return float(self.delta[0]) if len(self.delta) and (self.delta == self.delta[0]).all() else self.delta

    @_planned
    def coordinates(self) -> Parameters:
        """What moves: the parameters of the model, unless the shift set says otherwise."""
        if offers(self.shifts, sets.OtherMoves):
            return self.shifts.coordinates(self.model)
        parameters = self.model.parameters
        return parameters if parameters.values.size else sets.coordinates(self.shifts, self.model)

    @_planned
    def radii(self) -> Floats:
        """How far each of the coordinates moves when delta is 1, shape (k,)."""
        return self.shifts.radii(self.coordinates)

    @_planned
    def geometry(self) -> sets.Geometry | None:
        """What the set is around the parameters of the model; None if it has no worst case, or something else moves."""
        if not offers(self.shifts, sets.Bounded):
            return None
        geometry = self.shifts.geometry(self.coordinates)
        if geometry is None or isinstance(geometry, sets.Finite) or offers(self.shifts, sets.OtherMoves):
            return geometry if isinstance(geometry, sets.Finite) else None
        if not np.array_equal(geometry.radii, self.radii):  # rounding is bounded with the one, proofs are of the other
            told = f"the radii of {type(self.shifts).__name__}.geometry are not those of its `radii`"
            raise InputError(f"`shifts` must have one reach, but {told}.")
        return geometry

    @property
    def measure(self) -> str:
        """Name of the distribution of the shifts, as printed in a claim."""
        return self.measure_at(self.delta)

    def measure_at(self, deltas: Floats) -> str:
        """The same for shifts of other sizes."""
        if offers(self.shifts, sets.MeasuredAt):
            return self._with_arithmetic(self.shifts.measure_at(self.coordinates, deltas))
        return self._with_arithmetic(self.measure_words)

    @_planned
    def measure_words(self) -> str:
        """What the set itself says of its distribution, whatever the size."""
        return self.shifts.measure(self.coordinates)

    @_planned
    def region(self) -> str:
        """The set of the shifts itself, as printed in a claim about every one of them."""
        return self._with_arithmetic(self.shifts.region(self.coordinates))

    @cached_property
    def single(self) -> bool:
        """Whether the model, or a listed one, is computed in float32 where it is used."""
        return any(offers(m, models.Arithmetic) and m.dtype == "float32" for m in (self.model, *(self.listed or ())))

    @cached_property
    def listed(self) -> Sequence[Model] | None:
        """The models of a set that lists them; None if it does not."""
        return self.shifts.models if offers(self.shifts, sets.Listed) else None

    def _with_arithmetic(self, words: str) -> str:
        return f"{words}; {IN_FLOAT32}" if self.single else words

    def directions(self, stream: Stream, start: int, stop: int) -> Floats:
        """Draws number `start` to `stop`."""
        return self.shifts.directions(self.coordinates, stream, start, stop)

    def margins(self, directions: Floats, rows: Indices | slice = slice(None)) -> Floats:
        """Margins of some of the rows on the models that were drawn, shape (directions, rows)."""
        if self.regions is not None:
            places, margins = np.arange(len(self))[rows], np.empty((len(directions), len(self.X[rows])))
            inside = self.with_region[places]
            if not inside.all():
                margins[:, ~inside] = replace(self, regions=None).margins(directions, places[~inside])
            for at, row in zip(np.flatnonzero(inside), places[inside].tolist(), strict=True):
                margins[:, at] = self.regions[row].on_draws(self, row, directions).margins
            return margins
        delta = self.one_delta if isinstance(self.one_delta, float) else self.one_delta[rows]
        target = self.one_target if self.same_target else self.target[rows]
        points = _part(self.points, rows) if self.on_points else None
        return sets.drawn_margins(self.shifts, self.model, points, self.X[rows], target, directions, delta)

    @cached_property
    def with_region(self) -> Bools:
        """Rows that stand for a region."""
        return np.array([region is not None for region in self.regions or [None] * len(self)], dtype=bool)

    @_planned
    def reach(self) -> float | Floats:
        """The radii, as one number if all parameters share it."""
        first = float(self.radii[0])
        return first if (self.radii == first).all() else self.radii

    @cached_property
    def strict(self) -> Bools:
        """Rows whose margin must be above 0 rather than at least 0."""
        return models.needs_strict(self.model.classes, self.target)

    @cached_property
    def band(self) -> Floats:
        """Per row the margin below which its sign may be owed to rounding, on any shifted model."""
        shifts, target, delta = self.shifts, self.one_target, self.one_delta
        if self.regions is not None:  # bounds over regions have their rounding taken off
            return np.where(self.with_region, 0.0, replace(self, regions=None).band)
        if offers(shifts, sets.Magnitudes):
            points = self.points if self.on_points else None
            return ROUNDING * shifts.magnitudes(self.model, points, self.X, target, delta)
        if offers(self.model, models.Scaled):
            return ROUNDING * self.model.margin_scale(self.X, self.radii, delta)
        return ROUNDING * np.asarray(np.maximum(1.0, np.abs(self.base_margins)))

    @cached_property
    def rounding(self) -> Floats:
        """For a dense network, what rounding can change in margins, shifted within a box or not: coarse and cheap."""
        reach: Any = self.reach if isinstance(self.geometry, sets.Box) else 0.0
        moves = reach if isinstance(reach, float) else self.model.parameters.split(reach)
        return margin_error(self.network, self.X, moves, self.delta)  # type: ignore[arg-type]

    @cached_property
    def network(self) -> FeedForward | None:
        """The model as a dense network, if it is one with the same parameters in the same order."""
        if not offers(self.model, models.Dense):
            return None
        network, given = self.model.as_feedforward(), self.model.parameters
        known = network.parameters
        same = known is given or (known.shapes == given.shapes and np.array_equal(known.values, given.values))
        return network if same else None

    @cached_property
    def embedded(self) -> Question:
        """The same question about a dense network whose parameters are what moves; its claims stay those of the set."""
        moves_input = offers(self.shifts, sets.MovesInput)
        if self.network is not None and not moves_input:
            return self
        chain = dense_chain(self.model) if offers(self.shifts, sets.Bounded) else None
        if chain is None or (offers(self.shifts, sets.OtherMoves) and not moves_input):
            return self
        chain = self.shifts.embed(chain) if offers(self.shifts, sets.MovesInput) else chain
        shifts: Any = sets.Embedded(self.shifts, chain, self.coordinates)
        return replace(self, model=chain.network, shifts=shifts, points=None)

    @property
    def tied(self) -> str:
        """Which coordinates of an embedded question are used more than once, in words; empty if none is."""
        return self.shifts.chain.tied if offers(self.shifts, sets.Embedded) else ""

    @cached_property
    def wanted(self) -> Indices:
        """Position of each row's target among the classes."""
        return class_indices(self.model.classes, self.one_target, len(self))

    @cached_property
    def base_margins(self) -> Floats:
        """Margins on the model itself: the one forward pass of a call, not to be changed."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is neither valid nor certain
            return self.model.margin(self.X, self.one_target)

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is neither valid nor certain
    def valid_rows(self) -> Bools:
        """Rows that the model itself puts into their target class."""
        network = None if self.single else self.network
        # what rounding can do to the model itself is found at once; most rows are beyond it
        if (self.base_margins > (self.rounding if network is not None and network.activations else self.band)).all():
            return np.ones(len(self.X), dtype=bool)
        # within rounding of 0 it is computed again for its row alone: other rows of a call must not change an answer
        margins = np.array(self.base_margins)
        for i in np.flatnonzero(~(np.abs(margins) > self.band)):
            margins[i] = self.model.margin(self.X[i : i + 1], self.target[i])[0]
        return models.valid(margins, self.strict)

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is neither valid nor certain
    def doubtful_rows(self) -> Bools:
        """Rows whose class on the model itself is owed to the rounding of float32; none if it computes in float64."""
        if not self.single or not len(self.X):
            return np.zeros(len(self.X), dtype=bool)
        scale = sets.magnitudes(self.model, self.X, self.one_target, np.zeros(len(self.model.parameters)), 0.0)
        # written so that a NaN is in no doubt: it is not valid
        return np.asarray(np.abs(self.base_margins) <= ROUNDING * scale)

    @property
    def context(self) -> dict[str, Any]:
        """What all results are told about: the rows as they were given, the model with its digest, and the shifts."""
        names = self.model.feature_names if offers(self.model, models.Named) else None
        about = {"model": self.model, "model_digest": self.digest, "feature_names": names}
        return {"points": self.points, "shifts": self.shifts, **about}

    @cached_property
    def digest(self) -> str:
        """The digest of the model, from when the question was asked."""
        return model_digest(self.model)


def _part(points: Any, rows: Array | slice) -> Any:
    return points.iloc[rows] if is_frame(points) else points[rows]


def decide(question: Question, method: Method, stream: Stream) -> Sequence[Certificate]:
    """Refute rows that are not valid on the model itself, leave open those within its rounding, ask about the rest."""
    if question.regions is not None:
        from apas.certification.region_claims import decide_regions  # which makes certificates

        about = iter(decide_regions(question.take(question.with_region), method, stream))
        rest = question.take(~question.with_region)
        single = iter(decide(rest, method, stream) if len(rest) else ())
        return [next(about if region else single) for region in question.with_region]
    ok = question.valid_rows() & ~(near := question.doubtful_rows())
    if ok.all():
        return method.run(question, stream) if len(ok) else []
    claim, name = method.claim(question), getattr(method, "name", type(method).__name__.lower())
    asked = list(zip(question.delta[~ok].tolist(), question.target[~ok], near[~ok].tolist(), strict=True))

    def answer(i: int) -> Certificate:
        verdict, reason = (Verdict.UNKNOWN, NEAR_BOUNDARY) if asked[i][2] else (Verdict.REFUTED, NOT_VALID)
        return Certificate(claim, verdict, *asked[i][:2], name, BaseEvidence(), reason)

    answers = method.run(question.take(ok), stream) if ok.any() else []
    return AnswerColumn.merged(ok, answers, AnswerColumn.of(((*row, type(row[1])) for row in asked), answer))


@runtime_checkable
class Method(Protocol):
    """A way to decide a claim; its `name`, or its class in lower case, stands in certificates that it need not make."""

    def claim(self, question: Question) -> Claim:
        """What the method will speak about."""

    def unsupported(self, question: Question) -> str | None:
        """None if the method can answer, else the error a user reads."""

    def run(self, question: Question, stream: Stream) -> Sequence[Certificate]:
        """One certificate per row; all rows are valid on the model itself."""


class Draws(Capability, Protocol):
    """A method that decides a claim about most shifts on a number of draws that it plans ahead.

    Its claim takes `Question.tries` over, and a run draws from the stream that it is given alone.
    """

    coverage: float
    confidence: float
    n_samples: int | None

    def samples(self, question: Question, claim: Most) -> int:
        """How many draws to make; whether they are enough for the claim is not asked."""

    def plan(self, question: Question, claim: Most) -> tuple[int, int, int]:
        """How many draws, how many failures certify at most, how many refute at least."""


class LeastDraws(Capability, Protocol):
    """A method that draws and knows with how few draws it could certify a claim; else a fixed number is assumed."""

    def least_draws(self, claim: Most) -> int:
        """The least number of draws with which the claim can be certified."""


class NamesTest(Draws, Protocol):
    """A method that says before it draws which test it will make, as derived seeds ask; it knows `Question.bits`."""

    def test_name(self, question: Question, claim: Most, *, largest: bool = False) -> str:
        """The test with all that decides when it passes; `largest` if the largest shift is asked for."""


class FindsLargestShift(Capability, Protocol):
    """A method that can say how far the model may shift: what `max_shift` asks for."""

    def largest_shift(self, question: Question, stream: Stream, *, limit: float, search: str | None) -> list[MaxShift]:
        """One answer per row with no delta above `limit`, of a question at 1; `search` is how to look, by draws."""


class BoundsShare(Capability, Protocol):
    """A method that can bound the share of shifts that keep the class: what `robust_fraction` asks for."""

    def shares(self, question: Question, deltas: Floats, stream: Stream) -> list[FractionCurve]:
        """One curve over the deltas per row, valid on the model itself or not; the question has the largest delta."""


class EnclosesOutput(Capability, Protocol):
    """A method that can say between which margins shifted models put a row: what `output_range` asks for."""

    def ranges(self, question: Question, stream: Stream) -> list[OutputRange]:
        """One range per row, valid on the model itself or not."""


class SpeaksOfRefits(Capability, Protocol):
    """A method that knows what is fitted again, and on which tables: sets that offer `Refitted` need one."""

    speaks_of_refits: bool


class Cuts(Capability, Protocol):
    """A method whose bound is concave in what enters the last layer of a model: `CuttingPlanes` asks for it."""

    def cut(self, question: Question) -> Floats:
        """Of the one row of a question, weights and intercept of a linear score that is nowhere below the bound."""


class OnlyRefutes(Capability, Protocol):
    """A method that never certifies: not to find a failing shift proves nothing."""

    only_refutes: bool


#: Rows closer to the boundary than this are left out when a model is compared with its own library.
AGREEMENT = 1e-9


def check_agreement(
    model: Model, points: Any, X: Floats, name: str = "`model`", margins: Floats | None = None, theirs: Any = None
) -> None:
    """Refuse a model whose own library says otherwise about rows; `margins` towards class 1 of two, if known."""
    if not offers(model, models.LibraryBacked) or not len(X):
        return
    ours, distance = models.predicted_classes(model, X, margins)
    theirs = model.library_classes(points) if theirs is None else theirs
    allowed: Any = AGREEMENT
    # about what is within its rounding it has no opinion
    if offers(model, models.Arithmetic) and model.dtype == "float32":
        still = np.zeros(len(model.parameters))
        allowed = AGREEMENT + ROUNDING * sets.magnitudes(model, X, model.classes[0], still, 0.0)
    differ = [i for i in np.flatnonzero(distance > allowed) if ours[i] != theirs[i]]
    if differ:
        i = int(differ[0])
        told = f"apas reads class {ours[i]!r}, the library says {theirs[i]!r}; this model is not what it seems"
        where = f"{name} does not agree with its own library on row {i}"
        raise InputError(f"{where}: {told}, so nothing can be certified about it.")


def check_listed(shifts: sets.Listed, model: Model, points: Any, first: int = 0, beside: Any = None) -> list[Floats]:
    """Refuse listed models that cannot read the rows or are not what they seem; what they make of `beside` (`ask`)."""
    read: list[Floats] = []
    warned, ours = first > 0, model.describe().get("threshold") if offers(model, models.Described) else None
    for number, other in enumerate(shifts.models[first:], first):
        name = f"`models[{number}]` of {type(shifts).__name__}"
        theirs = other.describe().get("threshold") if ours is not None and offers(other, models.Described) else None
        if None not in (ours, theirs) and ours != theirs and not warned:
            warned = True
            told = f"{name} gives its second class from {theirs:g} on, but the model itself from {ours:g} on"
            warnings.warn(f"{told}; the claim is about models with thresholds of their own.", GuaranteeWarning, 4)
        try:
            rows, said = models.encoded_and_classified(other, points if beside is None else beside)
            read += [] if beside is None else [rows]
        except InputError as error:
            if beside is not None:  # the rows themselves may be fine
                return check_listed(shifts, model, points, number)
            raise InputError(f"{name} cannot read the rows: {error}") from error
        rows, said = rows[: len(points)], None if said is None else said[: len(points)]
        check_agreement(other, points, rows, name, theirs=said)
    return read
