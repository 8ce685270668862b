"""Files of both tests and of both kinds of seeds: `verify` and the checker agree about them, and refuse forged ones."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from certificate_files import checker_in_process, content_of, network, rows, write

import apas
from apas import Sampling

SETS = ["linf", "l2", "gaussian", apas.SparseShifts(3), apas.LinfShifts(relative=True, floor=0.1, layers=[0]), "l1"]
NETS = [(4, 3, 1), (4, 1), (4, 4, 2, 1)]
ROWS = 10


def next_bit(value):
    return float(np.nextafter(value, np.inf))


def row_bit(content, i):
    entry = content["certificates"][i]
    for key in ("values", "encoded"):
        entry[key][0] = next_bit(entry[key][0])


def evidence(key, change):
    def forge(content, i):
        found = content["certificates"][i]["certificate"]["evidence"]
        found[key] = change(found[key])

    return forge


def claim(key, change):
    def forge(content, i):
        found = content["certificates"][i]["certificate"]["claim"]
        found[key] = change(found[key])

    return forge


def delta_bit(content, i):
    content["certificates"][i]["certificate"]["delta"] = next_bit(content["certificates"][i]["certificate"]["delta"])


def verdict(content, i):
    found = content["certificates"][i]["certificate"]
    found["verdict"] = {"CERTIFIED": "REFUTED", "REFUTED": "CERTIFIED", "UNKNOWN": "CERTIFIED"}[found["verdict"]]


def as_chosen(content, i):
    """The same draws, said to come from a seed that somebody chose."""
    found = content["certificates"][i]["certificate"]
    del found["evidence"]["siblings"], found["claim"]["bits"]
    found["evidence"]["purpose"], found["claim"]["confidence"] = "certify", 0.999


def as_derived(content, i):
    found = content["certificates"][i]["certificate"]
    found["evidence"] |= {"siblings": [], "purpose": "derived/1/certify"}
    found["claim"]["bits"] = 64
    del found["claim"]["confidence"]


ALWAYS = [
    verdict, evidence("failures", lambda k: k + 1), evidence("draws", lambda n: n - 1), evidence("doubtful", lambda k: k + 1),
    evidence("entropy", lambda text: hex(int(text, 16) ^ 1)), evidence("purpose", lambda text: text + "2"),
    evidence("test", lambda test: "fixed" if test != "fixed" else "anytime/1"),
]  # fmt: skip
OF_DERIVED = [
    row_bit, delta_bit, as_chosen, claim("coverage", next_bit), claim("bits", lambda b: b + 1), claim("bits", lambda b: b - 1),
    claim("rows", lambda m: m + 1), claim("tries", lambda m: m + 1), evidence("siblings", lambda way: way[1:]),
    evidence("siblings", lambda way: [*way, "00" * 32]), evidence("siblings", lambda way: way[::-1]),
    evidence("siblings", lambda way: [*way[:-1], f"{int(way[-1], 16) ^ 1:064x}"]),
    evidence("entropy", lambda text: hex(int(text, 16) ^ (1 << 255))),
    lambda content, i: content["shifts"].update(kinds=["weight"]),
]  # fmt: skip


def files(number, tmp_path, seed, sets):
    """So many files of ten certificates each, with their model, and whether the seed is derived."""
    rng = np.random.default_rng(seed)
    for i in range(number):
        net, derived = network(int(rng.integers(99)), NETS[i % len(NETS)]), i % 2 == 0
        test = {"test": "anytime"} if rng.random() < 0.5 else {"n_samples": int(rng.integers(9500, 12_000))}
        ask = {"shifts": sets[int(rng.integers(len(sets)))], "simultaneous": bool(rng.random() < 0.3)}
        delta = float(rng.choice([0.01, 0.05, 0.1, 0.3]))
        seed = "derived" if derived else int(rng.integers(1000))
        points = rows(ROWS, seed=int(rng.integers(99)))
        found = apas.certify(net, points, delta, target="predicted", rng=seed, method=Sampling(**test), **ask)
        model, path = tmp_path / f"{i}-model.json", tmp_path / f"{i}.json"
        apas.save_model(net, model)
        apas.save_certificates(found, path)
        yield net, model, path, derived


def agree(number, forgeries, tmp_path, capsys, seed, sets=SETS):
    """How many certificates both found right, and how many forged ones both refused."""
    checker, counts, rng = checker_in_process(), [0, 0], np.random.default_rng(seed)
    for net, model, path, derived in files(number, tmp_path, seed, sets):
        told = ["--require-derived"] if derived else []
        capsys.readouterr()
        assert checker.main([str(path), str(model), *told]) == 0, capsys.readouterr().out
        lines = [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()]
        report = apas.verify(path, net, require_derived=derived)
        assert lines == [row.check.value for row in report] == ["HOLDS"] * ROWS, report
        assert {row.seed for row in report} == {"derived" if derived else "chosen"}
        counts[0] += len(report)
        content, known = content_of(path), [*ALWAYS, *(OF_DERIVED if derived else [as_derived])]
        for forge in rng.permutation(np.array(known, dtype=object))[:forgeries]:
            forged = copy.deepcopy(content)
            forge(forged, int(rng.integers(ROWS)))
            if forged == content:  # a way to the root that reads the same backwards
                continue
            write(path, forged)
            try:
                ours = apas.verify(path, net).exit_code
            except apas.InputError:  # no certificate at all
                ours = 2
            theirs = checker.main([str(path), str(model)])
            assert {ours, theirs} <= {1, 2}, (forge, ours, theirs, path)
            counts[1] += 1
    return counts


def test_both_agree(tmp_path, capsys):
    right, refused = agree(4, 5, tmp_path, capsys, seed=0, sets=["linf"])  # others take the checker a while
    assert right == 40
    assert refused >= 18


def test_the_checker_reads_one_spelling_of_each_number(tmp_path, capsys):
    net, path, model, checker = network(3), tmp_path / "c.json", tmp_path / "m.json", checker_in_process()
    apas.save_model(net, model)
    spellings = [evidence("siblings", lambda way: [text.upper() for text in way])]
    spellings += [evidence(key, float) for key in ("draws", "failures", "doubtful", "samples")]
    for method in (Sampling(test="anytime"), Sampling(n_samples=9500)):
        shifts = apas.LinfShifts(relative=True, floor=1)
        found = apas.certify(net, rows(2), 0.01, target="predicted", rng="derived", method=method, shifts=shifts)
        apas.save_certificates(found, path)
        content = content_of(path)
        assert content["shifts"]["floor"] == 1
        for other in (content, {**content, "shifts": {**content["shifts"], "floor": 1}}):
            write(path, other)
            assert checker.main([str(path), str(model)]) == apas.verify(path, net).exit_code == 0
        for spell in spellings:
            other = copy.deepcopy(content)
            spell(other, 0)
            write(path, other)
            assert checker.main([str(path), str(model)]) in (1, 2), spell
    capsys.readouterr()


@pytest.mark.validity
def test_both_agree_about_500(tmp_path, capsys):
    right, refused = agree(50, 25, tmp_path, capsys, seed=1)
    assert right == 500
    assert refused > 700
