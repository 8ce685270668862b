"""`max_shift`: the largest shift at which each row is certified.

Proof for draws: let D be the first delta at which a random direction breaks the row, and q the largest number with
P(D >= q) >= coverage. D_(c+1) > q needs at most c of n draws <= q: P(Binomial(n, 1 - coverage) <= c) <= 1 - confidence.
Models that can only be asked for margins are looked at on a grid of deltas, which a pilot on a stream of its own lays
before the certifying rays are drawn: a finer grid where these look promising would be a selection.
"""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats, Indices
from apas._validation import check_integer
from apas.certification.claims import Most
from apas.certification.derived_seed import DerivedSeed
from apas.certification.failing_draws import first_failures
from apas.certification.max_shift.proved import proved_deltas
from apas.certification.max_shift.rays import along_rays
from apas.certification.max_shift.result import MaxShift, MaxShifts, Plan, Trace, without_search
from apas.certification.question import Draws, FindsLargestShift, Method, Question
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.base import offers
from apas.shifts.base import Listed, OtherMoves, Refitted, Region, ShiftSet
from apas.stats import Telescoping, allowed_failures, sample_size, spend
from apas.stats.sequential import ANYTIME, boundary

if TYPE_CHECKING:
    from apas.certification.methods.sampling import Sampling

SEARCHES = ("rays", "confirm", "paper")


def max_shift(
    model: Any,
    X: Any,
    *,
    target: Any,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    search: str | None = None,
    limit: float | None = None,
    simultaneous: bool = False,
    n_jobs: int = 1,
    rng: int | np.random.Generator | DerivedSeed | str | None = None,
) -> MaxShifts:
    """Find the largest shift of the model at which each row is certified to keep its class.

    Parameters
    ----------
    model, X, target, shifts, simultaneous, n_jobs, rng
        As in `certify`.
    method : Method or str, default "sampling"
        ``"sampling"`` certifies `Most` (Algorithm 1 of the paper, made selection-safe). The others prove `Every`
        (Algorithm 4): ``"interval"`` and ``"linear"`` by bounds, ``"exact"`` by bisection over exact verdicts,
        ``"cascade"`` by the strongest of them that applies.
    search : {"rays", "confirm", "paper"}, optional
        How to search with `Sampling`. ``"rays"`` (default): one sample of directions, the right order statistic of
        their first failures. ``"confirm"`` (default above 100,000 parameters): search on one stream, confirm on fresh
        ones, at rungs up to delta. ``"paper"``: Algorithm 1 as published, whose confidence holds per test only.
    limit : float, optional
        Where to stop looking; 10 times the largest parameter unless given (10 for relative shifts and `InputNoise`).

    Returns
    -------
    MaxShifts
        One `MaxShift` per row; a row that is not valid on the model itself, or within its rounding, has delta 0.

    Notes
    -----
    Along rays with exact roots (linear models, one hidden layer of piecewise linear units) the claim holds along the
    whole way up to delta; on a grid, and by ``"confirm"``, it holds at every rung up to delta, and everywhere up to the
    proved delta. So ``found.deltas >= x`` certifies the claim at x for every x where `MaxShift.rungs` is None, and else
    for an x that is one of the rungs. What voids it: choosing the rows by looking at the same draws (the same `rng`).

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]]], [[0.0]])
    >>> found = apas.max_shift(net, [[2.0, 0.5]], target=1, rng=0)[0]
    >>> found.provable < found.delta < found.upper
    True
    """
    began = time.perf_counter()
    if offers(shifts, Listed):
        why = f"{type(shifts).__name__}: the models that choose a delta cannot also certify it"
        instead = "use certify(..., delta=1), or robust_fraction with deltas chosen beforehand"
        raise Unsupported(f"max_shift cannot use {why}; {instead}.")
    question = Question.ask(
        model, X, target=target, delta=1.0, shifts=shifts, method=method, simultaneous=simultaneous, n_jobs=n_jobs
    )
    chosen = question.method
    if not offers(chosen, FindsLargestShift):
        told = f"must be Sampling, IntervalBounds, LinearBounds, Exact or Cascade, got {type(chosen).__name__}"
        raise InputError(f"`method` of max_shift {told}; it has no largest shift to offer.")
    if search is not None and (not isinstance(search, str) or search not in SEARCHES):
        raise InputError(f"`search` must be one of {', '.join(map(repr, SEARCHES))}, got {search!r}.")
    if search not in (None, "rays") and not offers(chosen, Draws):  # the name of the default does no harm
        raise InputError('`search` goes with method="sampling"; leave it out.')
    farthest, derived, ways = _limit(limit, question), DerivedSeed.wanted(rng), None
    if derived is None:
        stream = Stream.seeded(rng, "max_shift")
    else:
        question, search = derived.ask(question), search or default_search(question, chosen)
        if search == "paper":
            why = "whose tests have a confidence, but not the delta that they lead to"
            raise InputError(f'`rng="derived"` cannot be used with search="paper", {why}; leave `search` out.')
        stream, found = derived.derive(question, "max_shift", f"{search}/1", farthest)
        ways = iter(found)
    claim, near = question.method.claim(question), question.doubtful_rows()
    ok = question.valid_rows() & ~near if len(question) else near
    answers: list[MaxShift] = []
    if ok.any():
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            answers = chosen.largest_shift(question.take(ok), stream, limit=farthest, search=search)
    waiting = iter(answers)
    rows = zip(ok.tolist(), near.tolist(), question.target, strict=True)
    items = [next(waiting) if fine else without_search(target, claim, near=doubt) for fine, doubt, target in rows]
    seconds = (time.perf_counter() - began) / max(1, len(items))
    for item in items:  # made a moment ago and seen by nobody yet
        object.__setattr__(item, "seconds", seconds)
        way = {} if ways is None else {"siblings": " ".join(next(ways))}
        object.__setattr__(item, "trace", {**item.trace, **(way if item.trace else {}), "limit": farthest})
    return MaxShifts(items, **question.context)


