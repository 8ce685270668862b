"""Expected activations of a unit whose weights are uniform: exact for relu, by quadrature for smooth activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from apas.errors import InputError
from apas.models.activations import activate

__all__ = ["expected_activation", "expected_relu"]

#: A sum of this many uniform terms takes 65,536 corners.
MOST_TERMS = 16
#: Nodes of the quadrature in each direction, and how many points it may take in all.
NODES, MOST_POINTS = 40, 10**7
#: Activations whose derivatives all exist, so that the quadrature converges faster than any power.
SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "identity")


def expected_relu(centre: Fraction, reaches: Sequence[Fraction]) -> Fraction:
    """The expectation of ``relu(centre + sum(reach * u))`` for independent u, uniform on [-1, 1]; without rounding.

    Parameters
    ----------
    centre : Fraction
    reaches : sequence of Fraction
        How far each term moves to either side; at most 16 that are not 0.

    Notes
    -----
    The function whose mixed differences over a box are wanted is the iterated integral of relu, ``relu(z)**(k + 1) / (k
    + 1)!``. The expectation is its alternating sum over the corners of the box, divided by the volume.

    Examples
    --------
    >>> expected_relu(Fraction(0), [Fraction(1)])
    Fraction(1, 4)
    """
    moving = [abs(Fraction(reach)) for reach in reaches if reach]
    if len(moving) > MOST_TERMS:
        raise InputError(f"`reaches` must hold at most {MOST_TERMS} numbers other than 0, got {len(moving)}.")
    power = len(moving) + 1
    total = Fraction(0)
    for signs in product((-1, 1), repeat=len(moving)):
        corner = Fraction(centre) + sum((s * r for s, r in zip(signs, moving, strict=True)), Fraction(0))
        total += math.prod(signs) * max(corner, Fraction(0)) ** power
    return total / (math.factorial(power) * math.prod(2 * reach for reach in moving))


def expected_activation(
    name: str, centre: float, reaches: Sequence[float], *, nodes: int = NODES
) -> tuple[float, float]:  # fmt: skip
    """The same expectation for a smooth activation, by Gauss-Legendre quadrature in every direction.

    Parameters
    ----------
    name : {"tanh", "sigmoid", "softplus", "gelu", "identity"}
    centre : float
    reaches : sequence of float
    nodes : int, default 40

    Returns
    -------
    value : float
    change : float
        How much the value changes when half of the nodes are taken: an indication of its error, not a bound.

    Examples
    --------
    >>> value, change = expected_activation("tanh", 1.0, [0.3, 0.24])
    >>> round(value, 9), change < 1e-14
    (0.746032446, True)
    """
    if name not in SMOOTH:
        raise InputError(f"`name` must be one of {', '.join(SMOOTH)}, got {name!r}; for relu use expected_relu.")
    moving = [float(reach) for reach in reaches if reach]
    if nodes < 2 or nodes ** len(moving) > MOST_POINTS:
        raise InputError(f"`nodes` must be at least 2 and give at most {MOST_POINTS} points, got {nodes}.")
    value, coarse = (_quadrature(name, centre, moving, count) for count in (nodes, nodes // 2))
    return value, abs(value - coarse)


def _quadrature(name: str, centre: float, reaches: Sequence[float], nodes: int) -> float:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    z, mass = np.array([float(centre)]), np.array([1.0])
    for reach in reaches:
        z = np.add.outer(z, reach * points).ravel()
        mass = np.multiply.outer(mass, 0.5 * weights).ravel()
    return math.fsum((activate(name, z) * mass).tolist())
