"""Evidence does not depend on block sizes, other rows, their order, or the number of workers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas import FeedForward, LinfShifts, Sampling
from apas.certification import failing_draws as scan
from apas.models import forward as passes

METHOD = Sampling(coverage=0.95, n_samples=3000)
ANYTIME = Sampling(coverage=0.95, n_samples=3000, test="anytime")


def network(sizes, seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in zip(sizes, sizes[1:], strict=False)]
    return FeedForward(
        weights, [0.1 * rng.normal(size=b) for b in sizes[1:]], output="softmax" if sizes[-1] > 1 else "sigmoid"
    )


def question(sizes, rows=23):
    net = network(sizes)
    X = np.random.default_rng(1).normal(size=(rows, sizes[0]))
    deltas = np.where(np.arange(rows) % 2, 0.05, 0.2)
    return net, X, deltas


def evidence(net, X, deltas, method=METHOD, **options):
    return [c.evidence for c in apas.certify(net, X, deltas, target="predicted", method=method, rng=9, **options)]


SIZES = [(3, 5, 1), (4, 6, 5, 3), (30, 40, 2)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("numbers", "draws", "block", "rows"), [(1, 1, 1, 1), (700, 64, 100, 3), (1 << 14, 7 * 64, 1 << 12, 10), (1 << 22, 4096, 1 << 20, 10_000)])  # fmt: skip
def test_block_sizes(monkeypatch, sizes, numbers, draws, block, rows):
    one_by_one = draws == rows == 1  # a pass for each draw and row, so there are fewer of both
    net, X, deltas = question(sizes, 13 if one_by_one else 23)
    methods = [Sampling(coverage=0.95, n_samples=700)] if one_by_one else [METHOD]
    methods.append(Sampling(coverage=0.95, n_samples=methods[0].n_samples, test="anytime"))
    expected = [evidence(net, X, deltas, method) for method in methods]
    assert len({e.failures for e in expected[0]}) > 3  # the rows differ, so that a mix-up would show
    monkeypatch.setattr(scan, "NUMBERS", numbers)
    monkeypatch.setattr(scan, "DRAWS", draws)
    monkeypatch.setattr(scan, "DRAWS_MANY_ROWS", draws)
    monkeypatch.setattr(scan, "ROWS", rows)
    monkeypatch.setattr(scan, "FIRST", draws)
    monkeypatch.setattr(passes, "BLOCK", block)
    assert [evidence(net, X, deltas, method) for method in methods] == expected


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("method", [METHOD, ANYTIME])
def test_order_and_subset_of_rows(sizes, method):
    net, X, deltas = question(sizes)
    expected = evidence(net, X, deltas, method)
    order = np.random.default_rng(2).permutation(len(X))
    assert evidence(net, X[order], deltas[order], method) == [expected[i] for i in order]
    for some in ([0], [5, 3], list(range(1, 20))):
        assert evidence(net, X[some], deltas[some], method) == [expected[i] for i in some]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("n_jobs", [2, 3, -1])
def test_number_of_workers(sizes, n_jobs):
    net, X, deltas = question(sizes)
    for method in (METHOD, ANYTIME):
        assert evidence(net, X, deltas, method, n_jobs=n_jobs) == evidence(net, X, deltas, method)


def test_rows_on_the_boundary_do_not_flip():
    """Rows whose margin is 0 up to rounding: their last bit differs between batch shapes, their evidence must not."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=9)
    X = rng.normal(size=(400, 9))
    X[:, -1] = -(X[:, :-1] @ w[:-1]) / w[-1]
    net = FeedForward([w[:, None]], [[0.0]])
    for method in (METHOD, ANYTIME):
        together = apas.certify(net, X, 0.1, target=1, method=method, rng=0)
        alone = [apas.certify(net, x[None, :], 0.1, target=1, method=method, rng=0)[0] for x in X]
        assert [(c.verdict, c.evidence) for c in together] == [(c.verdict, c.evidence) for c in alone]


def test_pipelines_and_frames():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.normal(size=(80, 3)), columns=["a", "b", "c"])
    y = (table["a"] + table["b"] ** 2 > 0.5).astype(int)
    model = make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=2000, random_state=0, tol=1e-3)).fit(table, y)
    whole = apas.certify(model, table, 0.1, target="predicted", method=METHOD, rng=1)
    swapped = apas.certify(model, table[["c", "a", "b"]], 0.1, target="predicted", method=METHOD, rng=1)
    assert list(whole) == list(swapped)
    part = apas.certify(model, table.iloc[[7, 2]], 0.1, target="predicted", method=METHOD, rng=1)
    assert [c.evidence for c in part] == [whole[7].evidence, whole[2].evidence]
    assert part.to_frame().index.tolist() == [7, 2]


def test_same_seed_same_certificates_and_none_draws_new_ones():
    net, X, deltas = question((3, 5, 1))
    calls = [apas.certify(net, X, deltas, target="predicted", method=METHOD, rng=r) for r in (3, 3, 4, None, None)]
    assert calls[0] == calls[1]
    assert calls[0] != calls[2]
    assert calls[3][0].evidence.entropy != calls[4][0].evidence.entropy
    generator = np.random.default_rng(0)
    drawn = [apas.certify(net, X, deltas, target="predicted", method=METHOD, rng=generator) for _ in range(2)]
    assert drawn[0][0].evidence.entropy != drawn[1][0].evidence.entropy
    again = apas.certify(net, X, deltas, target="predicted", method=METHOD, rng=drawn[0][0].evidence.entropy)
    assert again == drawn[0]


def test_shift_options_do_not_disturb_memory_layouts():
    """Choosing layers, kinds and scales goes through other code than the plain box; the counts must follow."""
    net, X, _ = question((3, 5, 1))
    ones = [np.ones(shape) for shape in net.parameters.shapes]
    plain = evidence(net, X, 0.2)
    for shifts in (LinfShifts(scale=ones), LinfShifts(layers=[0, 1]), LinfShifts(scale={0: 1.0})):
        assert evidence(net, X, 0.2, shifts=shifts) == plain
    doubled = evidence(net, X, 0.1, shifts=LinfShifts(scale=2.0 * np.ones(len(net.parameters))))
    assert doubled == plain
