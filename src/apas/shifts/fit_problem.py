"""The problem that a last layer solves, and its Hessian in coordinates in which it is nearly the identity.

Rounding errors are bounded, not estimated: sums by gamma_n = n u / (1 - n u) times their absolute terms, in whatever
order they are added; eigenvalues by a Cholesky factorisation that succeeds with Rump's allowance; the exponential
function by `RELATIVE`, which is 500 times what libraries grant it.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from apas._typing import Floats, Indices
from apas.errors import Unsupported
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, scores

UNIT = 2.0**-53
#: Relative error of an expression of a few exponential functions.
RELATIVE = 2.0**-44
#: Newton's method ends below this norm of the gradient, about, or when it gets no smaller.
SMALL_GRADIENT, STEPS = 1e-12, 60
#: Rounding may move a score by so much at most, for p, 1 - p and p' to change by twice that part of themselves at most.
MOST_OFF = 0.5
SINGULAR = (
    "DataChange needs a table on which the Hessian can be inverted in floats, got a singular one; drop columns that "
    "depend on others, or lower `C`."
)


def gamma(terms: int) -> float:
    """What rounding adds to a sum of so many products, as a part of the sum of their magnitudes."""
    return terms * UNIT / (1 - terms * UNIT)


def least_eigenvalue(matrix: Floats, error: float) -> float:
    """A proved lower bound on the least eigenvalue of every symmetric matrix within `error` of a matrix of floats."""
    size, diagonal = len(matrix), np.diag(matrix)
    if not np.isfinite(matrix).all():
        return -math.inf
    guess = float(np.linalg.eigvalsh(matrix)[0])
    # Rump (2006): a matrix is positive definite if Cholesky's factorisation succeeds after the diagonal was lowered by
    # gamma_(n+1) / (1 - gamma_(n+1)) times the trace; twice as much covers the rounding of the lowered diagonal itself
    allowance = 2 * gamma(size + 3) * float(np.abs(diagonal).sum() + size * abs(guess)) + 1e-280
    for more in (1.0, 1e2, 1e4, 1e6, 1e8):
        low = guess - more * allowance
        lowered = matrix - (low + 2 * allowance) * np.eye(size)
        try:
            np.linalg.cholesky(lowered)
        except np.linalg.LinAlgError:
            continue
        return low - error - 4 * UNIT * float(np.abs(diagonal).sum())  # the last for the sums that made the matrix
    return -math.inf


@dataclass(frozen=True, eq=False)
class FitProblem:
    """What is minimised: ``|w|^2 / 2 + sum_i c_i loss(z_i @ theta, y_i)`` with ``theta = (w, intercept)``.

    Rows `Z` end with a 1; labels `y` are 0 and 1, or -1 and 1 for the squared loss ``(m - y)^2 / 2``; `weights` are the
    c_i, C times the weights of the row and of its class, and `turned` those of the same rows with the other label.
    """

    Z: Floats
    y: Floats
    weights: Floats
    turned: Floats
    logistic: bool

    @property
    def other(self) -> Floats:
        """The other label of each row."""
        return 1.0 - self.y if self.logistic else -self.y

    @cached_property
    def penalised(self) -> Floats:
        """1 for each weight, 0 for the intercept."""
        return np.append(np.ones(self.Z.shape[1] - 1), 0.0)

    def residuals(self, m: Floats) -> Floats:
        """Derivatives of the losses at scores; small ones as exact as large ones."""
        if not self.logistic:
            return m - self.y
        sign = 1.0 - 2.0 * self.y
        return sign * expit(sign * m)

    def gradient(self, theta: Floats) -> Floats:
        """Gradient of what is minimised."""
        return np.asarray(self.Z.T @ (self.weights * self.residuals(self.Z @ theta)) + self.penalised * theta)

    def curvatures(self, m: Floats) -> Floats:
        """Second derivatives of the losses at scores, weighted."""
        return np.asarray(self.weights * (slope(m) if self.logistic else 1.0))

    def hessian(self, theta: Floats) -> Floats:
        """Hessian of what is minimised."""
        return np.asarray((self.Z.T * self.curvatures(self.Z @ theta)) @ self.Z + np.diag(self.penalised))

    def value(self, theta: Floats) -> float:
        """What is minimised."""
        m = self.Z @ theta
        losses = np.logaddexp(0.0, m) - self.y * m if self.logistic else 0.5 * (m - self.y) ** 2
        return float(0.5 * (self.penalised * theta) @ theta + self.weights @ losses)

    def minimiser(self, start: Floats | None = None, enough: float = SMALL_GRADIENT) -> Floats:
        """About the minimiser, by Newton's method; how exact it is, who uses it must measure."""
        theta, least = np.zeros(self.Z.shape[1]) if start is None else start, math.inf
        for _ in range(STEPS):
            gradient = self.gradient(theta)
            step = np.linalg.lstsq(self.hessian(theta), gradient, rcond=None)[0]
            decrement, length = math.sqrt(max(0.0, float(gradient @ step))), 1.0
            if decrement > 0.5 * least and decrement < 1e-7:  # as small as floats allow
                break
            least = decrement
            if decrement > 0.1:  # far away a full step may lead farther
                value = self.value(theta)
                while self.value(theta - length * step) > value - 0.1 * length * decrement**2 and length > 1e-6:
                    length *= 0.5
            theta = theta - length * step
            if decrement < 0.1 and decrement**2 <= enough:  # about what it is after such a step
                break
        return np.asarray(theta)

    def without(self, rows: Indices) -> Self:
        """The problem on the data without some rows."""
        weights = self.weights.copy()
        weights[rows] = 0.0  # a loss that does not count is as good as none
        return replace(self, weights=weights)

    def relabelled(self, rows: Indices) -> Self:
        """The problem on the data with the other label of some rows."""
        y, weights = self.y.copy(), self.weights.copy()
        y[rows], weights[rows] = self.other[rows], self.turned[rows]
        return replace(self, y=y, weights=weights)

    def with_copies(self, row: Floats, label: float, weight: float, count: int) -> Self:
        """The problem on the data with so many copies of one row more: one of so many times the weight."""
        parts = (self.Z, row[None]), (self.y, [label]), (self.weights, [count * weight]), (self.turned, [0.0])
        Z, y, weights, turned = (np.concatenate(part) for part in parts)
        return type(self)(Z, y, weights, turned, self.logistic)


