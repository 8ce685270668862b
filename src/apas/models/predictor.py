"""`Predictor`: a classifier that can only predict, such as boosted trees, a forest, a calibrated model or a function.

Rows go to it as they are, also with categories and missing values; until then they are a matrix of numbers (`Cells`).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._typing import Array, Bools, Floats, Indices
from apas._validation import check_integer, check_names, check_number, check_probability, is_frame
from apas.errors import InputError, Unsupported
from apas.models.base import NO_PARAMETERS, Parameters, class_indices, not_fitted
from apas.models.digest import canonical
from apas.models.forward import margins_from_scores

if TYPE_CHECKING:
    from apas.models.trees import Trees

#: What a function gives: numbers of class 1 of two, or one column of them per class; or the class itself.
OUTPUTS = ("probability", "score", "class")
#: Closer to the boundary than this, the library itself is asked for the class: float32 inside of it, or votes that are
#: split evenly, decide otherwise than the sign of a score.
TIE = 1e-5
#: The margin of a row that lies on the boundary, on the side that the model puts it: a sign without a size.
SIGN = 2.0**-60
#: Probabilities of 0 and 1 have no logit; the margin ends at those of numbers that float64 can tell from them.
LEAST, MOST = 2.0**-60, 1.0 - 2.0**-53
#: Codes of cells that are no numbers lie below this, where no data do.
CODES = -(2.0**600)
#: Which classes of a library are read, and an `.apas` file may name; the first is the one that a bare file becomes.
CLASSIFIERS = {"xgboost": ("XGBClassifier", "XGBRFClassifier"), "lightgbm": ("LGBMClassifier",)}
CLASSIFIERS |= {"catboost": ("CatBoostClassifier",)}


def is_coded(X: Floats) -> Bools:
    """Which cells of encoded rows are codes: categories, and what is missing."""
    return np.asarray(X <= CODES)


class Cells:
    """Rows of a table as a matrix of finite numbers, and back: numbers are themselves, other cells have codes."""

    def __init__(self) -> None:
        self._cells: dict[float, Any] = {}
        self._kinds: list[Any] | None = None  # of the columns of the first table, whose types the model was trained on
        self.categories: frozenset[int] = frozenset()  # columns that the model takes only as pandas categories

    def encode(self, X: Any) -> Floats:
        """Cells as numbers, shape (rows, columns)."""
        if not is_frame(X):
            X = np.asarray(X)
            if X.dtype.kind in "biuf":
                return self._numbers(np.asarray(X, dtype=np.float64))
        elif self._kinds is None:
            self._kinds = list(X.dtypes)
        columns = [X.iloc[:, j] for j in range(X.shape[1])] if is_frame(X) else list(X.T)
        return np.stack([self._column(column) for column in columns], axis=1) if columns else np.empty(X.shape)

    def _column(self, column: Any) -> Floats:
        kind = getattr(column.dtype, "kind", "O")
        if kind in "iuf" or (kind == "b" and hasattr(column.dtype, "itemsize")):
            as_numbers = column.to_numpy(dtype=np.float64, na_value=np.nan) if hasattr(column, "iloc") else column
            return self._numbers(np.asarray(as_numbers, dtype=np.float64))
        return np.array([self._cell(cell) for cell in np.asarray(column, dtype=object)], dtype=np.float64)

    def _numbers(self, values: Floats) -> Floats:
        if np.isinf(values).any() or (values <= CODES).any():
            raise InputError("`X` must hold finite numbers or missing ones, got an infinite one; mend or drop it.")
        return np.where(np.isnan(values), self._code(None), values)

    def _cell(self, cell: Any) -> float:
        if isinstance(cell, int | float | np.integer | np.floating) and not isinstance(cell, bool):
            return float(self._numbers(np.array(float(cell))))
        return self._code(None if type(cell).__name__ in ("NoneType", "NAType", "NaTType") else cell)

    def _code(self, cell: Any) -> float:
        """A number for a cell: 52 bits of a SHA-256 of its type and text, as a fraction beyond all data."""
        text = "missing" if cell is None else f"{type(cell).__name__} {cell}"
        bits = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 12
        code = CODES * (1.0 + (bits | 1) * 2.0**-52)
        if self._cells.setdefault(code, cell) != cell:
            raise InputError(f"`X` must hold cells that can be told apart, but {cell!r} has the code of another.")
        return code

    def _cell_of(self, code: float) -> Any:
        if code not in self._cells:  # whoever computes with the numbers of rows
            raise Unsupported("categories are no numbers that could be computed with; use numbers, or an encoder.")
        return self._cells[code]

    def decode(self, codes: Floats, names: Sequence[str] | None) -> Any:
        """The rows again: a data frame if there are names, else an array."""
        coded = is_coded(codes)
        if names is None:
            if not coded.any():
                return codes
            only_missing = all(self._cell_of(code) is None for code in np.unique(codes[coded]).tolist())
            cells = np.where(coded, np.nan, codes) if only_missing else codes.astype(object)
            for place in np.argwhere(coded) if not only_missing else ():
                cells[tuple(place)] = self._cells[codes[tuple(place)]]
            return cells
        import pandas as pd

        kinds = self._kinds if self._kinds is not None and len(self._kinds) == len(names) else [None] * len(names)
        columns = {}
        for j, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            column = self._decode_column(pd, codes[:, j], coded[:, j], kind)
            if j in self.categories and not hasattr(column := pd.Series(column), "cat"):
                # whole numbers come back as such: categories of another type would be other ones
                column = column.infer_objects().convert_dtypes().astype(object).astype("category")
            columns[name] = column
        return pd.DataFrame(columns)

    def places(self, codes: Floats, labels: Mapping[int, Sequence[Any]]) -> Floats:
        """Cells as trees compare them: NaN for missing ones, for categories their place among those of the column."""
        found, coded = np.where(is_coded(codes), np.nan, codes), is_coded(codes)
        for j, kind in enumerate(self._kinds or [None] * codes.shape[1]):
            known = labels.get(j, getattr(kind, "categories", None))
            told = [self._cells[code] for code in codes[coded[:, j], j].tolist()]
            if known is not None:
                place = {label: float(i) for i, label in enumerate(known)}
                found[:, j] = [place.get(cell, np.nan) for cell in codes[:, j].tolist()]
                found[coded[:, j], j] = [place.get(cell, np.nan) for cell in told]
            elif any(cell is not None for cell in told):
                raise InputError(f"column {j} holds {told[0]!r}, of which no tree can tell the place.")
        return found

    def _decode_column(self, pd: Any, codes: Floats, coded: Bools, kind: Any) -> Any:
        cells = np.where(coded, np.nan, codes)
        told = [self._cell_of(code) for code in codes[coded].tolist()]
        if any(cell is not None for cell in told) or (kind is not None and getattr(kind, "kind", "O") == "O"):
            cells = cells.astype(object)
            cells[coded] = [np.nan if cell is None else cell for cell in told]
        if kind is None or (coded.any() and getattr(kind, "kind", "O") in "biu"):
            return cells
        try:  # the types of the table, where its cells have them
            column = pd.Series(cells).astype(kind)
            lost = column.isna().to_numpy() & ~pd.isna(cells)
            return cells if lost.any() or (kind.kind in "biu" and (column != cells).any()) else column
        except (TypeError, ValueError):
            return cells


class Predictor:
    """A classifier of which nothing is known but what it predicts: a function, a rule, a remote service.

    It has no parameters that could be shifted: certify it against refits (`ObservedShifts`) or noise on the rows
    (`InputNoise`).

    Parameters
    ----------
    function : callable
        Takes rows, a data frame with the columns `feature_names` if they are given, else a float64 matrix, and gives
        one number per row (of class 1 of two) or one column per class; or one class per row.
    output : {"probability", "score", "class"}
        What it gives. A score is compared with `threshold`, or with the other classes' scores. A class has no size:
        margins are 1 and -1.
    classes : sequence
        The labels; of two, the second is class 1.
    feature_names, n_features : optional
        Names of the columns, or their number where they have none; the first rows tell it otherwise.
    threshold : float, optional
        From which number on a row of two classes is of class 1: 0.5 for probabilities, 0 for scores unless given.

    Examples
    --------
    >>> rule = Predictor(lambda X: X[:, 0] - 3, output="score", classes=("no", "yes"), n_features=1)
    >>> rule.margin(np.array([[2.0], [4.0]]), "yes")
    array([-1.,  1.])
    """

    parameters: Parameters = NO_PARAMETERS
    reads_cells: bool = True

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        output: str,
        classes: Sequence[Any],
        feature_names: Sequence[str] | None = None,
        n_features: int | None = None,
        threshold: float | None = None,
    ) -> None:
        if not callable(function):
            raise InputError(f"`function` of Predictor must be a function of rows, got {function!r}.")
        if output not in OUTPUTS:
            known = " or ".join(f'"{name}"' for name in OUTPUTS)
            raise InputError(f"`output` of Predictor must say what the function gives, {known}, got {output!r}.")
        labels = list(classes) if isinstance(classes, Sequence | np.ndarray) and not isinstance(classes, str) else []
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise InputError(f"`classes` of Predictor must hold two different labels or more, got {classes!r}.")
        self.classes = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
        self.function, self.output = function, output
        width = None if n_features is None else check_integer(n_features, "n_features", "Predictor", least=1)
        self.feature_names = check_names(feature_names, width)
        self._width = width if self.feature_names is None else len(self.feature_names)
        self.threshold, self._cells = 0.5 if output == "probability" else 0.0, Cells()
        if threshold is not None:
            if len(self.classes) > 2:
                raise InputError("`threshold` of Predictor is for two classes, got more of them; leave it out.")
            if output == "class":
                why = "`threshold` of Predictor is for numbers, but the function gives classes"
                raise InputError(f"{why}; leave it out.")
            check = check_probability if output == "probability" else check_number
            self.threshold = check(threshold, "threshold", "Predictor")

    @property
    def n_features(self) -> int:
        """Number of columns; 0 as long as nobody has told it."""
        return self._width or 0

    @property
    def categories(self) -> frozenset[int]:
        """Columns that it takes only as pandas categories."""
        return self._cells.categories

    n_raw_features = n_features

    def encode(self, X: Any) -> Floats:
        """Rows as numbers; cells that are none, and missing ones, by codes that `margin` knows again."""
        codes = self._cells.encode(X)
        self._width = self._width or codes.shape[1]
        return codes

    def margin(self, X: Floats, target: Any) -> Floats:
        """Margins of encoded rows towards `target`: at least 0 where the model gives class 1 of two, else above 0."""
        return self._margin(X, target, self.function)

    def _margin(self, X: Floats, target: Any, function: Callable[[Any], Any]) -> Floats:
        wanted = class_indices(self.classes, target, len(X))
        if not len(X):
            return np.empty(0)
        rows = self._rows(X)
        numbers = self._numbers(rows, function)
        return self._settle(margins_from_scores(numbers.reshape(len(X), -1), wanted, 0.0), rows, wanted)

    def _settle(self, margins: Floats, rows: Any, wanted: Indices) -> Floats:
        return margins  # a function has no other decision than its numbers

    def _rows(self, X: Floats) -> Any:
        return self._cells.decode(X, self.feature_names)

    def _numbers(self, rows: Any, function: Callable[[Any], Any]) -> Floats:
        """Scores, or logits and logarithms of probabilities, (rows,) for two classes and (rows, classes) for more."""
        count, classes = len(rows), len(self.classes)
        if self.output == "class":
            told = np.asarray(function(rows), dtype=object)
            if told.shape != (count,) or not set(told.tolist()) <= set(self.classes):
                shown = told.shape if told.shape != (count,) else next(c for c in told if c not in self.classes)
                must = f"the model must predict one of {list(self.classes)} per row ({count})"
                raise InputError(f"{must}, got {shown!r}.")
            given = class_indices(self.classes, told, count)
            return np.asarray(2.0 * given - 1.0 if classes == 2 else np.eye(classes)[given], dtype=np.float64)
        numbers = np.asarray(function(rows), dtype=np.float64)
        if numbers.ndim == 2 and numbers.shape[1] == 1:
            numbers = numbers[:, 0]
        if numbers.shape not in {(count, classes), (count,) if classes == 2 else None}:
            must = f"`function` of Predictor must give one number per row ({count}) for two classes,"
            raise InputError(f"{must} or one column per class ({classes}), got shape {numbers.shape}.")
        if self.output == "score":
            if numbers.ndim == 2 and classes == 2:  # of two columns the difference decides, as of more
                return np.asarray(numbers[:, 1] - numbers[:, 0] - self.threshold)
            return numbers - self.threshold if classes == 2 else numbers
        if not ((numbers >= 0) & (numbers <= 1 + 1e-6)).all():
            raise InputError('`function` of Predictor must give numbers in [0, 1] with output="probability".')
        if classes > 2:
            return np.log(np.maximum(numbers, LEAST))
        # logit(p) - logit(threshold), whose sign is that of the comparison, whatever the logarithms round to
        p, level = numbers if numbers.ndim == 1 else numbers[:, 1], self.threshold
        inner = np.clip(p, LEAST, MOST)
        margins = np.log(inner) - np.log1p(-inner) - (np.log(level) - np.log1p(-level))
        return np.asarray(np.where(p >= level, np.maximum(margins, 0.0), np.minimum(margins, -SIGN)))

    def describe(self) -> dict[str, Any]:
        """All that decides the output, as JSON values; the function counts by its text and what it reads."""
        names = None if self.feature_names is None else list(self.feature_names)
        said = {"kind": "predictor", "output": self.output, "classes": [canonical(c) for c in self.classes]}
        return {**said, "threshold": self.threshold, "feature_names": names, "code": canonical(self.function)}

    def __repr__(self) -> str:
        return f"<Predictor of classes {list(self.classes)}>"


class LibraryPredictor(Predictor):
    """A fitted classifier of another library, which is asked for its scores as they are, and for its own decisions."""

    # `score` gives raw scores in a way of the library's own; `content` what it has learned as JSON values or a text,
    # the same ones after saving and loading. It gets columns under `passed_names`, those it was fitted with (None for
    # an array), and `categories` as pandas categories.

    def __init__(
        self,
        estimator: Any,
        *,
        threshold: float = 0.5,
        score: Callable[[Any], Any] | None = None,
        content: Callable[[Any], Any] = canonical,
        passed_names: Sequence[str] | None = None,
        categories: frozenset[int] = frozenset(),
        **columns: Any,
    ) -> None:
        level, output = None, "score"
        if threshold != 0.5:
            if not hasattr(estimator, "predict_proba"):
                name = type(estimator).__name__
                raise InputError(f"`threshold` applies to probabilities, but {name} gives none; leave it out.")
            score, output, level = estimator.predict_proba, "probability", threshold
        elif hasattr(estimator, "response_method"):
            score, output, level = _with_own_threshold(estimator)
        elif score is None and hasattr(estimator, "decision_function"):
            score = estimator.decision_function
        elif score is None and hasattr(estimator, "predict_proba"):
            score, output = estimator.predict_proba, "probability"
        elif score is None:  # votes, say, of which only the winner is told
            score, output = estimator.predict, "class"
        check_is_classifier(estimator)
        classes = estimator.classes_
        several = len(classes) > 2
        super().__init__(score, output=output, classes=classes, threshold=None if several else level, **columns)
        self.estimator, self._decide = estimator, estimator.predict if threshold == 0.5 else None
        # with 0.5 as its threshold it is asked for its own decisions
        level = 0.5 if threshold == 0.5 else self.threshold
        self.read_options = {"threshold": level, "feature_names": self.feature_names}
        # Its decisions may differ from its scores not only at ties: scikit-learn's SVC gives the class with most votes,
        # and the first of them where several have as many; its nearest centroids are those by another distance.
        self._always = (several and not getattr(estimator, "break_ties", True)) or hasattr(estimator, "centroids_")
        self._content, self._passed, self._cells.categories = content, passed_names, categories
        # scikit-learn's names for what was learned end so; of other libraries' classes, all that they hold
        own = type(estimator).__module__.startswith("sklearn.")
        self._members = {name: part for name, part in vars(estimator).items() if not own or name.endswith("_")}
        self._digest: str | None = None

    def _settle(self, margins: Floats, rows: Any, wanted: Indices) -> Floats:
        near = np.flatnonzero(~(np.abs(margins) > (np.inf if self._always else TIE)))
        if self._decide is None or not len(near):
            return margins
        some = rows.iloc[near] if is_frame(rows) else rows[near]
        agrees = class_indices(self.classes, self._labels(self._decide(some)), len(some)) == wanted[near]
        margins[near] = np.where(agrees, np.maximum(margins[near], SIGN), np.minimum(margins[near], -SIGN))
        return margins

    def _labels(self, given: Any) -> Array:
        labels = np.asarray(given).reshape(-1)  # CatBoost gives a column
        known = {str(c): c for c in self.classes}  # and texts, where the classes are True and False
        found = np.empty(len(labels), dtype=object)
        found[:] = [label if label in self.classes else known.get(str(label), label) for label in labels.tolist()]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_members": {}}  # copies, as in workers, are of other objects, and nobody fits them

    def _rows(self, X: Floats) -> Any:
        # a copy of a large forest would cost more than most calls; fitting puts new objects in place of the old ones
        now = vars(self.estimator)
        if any(now.get(name) is not was for name, was in self._members.items()):
            name = type(self.estimator).__name__
            raise InputError(f"the {name} was changed since apas read it; fit a copy, or call apas.as_model again.")
        return self._cells.decode(X, self._passed)

    def library_classes(self, X: Any) -> Array:
        """Classes of raw rows according to the library itself."""
        rows = self._rows(self.encode(X))
        if self._decide is not None:
            return self._labels(self._decide(rows))
        return np.asarray(np.array(self.classes, dtype=object)[(self._numbers(rows, self.function) >= 0).astype(int)])

    def _numbers(self, rows: Any, function: Callable[[Any], Any]) -> Floats:
        try:
            return super()._numbers(rows, function)
        except InputError:
            raise
        except Exception as error:  # each library says in its own way what it cannot take
            said = textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
            raise InputError(f"`X` could not be read by {type(self.estimator).__name__}: {said}") from error

    def content_digest(self) -> str:
        """SHA-256 over what it has learned, by the library's own account of it."""
        if self._digest is None:
            told = self._content(self.estimator)
            text = told if isinstance(told, str) else json.dumps(told, sort_keys=True)
            self._digest = hashlib.sha256(text.encode()).hexdigest()
        return self._digest

    def trees(self) -> Trees | None:
        """Its trees, if it is an ensemble of them that can be read."""
        from apas.models.trees import trees_of

        try:
            return trees_of(self.estimator, self.threshold, self.output == "probability", self._cells.places)
        except Exception:  # noqa: BLE001  (what is read is partly private to the libraries, and may be otherwise)
            return None

    def describe(self) -> dict[str, Any]:
        """All that decides the output besides what it has learned, as JSON values."""
        kind = type(self.estimator)
        library = kind.__module__.split(".")[0]
        # what boosted trees answer is all in what they have learned, whichever class of the library was given them
        name = library if library in ("xgboost", "lightgbm", "catboost") else f"{library}.{kind.__qualname__}"
        said = {**super().describe(), "kind": name}
        del said["code"]
        return said

    def __repr__(self) -> str:
        return f"<{type(self.estimator).__name__} as it predicts, classes {list(self.classes)}>"


