"""Refits: `retrain` makes independent ones of a training process, in memory or in a folder."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, SupportsIndex, overload

import numpy as np

from apas._atomic import refusing, write_text
from apas._fields import Fields, parse_json
from apas._parallel import in_parallel, one_thread, workers
from apas._random import Stream, entropy_of
from apas._typing import Integers
from apas._validation import check_flag, check_integer, check_jobs
from apas.display.progress import Progress
from apas.errors import GuaranteeWarning, InputError, Unsupported
from apas.models.base import FromEstimator, Model, Predicts, as_model, offers
from apas.models.digest import canonical, model_digest
from apas.models.files.formats import load_model, save_model
from apas.shifts import distance

_Caught = list[tuple[type[Warning], str]]
MANIFEST = "refits.json"


class RetrainedModels(list[Model]):
    """Models of one training process, in the order in which they were drawn.

    `process` says how they were made, as a claim prints it; `entropy`, passed as `rng` to `retrain`, makes them again.
    """

    def __init__(self, models: Iterable[Model], process: str, entropy: int) -> None:
        super().__init__(models)
        self.process, self.entropy = process, entropy

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the models that `retrain` kept in a folder, all of them, each checked to be the one that was written."""
        models, process, entropy = RefitFolder(folder).read_all()
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
    how = {"bootstrap": bootstrap, "fraction": fraction, "when": when, "window": window, "keep": keep}
    refits = RefitSeries(estimator, X, y, n_models, n_jobs, **how, warm_start=warm_start, rng=rng, folder=folder)
    missing = [i for i in range(n_models) if refits.kept is None or not refits.kept.has(i)]
    caught: list[_Caught] = []
    with Progress(n_models, "training models") as progress:
        progress.advance(n_models - len(missing))
        for _, warned in refits.train(missing):
            caught.append(warned)
            progress.advance(1)
    models = [refits.model(i) for i in range(n_models)]
    _report(caught, models)
    return RetrainedModels(models, refits.process, refits.recipe.entropy)


