"""Archives: `.skops` of scikit-learn, in which only known types are made again, and `.apas` of any classifier.

An `.apas` file holds a classifier with all that belongs to it: its library's own file, and a description.
"""

import json
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apas._fields import parse_json
from apas._lazy import require
from apas._sanitise import for_error
from apas.errors import GuaranteeWarning, InputError, UnsafeFile, Unsupported
from apas.models.base import Dense, FromEstimator, Model, offers
from apas.models.digest import LEFTOVERS
from apas.models.files import formats
from apas.models.files.boosters import booster_bytes, read_booster
from apas.models.predictor import CLASSIFIERS

_require = formats.require_that

#: Stands for the generator of random numbers that boosting gives its trees, and training has used up.
_USED_UP = "a generator that training has used up"
#: By skops's loaders and by modules, the names of what may be made; never by a loader that calls what the file names.
_KNOWN: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("skops_types.json").read_text("utf-8"))
#: Modules that scikit-learn keeps its classes in: the package itself, or a private module directly inside, which is
#: called differently in different versions.
_MODULE = re.compile(r"(sklearn\.[a-z_]+)\._[a-z_]+")
#: What offers in public what these modules hold; modules inside of NumPy could run code when they are imported.
_PUBLIC = {
    "numpy._core._multiarray_umath": "numpy",
    "sklearn.metrics._classification": "sklearn.metrics",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": "sklearn.ensemble",
}


def module_of(loader: str, module: str, name: str) -> str | None:
    """The module to import for a type that skops may make by `loader`, whatever the file says; None for all others."""
    inside = _MODULE.fullmatch(module) if loader == "ObjectNode" and module not in _KNOWN[loader] else None
    # the package stands for what lies in a private module directly inside
    listed = inside[1] if inside else module
    known = name in _KNOWN.get(loader, {}).get(listed, ())
    return _PUBLIC.get(module) or listed if known else None


SCHEMA = "schema.json"


def skops_bytes(model: Any) -> bytes:
    """Give the estimator that a model was read from as the bytes of a ``.skops`` file."""
    return dump_estimator(formats.own_estimator(model))


def dump_estimator(estimator: Any) -> bytes:
    """A scikit-learn estimator as skops writes it."""
    library = require("skops.io", feature="a .skops file", extra="skops")
    try:
        content: bytes = library.dumps(estimator)
    except Exception as error:  # skops has exceptions of its own, and so has what it asks for its state
        why = f"{type(estimator).__name__} cannot be written by skops:"
        raise Unsupported(f"{why} {formats.first_line(error)}") from error
    return content


def read_skops(path: Path, raw: bytes, options: formats.LoadOptions) -> Any:
    """Read a classifier or pipeline that ``skops.io.dump`` wrote."""
    return formats.read_classifier(path, load_estimator(path, raw), options)


def load_estimator(path: Path, raw: bytes) -> Any:
    """The estimator in a ``.skops`` file, of known types, none of whose arrays leads out of another."""
    # Every type in the file is looked up in a list of our own first. What skops then reads is a new archive of what was
    # looked at, so that both see the same.
    if raw[:4] != b"PK\x03\x04":
        raise InputError(f"{path} is not a .skops file; write it with skops.io.dump(estimator, path).")
    members = formats.read_archive(path, raw)
    if SCHEMA not in members:
        raise InputError(f"{path} is an archive, but not a .skops file: it has no {SCHEMA}.")
    schema = parse_json(path, members[SCHEMA], f"{SCHEMA} in ")
    trusted = _check_types(path, schema)
    members[SCHEMA] = json.dumps(schema).encode()
    library = require("skops.io", feature="a .skops file", extra="skops")
    from sklearn.exceptions import InconsistentVersionWarning

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InconsistentVersionWarning)
            estimator = library.loads(formats.pack(members), trusted=sorted(trusted))
    except RecursionError:
        raise
    except formats.BROKEN as error:
        raise InputError(f"{path} cannot be read by skops: {formats.first_line(error)}") from None
    for warning in [w.message for w in caught if isinstance(w.message, InconsistentVersionWarning)][:1]:
        told = f"{path} was written by scikit-learn {warning.original_sklearn_version}, but this is"
        now = f"{warning.current_sklearn_version}, which may read it otherwise; compare some predictions."
        warnings.warn(f"{told} {now}", GuaranteeWarning, stacklevel=4)
    if type(estimator).__module__.split(".")[0] != "sklearn":
        raise InputError(f"{path} must hold a scikit-learn classifier, but holds a {type(estimator).__name__}.")
    try:
        parts = _parts(estimator)
        for kinds in _CHECKS:  # trees before what asks for their values
            for part in parts:
                if any(name.endswith("_") for name in vars(part)) or not hasattr(part, "fit"):  # it is fitted
                    kinds.get(type(part).__name__, _check_members)(part)
    except formats.BROKEN as error:
        raise InputError(f"{path} does not hold a usable classifier: {formats.first_line(error)}") from None
    return estimator


