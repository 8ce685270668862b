"""Dense networks against forward passes written down a second time, in plain Python."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

import apas

PLAIN = {
    "relu": lambda z: z if z > 0 else 0.0,
    "leaky_relu": lambda z: z if z > 0 else 0.01 * z,
    "hard_tanh": lambda z: min(max(z, -1.0), 1.0),
    "tanh": math.tanh,
    "sigmoid": lambda z: float(special.expit(z)),
    "identity": lambda z: z,
    "softplus": lambda z: max(z, 0.0) + math.log1p(math.exp(-abs(z))),
    "elu": lambda z: z if z > 0 else math.expm1(z),
    "gelu": lambda z: z * float(special.ndtr(z)),
}
SIZES = {0: [4], 1: [4, 6], 2: [4, 5, 3], 3: [3, 4, 5, 2], 4: [2, 3, 4, 3, 5]}  # by number of hidden layers


def weights_of(sizes, rng, spread=1.0):
    pairs = list(zip(sizes, sizes[1:], strict=False))
    return [spread * rng.normal(size=pair) for pair in pairs], [spread * rng.normal(size=o) for _, o in pairs]


def plain_scores(weights, biases, activations, x):
    a = [float(v) for v in x]
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        z = [math.fsum([*(a[p] * float(w[p][q]) for p in range(len(a))), float(b[q])]) for q in range(len(b))]
        a = [PLAIN[activations[i]](v) for v in z] if i < len(activations) else z
    return a


def plain_margin(scores, wanted, output, threshold):
    """Section 1 of the mathematics: logit(p) - logit(tau), score - tau, or the wanted score minus the best other."""
    if output == "identity":
        margin = scores[0] - threshold
    elif len(scores) <= 2:
        margin = (scores[0] if len(scores) == 1 else scores[1] - scores[0]) - float(special.logit(threshold))
    else:
        return scores[wanted] - max(s for i, s in enumerate(scores) if i != wanted)
    return margin if wanted == 1 else -margin


OUTPUTS = [
    # output, number of outputs, threshold
    ("sigmoid", 1, 0.5),
    ("sigmoid", 1, 0.2),
    ("sigmoid", 1, 1 - 1e-6),
    ("softmax", 2, 0.5),
    ("softmax", 2, 0.9),
    ("softmax", 3, 0.5),
    ("softmax", 7, 0.5),
    ("identity", 1, 0.0),
    ("identity", 1, -3.25),
    ("identity", 1, 0.5),
]


@pytest.mark.parametrize(("output", "outputs", "threshold"), OUTPUTS)
@pytest.mark.parametrize("hidden", SIZES)
@pytest.mark.parametrize("activation", PLAIN)
def test_margins(activation, hidden, output, outputs, threshold):
    rng = np.random.default_rng([hidden, outputs])
    weights, biases = weights_of([*SIZES[hidden], outputs], rng)
    net = apas.FeedForward(weights, biases, activation=activation, output=output, threshold=threshold)
    X = 2 * rng.normal(size=(4, SIZES[hidden][0]))
    for x in X:
        scores = plain_scores(weights, biases, [activation] * hidden, x)
        size = 1 + max(map(abs, scores))
        for wanted, label in enumerate(net.classes):
            expected = plain_margin(scores, wanted, output, threshold)
            assert net.margin(x[None, :], label)[0] == pytest.approx(expected, rel=1e-12, abs=1e-13 * size)
    each = net.margin(X, [net.classes[i % len(net.classes)] for i in range(4)])
    for i, x in enumerate(X):
        assert each[i] == pytest.approx(
            net.margin(x[None, :], net.classes[i % len(net.classes)])[0], rel=1e-12, abs=1e-13
        )


def test_one_activation_per_hidden_layer():
    rng = np.random.default_rng(1)
    names = ["tanh", "relu", "softplus", "gelu"]
    weights, biases = weights_of([3, 4, 2, 5, 3, 1], rng)
    net = apas.FeedForward(weights, biases, activation=names)
    assert net.activations == tuple(names)
    x = rng.normal(size=3)
    assert net.margin(x[None, :], 1)[0] == pytest.approx(plain_scores(weights, biases, names, x)[0], rel=1e-12)
    turned = apas.FeedForward(weights, biases, activation=names[::-1])
    assert turned.margin(x[None, :], 1)[0] != pytest.approx(net.margin(x[None, :], 1)[0], rel=1e-3)


def exact_scores(weights, biases, x):
    a = [Fraction(float(v)) for v in x]
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        a = [
            sum((a[p] * Fraction(float(w[p][q])) for p in range(len(a))), Fraction(float(b[q]))) for q in range(len(b))
        ]
        if i < len(weights) - 1:
            a = [max(v, Fraction(0)) for v in a]
    return a


@pytest.mark.parametrize("hidden", SIZES)
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_relu_networks_of_quarters_are_exact(hidden, outputs):
    # small multiples of 1/4 leave no rounding, and make dead units, zeros and ties common
    rng = np.random.default_rng([7, hidden, outputs])
    signs = set()
    for _ in range(150):
        pairs = list(zip([*SIZES[hidden], outputs], [*SIZES[hidden][1:], outputs], strict=False))[: hidden + 1]
        weights = [rng.integers(-3, 4, size=pair) / 4 for pair in pairs]
        biases = [rng.integers(-2, 3, size=o) / 4 for _, o in pairs]
        output = "sigmoid" if outputs == 1 else "softmax"
        net = apas.FeedForward(weights, biases, output=output)
        x = rng.integers(-4, 5, size=SIZES[hidden][0]) / 2
        scores = exact_scores(weights, biases, x)
        scores = [-scores[0], Fraction(0)] if outputs == 1 else scores
        for wanted, label in enumerate(net.classes):
            expected = scores[wanted] - max(s for i, s in enumerate(scores) if i != wanted)
            margin = net.margin(x[None, :], label)[0]
            assert Fraction(float(margin)) == expected
            signs.add((expected > 0) - (expected < 0))
    assert signs == {-1, 0, 1}


@pytest.mark.parametrize("hidden", [1, 2, 4])
def test_relu_networks_of_any_floats_have_the_exact_sign(hidden):
    rng = np.random.default_rng([8, hidden])
    for _ in range(60):
        weights, biases = weights_of([*SIZES[hidden], 1], rng)
        x = rng.normal(size=SIZES[hidden][0])
        exact = exact_scores(weights, biases, x)[0]
        margin = apas.FeedForward(weights, biases).margin(x[None, :], 1)[0]
        assert abs(exact) > Fraction(1, 10**9)  # else the test would say nothing
        assert (margin > 0) == (exact > 0)


def probability_says_one(scores, output, threshold):
    if output == "identity":
        return scores[0] >= threshold
    p = special.expit(scores[0]) if len(scores) == 1 else special.softmax(scores)[1]
    return p >= threshold


@pytest.mark.parametrize(("output", "outputs"), [("sigmoid", 1), ("softmax", 2), ("identity", 1)])
@pytest.mark.parametrize("threshold", [0.05, 0.5, 0.73])
def test_predicted_classes_are_probabilities_against_the_threshold(output, outputs, threshold):
    rng = np.random.default_rng(4)
    weights, biases = weights_of([3, 8, outputs], rng, 1.5)
    net = apas.FeedForward(weights, biases, output=output, threshold=threshold, classes=["deny", "grant"])
    X = rng.normal(size=(200, 3))
    expected = [
        "grant" if probability_says_one(plain_scores(weights, biases, ["relu"], x), output, threshold) else "deny"
        for x in X
    ]
    assert set(expected) == {"deny", "grant"}
    certificates = apas.certify(
        net, X, 1e-9, target="predicted", method=apas.Sampling(coverage=0.5, confidence=0.5), rng=0
    )
    assert [c.target for c in certificates] == expected


# -- ties and NaN ------------------------------------------------------------------------------------------------

TIES = [
    # outputs, options, target, whether the model itself gives the target on a tie
    (1, {"output": "sigmoid"}, 1, True),
    (1, {"output": "sigmoid"}, 0, False),
    (1, {"output": "sigmoid", "classes": ["b", "a"]}, "a", True),
    (1, {"output": "sigmoid", "classes": ["b", "a"]}, "b", False),
    (1, {"output": "sigmoid", "classes": [1, 0]}, 0, True),
    (1, {"output": "identity", "threshold": 0.0}, 1, True),
    (1, {"output": "identity", "threshold": 0.0}, 0, False),
    (2, {"output": "softmax"}, 1, True),
    (2, {"output": "softmax"}, 0, False),
    (3, {"output": "softmax"}, 0, False),
    (3, {"output": "softmax"}, 1, False),
    (3, {"output": "softmax"}, 2, False),
]


@pytest.mark.parametrize(("outputs", "options", "target", "gives"), TIES)
def test_ties(outputs, options, target, gives):
    net = apas.FeedForward([np.zeros((2, outputs))], [np.zeros(outputs)], **options)
    drawn = apas.Sampling(test="anytime")  # without draws the share of a linear model is computed
    certificate = apas.certify(net, [[1.0, -2.0]], 0.1, target=target, method=drawn, rng=0)[0]
    assert not apas.certify(net, [[1.0, -2.0]], 0.1, target=target, rng=0)[0].is_certified
    assert net.margin(np.array([[1.0, -2.0]]), target)[0] == 0.0
    assert (certificate.reason == "not valid on the model itself") == (not gives)
    assert (certificate.evidence.draws > 0) == gives
    assert not certificate.is_certified


def test_dead_units_make_a_tie_that_class_one_wins():
    # the hidden unit is off, so every margin is exactly 0 while only the first layer moves
    net = apas.FeedForward([[[-1.0]], [[1.0]]], [[-1.0], [0.0]])
    first = apas.LinfShifts(layers=[0])
    kept, lost = apas.certify(net, [[1.0], [1.0]], 0.1, target=[1, 0], shifts=first, rng=0)
    assert lost.reason == "not valid on the model itself"
    assert kept.evidence.draws > 0


@pytest.mark.parametrize("target", [0, 1])
def test_overflow_to_nan_is_never_valid(target):
    net = apas.FeedForward([[[1e300, 1e300]], [[1.0], [-1.0]]], [[0.0, 0.0], [0.0]])
    with np.errstate(all="ignore"):
        assert np.isnan(net.margin(np.array([[1e10]]), target)).all()
        certificate = apas.certify(net, [[1e10]], 0.1, target=target, rng=0)[0]
    assert certificate.verdict is apas.Verdict.REFUTED
    assert certificate.evidence.draws == 0


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_overflow_to_infinity_certifies_nothing(target, sign):
    # the true margin is 0, and what the hardware makes of 1e410 - 1e410 is not evidence
    net = apas.FeedForward([[[1e200, 1e200]], [[sign * 1e200], [-sign * 1e200]]], [[0.0, 0.0], [0.0]])
    with np.errstate(all="ignore"):
        assert not apas.certify(net, [[1e10]], 0.1, target=target, rng=0)[0].is_certified


# -- the object itself -------------------------------------------------------------------------------------------


def test_arrays_are_copied_and_read_only():
    rng = np.random.default_rng(0)
    weights, biases = weights_of([2, 3, 1], rng)
    before = [w.copy() for w in weights]
    net = apas.FeedForward(weights, biases)
    for array in (*weights, *biases):
        assert array.flags.writeable
        assert not np.shares_memory(array, net.parameters.values)
        array += 1.0
    assert all(np.array_equal(a, b) for a, b in zip(net.weights, before, strict=True))
    assert np.array_equal(net.parameters.tensor(0), before[0])
    for array in (*net.weights, *net.biases, net.parameters.values):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


@pytest.mark.parametrize("name", ["weights", "biases", "parameters", "classes", "threshold", "output", "activations"])
def test_attributes_cannot_be_replaced(name):
    net = apas.FeedForward([[[1.0]]], [[0.0]])
    with pytest.raises(AttributeError):
        setattr(net, name, None)


def test_calls_change_nothing():
    rng = np.random.default_rng(0)
    net = apas.FeedForward(*weights_of([2, 3, 1], rng))
    theta, X = net.parameters.values.copy(), rng.normal(size=(20, 2))
    kept = X.copy()
    net.margin(X, 1)
    apas.certify(net, X, 0.5, target="predicted", rng=0)
    assert np.array_equal(net.parameters.values, theta)
    assert np.array_equal(X, kept)


def test_parameters_are_laid_out_layer_by_layer():
    net = apas.FeedForward([[[1, 2], [3, 4]], [[5], [6]]], [[7, 8], [9]])
    p = net.parameters
    assert p.values.tolist() == [1, 2, 3, 4, 7, 8, 5, 6, 9]
    assert p.names == ("layer0.weight", "layer0.bias", "layer1.weight", "layer1.bias")
    assert p.kinds == ("weight", "bias", "weight", "bias")
    assert p.shapes == ((2, 2), (2,), (2, 1), (1,))
    assert net.n_features == 2
    assert net.as_feedforward() is net
    assert repr(net) == "<FeedForward 2-2-1, relu, sigmoid output, classes [0, 1]>"


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_default_classes(outputs):
    output = "sigmoid" if outputs == 1 else "softmax"
    net = apas.FeedForward([np.ones((1, outputs))], [np.zeros(outputs)], output=output)
    assert net.classes == tuple(range(max(2, outputs)))


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_of_weights_does_not_matter(order):
    w = np.array([[1.0, 2.0], [3.0, 4.0]], order=order)
    net = apas.FeedForward([w], [[0.0, 0.0]], output="softmax")
    assert net.margin(np.array([[1.0, 1.0]]), 1).tolist() == [2.0]


# -- the bound behind the rounding band --------------------------------------------------------------------------


@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("hidden", [0, 1, 2, 4])
@pytest.mark.parametrize("spread", [0.02, 1.0])
@pytest.mark.parametrize(
    ("output", "outputs", "threshold"), [("sigmoid", 1, 0.9), ("softmax", 3, 0.5), ("identity", 1, -2.0)]
)
def test_margin_scale_bounds_every_margin_in_the_box(activation, hidden, spread, output, outputs, threshold):
    rng = np.random.default_rng([9, hidden])
    weights, biases = weights_of([*SIZES[hidden], outputs], rng, spread)
    net = apas.FeedForward(weights, biases, activation=activation, output=output, threshold=threshold)
    X = np.vstack([rng.normal(size=(3, net.n_features)), np.zeros(net.n_features)])
    radii = rng.uniform(0, 1, len(net.parameters))
    directions = radii * rng.choice([-1.0, 1.0, 0.3], size=(300, len(radii)))
    for delta in (1e-6, 0.1, 3.0):
        scale = net.margin_scale(X, delta * radii)
        assert scale.shape == (4,)
        for label in net.classes:
            margins = net.shifted_margins(X, label, directions, delta)
            assert (np.abs(margins) <= scale * (1 + 1e-12)).all()
            assert (np.abs(net.margin(X, label)) <= scale * (1 + 1e-12)).all()


@pytest.mark.parametrize("activation", PLAIN)
def test_margin_scale_bounds_a_single_unit(activation):
    net = apas.FeedForward([[[1.0]], [[1.0]]], [[0.0], [0.0]], activation=activation)
    z = np.concatenate([[0.0], np.geomspace(1e-9, 50.0, 200), -np.geomspace(1e-9, 50.0, 200)])[:, None]
    assert (np.abs(net.margin(z, 1)) <= net.margin_scale(z, np.zeros(4)) * (1 + 1e-12)).all()


def test_margin_scale_is_not_needlessly_large():
    net = apas.FeedForward([[[1.0], [-2.0]]], [[0.5]])
    assert net.margin_scale(np.array([[3.0, -1.0]]), np.zeros(3)).tolist() == [3.0 + 2.0 + 0.5]
    assert net.margin_scale(np.array([[3.0, -1.0]]), np.full(3, 0.1)) == pytest.approx([3.3 + 2.1 + 0.6])


# -- refusals ----------------------------------------------------------------------------------------------------

ONE = {"weights": [[[1.0], [2.0]]], "biases": [[0.0]]}
TWO = {"weights": [np.ones((2, 3)), np.ones((3, 1))], "biases": [np.zeros(3), np.zeros(1)]}
BAD = {
    "no layers": ({"weights": [], "biases": []}, "`weights` and `biases` of FeedForward must have one entry per layer"),
    "more weights than biases": ({**TWO, "biases": [np.zeros(3)]}, "`weights` and `biases`.*got 2 and 1"),
    "not a sequence": ({"weights": 5, "biases": 5}, "`weights`"),
    "None": ({"weights": None, "biases": None}, "`weights`"),
    "a matrix as bias": (
        {**ONE, "biases": [[[0.0]]]},
        r"`biases\[0\]` of FeedForward must be a non-empty 1-D.*\(1, 1\)",
    ),
    "a vector as weights": (
        {**ONE, "weights": [[1.0, 2.0]]},
        r"`weights\[0\]` of FeedForward must be a non-empty 2-D.*\(2,\)",
    ),
    "empty weights": ({**ONE, "weights": [np.ones((0, 1))]}, r"`weights\[0\]`.*non-empty.*\(0, 1\)"),
    "ragged weights": ({**ONE, "weights": [[[1.0], [2.0, 3.0]]]}, r"`weights\[0\]` of FeedForward must be a 2-D array"),
    "text": ({**ONE, "weights": [[["1.0"], ["2.0"]]]}, r"`weights\[0\]`.*real numbers"),
    "complex": ({**ONE, "weights": [[[1j], [2.0]]]}, r"`weights\[0\]`.*real numbers"),
    "missing weight": ({**ONE, "weights": [[[None], [2.0]]]}, r"`weights\[0\]`.*real numbers"),
    "NaN": (
        {**ONE, "weights": [[[1.0], [np.nan]]]},
        r"`weights\[0\]` of FeedForward must hold finite numbers, got nan",
    ),
    "infinite": ({**ONE, "weights": [[[1.0], [-np.inf]]]}, r"`weights\[0\]`.*finite numbers, got -inf"),
    "NaN bias": ({**TWO, "biases": [np.zeros(3), [np.nan]]}, r"`biases\[1\]`.*finite numbers, got nan"),
    "layers that do not fit": (
        {**TWO, "weights": [np.ones((2, 3)), np.ones((2, 1))]},
        r"`weights\[1\]` of FeedForward must have 3 rows.*got 2.*\.T",
    ),
    "bias of another size": (
        {**ONE, "biases": [[0.0, 0.0]]},
        r"`biases\[0\]` of FeedForward must have 1 entries.*got 2",
    ),
    "unknown activation": (
        {**TWO, "activation": "swish"},
        "`activation` of FeedForward must be one of relu, .*got 'swish'",
    ),
    "unknown activation, no layer for it": ({**ONE, "activation": "swish"}, "`activation`.*got 'swish'"),
    "too many activations": (
        {**TWO, "activation": ["relu", "relu"]},
        r"`activation`.*one per hidden layer \(1\), got 2",
    ),
    "too few activations": ({**TWO, "activation": []}, r"`activation`.*one per hidden layer \(1\), got 0"),
    "no activation": ({**TWO, "activation": None}, "`activation`"),
    "nested activations": ({**TWO, "activation": [["relu"]]}, "`activation`"),
    "unknown output": ({**ONE, "output": "logit"}, "`output` of FeedForward must be one of 'sigmoid'.*got 'logit'"),
    "softmax of one": ({**ONE, "output": "softmax"}, '`output` of FeedForward is "softmax".*1 output'),
    "sigmoid of two": (
        {"weights": [np.ones((2, 2))], "biases": [[0.0, 0.0]]},
        '`output` of FeedForward is "sigmoid", which needs 1 output.*has 2; use "softmax"',
    ),
    "one class": ({**ONE, "classes": [0]}, r"`classes` of FeedForward must hold 2 different labels, got \[0\]"),
    "three classes": ({**ONE, "classes": [0, 1, 2]}, "`classes`.*2 different labels"),
    "equal classes": ({**ONE, "classes": ["a", "a"]}, "`classes`.*2 different labels"),
    "a number as classes": ({**ONE, "classes": 5}, "`classes`"),
    "lists as classes": ({**ONE, "classes": [[0], [1]]}, "`classes`"),
    "threshold 0": (
        {**ONE, "threshold": 0},
        "`threshold` of FeedForward must be a number strictly between 0 and 1, got 0",
    ),
    "threshold 1": ({**ONE, "threshold": 1.0}, "`threshold`.*got 1.0"),
    "threshold NaN": ({**ONE, "threshold": np.nan}, "`threshold`.*got nan"),
    "threshold as text": ({**ONE, "threshold": "0.5"}, "`threshold`.*got '0.5'"),
    "threshold as bool": ({**ONE, "threshold": True}, "`threshold`.*got True"),
    "threshold None": ({**ONE, "threshold": None}, "`threshold`.*got None"),
    "identity threshold inf": ({**ONE, "output": "identity", "threshold": np.inf}, "`threshold`.*finite.*got inf"),
    "identity threshold beyond floats": (
        {**ONE, "output": "identity", "threshold": 10**400},
        "`threshold` of FeedForward must be a finite number",
    ),
    "identity threshold as text": ({**ONE, "output": "identity", "threshold": "0"}, "`threshold`.*finite.*got '0'"),
    "identity threshold None": ({**ONE, "output": "identity", "threshold": None}, "`threshold`.*got None"),
    "identity threshold complex": ({**ONE, "output": "identity", "threshold": 1j}, "`threshold`.*got 1j"),
    "threshold for three": (
        {"weights": [np.ones((2, 3))], "biases": [np.zeros(3)], "output": "softmax", "threshold": 0.7},
        "`threshold` of FeedForward only applies to two classes, but there are 3",
    ),
    "too few names": ({**ONE, "feature_names": ["a"]}, "`feature_names` must hold 2 different names.*got 1"),
    "equal names": ({**ONE, "feature_names": ["a", "a"]}, "`feature_names` must hold 2 different names"),
    "a number as names": ({**ONE, "feature_names": 5}, "`feature_names`"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input(arguments, message):
    arguments = dict(arguments)
    with pytest.raises(apas.InputError, match=message) as caught:
        apas.FeedForward(arguments.pop("weights"), arguments.pop("biases"), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["classes", "parameters", "weights", "threshold", "offset", "dtype"])
def test_a_network_does_not_change(name):
    net = apas.FeedForward([[[1.0], [-1.0]]], [[0.5]])
    before = getattr(net, name)
    with pytest.raises(AttributeError):
        setattr(net, name, before)
    assert getattr(net, name) is before
    assert getattr(pickle.loads(pickle.dumps(net)), name) is not None
