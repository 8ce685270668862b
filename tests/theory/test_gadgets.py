"""The paper's gadgets and lemmas, held against brute force that knows nothing of interval networks."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as F

import numpy as np
import pytest
from formulas import all_formulas

import apas
from apas import InputError
from apas.theory import Answer, Formula, PaperGadgets, distinct_realizations, paper_reduction
from apas.theory.gadgets import HALF, JUST_0, JUST_1, ONE, UNIT, ZERO, network

DELTAS = [F(1, 16), F(1, 100), F(79, 1000)]


def relu(z):
    return max(z, 0)


# The gadgets as the paper's text has them, with all moving parameters in the order of the interval networks.
def generating(x, p):
    return relu(p[2] * relu(p[1] * relu(p[0] * x)))


def discretizer(chi, p):
    u = relu(p[0] * chi + p[1])
    first, second = relu(p[2] * u + p[4] * chi), relu(p[3] * u + p[5] * chi)
    return relu(p[6] * first + p[7] * second)


def negation(chi, p):
    return relu(p[0] * chi + p[1])


def clause(a, b, c, p):
    return relu(p[4] * relu(p[0] * a + p[1] * b + p[2] * c + p[3]) + p[5])


def end(n, c, p):
    return p[0] * n + p[1] * c + p[2]


BY_HAND = {
    "generating": generating,
    "discretizer": discretizer,
    "negation": negation,
    "clause": clause,
    "conjunction": lambda *values: relu(sum(w * c for w, c in zip(values[-1], values[:-1], strict=True))),
    "end": end,
}


def gadgets_of(gadgets):
    names = [(name, getattr(gadgets, name)()) for name in ("generating", "discretizer", "negation", "clause")]
    return dict(names) | {"conjunction": gadgets.conjunction(2), "end": gadgets.end(3, 2)}


def between(rng, low, high):
    return low + (high - low) * F(rng.randrange(0, 33), 32)


def choices(part, rng, count):
    """Corners first (as many as there are, or half), then points inside."""
    moving = part.moving
    corners = list(itertools.product(*moving))
    rng.shuffle(corners)
    inside = [tuple(between(rng, *ends) for ends in moving) for _ in range(count)]
    return [*corners[:count], *inside, tuple(high for _, high in moving)]


INPUTS = {"generating": 1, "discretizer": 1, "negation": 1, "clause": 3, "conjunction": 2, "end": 2}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("delta", DELTAS[::2], ids=str)
def test_networks_compute_what_the_text_says(name, delta):
    part, rng = gadgets_of(PaperGadgets(delta))[name], random.Random(name)
    widths = [high - low for low, high in part.moving]
    assert widths == [2 * delta] * len(widths), "the paper wants one width for all"
    for choice in choices(part, rng, 30):
        inputs = [between(rng, ZERO, ONE) for _ in range(INPUTS[name])]
        exact = BY_HAND[name](*inputs, choice)
        assert part.output(inputs, choice) == exact
        floats = BY_HAND[name](*map(float, inputs), [float(p) for p in choice])
        assert floats == pytest.approx(float(exact), abs=1e-12)
        low, high = part.enclosure([(x, x) for x in inputs])
        assert low <= exact <= high
        assert part.enclosure([UNIT] * len(inputs))[1] >= exact


@pytest.mark.parametrize("delta", DELTAS, ids=str)
def test_ranges_of_the_lemmas_by_all_corners(delta):
    """Negation and clause are monotone in every parameter and input, so their corners are their ends."""
    d, g = delta, PaperGadgets(delta)
    true, false = (1 - 2 * d, ONE), (ZERO, 2 * d)
    for box, ends in (([JUST_0], (1 - 2 * d, 1)), ([true], (0, 2 * d))):
        values = [negation(*x, p) for x in itertools.product(*box) for p in itertools.product(*g.negation().moving)]
        assert (min(values), max(values)) == ends == g.negation().enclosure(box)
    for literals in itertools.combinations_with_replacement((false, true), 3):
        corners = itertools.product(itertools.product(*literals), itertools.product(*g.clause().moving))
        values = [clause(*x, p) for x, p in corners]
        assert (min(values), max(values)) == g.clause().enclosure(literals)
        if true not in literals:
            assert (min(values), max(values)) == (0, 8 * d + 12 * d**2)
        elif literals.count(true) == 1:
            assert (min(values), max(values)) == (1 - 4 * d - 4 * d**2, 1)


def statements(d):
    """For each iff of the paper: gadget, what enters, when the left side is so, when the right side is."""
    small, large = (lambda x: 0 <= x <= 2 * d), (lambda x: 1 - 2 * d <= x <= 1)
    literals = [ZERO, d, 2 * d, 1 - 2 * d, 1 - d, ONE]
    grid = [F(i, 24) for i in range(25)] + [1 - 2 * d]
    values = [ZERO, 8 * d + 2 * d**2, 1 - 4 * d - 4 * d**2, 1 - d, ONE]
    triples = list(itertools.combinations_with_replacement(literals, 3))
    return {
        "y = 1 iff chi^ is 0 or 1": ("discretizer", [(x,) for x in grid], lambda y: y == 1, lambda x: x in (0, 1)),
        "it is in [0, 2d] iff chi~ is in [1 - 2d, 1]": ("negation", [(ZERO,), *((x,) for x in literals[3:])], small, large),
        "it is in [1 - 2d, 1] iff chi~ = 0": (
            "negation", [(ZERO,), *((x,) for x in literals[3:])], large, lambda x: x == 0,
        ),
        "c is in [0, 8d + 2d^2] iff all literals are in [0, 2d]": (
            "clause", triples, lambda c: 0 <= c <= 8 * d + 2 * d**2, lambda *x: all(map(small, x)),
        ),
        "c is in [1 - 4d - 4d^2, 1] iff a literal is in [1 - 2d, 1]": (
            "clause", triples, lambda c: 1 - 4 * d - 4 * d**2 <= c <= 1, lambda *x: any(map(large, x)),
        ),
        "c~ = m iff every c = 1": (
            "conjunction", list(itertools.product(values, repeat=2)), lambda c: c == 2, lambda *x: x == (1, 1),
        ),
        "c~ <= m - 1 + 8d + 2d^2 iff some c is in [0, 8d + 2d^2]": (
            "conjunction", list(itertools.product(values, repeat=2)),
            lambda c: c <= 1 + 8 * d + 2 * d**2, lambda *x: min(x) <= 8 * d + 2 * d**2,
        ),
        "z = 1/2 iff n~ = n and c~ = m": (
            "end", list(itertools.product([ZERO, ONE, F(3) - d, F(3)], [ZERO, 2 - d, F(2)])),
            lambda z: z == F(1, 2), lambda *x: x == (3, 2),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("delta", DELTAS, ids=str)
def test_directions_are_those_that_brute_force_finds(delta):
    """All corners (and some choices between) of each gadget, computed by hand, break exactly what is said to break."""
    rng, g = random.Random(str(delta)), PaperGadgets(delta)
    checks = {check.statement: check for check in g.lemmas()}
    for statement, (name, inputs, left, right) in statements(delta).items():
        part, check = gadgets_of(g)[name], checks.pop(statement)
        found = {"if": False, "only if": False}
        for choice in choices(part, rng, 64):
            for x in inputs:
                holds = left(BY_HAND[name](*x, choice)), right(*x)
                found["if"] |= holds == (False, True)
                found["only if"] |= holds == (True, False)
        if statement.startswith("c~ <=") and delta < F(1, 16):
            assert not found["only if"]  # it takes more clauses than two; see below
            found["only if"] = True
        assert found == {"if": check.against_if is not None, "only if": check.against_only_if is not None}, statement
        for counterexample, expected in ((check.against_if, (False, True)), (check.against_only_if, (True, False))):
            if counterexample is not None and not statement.startswith("c~ <="):
                x, choice, output = counterexample
                assert output == BY_HAND[name](*x, choice)
                assert (left(output), right(*x)) == expected
                assert all(low <= p <= high for p, (low, high) in zip(choice, part.moving, strict=True))
    assert {check.gadget for check in checks.values()} == {
        "generating", "discretizer", "negation", "conjunction", "sketch",
    }  # fmt: skip


def test_counterexamples_are_the_smallest():
    """No choice with fewer parameters off their value in the proof contradicts the bound of false clauses."""
    d, check = F(1, 16), PaperGadgets("1/16").lemmas()[7]
    part, (x, choice, output) = PaperGadgets("1/16").clause(), check.against_if
    assert (x, output) == ((2 * d,) * 3, 8 * d + 4 * d**2)
    moved = sum(p != high for p, (_, high) in zip(choice, part.moving, strict=True))
    assert moved == 2
    nominal = [high for _, high in part.moving]
    for i, (low, _) in enumerate(part.moving):
        for literals in itertools.product((ZERO, d, 2 * d), repeat=3):
            assert clause(*literals, [*nominal[:i], low, *nominal[i + 1 :]]) <= 8 * d + 2 * d**2


def test_the_limit_of_the_paper_is_too_large():
    """False and true clauses are apart up to (sqrt(13) - 3) / 8 = 0.07569..., not up to 2/25."""
    for delta, apart in (("0.0756", True), ("0.0757", False), ("79/1000", False)):
        check = PaperGadgets(delta).lemmas()[8]
        d = F(delta)
        assert (8 * d + 12 * d**2 < 1 - 4 * d - 4 * d**2) is apart
        assert check.verdict == ("holds" if apart else "holds in one direction")
        assert "0.0756..." in check.corrected
    assert 0.0756 < (13**0.5 - 3) / 8 < 0.0757


@pytest.mark.parametrize(("delta", "least"), [("79/1000", 1), ("1/16", 2), ("1/100", 16), ("1/1000", 166)])
def test_true_clauses_as_low_as_the_printed_bound(delta, least):
    d, check = F(delta), PaperGadgets(delta).lemmas()[11]
    x, choice, output = check.against_only_if
    assert len(x) == len(choice) == least
    assert output == sum(w * c for w, c in zip(choice, x, strict=True)) <= least - 1 + 8 * d + 2 * d**2
    assert f"from m = {least} on" in check.corrected
    lowered = [w == 1 - 2 * d for w in choice]  # with one weight less at its lower end it would be none
    assert not any(lowered) or output + 2 * d * x[0] > least - 1 + 8 * d + 2 * d**2
    fewer = least - 1  # and not with fewer, where this is the least sum that there is
    assert not fewer or fewer * (1 - 2 * d) * (1 - 4 * d - 4 * d**2) > fewer - 1 + 8 * d + 2 * d**2


def test_verdicts():
    table = [(check.gadget, check.verdict) for check in PaperGadgets(0.0625).lemmas()]
    one = "holds in one direction"
    assert table == [
        ("generating", "holds"), ("discretizer", one), ("discretizer", one), ("discretizer", one),
        ("negation", "holds"), ("negation", "holds"), ("negation", "holds"), ("clause", one), ("clause", "holds"),
        ("conjunction", "holds"), ("conjunction", one), ("conjunction", one), ("end", one), ("sketch", "fails"),
    ]  # fmt: skip


def test_discretizer_of_a_generated_value():
    """Wherever y = 1, chi^ and chi~ are 0 or 1 and in [1 - 2d, 1]; by corners and a grid of chi."""
    d, g, rng = F(1, 16), PaperGadgets("1/16"), random.Random(0)
    seen = set()
    for chi in [F(i, 16) for i in range(17)]:
        for choice in choices(g.discretizer(), rng, 16):
            for edge, other in itertools.product(g.plus, repeat=2):
                if discretizer(edge * chi, choice) == 1:
                    seen.add((chi, edge * chi))
                    assert (other * chi == 0) if edge * chi == 0 else 1 - 2 * d <= other * chi <= 1
    assert seen == {(0, 0), (1, 1)}
    x, choice, y = g.lemmas()[2].against_if  # of the chain: the edge to chi^, then the discretizer
    assert 1 - 2 * d <= x[0] <= 1
    assert y == discretizer(choice[0] * x[0], choice[1:]) < 1


class Wrong(PaperGadgets):
    def __init__(self, name, part):
        super().__init__("1/16")
        setattr(self, name, lambda *sizes: part(self, *sizes))


def _wrong_constant(g):
    return network([[g.minus], [(ONE, 1 + 2 * g.delta)]])


def _wrong_clause(g):
    return network([*[[g.minus]] * 3, [g.plus]], [[g.minus], [(1 - 4 * g.delta, 1 - 2 * g.delta)]])


def _always_discrete(g):
    return network([[JUST_0], [JUST_1]])


def _above(g, size):
    return network([*[[(ONE, 1 + 2 * g.delta)]] * size, [JUST_0]])


def _centred(g, variables, clauses):
    top = HALF - variables - clauses
    return network([[g.plus], [g.plus], [(top - g.delta, top + g.delta)]], relu=False)


def _doubled(g, outputs=1):
    return network([[(ZERO, 2 * g.delta)], [JUST_0]], [[(16 * ONE, 16 * ONE)], [JUST_0]], [[g.plus] * outputs, [JUST_0] * outputs])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "part", "place"),
    [
        ("negation", _wrong_constant, 4),
        ("clause", _wrong_clause, 8),
        ("discretizer", _always_discrete, 1),
        ("generating", _doubled, 0),
    ],
)
def test_planted_mistakes_are_caught(name, part, place):
    right, wrong = PaperGadgets("1/16").lemmas(), Wrong(name, part).lemmas()
    assert wrong[place].verdict != right[place].verdict or wrong[place].against_only_if is not None
    others = [i for i, check in enumerate(right) if check.gadget not in (name, "sketch", "discretizer")]
    assert [wrong[i] for i in others] == [right[i] for i in others]


def test_a_planted_discretizer_fails_only_if():
    found = Wrong("discretizer", _always_discrete).lemmas()[1].against_only_if
    assert 0 < found.inputs[0] < 1
    assert found.output == 1


@pytest.mark.parametrize(("name", "part"), [("conjunction", _above), ("end", _centred)])
def test_gadgets_above_their_tie_are_refused(name, part):
    """The proof would not be one: z goes above 1/2, and its being 1/2 says nothing."""
    with pytest.raises(apas.Unsupported, match="above"):
        Wrong(name, part).lemmas()
    with pytest.raises(apas.Unsupported, match="above"):
        Wrong(name, part).pinned(3, 2)


@pytest.mark.parametrize(
    ("delta", "message"), [("2/25", "below 2/25"), (0, "above 0"), ("much", "such as '1/16'"), (None, "got None")]
)
def test_deltas_are_checked(delta, message):
    with pytest.raises(InputError, match=message):
        PaperGadgets(delta)


def by_hand(formula, choice, delta):
    """The output z of the paper's network by its text; `choice` says each parameter by its name, else its upper end."""

    def get(name, high):
        return choice.get(name, high)

    clauses = [sorted(c, key=abs) for c in formula.needed]
    chi = [relu(get(("second", v), 1 / delta) * relu(get(("first", v), delta))) for v in range(formula.variables)]
    y = [discretizer(chi[v], [-1, 1, 1, -1, -1, 1, 1, 1]) for v in range(formula.variables)]
    c = []
    for clause_ in clauses:
        literals = [chi[abs(x) - 1] if x > 0 else negation(chi[abs(x) - 1], (-1, 1)) for x in (clause_ * 3)[:3]]
        c.append(clause(*literals, (-1, -1, -1, 1, -1, 1)))
    return sum(y) + sum(c) - formula.variables - len(clauses) + F(1, 2)


