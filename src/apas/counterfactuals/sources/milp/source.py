"""`MilpSource`: the nearest row with a wanted margin on a piecewise linear network, by mixed-integer programs.

Within the cost of a good point most units keep their phase: linear programs settle which, and the rest follows.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from apas._typing import Floats
from apas._validation import check_number
from apas.counterfactuals.search.stacked import quick_encoder
from apas.counterfactuals.sources.base import Candidate, NoneExists, Search, Task, check_settings
from apas.counterfactuals.sources.milp import program as programs
from apas.counterfactuals.sources.milp.program import NOTHING, ChangeBudget, Contrast, Effect
from apas.counterfactuals.space.encoder import INSTEAD, Piece, pieces_of
from apas.counterfactuals.space.feature import ON_GRID
from apas.display.numbers import at_most
from apas.errors import InputError, Unsupported
from apas.models.base import Dense, class_indices, needs_strict, offers
from apas.models.feedforward import FeedForward
from apas.optimize.highs import Incumbent, LpRelaxation, advise, least_cost, proved_minimum, solve_mixed, verified_bound
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR

#: Units that may change sides in one step of an improvement, linear programs for it, and steps.
FREE, NODES, STEPS = 8, 60, 12
OUTWARD = 1e-9  # ranges are wider than what was proved by this part
MISS = 1e-7  # how far a point may miss its margin, in units of what the margin is a sum of
#: By what a change is stretched that does not go far enough.
STRETCHES = np.array([1.01, 1.03, 1.07, 1.15, 1.3, 1.6, 2.0, 3.0, 5.0])
EASY, HARD = 60, 2000  # linear programs for a program as it is, and after its ranges were tightened
#: How often ranges are tightened at most, and what part of the units must settle to do it once more.
ROUNDS, WORTHWHILE = 5, 0.1


@dataclass
class BudgetedSearch:
    """The search for the cheapest point with a margin, within a limit of the cost."""

    effect: Effect
    margin: float
    budget: float
    relaxation: LpRelaxation
    deadline: float
    rough: bool = False  # whether a good point will do, which need not be the cheapest
    beyond: Incumbent = field(default_factory=Incumbent)

    def run(self) -> Incumbent:
        """The cheapest point within the limit; beyond it, if one was met there and is no worse than any other."""
        best = self._least(self._program(), EASY, Incumbent())
        if best.complete:
            return best
        if best.values is None:  # some point, within the limit or not
            best = self.beyond
            if best.values is None and (climbed := programs.climb(self.effect, self.margin, self.deadline)) is not None:
                best = Incumbent(climbed, self._cost(climbed))
        if best.values is not None:
            best = self._improve(best)
        ranges = None if self.rough and best.values is not None else self.narrow_ranges()
        if ranges is None:
            return best
        program = self._program(ranges)
        best = self._least(program, HARD, best)
        return best if best.complete else solve_mixed(program, self.accept, best, self.deadline)

    def _least(self, program: programs.ChangeProgram, nodes: int, start: Incumbent) -> Incumbent:
        asked = program, self.accept, start, program.phases, self.relaxation
        return least_cost(*asked, nodes=nodes, deadline=self.deadline)

    def accept(self, values: Floats) -> tuple[Floats, float] | None:
        """The point that values stand for, or one beyond it, if it has the margin and is within the limit."""
        amounts = self.effect.round_amounts(values)
        if amounts is None:
            return None
        reached, size = self.effect.margin(amounts)
        if not reached >= self.margin - MISS * size:
            top, whole = self.effect.changes.top, self.effect.changes.integer
            longer = np.where(whole, amounts, np.minimum(STRETCHES[:, None] * amounts, top))
            far = np.flatnonzero(self.effect.margins(longer)[0] >= self.margin)
            if not len(far):
                return None
            amounts = longer[far[0]]
        cost = self._cost(amounts)
        if cost <= self.budget * (1 + NOTHING) + NOTHING + self.effect.tie * len(self.effect.changes):
            return amounts, cost
        if cost < self.beyond.cost:  # there may be cheaper ones that are beyond the limit as well
            self.beyond = Incumbent(amounts, cost)
        return None

    def _program(self, ranges: programs.UnitRanges | None = None) -> programs.ChangeProgram:
        return programs.change_program(ChangeBudget(self.effect, self.budget), self.margin, ranges)

    def _cost(self, amounts: Floats) -> float:
        """What the program says that amounts cost."""
        cost, total = self.effect.cost(amounts)
        return cost + self.effect.tie * total

    def _improve(self, best: Incumbent) -> Incumbent:
        """A cheaper point near a point, while only units close to their kinks change phase; it becomes the limit."""
        self.budget = best.cost
        program = self._program()  # within that budget
        phases = program.phases
        for _ in range(STEPS):
            if phases is None or best.values is None:
                break
            layers = self.effect.pre_activations(best.values)
            values = np.array([layers[i][k] for i, k in zip(phases.layer, phases.unit, strict=True)])
            beyond = phases.sign * (values - phases.kink)
            fixed = np.argsort(np.abs(beyond) / phases.width)[FREE:]
            low, high = program.low.copy(), program.high.copy()
            low[phases.column[fixed]] = high[phases.column[fixed]] = (beyond[fixed] >= 0).astype(float)
            further = self._least(replace(program, low=low, high=high), NODES, best)
            if not further.cost < best.cost * (1 - 1e-6):
                break
            best = further
        self.budget = best.cost
        return best

    def narrow_ranges(self) -> programs.UnitRanges | None:
        """Ranges of units that take the program into account; None if that leaves nothing."""
        ranges = programs.unit_ranges(ChangeBudget(self.effect, self.budget))
        program = self._program(ranges)
        for _ in range(ROUNDS):
            if not self._tighten_ranges(program, ranges):
                return None
            before, program = program.binaries, self._program(ranges)
            if program.binaries > (1 - WORTHWHILE) * before:
                break
        return ranges

    def _tighten_ranges(self, program: programs.ChangeProgram, ranges: programs.UnitRanges) -> bool:
        """Narrow the ranges of units whose phase is open to what dual bounds prove; False if there is no point."""
        phases = program.phases
        if phases is None:
            return True
        self.relaxation.load(program)
        for i, k, form, const in zip(phases.layer, phases.unit, phases.form, phases.const, strict=True):
            if time.monotonic() > self.deadline:
                break
            low, high = self.relaxation.least(form) + const, const - self.relaxation.least(-form)
            if low > high:
                return False
            spread, ends = OUTWARD * (abs(low) + abs(high)), ranges[i]
            ends[0][k], ends[1][k] = max(ends[0][k], low - spread), min(ends[1][k], high + spread)
        return True


GUESSED_PARTS = (0.25, 0.5, 1.0)  # how much of each column is tried by itself
SPARE = 1.25  # guesses are this much larger than they would be if margins were linear


class CostGuess:
    """Costs of margins, from single changes and from what was found for other margins."""

    def __init__(self, effect: Effect) -> None:
        changes = effect.changes
        self.known: list[tuple[float, float]] = []  # margins and what they cost
        self.full = float((changes.cost * changes.top).sum())
        column = np.tile(np.arange(len(changes)), len(GUESSED_PARTS))
        part, amounts = np.outer(GUESSED_PARTS, changes.top), np.zeros((len(column), len(changes)))
        row, parent = np.arange(len(column)), changes.parent[column]
        amounts[row[parent >= 0], parent[parent >= 0]] = 1.0
        amounts[row, column] = np.where(changes.integer, np.ceil(part), part).reshape(-1)
        cost, margin = amounts @ changes.cost, effect.margins(amounts)[0]
        self.start = effect.margin(np.zeros(len(changes)))[0]
        self.single = (cost, margin) if effect.distance == "l1" else (np.empty(0), np.empty(0))
        worth = np.divide(margin - self.start, cost, out=np.zeros_like(cost), where=cost > 0)
        best = np.zeros(int(changes.feature.max(initial=-1)) + 1)
        np.maximum.at(best, changes.feature[column], worth)
        #: What a unit of cost adds to the margin at most, by such changes: of one feature, or of all at once.
        self.worth = float(best.max(initial=0.0) if effect.distance == "l1" else best.sum())

    def cost(self, margin: float) -> float:
        """A cost that is likely to do for a margin."""
        needed = margin - self.start
        enough = [cost for known, cost in self.known if known >= margin]
        enough += self.single[0][self.single[1] >= margin].tolist()
        below = max(((m, c) for m, c in self.known if self.start < m < margin), default=None)
        if below is not None:
            likely = SPARE * below[1] * needed / (below[0] - self.start)
        else:
            likely = SPARE * needed / self.worth if self.worth > 0 else self.full / 4
        return float(min([max(likely, 0.0), *((1 + NOTHING) * c for c in enough)])) + NOTHING


AGREEMENT = 1e-4  # how far the model may be from what the program makes of it, in units of what the margin is a sum of
#: What a proof allows for: the parts of features are known to so many digits, and everything else to more.
ALLOWANCE = 1e-8
#: Cases of the proof of a lower bound before ranges are tightened and after that, and how close to the cost it must be.
CASES, CLOSED = (EASY, 20_000), 1e-4
#: Places around a valid row near the boundary, on the way to it, of which the first that is valid for sure is taken.
AROUND = 1 + np.sort(np.outer([1, -1], [0.0, *np.geomspace(1e-13, 1e-4, 60)]).ravel())


@dataclass(frozen=True)
class NearestPoint:
    """An allowed point of the wanted class."""

    point: Floats
    margin: float
    reach: float
    cost: float


#: A network behind preprocessing, and what each feature adds to the pre-activations of its first layer.
Network = tuple[FeedForward, Sequence[Piece | None]]


class Nearest:
    """Cheapest changes of the input of a search; with `cuts` the scores are such, of which the model knows nothing."""

    def __init__(
        self, search: Search, network: Network, time_limit: float, rough: bool = False, cuts: Contrast | None = None
    ) -> None:
        (net, self.parts), self.search, self.time_limit, self.rough = network, search, time_limit, rough
        self.changes = programs.possible_changes(search, self.parts, net.weights[0], net.biases[0])
        self.cuts = cuts is not None
        goal = cuts or Contrast.of(net, int(class_indices(net.classes, search.target, 1)[0]))
        self.effect = Effect(net, self.changes, goal, search.task.distance, search.avoid)
        self.strict = bool(needs_strict(search.task.model.classes, np.array([search.target], dtype=object))[0])
        self.guess, self.relaxation = CostGuess(self.effect), LpRelaxation()

    def at(self, margin: float) -> NearestPoint | None:
        """The cheapest point with at least this margin (give or take rounding), or None if none was found."""
        # each try asks for 4 `MISS` more, four of them for 16: who is not valid then is so for another reason
        for number in range(4 if len(self.changes) else 0):
            best = self._solve(margin)
            if best.values is None:
                return None
            found = self._proper(best.values)
            if found is not None:
                self.guess.known.append((margin, found.cost))
                return found
            # whoever is valid by a hair is not after rounding, and that of float32 is larger
            wider = 10.0**number if self.search.task.unshifted else 1.0
            margin += wider * 4 * MISS * self.effect.margin(best.values)[1]
        return None

    def widest(self) -> NearestPoint | None:
        """A point with as large a margin as there is, if that is valid; `NoneExists` if it is proved that none is."""
        budget, deadline = ChangeBudget(self.effect), self._deadline()
        program = programs.change_program(budget, None)
        allowance = ALLOWANCE * self.effect.size(programs.unit_ranges(budget))
        advice = advise(program, enough=allowance, target=-np.inf, time_limit=deadline - time.monotonic())
        if advice.point is not None:
            amounts = self.effect.round_amounts(advice.point)
            found = None if amounts is None else self._proper(amounts)
            if found is not None:
                return found
        for counts in (False, True) if advice.bound > allowance or np.isneginf(advice.bound) else ():
            # what is proved of more points holds of fewer, and most proofs need not tell counts apart
            whole = program.integer & (counts | (program.high - program.low <= 1))
            bound = verified_bound(replace(program, integer=whole), above=allowance, deadline=deadline)
            if bound is not None:
                beside = " that differs from those found" if self.search.avoid else ""
                proved = f"it is proved that no allowed change{beside} leads to {self.search.target!r}"
                raise NoneExists(f"{proved}: no margin exceeds {at_most(allowance - bound)}")
        return None

    def row(self) -> Iterator[Candidate]:
        """The nearest valid row, with a lower bound on the cost of all such rows."""
        found, search, space = self.at(0.0) or self.widest(), self.search, self.search.task.space
        if found is None:
            return
        # A solver's point lies beside the boundary, or on it, where the class depends on the order of summation. What
        # is taken is beyond what rounding could do; a row of steps and levels alone may lie on the boundary itself.
        free = np.array([f.step is None and f.listed is None for f in space])
        start = np.where(free, np.clip(search.input, *np.array([f.ends for f in space]).T), found.point)
        point, ways = found.point, AROUND
        for _ in range(3 if search.test is not None else 0):
            rows = search.snapped(start + ways[:, None] * (found.point - start))
            first = int((sure := search.test.slacks(rows) > 0).argmax())  # type: ignore[union-attr]
            if not sure[first]:
                break
            point, ways = rows[first], np.linspace(ways[max(first - 1, 0)], ways[first], 64)
        yield Candidate(point, lower_bound=self._lower_bound(search.cost(point)))

    def _lower_bound(self, cost: float) -> float:
        """No allowed row of the class, different from those found, costs less than this; 0 where nothing was proved."""
        task, net = self.search.task, self.effect.net
        count = len(task.space) if task.distance == "l1" else 1  # the program adds up what "l1" is the mean of
        cost, deadline = count * cost, self._deadline()
        limit = cost * (1 + NOTHING) + NOTHING
        budget = ChangeBudget(self.effect, limit, tie=0.0)
        ranges, pieces = programs.unit_ranges(budget), pieces_of(task)
        # how far a feature may be from where the program has it, which takes it to be on a step before and after
        sizes = np.maximum([max(f.size, f.step or 0.0) for f in task.space], np.abs(self.search.input))
        beside = 2 * ON_GRID * sizes
        # A valid row has a margin of at least 0 as the model computes it, and in the program one that is less by no
        # more than: digits of the program itself, of the parts that columns are sums of, and features beside a step.
        weights = [*self.effect.weights, np.abs(self.effect.goal.signs).max(axis=1)][0]
        lines = np.array([0.0 if p is None or p.line is None else np.abs(p.line) @ weights for p in self.parts])
        encoding = 2 * len(lines) * float(pieces.accuracy @ np.abs(net.weights[0]) @ weights)
        margin = -ALLOWANCE * self.effect.size(ranges) - encoding - float(lines @ beside)
        for cases in CASES:
            program = programs.change_program(budget, margin, ranges)
            bound = proved_minimum(program, program.phases, cost * (1 - NOTHING), cases, deadline)
            if bound >= cost * (1 - CLOSED):
                break
            attempt = BudgetedSearch(self.effect, margin, limit, self.relaxation, deadline)
            ranges = attempt.narrow_ranges() or ranges
        # costs of columns are rounded, to far more digits than 12
        return max(0.0, (bound * (1 - 1e-12) - float(beside @ [1 / f.span for f in task.space])) / count)

    def _deadline(self) -> float:
        return min(time.monotonic() + self.time_limit, self.search.task.deadline)

    def _solve(self, margin: float) -> Incumbent:
        """The search is limited to a cost that is likely to do, and that is raised if it does not."""
        deadline, budget = self._deadline(), self.guess.cost(margin)
        while True:
            budget = budget if budget < self.guess.full else np.inf
            attempt = BudgetedSearch(self.effect, margin, budget, self.relaxation, deadline, self.rough)
            best = attempt.run()
            if best.values is not None or not np.isfinite(budget):
                return best
            if time.monotonic() > deadline:
                return attempt.beyond
            budget = min(2 * budget, max(attempt.beyond.cost, budget) * (1 + NOTHING) + NOTHING)

    def _proper(self, amounts: Floats) -> NearestPoint | None:
        """The point that amounts lead to, as the space has it and the model sees it; None if that is not valid."""
        search, task = self.search, self.search.task
        wish, point = self.changes.numbers(search.input, amounts), search.input.copy()
        for i in np.flatnonzero(wish != point).tolist():
            feature, own = task.space.features[i], search.input[i : i + 1]
            point[i : i + 1] = feature.snapped(wish[i : i + 1], own)
            if not feature.allows(point[i : i + 1], own).all():
                return None
        # to go through a preprocessing takes longer than a rough program: it is asked about the first point alone
        encoded = quick_encoder(task) if self.guess.known and self.rough else task.encoded
        margin = float(task.model.margin(encoded(point[None]), search.target)[0])
        expected, size = self.effect.margin(amounts)
        if not self.cuts and not abs(margin - expected) <= AGREEMENT * size:
            raise Unsupported(
                "MilpSource needs every feature to enter the model by itself and along straight lines, but the model "
                f"gives row {search.row} of `X`, changed, a margin of {margin:g} instead of {expected:g}; {INSTEAD}"
            )
        fine = margin > 0 if self.strict else margin >= 0
        if task.unshifted and search.test is not None:
            fine = bool(search.test.slacks(point[None])[0] >= 0)
        if not fine or not search.is_different(point):
            return None
        return NearestPoint(point, margin, max(margin, expected) + 2 * MISS * size, self.effect.cost(amounts)[0])


#: A margin is close enough to the least that passes if it is estimated to be larger by no more than this part.
CLOSE = 0.004
TRIES, MISSES = 24, 5  # how many margins to try before a candidate is offered, and how many of them no point may have
FIRST_GROWTH, LAST_GROWTH = 0.02, 0.5  # by what part margins grow when candidates are not taken: at first, and at most
LEAST_STEP = 0.01  # what growing margins grow by at least


@dataclass(frozen=True, kw_only=True)
class MilpSource:
    """The cheapest allowed rows that a piecewise linear network puts into the wanted class with a growing margin.

    For dense networks of any depth with relu, leaky relu, hard tanh and identity units. What a feature may be and how
    it may change, costs and units are exact in a mixed-integer program, which is solved by branch and bound on linear
    programs (HiGHS). What comes out is moved onto the grid of the space and evaluated again by the model itself. Where
    delta is 0, it offers the nearest valid row alone, with a proved lower bound on the cost of all; margins do not
    matter then.

    Parameters
    ----------
    margin : float, default 0.01
        What the first candidate's margin is at least; if there is none, it is the one with the largest margin.
    step : float, optional
        Offer a candidate for each of the margins ``margin``, ``margin + step``, and so on: with 0.2 the paper's loop.
        None, the default, looks for the least margin with which a candidate passes the search's own test, from how
        far it and others are from passing; this takes a handful of programs, and costs less in the end.
    max_margin : float, default 20.0
        Where to stop.
    time_limit : float, default 10.0
        Seconds per program; the best point found by then is taken.

    Examples
    --------
    >>> from apas.counterfactuals.space.feature import Feature
    >>> from apas.counterfactuals.space.space import FeatureSpace
    >>> space = FeatureSpace([Feature("income", low=0, high=10), Feature("cars", "integer", low=0, high=5)])
    >>> net = FeedForward([[[1.0], [2.0]]], [[-8.0]], feature_names=space.names)
    >>> search = Search(Task(net, space), 0, np.array([3.0, 1.0]), 1)
    >>> points = MilpSource(step=1.0, max_margin=2.5).candidates(search)
    >>> [c.point.round(6).tolist() for c in points]
    [[6.01, 1.0], [7.01, 1.0], [8.01, 1.0]]
    """

    margin: float = 0.01
    step: float | None = None
    max_margin: float = 20.0
    time_limit: float = 10.0
    ordered: ClassVar[bool] = True  # no candidate costs less than those before it

    def __post_init__(self) -> None:
        check_settings(self, time_limit={"above": 0.0})
        if self.step is not None:
            check_number(self.step, "step", "MilpSource", above=0.0)
        if self.max_margin < self.margin:
            got = f"got {self.max_margin:g} and {self.margin:g}"
            raise InputError(f"`max_margin` of MilpSource must not be below `margin`, {got}.")

    def unsupported(self, task: Task) -> str | None:
        """None if the model, its preprocessing and the space can be written as a program, else why not."""
        if not offers(task.model, Dense):
            return f"MilpSource needs a dense network, got {task.model!r}; {INSTEAD}"
        if others := sorted(set(task.model.as_feedforward().activations) - PIECEWISE_LINEAR):
            return (
                "MilpSource needs relu, leaky_relu, hard_tanh or identity units, since others have no straight pieces, "
                f"got {', '.join(others)}; {INSTEAD}"
            )
        for feature in task.space:
            (low, high), ways = feature.ends, zip(feature.ends, ("increase", "decrease"), strict=True)
            if feature.mutable and any(not np.isfinite(end) and feature.direction != way for end, way in ways):
                got = f"got {low:g} to {high:g}; give it `low` and `high`."
                return f"MilpSource needs a range of feature {feature.name!r}, {got}"
        return pieces_of(task).complaint

    def candidates(self, search: Search, *, rough: bool = False) -> Iterator[Candidate]:
        """Different candidates for one row, allowed and valid, cheapest first; with `rough`, cheap ones soon."""
        network = search.task.once("milp/network", lambda: programs.network_of(search.task))
        nearest = Nearest(search, network, self.time_limit, rough)
        return nearest.row() if search.task.unshifted else self._with_margins(nearest)

    def _with_margins(self, nearest: Nearest) -> Generator[Candidate, float | None, None]:
        """Candidates with a growing margin; where the first is out of reach, the one with the largest."""
        found = nearest.at(self.margin)
        if found is not None:
            yield from self._closing_in(nearest, found) if self.step is None else self._in_steps(nearest, found)
        elif (found := nearest.widest()) is not None:
            yield Candidate(found.point)

    def _in_steps(self, nearest: Nearest, found: NearestPoint | None) -> Iterator[Candidate]:
        """One candidate per margin."""
        step, number = self.step or 0.0, 0
        while found is not None:
            yield Candidate(found.point)
            number += 1
            while self.margin + number * step <= found.reach:  # the same point would come out
                number += 1
            margin = self.margin + number * step
            found = nearest.at(margin) if margin <= self.max_margin else None

    def _closing_in(self, nearest: Nearest, found: NearestPoint) -> Generator[Candidate, float | None, None]:
        """Candidates that only ask how far they are from passing, until one passes that is close to the cheapest."""
        slack = yield Candidate(found.point, final=False)
        bracket = _Bracket(self.margin, self.max_margin)
        while slack is not None:
            bracket.note(found, slack)
            further = None
            while further is None and (margin := bracket.next_margin()) is not None:
                further = bracket.news(nearest.at(margin))
            if further is None:
                break
            found = further
            slack = yield Candidate(found.point, final=False)
        last, growth = found if slack is None else bracket.passing, FIRST_GROWTH
        while last is not None:  # then candidates with margins that grow slowly at first, and faster later
            yield Candidate(last.point)
            margin = last.margin + max(growth * last.margin, LEAST_STEP)
            growth = min(2 * growth, LAST_GROWTH)
            last = nearest.at(margin) if margin <= self.max_margin else None


class _Bracket:
    """Margins that failed and passed, and where between the least that passes should be: slack grows as margins do."""

    def __init__(self, margin: float, ceiling: float) -> None:
        self.asked, self.top, self.tries = margin, ceiling, 0
        self.failed: list[tuple[NearestPoint, float]] = []
        self.passing: NearestPoint | None = None
        self.spare, self.missed = 0.0, 0

    def note(self, found: NearestPoint, slack: float) -> None:
        """Keep what a look at the point for the margin asked for has shown."""
        if slack < 0:
            self.failed.append((found, slack))
        else:
            self.passing, self.spare, self.top = found, slack, self.asked

    def news(self, found: NearestPoint | None) -> NearestPoint | None:
        """The point for the margin asked for if it is worth a look; if not, the margin is as good as a higher one."""
        self.missed += found is None
        if found is None or (self.passing is not None and found.margin >= self.passing.margin):
            self.top = self.asked
            return None
        return found

    def next_margin(self) -> float | None:
        """What to ask for next; None if the least margin that passes is known well enough, or out of reach."""
        self.tries += 1
        if not self.failed or self.tries > TRIES or self.missed > MISSES:
            return None
        last, slack = self.failed[-1]
        if self.top - last.reach <= (0.1 * CLOSE if self._jumps() else CLOSE) * self.top:
            return None  # nothing worth mentioning can be between what failed and what passed
        if self.passing is None:
            wish = last.margin - slack / self._slope() + CLOSE * last.margin
        else:
            share = slack / (slack - self.spare) if slack > -np.inf else 0.5
            wish = last.margin + share * (self.passing.margin - last.margin)
            if not self._jumps() and self.top - wish <= CLOSE * self.top:
                return None
            # rather a little too far than not far enough; where margins jump, not beyond a point that is just enough
            wish += -CLOSE * self.top if self._jumps() else 0.4 * CLOSE * self.top
        self.asked = wish if last.reach < wish < self.top and self.tries < TRIES / 2 else 0.5 * (last.reach + self.top)
        return self.asked

    def _jumps(self) -> bool:
        """Whether the point that passed has a larger margin than was asked for, as where features go in steps."""
        return self.passing is not None and self.passing.margin > (1 + CLOSE) * self.top

    def _slope(self) -> float:
        """How much slack a margin brings, from the last two that failed."""
        if len(self.failed) < 2:
            return 1.0
        (a, s), (b, t) = self.failed[-2:]
        grown = b.margin - a.margin
        return float(np.clip((t - s) / grown, 0.25, 4.0)) if grown > 0 and s > -np.inf else 1.0
