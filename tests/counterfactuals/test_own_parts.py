"""A source, a method and a shift set of a user, each in one file outside the package, go through `generate`."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import apas
from apas import Feature, FeatureSpace, FeedForward, InputError, Unsupported

SOURCE = '''
import numpy as np
from apas import Candidate


class Stairs:
    """Raise one feature step by step; or offer all steps as one path, from the safest to the cheapest."""

    ordered = True

    def __init__(self, feature, steps, one_path=False):
        self.feature, self.steps, self.one_path = feature, steps, one_path

    def unsupported(self, task):
        return None if self.feature in task.space.names else f"Stairs needs a feature {self.feature!r}."

    def candidates(self, search):
        rows = np.tile(search.input, (len(self.steps), 1))
        rows[:, search.task.space.names.index(self.feature)] = self.steps
        if self.one_path:
            yield Candidate(rows[-1], path=rows[::-1])
        else:
            for row in rows:
                yield Candidate(row)


class PerRow(Stairs):
    """Holds the steps of each input."""

    def check_rows(self, rows):
        from apas import InputError

        if rows != len(self.steps):
            raise InputError(f"`steps` of PerRow must number {rows}, got {len(self.steps)}.")
'''
METHOD = '''
from dataclasses import dataclass, replace

import numpy as np
from apas.certification.certificate import Certificate
from apas.certification.claims import Every, Most, Verdict
from apas.stats import allowed_failures, refuting_failures


@dataclass(frozen=True)
class Counts:
    draws: int
    failures: int
    kind: str = "counts"

    def to_dict(self):
        return {"kind": self.kind, "draws": self.draws, "failures": self.failures}


@dataclass(frozen=True)
class Tally:
    """A test on a fixed number of draws."""

    coverage: float = 0.9
    confidence: float = 0.99
    n_samples: int | None = None
    pays: bool = True
    enough: int = 400

    def claim(self, question):
        claim = Most(self.coverage, self.confidence, question.measure, question.claim_rows, question.tries)
        return claim if self.pays else replace(claim, tries=1)

    def unsupported(self, question):
        return None

    def samples(self, question, claim):
        listed = getattr(question.shifts, "models", None)
        return len(listed) if listed is not None else self.n_samples or self.enough

    def plan(self, question, claim):
        n = self.samples(question, claim)
        said = {"coverage": claim.coverage, "confidence": claim.row_confidence}
        return n, allowed_failures(n, **said), refuting_failures(n, **said)

    def run(self, question, stream):
        claim = self.claim(question)
        draws, allowed, refuting = self.plan(question, claim)
        failures = (~(question.margins(question.directions(stream, 0, draws)) > question.band)).sum(axis=0)
        return [
            Certificate(
                claim,
                Verdict.CERTIFIED if f <= allowed else Verdict.REFUTED if f >= refuting else Verdict.UNKNOWN,
                float(question.delta[i]),
                question.target[i],
                "tally",
                Counts(draws, int(f)),
                f"{f} of {draws} on {stream.purpose}, at most {allowed}",
            )
            for i, f in enumerate(failures)
        ]


@dataclass(frozen=True)
class Nothing:
    """Proves nothing, and says so."""

    only_refutes: bool = False

    def claim(self, question):
        return Every(question.region, question.claim_rows)

    def unsupported(self, question):
        return None

    def run(self, question, stream):
        claim = self.claim(question)
        return [
            Certificate(claim, Verdict.UNKNOWN, float(d), t, "nothing", Counts(0, 0), "nothing is known")
            for d, t in zip(question.delta, question.target, strict=True)
        ]
'''
SHIFTS = '''
import numpy as np
from apas import Parameters


class Corners:
    """Every parameter moves by delta, up or down."""

    def directions(self, parameters, stream, start, stop):
        k = len(parameters)
        words = stream.words(k * start, k * (stop - start)).reshape(stop - start, k)
        return np.where(words >> 63, 1.0, -1.0)

    def margins(self, model, X, target, directions, delta):
        return model.shifted_margins(X, target, directions, delta)

    def radii(self, parameters):
        return np.ones(len(parameters))

    def contains(self, base, other, delta):
        return bool((np.abs(other.values - base.values) == delta).all())

    def measure(self, parameters):
        return "each parameter up or down by delta"

    def region(self, parameters):
        return "each parameter up or down by delta"

    def to_dict(self):
        return {"kind": "corners"}


class Archive(Corners):
    """Models that were saved, by their biases; a draw is the number of one."""

    def __init__(self, models):
        self.models = tuple(models)

    def coordinates(self, model):
        return Parameters.from_arrays([[0.0]], names=["model"], kinds=["weight"], layers=["model"])

    def shifted_parameters(self, model, direction, delta):
        return self.models[int(direction[0])].parameters.values

    def directions(self, parameters, stream, start, stop):
        return np.arange(start, min(stop, len(self.models)), dtype=float)[:, None]

    def margins(self, model, X, target, directions, delta):
        return np.array([self.models[int(d)].margin(X, target) for d in directions[:, 0]]).reshape(-1, len(X))

    def magnitudes(self, model, points, X, target, delta):
        return np.max([m.margin_scale(X, np.zeros(len(m.parameters)), 0.0) for m in self.models], axis=0)

    def measure(self, parameters):
        return "models of an archive"

    def to_dict(self):
        return {"kind": "archive", "count": len(self.models)}


class Shelf(Archive):
    """An archive that can be divided."""

    def with_models(self, models):
        return Shelf(models)
'''

NET = FeedForward([[[1.0], [0.2]]], [[-1.0]], feature_names=("income", "savings"))
SPACE = FeatureSpace([Feature("income", low=0, high=4), Feature("savings", low=0, high=4)])
X = np.array([[0.2, 0.3], [0.4, 0.1]])
STEPS = [1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Load a file from outside the package as a module."""

    def load(text: str, name: str):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def generate(**changed):
    asked = {"space": SPACE, "method": apas.Sampling(coverage=0.9, confidence=0.99), "rng": 0, **changed}
    return apas.generate(NET, X, asked.pop("delta", 0.1), **asked)


