"""The flat parameter vector: content, names, and that nobody can change it by accident."""

import numpy as np
import pytest

import apas
from apas.models.base import Parameters

SHAPES = {
    "one tensor": [(3,)],
    "a layer": [(2, 3), (3,)],
    "three layers": [(4, 3), (3,), (3, 2), (2,), (2, 1), (1,)],
    "a convolution": [(2, 3, 3, 1), (2,)],
    "an empty tensor between": [(2, 2), (0,), (2,)],
}


def make(shapes, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape) for shape in shapes]
    kinds = ["weight" if len(shape) > 1 else "bias" for shape in shapes]
    layers = [f"l{i // 2}" for i in range(len(shapes))]
    names = [f"t{i}" for i in range(len(shapes))]
    return arrays, Parameters.from_arrays(arrays, names=names, kinds=kinds, layers=layers)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_tensors_come_back_in_order(shapes):
    arrays, parameters = make(shapes)
    assert len(parameters) == sum(a.size for a in arrays) == parameters.values.size
    assert parameters.values.tolist() == [v for a in arrays for v in a.ravel().tolist()]
    assert parameters.shapes == tuple(shapes)
    for i, array in enumerate(arrays):
        assert np.array_equal(parameters.tensor(i), array)
        assert np.array_equal(parameters.values[parameters.slices[i]], array.ravel())
    assert [s.start for s in parameters.slices[1:]] == [s.stop for s in parameters.slices[:-1]]


def test_layer_names_are_distinct_and_in_order():
    _, parameters = make(SHAPES["three layers"])
    assert parameters.layer_names == ("l0", "l1", "l2")
    assert parameters.layers == ("l0", "l0", "l1", "l1", "l2", "l2")
    assert parameters.kinds == ("weight", "bias") * 3


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_of_the_source_does_not_matter(order):
    array = np.array([[1.0, 2.0], [3.0, 4.0]], order=order)
    parameters = Parameters.from_arrays([array], names=["w"], kinds=["weight"], layers=["l"])
    assert parameters.values.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_values_are_read_only_float64():
    _, parameters = make(SHAPES["a layer"])
    assert parameters.values.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        parameters.values[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        parameters.tensor(0)[0, 0] = 1.0
    with pytest.raises(AttributeError):
        parameters.values = np.zeros(3)


@pytest.mark.parametrize("shapes", [SHAPES["one tensor"], SHAPES["a layer"]])
def test_sources_are_neither_aliased_nor_frozen(shapes):
    arrays, parameters = make(shapes)
    before = parameters.values.copy()
    for array in arrays:
        assert not np.shares_memory(array, parameters.values)
        array += 1.0
    assert np.array_equal(parameters.values, before)


def test_integers_and_lists_are_taken():
    parameters = Parameters.from_arrays([[[1, 2]], [3, 4]], names="ab", kinds=["weight", "bias"], layers="ll")
    assert parameters.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert parameters.shapes == ((1, 2), (2,))


def test_no_tensors_give_an_empty_vector():
    parameters = Parameters.from_arrays([], names=[], kinds=[], layers=[])
    assert len(parameters) == 0
    assert parameters.layer_names == ()


BAD = [
    (
        {"arrays": [[1.0]], "names": ["a", "b"], "kinds": ["bias"], "layers": ["l"]},
        "`names`.*same length.*1, 2, 1 and 1",
    ),
    ({"arrays": [[1.0]], "names": ["a"], "kinds": [], "layers": ["l"]}, "`kinds`.*same length.*1, 1, 0 and 1"),
    ({"arrays": [[1.0]], "names": ["a"], "kinds": ["gain"], "layers": ["l"]}, "`kinds` must hold.*got 'gain'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input(arguments, message):
    with pytest.raises(apas.InputError, match=message):
        Parameters.from_arrays(arguments.pop("arrays"), **arguments)


def test_split_gives_views_of_a_vector_and_of_a_stack_in_either_memory_order():
    arrays = [np.arange(6.0).reshape(2, 3), np.array(7.0), np.arange(3.0)]
    parameters = Parameters.from_arrays(
        arrays, names=["a", "b", "c"], kinds=["weight", "bias", "bias"], layers=["l"] * 3
    )
    for mine, given in zip(parameters.split(parameters.values), arrays, strict=True):
        assert np.array_equal(mine, given)
    for order in ("C", "F"):
        stack = np.array(np.random.default_rng(0).normal(size=(4, 10)), order=order)
        parts = parameters.split(stack)
        assert [p.shape for p in parts] == [(4, 2, 3), (4,), (4, 3)]
        assert all(np.shares_memory(p, stack) for p in parts)
        for i, row in enumerate(stack):
            assert all(np.array_equal(p[i], q) for p, q in zip(parts, parameters.split(row), strict=True))
