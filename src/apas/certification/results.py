"""Results: one answer per row, as a sequence, a table and a picture."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, overload

import numpy as np

from apas._typing import Bools, Indices
from apas._validation import is_frame
from apas.certification.certificate import NOT_TODAY, Certificate
from apas.certification.claims import Verdict
from apas.display.numbers import exactly, plain
from apas.display.tables import html_table
from apas.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame, Series

    from apas.certification.max_shift.result import MaxShifts
    from apas.shifts.base import ShiftSet


Item = TypeVar("Item", bound=Any)  # what is said about one row
Names: TypeAlias = tuple[str, ...] | None


class AnswerColumn(Sequence[Item]):
    """Answers as a column of numbers: which of the `distinct` answers each row has. Most rows of many say the same."""

    def __init__(self, distinct: Sequence[Item], codes: Indices) -> None:
        self.distinct, self.codes = distinct, codes

    @classmethod
    def of(cls, keys: Iterable[Hashable], make: Callable[[int], Item]) -> AnswerColumn[Item]:
        """One answer per key, made with the number of the first row that has it."""
        seen: dict[Hashable, int] = {}
        distinct: list[Item] = []
        codes = []
        for i, key in enumerate(keys):
            code = seen.setdefault(key, len(seen))
            if code == len(distinct):
                distinct.append(make(i))
            codes.append(code)
        return cls(distinct, np.array(codes, dtype=np.intp))

    @classmethod
    def merged(cls, where: Bools, yes: Sequence[Item], no: Sequence[Item]) -> AnswerColumn[Item]:
        """Answers in the order of rows: `yes` those of the rows `where` it is true, `no` those of the others."""
        parts = [(x.distinct, x.codes) if isinstance(x, AnswerColumn) else (x, np.arange(len(x))) for x in (yes, no)]
        (first, ours), (second, theirs) = parts
        codes = np.empty(len(where), dtype=np.intp)
        codes[where], codes[~where] = ours, theirs + len(first)
        return cls([*first, *second], codes)

    def __getitem__(self, index: Any) -> Any:
        found = self.codes[index]
        return self.distinct[found] if np.ndim(found) == 0 else AnswerColumn(self.distinct, found)

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Item]:
        return map(self.distinct.__getitem__, self.codes.tolist())


class RowResults(Sequence[Item]):
    """One answer per row, in the order of the rows; nothing changes it once it is made.

    A subclass says what is its own: `FORMAT`, `COLUMNS` and a `summary`; `_line`, `_about` and `_entries` where the
    table or `to_dict` say more than the answers do; and in `PER_ROW` what else it holds of each row, to be cut along.
    """

    #: Which kind of result `to_dict` writes, and under what name it lists the answers.
    FORMAT: ClassVar[str]
    ROWS: ClassVar[str] = "rows"
    #: Columns of `to_frame`, and those of them that a notebook does not show.
    COLUMNS: ClassVar[tuple[str, ...]]
    UNSHOWN: ClassVar[tuple[str, ...]] = ()
    #: Attributes with one entry per row: tuples, arrays, data frames, results like this one, or None.
    PER_ROW: ClassVar[tuple[str, ...]] = ("_items", "points", "inputs", "_index")

    def __init__(
        self, items: Sequence[Item], *, points: Any, inputs: Any = None, feature_names: Names = None, index: Any = None
    ) -> None:
        self._items: Sequence[Item] = items if isinstance(items, AnswerColumn) else tuple(items)
        self.points, self.inputs = points, inputs
        self.feature_names, self._index = feature_names, index

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice | Sequence[bool] | Bools | Series[bool]) -> Self: ...
    def __getitem__(self, index: Any) -> Item | Self:
        if not isinstance(index, slice) and not np.ndim(index):
            item: Item = self._items[index]
            return item
        where = index if isinstance(index, slice) else np.asarray(index)
        if not isinstance(where, slice) and (where.shape != (len(self),) or (where.size and where.dtype != bool)):
            wanted = f"an integer, a slice or a mask with one truth value per row ({len(self)})"
            got = f"values of type {where.dtype} and shape {where.shape}; make a mask by a comparison"
            raise InputError(f"`index` of {type(self).__name__} must be {wanted}, got {got}.")
        part = copy.copy(self)
        vars(part).update({name: _cut(getattr(self, name), where) for name in self.PER_ROW})
        return part

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return False
        ours, theirs = self.to_dict(), other.to_dict()
        return ours == theirs or repr(ours) == repr(theirs)  # a missing cell (NaN) equals no other, but says the same

    __hash__ = None  # type: ignore[assignment]

    def to_frame(self) -> DataFrame:
        """One line per row, with the index of the data frame that was asked about."""
        import pandas as pd

        return pd.DataFrame([self._line(item) for item in self], index=self._labels(), columns=list(self.COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """All but the times, as JSON values."""
        labels = [plain(label) for label in self._labels()]
        entries = [{"row": label, **entry} for label, entry in zip(labels, self._entries(), strict=True)]
        return {"format": self.FORMAT, **self._about(), self.ROWS: entries}

    @abstractmethod
    def summary(self) -> str:
        """What was found, in one sentence."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def _repr_html_(self) -> str:
        return html_table(self._shown_frame(), caption=self.summary())

    def _shown_frame(self) -> DataFrame:
        """What a notebook shows of `to_frame`: deltas in all their digits, since a claim is about no larger one."""
        frame = self.to_frame().drop(columns=list(self.UNSHOWN))
        return frame.assign(delta=[exactly(delta) for delta in frame["delta"]]) if "delta" in frame else frame

    def _line(self, item: Item) -> dict[str, Any]:
        return {name: getattr(item, name) for name in self.COLUMNS}

    def _about(self) -> dict[str, Any]:
        return {}

    def _entries(self) -> list[dict[str, Any]]:
        return [item.to_dict() for item in self]

    def _labels(self) -> Any:
        if self._index is not None:
            return self._index
        return self.points.index if is_frame(self.points) else range(len(self))

    def _counted(self) -> str:
        return f"{len(self)} row{'s' if len(self) > 1 else ''}"


