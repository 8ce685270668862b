"""Thousands of counterfactuals over random mixed spaces: constraints, validity, and certificates of what is returned."""

from __future__ import annotations

import numpy as np
import pytest
from random_spaces import random_feature, random_network, random_rows

import apas
from apas import FeatureSpace, Sampling
from apas._random import Stream
from apas.models.base import encoded_rows

#: Features with limits, since the program needs them; numbers are scaled, so that networks of ordinary weights see them all.
BOUNDED = ("ranged", "listed", "integer", "ordinal", "categorical", "binary")
SAMPLING = Sampling(coverage=0.9, confidence=0.9, n_samples=60)


def bounded_space(rng):
    while True:
        features = [random_feature(rng, f"f{i}", str(rng.choice(BOUNDED))) for i in range(int(rng.integers(2, 7)))]
        if any(f.mutable for f in features) and all(f.ends[0] < f.ends[1] for f in features):
            return FeatureSpace(features, scale="minmax")


def problems(found, delta):
    """Constraint violations, rows that fail on the model, certificates that belong to other numbers."""
    there = np.flatnonzero(found.found)
    numbers, origins = found.numbers[there], found.origins[there]
    violations = int((~found.space.allowed(numbers, origins)).any(axis=1).sum())
    raw = found.points.iloc[there]
    violations += int((found.space.numbers(raw) != numbers).any(axis=1).sum())
    _, encoded = encoded_rows(found.model, raw)
    invalid = strangers = 0
    for i, x in zip(there, encoded, strict=True):
        item = found[int(i)]
        margin = found.model.margin(x[None], item.target)[0]
        invalid += not (
            margin >= 0 if item.target == found.model.classes[-1] and len(found.model.classes) == 2 else margin > 0
        )
        certificate = item.certificate
        strangers += not (certificate.is_certified and certificate.delta == delta and certificate.target == item.target)
        evidence = certificate.evidence
        if evidence.to_dict()["kind"] == "sampling":
            stream = Stream(evidence.entropy, evidence.purpose)
            directions = found.shifts.directions(found.model.parameters, stream, 0, evidence.draws)
            margins = found.model.shifted_margins(x[None], item.target, directions, delta)[:, 0]
            strangers += abs(int(np.count_nonzero(margins < 0)) - evidence.failures) > evidence.doubtful
        else:
            strangers += not (evidence.bound is not None and evidence.bound <= margin)
    return len(there), violations, invalid, strangers


def run(wanted, first_seed):
    total, seed = np.zeros(4, dtype=int), first_seed
    while total[0] < wanted:
        rng = np.random.default_rng(seed)
        seed += 1
        space = bounded_space(rng)
        classes = int(rng.choice([1, 1, 3]))
        net = random_network(rng, space.coding.n_columns, outputs=classes, width=4)
        model = space.bind(net)
        rows, background = random_rows(rng, space, 30), random_rows(rng, space, 60, allowed=True)
        target = int(rng.integers(len(model.classes)))
        away = model.margin(model.encode(space.table(rows)), target) < 0
        if not away.any():
            continue
        inside = model.margin(model.encode(space.table(background)), target) > 0
        source = str(rng.choice(["milp", "neighbours"])) if inside.any() else "milp"
        method = SAMPLING if rng.random() < 0.7 else "interval"
        found = apas.generate(
            net, space.table(rows[away]), 0.02, target=target, space=space, background=space.table(background),
            source=source, method=method, k=int(rng.integers(1, 3)), max_candidates=40, rng=seed,
        )  # fmt: skip
        total += problems(found, 0.02)
    return total


@pytest.mark.parametrize("wanted", [60, pytest.param(10_000, marks=pytest.mark.validity)])
def test_what_is_returned_keeps_all_promises(wanted):
    found, violations, invalid, strangers = run(wanted, 0)
    assert found >= wanted
    assert (violations, invalid, strangers) == (0, 0, 0)
