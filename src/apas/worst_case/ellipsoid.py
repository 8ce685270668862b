"""Least margins in an ellipsoid of parameters: ``f - delta |L'g|`` if only the output layer moves, else of a box."""

from __future__ import annotations

import numpy as np

from apas._typing import Floats, Indices
from apas.models.feedforward import FeedForward
from apas.shifts.base import Ellipsoid
from apas.worst_case.ball import BallSlopes, is_exact_ball, margins_against
from apas.worst_case.intervals import Boxes, provable_radius

#: By what share a radius is lowered until its bound, rounding included, is above 0.
CUTS = (2.0**-40, 1e-9, 1e-6, 1e-3)


def margin_terms(net: FeedForward, X: Floats, wanted: Indices, region: Ellipsoid) -> tuple[Floats, Floats, Floats]:
    """Margins, how fast they fall with delta, (rivals, rows) each, and their gradients (rivals, rows, k)."""
    against = margins_against(net, X, wanted, (region.radii > 0).astype(np.float64))
    starts = np.stack([BallSlopes(margin, 2.0).at(np.zeros(len(X)))[0] for margin in against])
    gradients = np.stack([margin.output_gradients() for margin in against])
    return starts, np.linalg.norm(gradients @ region.root, axis=-1), gradients


def margin_error(net: FeedForward, X: Floats, wanted: Indices, region: Ellipsoid, delta: Floats) -> Floats:
    """What rounding can add to a bound at most."""
    # the sums of a box are of the same numbers, and a norm of n terms is off by n rounding errors of a sum of them
    size = 4 * net.weights[-1].shape[1]
    return np.asarray(size * Boxes(net, X, wanted, region.radii).error(delta))


def least_margins_ellipsoid(
    net: FeedForward, X: Floats, wanted: Indices, region: Ellipsoid, delta: Floats
) -> tuple[Floats, Floats]:
    """A lower bound on the margin of each row over the ellipsoid, as computed, and what rounding can have added."""
    error = margin_error(net, X, wanted, region, delta)
    if not is_exact_ball(net, region.radii):
        return Boxes(net, X, wanted, region.radii).bound(delta), error
    starts, slopes, _ = margin_terms(net, X, wanted, region)
    return (starts - delta * slopes).min(axis=0) - net.rounding(X, region.radii, delta), error


def ellipsoid_radius(net: FeedForward, X: Floats, wanted: Indices, region: Ellipsoid, limit: float) -> Floats:
    """Per row the largest delta up to `limit` at which every shift of the ellipsoid is proved to keep the class."""
    if not is_exact_ball(net, region.radii):
        return provable_radius(Boxes(net, X, wanted, region.radii), limit)[0]
    starts, slopes, _ = margin_terms(net, X, wanted, region)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.minimum(np.where(starts > 0, starts / slopes, 0.0).min(axis=0), limit)
    proved = np.zeros(len(X))
    for cut in reversed(CUTS):
        bound, error = least_margins_ellipsoid(net, X, wanted, region, lower := top * (1 - cut))
        proved = np.where(bound - error > 0, lower, proved)
    bound, error = least_margins_ellipsoid(net, X, wanted, region, np.full(len(X), limit))
    return np.where(bound - error > 0, limit, proved)


def worst_points_ellipsoid(
    net: FeedForward, X: Floats, wanted: Indices, region: Ellipsoid, delta: Floats
) -> Floats | None:
    """Per row a shift of delta 1 with the least margin; None where it is not known."""
    if not is_exact_ball(net, region.radii):
        return None
    starts, slopes, gradients = margin_terms(net, X, wanted, region)
    return region.steepest(gradients[(starts - delta * slopes).argmin(axis=0), np.arange(len(X))])
