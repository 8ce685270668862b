"""Boosted trees in the files of their own libraries: XGBoost's `.ubj`, LightGBM's `.txt`, CatBoost's `.cbm`.

None of them can run code. What a library would follow without looking, where children and features of a tree are, is
checked here. Of CatBoost's format nobody but the library can tell: another process reads such a file first.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from apas._lazy import require
from apas._typing import Integers
from apas.errors import InputError, Unsupported
from apas.models.base import Model
from apas.models.files import formats
from apas.models.predictor import CLASSIFIERS, catboost_file

_require = formats.require_that


def booster_bytes(estimator: Any) -> bytes:
    """A fitted classifier of one of the libraries as its own file."""
    library = type(estimator).__module__.split(".")[0]
    if library == "xgboost":
        return bytes(estimator.get_booster().save_raw("ubj"))
    if library == "lightgbm":
        text: str = estimator.booster_.model_to_string()
        return text.encode()
    content = catboost_file(estimator, "cbm")
    _SURVIVED.add(hashlib.sha256(content).digest())
    return content


def read_booster(
    path: Path, raw: bytes, library: str, name: str = "", settings: Any = None, classes: Any = None
) -> Any:
    """A classifier of one of the libraries from its own file, and from settings and labels that stand elsewhere."""
    module = require(library, feature=f"a model of {library}", extra="libraries")
    made = getattr(module, name or CLASSIFIERS[library][0])
    try:
        estimator = made(**(settings or {}))
        given = estimator.get_params()
        _LOADERS[library](estimator, raw, classes)
        for key, value in given.items():  # XGBoost takes what it has learned for settings
            if library == "xgboost" and estimator.get_params()[key] is not value:
                setattr(estimator, key, value)
    except Exception as error:  # each library has errors of its own
        own = type(error).__name__ in ("CatBoostError", "LightGBMError")
        if not own and not isinstance(error, formats.BROKEN):
            raise
        raise InputError(f"{path} cannot be read by {library}: {formats.first_line(error)}") from None
    estimator.settings_lost_ = settings is None
    return estimator


def _load_xgboost(estimator: Any, raw: bytes, classes: Any) -> None:
    # what the library gets is what was looked at, as JSON: its reader of UBJSON follows lengths that are not there
    model = _Ubjson(raw).value()
    _check_xgboost(model["learner"])
    estimator.load_model(bytearray(json.dumps(model).encode()))


class _Ubjson:
    """UBJSON as XGBoost writes it, read within its bytes."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def _take(self, size: int) -> bytes:
        _require(0 <= size <= len(self.raw) - self.at, "it is cut off")
        self.at += size
        return self.raw[self.at - size : self.at]

    def _peek(self, mark: bytes) -> bool:
        """Whether a mark is next, which is then taken."""
        found = self.raw[self.at : self.at + 1] == mark
        self.at += found
        return found

    def _numbers(self, mark: bytes, count: int) -> list[Any]:
        kind = np.dtype(_NUMBERS[mark])
        found = np.frombuffer(self._take(count * kind.itemsize), dtype=kind)
        # the shortest text of a float32 is read as the same float32, by any reader
        return [float(text) for text in found.astype("U")] if mark == b"d" else found.tolist()

    def _size(self) -> int:
        return int(self._numbers(self._take(1), 1)[0])

    def value(self) -> Any:
        """The next value."""
        mark = self._take(1)
        if mark == b"{":
            fields: dict[str, Any] = {}
            while not self._peek(b"}"):
                name = self._take(self._size()).decode()
                _require(name not in fields, "a field occurs twice")
                fields[name] = self.value()
            return fields
        if mark == b"[":
            if self._peek(b"$"):
                kind = self._take(1)
                _require(self._peek(b"#"), "a list has no length")
                return self._numbers(kind, self._size())
            if self._peek(b"#"):
                return [self.value() for _ in range(self._size())]
            found = []
            while not self._peek(b"]"):
                found.append(self.value())
            return found
        if mark == b"S":
            return self._take(self._size()).decode()
        return {b"T": True, b"F": False, b"Z": None}[mark] if mark in b"TFZ" else self._numbers(mark, 1)[0]


_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_PER_NODE = {"base_weights", "default_left", "left_children", "loss_changes", "parents", "right_children"}
_PER_NODE |= {"split_conditions", "split_indices", "split_type", "sum_hessian"}


