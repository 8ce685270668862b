"""The cheapest rows that refits accept, from safest to cheapest, where models have no gradients: moves on a grid.

A *sweep* tells what every move of one feature does to the margins of all refits, by the leaf table or by the models.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from apas._typing import Floats, Indices, Integers
from apas.counterfactuals.search.leaf_table import EDGE, Grid, LeafSweeps, LeafTable, RowGrid, grid_values
from apas.counterfactuals.search.stacked import quick_encoder
from apas.counterfactuals.sources.base import Search
from apas.counterfactuals.sources.neighbours import rows_of_class
from apas.models.base import Model, class_indices

#: How many standard deviations of the refits' margins their mean must lie above 0 along a path, safest first.
LADDER = (6.5, 5.2, 3.9, 3.2, 2.6, 2.1, 1.7)
#: Rows of the path are looked for at these, among all that the search came across. They do not lie closer: a path
#: without gaps would end at the second failure of 93 refits, where on average no more than 1 - 2 / 94 of all accept.
RUNGS: tuple[float, ...] = (10.4, 9.8, 9.1, 8.4, 7.8, 7.3, 6.8, 6.4, 6, 5.6, 5.2, 4.9)
RUNGS += (4.7, 4.4, 4.2, 3.9, 3.6, 3.4, 3.1, 2.9, 2.6, 2.3, 2.1, 1.8)
#: The same for the margin of one model, in units of the median margin of known rows of the class.
MARGINS = (2.5, 2.0, 1.6, 1.3, 1.1, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
SAVES = 0.05  # a row of the path costs so much less than the one before: each might fail where the next does not
BEAM, STEPS, PATIENCE = 8, 30, 2  # states kept, steps at most, and steps after the last gain
CLIMB = 12  # moves towards a safer row than any that is known
PAIRS = 10  # first moves of pairs that are tried together
KNOWN = 24  # known rows from which a search starts as well
LEAST_SCALE = 1e-3  # of margins
DEEP = 0.75  # half of them have margins above this quantile
LEAST = 500  # candidates per call of a model: its overhead would cost more than fewer


#: Margins after every move of one feature, over the refits: their mean, standard deviation and least, (3, moves).
Sweep = Floats
Sweeps = Callable[[Sequence[Indices]], list[Sweep]]  # those of some states


@dataclass(frozen=True)
class Demand:
    """What the margins of the refits must satisfy: mean - k sd >= need (see `spread`), or the least if `k` is None."""

    k: float | None
    need: float = EDGE

    def slack(self, sweep: Sweep) -> Floats:
        """By how much every move satisfies it."""
        mean, sd, least = sweep
        return np.asarray((least if self.k is None else mean - self.k * sd) - self.need)


def spread(margins: Floats, scale: float) -> Sweep:
    """The sweep of margins of shape (refits, moves): mean and sd of ``tanh(margins / scale)``, and the least margin.

    How far a refit goes beyond what its class usually has says nothing of whether the next one agrees: without bounds
    a few such refits would count as spread. So what is far from 0 is drawn together, on either side.
    """
    drawn = np.tanh(margins / scale)
    sd = drawn.std(axis=0, ddof=1) if len(margins) > 1 else np.zeros(margins.shape[1])
    return np.stack([drawn.mean(axis=0), sd, margins.min(axis=0)])


def predicted_sweeps(refits: Sequence[Model], grid: RowGrid, scale: float) -> Sweeps:
    """Sweeps by the models' own answers, for at least so many rows at a time that calls cost little."""
    task, label = grid.search.task, grid.search.target
    # what preprocessings make of rows is found out once: to transform a table takes most of them far longer
    others = [replace(task, model=refit, _kept={}) for refit in refits]
    encoders = task.once("refits/encoders", lambda: [quick_encoder(other) for other in others])

    def sweeps(states: Sequence[Indices]) -> list[Sweep]:
        distinct, back = np.unique(np.concatenate(list(map(grid.moves, states))), axis=0, return_inverse=True)
        margins = [refit.margin(encoded(distinct), label) for refit, encoded in zip(refits, encoders, strict=True)]
        return [spread(part, scale) for part in np.split(np.array(margins)[:, back.ravel()], len(states), axis=1)]

    return sweeps


