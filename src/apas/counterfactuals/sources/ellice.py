"""`Ellice`: rows that every model of an ellipsoid of nearly optimal last layers puts into the class."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apas._typing import Floats
from apas.counterfactuals.sources.base import Candidate, Search, Task
from apas.counterfactuals.sources.criteria import Criterion, PublishedSource, cheapest_passing
from apas.models.base import Dense
from apas.shifts.fit_problem import last_layer_rows, slope


@dataclass(frozen=True, kw_only=True)
class Ellice(PublishedSource):
    """The cheapest row whose margin stays at least 0 while the last layer loses at most `epsilon` of mean log loss.

    Near its minimum the loss is a quadratic form of the last layer, with the Hessian H of the background rows, to the
    diagonal of which `ridge` is added. So the models that lose at most epsilon are an ellipsoid, and the least margin
    among them is in closed form: the margin minus ``sqrt(2 epsilon h' H^-1 h)``, where h is what enters the last layer,
    with a 1 for its bias. The background must be the rows that the model was fitted to.

    References
    ----------
    Turbal, Voitsitska and Semenova (2025), "ElliCE: efficient and provably robust algorithmic recourse via the Rashomon
    sets", NeurIPS.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[4.0], [4.0]]], [[-4.0]], feature_names=("income", "savings"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> known = [[0.1, 0.4], [0.9, 0.2], [0.6, 0.5], [1.5, 1.0], [0.2, 1.2], [0.0, 0.1]]
    >>> found = apas.generate(net, [[0.2, 0.3]], 0, space=space, background=known, source=Ellice())
    >>> bool(found.numbers.sum() > 1)
    True
    """

    epsilon: float = 0.01
    ridge: float = 1e-3
    knob: ClassVar[tuple[str, tuple[float, ...]]] = ("epsilon", (0.003, 0.01, 0.03))
    dense: ClassVar[bool] = True

    def unsupported(self, task: Task) -> str | None:
        """None if there are known rows and a dense network with one output, else the error a user reads."""
        wrong = super().unsupported(task)
        if wrong is None and isinstance(task.model, Dense) and task.model.as_feedforward().weights[-1].shape[1] != 1:
            return "Ellice needs a network with one output, got one per class; use another source."
        return wrong

    def candidates(self, search: Search) -> Iterator[Candidate]:
        """The cheapest row that was found."""
        task = search.task
        net, root = task.once(("ellice", self), lambda: _ellipsoid(task, self.ridge))

        def least_margins(points: Floats) -> Floats:
            columns = task.encoded(points)
            lost = np.linalg.norm(np.linalg.solve(root, last_layer_rows(net, columns).T), axis=0)
            return np.asarray(task.model.margin(columns, search.target) - np.sqrt(2 * self.epsilon) * lost)

        own = cheapest_passing(search, Criterion(least_margins))
        if own is not None:
            yield Candidate(own)


def _ellipsoid(task: Task, ridge: float) -> tuple[Any, Floats]:
    """The network, and the Cholesky factor of the Hessian of its mean loss by the last layer."""
    net: Any = task.model.as_feedforward()  # type: ignore[attr-defined]
    assert task.background is not None
    rows = last_layer_rows(net, task.encoded(task.background))
    scores = rows @ np.append(net.weights[-1][:, 0], net.biases[-1][0])
    hessian = (rows.T * slope(scores)) @ rows / len(rows) + ridge * np.eye(rows.shape[1])
    return net, np.asarray(np.linalg.cholesky(hessian), dtype=np.float64)
