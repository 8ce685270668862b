"""Models around something else: a network in NumPy read from a library's object, or an object that can only predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._typing import Array, Floats
from apas._validation import check_names
from apas.errors import InputError
from apas.models.base import CAPABILITIES, Parameters, class_indices, members


class ModelWrapper:
    """A model around an inner one, which has what a subclass defines, and of the rest exactly what the inner one has.

    Members of the inner model are bound once, so that `offers` never sees one that is not there, and no margin takes
    a detour.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        for name in [name for capability in CAPABILITIES for name in members(capability)]:
            if not hasattr(type(self), name) and hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels of the inner model."""
        return self._inner.classes  # type: ignore[no-any-return]

    @property
    def n_features(self) -> int:
        """Number of inputs of the inner model."""
        return self._inner.n_features  # type: ignore[no-any-return]

    @property
    def parameters(self) -> Parameters:
        """Parameters of the inner model."""
        return self._inner.parameters  # type: ignore[no-any-return]


class PredictOnly:
    """A classifier of which nothing is known but the class that it gives a row: a forest, a rule, a remote service.

    Parameters
    ----------
    predict : callable
        Takes a float64 matrix (rows, features) and gives one class per row.
    classes : sequence
        The classes that it can give; of two, the second is class 1.
    n_features : int
        Number of columns.
    feature_names : sequence of str, optional
        Names of the columns.

    Examples
    --------
    >>> rule = PredictOnly(lambda X: X[:, 0] >= 3, classes=(False, True), n_features=1)
    >>> rule.margin(np.array([[2.0], [4.0]]), True)
    array([-1.,  1.])
    """

    def __init__(
        self,
        predict: Callable[[Floats], Any],
        *,
        classes: Sequence[Any],
        n_features: int,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self._predict, self.classes, self.n_features = predict, tuple(classes), n_features
        self.feature_names = check_names(feature_names, n_features)

    def predict(self, X: Floats) -> Array:
        """Classes of the rows, shape (rows,)."""
        given = np.asarray(self._predict(X), dtype=object)
        if given.shape != (len(X),) or not set(given.tolist()) <= set(self.classes):
            shown = given.shape if given.shape != (len(X),) else next(c for c in given if c not in self.classes)
            raise InputError(f"the model must predict one of {list(self.classes)} per row ({len(X)}), got {shown!r}.")
        return given

    def margin(self, X: Floats, target: Any) -> Floats:
        """1 for rows that are given the target class, -1 for others: a decision has no size."""
        wanted = class_indices(self.classes, target, len(X))
        return np.where(class_indices(self.classes, self.predict(X), len(X)) == wanted, 1.0, -1.0)

    def __repr__(self) -> str:
        return f"<PredictOnly, {self.n_features} features, classes {list(self.classes)}>"
