"""Thousands of damaged and hostile files per reader: each is read, or refused by an error of ours, in bounded time and memory.

`make fuzz` runs 2,000 inputs per reader, `make test` the first few of the same. An input that fails is named by its number
and kept in ``test-output/fuzz``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import damaged_files
import numpy as np
import pytest
from certificate_files import checker_in_process
from command_line import fill, network
from hostile_files import GOOD_STATE

import apas
from apas.cli import main
from apas.cli.promises import read_references
from apas.cli.rows import read_rows
from apas.contracts.certificate_file import read_stored
from apas.models.digest import model_digest
from apas.paper.experiment import Store
from apas.report.subject import read_later, read_subject
from apas.theory import read_dimacs

if not sys.platform.startswith("linux"):
    pytest.skip("memory is limited and measured as Linux does it", allow_module_level=True)
import resource

SHORT, LONG, PER_COMMAND = 20, 2000, 20
SECONDS, MEMORY = 60, 2 * 2**30
Change = Callable[..., bytes]


@dataclass(frozen=True)
class Reader:
    """What reads a file: the good files that are changed, how, what is done with the result, and a command that reads it, too."""

    seeds: tuple[str, ...]
    change: Change
    read: Callable[[Path], object]
    command: tuple[str, ...] = ()


def load(**said: str) -> Callable[[Path], object]:
    return lambda path: apas.load_model(path, **said)


def predict(path: Path) -> None:
    """A model from a file, asked about rows."""
    model = apas.load_model(path)
    model.margin(model.encode(np.zeros((2, model.n_raw_features))), model.classes[1])


def refits(path: Path) -> None:
    folder = path.parent / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path, folder / "refits.json")
    for i in range(2):
        shutil.copy("forest.apas", folder / f"refit-{i:04d}.apas")
    apas.RetrainedModels.load(folder)


def convert(*said: str) -> tuple[str, ...]:
    return ("convert", "FILE", "out.json", *said)


def book(path: Path) -> None:
    """All that a ledger is asked."""
    with apas.Ledger(path, create=False) as ledger:
        len(ledger)
        for ask in (
            ledger.to_frame,
            ledger.history,
            lambda: ledger.audit(network()),
            lambda: ledger.retire("A-17"),
            ledger.to_frame,
        ):
            with contextlib.suppress(apas.ApasError):
                ask()
        ledger.to_frame()


def results(path: Path) -> None:
    with Store(path) as store:
        store.get("k")
        len(store)
        store.put("k", "toy", {}, {"share": 1.0}, seconds=0.1)


def audited(path: Path) -> None:
    read_later(read_subject("promises.json", None, network()), path, None)


def checked(path: Path) -> None:
    """The separate checker answers with one of its exit codes."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = CHECKER.main([str(path), "model.json"])
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in said.getvalue()


CHECKER = checker_in_process()
STATE = {"activation": "relu", "output": "sigmoid"}
ASKED = ("--activation", "relu", "--output", "sigmoid")
certificates = damaged_files.changed_certificates
promises = ("promises.json", "proofs.json", "witnesses.json", "spaced.json")
READERS = {
    "json": Reader(("model.json",), damaged_files.changed_json, load(), convert()),
    "safetensors": Reader(("model.safetensors",), damaged_files.changed_safetensors, load(), convert()),
    "safetensors of a state": Reader(("state.safetensors",), damaged_files.changed_safetensors, load(**STATE), convert(*ASKED)),
    "onnx": Reader(("model.onnx", "external.onnx"), damaged_files.changed_onnx, load(), convert()),
    "container": Reader(("forest.apas",), damaged_files.changed_archive, predict),
    "refits": Reader(("refits.json",), damaged_files.changed_json, refits),
    "skops": Reader(("linear.skops", "pipeline.skops", "trees.skops"), damaged_files.changed_archive, load(), convert()),
    "state": Reader(("state.pt",), damaged_files.changed_archive, load(**STATE), convert(*ASKED)),
    "certificates": Reader((*promises, "radii.json"), certificates, read_stored, ("ledger", "add", "new.db", "FILE")),
    "certificate lines": Reader(("promises.jsonl", "radii.jsonl"), damaged_files.changed_certificate_lines, read_stored, ("verify", "FILE", "model.json")),
    "checker of lines": Reader(("promises.jsonl", "radii.jsonl"), damaged_files.changed_certificate_lines, checked),
    "verify": Reader((*promises, "radii.json"), certificates, lambda path: apas.verify(path, network()), ("verify", "FILE", "model.json")),
    "checker": Reader((*promises, "radii.json"), certificates, checked),
    "audit": Reader(promises, certificates, lambda path: apas.audit(path, network(), repairs=False), ("audit", "FILE", "new.json", "--no-repairs", "--junit", "a.xml", "--markdown", "a.md")),
    "told audit": Reader(("audit.json",), damaged_files.changed_json, audited, ("report", "promises.json", "--audit", "FILE", "-o", "page.html")),
    "ledger": Reader(("ledger.db", "loose.db"), damaged_files.changed_database, book, ("ledger", "list", "FILE")),
    "results": Reader(("results.sqlite",), damaged_files.changed_database, results),
    "space": Reader(("space.toml", "kinds.toml"), damaged_files.changed_lines(damaged_files.TOML_WORDS), lambda path: apas.FeatureSpace.from_toml(path), ("verify", "promises.json", "model.json", "--space", "FILE")),
    "rows": Reader(("rows.csv", "train.csv"), damaged_files.changed_lines(damaged_files.CSV_WORDS), lambda path: apas.certify(network(), read_rows(path, network()), 0.01, target=1, method="interval"), ("certify", "model.json", "FILE", "--target", "1", "--delta", "0.01", "--method", "interval")),
    "references": Reader(("applicants.csv",), damaged_files.changed_lines(damaged_files.CSV_WORDS), lambda path: read_references(path, "id"), ("ledger", "add", "new.db", "promises.json", "--references", "FILE", "--reference-column", "id")),
    "formula": Reader(("formula.cnf",), damaged_files.changed_lines(damaged_files.DIMACS_WORDS), read_dimacs),
}  # fmt: skip


