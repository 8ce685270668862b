"""Lemma 3, both directions: plausible shifts (Definition 6) that are not natural (Definition 5), and the reverse."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Self

import numpy as np

from apas._typing import Floats
from apas._validation import check_matrix, check_numbers
from apas.errors import InputError
from apas.models.feedforward import FeedForward
from apas.models.forward import activate

MOST_TERMS = 16  # a sum of so many uniform terms takes 65,536 corners
NODES, MOST_POINTS = 40, 10**7  # of the quadrature in each direction, and in all
#: Activations whose derivatives all exist, so that the quadrature converges faster than any power.
SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "identity")


def expected_relu(centre: Fraction, reaches: Sequence[Fraction]) -> Fraction:
    """The expectation of ``relu(centre + sum(reach * u))`` for independent u, uniform on [-1, 1]; without rounding."""
    # the iterated integral of relu is ``relu(z)**(k + 1) / (k + 1)!``: its alternating sum over the corners of the box,
    # divided by the volume
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
) -> tuple[float, float]:
    """The same expectation for a smooth activation, by Gauss-Legendre quadrature in every direction."""
    if name not in SMOOTH:
        raise InputError(f"`name` must be one of {', '.join(SMOOTH)}, got {name!r}; for relu use expected_relu.")
    moving = [float(reach) for reach in reaches if reach]
    if nodes < 2 or nodes ** len(moving) > MOST_POINTS:
        raise InputError(f"`nodes` must be at least 2 and give at most {MOST_POINTS} points, got {nodes}.")
    values = []
    for count in (nodes, nodes // 2):
        points, weights = np.polynomial.legendre.leggauss(count)
        z, mass = np.array([float(centre)]), np.array([1.0])
        for reach in moving:
            z = np.add.outer(z, reach * points).ravel()
            mass = np.multiply.outer(mass, 0.5 * weights).ravel()
        values.append(math.fsum((activate(name, z) * mass).tolist()))
    return values[0], abs(values[0] - values[1])


_Rational = tuple[Fraction, ...]


@dataclass(frozen=True)
class PlausibleExample:
    """A network with one hidden layer and no biases, a row, and a delta, in rational numbers.

    A shifted model has every weight uniform within delta, independently.

    Parameters
    ----------
    hidden : tuple of tuples of Fraction
        One row of weights per input, one column per hidden unit.
    output : tuple of Fraction
        One weight per hidden unit.
    point : tuple of Fraction
        The row.

    Examples
    --------
    >>> float(LEMMA_EXAMPLE.value()), float(LEMMA_EXAMPLE.expectation())
    (0.52, 0.519875)
    """

    hidden: tuple[_Rational, ...]
    output: _Rational
    point: _Rational
    delta: Fraction

    def model(self, activation: str = "relu") -> FeedForward:
        """The network; what it computes is compared with 1/2, as in the paper."""
        weights = [np.array(self.hidden, dtype=np.float64), np.array(self.output, dtype=np.float64)[:, None]]
        return FeedForward(weights, [None, None], activation=activation, output="identity", threshold=0.5)

    @property
    def X(self) -> Floats:
        """The row as a matrix."""
        return np.array([self.point], dtype=np.float64)

    def value(self) -> Fraction:
        """The output of the model itself with relu units, without rounding."""
        return _dot(self.output, (max(z, Fraction(0)) for z in self._sums()))

    def expectation(self) -> Fraction:
        """The expected output of a shifted model with relu units, without rounding."""
        return _dot(self.output, (expected_relu(z, self._reaches()) for z in self._sums()))

    def difference(self, activation: str) -> tuple[float, float]:
        """Expected output minus output for a smooth activation, and how much of it changes with half of the nodes."""
        reaches = [float(reach) for reach in self._reaches()]
        found = [expected_activation(activation, float(z), reaches) for z in self._sums()]
        weights = [float(v) for v in self.output]
        mean = sum(v * value for v, (value, _) in zip(weights, found, strict=True))
        change = sum(abs(v) * error for v, (_, error) in zip(weights, found, strict=True))
        own = float(self.model(activation).margin(self.X, 1)[0]) + 0.5
        return mean - own, change

    def _sums(self) -> list[Fraction]:
        return [_dot(self.point, column) for column in zip(*self.hidden, strict=True)]

    def _reaches(self) -> list[Fraction]:
        return [self.delta * abs(x) for x in self.point]


def _dot(left: Iterable[Fraction], right: Iterable[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


#: The 2-2-1 network, counterfactual and delta by which the paper proves the first direction of Lemma 3. Its expected
#: output is 4159/8000 = 0.519875, below the 0.52 of the model itself; the paper says above, and needs "different".
LEMMA_EXAMPLE = PlausibleExample(
    hidden=((Fraction(1), Fraction(0)), (Fraction(0), Fraction(3, 5))),
    output=(Fraction(1), Fraction(-1)),
    point=(Fraction(1), Fraction(4, 5)),
    delta=Fraction(3, 10),
)


@dataclass(frozen=True)
class UnboundedFamily:
    """The other direction: ``relu(1/2 - relu(x - theta))``, with theta at or above all the data.

    Whatever `theta`, the largest number of the data, grows by, the output is 1/2 on all the data, so that shifts of any
    size occur naturally; and no delta contains them all.

    Examples
    --------
    >>> family = UnboundedFamily.of([[0.25], [3.0]])
    >>> family.model(1e9).margin(np.array([[0.25], [3.0]]), 1) + family.model().threshold
    array([0.5, 0.5])
    """

    theta: float

    @classmethod
    def of(cls, X: Any) -> Self:
        """The family that belongs to data with one feature, shape (rows, 1)."""
        rows = check_numbers(check_matrix(X, 1, None))
        if not len(rows):
            raise InputError("`X` of UnboundedFamily must hold at least one row, got none.")
        return cls(float(rows.max()))

    def model(self, shift: float = 0.0) -> FeedForward:
        """The model shifted by so much: the bias of its first unit is ``-(theta + shift)``."""
        if not (np.isfinite(shift) and shift >= 0):
            raise InputError(f"`shift` of UnboundedFamily.model must be a number of at least 0, got {shift!r}.")
        return FeedForward(
            [[[1.0]], [[-1.0]], [[1.0]]], [[-(self.theta + shift)], [0.5], None], output="identity", threshold=0.5
        )
