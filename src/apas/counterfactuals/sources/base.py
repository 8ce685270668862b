"""Where candidates come from: the task of one call, the search for one row, and what a source has to offer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from apas._typing import Array, Bools, Floats
from apas._validation import check_integer, check_number
from apas.counterfactuals.space.encoder import CodedModel
from apas.counterfactuals.space.feature import is_changed
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import Unsupported
from apas.models.base import Capability, Model, Raw, encoded_rows, needs_strict, offers, predicted_classes, valid

_Kept = TypeVar("_Kept")


class NoneExists(Exception):
    """Raised by a source that has proved that no allowed row has the wanted class; the text says how."""


@dataclass(frozen=True)
class Candidate:
    """A row that might be returned.

    Attributes
    ----------
    point : ndarray of shape (features,)
        Numbers per cell, see `FeatureSpace`; allowed by the space.
    final : bool, default True
        False asks only how it does in the search's own test, and cannot be returned.
    path : ndarray of shape (rows, features), optional
        Rows from the safest, which is `point`, to the cheapest, in an order that no certifying draw has decided. All
        are tested on the same fresh draws at full confidence, no further than the first that fails, and the cheapest
        before it is returned. Nothing else of the row can be certified then, so it comes first and last.
    between : bool, default True
        Whether rows between two of the path may be returned, too, where a proof costs no confidence.
    note : str, default ""
        What a user should know about how it was found; added to the reason if it is returned.
    lower_bound : float, default 0.0
        It is proved that no row that may be returned costs less; told to the user where the model does not shift.
    """

    point: Floats
    final: bool = True
    path: Floats | None = None
    between: bool = True
    note: str = ""
    lower_bound: float = 0.0


@dataclass(frozen=True)
class Task:
    """What all rows of a call share.

    Attributes
    ----------
    model : Model
        Takes raw rows of the space.
    space : FeatureSpace
    distance : {"l1", "linf"}
    background : ndarray of shape (b, features) or None
        Rows that are known, as numbers per cell.
    entropy : int
        For sources that draw: make a `Stream` of it with a purpose of your own.
    deadline : float
        When to stop, as `time.monotonic` counts; for sources that may take long over one candidate.
    unshifted : bool
        Whether delta is 0: the nearest row that is valid on the model itself is wanted.
    inputs : ndarray of shape (rows, features) or None
        All inputs of the call, for what is set up once for them; no answer depends on those of other rows.
    """

    model: Model
    space: FeatureSpace
    distance: str = "l1"
    background: Floats | None = None
    entropy: int = 0
    deadline: float = np.inf
    unshifted: bool = False
    inputs: Floats | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def encoded(self, numbers: Floats) -> Floats:
        """Rows of numbers per cell in model units."""
        if isinstance(self.model, CodedModel):
            return self.model.encoded(numbers)
        if not offers(self.model, Raw) and self.space.coding.is_plain:
            return self.space.coding.encode(numbers)
        return encoded_rows(self.model, self.space.table(numbers))[1]

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline

    def margins(self, numbers: Floats, target: Any) -> Floats:
        """Margins of rows of numbers per cell, shape (rows,)."""
        return self.model.margin(self.encoded(numbers), target)

    def valid(self, numbers: Floats, target: Any) -> Bools:
        """Which rows the model puts into the class."""
        return self.valid_columns(self.encoded(numbers), target)

    def valid_columns(self, columns: Floats, target: Any) -> Bools:
        """The same for rows in model units."""
        labels = np.array([target] * len(columns), dtype=object)
        return valid(self.model.margin(columns, target), needs_strict(self.model.classes, labels))

    @cached_property
    def background_classes(self) -> Array:
        """What the model says about the background rows."""
        if self.background is None or not len(self.background):
            return np.empty(0, dtype=object)
        return predicted_classes(self.model, self.encoded(self.background))[0]

    def once(self, key: Any, make: Callable[[], _Kept]) -> _Kept:
        """What `make` gives, made once per task: trees, programs and the like that all rows share."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:  # what was kept may be a solver, which no process can pass on
        return {**{k: v for k, v in self.__dict__.items() if k != "_kept"}, "_kept": {}}


