"""Selection safety of `generate` where a search is cut off, asked for two rows, or led by what knows nothing of the draws.

*Terraces*: along one number the margin grows, but on each terrace another weight carries it, and a claim is true or false by
that weight alone. On all terraces but the last two the share of valid shifts is just below the coverage, and they come first,
since they are nearer: a search is offered many false rows, each with a fresh chance to look good. *Lines*: with as many inputs
as here, the default search can fit the draws it sees. Either way the true share has a closed form, and a claim that is
certified on draws which the search has seen is false far too often: `test_certified_on_what_was_searched_the_limit_would_be_exceeded` shows it.

Limits of time are kept by a clock that goes on by a random amount each time it is read, so that a search ends anywhere in it,
and the same on every machine; one test uses the real clock. At nominal failure 10 %, 300 repetitions may fail 51 times and
2,000 may fail 252 times. The confidence of `generate` is that of each row by itself: so it is for each of two rows of an input,
and for both together where the risk is divided between them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

import apas
from apas import Feature, FeatureSpace, FeedForward, LinfShifts, Sampling
from apas._random import Stream
from apas.counterfactuals.search import tests as judge
from apas.stats import simultaneous

COVERAGE, CONFIDENCE = 0.9, 0.9
#: How steep the margin is, and which part of a terrace leads to the next.
STEEP, RAMP = 16.0, 0.02


@dataclass(frozen=True)
class Terraces:
    """A network whose margin grows along the sum of its inputs, on each terrace by a weight of its own.

    Weight j of the last layer is 1, and moves by so much that it is at least 0 with probability ``shares[j]``: then rows
    between ``edges[j]`` and ``edges[j + 1]`` are valid. Nothing else moves.
    """

    edges: np.ndarray
    inputs: int = 1
    robust: int = 2

    @property
    def shares(self):
        false = np.linspace(0.898, 0.8995, len(self.edges) - 1 - self.robust)
        return np.concatenate([false, np.full(self.robust, 0.99)])

    @property
    def middles(self):
        return (self.edges[:-1] + self.edges[1:]) / 2

    @cached_property
    def knots(self):
        """Where the terraces begin and end, with ramps between them."""
        half = RAMP * np.diff(self.edges).min() / 2
        ends = np.column_stack([self.edges[:-1] + half, self.edges[1:] - half])
        ends[0, 0], ends[-1, 1] = self.edges[0], self.edges[-1]
        return ends.ravel()

    @cached_property
    def carried(self):
        """Which part of the margin each weight carries at the knots: all of it on its terrace, nothing on others."""
        owners = np.repeat(np.eye(len(self.shares)), 2, axis=1)
        return owners * STEEP * (self.knots - self.edges[0])

    @cached_property
    def network(self):
        """The network, its space and its shifts."""
        units, wide = len(self.shares), len(self.knots)
        slopes = np.diff(self.carried, axis=1) / np.diff(self.knots)
        first = np.tile(np.append(np.ones(wide - 1), -1.0), (self.inputs, 1))
        second = np.zeros((wide, units + 1))
        second[:-1, :units] = np.diff(slopes, axis=1, prepend=0).T
        second[-1, units] = 1.0  # how far it is to the first terrace
        last = np.append(np.ones(units), -STEEP)[:, None]
        biases = [np.append(-self.knots[:-1], self.edges[0]), np.zeros(units + 1), [0.0]]
        names = tuple("ab"[: self.inputs])
        net = FeedForward([first, second, last], biases, feature_names=names)
        reach = np.append(1 / (2 * self.shares - 1), 0.0)[:, None]
        scale = [reach if shape == last.shape else np.zeros(shape) for shape in net.parameters.shapes]
        return net, FeatureSpace([Feature(name, low=0.0, high=1.0) for name in names]), LinfShifts(scale=scale)

    def share(self, x):
        """The share of shifts on which a row is valid: it has one weight, and two on a ramp."""
        at = float(np.sum(x))
        carried = np.array([np.interp(at, self.knots, row) for row in self.carried])
        carried[-1] += STEEP * max(0.0, at - self.edges[-1])  # the last terrace has no end
        b, a = np.sort(carried / (2 * self.shares - 1))[-2:]
        if b < 1e-9 * a:
            return float(np.clip((1 + carried.sum() / a) / 2, 0, 1))
        corners = np.array([a + b, a - b, b - a, -a - b]) - carried.sum()  # the law of ``a u + b v`` is a trapezium
        return float(1 - np.maximum(corners, 0) ** 2 @ [1, -1, -1, 1] / (8 * a * b))


#: A line of many inputs whose parameters all move by normal amounts.
MANY, SPREAD = 6, 0.15
LINE = FeedForward([np.full((MANY, 1), 0.6)], [[-1.5]])
WIDE = FeatureSpace([Feature(f"x{i}", low=0.0, high=1.0) for i in range(MANY)])


def share_of_line(x):
    """The margin has the standard deviation ``SPREAD * |(x, 1)|``."""
    return float(norm.cdf(LINE.margin(x[None], 1)[0] / (SPREAD * np.sqrt((x**2).sum() + 1))))


class RandomClock:
    """Time that goes on by a random amount, 1 on average, whenever somebody looks."""

    def __init__(self, seed):
        self.rng, self.now = np.random.default_rng([seed, 5]), 0.0

    def __call__(self):
        self.now += self.rng.exponential()
        return self.now


@dataclass(frozen=True)
class Question:
    """What is asked of `generate`, how often a claim of each rank is true, and how many must be found at least.

    `limits` are options that depend on the repetition: given a generator of random numbers, what it is cut off by.
    """

    network: tuple[Any, ...]
    start: np.ndarray
    share: Callable[[np.ndarray], float]
    source: Any
    delta: float = 1.0
    samples: int = 116
    confidence: float = CONFIDENCE
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Callable[[np.random.Generator], dict[str, Any]] = lambda rng: {}
    found: float = 0.9
    cut: float = 0.0

    def asked(self, seed, **more):
        net, space, shifts = self.network
        method = Sampling(coverage=COVERAGE, confidence=self.confidence, n_samples=self.samples)
        options = {**self.options, **more}
        return apas.generate(
            net, self.start, self.delta, target=1, space=space, source=self.source, shifts=shifts, method=method, rng=seed,
            **options,
        )  # fmt: skip

    def counted(self, repetitions, patch):
        """How often each rank was found and false, any was false, and a search was cut off."""
        count = Counter()
        for seed in range(repetitions):
            limits = self.limits(np.random.default_rng([seed, 6]))
            with patch.context() as clock:
                if "time_limit" in limits:
                    clock.setattr(time, "monotonic", RandomClock(seed))
                answer = self.asked(seed, **limits)
            count.update(self.judged(answer))
        return count

    def judged(self, answer):
        """What there is to count of one answer."""
        count = Counter()
        for rank, item in enumerate(answer):
            assert not item.is_found or item.certificate.claim.confidence == self.confidence
            count["found", rank] = int(item.is_found)
            count["false", rank] = int(item.is_found and self.share(answer.numbers[rank]) < COVERAGE)
        count["false"] = int(any(count["false", rank] for rank in range(len(answer))))
        count["cut"] = int(answer[0].status == apas.Status.BUDGET)
        return count


ONE, BOTH = (Terraces(np.linspace(0.05, 0.25, 21), inputs) for inputs in (1, 2))
FEW = Terraces(np.linspace(0.05, 0.25, 13))
#: Here nothing is robust, so that whatever is found is false: confidence is a share of all calls.
BARREN = Terraces(np.linspace(0.05, 0.25, 21), robust=0)
#: Here terraces are narrow where Roar goes, for one radius after the other.
FAR = Terraces(np.array([0.05, *(a + i * 0.003 for a in (0.116, 0.236) for i in range(11)), 1.0]), robust=1)
#: One row on each terrace, and as many with the other input.
ALONG_ONE = {"background": ONE.middles[:, None]}
#: Where several are on the same terrace, one that looks good is followed by others: these searches test often.
ALONG_MANY = {"background": np.concatenate([ONE.middles + i / 1000 for i in range(-2, 3)])[:, None]}
ALONG_FEW = {"background": FEW.middles[:, None]}
ALONG_BOTH = {"background": np.concatenate([np.outer(BOTH.middles, row) for row in np.eye(2)])}
TERRACE = {"network": ONE.network, "start": np.array([[0.01]]), "share": ONE.share}
SHORT = {"network": FEW.network, "start": TERRACE["start"], "share": FEW.share, "source": "neighbours"}
PAIR = {"network": BOTH.network, "start": np.zeros((1, 2)), "share": BOTH.share}
LINES = {
    "network": (LINE, WIDE, "gaussian"), "start": np.full((1, MANY), 0.2), "share": share_of_line, "delta": SPREAD,
    "samples": 40, "source": "robust",
}  # fmt: skip
HALF = float(simultaneous(CONFIDENCE, 2))
PROBLEMS = {
    "prototype": Question(
        **TERRACE, source=apas.Prototype(step=0.04, last=0.93, iterations=60, rounds=1, neighbours=3), options=ALONG_ONE
    ),
    "roar": Question(
        FAR.network, TERRACE["start"], FAR.share, apas.Roar(samples=500),
        options={"background": np.linspace(0, 0.5, 20)[:, None]},
    ),
    "two": Question(**PAIR, source="neighbours", options={**ALONG_BOTH, "k": 2}),
    "two together": Question(**PAIR, source="neighbours", options={**ALONG_BOTH, "k": 2}, confidence=HALF),
    "two optima": Question(**LINES, options={"k": 2}),
    "time": Question(
        **SHORT, options=ALONG_FEW, found=0.3, cut=0.3, limits=lambda rng: {"time_limit": rng.uniform(1, 26)},
    ),
    "time of an optimum": Question(
        **LINES, found=0.3, cut=0.15, limits=lambda rng: {"time_limit": rng.uniform(1, 40)}
    ),
    "candidates": Question(
        **SHORT, options=ALONG_FEW, found=0.3, cut=0.3,
        limits=lambda rng: {"max_candidates": int(rng.integers(1, 22))},
    ),
    "many tests": Question(
        **TERRACE, source="neighbours", options=ALONG_MANY, found=0.3, cut=0.1,
        limits=lambda rng: {"max_candidates": int(rng.integers(60, 150))},
    ),
    "none robust": Question(
        BARREN.network, TERRACE["start"], BARREN.share, "neighbours", options=ALONG_ONE, found=0.01
    ),
}  # fmt: skip
#: These are quick enough for every run of the tests.
QUICK = [pytest.param(name, 300, 51) for name in ("time", "candidates")]
LONG = [pytest.param(name, 2000, 252, marks=pytest.mark.validity) for name in PROBLEMS]


@pytest.mark.parametrize(("terraces", "points"), [(ONE, [0.08, 0.24, 0.24995, 0.3]), (FAR, [0.12, 0.11901, 0.5])])
def test_the_closed_form_is_right(terraces, points):
    net, _, shifts = terraces.network
    directions = shifts.directions(net.parameters, Stream(0, "test"), 0, 40_000)
    drawn = (net.shifted_margins(np.array(points)[:, None], 1, directions, 1.0) >= 0).mean(axis=0)
    assert np.abs(drawn - [terraces.share(x) for x in points]).max() < 0.006


@pytest.mark.parametrize(("name", "repetitions", "most"), [*QUICK, *LONG])
def test_what_a_search_returns_is_rarely_false(name, repetitions, most, monkeypatch):
    question = PROBLEMS[name]
    count = question.counted(repetitions, monkeypatch)
    for rank in range(question.options.get("k", 1)):
        assert count["found", rank] >= question.found * repetitions
        assert count["false", rank] <= most
    assert count["cut"] >= question.cut * repetitions
    if name == "none robust":
        assert count["false"] == count["found", 0]
    if question.confidence > CONFIDENCE:  # the risk was divided
        assert count["false"] <= most


@pytest.mark.validity
def test_what_a_search_returns_within_real_time_is_rarely_false():
    """The limit follows the machine, so that about half of the searches are cut off on any; each of them somewhere else."""
    question, count, usual = PROBLEMS["time"], Counter(), 0.05
    for seed in range(2000):
        part = np.random.default_rng([seed, 6]).uniform(0.05, 2.0)
        count.update(found := question.judged(question.asked(seed, time_limit=usual * part)))
        usual *= 1.02 if found["cut"] else 1 / 1.02
    assert count["found", 0] >= 600
    assert count["cut"] >= 600
    assert count["false"] <= 252


@pytest.mark.validity
@pytest.mark.parametrize("name", PROBLEMS)
def test_certified_on_what_was_searched_the_limit_would_be_exceeded(name, monkeypatch):
    """What the tests above are for: the same searches, certified on the draws that they have seen."""
    stream, question = Stream, PROBLEMS[name]
    monkeypatch.setattr(judge, "Stream", lambda entropy, purpose: stream(entropy, "generate/search"))
    ranks = question.options.get("k", 1)
    repetitions = 100 if ranks == 1 else 300  # rank 1 may use half of the risk, so a leak shows less there
    count = question.counted(repetitions, monkeypatch)
    for rank in range(ranks):
        risk = (1 - question.confidence) / max(1, rank * (rank + 1))
        assert count["false", rank] > binom.ppf(0.999, repetitions, risk)


@pytest.mark.validity
def test_without_paying_for_tests_the_limit_would_be_exceeded(monkeypatch):
    """The same with fresh draws for each test, but the whole risk for each of them, too."""
    asked = judge.CertifyingTest.question
    monkeypatch.setattr(
        judge.CertifyingTest, "question", lambda self, *rows, tries=1, shifts=None: asked(self, *rows, shifts=shifts)
    )
    assert PROBLEMS["many tests"].counted(100, monkeypatch)["false"] > 15
