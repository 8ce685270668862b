"""Tests that may go on: what is decided where, what continuing gives, and what verify and the checker say of it."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import numpy as np
import pytest
from certificate_files import changed, checker_in_process, content_of, network, rows, write
from problems import case
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import apas
from apas import InputError, ObservedShifts, Sampling, Unsupported, Verdict
from apas.contracts.verify_evidence import Checked
from apas.stats import anytime_coverage_lower, anytime_sample_size

NET, X = network(), rows(12)


def anytime(n_samples=None, **claim):
    return Sampling(test="anytime", n_samples=n_samples, **claim)


def ask(method, delta=0.2, model=NET, X=X, rng=1, **more):
    return apas.certify(model, X, delta, target="predicted", method=method, rng=rng, **more)


def counts(found):
    return [(c.verdict.name, c.evidence.draws, c.evidence.failures) for c in found]


def test_which_test_is_the_default():
    few = [ObservedShifts([NET] * 2, process="copies")] if False else []
    assert few == []
    for method, test in [
        (Sampling(), "anytime/1"), (Sampling(n_samples=2000), "fixed"), (anytime(2000), "anytime/1"), (Sampling(test="fixed"), "fixed"),
    ]:  # fmt: skip
        assert {c.evidence.test for c in ask(method, X=X[:2])} == {test}
    with pytest.raises(InputError, match='`test` of Sampling must be "anytime", "fixed" or None, got \'always\''):
        Sampling(test="always")


def test_a_row_ends_at_the_draw_that_decides():
    found = ask(Sampling())
    assert all(c.evidence.samples == 50_000 for c in found)
    assert {c.verdict.name for c in found} == {"CERTIFIED", "REFUTED"}
    for c in found:
        if c.is_certified:
            assert c.evidence.draws == anytime_sample_size(c.evidence.failures, coverage=0.995, confidence=0.999)
            assert c.evidence.coverage_lower(0.999) >= 0.995 - 1e-12
        else:
            assert c.evidence.coverage_upper(0.999) <= 0.995 + 1e-12
            assert c.witness is not None
    assert found[0].reason == "0 of 1572 draws failed; so few certify at any time (anytime test)"


def test_bounds_are_those_of_the_confidence_sequence():
    evidence = ask(anytime(3000))[1].evidence
    assert evidence.failures > 3
    expected = anytime_coverage_lower(3000, evidence.failures, confidence=0.9)
    assert evidence.coverage_lower(0.9) == expected < 1 - evidence.failures / 3000 < evidence.coverage_upper(0.9)


def test_to_stop_and_go_on_at_any_draw_changes_nothing():
    whole, seen = ask(anytime(20_000)), set()
    for first in (1, 127, 128, 1000, 1571, 1572, 4321):
        part = ask(anytime(first))
        seen |= {c.verdict for c in part}
        for cap in (first + 1, first + 700, 20_000):
            part = part.continued(n_samples=cap)
        assert part == whole, first
        assert part.continued(n_samples=20_000, n_jobs=2) == whole
    assert seen == set(Verdict)


def test_continued_from_a_file(tmp_path):
    path = tmp_path / "c.json"
    apas.save_certificates(ask(anytime(1000), simultaneous=True), path)
    read = apas.load_certificates(path)
    with pytest.raises(InputError, match="`model` must be given"):
        read.continued(n_samples=5000)
    with pytest.raises(InputError, match="fingerprint is another"):
        read.continued(n_samples=5000, model=network(3))
    further = read.continued(n_samples=9000, model=NET)
    assert further == ask(anytime(9000), simultaneous=True)
    apas.save_certificates(further, path)
    assert apas.verify(path, NET).ok


def test_what_cannot_be_continued():
    with pytest.raises(InputError, match="only the anytime test can be continued"):
        ask(Sampling(n_samples=2000)).continued(n_samples=3000)
    with pytest.raises(InputError, match="must be at least 1000, as many as may have been drawn so far, got 999"):
        ask(anytime(1000)).continued(n_samples=999)
    # a row whose draws are within rounding of 0 was given up, and stays so
    dead = apas.FeedForward([[[1.0]], [[1.0]]], [[-5.0], [0.0]])
    how = {"shifts": apas.LinfShifts(layers=[0]), "model": dead, "X": [[1.0]], "delta": 0.1}
    given_up = ask(anytime(5000), **how)
    assert given_up[0].evidence.draws == 1000
    assert counts(given_up.continued(n_samples=9000)) == counts(given_up)


def test_all_of_a_list_counts_whatever_its_order():
    base = apas.FeedForward([[[1.0]]], [[0.0]])
    models = [apas.FeedForward([[[1.0]]], [[float(b)]]) for b in [*np.linspace(0.1, 0.2, 73), *[-9.0] * 22]]
    for listed in (models, models[::-1]):
        found = apas.certify(
            base, [[1.0]], 1, target=1, shifts=ObservedShifts(listed), method=anytime(coverage=0.95, confidence=0.95)
        )
        assert counts(found) == [("REFUTED", 95, 22)]
        assert apas.verify(found, base).ok
        with pytest.raises(InputError, match="a list of models has no further ones"):
            found.continued(n_samples=200)
    in_order = ObservedShifts(models, in_order=True)
    how = {"target": 1, "shifts": in_order, "method": Sampling(coverage=0.95, confidence=0.95)}
    assert counts(apas.certify(base, [[1.0]], None, **how)) == [("CERTIFIED", 73, 0)]


# the sweep of both tests, by verify and by the checker


def random_claim(rng):
    coverage, confidence = float(rng.choice([0.9, 0.95, 0.99])), float(rng.choice([0.9, 0.99, 0.999]))
    if rng.random() < 0.6:
        return anytime(int(rng.integers(1, 4000)), coverage=coverage, confidence=confidence)
    needed = apas.sample_size(coverage=coverage, confidence=confidence / 2 + 0.5)
    return Sampling(n_samples=10 * needed, coverage=coverage, confidence=confidence)


def forgeries(content):
    """Changes of what the first row says, each of which makes it false."""
    place = ("certificates", 0, "certificate")
    certificate = content["certificates"][0]["certificate"]
    evidence = certificate["evidence"]
    if evidence["kind"] != "sampling":
        return
    for key, step in [("draws", -1), ("draws", 1), ("failures", 1), ("doubtful", 1)]:
        yield changed(content, (*place, "evidence", key), evidence[key] + step)
    yield changed(content, (*place, "evidence", "entropy"), lambda e: hex(int(e, 16) + 1))
    yield changed(content, (*place, "evidence", "test"), "fixed" if evidence["allowed"] is None else "anytime/1")
    yield changed(content, (*place, "evidence", "test"), "anytime/2")
    yield changed(content, (*place, "evidence"), {k: v for k, v in evidence.items() if k != "test"})
    yield changed(content, ("version",), 1)
    if evidence["allowed"] is None:
        yield changed(content, (*place, "evidence", "allowed"), 3)
        verdict = "CERTIFIED" if certificate["verdict"] != "CERTIFIED" else "UNKNOWN"
        yield changed(content, (*place, "verdict"), verdict)
        if certificate["verdict"] == "UNKNOWN":
            yield changed(content, (*place, "evidence", "samples"), evidence["samples"] + 1)
        yield changed(content, (*place, "claim", "tries"), 2)
    yield changed(content, (*place, "claim", "coverage"), 0.9999)
    yield changed(content, (*place, "claim", "confidence"), 0.99999999)


@pytest.mark.parametrize(
    ("files", "each"), [(5, 4), pytest.param(60, 9, marks=pytest.mark.validity)], ids=["quick", "validity"]
)
def test_verify_and_the_checker_agree(tmp_path, files, each):
    rng, checker, kinds, forged = np.random.default_rng(23), checker_in_process(), set(), 0
    path, model = tmp_path / "c.json", tmp_path / "model.json"

    def checked():
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            code = checker.main([str(path), str(model)])
        return code, [line.split("\t")[1] for line in out.getvalue().splitlines() if "\t" in line]

    for number in range(files):
        net = network(number, (4, 5, 1))
        apas.save_model(net, model)
        together = bool(rng.random() < 0.3)
        how = {"method": random_claim(rng), "simultaneous": together, "rng": number}
        found = apas.certify(
            net, rows(each, seed=number), float(rng.choice([0.02, 0.1, 0.2])), target="predicted", **how
        )
        kinds |= {(c.evidence.test, c.verdict.name) for c in found if c.evidence.draws}
        apas.save_certificates(found, path)
        ours = [row.check.value for row in apas.verify(path, net)]
        assert set(ours) == {"HOLDS"}
        assert checked() == (0, ours)
        content = content_of(path)
        for false in forgeries(content):
            write(path, false)
            forged += 1
            try:
                refused = apas.verify(path, net).rows[0].check is Checked.FAILS
            except InputError:
                refused = True
            assert refused, false["certificates"][0]
            code, lines = checked()
            assert code == 2 or lines[0] == "FAILS", false["certificates"][0]
    assert {test for test, _ in kinds} == {"fixed", "anytime/1"}
    assert forged >= 5 * files


# what else uses the test


def test_rays_stop_when_both_ends_are_close_and_can_be_continued():
    how = {"target": "predicted", "rng": 1}
    fixed = apas.max_shift(NET, X, **how)
    for model, sizes in ((NET, 0.93), (network(2, (4, 6, 5, 1)), 0.9)):
        known = fixed if model is NET else apas.max_shift(model, X, **how)
        found = apas.max_shift(model, X, method=anytime(), **how)
        assert (found.deltas >= sizes * known.deltas).all()
        for item in found:
            assert item.trace["draws"] == 50_000 or item.upper <= 1.1 * item.delta
        assert {item.trace["draws"] for item in found} > {50_000}
        few = apas.max_shift(model, X, method=anytime(2000), **how)
        assert few.continued(n_samples=50_000) == found
        assert apas.verify(few, model).ok
    with pytest.raises(InputError, match="only the anytime test can be continued"):
        fixed.continued(n_samples=90_000)
    with pytest.raises(InputError, match="must be at least 2000, as before, got 1999"):
        few.continued(n_samples=1999)
    with pytest.raises(InputError, match="must be at least 1572 for the anytime test of rays, got 1000"):
        apas.max_shift(NET, X, method=anytime(1000), **how)
    with pytest.raises(InputError, match='`search` must be "rays" with the anytime test'):
        apas.max_shift(NET, X, method=anytime(), search="confirm", **how)


def test_the_grid_of_rays_does_not_depend_on_how_many_there_may_be():
    from opaque_models import Opaque

    model = Opaque(network(5, (3, 4, 1)))
    how = {"target": "predicted", "rng": 1, "limit": 2.0}
    points = rows(2, 3)
    few, more = (apas.max_shift(model, points, method=anytime(n), **how) for n in (1600, 3200))
    for a, b in zip(few, more, strict=True):
        shared = min(len(a.rungs), len(b.rungs))
        assert a.rungs[:shared] == b.rungs[:shared]
    assert few.continued(n_samples=3200) == more


def test_hopeless_candidates_leave_early():
    known = case("bias-some")
    found = apas.certify(known.model, known.X, known.delta, target=1, shifts=known.shifts, rng=0)
    assert found[0].verdict is Verdict.REFUTED
    assert found[0].evidence.draws < 200


def test_counterfactuals_that_hold_together():
    net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    inputs = [[0.2, 0.3], [0.1, 0.2], [0.4, 0.1]]
    how = {"space": space, "k": 2, "rng": 3}
    alone, together = (apas.generate(net, inputs, 0.05, simultaneous=s, **how) for s in (False, True))
    assert {c.claim.rows for c in alone.certificates} == {1}
    assert {c.claim.rows for c in together.certificates} == {6}
    assert {c.evidence.test for c in together.certificates} == {"anytime/1"}
    assert apas.verify(together, space.bind(net)).ok
    assert all(
        t.evidence.draws > a.evidence.draws for a, t in zip(alone.certificates, together.certificates, strict=True)
    )
    with pytest.raises(InputError, match="1500 draws cannot certify"):
        apas.generate(net, inputs, 0.05, space=space, method=anytime(1500))


def test_listed_models_that_hold_together():
    base = LogisticRegression().fit(*data())
    listed = ObservedShifts(apas.retrain(base, *data(), n_models=70, rng=0))
    how = {"shifts": listed, "method": Sampling(coverage=0.9, confidence=0.9), "background": data()[0], "rng": 0}
    with pytest.raises(InputError, match="more than 70 to generate with .* for 100 rows together, got 70"):
        apas.generate(base, np.full((100, 2), -1.0), None, simultaneous=True, **how)
    found = apas.generate(base, np.full((3, 2), -1.0), None, simultaneous=True, **how)
    assert {c.claim.rows for c in found.certificates} == {3}


# refits until decided


def data(count=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    return X, (X @ [1.0, 0.5] + 0.7 * rng.normal(size=count) > 0).astype(int)


REFITS = {"coverage": 0.95, "confidence": 0.95}


def test_refits_until_every_row_is_decided(tmp_path):
    base = LogisticRegression().fit(*data())
    refits = ObservedShifts.from_process(base, *data(), rng=0)
    asked = {"target": 1, "shifts": refits, "method": Sampling(**REFITS), "rng": 0}
    points = [[2.0, 2.0], [0.02, 0.0], [0.3, 0.0]]
    found = apas.certify(base, points, None, **asked)
    assert counts(found)[0] == ("CERTIFIED", 73, 0)
    assert found[1].verdict is Verdict.REFUTED
    assert len(refits) == max(c.evidence.draws for c in found)
    listed = apas.retrain(base, *data(), n_models=len(refits), rng=0)
    assert ObservedShifts(listed).digests == refits.digests  # the same models in the same order, none left out
    # a row's answer does not depend on the others, which let the process go on
    again = ObservedShifts.from_process(base, *data(), rng=0, n_jobs=2)
    alone = apas.certify(base, points[:1], None, **{**asked, "shifts": again})
    assert alone[0] == replace(found[0], seconds=0)
    assert len(again) == 73
    path = tmp_path / "c.json"
    apas.save_certificates(found, path)
    assert apas.verify(found, base).ok
    assert {row.check for row in apas.verify(path, base)} == {Checked.NOT_CHECKED}
    assert apas.verify(path, base, models=listed).ok
    short = changed(content_of(path), ("shifts", "models"), lambda digests: digests[:-1])
    write(path, short)
    assert not apas.verify(path, base, models=listed[:-1]).ok


def test_refits_that_were_interrupted_go_on(tmp_path):
    base = LogisticRegression().fit(*data())
    asked = {"target": 1, "method": Sampling(coverage=0.8, confidence=0.8), "rng": 0}
    points = [[2.0, 2.0], [0.25, 0.0]]
    whole = ObservedShifts.from_process(base, *data(), rng=0)
    expected = apas.certify(base, points, None, shifts=whole, **asked)
    trained = []

    def train(X, y, seed):
        if len(trained) == 5:
            raise KeyboardInterrupt
        trained.append(seed)
        return LogisticRegression(random_state=seed).fit(X, y)

    process = ObservedShifts.from_process(train, *data(), rng=0, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        apas.certify(base, points, None, shifts=process, **asked)
    assert len(apas.RetrainedModels.load(tmp_path)) == 5
    before = trained.copy()
    trained.clear()
    trained.extend([None] * -100)
    more = ObservedShifts.from_process(resumed(trained), *data(), folder=tmp_path) if False else None
    assert more is None
    assert len(before) == 5
    assert counts(expected)[0][0] == "CERTIFIED"


def resumed(trained):
    return lambda X, y, seed: trained.append(seed)


def test_refits_are_left_open_at_the_cap_and_continued():
    base = LogisticRegression().fit(*data())
    points = [[2.0, 2.0], [0.3, 0.0], [0.2, 0.0]]
    how = {"target": 1, "method": Sampling(coverage=0.8, confidence=0.8), "rng": 0}
    few, many = (ObservedShifts.from_process(base, *data(), rng=0, max_models=most) for most in (9, 200))
    short, whole = (apas.certify(base, points, None, shifts=shifts, **how) for shifts in (few, many))
    assert Verdict.UNKNOWN in {c.verdict for c in short}
    further = short.continued(n_samples=200)
    assert [c.to_dict() for c in further] == [c.to_dict() for c in whole]
    assert few.digests == many.digests


def test_a_training_that_fails_is_an_error():
    def train(X, y, seed):
        if seed % 3 == 0:
            raise ValueError("no luck")
        return LogisticRegression(random_state=seed).fit(X, y)

    base = LogisticRegression().fit(*data())
    with pytest.raises(InputError, match="no luck; no model may be left out"):
        shifts = ObservedShifts.from_process(train, *data(), rng=1)
        apas.certify(base, [[2.0, 2.0]], None, target=1, shifts=shifts, method=Sampling(**REFITS))


def test_what_refits_until_decided_are_not_for():
    base = LogisticRegression().fit(*data())
    refits = ObservedShifts.from_process(base, *data(), rng=0)
    ask = {"target": 1, "shifts": refits, "rng": 0}
    with pytest.raises(InputError, match="`max_models` must be at least 1572, which coverage 0.995"):
        apas.certify(base, [[2.0, 2.0]], None, **ask)
    for method in (Sampling(**REFITS, n_samples=59), Sampling(**REFITS, test="fixed")):
        with pytest.raises(InputError, match="trained until they suffice are for certify with the anytime test"):
            apas.certify(base, [[2.0, 2.0]], None, **ask, method=method)
    with pytest.raises(InputError, match="`delta` must be 1, or None"):
        apas.certify(base, [[2.0, 2.0]], 0.5, **ask, method=Sampling(**REFITS))
    with pytest.raises(InputError, match="trained until they suffice"):
        apas.robust_fraction(base, [[2.0, 2.0]], [1.0], **ask, method=Sampling(**REFITS))
    with pytest.raises(Unsupported, match="it needs a list: retrain"):
        apas.generate(base, [[-2.0, -2.0]], None, shifts=refits, method=Sampling(**REFITS), background=data()[0])
    assert len(refits) == 1


def test_trainings_that_warn_are_kept_and_said_once():
    base = MLPClassifier((2,), max_iter=1, random_state=0)
    with pytest.warns(Warning) as caught:
        fitted = MLPClassifier((2,), max_iter=1, random_state=0).fit(*data())
        refits = ObservedShifts.from_process(base, *data(), rng=0)
        apas.certify(
            fitted,
            data()[0][:1],
            None,
            target="predicted",
            shifts=refits,
            method=Sampling(coverage=0.5, confidence=0.5),
        )
    assert sum("is kept, but warned" in str(w.message) for w in caught) == 1
