"""Certificates that are certain: verdicts of every kind, bounds that enclose what is known, witnesses inside the set."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from conftest import shared_folder
from problems import CASES, case, network

import apas
from apas import FeedForward, InputError, LinfShifts, Unsupported, Verdict
from apas.certification.claims import Every, Most
from apas.certification.methods import enumeration
from apas.certification.methods.enumeration import Enumeration
from apas.certification.question import Question
from apas.display.progress import Progress
from apas.shifts.geometry import within_box
from apas.worst_case.enumeration import splitting
from apas.worst_case.exact_arithmetic import exact_sign


def ask(known, coverage=1.0, **options):
    method = Enumeration(coverage=coverage, **options)
    return apas.certify(known.model, known.X, known.delta, target=known.target, shifts=known.shifts, method=method)[0]


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
def test_every_on_known_problems(known):
    answer = ask(known)
    assert answer.claim == Every(known.shifts.region(known.model.parameters))
    assert answer.verdict is (Verdict.CERTIFIED if known.every else Verdict.REFUTED)
    assert answer.evidence.draws == answer.evidence.failures == 0
    if known.every:
        assert (answer.evidence.lower, answer.evidence.upper, answer.witness) == (1.0, 1.0, None)
        assert "every one of the shifts keep" in answer.sentence()
    else:
        assert answer.witness.margin(known.model, known.X, known.target) <= 0
        assert answer.reason == "a failing shift was found after looking at 1 box"


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("aside", [-0.03, 0.03])
def test_most_on_known_problems(known, aside):
    coverage = known.share + aside
    if not 0 < coverage < 1:
        coverage = 0.9999
    answer = ask(known, coverage, gap=0.001)
    assert answer.claim == Most(coverage, 1.0, known.shifts.measure(known.model.parameters))
    assert answer.verdict is (Verdict.CERTIFIED if known.share >= coverage else Verdict.REFUTED)
    assert answer.evidence.lower - 1e-12 <= known.share <= answer.evidence.upper + 1e-12
    subject = "at least" if answer.is_certified else "fewer than"
    assert answer.sentence().startswith(f"{answer.verdict}: for certain, {subject} ")
    assert "confidence" not in answer.sentence()
    if answer.verdict is Verdict.REFUTED:
        assert answer.witness.margin(known.model, known.X, known.target) <= 0


def test_unknown_when_the_boxes_run_out():
    net = network((2, 3, 1), "sigmoid", "relu", 2)
    rows = np.array([[0.7, -1.2]])
    answers = {}
    for coverage, limit in ((0.8, 5), (0.7, 2000), (0.9, 2000)):
        method = Enumeration(coverage=coverage, max_boxes=limit)
        answers[coverage] = apas.certify(net, rows, 0.45, target="predicted", method=method)[0]
    assert answers[0.8].verdict is Verdict.UNKNOWN
    assert answers[0.8].evidence.stopped == "limit"
    assert answers[0.8].evidence.evaluated <= 5
    assert answers[0.8].reason.endswith("from looking at 5 boxes; the limit of boxes was reached")
    assert answers[0.7].verdict is Verdict.CERTIFIED
    assert answers[0.9].verdict is Verdict.REFUTED


def test_unknown_when_the_gap_is_reached():
    known = case("relative-wide")  # the share is 0.9 itself: no bounds decide this
    answer = ask(known, 0.9)
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.evidence.stopped == "gap"
    assert answer.reason.endswith("; that is as close as was asked for")


def test_unknown_about_every_within_rounding_of_the_boundary():
    # a dead unit: the margin is exactly 0, which counts as valid for class 1, but float64 cannot prove it
    net = FeedForward([[[-5.0]], [[1.0]]], [[0.0], [0.0]])
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    answer = apas.certify(net, [[1.0]], 0.5, target=1, shifts=shifts, method=Enumeration())[0]
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.reason.endswith("cannot be told from the boundary in float64")


def test_coverage_is_compared_exactly():
    """A share of exactly one half: at least one half, and not at least the next float64 number."""
    net = FeedForward([[[0.0]]], [[0.0]], output="identity", threshold=0.0)
    problem_rows, shifts = [[1.0]], LinfShifts(layers=[0], kinds=("weight",))
    upper = float(np.nextafter(0.5, 1.0))
    found = replace_split(0.5)
    for coverage, verdict in ((0.5, Verdict.CERTIFIED), (upper, Verdict.REFUTED)):
        method = Enumeration(coverage=coverage)
        question = problem_of(net, problem_rows, shifts)
        answer = method._certificate(question, 0, method.claim(question), found, None)
        assert answer.verdict is verdict
    # an upper bound equal to the coverage leaves it possible
    answer = Enumeration(coverage=0.5)._certificate(
        question, 0, method.claim(question), replace(found, lower=Fraction(0)), None
    )
    assert answer.verdict is Verdict.UNKNOWN


def problem_of(net, rows, shifts, delta=1.0):
    target = np.array([1] * len(rows), dtype=object)
    return Question(net, np.array(rows), target, np.full(len(rows), delta), shifts)


def replace_split(share):
    box = splitting.ShiftBox(FeedForward([[[0.0]]], [[0.0]]), np.array([1.0]), 1, np.array([1.0, 0.0]), 1.0)
    found = splitting.split(box, gap=Fraction(1, 2), max_boxes=1)
    return replace(found, lower=Fraction(share), upper=Fraction(share))


@pytest.mark.parametrize("sizes", [(4, 6, 1), (4, 6, 5, 1), (3, 5, 4, 3)])
def test_witnesses_of_networks_lie_inside(sizes):
    """Refuted at twice the largest delta that sampling certifies, with a shift inside the set without tolerance."""
    net = network(sizes, "softmax" if sizes[-1] > 1 else "sigmoid", "relu", 1)
    rows = np.random.default_rng(0).normal(size=(4, sizes[0]))
    delta = 2 * apas.max_shift(net, rows, target="predicted", rng=0).deltas
    answers = apas.certify(net, rows, delta, target="predicted", method=Enumeration(max_boxes=2000))
    base = net.parameters
    for i, answer in enumerate(answers):
        assert answer.verdict is Verdict.REFUTED
        values = answer.witness.parameters(net)
        assert within_box(base.values, np.ones(len(base)), delta[i], values).all()
        assert net.with_parameters(values).margin(rows[i : i + 1], answer.target)[0] <= 0


@pytest.mark.parametrize("sizes", [(4, 6, 1), (4, 4, 3, 1)])
def test_every_below_the_proved_delta(sizes):
    net = network(sizes, "sigmoid", "tanh", 3)
    rows = np.random.default_rng(0).normal(size=(3, 4))
    proved = apas.max_shift(net, rows, target="predicted", method="interval").deltas
    answers = apas.certify(net, rows, 0.999 * proved, target="predicted", method=Enumeration(max_boxes=100))
    assert answers.certified.all()
    for answer in answers:
        low, high, status = answer.evidence.boxes()
        assert (status == 1).all()
        volume = np.prod((high - low) / (2 * answer.delta), axis=1)
        assert volume.sum() == pytest.approx(1.0)


def test_deep_networks_between_proof_and_failure():
    """Where interval bounds prove nothing for the whole box, halves of it can be proved."""
    net = FeedForward([[[1.0, -1.0]], [[1.0, 0.5], [1.0, 1.0]], [[1.0], [-0.4]]], [[0.5, 1.0], [0.0, 0.0], [0.3]])
    rows, shifts = [[0.4]], LinfShifts(layers=[0, 1], kinds=("weight",))
    proved = apas.max_shift(net, rows, target=1, shifts=shifts, method="interval").deltas[0]
    answer = apas.certify(net, rows, 1.1 * proved, target=1, shifts=shifts, method=Enumeration(max_boxes=10_000))[0]
    assert answer.verdict is Verdict.CERTIFIED
    assert answer.evidence.evaluated > 1
    directions = np.random.default_rng(0).choice([-1.0, 1.0], size=(4096, len(net.parameters)))
    directions *= shifts.radii(net.parameters)
    assert (net.shifted_margins(np.array(rows), 1, directions, 1.1 * proved) >= 0).all()


def test_toy():
    """The paper's toy network: bounds enclose the share of 10 million draws, at least 0.9 with a handful of boxes."""
    toy = json.loads((shared_folder("oracle") / "toy.json").read_text())
    net = FeedForward(toy["network"]["weights"], toy["network"]["biases"])
    shifts = LinfShifts(kinds=("weight",))
    rng, valid = np.random.default_rng(5), 0
    (w1, w2), (v1, v2) = np.array(toy["network"]["weights"][0])[0], np.array(toy["network"]["weights"][1])[:, 0]
    for _ in range(10):
        u = rng.uniform(-0.115, 0.115, size=(4, 1_000_000))
        z1, z2 = (np.maximum((w + d) * toy["x"][0], 0) for w, d in zip((w1, w2), u[:2], strict=True))
        valid += int(((v1 + u[2]) * z1 + (v2 + u[3]) * z2 >= 0).sum())
    for coverage, gap in ((0.9, 0.01), (0.99999, 1e-4)):
        method = Enumeration(coverage=coverage, gap=gap)
        answer = apas.certify(net, [toy["x"]], 0.115, target=1, shifts=shifts, method=method)[0]
        assert answer.evidence.lower >= 0.9
        assert answer.evidence.evaluated < 1000
        assert answer.evidence.lower <= valid / 10_000_000 <= answer.evidence.upper