FORMULAS = [formula for formula in all_formulas() if all(formula.clauses)]


def test_outputs_of_whole_networks():
    """At the truth z = 1/2 for solutions alone; and for other first weights it is what the text says."""
    rng, delta = random.Random(1), F(1, 16)
    for formula in [*FORMULAS[:27:6], *rng.sample(FORMULAS[27:], 8)]:
        paper = paper_reduction(formula)
        for truth in itertools.product((False, True), repeat=3):
            choice = paper.choice(truth)
            assert (paper.output(choice) == F(1, 2)) == formula.holds(truth)
        choice[:3] = [between(rng, -delta, delta) for _ in range(3)]
        named = {("first", v): choice[v] for v in range(3)}
        assert paper.output(choice) == by_hand(formula, named, delta)


def largest_output(paper, limit=2000):
    """Branch and bound in fractions: an upper bound on z below 1/2, or None if some assignment has z = 1/2."""
    n, moving = paper.formula.variables, paper.network.moving
    stack, bounds = [moving[:n]], []
    for _ in range(limit):
        if not stack:
            return max(bounds)
        box = stack.pop()
        high = paper.network.within([*box, *moving[n:]]).enclosure([JUST_1] * n)[1]
        if high < HALF:
            bounds.append(high)
            continue
        if paper.output(paper.choice([low + top > paper.gadgets.delta for low, top in box])) == HALF:
            return None
        k = max(range(n), key=lambda i: box[i][1] - box[i][0])
        low, top = box[k]
        halves = ((low, (low + top) / 2), ((low + top) / 2, top))
        stack += [[*box[:k], half, *box[k + 1 :]] for half in halves]
    raise AssertionError("not settled")