def test_a_source(own):
    stairs = own(SOURCE, "own_source").Stairs
    found = generate(source=stairs("income", STEPS))
    assert found.found.all()
    assert [item.certificate.claim.tries for item in found] == [item.tests * (item.tests + 1) for item in found]
    with pytest.raises(Unsupported, match="Stairs needs a feature 'age'"):
        generate(source=stairs("age", STEPS))


def test_a_source_of_one_path_needs_fewer_draws(own):
    """Its one test has the whole risk, where the first of several has half."""
    stairs = own(SOURCE, "own_source").Stairs
    few = apas.Sampling(coverage=0.9, confidence=0.99, n_samples=44)
    with pytest.raises(InputError, match="44 draws cannot certify a row of Stairs, since the first of several"):
        generate(source=stairs("income", STEPS), method=few)
    found = generate(source=stairs("income", STEPS, one_path=True), method=few)
    assert found.found.all()
    assert {item.certificate.claim.tries for item in found} == {1}
    assert {item.tests for item in found} == {1}


def test_a_source_that_holds_something_per_row(own):
    source = own(SOURCE, "own_source").PerRow
    with pytest.raises(InputError, match="`steps` of PerRow must number 2, got 7"):
        generate(source=source("income", STEPS))
    assert generate(source=source("income", STEPS[-2:])).found.all()


@pytest.mark.parametrize("source", ["robust", "milp", apas.Wachter(iterations=50)])
def test_a_method_that_draws(own, source):
    tally = own(METHOD, "own_method").Tally
    found = generate(method=tally(), source=source)
    assert found.found.all()
    for item in found:
        assert item.certificate.method == "tally"
        assert item.certificate.claim.tries == (1 if source == "robust" else item.tests * (item.tests + 1))
        assert f"generate/0/{0 if source == 'robust' else item.tests}" in item.reason  # draws that no search has seen


