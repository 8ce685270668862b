"""`apas bench`: what is compared is what is said."""

from __future__ import annotations

import json

import numpy as np
from command_line import run

import apas
from apas.cli import research as bench


def test_json(capsys):
    code, out, err = run(capsys, "bench", "--rounds", "1", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert (content["format"], content["draws"], content["rounds"]) == ("apas-bench", 1379, 1)
    assert [(line["network"], line["rows"]) for line in content["comparisons"]] == [
        ("8-8-1", 1), ("8-8-1", 100), ("30-100-50-1", 1), ("30-100-50-1", 100),
    ]  # fmt: skip
    for line in content["comparisons"]:
        assert line["ratio"] == line["loop_seconds"] / line["apas_seconds"]
    assert content["comparisons"][0]["parameters"] == 81


def test_loop_draws_what_the_certificates_are_about():
    """Near the boundary the plain loop and the sampling test count failures alike, up to chance."""
    net = apas.FeedForward([[[1.0], [1.0]]], [[0.0]])
    X = np.array([[0.004, 0.004], [0.0, 0.0], [1.0, 1.0]])
    plain = bench.plain_failures(net, X, seed=0) / bench.DRAWS
    method = apas.Sampling(coverage=0.05, n_samples=20_000)
    curve = apas.robust_fraction(net, X, [bench.DELTA], target=1, method=method, rng=1)
    for share, row in zip(plain, curve, strict=True):
        assert row.lower[0] - 0.06 < 1 - share < row.upper[0] + 0.06