SMALL = [
    Formula(1, []), Formula(1, [[1]]), Formula(1, [[1], [-1]]), Formula(2, [[1, 2], [-1, -2]]),
    Formula(2, [[1, 2], [-1], [-2]]),
]  # fmt: skip


@pytest.mark.parametrize("formula", SMALL, ids=str)
def test_network_against_brute_force(formula):
    """By branch and bound in fractions, by `Exact` on the network of floats, and by trying assignments."""
    paper, solvable = paper_reduction(formula), formula.solution() is not None
    assert (largest_output(paper) is None) == solvable
    found = distinct_realizations(paper.model, paper.X, paper.delta, 0.5, shifts=paper.shifts)
    assert found.answer is (Answer.YES if solvable else Answer.NO)
    if solvable:
        assert formula.holds(paper.assignment(found.certificate.witness))
        values = np.concatenate([t.ravel() for pair in zip(found.above.weights, found.above.biases, strict=True) for t in pair])  # fmt: skip
        assert formula.holds(paper.assignment(values))
    with pytest.raises(InputError, match=r"`witness` must be \d+ parameters within delta = 0.0625"):
        paper.assignment(None)


def test_network_of_floats_is_the_network_of_fractions():
    paper, rng = paper_reduction(Formula(2, [[1, -2], [2]])), random.Random(2)
    moves = np.concatenate([np.ravel(t) for t in paper.shifts.scale]) > 0
    assert moves.sum() == len(paper.network.moving)
    places = np.concatenate([np.ravel(layer[part, :, 0] < layer[part, :, 1]) for layer in paper.network.layers for part in (slice(None, -1), -1)])  # fmt: skip
    assert (places == moves).all()
    for choice in ([*(between(rng, low, high) for low, high in paper.network.moving)] for _ in range(20)):
        values = paper.model.parameters.values.copy()
        inside = paper.network.within((p, p) for p in choice)
        values[:] = np.concatenate([layer[..., 0].astype(float).ravel() for layer in inside.layers])
        assert (np.abs(values - paper.model.parameters.values) <= paper.delta * moves).all()
        z = paper.model.with_parameters(values).margin(paper.X, 1)[0] + 0.5
        assert z == pytest.approx(float(paper.output(choice)), abs=1e-12)


