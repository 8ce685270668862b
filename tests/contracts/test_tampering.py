"""Changed files whose digest was recomputed: what can be recomputed is caught, by `verify` and by the checker."""

from __future__ import annotations

import contextlib
import re
import sqlite3

import numpy as np
import pytest
from certificate_files import changed, checker_in_process, content_of, network, rows, run_checker, write
from command_line import run
from conftest import spread

import apas
from apas.contracts.verify_evidence import Checked

CERTIFICATE = ("certificates", 0, "certificate")
EVIDENCE, CLAIM = (*CERTIFICATE, "evidence"), (*CERTIFICATE, "claim")


def more(value):
    return value + 1


def fewer(value):
    return max(0, value - 1) if value else 1


def swapped(signs):
    return signs.replace("-", "?").replace("+", "-").replace("?", "+")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network, and rows of every kind: certified without and with failures, refuted, not valid, undecided."""
    folder, net, X = tmp_path_factory.mktemp("tampering"), network(), rows(400)
    apas.save_model(net, folder / "model.json")
    fixed = apas.Sampling(n_samples=20_000)  # the other test: tests/certification/methods/test_sampling_anytime.py
    found = apas.certify(net, X, 0.1, target=1, method=fixed, rng=7)
    failures = np.array([c.evidence.failures for c in found])
    chosen = {
        "clean": found.certified & (failures == 0),
        "certified": found.certified & (failures > 10),
        "refuted": np.array([c.verdict.name == "REFUTED" and c.evidence.draws > 0 for c in found]),
        "invalid": np.array([c.evidence.draws == 0 for c in found]),
    }
    for name, mask in chosen.items():
        apas.save_certificates(found[mask][:1], folder / f"{name}.json")
    # on the way from a certified row to a refuted one there are rows that the draws decide nothing about
    ends = [found[chosen[name]].points[0] for name in ("clean", "refuted")]
    way = ends[0] + np.linspace(0, 1, 200)[:, None] * (ends[1] - ends[0])
    tried = apas.certify(net, way, 0.1, target=1, method=fixed, rng=7)
    unknown = np.array([c.verdict.name == "UNKNOWN" for c in tried])
    apas.save_certificates(tried[unknown][:1], folder / "unknown.json")
    proofs = apas.certify(net, X[:60], 0.05, target="predicted", method="interval")
    apas.save_certificates(proofs[proofs.certified][:1], folder / "proved.json")
    apas.save_certificates(proofs[~proofs.certified][:1], folder / "broken.json")
    apas.save_certificates(
        apas.certify(net, X[:60], 0.05, target="predicted", method="attack")[~proofs.certified][:1],
        folder / "attacked.json",
    )
    return folder


#: Per file the fields that are changed, and into what; everything here both of them must catch.
CHANGES = {
    "clean": [
        ((*CERTIFICATE, "delta"), lambda d: d * 1.000001), ((*CERTIFICATE, "delta"), 0.05), ((*CERTIFICATE, "target"), 0),
        ((*CERTIFICATE, "target"), "1"), ((*CERTIFICATE, "target"), True), ((*CERTIFICATE, "target"), 2),
        ((*CERTIFICATE, "verdict"), "REFUTED"), ((*CERTIFICATE, "verdict"), "UNKNOWN"), ((*EVIDENCE, "entropy"), "0x8"),
        ((*EVIDENCE, "purpose"), "generate/0/0"), ((*EVIDENCE, "samples"), more), ((*EVIDENCE, "samples"), 1500),
        ((*EVIDENCE, "draws"), fewer), ((*EVIDENCE, "failures"), more), ((*EVIDENCE, "first_failure"), 3),
        (("certificates", 0, "values", 0), lambda v: v + 1e-6), (("certificates", 0, "encoded", 0), lambda v: v + 1e-6),
        (("certificates", 0, "margins", "model"), lambda v: v * 1.000001),
        (("certificates", 0, "margins", "first_draw"), lambda v: v * 1.000001),
        (("certificates", 0, "margins", "first_draw"), None),
    ],
    "certified": [
        ((*CLAIM, "coverage"), 0.9951), ((*CLAIM, "coverage"), 0.99), ((*CLAIM, "confidence"), 0.99),
        ((*CLAIM, "confidence"), 0.9999), ((*CLAIM, "rows"), 2), ((*CLAIM, "tries"), 2),
        (CLAIM, lambda c: {"kind": "every", "measure": c["measure"].removeprefix("uniform on "), "rows": 1}),
        ((*CERTIFICATE, "delta"), lambda d: d * 1.001), ((*CERTIFICATE, "verdict"), "REFUTED"),
        ((*CERTIFICATE, "verdict"), "UNKNOWN"), ((*EVIDENCE, "entropy"), "0x17"), ((*EVIDENCE, "purpose"), "generate/0/1"),
        ((*EVIDENCE, "purpose"), "certify2"), *(((*EVIDENCE, key), more) for key in
        ("samples", "allowed", "refuting", "draws", "failures", "doubtful", "first_failure")),
        *(((*EVIDENCE, key), fewer) for key in ("samples", "allowed", "refuting", "draws", "failures", "first_failure")),
        ((*EVIDENCE, "first_failure"), None), ((*CERTIFICATE, "witness", "index"), more), ((*CERTIFICATE, "witness"), None),
        (("shifts", "kinds"), ["weight"]), (("shifts", "layers"), [0]), (("shifts", "relative"), True),
        (("shifts", "scale"), {"layer0": 1.01}), (("shifts", "scale"), [1.0] * 36 + [0.0]),
        (("shifts",), {"kind": "lp", "p": 2.0, "kinds": ["weight", "bias"], "layers": None}),
        (("shifts",), lambda s: {**s, "kind": "gaussian"}), (("model", "digest"), lambda d: d[::-1]),
        (("model", "preprocessing"), True),
    ],
    "refuted": [
        ((*CERTIFICATE, "verdict"), "CERTIFIED"), ((*CERTIFICATE, "verdict"), "UNKNOWN"), ((*EVIDENCE, "draws"), 20000),
        ((*EVIDENCE, "failures"), fewer), ((*CERTIFICATE, "witness", "index"), more), ((*CLAIM, "coverage"), 0.5),
        (EVIDENCE, {"kind": "model", "draws": 0, "failures": 0}),
        (EVIDENCE, {"kind": "bound", "step": "interval", "bound": 0.1, "nodes": 0, "exact": True}),
    ],
    "unknown": [((*CERTIFICATE, "verdict"), "CERTIFIED"), ((*CERTIFICATE, "verdict"), "REFUTED"), ((*EVIDENCE, "doubtful"), more)],
    "invalid": [((*CERTIFICATE, "delta"), lambda d: d * 1.000001), (("shifts", "layers"), [0]), ((*CERTIFICATE, "verdict"), "CERTIFIED"), ((*CERTIFICATE, "target"), 0), (("certificates", 0, "values", 0), more)],
    "proved": [
        ((*CERTIFICATE, "delta"), lambda d: d * 1.0001), ((*CERTIFICATE, "delta"), 0.04), ((*EVIDENCE, "bound"), lambda b: b * 1.001),
        ((*EVIDENCE, "bound"), lambda b: b * 0.99), ((*EVIDENCE, "bound"), None), ((*CERTIFICATE, "verdict"), "UNKNOWN"),
        ((*CERTIFICATE, "verdict"), "REFUTED"), ((*CERTIFICATE, "target"), lambda t: 1 - t), (("shifts", "kinds"), ["bias"]),
        (("certificates", 0, "values", 1), lambda v: v + 1e-6), (("shifts", "scale"), {"1": 2.0}),
    ],
    "broken": [
        ((*CERTIFICATE, "verdict"), "CERTIFIED"), ((*CERTIFICATE, "verdict"), "UNKNOWN"), ((*CERTIFICATE, "witness"), None),
        ((*CERTIFICATE, "witness", "signs"), swapped), ((*CERTIFICATE, "witness", "delta"), 0.04),
        ((*CERTIFICATE, "delta"), 0.06), ((*CERTIFICATE, "witness", "signs"), lambda s: s[:-1]),
    ],
    "attacked": [((*CERTIFICATE, "verdict"), "CERTIFIED"), ((*CERTIFICATE, "delta"), 0.06), ((*CERTIFICATE, "witness"), None)],
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_caught_by_both(name, folder, tmp_path):
    model, original, path = folder / "model.json", folder / f"{name}.json", tmp_path / "c.json"
    net, content, checker = apas.load_model(model), content_of(original), checker_in_process()
    assert apas.verify(original, net).ok
    assert checker.main([str(original), str(model)]) == 0
    for place, value in CHANGES[name]:
        write(path, changed(content, place, value))
        caught = {"checker": checker.main([str(path), str(model)])}
        try:
            caught["verify"] = apas.verify(path, net).exit_code
        except apas.InputError:  # nothing that makes sense
            caught["verify"] = 2
        assert set(caught.values()) <= {1, 2}, f"{place} became {value}: {caught}"


def test_words_and_the_rest_are_caught_by_verify(folder, tmp_path):
    """What the checker does not read: words, and how a search went."""
    net = apas.load_model(folder / "model.json")
    places = [
        ("certified", (*CLAIM, "measure"), "uniform on the box in which nothing moves"), ("certified", (*CERTIFICATE, "reason"), "trust us"),
        ("certified", (*CERTIFICATE, "method"), "exact"), ("certified", ("model", "network"), lambda d: d[::-1]),
        ("certified", ("feature_names",), ["a", "b", "c", "d"]), ("proved", (*EVIDENCE, "nodes"), 3), ("proved", (*EVIDENCE, "exact"), False),
        ("proved", (*EVIDENCE, "step"), "linear"), ("proved", (*CERTIFICATE, "reason"), "trust us"), ("proved", (*CLAIM, "measure"), "all"),
        ("invalid", (*CERTIFICATE, "reason"), "trust us"), ("invalid", (*CLAIM, "measure"), "all"),
    ]  # fmt: skip
    for name, place, value in places:
        write(tmp_path / "c.json", changed(content_of(folder / f"{name}.json"), place, value))
        report = apas.verify(tmp_path / "c.json", net)
        assert report.exit_code == 1, f"{place} became {value}: {report.rows}"


def test_descriptions_are_protected_against_accident_only(folder, tmp_path):
    net, path = apas.load_model(folder / "model.json"), tmp_path / "c.json"
    for place, value in [(("certificates", 0, "row"), "somebody else"), (("versions", "apas"), "9.9")]:
        content = changed(content_of(folder / "certified.json"), place, value)
        write(path, content)
        assert apas.verify(path, net).ok
        path.write_text(
            path.read_text().replace(content_of(path)["digest"], content_of(folder / "certified.json")["digest"])
        )
        with pytest.raises(apas.InputError, match="digest does not match"):
            apas.verify(path, net)


@pytest.mark.parametrize("change", ["weight", "bias", "threshold", "activation", "classes", "names", "no bias"])
def test_another_model_is_caught_by_both(change, folder, tmp_path):
    content, model = content_of(folder / "model.json"), tmp_path / "model.json"
    place, value = {
        "weight": (("weights", 0, 2, 3), lambda w: w + 1e-6), "bias": (("biases", 1, 0), lambda b: b - 1e-6),
        "threshold": (("threshold",), 0.500001), "activation": (("activation",), ["leaky_relu"]),
        "classes": (("classes",), [1, 0]), "names": (("feature_names",), ["a", "b", "c", "d"]), "no bias": (("biases", 1), None),
    }[change]  # fmt: skip
    write(model, changed(content, place, value))
    model.write_text(model.read_text().replace(f', "digest": "{content_of(model)["digest"]}"', ""))
    report = apas.verify(folder / "certified.json", apas.load_model(model))
    assert [row.check for row in report.rows] == [Checked.FAILS]
    assert "not the model" in report.rows[0].reason
    assert run_checker(folder / "certified.json", model)[0] == 1


def test_more_rows_than_a_claim_speaks_of_are_caught(folder, tmp_path):
    net, path, model = network(), tmp_path / "c.json", folder / "model.json"
    found = apas.certify(net, rows(6, seed=4), 0.02, target="predicted", simultaneous=True, rng=3)
    apas.save_certificates(found, path)
    assert apas.verify(path, net).ok
    assert run_checker(path, model)[0] == 0
    content = content_of(path)
    content["certificates"] += [{**content["certificates"][0], "row": 6}]
    write(path, content)
    assert apas.verify(path, net).exit_code == 1
    assert run_checker(path, model)[0] == 1


def test_the_accounts_of_a_search_are_caught(tmp_path):
    net = network(feature_names=list("abcd"))
    table = rows(100)
    wanted = table[net.margin(table, 1) < 0][:3]
    found = apas.generate(net, wanted, 0.02, background=table, source="neighbours", rng=1)
    apas.save_certificates(found, tmp_path / "c.json")
    apas.save_model(net, tmp_path / "m.json")
    content = content_of(tmp_path / "c.json")
    assert content["certificates"][0]["certificate"]["claim"]["tries"] == 2
    assert apas.verify(tmp_path / "c.json", net).ok
    assert run_checker(tmp_path / "c.json", tmp_path / "m.json")[0] == 0
    write(tmp_path / "c.json", changed(content, (*CLAIM, "tries"), 1))
    assert apas.verify(tmp_path / "c.json", net).rows[0].check is Checked.FAILS
    assert run_checker(tmp_path / "c.json", tmp_path / "m.json")[1][0][1] == "FAILS"


#: What a stranger may put into a cell of a ledger, whose tables take anything in SQLite.
STRANGE = [None, b"\xff\x00", 0, 0.5, "", "null", "{}", "[" * 5000, "9" * 5000, "\x1b[31m"]
COLUMNS = [
    *(("promises", name) for name in ("reference", "digest", "model", "content", "issued", "expires", "state")),
    *(("history", name) for name in ("promise", "at", "event", "state", "model", "detail")),
]  # fmt: skip


@pytest.fixture(scope="module")
def book(folder, tmp_path_factory):
    """A ledger whose tables have lost their rules."""
    net, place = apas.load_model(folder / "model.json"), tmp_path_factory.mktemp("ledger")
    with apas.Ledger(place / "strict.db") as ledger:
        ledger.add(folder / "clean.json", ["A-17"], expires="2999-12-31")
        ledger.audit(net)
    with contextlib.closing(sqlite3.connect(place / "strict.db")) as base:
        script = re.sub(r"NOT NULL|TEXT|CHECK \(state IN \([^)]*\)\)", "", "\n".join(base.iterdump()))
        marks = [base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    with contextlib.closing(sqlite3.connect(place / "loose.db")) as base:
        base.executescript(script)
        base.execute(f"PRAGMA application_id = {marks[0]}")
        base.execute(f"PRAGMA user_version = {marks[1]}")
    return (place / "loose.db").read_bytes()


@pytest.mark.parametrize("part", spread(range(3), 3))
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_ledger_with_strange_cells_is_refused_or_read(table, column, part, book, folder, tmp_path, capsys):
    path, model = tmp_path / "ledger.db", str(folder / "model.json")
    asked = [("list", str(path)), ("audit", str(path), model), ("retire", str(path), "A-17")]
    calls = asked if table == "promises" else [("list", str(path), "--history", "A-17")]
    for value in STRANGE[part::3]:
        for words in calls:
            path.write_bytes(book)
            with contextlib.closing(sqlite3.connect(path)) as base:
                base.execute(f"UPDATE {table} SET {column} = ?", (value,))
                base.commit()
            code, out, err = run(capsys, "ledger", *words)
            assert code in (0, 1, 2), (words[0], value, err)
            assert "\x1b" not in out + err
            if code == 2:
                assert re.fullmatch(r"error: .{20,1000}\n", err), (words[0], value, err)
            if column == "content" and words[0] in ("list", "audit"):
                assert code == 2
                assert "is damaged" in err


@pytest.mark.parametrize("script", [
    "ALTER TABLE promises RENAME TO kept; CREATE VIEW promises AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT kept.* FROM kept, c",
    "ALTER TABLE history RENAME TO kept; CREATE VIEW history AS SELECT * FROM kept",
    "CREATE TRIGGER t AFTER UPDATE ON promises BEGIN DELETE FROM history; END",
])  # fmt: skip
def test_a_ledger_with_views_or_triggers_is_refused(script, book, tmp_path, capsys):
    path = tmp_path / "ledger.db"
    path.write_bytes(book)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.executescript(script)
    code, out, err = run(capsys, "ledger", "list", str(path))
    assert (code, out) == (2, "")
    assert "it holds views or triggers" in err


@pytest.mark.parametrize("shifts", [apas.LinfShifts(scale=[[[1.0], [1.0]], [1.0]]), apas.InputNoise(scale=[1.0, 1.0])])
@pytest.mark.parametrize("scale", [[], [[]], [[], []]])
def test_scales_of_which_there_are_none_are_no_mistake_of_ours(shifts, scale, tmp_path):
    net, path = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]]), tmp_path / "c.json"
    apas.save_certificates(apas.certify(net, [[2.0, 0.5]], 0.01, target=1, shifts=shifts, rng=0), path)
    write(path, changed(content_of(path), ("shifts", "scale"), scale))
    with contextlib.suppress(apas.InputError):
        assert apas.verify(path, net).exit_code == 1


def test_a_ledger_whose_complaint_cannot_be_read_is_refused(book, tmp_path, capsys):
    """SQLite quotes the damaged bytes of a table's definition, which are no UTF-8."""
    path, place = tmp_path / "damaged.db", book.index(b"CREATE TABLE promises")
    path.write_bytes(book[:place] + book[place:].replace(b"PRIMARY KEY", b"PRIMARY \xfd\xfd\xfd", 1))
    code, out, err = run(capsys, "ledger", "list", str(path))
    assert (code, out) == (2, "")
    assert "is damaged" in err