def test_agrees_with_sampling():
    """What is certain encloses what a hundred thousand draws say, on networks of several kinds."""
    for seed, (sizes, activation) in enumerate([((2, 3, 1), "relu"), ((2, 2, 2, 1), "tanh"), ((2, 3, 3), "gelu")]):
        net = network(sizes, "softmax" if sizes[-1] > 1 else "sigmoid", activation, seed)
        rows = np.random.default_rng(seed).normal(size=(3, 2))
        labels = [net.classes[int(i)] for i in best_classes(net, rows)]
        method = Enumeration(coverage=0.9999, gap=0.05, max_boxes=4000)
        answers = apas.certify(net, rows, 0.4, target=labels, method=method)
        directions = np.random.default_rng(9).uniform(-1, 1, size=(100_000, len(net.parameters)))
        shares = (net.shifted_margins(rows, labels, directions, 0.4) > 0).mean(axis=0)
        for answer, share in zip(answers, shares, strict=True):
            assert answer.evidence.lower - 0.008 < share < answer.evidence.upper + 0.008


def best_classes(net, rows):
    return np.argmax([net.margin(rows, label) for label in net.classes], axis=0)


def test_rows_do_not_depend_on_each_other_or_on_workers():
    net = network((3, 4, 1), "sigmoid", "relu", 0)
    rows = np.random.default_rng(0).normal(size=(5, 3))
    method = Enumeration(coverage=0.8, max_boxes=500)
    together = apas.certify(net, rows, 0.3, target="predicted", method=method)
    in_parallel = apas.certify(net, rows, 0.3, target="predicted", method=method, n_jobs=2)
    backwards = apas.certify(net, rows[::-1], 0.3, target="predicted", method=method)
    alone = [apas.certify(net, rows[i : i + 1], 0.3, target="predicted", method=method)[0] for i in range(5)]
    assert list(together) == list(in_parallel) == list(backwards)[::-1] == alone
    assert len({c.verdict for c in together}) > 1


