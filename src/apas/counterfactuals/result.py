"""`Counterfactuals`: one answer per input and rank, what it changes, and the certificate of what is returned."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._typing import Array, Bools, Floats, Indices
from apas._validation import is_frame
from apas.certification.certificate import Certificate
from apas.certification.question import check_target
from apas.certification.results import Certificates, UnderShifts, cells
from apas.counterfactuals.space.feature import is_changed, is_same
from apas.counterfactuals.space.space import FeatureSpace, check_space, own_columns, read_off
from apas.display.numbers import at_most, plain
from apas.errors import InputError
from apas.models.base import Model, Named, as_model, encoded_rows, offers, predicted_classes
from apas.models.digest import model_digest
from apas.shifts.linf import LinfShifts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame, Series


NONE_FOUND = "(none found)"
#: A row is called the nearest if none is nearer by more than this part of its cost, or a hundredth of it of the ranges.
NEAREST = 1e-4


def changes_in_words(space: FeatureSpace, before: Floats, after: Floats) -> str:
    """All changes of a row in one line."""
    if np.isnan(after).all():
        return NONE_FOUND
    texts = change_texts(space, before, after)
    return ", ".join(f"{name} {text}" for name, text in zip(space.names, texts, strict=True) if text) or "(no change)"


def change_texts(space: FeatureSpace, before: Floats, after: Floats) -> list[str]:
    """Per feature its change, such as "2,100 -> 2,300"; empty where there is none."""
    texts = [""] * len(space)
    for i, (feature, a, b) in enumerate(zip(space.features, before.tolist(), after.tolist(), strict=True)):
        if not np.isnan(b) and is_changed(a, b) and not is_same(a, b, feature.size):
            levels = ["missing" if v is None else str(v) for v in feature.values or ()] if feature.is_level else None
            if np.isnan(a):  # nothing becomes missing, so that there is a second number
                texts[i] = f"missing -> {number_pair(0.0, b)[1] if levels is None else levels[int(b)]}"
                continue
            texts[i] = " -> ".join(number_pair(a, b) if levels is None else (levels[int(a)], levels[int(b)]))
    return texts


def differ(before: Any, after: Any) -> bool:
    """Whether two cells of a table differ, by more than rounding if they are numbers."""
    are_numbers = all(isinstance(cell, float | int) for cell in (before, after))
    if are_numbers and (isinstance(before, float) or isinstance(after, float)):  # whole numbers are exact
        return bool(is_changed(before, after)) and not bool(is_same(before, after))
    return bool(before != after)


def number_pair(before: float, after: float) -> tuple[str, str]:
    """Two numbers with as few digits as tell them apart, but at least four."""
    for digits in range(4, 18):
        texts = number_text(before, digits), number_text(after, digits)
        if texts[0] != texts[1]:
            return texts
    return repr(before), repr(after)


def number_text(value: float, digits: int = 4) -> str:
    """A number as people read it: whole ones in full, others with so many digits."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    text = f"{value:,.{digits}g}"
    return text if "e" not in text or abs(value) < 1e-4 else f"{value:,.0f}"


def wanted_classes(model: Model, X: Floats, target: Any, *, one_way: bool) -> Array:
    """One wanted class per row that the model does not give yet; with `one_way` None is refused for two directions."""
    given = predicted_classes(model, X)[0] if len(X) else np.empty(0, dtype=object)
    if target is None:
        if len(model.classes) != 2:
            raise InputError(
                f"`target` must be the wanted class, one of {list(model.classes)}; a model with more than two classes "
                "has no other one."
            )
        counts = {label: sum(g == label for g in given) for label in model.classes}
        if one_way and all(counts.values()):  # nobody is to be told how to be rejected unasked
            found = " and ".join(f"{count} of the rows class {label!r}" for label, count in counts.items())
            raise InputError(
                f"`target` must be the wanted class, since the model gives {found} and the other class would be a "
                "different wish for each; pass the class (--target) without the rows that have it, or a class per row."
            )
        return np.array([model.classes[0 if g == model.classes[1] else 1] for g in given], dtype=object)
    labels = check_target(model, X, target)
    for i, (wanted, now) in enumerate(zip(labels, given, strict=True)):
        if wanted == now:
            raise InputError(
                f"`X` must hold rows that are not in the wanted class, but the model already gives row {i} class "
                f"{now!r}; leave it out."
            )
    return labels