def _limit(limit: float | None, question: Question) -> float:
    if limit is None:
        if offers(question.shifts, Refitted):  # as many changes as there are rows
            return float(len(question.shifts.bind(question.model).table))
        if getattr(question.shifts, "relative", False) or offers(question.shifts, OtherMoves):
            return 10.0
        return 10.0 * float(np.abs(question.model.parameters.values).max(initial=0.0)) or 10.0
    number = isinstance(limit, Real) and not isinstance(limit, bool | np.bool_)
    if not number or not 0 < limit < 1e300:
        raise InputError(f"`limit` of max_shift must be a positive finite number, got {reprlib.repr(limit)}.")
    return float(limit)


#: Above this many parameters the search on fresh draws is the default.
MANY = 100_000


def default_search(question: Question, sampler: Any) -> str:
    """How the largest shift is looked for by draws, unless somebody says it."""
    return "rays" if len(question.model.parameters) <= MANY or sampler.test == "anytime" else "confirm"


def sampled_answers(
    question: Question, sampler: Sampling, stream: Stream, limit: float, search: str | None = None
) -> list[MaxShift]:
    """The largest deltas that draws certify, for rows that are valid on the model itself."""
    search = search or default_search(question, sampler)
    if search != "rays" and sampler.test == "anytime":
        raise InputError(f'`search` must be "rays" with the anytime test, which ends by itself, got {search!r}.')
    claim = sampler.claim(question)
    # first failures along rays, and proved deltas, are those of a dense network in a bounded set
    network = question.network if isinstance(question.geometry, Region) else None
    proved, broken = proved_deltas(question, network, limit)

    def look(rows: Indices, plan: Plan, told: Trace) -> list[MaxShift]:
        """What a number of rays says about some rows."""
        trace = {"search": "rays", "entropy": hex(stream.entropy), "samples": plan[0]}
        trace |= {"allowed": plan[1], "refuting": plan[2], "claim": "pathwise"} | told
        some = question if len(rows) == len(question) else question.take(rows)
        if network is None:
            return along_grid(some, claim, stream, plan, limit, trace | {"exact_roots": False})
        return along_rays(some, claim, stream, plan, limit, (proved[rows], broken[rows]), trace)

    if sampler.test == "anytime":
        return _until_tight(question, sampler, claim, look)
    plan = sampler.plan(question, claim)
    samples = plan[0]
    if search == "rays":
        return look(np.arange(len(question)), plan, {})
    if search == "confirm":
        found, why, told = confirm_rows(question, claim, stream, samples, limit, proved)
    else:
        if sampler.n_samples is None:  # as published: no more draws than the claim needs
            samples = sample_size(coverage=claim.coverage, confidence=claim.row_confidence)
        found, why, told = published_search(question, stream, samples, limit)
    answers = []
    for i, target in enumerate(question.target):
        delta = max(float(found[i]), float(proved[i]))
        reason = why[i] if delta > proved[i] or not delta else "proved for every shift"
        ends = (delta, np.inf, float(proved[i]), float(broken[i]), False, delta >= limit)
        answers.append(MaxShift(*ends, claim, target, reason, told[i]))
    return answers


