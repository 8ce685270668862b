"""From scores to margins, class labels to positions, and the one rule that says "valid"."""

import numpy as np
import pytest

import apas
from apas.models.base import class_indices, needs_strict, valid
from apas.models.forward import margins_from_scores

NAN = float("nan")
INF = float("inf")

INDICES = [
    ((0, 1), 1, 3, [1, 1, 1]),
    ((0, 1), 0, 2, [0, 0]),
    ((0, 1), np.int64(1), 2, [1, 1]),
    ((0, 1), np.float64(1.0), 1, [1]),
    ((0, 1), [0, 1, 1], 3, [0, 1, 1]),
    ((0, 1), np.array([0, 1]), 2, [0, 1]),
    ((0, 1), np.array(1), 2, [1, 1]),
    ((0, 1), (1,), 1, [1]),
    ((0, 1), [], 0, []),
    ((0, 1), 1, 0, []),
    (("no", "yes"), "yes", 2, [1, 1]),
    (("no", "yes"), np.str_("yes"), 2, [1, 1]),
    (("no", "yes"), np.array(["yes", "no"]), 2, [1, 0]),
    ((5, 7, -2), [-2, 5, 7], 3, [2, 0, 1]),
    ((False, True), True, 1, [1]),
    ((False, True), np.bool_(False), 1, [0]),
    ((0.5, 1.5), 1.5, 1, [1]),
    (("a", 1), [1, "a"], 2, [1, 0]),
]


@pytest.mark.parametrize(("classes", "target", "rows", "expected"), INDICES)
def test_class_indices(classes, target, rows, expected):
    assert class_indices(classes, target, rows).tolist() == expected


WRONG = [
    ((0, 1), 2, 1, r"`target` must be one of the model's classes \(0, 1\), got 2"),
    ((0, 1), "1", 1, "got '1' \\(a text, while the classes are not\\)"),
    (("no", "yes"), "maybe", 1, "'no', 'yes'.*got 'maybe'"),
    ((0, 1), [0, 3], 2, "got 3"),
    ((0, 1), [0, 1], 3, r"one per row \(3\), got 2 values"),
    ((0, 1), [], 1, r"one per row \(1\), got 0 values"),
    ((0, 1), [[0], [1]], 2, r"got an array of shape \(2, 1\)"),
    ((0, 1), NAN, 1, "got nan"),
    ((0, 1), {1}, 1, r"got \{1\}"),
    ((0, 1), {"a": 1}, 1, "got {'a': 1}"),
    (tuple(range(20)), 99, 1, r"8, 9, \.\.\.\), got 99"),
]


@pytest.mark.parametrize(("classes", "target", "rows", "message"), WRONG)
def test_wrong_target(classes, target, rows, message):
    with pytest.raises(apas.InputError, match=message) as caught:
        class_indices(classes, target, rows)
    assert "`target`" in str(caught.value)
    assert "\n" not in str(caught.value)


MARGINS = [
    # scores of one row, wanted class, offset, margin
    ([3.0], 1, 0.0, 3.0),
    ([3.0], 0, 0.0, -3.0),
    ([3.0], 1, 1.0, 2.0),
    ([3.0], 0, 1.0, -2.0),
    ([-2.0], 0, 0.0, 2.0),
    ([1.0, 4.0], 1, 0.0, 3.0),
    ([1.0, 4.0], 0, 0.0, -3.0),
    ([1.0, 4.0], 1, 1.0, 2.0),
    ([1.0, 4.0], 0, 1.0, -2.0),
    ([1.0, 4.0, 3.0], 1, 0.0, 1.0),
    ([1.0, 4.0, 3.0], 0, 0.0, -3.0),
    ([1.0, 4.0, 3.0], 2, 0.0, -1.0),
    ([2.0, 2.0, 1.0], 0, 0.0, 0.0),
    ([2.0, 2.0, 1.0], 1, 0.0, 0.0),
    ([-INF, 4.0, 3.0], 1, 0.0, 1.0),
    ([INF, 4.0, 3.0], 0, 0.0, INF),
]


@pytest.mark.parametrize(("scores", "wanted", "offset", "margin"), MARGINS)
def test_margin(scores, wanted, offset, margin):
    got = margins_from_scores(np.array([scores]), np.array([wanted]), offset)
    assert got.tolist() == [margin]


@pytest.mark.parametrize("outputs", [1, 2, 3, 7])
@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
def test_margin_of_many_rows_is_the_rule_row_by_row(outputs, leading):
    rng = np.random.default_rng(outputs)
    rows, offset = 6, (0.25 if outputs <= 2 else 0.0)
    scores = rng.normal(size=(*leading, rows, outputs))
    wanted = rng.integers(0, max(2, outputs), rows)
    untouched = scores.copy()
    got = margins_from_scores(scores, wanted, offset)
    assert got.shape == (*leading, rows)
    assert np.array_equal(scores, untouched)
    for place in np.ndindex(got.shape):
        s, w = scores[place].tolist(), wanted[place[-1]]
        if outputs == 1:
            expected = (s[0] - offset) if w == 1 else -(s[0] - offset)
        elif outputs == 2:
            expected = (s[1] - s[0] - offset) if w == 1 else -(s[1] - s[0] - offset)
        else:
            expected = s[w] - max(v for i, v in enumerate(s) if i != w)
        assert got[place] == expected


@pytest.mark.parametrize("outputs", [1, 2, 3, 5])
def test_a_nan_score_anywhere_is_never_valid(outputs):
    classes = max(2, outputs)
    for where in range(outputs):
        for wanted in range(classes):
            scores = np.arange(1.0, outputs + 1)[None, :]
            scores[0, where] = NAN
            margin = margins_from_scores(scores, np.array([wanted]), 0.0)
            assert np.isnan(margin).all()
            assert not valid(margin, needs_strict(tuple(range(classes)), np.array([wanted]))).any()


STRICT = [
    ((0, 1), 1, False),
    ((0, 1), 0, True),
    (("yes", "no"), "no", False),
    (("yes", "no"), "yes", True),
    ((1, 0), 0, False),
    ((1, 0), 1, True),
    ((0, 1, 2), 0, True),
    ((0, 1, 2), 1, True),
    ((0, 1, 2), 2, True),
]


@pytest.mark.parametrize(("classes", "wanted", "strict"), STRICT)
def test_ties_count_only_for_class_one_of_a_binary_model(classes, wanted, strict):
    rule = needs_strict(classes, np.array([wanted], dtype=object))
    assert rule.tolist() == [strict]
    tiny = 5e-324
    margins = np.array([0.0, -0.0, tiny, -tiny, 1.0, -1.0, INF, -INF, NAN])
    tie = not strict
    expected = [tie, tie, True, False, True, False, True, False, False]
    assert valid(margins, np.broadcast_to(rule, margins.shape)).tolist() == expected
