"""The activation functions of dense networks, applied in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["ACTIVATIONS", "LEAKY_SLOPE", "activate", "derivative"]

#: Slope of the leaky ReLU on the negative side (the default of the large frameworks).
LEAKY_SLOPE = 0.01

_Array = NDArray[np.float64]


def _relu(z: _Array) -> None:
    np.maximum(z, 0.0, out=z)


def _leaky_relu(z: _Array) -> None:
    np.maximum(z, LEAKY_SLOPE * z, out=z)


def _hard_tanh(z: _Array) -> None:
    np.clip(z, -1.0, 1.0, out=z)


def _tanh(z: _Array) -> None:
    np.tanh(z, out=z)


def _sigmoid(z: _Array) -> None:
    # tanh never overflows, where exp would for large negative z
    z *= 0.5
    np.tanh(z, out=z)
    z += 1.0
    z *= 0.5


def _identity(z: _Array) -> None:
    pass


def _softplus(z: _Array) -> None:
    np.logaddexp(z, 0.0, out=z)


def _elu(z: _Array) -> None:
    np.maximum(z, np.expm1(np.minimum(z, 0.0)), out=z)


def _gelu(z: _Array) -> None:
    from scipy.special import erf

    z *= 0.5 * (1.0 + erf(z * 0.5**0.5))


ACTIVATIONS: dict[str, Callable[[_Array], None]] = {
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "hard_tanh": _hard_tanh,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "identity": _identity,
    "softplus": _softplus,
    "elu": _elu,
    "gelu": _gelu,
}


def activate(name: str, z: _Array) -> _Array:
    """Apply the activation `name` to `z` in place and return `z`.

    Examples
    --------
    >>> activate("hard_tanh", np.array([-3.0, 0.5, 2.0]))
    array([-1. ,  0.5,  1. ])
    """
    ACTIVATIONS[name](z)
    return z


def derivative(name: str, z: _Array) -> _Array:
    """Slope of the activation `name` at `z`; at a kink that of the flatter piece.

    Examples
    --------
    >>> derivative("relu", np.array([-3.0, 2.0]))
    array([0., 1.])
    """
    if name == "relu":
        return (z > 0).astype(np.float64)
    if name == "leaky_relu":
        return np.where(z > 0, 1.0, LEAKY_SLOPE)
    if name == "hard_tanh":
        return (np.abs(z) < 1).astype(np.float64)
    if name == "identity":
        return np.ones_like(z)
    if name == "tanh":
        return np.asarray(1 - np.tanh(z) ** 2)
    if name == "softplus":
        return _sigmoid_of(z)
    if name == "elu":
        return np.exp(np.minimum(z, 0.0))
    if name == "sigmoid":
        s = _sigmoid_of(z)
        return s * (1 - s)
    from scipy.special import erf

    return np.asarray(0.5 * (1.0 + erf(z * 0.5**0.5)) + z * np.exp(-0.5 * z * z) * (2 * np.pi) ** -0.5)


def _sigmoid_of(z: _Array) -> _Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))