def check_is_classifier(estimator: Any, labels: int = 1) -> None:
    """Refuse what has one class, or several of them at once."""
    name = type(estimator).__name__
    classes: Any = getattr(estimator, "classes_", ())
    if labels > 1 or isinstance(classes, list) or np.ndim(classes) > 1:
        raise Unsupported(f"this {name} was fitted for several labels at once; certify one classifier per label.")
    if len(classes) == 1:
        must = "the model must tell classes apart,"
        raise InputError(f"{must} but this {name} was fitted to rows of class {classes[0]}.")


def _with_own_threshold(estimator: Any) -> tuple[Callable[[Any], Any], str, float]:
    """Numbers of class 1, what they are, and the threshold of scikit-learn's classifiers that have one of their own."""
    inner = getattr(estimator, "estimator_", estimator.estimator)
    auto = estimator.response_method == "auto"
    asked = ("predict_proba", "decision_function") if auto else (str(estimator.response_method),)
    method = next(name for name in asked if hasattr(inner, name))
    level = getattr(estimator, "best_threshold_", getattr(estimator, "threshold", "auto"))
    level = (0.5 if method == "predict_proba" else 0.0) if level == "auto" else float(level)
    scorer = getattr(estimator, "_curve_scorer", None)
    positive = estimator.pos_label if hasattr(estimator, "pos_label") else scorer and scorer._get_pos_label()
    first = positive is not None and positive == estimator.classes_[0]  # the threshold is one of class 0
    if method == "decision_function":
        return inner.decision_function, "score", -level if first else level
    return inner.predict_proba, "probability", 1.0 - level if first else level


