"""The attack on seeds: ask for a false certificate again and again, until one passes.

`python tests/seed_shopping.py [SECONDS]` attacks the diabetes network of the paper, if its data are at hand: first with
seeds that the issuer chooses, then with derived ones, where each try changes the last bits of the row instead.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import count

import numpy as np
from scipy.stats import binom

import apas
from apas._random import Stream
from apas.certification.derived_seed import DerivedSeed
from apas.certification.question import Question

COVERAGE = 0.995
ALLOWED = 1 - COVERAGE
BLOCK = 256


def asked(net: apas.FeedForward, row: np.ndarray, delta: float, samples: int) -> Question:
    """The question of one row, in the fixed test."""
    method = apas.Sampling(n_samples=samples, test="fixed")
    return Question.ask(net, row[None], target=1, delta=delta, shifts="linf", method=method)


def failing_share(question: Question, draws: int = 100_000) -> float:
    """The share of shifts on which the row fails, estimated."""
    stream = Stream(0, "shopping")
    starts = range(0, draws, BLOCK)
    return sum(_failures(question, stream, start) for start in starts) / (len(starts) * BLOCK)


def false_claim(net: apas.FeedForward, row: np.ndarray, times: float) -> float:
    """A delta at which about so many times as many shifts fail as a claim allows."""
    low, high = 0.0, 10.0
    for _ in range(12):
        middle = (low + high) / 2
        share = failing_share(asked(net, row, middle, 2000), 50_000)
        low, high = (middle, high) if share < times * ALLOWED else (low, middle)
    return high


def shop(question: Question, seconds: float, *, derived: bool) -> tuple[int, int | None]:
    """How many tries were made, and the first of them that passed, if any did."""
    end = time.monotonic() + seconds
    for number in count():
        if time.monotonic() > end:
            return number, None
        if derived:
            tried = replace(question, X=_variant(question.X, number))
            stream, _ = DerivedSeed().derive(tried, "certify", "certify")
        else:
            tried, stream = question, Stream(number, "certify")
        if _passes(tried, stream):
            return number + 1, number
    raise AssertionError


def expected_tries(question: Question, share: float) -> float:
    """The logarithm to base 2 of how many tries it takes on average, if so large a share of the shifts fails."""
    samples, allowed, _ = question.method.plan(question, question.method.claim(question))
    return -float(binom.logcdf(allowed, samples, share)) / math.log(2)


def _variant(X: np.ndarray, number: int) -> np.ndarray:
    """The same row but for the last bits of its first cell."""
    bits = X.copy().view(np.int64)
    bits[0, 0] += number
    return bits.view(np.float64)


def _passes(question: Question, stream: Stream) -> bool:
    samples, allowed, _ = question.method.plan(question, question.method.claim(question))
    failures = 0
    for start in range(0, samples, BLOCK):
        failures += _failures(question, stream, start, samples)
        if failures > allowed:  # nobody goes on with a try that is lost
            return False
    return True


def _failures(question: Question, stream: Stream, start: int, stop: int = 1 << 62) -> int:
    directions = question.directions(stream, start, min(start + BLOCK, stop))
    return int(np.count_nonzero(~(question.margins(directions) > question.band)))


def attack(
    net: apas.FeedForward, row: np.ndarray, times: float, seconds: float
) -> tuple[int | None, int | None, float]:
    """Attack a false claim both ways: which seed and which variant passes, and the expected tries of the latter."""
    delta = false_claim(net, row, times)
    chosen, safe = asked(net, row, delta, 1379), DerivedSeed().ask(asked(net, row, delta, 20_000))
    share = failing_share(chosen)
    print(f"delta {delta:.4f}: a share of {share:.5f} fails, {share / ALLOWED:.2f} times what the claim allows")
    tries, seed = shop(chosen, seconds, derived=False)
    print(f"chosen seeds, 2^{expected_tries(chosen, share):.1f} tries expected: {tries} tries, seed {seed} passes")
    tries, variant = shop(safe, seconds, derived=True)
    expected = expected_tries(safe, share)
    print(f"derived seeds, 2^{expected:.1f} tries expected: {tries} tries, variant {variant} passes")
    print("(by the anytime test it takes at least 2^64 on average, whatever the share, by Ville's inequality)")
    return seed, variant, expected


if __name__ == "__main__":
    import json
    import sys

    from conftest import shared_folder

    oracle = json.loads((shared_folder("oracle") / "diabetes.json").read_text())
    network = apas.FeedForward(oracle["base"]["weights"], oracle["base"]["biases"])
    wait = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    found = attack(network, np.array(oracle["counterfactuals"][0]["x"]), 1.15, wait)
    raise SystemExit(0 if found[1] is None and found[2] > 60 else 1)
