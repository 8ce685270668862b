"""`certify`: check the question, ask the method, keep the answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from apas._random import Stream, entropy_of
from apas._typing import Array, Floats
from apas._validation import check_delta, check_flag, check_jobs
from apas.certification.certificate import NEAR_BOUNDARY, NOT_VALID, BaseEvidence, Certificate
from apas.certification.claims import Every, Most, Verdict
from apas.certification.methods.attack import Attack
from apas.certification.methods.bounds import IntervalBounds, LinearBounds
from apas.certification.methods.cascade import Cascade
from apas.certification.methods.enumeration import Enumeration
from apas.certification.methods.exact import Exact
from apas.certification.methods.sampling import Sampling, check_models, default_delta
from apas.certification.question import ROUNDING, Method, Question
from apas.certification.results import Certificates
from apas.errors import InputError, Unsupported
from apas.models.base import Arithmetic, LibraryBacked, Model, Named, Predicts, class_indices, offers
from apas.models.convert import as_model, encoded_rows, predicted_classes
from apas.models.digest import model_digest
from apas.shifts.base import ShiftSet, magnitudes
from apas.shifts.gaussian import GaussianShifts
from apas.shifts.linf import LinfShifts
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts

METHODS: dict[str, type[Any]] = {
    "sampling": Sampling,
    "interval": IntervalBounds,
    "linear": LinearBounds,
    "attack": Attack,
    "exact": Exact,
    "enumeration": Enumeration,
    "cascade": Cascade,
}
SHIFTS: dict[str, Any] = {
    "linf": LinfShifts,
    "l1": partial(LpShifts, 1),
    "l2": partial(LpShifts, 2),
    "gaussian": GaussianShifts,
}
#: Rows closer to the boundary than this are left out when a model is compared with its own library.
AGREEMENT = 1e-9


def certify(
    model: Any,
    X: Any,
    delta: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    simultaneous: bool = False,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> Certificates:
    """Certify that rows keep their class while the model's parameters shift by up to `delta`.

    Parameters
    ----------
    model : object
        A fitted classifier: see `as_model`.
    X : array_like or data frame of shape (rows, features)
        The counterfactual explanations, in the units the model was trained with. Data frames are matched by name.
    delta : float or array_like of shape (rows,)
        How far the parameters may move; what that means is up to `shifts`. For `ObservedShifts` 1 or None.
    target : label, array_like of labels or "predicted"
        The class each row must keep. Required: with a default, a rejected applicant would be certified as robustly
        rejected. ``"predicted"`` asks for the class that the model gives each row.
    shifts : ShiftSet or str, default "linf"
        The set of shifted models: `LinfShifts` ("linf"), `LpShifts` ("l1", "l2"), `GaussianShifts` ("gaussian"), or
        `ObservedShifts` and `InputNoise`.
    method : Method or str, default "sampling"
        How to decide. ``"sampling"`` speaks of most shifts; of every shift speak ``"interval"``, ``"linear"``,
        ``"attack"``, ``"exact"`` and ``"cascade"``, which takes them in turn; ``"enumeration"`` of either.
    simultaneous : bool, default False
        Let the confidence hold for all rows together rather than for each by itself.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The certificates do not depend on it.
    rng : None, int or numpy.random.Generator
        Seed of the draws; recorded in the certificates. None takes 128 bits from the operating system.

    Returns
    -------
    Certificates
        One per row. A row that the model itself does not put into its target class is refuted without drawing; one
        whose class is owed to the rounding of a model that computes in float32 is ``UNKNOWN``.

    Notes
    -----
    All rows see the same shifted models, so the certificates of one call are true or false together more often than
    independent ones would be; each by itself has the stated confidence. What voids the guarantee: choosing the rows
    or `delta` by looking at the same draws (the same `rng`), or repeating the call until it certifies.

    References
    ----------
    Marzari, Leofante, Cicalese and Farinelli (2024), "Rigorous Probabilistic Guarantees for Robust Counterfactual
    Explanations", ECAI.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)
    >>> [c.verdict.name for c in certificates]
    ['CERTIFIED', 'REFUTED']
    """
    began = time.perf_counter()
    net = as_model(model)
    chosen = pick(method, METHODS, Method, "method")
    shift_set = pick(shifts, SHIFTS, ShiftSet, "shifts")
    check_flag(simultaneous, "simultaneous")
    points, encoded = encoded_rows(net, X)
    stream = Stream(entropy_of(rng), "certify")
    question = Question(
        model=net,
        X=encoded,
        target=check_target(net, encoded, target),
        delta=check_delta(default_delta(shift_set, delta), len(encoded)),
        shifts=shift_set,
        claim_rows=max(1, len(encoded)) if simultaneous else 1,
        n_jobs=check_jobs(n_jobs),
        points=points,
    )
    complaint = chosen.unsupported(question)
    if complaint is not None:
        raise Unsupported(complaint)
    check_agreement(net, points, encoded, shift_set)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
        items = decide(question, chosen, stream)
    seconds = (time.perf_counter() - began) / max(1, len(items))
    for item in items:  # made a moment ago and seen by nobody yet; a copy of each would cost more than deciding it
        object.__setattr__(item, "seconds", seconds)
    names = net.feature_names if offers(net, Named) else None
    return Certificates(
        items, points=points, model_digest=model_digest(net), shifts=shift_set, feature_names=names, model=net
    )


def decide(question: Question, method: Method, stream: Stream) -> list[Certificate]:
    """Refute rows that are not valid on the model itself, leave open those within its rounding, ask about the rest."""
    near = question.doubtful_rows()
    ok = question.valid_rows() & ~near
    if ok.all():
        return method.run(question, stream) if len(question) else []
    claim = method.claim(question)
    certificates = [_by_model(question, i, claim, method, bool(near[i])) for i in range(len(question))]
    answers = method.run(question.take(ok), stream) if ok.any() else []
    for i, answer in zip(np.flatnonzero(ok), answers, strict=True):
        certificates[i] = answer
    return certificates


def _by_model(question: Question, i: int, claim: Every | Most, method: Method, near: bool) -> Certificate:
    """What the model itself says of a row that the method is not asked about."""
    kind, verdict = type(method), Verdict.UNKNOWN if near else Verdict.REFUTED
    name = next((alias for alias, known in METHODS.items() if known is kind), kind.__name__.lower())
    reason = NEAR_BOUNDARY if near else NOT_VALID
    return Certificate(claim, verdict, float(question.delta[i]), question.target[i], name, BaseEvidence(), reason)


def pick(value: Any, table: Mapping[str, Any], kind: type[Any], argument: str) -> Any:
    """Turn an alias into a strategy with its default settings; let an instance through."""
    known = ", ".join(repr(name) for name in table)
    if isinstance(value, str):
        if value not in table:
            raise InputError(f"`{argument}` must be one of {known}, or an instance, got {value!r}.")
        return table[value]()
    if isinstance(value, type) or not offers(value, kind):
        what = f"the class {value.__name__} itself; call it" if isinstance(value, type) else repr(value)
        example = next(iter(table.values())).__name__
        raise InputError(f"`{argument}` must be one of {known}, or an instance such as {example}(), got {what}.")
    return value


def check_target(model: Predicts, X: Floats, target: Any) -> Array:
    """One class label per row."""
    if target is None:
        raise InputError(
            f'`target` must be the class to keep, one of {list(model.classes)}, or "predicted", got None; '
            "a default would certify a rejected applicant as robustly rejected."
        )
    labels = np.empty(len(X), dtype=object)
    if isinstance(target, str) and target == "predicted" and target not in model.classes:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused or fails later
            labels[:] = predicted_classes(model, X)[0] if len(X) else []
        return labels
    wanted = class_indices(model.classes, target, len(X))
    labels[:] = [model.classes[i] for i in wanted]
    return labels


def check_agreement(
    model: Model, points: Any, X: Floats, shifts: ShiftSet | None = None, name: str = "`model`"
) -> None:
    """Refuse a model that does not say about the given rows what its own library says; of listed models each."""
    if isinstance(shifts, ObservedShifts) and len(X):
        for other, rows, called in check_models(shifts, model, points):
            check_agreement(other, points, rows, name=called)
    if not offers(model, LibraryBacked) or not len(X):
        return
    ours, distance = predicted_classes(model, X)
    theirs = model.library_classes(points)
    allowed: Any = AGREEMENT
    if offers(model, Arithmetic) and model.dtype == "float32":  # about what is within its rounding it has no opinion
        allowed = AGREEMENT + ROUNDING * magnitudes(model, X, model.classes[0], np.zeros(len(model.parameters)), 0.0)
    differ = [i for i in np.flatnonzero(distance > allowed) if ours[i] != theirs[i]]
    if differ:
        i = int(differ[0])
        raise InputError(
            f"{name} does not agree with its own library on row {i}: apas reads class {ours[i]!r}, the library says "
            f"{theirs[i]!r}; this model is not what it seems, so nothing can be certified about it."
        )
