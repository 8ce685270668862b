"""What activations and their derivatives can be while their argument runs through an interval."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from apas.models.activations import LEAKY_SLOPE, activate

__all__ = ["LOWEST", "POSITIVE", "STEEPEST", "activation_range", "derivative_range"]

_Array = NDArray[np.float64]
#: A bound on the derivative where it is not 1.
STEEPEST = {"gelu": 1.13, "sigmoid": 0.25}
#: Where the activation that first falls and then rises has its least value.
LOWEST = {"gelu": -0.7517915246935645}
#: Activations that are never below 0.
POSITIVE = ("relu", "sigmoid", "softplus")
_TURN = 2.0**0.5  # where the derivative of gelu is least (-) and largest (+)


def activation_range(name: str, low: _Array, high: _Array) -> tuple[_Array, _Array]:
    """Least and largest value of an activation over ``[low, high]``.

    Examples
    --------
    >>> activation_range("relu", np.array([-1.0]), np.array([2.0]))
    (array([0.]), array([2.]))
    """
    least, most = activate(name, low.copy()), activate(name, high.copy())
    if name not in LOWEST:  # the others never fall
        return least, most
    lowest = LOWEST[name]
    bottom = float(activate(name, np.array([lowest]))[0])
    inside = (low < lowest) & (lowest < high)
    return np.where(inside, bottom, np.minimum(least, most)), np.maximum(least, most)


def derivative_range(name: str, low: _Array, high: _Array) -> tuple[_Array, _Array]:
    """Least and largest derivative of an activation over ``[low, high]``; at a kink, everything between both sides.

    Examples
    --------
    >>> derivative_range("relu", np.array([-1.0, 0.5]), np.array([2.0, 2.0]))
    (array([0., 1.]), array([1., 1.]))
    """
    return _DERIVATIVES[name](low, high)


def _steps(low: _Array, high: _Array, before: float) -> tuple[_Array, _Array]:
    return np.where(low > 0, 1.0, before), np.where(high < 0, before, 1.0)


def _relu(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    return _steps(low, high, 0.0)


def _leaky_relu(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    return _steps(low, high, LEAKY_SLOPE)


def _hard_tanh(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    return np.where((low > -1) & (high < 1), 1.0, 0.0), np.where((high < -1) | (low > 1), 0.0, 1.0)


def _bell(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    """Of 1 - tanh**2, which falls with the distance from 0."""
    nearest = np.maximum(np.maximum(low, -high), 0.0)
    farthest = np.maximum(-low, high)
    return 1.0 - np.tanh(farthest) ** 2, 1.0 - np.tanh(nearest) ** 2


def _sigmoid(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    least, most = _bell(0.5 * low, 0.5 * high)
    return 0.25 * least, 0.25 * most


def _identity(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    return np.ones_like(low), np.ones_like(high)


def _softplus(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    return activate("sigmoid", low.copy()), activate("sigmoid", high.copy())


def _elu(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    return np.exp(np.minimum(low, 0.0)), np.exp(np.minimum(high, 0.0))


def _gelu(low: _Array, high: _Array) -> tuple[_Array, _Array]:
    ends = _gelu_slope(low), _gelu_slope(high)
    bottom, top = _gelu_slope(np.array([-_TURN, _TURN])).tolist()
    least = np.where((low < -_TURN) & (high > -_TURN), bottom, np.minimum(*ends))
    return least, np.where((low < _TURN) & (high > _TURN), top, np.maximum(*ends))


def _gelu_slope(z: _Array) -> _Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(z) + z * np.exp(-0.5 * z * z) * (2.0 * np.pi) ** -0.5)


_DERIVATIVES: dict[str, Callable[[_Array, _Array], tuple[_Array, _Array]]] = {
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "hard_tanh": _hard_tanh,
    "tanh": _bell,
    "sigmoid": _sigmoid,
    "identity": _identity,
    "softplus": _softplus,
    "elu": _elu,
    "gelu": _gelu,
}
