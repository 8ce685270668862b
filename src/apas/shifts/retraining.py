"""Refits: `retrain` makes independent ones of a training process, in memory or in a folder."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any, SupportsIndex, overload

import numpy as np

from apas._parallel import in_parallel, one_thread, workers
from apas._random import Stream, entropy_of
from apas._typing import Integers
from apas._validation import check_flag, check_integer, check_jobs
from apas.display.progress import Progress
from apas.errors import GuaranteeWarning, InputError
from apas.models.as_model import as_model
from apas.models.base import FromEstimator, Model, Predicts, offers
from apas.models.digest import canonical, model_digest
from apas.shifts.distance import read_model
from apas.shifts.refit_folder import RefitFolder


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
        raise InputError(
            f"`{name}` of {owner} must hold classes of the model ({', '.join(map(str, classes or ()))}), "
            f"got {unknown[0]!r}; drop these rows, or train a model that knows the class."
        )
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


_Caught = list[tuple[type[Warning], str]]


class RetrainedModels(list[Model]):
    """Models of one training process, in the order in which they were drawn.

    `process` says how they were made, as a claim prints it; `entropy`, passed as `rng` to `retrain`, makes them again.
    """

    def __init__(self, models: Iterable[Model], process: str, entropy: int) -> None:
        super().__init__(models)
        self.process, self.entropy = process, entropy

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RetrainedModels:
        """Read the models that `retrain` kept in a folder, all of them, each checked to be the one that was written."""
        kept = RefitFolder(folder)
        models = kept.read_all()
        process, _, entropy = kept.recipe or ("", "", 0)
        return cls(models, process, entropy)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Model: ...
    @overload
    def __getitem__(self, index: slice) -> RetrainedModels: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Model | RetrainedModels:
        if isinstance(index, slice):  # models taken by their number are draws of the same process
            return RetrainedModels(super().__getitem__(index), self.process, self.entropy)
        return super().__getitem__(index)


def retrain(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n_models: int,
    bootstrap: bool = True,
    fraction: float = 1.0,
    when: Any = None,
    window: int | None = None,
    keep: str | None = None,
    warm_start: bool = False,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> RetrainedModels:
    """Train models anew on the same data, independently of each other: draws of a training process.

    Each model gets a bootstrap sample of the rows and a seed, by the same recipe. Given the data they are therefore
    independent and identically distributed, which is what `ObservedShifts` with `Sampling` needs: 59 models for a claim
    about 95 % of the models that this process on this data set produces, with confidence 0.95.

    Parameters
    ----------
    estimator : object
        A classifier with the manners of scikit-learn (boosted trees too) or a `Pipeline`, which is cloned and never
        changed, or what `load_model` read as one; or a function ``(X, y, seed)`` that trains a model and returns it.
    X, y : array_like or data frame
        The training data, in the user's units.
    n_models : int
        How many models to make: see `sample_size`.
    bootstrap : bool, default True
        Draw as many rows as there are, with replacement, for each model; else models differ by their seeds alone.
    fraction : float, default 1.0
        Which share of the rows each model sees; without `bootstrap`, each of them once.
    when : array_like, optional
        The period of each row, such as its month; with it each model is trained on a window of periods in a row, which
        begins at random.
    window : int, optional
        How many of the periods a window has; needed with `when`.
    keep : {"preprocessing"}, optional
        Keep the fitted preprocessing of a pipeline and fit its last step alone; else all steps are fitted anew.
    warm_start : bool, default False
        Let each model go on from the fitted `estimator`, which must have this option; of a pipeline the last step.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The models do not depend on it: each is trained in one thread.
    rng : None, int or numpy.random.Generator
        Seed of the rows and of the models' seeds.
    folder : path, optional
        Keep each model as a file in this folder as soon as it is trained, for `RetrainedModels.load`. If the folder has
        some of these models already, they are read and not trained again; one of other models is refused.

    Returns
    -------
    RetrainedModels
        A list of models that knows how they were made. A training that fails is an error: to leave a model out would
        make it another process.

    Warns
    -----
    ConvergenceWarning, GuaranteeWarning
        Once, if trainings ended before they converged; and if all models are the same, since nothing is random.

    Notes
    -----
    What voids a claim about the process: an explanation that was chosen by looking at these models, or models left out.
    It does not speak of next month's data. A PyTorch module is trained by a function, which makes all its random
    numbers from the seed (``torch.manual_seed(seed)``) and returns ``apas.as_model(module.eval(), output="logit")``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rows, labels = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], [0, 0, 1, 0, 1, 1]
    >>> retrain(LogisticRegression(), rows, labels, n_models=3, rng=0).process
    'LogisticRegression fitted to a bootstrap sample of the same 6 rows (data c1c78a9dcf5b), with a new seed'
    """
    n_models = check_integer(n_models, "n_models", "retrain", least=1)
    jobs, how = check_jobs(n_jobs), {"bootstrap": bootstrap, "fraction": fraction, "when": when, "window": window}
    how |= {"keep": keep, "warm_start": warm_start, "rng": rng, "folder": folder}
    recipe, kept = _prepare(estimator, X, y, n_models, **how)
    options = recipe.options
    missing = [i for i in range(n_models) if kept is None or not kept.has(i)]
    trained: dict[int, Any] = {}
    caught: list[_Caught] = []
    with Progress(n_models, "training models") as progress:
        progress.advance(n_models - len(missing))
        for i, (model, warned) in zip(missing, in_parallel(recipe.train, ((i,) for i in missing), jobs), strict=True):
            trained[i] = model
            caught.append(warned)
            if kept is not None:
                kept.keep(i, _read({i: model}, options)[0])
            progress.advance(1)
    models = _read({i: trained[i] if kept is None or i in trained else kept.read(i) for i in range(n_models)}, options)
    _report(caught, models)
    return RetrainedModels(models, recipe.process(), recipe.entropy)


def _prepare(
    estimator: Any, X: Any, y: Any, n_models: int, *, bootstrap: Any, fraction: Any, when: Any, window: Any, keep: Any,
    warm_start: Any, rng: Any, folder: Any,
) -> tuple[_Recipe, RefitFolder | None]:  # fmt: skip
    check_flag(bootstrap, "bootstrap")
    check_flag(warm_start, "warm_start")
    options: dict[str, Any] = {}
    if offers(estimator, FromEstimator):
        estimator, options = estimator.estimator, estimator.read_options
    _check_estimator(estimator, bool(warm_start))
    _check_keep(keep, estimator)
    try:
        rows = X if hasattr(X, "shape") else np.asarray(X)
    except ValueError:
        raise InputError("`X` of retrain must hold rows of equal length, got rows of different lengths.") from None
    if not rows.shape or not rows.shape[0]:
        raise InputError(f"`X` of retrain must hold rows to train on, got shape {tuple(rows.shape)}.")
    count = int(rows.shape[0])
    labels, periods = check_labels(y, count, owner="retrain"), _read_periods(when, window, count)
    check_share(fraction, count, "retrain", "the rows")
    sample = _Sample(count, bool(bootstrap), fraction, *periods)
    recipe = _Recipe(estimator, rows, labels, sample, bool(warm_start), keep is not None, 0, options)
    kept = None if folder is None else RefitFolder(folder)
    known = None if kept is None or kept.recipe is None or rng is not None else kept.recipe[2]
    recipe = replace(recipe, entropy=entropy_of(rng) if known is None else known)
    if kept is not None:
        kept.begin(recipe.process(), recipe.digest(), recipe.entropy, n_models)
    return recipe, kept


class RefitSeries:
    """Refits of a process one after another, each trained when it is asked for, or read from a folder."""

    def __init__(self, estimator: Any, X: Any, y: Any, n_jobs: Any, **how: Any) -> None:
        self.jobs, (self.recipe, self.kept) = check_jobs(n_jobs), _prepare(estimator, X, y, 1, **how)
        self.process, self._ahead, self._told = self.recipe.process(), dict[int, Model](), set[tuple[Any, str]]()

    def model(self, i: int) -> Model:
        """Refit number i; with several processes those behind it are trained at the same time, and wait."""
        if i not in self._ahead and self.kept is not None and self.kept.has(i):
            return self.kept.read(i)
        if i not in self._ahead:
            numbers = range(i, i + workers(self.jobs))
            batch = in_parallel(self.recipe.attempt, ((j,) for j in numbers), self.jobs)
            for j, trained in zip(numbers, batch, strict=True):
                if isinstance(trained, InputError):
                    if j == i:
                        raise trained
                    break  # of a model that may never be asked for: if it is, it fails once more
                model, warned = trained
                self._ahead[j] = _read({j: model}, self.recipe.options)[0]
                if self.kept is not None:
                    self.kept.keep(j, self._ahead[j])
                for kind, text in {*warned} - self._told:
                    warnings.warn(f"model number {j} of the process is kept, but warned: {text}", kind, stacklevel=4)
                self._told |= {*warned}
        return self._ahead.pop(i)


@dataclass(frozen=True)
class _Sample:
    """Which rows model number i sees."""

    rows: int
    bootstrap: bool
    fraction: float
    periods: Integers | None
    window: int

    @property
    def is_whole(self) -> bool:
        """Whether every model sees all rows."""
        return not self.bootstrap and self.fraction == 1 and self.periods is None

    def draw(self, entropy: int, i: int) -> Integers:
        """Numbers of the rows of model number i, a pure function of the seed and i."""
        stream, among = Stream(entropy, "retrain/rows"), np.arange(self.rows)
        if self.periods is not None:
            starts = int(self.periods.max()) + 2 - self.window
            first = int(drawn_rows(Stream(entropy, "retrain/windows"), i, 1, starts)[0])
            among = np.flatnonzero((self.periods >= first) & (self.periods < first + self.window))
        size = _share_of(self.fraction, len(among))
        if self.bootstrap:
            return among[drawn_rows(stream, i * self.rows, size, len(among))]
        # in the order of random numbers any row is as likely as another to come first
        order = np.argsort(stream.words(i * self.rows, len(among)), kind="stable")[:size]
        return np.sort(among[order])

    def words(self) -> str:
        """How the rows are drawn."""
        how = "a bootstrap sample of " if self.bootstrap else ""
        if self.fraction != 1:
            how = f"{how or 'a random part of '}{float(self.fraction):g} of "
        if self.periods is not None:
            window = f"a window of {self.window} of {int(self.periods.max()) + 1} periods"
            how = f"{how}{window}, which begins at random, of "
        return how


def _read_periods(when: Any, window: Any, rows: int) -> tuple[Integers | None, int]:
    """The number of each row's period, in their order, and the length of a window."""
    if when is None and window is None:
        return None, 0
    if when is None or window is None:
        given, other = ("window", "when") if when is None else ("when", "window")
        raise InputError(f"`{given}` of retrain goes with `{other}`, which is missing; pass both or none.")
    listed = np.asarray(when)
    if listed.shape != (rows,) or np.asarray(listed != listed).any():
        raise InputError(f"`when` of retrain must hold one period per row ({rows}), none missing, got {listed.shape}.")
    try:
        distinct, periods = np.unique(listed, return_inverse=True)
    except TypeError:
        told = "must hold periods that have an order, got ones of different types"
        raise InputError(f"`when` of retrain {told}.") from None
    length = check_integer(window, "window", "retrain", least=1)
    if length > len(distinct):
        raise InputError(f"`window` of retrain must be at most the number of periods ({len(distinct)}), got {length}.")
    return periods.astype(np.int64), length


