"""Files that were made to deceive, by somebody who computes what is consistent: neither checker believes them."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from certificate_files import changed, checker_in_process, content_of, network, rows, run_checker, write

import apas
from apas._fields import Fields
from apas._random import Stream
from apas.certification.question import Question, decide
from apas.certification.results import Certificates
from apas.contracts.certified_model import question_of, readings
from apas.contracts.verify_evidence import Checked
from apas.models.digest import model_digest
from apas.shifts.base import KINDS
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
    assert KINDS.read(Fields(content["shifts"])) == shifts
    item = apas.load_certificates(proved)[0]
    row = np.array([content["certificates"][0]["encoded"]])
    drawn = float(readings(question_of(NET, row, row, [item], shifts), [item]).margins[0, 1])
    write(proved, changed(content, ("certificates", 0, "margins", "first_draw"), drawn))
    assert codes(proved) == (1, 3)


@pytest.mark.parametrize(
    "shifts",
    [
        {"kind": "lp", "p": 0.0005, "kinds": ["weight", "bias"], "layers": [-1]},
        {"kind": "lp", "p": None, "kinds": ["weight", "bias"], "layers": None},
        {"kind": "lp", "p": 2.0, "kinds": ["weight", "bias"], "layers": [-1], "scale": [0.0] * 37},
        {"kind": "sparse", "count": 0, "relative": False, "kinds": ["weight", "bias"], "layers": None, "scale": None, "floor": 0.0},
        {"kind": "sparse", "count": 1.5, "relative": False, "kinds": ["weight", "bias"], "layers": None, "scale": None, "floor": 0.0},
        {"kind": "sparse", "count": True, "relative": False, "kinds": ["weight", "bias"], "layers": None, "scale": None, "floor": 0.0},
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
        assert list(plan(coverage, Fraction(1, 1000), n)) == [expected[0], max(expected[1], expected[0] + 1)]


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


#: The bias moves by at most delta: at delta 1.14 a share of 0.061 of the shifts breaks the row.
BIAS = apas.FeedForward([[[0.0]]], [[1.0]])


def drawn_on(path: Path, purpose: str, *, tries: int = 1, delta: float = 1.14, samples: int = 110):
    """Save and give the certificate of one row that was drawn on any stream of the seed 3 and says any number of tries."""
    shifts = apas.LinfShifts(kinds=("bias",))
    question = Question(BIAS, np.zeros((1, 1)), np.array([1], dtype=object), np.array([delta]), shifts, tries=tries)
    method = apas.Sampling(coverage=0.95, confidence=0.99, n_samples=samples)
    items = decide(question, method, Stream(3, purpose))
    found = Certificates(items, points=question.X, model_digest=model_digest(BIAS), shifts=shifts, model=BIAS)
    apas.save_certificates(found, path)
    return items[0]


def chosen_rank(path: Path, number: int = 0, tries: int = 1) -> int:
    """The first rank on whose draws the row is certified although its claim is false."""
    return next(r for r in itertools.count(1) if drawn_on(path, f"generate/{r}/{number}", tries=tries).is_certified)


@pytest.mark.parametrize(("number", "tries"), [(0, 1), pytest.param(1, 2, marks=pytest.mark.validity)])
def test_a_rank_cannot_be_chosen_by_its_draws(number, tries, tmp_path):
    path = tmp_path / "c.json"
    rank = chosen_rank(path, number, tries)
    assert rank > 3  # others were tried before
    report = apas.verify(path, BIAS)
    charged = rank * (rank + 1) * tries
    purpose = f"generate/{rank}/{number}"
    assert report.rows[0].reason == (
        f"a test on the stream {purpose!r} divides its risk by {charged}, the file says {tries}"
    )
    assert codes(path, BIAS) == (1, 1)
    assert not drawn_on(path, purpose, tries=charged, samples=1000).is_certified  # nor does it pass if it pays


def test_a_rank_that_is_paid_for_holds(tmp_path):
    for rank, number, tries in [(0, 0, 1), (0, 3, 12), (1, 0, 2), (2, 0, 6), (2, 3, 72)]:
        assert drawn_on(
            tmp_path / "c.json", f"generate/{rank}/{number}", tries=tries, delta=0.5, samples=500
        ).is_certified
        assert codes(tmp_path / "c.json", BIAS) == (0, 0)


@pytest.mark.parametrize("purpose", [
    "generate/00/0", "generate/0/00", "generate/000000000/0", "generate/01/0", "generate/\u0660/0", "generate/0/\uff10",
    "generate/+0/0", "generate/0/0 ", "generate/0", "generate/search", "generate/0/0/0", "certify/0", "Certify", "verify",
    "probe", "fraction", "max_shift/rays", "max_shift/confirm/1", "report", "attack", "",
])  # fmt: skip
def test_a_stream_has_one_name(purpose, tmp_path):
    """Another way to write the same test names other draws, of which a seller could choose."""
    drawn_on(tmp_path / "c.json", purpose, delta=0.5)
    verify, checker = codes(tmp_path / "c.json", BIAS)
    assert (verify, checker) == (1, 1)


def test_all_streams_of_a_seed_together_cost_five_risks_at_most():
    """What is paid for the streams that are accepted: whoever chooses among them errs at most so often."""
    from apas.certification.claims import search_tries

    shares = sum(Fraction(1, search_tries(rank, test)) for rank in range(300) for test in range(300))
    assert Fraction(39, 10) < shares < 4  # and that of `certify`


def test_ranks_that_were_not_charged_hold_if_the_draws_suffice_for_the_charge(tmp_path):
    """As files were written before a rank had a price: also a part of a result, which holds no lower rank."""
    path = tmp_path / "c.json"
    assert drawn_on(path, "generate/2/0", delta=0.5, samples=200).is_certified
    report = apas.verify(path, BIAS)
    assert report.ok
    assert report.rows[0].reason.endswith("; for its rank of 2 at most 1 may")
    assert codes(path, BIAS) == (0, 0)


def test_a_whole_result_whose_ranks_were_not_charged_is_not_checked(tmp_path):
    """Ranks 0 to 2 of one input, of which the last has seen too few draws for its price: nobody can tell a choice."""
    entries = []
    for rank in range(3):
        drawn_on(tmp_path / "c.json", f"generate/{rank}/0", delta=0.5, samples=90)
        content = content_of(tmp_path / "c.json")
        entries += [{**entry, "row": rank} for entry in content["certificates"]]
    for order in ([0, 1, 2], [2, 0, 1]):
        write(tmp_path / "c.json", {**content, "certificates": [entries[i] for i in order]})
        checks = [row.check for row in apas.verify(tmp_path / "c.json", BIAS)]
        assert [checks[order.index(i)].name for i in range(3)] == ["HOLDS", "NOT_CHECKED", "NOT_CHECKED"]
        assert codes(tmp_path / "c.json", BIAS) == (3, 3)
    write(tmp_path / "c.json", {**content, "certificates": entries[1:]})  # rank 0 is missing
    assert codes(tmp_path / "c.json", BIAS) == (1, 1)
    write(tmp_path / "c.json", {**content, "certificates": entries[::2]})  # rank 1 is missing
    assert codes(tmp_path / "c.json", BIAS) == (1, 1)


def test_what_a_search_with_several_ranks_writes_holds(tmp_path):
    net, table = NET, rows(200)
    wanted = table[net.margin(table, 1) < 0][:2]
    for source in ("milp", "robust"):
        found = apas.generate(net, wanted, 0.02, background=table, source=source, k=3, rng=1)
        kept = found.certificates
        paid = {(c.evidence.purpose, c.claim.tries) for c in kept}
        first = {"milp": 1, "robust": 0}[source]
        assert {(f"generate/{r}/{first}", max(1, r * (r + 1)) * (1 + first)) for r in range(3)} <= paid
        apas.save_certificates(found, tmp_path / "c.json")
        assert codes(tmp_path / "c.json") == (0, 0)
        apas.save_certificates(kept[2:3], tmp_path / "c.json")  # a part of it, such as one promise of a ledger
        assert codes(tmp_path / "c.json") == (0, 0)
        again = replace(kept[2].claim, tries=1)
        write(tmp_path / "c.json", changed(content_of(tmp_path / "c.json"), (*CERTIFICATE, "claim"), again.to_dict()))
        assert codes(tmp_path / "c.json") == (1, 1)
