"""The no-contradiction sweep: random networks whose verdicts are attacked with draws, corners and a search.

Short in `make test`, long in `make validity`. Draws and forward passes are written here again, apart from the package.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

import apas
from apas import FeedForward, LinfShifts, Verdict
from apas.shifts.geometry import within_box
from apas.worst_case.attack import broken_radius
from apas.worst_case.exact_arithmetic import exact_sign

#: Factors on the delta at which pushing the units breaks a row: two well apart from it, three close by.
FACTORS = (0.5, 0.8, 0.95, 1.05, 1.5)
LIMIT = 10.0
LEAKY = 0.01


@dataclass(frozen=True)
class Question:
    """A network, rows that it puts into their class, and which parameters move."""

    net: FeedForward
    X: np.ndarray
    labels: list
    shifts: LinfShifts

    @property
    def wanted(self):
        return np.array([self.net.classes.index(label) for label in self.labels])

    @property
    def radii(self):
        return self.shifts.radii(self.net.parameters)


def random_question(seed, *, rows=20, units=50):
    """2 to 4 layers, at most `units` hidden units in all, inputs of both signs."""
    rng = np.random.default_rng([seed, 2024])
    hidden = int(rng.integers(1, 4))
    most = max(3, units // hidden)
    least = int(rng.choice([3, max(3, most // 2), most]))  # a third of them as large as they may be
    outputs = int(rng.choice([1, 1, 1, 2, 3]))
    sizes = [int(rng.integers(2, 11)), *rng.integers(least, most + 1, size=hidden).tolist(), outputs]
    activation = str(rng.choice(["relu"] * 7 + ["leaky_relu", "hard_tanh", "identity"]))
    weights = [rng.normal(size=s) * np.sqrt(2 / s[0]) for s in pairwise(sizes)]
    biases = [0.3 * rng.normal(size=s) for s in sizes[1:]]
    output = "softmax" if outputs > 1 else str(rng.choice(["sigmoid", "identity"]))
    threshold = 0.0 if output == "identity" else 0.5 if outputs > 2 else float(rng.choice([0.5, 0.4]))
    net = FeedForward(weights, biases, activation=activation, output=output, threshold=threshold)
    X = rng.normal(size=(8 * rows, sizes[0])) * float(rng.choice([1.0, 1.0, 3.0]))
    classes = np.array(net.classes)
    margins = np.array([net.margin(X, label) for label in net.classes])
    best = margins.argmax(axis=0)
    good = np.flatnonzero(margins[best, np.arange(len(X))] > 1e-6)[:rows]
    return Question(net, X[good], classes[best[good]].tolist(), random_shifts(rng, net))


def random_shifts(rng, net):
    kind = int(rng.integers(0, 8))
    if kind == 0:
        return LinfShifts(relative=True)
    if kind == 1:
        return LinfShifts(kinds=("weight",))
    if kind == 2:
        return LinfShifts(scale=rng.choice([0.0, 0.25, 1.0, 2.0], size=len(net.parameters), p=[0.3, 0.2, 0.4, 0.1]))
    if kind == 3:
        return LinfShifts(layers=[int(rng.integers(0, len(net.weights)))])
    return LinfShifts()


def spread_deltas(question, rng):
    """Shape (factors, rows), rising along the first axis: around the delta that is known to break each row."""
    rows = len(question.X)
    broken, _ = broken_radius(question.net, question.X, question.wanted, question.radii, np.zeros(rows), LIMIT)
    critical = np.where(np.isfinite(broken), broken, LIMIT)
    return np.array(FACTORS)[:, None] * critical * rng.uniform(0.98, 1.02, size=(len(FACTORS), rows))


@dataclass
class Tally:
    """What the sweep counted."""

    counts: Counter = field(default_factory=Counter)
    contradictions: list = field(default_factory=list)

    def add(self, other):
        self.counts += other.counts
        self.contradictions += other.contradictions

    @property
    def verdicts(self):
        return self.counts["CERTIFIED"] + self.counts["REFUTED"] + self.counts["UNKNOWN"]

    @property
    def unknown_share(self):
        return self.counts["UNKNOWN"] / max(1, self.verdicts)

    def to_json(self):
        return json.dumps({"verdicts": self.verdicts, **self.counts, "contradictions": self.contradictions})


def swept(seed, *, rows=20, units=50, draws=10_000, corners=1_000, time_limit=0.5, attack=None):
    """Verdicts of `Exact` about one random network, and every attempt to contradict them."""
    with threadpool_limits(1):
        return _swept(seed, rows, units, draws, corners, time_limit, attack or apas.Attack())


def _swept(seed, rows, units, draws, corners, time_limit, attack):
    question, rng, tally = random_question(seed, rows=rows, units=units), np.random.default_rng([seed, 7]), Tally()
    net, X, labels = question.net, question.X, question.labels
    deltas = spread_deltas(question, rng)
    options = {"target": labels, "shifts": question.shifts}
    method = apas.Exact(time_limit=time_limit)
    answers = [apas.certify(net, X, delta, method=method, **options) for delta in deltas]
    verdicts = np.array([[c.verdict.name for c in row] for row in answers])
    tally.counts.update(verdicts.ravel().tolist())
    tally.counts.update(f"step {c.evidence.step}" for row in answers for c in row)

    def contradict(what, factor, row):
        tally.contradictions.append([what, seed, factor, row, float(deltas[factor, row])])

    for row in range(len(X)):  # what holds for a box holds for every smaller one
        names = verdicts[:, row].tolist()
        if "REFUTED" in names and "CERTIFIED" in names[names.index("REFUTED") :]:
            contradict("not monotone", names.index("REFUTED"), row)
    for factor, answer in enumerate(answers):
        for row, certificate in enumerate(answer):
            refuted = certificate.verdict is Verdict.REFUTED
            if refuted != (certificate.witness is not None):
                contradict("witness and verdict", factor, row)
            elif refuted:
                thorough = (factor, row) == (3, 0)  # in rational arithmetic written here, for one of each network
                if not stands(question, row, float(deltas[factor, row]), certificate.witness, thorough=thorough):
                    contradict("witness does not stand", factor, row)
    factors, items = np.nonzero(verdicts == "CERTIFIED")
    for k in broken_by_draws(question, items, deltas[factors, items], draws, corners, rng):
        contradict("broken by a draw", int(factors[k]), int(items[k]))
    for factor, delta in enumerate(deltas):
        certified = np.flatnonzero(verdicts[factor] == "CERTIFIED")
        if len(certified):
            some = {**options, "target": [labels[i] for i in certified]}
            found = apas.certify(net, X[certified], delta[certified], method=attack, rng=seed, **some)
            for row, c in zip(certified.tolist(), found, strict=True):
                if c.verdict is Verdict.REFUTED:
                    contradict("broken by the attack", factor, row)
    return tally


def stands(question, row, delta, witness, *, thorough):
    """Whether a witness lies in the box and the row is not valid there, both without rounding."""
    net, radii, base = question.net, question.radii, question.net.parameters.values
    values = witness.parameters(net)
    if witness.delta != delta or not within_box(base, radii, delta, values).all():
        return False
    parts = tensors(net, values)
    wanted, strict = int(question.wanted[row]), is_strict(net, int(question.wanted[row]))
    sign = exact_sign(parts[::2], parts[1::2], net.activations, question.X[row], wanted, net.offset)
    fails = sign < 0 or (strict and sign == 0)
    if thorough:
        fails = fails and inside_exactly(base, radii, delta, values)
        margin = rational_margin(net, values, question.X[row], wanted)
        fails = fails and (margin < 0 or (strict and margin == 0)) and (margin > 0) - (margin < 0) == sign
    return fails


def is_strict(net, wanted):
    """Whether a margin of 0 is not valid: only class 1 of a binary model may tie."""
    return not (len(net.classes) == 2 and wanted == 1)


def tensors(net, values):
    return [values[p].reshape(s) for p, s in zip(net.parameters.slices, net.parameters.shapes, strict=True)]


def inside_exactly(base, radii, delta, values):
    triples = zip(base.tolist(), np.broadcast_to(radii, base.shape).tolist(), values.tolist(), strict=True)
    return all(abs(Fraction(v) - Fraction(b)) <= Fraction(delta) * Fraction(r) for b, r, v in triples)


def rational_margin(net, values, x, wanted):
    """The margin of a shifted network, in fractions."""
    parts, a = tensors(net, values), [Fraction(v) for v in x.tolist()]
    for i, (w, b) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        columns = w.T.tolist()
        a = [
            sum((p * Fraction(q) for p, q in zip(a, column, strict=True)), Fraction(c))
            for column, c in zip(columns, b.tolist(), strict=True)
        ]
        if i < len(net.activations):
            a = [_rational(net.activations[i], z) for z in a]
    if len(a) > 2:
        return a[wanted] - max(v for j, v in enumerate(a) if j != wanted)
    score = (a[0] if len(a) == 1 else a[1] - a[0]) - Fraction(net.offset)
    return score if wanted == 1 else -score


def _rational(name, z):
    if name == "relu":
        return max(z, Fraction(0))
    if name == "leaky_relu":
        return z if z > 0 else z * Fraction(LEAKY)
    if name == "hard_tanh":
        return max(Fraction(-1), min(Fraction(1), z))
    assert name == "identity"
    return z


def broken_by_draws(question, items, deltas, draws, corners, rng, *, block=500):
    """Which of the (row, delta) items some draw or corner breaks; single precision first, then exactly."""
    net, radii = question.net, question.radii
    broken = set()
    if not len(items):
        return broken
    for start in range(0, draws + corners, block):
        count = min(block, draws + corners - start)
        # 24 random bits each, so that single precision holds them
        unit = (rng.integers(-(2**23), 2**23 + 1, size=(count, len(radii)), dtype=np.int32) * 2.0**-23).astype(
            np.float32
        )
        edges = start + np.arange(count) >= draws
        unit[edges] = np.where(unit[edges] < 0, -1, 1)
        margins = _batched_margins(question, items, deltas, unit)
        for draw, item in np.argwhere(~(margins > _doubt(question, items, deltas))).tolist():
            values = net.parameters.values + deltas[item] * radii * unit[draw].astype(float)
            sign_of = tensors(net, values)
            wanted = int(question.wanted[items[item]])
            x = question.X[items[item]]
            sign = exact_sign(sign_of[::2], sign_of[1::2], net.activations, x, wanted, net.offset)
            # the rounded shift may leave the box by a last bit; a margin that is clearly negative cannot come from that
            if sign < 0 and net.with_parameters(values).margin(x[None, :], net.classes[wanted])[0] < -1e-12:
                broken.add(item)
    return sorted(broken)


def _doubt(question, items, deltas):
    """Single-precision margins above this are certainly positive."""
    scale = question.net.margin_scale(question.X[items], question.radii, np.asarray(deltas))
    return (2.0**-17 * scale).astype(np.float32)


def _batched_margins(question, items, deltas, unit):
    """Shape (draws, items), in single precision."""
    net, radii = question.net, question.radii.astype(np.float32)
    parts, moves = tensors(net, net.parameters.values.astype(np.float32)), unit * radii
    size = deltas.astype(np.float32)[None, :, None]
    a = question.X.astype(np.float32)[None]
    for i in range(len(net.weights)):
        (w_part, b_part), (w_shape, _) = (
            net.parameters.slices[2 * i : 2 * i + 2],
            net.parameters.shapes[2 * i : 2 * i + 2],
        )
        w, b = parts[2 * i], parts[2 * i + 1]
        pushed = a @ moves[:, w_part].reshape(len(unit), *w_shape) + moves[:, None, b_part]
        z = a @ w + b
        if i == 0:  # rows until here, (row, delta) items from here on
            pushed, z = pushed[:, items], z[:, items]
        z = z + size * pushed
        a = _single(net.activations[i], z) if i < len(net.activations) else z
    wanted = question.wanted[items]
    if a.shape[2] > 2:
        own = np.take_along_axis(a, wanted[None, :, None], axis=2)[:, :, 0]
        others = np.where(np.arange(a.shape[2]) == wanted[None, :, None], -np.inf, a).max(axis=2)
        return own - others
    score = (a[:, :, 0] if a.shape[2] == 1 else a[:, :, 1] - a[:, :, 0]) - np.float32(net.offset)
    return np.where(wanted == 1, score, -score)


def _single(name, z):
    if name == "relu":
        return np.maximum(z, 0)
    if name == "leaky_relu":
        return np.maximum(z, np.float32(LEAKY) * z)
    return np.clip(z, -1, 1) if name == "hard_tanh" else z


def on_the_boundary(network, rng, count, scale):
    """Float32 rows of a size whose margin towards class 1 is barely above 0 in float64; none if there is one class."""
    X = rng.normal(size=(4000, network.n_features)) * scale
    margins = network.margin(X, 1)
    inside, outside = X[margins > 0][: 4 * count], X[margins < 0]
    if not len(inside) or not len(outside):
        return np.empty((0, network.n_features))
    outside = outside[rng.integers(len(outside), size=len(inside))]
    for _ in range(80):
        middle = 0.5 * (inside + outside)
        good = (network.margin(middle, 1) > 0)[:, None]
        inside, outside = np.where(good, middle, inside), np.where(good, outside, middle)
    rows = inside.astype(np.float32).astype(np.float64)
    return rows[network.margin(rows, 1) > 0][:count]
