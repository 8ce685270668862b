"""The activation functions of dense networks, applied in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apas._typing import Floats

#: Slope of the leaky ReLU on the negative side (the default of the large frameworks).
LEAKY_SLOPE = 0.01


def _sigmoid(z: Floats) -> None:
    # tanh never overflows, where exp would for large negative z
    z *= 0.5
    np.tanh(z, out=z)
    z += 1.0
    z *= 0.5


def _gelu(z: Floats) -> None:
    from scipy.special import erf

    z *= 0.5 * (1.0 + erf(z * 0.5**0.5))


#: Each changes its argument in place: the pre-activations of many shifted copies are written down once only.
ACTIVATIONS: dict[str, Callable[[Floats], object]] = {
    "relu": lambda z: np.maximum(z, 0.0, out=z),
    "leaky_relu": lambda z: np.maximum(z, LEAKY_SLOPE * z, out=z),
    "hard_tanh": lambda z: np.clip(z, -1.0, 1.0, out=z),
    "tanh": lambda z: np.tanh(z, out=z),
    "sigmoid": _sigmoid,
    "identity": lambda z: z,
    "softplus": lambda z: np.logaddexp(z, 0.0, out=z),
    "elu": lambda z: np.maximum(z, np.expm1(np.minimum(z, 0.0)), out=z),
    "gelu": _gelu,
}


def activate(name: str, z: Floats) -> Floats:
    """Apply the activation `name` to `z` in place and return `z`."""
    ACTIVATIONS[name](z)
    return z


def derivative(name: str, z: Floats) -> Floats:
    """Derivative of the activation `name` at the pre-activations `z`; at a kink that of the flatter piece."""
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


def _sigmoid_of(z: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))
