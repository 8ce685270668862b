"""Files that mean harm: no code runs, nothing outside the folder is read, and the answer is one sentence."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_files import (
    GOOD_STATE,
    NETWORK,
    Bomb,
    anywhere,
    json_files,
    onnx_files,
    pickles,
    safetensors_files,
    skops_files,
    slow_json_files,
    state_files,
)
from sklearn.linear_model import LogisticRegression

import apas

if not sys.platform.startswith("linux"):
    pytest.skip("memory is limited and reading is watched as Linux does it", allow_module_level=True)

OPEN, ACCESS = 0x20, 0x1


class Watch:
    """Notices whether a file is opened or read, by whatever."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._handle >= 0
        assert self._libc.inotify_add_watch(self._handle, os.fsencode(path), OPEN | ACCESS) >= 0

    def noticed(self) -> bool:
        try:
            return bool(os.read(self._handle, 65536))
        except BlockingIOError:
            return False


def good_file(suffix: str, folder: Path) -> Path:
    path = folder / f"good{suffix}"
    if suffix == ".skops":
        import skops.io  # here: it imports all of scikit-learn

        path.write_bytes(skops.io.dumps(LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0, 1, 1])))
    elif suffix in (".pt", ".pth"):
        path.write_bytes(GOOD_STATE)
    else:
        apas.save_model(NETWORK, path)
    return path


def tried(files: list[Path], good: list[Path], target: Path) -> dict:
    program = Path(__file__).parents[2] / "memory_limited.py"
    jobs = {"good": [str(p) for p in good], "target": str(target), "files": [str(p) for p in files]}
    done = subprocess.run(
        [sys.executable, str(program)], input=json.dumps(jobs), capture_output=True, text=True, check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, cwd=target.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_sentence(text: str) -> bool:
    return text.endswith((".", "?")) and "\n" not in text and "Traceback" not in text and 20 < len(text) < 700


def complaint(result: dict, path: Path) -> str | None:
    """What is wrong with how a file was refused."""
    load, command = result["load"], result.get("command", {})
    if load.get("error") not in ("UnsafeFile", "InputError", "Unsupported") or not load["ours"]:
        return f"load_model: {load}"
    if not is_sentence(load["message"]) or path.name not in load["message"]:
        return f"not one sentence about the file: {load['message']!r}"
    if command["code"] != 2 or command["err"] != f"error: {load['message']}\n":
        return f"command: {command}"
    return None


def files_of(suffix: str, flag: Path, secret: Path, good: bytes | None) -> dict:
    own = {
        ".json": json_files,
        ".safetensors": safetensors_files,
        ".skops": lambda: skops_files(flag),
        ".onnx": lambda: onnx_files(secret),
        ".pt": lambda: state_files(flag),
    }
    found = {} if good is None else anywhere(good)
    return {**pickles(flag), **found, **own.get(suffix, dict)()}


SUFFIXES = [".json", ".safetensors", ".skops", ".onnx", ".pt", ".pth"]
UNSAFE = [".pkl", ".pickle", ".joblib", ".ckpt", ".bin", ".dill", ".sav", ".keras", ".h5", ".hdf5", ".PKL"]


@pytest.mark.parametrize("suffix", [*SUFFIXES[:-1], ".pkl", pytest.param(".pth", marks=pytest.mark.validity)])
def test_hostile_files_are_refused(suffix, tmp_path):
    flag, secret = tmp_path / "flag", tmp_path / "secret.bin"
    secret.write_bytes(bytes(48))
    good = good_file(suffix, tmp_path) if suffix in SUFFIXES else None
    contents = files_of(suffix, flag, secret, None if good is None else good.read_bytes())
    check_refused(suffix, contents, good, tmp_path)
    assert not flag.exists()


@pytest.mark.validity
def test_files_that_fill_the_memory_by_and_by_are_refused(tmp_path):
    (tmp_path / "secret.bin").touch()
    check_refused(".json", slow_json_files(), good_file(".json", tmp_path), tmp_path)


def check_refused(suffix: str, contents: dict, good: Path | None, tmp_path: Path) -> None:
    folder, secret, files = tmp_path / "models", tmp_path / "secret.bin", {}
    folder.mkdir()
    for i, (name, content) in enumerate(contents.items()):
        place = folder / str(i)
        place.mkdir()
        files[name] = place / f"model{suffix}"
        if isinstance(content, bytes):
            files[name].write_bytes(content)
        else:
            content(files[name])
    if suffix == ".onnx":  # what the relative names of other files lead to
        (folder / secret.name).symlink_to(secret)
    watch = Watch(secret)
    results = tried(list(files.values()), [] if good is None else [good], tmp_path / "out.json")
    assert not watch.noticed()
    assert results["limit"]["error"] == "MemoryError"
    complaints = {name: complaint(results[str(path)], path) for name, path in files.items()}
    assert {name: text for name, text in complaints.items() if text is not None} == {}
    if suffix == ".pkl":
        assert {results[str(path)]["load"]["error"] for path in files.values()} == {"UnsafeFile"}


def test_the_traps_work(tmp_path):
    flag, secret = tmp_path / "flag", tmp_path / "secret"
    for content in pickles(flag).values():
        if content[:2] != b"PK":
            pickle.loads(content).close()
            assert flag.exists()
            flag.unlink()
    assert isinstance(Bomb(flag), Bomb)
    secret.write_bytes(b"1")
    watch = Watch(secret)
    assert not watch.noticed()
    secret.read_bytes()
    assert watch.noticed()


def test_refused_as_unsafe_in_words(tmp_path):
    for suffix in UNSAFE:
        with pytest.raises(apas.UnsafeFile, match="could run code when read, so apas does not; in the program that"):
            apas.load_model(tmp_path / f"net{suffix}")