def _until_tight(
    question: Question, sampler: Sampling, claim: Most, look: Callable[[Indices, Plan, Trace], list[MaxShift]]
) -> list[MaxShift]:
    """Twice as many rays again and again, until `upper` is close to `delta` or the cap is reached."""
    # with Y = [D <= q] of the proof above, "D_(c+1) > q with c = max{k: N_k <= n}" says that so few of n draws have Y
    # that the anytime test certifies: with the stated confidence all these deltas are valid together, and so is the
    # largest of them; likewise all upper ends, from the failures that refute
    test, cap = boundary(claim.coverage, claim.row_confidence), sampler.cap(question, claim)
    draws, rows = test.needed(0), np.arange(len(question))
    if cap < draws:
        wanted = f"at least {draws} for the anytime test along rays"
        raise InputError(f"`n_samples` of Sampling must be {wanted}, got {cap}.")
    told = {"samples": cap, "test": ANYTIME, "tolerance": sampler.tolerance}
    best: dict[int, MaxShift] = {}
    while len(rows):
        found = look(rows, (draws, test.most(draws), test.least(draws)), {**told, "draws": draws})
        for row, now in zip(rows.tolist(), found, strict=True):
            old = best.get(row, now)
            larger = now if now.delta >= old.delta else old
            upper, broken = max(min(old.upper, now.upper), larger.delta), min(old.broken_at, now.broken_at)
            best[row] = replace(larger, upper=upper, broken_at=broken, trace={**larger.trace, "draws": draws})
        wide = [best[row].upper > (1 + sampler.tolerance) * best[row].delta for row in rows.tolist()]
        rows = rows[np.array(wide, dtype=bool) & (draws < cap)]
        draws = min(2 * draws, cap)
    return [best[row] for row in range(len(question))]


def continue_shifts(question: Question, items: Sequence[MaxShift], n_samples: Any) -> list[MaxShift]:
    """Largest shifts that the anytime test left wide, looked at with more rays of the same stream."""
    cap = check_integer(n_samples, "n_samples", "continued", least=1)
    from apas.certification.methods.sampling import Sampling as sampler  # which imports this module

    found = list(items)
    groups: dict[Any, list[int]] = {}
    for i, item in enumerate(items):
        if item.trace.get("test") == ANYTIME:
            settings = (item.trace[key] for key in ("entropy", "limit", "tolerance"))
            groups.setdefault((item.claim, *settings), []).append(i)
    if not groups:
        raise InputError('only the anytime test can be continued; use Sampling(test="anytime") in max_shift.')
    made = max(items[i].trace["samples"] for rows in groups.values() for i in rows)
    if cap < made:
        raise InputError(f"`n_samples` of continued must be at least {made}, as before, got {cap}; draw more.")
    for (claim, _, limit, tolerance), rows in groups.items():
        told = {"coverage": claim.coverage, "confidence": claim.confidence, "n_samples": cap, "tolerance": tolerance}
        some = question.take(np.array(rows, dtype=np.intp)).at(1.0).for_claim(claim)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite counts as failing
            answers = sampled_answers(some, sampler(test="anytime", **told), items[rows[0]].stream, limit, "rays")
        for i, answer in zip(rows, answers, strict=True):
            found[i] = items[i].found_again(answer)
    return found


