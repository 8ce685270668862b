"""`DataChange`: every model whose last layer is fitted again after some rows of the training table have changed.

It is an L2-regularised logistic regression, or a ridge classifier, on the features that enter it.
"""

from __future__ import annotations

import copy
import hashlib
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np

from apas._fields import EqualByContent, Fields, as_json
from apas._typing import Bools, Floats, Indices
from apas._validation import check_number
from apas.display.numbers import at_most, plain
from apas.errors import InputError, Unsupported
from apas.models import base as models
from apas.models.base import Dense, Model, Parameters, as_model, class_indices, encoded_rows, offers
from apas.models.digest import model_digest
from apas.models.feedforward import FeedForward
from apas.shifts.base import ShiftWords
from apas.shifts.distance import check_labels, data_digest
from apas.shifts.fit_problem import FitProblem, WhitenedFit, last_layer_rows

CHANGES = ("removed", "relabelled", "added", "replaced")
#: What a file holds of a set, in this order.
SETTINGS = ("kind", "loss", "C", "tolerance", "class_weight", "rows", "table", "low", "high", "categories", "weight")
#: Scikit-learn's classifiers whose refits are spoken of: their loss.
CLASSIFIERS = {"LogisticRegression": "logistic", "RidgeClassifier": "squared"}


@dataclass(frozen=True, eq=False)
class AddedRows:
    """Where added rows may lie as they enter the last layer: a box, and of the columns of each category one is 1."""

    low: Floats
    high: Floats
    categories: Sequence[Sequence[int]]
    weight: float

    @cached_property
    def points(self) -> tuple[Floats, Indices]:
        """Rows with a 1 or an end of a range in one column, and where groups begin: a row is a sum of one of each."""
        unit, within = np.eye(len(self.low) + 1), {column for group in self.categories for column in group}
        alone = [j for j in range(len(self.low)) if j not in within]
        groups = [unit[list(group)] for group in self.categories]
        groups += [np.stack([self.low[j] * unit[j], self.high[j] * unit[j]]) for j in alone]
        return np.concatenate([*groups, unit[-1:]]), np.cumsum([0, *map(len, groups)])

    def snapped(self, row: Floats) -> Floats:
        """A row that lies there but for rounding, with the 1 of the intercept behind it, as one that does."""
        row = np.append(np.clip(row[:-1], self.low, self.high), 1.0)
        for group in self.categories:
            row[list(group)] = np.rint(row[list(group)])
        return row

    def contain(self, rows: Floats) -> Bools:
        """Which rows lie there."""
        inside = ((rows >= self.low) & (rows <= self.high)).all(axis=1)
        for group in self.categories:
            inside &= (np.isin(rows[:, group], (0.0, 1.0))).all(axis=1) & (rows[:, group].sum(axis=1) == 1)
        return np.asarray(inside)


class ChangedTable(EqualByContent):
    """What a file holds of `DataChange`: its settings, and a digest by which the training table can be told."""

    kind: str
    content: dict[str, Any]
    words: ClassVar[ShiftWords] = ShiftWords(
        changes="changes of the training table",
        one="one refit of the last layer, and delta the number of training rows that changed before it",
        assumed="A later model is a refit of the last layer, up to the tolerance that is named, on the training table "
        "with as many changed rows; the preprocessing, hidden layers, classes and threshold stay as they are.",
    )
    no_draws: ClassVar[str] = "no changed table is more likely than another, so nothing is drawn"

    def __init__(self, content: dict[str, Any]) -> None:
        self.kind, self.content = content["kind"], content
        self.missing = "the file holds only a digest of the training table; pass shifts=apas.DataChange(...)"

    def to_dict(self) -> dict[str, Any]:
        """The settings, and the digest of the table, as JSON values."""
        return dict(self.content)

    @classmethod
    def from_dict(cls, about: Fields) -> ChangedTable:
        """What a file holds of the set."""
        about.only(*SETTINGS)
        about.choice("kind", *CHANGES), about.choice("loss", "logistic", "squared")
        for name in ("C", "tolerance", "weight"):
            about.number(name, above=0)
        about.integer("rows", 1), about.text("table"), about.any("class_weight")
        return ChangedTable(dict(about.content))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InputError(f"`shifts` are not complete: {self.missing}.")

    directions = margins = radii = contains = measure = region = bind = _refuse


