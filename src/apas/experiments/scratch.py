"""Networks trained from scratch on bootstrap samples of all the data, and how explanations fare on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apas.experiments.networks import RECIPES, Preparation
from apas.experiments.together import fit_together
from apas.models.feedforward import FeedForward

__all__ = ["accepted_by", "trained_anew"]

#: Networks that are trained together.
TOGETHER = 100


def trained_anew(preparation: Preparation, count: int, *, seed: int) -> list[FeedForward]:
    """Networks of the dataset's recipe, each on as many rows as D1 and D2 have together, drawn from both.

    Parameters
    ----------
    preparation : Preparation
    count : int
    seed : int
        Of the rows and of the networks' own seeds; other seeds give networks that have nothing in common.
    """
    X = np.vstack([preparation.d1.X, preparation.d2.X])
    y = np.concatenate([preparation.d1.y, preparation.d2.y]).astype(np.int64)
    rng = np.random.default_rng([seed, len(X)])
    networks: list[FeedForward] = []
    while (size := min(TOGETHER, count - len(networks))) > 0:
        rows, seeds = rng.integers(0, len(X), (size, len(X))), rng.integers(0, 2**31, size).tolist()
        names = preparation.tables.inputs
        networks += fit_together(RECIPES[preparation.name], X, y, rows, seeds=seeds, feature_names=names)
    return networks


def accepted_by(networks: Sequence[FeedForward], points: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many networks put each point into class 1; points as the networks see them.

    Examples
    --------
    >>> networks = [FeedForward([[[1.0]]], [[bias]]) for bias in (-0.5, 0.0, 0.5)]
    >>> accepted_by(networks, np.array([[0.2], [0.7]])).tolist()
    [2, 3]
    """
    counts = np.zeros(len(points), dtype=np.int64)
    for network in networks:
        counts += network.margin(points, 1) >= 0
    return counts
