"""Calibrated deltas: the order statistic, what is refused, files, and a claim that holds unless somebody peeks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import apas
from apas import FeedForward, InputError, NextUpdate
from apas.certification.calibration import rank
from apas.contracts.certificate_file import content_digest

#: A score of one number: rows are kept by models whose bias is above minus their value.
BASE = FeedForward([[[1.0]]], [[0.0]])
ROWS = np.array([[1.0], [2.0], [3.0], [4.0], [-1.0]])


def shifted(*biases):
    return [FeedForward([[[1.0]]], [[float(-b)]]) for b in biases]


def by_value(model, rows, target):
    return np.asarray(rows)[:, 0]


def calibrated(updates, **options):
    return apas.calibrate_delta(BASE, updates, ROWS, target=1, score=by_value, **options)


def test_the_threshold_is_the_right_order_statistic():
    updates = shifted(*np.linspace(0.1, 0.9, 16), 1.5, 2.5, 3.5)  # the last three break rows of score 1, 2 and 3
    found = calibrated(updates, confidence=None)
    assert found.claim.worst == (-math.inf,) * 16 + (1.0, 2.0, 3.0)
    assert found.claim.threshold == 2.0  # the 18th of 19
    assert found.delta == np.nextafter(2.0, 3.0)
    assert found.certified.tolist() == [False, False, True, True, False]  # strictly above
    assert [c.verdict.name for c in found] == ["UNKNOWN", "UNKNOWN", "CERTIFIED", "CERTIFIED", "REFUTED"]
    assert found.to_frame()["failures"].tolist() == [3, 2, 1, 0, 0]
    assert found.claim.rows == 2
    assert "with probability 0.9, over calibration and update, it keeps all 2 rows" in str(found.claim)
    assert "exchangeable with the 19 listed" in str(found.claim)
    assert "independent" in found[2].sentence()
    certified, unknown = found[2].sentence(), found[0].sentence()
    assert "for all 2 rows whose score by by_value exceeds 2 together, the next update keeps class 1" in certified
    assert unknown.startswith("UNKNOWN: it is not settled whether the next update keeps class 1 under")
    assert "all 2 rows" not in unknown  # this row is none of them


@pytest.mark.parametrize(
    ("m", "coverage", "k"), [(19, 0.9, 18), (19, 0.95, 19), (9, 0.9, 9), (59, 0.9, 54), (99, 0.7, 70)]
)
def test_marginal_ranks_are_exact(m, coverage, k):
    assert rank(m, coverage, None) == k


def test_ranks_with_confidence_are_tolerance_limits():
    for m in (29, 46, 59, 100):
        c = m - rank(m, 0.9, 0.95)
        assert stats.binom.cdf(c, m, 0.1) <= 0.05 < stats.binom.cdf(c + 1, m, 0.1)
    with pytest.raises(InputError, match=r"at least 29 .* got 28; .*confidence=None.* needs 9"):
        rank(28, 0.9, 0.95)
    with pytest.raises(InputError, match="at least 9 for coverage 0.9, got 8"):
        rank(8, 0.9, None)


def test_what_no_update_breaks_and_what_one_breaks_at_infinity():
    assert calibrated(shifted(*np.linspace(0.1, 0.5, 9)), confidence=None).delta == 0.0
    infinite = apas.calibrate_delta(
        BASE, shifted(*range(1, 10)), ROWS, target=1, confidence=None, score=lambda m, r, t: np.full(5, np.inf)
    )
    assert infinite.delta == math.inf
    assert not infinite.certified.any()
    assert "every number" in str(infinite.claim)


@pytest.mark.parametrize("bias", [1.0, np.nextafter(1.0, 0)])
def test_what_is_within_rounding_of_the_boundary_counts_as_broken(bias):
    found = calibrated(shifted(*np.linspace(0.1, 0.5, 8), bias), confidence=None)  # the row of score 1 has margin 0
    assert found.claim.worst[-1] == 1.0


def test_updates_of_another_kind_and_preprocessing_are_asked_as_they_are():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1)) + 1
    trees = [DecisionTreeClassifier(max_depth=2).fit(X[i], X[i, 0] > 0.3) for i in rng.integers(0, 200, (9, 200))]
    base = LogisticRegression().fit(X, X[:, 0] > 0.2)
    found = apas.calibrate_delta(base, trees, ROWS, target=True, confidence=None, rng=0)
    assert found.claim.scored == "max_shift"
    assert found.certified.any()


def test_what_took_part_is_refused():
    updates = shifted(*np.linspace(0.1, 0.9, 9))
    for bad, said in (([BASE, *updates], "the model itself"), (updates, "used for the scores")):
        score = apas.ObservedShifts(updates[-2:]) if bad is updates else by_value
        with pytest.raises(InputError, match=f"took part.*{said}|taken part.*{said}"):
            apas.calibrate_delta(BASE, bad, ROWS, target=1, confidence=None, score=score)
    made = apas.certify(BASE, ROWS[:4], 1, target=1, shifts=apas.ObservedShifts(updates[:2]), method="exact")
    with pytest.raises(InputError, match="used for the rows"):
        apas.calibrate_delta(BASE, updates, made, target=1, confidence=None, rng=0)


def test_steps_score_each_base_by_itself():
    chain = [BASE, *shifted(*np.linspace(0.3, 2.7, 9))]
    steps = list(zip(chain, chain[1:], strict=False))
    found = apas.calibrate_delta(chain[-1], steps, ROWS, target=1, confidence=None, rng=0)
    own = [apas.max_shift(base, ROWS, target=1, rng=0).deltas for base, _ in steps]
    wanted = [g[new.margin(ROWS, 1) < 0].max() for g, (_, new) in zip(own, steps, strict=True)]
    assert np.allclose(found.claim.worst, wanted)
    assert "9 listed steps" in str(found.claim)
    with pytest.raises(InputError, match="the same twice"):
        apas.calibrate_delta(BASE, [(BASE, BASE)] * 9, ROWS, target=1, confidence=None)
    with pytest.raises(InputError, match="some of both"):
        apas.calibrate_delta(BASE, [*steps, BASE], ROWS, target=1, confidence=None)
    made = apas.certify(chain[-1], ROWS, 0.1, target=1, rng=0)
    with pytest.raises(InputError, match="rows were made for"):  # which is the successor of the last step
        apas.calibrate_delta(chain[-1], steps, made, target=1, confidence=None, rng=0)
    made = apas.certify(chain[0], ROWS, 0.1, target=1, rng=0)
    with pytest.raises(InputError, match=r"updates\[0\].*rows were made for"):  # the base of the first one
        apas.calibrate_delta(chain[-1], steps, made, target=1, confidence=None, rng=0)
    with pytest.warns(apas.GuaranteeWarning, match="only 1 of the 9 steps are different"):
        apas.calibrate_delta(chain[-1], steps[:1] * 9, ROWS, target=1, confidence=None, rng=0)


def test_steps_that_took_part_are_found_in_files(tmp_path):
    chain = [BASE, *shifted(*np.linspace(0.3, 2.7, 9))]
    found = apas.calibrate_delta(
        chain[-1], [*zip(chain, chain[1:], strict=False)], ROWS[2:], target=1, confidence=None, rng=0
    )
    path = tmp_path / "c.json"
    apas.save_certificates(found, path)
    assert apas.verify(path, chain[-1], models=chain).ok
    took_part = apas.ObservedShifts(chain[:1]).digests[0]
    tampered(path, lambda certificate: certificate["claim"]["made_with"].append(took_part))
    assert apas.verify(path, chain[-1], models=chain).exit_code == 1


def noisy(count, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4))
    y = (X @ [1.0, -0.5, 0.5, 0.0] + rng.logistic(size=300) / 3 > 0).astype(int)
    fits = [LogisticRegression().fit(X[i], y[i]) for i in rng.integers(0, 300, (count, 300))]
    base, new = LogisticRegression().fit(X, y), rng.normal(size=(200, 4))
    return base, fits, new[base.predict(new) == 1], X


def test_scores_of_every_kind_order_rows():
    base, fits, rows, X = noisy(59)
    counts = []
    for score in ("max_shift", apas.ObservedShifts(fits[29:]), apas.EllipsoidShifts.laplace(base, X), apas.LpShifts(2)):
        found = apas.calibrate_delta(base, fits[:29], rows, target=1, score=score, rng=0)
        counts.append(int(found.certified.sum()))
        worst = [max(found.scores[m.predict(rows) != 1], default=-np.inf) for m in fits[:29]]
        assert np.allclose(found.claim.worst, worst)
    assert min(counts) > 0.3 * len(rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"score": "margin"}, "max_shift"),
        ({"score": None}, "`score` of calibrate_delta must be .* got None"),
        ({"score": lambda m, r, t: np.zeros(3)}, "one number per row"),
        ({"score": lambda m, r, t: np.full(5, np.nan)}, "NaN"),
        ({"coverage": 1.0}, "coverage"),
        ({"confidence": 0.0}, "confidence"),
        ({"target": None}, "target"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    asked = {"target": 1, "confidence": None, **options}
    with pytest.raises(InputError, match=said):
        apas.calibrate_delta(BASE, shifted(*range(1, 10)), ROWS, **asked)
    with pytest.raises(InputError, match="`updates` must be a list"):
        apas.calibrate_delta(BASE, BASE, ROWS, target=1)
    with pytest.raises(apas.Unsupported, match=r"`updates\[8\]` cannot be read"):
        apas.calibrate_delta(BASE, [*shifted(*range(1, 9)), 7], ROWS, target=1, confidence=None)


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [None, 0.95])
def test_a_file_says_the_same_and_is_checked_again(tmp_path, confidence):
    base, fits, rows, _ = noisy(29)
    found = apas.calibrate_delta(base, fits, rows[:8], target=1, confidence=confidence, rng=0)
    path = tmp_path / "calibration.json"
    apas.save_certificates(found, path)
    again = apas.load_certificates(path)
    assert isinstance(again, apas.Calibration)
    assert again == found
    assert again.delta == found.delta
    assert again.summary() == found.summary()
    report = apas.verify(path, base, models=fits)
    assert report.ok, report.summary()
    assert {row.check.value for row in apas.verify(path, base)} == {"NOT CHECKED"}
    needed = apas.verify(path, base, models=fits, require_confidence=0.9)
    assert needed.ok == (confidence is not None and bool(found.certified.all())) or confidence is not None
    apas.write_report(found, tmp_path / "r.html", new_model=fits[0], model=base)
    assert "keep" in (tmp_path / "r.html").read_text(encoding="utf-8")


def tampered(path, change):
    content = json.loads(path.read_text())
    for entry in content["certificates"]:
        change(entry["certificate"])
    path.write_text(json.dumps({**content, "digest": content_digest(content)}))


def lower_worst(certificate):
    certificate["claim"]["worst"] = [None] * len(certificate["claim"]["worst"])


def raise_score(certificate):
    if certificate["evidence"]["kind"] == "calibration":
        certificate["evidence"]["score"] += 1.0


def fewer_failures(certificate):
    certificate["evidence"]["failures"] = 0


def less_coverage(certificate):
    certificate["claim"]["coverage"] = 0.1


def other_rows(certificate):
    if certificate["verdict"] == "UNKNOWN":
        certificate["verdict"] = "CERTIFIED"


def update_took_part(certificate):
    certificate["claim"]["made_with"] = [apas.ObservedShifts([noisy(1)[1][0]]).digests[0]]


@pytest.mark.parametrize(
    "change", [update_took_part, lower_worst, raise_score, fewer_failures, less_coverage, other_rows]
)
def test_forged_calibrations_fail(tmp_path, change):
    base, fits, rows, _ = noisy(19)
    margins = base.decision_function(rows)
    some = rows[np.argsort(margins)][[0, 1, 2, -2, -1]]
    found = apas.calibrate_delta(base, fits, some, target=1, confidence=None, rng=0)
    assert 0 < found.certified.sum() < 5
    path = tmp_path / "calibration.json"
    apas.save_certificates(found, path)
    if change is update_took_part:
        fits[0] = noisy(1)[1][0]
        apas.save_certificates(apas.calibrate_delta(base, fits, some, target=1, confidence=None, rng=0), path)
    tampered(path, change)
    assert apas.verify(path, base, models=fits).exit_code == 1


def test_pictures_are_drawn():
    pytest.importorskip("matplotlib")
    ax = calibrated(shifted(*np.linspace(0.1, 0.9, 16), 1.5, 2.5, 3.5), confidence=None).plot()
    assert "next update" in ax.get_title(loc="left")


# -- what later updates say ----------------------------------------------------------------------------------------


def claim(level, m, seed=0):
    worst = tuple(np.random.default_rng(seed).random(m).tolist())
    return NextUpdate(0.9, level, "", 0, {"kind": "max_shift"}, worst)


@pytest.mark.parametrize(("level", "m"), [(None, 19), (0.95, 29)])
def test_alarms_are_as_rare_as_they_say(level, m):
    rng, alarms, repeats = np.random.default_rng(1), 0, 400
    for seed in range(repeats):
        stated = claim(level, m, seed)
        alarms += stated.contradicted((rng.random(50) <= stated.threshold).tolist())
    assert stats.binomtest(alarms, repeats, 0.05, alternative="greater").pvalue > 1e-4


def test_breaks_in_a_row_raise_the_alarm():
    assert [claim(None, 19).contradicted([False] * n) for n in (1, 2)] == [False, True]
    assert [claim(0.95, 29).contradicted([False] * n) for n in (1, 2, 3)] == [False, False, True]
    assert not claim(0.95, 29).contradicted([True, False, True, True, True, True] * 2)
    assert claim(0.95, 29).contradicted([True, False] * 8)


# -- the claim itself ----------------------------------------------------------------------------------------------


def held_shares(peek, repeats=60, m=19, judges=40):
    """Shares of held-out updates that keep all certified rows, where rows are fixed, or chosen with the updates."""
    rng, kept = np.random.default_rng(7), []
    rows = np.sort(rng.random((400, 1)) * 2, axis=0)  # scores are the values
    for _ in range(repeats):
        noise = rng.normal(size=(m + judges, len(rows)))  # each update breaks rows of its own, low ones more often
        breaks = noise > 2.0 + rows[:, 0]
        listed = np.ones(len(rows), dtype=bool)
        if peek:  # leave out the rows that a calibrating update breaks
            listed = ~breaks[:m].any(axis=0)
        worst = tuple(float(rows[b & listed, 0].max(initial=-np.inf)) for b in breaks[:m])
        limit = NextUpdate(0.9, None, "", 0, {"kind": "max_shift"}, worst).threshold
        certified = listed & (rows[:, 0] > limit)
        kept.append(np.mean(~breaks[m:][:, certified].any(axis=1)))
    return np.array(kept)


def test_rows_chosen_with_the_updates_void_it():
    fixed, chosen = held_shares(False), held_shares(True)
    assert fixed.mean() >= 0.89
    assert chosen.mean() < 0.5
