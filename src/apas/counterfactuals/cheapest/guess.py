"""What a margin is likely to cost, before any program is solved."""

from __future__ import annotations

import numpy as np

from apas.counterfactuals.cheapest.effect import DUST, Effect

__all__ = ["Guess"]

#: How much of each column is tried by itself.
PARTS = (0.25, 0.5, 1.0)
#: Guesses are this much larger than they would be if margins were linear.
SPARE = 1.25


class Guess:
    """Costs of margins, from single changes and from what was found for other margins.

    Parameters
    ----------
    effect : Effect
    """

    def __init__(self, effect: Effect) -> None:
        moves = effect.moves
        #: Margins and what they cost.
        self.known: list[tuple[float, float]] = []
        self.full = float((moves.cost * moves.top).sum())
        column = np.tile(np.arange(len(moves)), len(PARTS))
        part = np.outer(PARTS, moves.top)
        amounts = np.zeros((len(column), len(moves)))
        row, parent = np.arange(len(column)), moves.parent[column]
        amounts[row[parent >= 0], parent[parent >= 0]] = 1.0
        amounts[row, column] = np.where(moves.integer, np.ceil(part), part).reshape(-1)
        cost, margin = amounts @ moves.cost, effect.margins(amounts)[0]
        self.start = effect.margin(np.zeros(len(moves)))[0]
        self.single = (cost, margin) if effect.distance == "l1" else (np.empty(0), np.empty(0))
        worth = np.divide(margin - self.start, cost, out=np.zeros_like(cost), where=cost > 0)
        best = np.zeros(int(moves.feature.max(initial=-1)) + 1)
        np.maximum.at(best, moves.feature[column], worth)
        #: What a unit of cost adds to the margin at most, by such changes: of one feature, or of all at once.
        self.worth = float(best.max(initial=0.0) if effect.distance == "l1" else best.sum())

    def cost(self, margin: float) -> float:
        """A cost that is likely to do for a margin."""
        needed = margin - self.start
        enough = [cost for known, cost in self.known if known >= margin]
        enough += self.single[0][self.single[1] >= margin].tolist()
        below = max(((m, c) for m, c in self.known if self.start < m < margin), default=None)
        if below is not None:
            likely = SPARE * below[1] * needed / (below[0] - self.start)
        else:
            likely = SPARE * needed / self.worth if self.worth > 0 else self.full / 4
        return float(min([max(likely, 0.0), *((1 + DUST) * c for c in enough)])) + DUST