def from_booster(estimator: Any, *, threshold: float, feature_names: Sequence[str] | None) -> LibraryPredictor:
    """Read a fitted classifier of one of the three libraries, without changing it."""
    library = next(cls.__module__.split(".")[0] for cls in type(estimator).__mro__ if cls.__module__[0] != "_")
    names_of, option, content = _LIBRARIES[library]
    if not hasattr(estimator, "predict_proba"):
        why = f"`model` is a {library}.{type(estimator).__name__}, which does not know its classes; pass the"
        raise Unsupported(f"{why} fitted {CLASSIFIERS[library][0]}, or an apas.Predictor of a function that calls it.")
    try:
        fitted = estimator.n_features_in_ is not None
    except Exception:  # noqa: BLE001  (each library says in its own way that there is nothing yet)
        fitted = False
    if not fitted:
        raise not_fitted(estimator)
    check_is_classifier(estimator, _count_labels(estimator, library))
    names = names_of(estimator)
    # a copy of CatBoost's forgets the number, and one that is fitted again keeps that of the first time
    width = len(getattr(estimator, "feature_names_", ())) or int(estimator.n_features_in_)
    columns: dict[str, Any] = {"passed_names": names, "categories": frozenset(_categories(estimator, library))}
    columns |= {"feature_names": names if feature_names is None else feature_names, "n_features": width}
    raw = None if threshold != 0.5 else lambda rows: estimator.predict(rows, **option)
    return LibraryPredictor(estimator, threshold=threshold, score=raw, content=content, **columns)


