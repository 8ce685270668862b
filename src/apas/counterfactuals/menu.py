"""`menu`: what each applicant could change alone, or in pairs, and what is proved to lead nowhere.

Sets are asked about from the largest down: what leads nowhere leads nowhere by a part of it. That is never a solver's
word: it is a bound over all allowed rows of the set, or the verified proof of `MilpSource`.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from apas._random import Stream, entropy_of
from apas._sanitise import shown
from apas._typing import Array, Floats
from apas._validation import check_integer, is_frame
from apas.certification.claims import is_proof
from apas.certification.methods.sampling import Sampling
from apas.certification.question import SHIFTS, Method, Question, pick
from apas.certification.region import BETWEEN, ONE_OF, RowRegion, Span
from apas.certification.region_claims import AskedRegion, check_regions
from apas.certification.results import RowResults
from apas.counterfactuals.api import generate, seconds_of
from apas.counterfactuals.result import Counterfactual, Counterfactuals, Status, changes_in_words, wanted_classes
from apas.counterfactuals.sources.base import CandidateSource
from apas.counterfactuals.space.feature import Feature, is_changed
from apas.counterfactuals.space.space import FeatureSpace, default_space
from apas.display.numbers import at_least, plain
from apas.display.tables import html_table
from apas.errors import InputError, Unsupported
from apas.models.base import Model, as_model, encoded_rows, offers, predicted_classes
from apas.shifts.base import Listed, ShiftSet
from apas.stats import allowed_failures

#: Draws that are asked whether they reject all rows of a set.
DRAWS = 4096
#: That no row is kept by a share R is shown by more than 1 - R rejecting all of them: by so many times that.
CLEARLY = 1.01
#: A set is worth listing beside a part of it if its offer costs less by more than this part.
CHEAPER = 0.01
Features = tuple[str, ...]


def _joined(names: Features) -> str:
    return " and ".join(names)


class MenuStatus(Enum):
    """What is known of a set of features; the value says it in a sentence."""

    OFFER = "A certified offer changes these features and no others."
    UNREACHABLE = "It is proved that no allowed change of these features alone leads to the class."
    FRAGILE = "It is shown that no allowed change of these features alone has what is claimed of offers."
    OPEN = "No certified offer was found, and nothing is proved."

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class MenuItem:
    """What one set of features can do for one applicant.

    Attributes
    ----------
    row : int
        Number of the input.
    features : tuple of str
        The only ones that may change.
    status : MenuStatus
    offer : Counterfactual or None
    reason, changes : str
        Why there is none, and the offer in words.
    """

    row: int
    features: Features
    status: MenuStatus
    offer: Counterfactual | None
    reason: str
    changes: str = ""
    numbers: Floats | None = field(default=None, repr=False, compare=False)  # of the offer, per cell

    @property
    def cost(self) -> float:
        """What the offer costs; NaN without one."""
        return np.nan if self.offer is None else self.offer.cost

    def sentence(self) -> str:
        """The item in one sentence."""
        alone = f"changing {_joined(self.features)}{' alone' * (len(self.features) == 1)}"
        if self.status is MenuStatus.OFFER:
            return f"By {alone}: {self.changes}."
        told = {"UNREACHABLE": "Cannot be reached", "FRAGILE": "Cannot be made robust", "OPEN": "No offer was found"}
        return f"{told[self.status.name]} by {alone}: {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON values."""
        offer = None if self.offer is None else {**self.offer.to_dict(), "input": self.row}
        about = {"features": list(self.features), "status": self.status.name, "reason": self.reason}
        return {"input": self.row, **about, "changes": self.changes, "offer": offer}


class Menu(RowResults[MenuItem]):
    """One item per applicant and set of features: of each applicant the offers by cost, then what leads nowhere.

    Attributes
    ----------
    offers : Counterfactuals
        All offers, the cheapest of each applicant first; to be saved, entered into a ledger, and written as letters.
    inputs : ndarray or data frame
        The rows that were asked about, one per item.
    """

    FORMAT = "apas-menu"
    ROWS = "items"
    COLUMNS = ("row", "features", "status", "cost", "changes", "reason")

    def __init__(self, items: Sequence[MenuItem], *, offers: Counterfactuals, **rows: Any) -> None:
        super().__init__(items, **rows)
        self.offers = offers

    def _line(self, item: MenuItem) -> dict[str, Any]:
        return {**super()._line(item), "features": ", ".join(item.features), "status": item.status.name}

    def _about(self) -> dict[str, Any]:
        return {"model_digest": self.offers.model_digest, "shifts": self.offers.shifts.to_dict()}

    def summary(self) -> str:
        """How many sets of features ended how, and what is claimed of offers, in one sentence."""
        if not len(self):
            return "No sets of features, no menu."
        counts, rows = Counter(item.status for item in self), len({item.row for item in self})
        parts = ", ".join(f"{counts[status]} {status.name}" for status in MenuStatus if counts[status])
        certified = [c.certificate.claim for c in self.offers if c.certificate is not None]
        claims = "".join(sorted({f"; each offer by itself: {claim}" for claim in map(str, certified)}))
        return f"{rows} row{'s' * (rows > 1)}, {len(self)} sets of features: {parts}{claims}."

    def to_html(self) -> str:
        """A page with the table, which needs no other file."""
        style = "body{font:16px/1.5 sans-serif;margin:1rem}table{border-collapse:collapse}caption{text-align:left}"
        style += "th,td{border:1px solid #767676;padding:.2rem .5rem;text-align:left;vertical-align:top}"
        head = f'<meta charset="utf-8"><title>Menu</title><style>{style}</style>'
        table = html_table(self._shown_frame(), caption=self.summary(), ends=len(self))  # a file has all of it
        return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><h1>Menu</h1>{table}</body></html>\n'


