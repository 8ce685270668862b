"""The paper's experiments by name: what `apas paper` offers, and in which order `apas paper all` runs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from apas.datasets.registry import DATASETS, dataset_path

if TYPE_CHECKING:
    from apas.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "Entry", "available", "datasets_of"]


@dataclass(frozen=True)
class Entry:
    """An experiment, the module `apas.experiments.NAME`.

    Attributes
    ----------
    name : str
    title : str
        What it is of the paper, in one line.
    seeds : str
        Where its random numbers come from, in words; empty where the settings of its units say so.
    """

    name: str
    title: str
    seeds: str = ""

    def load(self) -> Experiment:
        """Import the module."""
        module: Any = import_module(f"apas.experiments.{self.name}")
        return module  # type: ignore[no-any-return]

    @property
    def exists(self) -> bool:
        """Whether there is such a module; nothing is imported to find out."""
        return files("apas").joinpath("experiments", f"{self.name}.py").is_file()


#: In the order in which they are run. A new experiment is a module and a line here.
EXPERIMENTS: Final = (
    Entry("drawings", "Figures 1, 2 and 3 and the network of the appendix, drawn from what computes with them", "0"),
    Entry(
        "toy",
        "Section 7.1: the largest shift of a network with four weights, and Algorithm 3 level by level",
        "0, 1, ... as often as its draws are repeated; the paper's own draws have its seed, 1",
    ),
    Entry(
        "figure4",
        "Figure 4 and Section 7.2: how far the model may shift, in the worst case and for most shifts",
        "0, 1, ... as often as its draws are repeated; the paper's own draws, splits and networks have its seeds",
    ),
    Entry(
        "table1",
        "Table 1: counterfactuals of all methods, as published and corrected",
        "those of its settings; as published, the parts, networks and inputs have the paper's",
    ),
    Entry(
        "table2",
        "Table 2: how far plausible shifts move the expected output, which naturally occurring ones leave alone",
        "0 for splits and networks; a digest of dataset, draws, delta and number for each explanation's draws",
    ),
    Entry("lemma", "Lemma 3: plausible shifts that are not natural, and natural ones that are not plausible", "0"),
    Entry("hardness", "Theorem 1: formulas as networks, decided and compared with trying all assignments", "0"),
)


def available() -> tuple[Entry, ...]:
    """The experiments that this version has.

    Examples
    --------
    >>> [entry.name for entry in available() if entry.name.startswith("table2")]
    ['table2']
    """
    return tuple(entry for entry in EXPERIMENTS if entry.exists)


def datasets_of(entries: Iterable[Entry], *, quick: bool = False) -> tuple[str, ...]:
    """Names of the datasets that experiments read, after checking that their files are there.

    Raises
    ------
    InputError
        If a file is not there: before hours of work and not after them.

    Examples
    --------
    >>> datasets_of(entry for entry in EXPERIMENTS if entry.name in ("toy", "lemma"))
    ()
    """
    read = {name for entry in entries for unit in entry.load().units({"quick": quick}) for name in unit.data}
    names = tuple(name for name in DATASETS if name in read)
    for name in names:
        dataset_path(name)
    return names