def _parts(estimator: Any) -> list[Any]:
    """Every object in an estimator that has members."""
    found: list[Any] = []
    waiting, seen = [estimator], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple | set):
            waiting.extend(value)
        elif isinstance(value, np.ndarray):
            waiting.extend(value.ravel().tolist() if value.dtype.hasobject else ())
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            found.append(value)
            waiting.extend(vars(value).values())
    return found


# What follows reads arrays in compiled code that trusts the numbers in them: a file could lead it out of its memory.


def _check_members(part: Any) -> None:
    """Members of an object, none of which stands in for a method, as of one that checks rows."""
    _require(not any(callable(getattr(type(part), name, None)) for name in vars(part)), "a member hides a method")
    if getattr(part, "random_state", None) == _USED_UP:
        part.random_state = np.random.RandomState(0)


def _check_tree(part: Any) -> None:
    """Nodes of a decision tree: children come after their parent and exist, features exist."""
    from sklearn.tree._tree import Tree

    tree = part.tree_
    _require(type(tree) is Tree and tree.node_count == tree.capacity > 0, "a tree lacks nodes")  # before they are read
    children = (tree.children_left, tree.children_right)
    _require(((children[0] != -1) == (children[1] != -1)).all(), "a node of a tree has one child")
    formats.check_nodes(children, tree.feature, children[0] != -1, tree.n_features)
    one = tree.n_outputs == 1 and tree.n_features == part.n_features_in_ == int(part.n_features_in_)
    _require(one and part.n_outputs_ == 1, "a tree is for other features or outputs")


def _check_forest(part: Any) -> None:
    """Trees of a forest, which look at its rows without asking."""
    same = (type(tree).__name__ in _TREES and tree.n_features_in_ == part.n_features_in_ for tree in part.estimators_)
    _require(isinstance(part.estimators_, list) and all(same) and part.n_outputs_ == 1, "a forest has other trees")


def _check_boosting(part: Any) -> None:
    """Trees of gradient boosting, which write into a matrix with a column per tree of a round."""
    trees = part.estimators_
    _require(isinstance(trees, np.ndarray) and trees.ndim == 2 and trees.size, "boosting has no table of trees")
    for tree in trees.ravel():
        fits = type(tree).__name__ == "DecisionTreeRegressor" and tree.n_features_in_ == part.n_features_in_
        _require(fits and tree.tree_.value.shape[1:] == (1, 1), "boosting has other trees")
    _require(part.init_ == "zero" or type(part.init_).__name__ == "DummyClassifier", "boosting starts from a model")
    start = part._raw_predict_init(np.zeros((1, part.n_features_in_), dtype=np.float32))
    _require(start.shape == (1, trees.shape[1]), "boosting has other classes than trees")


