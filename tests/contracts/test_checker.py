"""The separate checker: it imports nothing of ours, and finds what `verify` finds."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from certificate_files import CHECKER, changed, checker_in_process, content_of, network, rows, run_checker, write
from conftest import spread
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas

NETWORKS = {
    "one layer": network(feature_names=list("abcd")),
    "deep": network(2, (4, 8, 6, 1), activation=["tanh", "leaky_relu"]),
    "classes": network(3, (4, 5, 3), output="softmax", classes=("a", "b", "c"), activation="softplus"),
    "two scores": network(5, (4, 5, 2), output="softmax", threshold=0.3, activation="sigmoid"),
    "linear": network(4, (4, 1), output="identity", threshold=0.25),
    "no bias": apas.FeedForward([network().weights[0], network().weights[1]], [None, [0.5]], activation="elu"),
}
NETWORKS |= {f"{name} in float32": net.with_dtype("float32") for name, net in NETWORKS.items()}
#: What it redoes, and the set of shifts.
DONE = [
    ("sampling", "linf"), ("sampling", "l1"), ("sampling", "l2"), ("sampling", "gaussian"),
    ("sampling", apas.LinfShifts(relative=True, floor=0.1, kinds=("weight",))),
    ("sampling", apas.LinfShifts(layers=[-1], scale={"-1": 0.5})), ("sampling", apas.LpShifts(2, layers=["layer0"])),
    ("interval", "linf"), ("interval", apas.LinfShifts(scale={0: 2.0})), ("interval", apas.LpShifts(2, layers=[-1])),
    ("attack", "linf"), ("attack", "l2"), ("sampling", apas.SparseShifts(3)), ("attack", apas.SparseShifts(2)),
    ("sampling", apas.SparseShifts(40, relative=True, kinds=("weight",))),
    ("interval", apas.LpShifts(0.5, layers=[-1])), ("attack", apas.LpShifts(0.5, layers=[-1])),
]  # fmt: skip


def test_it_imports_numpy_and_the_standard_library_alone():
    tree = ast.parse(CHECKER.read_text())
    found = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    found |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) == {"numpy"}


@pytest.mark.parametrize("name", spread(NETWORKS, 2))
def test_it_agrees_with_verify(name, tmp_path, capsys):
    net, checker = NETWORKS[name], checker_in_process()
    apas.save_model(net, tmp_path / "m.json")
    for i, (method, shifts) in enumerate(DONE):
        how = apas.Sampling(coverage=0.95, confidence=0.99, n_samples=500) if method == "sampling" else method
        found = apas.certify(net, rows(8), 0.2 if i % 2 else 0.02, target="predicted", method=how, shifts=shifts, rng=i)
        path = tmp_path / f"{i}.json"
        apas.save_certificates(found, path)
        code = checker.main([str(path), str(tmp_path / "m.json")])
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert code == 0, (method, shifts, lines)
        assert [line[1] for line in lines] == [row.check.value for row in apas.verify(path, net)] == ["HOLDS"] * 8


@pytest.mark.parametrize("name", ["linear", "linear in float32", "linear classes"])
def test_sparse_shifts_of_linear_models_are_proved_again(name, tmp_path, capsys):
    classes = network(6, (4, 3), output="softmax", classes=("a", "b", "c"))
    net, checker = NETWORKS.get(name, classes), checker_in_process()
    apas.save_model(net, tmp_path / "m.json")
    for shifts in (apas.SparseShifts(1), apas.SparseShifts(3, relative=True), apas.SparseShifts(40)):
        found = apas.certify(net, rows(8), 0.05, target="predicted", method="exact", shifts=shifts)
        assert {c.verdict.name for c in found} >= {"CERTIFIED"}
        apas.save_certificates(found, tmp_path / "c.json")
        assert checker.main([str(tmp_path / "c.json"), str(tmp_path / "m.json")]) == 0, capsys.readouterr().out
    # a bound of fewer parameters is not one of more, and a witness that moves two is none of a set that moves one
    found = apas.certify(net, rows(8), 0.3, target="predicted", method="exact", shifts=apas.SparseShifts(2))
    assert {c.verdict.name for c in found} == {"CERTIFIED", "REFUTED"}
    apas.save_certificates(found, tmp_path / "c.json")
    for count, verdict in ((3, "CERTIFIED"), (1, "REFUTED")):
        forged = content_of(tmp_path / "c.json")
        forged["shifts"]["count"] = count
        write(tmp_path / "forged.json", forged)
        capsys.readouterr()
        assert checker.main([str(tmp_path / "forged.json"), str(tmp_path / "m.json")]) == 1
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        told = [line[1] for line, c in zip(lines, found, strict=True) if c.verdict.name == verdict]
        assert told
        assert set(told) == {"FAILS"}
    assert not apas.verify(tmp_path / "forged.json", net).ok


def test_float32_is_part_of_what_is_claimed(tmp_path, capsys):
    """A row within float32 rounding of the boundary; neither the file nor the model can pass for another arithmetic."""
    net, checker = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]], dtype="float32"), checker_in_process()
    found = apas.certify(net, [[3.0, 1.0], [1.0, 1.0 - 1e-7], [1.0, 3.0]], 0.1, target=1, method="interval")
    assert [c.verdict.name for c in found] == ["CERTIFIED", "UNKNOWN", "REFUTED"]
    assert found[1].evidence.to_dict() == {"kind": "model", "draws": 0, "failures": 0}
    model, path = tmp_path / "m.json", tmp_path / "c.json"
    apas.save_model(net, model)
    apas.save_certificates(found, path)
    assert checker.main([str(path), str(model)]) == 0
    assert "within float32 rounding of the boundary" in capsys.readouterr().out
    assert apas.verify(path, apas.load_model(model)).ok
    assert apas.audit(path, net, base=net).ok
    apas.save_model(net.with_dtype("float64"), model)
    assert checker.main([str(path), str(model)]) == 1
    assert not apas.verify(path, apas.load_model(model)).ok
    apas.save_model(net, model)
    for row in (0, 1):
        forged = content_of(path)
        claim = forged["certificates"][row]["certificate"]["claim"]
        claim["measure"] = claim["measure"].removesuffix("; computed in float32, within its rounding")
        write(tmp_path / "forged.json", forged)
        assert not apas.verify(tmp_path / "forged.json", net).ok
        assert checker.main([str(tmp_path / "forged.json"), str(model)]) == 1
    forged = content_of(path)
    forged["certificates"][1]["certificate"] |= {"verdict": "REFUTED", "reason": "not valid on the model itself"}
    write(tmp_path / "forged.json", forged)
    assert not apas.verify(tmp_path / "forged.json", net).ok
    assert checker.main([str(tmp_path / "forged.json"), str(model)]) == 1


def test_large_models_are_drawn_in_another_order(tmp_path):
    net = network(0, (40, 30, 1))
    apas.save_model(net, tmp_path / "m.json")
    method = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=301)
    for shifts in ("linf", "l2", apas.LinfShifts(kinds=("weight",), scale={1: 0.0})):
        found = apas.certify(net, rows(4, 40), 0.1, target="predicted", method=method, shifts=shifts, rng=1)
        apas.save_certificates(found, tmp_path / "c.json")
        assert run_checker(tmp_path / "c.json", tmp_path / "m.json")[0] == 0


def test_what_it_does_not_redo_is_not_checked(tmp_path):
    deep, net, path = network(1, (6, 20, 10, 1)), network(), tmp_path / "c.json"
    X, small = rows(2), apas.Sampling(coverage=0.9, confidence=0.9, n_samples=100)
    cases = [
        (deep, apas.certify(deep, rows(40, 6), 0.02, target="predicted", method=apas.LinearBounds())),
        (net, apas.certify(net, X, 0.01, target="predicted", method="enumeration")),
        (net, apas.certify(net, X, 0.01, target="predicted", method=apas.Enumeration(precision=0.1))),
        (net, apas.certify(net, X, 0.01, target="predicted", shifts=apas.LpShifts(3), method=small, rng=0)),
        (net, apas.certify(net, X, 0.01, target="predicted", shifts=apas.InputNoise(), method=small, rng=0)),
        (net, apas.certify(net, X, 0.01, target="predicted", shifts=apas.InputNoise(), method="exact")),
        (net, apas.certify(net, X, 0.01, target="predicted", shifts=apas.JointShifts(), method=small, rng=0)),
        (net, apas.max_shift(net, X, target="predicted", method=small, rng=0)),
    ]
    for model, found in cases:
        apas.save_model(model, tmp_path / "m.json")
        apas.save_certificates(found, path)
        code, lines, _ = run_checker(path, tmp_path / "m.json")
        assert code == 3
        assert {line[1] for line in lines} <= {"HOLDS", "NOT CHECKED"}


def test_networks_behind_a_preprocessing_are_checked_in_model_units(tmp_path):
    X = rows(100)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, X.sum(axis=1) > 0)
    apas.save_certificates(apas.certify(model, X[:3], 0.1, target=True, rng=0), tmp_path / "c.json")
    apas.save_model(apas.as_model(model).as_feedforward(), tmp_path / "m.json")
    code, lines, _ = run_checker(tmp_path / "c.json", tmp_path / "m.json")
    assert code == 3
    assert "not the preprocessing" in lines[0][2]
    write(
        tmp_path / "c.json",
        changed(content_of(tmp_path / "c.json"), ("certificates", 0, "encoded", 0), lambda v: v + 1e-6),
    )
    assert run_checker(tmp_path / "c.json", tmp_path / "m.json")[0] == 1


def test_rows_may_be_in_another_order_of_columns(tmp_path):
    net, path = NETWORKS["one layer"], tmp_path / "c.json"
    apas.save_model(net, tmp_path / "m.json")
    table = pd.DataFrame(rows(3), columns=list("abcd"))
    apas.save_certificates(apas.certify(net, table, 0.02, target="predicted", rng=0), path)
    content = content_of(path)
    content["points"]["columns"].reverse()
    write(path, content)
    assert apas.verify(path, net).exit_code == run_checker(path, tmp_path / "m.json")[0] == 1
    for entry in content["certificates"]:
        entry["values"].reverse()
    write(path, content)
    assert apas.verify(path, net).exit_code == run_checker(path, tmp_path / "m.json")[0] == 0


@pytest.mark.parametrize(
    "bad", ["", "[", "[" * 100_000, '{"format": "apas-certificates", "version": 1}', '{"a": NaN}', "\udcff"]
)
def test_bad_input_has_exit_code_2(bad, tmp_path):
    apas.save_model(network(), tmp_path / "m.json")
    (tmp_path / "c.json").write_bytes(bad.encode("utf-8", "surrogateescape"))
    code, lines, errors = run_checker(tmp_path / "c.json", tmp_path / "m.json")
    assert code == 2
    assert not lines
    assert errors.startswith("error: bad input")
    assert errors.count("\n") == 1
    assert run_checker(tmp_path / "none.json", tmp_path / "m.json")[0] == 2


def test_damage_has_exit_code_2(tmp_path):
    path = tmp_path / "c.json"
    apas.save_certificates(apas.certify(network(), rows(1), 0.05, target=1, rng=1), path)
    apas.save_model(network(), tmp_path / "m.json")
    path.write_text(path.read_text().replace('"row": 0', '"row": 1'))
    code, _, errors = run_checker(path, tmp_path / "m.json")
    assert code == 2
    assert "damaged or edited" in errors


def test_largest_shifts_of_a_model_with_names_are_not_checked(tmp_path):
    net, path = NETWORKS["one layer"], tmp_path / "c.json"
    small = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=100)
    apas.save_model(net, tmp_path / "m.json")
    apas.save_certificates(apas.max_shift(net, rows(2), target="predicted", method=small, rng=0), path)
    assert run_checker(path, tmp_path / "m.json")[0] == 3
    write(path, changed(content_of(path), ("feature_names",), None))  # as they were written once
    assert run_checker(path, tmp_path / "m.json")[0] == 3


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (("certificate", "evidence", "draws"), 100, 1),
        (("certificate", "evidence", "failures"), 100, 1),
        (("certificate", "claim", "kind"), "mostx", 1),
        (("certificate", "claim", "coverage"), 1.9, 1),
        (("certificate", "evidence", "kind"), "modelx", 2),
        (("row",), "\ud800", 2),
    ],
)
def test_rows_that_the_model_refutes_are_read_closely(place, value, code, tmp_path):
    net, path = network(), tmp_path / "c.json"
    X = rows(3)
    apas.save_model(net, tmp_path / "m.json")
    target = [1 - int(valid) for valid in net.margin(X, 1) >= 0]
    apas.save_certificates(apas.certify(net, X, 0.05, target=target, rng=0), path)
    assert run_checker(path, tmp_path / "m.json")[0] == 0
    write(path, changed(content_of(path), ("certificates", 0, *place), value))
    found, _, err = run_checker(path, tmp_path / "m.json")
    assert (found, "Traceback" in err) == (code, False)
    with pytest.raises(apas.InputError):  # a field that cannot be
        apas.verify(path, net)


def test_a_certified_row_has_seen_its_draws(tmp_path):
    net, path = network(), tmp_path / "c.json"
    apas.save_model(net, tmp_path / "m.json")
    # of the anytime test `samples` says no more than how many there might have been
    for method, code in ((apas.Sampling(n_samples=20_000), 1), (apas.Sampling(), 0)):
        apas.save_certificates(apas.certify(net, rows(1), 0.001, target="predicted", method=method, rng=0), path)
        write(path, changed(content_of(path), ("certificates", 0, "certificate", "evidence", "samples"), 10**8))
        assert run_checker(path, tmp_path / "m.json")[0] == apas.verify(path, net).exit_code == code


def test_shifts_of_another_kind_are_bad_input(tmp_path):
    net, path = network(), tmp_path / "c.json"
    apas.save_model(net, tmp_path / "m.json")
    apas.save_certificates(apas.certify(net, rows(1), 0.001, target="predicted", rng=0), path)
    for kind in ("linfx", "noise", "observed"):
        forged = tmp_path / f"{kind}.json"
        write(forged, changed(content_of(path), ("shifts", "kind"), kind))
        assert run_checker(forged, tmp_path / "m.json")[0] == 2


def test_names_of_rows_print_no_lines_of_their_own(tmp_path, capsys):
    from command_line import run

    net, path = network(), tmp_path / "c.json"
    apas.save_model(net, tmp_path / "m.json")
    apas.save_certificates(apas.certify(net, rows(1), 5.0, target="predicted", rng=0), path)
    write(path, changed(content_of(path), ("certificates", 0, "row"), "0\tHOLDS\tdrawn again\n\x1b[31mred"))
    code, lines, _ = run_checker(path, tmp_path / "m.json")
    assert (code, len(lines), lines[0][0]) == (0, 1, "0?HOLDS?drawn again??[31mred")
    for words in (["verify", str(path), str(tmp_path / "m.json")], ["audit", str(path), str(tmp_path / "m.json")]):
        code, out, _ = run(capsys, *words)
        assert "\x1b" not in out
        assert "0?HOLDS?drawn again??[31mred" in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
@pytest.mark.parametrize("count", [1, 300], ids=["less than a block", "many blocks"])
def test_an_answer_that_nobody_takes_is_none(tmp_path, count):
    """Neither 0 nor 1: the promises may hold or not."""
    net = network()
    apas.save_model(net, tmp_path / "m.json")
    how = apas.Sampling(coverage=0.5, confidence=0.9)
    apas.save_certificates(
        apas.certify(net, rows(count), 0.01, target="predicted", method=how, rng=0), tmp_path / "c.json"
    )
    with open("/dev/full", "w") as full:
        words = [sys.executable, str(CHECKER), str(tmp_path / "c.json"), str(tmp_path / "m.json")]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 70
    assert done.stderr == "error: there is no answer: OSError: [Errno 28] No space left on device\n"


def test_complaints_are_one_line_that_no_terminal_obeys(tmp_path, capsys):
    checker = checker_in_process()
    net, files = network(), [tmp_path / "c.json", tmp_path / "m.json"]
    apas.save_certificates(apas.certify(net, rows(1), 0.01, target="predicted", rng=0), files[0])
    apas.save_model(net, files[1])
    write_model = changed(content_of(files[1]), ("threshold",), "\x1b[31m" * 5000)
    files[1].write_text(json.dumps(write_model))
    for words in ([str(files[0]), str(files[1])], [str(tmp_path / "\x1b[31m\n.json"), str(files[1])]):
        assert checker.main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: bad input: ")
        assert said.count("\n") == 1
        assert len(said) < 600
        assert "\x1b" not in said
