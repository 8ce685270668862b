"""A missing extra is named together with the command that brings it."""

from __future__ import annotations

import pickle
import sys

import pytest

import apas
from apas import MissingExtra
from apas._lazy import require


def test_missing_extra_names_the_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    net = apas.FeedForward([[[1.0]]], [[0.5]])
    certificates = apas.certify(net, [[1.0]], 0.1, target=1, rng=0)
    with pytest.raises(MissingExtra, match=r'Certificates.plot needs .* pip install "apas\[plot\]"') as caught:
        certificates.plot()
    assert caught.value.extra == "plot"
    assert isinstance(caught.value, ImportError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.feature, again.extra) == ("Certificates.plot", "plot")


def test_other_import_errors_are_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        require("needs_more", feature="Something", extra="some")
