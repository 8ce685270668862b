"""`Trees`: what an ensemble of trees has learned, read from scikit-learn, XGBoost, LightGBM or CatBoost.

A row goes left where its number is at most the threshold, or its category is one of those that do. Libraries that
compare with "less than", in float32, or in bits of a table are turned into that. What is read serves searches alone:
whoever uses it compares it with the library's own answers, and certificates ask the library itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apas._typing import Bools, Floats, Integers


@dataclass(frozen=True, eq=False)
class Trees:
    """All nodes of an ensemble in one set of arrays; the children of a node come after it.

    Attributes
    ----------
    column : ndarray of shape (nodes,)
        Which number of a row a node asks for; -1 for leaves.
    threshold : ndarray of shape (nodes,)
        Rows whose number is at most this go left.
    left, right : ndarray of shape (nodes,)
        Children; -1 for leaves.
    missing_left : ndarray of shape (nodes,)
        Whether rows without a number go left.
    levels : mapping from int
        For nodes that ask for a category: some of them, and whether it is these that go left.
    value : ndarray of shape (nodes, outputs)
        What a leaf adds: one column for two classes, towards the second, else one per class.
    roots : ndarray of shape (trees,)
    base : ndarray of shape (outputs,)
        Where the sums begin, so that 0 is the boundary of two classes.
    probability : bool
        Whether the sums are probabilities rather than scores.
    read : callable
        Turns encoded rows into the numbers that nodes compare, NaN for missing ones.
    """

    column: Integers
    threshold: Floats
    left: Integers
    right: Integers
    missing_left: Bools
    levels: Mapping[int, tuple[frozenset[int], bool]]
    value: Floats
    roots: Integers
    base: Floats
    probability: bool
    read: Callable[[Floats], Floats]

    def goes_left(self, node: int, numbers: Floats) -> Bools:
        """Which numbers of its column a node sends to the left."""
        known, listed_left = self.levels.get(node, (None, True))
        inside = numbers <= self.threshold[node] if known is None else np.isin(numbers, list(known)) == listed_left
        return np.asarray(np.where(np.isnan(numbers), self.missing_left[node], inside))


@dataclass(frozen=True)
class _Tree:
    """One tree: per node its column, threshold, children, missing side and value, and the categories that go left."""

    column: Any
    threshold: Any
    left: Any
    right: Any
    missing_left: Any
    value: Floats
    levels: Mapping[int, tuple[frozenset[int], bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ensemble:
    trees: Iterable[_Tree]
    base: Any
    probability: bool = False
    single: bool = True  # whether numbers are rounded to float32 before they are compared
    labels: Mapping[int, Sequence[Any]] = field(default_factory=dict)


def trees_of(
    estimator: Any,
    threshold: float,
    of_probability: bool,
    cells: Callable[[Floats, Mapping[int, Sequence[Any]]], Floats],
) -> Trees:
    """Read a fitted classifier; raises whatever error when it is none that can be read.

    `threshold` is that of a probability, or of a score; `cells` turns encoded rows into numbers, given the labels of
    columns with categories.
    """
    library, name = type(estimator).__module__.split(".")[0], type(estimator).__name__
    found: _Ensemble = _READERS[name if library == "sklearn" else library](estimator)
    trees = list(found.trees)
    sizes = [len(tree.column) for tree in trees]
    starts = np.cumsum([0, *sizes[:-1]])

    def joined(name: str) -> Any:
        return np.concatenate([np.asarray(getattr(tree, name)) for tree in trees])

    shift, split = np.repeat(starts, sizes), joined("left") >= 0
    kind = np.float32 if found.single else np.float64
    base = np.atleast_1d(np.asarray(found.base, dtype=np.float64))
    logits = of_probability and not found.probability
    offset = np.log(threshold) - np.log1p(-threshold) if logits else threshold

    def read(X: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return cells(X, found.labels).astype(kind).astype(np.float64)

    return Trees(
        column=np.where(split, joined("column"), -1),
        threshold=joined("threshold").astype(np.float64),
        left=np.where(split, joined("left") + shift, -1),
        right=np.where(split, joined("right") + shift, -1),
        missing_left=joined("missing_left").astype(bool),
        levels={int(a) + node: known for a, tree in zip(starts, trees, strict=True) for node, known in tree.levels.items()},
        value=np.where(split[:, None], 0.0, joined("value")),
        roots=starts,
        base=base - offset if len(base) == 1 else base,
        probability=found.probability,
        read=read,
    )  # fmt: skip


def _scikit_tree(tree: Any, value: Floats) -> _Tree:
    return _Tree(
        tree.feature, tree.threshold, tree.children_left, tree.children_right, tree.missing_go_to_left != 0, value
    )


def _forest(estimator: Any) -> _Ensemble:
    inner = [estimator] if hasattr(estimator, "tree_") else estimator.estimators_
    trees = []
    for one in inner:
        shares = one.tree_.value[:, 0, :] / one.tree_.value[:, 0, :].sum(axis=1, keepdims=True) / len(inner)
        trees.append(_scikit_tree(one.tree_, shares[:, 1:] if shares.shape[1] == 2 else shares))
    return _Ensemble(trees, np.zeros(trees[0].value.shape[1]), probability=True)


def _gradient_boosting(estimator: Any) -> _Ensemble:
    if not (estimator.init_ == "zero" or type(estimator.init_).__name__ == "DummyClassifier"):
        raise TypeError("what the boosting began with depends on the row")
    base = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_), dtype=np.float32))[0]
    trees = []
    for stage in estimator.estimators_:
        for k, one in enumerate(stage):
            value = np.zeros((one.tree_.node_count, len(stage)))
            value[:, k] = estimator.learning_rate * one.tree_.value[:, 0, 0]
            trees.append(_scikit_tree(one.tree_, value))
    return _Ensemble(trees, base)


def _histogram_boosting(estimator: Any) -> _Ensemble:
    is_level = estimator.is_categorical_
    is_level = np.zeros(estimator.n_features_in_, dtype=bool) if is_level is None else is_level
    # columns with categories go through an encoder and come first
    order = np.argsort(~is_level, kind="stable") if estimator._preprocessor is not None else np.arange(len(is_level))
    labels = {}
    if estimator._preprocessor is not None:
        told = estimator._preprocessor.named_transformers_["encoder"].categories_
        labels = dict(zip(order.tolist(), told, strict=False))
    trees = []
    for stage in estimator._predictors:
        for k, one in enumerate(stage):
            nodes, value = one.nodes, np.zeros((len(one.nodes), len(stage)))
            value[:, k] = nodes["value"]
            split = nodes["is_leaf"] == 0
            left, right = (np.where(split, nodes[side].astype(np.int64), -1) for side in ("left", "right"))
            sets = {}
            for node in np.flatnonzero(split & (nodes["is_categorical"] != 0)).tolist():
                sets[node] = (_bits(one.raw_left_cat_bitsets[nodes["bitset_idx"][node]].tolist()), True)
            missing, columns = nodes["missing_go_to_left"], order[nodes["feature_idx"]]
            trees.append(_Tree(columns, nodes["num_threshold"], left, right, missing, value, sets))
    return _Ensemble(trees, np.asarray(estimator._baseline_prediction).ravel(), single=False, labels=labels)


def _bits(words: Sequence[int]) -> frozenset[int]:
    """Which bits are set in a row of words of 32."""
    return frozenset(32 * i + j for i, word in enumerate(words) for j in range(32) if word >> j & 1)


def _xgboost(estimator: Any) -> _Ensemble:
    learner = json.loads(bytes(estimator.get_booster().save_raw("json")))["learner"]
    model, about = learner["gradient_booster"]["model"], learner["learner_model_param"]
    count = model["iteration_indptr"][getattr(estimator, "best_iteration", len(model["iteration_indptr"]) - 2) + 1]
    base = np.atleast_1d(np.array(json.loads(about["base_score"]), dtype=np.float64))
    if learner["objective"]["name"].startswith("binary"):
        base = np.log(base) - np.log1p(-base)
    outputs = max(1, int(about["num_class"]))
    trees = []
    for tree, k in zip(model["trees"][:count], model["tree_info"], strict=False):
        left = np.array(tree["left_children"])
        told = np.array(tree["split_conditions"], dtype=np.float32)
        value = np.zeros((len(left), outputs))
        value[:, k] = told  # of leaves, whose value stands in the place of the threshold
        segments = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
        levels = {n: (frozenset(tree["categories"][a : a + size]), False) for n, a, size in segments}  # to the right
        # rows below the threshold go left: those at most the number of float32 before it
        below = np.nextafter(told, np.float32(-np.inf))
        right, missing = tree["right_children"], np.array(tree["default_left"]) == 1
        trees.append(_Tree(tree["split_indices"], below, left, right, missing, value, levels))
    return _Ensemble(trees, np.broadcast_to(base, outputs), labels=_xgboost_labels(model.get("cats")))


def _xgboost_labels(told: Any) -> dict[int, list[Any]]:
    """The categories of each column, where the library keeps them."""
    found: dict[int, list[Any]] = {}
    for column, about in enumerate((told or {}).get("enc", ())):
        values, ends = about["values"], about.get("offsets")
        if ends:
            text = bytes(v % 256 for v in values)
            found[column] = [text[a:b].decode() for a, b in zip(ends, ends[1:], strict=False)]
        elif values:
            found[column] = list(values)
    return found


def _lightgbm(estimator: Any) -> _Ensemble:
    booster = estimator.booster_
    text: str = booster.model_to_string()
    head, *parts = re.split(r"\nTree=\d+\n", text.partition("\nend of trees")[0])
    outputs = int(re.search(r"num_tree_per_iteration=(\d+)", head)[1])  # type: ignore[index]
    if "\naverage_output" in head:
        raise TypeError("sums or means, as the library is asked")
    trees = [_lightgbm_tree(part, i % outputs, outputs) for i, part in enumerate(parts)]
    told = re.search(r"feature_infos=(.*)", head)[1].split()  # type: ignore[index]
    columns = [i for i, said in enumerate(told) if said[0] not in "[n"]  # neither a range nor "none"
    labels = dict(zip(columns, booster.pandas_categorical or (), strict=False))
    return _Ensemble(trees, np.zeros(outputs), single=False, labels=labels)


def _lightgbm_tree(text: str, k: int, outputs: int) -> _Tree:
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def numbers(name: str, kind: Any = np.int64) -> Any:
        return np.array(said.get(name, "").split(), dtype=kind)

    leaves, split = numbers("leaf_value", np.float64), numbers("split_feature")
    nodes, how = len(split), numbers("decision_type")
    if said.get("is_linear", "0") != "0" or ((how >> 2) & 3 == 1).any():
        raise TypeError("leaves with lines in them, or zeros that are missing")
    pad, threshold = np.full(len(leaves), -1), numbers("threshold", np.float64)

    def children(name: str) -> Any:  # leaf number i is written as -1 - i
        found = numbers(name)
        return np.concatenate([np.where(found < 0, nodes - 1 - found, found), pad])

    ends, words, levels = numbers("cat_boundaries"), numbers("cat_threshold"), {}
    for node in np.flatnonzero(how & 1).tolist():
        a, b = ends[int(threshold[node]) : int(threshold[node]) + 2]
        levels[node] = (_bits(words[a:b].tolist()), True)
    value = np.zeros((nodes + len(leaves), outputs))
    value[nodes:, k] = leaves
    # bits 2 and 3: what is missing counts as 0 unless they say that it has a way of its own; never as a category
    missing = np.where((how >> 2) & 3 == 2, how & 2 != 0, threshold >= 0) & (how & 1 == 0)
    filled = [np.concatenate([part, pad]) for part in (split, threshold, missing)]
    return _Tree(filled[0], filled[1], children("left_child"), children("right_child"), filled[2] > 0, value, levels)


def _catboost(estimator: Any) -> _Ensemble:
    from apas.models.boosting import catboost_file  # which imports this module's users

    told = json.loads(catboost_file(estimator, "json"))
    features = told["features_info"]["float_features"]
    columns = {f["feature_index"]: f["flat_feature_index"] for f in features}
    upwards = {f["feature_index"]: f["nan_value_treatment"] == "AsTrue" for f in features}
    scale, base = told["scale_and_bias"]
    trees = []
    for tree in told["oblivious_trees"]:
        depth, splits = len(tree["splits"]), tree["splits"]
        if any(split["split_type"] != "FloatFeature" for split in splits):
            raise TypeError("categories count by statistics of the training rows")
        # all nodes of a level ask the same; nodes are numbered level by level, the children of i being 2i+1 and 2i+2
        level = np.repeat(np.arange(depth), 2 ** np.arange(depth))
        asked = [splits[j]["float_feature_index"] for j in level]
        inner, leaves = len(level), 2**depth
        pad = np.full(leaves, -1)
        filled = [
            np.concatenate([np.array(part, dtype=np.float64), pad])
            for part in ([columns[f] for f in asked], [splits[j]["border"] for j in level], [not upwards[f] for f in asked])
        ]
        # the leaf that is reached by going right at levels j has the number of the sum of the 2**j
        order = [sum((leaf >> (depth - 1 - j) & 1) << j for j in range(depth)) for leaf in range(leaves)]
        told_values = np.array(tree["leaf_values"]).reshape(leaves, -1)[order]
        value = np.concatenate([np.zeros((inner, told_values.shape[1])), scale * told_values])
        places = np.arange(inner)
        left, right = (np.concatenate([2 * places + side, pad]) for side in (1, 2))
        trees.append(_Tree(filled[0].astype(int), filled[1], left, right, filled[2] > 0, value))
    return _Ensemble(trees, np.asarray(base))


_READERS: dict[str, Callable[[Any], _Ensemble]] = {
    **dict.fromkeys(("DecisionTreeClassifier", "ExtraTreeClassifier"), _forest),
    **dict.fromkeys(("RandomForestClassifier", "ExtraTreesClassifier"), _forest),
    "GradientBoostingClassifier": _gradient_boosting,
    "HistGradientBoostingClassifier": _histogram_boosting,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
}