#: In how many steps a candidate is looked for, how often the last of them is halved, and where they begin if nothing
#: is proved, as a share of the limit.
STEPS, HALVINGS, LEAST = 24, 7, 1e-6
#: Shares of the pilot's answer below and around it, and how fast the grid grows beyond.
COARSE, FINE, BEYOND = (0.05, 0.1, 0.2, 0.4, 0.6, 0.7), 1.02, 1.3
#: How many rows are looked at together, and for how many rays the grid of the anytime test is laid.
TOGETHER, PLANNED = 64, 50_000
#: No draw is known to fail yet.
NONE = np.empty(0, dtype=np.int64)


def ladder(low: Floats, high: Floats, rungs: int) -> Floats:
    """Per row a geometric sequence that begins above `low` and ends at `high` itself."""
    # by logarithms: the ratio of a tiny proved delta and the limit may not be finite
    begin, end = np.log(low)[:, None], np.log(high)[:, None]
    values = np.exp(begin + (end - begin) * np.arange(1, rungs + 1) / rungs)
    values[:, -1] = high
    return np.asarray(values)


def climb(
    question: Question, rungs: Floats, stream: Stream, draws: int, ranks: tuple[int, ...], failed: list[Any]
) -> Indices:
    """Per row how many rungs it climbs before so many draws fail, and so many beyond rounding; shape (rows, ranks).

    `failed` has per row and rank the draws that are known to fail; those that do on the way are added while they are
    too few.
    """
    climbed = np.full((len(question), len(ranks)), rungs.shape[1], dtype=np.intp)
    rows = np.arange(len(question))
    # all failures of a row are counted until the last rank is reached, and then it is at its end anyway
    limits = (ranks[0], ranks[0]) if len(ranks) == 1 else (draws + 1, ranks[1])
    for rung in range(rungs.shape[1]):
        found = first_failures(replace(question.take(rows), delta=rungs[rows, rung]), stream, draws, *limits)
        for i, row in enumerate(rows):
            here, sure = found.of(i)
            together = [np.union1d(*both) for both in zip(failed[row], (here, here[sure])[: len(ranks)], strict=True)]
            reached = [len(seen) >= rank for seen, rank in zip(together, ranks, strict=True)]
            climbed[row, reached] = np.minimum(climbed[row, reached], rung)
            if not all(reached):
                failed[row] = tuple(together)
        rows = rows[climbed[rows].max(axis=1) > rung]
        if not len(rows):
            break
    return climbed


def candidates(question: Question, claim: Most, stream: Stream, planned: int, limit: float, floor: Floats) -> Floats:
    """Per row a delta up to which about 60 % of the failures that the claim allows are seen, or the floor."""
    # any heuristic would do; this one climbs, so that a network that recovers does not lure it beyond the failures
    samples = min(planned, 4000)  # a pilot: more draws would cost as much as the test itself
    allowed = allowed_failures(planned, coverage=claim.coverage, confidence=claim.row_confidence)
    # below what the claim allows, so that certifying draws pass as a rule; where none may fail, 0.3 of one is still
    # none here, as the pilot never has more draws than the test
    most = int(max(0.6 * allowed, 0.3) / planned * samples)
    low = np.where(floor > 0, floor, limit * LEAST)
    high = np.full(len(question), limit)
    failed: list[Any] = [(NONE,)] * len(low)
    rungs = ladder(low, high, STEPS)
    climbed = climb(question, rungs, stream, samples, (most + 1,), failed)[:, 0]
    found = np.where(climbed > 0, rungs[np.arange(len(low)), climbed - 1], floor)
    rows = np.flatnonzero((climbed < STEPS) & (found > 0))
    high[rows] = rungs[rows, climbed[rows]]
    for _ in range(HALVINGS):
        if not len(rows):
            break
        middle = np.sqrt(found[rows]) * np.sqrt(high[rows])
        some = [failed[row] for row in rows]
        passed = climb(question.take(rows), middle[:, None], stream, samples, (most + 1,), some)[:, 0] == 1
        for row, seen in zip(rows, some, strict=True):
            failed[row] = seen
        found[rows] = np.where(passed, middle, found[rows])
        high[rows] = np.where(passed, high[rows], middle)
    return found