class RefitSeries:
    """Refits of a process by their numbers, each trained when it is asked for, or read from a folder."""

    def __init__(
        self, estimator: Any, X: Any, y: Any, n_models: int, n_jobs: Any, *, bootstrap: Any, fraction: Any, when: Any,
        window: Any, keep: Any, warm_start: Any, rng: Any, folder: Any,
    ) -> None:  # fmt: skip
        self.jobs = check_jobs(n_jobs)
        check_flag(bootstrap, "bootstrap")
        check_flag(warm_start, "warm_start")
        options: dict[str, Any] = {}
        if offers(estimator, FromEstimator):
            estimator, options = estimator.estimator, estimator.read_options
        _check_estimator(estimator, bool(warm_start))
        if keep is not None:
            if keep != "preprocessing":
                raise InputError(f'`keep` of retrain must be "preprocessing" or None, got {keep!r}.')
            if distance.final_step(estimator) is estimator or len(estimator) < 2:
                raise InputError("`keep` of retrain needs a Pipeline with preprocessing; leave it out.")
            distance.read_model(estimator, "`estimator` of retrain, whose preprocessing is kept,")
        try:
            rows = X if hasattr(X, "shape") else np.asarray(X)
        except ValueError:
            raise InputError("`X` of retrain must hold rows of equal length, got rows of different lengths.") from None
        if not rows.shape or not rows.shape[0]:
            raise InputError(f"`X` of retrain must hold rows to train on, got shape {tuple(rows.shape)}.")
        count = int(rows.shape[0])
        labels, periods = distance.check_labels(y, count, owner="retrain"), _read_periods(when, window, count)
        distance.check_share(fraction, count, "retrain", "the rows")
        self.kept = None if folder is None else RefitFolder(folder)
        known = None if self.kept is None or self.kept.recipe is None or rng is not None else self.kept.recipe[2]
        entropy = entropy_of(rng) if known is None else known
        flags = bool(bootstrap), bool(warm_start), keep is not None
        self.recipe = _Recipe(estimator, rows, labels, *flags, fraction, *periods, entropy, options)
        self.process = self.recipe.process()
        if self.kept is not None:
            self.kept.begin(self.process, self.recipe.digest(), entropy, n_models)
        self._ahead, self._told = dict[int, Model](), set[tuple[Any, str]]()

    def train(self, numbers: Sequence[int]) -> Iterator[tuple[int, _Caught]]:
        """Train refits of some numbers, which then wait: the number of each, and what its training warned about."""
        batch = in_parallel(self.recipe.train, ((i,) for i in numbers), self.jobs)
        for i, (model, warned) in zip(numbers, batch, strict=True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                name, options = f"model number {i} of retrain", self.recipe.options
                plain = not options or offers(model, Predicts)
                self._ahead[i] = distance.read_model(model, name) if plain else as_model(model, **options)
            self._tell((w.category, str(w.message)) for w in caught)
            if self.kept is not None:
                self.kept.keep(i, self._ahead[i])
            yield i, warned

    def _tell(self, said: Iterable[tuple[Any, str]], before: str = "") -> None:
        """Pass warnings on, each once."""
        for kind, text in said:
            if (kind, text) not in self._told:
                self._told.add((kind, text))
                warnings.warn(f"{before}{text}", kind, stacklevel=4)

    def model(self, i: int) -> Model:
        """Refit number i; with several processes those behind it are trained at the same time, and wait."""
        if i not in self._ahead and self.kept is not None and self.kept.has(i):
            return self.kept.read(i)
        ahead = workers(self.jobs)
        while i not in self._ahead:
            try:
                for j, warned in self.train(range(i, i + ahead)):
                    self._tell(warned, f"model number {j} of the process is kept, but warned: ")
            except InputError:
                if i not in self._ahead and ahead == 1:
                    raise
                ahead = 1  # it may be about a later model, which may never be asked for: if it is, it fails once more
        return self._ahead.pop(i)


def _read_periods(when: Any, window: Any, rows: int) -> tuple[Integers | None, int]:
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


@dataclass(frozen=True)
class _Recipe:
    """Everything that makes model number i, for workers."""

    estimator: Any
    X: Any
    y: Any
    bootstrap: bool
    warm_start: bool
    keep: bool
    fraction: float
    periods: Integers | None
    window: int
    entropy: int
    options: dict[str, Any]

    def train(self, i: int) -> tuple[Any, _Caught]:
        """The model, and what its training warned about."""
        X, y = self.X, self.y
        if self.bootstrap or self.fraction != 1 or self.periods is not None:
            rows = self._rows(i)
            X, y = distance.take_rows(X, rows), distance.take_rows(y, rows)
        # more threads add up in another order, and workers have fewer of them
        with one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # what joblib says when another run that was given up is thrown away, by chance at this moment
            warnings.filterwarnings("ignore", r"\d+ tasks have been successfully executed\s+but not used", UserWarning)
            try:
                model = self._fit(X, y, i)
            except Exception as error:  # the user's code may raise anything
                first = (str(error).splitlines() or [""])[0]
                if not (first and isinstance(error, ValueError)):  # a KeyError says no more than the key
                    first = f"{type(error).__name__} {first}".strip()
                told = f"`estimator` of retrain failed on model number {i}: {first}; no model may be left out,"
                raise InputError(f"{told} so mend the training, or pass data on which it works.") from error
        return model, [(w.category, str(w.message)) for w in caught]

    def _rows(self, i: int) -> Integers:
        """Numbers of the rows of model number i, a pure function of the seed and i."""
        stream, count = Stream(self.entropy, "retrain/rows"), self.X.shape[0]
        among = np.arange(count)
        if self.periods is not None:
            starts = int(self.periods.max()) + 2 - self.window
            first = int(distance.drawn_rows(Stream(self.entropy, "retrain/windows"), i, 1, starts)[0])
            among = np.flatnonzero((self.periods >= first) & (self.periods < first + self.window))
        size = distance.share_of(self.fraction, len(among))
        if self.bootstrap:
            return among[distance.drawn_rows(stream, i * count, size, len(among))]
        # in the order of random numbers any row is as likely as another to come first
        order = np.argsort(stream.words(i * count, len(among)), kind="stable")[:size]
        return np.sort(among[order])

    def _fit(self, X: Any, y: Any, i: int) -> Any:
        seeds = Stream(self.entropy, "retrain/seeds")
        if not hasattr(self.estimator, "fit"):
            return self.estimator(X, y, distance.drawn_seeds(seeds, i, 1)[0])
        if not self.warm_start and not self.keep:
            return _set_seeds(_clone(self.estimator), seeds, i).fit(X, y)
        model = copy.deepcopy(self.estimator)
        if self.keep:
            model.steps[-1] = (model.steps[-1][0], _clone(model[-1]))
        final = distance.final_step(_set_seeds(model, seeds, i))
        rows = model[:-1].transform(X) if final is not model and len(model) > 1 else X
        (final.set_params(warm_start=True) if self.warm_start else final).fit(rows, y)
        return model

    def process(self) -> str:
        """How the models are made, in words."""
        estimator = self.estimator
        final = distance.final_step(estimator)
        name = getattr(estimator, "__name__", None) or type(final).__name__
        name = f"a pipeline that ends in {name}" if final is not estimator else name
        name = name if hasattr(estimator, "fit") else f"the function {name}"
        how = "trained further from the fitted model on" if self.warm_start else "fitted to"
        how = f"behind the same preprocessing {how}" if self.keep else how
        drawn = "a bootstrap sample of " if self.bootstrap else ""
        if self.fraction != 1:
            drawn = f"{drawn or 'a random part of '}{float(self.fraction):g} of "
        if self.periods is not None:
            drawn += f"a window of {self.window} of {int(self.periods.max()) + 1} periods, which begins at random, of "
        data = f"the same {self.X.shape[0]} rows (data {distance.data_digest(self.X, self.y)})"
        level = self.options.get("threshold", 0.5)
        more = "" if level == 0.5 else f", which says class 1 from probability {level:g} on"
        return f"{name} {how} {drawn}{data}, with a new seed{more}"

    def digest(self) -> str:
        """A fingerprint of all that makes a model besides rows and seed: settings, and what is gone on from."""
        told = _settings(self.estimator)
        periods = None if self.periods is None else distance.data_digest(self.periods)
        start = distance.read_model(self.estimator, "`estimator`") if self.warm_start or self.keep else None
        fitted, options = None if start is None else model_digest(start), canonical(self.options)
        form = json.dumps([told, periods, fitted, options, canonical(self.fraction)], sort_keys=True)
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
    drawn = distance.drawn_seeds(seeds, i * len(names), len(names))
    return estimator.set_params(**dict(zip(sorted(names), drawn, strict=True)))


def _check_estimator(estimator: Any, warm_start: bool) -> None:
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") or callable(estimator)):
        what = f"the class {estimator.__name__} itself" if isinstance(estimator, type) else repr(estimator)
        wanted = "a scikit-learn classifier or a function (X, y, seed) -> model"
        raise InputError(f"`estimator` of retrain must be {wanted}, got {what}.")
    if getattr(distance.final_step(estimator), "settings_lost_", False):
        why = "`estimator` of retrain must know its settings, but this one comes from a file that does not hold them;"
        raise InputError(f"{why} save it with apas.save_model(model, 'model.apas') in the program that trained it.")
    if hasattr(estimator, "fit") and not hasattr(estimator, "get_params"):
        why = f"`estimator` of retrain must be one that scikit-learn can clone, but {type(estimator).__name__} is not;"
        raise InputError(f"{why} pass a function (X, y, seed) that makes and trains one.")
    if not warm_start:
        return
    if not hasattr(estimator, "fit"):
        raise InputError("`warm_start` of retrain goes with an estimator; let the function start where it should.")
    final = distance.final_step(estimator)
    if "warm_start" not in final.get_params():
        told = f"needs an estimator with that option, but {type(final).__name__} has none"
        raise InputError(f"`warm_start` of retrain {told}; pass a function (X, y, seed) that trains it further.")
    distance.read_model(estimator, "`estimator` of retrain, from which to go on,")


def _report(caught: list[_Caught], models: list[Model]) -> None:
    counts = Counter[tuple[type[Warning], str]]()
    for warned in caught:
        counts.update({(kind, "" if kind.__name__ == "ConvergenceWarning" else text) for kind, text in warned})
    for (kind, text), count in counts.items():
        what = f"warned: {text}" if text else "ended before they had converged"
        kept = "they are kept, since a process that leaves some out is another process"
        warnings.warn(f"{count} of {len(models)} trainings of retrain {what}; {kept}.", kind, stacklevel=3)
    if len(models) > 1 and len({model_digest(model) for model in models}) == 1:
        told = f"all {len(models)} models of retrain are the same, since nothing in this process is random;"
        advice = "let it draw rows (bootstrap=True), or use an estimator with a random_state."
        warnings.warn(f"{told} {advice}", GuaranteeWarning, stacklevel=3)


class RefitFolder:
    """Refits that are kept as they are finished; what is there is read at once, the models when they are asked for."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(folder)
            raw = (self.path / MANIFEST).read_bytes() if (self.path / MANIFEST).exists() else None
        except TypeError:
            raise InputError(f"`folder` must be the name of a folder, got {type(folder).__name__}.") from None
        except (OSError, ValueError) as error:
            raise InputError(f"`folder` {str(folder)!r} cannot be read: {error}.") from None
        self.recipe: tuple[str, str, int] | None = None  # in words, as a fingerprint, and what it draws from
        self.count, self.digests = 0, dict[str, str]()
        if raw is None:
            return
        file = self.path / MANIFEST
        about = Fields.of(parse_json(file, raw, finite=True), str(file))
        about.only("format", "version", "process", "recipe", "entropy", "count", "refits")
        about.choice("format", "apas-refits")
        if about.integer("version") != 1:
            raise about.wrong("version", "1; use a newer apas")
        self.recipe = about.text("process"), about.digest("recipe"), about.entropy("entropy")
        self.count, kept = about.integer("count", least=1), about.inner("refits")
        if self.count > 10**6:
            raise about.wrong("count", "at most a million")
        kept.only(*map(self.name, range(self.count)))
        self.digests = {name: kept.digest(name) for name in kept.content}

    @staticmethod
    def name(i: int) -> str:
        """The file of refit number i."""
        return f"refit-{i:04d}.apas"

    def begin(self, process: str, recipe: str, entropy: int, count: int) -> None:
        """Set out to make refits, or go on with those that are there, which must be made in the same way."""
        ours = process, recipe, entropy
        for what, told, here in zip(("process", "settings", "seed"), ours, self.recipe or ours, strict=True):
            if told != here:
                why = f"`folder` of retrain must be for these refits, but {str(self.path)!r} holds others: their {what}"
                raise InputError(f"{why} {'are' if what == 'settings' else 'is'} another; name another folder.")
        self.recipe, self.count = ours, max(count, self.count)
        with refusing("`folder` of retrain cannot be written"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._write()

    def _write(self) -> None:
        process, recipe, entropy = self.recipe or ("", "", 0)
        told = {"format": "apas-refits", "version": 1, "process": process, "recipe": recipe, "entropy": hex(entropy)}
        told |= {"count": self.count, "refits": dict(sorted(self.digests.items()))}
        write_text(self.path / MANIFEST, json.dumps(told, indent=1) + "\n")

    def keep(self, i: int, model: Model) -> None:
        """Write refit number i, and then that it is there."""
        try:
            save_model(model, self.path / self.name(i))
        except Unsupported as error:
            raise Unsupported(f"`folder` of retrain cannot keep model number {i}; leave it out: {error}") from error
        self.digests[self.name(i)], self.count = model_digest(model), max(self.count, i + 1)
        self._write()

    def read(self, i: int) -> Model:
        """Refit number i, which must be the one that was written."""
        name = self.name(i)
        model = load_model(self.path / name)
        if model_digest(model) != self.digests[name]:
            told = f"is not the model that {MANIFEST} tells of; delete it, and run the same retrain again"
            raise InputError(f"{self.path / name} {told}.")
        return model

    def has(self, i: int) -> bool:
        """Whether refit number i is finished."""
        return self.name(i) in self.digests and (self.path / self.name(i)).exists()

    def read_all(self) -> tuple[list[Model], str, int]:
        """All refits, none of which may be missing, as that would be another process; which it is, and its entropy."""
        if self.recipe is None:
            raise InputError(f"{str(self.path)!r} is not a folder of refits: it has no {MANIFEST}; see apas.retrain.")
        there = sum(self.has(i) for i in range(self.count))
        if there < self.count:
            told = f"holds {there} of {self.count} refits; run the same retrain again to finish"
            raise InputError(f"{str(self.path)!r} {told}.")
        models = []
        with Progress(self.count, "reading refits") as progress:
            for i in range(self.count):
                models.append(self.read(i))
                progress.advance(1)
        return models, self.recipe[0], self.recipe[2]
