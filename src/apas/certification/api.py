"""`certify`: check the question, ask the method, keep the answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from apas._random import Stream
from apas.certification.certificate import Certificate
from apas.certification.derived_seed import DerivedSeed, decide_derived
from apas.certification.question import Method, Question, decide
from apas.certification.region import Region
from apas.certification.region_claims import asked_regions, certify_sizes, check_regions
from apas.certification.results import Certificates
from apas.errors import InputError
from apas.models.base import Capability, Named, offers
from apas.shifts.base import ShiftSet


def certify(
    model: Any,
    X: Any,
    delta: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    simultaneous: bool = False,
    region: Any = None,
    n_jobs: int = 1,
    rng: int | np.random.Generator | DerivedSeed | str | None = None,
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
        The class each row must keep; ``"predicted"`` asks for the one that the model gives it. Required: with a
        default, a rejected applicant would be certified as robustly rejected.
    shifts : ShiftSet or str, default "linf"
        The set of shifted models: `LinfShifts` ("linf"), `LpShifts` ("l1", "l2"), `GaussianShifts` ("gaussian"), or
        others.
    method : Method or str, default "sampling"
        How to decide. ``"sampling"`` speaks of most shifts; of every shift speak ``"interval"``, ``"linear"``,
        ``"attack"``, ``"exact"`` and ``"cascade"``, which takes them in turn; ``"enumeration"`` of either.
    simultaneous : bool, default False
        Let the confidence hold for all rows together rather than for each by itself.
    region : Region, mapping or "beyond", optional
        Certify not the row alone but all rows of a region together: see `Region`. ``"beyond"`` is for what `generate`
        returned, passed as `X`: the numbers that were changed, further in the direction of the change.
    n_jobs : int, default 1
        Number of processes; -1 for all cores. The certificates do not depend on it.
    rng : None, int, numpy.random.Generator, "derived" or DerivedSeed
        Seed of the draws; recorded in the certificates. None takes 128 bits from the operating system. A `DerivedSeed`
        ("derived") follows from model, rows and claim, so that nobody can choose it; the risk is then 2^-64.

    Returns
    -------
    Certificates
        One per row. A row that the model itself does not put into its target class is refuted without drawing; one
        whose class is owed to the rounding of a model that computes in float32 is ``UNKNOWN``.

    Notes
    -----
    All rows see the same shifted models; each certificate by itself has the stated confidence. What voids the
    guarantee: choosing the rows or `delta` by looking at the same draws (the same `rng`), or repeating the call until
    it certifies.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> [c.verdict.name for c in apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, rng=0)]
    ['CERTIFIED', 'REFUTED']
    """
    began, wanted = time.perf_counter(), None if region is None else Region.wanted(region)
    inputs = space = None
    items: Sequence[Certificate]
    if wanted is not None and offers(X, FromInputs):
        X, inputs, space = X.points, X.inputs, X.space
    question = Question.ask(
        model, X, target=target, delta=delta, shifts=shifts, method=method, simultaneous=simultaneous, n_jobs=n_jobs
    )
    net, derived = question.model, DerivedSeed.wanted(rng)
    if wanted is not None:
        if derived is not None:
            raise InputError(
                '`rng="derived"` does not go with `region`, which its seed does not bind; leave `rng` out.'
            )
        question = replace(question, regions=asked_regions(question, wanted, inputs, space))
        check_regions(question)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
        if wanted is not None and wanted.sizes > 1:
            items = certify_sizes(question, question.method, Stream.seeded(rng, "certify"), wanted.sizes)
        elif derived is None:
            items = decide(question, question.method, Stream.seeded(rng, "certify"))
        else:
            items = decide_derived(derived.ask(question), derived)
    seconds = (time.perf_counter() - began) / max(1, len(items))
    for item in getattr(
        items, "distinct", items
    ):  # made a moment ago and seen by nobody yet; a copy of each would cost more than deciding it
        object.__setattr__(item, "seconds", seconds)
    names = net.feature_names if offers(net, Named) else None
    return Certificates(items, **question.context, inputs=inputs, feature_names=names, model=net)


class FromInputs(Capability, Protocol):
    """Rows that were made from others in a space, as `generate` returns them."""

    points: Any
    inputs: Any
    space: Any