def along_grid(question: Question, claim: Most, own: Stream, plan: Plan, limit: float, trace: Trace) -> list[MaxShift]:
    """First failures on rungs along rays, as an answer per row, for models that can only be asked for margins."""
    answers, (samples, allowed, refuting), rays = list[MaxShift](), plan, own.part("rays")
    with Progress(len(question), "looking along rays") as progress:
        for begin in range(0, len(question), TOGETHER):
            part = question.take(slice(begin, begin + TOGETHER))
            # a test that may be continued must have one grid, however many rays it will see
            planned = PLANNED if "test" in trace else samples
            found = candidates(part, claim, own.part("pilot"), planned, limit, np.zeros(len(part)))
            # fine from 0.8 to 1.6 times the pilot's answer; then 39 steps up to 28,000 times that, then the limit
            fine = 0.8 * FINE ** np.arange(int(np.ceil(np.log(2.0) / np.log(FINE))) + 1)
            shares = np.concatenate([COARSE, fine, fine[-1] * BEYOND ** np.arange(1, 40)])
            grid = np.minimum(np.maximum(found, limit * LEAST)[:, None] * shares, limit)
            grid[:, -1] = limit
            rungs = grid.shape[1]
            ends_at = climb(part, grid, rays, samples, (allowed + 1, refuting), [(NONE, NONE)] * len(part))
            for i, (certify_at, refute_at) in enumerate(ends_at):
                delta = float(grid[i, certify_at - 1]) if certify_at else 0.0
                upper = float(grid[i, refute_at]) if refute_at < rungs else np.inf
                ended = bool(certify_at == rungs)
                reason = f"at every grid value up to delta{', which is the limit' if ended else ''}"
                reason += f": at most {allowed} of {samples} rays failed before"
                if not delta:
                    reason = f"more than {allowed} of {samples} rays failed at the first grid value already"
                told = {**trace, "rungs": np.unique(grid[i, :certify_at]).tolist()}
                ends = (delta, max(upper, delta), 0.0, np.inf, False, ended)
                answers.append(MaxShift(*ends, claim, part.target[i], reason, told))
            progress.advance(len(part))
    return answers


#: How often a candidate may be tried on fresh draws, and by what factor the next one is smaller.
TRIES, SHRINK = 12, 0.97
#: At how many rungs a draw is looked at in a test, and where they begin if nothing is proved, as a share of the top.
RUNGS, LOWEST = 12, 1 / 32
#: Where the published search starts, and how far it narrows its bracket.
PUBLISHED = 1e-4


#: The largest delta that passed, per row, why it is that, and what the search did.
Searched: TypeAlias = tuple[Floats, list[str], list[Trace]]