def _count_labels(estimator: Any, library: str) -> int:
    """How many labels a row has at once; LightGBM knows one."""
    if library == "xgboost":
        said = json.loads(estimator.get_booster().save_config())["learner"]["learner_model_param"]
        return int(said.get("num_target", 1))
    # of a file its reader has looked at that, and what else it says about settings may be damaged
    known = library == "catboost" and not hasattr(estimator, "settings_lost_")
    said = estimator.get_all_params() if known else {}
    return 2 if str(said.get("loss_function")).startswith(("MultiLogloss", "MultiCrossEntropy")) else 1


def _categories(estimator: Any, library: str) -> list[int]:
    """Columns that the library takes only as pandas categories, whose levels it knows: their order is its own."""
    if library == "lightgbm" and (levels := estimator.booster_.pandas_categorical):
        infos = estimator.booster_.dump_model(num_iteration=1)["feature_infos"]
        infos = [infos.get(name) for name in estimator.booster_.feature_name()]
        found = [j for j, info in enumerate(infos) if info and info["values"]]
        constant = [j for j, info in enumerate(infos) if not info]  # of which it tells nothing
        return found + constant if len(levels) == len(found + constant) else found
    if library != "xgboost" or "c" not in (estimator.get_booster().feature_types or ()):
        return []
    # before 3.1 XGBoost went by the number of a level in the table at hand, so that the table must have all of them
    known = _xgboost_content(estimator)["learner"]["gradient_booster"]["model"].get("cats", {}).get("enc", ())
    return [j for j, levels in enumerate(known) if levels["values"]]