@dataclass(frozen=True, eq=False)
class LastLayer:
    """A training table behind a model: the problem that its last layer solves, and where rows may be added."""

    network: FeedForward
    problem: FitProblem
    added: AddedRows
    table: Floats
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the table."""
        return hashlib.sha256(np.ascontiguousarray(self.table).astype("<f8").tobytes()).hexdigest()

    @cached_property
    def whitened(self) -> WhitenedFit:
        """The problem with its Hessian; `Unsupported` if that is singular in floats."""
        return WhitenedFit(self.problem)


@dataclass(frozen=True)
class RefitReport:
    """What was measured at a real refit.

    Attributes
    ----------
    changes : int or None
        How many rows changed in the way that the set speaks of; None if the tables differ in another way.
    gradient : float
        Norm of the gradient on the new table at the new parameters, in the norm of the inverse Hessian, rounded up.
    tolerance : float
        What the set grants it.
    why : str
        What else keeps the theorem from applying; empty if nothing does.
    """

    changes: int | None
    gradient: float
    tolerance: float
    why: str = ""

    def applies(self, delta: float) -> bool:
        """Whether a claim about so many changes speaks of this refit."""
        return not self.why and self.changes is not None and self.changes <= delta and self.gradient <= self.tolerance

    def sentence(self) -> str:
        """Say it in words."""
        told = f"the gradient at the new model is at most {at_most(self.gradient)} in the norm of the inverse Hessian"
        enough = "within" if self.gradient <= self.tolerance else "beyond"
        changed = self.why or f"{self.changes} training rows changed"
        return f"{changed}; {told}, {enough} the tolerance of {self.tolerance:g}"


@dataclass(frozen=True, eq=False, repr=False)
class DataChange(ChangedTable):
    """Every refit of a model's last layer after at most `delta` training rows changed; `delta` is a number of rows.

    Parameters
    ----------
    kind : {"removed", "relabelled", "added", "replaced"}
        Which change: any rows are removed; they get the other label; rows are added, anywhere within the ranges below
        and with any label; or as many are removed and added.
    X, y : array_like or data frame of shape (n, features), array_like of shape (n,)
        The training table, in the units of the rows that are certified, and its labels, of two classes.
    loss : {"logistic", "squared"}, default "logistic"
        That of `LogisticRegression`, or of `RidgeClassifier`.
    C : float, default 1.0
        Inverse strength of the L2 penalty on the weights, not on the intercept; for a ridge classifier ``1 / alpha``.
    sample_weight : array_like of shape (n,), optional
    class_weight : mapping from label to weight, optional
        Fixed weights; "balanced" ones change with the table, which is not covered.
    tolerance : float, default 1e-3
        How large the gradient at a refit may be, in the norm of the inverse Hessian at the minimiser on the table as it
        is: about the distance from the refit's own minimiser in standard errors; `gradient` measures it.
    low, high : array_like, optional
        Range of each column of added rows as it enters the last layer; that of the table unless given.
    categories : sequence of sequences of int, optional
        Columns of which exactly one is 1 and the others are 0 in each added row: those of a one-hot encoding.
    weight : float, default 1.0
        The largest sample weight of an added row.

    Notes
    -----
    Certified by ``method="refit"``. What voids the claim: a preprocessing or hidden layers that are fitted again, other
    settings, a solver that stops short of the tolerance (the default of `LogisticRegression` may; use
    ``solver="newton-cholesky", tol=1e-8``, and let `audit` measure the refit).

    Examples
    --------
    >>> import apas
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = (X[:, 0] + np.random.default_rng(1).normal(size=400) > 0).astype(int)
    >>> model, change = apas.FeedForward([[[2.0], [0.0]]], [[0.0]]), DataChange("removed", X, y)
    >>> apas.certify(model, [[0.6, 0.0]], 5, target=1, shifts=change, method="refit")[0].verdict.name
    'CERTIFIED'
    """

    kind: str
    X: Any
    y: Any
    loss: str = field(default="logistic", kw_only=True)
    C: float = field(default=1.0, kw_only=True)
    sample_weight: Any = field(default=None, kw_only=True)
    class_weight: Mapping[Any, float] | None = field(default=None, kw_only=True)
    tolerance: float = field(default=1e-3, kw_only=True)
    low: Any = field(default=None, kw_only=True)
    high: Any = field(default=None, kw_only=True)
    categories: Sequence[Sequence[int]] = field(default=(), kw_only=True)
    weight: float = field(default=1.0, kw_only=True)
    _bound: list[Any] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for name, known in (("kind", CHANGES), ("loss", tuple(CLASSIFIERS.values()))):
            if getattr(self, name) not in known:
                wanted = ", ".join(map(repr, known))
                raise InputError(f"`{name}` of DataChange must be one of {wanted}, got {getattr(self, name)!r}.")
        own = vars(self)  # the dictionary, since attributes of the set are frozen
        for name in ("C", "tolerance", "weight"):
            own[name] = check_number(own[name], name, "DataChange", above=0)
        if self.class_weight is not None and not isinstance(self.class_weight, Mapping):
            told = f"must map labels to weights that stay as they are, got {self.class_weight!r}"
            why = "weights that are computed from the table change with it, which is not covered"
            raise InputError(f"`class_weight` of DataChange {told}; {why}.")
        _numbers(list((self.class_weight or {}).values()), "class_weight")
        rows = len(self.X) if hasattr(self.X, "__len__") else 0
        check_labels(self.y, rows, owner="DataChange")
        if rows < 2:
            raise InputError(f"`X` of DataChange must be the training table, with 2 rows or more, got {rows}.")
        # what may change behind our back would not be the table of the digest
        own |= {"X": copy.copy(self.X), "y": copy.copy(self.y), "sample_weight": _weights(self.sample_weight, rows)}
        own |= {name: _numbers(own[name], name) for name in ("low", "high") if own[name] is not None}
        try:
            own["categories"] = tuple(tuple(map(operator.index, group)) for group in self.categories)
        except TypeError:
            told = f"must list numbers of columns for each category, such as [[0, 1], [2, 3]], got {self.categories!r}"
            raise InputError(f"`categories` of DataChange {told}.") from None
        weights = None if self.class_weight is None else [[plain(k), float(v)] for k, v in self.class_weight.items()]
        table = data_digest(self.X, self.y, *(() if self.sample_weight is None else (self.sample_weight,)))
        settings = {**own, "class_weight": weights, "rows": len(self.X), "table": table}
        own["content"] = {name: as_json(settings[name]) for name in SETTINGS}

    def bind(self, model: Any) -> LastLayer:
        """The table behind a model, which is read once; `Unsupported` if the last layer is no such classifier."""
        for known, _, layer in self._bound:
            if known is model:
                return layer  # type: ignore[no-any-return]
        read = as_model(model)
        digest = model_digest(read)
        same = [layer for _, known, layer in self._bound if known == digest]
        self._bound[:] = [*self._bound[-3:], (model, digest, same[0] if same else self._read(read))]
        return self._bound[-1][2]  # type: ignore[no-any-return]

    def _read(self, model: Model) -> LastLayer:
        network = model.as_feedforward() if offers(model, Dense) else None
        if network is None or len(model.classes) != 2 or network.weights[-1].shape[1] != 1:
            what = "a linear classifier or a dense network with two classes and one score"
            raise Unsupported(f"DataChange needs {what}, got {model!r}; use apas.ObservedShifts(apas.retrain(...)).")
        if network.given_biases[-1] is None or (offers(model, models.Arithmetic) and model.dtype == "float32"):
            raise Unsupported(f"DataChange needs a model in float64 whose last layer has an intercept, got {model!r}.")
        if offers(model, models.FromEstimator):
            self._compare(model.estimator)
        return self._behind(model, network, self.X, self.y, self.sample_weight)

    def _compare(self, estimator: Any) -> None:
        final = estimator[-1] if hasattr(estimator, "steps") else estimator
        name, given = type(final).__name__, final.get_params()
        if name == "MLPClassifier":
            return
        if name not in CLASSIFIERS:
            others = "LogisticRegression, RidgeClassifier, or the last layer of a network"
            raise Unsupported(f"DataChange speaks of refits of {others}, got a {name}; use apas.ObservedShifts.")
        given |= {"loss": CLASSIFIERS[name], "C": given["C"] if "C" in given else 1 / given["alpha"]}
        told = {"loss": self.loss, "C": self.C, "class_weight": self.class_weight, "fit_intercept": True}
        told |= {"penalty": "l2", "l1_ratio": 0.0, "positive": False}
        if given.get("solver") == "liblinear":
            why = "DataChange speaks of refits whose intercept is not penalised, got a LogisticRegression by liblinear,"
            raise Unsupported(f'{why} which penalises it; use solver="newton-cholesky".')
        for key, ours in told.items():
            theirs = given.get(key, "deprecated")
            unsaid = theirs == "deprecated" or (key == "l1_ratio" and not theirs)
            if theirs != ours and not unsaid and not (key == "C" and math.isclose(theirs, self.C, rel_tol=1e-12)):
                must = f"`{key}` of DataChange must be that of the {name}"
                raise InputError(f"{must}, {theirs!r}, got {ours!r}; refits with other settings are other models.")

    def _behind(self, model: Model, network: FeedForward, X: Any, y: Any, sample_weight: Floats | None) -> LastLayer:
        encoded = encoded_rows(model, X)[1]
        given = check_labels(y, len(encoded), model.classes, owner="DataChange")
        labels = class_indices(model.classes, np.asarray(given, dtype=object), len(encoded))
        by_class = [float((self.class_weight or {}).get(label, 1.0)) for label in model.classes]
        if not all(0 < w < math.inf for w in by_class):
            raise InputError(f"`class_weight` of DataChange must hold positive numbers, got {self.class_weight!r}.")
        base = self.C * (np.ones(len(encoded)) if sample_weight is None else sample_weight)
        weights, turned = (base * np.take(by_class, index) for index in (labels, 1 - labels))
        table = np.column_stack([encoded, labels, weights, turned])
        Z, logistic = last_layer_rows(network, encoded), self.loss == "logistic"
        coded = np.asarray(labels if logistic else 2.0 * labels - 1.0, dtype=np.float64)
        problem = FitProblem(Z, coded, weights, turned, logistic)
        low = Z[:, :-1].min(axis=0) if self.low is None else self.low
        high = Z[:, :-1].max(axis=0) if self.high is None else self.high
        wide = (Z.shape[1] - 1,)
        columns = [column for group in self.categories for column in group]
        fine = low.shape == high.shape == wide and (low <= high).all() and np.isfinite([low, high]).all()
        if not fine or sorted(set(columns)) != sorted(columns) or not all(0 <= c < wide[0] for c in columns):
            told = f"`low`, `high` and `categories` of DataChange must give ranges of the {wide[0]} columns that enter"
            raise InputError(f"{told} the last layer, and name columns of them at most once.")
        added = AddedRows(low, high, self.categories, self.C * self.weight * max(by_class))
        return LastLayer(network, problem, added, table)

    def table(self, model: Any) -> Floats:
        """The training table in model units: columns, labels 0 and 1, weights, and weights with the other label.

        What the separate checker asks for: ``np.save("table.npy", change.table(model))``.
        """
        return self.bind(model).table.copy()

    def gradient(self, model: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> float:
        """Norm of the gradient at a model's parameters, in the norm of the inverse Hessian; on another table if given.

        What the library's solver left: of a refit it must not exceed `tolerance`.
        """
        table = (self.X, self.y, self.sample_weight) if X is None else (X, y, sample_weight)
        return self.refit_report(model, model, *table).gradient

    def refit_report(self, base: Any, new: Any, X: Any, y: Any, sample_weight: Any = None) -> RefitReport:
        """Measure a real refit `new` of the model `base` on a table: how it changed, and how large the gradient is."""
        old, successor = as_model(base), as_model(new)
        layer = self.bind(old)
        network = successor.as_feedforward() if offers(successor, Dense) else None
        if network is None or network.parameters.shapes != layer.network.parameters.shapes:
            return RefitReport(None, math.inf, self.tolerance, "the new model has another architecture")
        cut, now = -layer.problem.Z.shape[1], self._behind(old, layer.network, X, y, _weights(sample_weight, len(X)))
        (hidden, theta), (before, _) = (np.split(n.parameters.values, [cut]) for n in (network, layer.network))
        norm = layer.whitened.dual_norm(now.problem, theta)
        changes, why = self._count(layer, now.table, now.problem.Z[:, :-1])
        why = why if np.array_equal(hidden, before) else "the hidden layers have changed"
        return RefitReport(changes, norm, self.tolerance, why)

    def _count(self, layer: LastLayer, table: Floats, rows: Floats) -> tuple[int | None, str]:
        before, after = (Counter(map(bytes, np.ascontiguousarray(t))) for t in (layer.table, table))
        gone, new = (before - after).total(), (after - before).total()
        if self.kind == "removed" and new:
            return None, f"{new} rows are new, while the claim is about removed rows"
        if self.kind == "added" and gone:
            return None, f"{gone} rows are gone, while the claim is about added rows"
        if self.kind == "relabelled":
            other = layer.table.copy()
            other[:, -3], other[:, [-2, -1]] = 1 - other[:, -3], other[:, [-1, -2]]
            partner = dict(zip(map(bytes, layer.table), map(bytes, other), strict=True))
            turned = Counter({partner[row]: count for row, count in (before - after).items()})
            return (gone, "") if turned == after - before else (None, "rows changed in more than their labels")
        more = after - before  # copies of rows of the table are added rows like others
        fresh = np.array([bytes(row) in more for row in np.ascontiguousarray(table)], dtype=bool)
        inside = layer.added.contain(rows[fresh]) & (table[fresh, -2] <= layer.added.weight)
        if self.kind in ("added", "replaced") and not inside.all():
            return None, f"{int((~inside).sum())} added rows lie outside of the ranges, or weigh more than is granted"
        return max(gone, new), ""

    def radii(self, parameters: Parameters) -> Floats:
        """No parameter moves by itself: a refit moves those of the last layer together."""
        return np.zeros(len(parameters))

    def _undrawn(self, *_: Any, **__: Any) -> NoReturn:
        raise Unsupported(f'DataChange is certified by method="refit" alone: {self.no_draws}.')

    directions = margins = _undrawn

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Nobody knows from parameters alone: `refit_report` asks for the table, and measures."""
        told = "whether a model is a refit on changed data only its table shows"
        raise Unsupported(f"{told}; pass it to audit as `data`.")

    def measure(self, parameters: Parameters) -> str:
        """The set itself: there is no distribution on it."""
        return self.region(parameters)

    def region(self, parameters: Parameters) -> str:
        """The set in words."""
        content, what = self.content, "logistic regression" if self.loss == "logistic" else "ridge classifier"
        with_weights = "" if self.class_weight is None and self.sample_weight is None else " with its weights"
        rows = self.kind.replace("replaced", "removed and as many added")
        rows += " within the given ranges" if rows.endswith("added") else ""
        return (
            f"refits of the last layer as an L2-regularised {what} (C = {self.C:g}) to a gradient of at most "
            f"{self.tolerance:g} in the norm of the inverse Hessian, after at most delta of {content['rows']} training "
            f"rows (table {content['table']}{with_weights}) were {rows}; preprocessing and hidden layers stay"
        )

    def __repr__(self) -> str:
        return f"DataChange({self.kind!r}, {self.content['rows']} rows, {self.loss}, C={self.C:g})"


def _weights(given: Any, rows: int) -> Floats | None:
    if given is None:
        return None
    weights = _numbers(given, "sample_weight")
    if weights.shape != (rows,) or not (np.isfinite(weights) & (weights > 0)).all():
        got = f"{weights.min(initial=np.inf):g} among {weights.size}"
        told = f"a positive number for each of {rows} rows, got {got}; drop rows that count for nothing"
        raise InputError(f"`sample_weight` of DataChange must hold {told}.")
    weights.flags.writeable = False
    return weights


def _numbers(given: Any, name: str) -> Floats:
    try:
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`{name}` of DataChange must hold numbers, got {given!r}.") from None