def _check_keep(keep: Any, estimator: Any) -> None:
    if keep is None:
        return
    if keep != "preprocessing":
        raise InputError(f'`keep` of retrain must be "preprocessing" or None, got {keep!r}.')
    if final_step(estimator) is estimator or len(estimator) < 2:
        raise InputError("`keep` of retrain needs a Pipeline with preprocessing; leave it out.")
    read_model(estimator, "`estimator` of retrain, whose preprocessing is kept,")


@dataclass(frozen=True)
class _Recipe:
    """Everything that makes model number i, for workers."""

    estimator: Any
    X: Any
    y: Any
    sample: _Sample
    warm_start: bool
    keep: bool
    entropy: int
    options: dict[str, Any]

    def train(self, i: int) -> tuple[Any, _Caught]:
        """The model, and what its training warned about."""
        X, y = self.X, self.y
        if not self.sample.is_whole:
            rows = self.sample.draw(self.entropy, i)
            X, y = take_rows(X, rows), take_rows(y, rows)
        # more threads add up in another order, and workers have fewer of them
        with one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model = self._fit(X, y, i)
            except Exception as error:  # the user's code may raise anything
                first = (str(error).splitlines() or [""])[0]
                if not (first and isinstance(error, ValueError)):  # a KeyError says no more than the key
                    first = f"{type(error).__name__} {first}".strip()
                raise InputError(
                    f"`estimator` of retrain failed on model number {i}: {first}; no model may be left out, so mend "
                    "the training, or pass data on which it works."
                ) from error
        return model, [(w.category, str(w.message)) for w in caught]

    def attempt(self, i: int) -> tuple[Any, _Caught] | InputError:
        """The same, or why there is no such model: joblib would raise that before it gives those in front of it."""
        try:
            return self.train(i)
        except InputError as error:
            return error

    def _fit(self, X: Any, y: Any, i: int) -> Any:
        seeds = Stream(self.entropy, "retrain/seeds")
        if not hasattr(self.estimator, "fit"):
            return self.estimator(X, y, drawn_seeds(seeds, i, 1)[0])
        if not self.warm_start and not self.keep:
            return _set_seeds(_clone(self.estimator), seeds, i).fit(X, y)
        model = copy.deepcopy(self.estimator)
        if self.keep:
            model.steps[-1] = (model.steps[-1][0], _clone(model[-1]))
        final = final_step(_set_seeds(model, seeds, i))
        rows = model[:-1].transform(X) if final is not model and len(model) > 1 else X
        (final.set_params(warm_start=True) if self.warm_start else final).fit(rows, y)
        return model

    def process(self) -> str:
        """How the models are made, in words."""
        estimator = self.estimator
        final = final_step(estimator)
        name = getattr(estimator, "__name__", None) or type(final).__name__
        name = f"a pipeline that ends in {name}" if final is not estimator else name
        name = name if hasattr(estimator, "fit") else f"the function {name}"
        how = "trained further from the fitted model on" if self.warm_start else "fitted to"
        how = f"behind the same preprocessing {how}" if self.keep else how
        data = f"the same {self.X.shape[0]} rows (data {data_digest(self.X, self.y)})"
        level = self.options.get("threshold", 0.5)
        more = "" if level == 0.5 else f", which says class 1 from probability {level:g} on"
        return f"{name} {how} {self.sample.words()}{data}, with a new seed{more}"

    def digest(self) -> str:
        """A fingerprint of all that makes a model besides rows and seed: settings, and what is gone on from."""
        told = _settings(self.estimator)
        periods = None if self.sample.periods is None else data_digest(self.sample.periods)
        fitted = model_digest(read_model(self.estimator, "`estimator`")) if self.warm_start or self.keep else None
        options = canonical(self.options)
        form = json.dumps([told, periods, fitted, options, canonical(self.sample.fraction)], sort_keys=True)
        return hashlib.sha256(form.encode()).hexdigest()


