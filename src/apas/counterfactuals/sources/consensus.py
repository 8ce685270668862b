"""`Consensus`: the cheapest row that every one of some models accepts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from apas.counterfactuals.sources.base import Candidate, Search, Task
from apas.counterfactuals.sources.criteria import RefitMargins, cheapest_accepted
from apas.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Consensus:
    """The cheapest row of the class on all models at once: what an ensemble agrees on.

    With no models but the explained one it is the nearest row. Models without derivatives, such as trees, are searched
    on a grid, as by `RobustOptimum`. That all accept a row which was searched on them shows nothing about others.

    Examples
    --------
    >>> import apas
    >>> nets = [apas.FeedForward([[[1.0], [1.0]]], [[b]], feature_names=("a", "b")) for b in (-1.0, -1.5)]
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in ("a", "b")])
    >>> found = apas.generate(nets[0], [[0.2, 0.3]], 0, space=space, source=Consensus(refits=nets))
    >>> bool(found.numbers.sum().round(2) == 1.5)
    True
    """

    refits: Sequence[Any]
    ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not len(self.refits):
            raise InputError("`refits` of Consensus must hold models, got none; pass what `retrain` made.")

    def unsupported(self, task: Task) -> str | None:
        """None: any model and any space will do."""
        return None

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The cheapest row that was found."""
        margins = search.task.once("consensus", lambda: RefitMargins(search.task, self.refits))
        found = cheapest_accepted(search, margins)
        if found is not None:
            yield Candidate(found)
