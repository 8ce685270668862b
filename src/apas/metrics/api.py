"""`evaluate`: ask for metrics by name, get a table; and whether counterfactuals have the wanted class."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._fields import EqualByContent
from apas._random import entropy_of
from apas._typing import Array, Bools, Floats
from apas._validation import check_delta, check_jobs, check_matrix, is_frame
from apas.certification.api import certify, robust_fraction
from apas.certification.max_shift.api import max_shift
from apas.certification.question import check_agreement, check_target
from apas.counterfactuals.result import Counterfactuals
from apas.counterfactuals.space.encoder import missing_cells
from apas.counterfactuals.space.space import FeatureSpace, own_columns
from apas.display.numbers import plain
from apas.display.tables import html_table
from apas.errors import InputError, Unsupported
from apas.metrics.distance import count_violations, distance_to_data, l1, linf, lof, share_changed
from apas.models.base import Model, Predicts, Raw, as_model, encoded_rows, needs_strict, offers, valid
from apas.shifts.base import ShiftSet

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class MetricInputs:
    """What a metric is computed from: the counterfactuals, of which it speaks of those in `found`, and the rest.

    `background` are known rows as the model sees them. Metrics that draw make a `Stream` of `entropy`, or a generator.
    """

    counterfactuals: Counterfactuals
    background: Floats | None
    retrained: tuple[Model, ...]
    delta: float | None
    n_jobs: int
    entropy: int

    @cached_property
    def found(self) -> Counterfactuals:
        """The counterfactuals that were found."""
        return self.counterfactuals[self.counterfactuals.found]

    @cached_property
    def table(self) -> DataFrame:
        """The counterfactuals in raw units."""
        return self.found.space.table(self.found.numbers)

    @cached_property
    def points(self) -> Floats:
        """The counterfactuals as the model sees them."""
        return seen_rows(self.found.model, self.found.space, self.found.numbers)

    @cached_property
    def inputs(self) -> Floats:
        """The inputs as the model sees them."""
        return seen_rows(self.found.model, self.found.space, self.found.origins)

    @cached_property
    def valid(self) -> Bools:
        """Which are valid on the model itself."""
        return valid_rows(self.found.model, self.table, self.found.target, "`model`")

    @property
    def shifted(self) -> dict[str, Any]:
        """What all questions about shifts share."""
        return {"target": self.found.target, "shifts": self.found.shifts, "n_jobs": self.n_jobs}


def seen_rows(model: Model, space: FeatureSpace, numbers: Floats) -> Floats:
    """Rows of numbers per cell as the model sees them; as one that can only predict does, in columns of the space."""
    if len(model.parameters):
        return encoded_rows(model, space.table(numbers))[1]
    # numbers in units of their ranges, a missing one in the middle and marked; a column per category; levels in order
    columns = []
    for j, feature in enumerate(space):
        if feature.kind == "categorical":
            columns.append((numbers[:, j, None] == np.arange(len(feature.values or ()))) / 2)
        else:
            start = feature.ends[0] if np.isfinite(feature.ends[0]) else 0.0
            scaled, gone = (numbers[:, j] - start) / feature.span, np.isnan(numbers[:, j])
            columns.append(np.stack([np.where(gone, 0.5, scaled), gone / 2], axis=1))
    return np.concatenate(columns, axis=1)


def _distance(given: MetricInputs, public: Callable[[Any, Any], Floats], name: str) -> Floats:
    """A distance over encoded variables; on a model that can only predict, over the features."""
    if len(given.found.model.parameters):
        return public(given.inputs, given.points)
    return given.found.space.costs(given.found.numbers, given.found.origins, name)


def _validity(given: MetricInputs) -> Columns:
    later, table, target = given.retrained, given.table, given.found.target
    valid = (valid_rows(model, table, target, f"`retrained[{i}]`") for i, model in enumerate(later))
    return {"valid": given.valid, **dict(zip(retrained_columns(len(later)), valid, strict=True))}


def _robust_fraction(given: MetricInputs) -> Floats:
    curves = robust_fraction(given.found.model, given.table, given.delta, rng=given.entropy, **given.shifted)
    return np.array([curve.estimate[0] for curve in curves])


Columns = dict[str, Array]
Metric = Callable[[MetricInputs], Any]
#: How each metric is computed: an entry per counterfactual that was found, or several such columns by name.
METRICS: Mapping[str, Metric] = {
    "validity": _validity,
    "l1": lambda given: _distance(given, l1, "l1"),
    "l0": lambda given: share_changed(given.found.space.differences(given.found.numbers, given.found.origins)),
    "linf": lambda given: _distance(given, linf, "linf"),
    "cost": lambda given: given.found.space.costs(given.found.numbers, given.found.origins, given.found.distance),
    "lof": lambda given: lof(given.background, given.points),
    "distance_to_data": lambda given: distance_to_data(given.background, given.points),
    "violations": lambda given: count_violations(given.found.space, given.found.numbers, given.found.origins),
    "delta_validity": lambda given: (
        certify(given.found.model, given.table, given.delta, method="interval", **given.shifted).certified
    ),
    "robust_fraction": _robust_fraction,
    "max_shift": lambda given: max_shift(given.found.model, given.table, rng=given.entropy, **given.shifted).deltas,
}
#: What a metric cannot do without, and what to pass.
NEEDED = {
    **dict.fromkeys(("lof", "distance_to_data"), ("background", "the known rows, such as the training table")),
    **dict.fromkeys(("delta_validity", "robust_fraction"), ("delta", "how far the model may move")),
}
#: Which metrics draw.
DRAWING = ("robust_fraction", "max_shift")
#: What the table has besides metrics, and so no metric of a user may be called; `valid_retrained` begins further ones.
COLUMNS = ("row", "rank", "found", "valid", "vm1", "vm2")
DEFAULT = ("validity", "l1", "l0", "lof")


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(EqualByContent):
    """Metrics of counterfactuals.

    Attributes
    ----------
    rows : data frame
        One line per counterfactual, with the index of the inputs: row, rank, found, and the metrics asked for (see
        `evaluate`). Missing where nothing was found.
    valid : ndarray of bool
        Which counterfactuals were found and are valid on the model itself.
    retrained : int
        Number of retrained models.
    entropy : int or None
        What shifts were drawn from; None if nothing was drawn.

    Examples
    --------
    >>> import apas
    >>> from apas.counterfactuals.result import Counterfactuals
    >>> from apas.metrics import evaluate
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]])
    >>> points = [[0.9, 0.3], [0.3, 0.6], [float("nan"), float("nan")]]
    >>> given = Counterfactuals.from_frame(net, [[0.2, 0.3], [0.3, 0.3], [0.1, 0.1]], points)
    >>> evaluate(given, metrics=("validity", "l1"))
    <Evaluation: 3 counterfactuals: found 0.6667, vm1 0.3333, l1 0.35.>
    """

    rows: DataFrame
    valid: Bools
    metrics: tuple[str, ...]
    retrained: int = 0
    delta: float | None = None
    entropy: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def summary(self) -> Series[float]:
        """Shares and means, as the paper's tables have them.

        ``found``, ``vm1`` (valid on the model), ``vm2`` (valid on the model and on the retrained one; for several
        retrained models ``vm2_0``, ``vm2_1``, ... and their mean ``vm2``) and ``delta_validity`` are shares of *all*
        counterfactuals asked for: one that was not found counts as a failure. Everything else is a mean over the
        counterfactuals that are valid on the model.
        """
        import pandas as pd

        found = {"found": _mean(self.rows["found"].to_numpy(dtype=bool))}
        for metric in self.metrics:
            if metric == "validity":
                found |= self._validity()
            elif metric == "delta_validity":
                found[metric] = _mean(self._truth_column(metric))
            else:
                found[metric] = _mean(self.rows[metric].to_numpy(dtype=np.float64, na_value=np.nan)[self.valid])
        return pd.Series(found, dtype=np.float64)

    def _validity(self) -> dict[str, float]:
        both = [_mean(self.valid & self._truth_column(name)) for name in retrained_columns(self.retrained)]
        each = {f"vm2_{i}": share for i, share in enumerate(both) if len(both) > 1}
        return {"vm1": _mean(self.valid), **each, **({"vm2": float(np.mean(both))} if both else {})}

    def _truth_column(self, column: str) -> Bools:
        """A column of truth values, False where nothing was found."""
        return np.asarray(self.rows[column].to_numpy(dtype=bool, na_value=False))

    def to_frame(self) -> DataFrame:
        """One line per counterfactual, as in `rows`."""
        return self.rows.copy()

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; null where there is nothing to say."""
        lines = zip(self.rows.index, self.rows.to_dict("records"), strict=True)
        return {
            "format": "apas-evaluation",
            "metrics": list(self.metrics),
            "retrained": self.retrained,
            "delta": self.delta,
            "entropy": None if self.entropy is None else hex(self.entropy),
            "summary": _json(self.summary()),
            "counterfactuals": [{"index": plain(label), **_json(line)} for label, line in lines],
        }

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        if not len(self):
            return "No counterfactuals."
        numbers = []
        for name, value in self.summary().items():
            text = f"{value:.4g}"  # but what is less than all is not written as 1
            numbers.append(f"{name} {value:.17g}" if value < 1 <= float(text) else f"{name} {text}")
        return f"{len(self)} counterfactual{'s' if len(self) > 1 else ''}: {', '.join(numbers)}."

    def __repr__(self) -> str:
        return f"<Evaluation: {self}>"

    def _repr_html_(self) -> str:
        return html_table(self.rows, caption=str(self))


