"""`retrain`: the models that a training process makes of one data set, independent of each other."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np

from apas._random import Stream, entropy_of
from apas._validation import check_flag, check_integer, check_jobs
from apas.display.progress import Progress
from apas.errors import GuaranteeWarning, InputError
from apas.models.digest import model_digest
from apas.models.protocol import Model
from apas.shifts.measure import read_model
from apas.shifts.resampling import check_labels, data_digest, drawn_rows, drawn_seeds, take_rows
from apas.shifts.retraining import final_step

__all__ = ["RetrainedModels", "retrain"]

_Caught = list[tuple[type[Warning], str]]


class RetrainedModels(list[Model]):
    """Models of one training process, in the order in which they were drawn.

    Attributes
    ----------
    process : str
        How they were made, as a claim prints it.
    entropy : int
        What rows and seeds were drawn from; pass it as `rng` to `retrain` to make them again.
    """

    def __init__(self, models: Iterable[Model], process: str, entropy: int) -> None:
        super().__init__(models)
        self.process, self.entropy = process, entropy

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
    warm_start: bool = False,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> RetrainedModels:
    """Train models anew on the same data, independently of each other: draws of a training process.

    Each model gets a bootstrap sample of the rows and a seed, by the same recipe. Given the data they are therefore
    independent and identically distributed, which is what `ObservedShifts` with `Sampling` needs: 59 models for a claim
    about 95 % of the models that this process on this data set produces, with confidence 0.95.

    Parameters
    ----------
    estimator : object
        A scikit-learn classifier or `Pipeline`, which is cloned and never changed, or a function ``(X, y, seed)`` that
        trains a model and returns it (anything that `as_model` takes).
    X, y : array_like or data frame
        The training data, in the user's units.
    n_models : int
        How many models to make: see `sample_size`.
    bootstrap : bool, default True
        Draw as many rows as there are, with replacement, for each model; else all models see the same rows and differ
        by their seeds alone.
    warm_start : bool, default False
        Let each model go on from the fitted `estimator` rather than from scratch; of a pipeline the last step, behind
        the preprocessing as it is. The estimator must have the option `warm_start`.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The models do not depend on it: each is trained in one thread.
    rng : None, int or numpy.random.Generator
        Seed of the rows and of the models' seeds.

    Returns
    -------
    RetrainedModels
        A list of models that knows how they were made. A training that fails is an error: to leave a model out would
        make it another process.

    Warns
    -----
    ConvergenceWarning
        Once, if trainings ended before they converged; the models are kept.
    GuaranteeWarning
        If all models are the same, since nothing in the process is random.

    Notes
    -----
    What voids a claim about the process: an explanation that was chosen by looking at these models, or models left out.
    It does not speak of next month's data. A shared warm start is part of the process.

    A PyTorch module is trained by a function, which makes all its random numbers from the seed::

        def train(X, y, seed):
            torch.manual_seed(seed)
            module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
            optimizer, rows = torch.optim.Adam(module.parameters(), lr=0.01), torch.as_tensor(X).float()
            for _ in range(200):
                optimizer.zero_grad()
                logits = module(rows).squeeze(1)
                torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.as_tensor(y).float()).backward()
                optimizer.step()
            return apas.as_model(module.eval(), output="logit")

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rows, labels = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], [0, 0, 1, 0, 1, 1]
    >>> models = retrain(LogisticRegression(), rows, labels, n_models=3, rng=0)
    >>> len(models), models.process
    (3, 'LogisticRegression fitted to a bootstrap sample of the same 6 rows (data c1c78a9dcf5b), with a new seed')
    """
    n_models = check_integer(n_models, "n_models", "retrain", least=1)
    check_flag(bootstrap, "bootstrap")
    check_flag(warm_start, "warm_start")
    jobs = check_jobs(n_jobs)
    _check_estimator(estimator, bool(warm_start))
    rows = _check_rows(X)
    labels = check_labels(y, int(rows.shape[0]), owner="retrain")
    recipe = _Recipe(estimator, rows, labels, bool(bootstrap), bool(warm_start), entropy_of(rng))
    trained, caught = [], []
    with Progress(n_models, "training models") as progress:
        for result, warned in _each(recipe, n_models, jobs):
            trained.append(result)
            caught.append(warned)
            progress.advance(1)
    models = _read(trained)
    _report(caught, models)
    return RetrainedModels(models, recipe.process(), recipe.entropy)


@dataclass(frozen=True)
class _Recipe:
    """Everything that makes model number i, for workers."""

    estimator: Any
    X: Any
    y: Any
    bootstrap: bool
    warm_start: bool
    entropy: int

    def train(self, i: int) -> tuple[Any, _Caught]:
        """The model, and what its training warned about."""
        from threadpoolctl import threadpool_limits

        X, y, size = self.X, self.y, int(self.X.shape[0])
        if self.bootstrap:
            rows = drawn_rows(Stream(self.entropy, "retrain/rows"), i * size, size, size)
            X, y = take_rows(X, rows), take_rows(y, rows)
        # more threads add up in another order, and workers have fewer of them
        with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
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

    def _fit(self, X: Any, y: Any, i: int) -> Any:
        seeds = Stream(self.entropy, "retrain/seeds")
        if not hasattr(self.estimator, "fit"):
            return self.estimator(X, y, drawn_seeds(seeds, i, 1)[0])
        if not self.warm_start:
            from sklearn.base import clone

            return _seeded(clone(self.estimator), seeds, i).fit(X, y)
        model = _seeded(copy.deepcopy(self.estimator), seeds, i)
        final = final_step(model)
        rows = model[:-1].transform(X) if final is not model and len(model) > 1 else X
        final.set_params(warm_start=True).fit(rows, y)
        return model

    def process(self) -> str:
        """How the models are made, in words."""
        estimator = self.estimator
        final = final_step(estimator)
        name = getattr(estimator, "__name__", None) or type(final).__name__
        name = f"a pipeline that ends in {name}" if final is not estimator else name
        name = name if hasattr(estimator, "fit") else f"the function {name}"
        how = "trained further from the fitted model on" if self.warm_start else "fitted to"
        data = f"the same {self.X.shape[0]} rows (data {data_digest(self.X, self.y)})"
        return f"{name} {how} {'a bootstrap sample of ' if self.bootstrap else ''}{data}, with a new seed"


def _seeded(estimator: Any, seeds: Stream, i: int) -> Any:
    """The estimator with a seed in every setting of its own and its steps' that takes one."""
    names = [n for n in sorted(estimator.get_params()) if n == "random_state" or n.endswith("__random_state")]
    values = drawn_seeds(seeds, i * len(names), len(names))
    return estimator.set_params(**dict(zip(names, values, strict=True)))