def menu(
    model: Any,
    X: Any,
    delta: Any,
    *,
    target: Any = None,
    space: FeatureSpace | None = None,
    background: Any = None,
    features: Sequence[str] | None = None,
    size: int = 2,
    shifts: ShiftSet | str = "linf",
    method: Method | str = "sampling",
    distance: str = "l1",
    source: CandidateSource | str = "robust",
    tolerance: float | Mapping[str, float] | None = None,
    beyond: bool = False,
    time_limit: float | None = None,
    n_jobs: int = 1,
    rng: int | np.random.Generator | None = None,
) -> Menu:
    """Find the cheapest certified offer for each single feature and each pair, and say which lead nowhere.

    Parameters
    ----------
    model, X, delta, target, space, background, shifts, method, distance, source, tolerance, beyond, n_jobs
        See `generate`.
    features : sequence of str, optional
        Features to choose from; all that may change unless given.
    size : int, default 2
        How many features a set has at most.
    time_limit : float, optional
        Seconds for all searches; sets that were not reached by then are OPEN.
    rng : None, int or numpy.random.Generator
        Seed of the draws.

    Returns
    -------
    Menu
        Per applicant the offers by cost, and for each other set why there is none. An offer of a pair is not listed if
        one of the two features alone does about as well, within 1 % of the cost.

    Notes
    -----
    "Cannot be reached" is proved for the model as it is. "Cannot be made robust" holds with the confidence of the
    method, for each set by itself: so many shifted models were proved to reject every allowed row of the set that no
    row can have the share that is claimed of offers. Each offer has the claim by itself, whatever the others are.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-0.2]]], [[-1.0]], feature_names=("income", "debt"))
    >>> space = apas.FeatureSpace([apas.Feature(n, low=0, high=2) for n in net.feature_names])
    >>> found = apas.menu(net, [[0.5, 0.6]], 0.02, space=space, rng=0)
    >>> [(item.features, item.status.name) for item in found]
    [(('income',), 'OFFER'), (('debt',), 'UNREACHABLE')]
    >>> print(found[1].sentence())
    Cannot be reached by changing debt alone: all such rows are proved to keep class 0, by a margin of at least 0.5.
    """
    net = as_model(model)
    space = default_space(net, space, background, X)
    bound, check_size = space.bind(net), check_integer(size, "size", "menu", least=1)
    inputs = space.numbers_for(bound, X)
    encoded = encoded_rows(bound, space.table(inputs))[1]
    targets = wanted_classes(bound, encoded, target, one_way=True)
    present = predicted_classes(bound, encoded)[0] if len(inputs) else targets
    call = {"shifts": shifts, "method": method, "distance": distance, "n_jobs": n_jobs, "background": background}
    call |= {"source": source, "tolerance": tolerance, "beyond": beyond}
    asked = _MenuSearch(net, bound, space, X, inputs, delta, targets, present, entropy_of(rng), call)
    chosen = _features(space, features)
    until = time.monotonic() + seconds_of(time_limit)
    sets = [s for n in range(min(check_size, len(chosen)), 0, -1) for s in itertools.combinations(chosen, n)]
    for some in [chosen, *sets]:  # first of all at once
        asked.exclude(some)
    shift_set: ShiftSet = pick(shifts, SHIFTS, ShiftSet, "shifts")
    for some in sets:
        shift_set = asked.look_for_offers(some, until) or shift_set
    for some in reversed(sets):
        asked.point_to_larger(some)
    return asked.menu(sets, shift_set)


def _features(space: FeatureSpace, wanted: Sequence[str] | None) -> Features:
    """The features to choose from."""
    mutable = tuple(f.name for f in space if f.mutable)
    if wanted is None:
        return mutable
    listed = isinstance(wanted, Iterable) and not isinstance(wanted, str)
    if not listed or (strange := [name for name in wanted if name not in mutable]):
        got = shown(strange[0] if listed else wanted)
        raise InputError(f"`features` must list features that may change ({', '.join(mutable)}), got {got}.")
    return tuple(name for name in mutable if name in wanted)