class Status(Enum):
    """How the search for one counterfactual ended; the value says it in a sentence."""

    FOUND = "A counterfactual was found, and certified if that was asked for."
    EXHAUSTED = "The source had no further candidates, and none of them was certified."
    BUDGET = "The search ended at its limit of candidates, tests or time."
    INFEASIBLE = "It was proved that no allowed row has the wanted class, or none that differs from those found."

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Counterfactual:
    """The answer for one input and rank.

    Attributes
    ----------
    row, rank : int
        Numbers of the input, and of the counterfactual among those of the input, from 0.
    target : object
        The wanted class.
    status : Status
    cost : float
        In the distance that was asked for; NaN if nothing was found.
    candidates, tests : int
        How many candidates the source offered, and how many of them went through a certifying test.
    certificate : Certificate or None
    reason : str
    seconds : float
        Wall time of the call divided by the counterfactuals asked for; not part of equality.
    lower_bound : float or None
        At delta 0: it is proved that no allowed row of the class costs less (0 if nothing was proved); for ranks above
        0, none that differs from those before it.
    """

    row: int
    rank: int
    target: Any
    status: Status
    cost: float
    candidates: int
    tests: int
    certificate: Certificate | None
    reason: str
    seconds: float = field(default=0.0, compare=False)
    lower_bound: float | None = None

    @property
    def is_found(self) -> bool:
        """Whether there is a counterfactual."""
        return self.status is Status.FOUND

    @property
    def gap(self) -> float | None:
        """By how much another row can be nearer at most, at delta 0; None if nothing was found, or delta is not 0."""
        # the cost is rounded, but to more digits than 12
        return self.cost * (1 + 1e-12) - self.lower_bound if self.is_found and self.lower_bound is not None else None

    @property
    def nearness(self) -> str:
        """How near a row that was found at delta 0 is to the nearest, in words with a place for its gap."""
        if self.gap is None or not self.lower_bound:
            return "not proved to be the nearest"
        close = self.gap <= max(NEAREST * self.cost, 0.01 * NEAREST)
        return "the nearest, proved up to {}" if close else "proved to be within {} of the nearest"

    def to_dict(self) -> dict[str, Any]:
        """All but the time, as JSON values."""
        certificate = None if self.certificate is None else {**self.certificate.to_dict(), "target": plain(self.target)}
        return {
            "input": self.row,
            "rank": self.rank,
            "target": plain(self.target),
            "status": self.status.name,
            "cost": None if np.isnan(self.cost) else self.cost,
            **{name: getattr(self, name) for name in ("candidates", "tests", "reason")},
            "certificate": certificate,
            **({} if self.lower_bound is None else {"lower_bound": self.lower_bound, "gap": self.gap}),
        }


def _of_each(name: str, kind: Any, doc: str) -> Any:
    """An attribute of each answer as an array, documented by `doc`."""

    def read(self: Counterfactuals) -> Array:
        found = np.empty(len(self), dtype=kind)
        found[:] = [getattr(item, name) for item in self]
        return found

    return property(read, doc=doc)


