"""`ParametricModel`: a parameter vector and a function of it and the rows, as a model that every shift set can move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from apas._typing import Floats
from apas.errors import InputError
from apas.models.base import Parameters, by_delta
from apas.models.digest import canonical
from apas.models.predictor import Predictor


class ParametricModel(Predictor):
    """A model by its parameters and a function: naive Bayes, a scorecard, a Gaussian process with a fixed kernel.

    Parameters
    ----------
    parameters : array_like, mapping of str to array_like, or Parameters
        What may move: one vector, or named arrays.
    score : callable
        Takes the parameters, in the form in which they were given (an array, or a dict of arrays), and rows; gives
        numbers as the function of a `Predictor` does. It is called once per shifted model.
    output : {"probability", "score"}
        What the numbers are.
    classes, feature_names, n_features, threshold : optional
        As of `Predictor`.

    Examples
    --------
    >>> import apas
    >>> card = ParametricModel([2.0, -1.0], lambda w, X: X @ w, output="score", classes=("no", "yes"), n_features=2)
    >>> apas.certify(card, [[3.0, 1.0]], 0.1, target="yes", rng=0)[0].verdict.name
    'CERTIFIED'
    """

    def __init__(
        self,
        parameters: Any,
        score: Callable[[Any, Any], Any],
        *,
        output: str,
        classes: Sequence[Any],
        feature_names: Sequence[str] | None = None,
        n_features: int | None = None,
        threshold: float | None = None,
    ) -> None:
        if not callable(score):
            raise InputError(f"`score` of ParametricModel must be a function of parameters and rows, got {score!r}.")
        self._score, self._single = score, not isinstance(parameters, Parameters | Mapping)
        self.parameters = _read_parameters(parameters)
        more: dict[str, Any] = {"feature_names": feature_names, "n_features": n_features, "threshold": threshold}
        super().__init__(self._base, output=output, classes=classes, **more)

    def _base(self, rows: Any) -> Any:
        return self._score(self._given(self.parameters.values), rows)

    def _given(self, values: Floats) -> Any:
        tensors = self.parameters.split(values)
        return tensors[0] if self._single else dict(zip(self.parameters.names, tensors, strict=True))

    def shifted_margins(self, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the models ``parameters + delta * direction``, shape (directions, rows)."""
        margins = np.empty((len(directions), len(X)))
        for size, rows, wanted in by_delta(delta, target, len(X)):
            for number, direction in enumerate(directions):
                values = self.parameters.values + size * direction
                moved = lambda given, values=values: self._score(self._given(values), given)  # noqa: E731
                margins[number, rows] = self._margin(X[rows], wanted, moved)
        return margins

    def describe(self) -> dict[str, Any]:
        """All that decides the output besides the parameters; the function counts by its text and what it reads."""
        return {**super().describe(), "kind": "parametric", "code": canonical(self._score)}

    def __repr__(self) -> str:
        return f"<ParametricModel with {len(self.parameters)} parameters, classes {list(self.classes)}>"


def _read_parameters(given: Any) -> Parameters:
    if isinstance(given, Parameters):
        return given
    named = dict(given) if isinstance(given, Mapping) else {"parameters": given}
    try:
        arrays = [np.array(values, dtype=np.float64) for values in named.values()]
    except (TypeError, ValueError):
        arrays = []
    if not arrays or not all(np.isfinite(array).all() for array in arrays):
        told = f"must be finite numbers, or names with arrays, got {given!r}"
        raise InputError(f"`parameters` of ParametricModel {told}.")
    names = [str(name) for name in named]
    return Parameters.from_arrays(arrays, names=names, kinds=["weight"] * len(names), layers=names)