def _check_predictor(part: Any) -> None:
    """Nodes of a tree over histograms; which features there are, `_check_histograms` knows."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    nodes = part.nodes
    _require(nodes.dtype == PREDICTOR_RECORD_DTYPE and nodes.ndim == 1 and len(nodes), "a tree lacks nodes")
    children = [nodes[name].astype(np.int64) for name in ("left", "right")]
    formats.check_nodes(children, np.zeros(len(nodes), dtype=np.int64), nodes["is_leaf"] == 0, 1)
    _require(not nodes["is_categorical"].any(), "its trees split by categories, which apas does not read from a file")


def _check_histograms(part: Any) -> None:
    for tree in (tree for trees in part._predictors for tree in trees):
        _require(type(tree).__name__ == "TreePredictor", "boosting has other trees")
        features = tree.nodes["feature_idx"][tree.nodes["is_leaf"] == 0]
        _require(((features >= 0) & (features < part.n_features_in_)).all(), "a tree asks for a feature not there")
    _require(part._preprocessor is None and not np.any(part._bin_mapper.is_categorical_), "it has categories")


def _check_vectors(part: Any) -> None:
    """Support vectors, of which libsvm reads as many as others say there are."""
    of_class, vectors, pairs = np.asarray(part._n_support), part.support_vectors_, len(part.classes_)
    count, pairs = int(of_class.sum()), pairs * (pairs - 1) // 2
    whole = (of_class >= 0).all() and of_class.shape == part.classes_.shape and not part._sparse
    plain = part.kernel in ("linear", "poly", "rbf", "sigmoid") and "_impl" not in vars(part)
    _require(whole and plain and count == len(part.support_), "its support vectors are of another kind")
    shapes = [vectors.shape, part._dual_coef_.shape, part._intercept_.shape, part.dual_coef_.shape]
    table = (len(of_class) - 1, count)
    fits = shapes == [(count, part.n_features_in_), table, (pairs,), table]
    scales = {part._probA.shape, part._probB.shape} <= {(0,), (pairs,)}
    _require(fits and scales and part._probA.shape == part._probB.shape, "its support vectors do not fit its numbers")


def _check_neighbours(part: Any) -> None:
    """Rows of a k-NN classifier and their classes; the tree to search them by is made again."""
    rows, classes = part._fit_X, np.asarray(part._y)
    table = isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2
    _require(table and rows.shape == (part.n_samples_fit_, part.n_features_in_), "its rows are no table of numbers")
    known = classes.dtype.kind == "i" and classes.shape == (len(rows),) and not part.outputs_2d_
    _require(known and ((classes >= 0) & (classes < len(part.classes_))).all(), "its rows are of no known class")
    metric = part.effective_metric_
    _require(metric in ("euclidean", "manhattan", "minkowski", "chebyshev"), f"it has the distance {metric!r}")
    from sklearn.neighbors import BallTree, KDTree

    kinds = {"brute": None, "kd_tree": KDTree, "ball_tree": BallTree}
    kind = kinds[part._fit_method]
    given = {"metric": metric, **part.effective_metric_params_}
    part._tree = None if kind is None else kind(rows, part.leaf_size, **given)


_TREES = ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier")
_CHECKS: list[dict[str, Callable[[Any], None]]] = [
    {},
    {**dict.fromkeys(_TREES, _check_tree), "TreePredictor": _check_predictor},
    {
        **dict.fromkeys(("RandomForestClassifier", "ExtraTreesClassifier"), _check_forest),
        **dict.fromkeys(("SVC", "NuSVC"), _check_vectors),
        "GradientBoostingClassifier": _check_boosting,
        "HistGradientBoostingClassifier": _check_histograms,
        "KNeighborsClassifier": _check_neighbours,
    },
]


def _check_types(path: Path, schema: Any) -> set[str]:
    """Names of the types in the file, all of them known; in `schema` modules become public, leftovers are taken out."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("__loader__") == "ObjectNode":
                _leave_out(node)
            if "__loader__" in node or "__class__" in node:
                said = [node.get(key) for key in ("__loader__", "__module__", "__class__")]
                module = module_of(*map(str, said)) if all(isinstance(text, str) for text in said) else None
                if module is None:
                    kind, by = for_error(f"{said[1]}.{said[2]}", 100), for_error(str(said[0]), 40)
                    raise UnsafeFile(
                        f"{path} holds a {kind} (by {by}), which is not among the types of scikit-learn that apas "
                        "makes from a file, as others could run code; read it in your own program with skops.io.load, "
                        "and give apas the estimator."
                    )
                node["__module__"] = module  # no other module is imported
                found.add(f"{module}.{said[2]}")
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found


def _leave_out(node: dict[str, Any]) -> None:
    state = node.get("content")
    attributes = state.get("content") if isinstance(state, dict) else None
    keys = state.get("key_types") if isinstance(state, dict) else None
    if not isinstance(attributes, dict) or not isinstance(keys, dict) or not isinstance(keys.get("content"), list):
        return
    for name in LEFTOVERS & set(attributes):
        del attributes[name]
        del keys["content"][-1:]  # names of attributes are all texts, so that any of them will do
    seed = attributes.get("random_state")
    if node.get("__class__") in _TREES and isinstance(seed, dict) and seed.get("__loader__") == "RandomStateNode":
        text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
        attributes["random_state"] = {**text, "content": json.dumps(_USED_UP), "is_json": True}


ABOUT, STEPS = "about.json", "preprocessing.skops"
MEMBERS = {"feedforward": "model.json", "sklearn": "model.skops", "xgboost": "model.ubj", "lightgbm": "model.txt"}
MEMBERS["catboost"] = "model.cbm"
_FIELDS = ("format", "version", "kind", "class", "step", "classes", "feature_names", "threshold", "settings")
#: Settings whose texts name files, folders or machines: they are of one machine, and nobody's file may choose them.
_PLACES = ("file", "dir", "path", "machine", "host", "url", "snapshot", "logging", "device", "plugin")