def _all_of(feature: Feature, own: float) -> Span | None:
    """All that one feature may become, and what it is."""
    if np.isnan(own):
        return None
    if feature.listed is not None:
        numbers = np.asarray(feature.listed, dtype=float)
        kept = np.unique(np.append(numbers[feature.allows(numbers, np.full(len(numbers), own))], own))
        values = [(feature.values or ())[int(v)] for v in kept] if feature.is_level else kept.tolist()
        return Span(feature.name, ONE_OF, levels=tuple(plain(v) for v in values))
    least, most = feature.ends
    low = own if feature.direction == "increase" else min(least, own)
    high = own if feature.direction == "decrease" else max(most, own)
    # between steps there is nothing, if the row itself lies on one; if not, all numbers in between are taken
    step = feature.step or 0.0
    if step and float(feature.snapped(np.array([own]), np.array([np.nan]))[0]) == own:
        low, high = own - np.floor((own - low) / step + 1e-9) * step, own + np.floor((high - own) / step + 1e-9) * step
    else:
        step = 0.0
    return Span(feature.name, BETWEEN, float(low), float(high), step) if np.isfinite(high - low) else None


@dataclass(frozen=True, eq=False)
class _MenuSearch:
    """What all sets of a call share, and what is known of each."""

    net: Model
    bound: Model
    space: FeatureSpace
    X: Any
    inputs: Floats
    delta: Any
    targets: Array
    present: Array
    entropy: int
    options: dict[str, Any]
    known: dict[tuple[int, Features], MenuItem] = field(default_factory=dict)  # by row and set

    def _delta_of(self, rows: list[int]) -> Any:
        return self.delta if np.ndim(self.delta) == 0 else np.asarray(self.delta)[rows]

    def _region(self, row: int, some: Features) -> AskedRegion | None:
        """All allowed rows that differ from an input in some features at most; None if nobody knows where they end."""
        x = self.inputs[row]
        spans = [_all_of(f, float(v)) for f, v in zip(self.space, x, strict=True) if f.name in some]
        if any(span is None for span in spans):
            return None
        return AskedRegion(RowRegion(tuple(s for s in spans if s is not None)), self.space.table(x[None]))

    def _settle(self, row: int, some: Features, status: MenuStatus, reason: str) -> None:
        """What leads nowhere leads nowhere by a part of it, either."""
        for n in range(1, len(some) + 1):
            for part in itertools.combinations(some, n):
                self.known.setdefault((row, part), MenuItem(row, part, status, None, reason))

    def _open(self, row: int, some: Features, reason: str) -> None:
        self.known[row, some] = MenuItem(row, some, MenuStatus.OPEN, None, reason)

    def exclude(self, some: Features) -> None:
        """Note the rows that no change of some features can lead to the class, by a bound over all such rows."""
        for row in range(len(self.inputs)):
            region = None if (row, some) in self.known or not some else self._region(row, some)
            if region is None:
                continue
            try:
                margin = float(region.on_model(self.bound, self.present[row]).margins[0])
            except (Unsupported, InputError):  # no bounds here: `MilpSource` may have a proof
                continue
            if margin > 0:
                reason = f"all such rows are proved to keep class {self.present[row]}, by a margin of at least "
                reason += at_least(margin) if np.isfinite(margin) else "any size"
                self._settle(row, some, MenuStatus.UNREACHABLE, reason)

    def look_for_offers(self, some: Features, until: float) -> ShiftSet | None:
        """Keep offers that change some features at most; where there is none, what is proved, if anything is."""
        rows = [row for row in range(len(self.inputs)) if (row, some) not in self.known]
        left = until - time.monotonic()
        for row in rows if left <= 0 else ():
            self._open(row, some, "time was up")
        if not rows or left <= 0:
            return None
        only = [f if f.name in some else replace(f, mutable=False, direction=None) for f in self.space]
        limit = None if left == np.inf else left
        about: dict[str, Any] = {"target": self.targets[rows], "space": FeatureSpace(only, self.space.scale)}
        call = {**self.options, **about, "time_limit": limit, "rng": self.entropy}
        given = self.X.iloc[rows] if is_frame(self.X) else np.asarray(self.X)[rows]
        found = generate(self.net, given, self._delta_of(rows), **call)
        for row, offer, numbers in zip(rows, found, found.numbers, strict=True):
            if offer.is_found:
                words = changes_in_words(self.space, self.inputs[row], numbers)
                told = (replace(offer, row=row), offer.reason, words, numbers)
                self.known[row, some] = MenuItem(row, some, MenuStatus.OFFER, *told)
            elif offer.status is Status.INFEASIBLE:
                self._settle(row, some, MenuStatus.UNREACHABLE, offer.reason)
            elif (reason := self._fragile(row, some, found.shifts)) is not None:
                self._settle(row, some, MenuStatus.FRAGILE, reason)
            else:
                self._open(row, some, offer.reason)
        return found.shifts

    def _fragile(self, row: int, some: Features, shifts: ShiftSet) -> str | None:
        """Why no allowed change of some features has the claim, if so many shifted models reject all of them."""
        region, delta = self._region(row, some), self._delta_of([row])
        if region is None or not np.all(delta):
            return None
        options: dict[str, Any] = {"delta": delta, "shifts": shifts, "method": self.options["method"]}
        try:
            table = self.space.table(self.inputs[[row]])
            question = Question.ask(self.bound, table, target=self.present[[row]], **options)
            claim, question = question.method.claim(question), replace(question, regions=(region,))
            check_regions(replace(question, method=Sampling()))  # draws are asked, whatever decides about offers
            count, kind = (len(shifts.models), "listed models") if offers(shifts, Listed) else (DRAWS, "models drawn")
            with np.errstate(over="ignore", invalid="ignore"):
                margins = question.margins(question.directions(Stream(self.entropy, "menu"), 0, count))[:, 0]
        except (Unsupported, InputError):
            return None
        # a bound above 0 is a proof that the model keeps the class that the applicant has now, on every such row
        rejecting = int(np.count_nonzero(margins > 0))
        words = f"{rejecting} of {count} {kind} are proved to reject all such rows"
        if is_proof(claim):
            return f"{words}, and one is enough" if rejecting else None
        share = float(f"{CLEARLY * (1 - claim.coverage):.3g}")
        sure = claim.confidence
        if not 0 < share < 1 or count - rejecting > allowed_failures(count, coverage=share, confidence=sure):
            return None
        shown, wanted = f"{100 * share:.3g} %", f"{100 * claim.coverage:.10g} %"
        return f"{words}, so that with confidence {sure:g} at least {shown} do, and none is kept by {wanted}"

    def point_to_larger(self, some: Features) -> None:
        """Say of a set without an offer which larger one has an offer that changes nothing outside of it."""
        # it is not taken over: the cheapest of the offers of many sets would have been selected among as many tests
        for row, x in enumerate(self.inputs):
            own = self.known.get((row, some))
            if own is None or own.status is not MenuStatus.OPEN:
                continue
            for (place, other), item in self.known.items():
                if place == row and set(some) < set(other) and item.numbers is not None:
                    changed = is_changed(x, item.numbers)
                    if {name for name, moved in zip(self.space.names, changed, strict=True) if moved} <= set(some):
                        self._open(row, some, f"{own.reason}; the offer for {_joined(other)} changes no more")
                        break

    def menu(self, sets: Sequence[Features], shifts: ShiftSet) -> Menu:
        """The items of each row: offers by cost, but of sets of which no part does as well; then the others."""
        items: list[MenuItem] = []
        for row in range(len(self.inputs)):
            own = [self.known[row, some] for some in sets if (row, some) in self.known]
            best = [item for item in own if item.status is MenuStatus.OFFER]
            # the offer of a part of a set may be about as cheap as that of the whole
            parts = {i.features: [p.cost for p in best if set(p.features) < set(i.features)] for i in best}
            best = [i for i in best if not (1 - CHEAPER) * min(parts[i.features], default=np.inf) <= i.cost]
            rest = [item for item in own if item.status is not MenuStatus.OFFER]
            items += sorted(best, key=lambda i: i.cost)
            items += sorted(rest, key=lambda i: (list(MenuStatus).index(i.status), len(i.features)))
        picked = [item for item in items if item.status is MenuStatus.OFFER]
        rows = np.array([item.row for item in picked], dtype=np.intp)
        ranks = (np.arange(len(rows)) - rows.searchsorted(rows)).tolist()  # rows are in order
        offered: list[Any] = [item.offer for item in picked]
        ranked = [replace(offer, rank=rank) for offer, rank in zip(offered, ranks, strict=True)]
        numbers, origins = np.array([item.numbers for item in picked]).reshape(-1, len(self.space)), self.inputs[rows]
        tables = {name: self.space.like(n, self.X, rows) for name, n in (("points", numbers), ("inputs", origins))}
        about: dict[str, Any] = {"model": self.bound, "space": self.space, "distance": self.options["distance"]}
        found = Counterfactuals(ranked, numbers=numbers, origins=origins, shifts=shifts, **tables, **about)
        places = np.array([item.row for item in items], dtype=np.intp)
        labels = self.X.index[places] if is_frame(self.X) else places
        inputs = self.space.like(self.inputs[places], self.X, places)
        return Menu(items, offers=found, points=None, inputs=inputs, index=labels)
