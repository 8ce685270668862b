"""scikit-learn's classifiers and pipelines: linear ones and perceptrons as networks, all others as they predict."""

import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from apas._typing import Array, Floats
from apas._validation import check_names, check_numbers, is_frame
from apas.errors import InputError, Unsupported
from apas.models.base import ModelWrapper, Raw, not_fitted, offers
from apas.models.digest import canonical
from apas.models.feedforward import FeedForward
from apas.models.predictor import LibraryPredictor, check_is_classifier

#: Classifiers whose decision is linear, and whether their probability is the logistic function of it.
LINEAR = {
    **dict.fromkeys(("LogisticRegression", "LogisticRegressionCV", "LinearDiscriminantAnalysis"), True),
    **dict.fromkeys(("SGDClassifier", "LinearSVC", "RidgeClassifier", "RidgeClassifierCV", "Perceptron"), False),
}


def from_sklearn(estimator: Any, *, threshold: float = 0.5, feature_names: Sequence[str] | None = None) -> Any:
    """Read a fitted scikit-learn classifier, or one with the same members, without changing it."""
    steps = len(estimator) if type(estimator).__name__ == "Pipeline" else 0
    final, encoder = estimator[-1] if steps else estimator, estimator[:-1] if steps > 1 else None
    if encoder is not None and type(final).__name__ == "Pipeline":
        raise Unsupported("the last step of the Pipeline is itself a Pipeline; join the two into one.")
    _check_fitted(estimator, final)
    names = _names(estimator, feature_names)
    if type(final).__name__ == "MLPClassifier" or type(final).__name__ in LINEAR:
        return SklearnModel(estimator, encoder, _network(final, threshold), names, threshold)
    if encoder is not None:
        from apas.models.base import as_model  # which imports this module

        return PipelineModel(estimator, encoder, as_model(final, threshold=threshold), names, threshold)
    fitted = getattr(estimator, "feature_names_in_", None)
    width = getattr(estimator, "n_features_in_", None)
    columns: dict[str, Any] = {"passed_names": fitted, "feature_names": names, "n_features": width}
    return LibraryPredictor(estimator, threshold=threshold, **columns)


class PipelineModel(ModelWrapper):
    """A classifier behind its own preprocessing; margins are of encoded rows."""

    def __init__(
        self, estimator: Any, encoder: Any, inner: Any, names: tuple[str, ...] | None, threshold: float = 0.5
    ) -> None:
        super().__init__(inner)
        self.estimator, self._encoder, self.feature_names = estimator, encoder, names
        self._level, self._first = threshold, encoder if encoder is not None else estimator
        self.read_options = {"threshold": threshold, "feature_names": names}
        width = len(names) if names is not None else inner.n_features
        self.n_raw_features = int(getattr(self._first, "n_features_in_", width))
        check_names(names, self.n_raw_features)

    def encode(self, X: Any) -> Floats:
        """Raw rows through the pipeline's preprocessing, as a finite matrix."""
        if self._encoder is None:
            return check_numbers(X, self.feature_names)
        return self._matrix(self._transformed(X))

    def encode_and_classify(self, X: Any) -> tuple[Floats, Array]:
        """What `encode` and `library_classes` say of the raw rows `X`, which are transformed once."""
        if self._encoder is None:
            return self.encode(X), self.library_classes(X)
        transformed = self._transformed(X)  # as it is, sparse or with names: so the pipeline hands it on, too
        return self._matrix(transformed), self._classified(self.estimator[-1], transformed)

    def _transformed(self, X: Any) -> Any:
        try:
            return self._encoder.transform(self._as_fitted(X))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            said = textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
            raise InputError(f"`X` could not go through the pipeline's preprocessing: {said}") from error

    def _matrix(self, encoded: Any) -> Floats:
        encoded = encoded.toarray() if hasattr(encoded, "toarray") else encoded
        if offers(self._inner, Raw):  # missing values and categories, too
            return np.asarray(self._inner.encode(encoded))
        encoded = np.asarray(encoded)
        whole = encoded.dtype.kind == "f" and bool(np.isfinite(encoded).all())
        # names are for the message about a cell that is no number, and take longer than all the rest
        return check_numbers(encoded, None if whole else _encoded_names(self._encoder, self.feature_names))

    def library_classes(self, X: Any) -> Array:
        """Classes of raw rows according to scikit-learn itself."""
        return self._classified(self.estimator, self._as_fitted(X))

    def _classified(self, estimator: Any, X: Any) -> Array:
        if self._level == 0.5:
            return np.asarray(estimator.predict(X)).reshape(-1)
        positive = estimator.predict_proba(X)[:, 1] >= self._level
        return np.asarray(np.asarray(estimator.classes_)[positive.astype(int)])

    def _as_fitted(self, X: Any) -> Any:
        # scikit-learn warns when names are present in one of fit and predict only
        fitted_names = getattr(self._first, "feature_names_in_", None)
        if fitted_names is None:
            return X.to_numpy() if is_frame(X) else X
        if is_frame(X):  # the user may have given the columns other names
            return X.set_axis(list(fitted_names), axis=1)
        import pandas as pd

        return pd.DataFrame(X, columns=list(fitted_names))

    def describe(self) -> dict[str, Any]:
        """Architecture and preprocessing as JSON values."""
        names = None if self.feature_names is None else list(self.feature_names)
        described = {**self._inner.describe(), "feature_names": names}
        # without preprocessing it is the network, and has the network's digest
        return described if self._encoder is None else {**described, "preprocessing": canonical(self._encoder)}

    def __repr__(self) -> str:
        through = "" if self._encoder is None else f" behind {len(self._encoder)} preprocessing step(s)"
        return f"<{type(self.estimator).__name__} as {self._inner!r}{through}>"