def test_a_row_that_is_not_valid_is_refuted_at_once():
    known = case("bias-some")
    answer = apas.certify(known.model, known.X, 0.1, target=0, method=Enumeration(coverage=0.5))[0]
    assert (answer.verdict, answer.reason) == (Verdict.REFUTED, "not valid on the model itself")


def test_evidence():
    answer = ask(case("two-weights"), 0.93, gap=0.001)
    evidence = answer.evidence
    low, high, status = evidence.boxes()
    assert low.shape == high.shape == (len(status), 3)
    assert set(status.tolist()) == {-1, 1}
    assert evidence.coverage_lower(0.999) == evidence.lower <= evidence.upper == evidence.coverage_upper(0.5)
    values = json.loads(json.dumps(evidence.to_dict()))
    assert values == {
        "kind": "enumeration", "lower": evidence.lower, "upper": evidence.upper, "evaluated": evidence.evaluated,
        "open": evidence.open, "stopped": evidence.stopped,
    }  # fmt: skip
    assert evidence == ask(case("two-weights"), 0.93, gap=0.001).evidence
    assert "split" not in repr(evidence)


def test_simultaneous_costs_nothing():
    known = case("two-weights")
    rows = np.repeat(known.X, 3, axis=0)
    answers = apas.certify(
        known.model, rows, 0.8, target=1, shifts=known.shifts, method=Enumeration(coverage=0.9), simultaneous=True
    )
    assert answers.certified.all()
    assert answers[0].claim.rows == 3
    assert answers[0].claim.row_confidence == 1
    assert str(answers[0].claim) == "at least 90 % of the shifts, for certain"
    assert answers.to_frame()["confidence"].tolist() == [1.0] * 3


