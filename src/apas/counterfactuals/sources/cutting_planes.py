"""`CuttingPlanes`: the cheapest row whose bound is above 0, where the bound is concave in the row."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from apas.counterfactuals.sources.base import Candidate, Search, Task, check_settings
from apas.counterfactuals.sources.milp.program import Contrast, network_of
from apas.counterfactuals.sources.milp.source import MilpSource, Nearest
from apas.counterfactuals.space.encoder import pieces_of
from apas.errors import Unsupported
from apas.models.base import class_indices
from apas.models.feedforward import FeedForward


@dataclass(frozen=True, kw_only=True)
class CuttingPlanes:
    """Cheapest rows that satisfy all cuts so far: linear scores that a certified row must have above 0.

    For methods with a concave bound, `RefitBounds`. The first cut is the model itself; each row that is not certified
    adds one, so that no candidate costs less than those before it, and the first that is certified is returned: up to
    the solver's tolerances the cheapest one that the ball of the bound allows.

    Parameters
    ----------
    time_limit : float, default 10.0
        Seconds per program.
    slack : float, default 1e-6
        How far above 0 the cuts are asked to be; it grows with the number of cuts, so that the search ends.

    Examples
    --------
    >>> import apas
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = (X[:, 0] + np.random.default_rng(1).normal(size=300) > 0).astype(int)
    >>> model = apas.FeedForward([[[2.0], [0.0]]], [[0.0]])
    >>> told = {"shifts": apas.DataChange("removed", X, y), "method": "refit", "source": CuttingPlanes()}
    >>> apas.generate(model, [[-1.0, 0.0]], 3, background=X, **told).status.tolist()[0].name
    'FOUND'
    """

    time_limit: float = 10.0
    slack: float = 1e-6
    ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self, time_limit={"above": 0.0}, slack={"above": 0.0})

    def unsupported(self, task: Task) -> str | None:
        """None if the model, its preprocessing and the space can be written as a program, else why not."""
        return MilpSource().unsupported(task)

    def candidates(self, search: Search) -> Generator[Candidate, float | None, str | None]:
        """Rows that satisfy more and more cuts."""
        task = search.task
        net, parts = task.once("milp/network", lambda: network_of(task))
        cut_at = getattr(search.test, "cut", None)
        wanted = int(class_indices(net.classes, search.target, 1)[0])
        if cut_at is None or net.weights[-1].shape[1] != 1:
            raise Unsupported("CuttingPlanes needs a method with a concave bound; use method=apas.RefitBounds().")
        sign = 1.0 if wanted == 1 else -1.0
        own = np.append(sign * net.weights[-1][:, 0], sign * float(net.biases[-1][0] - net.offset))
        cuts = [own, own]  # twice, since a network has one score or more than two classes
        while True:
            last = np.column_stack([own, *cuts])
            layers = [*net.weights[:-1], last[:-1]], [*net.biases[:-1], last[-1]]
            scores = FeedForward(*layers, activation=list(net.activations), output="softmax")
            if not net.activations:  # the cuts are what enters the first layer
                pieces = pieces_of(task)
                parts = [None if piece is None else piece.through(last[:-1]) for piece in pieces.parts]
            # the program's own tolerance is about 1e-7 of the scores: asking for more with each cut ends the search
            margin = self.slack * (1 + len(cuts) / 4) * float(np.abs(last).sum(axis=0).max() + 1)
            each = Contrast(np.eye(len(scores.classes)), np.zeros(len(scores.classes)))  # each score by itself
            found = Nearest(search, (scores, parts), self.time_limit, cuts=each).at(margin)
            if found is None:
                return "no allowed row was found that satisfies the cuts, as one that is certified must"
            yield Candidate(found.point)
            cut = cut_at(found.point)
            if cut is None:
                raise Unsupported("CuttingPlanes needs a method with a concave bound; use method=apas.RefitBounds().")
            cuts.append(cut)