class RefitSearch:
    """The search of one row on its grid, for all demands of a path."""

    def __init__(self, grid: RowGrid, sweeps: Sweeps, least: int = 0) -> None:
        self.grid, self.task, self.sweeps, self.least = grid, grid.search.task, sweeps, least
        self.known: dict[bytes, Sweep] = {}

    def look(self, states: Iterable[Indices]) -> None:
        """Sweep the states that are new; and, to fill a call, some that may be asked about next."""
        new = {s.tobytes(): s for s in states if s.tobytes() not in self.known}
        if not new:
            return
        waiting, asked = list(new.values()), self._rows(new.values())
        for other in self._neighbours(waiting):
            if len(asked) >= self.least:
                break
            if other.tobytes() not in self.known and other.tobytes() not in new:
                new[other.tobytes()] = other
                waiting.append(other)
                asked |= self._rows([other])
        self.known |= zip(new, self.sweeps(list(new.values())), strict=True)

    def _rows(self, states: Iterable[Indices]) -> set[bytes]:
        """The rows of the sweeps of some states, where it matters how many there are."""
        return {row.tobytes() for state in states for row in self.grid.moves(state)} if self.least else set()

    def _neighbours(self, states: list[Indices]) -> Iterator[Indices]:
        """States one step from those in a list, which may grow meanwhile, or back at the input in one feature."""
        for state in states:
            for i in np.flatnonzero(self.grid.sizes > 1):
                for place in (self.grid.start[i], state[i] - 1, state[i] + 1):
                    if 0 <= place < self.grid.sizes[i]:
                        yield self.grid.moved(state, int(self.grid.first[i] + place))

    def slacks(self, state: Indices, demand: Demand) -> Floats:
        """By how much the rows after every move satisfy a demand."""
        return demand.slack(self.known[state.tobytes()])

    def slack(self, state: Indices, demand: Demand) -> float:
        """The same for the row itself."""
        self.look([state])
        return float(self.slacks(state, demand)[self.grid.first[0] + state[0]])

    def path(
        self, demands: Sequence[Demand], starts: Integers, rungs: Sequence[Demand] = (), saves: float = 1e-9
    ) -> Floats:
        """Search for `demands`; of all rows seen the cheapest for each of `rungs`, each cheaper by the part `saves`."""
        self.look([self.grid.start, *starts])
        begins = [*starts, *self._climb(demands[0], starts)]
        last: tuple[float, Indices | None] = (np.inf, None)
        for demand, (cost, state) in zip(demands, self._beams(demands), strict=True):
            last = (cost, state) if cost < last[0] else last
            if last[1] is None:  # nothing on the way from the input: from what is known
                fits = [s for s in begins if self.slack(s, demand) >= 0]
                last = min(((self._cost(s), s) for s in fits), key=lambda pair: pair[0], default=last)
            if last[1] is not None:
                better = self._polish(last[1], demand)
                self.look([better])
                last = (self._cost(better), better)
        return self._cheapest_met(rungs or demands, saves)

    def _climb(self, demand: Demand, starts: Sequence[Indices] | Integers) -> list[Indices]:
        """States on the way from the safest start to a safer one, where no start is safe enough."""
        found: list[Indices] = []
        state = max(starts, key=lambda s: self.slack(s, demand), default=self.grid.start)
        for _ in range(CLIMB):
            slacks = self.slacks(state, demand)
            if self.task.is_late or self.slack(state, demand) >= 0 or slacks.max() <= self.slack(state, demand):
                break
            state = self.grid.moved(state, int(slacks.argmax()))
            found.append(state)
            self.look([state])
        return found

    def _cheapest_met(self, rungs: Sequence[Demand], saves: float) -> Floats:
        """For each rung the cheapest row that meets it; first the safest, where the first rung is out of reach."""
        states = np.array([np.frombuffer(key, dtype=self.grid.start.dtype) for key in self.known])
        costs, sweeps = np.array([self.grid.costs(s) for s in states]), np.stack(list(self.known.values()), axis=1)
        kept, cheapest, missed = list[Floats](), np.inf, None
        for rung in rungs:
            slacks = rung.slack(sweeps)
            places = [int(np.where(slacks >= 0, costs, np.inf).argmin())]
            if missed is not None and not kept and slacks.flat[int(missed.argmax())] >= 0:
                places = [int(missed.argmax()), *places]  # the safest row there is, before the cheapest that will do
            for at, move in (divmod(place, costs.shape[1]) for place in places):
                if slacks[at, move] >= 0 and costs[at, move] < cheapest * (1 - saves):
                    kept.append(self.grid.point(self.grid.moved(states[at], move)))
                    cheapest = costs[at, move]
            missed = slacks
        return np.array(kept).reshape(len(kept), len(self.grid.start))

    def _cost(self, state: Indices) -> float:
        return float(self.grid.costs(state)[self.grid.first[0] + state[0]])

    def _beams(self, demands: Sequence[Demand]) -> list[tuple[float, Indices | None]]:
        """The cheapest state found for each demand by beams from the input, which go on side by side."""
        start = self.grid.start
        best: list[tuple[float, Indices | None]] = [(np.inf, None)] * len(demands)
        beams, idle = [[start] for _ in demands], [0] * len(demands)
        lacks = [-self.slack(start, demand) for demand in demands]
        for _ in range(STEPS):
            if self.task.is_late:
                break
            self.look(state for beam in beams for state in beam)
            for i, demand in enumerate(demands):
                if beams[i]:
                    before = best[i][0]
                    best[i], beams[i] = self._advance(demand, lacks[i], beams[i], best[i])
                    idle[i] = idle[i] + 1 if best[i][0] == before < np.inf else 0
                    beams[i] = beams[i] if idle[i] < PATIENCE else []
            if not any(beams):
                break
        return best

    def _advance(
        self, demand: Demand, lack: float, beam: list[Indices], best: tuple[float, Indices | None]
    ) -> tuple[tuple[float, Indices | None], list[Indices]]:
        """The cheapest state so far, and the next beam: by what a row would cost if it went on gaining as it has."""
        options: list[tuple[float, int, int]] = []
        for number, state in enumerate(beam):
            slacks, costs = self.slacks(state, demand), self.grid.costs(state)
            fits = np.where(slacks >= 0, costs, np.inf)
            move = int(fits.argmin())
            if fits[move] < best[0]:
                best = (float(fits[move]), self.grid.moved(state, move))
            gained = lack + slacks
            with np.errstate(divide="ignore", invalid="ignore"):
                estimate = np.where((slacks < 0) & (gained > 0) & (costs > 0), costs * lack / gained, np.inf)
            some = np.flatnonzero(np.isfinite(estimate) & (costs < best[0]))
            some = some[np.argsort(estimate[some], kind="stable")]
            # of each feature the best: values of one that differ little must not fill the beam
            some = some[np.unique(self.grid.feature[some], return_index=True)[1]]
            options += [(float(estimate[m]), number, int(m)) for m in some]
        following, before = dict[bytes, Indices](), {state.tobytes() for state in beam}
        for _, number, move in sorted(options):
            state = self.grid.moved(beam[number], move)
            if (key := state.tobytes()) not in before:
                following.setdefault(key, state)
            if len(following) == BEAM:
                break
        return best, list(following.values())

    def _polish(self, state: Indices, demand: Demand) -> Indices:
        """A state that no move, and none of the tried pairs of moves, makes cheaper."""
        while not self.task.is_late:
            self.look([state])
            slacks, costs, now = self.slacks(state, demand), self.grid.costs(state), self._cost(state)
            now -= 1e-12 * max(now, 1e-12)  # costs are sums in another order each time
            fits = np.where(slacks >= 0, costs, np.inf)
            if fits.min() < now:
                state = self.grid.moved(state, int(fits.argmin()))
                continue
            down = np.flatnonzero((costs < now) & (slacks < 0))
            down = down[np.argsort(-slacks[down], kind="stable")][:PAIRS]
            firsts = [self.grid.moved(state, int(move)) for move in down]
            self.look(firsts)
            pairs = [(np.where(self.slacks(s, demand) >= 0, self.grid.costs(s), np.inf), s) for s in firsts]
            options = [(float(c.min()), i, int(c.argmin())) for i, (c, _) in enumerate(pairs)]
            if not options or min(options)[0] >= now:
                return state
            _, i, move = min(options)
            state = self.grid.moved(pairs[i][1], move)
        return state


