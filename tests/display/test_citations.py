"""What to cite for what was used."""

from __future__ import annotations

import pytest

import apas
from apas.certification.methods import METHODS
from apas.counterfactuals.api import SOURCES
from apas.metrics.api import METRICS

SEARCHES = ("rays", "confirm", "paper")


def keys(text: str) -> list[str]:
    return [line.partition("{")[2].rstrip(",") for line in text.splitlines() if line.startswith("@")]


@pytest.mark.parametrize("name", [*METHODS, *SOURCES, *SEARCHES, *METRICS])
def test_everything_that_has_a_name_can_be_cited(name):
    assert keys(apas.citation(name))[:2] == ["apas", "marzari2024rigorous"]


@pytest.mark.parametrize("known", [METHODS, SOURCES], ids=["methods", "sources"])
def test_a_class_and_its_objects_are_cited_as_their_name(known):
    for alias, kind in known.items():
        assert apas.citation(kind) == apas.citation(alias)
    assert apas.citation(apas.Exact(time_limit=1.0)) == apas.citation("exact")
    assert apas.citation(apas.RobustOptimum()) == apas.citation("robust")


def test_results_can_be_cited(small_network):
    rows = [[0.1, 0.2, 0.3, 0.4]]
    certificates = apas.certify(small_network, rows, 0.01, target="predicted", rng=0)
    assert keys(apas.citation(certificates)) == ["apas", "marzari2024rigorous"]
    curves = apas.robust_fraction(small_network, rows, [0.01], target="predicted", rng=0)
    assert keys(apas.citation(curves)) == ["apas", "marzari2024rigorous", "clopper1934use"]


def test_every_work_comes_once():
    said = keys(apas.citation("roar", "milp", "exact", "lof", "roar"))
    assert said == [
        "apas", "marzari2024rigorous", "upadhyay2021towards", "jiang2023formalising", "huangfu2018parallelizing",
        "breunig2000lof",
    ]  # fmt: skip


@pytest.mark.parametrize("name", [*METHODS, *SOURCES, *SEARCHES, *METRICS])
def test_entries_are_closed(name):
    for entry in apas.citation(name).split("\n\n"):
        assert entry.count("{") == entry.count("}")
        assert entry.endswith("\n}")
        assert ",\n}" not in entry


def test_the_software_has_its_version():
    assert f"version = {{{apas.__version__}}}" in apas.citation()


@pytest.mark.parametrize("unknown", ["magic", 3, None])
def test_what_is_unknown_is_refused(unknown):
    with pytest.raises(apas.InputError, match=r"`used` of citation must name methods.*got"):
        apas.citation(unknown)
