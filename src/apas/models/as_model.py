"""`as_model`: whatever a user has, as a model: one whose parameters can be shifted, or one that can only predict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from apas._typing import Array, Floats
from apas._validation import check_matrix, check_numbers, is_path
from apas.errors import InputError, Unsupported
from apas.models.base import Model, ModelWrapper, Named, Predicts, Raw, ReadsOnce, offers


def as_model(
    obj: Any,
    *,
    output: str | None = None,
    threshold: float = 0.5,
    classes: Sequence[Any] | None = None,
    input_shape: Sequence[int] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Model:
    """Turn a fitted classifier into a model whose parameters can be shifted, without changing it.

    Parameters
    ----------
    obj : object
        A fitted scikit-learn classifier (`MLPClassifier`, `LogisticRegression`, `LinearSVC`, `SGDClassifier`,
        `RidgeClassifier`, `Perceptron`, `LinearDiscriminantAnalysis`), a `Pipeline` whose last step is one of
        them, a `torch.nn.Module`, a `keras.Model` of dense layers, a `FeedForward`, or any object with the five
        members of `Model`. A module is looked at as it is now, in eval mode.
    output : {"logit", "probability", "logits", "probabilities"}, optional
        What the numbers of a module or Keras model are, unless its last layer is a sigmoid or softmax that says so.
    threshold : float, default 0.5
        From which probability on a binary classifier or module is taken to say class 1.
    classes : sequence, optional
        Labels of a module's classes; (0, 1) or 0..m-1 unless given.
    input_shape : sequence of int, optional
        Shape of one input of a module, such as (1, 28, 28), unless its first layer says how many numbers it takes; rows
        of `X` hold them in C order.
    feature_names : sequence of str, optional
        Names of the columns; those the estimator was fitted with unless given.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> as_model(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])).classes
    ('no', 'yes')
    """
    if is_path(obj):
        raise InputError(f"`model` must be a model, got the path {str(obj)!r}; read it with apas.load_model(path).")
    if isinstance(obj, type):
        must = f"`model` must be a fitted model, got the class {obj.__name__} itself;"
        raise InputError(f"{must} make one and fit it first.")
    chosen: dict[str, Any] = {"output": output, "classes": classes, "input_shape": input_shape}
    if offers(obj, Predicts):
        chosen |= {"threshold": None if threshold == 0.5 else threshold, "feature_names": feature_names}
        return _without_options(obj if hasattr(obj, "parameters") else ModelWrapper(obj), chosen)
    libraries = {cls.__module__.split(".")[0] for cls in type(obj).__mro__}
    if "skorch" in libraries:
        from apas.models.torch.adapter import from_skorch

        return from_skorch(obj, **chosen, threshold=threshold, feature_names=feature_names)  # type: ignore[no-any-return]
    if libraries & {"xgboost", "lightgbm", "catboost"}:  # before scikit-learn, whose classes they inherit from
        from apas.models.predictor import from_booster

        return _without_options(from_booster(obj, threshold=threshold, feature_names=feature_names), chosen)
    if "sklearn" in libraries or (hasattr(obj, "classes_") and hasattr(obj, "predict")):
        from apas.models.sklearn import from_sklearn

        return _without_options(from_sklearn(obj, threshold=threshold, feature_names=feature_names), chosen)
    keras = sys.modules.get("keras")  # before PyTorch, which may be what Keras computes with
    if keras is not None and isinstance(obj, getattr(keras, "Model", ())):
        from apas.models.keras import from_keras

        return from_keras(obj, **chosen, threshold=threshold, feature_names=feature_names)  # type: ignore[no-any-return]
    torch = sys.modules.get("torch")  # whoever has a module has imported it
    if torch is not None and isinstance(obj, torch.nn.Module):
        from apas.models.torch.adapter import from_torch

        with torch.inference_mode(False):  # what is made in that mode never has gradients
            return from_torch(obj, **chosen, threshold=threshold, feature_names=feature_names)
    raise Unsupported(
        f"`model` is a {type(obj).__module__}.{type(obj).__name__}, which apas cannot read; pass a fitted classifier "
        "with classes_ and predict_proba or decision_function, a PyTorch module, a Keras model, an apas.FeedForward, "
        "an object with the members classes, n_features, parameters, margin, shifted_margins, or an apas.Predictor "
        "of a function."
    )


def _without_options(model: Any, options: dict[str, Any]) -> Model:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"`{given[0]}` of as_model does not apply to {model!r}, which says so itself; leave it out.")
    return model  # type: ignore[no-any-return]  # one that can only predict lacks what moves: `Question.ask` says so


def encoded_rows(model: Predicts, X: Any) -> tuple[Any, Floats]:
    """Rows as the user gave them (a copy), and in model units."""
    names = model.feature_names if offers(model, Named) else None
    raw = model if offers(model, Raw) else None
    points = check_matrix(X, model.n_features if raw is None else raw.n_raw_features, names).copy()
    if not len(points):
        return points, np.empty((0, model.n_features))
    return points, check_numbers(points, names) if raw is None else raw.encode(points)


def encoded_and_classified(model: Predicts, X: Any) -> tuple[Floats, Array | None]:
    """Rows in model units, and what its own library says of them, None if it would have to be asked by itself."""
    if not offers(model, ReadsOnce) or not offers(model, Raw) or not len(X):
        return encoded_rows(model, X)[1], None
    names = model.feature_names if offers(model, Named) else None
    return model.encode_and_classify(check_matrix(X, model.n_raw_features, names).copy())


def predicted_classes(model: Predicts, X: Floats, towards: Floats | None = None) -> tuple[Array, Floats]:
    """Classes that `model` gives rows in model units, and how far each row is from another class."""
    # `towards` are the margins towards class 1 of two, if they are known.
    classes = model.classes
    labels = np.empty(len(classes), dtype=object)
    labels[:] = classes
    if len(labels) == 2:
        margin = model.margin(X, classes[1]) if towards is None else towards
        return labels[(margin >= 0).astype(int)], np.abs(margin)
    margins = np.stack([model.margin(X, label) for label in classes], axis=-1)
    return labels[margins.argmax(axis=-1)], margins.max(axis=-1)