def test_plot():
    pytest.importorskip("matplotlib").use("Agg")
    known = case("two-weights")
    rows = np.vstack([known.X, [[-1.0, -1.0]]])
    for method in (Enumeration(coverage=0.95), Enumeration()):
        answers = apas.certify(known.model, rows, 0.8, target=1, shifts=known.shifts, method=method)
        lines = answers.plot().lines
        bars = [line.get_ydata() for line in lines if line.get_linestyle() == "-" and len(line.get_ydata()) == 2]
        assert [tuple(bar) for bar in bars] == [(answers[0].evidence.lower, answers[0].evidence.upper)]
        # the other row is not valid on the model itself: a dotted line instead of bounds that nobody computed
        assert [set(line.get_xdata()) for line in lines if line.get_linestyle() == ":"] == [{1}]


def test_progress(monkeypatch):
    counted = []

    class Counting(Progress):
        def advance(self, steps):
            super().advance(steps)
            counted.append(steps)

    monkeypatch.setattr(enumeration, "Progress", Counting)
    net = network((3, 4, 1), "sigmoid", "relu", 0)
    rows = np.random.default_rng(0).normal(size=(2, 3))
    apas.certify(net, rows, 0.3, target="predicted", method=Enumeration(coverage=0.8, max_boxes=500))
    assert sum(counted) == 2 * 500
    assert len(counted) > 4