def container_bytes(model: Any) -> bytes:
    """Give any classifier of a library, or a dense network, as the bytes of an ``.apas`` file."""
    about: dict[str, Any] = dict.fromkeys(_FIELDS)
    about |= {"format": "apas-classifier", "version": 1, "classes": list(model.classes)}
    members: dict[str, bytes] = {}
    if offers(model, Dense) and not offers(model, FromEstimator):
        about["kind"], content = "feedforward", formats.json_bytes(model.as_feedforward())
    else:
        estimator = formats.own_estimator(model)
        final = estimator[-1] if type(estimator).__name__ == "Pipeline" else estimator
        library = type(final).__module__.split(".")[0]
        about |= model.read_options
        if library in CLASSIFIERS:
            about |= {"kind": library, "class": type(final).__name__, "settings": _settings(final)}
            content = booster_bytes(final)
            if final is not estimator:
                about["step"] = estimator.steps[-1][0]
                members[STEPS] = dump_estimator(estimator[:-1])
        else:
            about["kind"], content = "sklearn", dump_estimator(estimator)
    told = json.dumps(about, allow_nan=False).encode()
    return formats.pack({ABOUT: told, MEMBERS[about["kind"]]: content, **members})


def _settings(estimator: Any) -> dict[str, Any] | None:
    """Settings other than the library's own, if all of them can be written down."""
    usual = type(estimator)().get_params()
    given = {name: value for name, value in estimator.get_params().items() if not _same(value, usual.get(name))}
    return given if all(_is_plain(name, value) for name, value in given.items()) else None


def _same(value: Any, other: Any) -> bool:
    try:
        return bool(value is other or value == other or (math.isnan(value) and math.isnan(other)))
    except (TypeError, ValueError):
        return False


def _is_plain(name: str, value: Any) -> bool:
    """Whether a setting is a number, a text or a list or table of them, and chooses no place on a machine."""
    if isinstance(value, list | tuple):
        return all(_is_plain(name, part) for part in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(name, part) for key, part in value.items())
    if isinstance(value, str):
        return not any(word in name for word in _PLACES)
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def read_container(path: Path, raw: bytes, options: formats.LoadOptions) -> Model:
    """Read the classifier that `raw`, the bytes of `path`, holds."""
    if raw[:4] != b"PK\x03\x04":
        raise InputError(f"{path} is not an .apas file; write it with apas.save_model(model, path).")
    members = formats.read_archive(path, raw)
    if ABOUT not in members:
        raise InputError(f"{path} is an archive, but not an .apas file: it has no {ABOUT}.")
    about = _check_about(path, parse_json(path, members.pop(ABOUT), f"{ABOUT} in ", finite=True))
    kind, behind = about["kind"], about["step"] is not None
    wanted = {MEMBERS[kind], *((STEPS,) if behind else ())}
    if set(members) != wanted:
        raise InputError(f"{path} must hold {' and '.join(sorted(wanted))} besides {ABOUT}, and nothing else.")
    content = members[MEMBERS[kind]]
    if kind == "feedforward":
        return formats.read_json(path, content, options)
    if kind == "sklearn":
        estimator = load_estimator(path, content)
    else:
        estimator = read_booster(path, content, kind, about["class"], about["settings"], about["classes"])
    if behind:
        from sklearn.pipeline import Pipeline

        before = load_estimator(path, members[STEPS])
        if type(before) is not Pipeline:
            raise InputError(f"{path} must hold a Pipeline as its preprocessing, but {STEPS} is another.")
        estimator = Pipeline([*before.steps, (about["step"], estimator)])
    said = formats.LoadOptions(threshold=about["threshold"], feature_names=about["feature_names"])
    model = formats.read_classifier(path, estimator, said)
    if [*model.classes] != about["classes"]:
        raise InputError(f"{path} says that its classes are others than those of the model in it.")
    return options.confirm(path, model)


def _check_about(path: Path, about: Any) -> dict[str, Any]:
    if not isinstance(about, dict) or about.get("format") != "apas-classifier" or about.get("version") != 1:
        raise InputError(f'{ABOUT} in {path} must say "format": "apas-classifier" and "version": 1; use a newer apas.')
    texts = (about.get("class"), about.get("step"))
    level, names, classes, settings = (about.get(key) for key in ("threshold", "feature_names", "classes", "settings"))
    kind, is_table = about.get("kind"), isinstance(settings, dict)
    booster = CLASSIFIERS.get(kind) if isinstance(kind, str) else None
    plain = settings is None or (is_table and all(_is_plain(name, value) for name, value in settings.items()))
    right = {
        "kind": isinstance(kind, str) and kind in MEMBERS,
        "class": texts[0] in booster if booster is not None else texts[0] is None,
        "step": texts[1] is None or (isinstance(texts[1], str) and booster is not None and "__" not in texts[1]),
        "threshold": isinstance(level, float) if kind != "feedforward" else level is None,
        "feature_names": names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)),
        "classes": isinstance(classes, list) and all(isinstance(label, str | int | float) for label in classes),
        "settings": plain and (booster is not None or settings is None),
    }
    wrong = [name for name, fine in right.items() if not fine] or sorted(set(about) ^ set(_FIELDS))
    if wrong:
        raise InputError(f"{ABOUT} in {path} has no usable {wrong[0]!r}, so it is not an .apas file of this version.")
    return about