def _known_states(grid: RowGrid, known: Floats, margins: Floats) -> Integers:
    """States near known rows of the class: of all of them the nearest, and of those that lie deep in it."""
    if not len(known):
        return np.empty((0, len(grid.start)), dtype=np.intp)
    found = grid.nearest(known)
    costs = grid.cost[grid.first + found].sum(axis=1)
    order = np.argsort(costs, kind="stable")
    deep = order[margins[order] >= np.quantile(margins, DEEP)]
    return np.unique(found[np.concatenate([order[: KNOWN // 2], deep[: KNOWN // 2]])], axis=0)


def leaf_table(search: Search, refits: Sequence[Model]) -> LeafTable | None:
    """The leaves of the refits, read once per call; None if they must be asked."""
    task, own = search.task, search.input[None]
    return task.once("leaf table", lambda: LeafTable.of(task, refits, own if task.inputs is None else task.inputs))


def refit_path(search: Search, refits: Sequence[Model], all_accept: bool = False, *, unanimous: bool = False) -> Floats:
    """Rows from the safest to the cheapest that the refits accept, shape (rows, features); there may be none.

    With one model its margin is what must be large; with `all_accept` the path ends with rows that every refit accepts,
    and with `unanimous` it is the cheapest of these.
    """
    task, table, x, target = search.task, leaf_table(search, refits), search.input, search.target
    known = rows_of_class(task, target)
    if len(known):  # which many searches ask for
        usual = task.once(("known margins", target), lambda: task.margins(known, target))
    else:
        usual = task.margins(x[None], target)
    scale = max(LEAST_SCALE, float(np.median(np.abs(usual))))
    if table is not None:
        grid = RowGrid(search, table.grid)
        wanted = int(class_indices(task.model.classes, target, 1)[0])
        passes = LeafSweeps(table, grid, wanted)
        looking = RefitSearch(grid, lambda states: [spread(passes.margins(state), scale) for state in states])
    else:
        values, common = grid_values(task, x[None] if task.inputs is None else task.inputs, [None] * len(task.space))
        grid = RowGrid(search, Grid(tuple(values), tuple(common), tuple(np.arange(len(v)) for v in values)))
        looking = RefitSearch(grid, predicted_sweeps(refits, grid, scale), LEAST)
    states = _known_states(grid, known, usual)
    demands, rungs = [Demand(k) for k in LADDER], [Demand(k) for k in RUNGS]
    if len(refits) == 1:
        looking.look([grid.start, *states])
        here = [max(looking.slack(s, Demand(None, 0.0)), 0.0) for s in states]
        size = float(np.median(here)) if any(here) else abs(looking.slack(grid.start, Demand(None, 0.0)))
        demands = rungs = [Demand(None, part * size) for part in MARGINS]
    if all_accept or unanimous:
        demands, rungs = [*demands, Demand(None)], [*([] if unanimous else rungs), Demand(None)]
    # where all is proved, nothing can fail
    rows = looking.path(demands, states, rungs, 1e-9 if all_accept or unanimous else SAVES)
    return rows[task.valid(rows, target)] if len(rows) else rows
