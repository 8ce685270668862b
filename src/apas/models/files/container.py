"""Any classifier with all that belongs to it, as `.apas`: an archive of its library's own file and a description."""

import json
import math
from pathlib import Path
from typing import Any

from apas._fields import parse_json
from apas.errors import InputError
from apas.models.base import Dense, FromEstimator, Model, offers
from apas.models.files import formats
from apas.models.files.boosters import booster_bytes, read_booster
from apas.models.files.skops import dump_estimator, load_estimator
from apas.models.predictor import CLASSIFIERS

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
        names = model.read_options["feature_names"]
        about |= {"feature_names": None if names is None else list(names), "threshold": model.read_options["threshold"]}
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