class Counterfactuals(UnderShifts[Counterfactual]):
    """The counterfactuals of one call: k per input, in the order of the inputs.

    Attributes
    ----------
    points : ndarray or data frame
        The counterfactuals in raw units, rows of missing values where none was found.
    inputs : ndarray or data frame
        The rows they start from, each k times.
    model : Model
        Takes rows of the space in raw units.
    space : FeatureSpace
    distance : {"l1", "linf"}
    """

    FORMAT = "apas-counterfactuals"
    ROWS = "counterfactuals"
    COLUMNS = ("row", "rank", "target", "status", "cost", "changes", "verdict", "candidates", "tests", "reason")
    UNSHOWN = ("candidates", "tests")
    PER_ROW = (*UnderShifts.PER_ROW, "numbers", "origins")
    model: Model
    row: Indices = _of_each("row", np.intp, "Number of the input of each counterfactual.")
    rank: Indices = _of_each("rank", np.intp, "Number of each counterfactual among those of its input.")
    target: Array = _of_each("target", object, "The wanted class of each.")
    status: Array = _of_each("status", object, "How each search ended.")
    found: Bools = _of_each("is_found", bool, "Which were found, as a boolean array.")

    def __init__(
        self,
        items: list[Counterfactual],
        *,
        numbers: Floats,
        origins: Floats,
        model: Model,
        space: FeatureSpace,
        distance: str = "l1",
        **rows: Any,
    ) -> None:
        # rows are in the order of the space, which need not be that of the model
        names = space.names if offers(model, Named) and model.feature_names is not None else None
        super().__init__(items, model=model, model_digest=model_digest(model), feature_names=names, **rows)
        self.space, self.distance = space, distance
        #: Counterfactuals and inputs as numbers per cell, see `FeatureSpace`; NaN where none was found.
        self.numbers, self.origins = numbers, origins

    @classmethod
    def from_frame(
        cls, model: Any, X: Any, points: Any, *, target: Any = None, space: FeatureSpace | None = None
    ) -> Counterfactuals:
        """Take counterfactuals of another tool, to `evaluate` them; nothing is certified.

        Parameters
        ----------
        model, target
            See `generate`.
        X, points : array_like or data frame of shape (rows, features)
            The inputs and their counterfactuals, in raw units; a row of missing values where there is none.
        space : FeatureSpace, optional
            Read off `X` and `points` unless given.
        """
        net = as_model(model)
        space = read_off(net, {"X": X, "points": points}, X) if space is None else check_space(space)
        bound = space.bind(net)
        origins = space.numbers_for(bound, X)
        numbers = space.numbers_for(bound, own_columns(points, space), "points", gaps=True)
        if len(numbers) != len(origins):
            raise InputError(f"`points` must have a row for each of the {len(origins)} inputs, got {len(numbers)}.")
        targets = wanted_classes(bound, encoded_rows(bound, space.table(origins))[1], target, one_way=False)
        given, none = (Status.FOUND, "taken as given, not certified"), (Status.EXHAUSTED, "no row was given")
        items = []
        for i, cost in enumerate(space.costs(numbers, origins).tolist()):
            status, reason = none if np.isnan(cost) else given
            items.append(Counterfactual(i, 0, targets[i], status, cost, 0, 0, None, reason))
        about: dict[str, Any] = {"model": bound, "space": space, "shifts": LinfShifts()}
        points = space.like(numbers, X, np.arange(len(origins)))
        return cls(items, points=points, inputs=space.like(origins, X), numbers=numbers, origins=origins, **about)

    @property
    def is_unshifted(self) -> bool:
        """Whether delta was 0, so that nothing is claimed about other models."""
        return any(item.lower_bound is not None for item in self)

    @property
    def certificates(self) -> Certificates:
        """The certificates of those that were found and certified, with their points and inputs."""
        if self.is_unshifted:
            raise InputError(
                "these counterfactuals have no certificates, since at delta 0 nothing is claimed about other models; "
                "pass a larger delta to generate, or certify their points."
            )
        has = np.array([item.certificate is not None for item in self], dtype=bool)
        points, inputs = (rows.iloc[has] if is_frame(rows) else rows[has] for rows in (self.points, self.inputs))
        certificates = [item.certificate for item in self if item.certificate is not None]
        same = {name: getattr(self, name) for name in ("model_digest", "shifts", "feature_names", "model")}
        return Certificates(certificates, points=points, inputs=inputs, **same)

    def changes(self) -> Series[str]:
        """What each counterfactual changes, in words: "income 2,100 -> 2,300"; printed in full, however long it is."""
        from apas.display.fulltexts import FullTexts

        texts = [changes_in_words(self.space, a, b) for a, b in zip(self.origins, self.numbers, strict=True)]
        return FullTexts(texts, index=self._labels(), name="changes", dtype=str)

    def summary(self) -> str:
        """From which class to which, and how many searches ended how, in one sentence."""
        if not len(self):
            return "No rows, no counterfactuals."
        counts = {s: sum(item.status is s for item in self) for s in Status}
        parts = ", ".join(f"{n} {s.name}" for s, n in counts.items() if n)
        costs = [item.cost for item in self if item.is_found]
        mean = f"; mean {self.distance} distance {np.mean(costs):.4g}" if costs else ""
        certified = [item.certificate.claim for item in self if item.certificate is not None]
        rows = len({item.row for item in self})
        what = "row" if rows == len(self) else "counterfactual"
        claims = sorted({claim.among(len(certified), what) for claim in certified})
        several = f"{len(self)} counterfactuals of {rows} {'row' if rows == 1 else 'rows'}"
        counted = self._counted() if rows == len(self) else several
        if self.is_unshifted:
            gaps: dict[str, list[float]] = {}
            for item in self[self.found]:
                gaps.setdefault(item.nearness, []).append(item.gap or 0.0)
            claims = [f"{len(found)} {words.format(at_most(max(found), 2))}" for words, found in gaps.items()]
            claims += [f"{'valid on the model itself; ' if gaps else ''}nothing is claimed about other models"]
        return f"{counted} {self._direction()}: {parts}{mean}{''.join(f'; {claim}' for claim in claims)}."

    def _direction(self) -> str:
        """From which class to which the counterfactuals lead, in words."""
        classes = self.model.classes
        if len(classes) == 2:  # of these the model gives the one that is not wanted
            given = [classes[0] if target == classes[1] else classes[1] for target in self.target]
        else:
            given = list(predicted_classes(self.model, encoded_rows(self.model, self.space.table(self.origins))[1])[0])
        pairs = Counter(f"from class {a} to class {b}" for a, b in zip(given, self.target, strict=True))
        return next(iter(pairs)) if len(pairs) == 1 else f"({', '.join(f'{n} {words}' for words, n in pairs.items())})"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what each counterfactual changes, feature by feature, in units of the features' ranges."""
        from apas.display.plots import changes_plot

        features = self.space.features
        moved = np.where(self.found[:, None], np.nan_to_num(self.numbers - self.origins), 0.0)
        moved = moved / [f.span for f in features]
        moved[(moved != 0) & np.array([f.kind == "categorical" for f in features])] = np.nan
        texts = [change_texts(self.space, a, b) for a, b in zip(self.origins, self.numbers, strict=True)]
        several = any(item.rank for item in self)
        rows = [
            f"{label}{f', rank {item.rank}' if several else ''}{'' if item.is_found else ' (none found)'}"
            for label, item in zip(self._labels(), self, strict=True)
        ]
        return changes_plot(moved, texts, self.space.names, rows, ax)

    def to_frame(self) -> DataFrame:
        """One line per counterfactual, with the index of the data frame that was asked about."""
        frame = super().to_frame().assign(changes=self.changes().to_numpy())
        if self.is_unshifted:
            frame.insert(list(self.COLUMNS).index("cost") + 1, "gap", [item.gap for item in self])
        return frame

    def _line(self, item: Counterfactual) -> dict[str, Any]:
        said = {n: getattr(item, n) for n in ("row", "rank", "target", "cost", "candidates", "tests", "reason")}
        verdict = None if item.certificate is None else item.certificate.verdict.name
        return {**said, "status": item.status.name, "verdict": verdict}

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "space": self.space.to_dict(), "distance": self.distance}

    def _entries(self) -> list[dict[str, Any]]:
        lines = zip(self, cells(self.points), cells(self.inputs), strict=True)
        return [{"values": to if item.is_found else None, "from": start, **item.to_dict()} for item, to, start in lines]
