"""`estimate_delta`: how far an update moves the parameters, measured on copies of the model."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apas._random import Stream, entropy_of
from apas._typing import Floats, Integers
from apas._validation import check_integer
from apas.errors import InputError
from apas.models.as_model import encoded_rows
from apas.shifts.distance import ShiftReport, compare_models, read_model
from apas.shifts.retraining import check_labels, check_share, drawn_rows, drawn_seeds, final_step, take_rows


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
    entropy, draws, seeds = _draw(
        rng, rounds, len(points), check_share(fraction, len(points), "estimate_delta", "the new rows", "X_new")
    )
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
        raise InputError(
            "`estimator` of estimate_delta must not have early_stopping=True, with which scikit-learn refuses "
            f"partial_fit; {_advice(estimator)}"
        )


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
            raise InputError(
                f"`estimator` of estimate_delta must take partial_fit on the new rows, but {type(final).__name__} "
                f"says: {str(error).splitlines()[0]}; {_advice(estimator)}"
            ) from error
    return estimator


def _draw(rng: Any, rounds: int, rows: int, size: int) -> tuple[int | None, list[Integers], list[int]]:
    """Entropy, the row numbers of each round, and a seed for whatever else is random in it."""
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
