"""`Trees`: what an ensemble has learned, read from scikit-learn, XGBoost, LightGBM or CatBoost, for searches alone.

A row goes left where its number is at most the threshold, or its category is one of those that do.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from apas._typing import Bools, Floats, Integers
from apas.models.predictor import catboost_file

#: Some categories, and whether it is they that go left.
_Levels = tuple[frozenset[int], bool]


@dataclass(frozen=True, eq=False)
class Trees:
    """All nodes of an ensemble in one set of arrays.

    Per node the number of a row that it asks for (`column`, -1 for leaves), how it decides, its children and, of a
    leaf, what it adds to each output: one for two classes, towards the second, else one each. Sums begin at `base`,
    so that 0 is the boundary of two classes; they are probabilities or scores. `read` turns encoded rows into the
    numbers that nodes compare, NaN for missing ones.
    """

    column: Integers
    threshold: Floats
    left: Integers
    right: Integers
    missing_left: Bools
    levels: Mapping[int, _Levels]
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


def towards(sums: Floats, wanted: int) -> Floats:
    """Margins towards a class, from outputs in the last axis: one for two classes, else one per class."""
    if sums.shape[-1] == 1:
        return sums[..., 0] if wanted == 1 else -sums[..., 0]
    return np.asarray(sums[..., wanted] - np.delete(sums, wanted, axis=-1).max(axis=-1))


class _Nodes(NamedTuple):
    """Per node what `Trees` has of it, with children counted from the root."""

    column: Any
    threshold: Any
    left: Any
    right: Any
    missing_left: Any
    value: Floats
    levels: Mapping[int, _Levels]


@dataclass(frozen=True)
class _Ensemble:
    trees: Sequence[_Nodes]
    base: Any
    probability: bool = False
    single: bool = True  # whether numbers are rounded to float32 before they are compared
    labels: Mapping[int, Sequence[Any]] = field(default_factory=dict)


def trees_of(estimator: Any, threshold: float, of_probability: bool, cells: Callable[..., Floats]) -> Trees:
    """Read a fitted classifier, or raise whatever; `cells` makes numbers of encoded rows, given labels of columns."""
    library, name = type(estimator).__module__.split(".")[0], type(estimator).__name__
    found: _Ensemble = _READERS[name if library == "sklearn" else library](estimator)
    sizes = [len(tree.column) for tree in found.trees]
    roots = np.cumsum([0, *sizes[:-1]])
    column, limit, left, right, missing, value = (
        np.concatenate([np.asarray(tree[i]) for tree in found.trees]) for i in range(6)
    )
    split, shift = left >= 0, np.repeat(roots, sizes)
    base = np.atleast_1d(np.asarray(found.base, dtype=np.float64))
    if len(base) == 1:
        logits = of_probability and not found.probability
        base = base - (np.log(threshold) - np.log1p(-threshold) if logits else threshold)

    def read(X: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return cells(X, found.labels).astype(np.float32 if found.single else np.float64).astype(np.float64)

    return Trees(
        column=np.where(split, column, -1),
        threshold=limit.astype(np.float64),
        left=np.where(split, left + shift, -1),
        right=np.where(split, right + shift, -1),
        missing_left=missing.astype(bool),
        levels={int(a) + n: s for a, tree in zip(roots, found.trees, strict=True) for n, s in tree.levels.items()},
        value=np.where(split[:, None], 0.0, value),
        roots=roots,
        base=base,
        probability=found.probability,
        read=read,
    )


def _scikit_tree(tree: Any, value: Floats) -> _Nodes:
    children, missing = (tree.children_left, tree.children_right), tree.missing_go_to_left != 0
    return _Nodes(tree.feature, tree.threshold, *children, missing, value, {})


def _one_of(size: int, k: int, numbers: Any) -> Floats:
    """Numbers per node as values towards output k of `size`."""
    value = np.zeros((len(numbers), size))
    value[:, k] = numbers
    return value


def _with_leaves(parts: Sequence[Any], leaves: Floats, levels: Mapping[int, _Levels]) -> _Nodes:
    """Nodes that split (columns, thresholds, children, where missing numbers go), followed by leaves of such values."""
    column, limit, left, right, side = (np.concatenate([np.asarray(p), np.full(len(leaves), -1)]) for p in parts)
    value = np.pad(leaves, ((len(column) - len(leaves), 0), (0, 0)))
    return _Nodes(column, limit, left, right, side > 0, value, levels)


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
    base, rate = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_))), estimator.learning_rate
    stages = [[(one.tree_, k, len(stage)) for k, one in enumerate(stage)] for stage in estimator.estimators_]
    return _Ensemble(
        [_scikit_tree(t, _one_of(size, k, rate * t.value[:, 0, 0])) for s in stages for t, k, size in s], base[0]
    )


def _histogram_boosting(estimator: Any) -> _Ensemble:
    order, labels = np.arange(estimator.n_features_in_), dict[int, Sequence[Any]]()
    if estimator._preprocessor is not None:  # columns with categories go through an encoder and come first
        order = np.argsort(~estimator.is_categorical_, kind="stable")
        told = estimator._preprocessor.named_transformers_["encoder"].categories_
        labels = dict(zip(order.tolist(), told, strict=False))
    trees = []
    for stage in estimator._predictors:
        for k, one in enumerate(stage):
            nodes, split = one.nodes, one.nodes["is_leaf"] == 0
            left, right = (np.where(split, nodes[side].astype(np.int64), -1) for side in ("left", "right"))
            sets = {
                node: (_bits(one.raw_left_cat_bitsets[nodes["bitset_idx"][node]].tolist()), True)
                for node in np.flatnonzero(split & (nodes["is_categorical"] != 0)).tolist()
            }
            missing, column = nodes["missing_go_to_left"], order[nodes["feature_idx"]]
            value = _one_of(len(stage), k, nodes["value"])
            trees.append(_Nodes(column, nodes["num_threshold"], left, right, missing, value, sets))
    return _Ensemble(trees, np.asarray(estimator._baseline_prediction).ravel(), single=False, labels=labels)


def _bits(words: Sequence[int]) -> frozenset[int]:
    return frozenset(32 * i + j for i, word in enumerate(words) for j in range(32) if word >> j & 1)


def _xgboost(estimator: Any) -> _Ensemble:
    learner = json.loads(bytes(estimator.get_booster().save_raw("json")))["learner"]
    model, about = learner["gradient_booster"]["model"], learner["learner_model_param"]
    count = model["iteration_indptr"][getattr(estimator, "best_iteration", len(model["iteration_indptr"]) - 2) + 1]
    base, outputs = np.atleast_1d(json.loads(about["base_score"])), max(1, int(about["num_class"]))
    if learner["objective"]["name"].startswith("binary"):
        base = np.log(base) - np.log1p(-base)
    trees = []
    for tree, k in zip(model["trees"][:count], model["tree_info"], strict=False):
        told = np.array(tree["split_conditions"], dtype=np.float32)  # of leaves, their values
        segments = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
        levels = {n: (frozenset(tree["categories"][a : a + size]), False) for n, a, size in segments}  # to the right
        # rows below the threshold go left: those at most the number of float32 before it
        below, missing = np.nextafter(told, np.float32(-np.inf)), np.array(tree["default_left"]) == 1
        children = tree["left_children"], tree["right_children"]
        trees.append(_Nodes(tree["split_indices"], below, *children, missing, _one_of(outputs, k, told), levels))
    labels: dict[int, Sequence[Any]] = {}  # the categories of each column, where the library keeps them
    for column, kept in enumerate((model.get("cats") or {}).get("enc", ())):
        text = bytes(v % 256 for v in kept["values"]) if kept.get("offsets") else b""
        names = [text[a:b].decode() for a, b in pairwise(kept.get("offsets") or ())]
        labels |= {column: names or kept["values"]} if kept["values"] else {}
    return _Ensemble(trees, np.broadcast_to(base, outputs), labels=labels)


def _lightgbm(estimator: Any) -> _Ensemble:
    text: str = estimator.booster_.model_to_string()
    head, *parts = re.split(r"\nTree=\d+\n", text.partition("\nend of trees")[0])
    said = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    if "\naverage_output" in head:
        raise TypeError("sums or means, as the library is asked")
    outputs = int(said["num_tree_per_iteration"])
    trees = [_lightgbm_tree(part, i % outputs, outputs) for i, part in enumerate(parts)]
    # of a column with categories neither a range nor "none" is told
    columns = [i for i, told in enumerate(said["feature_infos"].split()) if told[0] not in "[n"]
    labels = dict(zip(columns, estimator.booster_.pandas_categorical or (), strict=False))
    return _Ensemble(trees, np.zeros(outputs), single=False, labels=labels)


def _lightgbm_tree(text: str, k: int, outputs: int) -> _Nodes:
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def numbers(name: str, kind: Any = np.int64) -> Any:
        return np.array(said.get(name, "").split(), dtype=kind)

    leaves, how, threshold = numbers("leaf_value", np.float64), numbers("decision_type"), numbers("threshold", float)
    if said.get("is_linear", "0") != "0" or ((how >> 2) & 3 == 1).any():
        raise TypeError("leaves with lines in them, or zeros that are missing")
    ends, words = numbers("cat_boundaries"), numbers("cat_threshold")
    # a node with categories has the number of their set in place of a threshold
    sets = {n: ends[int(threshold[n]) : int(threshold[n]) + 2] for n in np.flatnonzero(how & 1).tolist()}
    levels = {node: (_bits(words[a:b].tolist()), True) for node, (a, b) in sets.items()}
    # bits 2 and 3: what is missing counts as 0 unless they say that it has a way of its own; never as a category
    missing = np.where((how >> 2) & 3 == 2, how & 2 != 0, threshold >= 0) & (how & 1 == 0)
    nodes = len(how)
    children = [numbers(name) for name in ("left_child", "right_child")]
    children = [np.where(part < 0, nodes - 1 - part, part) for part in children]  # leaf number i is written as -1 - i
    parts = (numbers("split_feature"), threshold, *children, missing)
    return _with_leaves(parts, _one_of(outputs, k, leaves), levels)


def _catboost(estimator: Any) -> _Ensemble:
    told = json.loads(catboost_file(estimator, "json"))
    about = {f["feature_index"]: f for f in told["features_info"]["float_features"]}
    scale, base = told["scale_and_bias"]
    trees = []
    for tree in told["oblivious_trees"]:
        splits, depth = tree["splits"], len(tree["splits"])
        if any(split["split_type"] != "FloatFeature" for split in splits):
            raise TypeError("categories count by statistics of the training rows")
        # all nodes of a level ask the same; nodes are numbered level by level, the children of i being 2i+1 and 2i+2
        level, leaves = np.repeat(np.arange(depth), 2 ** np.arange(depth)), 2**depth
        asked = [about[splits[j]["float_feature_index"]] for j in level]
        places = np.arange(leaves - 1)
        column, border = [f["flat_feature_index"] for f in asked], [splits[j]["border"] for j in level]
        missing = [f["nan_value_treatment"] != "AsTrue" for f in asked]
        # the leaf that is reached by going right at levels j has the number of the sum of the 2**j
        order = [sum((leaf >> (depth - 1 - j) & 1) << j for j in range(depth)) for leaf in range(leaves)]
        value = scale * np.array(tree["leaf_values"]).reshape(leaves, -1)[order]
        trees.append(_with_leaves((column, border, 2 * places + 1, 2 * places + 2, missing), value, {}))
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
