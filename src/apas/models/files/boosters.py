"""Boosted trees in the files of their own libraries: XGBoost's `.ubj`, LightGBM's `.txt`, CatBoost's `.cbm`.

None of them can run code. What a library would follow without looking, where children and features of a tree are, is
checked here. Such a file holds no settings of the training, and LightGBM's no class labels: see `container`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from apas._optional import require
from apas._typing import Integers
from apas.errors import InputError, Unsupported
from apas.models.as_model import as_model
from apas.models.base import Model
from apas.models.files.formats import BROKEN, LoadOptions, first_line, own_estimator

#: Which classes of a library an `.apas` file may name; the first is the one that a bare file becomes.
CLASSIFIERS = {
    "xgboost": ("XGBClassifier", "XGBRFClassifier"),
    "lightgbm": ("LGBMClassifier",),
    "catboost": ("CatBoostClassifier",),
}


def booster_bytes(estimator: Any) -> bytes:
    """A fitted classifier of one of the libraries as its own file."""
    library = type(estimator).__module__.split(".")[0]
    if library == "xgboost":
        return bytes(estimator.get_booster().save_raw("ubj"))
    if library == "lightgbm":
        text: str = estimator.booster_.model_to_string()
        return text.encode()
    with tempfile.TemporaryDirectory() as folder:  # the library writes files only
        file = Path(folder) / "model.cbm"
        estimator.save_model(str(file))
        return file.read_bytes()


def read_booster(
    path: Path,
    raw: bytes,
    library: str,
    name: str = "",
    settings: Mapping[str, Any] | None = None,
    classes: Sequence[Any] | None = None,
) -> Any:
    """A classifier of one of the libraries from its own file, and from settings and labels that stand elsewhere."""
    module = require(library, feature=f"a model of {library}", extra="boosting")
    made = getattr(module, name or CLASSIFIERS[library][0])
    try:
        estimator = made(**(settings or {}))
        given = estimator.get_params()
        _LOADERS[library](estimator, raw, classes)
        for key, value in given.items():  # XGBoost takes what it has learned for settings
            if library == "xgboost" and estimator.get_params()[key] is not value:
                setattr(estimator, key, value)
    except (*BROKEN, *_own_errors(module)) as error:
        raise InputError(f"{path} cannot be read by {library}: {first_line(error)}") from None
    estimator.settings_lost_ = settings is None
    return estimator


def _own_errors(module: Any) -> tuple[type[Exception], ...]:
    named = (getattr(module, "CatBoostError", None), getattr(getattr(module, "basic", None), "LightGBMError", None))
    return tuple(kind for kind in named if kind is not None)


def _load_xgboost(estimator: Any, raw: bytes, classes: Any) -> None:
    estimator.load_model(bytearray(raw))
    learner = json.loads(bytes(estimator.get_booster().save_raw("json")))["learner"]
    booster, width = learner["gradient_booster"], int(learner["learner_model_param"]["num_feature"])
    booster = booster["gbtree"] if booster["name"] == "dart" else booster
    _require(booster["name"] == "gbtree" and width > 0, "it does not hold trees")
    groups = max(1, int(learner["learner_model_param"]["num_class"]))
    _require(all(0 <= group < groups for group in booster["model"]["tree_info"]), "a tree is of no class")
    for tree in booster["model"]["trees"]:
        left, right, parents, features = (
            np.asarray(tree[key], dtype=np.int64)
            for key in ("left_children", "right_children", "parents", "split_indices")
        )
        here = np.arange(len(left))
        inner = left != -1
        _require(len(left) and parents[0] == 2**31 - 1 and int(tree["tree_param"]["size_leaf_vector"]) <= 1, _NODES)
        for child in (left[inner], right[inner]):
            # nodes may be in any order, but each is the child of the one that it names, so that no way leads back
            _require(((child > 0) & (child < len(left))).all(), _NODES)
            _require((parents[child] == here[inner]).all(), _NODES)
        _require(((features >= 0) & (features < width))[inner].all(), _FEATURES)
        nodes, starts, sizes = (tree[f"categories_{key}"] for key in ("nodes", "segments", "sizes"))
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        known = len(nodes) == len(starts) and all(0 <= node < len(left) for node in nodes)
        _require(known and all(0 <= end <= len(tree["categories"]) for end in (*starts, *sizes, *ends)), _NODES)
        split = np.flatnonzero(np.asarray(tree["split_type"])[inner] == 1)
        _require(set(here[inner][split].tolist()) <= set(nodes), _NODES)


_NODES, _FEATURES = "a node of a tree has no such child", "a tree asks for a feature that is not there"


def _load_lightgbm(estimator: Any, raw: bytes, classes: Any) -> None:
    header = _check_text(raw)
    count = max(2, int(header["num_class"]))
    labels = np.array(range(count) if classes is None else classes)
    _require(len(labels) == count == len(set(labels.tolist())), f"it has {count} classes, not {len(labels)}")
    library = require("lightgbm", feature="a model of lightgbm", extra="boosting")
    booster = library.Booster(model_str=raw.decode())
    encoder = library.compat._LGBMLabelEncoder().fit(labels)
    _require(encoder.classes_.tolist() == labels.tolist(), "its labels are not in their order")
    width, objective = booster.num_feature(), header["objective"].split(" ")[0]
    learned = {"_Booster": booster, "_n_features": width, "_n_features_in": width, "_classes": labels, "fitted_": True}
    learned |= {"_n_classes": count, "_le": encoder, "_objective": objective, "_best_iteration": 0}
    vars(estimator).update(learned)


def _check_text(raw: bytes) -> dict[str, str]:
    """The header of LightGBM's text, if its trees are where and what it says."""
    head, _, _ = raw.partition(b"\n\nTree=")
    header = _fields(head)
    width, per_round = int(header["max_feature_idx"]) + 1, int(header["num_tree_per_iteration"])
    classes = int(header["num_class"])
    _require(re.match(r"binary\b|multiclass\b|multiclassova\b", header["objective"]), "it is no classifier")
    _require(per_round == classes and 1 <= classes < 2**16, "it has other classes than trees")
    for name in ("feature_names", "feature_infos"):
        _require(len(header[name].split(" ")) == width > 0, f"its {name} are not one per feature")
    sizes = _integers(header["tree_sizes"])
    _require(len(sizes) and len(sizes) % per_round == 0 and (sizes > 0).all(), "its trees are not whole rounds")
    ends = np.cumsum([len(head) + 2, *sizes.tolist()])
    _require(raw[ends[-1] :].startswith(b"end of trees") and raw.count(b"Tree=") == len(sizes), "trees are cut off")
    for number, (start, end) in enumerate(pairwise(ends.tolist())):
        tree = _fields(raw[start:end])
        _require(tree.get("Tree") == str(number), "its trees are not in their order")
        _check_leaves(tree, width)
    return header