@pytest.fixture(scope="module")
def office(tmp_path_factory) -> Path:
    """Good files of all kinds."""
    import skops.io
    from hostile_files import onnx_model
    from safetensors.numpy import save_file
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folder = fill(tmp_path_factory.mktemp("fuzz"))
    net, rng = network(), np.random.default_rng(0)
    X = rng.uniform(size=(3, 3))
    for name, method in (("proofs", "interval"), ("witnesses", "attack")):
        apas.save_certificates(apas.certify(net, X, 0.05, target="predicted", method=method), folder / f"{name}.json")
    apas.save_certificates(apas.max_shift(net, X, target="predicted", method="interval"), folder / "radii.json")
    space = apas.FeatureSpace.from_toml(folder / "space.toml")
    import pandas as pd

    rejected = pd.read_csv(folder / "rejected.csv", index_col=0)
    apas.save_certificates(
        apas.generate(net, rejected, 0.01, target=1, space=space, source="milp", method="interval", rng=0),
        folder / "spaced.json",
    )
    apas.save_certificates(apas.load_certificates(folder / "promises.json"), folder / "promises.jsonl")
    apas.save_certificates(apas.max_shift(net, X, target="predicted", method="interval"), folder / "radii.jsonl")
    report = apas.audit(folder / "promises.json", network(), base=net)
    (folder / "audit.json").write_text(json.dumps(report.to_dict()))
    (folder / "state.pt").write_bytes(GOOD_STATE)
    save_file(
        {"0.weight": np.ones((3, 2)), "0.bias": np.zeros(3), "2.weight": np.ones((1, 3))}, folder / "state.safetensors"
    )
    (folder / "external.onnx").write_bytes(onnx_model(location="numbers.bin").SerializeToString())
    (folder / "numbers.bin").write_bytes(np.ones(6).tobytes())
    fitted = LogisticRegression().fit(X, [0, 1, 1])
    (folder / "linear.skops").write_bytes(skops.io.dumps(fitted))
    (folder / "pipeline.skops").write_bytes(
        skops.io.dumps(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, [0, 1, 1]))
    )
    trees = RandomForestClassifier(2, random_state=0).fit(X, [0, 1, 1])
    apas.save_model(trees, folder / "trees.skops")
    apas.save_model(trees, folder / "forest.apas")
    digest = model_digest(apas.as_model(trees))
    made = {
        "format": "apas-refits",
        "version": 1,
        "process": "a forest",
        "recipe": "0" * 64,
        "entropy": "0x1",
        "count": 2,
    }
    made["refits"] = {f"refit-{i:04d}.apas": digest for i in range(2)}
    (folder / "refits.json").write_text(json.dumps(made))
    (folder / "applicants.csv").write_text("id,branch\nA-17,north\nA-18,south\nA-19,east\nA-20,west\n")
    (folder / "kinds.toml").write_text(KINDS)
    (folder / "formula.cnf").write_text("c small\np cnf 3 2\n1 -2 3 0\n-1 2 0\n")
    with Store(folder / "results.sqlite") as store:
        store.put("k", "toy", {"depth": 6}, {"share": 0.9, "rows": [1, 2]}, seconds=0.1)
    loosen(folder / "ledger.db", folder / "loose.db")
    return folder


KINDS = """scale = "range"

[features.income]
kind = "continuous"
range = [0.0, 1.0]
step = 0.1
direction = "up"

[features.debt]
kind = "ordinal"
values = ["low", "mid", "high"]

[features.age]
kind = "categorical"
values = ["a", "b"]
mutable = false
"""