def _each(recipe: _Recipe, n_models: int, n_jobs: int) -> Iterable[tuple[Any, _Caught]]:
    if n_jobs == 1 or n_models == 1:
        return map(recipe.train, range(n_models))
    from joblib import Parallel, delayed

    train: Callable[[int], Any] = delayed(recipe.train)
    return Parallel(n_jobs=n_jobs, return_as="generator")(train(i) for i in range(n_models))  # type: ignore[no-any-return]


def _check_rows(X: Any) -> Any:
    try:
        rows = X if hasattr(X, "shape") else np.asarray(X)
    except ValueError:
        raise InputError("`X` of retrain must hold rows of equal length, got rows of different lengths.") from None
    if not rows.shape or not rows.shape[0]:
        raise InputError(f"`X` of retrain must hold rows to train on, got shape {tuple(rows.shape)}.")
    return rows


def _check_estimator(estimator: Any, warm_start: bool) -> None:
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") or callable(estimator)):
        what = f"the class {estimator.__name__} itself" if isinstance(estimator, type) else repr(estimator)
        raise InputError(
            f"`estimator` of retrain must be a scikit-learn classifier or a function (X, y, seed) -> model, got {what}."
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


def _read(trained: list[Any]) -> list[Model]:
    """The trained models as models; what reading several of them warns about is said once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = [read_model(model, f"model number {i} of retrain") for i, model in enumerate(trained)]
    for kind, text in dict.fromkeys((w.category, str(w.message)) for w in caught):
        warnings.warn(text, kind, stacklevel=3)
    return models


def _report(caught: list[_Caught], models: list[Model]) -> None:
    """Say once what trainings warned about, and whether they were random at all."""
    counts: dict[tuple[type[Warning], str], int] = {}
    for warned in caught:
        for key in {(kind, "" if kind.__name__ == "ConvergenceWarning" else text) for kind, text in warned}:
            counts[key] = counts.get(key, 0) + 1
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
