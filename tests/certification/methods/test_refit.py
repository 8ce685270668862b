"""Certificates about refits through all verbs: certify, max_shift, generate, audit, verify, files, the checker, reports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from certificate_files import changed, checker_in_process, content_of, run_checker, write
from sklearn.linear_model import LogisticRegression, RidgeClassifier

import apas
from apas import DataChange, RefitBounds, Verdict
from apas.contracts.audit import Outcome

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = (X[:, 0] - 0.5 * X[:, 1] + RNG.normal(size=300) > 0).astype(int)
TIGHT = {"solver": "newton-cholesky", "tol": 1e-10}
MODEL = LogisticRegression(**TIGHT).fit(X, Y)
ROWS = np.array([[0.6, 0.0], [0.15, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.3, 0.1]])
TARGETS = [1, 1, 1, 0, 1]
KINDS = ("removed", "relabelled", "added", "replaced")


def certified(kind, delta=2, model=MODEL, **more):
    change = DataChange(kind, X, Y, **more)
    return apas.certify(model, ROWS, delta, target=TARGETS, shifts=change, method="refit"), change


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_files_and_checks(kind, tmp_path):
    net = apas.as_model(MODEL).as_feedforward()
    found, change = certified(kind, [2, 12, 2, 1, 2], net)
    verdicts = [item.verdict for item in found]
    assert verdicts[0] is verdicts[2] is Verdict.CERTIFIED
    assert verdicts[1] is Verdict.REFUTED
    assert apas.verify(found, net).ok
    path, model, table = tmp_path / "c.json", tmp_path / "m.json", tmp_path / "t.npy"
    apas.save_certificates(found, path)
    apas.save_model(net, model)
    np.save(table, change.table(net))
    assert apas.verify(path, net, shifts=change).ok
    assert [row.check.value for row in apas.verify(path, net)] == ["NOT CHECKED"] * len(ROWS)
    with pytest.raises(apas.InputError, match="`shifts` must be the set"):
        apas.verify(path, net, shifts=DataChange(kind, X + 1e-9, Y))
    assert run_checker(path, model, "--table", table)[0] == 0
    code, lines, _ = run_checker(path, model)
    assert code == 3
    assert "needs the training table" in lines[0][2]
    np.save(table, change.table(net)[::-1])
    assert run_checker(path, model, "--table", table)[0] == 1


def test_forgeries_are_found(tmp_path):
    net = apas.as_model(MODEL).as_feedforward()
    found, change = certified("removed", [2, 12, 2, 1, 2], net)
    path, model, table = tmp_path / "c.json", tmp_path / "m.json", tmp_path / "t.npy"
    apas.save_certificates(found, path)
    apas.save_model(net, model)
    np.save(table, change.table(net))
    content, checker = content_of(path), checker_in_process()
    checked = lambda other: checker.main([str(other), str(model), "--table", str(table)])  # noqa: E731
    at = lambda i, *more: ("certificates", i, "certificate", *more)  # noqa: E731
    rows = content["certificates"][1]["certificate"]["evidence"]["rows"]
    values = content["certificates"][1]["certificate"]["witness"]["values"]
    for place, value in [
        (at(0, "delta"), 40.0), (at(0, "evidence", "bound"), 3.0), (at(1, "verdict"), "CERTIFIED"),
        (at(1, "evidence", "rows"), rows[:-1]), (at(1, "evidence", "rows"), [*rows[:-1], 999]),
        (at(1, "evidence", "rows"), [rows[0]] * 12), (at(1, "witness", "values"), [v - 0.01 for v in values]),
        (at(0, "evidence", "table"), "0" * 64), (at(0, "claim", "measure"), "all models"),
        (at(1, "evidence", "added"), [0.0, 0.0, 1.0, 0.0]),
    ]:  # fmt: skip
        other = tmp_path / "forged.json"
        write(other, changed(content, place, value))
        assert apas.verify(other, net, shifts=change).exit_code == 1, (place, value)
        if place[-1] != "measure":  # whose words the checker does not know
            assert checked(other) in (1, 2), (place, value)
    for place, value in [(at(0, "evidence", "threshold"), -1e9), (at(0, "evidence", "radius"), 1e-9)]:
        write(other, changed(content, place, value))
        assert apas.verify(other, net, shifts=change).exit_code == 1, (place, value)
        assert checked(other) == 1, (place, value)
    for place, value in [(("shifts", "C"), 0.5), (("shifts", "tolerance"), 1e-9), (("shifts", "rows"), 299)]:
        write(other, changed(content, place, value))
        with pytest.raises(apas.InputError, match="`shifts`"):
            apas.verify(other, net, shifts=change)


@pytest.mark.parametrize("kind", KINDS)
def test_largest_shifts_name_the_rows(kind, tmp_path):
    change = DataChange(kind, X, Y)
    found = apas.max_shift(MODEL, ROWS, target=TARGETS, shifts=change, method="refit")
    for item, row, target in zip(found, ROWS, TARGETS, strict=True):
        assert item.delta == int(item.delta)
        assert item.delta < item.broken_at
        if item.delta:
            assert apas.certify(MODEL, [row], item.delta, target=target, shifts=change, method="refit")[0].is_certified
        beyond = apas.certify(MODEL, [row], item.delta + 1, target=target, shifts=change, method="refit")[0]
        assert not beyond.is_certified
    weak = found[1]
    assert np.isfinite(weak.broken_at)
    rows = weak.trace["rows"]
    if kind == "removed":
        kept = np.delete(np.arange(300), rows)
        assert len(rows) == weak.broken_at
        refit = LogisticRegression(**TIGHT).fit(X[kept], Y[kept])
        assert refit.predict([ROWS[1]])[0] == 0
    apas.save_certificates(found, tmp_path / "m.json")
    assert apas.verify(tmp_path / "m.json", MODEL, shifts=change).ok
    assert apas.max_shift(MODEL, ROWS[:1], target=1, shifts=change, method="refit", limit=1)[0].delta <= 1
    silent = apas.max_shift(MODEL, ROWS[1:2], target=1, shifts=change, method=RefitBounds(attack=False))[0]
    assert np.isinf(silent.broken_at)


def test_audit_measures_a_real_refit():
    found, _ = certified("removed", [3, 3, 3, 3, 3])
    kept = np.delete(np.arange(300), [1, 2, 3])
    new = LogisticRegression(**TIGHT).fit(X[kept], Y[kept])
    report = apas.audit(found, new, base=MODEL, data=(X[kept], Y[kept]))
    assert any("3 training rows changed" in note and "within the tolerance" in note for note in report.notes)
    assert [row.inside for row in report if row.verdict == "CERTIFIED"] == [True] * sum(c.is_certified for c in found)
    assert report.ok
    assert all(row.inside is None for row in apas.audit(found, new, base=MODEL))
    fewer = np.delete(np.arange(300), range(9))
    other = LogisticRegression(**TIGHT).fit(X[fewer], Y[fewer])
    outside = apas.audit(found, other, base=MODEL, data=(X[fewer], Y[fewer]))
    assert all(row.inside is False for row in outside)
    broken = apas.FeedForward([[[-1.0], [0.0]]], [[0.0]])
    rows = apas.audit(found, broken, base=MODEL, data=(X[kept], Y[kept]), repairs=False)
    assert {row.outcome for row in rows} & {Outcome.BROKEN_OUTSIDE}
    with pytest.raises(apas.InputError, match="`data`"):
        apas.audit(found, new, base=MODEL, data=(X[kept],))
    with pytest.raises(apas.InputError, match="`base` of audit must be given with `data`"):
        apas.audit(found, new, data=(X[kept], Y[kept]))
    with pytest.raises(apas.InputError, match="`data`"):
        plain = apas.certify(MODEL, ROWS, 0.01, target=TARGETS, method="interval")
        apas.audit(plain, new, base=MODEL, data=(X, Y))


def test_audit_of_a_file_needs_the_set(tmp_path):
    found, change = certified("removed", 3)
    apas.save_certificates(found, tmp_path / "c.json")
    with pytest.raises(apas.InputError, match="`shifts` of audit"):
        apas.audit(tmp_path / "c.json", MODEL, base=MODEL, data=(X, Y))
    report = apas.audit(tmp_path / "c.json", MODEL, base=MODEL, data=(X, Y), shifts=change)
    assert any("0 training rows changed" in note for note in report.notes)


def test_reports_can_be_written(tmp_path):
    found, _ = certified("removed", 3)
    apas.write_report(found, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "training rows" in text
    assert "nothing is drawn" in text
    apas.save_certificates(found, tmp_path / "c.json")
    apas.write_report(tmp_path / "c.json", tmp_path / "f.html", model=MODEL)


def test_other_thresholds_and_networks():
    change = DataChange("removed", X, Y)
    for threshold in (0.3, 0.7):
        model = apas.as_model(MODEL, threshold=threshold)
        found = apas.max_shift(model, ROWS[:1], target=1, shifts=change, method="refit")[0]
        plain = apas.max_shift(MODEL, ROWS[:1], target=1, shifts=change, method="refit")[0]
        assert (found.broken_at < plain.broken_at) == (threshold > 0.5)
    hidden = apas.FeedForward([[[1.0, -1.0], [0.5, 1.0]], [[1.0], [-1.0]]], [[0.1, 0.2], [0.0]])
    found = apas.certify(hidden, [[2.0, -1.0]], 3, target=1, shifts=DataChange("removed", X, Y), method="refit")[0]
    assert found.is_certified
    ridge = RidgeClassifier().fit(X, Y)
    change = DataChange("removed", X, Y, loss="squared")
    item = apas.max_shift(ridge, ROWS[:1], target=1, shifts=change, method="refit")[0]
    assert item.delta > 0
    kept = np.delete(np.arange(300), item.trace["rows"])
    assert RidgeClassifier().fit(X[kept], Y[kept]).predict(ROWS[:1])[0] == 0


def test_evidence_round_trips():
    found, _ = certified("removed", [2, 12, 2, 1, 2])
    for item in found:
        text = json.loads(json.dumps(item.evidence.to_dict()))
        from apas._fields import Fields

        assert type(item.evidence).from_dict(Fields(text, "evidence")) == item.evidence
