"""Certificate files: what is written comes back, and nothing else is let in."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from certificate_files import changed, content_of, network, rows, write
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import apas
from apas.certification.results import Certificates
from apas.contracts import certificate_file as jsontext
from apas.shifts.base import coordinates

METHODS = [
    "sampling", "interval", "linear", "attack", "exact", "enumeration", "cascade", apas.Enumeration(coverage=0.9),
]  # fmt: skip
SHIFTS = [
    "linf", "l1", "l2", "gaussian", apas.LpShifts(0.25), apas.SparseShifts(2, relative=True, layers=[0]), apas.LpShifts(1.5, layers=["layer0"]), apas.InputNoise(scale=[1.0, 0.0, 2.0, 1.0]),
    apas.InputNoise(scale={0: 0.5}, features=[0, 2], integers={2: 0.25}), apas.JointShifts(parameters=apas.LpShifts(2)),
    apas.LinfShifts(relative=True, floor=0.5, kinds=("weight",)), apas.LinfShifts(layers=[-1], scale={"layer1": 0.1}),
    apas.LinfShifts(scale=np.linspace(0, 1, 37)), apas.GaussianShifts(scale=[np.ones((4, 6)), np.ones(6), np.ones((6, 1)), [0.0]]),
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_kind_of_evidence_comes_back(method, tmp_path):
    net, path = network(), tmp_path / "c.json"
    found = apas.certify(net, rows(12), 0.05, target="predicted", method=method, rng=1)
    apas.save_certificates(found, path)
    again = apas.load_certificates(path)
    assert again == found
    assert list(again) == list(found)
    assert np.array_equal(again.points, found.points)
    apas.save_certificates(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("shifts", SHIFTS, ids=str)
def test_every_shift_set_comes_back(shifts, tmp_path):
    found = apas.certify(network(), rows(3), 0.05, target="predicted", shifts=shifts, rng=1)
    apas.save_certificates(found, tmp_path / "c.json")
    again = apas.load_certificates(tmp_path / "c.json")
    assert again.shifts == found.shifts
    what = coordinates(found.shifts, network())
    assert np.array_equal(again.shifts.radii(what), found.shifts.radii(what))
    assert [c.witness for c in again] == [c.witness for c in found]


def test_models_that_exist_are_kept_as_fingerprints(tmp_path):
    shifts = apas.ObservedShifts([network(s) for s in range(3)], process="three seeds")
    found = apas.certify(network(), rows(3), None, target="predicted", shifts=shifts, method="exact")
    apas.save_certificates(found, tmp_path / "c.json")
    again = apas.load_certificates(tmp_path / "c.json")
    assert again == found
    with pytest.raises(apas.InputError, match="only fingerprints"):
        again.shifts.region(network().parameters)


def mixed_pipeline():
    table = pd.DataFrame(
        {
            "income": [1.5, float("nan"), 3.0, 4.25] * 10, "home": ["rent", "own", "own", "rent"] * 10,
            "age": [30, 41, 52, 63] * 10, "member": [True, False, True, True] * 10,
        }, index=[f"person {i}" for i in range(40)],
    )  # fmt: skip
    encode = ColumnTransformer(
        [("numbers", SimpleImputer(), ["income", "age", "member"]), ("home", OneHotEncoder(), ["home"])]
    )
    label = np.array([0, 1, 1, 1] * 10)
    return make_pipeline(encode, LogisticRegression()).fit(table, label), table


def test_tables_keep_their_cells_columns_kinds_and_index(tmp_path):
    model, table = mixed_pipeline()
    found = apas.certify(model, table.iloc[:6], 0.01, target=1, rng=0)
    apas.save_certificates(found, tmp_path / "c.json")
    again = apas.load_certificates(tmp_path / "c.json")
    pd.testing.assert_frame_equal(again.points, found.points)
    assert content_of(tmp_path / "c.json")["certificates"][1]["values"][0] == {"number": "nan"}
    assert apas.verify(tmp_path / "c.json", model).ok


def test_floats_come_back_bit_by_bit(tmp_path):
    X = np.array([[5e-324, 1e308, -0.0, 0.1 + 0.2]])
    net = apas.FeedForward([np.zeros((4, 1))], [[1.0]])
    bias, drawn = apas.LinfShifts(kinds=("bias",)), apas.Sampling(test="anytime")
    found = apas.certify(net, X, 1e-300, target=1, shifts=bias, method=drawn, rng=2**200)
    apas.save_certificates(found, tmp_path / "c.json")
    again = apas.load_certificates(tmp_path / "c.json")
    assert again.points.tobytes() == X.tobytes()
    assert again[0].delta == 1e-300
    assert again[0].evidence.entropy == 2**200


def test_parts_and_no_rows_can_be_saved(tmp_path):
    found = apas.certify(network(), rows(10), 0.05, target="predicted", rng=1)
    for part in (found[found.certified], found[2:4], found[:0]):
        apas.save_certificates(part, tmp_path / "c.json")
        again = apas.load_certificates(tmp_path / "c.json")
        assert again == part
        assert apas.verify(again, network()).exit_code == (0 if len(part) else 3)
    apas.save_certificates(apas.load_certificates(tmp_path / "c.json")[:0], tmp_path / "c.json")


def test_largest_shifts_beside_certificates_and_alone(tmp_path):
    net, X, path = network(), rows(5), tmp_path / "c.json"
    found = apas.certify(net, X, 0.05, target=1, rng=1)
    radii = apas.max_shift(net, X, target=1, rng=2)
    apas.save_certificates(found, path, max_shifts=radii)
    again = apas.load_certificates(path)
    assert again.max_shifts == radii
    assert again[:2].max_shifts == radii[:2]
    apas.save_certificates(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    apas.save_certificates(radii, path)
    assert [row.statement for row in apas.verify(path, net).rows] == ["largest shift"] * 5
    with pytest.raises(apas.InputError, match="holds the largest shifts of rows but no certificates"):
        apas.load_certificates(path)
    with pytest.raises(apas.InputError, match="about the same rows"):
        apas.save_certificates(found, path, max_shifts=radii[:4])


def test_counterfactuals_keep_their_inputs_and_their_accounts(tmp_path):
    net = network(feature_names=("a", "b", "c", "d"))
    table = pd.DataFrame(rows(60), columns=["d", "c", "b", "a"])
    wanted = table[apas.as_model(net).margin(table[["a", "b", "c", "d"]].to_numpy(), 1) < 0].head(4)
    for source in ("robust", "neighbours"):
        found = apas.generate(net, wanted, 0.02, background=table, source=source, rng=3)
        apas.save_certificates(found, tmp_path / "c.json")
        again = apas.load_certificates(tmp_path / "c.json")
        assert again == found.certificates
        pd.testing.assert_frame_equal(again.inputs, found.certificates.inputs)
        assert {c.evidence.purpose.split("/")[0] for c in again} == {"generate"}
        assert apas.verify(tmp_path / "c.json", net).ok


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    found = apas.certify(network(), rows(3), 0.05, target=1, rng=1)
    apas.save_certificates(found, path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(apas.InputError, match="cannot: No space left on device"):
        apas.save_certificates(found[:1], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_saved_is_refused(tmp_path):
    net = network()
    found = apas.certify(net, rows(2), 0.05, target=1, rng=1)
    with pytest.raises(apas.InputError, match="must end in .json"):
        apas.save_certificates(found, tmp_path / "c.txt")
    with pytest.raises(apas.InputError, match="`path` must be the name of a file, got int"):
        apas.save_certificates(found, 3)
    with pytest.raises(apas.InputError, match="that can be written"):
        apas.save_certificates(found, tmp_path / "no" / "c.json")
    with pytest.raises(apas.InputError, match="must be what certify, generate or max_shift returns, got list"):
        apas.save_certificates([1], tmp_path / "c.json")
    alone = Certificates(list(found), points=found.points, model_digest=found.model_digest, shifts=found.shifts)
    with pytest.raises(apas.InputError, match="the model that these are about is not known"):
        apas.save_certificates(alone, tmp_path / "c.json")
    alone.model = network(5)
    with pytest.raises(apas.InputError, match="a model that was changed since"):
        apas.save_certificates(alone, tmp_path / "c.json")


BAD = {
    "empty": b"",
    "brackets": b"[" * 1_000_000,
    "objects": b'{"a":' * 500_000,
    "list": b"[]",
    "other format": b'{"format": "apas-model"}',
    "bytes": bytes(range(256)),
    "nan": b'{"format": "apas-certificates", "version": NaN}',
    "beyond floats": b'{"format": "apas-certificates", "version": 1e999}',
    "long number": b'{"format": "apas-certificates", "version": ' + b"9" * 5000 + b"}",
    "twice": b'{"format": "apas-certificates", "version": 1, "version": 1}',
    "newer": b'{"format": "apas-certificates", "version": 99}',
    "no fields": b'{"format": "apas-certificates", "version": 1}',
    "pickle": b"\x80\x04\x95",
    "archive": b"PK\x03\x04",
}


@pytest.mark.parametrize("name", BAD)
def test_hostile_files_get_one_sentence(name, tmp_path):
    path = tmp_path / "c.json"
    path.write_bytes(BAD[name])
    for read in (apas.load_certificates, lambda p: apas.verify(p, network())):
        with pytest.raises((apas.InputError, apas.UnsafeFile)) as error:
            read(path)
        assert str(error.value).endswith(".")
        assert len(str(error.value)) < 400


def test_files_that_are_too_large_or_absent_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(jsontext, "MOST_BYTES", 10)
    (tmp_path / "c.json").write_text("{" + " " * 100 + "}")
    with pytest.raises(apas.InputError, match="larger than a certificate file may be"):
        apas.load_certificates(tmp_path / "c.json")
    with pytest.raises(apas.InputError, match="cannot be read"):
        apas.load_certificates(tmp_path / "none.json")
    with pytest.raises(apas.InputError, match="got int"):
        apas.load_certificates(3)


def places(value, here=()):
    """Every place of a content."""
    yield here
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*here, key))


def test_a_field_of_another_kind_is_refused_or_fails_everywhere(tmp_path):
    """Whatever stands wherever: one sentence, or a report; never another exception."""
    net, path = network(), tmp_path / "c.json"
    small = apas.Sampling(coverage=0.9, confidence=0.9)
    found = [apas.certify(net, rows(2), 0.4, target=1, method=m, rng=1) for m in (small, "interval", "attack")]
    contents = []
    for certificates in found:
        apas.save_certificates(
            certificates, path, max_shifts=apas.max_shift(net, rows(2), target=1, method=small, rng=1)
        )
        contents.append(content_of(path))
    refused = 0
    for content in contents:
        for place in [p for p in places(content) if p and p[0] != "digest"]:
            for value in (None, {}, "x", -1, 1e300):
                try:
                    write(path, changed(content, place, value))
                except AssertionError:  # it was so before
                    continue
                try:
                    apas.verify(path, net)
                except apas.InputError as error:
                    refused += 1
                    assert "\n" not in str(error)  # noqa: PT017
    assert refused > 500


def test_unknown_and_missing_fields_are_refused(tmp_path):
    path = tmp_path / "c.json"
    apas.save_certificates(apas.certify(network(), rows(1), 0.05, target=1, rng=1), path)
    content = content_of(path)
    for place in [p for p in places(content) if p and isinstance(p[-1], str) and p[0] not in ("digest", "versions")]:
        for change in (lambda inner, key: inner.pop(key), lambda inner, key: inner.update({f"{key}2": 1})):
            copied = json.loads(json.dumps(content))
            inner = copied
            for key in place[:-1]:
                inner = inner[key]
            change(inner, place[-1])
            write(path, copied)
            with pytest.raises(apas.InputError):
                apas.load_certificates(path)


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "c.json"
    apas.save_certificates(apas.certify(network(), rows(1), 0.05, target=1, rng=1), path)
    path.write_text(path.read_text().replace(f'"apas": "{apas.__version__}"', '"apas": "0.0.1"'))
    with pytest.raises(apas.InputError, match="its digest does not match"):
        apas.load_certificates(path)