def test_ties_are_a_null_set():
    """Lower one of the pinned parameters of a solution by as little as you like, and z is below 1/2."""
    formula = Formula(2, [[1, 2], [-1, 2]])
    paper, rng = paper_reduction(formula), random.Random(3)
    choice = paper.choice([False, True])
    assert paper.output(choice) == HALF
    assert paper.gadgets.pinned(2, 2) == 3
    assert paper.gadgets.pinned(2, 0) == 2  # without clauses, c~ is 0 and its weight is free
    with pytest.raises(InputError, match=r"`variables` of pinned must be an integer of at least 0, got -1\."):
        paper.gadgets.pinned(-1, 2)
    for i in (-1, -2, -3):  # the end gadget comes last
        assert paper.output([*choice[:i], choice[i] - F(1, 10**30), *choice[i:][1:]]) < HALF
    for _ in range(20):
        inside = [between(rng, low, high - (high - low) / 64) for low, high in paper.network.moving]
        assert paper.output(inside) < HALF
    fractions = apas.robust_fraction(paper.model, paper.X, paper.delta, target=0, shifts=paper.shifts, rng=0)
    assert fractions[0].upper[0] == 1


def test_networks_are_checked():
    with pytest.raises(InputError, match="one to three literals, got one of 0"):
        paper_reduction(Formula(2, [[]]))
    with pytest.raises(InputError, match="one to three literals, got one of 4"):
        paper_reduction(Formula(4, [[1, 2, 3, 4]]))
    with pytest.raises(InputError, match="must be a Formula"):
        paper_reduction([[1]])
    with pytest.raises(InputError, match="power of 1/2"):
        _ = paper_reduction(Formula(1, [[1]]), "1/100").model
    assert paper_reduction(Formula(1, [[1, -1]])).network.layers[-1][-1, 0, 1] == HALF - 1  # always true: left out


def test_network_layout():
    """Seven hidden layers; one chi^ per variable and one chi~ per occurrence."""
    paper = paper_reduction(Formula(3, [[1, -2, 3], [-1, 2, -3]]))
    assert [layer.shape[1] for layer in paper.network.layers] == [3, 3, 9, 12, 8, 5, 2, 1]
    assert paper.model.margin(paper.X, 1)[0] < 0, "the model itself is below 1/2"
