"""Files that were made to deceive, by somebody who computes what is consistent: neither checker believes them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from certificatefiles import changed, checker_in_process, content_of, network, rows, run_checker, write

import apas
from apas.contracts.fields import Fields
from apas.contracts.readings import question, readings
from apas.contracts.report import Checked
from apas.contracts.shiftsets import read_shifts
from apas.stats import allowed_failures, refuting_failures

CERTIFICATE = ("certificates", 0, "certificate")
NET = network(feature_names=list("abcd"))


def codes(path: Path, net=NET) -> tuple[int, int]:
    """Exit codes of `verify` and of the checker."""
    model = path.parent / "model.json"
    apas.save_model(net, model)
    try:
        code = apas.verify(path, net).exit_code
    except apas.InputError:
        code = 2
    return code, checker_in_process().main([str(path), str(model)])


@pytest.fixture
def proved(tmp_path):
    found = apas.certify(NET, rows(60), 0.05, target="predicted", method="interval")
    apas.save_certificates(found[found.certified][:1], tmp_path / "c.json")
    return tmp_path / "c.json"


def test_nothing_is_proved_of_every_normal_shift(proved):
    """Such shifts have no limit; the margin on the first draw is that of normal shifts."""
    content = content_of(proved)
    content["shifts"]["kind"] = "gaussian"
    shifts = apas.GaussianShifts()
    assert read_shifts(Fields(content["shifts"])) == shifts
    item = apas.load_certificates(proved)[0]
    row = np.array([content["certificates"][0]["encoded"]])
    drawn = readings(question(NET, row, row, [item], shifts), [item])[0].first_draw
    write(proved, changed(content, ("certificates", 0, "margins", "first_draw"), drawn))
    assert codes(proved) == (1, 3)


@pytest.mark.parametrize(
    "shifts",
    [
        {"kind": "lp", "p": 0.5, "kinds": ["weight", "bias"], "layers": [-1]},
        {"kind": "lp", "p": None, "kinds": ["weight", "bias"], "layers": None},
        {"kind": "lp", "p": 2.0, "kinds": ["weight", "bias"], "layers": [-1], "scale": [0.0] * 37},
        {"scale": {"layer1": -1.0}}, {"scale": [0.0] * 36 + [-1.0]}, {"scale": [1.0]}, {"scale": [0.0] * 37},
        {"relative": "false"}, {"kinds": "weight"}, {"kinds": ["weights"]}, {"layers": "01"}, {"layers": []}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_sets_that_are_none_are_refused_by_both(shifts, proved):
    content = content_of(proved)
    write(proved, {**content, "shifts": {**content["shifts"], **shifts} if "kind" not in shifts else shifts})
    verify, checker = codes(proved)
    assert verify in (1, 2)
    assert checker == 2


@pytest.mark.parametrize("trick", ["none", "words", "zeros", "field"])
def test_rows_that_share_draws_cannot_be_told_apart_by_words(trick, tmp_path):
    """Six rows at the confidence of three."""
    path, X = tmp_path / "c.json", rows(6, seed=4)
    apas.save_certificates(apas.certify(NET, X[:3], 0.02, target="predicted", simultaneous=True, rng=3), path)
    three = content_of(path)["certificates"][0]["certificate"]
    apas.save_certificates(apas.certify(NET, X, 0.02, target="predicted", simultaneous=True, rng=3), path)
    content = content_of(path)
    for i, item in enumerate(entry["certificate"] for entry in content["certificates"]):
        counts = {key: three["evidence"][key] for key in ("allowed", "refuting")}
        item["evidence"] |= counts
        item["claim"]["rows"], item["reason"] = 3, three["reason"]
        if trick == "words":
            item["claim"]["measure"] += " " * (i // 3)
        elif trick == "zeros":
            item["evidence"]["entropy"] = "0x" + "0" * (i // 3) + "3"
        elif trick == "field":
            item["claim"]["group"] = i // 3
    write(path, content)
    verify, checker = codes(path)
    assert verify in (1, 2)
    assert checker in (1, 2)


def test_largest_shifts_share_a_claim_too(tmp_path):
    path, X, method = tmp_path / "c.json", rows(4, seed=4), apas.Sampling(n_samples=2000)
    whole = apas.max_shift(NET, X, target="predicted", simultaneous=True, rng=3, method=method)
    apas.save_certificates(whole, path)
    assert apas.verify(path, NET).ok
    content = content_of(path)
    for i in (0, 2):
        part = apas.max_shift(NET, X[i : i + 2], target="predicted", simultaneous=True, rng=3, method=method)
        for j, item in enumerate(part):
            content["certificates"][i + j]["max_shift"] = item.to_dict()
    write(path, content)
    assert {row.reason for row in apas.verify(path, NET)} == {
        "the claim is about 2 rows together, but 4 rows of the file share it"
    }


def test_a_space_that_only_the_file_knows_is_not_believed(tmp_path):
    """The model takes rows as they are; the file makes them a thousand times as large, and encodes them back."""
    path, table = tmp_path / "c.json", pd.DataFrame(rows(3), columns=list("abcd"))
    features = {name: {"kind": "continuous", "range": [0.0, 1000.0]} for name in "abcd"}
    space = apas.FeatureSpace.from_dict({"features": features, "scale": "minmax"})
    coded = space.bind(NET)
    apas.save_certificates(apas.certify(coded, table * 1000, 0.02, target="predicted", rng=1), path)
    report = apas.verify(path, NET)
    assert {row.check for row in report} == {Checked.NOT_CHECKED}
    assert "only the file says how its space encodes rows" in report.rows[0].reason
    assert apas.verify(path, coded).ok  # whoever knows the space can check


@pytest.mark.parametrize("delta", [0.001, 0.3])
@pytest.mark.parametrize("shifts", ["linf", apas.LpShifts(3)], ids=str)
def test_draws_of_a_cascade_are_believed_by_nobody(shifts, delta, tmp_path):
    """Any number of samples may have come before the one that the file tells of."""
    path = tmp_path / "c.json"
    found = apas.certify(NET, rows(4), delta, target="predicted", shifts=shifts, rng=1)
    apas.save_certificates(found[np.array([c.evidence.to_dict()["kind"] == "sampling" for c in found])][:1], path)
    assert codes(path) == ((0, 0) if shifts == "linf" else (0, 3))
    write(path, changed(content_of(path), (*CERTIFICATE, "method"), "cascade: sampling"))
    assert codes(path) == (1, 1)
    assert "until one passed" in apas.verify(path, NET).rows[0].reason


def test_witnesses_just_outside_are_caught(tmp_path):
    path, base = tmp_path / "c.json", NET.parameters.values
    for shifts in ("linf", "l2"):
        found = apas.certify(NET, rows(60), 0.3, target="predicted", method="attack", shifts=shifts)
        first = next(i for i, c in enumerate(found) if c.witness is not None)
        moved = found[first].witness.parameters(NET) - base
        apas.save_certificates(found[first : first + 1], path)
        content = content_of(path)
        for factor, expected in ((1 - 1e-9, (0, 0)), (1 + 1e-9, (1, 1))):
            values = (base + moved * factor).tolist()
            kept = {"kind": "parameters", "delta": 0.3, "values": values}
            write(path, changed(content, (*CERTIFICATE, "witness"), kept))
            assert codes(path) == expected


@pytest.mark.parametrize("names", [None, list("abcde"), list("dcba")], ids=str)
def test_columns_that_are_not_those_of_the_model_are_caught(names, tmp_path):
    path = tmp_path / "c.json"
    apas.save_certificates(apas.certify(NET, rows(1), 0.02, target="predicted", rng=1), path)
    content = changed(content_of(path), ("feature_names",), names)
    if names is not None and len(names) == 5:
        content["points"]["columns"] = 5
        content["certificates"][0]["values"].append(7.0)
    write(path, content)
    assert 0 not in codes(path)


def test_the_checker_plans_as_apas_does_and_always_ends():
    plan = checker_in_process().plan
    for coverage, n in [(0.995, 20_000), (0.5, 300), (1e-70, 20_000), (1e-300, 5), (1 - 2**-53, 1000), (0.995, 1)]:
        expected = [f(n, coverage=coverage, confidence=0.999) for f in (allowed_failures, refuting_failures)]
        assert list(plan(coverage, 0.999, 1, n)) == [expected[0], max(expected[1], expected[0] + 1)]


def test_keys_that_occur_twice_are_refused(tmp_path):
    path = tmp_path / "c.json"
    apas.save_certificates(apas.certify(NET, rows(1), 0.05, target="predicted", rng=1), path)
    assert codes(path) == (0, 0)
    path.write_text(path.read_text().replace('"delta": 0.05', '"delta": 5.0, "delta": 0.05'))
    assert codes(path) == (2, 2)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_nobody_waits_for_a_pipe(tmp_path):
    pipe, model = tmp_path / "pipe.json", tmp_path / "model.json"
    apas.save_model(NET, model)
    os.mkfifo(pipe)
    with pytest.raises(apas.InputError, match="it is not a plain file"):
        apas.verify(pipe, NET)
    assert run_checker(pipe, model)[0] == run_checker(model, pipe)[0] == 2