@dataclass(frozen=True)
class Search:
    """The search for counterfactuals of one row.

    Attributes
    ----------
    task : Task
    row : int
        Number of the row in the call.
    input : ndarray of shape (features,)
    target : object
        The wanted class.
    avoid : tuple of frozenset of int
        Sets of features changed by the counterfactuals this row already has: a further one must leave at least one
        feature of each set as it is.
    test : SearchTest or None
        Shifted models that the search may look at as often as it likes.
    """

    task: Task
    row: int
    input: Floats
    target: Any
    avoid: tuple[frozenset[int], ...] = ()
    test: SearchTest | None = None

    def cost(self, point: Floats) -> float:
        """What it costs to get to a point."""
        return float(self.costs(point[None])[0])

    def costs(self, points: Floats) -> Floats:
        """The same for several points, shape (points,)."""
        return self.task.space.costs(points, np.broadcast_to(self.input, points.shape), self.task.distance)

    def snapped(self, points: Floats) -> Floats:
        """The nearest point, or points, that the space allows."""
        rows = np.atleast_2d(points)
        return self.task.space.snapped(rows, np.broadcast_to(self.input, rows.shape)).reshape(points.shape)

    def along(self, anchor: Floats, ways: Floats) -> Floats:
        """Rows on the way from the input through an anchor; categories have no way, they are the anchor's."""
        points = self.input + ways[:, None] * (anchor - self.input)
        return self.snapped(np.where(self.task.space.jumps, anchor, points))

    def settled(self, points: Floats) -> Floats:
        """Points with the very numbers of the input wherever they differ from them by rounding alone."""
        return self.task.space.settled(points, self.input)

    def is_valid(self, point: Floats) -> bool:
        """Whether the model puts the point into the wanted class."""
        return bool(self.task.valid(point[None], self.target)[0])

    def is_new(self, point: Floats) -> bool:
        """Whether the point is neither the input nor too near to the counterfactuals the row already has."""
        return bool(is_changed(point, self.input).any()) and self.is_different(point)

    def is_different(self, point: Floats) -> bool:
        """Whether the point differs enough from the counterfactuals the row already has."""
        changed = set(np.flatnonzero(is_changed(self.settled(point), self.input)).tolist())
        return all(not known <= changed for known in self.avoid)


@dataclass(frozen=True, kw_only=True)
class SearchTest(ABC):
    """How points of one row do on shifted models that the search may look at; nothing it says certifies anything."""

    demand: float = 0.0
    refits: Sequence[Model] | None = None  # the shifted models if they exist, each as it is
    all_accept: bool = True  # whether all of the models must accept a row
    few: bool = False  # whether so few models are looked at that others may well be worse
    of_regions: bool = False  # whether anything is asked of an offer besides its own numbers
    alone: SearchTest | None = None  # the test of offers by themselves, if a tolerance is asked of them

    @abstractmethod
    def scores(self, points: Floats) -> Floats:
        """Per point how much margin is left; NaN where unknown."""

    def slacks(self, points: Floats) -> Floats:
        """The same less what is demanded: at least 0 where a point would pass."""
        return np.asarray(self.scores(points) - self.demand)

    def passes(self, points: Floats) -> Bools:
        """Which points would pass, as far as is known."""
        return np.asarray(np.nan_to_num(self.slacks(points), nan=-np.inf) >= 0)

    def slopes(self, point: Floats, others: Floats) -> Floats:
        """By how much the slack grows from a point to each of others near it."""
        found = self.scores(np.vstack([point[None], others]))
        return np.asarray(np.nan_to_num(found[1:] - found[0]))

    def near(self, point: Floats) -> Self:
        """The same for points near `point`, at a lower price if there is one."""
        return self

    def with_more_slack(self, more: float) -> Self:
        """The same test, which asks for some slack more."""
        return replace(self, demand=more)


@runtime_checkable
class CandidateSource(Protocol):
    """A way to find rows of the wanted class near an input.

    `candidates` is an iterator, or a generator: what ``yield`` returns to it is the slack of the candidate, at least 0
    if it would pass the search's own test, or None if nothing is known. To be asked for another candidate means that
    the last one was not taken.
    """

    @property
    def ordered(self) -> bool:
        """Whether the first certified candidate is returned, as where none costs less than those before it.

        From other sources the cheapest certified one is, after all of them.
        """

    def unsupported(self, task: Task) -> str | None:
        """None if the source can work on the task, else the error a user reads."""

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """Different candidates for one row, allowed by the space and valid on the model."""


def check_settings(source: Any, **limits: Any) -> None:
    """Refuse settings of a source; whole numbers are from 1 on, others from 0 on, unless they have limits."""
    for name, kind in ((setting.name, type(setting.default)) for setting in fields(source)):
        value, within, owner = getattr(source, name), limits.get(name), type(source).__name__
        if kind is int:
            object.__setattr__(source, name, check_integer(value, name, owner, **(within or {"least": 1})))
        elif kind is float:
            check_number(value, name, owner, **(within or {"least": 0.0}))


def refuse_missing(rows: Floats, source: CandidateSource) -> None:
    """Refuse rows with missing cells for a source that cannot start from them."""
    if np.isnan(rows).any():
        what = f"`X` must have a value in every cell for {type(source).__name__}, which moves along numbers"
        raise Unsupported(f'{what}; fill them, or use source="neighbours" or apas.Given.')


class OnePath(Capability, Protocol):
    """A source that offers a path (`Candidate.path`) before anything else, so that one test has the whole risk."""

    @property
    def one_path(self) -> bool:
        """Whether it does."""


class OnModelAlone(Capability, Protocol):
    """A source that may search on the model alone, so that every listed model can certify."""

    @property
    def on_model_alone(self) -> bool:
        """Whether it does."""


class TakesMissing(Capability, Protocol):
    """A source that can start from rows with missing cells, which are NaN among the numbers."""

    @property
    def takes_missing(self) -> bool:
        """Whether it does."""


class SetsUp(Capability, Protocol):
    """A source with something to set up once for all rows, before the time of the searches begins."""

    def set_up(self, search: Search) -> None:
        """Do so; the search is that of the first row."""


class ForRows(Capability, Protocol):
    """A source that holds something for each of the inputs."""

    def check_rows(self, rows: int) -> None:
        """Refuse another number of inputs."""