@pytest.mark.parametrize("known", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("coverage", [1.0, 0.9])
def test_precision_on_known_problems(known, coverage):
    """The volumes enclose the known share, to the precision, and the verdict is the one without it."""
    answer, plain = ask(known, coverage, precision=0.01), ask(known, coverage)
    robust, non_robust, undecided = answer.evidence.volumes
    assert robust + non_robust + undecided == 1
    assert undecided < Fraction(1, 100)
    assert answer.evidence.stopped == ("precision" if undecided else "settled")
    assert robust <= Fraction(known.share) + Fraction(1, 10**12)
    assert 1 - non_robust >= Fraction(known.share) - Fraction(1, 10**12)
    assert robust <= Fraction(answer.evidence.lower) <= Fraction(answer.evidence.upper) <= 1 - non_robust
    assert answer.verdict is plain.verdict
    assert [parts.volume for parts in answer.evidence.networks] == [robust, non_robust, undecided]
    assert repr(kept := answer.evidence.networks.robust) == f"<IntervalNetworks: {len(kept)} parts, volume {robust}>"
    assert [len(parts) for parts in answer.evidence.networks][2] == answer.evidence.open
    assert plain.evidence.volumes is None


@pytest.mark.parametrize(("margin", "precision"), [(0.3, 0.1), (0.3, 0.001), (0.1, 1e-9)])
def test_one_parameter_in_closed_form(margin, precision):
    """A moving bias fails below one place of its interval: all but the part around that place is settled, exactly."""
    net, delta = FeedForward([[[0.0]]], [[margin]]), 0.7
    method, shifts = Enumeration(precision=precision), LinfShifts(kinds=("bias",))
    evidence = apas.certify(net, [[1.0]], delta, target=1, shifts=shifts, method=method)[0].evidence
    place = (1 - Fraction(margin) / Fraction(delta)) / 2  # of a valid share of 1 - place; no multiple of a power of 1/2
    width = evidence.volumes.undecided
    assert evidence.open == 1
    assert width < Fraction(repr(precision))
    assert width.numerator == 1
    assert evidence.volumes.non_robust == place // width * width
    assert evidence.volumes.robust == 1 - (place // width + 1) * width
    (last,) = evidence.networks.undecided
    assert (Fraction(last.start[1]), Fraction(last.width[1])) == (evidence.volumes.non_robust, width)


def test_precision_against_a_grid():
    """Two weights of a hidden layer move: every cell of a fine grid lies in a part that says what the network says."""
    net = FeedForward([[[1.0, -1.0]], [[1.0], [1.0]]], [[0.2, 0.3], [-0.9]])
    shifts = LinfShifts(layers=[0], kinds=("weight",))
    answer = apas.certify(net, [[0.8]], 0.9, target=1, shifts=shifts, method=Enumeration(coverage=0.5, precision=0.02))[
        0
    ]
    evidence, cells = answer.evidence, (np.arange(256) + 0.5) / 256
    base = net.parameters.values
    moves = np.zeros((256 * 256, len(base)))
    moves[:, :2] = 0.9 * (2 * np.array(list(itertools.product(cells, cells))) - 1)
    valid = (net.shifted_margins(np.array([[0.8]]), 1, moves, 1.0)[:, 0] >= 0).reshape(256, 256)
    met = np.zeros((256, 256), dtype=int)
    for state, parts in zip((True, False, None), evidence.networks, strict=True):
        for part in parts:
            box = tuple(
                slice(round(s * 256), round((s + w) * 256)) for s, w in zip(part.start[:2], part.width[:2], strict=True)
            )
            assert state is None or (valid[box] == state).all()
            met[box] += 1
    assert (met == 1).all()  # no part is thinner than a cell
    assert float(evidence.volumes.robust) <= valid.mean() <= 1 - float(evidence.volumes.non_robust)
    assert len(evidence.networks.robust) > 10
    assert len(evidence.networks.non_robust) > 10


@pytest.mark.parametrize(
    ("sizes", "activation", "seed", "delta"),
    [((2, 2, 1), "relu", 3, 0.8), ((1, 2, 2, 1), "leaky_relu", 2, 0.4), ((2, 3), "relu", 0, 0.4)],
)
def test_random_networks_of_each_part_are_what_it_says(sizes, activation, seed, delta):
    """In rational arithmetic; and every network of the box lies in one part, or in several at a face."""
    net = network(sizes, "softmax" if sizes[-1] > 1 else "sigmoid", activation, seed)
    x = np.array([0.7, -1.2])[: sizes[0]]
    answer = apas.certify(net, [x], delta, target="predicted", method=Enumeration(precision=0.3, max_boxes=3000))[0]
    networks, rng, k = answer.evidence.networks, np.random.default_rng(0), len(net.parameters)
    wanted = net.classes.index(answer.target)
    signs = {0: {1}, 1: {-1}, 2: {-1, 0, 1}}
    for kind, parts in enumerate(networks):
        assert len(parts) > 0
        for i in rng.integers(len(parts), size=10).tolist():
            for t in [*rng.uniform(size=(4, k)), *rng.integers(0, 2, (4, k))]:
                model = parts[i].realization(t)
                assert parts[i].contains(model)
                found = exact_sign(model.weights, model.biases, model.activations, x, wanted, model.offset)
                assert found in signs[kind]
    few = apas.certify(net, [x], delta, target="predicted", method=Enumeration(precision=1e-6, max_boxes=200))[0]
    everything = [part for parts in few.evidence.networks for part in parts]
    assert sum(part.volume for part in everything) == 1
    for t in rng.uniform(size=(20, k)):
        model = few.evidence.whole.realization(t)
        assert sum(part.contains(model) for part in everything) == 1


def test_precision_goes_on_after_the_verdict():
    known = case("two-weights")
    early, late = ask(known, 0.5), ask(known, 0.5, precision=0.001)
    assert early.verdict is late.verdict is Verdict.CERTIFIED
    assert late.evidence.evaluated > 50 * early.evidence.evaluated
    every = ask(known, precision=0.02)
    assert every.verdict is Verdict.REFUTED
    assert every.witness.margin(known.model, known.X, known.target) <= 0
    assert every.reason.startswith("a failing shift was found; 0.92")
    assert "or less undecided, from looking at" in every.reason
    cut = ask(known, precision=1e-9, max_boxes=50)
    assert (cut.verdict, cut.evidence.stopped) == (Verdict.REFUTED, "limit")
    assert cut.evidence.evaluated <= 50
    assert cut.reason.endswith("the limit of boxes was reached")


def test_a_failing_shift_in_a_corner_is_found_on_the_way():
    """The failing share is far below the precision: no part is settled as failing, and yet the row is refuted."""
    known = case("two-weights")
    answer = apas.certify(
        known.model, known.X, 0.5001, target=1, shifts=known.shifts, method=Enumeration(precision=0.1)
    )[0]
    assert (answer.verdict, answer.evidence.volumes.non_robust) == (Verdict.REFUTED, 0)
    assert answer.witness.margin(known.model, known.X, 1) <= 0


def test_parts_are_made_when_they_are_asked_for():
    parts = ask(case("two-weights"), precision=0.001).evidence.networks.robust
    assert len(parts) > 1024  # more than are located together
    listed = list(parts)
    assert len(listed) == len(parts)
    for i in (0, 1023, 1024, len(parts) - 1, -1):
        assert parts[i].start.tolist() == listed[i].start.tolist()
        assert parts[i].width.tolist() == listed[i].width.tolist()
    assert parts[2:5].volume == sum(part.volume for part in listed[2:5])
    assert parts.volume == sum(part.volume for part in listed)
    with pytest.raises(IndexError):
        parts[len(parts)]


def test_workers_give_the_same_parts():
    net, rows = network((2, 2, 1), "sigmoid", "relu", 0), np.random.default_rng(0).normal(size=(3, 2))
    method = Enumeration(precision=0.2, max_boxes=800)
    alone, shared = (apas.certify(net, rows, 0.4, target="predicted", method=method, n_jobs=n) for n in (1, 2))
    assert list(alone) == list(shared)
    for one, other in zip(alone, shared, strict=True):
        assert [p.low.tolist() for p in one.evidence.networks.robust[:5]] == [
            p.low.tolist() for p in other.evidence.networks.robust[:5]
        ]


class Clock:
    """A clock that is a second later each time somebody looks."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


WEIGHTS = LinfShifts(layers=[0, 1], kinds=("weight",))
#: A deep network that keeps the row, as no few boxes prove.
DEEP = FeedForward([[[1.0, -1.0]], [[1.0, 0.5], [1.0, 1.0]], [[1.0], [-0.4]]], [[0.5, 1.0], [0.0, 0.0], [0.3]])


@pytest.mark.parametrize(
    ("net", "x", "target", "delta", "shifts", "options"),
    [
        (network((2, 3, 1), "sigmoid", "relu", 2), [0.7, -1.2], 0, 0.45, LinfShifts(), {"coverage": 0.8}),
        (DEEP, [0.4], 1, 0.6, WEIGHTS, {}),
        (network((2, 3, 1), "sigmoid", "relu", 2), [0.7, -1.2], 0, 0.45, LinfShifts(), {"precision": 1e-9}),
    ],
    ids=["most", "every", "precision"],
)
def test_the_time_limit_ends_the_search(monkeypatch, net, x, target, delta, shifts, options):
    """What is known by then is true, and says that time ended it; more time knows more."""
    directions = shifts.radii(net.parameters) * np.random.default_rng(0).uniform(-1, 1, (50_000, len(net.parameters)))
    share = (net.shifted_margins(np.array([x]), target, directions, delta) >= 0).mean()
    answers = []
    for seconds in (0, 2, 4):
        monkeypatch.setattr(time, "monotonic", Clock())
        method = Enumeration(gap=1e-9, time_limit=seconds, **options)
        answers.append(apas.certify(net, [x], delta, target=target, shifts=shifts, method=method)[0])
        monkeypatch.undo()
        assert answers[-1].evidence.stopped == "time"
        assert answers[-1].reason.endswith(f"; the time limit of {seconds} s ended it")
        assert answers[-1].evidence.lower - 0.01 <= share <= answers[-1].evidence.upper + 0.01
    assert {answer.verdict for answer in answers} == {Verdict.REFUTED if "precision" in options else Verdict.UNKNOWN}
    evaluated = [answer.evidence.evaluated for answer in answers]
    assert evaluated[0] == 1
    assert evaluated == sorted(set(evaluated))


def test_a_time_limit_takes_no_answer_away():
    """A claim that the first box decides is decided without any time."""
    for coverage, verdict in ((1.0, Verdict.CERTIFIED), (0.9, Verdict.CERTIFIED)):
        assert ask(case("bias-all"), coverage, time_limit=0).verdict is verdict
    assert ask(case("bias-some"), time_limit=0).verdict is Verdict.REFUTED
    slow, fast = ask(case("two-weights"), 0.93, gap=0.001), ask(case("two-weights"), 0.93, gap=0.001, time_limit=1e6)
    assert slow == fast


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 0.0}, "`coverage` of Enumeration must be a number above 0 and at most 1, got 0.0; 1 asks about"),
        ({"coverage": 1.5}, "must be a number above 0 and at most 1, got 1.5"),
        ({"coverage": float("nan")}, "must be a number above 0 and at most 1, got nan"),
        ({"coverage": True}, "must be a number above 0 and at most 1, got True"),
        ({"coverage": "0.9"}, "must be a number above 0 and at most 1, got '0.9'"),
        ({"coverage": None}, "must be a number above 0 and at most 1, got None"),
        ({"gap": 0.0}, "`gap` of Enumeration must be a number strictly between 0 and 1, got 0.0"),
        ({"gap": -1}, "`gap` of Enumeration must be"),
        ({"max_boxes": 0}, "`max_boxes` of Enumeration must be an integer of at least 1, got 0"),
        ({"max_boxes": 1e6}, "`max_boxes` of Enumeration must be an integer"),
        ({"precision": 0}, "`precision` of Enumeration must be a number strictly between 0 and 1, got 0"),
        ({"precision": 1.0}, "`precision` of Enumeration must be"),
        ({"time_limit": -1}, "`time_limit` of Enumeration must be a number of at least 0, got -1"),
        ({"time_limit": "5"}, "`time_limit` of Enumeration must be a number of at least 0, got '5'"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        Enumeration(**options)


def test_settings():
    assert Enumeration(coverage=1) == Enumeration() == Enumeration(coverage=np.float64(1.0))
    with pytest.raises(TypeError):
        Enumeration(0.9)


class Other:
    """A shift set that is no box."""

    directions = margins = radii = contains = measure = to_dict = region = lambda self, *a: None


def test_unsupported_shifts_and_models():
    net = network((3, 4, 1), "sigmoid", "relu", 0)
    with pytest.raises(Unsupported, match=r"`shifts` must be LinfShifts\(...\), got Other"):
        apas.certify(net, [[1.0, 2.0, 3.0]], 0.1, target=1, shifts=Other(), method=Enumeration())
    with pytest.raises(
        Unsupported, match='Enumeration needs a dense network, but Opaque cannot be .* use method="sampling"'
    ):
        apas.certify(Opaque(net), [[1.0, 2.0, 3.0]], 0.1, target=1, method=Enumeration())


class Opaque:
    """A model that says nothing about its inside."""

    def __init__(self, net):
        self.net, self.classes, self.n_features, self.parameters = net, net.classes, net.n_features, net.parameters

    def margin(self, X, target):
        return self.net.margin(X, target)

    def shifted_margins(self, X, target, directions, delta):
        return self.net.shifted_margins(X, target, directions, delta)