def loosen(path: Path, target: Path) -> None:
    """A ledger whose tables take anything, as nobody but a stranger makes them."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        base.execute("PRAGMA journal_mode = DELETE")
        script = "\n".join(base.iterdump())
        marks = [base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    loose = re.sub(r"NOT NULL|TEXT|CHECK \(state IN \([^)]*\)\)", "", script)
    with contextlib.closing(sqlite3.connect(target)) as base:
        base.executescript(loose)
        base.execute(f"PRAGMA application_id = {marks[0]}")
        base.execute(f"PRAGMA user_version = {marks[1]}")


class Late(BaseException):
    """A reader took too long; no handler of errors takes it for one of its own."""


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """At most `SECONDS` and `MEMORY` more than there is."""

    def late(*_: object) -> None:
        raise Late(f"more than {SECONDS} s")

    before, kept = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, kept[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, kept)


def variant(name: str, number: int, folder: Path) -> tuple[Path, bytes]:
    """Where input `number` of a reader belongs, and what is in it."""
    reader, rng = READERS[name], damaged_files.stream(name, number)
    seed = folder / reader.seeds[number % len(reader.seeds)]
    more = (folder,) if reader.change is damaged_files.changed_database else ()
    return folder / f"fuzzed{seed.suffix}", reader.change(rng, seed.read_bytes(), *more)


def complaint(read: Callable[[], object]) -> str | None:
    """What came out that nobody promised, or None."""
    try:
        with limits(), warnings.catch_warnings():
            warnings.simplefilter("ignore", apas.GuaranteeWarning)
            read()
    except apas.ApasError as error:
        text = str(error)
        return None if len(text) <= 1000 and text.isprintable() else f"not a message: {text[:200]!r}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]!r} at {Path(last.filename).name}:{last.lineno}"
    return None


def run_command(words: tuple[str, ...], path: Path) -> None:
    """A command on a file: a documented exit code, and one line if it is an error."""
    out, err = io.StringIO(), io.StringIO()
    Path("new.db").unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["apas", *(str(path) if word == "FILE" else word for word in words)])
        with pytest.raises(SystemExit) as stop:
            main()
    code, said = stop.value.code or 0, err.getvalue()
    assert code in (0, 1, 2, 3), f"exit code {code}: {said}"
    assert "Traceback" not in said
    assert "\x1b" not in said + out.getvalue()
    if code == 2:
        assert re.fullmatch(r"(warning: .*\n)*error: .{1,1000}\n", said), said
        assert out.getvalue() == ""


def place(path: Path, content: bytes) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    path.write_bytes(content)


def fuzz(name: str, count: int, commands: int, office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a reader its first `count` inputs, and some of them to its command."""
    folder, reader = tmp_path / "office", READERS[name]
    shutil.copytree(office, folder)
    monkeypatch.chdir(folder)
    found: dict[int, str] = {}
    for seed in reader.seeds:
        assert complaint(lambda path=folder / seed: reader.read(path)) is None, f"{seed} is good"
    for number in range(count):
        path, content = variant(name, number, folder)
        place(path, content)
        said = complaint(lambda path=path: reader.read(path))
        if said is None and reader.command and number < commands:
            place(path, content)
            said = complaint(lambda path=path: run_command(reader.command, path))
        if said is not None:
            found[number] = said
            kept = Path(os.environ.get("APAS_TEST_OUTPUT", Path(__file__).parents[2] / "test-output")) / "fuzz"
            kept.mkdir(parents=True, exist_ok=True)
            (kept / f"{name.replace(' ', '-')}-{number}{path.suffix}").write_bytes(content)
    kinds = {text: number for number, text in reversed(found.items())}
    assert not found, f"{len(found)} of {count} inputs of {name!r}: {kinds}"


@pytest.mark.parametrize("name", READERS)
def test_the_first_inputs_are_read_or_refused(name, office, tmp_path, monkeypatch):
    fuzz(name, SHORT, 2, office, tmp_path, monkeypatch)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", READERS)
def test_all_inputs_are_read_or_refused(name, office, tmp_path, monkeypatch):
    fuzz(name, LONG, PER_COMMAND, office, tmp_path, monkeypatch)


def test_inputs_can_be_made_again(office):
    for name in READERS:
        assert variant(name, 3, office) == variant(name, 3, office)
    assert len({variant("json", number, office)[1] for number in range(20)}) > 15


def test_what_is_looked_for_would_be_found():
    assert complaint(lambda: {}["a"]).startswith("KeyError")
    assert complaint(lambda: bytearray(2 * MEMORY)).startswith("MemoryError")
    assert complaint(lambda: (_ for _ in ()).throw(apas.InputError("refused"))) is None
