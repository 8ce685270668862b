"""Networks with two hidden layers, and explanations that change what they say."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import shared_folder
from paper_tables import appendix_data

from apas import FeedForward, InputError
from apas.datasets import DATASETS, data_from
from apas.experiments import read_tables
from apas.paper.table2 import EPOCHS, explained, nearest_other, network, read_rows, scaled


def test_scaled_over_all_rows():
    X = np.random.default_rng(0).normal(size=(30, 4)) * 100
    X[:, 2] = 7.0
    found = scaled(X)
    assert found.min(axis=0).tolist() == [0, 0, 0, 0]
    assert found.max(axis=0).tolist() == [1, 1, 0, 1]


def test_training_is_plain_gradient_descent():
    """A pass over a single batch is a step against the gradient, with the rate of the paper."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(size=(20, 3)), np.arange(20) % 2
    before, after = network(X, y, epochs=1), network(X, y, epochs=2)
    weights, biases = [w.copy() for w in before.weights], [b.copy() for b in before.biases]
    a = [X]
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        a.append(np.maximum(a[-1] @ w + b, 0))
    p = 1 / (1 + np.exp(-(a[-1] @ weights[-1] + biases[-1])))
    back = (p - y[:, None]) / len(X)
    for layer in (2, 1, 0):
        step_w, step_b = a[layer].T @ back, back.sum(axis=0)
        np.testing.assert_allclose(after.weights[layer], weights[layer] - 0.01 * step_w, atol=1e-12)
        np.testing.assert_allclose(after.biases[layer], biases[layer] - 0.01 * step_b, atol=1e-12)
        back = (back @ weights[layer].T) * (a[layer] > 0)


def test_nearest_by_brute_force():
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(200, 5))
    net = FeedForward([rng.normal(size=(5, 1))], [[0.1]])
    found = nearest_other(net, X, 20)
    classes = [bool(net.margin(row[None], 1)[0] >= 0) for row in X]
    for i in range(20):
        best = min((j for j in range(200) if classes[j] != classes[i]), key=lambda j: np.linalg.norm(X[j] - X[i]))
        np.testing.assert_array_equal(found[i], X[best])


@pytest.mark.parametrize("bias", [9.0, -9.0])
def test_one_class_has_no_explanations(bias):
    with pytest.raises(InputError, match="both classes"):
        nearest_other(FeedForward([[[1.0]]], [[bias]]), np.array([[0.0], [1.0]]))


def check(found):
    ones, others = (found.network.margin(rows, 1) >= 0 for rows in (found.tests[:10], found.points))
    assert len(ones) == 10
    assert (ones != others).all(), "every explanation changes the prediction"
    assert [w.shape[1] for w in found.network.weights] == [20, 10, 1]
    assert found.network.activations == ("relu", "relu")


def test_generated_tables(tmp_path):
    with data_from(appendix_data(tmp_path)):
        for dataset in ("spam", "news"):
            found = explained(dataset)
            check(found)
            assert explained(dataset) is found
            assert found.facts["rows"] == 400
        first = explained("spam")
    with data_from(appendix_data(tmp_path / "other", seed=1)):
        assert explained("spam") is not first


@pytest.mark.parametrize(("dataset", "accuracy"), [("credit", 0.78), ("spam", 0.617), ("news", 0.637)])
def test_real_tables(dataset, accuracy):
    with data_from(shared_folder("datasets")):
        found = explained(dataset)
    check(found)
    assert EPOCHS[dataset] == (100 if dataset == "credit" else 10)
    assert found.facts["accuracy"] == pytest.approx(accuracy, abs=0.02)
    assert found.facts["accuracy"] > found.facts["majority"]
    assert 0 <= found.points.min() < found.points.max() <= 1


@pytest.mark.parametrize("dataset", ["credit", "spam", "news"])
def test_another_file_in_the_place_of_a_dataset(tmp_path, dataset):
    place = tmp_path / DATASETS[dataset]
    place.parent.mkdir()
    place.write_bytes(b"a,b\n1,2\n")
    with data_from(tmp_path), pytest.raises(InputError, match=f"the files of the dataset '{dataset}' must be those of"):
        explained(dataset)


def test_credit_is_coded_as_in_section_7():
    with data_from(shared_folder("datasets")):
        X, y = read_rows("credit")
        part = read_tables("credit").d1
    np.testing.assert_array_equal(X, part.X)
    np.testing.assert_array_equal(y, part.y)