def _check_xgboost(learner: Any) -> None:
    """Trees whose children and features are there, as many as are said, and none of another kind."""
    said, booster = learner["learner_model_param"], learner["gradient_booster"]
    width, groups = int(said["num_feature"]), max(1, int(said["num_class"]))
    trees_only = booster["name"] in ("gbtree", "dart") and learner["objective"]["name"] in _OBJECTIVES
    _require(trees_only and 0 < width < 2**31 and groups < 2**16, "it is no classifier of trees")
    drops = booster["weight_drop"] if booster["name"] == "dart" else None
    model = (booster["gbtree"] if drops is not None else booster)["model"]
    trees, rounds = model["trees"], model["iteration_indptr"]
    several = int(model["gbtree_model_param"]["num_parallel_tree"]) > 0 and int(said.get("num_target", 1)) == 1
    count = int(model["gbtree_model_param"]["num_trees"]) == len(trees) == len(model["tree_info"]) > 0
    _require(several and count and (drops is None or len(drops) == len(trees)), "it has other trees than it says")
    _require(rounds[0] == 0 and rounds[-1] == len(trees) and rounds == sorted(rounds), "its rounds are not whole")
    _require(all(0 <= group < groups for group in model["tree_info"]), "a tree is of no class")
    _require(not any(model.get("cats", {}).values()), "it knows categories by name, which apas does not read")
    names = (learner["feature_names"], learner["feature_types"])
    _require(all(len(part) in (0, width) for part in names), "its names are not one per feature")
    for tree in trees:
        about, n = tree["tree_param"], len(tree["left_children"])
        whole = int(about["num_nodes"]) == n > 0 and {len(tree[name]) for name in _PER_NODE} == {n}
        one = int(about["num_feature"]) == width and int(about["size_leaf_vector"]) <= 1
        _require(whole and one and 0 <= int(about["num_deleted"]) < n, "a tree is of another kind")
        columns = ("left_children", "right_children", "parents", "split_indices", "split_type")
        left, right, parents, features, kinds = (np.asarray(tree[name], dtype=np.int64) for name in columns)
        here, inner = np.arange(n), left != -1
        _require(((right != -1) == inner).all(), formats.NODES)
        formats.check_nodes((left, right), features, inner, width)
        _require(all((parents[child[inner]] == here[inner]).all() for child in (left, right)), formats.NODES)
        nodes, starts, sizes = (tree[f"categories_{key}"] for key in ("nodes", "segments", "sizes"))
        spans = zip(starts, sizes, strict=True)
        known = len(nodes) == len(starts) and set(here[inner & (kinds == 1)].tolist()) <= set(nodes) <= set(range(n))
        _require(known and all(0 <= at <= at + size <= len(tree["categories"]) for at, size in spans), formats.NODES)


_OBJECTIVES = ("binary:logistic", "binary:logitraw", "multi:softprob", "multi:softmax")


def _load_lightgbm(estimator: Any, raw: bytes, classes: Any) -> None:
    header, size = _check_text(raw)
    count = max(2, int(header["num_class"]))
    labels = np.array(range(count) if classes is None else classes)
    _require(len(labels) == count == len(set(labels.tolist())), f"it has {count} classes, not {len(labels)}")
    library = require("lightgbm", feature="a model of lightgbm", extra="libraries")
    # settings of the training decide no answer, and its reader trusts them: it gets the trees, and names of categories
    names = json.loads(raw.rpartition(b"pandas_categorical:")[2])
    _require(names is None or isinstance(names, list), "it has no names of categories")
    rest = "end of trees\n\nparameters:\n[boosting: gbdt]\n\nend of parameters\n\npandas_categorical:"
    booster = library.Booster(model_str=f"{raw[:size].decode()}{rest}{json.dumps(names)}\n")
    encoder = library.compat._LGBMLabelEncoder().fit(labels)
    _require(encoder.classes_.tolist() == labels.tolist(), "its labels are not in their order")
    width, objective = booster.num_feature(), header["objective"].split(" ")[0]
    learned = {"_Booster": booster, "_n_features": width, "_n_features_in": width, "_classes": labels, "fitted_": True}
    learned |= {"_n_classes": count, "_le": encoder, "_objective": objective, "_best_iteration": 0}
    vars(estimator).update(learned)


def _check_text(raw: bytes) -> tuple[dict[str, str], int]:
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
    return header, int(ends[-1])


