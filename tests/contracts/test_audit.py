"""`audit`: which promises a new model keeps, inside or outside of what was certified, and what repairs the others."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from certificate_files import changed, content_of, network, rows, write
from hypothesis import given, settings, strategies as st
from problems import case

import apas
from apas.contracts.audit import Outcome


def linear(bias=0.0, weights=(1.0, -1.0), **options):
    return apas.FeedForward([np.array(weights)[:, None]], [[bias]], feature_names=("income", "debt"), **options)


OLD = linear()
POINTS = np.array([[2.0, 0.5], [1.0, 0.9], [0.5, 0.9]])


@pytest.fixture
def certificates():
    """Margins 1.5, 0.1 and -0.4: two promises, and a row that is none."""
    return apas.certify(OLD, POINTS, 0.02, target=1, method="interval")


def outcomes(report):
    return [row.outcome for row in report]


def test_held_inside_and_outside(certificates):
    report = apas.audit(certificates, linear(-0.015), base=OLD)
    assert outcomes(report) == [Outcome.HELD, Outcome.HELD, Outcome.NOT_PROMISED]
    assert [row.inside for row in report] == [True, True, True]
    assert report.ok
    assert report.exit_code == 0
    report = apas.audit(certificates, linear(-0.2), base=OLD)
    assert outcomes(report) == [Outcome.HELD, Outcome.BROKEN_OUTSIDE, Outcome.NOT_PROMISED]
    assert [row.inside for row in report] == [False] * 3
    assert [row.valid for row in report] == [True, False, False]
    assert report.broken.tolist() == [False, True, False]
    assert not report.ok
    assert report.exit_code == 1
    assert report.shift.delta == 0.2
    layers = report.shift.per_layer
    assert layers[layers["p"] == math.inf].set_index("kind")["new model"].to_dict() == {"weight": 0.0, "bias": 0.2}
    assert "1 HELD, 1 BROKEN_OUTSIDE, 1 NOT_PROMISED" in report.summary()
    assert "at most 0.2" in report.summary()


def test_the_edge_of_the_set_is_inside():
    certificates = apas.certify(OLD, [[2.0, 0.5]], 0.25, target=1, method="interval")
    assert apas.audit(certificates, linear(-0.25), base=OLD)[0].inside
    assert not apas.audit(certificates, linear(math.nextafter(-0.25, -1)), base=OLD)[0].inside


def test_other_sets_are_named_not_compared():
    """A relative delta is in other units than the distance, so the two are not put beside each other."""
    relative = apas.certify(OLD, POINTS[:2], 0.02, target=1, shifts=apas.LinfShifts(relative=True), method="interval")
    report = apas.audit(relative, linear(-0.2), base=OLD)
    assert outcomes(report) == [Outcome.HELD, Outcome.BROKEN_OUTSIDE]
    for row, item in zip(report, relative, strict=True):
        assert row.reason.endswith(f"the certified set is: {item.claim.measure}, delta = 0.02")
    plain = apas.certify(OLD, POINTS[:2], 0.02, target=1, method="interval")
    assert "the certified delta is 0.02, the distance" in apas.audit(plain, linear(-0.2), base=OLD)[1].reason


def test_without_a_base_nothing_is_measured(certificates):
    report = apas.audit(certificates, linear(-0.2))
    assert outcomes(report) == [Outcome.HELD, Outcome.BROKEN, Outcome.NOT_PROMISED]
    assert [row.inside for row in report] == [None] * 3
    assert report.shift is None
    assert report.shifts == {}
    assert "was not measured" in report[1].reason
    assert not report.ok


def test_most_shifts_leave_some_out():
    # 99.8 % of the shifts keep the class, so that 99.5 % are certified; this one does not
    question = case("bias-almost")
    certificates = apas.certify(question.model, question.X, question.delta, target=1, shifts=question.shifts, rng=0)
    assert certificates.certified.all()
    values = question.model.parameters.values.copy()
    values[-1] -= 0.301
    report = apas.audit(certificates, question.model.with_parameters(values), base=question.model)
    assert outcomes(report) == [Outcome.BROKEN_INSIDE]
    assert "at least 99.5 %" in report[0].reason
    assert "WRONG" not in report[0].reason
    assert report.wrong_certificates == 0
    # a weight moved too, which the certificate says does not
    values[0] -= 1e-9
    report = apas.audit(certificates, question.model.with_parameters(values), base=question.model)
    assert outcomes(report) == [Outcome.BROKEN_OUTSIDE]


def test_a_wrong_certificate_is_called_wrong(certificates, tmp_path):
    apas.save_certificates(certificates, tmp_path / "c.json")
    content = content_of(tmp_path / "c.json")
    write(tmp_path / "forged.json", changed(content, ("certificates", 1, "certificate", "delta"), 0.5))
    report = apas.audit(tmp_path / "forged.json", linear(-0.2), base=OLD)
    assert outcomes(report) == [Outcome.HELD, Outcome.BROKEN_INSIDE, Outcome.NOT_PROMISED]
    assert report[1].reason.startswith("THE CERTIFICATE WAS WRONG")
    assert "rounding" not in report[1].reason
    assert report.wrong_certificates == 1
    assert "1 certificate about every shift cannot be right" in report.summary()
    assert "THE CERTIFICATE WAS WRONG" in report.to_markdown()
    assert apas.verify(tmp_path / "forged.json", OLD).exit_code == 1  # as the message tells to ask


def test_files_and_results_give_the_same_report(certificates, tmp_path):
    apas.save_certificates(certificates, tmp_path / "c.json")
    for path in (tmp_path / "c.json", str(tmp_path / "c.json"), apas.load_certificates(tmp_path / "c.json")):
        assert apas.audit(path, linear(-0.2), base=OLD) == apas.audit(certificates, linear(-0.2), base=OLD)


@pytest.mark.parametrize(
    ("shifts", "moved", "inside"),
    [
        (apas.LpShifts(1), 0.02, True),
        (apas.LpShifts(1), 0.03, False),
        (apas.LpShifts(2), 0.02, True),
        (apas.LpShifts(2), 0.03, False),
        (apas.LinfShifts(kinds=("weight",)), 0.01, False),
        (apas.LinfShifts(layers=[0], scale={0: 2.0}), 0.03, True),
        (apas.GaussianShifts(), 5.0, True),
        (apas.InputNoise(), 0.01, False),
        (apas.InputNoise(), 0.0, True),
    ],
)
def test_other_sets(shifts, moved, inside):
    certificates = apas.certify(OLD, POINTS[:1], 0.025, target=1, shifts=shifts, rng=0)
    assert certificates.certified.all()
    report = apas.audit(certificates, linear(-moved), base=OLD)
    assert report[0].inside is inside
    assert report.shift.p == (shifts.p if isinstance(shifts, apas.LpShifts) else math.inf)


def test_listed_models(tmp_path):
    listed = [linear(-0.1), linear(-0.3)]
    certificates = apas.certify(OLD, POINTS[:1], 1, target=1, shifts=apas.ObservedShifts(listed), method="exact")
    apas.save_certificates(certificates, tmp_path / "c.json")
    for found in (certificates, tmp_path / "c.json"):
        assert apas.audit(found, listed[1], base=OLD)[0].inside is True
        assert apas.audit(found, linear(-0.2), base=OLD)[0].inside is False
    part = apas.certify(OLD, POINTS[:1], 0.5, target=1, shifts=apas.ObservedShifts(listed), method="exact")
    apas.save_certificates(part, tmp_path / "part.json")
    assert apas.audit(part, linear(-0.15), base=OLD)[0].inside is True
    assert apas.audit(tmp_path / "part.json", linear(-0.15), base=OLD)[0].inside is None  # the file lacks the models
    assert outcomes(apas.audit(tmp_path / "part.json", linear(-9.0), base=OLD)) == [Outcome.BROKEN]


def test_what_differs_besides_parameters_is_outside(certificates):
    for new in (linear(threshold=0.6), linear(0.0, classes=(1, 0)), linear(0.0, classes=(0, 1, ), threshold=0.55)):  # fmt: skip
        report = apas.audit(certificates, new, base=OLD)
        assert [row.inside for row in report] == [False] * 3
    assert "(threshold)" in apas.audit(certificates, linear(threshold=0.9), base=OLD)[1].reason


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 0.2))
def test_agrees_with_the_models(seed, moved):
    rng = np.random.default_rng(seed)
    old = network(seed % 7, feature_names=list("abcd"))
    certificates = apas.certify(old, rng.normal(size=(8, 4)), 0.05, target="predicted", method="interval")
    new = old.with_parameters(old.parameters.values + moved * rng.uniform(-1, 1, size=len(old.parameters)))
    report = apas.audit(certificates, new, base=old, repairs=False)
    distance = float(apas.measure_shift(old, new))
    for row, certificate, point in zip(report, certificates, certificates.points, strict=True):
        kept = bool(apas.metrics.validity(new, point[None], certificate.target)[0])
        assert row.valid is kept
        assert row.inside is (distance <= 0.05)
        promised = certificate.is_certified
        assert row.outcome.is_broken is (promised and not kept)
        assert (row.outcome is Outcome.NOT_PROMISED) is not promised
        assert row.outcome is not Outcome.BROKEN_INSIDE  # every shift was proved


def test_nothing_promised():
    report = apas.audit(apas.certify(OLD, np.empty((0, 2)), 0.1, target=1), linear(), base=OLD)
    assert report.ok
    assert report.summary() == "No rows, nothing was promised."
    assert report.to_frame().empty
    assert "All promises are kept" in report.to_markdown()
    assert ElementTree.fromstring(report.to_junit())[0].get("tests") == "0"


def test_report_formats(certificates):
    frame = pd.DataFrame(POINTS, columns=["income", "debt"], index=["a|b", "<&>", "x\x00\ny"])
    certificates = apas.certify(OLD, frame, 0.02, target=1, method="interval")
    report = apas.audit(certificates, linear(-0.2), base=OLD)
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["format"] == "apas-audit-report"
    assert not told["ok"]
    assert [row["outcome"] for row in told["rows"]] == ["HELD", "BROKEN_OUTSIDE", "NOT_PROMISED"]
    assert told["rows"][1]["repair"]["values"].keys() == {"income", "debt"}
    assert list(told["shifts"]) == [certificates.model_digest]
    assert report.to_frame().index.tolist() == ["a|b", "<&>", "x\x00\ny"]
    assert report[report.broken].to_frame()["outcome"].tolist() == ["BROKEN_OUTSIDE"]
    assert "&lt;&amp;&gt;" in report._repr_html_()
    suite = ElementTree.fromstring(report.to_junit())[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": "3", "failures": "1", "skipped": "1", "errors": "0",
    }  # fmt: skip
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["row a|b", "row <&>", "row x?\ny"]
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["skipped"]]
    assert cases[1][0].get("type") == "BROKEN_OUTSIDE"
    assert "nearest repair: " in cases[1][0].text
    lines = report.to_markdown().splitlines()
    assert lines[0] == "## 1 promise is broken"
    table = [line for line in lines if line.startswith("| ")]
    assert table[1].startswith(r"| a\|b | HELD |")
    assert table[2].startswith("| &lt;&amp;&gt; | BROKEN_OUTSIDE |")
    assert any(line.startswith("| layer0 | bias | 1 | 0.2 |") for line in lines)


def test_bad_arguments(certificates, tmp_path):
    with pytest.raises(apas.InputError, match="`certificates` must be what"):
        apas.audit([1], linear())
    with pytest.raises(apas.InputError, match="`new_model` cannot be read"):
        apas.audit(certificates, "new.json")
    with pytest.raises(apas.InputError, match="`validity_only` must be"):
        apas.audit(certificates, linear(), validity_only="yes")
    with pytest.raises(apas.InputError, match="`space` must be"):
        apas.audit(certificates, linear(), space={})
    with pytest.raises(apas.InputError, match=r"`base` must be the model that the certificates are about"):
        apas.audit(certificates, linear(), base=linear(1e-6))
    radii = apas.max_shift(OLD, POINTS, target=1, method="interval")
    apas.save_certificates(radii, tmp_path / "radii.json")
    with pytest.raises(apas.InputError, match="no certificates"):
        apas.audit(tmp_path / "radii.json", linear())
    with pytest.raises(apas.InputError, match="promised classes"):
        apas.audit(certificates, linear(classes=("no", "yes")))


def test_a_thousand_rows():
    net = network(feature_names=list("abcd"))
    certificates = apas.certify(net, rows(1000), 0.001, target="predicted", method="interval")
    new = net.with_parameters(net.parameters.values * 1.05)
    report = apas.audit(certificates, new, base=net, repairs=False)
    kept = new.margin(rows(1000), np.array([c.target for c in certificates], dtype=object)) >= 0
    assert int(report.broken.sum()) == int((~kept & certificates.certified).sum()) > 0
