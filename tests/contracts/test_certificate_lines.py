"""Certificate files in JSON Lines: the same content, sealed, in blocks; and what reading in blocks must not let in."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from certificate_files import network, rows, run_checker

import apas
from apas.certification.results import AnswerColumn
from apas.contracts import certificate_lines
from apas.contracts.certificate_file import content_digest, stored_blocks

METHODS = ["sampling", "interval", "attack", "exact", "enumeration"]


def sealed(lines: list[str]) -> bytes:
    above = "".join(f"{line}\n" for line in lines).encode()
    return above + json.dumps({"rows": len(lines) - 1, "digest": hashlib.sha256(above).hexdigest()}).encode() + b"\n"


def saved(folder, found):
    for name in ("c.json", "c.jsonl"):
        apas.save_certificates(found, folder / name)
    return folder / "c.json", folder / "c.jsonl"


@pytest.mark.parametrize("method", METHODS)
def test_lines_hold_what_the_object_holds(tmp_path, method):
    found = apas.certify(network(), rows(12), 0.05, target="predicted", method=method, rng=1)
    whole, lines = saved(tmp_path, found)
    assert apas.load_certificates(lines) == apas.load_certificates(whole) == found
    top, *entries, seal = (json.loads(line) for line in lines.read_text().splitlines())
    content = {**top, "certificates": entries}
    assert {**content, "digest": content_digest(content)} == json.loads(whole.read_text())
    above = lines.read_bytes().rpartition(b"\n{")[0] + b"\n"
    assert seal == {"rows": 12, "digest": hashlib.sha256(above).hexdigest()}
    apas.save_certificates(apas.load_certificates(lines), tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == lines.read_bytes()


def test_verified_audited_and_checked_like_json(tmp_path):
    found = apas.certify(network(), rows(12), 0.05, target="predicted", rng=1)
    whole, lines = saved(tmp_path, found)
    apas.save_model(network(), tmp_path / "m.json")
    assert apas.verify(lines, network()).to_dict() == apas.verify(whole, network()).to_dict()
    assert apas.audit(lines, network(1)).to_dict() == apas.audit(whole, network(1)).to_dict()
    assert run_checker(lines, tmp_path / "m.json") == run_checker(whole, tmp_path / "m.json")
    with apas.Ledger(tmp_path / "a.db") as first, apas.Ledger(tmp_path / "b.db") as second:
        names = [f"A-{i}" for i in range(12)]
        assert first.add(lines, names) == second.add(whole, names)
        assert first.to_frame()["digest"].tolist() == second.to_frame()["digest"].tolist()


def test_blocks_of_frames_with_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate_lines, "BLOCK", 5)
    net = network()
    frame = pd.DataFrame(rows(12), columns=list("abcd"), index=[f"row {i}" for i in range(12)])
    found = apas.certify(net, frame, 0.05, target="predicted", rng=1)
    _, lines = saved(tmp_path, found)
    assert apas.load_certificates(lines) == found
    parts = [part.certificates for part in stored_blocks(lines, 5, 3)]
    assert [list(part.points.index) for part in parts] == [list(frame.index[3:8]), list(frame.index[8:])]
    assert [c for part in parts for c in part] == list(found)[3:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "its digest does not match"),
        (lambda lines: [*lines[:2], *lines[3:]], "its digest does not match"),
        (lambda lines: [*lines, "{}"], "its digest does not match"),
    ],
    ids=["no seal", "a row is missing", "a line more"],
)
def test_lines_that_the_seal_is_not_about(tmp_path, change, said):
    _, path = saved(tmp_path, apas.certify(network(), rows(4), 0.05, target="predicted", rng=1))
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))
    with pytest.raises(apas.InputError, match=said):
        apas.load_certificates(path)


def test_a_file_that_is_cut_off(tmp_path):
    _, path = saved(tmp_path, apas.certify(network(), rows(4), 0.05, target="predicted", rng=1))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(apas.InputError, match="its last one is cut off; get it again"):
        apas.load_certificates(path)


#: What makes a sealed line wrong, whatever else is right about it.
WRONG = {
    "a key twice": (lambda line: line.replace('{"row": 0', '{"row": 0, "row": 0'), "'row'"),
    "a field more": (lambda line: line.replace('{"row": 0', '{"row": 0, "more": 1'), "certificates\\[0\\].more is a field"),
    "no number": (lambda line: line.replace('"encoded": [', '"encoded": [NaN, '), "NaN is no JSON number"),
    "beyond floats": (lambda line: line.replace('"encoded": [', '"encoded": [1e999, '), "is beyond floats"),
    "another verdict": (lambda line: line.replace('"CERTIFIED"', '"SURE"'), "certificate.verdict must be one of"),
    "a field of the certificate twice": (lambda line: line.replace('"method": ', '"delta": 0.05, "method": '), "'delta'"),
    "no object": (lambda line: "[1]", "must be an object"),
    "no JSON": (lambda line: line[:-1], "is not valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_sealed_line_that_is_wrong(tmp_path, name):
    change, said = WRONG[name]
    points = rows(60)
    found = apas.certify(network(), points, 0.001, target="predicted", rng=1)
    _, path = saved(tmp_path, found[found.certified][:4])
    lines = path.read_text().splitlines()[:-1]
    assert change(lines[1]) != lines[1]
    path.write_bytes(sealed([lines[0], change(lines[1]), *lines[2:]]))
    with pytest.raises(apas.InputError, match=said):
        apas.load_certificates(path)


def test_numbers_in_other_words_are_read_and_hashed_as_numbers(tmp_path):
    found = apas.certify(network(), rows(3), 0.05, target="predicted", rng=1)
    whole, _ = saved(tmp_path, found)
    text = whole.read_text()
    assert '"delta": 0.05,' in text
    for other in (
        text.replace('"delta": 0.05,', '"delta": 5e-2,'),
        text.replace(",\n  {", " ,\n  {"),
        text.replace("\n", ""),
    ):
        whole.write_text(other)
        assert apas.load_certificates(whole) == found


def test_the_layout_of_json_is_no_loophole(tmp_path):
    whole, _ = saved(tmp_path, apas.certify(network(), rows(3), 0.05, target="predicted", rng=1))
    text = whole.read_text()
    for other, said in (
        (text.replace("},\n  {", "}\n  {", 1), "not valid JSON"),
        (text.replace("}\n ],", "},\n ],"), "not valid JSON"),
        (text.replace('"version": 2', '"version": 2, "version": 2'), "version"),
        (text.replace('"values": [', '"values": [1.0, '), "digest does not match"),
    ):
        assert other != text
        whole.write_text(other)
        with pytest.raises(apas.InputError, match=said):
            apas.load_certificates(whole)


def test_rows_that_say_the_same_share_one_certificate():
    net = apas.FeedForward([[[1.0]]], [[0.0]])
    X = np.repeat([[1.0], [-1.0], [2.0]], 100, axis=0)
    found = apas.certify(net, X, 0.1, target=1, method=apas.Sampling(test="anytime"), rng=0)
    assert isinstance(found._items, AnswerColumn)
    assert len(found._items.distinct) == 2
    assert found[5] is found[250] is not found[150]
    assert list(found[::100]) == [found[0], found[100], found[200]]
    assert [c.verdict.name for c in found[found.certified]] == ["CERTIFIED"] * 200
    alone = [
        apas.certify(net, x[None], 0.1, target=1, method=apas.Sampling(test="anytime"), rng=0)[0] for x in X[::100]
    ]
    assert list(found[::100]) == alone