def _settings(value: Any) -> Any:
    """Settings of an estimator and its parts as JSON values, without what they have learned; a function as it is."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        given = value.get_params(deep=False)
        return [type(value).__qualname__, {name: _settings(part) for name, part in given.items()}]
    return [_settings(part) for part in value] if isinstance(value, list | tuple) else canonical(value)


def _clone(value: Any) -> Any:
    from sklearn.base import clone

    if isinstance(value, list | tuple):  # steps of a pipeline
        return type(value)(_clone(part) for part in value)
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return copy.deepcopy(value)
    try:
        return clone(value)
    except RuntimeError:  # CatBoost keeps a setting in another form than it was given in, which clone takes for another
        return type(value)(**{name: _clone(part) for name, part in value.get_params(deep=False).items()})


def _set_seeds(estimator: Any, seeds: Stream, i: int) -> Any:
    """The estimator with a seed in every setting of its own and its steps' that takes one, under either name for it."""
    settings = estimator.get_params()
    names = {name for name in settings if name.split("__")[-1] in ("random_state", "random_seed")}
    parts = {"": estimator} | {f"{k}__": v for k, v in settings.items() if hasattr(v, "get_params")}
    for prefix, part in parts.items():  # CatBoost tells of a setting only once it was given
        known = inspect.signature(type(part)).parameters
        if "random_seed" in known and not names & {f"{prefix}random_state", f"{prefix}random_seed"}:
            names.add(f"{prefix}random_seed")
    drawn = drawn_seeds(seeds, i * len(names), len(names))
    return estimator.set_params(**dict(zip(sorted(names), drawn, strict=True)))