def _check_leaves(tree: Mapping[str, str], width: int) -> None:
    leaves, count = int(tree["num_leaves"]), int(tree["num_cat"])
    _require(leaves > 0 and count >= 0 and tree.get("is_linear", "0") == "0", "a tree is of another kind")
    _require(len(tree["leaf_value"].split()) == leaves, formats.NODES)
    if leaves == 1:
        return
    names = ("left_child", "right_child", "split_feature", "decision_type")
    left, right, features, kinds = (_integers(tree[name]) for name in names)
    here, cuts = np.arange(leaves - 1), np.array([float(word) for word in tree["threshold"].split()])
    _require({len(part) for part in (left, right, features, kinds, cuts)} == {leaves - 1}, formats.NODES)
    for child in (left, right):
        _require(np.where(child < 0, ~child < leaves, (child > here) & (child < leaves - 1)).all(), formats.NODES)
    _require(((features >= 0) & (features < width)).all(), formats.FEATURES)
    split = (kinds & 1) == 1
    _require(not split.any() or count, formats.NODES)
    if count:
        bounds, sets = _integers(tree["cat_boundaries"]), _integers(tree["cat_threshold"])
        fits = len(bounds) == count + 1 and bounds[0] == 0 and (np.diff(bounds) >= 0).all() and bounds[-1] == len(sets)
        _require(fits and ((cuts[split] >= 0) & (cuts[split] < count)).all(), formats.NODES)


def _fields(block: bytes) -> dict[str, str]:
    """Lines `name=value` of a block, each name once."""
    lines = [line.partition("=")[::2] for line in block.decode().split("\n") if "=" in line]
    _require(len(dict(lines)) == len(lines), "a line occurs twice")
    return dict(lines)


def _integers(text: str) -> Integers:
    return np.array([int(word) for word in text.split()], dtype=np.int64)


#: Does with a file what is done with it here, and predicts two rows; errors are met again here, and told.
_TRIAL = """
import sys
sys.path[:] = sys.argv[1:]
import catboost, pathlib, tempfile
try:
    model = catboost.CatBoostClassifier()
    model.load_model(blob=sys.stdin.buffer.read())
    with tempfile.TemporaryDirectory() as folder:
        model.save_model(str(pathlib.Path(folder) / "model.json"), format="json")
    texts = set(model.get_cat_feature_indices())
    model.predict([[0 if j in texts else number for j in range(len(model.feature_names_))] for number in (0.0, 1e9)])
except Exception:
    pass
"""
_PATIENCE = 120.0  # seconds that it may take
#: Files, by their SHA-256, that another process has read, or that were written here.
_SURVIVED: set[bytes] = set()


def _load_catboost(estimator: Any, raw: bytes, classes: Any) -> None:
    # another process reads the file first: the library follows offsets in it wherever they lead
    if (key := hashlib.sha256(raw).digest()) not in _SURVIVED:
        command = [sys.executable, "-I", "-c", _TRIAL, *sys.path]
        try:
            # our own program, and the file as its input
            subprocess.run(command, input=raw, capture_output=True, timeout=_PATIENCE, check=True)  # noqa: S603
        except (subprocess.SubprocessError, OSError):
            raise ValueError("a process that tried to read it did not survive") from None
        _SURVIVED.add(key)
    estimator.load_model(blob=raw)
    # its JSON, which can be looked at, comes back with other last digits, so the binary file is what predicts
    told = json.loads(catboost_file(estimator, "json"))
    features, trees = told["features_info"], told.get("oblivious_trees")
    widths = {kind: len(features.get(f"{kind}_features", ())) for kind in ("float", "cat", "categorical")}
    count, bias = len(estimator.classes_), told["scale_and_bias"][1]
    outputs = 1 if count == 2 else count
    _require(trees and count >= 2 and len(bias) == outputs, "it is no classifier of symmetric trees")
    for tree in trees or ():
        splits = tree["splits"] or ()
        _require(len(tree["leaf_values"]) == outputs << len(splits) and len(splits) <= 16, formats.NODES)
        for split in splits:
            kind = {"FloatFeature": "float", "OneHotFeature": "cat"}.get(split["split_type"], "")
            number = split.get(f"{kind}_feature_index", 0)
            width = max(widths["cat"], widths["categorical"]) if kind == "cat" else widths.get(kind, 1)
            _require(type(number) is int and 0 <= number < width, formats.FEATURES)


_LOADERS: dict[str, Callable[[Any, bytes, Any], None]] = {"xgboost": _load_xgboost, "lightgbm": _load_lightgbm}
_LOADERS["catboost"] = _load_catboost


def _read(library: str, path: Path, raw: bytes, options: formats.LoadOptions) -> Model:
    return formats.read_classifier(path, read_booster(path, raw, library, classes=options.classes), options)


def _write(library: str, model: Any) -> bytes:
    estimator = formats.own_estimator(model)
    if type(estimator).__module__.split(".")[0] != library:
        raise Unsupported(f"{model!r} is not of {library}, whose file this would be; let `path` end in .apas.")
    return booster_bytes(estimator)


read_xgboost, read_lightgbm, read_catboost = (partial(_read, library) for library in CLASSIFIERS)
xgboost_bytes, lightgbm_bytes, catboost_bytes = (partial(_write, library) for library in CLASSIFIERS)
