"""How far models lie from each other: `measure_shift`, overall and per layer, in several distances."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._fields import EqualByContent, Fields
from apas._random import Stream, entropy_of
from apas._typing import Floats, Integers
from apas._validation import check_integer
from apas.display.numbers import at_most
from apas.display.tables import html_table
from apas.errors import GuaranteeWarning, InputError, Unsupported
from apas.models.base import ABSENT, Described, Model, Parameters, as_model, encoded_rows, offers
from apas.shifts.geometry import box_distances, share_powers

if TYPE_CHECKING:
    from pandas import DataFrame


#: The distances that every report holds.
NORMS = (0.0, 1.0, 2.0, math.inf)
#: What two models must share for the distance of their parameters to tell how far they are from each other.
_SHARED = ("preprocessing", "code", "activation", "output", "threshold", "classes", "feature_names")
_WORDS = {0.0: "number of changed parameters", 1.0: "sum of the changes", 2.0: "Euclidean distance"}


def measure_shift(base: Any, *others: Any, p: float = math.inf) -> ShiftReport:
    """Measure how far the parameters of other models lie from those of a base model.

    Parameters
    ----------
    base : object
        The model that would be certified: anything that `as_model` takes.
    *others : object
        One or more models with parameters of the same shapes, such as later checkpoints.
    p : float, default inf
        Which distance is `delta`: 0 counts the parameters that changed, 1 sums the changes, 2 is the Euclidean
        distance, inf the largest change (the `delta` of `LinfShifts`). Any number of at least 0 will do.

    Warns
    -----
    GuaranteeWarning
        If the models differ in more than parameters, for example in their preprocessing: a shift by `delta` does
        not lead from one to the other then.

    Examples
    --------
    >>> from apas import FeedForward
    >>> old, new = FeedForward([[[1.0], [2.0]]], [[0.5]]), FeedForward([[[1.0], [2.25]]], [[0.375]])
    >>> measure_shift(old, new)
    <ShiftReport: Each of 3 parameters changes by at most 0.25; the largest change is a weight of layer0.>
    """
    if not others:
        raise InputError("`others` of measure_shift must hold at least one model to compare, got none.")
    if isinstance(others[0], list | tuple):
        raise InputError("`others` of measure_shift must be models, got a list; pass measure_shift(base, *models).")
    order = check_order(p)
    names = [f"`others[{i}]` of measure_shift" for i in range(len(others))]
    models = [read_model(other, name) for other, name in zip(others, names, strict=True)]
    columns, start = [f"model {i}" for i in range(1, len(models) + 1)], read_model(base, "`base` of measure_shift")
    return compare_models(start, models, p=order, names=names, columns=columns)


@dataclass(frozen=True, eq=False, repr=False)
class ShiftReport(EqualByContent):
    """How far one or more models lie from a base model.

    Attributes
    ----------
    p : float
        Which distance `delta` is.
    models : tuple of str
        What the compared models are called, ``"model 1"`` or ``"round 1"`` and so on.
    norms : tuple of float
        The distances that were measured: 0, 1, 2, inf, and `p` if it is another.
    parts : tuple of (str, str, int)
        Layer, kind and number of parameters, per part of the model.
    distances : ndarray of shape (1 + parts, norms, models)
        All distances; the first entry is over all parameters together.
    entropy : int or None
        What the rows of `estimate_delta` were drawn from; pass it as `rng` to repeat them.
    """

    p: float
    models: tuple[str, ...]
    norms: tuple[float, ...]
    parts: tuple[tuple[str, str, int], ...]
    distances: Floats
    entropy: int | None = None

    @property
    def delta(self) -> float:
        """The largest overall distance of any model, for this report's `p`."""
        return float(self.distances[0, self.norms.index(self.p)].max())

    def __float__(self) -> float:
        return self.delta

    @property
    def overall(self) -> DataFrame:
        """Distances over all parameters: a line per p (the index), a column per model compared."""
        return self.to_frame().iloc[: len(self.norms)].set_index("p")[list(self.models)]

    @property
    def per_layer(self) -> DataFrame:
        """Distances within each layer: columns layer, kind, size, p, and one per model compared."""
        return self.to_frame().iloc[len(self.norms) :].reset_index(drop=True)

    def to_frame(self) -> DataFrame:
        """`overall` (layer and kind are "all") above `per_layer`, in the columns of `per_layer`."""
        import pandas as pd

        parts = [("all", "all", sum(size for _, _, size in self.parts)), *self.parts]
        lines = [
            (*part, p, *distances.tolist())
            for part, of_part in zip(parts, self.distances, strict=True)
            for p, distances in zip(self.norms, of_part, strict=True)
        ]
        return pd.DataFrame(lines, columns=["layer", "kind", "size", "p", *self.models])

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; infinity is written "inf"."""
        tables = [
            {f"{p:.15g}": list(map(_json, distances.tolist())) for p, distances in zip(self.norms, part, strict=True)}
            for part in self.distances
        ]
        about = {"format": "apas-shift-report", "p": _json(self.p), "delta": _json(self.delta)}
        parts = [
            {"layer": layer, "kind": kind, "size": size, "distance": table}
            for (layer, kind, size), table in zip(self.parts, tables[1:], strict=True)
        ]
        more = {"models": list(self.models), "entropy": self.entropy}
        return {**about, **more, "overall": tables[0], "per_layer": parts}

    @classmethod
    def from_dict(cls, about: Fields) -> ShiftReport:
        """What a file says of one model, in the distance of its report alone."""
        order, parts, distances = _read_distance(about.any("p")), [], [_read_distance(about.any("delta"))]
        for i, part in enumerate(about.items("per_layer")):
            one = Fields.of(part, f"shifts.per_layer[{i}]")
            told = one.inner("distance").items(f"{order:.15g}")
            parts.append((one.text("layer"), one.text("kind"), one.integer("size")))
            distances.append(max(map(_read_distance, told), default=0.0))
        return cls(order, ("new model",), (order,), tuple(parts), np.array(distances)[:, None, None])

    def summary(self) -> str:
        """How far the models lie apart, in one sentence; numbers are rounded up."""
        size = sum(n for _, _, n in self.parts)
        over = f" over {len(self.models)} models" if len(self.models) > 1 else ""
        if self.delta == 0:
            return f"None of {size} parameters changes{over}."
        place = self.norms.index(self.p)
        farthest = int(self.distances[0, place].argmax())
        if self.p == math.inf:
            layer, kind, _ = self.parts[int(self.distances[1:, place, farthest].argmax())]
            where = f"; the largest change is a {kind} of {layer}" + (f" in {self.models[farthest]}" if over else "")
            return f"Each of {size} parameters changes by at most {at_most(self.delta)}{over}{where}."
        shown = f"{self.delta:.0f}" if self.p == 0 else at_most(self.delta)
        what = _WORDS.get(self.p, f"p = {self.p:g}")
        where = f"; the farthest is {self.models[farthest]}" if over else ""
        return f"The distance of {size} parameters ({what}) is at most {shown}{over}{where}."

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<ShiftReport: {self.summary()}>"

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        return html_table(frame[frame["p"] == self.p].reset_index(drop=True), caption=self.summary())


def read_model(obj: Any, argument: str) -> Model:
    """`as_model`, with errors that name the argument."""
    try:
        return as_model(obj)
    except (InputError, Unsupported) as error:
        raise type(error)(f"{argument} cannot be read: {error}") from error


def compare_models(
    base: Model, others: Sequence[Model], *, p: float, names: list[str], columns: list[str], entropy: int | None = None
) -> ShiftReport:
    """Measure read models; `names` are for errors and `columns` for the report."""
    norms = NORMS if p in NORMS else tuple(sorted({*NORMS, p}))
    for model, name in zip([base, *others], ["the base model", *names], strict=True):
        if not offers(model, Model):
            raise Unsupported(f"{name} {model!r} has no parameters that could move, so no shift can be measured.")
    start = _finite(base.parameters, "the base model")
    groups: dict[tuple[str, str], list[slice]] = {}
    for layer, kind, where in zip(start.layers, start.kinds, start.slices, strict=True):
        if kind != ABSENT:
            groups.setdefault((layer, kind), []).append(where)
    distances = np.empty((1 + len(groups), len(norms), len(others)))
    for i, (other, name) in enumerate(zip(others, names, strict=True)):
        _check_same_shapes(start, other.parameters, name)
        _warn_of_other_differences(base, other, name)
        moved = box_distances(start.values, _finite(other.parameters, name).values)  # never less than it is
        for j, slices in enumerate([[slice(None)], *groups.values()]):
            part = np.concatenate([moved[where] for where in slices])
            distances[j, :, i] = [_distance(part, order) for order in norms]
    distances.flags.writeable = False
    parts = tuple((*key, int(sum(where.stop - where.start for where in slices))) for key, slices in groups.items())
    return ShiftReport(p, tuple(columns), norms, parts, distances, entropy)


def _distance(moved: Floats, p: float) -> float:
    """Distance for changes of sizes `moved`; that for p = inf adds no rounding to theirs."""
    largest = float(moved.max(initial=0.0))
    if largest in (0.0, math.inf) or p in (0.0, math.inf):
        return float(np.count_nonzero(moved)) if p == 0 else largest
    if p == 1:
        return float(moved.sum())
    scale = math.ldexp(1.0, math.frexp(largest)[1] - 1)  # a power of two: no rounding, and no overflow of powers
    with np.errstate(over="ignore", under="ignore"):
        return float(scale * np.sum(share_powers(moved, scale, p)) ** np.float64(1.0 / p))


def check_order(p: Any) -> float:
    """Give `p` as a float of at least 0."""
    number = isinstance(p, int | float | np.integer | np.floating) and not isinstance(p, bool)
    if not number or not p >= 0:
        told = f"`p` of measure_shift must be a number of at least 0, or math.inf, got {p!r};"
        raise InputError(f"{told} 0 counts changes, 1 sums them, 2 is the Euclidean distance, inf the largest change.")
    return float(p)


def _check_same_shapes(base: Parameters, other: Parameters, name: str) -> None:
    tensors = (zip(p.names, p.shapes, p.kinds, strict=True) for p in (base, other))
    for ours, theirs in itertools.zip_longest(*tensors):
        if ours is None or theirs is None or ours[1] != theirs[1]:
            found = "has no such tensor" if theirs is None else f"has {theirs[0]} of shape {theirs[1]}"
            wanted = "no further tensor" if ours is None else f"{ours[0]} of shape {ours[1]}"
            why = f"{name} must have parameters of the same shapes as the base model, which has {wanted},"
            raise InputError(f"{why} but it {found}; compare models of the same architecture.")
        if (ours[2] == ABSENT) != (theirs[2] == ABSENT):
            has, found = ("no", "has it") if ours[2] == ABSENT else ("a", "has none")
            told = f"must have the parameters of the base model, which has {has} {ours[0]}, but it {found}"
            raise InputError(f"{name} {told}; compare models of the same architecture.")


def _finite(parameters: Parameters, name: str) -> Parameters:
    if not np.isfinite(parameters.values).all():
        raise InputError(f"{name} must have finite parameters, but some are NaN or infinite; its training diverged.")
    return parameters


def _warn_of_other_differences(base: Model, other: Model, name: str) -> None:
    if not (offers(base, Described) and offers(other, Described)):
        return
    ours, theirs = base.describe(), other.describe()
    for key in _SHARED:
        values = (ours.get(key), theirs.get(key))
        if values[0] != values[1] and not (key == "feature_names" and None in values):
            told = f"{name} differs from the base model in more than its parameters ({key.replace('_', ' ')});"
            bad = "the distance does not cover that, and no certificate about shifts of parameters does."
            warnings.warn(f"{told} {bad}", GuaranteeWarning, stacklevel=4)
            return


def _read_distance(value: Any) -> float:
    try:
        return math.inf if value == "inf" else float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`audit` must hold distances as numbers, got {value!r}.") from None


def _json(value: float) -> float | str:
    return "inf" if value == math.inf else value


def drawn_rows(stream: Stream, start: int, count: int, rows: int) -> Integers:
    """Row numbers from 0 to `rows` (exclusive), drawn with replacement: numbers `start` to ``start + count``."""
    # 32 random bits times `rows`, of which the upper half is the row: no product overflows 64 bits, and as rows are far
    # below 2**32, no row is likelier than another by more than rows / 2**32
    numbers = stream.words(start, count) >> np.uint64(32)
    return (numbers * np.uint64(rows) >> np.uint64(32)).astype(np.int64)


def drawn_seeds(stream: Stream, start: int, count: int) -> list[int]:
    """Seeds in [0, 2**32), as NumPy and scikit-learn take them: numbers `start` to ``start + count``."""
    return (stream.words(start, count) >> np.uint64(32)).tolist()  # type: ignore[no-any-return]


def take_rows(values: Any, rows: Integers) -> Any:
    """Rows of an array, data frame, series or tensor, by their positions."""
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def check_labels(
    y: Any, rows: int, classes: Sequence[Any] | None = None, *, name: str = "y", of: str = "X", owner: str
) -> Any:
    """Labels that can be indexed by row numbers, all of them known if `classes` are given."""
    wanted = f"`{name}` of {owner} must be 1-D, one label per row"
    try:
        labels = y if hasattr(y, "iloc") else np.asarray(y)
    except ValueError:
        raise InputError(f"{wanted}, got rows of labels.") from None
    if labels.ndim != 1:
        raise InputError(f"{wanted}, got {labels.ndim} dimensions; pass one column.")
    if len(labels) != rows:
        raise InputError(f"`{name}` of {owner} must hold one label per row of `{of}` ({rows}), got {len(labels)}.")
    unknown = [] if classes is None else [label for label in labels.tolist() if label not in classes]
    if unknown:
        told = f"`{name}` of {owner} must hold classes of the model ({', '.join(map(str, classes or ()))}),"
        raise InputError(f"{told} got {unknown[0]!r}; drop these rows, or train a model that knows the class.")
    return labels


def data_digest(*tables: Any) -> str:
    """The first 12 hexadecimal digits of a SHA-256 over arrays, data frames and series, by which data can be told."""
    digest = hashlib.sha256()
    for table in tables:
        if hasattr(table, "tocsr"):
            sparse = table.tocsr()
            digest.update(data_digest(sparse.indptr, sparse.indices, sparse.data).encode())
            continue
        frame = hasattr(table, "iloc") and hasattr(table, "columns")
        for name in table.columns if frame else [None]:
            values = np.asarray(table if name is None else table[name])
            digest.update(f"{name}{values.shape}{values.dtype.kind}".encode())
            if values.dtype.kind in "biufc":
                digest.update(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes())
            else:
                digest.update("\n".join(map(str, values.ravel().tolist())).encode())
    return digest.hexdigest()[:12]


def final_step(estimator: Any) -> Any:
    """The classifier itself: the last step of a pipeline."""
    return estimator[-1] if type(estimator).__name__ == "Pipeline" else estimator


def check_share(fraction: Any, rows: int, owner: str, what: str, argument: str = "X") -> int:
    """How many rows a share of them is; 0.29 of 100 rows are 29, as it is read, not the 28 of floating point."""
    if not isinstance(fraction, Real) or isinstance(fraction, bool) or not 0 < float(fraction) <= 1:
        raise InputError(f"`fraction` of {owner} must lie in (0, 1], got {fraction!r}; it is a share of {what}.")
    size = share_of(fraction, rows)
    if size < 1:
        told = f"`{argument}` of {owner} must have rows enough, but {float(fraction):g} of {rows} rows is less than"
        raise InputError(f"{told} one; pass more rows{'' if rows == 0 else f', or a fraction of at least 1/{rows}'}.")
    return size


def share_of(fraction: Any, rows: int) -> int:
    """So many of some rows, as a fraction is read."""
    return int(Fraction(str(fraction)) * rows)


def estimate_delta(
    estimator: Any,
    X_new: Any,
    y_new: Any,
    *,
    update: Callable[[Any, Any, Any], Any] | None = None,
    rounds: int = 5,
    fraction: float = 0.1,
    rng: Any = None,
) -> ShiftReport:
    """Estimate how far training on new data will move the parameters of a model.

    `rounds` times, a share of the new rows is drawn with replacement, a copy of the model takes one pass over it, and
    the shift is measured: `delta` of the report is the largest found (how the paper finds its delta). The model is not
    changed.

    Parameters
    ----------
    estimator : object
        A fitted estimator or pipeline whose last step has ``partial_fit``, or anything that `update` can train further.
    X_new, y_new : array_like or data frame
        New data in the user's units.
    update : callable, optional
        ``update(estimator, X, y)`` trains the copy it is given and returns it, or None; unless given, one call of
        ``partial_fit`` behind the preprocessing as it is.
    rounds : int, default 5
    fraction : float, default 0.1
        Which share of the new rows each round sees.
    rng : None, int or numpy.random.Generator
        Seed of the rows and of whatever else is random in a round; recorded in the report.

    Returns
    -------
    ShiftReport
        With a column per round.

    Examples
    --------
    >>> from sklearn.linear_model import SGDClassifier
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> model = SGDClassifier(loss="log_loss", random_state=0).fit(X, y)
    >>> estimate_delta(model, X, y, fraction=1.0, rng=0).models
    ('round 1', 'round 2', 'round 3', 'round 4', 'round 5')
    """
    base = read_model(estimator, "`estimator` of estimate_delta")
    if update is None:
        _check_partial_fit(estimator)
    elif not callable(update):
        raise InputError(f"`update` of estimate_delta must be a function (model, X, y), got {update!r}.")
    rounds = check_integer(rounds, "rounds", "estimate_delta", least=1)
    try:
        points, encoded = encoded_rows(base, X_new)
    except InputError as error:
        raise InputError(str(error).replace("`X`", "`X_new`")) from error
    classes = base.classes if update is None else None
    labels = check_labels(y_new, len(points), classes, name="y_new", of="X_new", owner="estimate_delta")
    size = check_share(fraction, len(points), "estimate_delta", "the new rows", "X_new")
    entropy, draws, seeds = _draw(rng, rounds, len(points), size)
    models, columns = [], [f"round {i}" for i in range(1, rounds + 1)]
    names = [f"the model of {column} of estimate_delta" for column in columns]
    for name, rows, seed in zip(names, draws, seeds, strict=True):
        changed = copy.deepcopy(estimator)
        if update is None:
            result = _one_pass(changed, encoded[rows], take_rows(labels, rows), seed)
        else:
            result = update(changed, take_rows(points, rows), take_rows(labels, rows))
        models.append(read_model(changed if result is None else result, name))
    return compare_models(base, models, p=math.inf, names=names, columns=columns, entropy=entropy)


def _check_partial_fit(estimator: Any) -> None:
    final = final_step(estimator)
    name = type(final).__name__
    if not hasattr(final, "partial_fit"):
        why = "" if hasattr(final, "fit") else " (pass the estimator itself, not what as_model made of it)"
        if name == "MLPClassifier":
            why = f" with solver={final.solver!r} (scikit-learn offers it for 'adam' and 'sgd')"
        told = f"must have partial_fit, but {name} has none{why}; {_advice(estimator)}"
        raise InputError(f"`estimator` of estimate_delta {told}")
    if name == "MLPClassifier" and final.early_stopping:
        said = "`estimator` of estimate_delta must not have early_stopping=True,"
        raise InputError(f"{said} with which scikit-learn refuses partial_fit; {_advice(estimator)}")


def _advice(estimator: Any) -> str:
    """How to write an `update` for `estimator`, as the end of a message."""
    piped = final_step(estimator) is not estimator
    model, rows = ("model[-1]", "model[:-1].transform(X)") if piped else ("model", "X")
    warm = ".set_params(warm_start=True)" if hasattr(final_step(estimator), "warm_start") else ""
    return f"say how to train it further, e.g. def update(model, X, y): {model}{warm}.fit({rows}, y)"


def _one_pass(estimator: Any, X: Floats, y: Any, seed: int) -> Any:
    final = final_step(estimator)
    columns = getattr(final, "feature_names_in_", None)
    rows: Any = X
    if columns is not None:  # scikit-learn warns when the names it was fitted with are missing
        import pandas as pd

        rows = pd.DataFrame(X, columns=list(columns))
    if getattr(final, "random_state", 0) is None:
        final.random_state = seed
    with warnings.catch_warnings():
        # few rows make one batch; that is what was asked for
        warnings.filterwarnings("ignore", message="Got `batch_size`", category=UserWarning)
        try:
            final.partial_fit(rows, y)
        except ValueError as error:
            told = f"`estimator` of estimate_delta must take partial_fit on the new rows, but {type(final).__name__}"
            raise InputError(f"{told} says: {str(error).splitlines()[0]}; {_advice(estimator)}") from error
    return estimator


def _draw(rng: Any, rounds: int, rows: int, size: int) -> tuple[int | None, list[Integers], list[int]]:
    if isinstance(rng, Sequence | np.ndarray) and not isinstance(rng, str | bytes):
        if len(rng) != rounds:
            told = f"must be one seed, or one per round ({rounds}), got {len(rng)}"
            raise InputError(f"`rng` of estimate_delta {told}; pass as many seeds as rounds.")
        for seed in rng:
            if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
                raise InputError(f"`rng` of estimate_delta must hold integers in [0, 2**32) as seeds, got {seed!r}.")
        # NumPy's legacy generator, which is frozen: these are the rows of the paper's own experiments
        return None, [np.random.RandomState(seed).choice(rows, size) for seed in rng], [int(seed) for seed in rng]
    entropy = entropy_of(rng)
    drawn = drawn_rows(Stream(entropy, "retraining"), 0, rounds * size, rows).reshape(rounds, size)
    return entropy, list(drawn), drawn_seeds(Stream(entropy, "retraining order"), 0, rounds)