class UnderShifts(RowResults[Item]):
    """One answer per row about what happens to it while a model shifts."""

    PER_ROW = (*RowResults.PER_ROW, "readings")

    def __init__(self, items: Sequence[Item], *, model_digest: str, shifts: ShiftSet, **known: Any) -> None:
        self.model, self.readings = known.pop("model", None), known.pop("readings", None)
        super().__init__(items, **known)
        self.model_digest, self.shifts = model_digest, shifts

    def _about(self) -> dict[str, Any]:
        return {"model_digest": self.model_digest, "shifts": self.shifts.to_dict()}

    def _drawn(self, plot: str, ax: Axes | None) -> Axes:
        """The answers as that function of `apas.display.plots` draws them."""
        from apas.display import plots

        ax = plots.new_axes(ax, f"{type(self).__name__}.plot")
        getattr(plots, plot)(self, ax)
        return ax

    def _continued(self, go_on: Callable[..., Sequence[Item]], n_samples: Any, model: Any, n_jobs: Any) -> Self:
        """The answers that `go_on` gives for the question that these are about, and a number of draws."""
        from apas.certification.question import Question

        base = self.model if model is None else model
        if base is None:
            raise InputError("`model` must be given: what was read from a file holds none.")
        sizes = [getattr(item, "delta", 0.0) or 1.0 for item in self]  # largest shifts are asked about at 1
        asked: dict[str, Any] = {"delta": sizes, "shifts": self.shifts, "method": "sampling", "n_jobs": n_jobs}
        question = Question.ask(base, self.points, target=[vars(item)["target"] for item in self], **asked)
        if question.context["model_digest"] != self.model_digest:
            raise InputError("`model` must be the one that these answers are about, but its fingerprint is another.")
        more = copy.copy(self)
        more._items = tuple(go_on(question, self._items, n_samples))
        return more


def cells(rows: Any) -> list[list[Any]]:
    """The cells of an array or a data frame, row by row, as JSON values."""
    values = rows.to_numpy(dtype=object) if is_frame(rows) else np.asarray(rows)
    return [[plain(cell) for cell in row] for row in values.tolist()]


def _cut(value: Any, where: slice | Bools) -> Any:
    if value is None:
        return None
    where = where if isinstance(where, slice) else where.astype(bool)  # an empty one may be of another type
    if isinstance(value, tuple) and not isinstance(where, slice):
        return tuple(compress(value, where))
    return value.iloc[where] if is_frame(value) else value[where]


