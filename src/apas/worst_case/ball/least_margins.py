"""Least margins while all parameters together move by at most delta in an L_p norm: the best of three bounds.

f less the integral of how fast the margin can fall (`BallSlopes`, at right ends of steps, since it never falls with the
distance; exact where only the output layer moves); a dual bound (`BallDual`); the box around the ball (`Boxes`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from apas._typing import Floats, Indices
from apas.models.feedforward import FeedForward
from apas.shifts.norms import steepest_point
from apas.worst_case.ball.lagrangian import BallDual
from apas.worst_case.ball.lipschitz import BallMargin, BallSlopes, MatrixNorms, margins_against
from apas.worst_case.intervals import Boxes, cut_last_bits, provable_radius

#: Steps of a first walk along the radius, and of a second one that looks closer.
COARSE, FINE = 16, 64
#: How many numbers an array of a block of rows holds at most, unless a single row needs more.
NUMBERS = 1 << 16


def is_exact_ball(net: FeedForward, mask: Floats) -> bool:
    """Whether the bounds are the least margins themselves, up to rounding: where only the output layer moves."""
    return not mask[: net.parameters.slices[-2].start].any()


def least_margins_ball(
    net: FeedForward, X: Floats, wanted: Indices, mask: Floats, p: float, delta: Floats
) -> tuple[Floats, Floats]:
    """A lower bound on the margin of each row while the parameters move by at most `delta` in the L_p norm."""
    safe, error, norms = np.empty(len(X)), np.empty(len(X)), [MatrixNorms(w, p) for w in net.weights]
    for rows in _blocks(net, len(X)):
        boxes = Boxes(net, X[rows], wanted[rows], mask)
        error[rows] = boxes.error(delta[rows])
        lowered = net.rounding(X[rows], mask, delta[rows])
        against = margins_against(net, X[rows], wanted[rows], mask)
        parts = [_least(margin.lower(lowered), norms, delta[rows]) for margin in against]
        safe[rows] = np.fmax(np.minimum.reduce(parts), boxes.bound(delta[rows]) - error[rows])
    return np.where(np.isnan(safe), -np.inf, safe + error), error


def ball_radius(net: FeedForward, X: Floats, wanted: Indices, mask: Floats, p: float, limit: float) -> Floats:
    """Per row the largest delta up to `limit` at which every shift of the L_p ball is proved to keep the class."""
    proved, norms = np.empty(len(X)), [MatrixNorms(w, p) for w in net.weights]
    for rows in _blocks(net, len(X)):
        against = margins_against(net, X[rows], wanted[rows], mask)
        parts = [_radius(margin, norms, limit) for margin in against]
        if net.dtype != "float64":  # no more is proved than in real arithmetic, and rounding never falls with delta
            lowered = net.rounding(X[rows], mask, np.minimum.reduce(parts))
            parts = [_radius(margin.lower(lowered), norms, limit) for margin in against]
        boxes, least = Boxes(net, X[rows], wanted[rows], mask), np.minimum.reduce(parts)
        # where intervals over the box around the ball prove more, which is seldom, that counts
        beyond = np.minimum(1.001 * least, limit)
        more = np.flatnonzero((boxes.bound(beyond) - boxes.error(beyond) > 0) & (least < limit))
        if len(more):
            least[more] = np.maximum(least[more], provable_radius(boxes.take(more), limit)[0])
        proved[rows] = least
    return np.where(proved >= limit, limit, cut_last_bits(proved))


def worst_points_ball(
    net: FeedForward, X: Floats, wanted: Indices, mask: Floats, p: float, delta: Floats
) -> Floats | None:
    """Per row a point of the unit ball with the least margin, where the bounds are exact; else None."""
    if not is_exact_ball(net, mask):
        return None
    points, least = np.zeros((len(X), len(mask))), np.full(len(X), np.inf)
    for margin in margins_against(net, X, wanted, mask):
        start, slope = BallSlopes(margin, p).at(np.zeros(len(X)))
        better = start - delta * slope < least
        least = np.where(better, start - delta * slope, least)
        points[better] = steepest_point(margin.take(better).output_gradients() * mask, p)
    return points


def _blocks(net: FeedForward, rows: int) -> Iterator[slice]:
    """Parts of the rows whose layers fit into the processor's cache."""
    step = max(1, NUMBERS // max(max(w.shape) for w in net.weights))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _least(margin: BallMargin, norms: list[MatrixNorms], delta: Floats) -> Floats:
    p, slopes = norms[0].p, BallSlopes(margin, norms[0].p, norms)
    start, _ = slopes.at(np.zeros(len(delta)))
    least, _ = _walk(slopes, start, delta, 1 if margin.linear else FINE)
    rows = np.flatnonzero(BallDual.fits(margin, p))
    if len(rows):
        least[rows] = np.fmax(least[rows], BallDual(margin.take(rows)).least(delta[rows]))
    return least


def _radius(margin: BallMargin, norms: list[MatrixNorms], limit: float) -> Floats:
    p, slopes = norms[0].p, BallSlopes(margin, norms[0].p, norms)
    start, slope = slopes.at(np.zeros(len(margin.X)))
    # G is at least its value at 0: no walk can come farther
    top = np.where(start > 0, np.minimum(limit, start / slope * (1 + 1e-9)), 0.0)
    _, proved = _walk(slopes, start, top, 1 if margin.linear else COARSE)
    if not margin.linear:
        _, closer = _walk(slopes, start, np.minimum(top, 1.25 * proved), FINE)
        proved = np.maximum(proved, closer)
    rows = np.flatnonzero(BallDual.fits(margin, p) & (start > 0))
    if len(rows):
        proved[rows] = np.maximum(proved[rows], np.minimum(BallDual(margin.take(rows)).radius(), limit))
    return proved


def _walk(slopes: BallSlopes, start: Floats, top: Floats, steps: int) -> tuple[Floats, Floats]:
    """Lower bounds on the margins at radius `top`, and how far they are proved to stay above 0, at most to `top`."""
    # the slope at the right end of each step bounds all of the step, since slopes never fall with the radius
    bound, before = start, np.zeros(len(start))
    proved, alive = np.zeros(len(start)), start > 0
    for i in range(1, steps + 1):
        radius = top * (i / steps)
        least, slope = slopes.at(radius)
        with np.errstate(over="ignore", invalid="ignore"):
            # outward: 2**-50 is more than the three roundings of the product, `nextafter` that of the difference
            fallen = bound - (radius - before) * slope * (1 + 2.0**-50)
            end = np.fmax(before, np.minimum((before + bound / slope) * (1 - 2.0**-50), radius))
        after = np.fmax(np.nextafter(fallen, -np.inf), least)
        proved = np.where(alive, np.where(after > 0, radius, end), proved)
        alive = alive & (after > 0)
        bound, before = after, radius
    return bound, proved
