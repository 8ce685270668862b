"""Runs block by block: the file of an unbroken run, whatever ended them and whenever."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from command_line import fill, network, run
from conftest import absent

import apas
from apas.cli import main, options, rows as tables, stream
from apas.contracts.certificate_file import stored_blocks

ROWS = 400
CERTIFY = "certify model.json many.csv --target 1 --delta 0.05 --seed 3"
COMMANDS = {
    "certify": CERTIFY,
    "proofs": "certify model.json many.csv --target 1 --delta 0.05 --method interval",
    "max-shift": "max-shift model.json many.csv --target 1 --seed 3",
    "generate": "generate model.json few.csv --space space.toml --target 1 --delta 0.01 --seed 3 --k 2",
    "audit": "audit certificates.jsonl worse.json --base model.json --no-repairs",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of which each command makes one, in some blocks."""
    found = fill(tmp_path_factory.mktemp("stream"))
    draw, net = np.random.default_rng(5), network()
    many = pd.DataFrame(draw.uniform(0, 1, (ROWS, 3)), columns=["income", "debt", "age"])
    many.to_csv(found / "many.csv", index=False)
    many[net.margin(many.to_numpy(), 1) < 0][:10].to_csv(found / "few.csv", index=False)
    apas.save_certificates(apas.certify(net, many, 0.05, target=1, rng=0), found / "certificates.jsonl")
    moved = apas.FeedForward(
        net.weights, [net.biases[0], np.array(net.biases[1]) - 1.0], feature_names=net.feature_names
    )
    apas.save_model(moved, found / "worse.json")
    return found


@pytest.fixture
def small_blocks(monkeypatch, folder):
    """Blocks of a few rows, and the numbers of the rows that were asked about."""
    monkeypatch.chdir(folder)
    asked = []
    plain, ask = options.BlockOptions.stream, stream.BlockJob.__call__

    def in_small_blocks(self, *given, **how):
        return plain(self, *given, **{**how, "size": 3 if how["size"] < 64 else 64})

    def noted(self, start, block):
        asked.extend(range(start, start + len(block)))
        return ask(self, start, block)

    monkeypatch.setattr(options.BlockOptions, "stream", in_small_blocks)
    monkeypatch.setattr(stream.BlockJob, "__call__", noted)
    return asked


@pytest.fixture
def unbroken(capsys, small_blocks, folder):
    """The file of a run that nothing ends, per command."""

    def made(name):
        target = folder / f"{name}.whole.jsonl"
        if not target.exists():
            code, _, err = run(capsys, *COMMANDS[name].split(), "--out", target.name)
            assert (code, err) == (1 if name == "audit" else 0, "")
        small_blocks.clear()
        return target

    return made


def test_certificates_are_those_of_one_call(unbroken, folder):
    many = pd.read_csv(folder / "many.csv")
    found = apas.load_certificates(unbroken("certify"))
    assert found == apas.certify(network(), many, 0.05, target=1, rng=3)
    assert [len(part.certificates) for part in stored_blocks(folder / "certify.whole.jsonl", 150)] == [150, 150, 100]
    radii = apas.max_shift(network(), many, target=1, rng=3)
    (stored,) = stored_blocks(unbroken("max-shift"), None)
    assert stored.max_shifts == radii


def test_counterfactuals_and_audits_are_those_of_one_call(unbroken, folder):
    lines = unbroken("generate").read_text().splitlines()[1:-1]
    space, few = apas.FeatureSpace.from_toml(folder / "space.toml"), pd.read_csv(folder / "few.csv")
    found = apas.generate(network(), few, 0.01, target=1, space=space, k=2, rng=3)
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(found.to_dict()["counterfactuals"]))
    lines = unbroken("audit").read_text().splitlines()[1:-1]
    models = apas.load_model(folder / "worse.json"), apas.load_model(folder / "model.json")
    report = apas.audit(folder / "certificates.jsonl", models[0], base=models[1], repairs=False)
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(report.to_dict()["rows"]))


@pytest.mark.parametrize("name", COMMANDS)
def test_cut_off_anywhere(capsys, small_blocks, unbroken, folder, name):
    whole = unbroken(name)
    target, words = folder / "cut.jsonl", [*COMMANDS[name].split(), "--out", "cut.jsonl"]
    run(capsys, *words)
    content, each = whole.read_bytes(), 2 if name == "generate" else 1
    assert target.read_bytes() == content
    ends = [i + 1 for i, byte in enumerate(content) if byte == 10]
    draw = np.random.default_rng(7)
    cuts = [0, 5, ends[0], ends[0] + 1, ends[1], ends[-2], ends[-2] + 9, ends[-1], *draw.integers(0, len(content), 4)]
    for cut in cuts:
        _begin(capsys, words, folder)
        (folder / "cut.jsonl.part").write_bytes(content[:cut])
        small_blocks.clear()
        code, out, err = run(capsys, *words, "--resume")
        assert code == (1 if name == "audit" else 0), err
        assert target.read_bytes() == content, cut
        whole_lines = max(0, content[:cut].count(b"\n") - 1) // each
        total = (len(ends) - 2) // each
        committed = min(whole_lines, total)
        assert small_blocks == list(range(committed, total)), "nothing is computed twice after it was committed"
        assert err == (f"{committed} of {total} rows were there already.\n" if committed else "")
        assert out.startswith(f"{total} rows")
        assert sorted(folder.glob("cut.jsonl*")) == [target]
    target.unlink()


