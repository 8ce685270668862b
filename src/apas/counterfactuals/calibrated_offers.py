"""`calibrate_offers`: the delta at which the next update keeps every offer that `generate` makes.

Offers lie where the search stops, so that they are calibrated as a family: a list for each delta of a grid.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from apas._random import entropy_of
from apas.certification.calibration import Calibration, broken_rows, certified_by, read_updates, refuse_seen
from apas.certification.question import Question
from apas.counterfactuals.api import generate
from apas.counterfactuals.space.encoder import CodedModel
from apas.errors import InputError
from apas.models.base import as_model, offers
from apas.models.digest import model_digest
from apas.shifts.base import Fingerprinted


def calibrate_offers(
    model: Any,
    X: Any,
    updates: Sequence[Any],
    grid: Sequence[float],
    *,
    coverage: float = 0.9,
    confidence: float | None = 0.95,
    rng: int | np.random.Generator | None = None,
    **search: Any,
) -> Calibration:
    """Find the least delta of a grid at which the next update keeps every offer that is made for the rows.

    Parameters
    ----------
    model : object
        The model of today: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The inputs to explain.
    updates : sequence of object
        Past or rehearsed updates of this model: see `calibrate_delta`.
    grid : sequence of float
        Deltas, fixed before anyone looked at the updates.
    coverage, confidence
        See `calibrate_delta`.
    rng : None, int or numpy.random.Generator
        Seed of the searches, one after another for each delta.
    **search
        Options of `generate`: target, space, background, source, shifts, method and so on.

    Returns
    -------
    Calibration
        About the offers at `delta`, which are in its attribute `offers`; where no delta of the grid will do, about
        those at the largest, none of which is certified.

    Examples
    --------
    >>> import apas
    >>> base, *updates = (apas.FeedForward([[[1.0], [1.0]]], [[-1.0 - b / 200]]) for b in range(10))
    >>> space = apas.FeatureSpace([apas.Feature(name, low=0, high=2) for name in ("income", "savings")])
    >>> found = calibrate_offers(
    ...     base, [[0.2, 0.3]], updates, [0.001, 0.05], confidence=None, space=space, method="interval", rng=0
    ... )
    >>> found.delta, found.certified.tolist()
    (0.05, [True])
    """
    listed, steps, coverage, confidence = read_updates(updates, coverage, confidence, "calibrate_offers")
    if steps is not None:
        told = "must be models, since each base of a pair would have offers of its own; calibrate_delta takes pairs"
        raise InputError(f"`updates` of calibrate_offers {told}.")
    deltas = np.sort(np.asarray(grid, dtype=np.float64)) if np.ndim(grid) == 1 else np.empty(0)
    if not len(deltas) or not (np.isfinite(deltas) & (deltas >= 0)).all() or (np.diff(deltas) == 0).any():
        raise InputError(f"`grid` must list different deltas of at least 0, got {grid!r}.")
    seen, known = {model_digest(as_model(model)): "the model itself"}, search.get("shifts")
    seen |= dict.fromkeys(known.digests if offers(known, Fingerprinted) else (), "used to make the offers")
    refuse_seen(listed, None, seen)
    seed, worst, own = entropy_of(rng), np.full(len(listed.models), -np.inf), []
    for i, delta in enumerate(deltas.tolist()):
        found = generate(model, X, delta, rng=seed + i, **search)
        made, others = found[found.found], listed
        if isinstance(found.model, CodedModel):  # so are the updates, then
            others = listed.with_models([found.space.bind(other) for other in listed.models])
        asked: dict[str, Any] = {"target": made.target, "delta": 1.0, "shifts": others, "method": "exact"}
        question = Question.ask(found.model, made.points, **asked)
        fails = broken_rows(question, None)
        worst[fails.any(axis=1)] = delta
        own.append((delta, found, question, fails))
    rest = ({"kind": "offers", "grid": deltas.tolist()}, worst, None, tuple(seen))
    for delta, found, question, fails in own:
        result = certified_by(question, np.full(len(question), delta), fails, coverage, confidence, *rest)
        result.offers, result.inputs = found, found[found.found].inputs
        if delta > result.claim.threshold:
            break
    return result
