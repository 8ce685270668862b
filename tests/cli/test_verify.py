"""`apas verify`, and `--save` of the commands that certify."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from certificate_files import changed, content_of, network, rows, write
from command_line import run

import apas


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = network(feature_names=list("abcd"))
    apas.save_model(net, "model.json")
    table = pd.DataFrame(rows(30), columns=list("abcd"))
    table.to_csv("rows.csv", index=False)
    table[net.margin(table.to_numpy(), 1) < 0].head(2).to_csv("rejected.csv", index=False)
    return tmp_path


CERTIFY = (
    "certify",
    "model.json",
    "rows.csv",
    "--target",
    "1",
    "--delta",
    "0.02",
    "--seed",
    "1",
    "--save",
    "certs.json",
)


def test_certify_save_verify(folder, capsys):
    code, out, _ = run(capsys, *CERTIFY)
    assert code == 0
    assert "30 rows" in out
    assert len(apas.load_certificates("certs.json")) == 30
    code, out, err = run(capsys, "verify", "certs.json", "model.json")
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("30 statements: 30 HOLDS.")
    code, out, _ = run(capsys, "verify", "certs.json", "model.json", "--json", "--fresh", "--seed", "3")
    report = json.loads(out)
    assert code in (0, 3)  # a row may be close to the coverage
    assert report["format"] == "apas-verify-report"
    assert {row["check"] for row in report["rows"]} <= {"HOLDS", "NOT CHECKED"}


def test_what_is_claimed_is_printed_and_can_be_required(folder, capsys):
    weak = ("--coverage", "0.01", "--confidence", "0.01", "--samples", "1")
    words = ("certify", "model.json", "rows.csv", "--target", "predicted", "--seed", "1", "--save", "certs.json", *weak)
    assert run(capsys, *words, "--delta", "1e-12")[0] == 0
    code, out, _ = run(capsys, "verify", "certs.json", "model.json")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][3:7] == ["target", "delta", "coverage", "confidence"]
    assert lines[1][4:7] == ["1e-12", "0.01", "0.01"]
    assert "Set: uniform on the box in which each of 37 weights and biases moves by at most delta." in out
    for name, value, said in [
        ("coverage", "0.9", "claims coverage 0.01, 0.9 is required"),
        ("confidence", "0.9", "claims confidence 0.01, 0.9 is required"),
        ("delta", "0.1", "claims delta 1e-12, 0.1 is required"),
        ("target", "yes", "'yes' is required"),
    ]:
        code, out, _ = run(capsys, "verify", "certs.json", "model.json", f"--require-{name}", value)
        assert code == 1
        assert said in out
    reached = ("--require-coverage", "0.01", "--require-confidence", "0.01", "--require-delta", "1e-12")
    assert run(capsys, "verify", "certs.json", "model.json", *reached)[0] == 0
    code, _, err = run(capsys, "verify", "certs.json", "model.json", "--require-coverage", "2")
    assert (code, "`require_coverage` of verify must be" in err) == (2, True)


def test_fresh_draws_are_the_verifiers(folder, capsys):
    run(capsys, *CERTIFY)
    code, out, _ = run(capsys, "verify", "certs.json", "model.json", "--fresh", "--seed", "3", "--samples", "3000")
    assert code == 0
    assert "3000 models were drawn afresh for each certified row (entropy 0x3): " in " ".join(out.split())
    entropies = set()
    for _ in range(2):  # without a seed nobody can know the draws beforehand
        _, out, _ = run(capsys, "verify", "certs.json", "model.json", "--fresh", "--samples", "3000", "--json")
        entropies.add(json.loads(out)["notes"][1].split("entropy ")[1].split(")")[0])
    assert len(entropies) == 2
    code, _, err = run(capsys, "verify", "certs.json", "model.json", "--samples", "10")
    assert (code, "`--samples` goes with `--fresh`" in err) == (2, True)


def test_a_file_without_rows_proves_nothing(folder, capsys):
    apas.save_certificates(
        apas.certify(network(feature_names=list("abcd")), rows(0), 0.05, target=1, rng=1), "none.json"
    )
    code, out, _ = run(capsys, "verify", "none.json", "model.json")
    assert (code, out.rstrip().endswith("No rows, nothing to check.")) == (3, True)


def test_generate_and_max_shift_save(folder, capsys):
    words = ("rejected.csv", "--background", "rows.csv", "--delta", "0.02", "--seed", "1", "--save", "offers.json")
    assert run(capsys, "generate", "model.json", *words)[0] == 0
    assert run(capsys, "verify", "offers.json", "model.json")[0] == 0
    assert apas.load_certificates("offers.json").inputs is not None
    words = ("rows.csv", "--target", "predicted", "--seed", "1", "--save", "radii.json", "--samples", "2000")
    assert run(capsys, "max-shift", "model.json", *words)[0] == 0
    code, out, _ = run(capsys, "verify", "radii.json", "model.json")
    assert code == 0
    assert "largest shift" in out


def test_exit_codes(folder, capsys):
    run(capsys, *CERTIFY)
    apas.save_model(
        network(feature_names=list("abcd")).with_parameters(network().parameters.values + 1e-6), "other.json"
    )
    code, out, _ = run(capsys, "verify", "certs.json", "other.json")
    assert code == 1
    assert "this is not the model that the file is about" in out
    content = content_of(folder / "certs.json")
    write(folder / "bad.json", changed(content, ("certificates", 0, "certificate", "delta"), 0.03))
    code, out, _ = run(capsys, "verify", "bad.json", "model.json")
    assert code == 1
    assert "1 FAILS" in out
    (folder / "broken.json").write_text("{")
    for words in (
        ("broken.json", "model.json"),
        ("certs.json", "broken.json"),
        ("none.json", "model.json"),
        ("model.json", "model.json"),
    ):
        code, out, err = run(capsys, "verify", *words)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
    code, _, err = run(capsys, "verify", "certs.json", "model.json", "--seed", "1")
    assert code == 2
    assert "--fresh" in err


def test_rows_that_are_not_checked(folder, capsys):
    net = apas.load_model("model.json")
    shifts = apas.ObservedShifts([net.with_parameters(net.parameters.values * 1.01)])
    found = apas.certify(net, np.zeros((1, 4)), 1, target="predicted", shifts=shifts, method="exact")
    apas.save_certificates(found, "observed.json")
    code, out, _ = run(capsys, "verify", "observed.json", "model.json")
    assert code == 3
    assert "NOT CHECKED" in out


def test_rows_behind_a_space_need_the_space(folder, capsys):
    table, net = pd.read_csv("rows.csv"), apas.load_model("model.json")
    features = {name: {"kind": "continuous", "range": [-9.0, 9.0]} for name in "abcd"}
    space = apas.FeatureSpace.from_dict({"features": features, "scale": "minmax"})
    apas.save_certificates(apas.certify(space.bind(net), table, 0.02, target="predicted", rng=1), "coded.json")
    space.to_toml("space.toml")
    code, out, _ = run(capsys, "verify", "coded.json", "model.json")
    assert code == 3
    assert "30 statements: 30 NOT CHECKED." in out
    assert run(capsys, "verify", "coded.json", "model.json", "--space", "space.toml")[0] == 0
    features["a"]["range"] = [-9.0, 8.0]
    apas.FeatureSpace.from_dict({"features": features, "scale": "minmax"}).to_toml("other.toml")
    code, out, _ = run(capsys, "verify", "coded.json", "model.json", "--space", "other.toml")
    assert code == 1
    assert "this is not the model that the file is about" in out


def test_a_state_needs_its_activation_and_output(folder, capsys):
    torch = pytest.importorskip("torch")
    net = apas.load_model("model.json")
    state = {}
    for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        state |= {f"{2 * i}.weight": torch.tensor(weight.T.copy()), f"{2 * i}.bias": torch.tensor(bias)}
    torch.save(state, "model.pt")
    plain = network()
    apas.save_certificates(apas.certify(plain, rows(2), 0.02, target="predicted", rng=1), "plain.json")
    words = ("verify", "plain.json", "model.pt")
    assert run(capsys, *words, "--activation", "relu", "--output", "sigmoid")[0] == 0
    assert run(capsys, *words, "--activation", "tanh", "--output", "sigmoid")[0] == 1
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--activation" in err


def test_the_help_has_an_example_and_the_exit_codes(capsys):
    code, out, _ = run(capsys, "verify", "--help")
    assert code == 0
    assert "apas verify promises.json model.json" in out
    for words in ("0 if all hold", "1 if something", "2 for bad input", "--activation", "--output", "--space"):
        assert words in " ".join(out.split())


@pytest.mark.parametrize("place", ["certs.txt", "none/certs.json", "folder.json"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(place, folder, capsys):
    (folder / "folder.json").mkdir()
    for command in (CERTIFY[:-1], ("max-shift", "model.json", "rows.csv", "--target", "1", "--save")):
        code, out, err = run(capsys, *command, place)
        assert (code, out) == (2, "")
        assert "`--save` must be a file that can be written" in err


def test_models_that_exist_are_given_one_by_one(folder, capsys):
    net, table = apas.load_model("model.json"), pd.read_csv("rows.csv")
    values = net.parameters.values
    others = [net.with_parameters(values * (1 + 0.001 * i)) for i in range(1, 4)]
    for i, other in enumerate(others):
        apas.save_model(other, f"later-{i}.json")
    shifts = apas.ObservedShifts(others)
    apas.save_certificates(apas.certify(net, table, None, target="predicted", shifts=shifts, method="exact"), "c.json")
    assert run(capsys, "verify", "c.json", "model.json")[0] == 3
    given = [word for i in range(3) for word in ("--models", f"later-{i}.json")]
    code, _, err = run(capsys, "verify", "c.json", "model.json", *given)
    assert (code, err) == (0, "")
    assert run(capsys, "verify", "c.json", "model.json", *given[:4])[0] == 2


def test_a_seed_is_refused_by_the_name_of_its_option(folder, capsys):
    code, out, err = run(capsys, "verify", "certs.json", "model.json", "--fresh", "--seed", "-1")
    assert (code, out) == (2, "")
    assert "'--seed'" in err
    assert "rng" not in err


def test_a_page_shows_what_does_not_hold(folder, capsys):
    pd.DataFrame(rows(90), columns=list("abcd")).to_csv("rows.csv", index=False)
    assert run(capsys, *CERTIFY)[0] == 0
    content = content_of(folder / "certs.json")
    last = max(i for i, entry in enumerate(content["certificates"]) if entry["certificate"]["verdict"] == "CERTIFIED")
    write(folder / "certs.json", changed(content, ("certificates", last, "certificate", "delta"), 0.03))
    code, out, _ = run(capsys, "verify", "certs.json", "model.json")
    table, _, said = out.partition("\n\n")
    assert (code, last > 50) == (1, True)
    assert said.startswith("The table shows 50 of 90 rows; --json prints all of them.\n")
    shown = [line.split()[0] for line in table.splitlines()]
    assert shown == ["row", *map(str, range(49)), str(last)]
    assert [line.split()[0] for line in table.splitlines() if "FAILS" in line] == [str(last)]