def confirm_rows(question: Question, claim: Most, own: Stream, samples: int, limit: float, floor: Floats) -> Searched:
    """Search on one stream, then test the candidate on fresh ones until it passes."""
    # a draw fails a test if it fails at any of its rungs, which are fixed before it is made. The j-th test runs at
    # confidence 1 - (1 - confidence) / (j (j + 1)) on draws used nowhere before, and these risks add up to
    # 1 - confidence: whichever candidate passes is certified at the full confidence, at all its rungs together
    candidate = candidates(question, claim, own.part("search"), samples, limit, floor)
    delta, tests = np.zeros(len(question)), np.zeros(len(question), dtype=int)
    rungs: list[list[float]] = [[] for _ in delta]
    reason = ["the search found no delta that was worth a test"] * len(delta)
    rows = np.flatnonzero(candidate > floor)
    for j in range(1, TRIES + 1):
        if not len(rows):
            break
        level = spend(claim.row_confidence, Telescoping(), j)
        drawn = max(samples, sample_size(coverage=claim.coverage, confidence=level))
        allowed = allowed_failures(drawn, coverage=claim.coverage, confidence=level)
        # where nothing is proved, no rung can be the first: they begin at a share of the candidate
        start = np.where(floor[rows] > 0, floor[rows], LOWEST * candidate[rows])
        # from the top, where most candidates fail that do, then from below
        values = np.roll(ladder(start, candidate[rows], RUNGS), 1, axis=1)
        failed: list[Any] = [(NONE,)] * len(rows)
        fresh = own.part(f"confirm/{j}")
        climbed = climb(question.take(rows), values, fresh, drawn, (allowed + 1,), failed)[:, 0]
        tests[rows] += 1
        passed = climbed == RUNGS
        for i, row in enumerate(rows):
            reason[row] = "no candidate passed its test on fresh draws"
            if passed[i]:
                delta[row], rungs[row] = candidate[row], sorted(values[i].tolist())
                counts = f"{len(failed[i][0])} of {drawn} fresh draws failed at any of them, at most {allowed} may"
                reason[row] = f"at {RUNGS} rungs up to delta: {counts} (test number {j})"
            else:
                candidate[row] = SHRINK * values[i, climbed[i]]
        rows = rows[~passed & (candidate[rows] > floor[rows])]
    common = {"search": "confirm", "claim": "pathwise", "exact_roots": False, "entropy": hex(own.entropy)}
    trace = [{**common, "samples": samples, "tests": int(t), "rungs": r} for t, r in zip(tests, rungs, strict=True)]
    return delta, reason, trace


def published_search(question: Question, stream: Stream, samples: int, limit: float) -> Searched:
    """Algorithm 1 as published, each test on fresh draws: the delta was chosen by looking at their results."""
    tests = np.zeros(len(question), dtype=int)

    def passes(rows: Indices, delta: Floats) -> Bools:
        tests[rows] += 1
        passed = np.empty(len(rows), dtype=bool)
        for number in np.unique(tests[rows]):  # a row's draws depend on its own tests alone
            some = tests[rows] == number
            fresh = stream.part(f"paper/{number}")
            here = replace(question.take(rows[some]), delta=delta[some])
            passed[some] = np.diff(first_failures(here, fresh, samples, 1, 1).starts) == 0
        return passed

    # a bracket of the published width, up to rounding, is closed
    found = double_and_bisect(passes, len(question), limit, PUBLISHED * (1 + 1e-9))
    reason = ["as published: the confidence holds for each of its tests, not for the delta they led to"] * len(question)
    common = {"search": "paper", "claim": "per test", "entropy": hex(stream.entropy), "samples": samples}
    trace = [{**common, "tests": int(t), "forward_passes": int(t) * samples} for t in tests]
    return found, reason, trace


def double_and_bisect(passes: Callable[[Indices, Floats], Bools], rows: int, limit: float, width: float) -> Floats:
    """Double from 1e-4 while a row passes, up to `limit`; then halve brackets of at least `width`: their lower ends."""
    low, high = np.zeros(rows), np.full(rows, PUBLISHED)
    going = np.arange(rows)
    while len(going):
        going = going[passes(going, high[going])]
        low[going] = high[going]
        going = going[high[going] < limit]
        high[going] = np.minimum(2 * high[going], limit)
    going = np.flatnonzero((low > 0) & (low < high))
    while len(going := going[high[going] - low[going] >= width]):
        middle = 0.5 * (low[going] + high[going])
        passed = passes(going, middle)
        low[going[passed]], high[going[~passed]] = middle[passed], middle[~passed]
    return low
