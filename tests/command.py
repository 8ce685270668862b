"""Running the command `apas` in tests."""

from __future__ import annotations

import sys

import pytest

from apas.cli import main


def run(capsys, *words):
    """Run the command in this process: exit code, standard output, standard error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["apas", *words])
        with pytest.raises(SystemExit) as stop:
            main()
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err