class Certificates(UnderShifts[Certificate]):
    """One certificate per row, in the order of the rows.

    Attributes
    ----------
    points : ndarray or data frame
        The rows that were asked about, in the user's units.
    inputs : ndarray, data frame or None
        The rows they were made from, if known.
    model_digest : str
        SHA-256 of the model's parameters, architecture and preprocessing.
    shifts : ShiftSet
    feature_names : tuple of str or None
    max_shifts : MaxShifts or None
        The largest shifts of the same rows, if the certificates were read from a file that holds them.
    """

    FORMAT = "apas-certificates"
    ROWS = "certificates"
    UNSHOWN = ("claim", "coverage", "confidence")
    COLUMNS: ClassVar[tuple[str, ...]] = ("verdict", "target", "delta", *UNSHOWN, "draws", "failures")
    COLUMNS += ("method", "reason", "valid_today")
    PER_ROW = (*UnderShifts.PER_ROW, "max_shifts")

    def __init__(self, items: Sequence[Certificate], *, max_shifts: MaxShifts | None = None, **known: Any) -> None:
        super().__init__(items, **known)
        self.max_shifts = max_shifts

    @property
    def certified(self) -> Bools:
        """Which rows were certified, as a boolean array."""
        return np.array([c.is_certified for c in self], dtype=bool)

    @property
    def valid_today(self) -> Bools:
        """Which rows the model itself gives their class, as a boolean array; the others are refuted without draws."""
        return np.array([c.valid_today for c in self], dtype=bool)

    def summary(self) -> str:
        """How many rows got which verdict, for which reason they were refuted, and about what, in one sentence."""
        if not len(self):
            return "No rows, no certificates."
        counts, today = Counter(c.verdict for c in self), [c for c in self if c.valid_today]
        why = ""  # rows were refuted, where some of them are not valid to begin with
        if not_today := len(self) - len(today):
            against = Counter(c.claim.against for c in today if c.verdict is Verdict.REFUTED)
            why = f" ({', '.join([*(f'{n} {said}' for said, n in against.items()), f'{not_today} {NOT_TODAY}'])})"
        parts = ", ".join(f"{counts[v]} {v.name}{why if v is Verdict.REFUTED else ''}" for v in Verdict if counts[v])
        deltas, today = sorted({c.delta for c in self}), today or list(self)
        told = {id(c.claim): c.claim for c in today}.values()  # of the others nothing is said about the shifts
        size = " to ".join(exactly(delta) for delta in dict.fromkeys((deltas[0], deltas[-1])))
        claims = "; or ".join(dict.fromkeys(claim.among(len(self)) for claim in told))
        measures = "; or ".join(dict.fromkeys(claim.measure for claim in told))
        return f"{self._counted()}: {parts} ({claims}; delta {size}; {measures})."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw, per row, the range in which the share of valid shifts lies, against the share that is asked for."""
        return self._drawn("coverage_plot", ax)

    def continued(self, *, n_samples: int, model: Any = None, n_jobs: int = 1) -> Certificates:
        """Draw on for the rows that the anytime test left open, from where it stopped and on the same stream.

        Parameters
        ----------
        n_samples : int
            After how many draws, those made so far included, a row is left open once more.
        model : object, optional
            The model that the certificates are about, where they were read from a file: see `as_model`.
        n_jobs : int, default 1

        Notes
        -----
        It gives what `certify` does with the same seed and ``Sampling(test="anytime", n_samples=n_samples)``. To go on
        costs no confidence, however often and for whatever reason. To begin anew with another seed is another test, and
        would.
        """
        from apas.certification.methods.sampling import continue_rows  # which makes certificates

        return self._continued(continue_rows, n_samples, model, n_jobs)

    def _line(self, item: Certificate) -> dict[str, Any]:
        sure = getattr(item.claim, "shown_confidence", item.claim.confidence)
        claim = {"claim": str(item.claim), "coverage": item.claim.coverage, "confidence": sure}
        counts = {"draws": item.evidence.draws, "failures": item.evidence.failures}
        told = {name: getattr(item, name) for name in self.COLUMNS if hasattr(item, name)}
        return {**told, "verdict": item.verdict.name, **claim, **counts}

    def to_frame(self) -> DataFrame:
        """One line per row, with the index of the data frame that was asked about, and regions if there are any."""
        frame = super().to_frame()
        regions = ["" if c.region is None else c.region.words() for c in self]
        return frame.assign(region=regions) if any(regions) else frame

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "feature_names": None if self.feature_names is None else list(self.feature_names)}

    def _entries(self) -> list[dict[str, Any]]:
        rows = zip(cells(self.points), self, strict=True)
        return [{"values": values, **certificate.to_dict()} for values, certificate in rows]
