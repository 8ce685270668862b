"""What a result can be asked: frames, dictionaries, sentences, pictures."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from problems import case

import apas
from apas import Certificate, Sampling, Verdict


@pytest.fixture
def certificates(small_network):
    names = ["a", "b", "c", "<d>"]
    net = apas.FeedForward(small_network.weights, small_network.biases, classes=["no", "yes"], feature_names=names)
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(6, 4)), columns=names, index=list("uvwxyz"))
    return apas.certify(net, X, 0.05, target="yes", rng=1)


def test_sequence(certificates):
    assert len(certificates) == 6
    assert isinstance(certificates[0], Certificate)
    assert list(certificates)[-1] == certificates[-1]
    part = certificates[1:3]
    assert list(part) == [certificates[1], certificates[2]]
    assert part.to_frame().equals(certificates.to_frame().iloc[1:3])
    assert certificates.certified.dtype == bool
    assert certificates.certified.tolist() == [c.verdict is Verdict.CERTIFIED for c in certificates]


def test_frame_keeps_the_index(certificates):
    frame = certificates.to_frame()
    assert frame.index.tolist() == list("uvwxyz")
    assert frame.columns.tolist() == [
        "verdict", "target", "delta", "claim", "coverage", "confidence", "draws", "failures", "method", "reason",
        "valid_today",
    ]  # fmt: skip
    assert set(frame["verdict"]) <= {"CERTIFIED", "REFUTED", "UNKNOWN"}
    assert (frame["coverage"] == 0.995).all()


def test_dictionary_is_json_and_holds_no_time(certificates):
    text = json.dumps(certificates.to_dict(), allow_nan=False)
    content = json.loads(text)
    assert "seconds" not in text
    first = content["certificates"][0]
    assert first["row"] == "u"
    assert first["values"] == certificates.points.iloc[0].tolist()
    drawn = next(c for c in content["certificates"] if c["evidence"]["draws"])
    assert int(drawn["evidence"]["entropy"], 16) == 1
    assert content["model_digest"] == certificates.model_digest
    assert re.fullmatch("[0-9a-f]{64}", certificates.model_digest)


def test_equality_ignores_time(certificates):
    first = certificates[0]
    assert first == apas.Certificate(**{**vars(first), "seconds": 1e9})
    assert first != apas.Certificate(**{**vars(first), "delta": 0.06})


def test_a_certificate_is_not_a_truth_value(certificates):
    with pytest.raises(TypeError, match="is_certified"):
        bool(certificates[0])


def test_points_are_a_copy(small_network):
    X = np.ones((1, 4))
    certificates = apas.certify(small_network, X, 0.1, target="predicted", rng=0)
    X[:] = 7
    assert (certificates.points == 1).all()


@pytest.mark.parametrize(
    ("name", "coverage", "sentence"),
    [
        ("bias-all", 0.995, "CERTIFIED: with confidence 0.999, at least 99.5 % of the shifts keep class 1 under shifts by "
         "delta = 0.2 (uniform on the box in which the one parameter chosen from the biases moves by at most delta, 1 fixed); 0 of 1572 draws "
         "failed; so few certify at any time (anytime test)."),
        ("bias-some", 0.999, "REFUTED: with confidence 0.999, fewer than 99.9 % of the shifts keep class 1"),
    ],
)  # fmt: skip
def test_sentences(name, coverage, sentence):
    known = case(name)
    certificate = apas.certify(
        known.model,
        known.X,
        known.delta,
        target=1,
        shifts=known.shifts,
        method=Sampling(coverage=coverage, test="anytime"),
        rng=0,
    )[0]
    assert certificate.sentence().startswith(sentence)
    assert str(certificate) == certificate.sentence()


def test_a_delta_is_written_as_it_was_asked_about():
    # in six digits it would be 0.123457, which is more than was certified
    delta, model = 0.123456789, apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    found = apas.certify(model, [[2.0, 0.5]], delta, target=1, rng=0)
    for text in (found[0].sentence(), found.summary(), found._repr_html_()):
        assert "0.123456789" in text
        assert "0.123457" not in text
    assert (
        "the certified delta is 0.123456789,"
        in apas.audit(found, apas.FeedForward([[[2.0], [-1.0]]], [[0.0]]), base=model)[0].reason
    )


def test_summary_and_repr(certificates):
    assert certificates.summary().startswith("6 rows: ")
    assert "at least 99.5 % of the shifts, confidence 0.999" in repr(certificates)
    counts = {v.name: sum(c.verdict is v for c in certificates) for v in Verdict}
    for name, count in counts.items():
        assert (f"{count} {name}" in certificates.summary()) == (count > 0)


def test_html_escapes_everything():
    net = apas.FeedForward([[[1.0]]], [[0.0]], classes=["<script>", "<b>&"])
    html = apas.certify(net, [[1.0]], 0.1, target="<b>&", rng=0)._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;" in html


def test_html_of_many_rows_stays_short(small_network):
    X = np.random.default_rng(0).normal(size=(500, 4))
    html = apas.certify(small_network, X, 0.1, target=1, method=Sampling(n_samples=1379), rng=0)._repr_html_()
    assert html.count("<tr>") < 30
    assert "480 more rows" in html


def test_empty():
    net = apas.FeedForward([[[1.0], [2.0]]], [[0.0]], feature_names=["a", "b"])
    for X in ([], np.empty((0, 2)), pd.DataFrame({"a": [], "b": []})):
        certificates = apas.certify(net, X, 0.1, target=1)
        assert len(certificates) == 0
        assert certificates.summary() == "No rows, no certificates."
        assert certificates.to_frame().empty
        assert certificates.certified.shape == (0,)
        assert certificates.to_dict()["certificates"] == []


def test_plot(certificates, tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
    matplotlib.use("Agg")
    axes = certificates.plot()
    axes.figure.savefig(tmp_path / "certificates.png")
    assert (tmp_path / "certificates.png").stat().st_size > 5000
    # a bar with its middle per row, a dotted line where the model itself does not give the class, and what is asked for
    good = int(certificates.valid_today.sum())
    assert 0 < good < len(certificates)
    assert len(axes.lines) == 2 * good + (len(certificates) - good) + 1
    assert certificates.plot(ax=axes) is axes
    matplotlib.pyplot.close(axes.figure)


def test_bounds_answer_later_questions(certificates):
    drawn = next(c for c in certificates if c.is_certified)
    lower = [drawn.evidence.coverage_lower(level) for level in (0.5, 0.9, 0.999, 0.999999)]
    assert lower == sorted(lower, reverse=True)
    assert lower[2] >= 0.995 - 1e-12
    assert not math.isnan(drawn.evidence.coverage_upper(0.9))


def test_claims_are_checked():
    with pytest.raises(apas.InputError, match="`measure` of Every must be a text that names the set, got 3"):
        apas.Every(3)
    with pytest.raises(apas.InputError, match="`rows` of Every must be"):
        apas.Every("a set", rows=0)
    assert apas.Most(0.995, 0.999, "uniform").share == "99.5 %"
