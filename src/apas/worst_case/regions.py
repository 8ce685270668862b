"""The least margin over a region of rows: of networks that were drawn, of every shift in a box, and of trees.

What enters the first layer is a straight line in the few coordinates of a region; (draw, sub-box) pairs get linear
bounds and are cut. Kept only by bounds, broken only by a row computed to fail, open otherwise.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from apas._typing import Floats, Indices
from apas.models.base import ROUNDING
from apas.models.feedforward import FeedForward
from apas.models.forward import activate, activation_range, is_positive, margins_from_scores
from apas.models.trees import Trees, towards
from apas.worst_case.intervals import moving_layers, output_terms, rivals
from apas.worst_case.linear import pencil

#: How often a sub-box is cut, and how many sub-boxes of one draw may be open at a time; then the draw is left open.
ROUNDS, OPEN_BOXES = 24, 128
CELLS = 20_000  # how many cells of a grid of thresholds are looked at one by one


@dataclass(frozen=True, eq=False)
class AffineBox:
    """Rows ``corner + t @ ways``, t in the unit cube and, where `steps` is not 0, a whole number of steps."""

    corner: Floats
    ways: Floats
    steps: Floats

    def rows(self, t: Floats) -> Floats:
        """The rows of points of the cube."""
        return np.asarray(self.corner + t @ self.ways)

    def on_steps(self, t: Floats) -> Floats:
        """The points of the cube that are next to some, on the grid where there is one."""
        whole = np.where(self.steps > 0, self.steps, 1.0)
        return np.where(self.steps > 0, np.clip(np.rint(t / whole) * whole, 0.0, 1.0), t)


def rounding_band(net: FeedForward, box: AffineBox, radii: Floats, delta: float) -> float:
    """What a computed bound on the margin of a row of the region can be off by, on any shifted network."""
    # operations behind a bound are off by 2**-53 of the magnitudes they add up; lines have slopes and heights of at
    # most those magnitudes, a layer adds two constants, and the factor 8 is to spare: as in `Relaxation.allowance`; as
    # much again for rows that are encoded off the straight line by rounding
    steps = sum(len(w) + len(box.ways) + 8 for w in net.weights)
    share = 2 * max(ROUNDING, 8 * steps * (len(net.weights) + 2) * 2.0**-53)
    low, high = (box.corner + clipped(box.ways, 0).sum(axis=0) for clipped in (np.minimum, np.maximum))
    return float(share * net.margin_scale(np.maximum(np.abs(low), np.abs(high))[None, :], radii, delta)[0])


@dataclass(frozen=True, eq=False)
class DrawnNetworks:
    """Networks of one form as they meet a box: what enters their first layer as lines in t, and the layers behind."""

    net: FeedForward
    lines: Floats  # of shape (networks, 1 + p, units): at the corner, then along each way
    behind: list[tuple[Floats, Floats]]  # weights and biases of further layers, stacked

    @classmethod
    def of(cls, net: FeedForward, box: AffineBox, directions: Floats, delta: float) -> Self:
        """The networks ``parameters + delta * direction``."""
        theta, (inputs, units) = net.parameters, net.weights[0].shape
        rows = np.zeros((1 + len(box.ways), inputs + 1))  # the bias is the weight of an input that is 1 at the corner
        rows[0, :-1], rows[0, -1], rows[1:, :-1] = box.corner, 1.0, box.ways
        first, count = slice(theta.slices[0].start, theta.slices[1].stop), len(directions)
        base = rows @ theta.values[first].reshape(inputs + 1, units)
        flat = directions[:, first].T.reshape(inputs + 1, units * count)
        lines = ((delta * rows) @ flat).reshape(len(rows), units, count).transpose(2, 0, 1) + base
        behind = []
        for i in range(1, len(net.weights)):
            w, b = (directions[:, part] * delta + theta.values[part] for part in theta.slices[2 * i : 2 * i + 2])
            behind.append((w.reshape(count, *net.weights[i].shape), b))
        return cls(net, np.ascontiguousarray(lines), behind)

    def margins_at(self, draws: Indices, t: Floats, wanted: int) -> Floats:
        """Margins of one point of the cube per draw."""
        z = self.lines[draws, 0] + np.einsum("np,npu->nu", t, self.lines[draws, 1:])
        for name, (w, b) in zip(self.net.activations, self.behind, strict=True):
            z = _product(activate(name, z), w[draws]) + b[draws]
        return margins_from_scores(z, np.full(len(z), wanted), self.net.offset)

    def objective(self, draws: Indices, wanted: int, rival: int) -> tuple[Floats, Floats]:
        """Weights and constant of the margin against one rival, on what enters the last layer; with none, on t."""
        if not self.behind:
            scores = self.lines[draws]
            w, b = scores[:, 1:], scores[:, 0]
        else:
            w, b = self.behind[-1][0][draws], self.behind[-1][1][draws]
        sign = 1.0 if wanted == 1 else -1.0
        if w.shape[2] == 1:
            return sign * w[:, :, 0], sign * (b[:, 0] - self.net.offset)
        shift = sign * self.net.offset if w.shape[2] == 2 else 0.0
        return w[:, :, wanted] - w[:, :, rival], b[:, wanted] - b[:, rival] - shift

    def bounds(self, draws: Indices, low: Floats, high: Floats, wanted: int) -> tuple[Floats, Floats, Floats]:
        """Per pair a lower bound on the margin, its slopes along t, and how much each coordinate is worth cutting."""
        net, middle, half = self.net, 0.5 * (low + high), 0.5 * (high - low)
        lines: list[tuple[Floats, ...]] = []
        start, along = self.lines[draws, 0], self.lines[draws, 1:]
        # pre-activations as lines in t below and above them: at the corner, and along t
        below = above = (start, along)
        for i, name in enumerate(net.activations):
            ends = [
                line[0]
                + np.einsum("np,npu->nu", middle, line[1])
                + sign * np.einsum("np,npu->nu", half, np.abs(line[1]))
                for line, sign in ((below, -1.0), (above, 1.0))
            ]
            lowest, highest = ends[0], np.maximum(*ends)  # which rounding may have crossed
            down, up = pencil(name, lowest, highest, mirrored=False), pencil(name, -highest, -lowest, mirrored=True)
            s_down, s_up = down.leaning_slope(lowest, highest), up.leaning_slope(-highest, -lowest)
            lines.append((s_down, down.height(s_down), s_up, up.height(s_up)))
            if i + 1 < len(net.activations):
                w, b = self.behind[i][0][draws], self.behind[i][1][draws]
                plus, minus = np.maximum(w, 0.0), np.minimum(w, 0.0)
                # an activation lies between s_down z + h_down and s_up z - h_up
                under = s_down * below[0] + lines[i][1], s_down[:, None] * below[1]
                over = s_up * above[0] - lines[i][3], s_up[:, None] * above[1]
                below, above = (
                    (_product(p[0], plus) + _product(q[0], minus) + b, p[1] @ plus + q[1] @ minus)
                    for p, q in ((under, over), (over, under))
                )
        against = []
        for rival in rivals(net, np.array([wanted]))[0].tolist():
            lin, const = self.objective(draws, wanted, rival)
            worth = half * np.abs(lin) if not net.activations else half
            for i in reversed(range(len(net.activations))):
                s_down, h_down, s_up, h_up = lines[i]
                const = const + np.einsum("nu,nu->n", np.abs(lin), np.where(lin >= 0, h_down, h_up))
                sizes, lin = np.abs(lin), lin * np.where(lin >= 0, s_down, s_up)
                if i:
                    w, b = self.behind[i - 1][0][draws], self.behind[i - 1][1][draws]
                    const, lin = const + np.einsum("nu,nu->n", lin, b), np.einsum("nuo,no->nu", w, lin)
                else:
                    # what is lost in the first layer, where both lines of a unit differ; a little for all others, since
                    # every coordinate of some width can be cut
                    loose = sizes * (s_down != s_up) + 1e-6 * sizes + 1e-12
                    worth = half * np.einsum("npu,nu->np", np.abs(along), loose)
                    const, lin = const + np.einsum("nu,nu->n", lin, start), np.einsum("npu,nu->np", along, lin)
            bound = const + np.einsum("np,np->n", lin, middle) - np.einsum("np,np->n", np.abs(lin), half)
            against.append((bound, lin, worth))
        least, slopes, cuts = (np.stack(part) for part in zip(*against, strict=True))
        closest = least.argmin(axis=0), np.arange(len(low))  # a NaN is the least
        return least[closest], slopes[closest], cuts[closest]


def _product(a: Floats, w: Floats) -> Floats:
    """A row times a matrix, pair by pair."""
    return np.asarray(np.einsum("nu,nuo->no", a, w))


class RegionMargins(NamedTuple):
    """Per draw a lower bound above 0, or the margin (below 0 or NaN) of the row at `t` of a box, or 0: it is open."""

    margins: Floats
    t: Floats
    box: Any = 0

    def keep_worse(self, draws: Indices, here: Self, box: int) -> None:
        """Take over what is worse in a further box: a failing row, then what is open, then the lower bound."""
        worse = ~(here.margins >= self.margins[draws])
        some = draws[worse]
        self.margins[some], self.box[some], self.t[some] = here.margins[worse], box, here.t[worse]


def least_margins_drawn(networks: DrawnNetworks, box: AffineBox, wanted: int, band: float) -> RegionMargins:
    """Decide for each network whether all rows of the box have a margin above `band`, or one below minus that."""
    if not networks.net.activations and networks.lines.shape[2] == 1:  # a corner is worst: nothing is left to cut
        scores = networks.lines[:, :, 0] if wanted == 1 else -networks.lines[:, :, 0]
        slopes = scores[:, 1:]
        least = scores[:, 0] + np.minimum(slopes, 0.0).sum(axis=1)
        least -= networks.net.offset if wanted == 1 else -networks.net.offset
        return RegionMargins(np.where(np.abs(least) <= band, 0.0, least), np.where(slopes > 0, 0.0, 1.0))
    count, p = len(networks.lines), len(box.ways)
    margins, found = np.full(count, np.inf), np.zeros((count, p))
    draws, low, high = np.arange(count), np.zeros((count, p)), np.ones((count, p))
    for round_ in range(ROUNDS):
        bound, slopes, worth = networks.bounds(draws, low, high, wanted)
        kept = bound > band  # written so that a NaN is not kept
        np.minimum.at(margins, draws[kept], bound[kept])
        going = ~kept
        draws, low, high, slopes, worth = draws[going], low[going], high[going], slopes[going], worth[going]
        t = box.on_steps(np.where(slopes > 0, low, high))
        at = networks.margins_at(draws, t, wanted)
        failing = ~(at >= -band)
        margins[draws[failing]], found[draws[failing]] = at[failing], t[failing]
        # a draw that fails somewhere, has too many sub-boxes or one that cannot be cut is done with
        stuck = (worth.max(axis=1, initial=0.0) <= 0) | (round_ == ROUNDS - 1)
        crowd = np.bincount(draws, minlength=count)
        ended = np.zeros(count, dtype=bool)
        ended[draws[stuck]] = True
        ended |= crowd > OPEN_BOXES
        margins[ended & ~(margins < 0) & ~np.isnan(margins)] = 0.0
        ended[draws[failing]] = True
        going = ~ended[draws]
        draws, low, high, worth = draws[going], low[going], high[going], worth[going]
        if not len(draws):
            break
        draws, low, high = _cut(draws, low, high, worth, box.steps)
    return RegionMargins(margins, found)


def _cut(draws: Indices, low: Floats, high: Floats, worth: Floats, steps: Floats) -> tuple[Indices, Floats, Floats]:
    """Each sub-box as two halves; between two steps there is nothing, so that a cut there leaves the gap out."""
    rows, j = np.arange(len(draws)), worth.argmax(axis=1)
    middle, step = 0.5 * (low[rows, j] + high[rows, j]), steps[j]
    whole = np.where(step > 0, step, 1.0)
    # the last step at or before the middle ends the one half, the next one begins the other
    ends = np.where(step > 0, np.floor(middle / whole + 1e-9) * whole, middle)
    begins = np.where(step > 0, np.minimum(ends + step, high[rows, j]), middle)
    left, right = high.copy(), low.copy()
    left[rows, j], right[rows, j] = np.maximum(ends, low[rows, j]), begins
    return np.concatenate([draws, draws]), np.concatenate([low, right]), np.concatenate([left, high])


def least_margin_every(
    net: FeedForward, box: AffineBox, wanted: int, radii: Floats, delta: float, splits: int = 256
) -> tuple[float, Floats, int]:
    """A lower bound over a box of rows and all shifts by intervals, the row where it is least, how many sub-boxes."""
    wanted_, rival = np.array([wanted]), rivals(net, np.array([wanted]))[0]
    reach = [delta * r for r in net.parameters.split(radii)]
    layers, p, band = moving_layers(net, radii, delta), len(box.ways), rounding_band(net, box, radii, delta)
    terms = [output_terms(net, reach, wanted_, np.array([k])) for k in rival]

    def bound(low: Floats, high: Floats) -> Floats:
        up, down = np.maximum(box.ways, 0), np.minimum(box.ways, 0)
        a, b = box.corner + low @ up + high @ down, box.corner + high @ up + low @ down
        for i, (layer, name) in enumerate(zip(layers, net.activations, strict=False)):
            ends = layer.outer(a, b, positive=i > 0 and is_positive(net.activations[i - 1]))
            low, high = ends[0] + layer.bias - layer.bias_reach, ends[1] + layer.bias + layer.bias_reach
            a, b = activation_range(name, low, high)
        least = np.full(len(a), np.inf)
        for v, v_reach, bias, bias_reach in terms:
            down, up = v - v_reach, v + v_reach
            each = np.minimum(np.minimum(a * down, a * up), np.minimum(b * down, b * up))
            least = np.minimum(least, each.sum(axis=1) + bias - bias_reach)
        return least - band

    low, high = np.zeros((1, p)), np.ones((1, p))
    least = bound(low, high)
    while p and len(low) < splits and least.min() <= 0:
        worst = int(least.argmin())
        wide = (high - low)[worst] * np.abs(box.ways).sum(axis=1)
        if not wide.max() > 0:
            break
        _, *halves = _cut(np.zeros(1, dtype=np.intp), low[[worst]], high[[worst]], wide[None], box.steps)
        low, high = (np.vstack([np.delete(old, worst, 0), new]) for old, new in zip((low, high), halves, strict=True))
        least = np.concatenate([np.delete(least, worst), bound(*halves)])
        if not net.activations:  # separable: the halves share the bound of the whole
            break
    worst = int(least.argmin())
    return float(least[worst]), box.on_steps(0.5 * (low[worst] + high[worst])), len(low)


def least_margin_trees(
    trees: Trees, box: AffineBox, wanted: int, margin: Callable[[Floats], Floats]
) -> tuple[float, Floats]:
    """What `RegionMargins` holds, of one ensemble on the grid of its thresholds; `margin` is the library's own."""
    p, moving = len(box.ways), np.abs(box.ways) > 0
    nothing = 0.0, np.zeros(p)
    if (moving.sum(axis=1) > 1).any() or (moving.sum(axis=0) > 1).any():
        return nothing  # a number that enters by several columns has no grid of its own
    columns = moving.argmax(axis=1)
    level_columns = {int(trees.column[node]) for node in trees.levels}
    ends = trees.read(np.vstack([box.corner, box.corner + box.ways.sum(axis=0)]))
    if np.isnan(ends).any() or level_columns & set(columns.tolist()):
        return nothing
    places, insides = [], []
    for i, column in enumerate(columns):
        low, high = np.sort(ends[:, column])
        # a little more than the ends, which rounding may have moved to the other side of a threshold
        low, high = low - 8 * np.spacing(abs(low)), high + 8 * np.spacing(abs(high))
        asked = trees.threshold[trees.column == column]
        asked = np.unique(asked[(asked >= low) & (asked < high)])
        # one number of each cell: its own end, and the next one behind each threshold
        places.append(np.concatenate([[low], np.nextafter(asked, np.inf)]))
        edges = np.concatenate([[low], asked, [high]])
        inside = (0.5 * (edges[:-1] + edges[1:]) - box.corner[column]) / box.ways[i, column]
        insides.append(np.clip(inside, 0.0, 1.0))
    if (count := int(np.prod([len(some) for some in places]))) > CELLS:
        return nothing
    cells = np.tile(ends[0], (count, 1))
    cells[:, columns] = np.array(list(itertools.product(*places))).reshape(len(cells), p)
    middles = np.array(list(itertools.product(*insides))).reshape(len(cells), p)
    sums, size = leaf_sums(trees, cells)
    ours = towards(sums, wanted)
    # float32 sums of so many leaves are off by at most their number times 2**-24 of their magnitudes
    band = (len(trees.roots) + 8) * 2.0**-23 * size
    rows = box.rows(box.on_steps(middles))
    some = np.unique(np.linspace(0, len(rows) - 1, min(64, len(rows))).astype(int))
    here, theirs = towards(leaf_sums(trees, trees.read(rows[some]))[0], wanted), margin(rows[some])
    if (((here > band) & ~(theirs >= 0)) | ((here < -band) & ~(theirs <= 0))).any():
        return nothing  # the trees are not what they seem
    if (ours > band).all():
        return float(ours.min()), np.zeros(p)
    for i in np.flatnonzero(~(ours > band)).tolist():
        t = box.on_steps(middles[i])
        row = box.rows(t)[None]
        found = float(margin(row)[0])
        if not found >= 0 and towards(leaf_sums(trees, trees.read(row))[0], wanted)[0] < -band:
            return min(found, -np.finfo(float).tiny), t
    return nothing


def leaf_sums(trees: Trees, numbers: Floats) -> tuple[Floats, float]:
    """Sums of leaves of rows of numbers as nodes compare them, shape (rows, outputs), and how large they can get."""
    nodes = np.tile(trees.roots, (len(numbers), 1))
    rows = np.arange(len(numbers))[:, None]
    while (inner := trees.column[nodes] >= 0).any():
        asked = numbers[rows, np.maximum(trees.column[nodes], 0)]
        left = np.where(np.isnan(asked), trees.missing_left[nodes], asked <= trees.threshold[nodes])
        for node in trees.levels:  # few of them have categories
            here = nodes == node
            if here.any():
                left[here] = trees.goes_left(node, asked[here])
        nodes = np.where(inner, np.where(left, trees.left[nodes], trees.right[nodes]), nodes)
    sizes = np.maximum.reduceat(np.abs(trees.value).max(axis=1), trees.roots).sum() + np.abs(trees.base).max()
    return trees.base + trees.value[nodes].sum(axis=1), float(sizes)
