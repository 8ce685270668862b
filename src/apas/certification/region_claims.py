"""Claims about regions: a shifted model counts as failing unless a bound proves that it keeps every row of the region.

What is counted are events of the draws ("this model keeps all of the region"), so the test is that of single rows; a
draw that nothing settles counts as failed, and refutes nothing. What refutes is a row of the region, kept as a witness.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from apas._random import Stream
from apas._typing import Bools, Floats
from apas.certification.certificate import NOT_VALID, BaseEvidence, BoundEvidence, Certificate, DrawnShift, RowWitness
from apas.certification.claims import Verdict, is_proof
from apas.certification.region import ReadRegion, Region, RowRegion, cells_of, names_of, one_row, read_regions
from apas.display.numbers import at_least, plain
from apas.errors import InputError, Unsupported
from apas.models.base import Dense, Leaves, class_indices, offers
from apas.models.feedforward import FeedForward
from apas.shifts.base import Box, Finite, Listed, OtherMoves
from apas.worst_case.regions import (
    DrawnNetworks,
    RegionMargins,
    least_margin_every,
    least_margin_trees,
    least_margins_drawn,
    rounding_band,
)

#: Reason of rows whose region nothing settles on the model itself.
OPEN_TODAY = "on the model itself neither a proof nor a failing row was found for all of the region"


def _unknown(draws: int, read: ReadRegion) -> RegionMargins:
    """Before the first box is looked at."""
    return RegionMargins(np.full(draws, np.inf), np.zeros((draws, len(read.numbers))), np.zeros(draws, dtype=np.intp))


@dataclass(frozen=True, eq=False)
class AskedRegion:
    """The region of one row of a question, with the rows as the user gave them."""

    region: RowRegion
    points: Any
    line: int = 0
    trusted: bool = False
    _read: dict[int, tuple[Any, ReadRegion]] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_read": {}}

    @property
    def table(self) -> Any:
        """The row as a table of one line."""
        return one_row(self.points, self.line)

    def read(self, model: Any) -> ReadRegion:
        """The region as a model reads it, once per model."""
        if id(model) not in self._read:  # beside the model itself, so that no other one gets its id
            self._read[id(model)] = model, read_regions(model, self.table, [self.region], trusted=self.trusted)[0]
        return self._read[id(model)][1]

    def on_model(self, model: Any, target: Any) -> RegionMargins:
        """What is known of the region on one model as it is."""
        read, wanted = self.read(model), int(class_indices(model.classes, target, 1)[0])
        net = model.as_feedforward() if offers(model, Dense) else None
        trees = model.trees() if net is None and offers(model, Leaves) else None
        if net is None and trees is None:
            raise Unsupported(_no_bounds(model))
        found = _unknown(1, read)
        for number, box in enumerate(read.boxes):
            if net is not None:
                still = np.zeros((1, len(net.parameters)))
                nets, band = DrawnNetworks.of(net, box, still, 0.0), rounding_band(net, box, still[0], 0.0)
                here = least_margins_drawn(nets, box, wanted, band)
            else:
                assert trees is not None
                value, t = least_margin_trees(trees, box, wanted, lambda X: model.margin(X, target))
                here = RegionMargins(np.array([value]), t[None])
            found.keep_worse(np.arange(1), here, number)
        return found

    def on_draws(self, question: Any, row: int, directions: Floats) -> RegionMargins:
        """What is known of the region on each model that was drawn."""
        target, delta = question.target[row], float(question.delta[row])
        if question.listed is not None:
            looks = [self.on_model(question.listed[int(number)], target) for number in directions[:, 0]]
            return RegionMargins(*(np.concatenate(parts) for parts in zip(*looks, strict=True)))
        net, read, wanted = question.network, self.read(question.model), int(question.wanted[row])
        found = _unknown(len(directions), read)
        for number, box in enumerate(read.boxes):
            going = np.flatnonzero(~(found.margins <= 0) & ~np.isnan(found.margins))
            some = directions if len(going) == len(directions) else directions[going]
            nets, band = DrawnNetworks.of(net, box, some, delta), read.bands(net, question.radii, delta)[number]
            found.keep_worse(going, least_margins_drawn(nets, box, wanted, band), number)
        return found

    def cells(self, model: Any, look: RegionMargins, draw: int) -> tuple[Any, ...]:
        """The cells of the row that fails on a draw."""
        table = self.read(model).rows([(int(look.box[draw]), look.t[draw])])
        return tuple(plain(v) for v in cells_of(table, 0, names_of(model, table)).values())


def asked_regions(question: Any, region: Region, inputs: Any = None, space: Any = None) -> tuple[AskedRegion, ...]:
    """The regions of all rows of a question."""
    rows = region.rows(question.points, names_of(question.model, question.points), inputs, space)
    return tuple(AskedRegion(r, question.points, i) for i, r in enumerate(rows))


def check_regions(question: Any) -> None:
    """Refuse what no bound is known for, before anything is drawn."""
    name, method, geometry = type(question.shifts).__name__, question.method, question.geometry
    if offers(question.shifts, OtherMoves) and not offers(question.shifts, Listed):
        raise Unsupported(f"`region` goes with sets that move parameters, and with lists of models, got {name}.")
    if question.listed is not None and (question.delta != 1).any():
        raise InputError("`delta` must be 1, or None, for regions on listed models.")
    if question.listed is None and question.network is None:
        raise Unsupported(_no_bounds(question.model))
    proves = {Box: "interval", Finite: "exact"}.get(type(geometry))
    if is_proof(method.claim(question)) and getattr(method, "name", "") != proves:
        way = f'method="{proves}", or ' if proves else ""
        raise Unsupported(f'{type(method).__name__} cannot speak of regions here; use {way}method="sampling".')
    # all of them at once: pipelines take as long for one row as for many
    read = read_regions(question.model, question.points, [asked.region for asked in question.regions])
    for asked, one in zip(question.regions, read, strict=True):
        asked._read[id(question.model)] = question.model, one


def _no_bounds(model: Any) -> str:
    bounded = "which is a dense network or an ensemble of trees among listed refits (ObservedShifts)"
    return f"`region` needs a model with bounds over rows, {bounded}, got {model!r}; certify single rows."


def kept_without_draws(question: Any) -> Bools:
    """Regions that bounds show to be kept under every shift of a box, so that no draw of them can fail."""
    net = question.network
    if type(net) is not FeedForward or not isinstance(question.geometry, Box):  # a subclass may compute otherwise
        return np.zeros(len(question), dtype=bool)
    rows = zip(question.regions, question.wanted.tolist(), question.delta.tolist(), strict=True)
    read = ((asked.read(question.model), wanted, delta) for asked, wanted, delta in rows)
    return np.array([one.kept(net, wanted, question.radii, delta) for one, wanted, delta in read], dtype=bool)


def decide_regions(question: Any, method: Any, stream: Stream) -> list[Certificate]:
    """One certificate per row about its region: the model itself first, then the shifts."""
    claim, name = method.claim(question), getattr(method, "name", type(method).__name__.lower())
    found: dict[int, Certificate] = {}
    sure = kept_without_draws(question)
    for i, asked in enumerate(question.regions or ()):
        if sure[i]:
            continue
        look = asked.on_model(question.model, question.target[i])
        if look.margins[0] > 0:
            continue
        said = (float(question.delta[i]), question.target[i], name, BaseEvidence())
        witness = None if look.margins[0] == 0 else RowWitness(asked.cells(question.model, look, 0), None, said[0])
        verdict, reason = (Verdict.UNKNOWN, OPEN_TODAY) if witness is None else (Verdict.REFUTED, NOT_VALID)
        found[i] = Certificate(claim, verdict, *said, reason, witness, region=asked.region)
    rest = np.array([i for i in range(len(question)) if i not in found], dtype=np.intp)
    if len(rest):
        some = question if len(rest) == len(question) else question.take(rest)
        if is_proof(claim):
            answers = [_proved(some, i, method) for i in range(len(some))]
        else:
            answers = _drawn(some, method.run(some, stream))
        found |= dict(zip(rest.tolist(), answers, strict=True))
    return [found[i] for i in range(len(question))]


def _drawn(question: Any, answers: Sequence[Certificate]) -> list[Certificate]:
    """The certificates of draws with their regions, and the rows behind their witnesses."""
    found = []
    for i, (answer, asked) in enumerate(zip(answers, question.regions, strict=True)):
        witness = answer.witness
        if isinstance(witness, DrawnShift):
            drawn = question.directions(Stream(witness.entropy, witness.purpose), witness.index, witness.index + 1)
            model = question.model if question.listed is None else question.listed[int(drawn[0, 0])]
            look = asked.on_draws(question, i, drawn)
            witness = RowWitness(asked.cells(model, look, 0), witness, answer.delta)
        reason = answer.reason.replace("draws failed", "draws were not proved to keep all of the region")
        reason = reason.replace("within rounding of the boundary, where nothing can be decided", "open")
        found.append(replace(answer, witness=witness, region=asked.region, reason=reason))
    return found


def _proved(question: Any, i: int, method: Any) -> Certificate:
    """A certificate about every shift of a box, or every one of a list."""
    asked, delta, target = question.regions[i], float(question.delta[i]), question.target[i]
    witness: RowWitness | None = None
    if question.listed is not None:
        looks = [asked.on_model(model, target) for model in question.listed]
        values = np.array([float(look.margins[0]) for look in looks])
        failing = np.flatnonzero(~(values >= 0))
        bound, step, nodes, exact = float(np.min(values, initial=np.inf)), "models", len(values), False
        if len(failing):
            number = int(failing[0])
            shift = DrawnShift(question.shifts, delta, 0, "listed", number)
            witness = RowWitness(asked.cells(question.listed[number], looks[number], 0), shift, delta)
    else:
        net, read, wanted, step = question.network, asked.read(question.model), int(question.wanted[i]), "interval"
        parts = [least_margin_every(net, box, wanted, question.radii, delta) for box in read.boxes]
        bound, nodes, exact = min(p[0] for p in parts), sum(p[2] for p in parts), not net.activations
        if not bound > 0:
            witness = _failing_shift(question, i, read, int(np.argmin([p[0] for p in parts])), method)
    written = at_least(bound) if np.isfinite(bound) and bound != 0 else None
    if witness is not None:
        verdict, reason, bound_ = Verdict.REFUTED, "a row of the region is known that a shift of the set breaks", None
    elif bound > 0 and written is not None:
        verdict, bound_ = Verdict.CERTIFIED, float(written)
        over = f"{nodes} listed models" if step == "models" else f"{nodes} part{'s' * (nodes > 1)} of the region"
        reason = f"the margin of every row of the region is at least {written}, bounded over {over}"
    else:
        verdict, bound_ = Verdict.UNKNOWN, None if written is None or bound > 0 else float(written)
        reason = "the bound on the margins of the region is not above 0, and no failing row and shift are known"
    told = getattr(method, "name", type(method).__name__.lower()), BoundEvidence(step, bound_, nodes, exact)
    return Certificate(method.claim(question), verdict, delta, target, *told, reason, witness, region=asked.region)


def _failing_shift(question: Any, i: int, read: ReadRegion, box: int, method: Any) -> RowWitness | None:
    """A row of the region, at the corner where the model itself is worst, that the method refutes by itself."""
    net, wanted, part = question.network, int(question.wanted[i]), read.boxes[box]
    still = np.zeros((1, len(net.parameters)))
    p = np.zeros((1, len(part.ways)))
    _, slopes, _ = DrawnNetworks.of(net, part, still, 0.0).bounds(np.zeros(1, dtype=np.intp), p, p + 1.0, wanted)
    for t in (np.where(slopes[0] > 0, 0.0, 1.0), np.where(slopes[0] > 0, 1.0, 0.0), np.zeros(p.shape[1])):
        t = part.on_steps(t)
        alone = replace(question.take(np.array([i])), X=part.rows(t)[None], regions=None)
        point = method.run(alone, Stream(0, "region"))[0]
        if point.witness is not None:
            look = RegionMargins(np.zeros(1), t[None], np.array([box]))
            asked = question.regions[i]
            return RowWitness(asked.cells(question.model, look, 0), point.witness, float(question.delta[i]))
    return None


def certify_sizes(question: Any, method: Any, stream: Stream, sizes: int) -> list[Certificate]:
    """Of so many nested regions of each row the largest that is certified, on the same draws for all of them."""
    # a model that keeps a region keeps all smaller ones: if any false claim is certified on these draws, the test of
    # the smallest false one would have passed, too; so the confidence is that of one test, the search costs nothing
    from apas.certification.question import decide  # which imports this module

    found: list[Certificate] = []
    for i in range(len(question)):
        alone, full = question.take(np.array([i])), question.regions[i]
        cells = cells_of(full.table, 0, names_of(question.model, full.table))
        best: Certificate | None = None
        low, high, number = 0, sizes + 1, sizes
        while high - low > 1:
            region = replace(full, region=full.region.part(number, sizes, cells), _read={})
            answer = decide(replace(alone, regions=(region,)), method, stream)[0]
            low, high = (number, high) if answer.is_certified else (low, number)
            best = answer if best is None or answer.is_certified or not best.is_certified else best
            number = (low + high) // 2
        found += [] if best is None else [best]
    return found