def _check_estimator(estimator: Any, warm_start: bool) -> None:
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") or callable(estimator)):
        what = f"the class {estimator.__name__} itself" if isinstance(estimator, type) else repr(estimator)
        raise InputError(
            f"`estimator` of retrain must be a scikit-learn classifier or a function (X, y, seed) -> model, got {what}."
        )
    if getattr(final_step(estimator), "settings_lost_", False):
        raise InputError(
            "`estimator` of retrain must know its settings, but this one comes from a file that does not hold them; "
            "save it with apas.save_model(model, 'model.apas') in the program that trained it."
        )
    if hasattr(estimator, "fit") and not hasattr(estimator, "get_params"):
        raise InputError(
            f"`estimator` of retrain must be one that scikit-learn can clone, but {type(estimator).__name__} is not; "
            "pass a function (X, y, seed) that makes and trains one."
        )
    if not warm_start:
        return
    if not hasattr(estimator, "fit"):
        raise InputError("`warm_start` of retrain goes with an estimator; let the function start where it should.")
    if "warm_start" not in final_step(estimator).get_params():
        raise InputError(
            f"`warm_start` of retrain needs an estimator with that option, but {type(final_step(estimator)).__name__} "
            "has none; pass a function (X, y, seed) that trains it further."
        )
    read_model(estimator, "`estimator` of retrain, from which to go on,")