def _begin(capsys, words, folder):
    """Leave the question of a run that has begun."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream.Journal, "add", _stop)
        assert run(capsys, *words)[0] == 130
    assert (folder / "cut.jsonl.run").exists()


def _stop(self, top, lines):
    raise KeyboardInterrupt


def test_the_last_moment(capsys, small_blocks, unbroken, folder, monkeypatch):
    content = unbroken("certify").read_bytes()
    words = [*CERTIFY.split(), "--out", "last.jsonl"]
    with monkeypatch.context() as patch:
        patch.setattr(type(folder), "unlink", _stop_at("last.jsonl.run", type(folder).unlink))
        assert run(capsys, *words)[0] == 130
    assert (folder / "last.jsonl").read_bytes() == content
    assert (folder / "last.jsonl.run").exists()
    small_blocks.clear()
    code, out, _ = run(capsys, *words, "--resume")
    assert (code, small_blocks) == (0, [])
    assert out.startswith("400 rows: ")
    assert not (folder / "last.jsonl.run").exists()


def _stop_at(name, unlink):
    gone = []

    def stop(path, missing_ok=False):
        if path.name == name and gone:
            raise KeyboardInterrupt
        gone.append(path.name)
        return unlink(path, missing_ok=missing_ok)

    return stop


def test_another_question_is_not_continued(capsys, small_blocks, folder):
    words = [*CERTIFY.split(), "--out", "cut.jsonl"]
    _begin(capsys, words, folder)
    for other in ("--delta 0.04", "--coverage 0.9", "--shifts l2", "--seed 4"):
        code, out, err = run(capsys, *words, *other.split(), "--resume")
        assert (code, out) == (2, "")
        assert "`--resume` must go on with the question that was asked" in err
    shutil.copy(folder / "many.csv", folder / "kept.csv")
    (folder / "many.csv").write_text((folder / "many.csv").read_text() + "0.5,0.5,0.5\n")
    assert "but ROWS is not what it was" in run(capsys, *words, "--resume")[2]
    shutil.move(folder / "kept.csv", folder / "many.csv")
    assert run(capsys, *words, "--resume")[0] == 0


def test_seed_of_the_first_run_is_kept(capsys, small_blocks, folder, monkeypatch):
    words = ["certify", "model.json", "many.csv", "--target", "1", "--delta", "0.05", "--out", "cut.jsonl"]
    _begin(capsys, words, folder)
    seed = json.loads((folder / "cut.jsonl.run").read_text())["seed"]
    assert run(capsys, *words, "--resume")[0] == 0
    found = apas.load_certificates(folder / "cut.jsonl")
    assert {c.evidence.entropy for c in found if c.evidence.draws} == {seed}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{CERTIFY} --out a.jsonl --simultaneous", "`--simultaneous` goes without `--out a.jsonl`"),
        ("certify model.json many.csv --target 1 --delta 0.1 --derived --out a.jsonl", "`--derived` goes without"),
        (f"{CERTIFY} --out a.jsonl --json", "`--json` goes without"),
        (f"{CERTIFY} --out a.csv", "`--out` must end in .jsonl or .parquet, got 'a.csv'"),
        (f"{CERTIFY} --resume", "`--resume` goes with `--out FILE.jsonl`"),
        ("generate model.json few.csv --space space.toml --delta 0.01 --out a.jsonl", "Missing option '--target'"),
        ("audit promises.json new.json --jobs 2", "`--jobs` and `--dask` of audit go with `--out`"),
        ("certify model.json none.csv --target 1 --delta 0.1 --out a.jsonl", "there are no rows to ask about"),
    ],
)
def test_what_does_not_go_together(capsys, folder, monkeypatch, words, said):
    monkeypatch.chdir(folder)
    (folder / "none.csv").write_text("income,debt,age\n")
    code, out, err = run(capsys, *words.split())
    assert (code, out) == (2, "")
    assert said in err
    assert not list(folder.glob("a.*"))


def test_jobs_divide_blocks(capsys, unbroken, folder):
    whole = unbroken("certify").read_bytes()
    assert run(capsys, *CERTIFY.split(), "--out", "jobs.jsonl", "--jobs", "2")[0] == 0
    assert (folder / "jobs.jsonl").read_bytes() == whole


def test_text_that_comes_late_makes_a_column_of_text(folder):
    path = folder / "late.csv"
    path.write_text("income,debt,age\n" + "1,2,3\n" * 5 + "1,x,\n")
    table = tables.open_table(path, network())
    parts = list(table.blocks(2, 1))
    assert len(table) == 6
    assert [list(part.index) for part in parts] == [[1, 2], [3, 4], [5]]
    whole = tables.read_rows(path, network())
    pd.testing.assert_frame_equal(pd.concat(parts), whole.iloc[1:], check_index_type=False)
    assert whole["debt"].tolist() == ["2", "2", "2", "2", "2", "x"]


@pytest.mark.parametrize(
    ("cell", "said"), [("", "row 150, column 'debt' is nan"), ("x", "row 0, column 'debt' is '0.5'")]
)
def test_a_bad_cell_is_where_it_says(capsys, small_blocks, folder, cell, said):
    cells = ["0.5"] * 150 + [cell] + ["0.5"] * 9
    (folder / "bad.csv").write_text("income,debt,age\n" + "".join(f"1,{debt},3\n" for debt in cells))
    code, _, err = run(capsys, *CERTIFY.replace("many.csv", "bad.csv").split(), "--out", "bad.jsonl")
    assert code == 2
    assert said in err
    assert ("columns of a file are texts if any of their cells is no number" in err) == bool(cell)


def test_parquet_in_and_out(capsys, unbroken, folder):
    if importlib.util.find_spec("pyarrow") is None:
        absent("parquet", "pyarrow is not installed: pip install 'apas[parquet]'")
    pd.read_csv(folder / "many.csv").to_parquet(folder / "many.parquet", index=False)
    whole = unbroken("certify")
    assert run(capsys, *CERTIFY.replace("many.csv", "many.parquet").split(), "--out", "in.jsonl")[0] == 0
    assert (folder / "in.jsonl").read_bytes() == whole.read_bytes()
    assert run(capsys, *CERTIFY.split(), "--out", "out.parquet")[0] == 0
    assert apas.load_certificates(folder / "out.parquet") == apas.load_certificates(whole)
    frame = pd.read_parquet(folder / "out.parquet")
    assert frame["line"].tolist() == whole.read_text().splitlines()[1:-1]
    assert set(frame["answer"]) <= {"CERTIFIED", "REFUTED", "UNKNOWN"}
    report = apas.verify(folder / "out.parquet", network())
    assert report.ok
    with pytest.raises(apas.InputError, match="it has no column of lines"):
        apas.load_certificates(folder / "many.parquet")


def killed_runs(folder, words, out, kills, seed):
    """Run a command until it ends by itself, killed at random moments before; how often that was."""
    draw, done = np.random.default_rng(seed), 0
    command = [sys.executable, "-m", "apas", *words, "--out", out, "--resume"]
    began = time.monotonic()
    assert subprocess.run([*command[:-3], "--out", "timed.jsonl"], cwd=folder, capture_output=True).returncode == 0
    length = time.monotonic() - began
    while True:
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            before = _lines(folder / f"{out}.part")
            try:
                err = process.communicate(timeout=None if done == kills else float(draw.uniform(0.2, 1.0) * length))[1]
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                err, done = process.communicate()[1], done + 1
                assert _lines(folder / f"{out}.part") >= before or (folder / out).exists(), "nothing is lost"
                continue
        assert process.returncode == 0, err
        return done


def _lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_at_some_moments(folder, unbroken):
    content = unbroken("certify").read_bytes()
    assert killed_runs(folder, CERTIFY.split(), "killed.jsonl", 3, seed=1) <= 3
    assert (folder / "killed.jsonl").read_bytes() == content


def killed_forks(folder, words, out, whole, kills, seed):
    """Kill runs at so many random moments; each begins with all modules loaded. How many ran to their end between."""
    draw, ended, length = np.random.default_rng(seed), 0, 1e9
    while kills:
        began, child = time.monotonic(), os.fork()
        if not child:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            os.chdir(folder)
            sys.argv = ["apas", *words, "--out", out, "--resume"]
            try:
                main()
            finally:
                os._exit(9)  # `main` ends with an exit code by an exception
        end = began + length * float(draw.uniform(0.05, 1.0))
        while time.monotonic() < end and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.002)
        if (folder / out).exists() and not (folder / f"{out}.run").exists():
            assert (folder / out).read_bytes() == whole
            (folder / out).unlink()
            length, ended = min(length, time.monotonic() - began), ended + 1
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kills -= 1
    return ended


@pytest.mark.validity
def test_killed_at_a_hundred_moments(tmp_path):
    """The runs are of ten blocks; one is begun anew whenever the one before has come to its end."""
    fill(tmp_path)
    draw = np.random.default_rng(5)
    many = pd.DataFrame(draw.uniform(0, 1, (10 * 2048, 3)), columns=["income", "debt", "age"])
    many.to_csv(tmp_path / "many.csv", index=False)
    words = [sys.executable, "-m", "apas", *CERTIFY.split(), "--out"]
    subprocess.run([*words, "whole.jsonl"], cwd=tmp_path, check=True)
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert killed_forks(tmp_path, CERTIFY.split(), "killed.jsonl", whole, 100, seed=1) >= 3
    subprocess.run([*words, "killed.jsonl", "--resume"], cwd=tmp_path, check=True)
    assert (tmp_path / "killed.jsonl").read_bytes() == whole
