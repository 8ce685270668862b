"""Tests that may go on: what is decided where, what continuing gives, and what verify and the checker say of it."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from certificate_files import changed, checker_in_process, content_of, network, rows, write
from opaque_models import BlackBox
from problems import case
from sklearn.linear_model import LogisticRegression

import apas
from apas import InputError, ObservedShifts, Sampling, Unsupported, Verdict
from apas._random import Stream
from apas.contracts.verify_evidence import Checked
from apas.shifts.distance import drawn_seeds
from apas.stats import anytime_coverage_lower, anytime_sample_size

NET, X = network(), rows(12)


def anytime(n_samples=None, **claim):
    return Sampling(test="anytime", n_samples=n_samples, **claim)


def ask(method, delta=0.2, model=NET, X=X, rng=1, **more):
    return apas.certify(model, X, delta, target="predicted", method=method, rng=rng, **more)


def counts(found):
    return [(c.verdict.name, c.evidence.draws, c.evidence.failures) for c in found]


def test_which_test_is_the_default():
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
    # also where that draw is the last one it might make: whoever goes on gets what one long run gives
    for first in (999, 1000, 1001):
        part = ask(anytime(first), **how)
        assert ("it may be continued" in part[0].reason) == (first == 999)
        assert part.continued(n_samples=5000) == given_up


def test_all_of_a_list_counts_whatever_its_order():
    base = apas.FeedForward([[[1.0]]], [[0.0]])
    models = [apas.FeedForward([[[1.0]]], [[float(b)]]) for b in [*np.linspace(0.1, 0.2, 73), *np.linspace(-9, -8, 22)]]
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
    if certificate["verdict"] == "CERTIFIED":  # else the same draws may say as much of a larger claim
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
    fixed = apas.max_shift(NET, X[:5], **how)
    for model, sizes in ((NET, 0.93), (network(2, (4, 6, 5, 1)), 0.9)):
        known = fixed if model is NET else apas.max_shift(model, X[:5], **how)
        found = apas.max_shift(model, X[:5], method=anytime(), **how)
        assert (found.deltas >= sizes * known.deltas).all()
        for item in found:
            assert item.trace["draws"] == 50_000 or item.upper <= 1.1 * item.delta
        assert len({item.trace["draws"] for item in found}) > 1  # each row stops by itself
        few = apas.max_shift(model, X[:5], method=anytime(2000), **how)
        assert few.continued(n_samples=50_000) == found
        assert apas.verify(few, model).ok
    with pytest.raises(InputError, match="only the anytime test can be continued"):
        fixed.continued(n_samples=90_000)
    with pytest.raises(InputError, match="must be at least 2000, as before, got 1999"):
        few.continued(n_samples=1999)
    with pytest.raises(InputError, match="must be at least 1572 for the anytime test along rays, got 1000"):
        apas.max_shift(NET, X[:5], method=anytime(1000), **how)
    with pytest.raises(InputError, match='`search` must be "rays" with the anytime test'):
        apas.max_shift(NET, X[:5], method=anytime(), search="confirm", **how)


def test_the_grid_of_rays_does_not_depend_on_how_many_there_may_be():
    model = BlackBox(network(5, (3, 4, 1)))
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
    for a, t in zip(alone.certificates, together.certificates, strict=True):
        assert 1 - t.claim.row_confidence == (1 - a.claim.row_confidence) / 6
    with pytest.raises(InputError, match="1500 draws cannot certify"):
        apas.generate(net, inputs, 0.05, space=space, method=anytime(1500))


def test_listed_models_that_hold_together():
    base = apas.FeedForward([[[1.0], [1.0]]], [[0.0]])
    listed = ObservedShifts([apas.FeedForward([[[1.0], [1.0]]], [[b]]) for b in (0.0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3)])
    how = {"shifts": listed, "method": Sampling(coverage=0.5, confidence=0.9), "background": rows(20, 2), "rng": 0}
    with pytest.raises(InputError, match="more than 8 to generate with .* for 20 rows together, got 7"):
        apas.generate(base, np.full((20, 2), -1.0), None, simultaneous=True, **how)
    found = apas.generate(base, np.full((2, 2), -1.0), None, simultaneous=True, **how)
    assert {c.claim.rows for c in found.certificates} == {2}


# refits until decided


REFITS = {"coverage": 0.95, "confidence": 0.95}
BASE = apas.FeedForward([[[1.0], [1.0]]], [[0.0]])
TABLE = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1]


def train(X, y, seed):
    """A training that takes no time: it moves the boundary."""
    bias = np.random.default_rng(seed).normal()
    return apas.FeedForward([[[1.0], [1.0]]], [[bias]])


def process(**options):
    return ObservedShifts.from_process(train, *TABLE, **{"rng": 0, **options})


def refitted(shifts, points, method=None):
    method = Sampling(**REFITS) if method is None else method
    return apas.certify(BASE, points, None, target=1, shifts=shifts, method=method, rng=0)


#: Fails on no model; on about half of them; on a share of 0.023.
POINTS = [[9.0, 9.0], [0.01, 0.0], [2.0, 0.0]]


def test_refits_until_every_row_is_decided(tmp_path):
    refits = process()
    found = refitted(refits, POINTS)
    assert counts(found)[0] == ("CERTIFIED", 73, 0)
    assert [c.verdict for c in found[1:]] == [Verdict.REFUTED, Verdict.CERTIFIED]
    assert 73 < len(refits) == found[2].evidence.draws
    assert "keep class 1" in found[0].sentence()
    listed = apas.retrain(train, *TABLE, n_models=len(refits), rng=0)
    assert ObservedShifts(listed).digests == refits.digests  # the same models in the same order, none left out
    # a row's answer does not depend on the others, for which the process goes on
    again = process()
    assert refitted(again, POINTS[:1])[0] == found[0]
    assert len(again) == 73
    path = tmp_path / "c.json"
    apas.save_certificates(found, path)
    assert apas.verify(found, BASE).ok
    assert {row.check for row in apas.verify(path, BASE)} == {Checked.NOT_CHECKED}
    assert apas.verify(path, BASE, models=listed).ok
    write(path, changed(content_of(path), ("shifts", "models"), lambda digests: digests[:-1]))
    assert not apas.verify(path, BASE, models=listed[:-1]).ok
    content = content_of(path)
    del content["shifts"]["order"]  # then the order says nothing, and all of the list must be counted
    write(path, content)
    assert not apas.verify(path, BASE, models=listed[:-1]).ok


def test_workers_train_ahead_and_change_nothing():
    base = LogisticRegression().fit(*TABLE)
    tables = np.random.default_rng(0).normal(size=(30, 2)), [0, 1] * 15
    one, two = (ObservedShifts.from_process(base, *tables, rng=0, n_jobs=n, fraction=0.8) for n in (1, 2))
    ask = {"target": "predicted", "method": Sampling(coverage=0.6, confidence=0.6), "rng": 0}
    first, second = (apas.certify(base, [[3.0, 0.0], [-3.0, 0.0]], None, shifts=shifts, **ask) for shifts in (one, two))
    assert first == second
    assert one.digests == two.digests


def breaking(X, y, seed):
    """A training that notes its seeds in a file, since the state of a function would make it another process."""
    seeds = Path(os.environ["APAS_TEST_SEEDS"])
    if seeds.read_text().count("\n") == int(os.environ["APAS_TEST_MOST"]):
        raise KeyboardInterrupt
    seeds.write_text(seeds.read_text() + f"{seed}\n")
    return train(X, y, seed)


def fails_after_73(X, y, seed):
    if seed == drawn_seeds(Stream(0, "retrain/seeds"), 73, 1)[0]:
        raise RuntimeError("no data")
    return train(X, y, seed)


def test_a_training_ahead_of_its_turn_fails_when_it_is_asked_for():
    """Which models are trained at the same time depends on the workers; whether a row is certified does not."""
    for jobs in (1, 2):
        refits = ObservedShifts.from_process(fails_after_73, *TABLE, rng=0, n_jobs=jobs)
        assert counts(refitted(refits, POINTS[:1])) == [("CERTIFIED", 73, 0)]
        with pytest.raises(InputError, match="failed on model number 73: RuntimeError no data"):
            refitted(refits, POINTS[2:])
        assert len(refits) == 73


def test_refits_that_were_interrupted_go_on(tmp_path, monkeypatch):
    expected, seeds, folder = refitted(process(), POINTS), tmp_path / "seeds.txt", tmp_path / "refits"
    seeds.write_text("")
    monkeypatch.setenv("APAS_TEST_SEEDS", str(seeds))
    monkeypatch.setenv("APAS_TEST_MOST", "20")
    begun = process_of(breaking, folder=folder, rng=0)
    with pytest.raises(KeyboardInterrupt):
        refitted(begun, POINTS)
    assert len(apas.RetrainedModels.load(folder)) == 20
    monkeypatch.setenv("APAS_TEST_MOST", "1000")
    again = process_of(breaking, folder=folder)  # the seed is that of the folder
    assert counts(refitted(again, POINTS)) == counts(expected)
    trained = seeds.read_text().split()
    assert len(trained) == len(set(trained)) == len(again)  # none was trained twice


def process_of(function, **options):
    return ObservedShifts.from_process(function, *TABLE, **options)


def test_refits_are_left_open_at_the_cap_and_continued():
    few, many = process(max_models=80), process(max_models=400)
    short, whole = refitted(few, POINTS), refitted(many, POINTS)
    assert [c.verdict for c in short] == [Verdict.CERTIFIED, Verdict.REFUTED, Verdict.UNKNOWN]
    assert len(few) == 80
    assert short.continued(n_samples=400) == whole
    assert few.digests == many.digests


def test_first_refutations():
    never = [[-9.0, 9.5]]  # valid today, and then on no model
    base = apas.FeedForward([[[0.0], [1.0]]], [[0.0]])
    found = apas.certify(base, never, None, target=1, shifts=failing_process(), method=Sampling(**REFITS), rng=0)
    assert counts(found) == [("REFUTED", 2, 2)]


def failing_process():
    return process_of(lambda X, y, seed: apas.FeedForward([[[1.0], [0.5]]], [[-float(seed)]]), rng=0)


def test_a_training_that_fails_is_an_error():
    def unlucky(X, y, seed):
        if seed % 3 == 0:
            raise ValueError("no luck")
        return train(X, y, seed)

    shifts = process_of(unlucky, rng=2)
    with pytest.raises(InputError, match="no luck; no model may be left out"):
        refitted(shifts, POINTS)


def test_what_refits_until_decided_are_not_for():
    refits = process()
    with pytest.raises(InputError, match="`max_models` must be at least 1572, which coverage 0.995"):
        refitted(refits, POINTS, Sampling())
    for method in (Sampling(**REFITS, n_samples=59), Sampling(**REFITS, test="fixed")):
        with pytest.raises(InputError, match="trained until they suffice are for certify with the anytime test"):
            refitted(refits, POINTS, method)
    asked = {"target": 1, "shifts": refits, "method": Sampling(**REFITS)}
    with pytest.raises(InputError, match="`delta` must be 1, or None"):
        apas.certify(BASE, POINTS, 0.5, **asked)
    with pytest.raises(InputError, match="trained until they suffice"):
        apas.robust_fraction(BASE, POINTS, [1.0], **asked)
    with pytest.raises(Unsupported, match="it needs a list: retrain"):
        apas.generate(BASE, [[-2.0, -2.0]], None, background=rows(9, 2), **asked)
    with pytest.raises(InputError, match="`max_models` of from_process must be"):
        process(max_models=0)
    assert len(refits) == 1


def test_what_is_not_random_and_what_warns_is_said():
    same = process_of(lambda X, y, seed: BASE, rng=0)
    with pytest.warns(apas.GuaranteeWarning, match="the first two models of the process are the same"):
        refitted(same, POINTS[:1], Sampling(coverage=0.5, confidence=0.5))

    def warning(X, y, seed):
        warnings.warn("not converged", RuntimeWarning, stacklevel=1)
        return train(X, y, seed)

    with pytest.warns(RuntimeWarning, match="is kept, but warned: not converged") as caught:
        refitted(process_of(warning, rng=0), POINTS[:1], Sampling(coverage=0.5, confidence=0.5))
    assert len(caught) == 1
