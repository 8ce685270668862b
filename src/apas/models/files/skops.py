"""scikit-learn classifiers and pipelines from `.skops` files, in which only known types are made again."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

from apas._optional import require
from apas._sanitise import for_error
from apas.errors import GuaranteeWarning, InputError, UnsafeFile
from apas.models.files.formats import BROKEN, LoadOptions, first_line, pack, read_archive
from apas.models.files.json import parse_json
from apas.models.sklearn import LINEAR

#: Leftovers of training that nobody needs for an answer. They are left out, and need not be known.
UNUSED = {"_optimizer", "_random_state", "loss_function_", "_loss_function_"}
_NUMBERS = {
    "bool", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "str_", "uint8",
    "uint16", "uint32", "uint64",
}  # fmt: skip
_PLAIN = {"str", "int", "float", "bool"}
#: Functions that a `FunctionTransformer` may have: one number in, one number out.
_FUNCTIONS = {
    "absolute", "arcsinh", "cbrt", "exp", "expm1", "log", "log10", "log1p", "log2", "negative", "reciprocal",
    "sign", "sqrt", "square", "tanh",
}  # fmt: skip
#: Where NumPy says that these are; older versions name the file that they are compiled into.
_OF_UFUNCS = {"numpy", "numpy._core._multiarray_umath"}
_ESTIMATORS = {
    "pipeline": {"FeatureUnion", "Pipeline"},
    "compose": {"ColumnTransformer", "make_column_selector"},
    "linear_model": set(LINEAR) - {"LinearDiscriminantAnalysis", "LinearSVC"},
    "svm": {"LinearSVC"},
    "discriminant_analysis": {"LinearDiscriminantAnalysis"},
    "neural_network": {"MLPClassifier"},
    "decomposition": {"PCA", "TruncatedSVD"},
    "feature_selection": {"VarianceThreshold"},
    "impute": {"MissingIndicator", "SimpleImputer"},
    "preprocessing": {
        "Binarizer", "FunctionTransformer", "KBinsDiscretizer", "LabelBinarizer", "MaxAbsScaler", "MinMaxScaler",
        "Normalizer", "OneHotEncoder", "OrdinalEncoder", "PolynomialFeatures", "PowerTransformer",
        "QuantileTransformer", "RobustScaler", "StandardScaler", "TargetEncoder",
    },
}  # fmt: skip
#: Modules that scikit-learn keeps its classes in: the package itself, or a private module directly inside, which is
#: called differently in different versions.
_MODULE = re.compile(r"sklearn\.([a-z_]+)(\._[a-z_]+)?")


def is_known(loader: str, module: str, name: str) -> bool:
    """Whether skops may make a `module`.`name` by `loader`: never by one that calls what the file names."""
    if loader == "ObjectNode":
        found = _MODULE.fullmatch(module)
        return found is not None and name in _ESTIMATORS.get(found[1], ())
    if loader == "FunctionNode":
        return module in _OF_UFUNCS and name in _FUNCTIONS
    if loader == "TypeNode":
        return name in (_PLAIN if module == "builtins" else _NUMBERS if module == "numpy" else ())
    if loader == "NdArrayNode":
        return module == "numpy" and name in {"ndarray", *_NUMBERS}
    expected = {
        "DictNode": ("builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"),
        "DTypeNode": ("numpy.dtype",),
        "JsonNode": ("builtins.str",),
        "ListNode": ("builtins.list",),
        "SetNode": ("builtins.set",),
        "SliceNode": ("builtins.slice",),
        "TupleNode": ("builtins.tuple",),
    }
    return f"{module}.{name}" in expected.get(loader, ())


def public_module(loader: str, module: str) -> str:
    """The module to import for a known type: the package that offers it, whatever the file says."""
    if loader == "FunctionNode":
        return "numpy"  # modules inside could run code when they are imported
    return ".".join(module.split(".")[:2]) if loader == "ObjectNode" else module


SCHEMA = "schema.json"


def read_skops(path: Path, raw: bytes, options: LoadOptions) -> Any:
    """Read a classifier or pipeline that ``skops.io.dump`` wrote."""
    # Every type in the file is looked up in a list of our own first. What skops then reads is a new archive of what was
    # looked at, so that both see the same.
    from apas.models.sklearn import from_sklearn

    if raw[:4] != b"PK\x03\x04":
        raise InputError(f"{path} is not a .skops file; write it with skops.io.dump(estimator, path).")
    members = read_archive(path, raw)
    if SCHEMA not in members:
        raise InputError(f"{path} is an archive, but not a .skops file: it has no {SCHEMA}.")
    schema = parse_json(path, members[SCHEMA], f"{SCHEMA} in ")
    trusted = _check_types(path, schema)
    members[SCHEMA] = json.dumps(schema).encode()
    estimator = _load_estimator(path, pack(members), sorted(trusted))
    if type(estimator).__module__.split(".")[0] != "sklearn":
        raise InputError(f"{path} must hold a scikit-learn classifier, but holds a {type(estimator).__name__}.")
    threshold = 0.5 if options.threshold is None else options.threshold
    try:
        model = from_sklearn(estimator, threshold=threshold, feature_names=options.feature_names)
    except BROKEN as error:  # those of our own say so themselves
        raise InputError(f"{path} does not hold a usable classifier: {first_line(error)}") from error
    said = LoadOptions(activation=options.activation, output=options.output, classes=options.classes)
    return said.confirm(path, model)


def _load_estimator(path: Path, content: bytes, trusted: list[str]) -> Any:
    library = require("skops.io", feature="a .skops file", extra="skops")
    from sklearn.exceptions import InconsistentVersionWarning

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InconsistentVersionWarning)
            estimator = library.loads(content, trusted=trusted)
    except RecursionError:
        raise
    except BROKEN as error:
        raise InputError(f"{path} cannot be read by skops: {first_line(error)}") from None
    for warning in [w.message for w in caught if isinstance(w.message, InconsistentVersionWarning)][:1]:
        warnings.warn(
            f"{path} was written by scikit-learn {warning.original_sklearn_version}, but this is "
            f"{warning.current_sklearn_version}, which may read it otherwise; compare some predictions.",
            GuaranteeWarning,
            stacklevel=4,
        )
    return estimator


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
                found.add(_known_type(path, node))
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
    for name in UNUSED & set(attributes):
        del attributes[name]
        del keys["content"][-1:]  # names of attributes are all texts, so that any of them will do


def _known_type(path: Path, node: dict[str, Any]) -> str:
    loader, module, name = (node.get(key) for key in ("__loader__", "__module__", "__class__"))
    texts = isinstance(loader, str) and isinstance(module, str) and isinstance(name, str)
    if not texts or not is_known(str(loader), str(module), str(name)):
        kind, by = for_error(f"{module}.{name}", 100), for_error(str(loader), 40)
        raise UnsafeFile(
            f"{path} holds a {kind} (by {by}), which is not among the types of scikit-learn that apas "
            "makes from a file, as others could run code; read it in your own program with skops.io.load, and give "
            "apas the estimator."
        )
    node["__module__"] = public_module(str(loader), str(module))  # no other module is imported
    return f"{node['__module__']}.{name}"