class SklearnModel(PipelineModel):
    """A classifier that is a dense network, behind its own preprocessing if it has one."""

    _inner: FeedForward

    def as_feedforward(self) -> FeedForward:
        """The network behind the preprocessing, with the names of the encoded columns if they are known."""
        names = self.feature_names if self._encoder is None else _encoded_names(self._encoder, self.feature_names)
        if names is None or len(set(names)) != self.n_features:
            return self._inner
        return self._inner.with_names(names)


def _check_fitted(estimator: Any, final: Any) -> None:
    from sklearn.base import is_classifier, is_regressor
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    name = type(final).__name__
    if final is None or isinstance(final, str):
        raise Unsupported(f"the last step of the Pipeline is {final!r}, which is not a classifier; add one.")
    if not hasattr(final, "get_params"):  # scikit-learn has no answer about what is not its own
        if hasattr(final, "classes_") and (final is estimator or hasattr(final, "predict_proba")):
            return
        raise Unsupported(
            f"the last step of the Pipeline is a {type(final).__module__}.{name}, which is not a scikit-learn "
            "classifier; certify that model by itself, on rows encoded by pipeline[:-1].transform(X)."
        )
    # what a class of scikit-learn's own is, its name tells, and its tags take as long as a small model to read
    known = type(final).__module__.startswith("sklearn.") and (name in LINEAR or name == "MLPClassifier")
    if not known and is_regressor(final):
        why = f"{name} is a regressor: it has no classes, so no counterfactual can be valid;"
        raise Unsupported(f"{why} pass a classifier.")
    if hasattr(final, "best_estimator_"):
        raise Unsupported(f"{name} is a search over models; pass its .best_estimator_.")
    if not known and not is_classifier(final):
        raise Unsupported(f"{name} is not a classifier; pass one, or a Pipeline that ends in one.")
    try:
        check_is_fitted(estimator)
        check_is_fitted(final)
    except NotFittedError:
        raise not_fitted(estimator) from None


def _network(final: Any, threshold: float) -> FeedForward:
    binarizer = getattr(final, "_label_binarizer", None)
    multilabel = binarizer is not None and str(binarizer.y_type_).startswith("multilabel")
    if multilabel or isinstance(final.classes_, list) or np.ndim(final.classes_) != 1:
        check_is_classifier(final, 2)
    # float32 rows meet float32 coefficients: the coarsest arithmetic in which scikit-learn computes with them
    first = final.coefs_[0] if type(final).__name__ == "MLPClassifier" else final.coef_
    dtype = "float32" if np.asarray(first).dtype.itemsize < 8 else "float64"
    how: dict[str, Any] = {"threshold": threshold, "classes": final.classes_, "dtype": dtype}
    if type(final).__name__ == "MLPClassifier":
        output = "sigmoid" if final.out_activation_ == "logistic" else "softmax"
        activation = "sigmoid" if final.activation == "logistic" else final.activation
        return FeedForward(final.coefs_, final.intercepts_, activation=activation, output=output, **how)
    weights = np.atleast_2d(final.coef_).T
    intercepts = np.broadcast_to(np.atleast_1d(final.intercept_), (weights.shape[1],))
    # LinearDiscriminantAnalysis always has some, and a setting may have been changed since the fit
    biases = intercepts if getattr(final, "fit_intercept", True) or intercepts.any() else None
    if weights.shape[1] > 1:
        return FeedForward([weights], [biases], output="softmax", **how)
    if LINEAR[type(final).__name__] or getattr(final, "loss", None) == "log_loss":
        return FeedForward([weights], [biases], output="sigmoid", **how)
    if threshold != 0.5:
        raise InputError(f"`threshold` applies to probabilities, but {type(final).__name__} gives none; leave it out.")
    return FeedForward([weights], [biases], output="identity", **{**how, "threshold": 0.0})


def _encoded_names(encoder: Any, raw: tuple[str, ...] | None) -> tuple[str, ...] | None:
    try:
        return tuple(str(n) for n in encoder.get_feature_names_out(raw))
    except (AttributeError, ValueError):  # not every transformer can tell
        return None


def _names(estimator: Any, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if given is not None:
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        return tuple(str(n) for n in given) if listed else check_names(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = getattr(estimator, "feature_names_in_", None)
    return None if fitted is None else tuple(str(n) for n in fitted)
