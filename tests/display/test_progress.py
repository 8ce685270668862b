"""The progress bar shows itself only after a while, and only to somebody."""

from __future__ import annotations

import io
import sys

import pytest

from apas.display import progress as module
from apas.display.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "patience", "shown"), [(Terminal(), 0.0, True), (Terminal(), 60.0, False), (io.StringIO(), 0.0, False)])  # fmt: skip
def test_when_it_is_shown(monkeypatch, stream, patience, shown):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(4, "working hard") as bar:
        for _ in range(4):
            bar.advance(1)
    assert ("working hard" in stream.getvalue()) == shown


def test_it_ends_with_an_error(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with pytest.raises(ZeroDivisionError), Progress(4, "failing") as bar:
        bar.advance(1)
        raise ZeroDivisionError
    assert bar._bar.finished or not bar._bar.live.is_started