def expit(m: Floats) -> Floats:
    """The logistic function with a small relative error on both sides."""
    tail = np.exp(-np.abs(m))
    return np.asarray(np.where(m >= 0, 1.0, tail) / (1.0 + tail))


def slope(m: Floats) -> Floats:
    """The derivative of the logistic function."""
    tail = np.exp(-np.abs(m))
    return np.asarray(tail / (1.0 + tail) ** 2)


def last_layer_rows(network: FeedForward, X: Floats) -> Floats:
    """Rows in model units as they enter the last layer of a network, with a 1 behind them."""
    names = network.activations
    if names:
        X = activate(names[-1], scores(network.weights[:-1], network.biases[:-1], names[:-1], X))
    return np.column_stack([X, np.ones(len(X))])


class WhitenedFit:
    """A problem near its minimiser, in coordinates in which the Hessian there is nearly the identity.

    W is a triangular matrix of floats, about the inverse of a Cholesky factor of the Hessian H: the norm of a change D
    of the parameters is that of W^-T D, and that of a gradient g is that of W g. W is what it is, so it needs no
    residual: the eigenvalues of W H W' are proved to lie between `low` and `high`.
    """

    def __init__(self, problem: FitProblem) -> None:
        self.problem = problem
        try:
            self.theta = problem.minimiser()
            lower = np.linalg.cholesky(problem.hessian(self.theta))
            self.W = np.tril(np.linalg.solve(lower, np.eye(len(lower))))
        except np.linalg.LinAlgError:
            raise Unsupported(SINGULAR) from None
        Z, width, size = problem.Z, problem.Z.shape[1], np.abs(problem.Z)
        #: Covers the rounding of a norm of so many numbers, and of the few operations around it.
        self.wide = 1 + gamma(4 * width + 16)
        self.m = Z @ self.theta
        #: How far scores may be from what they are in real arithmetic.
        self.off = gamma(width + 1) * (size @ np.abs(self.theta)) * self.wide
        # p, 1 - p and p' change by a part of at most exp(t) - 1 <= 2 t when a score changes by t, as the derivatives of
        # their logarithms lie in [-1, 1]
        self.relative = RELATIVE + 2 * self.off
        if not np.isfinite(self.W).all() or not np.diag(self.W).all() or not self.off.max() < MOST_OFF:
            raise Unsupported(SINGULAR)
        self.zt = Z @ self.W.T
        self.zt_off = gamma(width) * np.linalg.norm(size @ np.abs(self.W).T, axis=1) * self.wide
        self.norms = (np.linalg.norm(self.zt, axis=1) + self.zt_off) * self.wide
        whole = (self.W * problem.penalised) @ self.W.T, (np.abs(self.W) * problem.penalised) @ np.abs(self.W).T
        self.ridge, self.ridge_off = 0.5 * (whole[0] + whole[0].T), 2 * gamma(width) * float(np.linalg.norm(whole[1]))
        curved = problem.curvatures(self.m)
        gram, error = self.gram(curved)
        error += self.ridge_off + float((curved * self.norms**2) @ self.relative) * (1 + 1e-9)
        self.low, self.high = least_eigenvalue(gram + self.ridge, error), -least_eigenvalue(-gram - self.ridge, error)
        #: How far the whitened Hessian may be from the identity.
        self.gap = max(1 - self.low, self.high - 1) * (1 + 4 * UNIT)

    def gram(self, weights: Floats, rows: Indices | slice = slice(None)) -> tuple[Floats, float]:
        """The sum of ``weights[i] zt_i zt_i'`` over some rows, and how far it may be off in the spectral norm."""
        zt, norms = self.zt[rows], self.norms[rows]
        gram, size = (zt.T * weights) @ zt, np.abs(weights) * norms
        error = gamma(len(zt) + 3) * float(size @ norms) + 2.01 * float(size @ self.zt_off[rows])
        return 0.5 * (gram + gram.T), error * (1 + 1e-9)

    def gradient_norm(self, problem: FitProblem, theta: Floats) -> float:
        """An upper bound on the norm of W times the gradient of a problem at parameters."""
        m, Z = problem.Z @ theta, np.abs(problem.Z)
        residual, gradient = problem.residuals(m), problem.gradient(theta)
        off = gamma(Z.shape[1] + 1) * (Z @ np.abs(theta)) * self.wide
        if not (off < MOST_OFF).all():
            return math.inf
        wrong = np.abs(residual) * (RELATIVE + 2 * off)
        if not problem.logistic:
            wrong = off + RELATIVE * (np.abs(m) + 1.0)
        sizes = problem.weights * (wrong + gamma(len(Z) + 4) * np.abs(residual))
        error = (Z.T @ sizes) * (1 + 1e-9) + gamma(4) * np.abs(problem.penalised * theta)
        error += gamma(len(self.W) + 4) * np.abs(gradient)  # the last sum, and the product with W
        return float(np.linalg.norm(self.W @ gradient) + np.linalg.norm(np.abs(self.W) @ error)) * self.wide

    def dual_norm(self, problem: FitProblem, theta: Floats) -> float:
        """An upper bound on the norm of such a gradient g in that of the inverse Hessian, sqrt(g' H^-1 g)."""
        # low I <= W H W' says H^-1 <= W' W / low
        return self.gradient_norm(problem, theta) / math.sqrt(self.low) * self.wide if self.low > 0 else math.inf
