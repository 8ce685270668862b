"""A writer that is killed loses nothing that it committed, and resuming completes the work; two writers share a ledger."""

from __future__ import annotations

import numpy as np
import pytest
from killed_writers import NOON, certified, dump, files, killed_after, start, write_all

import apas

CERTIFICATES = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a writer leaves that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    write_all(folder, certified(CERTIFICATES))
    return dump(folder / "ledger.db"), files(folder)


def check_kill(folder, whole, rows, pause, together):
    ledger, written = whole
    folder.mkdir()
    killed_after(folder, rows, pause, together=together)
    left = files(folder)
    for name, content in left.items():
        assert content == written[name]
        assert len(apas.load_certificates(folder / name)) == 1
    kept = 0
    if (folder / "ledger.db").exists():
        with apas.Ledger(
            folder / "ledger.db", clock=lambda: NOON
        ) as book:  # also where the kill came before the tables
            frame = book.to_frame()
            assert frame["reference"].tolist() == [f"A-{i}" for i in range(len(frame))]
        found = dump(folder / "ledger.db")
        kept = len(found["promises"])
        assert found["promises"] == ledger["promises"][:kept]
        assert found["history"] == ledger["history"][:kept]
    assert kept >= min(rows, CERTIFICATES)
    write_all(folder, certified(CERTIFICATES))
    assert dump(folder / "ledger.db") == ledger
    assert files(folder) == written
    return kept


def moments(count, seed):
    """After how many rows, how much later, and whether the rows are added in one call: every other time."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, CERTIFICATES, size=count))
    rows[:2] = 0
    pauses = rng.uniform(0, 0.004, size=count)
    return [(int(rows[i]), float(pauses[i]), bool(i % 2)) for i in range(count)]


def check_moments(folder, whole, found):
    kept = [check_kill(folder / str(i), whole, *moment) for i, moment in enumerate(found)]
    assert len(whole[0]["promises"]) == len(whole[1]) == CERTIFICATES
    # the kills did come in between, in either way of writing
    for part in (kept[::2], kept[1::2]):
        assert any(0 < count < CERTIFICATES for count in part)
    assert sum(count < CERTIFICATES for count in kept) >= 0.8 * len(kept)


def test_killed_at_6_moments(tmp_path, whole):
    check_moments(tmp_path, whole, moments(6, 1))


@pytest.mark.validity
def test_killed_at_100_moments(tmp_path, whole):
    check_moments(tmp_path, whole, moments(100, 2))


@pytest.mark.parametrize("second", [500, 0], ids=["different", "the same"])
def test_two_writers(tmp_path, second):
    path = tmp_path / "ledger.db"
    writers = [start("add", path, 500, first) for first in (0, second)]
    assert [writer.wait() for writer in writers] == [0, 0]
    with apas.Ledger(path, create=False) as book:
        assert len(book) == (1000 if second else 500)
        frame = book.to_frame()
        assert sorted(frame["reference"]) == sorted(f"A-{i}" for i in range(len(book)))
        assert set(frame["state"]) == {"open"}
        assert len(book.history()) == len(book)
    assert len(dump(path)["promises"]) == len(frame)