def _xgboost_content(estimator: Any) -> Any:
    told = json.loads(bytes(estimator.get_booster().save_raw("json")))
    del told["version"]  # an update of the library is not another model
    return told


def _given_names(names: Any, made_up: str) -> list[str] | None:
    return None if [*names] == [f"{made_up}{i}" for i in range(len(names))] else [*names]


def _lightgbm_content(estimator: Any) -> str:
    # the settings of the training follow the trees; what decides is before them, but for the categories behind
    text: str = estimator.booster_.model_to_string()
    trees, _, rest = text.partition("\nparameters:")
    return trees + rest.partition("end of parameters")[2]


def catboost_file(estimator: Any, kind: str) -> bytes:
    """A fitted classifier of CatBoost in one of the library's formats, "cbm" or "json"."""
    with tempfile.TemporaryDirectory() as folder:  # the library writes files only
        file = Path(folder) / f"model.{kind}"
        estimator.save_model(str(file), format=kind)
        return file.read_bytes()


def _catboost_content(estimator: Any) -> Any:
    told = json.loads(catboost_file(estimator, "json"))
    about = told.pop("model_info", {})  # when it was trained and by which version are not what it answers
    return {**told, "classes": about.get("class_params"), "threshold": about.get("output_options")}


_RAW = {"prediction_type": "RawFormulaVal"}
#: Per library: names of the columns it was fitted with, how `predict` is asked for raw scores, what it has learned.
_LIBRARIES: dict[str, tuple[Callable[[Any], list[str] | None], dict[str, Any], Callable[[Any], Any]]] = {
    "xgboost": (lambda one: one.get_booster().feature_names, {"output_margin": True}, _xgboost_content),
    "lightgbm": (lambda one: _given_names(one.feature_name_, "Column_"), {"raw_score": True}, _lightgbm_content),
    "catboost": (lambda one: _given_names(one.feature_names_, ""), _RAW, _catboost_content),
}
