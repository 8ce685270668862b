"""`Rnce`: the nearest known row that keeps the class while every parameter moves, drawn back towards the input."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from apas._validation import check_flag
from apas.counterfactuals.sources.base import Candidate, Search
from apas.counterfactuals.sources.criteria import Criterion, PublishedSource, draw_back, passing_rows, worst_margins


@dataclass(frozen=True, kw_only=True)
class Rnce(PublishedSource):
    """Known rows that keep the class under every shift of all parameters by at most `delta`, the nearest first.

    The worst case is a closed form for networks with at most one hidden layer, and a lower bound beyond that. With
    `line_search`, the paper's "optimal", a row is drawn back towards the input, in 20 steps, as long as it keeps the
    class. Delta is by default that of the authors' library.

    References
    ----------
    Jiang, Leofante, Rago and Toni (2024), "Interval abstractions for robust counterfactual explanations", Artificial
    Intelligence 336.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> known, source = [[0.5, 0.6], [1.0, 0.5], [2.0, 2.0]], Rnce(delta=0.1, line_search=False)
    >>> apas.generate(net, [[0.2, 0.3]], 0, space=space, background=known, source=source).numbers.tolist()
    [[1.0, 0.5]]
    """

    delta: float = 0.005
    line_search: bool = True
    knob: ClassVar[tuple[str, tuple[float, ...]]] = ("delta", (0.005, 0.02, 0.1))
    dense: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag(self.line_search, "line_search")

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """Robust known rows, each drawn back."""
        test = robust_in_box(search, self.delta)
        for row in passing_rows(search, test):
            yield Candidate(draw_back(search, test, row) if self.line_search else row)


def robust_in_box(search: Search, delta: float) -> Criterion:
    """The least margin while every parameter moves by at most `delta`."""
    task = search.task
    return Criterion(lambda points: worst_margins(task, task.encoded(points), search.target, delta))
