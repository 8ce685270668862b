"""Which types a `.skops` file may hold: scikit-learn's preprocessing and the classifiers that `as_model` reads."""

from __future__ import annotations

import re

from apas.models.sklearn import LINEAR

__all__ = ["LOADERS", "UNUSED", "is_known", "public_module"]

#: How skops makes things again. Those that call what the file names (methods, partials, constructors) are missing.
LOADERS = {
    "DictNode", "DTypeNode", "FunctionNode", "JsonNode", "ListNode", "NdArrayNode", "ObjectNode", "SetNode",
    "SliceNode", "TupleNode", "TypeNode",
}  # fmt: skip
#: Leftovers of training that nobody needs for an answer. They are left out, and need not be known.
UNUSED = {"_optimizer", "_random_state", "loss_function_", "_loss_function_"}
_NUMBERS = {
    "bool", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "str_",
    "uint8", "uint16", "uint32", "uint64",
}  # fmt: skip
_PLAIN = {"str", "int", "float", "bool"}
#: Functions that a `FunctionTransformer` may have: one number in, one number out.
_FUNCTIONS = {
    "absolute", "arcsinh", "cbrt", "exp", "expm1", "log", "log10", "log1p", "log2", "negative", "reciprocal", "sign",
    "sqrt", "square", "tanh",
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
    """Whether skops may make a `module`.`name` by `loader`.

    Examples
    --------
    >>> is_known("ObjectNode", "sklearn.preprocessing._data", "StandardScaler")
    True
    >>> is_known("FunctionNode", "os", "system")
    False
    """
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
        "DTypeNode": ("numpy.dtype",), "JsonNode": ("builtins.str",), "ListNode": ("builtins.list",),
        "SetNode": ("builtins.set",), "SliceNode": ("builtins.slice",), "TupleNode": ("builtins.tuple",),
    }  # fmt: skip
    return f"{module}.{name}" in expected.get(loader, ())


def public_module(loader: str, module: str) -> str:
    """The module to import for a known type: the package that offers it, whatever the file says.

    Examples
    --------
    >>> public_module("ObjectNode", "sklearn.preprocessing._data")
    'sklearn.preprocessing'
    """
    if loader == "FunctionNode":
        return "numpy"  # modules inside could run code when they are imported
    return ".".join(module.split(".")[:2]) if loader == "ObjectNode" else module
