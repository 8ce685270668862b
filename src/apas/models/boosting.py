"""Boosted trees of XGBoost, LightGBM and CatBoost as models; none of the three is imported here."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from apas.errors import Unsupported
from apas.models.base import not_fitted
from apas.models.predictor import LibraryPredictor, check_is_classifier, from_classifier


def from_booster(
    estimator: Any, *, threshold: float = 0.5, feature_names: Sequence[str] | None = None
) -> LibraryPredictor:
    """Read a fitted classifier of one of the three libraries, without changing it."""
    library = next(cls.__module__.split(".")[0] for cls in type(estimator).__mro__ if cls.__module__[0] != "_")
    names, option, content = _LIBRARIES[library]
    if not hasattr(estimator, "predict_proba"):
        why = f"`model` is a {library}.{type(estimator).__name__}, which does not know its classes; pass the"
        raise Unsupported(f"{why} fitted {_CLASSIFIERS[library]}, or an apas.Predictor of a function that calls it.")
    try:
        fitted = estimator.n_features_in_ is not None
    except Exception:  # noqa: BLE001  (each library says in its own way that there is nothing yet)
        fitted = False
    if not fitted:
        raise not_fitted(estimator)
    check_is_classifier(estimator, _count_labels(estimator, library))
    known = names(estimator)
    raw = None if threshold != 0.5 else lambda rows: estimator.predict(rows, **option)
    return from_classifier(
        estimator,
        threshold=threshold,
        feature_names=known if feature_names is None else feature_names,
        passed_names=known,
        # a copy of CatBoost's forgets the number, and one that is fitted again keeps that of the first time
        n_features=len(getattr(estimator, "feature_names_", ())) or int(estimator.n_features_in_),
        score=raw,
        content=lambda: content(estimator),
        categories=frozenset(_categories(estimator, library)),
    )


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
    """Names of the columns it was fitted with, unless the library has numbered them itself."""
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


_CLASSIFIERS = {"xgboost": "XGBClassifier", "lightgbm": "LGBMClassifier", "catboost": "CatBoostClassifier"}
#: Per library: names of the columns it was fitted with, how `predict` is asked for raw scores, what it has learned.
_LIBRARIES: dict[str, tuple[Callable[[Any], list[str] | None], dict[str, Any], Callable[[Any], Any]]] = {
    "xgboost": (lambda one: one.get_booster().feature_names, {"output_margin": True}, _xgboost_content),
    "lightgbm": (lambda one: _given_names(one.feature_name_, "Column_"), {"raw_score": True}, _lightgbm_content),
}
_RAW = {"prediction_type": "RawFormulaVal"}
_LIBRARIES["catboost"] = (lambda one: _given_names(one.feature_names_, ""), _RAW, _catboost_content)