def _check_leaves(tree: Mapping[str, str], width: int) -> None:
    leaves, count = int(tree["num_leaves"]), int(tree["num_cat"])
    _require(leaves > 0 and count >= 0 and tree.get("is_linear", "0") == "0", "a tree is of another kind")
    _require(len(tree["leaf_value"].split()) == leaves, _NODES)
    if leaves == 1:
        return
    names = ("left_child", "right_child", "split_feature", "decision_type")
    left, right, features, kinds = (_integers(tree[name]) for name in names)
    here, cuts = np.arange(leaves - 1), np.array([float(word) for word in tree["threshold"].split()])
    _require({len(part) for part in (left, right, features, kinds, cuts)} == {leaves - 1}, _NODES)
    for child in (left, right):
        _require(np.where(child < 0, ~child < leaves, (child > here) & (child < leaves - 1)).all(), _NODES)
    _require(((features >= 0) & (features < width)).all(), _FEATURES)
    split = (kinds & 1) == 1
    _require(not split.any() or count, _NODES)
    if count:
        bounds, sets = _integers(tree["cat_boundaries"]), _integers(tree["cat_threshold"])
        fits = len(bounds) == count + 1 and bounds[0] == 0 and (np.diff(bounds) >= 0).all() and bounds[-1] == len(sets)
        _require(fits and ((cuts[split] >= 0) & (cuts[split] < count)).all(), _NODES)


def _fields(block: bytes) -> dict[str, str]:
    """Lines `name=value` of a block, each name once."""
    lines = [line.partition("=")[::2] for line in block.decode().split("\n") if "=" in line]
    _require(len(dict(lines)) == len(lines), "a line occurs twice")
    return dict(lines)


def _integers(text: str) -> Integers:
    return np.array([int(word) for word in text.split()], dtype=np.int64)


def _load_catboost(estimator: Any, raw: bytes, classes: Any) -> None:
    estimator.load_model(blob=raw)
    _require(len(estimator.classes_) >= 2, "it is no classifier")


def _require(holds: Any, what: str) -> None:
    if not holds:
        raise ValueError(what)


_LOADERS: dict[str, Callable[[Any, bytes, Any], None]] = {
    "xgboost": _load_xgboost,
    "lightgbm": _load_lightgbm,
    "catboost": _load_catboost,
}


def _reader(library: str) -> Callable[[Path, bytes, LoadOptions], Model]:
    def read(path: Path, raw: bytes, options: LoadOptions) -> Model:
        estimator = read_booster(path, raw, library, classes=options.classes)
        threshold = 0.5 if options.threshold is None else options.threshold
        return options.confirm(path, as_model(estimator, threshold=threshold, feature_names=options.feature_names))

    return read


def _writer(library: str) -> Callable[[Any], bytes]:
    def write(model: Any) -> bytes:
        estimator = own_estimator(model)
        if type(estimator).__module__.split(".")[0] != library:
            raise Unsupported(f"{model!r} is not of {library}, whose file this would be; let `path` end in .apas.")
        return booster_bytes(estimator)

    return write


read_xgboost, xgboost_bytes = _reader("xgboost"), _writer("xgboost")
read_lightgbm, lightgbm_bytes = _reader("lightgbm"), _writer("lightgbm")
read_catboost, catboost_bytes = _reader("catboost"), _writer("catboost")
