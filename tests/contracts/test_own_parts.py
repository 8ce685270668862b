"""Shift sets, evidence and claims of somebody's own: audited, verified and reported as they are, refused when saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from certificate_files import network, rows

import apas
from apas.certification.certificate import Certificate, Rechecked
from apas.certification.claims import Claim, Most, Verdict
from apas.contracts.audit import Outcome
from apas.contracts.verify_evidence import Checked

NET = network()
_MARGINS = NET.margin(rows(400), 1)
#: Five rows far inside of class 1, and three outside of it.
ROWS = rows(400)[np.concatenate([np.argsort(-_MARGINS)[:5], np.argsort(_MARGINS)[:3]])]


@dataclass(frozen=True)
class FewMove:
    """So many parameters, the first ones, move by at most delta each."""

    count: int

    def directions(self, parameters, stream, start, stop):
        words = stream.words(len(parameters) * start, len(parameters) * (stop - start)).reshape(stop - start, -1)
        return ((words >> 11) / 2**52 - 1) * self.radii(parameters)

    def margins(self, model, X, target, directions, delta):
        return model.shifted_margins(X, target, directions, delta)

    def radii(self, parameters):
        return (np.arange(len(parameters)) < self.count).astype(float)

    def contains(self, base, other, delta):
        return bool((np.abs(other.values - base.values) <= delta * self.radii(base)).all())

    def region(self, parameters):
        return f"the first {self.count} parameters move by at most delta each"

    def measure(self, parameters):
        return f"uniform where {self.region(parameters)}"

    def to_dict(self):
        return {"kind": "few", "count": self.count}


@dataclass(frozen=True)
class Counted:
    """Evidence that no file knows."""

    draws: int
    failures: int

    def to_dict(self):
        return {"kind": "counted", "draws": self.draws, "failures": self.failures}


@dataclass(frozen=True)
class CountedAgain(Counted):
    """The same, with what checks it: as many of the first draws must fail again."""

    entropy: int
    purpose: str

    def recheck(self, question, certificate):
        from apas._random import Stream

        drawn = question.directions(Stream(self.entropy, self.purpose), 0, self.draws)
        again = int((question.margins(drawn)[:, 0] <= 0).sum())
        return again == self.failures, f"{again} of {self.draws} draws failed again"


@dataclass(frozen=True)
class NearlyAll:
    """All shifts, with a risk far below what 1 - float can say."""

    measure: str
    rows: int = 1
    coverage = 1.0
    confidence = float(np.nextafter(1.0, 0.0))
    risk = Fraction(1, 10**40)
    row_confidence = 1 - Fraction(1, 10**40)
    against = "with a failing draw"

    def __str__(self):
        return "every shift, but for a risk of 1e-40"

    def among(self, count, what="row"):
        return str(self)

    def subject(self, *, refuted=False):
        return "not every one of the shifts keeps" if refuted else "every one of the shifts keeps"

    def sureness(self):
        return "with a risk of 1e-40"

    def meaning(self, size, *, per_test=False):
        return f"but for a risk of 1e-40, every shift ({self.measure}; {size}) keeps the promised class."

    def to_dict(self):
        return {"kind": "nearly all", "measure": self.measure}


@dataclass(frozen=True)
class OwnMethod:
    """Counts failing draws; its claim and its evidence may be its own, too."""

    evidence: type = Counted
    nearly_all: bool = False

    def claim(self, question):
        return NearlyAll(question.measure) if self.nearly_all else Most(0.9, 0.9, question.measure)

    def unsupported(self, question):
        return None

    def run(self, question, stream):
        failing = (question.margins(question.directions(stream, 0, 200)) <= 0).sum(axis=0).tolist()
        more = (stream.entropy, stream.purpose) if self.evidence is CountedAgain else ()
        return [
            Certificate(
                self.claim(question),
                Verdict.CERTIFIED if count == 0 else Verdict.REFUTED,
                float(question.delta[i]),
                question.target[i],
                "own",
                self.evidence(200, count, *more),
                f"{count} of 200 draws failed",
            )
            for i, count in enumerate(failing)
        ]


OWN = {
    "set": {"shifts": FewMove(5)},
    "evidence": {"method": OwnMethod()},
    "evidence that checks itself": {"method": OwnMethod(CountedAgain)},
    "claim": {"method": OwnMethod(nearly_all=True)},
    "all": {"shifts": FewMove(5), "method": OwnMethod(CountedAgain, nearly_all=True)},
}


def later(by, last=0.0):
    """The network with all parameters moved, the last bias further."""
    biases = [b + by for b in NET.biases]
    return apas.FeedForward([w + by for w in NET.weights], [*biases[:-1], biases[-1] + last])


@pytest.fixture(params=OWN)
def own(request):
    return apas.certify(NET, ROWS, 0.02, target=1, rng=1, **OWN[request.param])


def test_it_is_audited(own):
    assert {c.verdict.name for c in own} == {"CERTIFIED", "REFUTED"}
    kept, moved = (apas.audit(own, model, base=NET, repairs=False) for model in (later(0.0), later(0.1, -9.0)))
    assert kept.ok
    assert {row.inside for row in kept} == {True}
    assert {row.outcome for row in kept} == {Outcome.HELD, Outcome.NOT_PROMISED}
    assert {row.inside for row in moved} == {False}
    assert Outcome.BROKEN_OUTSIDE in {row.outcome for row in moved}
    assert moved.summary()
    assert [row["claim"] for row in moved.to_dict()["rows"]] == [str(c.claim) for c in own]


def test_it_is_reported(own, tmp_path):
    page = apas.write_report(own, tmp_path / "page.html", new_model=later(0.001)).read_text(encoding="utf-8")
    assert own[0].claim.measure in page
    assert "their to_dict() gives them: no file can hold them" in page
    again = apas.write_report(own, tmp_path / "again.html", new_model=later(0.001)).read_text(encoding="utf-8")
    assert page == again


def test_it_is_refused_when_it_is_saved(own, tmp_path):
    with pytest.raises(apas.InputError, match="cannot be written to a file: a reader would not know") as error:
        apas.save_certificates(own, tmp_path / "c.json")
    assert str(error.value).count(".") == 1
    assert not list(tmp_path.iterdir())
    with (
        apas.Ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises(apas.InputError, match="cannot be written to a file"),
    ):
        ledger.add(own, [f"A-{i}" for i in range(len(own))])


@pytest.mark.parametrize("name", OWN)
def test_it_is_verified_as_far_as_anything_checks_it(name):
    own = apas.certify(NET, ROWS, 0.02, target=1, rng=1, **OWN[name])
    report = apas.verify(own, NET)
    decided = [row for row, c in zip(report, own, strict=True) if c.valid_today]
    checks = {row.check for row in decided}
    if name in ("evidence", "claim"):
        assert checks == {Checked.NOT_CHECKED}
        assert {row.reason for row in decided} == {
            "nothing is known that would check evidence of type Counted for a claim of type "
            f"{'NearlyAll' if name == 'claim' else 'Most'} again: neither has a recheck()"
        }
    else:
        assert checks == {Checked.HOLDS}
    assert {row.check for row, c in zip(report, own, strict=True) if not c.valid_today} == {Checked.HOLDS}


def test_what_checks_itself_may_fail():
    own = apas.certify(NET, ROWS, 0.02, target=1, rng=1, **OWN["evidence that checks itself"])
    first = next(i for i, c in enumerate(own) if c.valid_today)
    own._items = tuple(
        replace(c, evidence=replace(c.evidence, failures=7)) if i == first else c for i, c in enumerate(own)
    )
    report = apas.verify(own, NET)
    assert report.rows[first].check is Checked.FAILS
    assert report.rows[first].reason.endswith("of 200 draws failed again")


def test_a_risk_below_what_floats_can_say_is_not_certain():
    own = apas.certify(NET, ROWS, 0.02, target=1, rng=1, **OWN["claim"])
    assert isinstance(own[0].claim, Claim)
    assert not isinstance(own[0].claim, Rechecked)
    frame = own.to_frame()
    assert (frame["confidence"] < 1).all()
    assert (frame["coverage"] == 1).all()
    certified = own[own.certified]
    assert "with a risk of 1e-40, every one of the shifts keeps" in certified[0].sentence()
    # a model of the set that breaks it contradicts a proof, but not this
    broken = apas.audit(certified, later(0.02), base=NET, repairs=False)
    assert broken.wrong_certificates == 0
    report = apas.verify(own, NET)
    assert all(row.tested_at < 1 for row in report)


def test_sets_say_how_far_a_model_lies():
    near, far, base = (later(by).parameters for by in (0.25, 0.5, 0.0))
    assert apas.LinfShifts().distance(base, near) == pytest.approx(0.25)
    assert apas.LinfShifts(scale={"layer0": 0.5}).distance(base, far) == pytest.approx(1.0)
    assert apas.LinfShifts(kinds=("weight",)).distance(base, near) == np.inf
    assert apas.LpShifts(1).distance(base, near) == pytest.approx(0.25 * len(base))
    assert apas.LpShifts(2, layers=["layer0"]).distance(base, near) == np.inf
    for shifts in (apas.LinfShifts(relative=True, floor=0.1), apas.LpShifts(1.5), apas.LinfShifts(scale=[2.0] * 37)):
        least = shifts.distance(base, near)
        assert not shifts.contains(base, near, least * 0.999)
        assert shifts.contains(base, near, least * 1.001)


@pytest.mark.parametrize("shifts", ["linf", "l2", apas.LinfShifts(relative=True, floor=1.0), FewMove(37)], ids=str)
def test_many_sizes_are_judged_as_one_by_one(shifts):
    """Where the distance settles it, `contains` is not asked; both must say the same."""
    X = ROWS[:1].repeat(9, axis=0)
    moved = later(0.05)
    if isinstance(shifts, FewMove):
        least = 0.05
    else:
        least = (apas.LpShifts(2) if shifts == "l2" else apas.LinfShifts() if shifts == "linf" else shifts).distance(
            NET.parameters, moved.parameters
        )
    deltas = least * np.array([0.5, 1 - 1e-8, 1 - 1e-12, 1 - 1e-15, 1, 1 + 1e-15, 1 + 1e-12, 1 + 1e-8, 2])
    found = apas.certify(NET, X, deltas, target="predicted", shifts=shifts, rng=0)
    report = apas.audit(found, moved, base=NET, repairs=False)
    told = [found.shifts.contains(NET.parameters, moved.parameters, delta) for delta in deltas]
    assert [row.inside for row in report] == told
    assert {True, False} <= set(told)
