"""Networks trained together are those that scikit-learn trains one by one."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import shared_folder
from retraining import accepted_by

from apas.experiments import RECIPES, Recipe, prepare
from apas.paper.networks import fit, fit_together, refitted_networks


def close(network, estimator):
    found = np.concatenate([p.ravel() for p in (*network.weights, *network.biases)])
    wanted = np.concatenate([p.ravel() for p in (*estimator.coefs_, *estimator.intercepts_)])
    return found == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize(
    "recipe", [Recipe(3, 0.05, 8, 3, 0.5, 10), Recipe(5, 0.02, 7, 400, 0.5, 10), Recipe(1, 0.2, 60, 400, 0.5, 10)]
)
def test_one_by_one(recipe):
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(60, 4))
    y = (X @ [1.0, -2.0, 0.5, 0.0] + 0.2 * rng.normal(size=60) > 0).astype(int)
    rows = np.vstack([np.arange(60), rng.integers(0, 60, (4, 60))])
    seeds = [0, 3, 1, 2**31 - 1, 7]
    with np.errstate(all="raise"):
        networks = fit_together(recipe, X, y, rows, seeds=seeds, feature_names=list("abcd"))
    for network, chosen, seed in zip(networks, rows, seeds, strict=True):
        with pytest.warns() if recipe.epochs == 3 else np.errstate():  # scikit-learn says that it stopped too early
            assert close(network, fit(recipe, X[chosen], y[chosen], seed=seed))
    assert networks[0].feature_names == ("a", "b", "c", "d")


def test_published_recipe():
    shared_folder("datasets")
    found = prepare("diabetes")
    X, y = found.d1.X[found.training], found.d1.y[found.training]
    (network,) = fit_together(RECIPES["diabetes"], X, y, np.arange(len(X))[None], seeds=[0])
    assert close(network, found.estimator)


def test_refitted_networks():
    shared_folder("datasets")
    found = prepare("diabetes")
    first, again, other = (refitted_networks(found, 3, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        assert np.array_equal(a.parameters.values, b.parameters.values)
    assert not np.array_equal(first[0].weights[0], other[0].weights[0])
    assert not np.array_equal(first[0].weights[0], first[1].weights[0])
    counts = accepted_by(first, found.d2.X)
    right = [((n.margin(found.d2.X, 1) >= 0) == found.d2.y).mean() for n in first]
    assert min(right) > 0.7
    assert counts.tolist() == np.sum([n.margin(found.d2.X, 1) >= 0 for n in first], axis=0).tolist()