def retrained_columns(count: int) -> list[str]:
    """Names of the columns about so many retrained models."""
    return ["valid_retrained"] if count == 1 else [f"valid_retrained_{i}" for i in range(count)]


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else np.nan


def _json(values: Any) -> dict[str, Any]:
    import pandas as pd

    return {str(name): None if pd.isna(value) else plain(value) for name, value in values.items()}


def evaluate(
    counterfactuals: Counterfactuals,
    *,
    background: Any = None,
    retrained: Sequence[Any] = (),
    metrics: Sequence[str | Metric] = DEFAULT,
    delta: float | None = None,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> Evaluation:
    """Measure counterfactuals: one row per counterfactual, and a summary.

    Parameters
    ----------
    counterfactuals : Counterfactuals
        From `generate`, or those of another tool through `Counterfactuals.from_frame`.
    background : array_like or data frame of shape (b, features), optional
        Known rows in raw units, of all classes, such as the training table. For "lof" and "distance_to_data".
    retrained : sequence of models, optional
        Models that came after the one the counterfactuals are for. For "validity".
    metrics : sequence of str or callable, default ("validity", "l1", "l0", "lof")
        Names, and metrics of your own; see the notes. Without `background` the default is without "lof".
    delta : float, optional
        How far the parameters may move, in the terms of the counterfactuals' shift set.
    n_jobs : int, default 1
        Number of processes; the metrics do not depend on it.
    rng : None, int or numpy.random.Generator
        Seed of the draws of "robust_fraction" and "max_shift"; recorded in the result.

    Notes
    -----
    Encoded variables are the inputs as the model sees them: scaled, one-hot and so on, by the space or by the model's
    own pipeline.

    - "validity": whether the model gives the wanted class (column ``valid``), and whether each retrained model does
      (``valid_retrained``, or ``valid_retrained_0``, ... for several).
    - "l1", "linf": mean and largest absolute difference over the encoded variables; of a model that can only predict,
      over the features in units of their ranges, as "cost" is.
    - "l0": share of the features, not the encoded variables, that change by at least 1e-4 of their range (categories:
      at all), rounded to three digits.
    - "cost": the distance that the counterfactuals were made for, feature by feature: numbers and levels in units of
      their range, categories 0 or 1.
    - "lof", "distance_to_data": see `apas.metrics`; in encoded variables.
    - "violations": number of cells that break a constraint of the space.
    - "delta_validity": whether interval bounds prove that every shift up to `delta` keeps the class.
    - "robust_fraction": estimated share of the shifts of size `delta` that keep the class.
    - "max_shift": the largest shift at which sampling certifies the class, with the defaults of `max_shift`.

    A metric of your own is a function, or any callable object with a `name`. It is given a `MetricInputs` and returns
    a number or a truth value for each counterfactual in its `found`. Its name is that of the column; the summary has
    the mean over the counterfactuals that are valid on the model. With an attribute `draws` that is true, the entropy
    that it may draw from is recorded.

    References
    ----------
    Marzari, Leofante, Cicalese and Farinelli (2024), "Rigorous Probabilistic Guarantees for Robust Counterfactual
    Explanations", ECAI, Section 7.

    Examples
    --------
    >>> import apas
    >>> from apas.counterfactuals.result import Counterfactuals
    >>> net, later = (apas.FeedForward([[[1.0], [1.0]]], [[b]]) for b in (-1.0, -1.1))
    >>> given = Counterfactuals.from_frame(net, [[0.2, 0.3], [0.3, 0.3]], [[0.9, 0.3], [0.3, 0.75]])
    >>> evaluate(given, retrained=[later], metrics=("validity", "l1", "l0")).summary().round(4).tolist()
    [1.0, 1.0, 0.5, 0.2875, 0.5]
    """
    wanted = _read_metrics(metrics if metrics is not DEFAULT or background is not None else DEFAULT[:-1])
    if not isinstance(counterfactuals, Counterfactuals):
        told = f"`counterfactuals` must be what apas.generate gives, got {type(counterfactuals).__name__};"
        raise InputError(f"{told} take those of other tools with Counterfactuals.from_frame(model, X, points).")
    for name in wanted:
        argument, what = NEEDED.get(name, ("", ""))
        if argument and {"background": background, "delta": delta}[argument] is None:
            raise InputError(f"`{argument}` must be given for the metric {name!r}: {what}; or leave the metric out.")
    if isinstance(delta, Iterable) and not isinstance(delta, str):
        raise InputError(f"`delta` of evaluate must be one number for all rows, got {reprlib.repr(delta)}.")
    space, net = counterfactuals.space, counterfactuals.model
    if background is not None:
        known = space.numbers_for(net, own_columns(background, space), "background")
        background = seen_rows(net, space, known)
    later = read_retrained(retrained, space, net.classes)
    size = None if delta is None else float(check_delta(delta, 1)[0])
    given = MetricInputs(counterfactuals, background, later, size, check_jobs(n_jobs), entropy_of(rng))
    columns: Columns = {}
    for name, metric in wanted.items():
        columns |= _columns(name, metric, given)
    draws = any(name in DRAWING or getattr(metric, "draws", False) for name, metric in wanted.items())
    import pandas as pd

    points, found = counterfactuals.points, counterfactuals.found
    index = points.index if is_frame(points) else pd.RangeIndex(len(counterfactuals))
    about = pd.DataFrame({"row": counterfactuals.row, "rank": counterfactuals.rank, "found": found})
    shown = {name: pd.array(v, dtype="boolean") if v.dtype == bool else v for name, v in columns.items()}
    # with gaps where nothing was found
    table = about.join(pd.DataFrame(shown, index=np.flatnonzero(found))).set_axis(index)
    valid = np.array(found)
    valid[found] = given.valid
    return Evaluation(table, valid, tuple(wanted), len(later), size, given.entropy if draws else None)


def _read_metrics(metrics: Any) -> dict[str, Metric]:
    known = ", ".join(repr(name) for name in METRICS)
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise InputError(f"`metrics` must be a list of names out of {known}, got {metrics!r}; pass [name] for one.")
    found: dict[str, Metric] = {}
    for metric in metrics:
        if isinstance(metric, str) and metric in METRICS:
            found[metric] = METRICS[metric]
            continue
        if isinstance(metric, str | type) or not callable(metric):
            raise InputError(f"`metrics` must be out of {known}, got {metric!r}.")
        name = getattr(metric, "name", getattr(metric, "__name__", None))
        if not isinstance(name, str) or not name.strip() or name == "<lambda>":
            raise InputError(f"a metric of your own must have a name for its column, got {name!r}; set its `name`.")
        if name in METRICS or name in COLUMNS or name.startswith(("valid_retrained", "vm2_")):
            raise InputError(f"a metric of your own must not be called {name!r}, as a column of apas is; rename it.")
        if found.setdefault(name, metric) is not metric:
            raise InputError(f"`metrics` must have different names, got {name!r} for two metrics; rename one.")
    return found


def _columns(name: str, metric: Metric, given: MetricInputs) -> Columns:
    if metric is METRICS.get(name):
        values = metric(given)
        return values if isinstance(values, dict) else {name: values}
    count = len(given.found)
    if not count:  # nobody's own metric has to know what to do with a table without rows
        return {name: np.empty(0)}
    values = np.asarray(metric(given))
    if values.shape != (count,) or values.dtype.kind not in "biuf":
        told = f"the metric {name!r} must return a number or a truth value for each counterfactual that was found,"
        raise InputError(f"{told} in an array of shape ({count},), got shape {values.shape} of type {values.dtype}.")
    return {name: values if values.dtype == bool else values.astype(np.float64)}


def validity(model: Any, points: Any, target: Any) -> Bools:
    """Which rows a model (see `as_model`) puts into the wanted class.

    Parameters
    ----------
    model : object
    points : array_like or data frame of shape (rows, features)
        In the units the model takes; a missing row is not valid.
    target : label or array_like of labels
        One for all rows, or one per row.

    Examples
    --------
    >>> import apas
    >>> validity(apas.FeedForward([[[1.0]]], [[0.0]]), [[0.5], [-0.5], [float("nan")]], 1)
    array([ True, False, False])
    """
    net = as_model(model)
    rows, labels, there = _there(net, points, target)
    there[there] = valid_rows(net, rows, labels, "`model`")
    return there


def delta_validity(
    model: Any, points: Any, delta: float, *, target: Any, shifts: ShiftSet | str = "linf", n_jobs: int = 1
) -> Bools:
    """Which rows keep the wanted class under every shift of the model up to `delta`, as interval bounds prove it.

    `model`, `points` and `target` are as in `validity`. False also where the bounds prove nothing, which happens only
    with two or more hidden layers.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> delta_validity(net, [[2.0, 0.5], [1.0, 0.9]], 0.4, target=1)
    array([ True, False])
    """
    net = as_model(model)
    rows, labels, there = _there(net, points, target)
    there[there] = certify(net, rows, delta, target=labels, shifts=shifts, method="interval", n_jobs=n_jobs).certified
    return there


def _there(net: Predicts, points: Any, target: Any) -> tuple[Any, Array, Bools]:
    """The rows that are there, their wanted classes, and which they are."""
    if isinstance(target, str) and target == "predicted" and target not in net.classes:
        raise InputError(f"`target` must be the wanted class, one of {list(net.classes)}, got 'predicted'.")
    width = net.n_raw_features if offers(net, Raw) else net.n_features
    try:
        table = check_matrix(points, width, None)
    except InputError as error:
        raise InputError(str(error).replace("`X`", "`points`")) from None
    there: Bools = np.asarray(~missing_cells(table).all(axis=1))
    labels = check_target(net, np.empty((len(there), 0)), target)
    return (table.iloc[there] if is_frame(table) else table[there]), labels[there], there


def valid_rows(model: Predicts, rows: Any, target: Array, name: str) -> Bools:
    """Which complete rows in raw units have their wanted class; `name` is for errors."""
    raw, encoded = encoded_rows(model, rows)
    if offers(model, Model):  # what only predicts says itself what it says
        check_agreement(model, raw, encoded, name=name)
    if not len(encoded):
        return np.empty(0, dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not valid
        return valid(model.margin(encoded, target), needs_strict(model.classes, target))


def read_retrained(retrained: Any, space: FeatureSpace, classes: tuple[Any, ...]) -> tuple[Model, ...]:
    """Retrained models as ones that take raw rows of the space and know the same classes."""
    if not isinstance(retrained, Sequence) or isinstance(retrained, str | bytes):
        raise InputError(f"`retrained` must be a list of models, got {type(retrained).__name__}; pass [model] for one.")
    found = []
    for i, model in enumerate(retrained):
        try:
            found.append(space.bind(model))
        except (InputError, Unsupported) as error:
            raise type(error)(f"`retrained[{i}]` cannot be read: {error}") from error
        if {*found[i].classes} != {*classes}:
            told = f"`retrained[{i}]` must have the classes {list(classes)} of the model that the counterfactuals are"
            raise InputError(f"{told} for, got {list(found[i].classes)}.")
    return tuple(found)
