"""`ObservedShifts`, models that exist: checkpoints, or what a training process has made, in place of shifts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from apas._fields import EqualByContent, Fields
from apas._random import Stream
from apas._typing import Floats
from apas._validation import check_integer, is_frame
from apas.errors import GuaranteeWarning, InputError
from apas.models.base import ROUNDING, Described, Model, Parameters, Raw, Scaled, encoded_rows, offers
from apas.models.digest import model_digest, unidentified
from apas.shifts.base import Finite, ShiftWords, Sizes, magnitudes
from apas.shifts.distance import read_model
from apas.shifts.retraining import RefitSeries, RetrainedModels

#: How many differences of parameters are held at a time.
NUMBERS = 1 << 20
#: Up to so many rows of all models together are kept as the models read them: margins and their sizes are of the same.
KEPT = 20_000
#: Rows of a question as a model reads them.
_Rows = Callable[[int, Model], Floats]


@dataclass(frozen=True, eq=False)
class ListedModels(EqualByContent):
    """Models known by their fingerprints, and the process they came from: all that a file holds of `ObservedShifts`."""

    digests: tuple[str, ...]
    process: str | None = None
    in_order: bool = False
    kind: ClassVar[str] = "observed"
    words: ClassVar[ShiftWords] = ShiftWords(
        one="one of the models that were listed",
        assumed="A later model comes from the process that the listed models come from.",
    )

    def to_dict(self) -> dict[str, Any]:
        """Fingerprints of the models, by which they can be told, and the process, as JSON values."""
        order = {"order": "training"} if self.in_order else {}
        return {"kind": "observed", "models": list(self.digests), "process": self.process, **order}

    @classmethod
    def from_dict(cls, about: Fields) -> ListedModels:
        """What a file holds of the models."""
        about.only("kind", "models", "process", "order")
        process = None if about.is_null("process") else about.text("process")
        in_order = "order" in about.content and about.choice("order", "training") == "training"
        return ListedModels(about.digests("models"), process, in_order)

    def with_models(self, models: Sequence[Any]) -> ObservedShifts:
        """The set with its models, which must be the very ones."""
        found = ObservedShifts(models, process=self.process, in_order=self.in_order)
        if found.digests != self.digests:
            wanted = f"the {len(self.digests)} models that the certificates are about, in their order"
            raise InputError(f"`models` must be {wanted}, but their fingerprints differ.")
        return found

    def _refuse(self, *_: Any, **__: Any) -> Any:
        advice = "pass the models themselves to verify, or make apas.ObservedShifts of them"
        raise InputError(f"`shifts` are models of which the file holds only fingerprints; {advice}.")

    directions = margins = radii = contains = measure = region = _refuse


@dataclass(frozen=True, eq=False)
class ObservedShifts(ListedModels):
    """Models that exist, each as it is: of any architecture, with a preprocessing of its own.

    With `delta` 1 (or None) the question is about these models. Another `delta` is about the model moved by `delta`
    times its difference from each of them, which needs the same layout and preprocessing.

    Draw number i is model number i, and none is used twice. `Sampling` takes all of them and speaks of the process that
    they came from; `Exact` asks each and speaks of every one that is listed.

    Parameters
    ----------
    models : sequence of object
        What `retrain` returns, or any models that `as_model` takes.
    process : str, optional
        How the models were made, as printed in a claim; models from `retrain` know it.
    in_order : bool, default False
        Whether the models stand in the order in which they were trained, all of them: `Sampling` then ends at the model
        that decides a row (the anytime test). Void if somebody has put them into another order.

    Notes
    -----
    A claim about the process is valid if the models are independent draws of it, as those of `retrain` are. It is void
    if an explanation was chosen by looking at these models, if models were dropped, or if they are checkpoints of one
    training or were trained on folds of one data set. It says nothing about other data.
    """

    models: Sequence[Any]
    process: str | None = field(default=None, kw_only=True)
    in_order: bool = field(default=False, kw_only=True)
    digests: tuple[str, ...] = field(init=False, repr=False)
    _refits: RefitSeries | None = field(default=None, init=False, repr=False)
    _most: int = field(default=0, init=False, repr=False)
    #: The models as they are.
    default_delta: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        listed = self.models
        if not isinstance(listed, Sequence | np.ndarray) or isinstance(listed, str) or not len(listed):
            raise InputError(f"`models` of ObservedShifts must be a list of at least one model, got {listed!r}.")
        process = self.process
        process = listed.process if process is None and isinstance(listed, RetrainedModels) else process
        if process is not None and not (isinstance(process, str) and process.strip()):
            raise InputError(f"`process` of ObservedShifts must say how the models were made, got {process!r}.")
        models = tuple(read_model(model, f"`models[{i}]` of ObservedShifts") for i, model in enumerate(listed))
        # the dictionary, since attributes of the set are frozen
        vars(self).update(models=models, process=process, digests=tuple(map(model_digest, models)))
        if (different := len(set(self.digests))) < len(models):
            told = f"only {different} of the {len(models)} models of ObservedShifts are different; a claim about"
            warnings.warn(f"{told} the process they came from needs independent models.", GuaranteeWarning, 3)

    @classmethod
    def from_process(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        max_models: int = 500,
        bootstrap: bool = True,
        fraction: float = 1.0,
        when: Any = None,
        window: int | None = None,
        keep: str | None = None,
        warm_start: bool = False,
        n_jobs: int = 1,
        rng: int | np.random.Generator | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Refits that are trained one after another, until `certify` has decided every row.

        Parameters
        ----------
        estimator, X, y, bootstrap, fraction, when, window, keep, warm_start, rng, folder
            As in `retrain`, which makes the same models in the same order.
        max_models : int, default 500
            After how many models rows are left open; `Certificates.continued` goes on.
        n_jobs : int, default 1
            Number of processes. Models that are trained ahead wait for their turn, so that the answers do not change.

        Returns
        -------
        ObservedShifts
            With one model; `certify` adds to it as many as its rows need, in their order, and leaves none out.

        Notes
        -----
        At coverage and confidence 0.95 the first rows are certified at 73 models, without a failure, or at 139 with
        one. A training that fails is an error, as in `retrain`.

        Examples
        --------
        >>> import apas
        >>> from sklearn.linear_model import LogisticRegression
        >>> rows, labels = [[float(i)] for i in range(20)], [0] * 9 + [1, 0] + [1] * 9
        >>> base = LogisticRegression().fit(rows, labels)
        >>> refits = apas.ObservedShifts.from_process(base, rows, labels, rng=0)
        >>> how = apas.Sampling(coverage=0.8, confidence=0.8)
        >>> apas.certify(base, [[19.0], [11.0]], None, target=1, shifts=refits, method=how).to_frame()["draws"].tolist()
        [10, 42]
        """
        most = check_integer(max_models, "max_models", "from_process", least=1)
        how = {"bootstrap": bootstrap, "fraction": fraction, "when": when, "window": window, "keep": keep}
        refits = RefitSeries(estimator, X, y, 1, n_jobs, **how, warm_start=warm_start, rng=rng, folder=folder)
        shifts = cls([refits.model(0)], process=refits.process, in_order=True)
        vars(shifts).update(_refits=refits, _most=most)
        return shifts

    @property
    def max_models(self) -> int:
        """How many models there are to be at most, unless more are asked for."""
        return max(self._most, len(self))

    def grow(self, count: int) -> bool:
        """Train models of the process until there are so many; whether there are."""
        while len(self) < count and self._refits is not None:
            model = self._refits.model(len(self))
            vars(self).update(models=(*self.models, model), digests=(*self.digests, model_digest(model)))
            if len(self) == 2 and self.digests[0] == self.digests[1]:
                told = "the first two models of the process are the same; a claim about it needs independent ones"
                warnings.warn(f"{told}, so let it draw rows or use an estimator with a seed.", GuaranteeWarning, 2)
        return len(self) >= count

    def __len__(self) -> int:
        return len(self.models)

    def with_models(self, models: Sequence[Any]) -> ObservedShifts:
        """Other models of the same process."""
        return ObservedShifts(models, process=self.process, in_order=self.in_order)

    def coordinates(self, model: Model) -> Parameters:
        """What moves: the number of the model."""
        return Parameters.from_arrays([[0.0]], names=["model"], kinds=["weight"], layers=["model"])

    def radii(self, parameters: Parameters) -> Floats:
        """No bound on how far anything moves: the models are what they are."""
        return np.full(len(parameters), np.inf)

    def geometry(self, parameters: Parameters) -> Finite:
        """The models themselves, whatever delta is."""
        return Finite(self.models)

    def directions(self, parameters: Parameters, stream: Stream, start: int, stop: int) -> Floats:
        """Numbers of the models from `start` to `stop`, as far as there are models, shape (models, 1)."""
        return np.arange(start, min(stop, len(self)), dtype=np.float64)[:, None]

    def margins(self, model: Model, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins of rows in model units, which must mean the same to every model, shape (directions, rows)."""

        def rows(number: int, other: Model) -> Floats:
            doubt = unidentified(other) if offers(other, Raw) and other is not model else ""
            ours, theirs = (_describe(one).get("preprocessing") for one in (model, other))
            if doubt or theirs != ours:
                what = f"is not identified: {doubt}" if doubt else "has another preprocessing"
                told = "`X` of ObservedShifts.margins must be rows that every model reads alike, but"
                raise InputError(f"{told} `models[{number}]` {what}; pass rows in the user's units to point_margins.")
            return X

        return self._margins(model, rows, X, target, directions, delta)

    def point_margins(self, model: Model, points: Any, target: Any, directions: Floats, delta: Sizes) -> Floats:
        """Margins of rows in the user's units, which each model encodes itself, shape (directions, rows)."""
        encoded = encoded_rows(model, points)[1]
        return self._margins(model, self._reader(points), encoded, target, directions, delta)

    def _reader(self, points: Any) -> _Rows:
        """What models make of rows in the user's units; of the same few ones as the last time it is kept."""
        kept: dict[int, Floats] = {}
        if len(points) * len(self) <= KEPT and (is_frame(points) or isinstance(points, np.ndarray)):
            last, kept = vars(self).get("_last", (None, {}))
            same = type(last) is type(points) and last.shape == points.shape
            # by what they hold: the same table may have been changed since
            if not same or not (last.equals(points) if is_frame(points) else np.array_equal(last, points)):
                kept = {}
                vars(self)["_last"] = points.copy(), kept

        def rows(number: int, other: Model) -> Floats:
            try:
                if number not in kept:
                    kept[number] = encoded_rows(other, points)[1]
                return kept[number]
            except InputError as error:
                raise InputError(f"`models[{number}]` of ObservedShifts cannot read the rows: {error}") from error

        return rows

    def _margins(self, model: Model, rows: _Rows, X: Floats, target: Any, directions: Floats, delta: Sizes) -> Floats:
        numbers = directions[:, 0].astype(int).tolist()
        as_they_are = np.broadcast_to(np.asarray(delta) == 1, (len(X),))
        margins = np.empty((len(numbers), len(X)))
        if as_they_are.any():
            margins = self.margins_read(model, rows, numbers, len(X), target)
        if not as_they_are.all():
            part = np.flatnonzero(~as_they_are)
            sizes = np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(X),))[part]
            each = isinstance(target, np.ndarray) and target.shape == (len(X),)  # else one for all
            wanted, some = target[part] if each else target, max(1, NUMBERS // len(model.parameters))
            for first in range(0, len(numbers), some):
                changes = np.array([self._change(model, number) for number in numbers[first : first + some]])
                margins[first : first + some, part] = model.shifted_margins(X[part], wanted, changes, sizes)
        return margins

    def margins_read(self, model: Model, rows: _Rows, numbers: Sequence[int], count: int, target: Any) -> Floats:
        """Margins on the models of some numbers, (len(numbers), count), where `rows` gives what each model reads."""
        margins = np.empty((len(numbers), count))
        for place, (number, other) in enumerate((number, self.models[number]) for number in numbers):
            encoded = rows(number, other)
            margins[place] = _towards(model, other, number, encoded, target)
            if self.in_order:  # what is within the rounding of this model is of no sign, whatever the later ones are
                size = ROUNDING * self._scale(number, encoded, np.abs(margins[place]))
                margins[place][np.abs(margins[place]) <= size] = 0.0
        return margins

    def _scale(self, number: int, X: Floats, sizes: Floats) -> Floats:
        """How large the numbers behind margins on a model get; `sizes` are theirs, of a model that does not tell."""
        other = self.models[number]
        if offers(other, Scaled):
            return other.margin_scale(X, np.zeros(len(self.models[number].parameters)), 0.0)
        return np.where(np.isinf(sizes), 0.0, sizes)  # a class that it does not know

    def _change(self, model: Model, number: int) -> Floats:
        """Parameters of a model minus those of the base model, if that difference says all."""
        other = self.models[number]
        if not (offers(model, Model) and offers(other, Model)):
            told = f"but {model if offers(other, Model) else other!r} has no parameters that could move part of the way"
            raise InputError(f"`delta` must be 1 for ObservedShifts of models that can only predict, {told}.")
        ours, theirs = _describe(model), _describe(other)
        if model.parameters.shapes != other.parameters.shapes or ours != theirs:
            what = next((key for key in ours if ours[key] != theirs.get(key)), "layout")
            why = "`delta` must be 1 for ObservedShifts whose models differ from the base model in more than the values"
            raise InputError(f"{why} of its parameters, but the {what} of `models[{number}]` is another; pass delta=1.")
        return np.asarray(other.parameters.values - model.parameters.values)

    def shifted_parameters(self, model: Model, direction: Floats, delta: float) -> Floats:
        """Parameters of the model that a draw stands for; with delta 1 they are that model's own."""
        number = int(direction[0])
        if delta == 1:
            return np.asarray(self.models[number].parameters.values)
        return np.asarray(model.parameters.values + delta * self._change(model, number))

    def magnitudes(self, model: Model, points: Any, X: Floats, target: Any, delta: float | Floats) -> Floats:
        """How large the numbers behind any margin of each row get, on the base model and all the others."""
        sizes = np.broadcast_to(np.asarray(delta, dtype=np.float64), (len(X),))
        if self.in_order and (sizes == 1).all():  # each model has its own, see `margins_read`
            return np.zeros(len(X))
        largest = magnitudes(model, X, target, np.zeros(len(model.parameters)), 0.0)
        if (sizes != 1).any():
            reach = np.zeros(len(model.parameters))
            for number in range(len(self)):  # one at a time: all together may not fit into memory
                np.maximum(reach, np.abs(self._change(model, number)), out=reach)
            return np.maximum(largest, magnitudes(model, X, target, reach, np.maximum(sizes, 1.0)))
        reader = None if points is None else self._reader(points)
        for number, other in enumerate(self.models):
            rows = X if reader is None else reader(number, other)
            known = rows[:, 0] if offers(other, Scaled) else np.abs(_towards(model, other, number, rows, target))
            largest = np.maximum(largest, self._scale(number, rows, known))
        return largest

    def contains(self, base: Parameters, other: Parameters, delta: float) -> bool:
        """Whether `other` has the parameters of a listed model, or of `base` moved towards it by `delta`."""
        for model in self.models:
            values = model.parameters.values
            if delta != 1:
                if base.shapes != model.parameters.shapes:  # there is no way from the one to the other
                    continue
                values = base.values + delta * (values - base.values)
            if model.parameters.shapes == other.shapes and np.array_equal(values, other.values):
                return True
        return False

    def measure(self, parameters: Parameters) -> str:
        """The process that the models came from."""
        if self.process is not None:
            return f"models that this process on this data set produces: {self.process}"
        count = f"these {len(self)}" if len(self) > 1 else "this one"
        return f"models of the process that {count} came from, taken to be independent draws of it"

    def measure_at(self, parameters: Parameters, deltas: Floats) -> str:
        """The same if all deltas are 1; else in what direction the parameters move."""
        move = "delta times the change of the parameters from this model to one of the "
        return f"{move if (deltas != 1).any() else ''}{self.measure(parameters)}"

    def region(self, parameters: Parameters) -> str:
        """The models themselves."""
        return f"the {len(self)} listed models" if len(self) > 1 else "the one listed model"

    def __repr__(self) -> str:
        return f"ObservedShifts({len(self)} model{'s' if len(self) > 1 else ''})"


def _towards(model: Model, other: Model, number: int, X: Floats, target: Any) -> Floats:
    """Margins on another model; towards a class that it has never seen they are minus infinity."""
    # a bootstrap sample may lack a class; the model made from it never gives that class, and must not be left out
    labels = np.empty(len(X), dtype=object)
    labels[:] = target
    known = np.array([label in other.classes for label in labels], dtype=bool)
    if known.all():
        return other.margin(X, target)
    if not set(other.classes) < set(model.classes):
        told = f"must know the classes of the base model {model.classes}, got {other.classes}"
        raise InputError(f"`models[{number}]` of ObservedShifts {told}; pass models of the same question.")
    margins = np.full(len(X), -np.inf)
    if known.any():
        margins[known] = other.margin(X[known], labels[known])
    return margins


def _describe(model: Model) -> dict[str, Any]:
    described = model.describe() if offers(model, Described) else {"classes": list(model.classes)}
    return {key: value for key, value in described.items() if key != "feature_names"}