def test_a_method_that_draws_too_little(own):
    tally = own(METHOD, "own_method").Tally
    with pytest.raises(InputError, match="`n_samples` of Tally must be larger: 30 draws cannot certify a row of Roar"):
        generate(method=tally(n_samples=30), source=apas.Roar(surrogate="gradient"))


def test_a_method_that_does_not_pay_for_its_tests_is_refused(own):
    tally = own(METHOD, "own_method").Tally
    with pytest.raises(Unsupported, match="but the claim of Tally does not say so; pass `tries` of the question on"):
        generate(method=tally(pays=False))


def test_a_method_that_proves_nothing(own):
    nothing = own(METHOD, "own_method").Nothing
    found = generate(method=nothing(), source="neighbours", background=[[3.0, 3.0], [2.0, 2.0]])
    assert not found.found.any()
    with pytest.raises(Unsupported, match="Nothing can only refute, so nothing would ever be found"):
        generate(method=nothing(only_refutes=True))


@pytest.mark.parametrize("method", ["own", "sampling"])
def test_a_shift_set(own, method):
    corners = own(SHIFTS, "own_shifts").Corners()
    chosen = own(METHOD, "own_method").Tally() if method == "own" else apas.Sampling(coverage=0.9, confidence=0.99)
    found = generate(shifts=corners, method=chosen, source=own(SOURCE, "own_source").Stairs("income", STEPS))
    assert found.found.all()
    assert found.certificates[0].claim.measure == "each parameter up or down by delta"


def refits(count):
    rng = np.random.default_rng(3)
    return [FeedForward([[[1.0], [0.2]]], [[-1.0 - b]]) for b in rng.uniform(0.0, 0.3, count)]


def test_a_set_of_listed_models_is_split(own):
    """As many models as the claim needs certify; the search never sees them."""
    shelf, tally = own(SHIFTS, "own_shifts").Shelf, own(METHOD, "own_method").Tally
    models, needed = refits(60), apas.sample_size(coverage=0.9, confidence=0.99)
    found = generate(delta=1, shifts=shelf(models), method=tally())
    assert found.found.all()
    assert found.shifts.models == tuple(models[-needed:])
    assert {item.certificate.evidence.draws for item in found} == {needed}
    for model in models[-needed:]:
        assert (model.margin(found.numbers, 1) > 0).all()
    with pytest.raises(InputError, match=f"`models` of Shelf must number more than {needed} to generate with"):
        generate(delta=1, shifts=shelf(models[:needed]), method=tally())
    with pytest.raises(InputError, match="`k` must be 1 with Shelf, got 2"):
        generate(delta=1, shifts=shelf(models), method=tally(), k=2)
    with pytest.raises(InputError, match="of Shelf must differ, but 1 of those to certify on are among those to sea"):
        generate(delta=1, shifts=shelf([*models, models[0]]), method=tally())


def test_a_set_of_listed_models_that_cannot_be_split_is_refused(own):
    archive, tally = own(SHIFTS, "own_shifts").Archive, own(METHOD, "own_method").Tally
    with pytest.raises(Unsupported, match=r"models of Archive .* needs a method `with_models\(models\)`; add it"):
        generate(delta=1, shifts=archive(refits(60)), method=tally())


#: Classes of other packages that nothing here may ask for by name.
CONCRETE = {"Sampling", "Attack", "Exact", "Cascade", "Enumeration", "IntervalBounds", "LinearBounds", "ObservedShifts"}
CONCRETE |= {"LinfShifts", "LpShifts", "GaussianShifts", "InputNoise"}
SOURCES = {"Given", "RobustOptimum", "MilpSource", "NearestNeighbours", "Roar", "Wachter", "Prototype"}


def test_nothing_is_asked_for_its_class():
    folder = Path(apas.__file__).parent
    for path in [*folder.glob("counterfactuals/**/*.py"), *folder.glob("metrics/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not asked & (CONCRETE | SOURCES), f"{path.name}, line {node.lineno}"