def _read(trained: dict[int, Any], options: dict[str, Any]) -> list[Model]:
    """The trained models by number as models; what reading several of them warns about is said once."""

    def read(model: Any, name: str) -> Model:
        return read_model(model, name) if offers(model, Predicts) or not options else as_model(model, **options)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = [read(model, f"model number {i} of retrain") for i, model in trained.items()]
    for kind, text in dict.fromkeys((w.category, str(w.message)) for w in caught):
        warnings.warn(text, kind, stacklevel=3)
    return models


def _report(caught: list[_Caught], models: list[Model]) -> None:
    counts = Counter[tuple[type[Warning], str]]()
    for warned in caught:
        counts.update({(kind, "" if kind.__name__ == "ConvergenceWarning" else text) for kind, text in warned})
    for (kind, text), count in counts.items():
        what = f"warned: {text}" if text else "ended before they had converged"
        kept = "they are kept, since a process that leaves some out is another process"
        warnings.warn(f"{count} of {len(models)} trainings of retrain {what}; {kept}.", kind, stacklevel=3)
    if len(models) > 1 and len({model_digest(model) for model in models}) == 1:
        warnings.warn(
            f"all {len(models)} models of retrain are the same, since nothing in this process is random; let it draw "
            "rows (bootstrap=True), or use an estimator with a random_state.",
            GuaranteeWarning,
            stacklevel=3,
        )


def final_step(estimator: Any) -> Any:
    """The classifier itself: the last step of a pipeline."""
    return estimator[-1] if type(estimator).__name__ == "Pipeline" else estimator


def check_share(fraction: Any, rows: int, owner: str, what: str, argument: str = "X") -> int:
    """How many rows a share of them is; 0.29 of 100 rows are 29, as it is read, not the 28 of floating point."""
    if not isinstance(fraction, Real) or isinstance(fraction, bool) or not 0 < float(fraction) <= 1:
        raise InputError(f"`fraction` of {owner} must lie in (0, 1], got {fraction!r}; it is a share of {what}.")
    size = _share_of(fraction, rows)
    if size < 1:
        raise InputError(
            f"`{argument}` of {owner} must have rows enough, but {float(fraction):g} of {rows} rows is less "
            f"than one; pass more rows{'' if rows == 0 else f', or a fraction of at least 1/{rows}'}."
        )
    return size


def _share_of(fraction: Any, rows: int) -> int:
    return int(Fraction(str(fraction)) * rows)
