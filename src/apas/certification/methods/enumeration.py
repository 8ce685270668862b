"""`Enumeration`: certificates from cutting up the box of shifts (Algorithm 3 of the paper), certain both ways.

Where the margin is linear in what moves, the law of its share is known: with what enters the output layer, h, the
margin over a rival is its value on the model itself plus ``delta * sum of c_i s_i``, where ``c_i = radii_i * abs(h_i)``
and s is a draw; the set says what share of its draws keeps such a sum above a level (`LinearShare`). Failures against
several rivals add up to at most their sum, and to at least the largest.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apas._fields import Fields, Saved
from apas._parallel import in_parallel
from apas._random import Stream
from apas._typing import Floats
from apas._validation import check_integer, check_number, check_probability
from apas.certification.api import FractionCurve
from apas.certification.certificate import Certificate, CornerShift, Witness, confirmed_witness
from apas.certification.claims import Every, Most, Verdict
from apas.certification.interval_network import IntervalNetwork, IntervalNetworks
from apas.certification.methods.bounds import no_network
from apas.certification.question import Question
from apas.display.numbers import at_least, at_most
from apas.display.progress import Progress
from apas.errors import InputError
from apas.models.base import Chained, offers
from apas.models.feedforward import FeedForward
from apas.models.forward import gradients, margins_from_scores
from apas.shifts.base import SHARE_ERROR, Box, Ellipsoid, Elliptical, LinearShare, OtherMoves
from apas.shifts.fit_problem import last_layer_rows
from apas.shifts.geometry import inside_box
from apas.worst_case.ball import is_exact_ball
from apas.worst_case.enumeration import splitting
from apas.worst_case.enumeration.splitting import FAILING, Partition, ShiftBox, Split, split
from apas.worst_case.geometry import Ellipsoids

#: What certificates call a share that is computed without boxes or draws.
CLOSED_FORM = "closed form"
#: Bounds are kept as multiples of this, rounded outward, so that no library's last digits show.
DIGITS = 10**9
#: How far bounds may be from those of a file: on another machine, a digit may have been rounded to the other side.
SAME = 3 / DIGITS


_NO_BOXES = "this certificate was read from a file, which does not hold boxes; certify the row again."


class FailingShift:
    """Looks for a failing shift in parts of a box: at their middles, and where the margin falls from there."""

    def __init__(self, question: Question, row: int, box: ShiftBox) -> None:
        self.question, self.row, self.box = question, row, box
        self.witness: Witness | None = None

    def __call__(self, start: Floats, width: Floats) -> bool:
        """Whether a failing shift was found; it is then kept."""
        middle = start + 0.5 * width
        at_middle, gradients = self._margins(middle)
        corners = middle - 0.5 * width * np.sign(gradients[:, self.box.moving])
        points = np.vstack([middle, corners])
        margins = np.concatenate([at_middle, self._margins(corners)[0]])
        worst = int(np.where(np.isnan(margins), np.inf, margins).argmin())
        if margins[worst] <= 0:
            self.witness = _confirmed(self.question, self.row, self.box, points[worst])
        return self.witness is not None

    def _margins(self, points: Floats) -> tuple[Floats, Floats]:
        box = self.box
        X = np.repeat(box.x[None, :], len(points), axis=0)
        wanted = np.full(len(points), box.wanted, dtype=np.intp)
        return gradients(box.net, X, wanted, box.delta * box.radii * box.directions(points), by_input=False)


def _confirmed(question: Question, row: int, box: ShiftBox, point: Floats) -> Witness | None:
    direction = box.directions(point[None, :])[0]
    return confirmed_witness(question, row, inside_box(box.net.parameters.values, box.radii, box.delta, direction))


class _CertainShare:
    """Bounds on the share of valid shifts that are certain."""

    lower: float
    upper: float

    def coverage_lower(self, confidence: Any) -> float:
        """Lower bound on the share of valid shifts, certain and so good for every `confidence`."""
        return self.lower

    def coverage_upper(self, confidence: Any) -> float:
        """Upper bound on the share of valid shifts, certain and so good for every `confidence`."""
        return self.upper


def _share_ends(about: Fields) -> tuple[float, float]:
    lower, upper = about.number("lower"), about.number("upper")
    if not 0 <= lower <= upper <= 1:
        raise InputError(f"{about.where} must have bounds on a share, of which the lower one is not the larger.")
    return lower, upper


@dataclass(frozen=True)
class EnumerationEvidence(_CertainShare):
    """Bounds on the share of valid shifts, and how they were reached.

    Attributes
    ----------
    lower, upper : float
        The share of valid shifts lies between them: the exact fractions, rounded down and up.
    evaluated, open : int
        How many boxes were looked at, and how many are not settled.
    stopped : str
        Why the run ended: "settled", "decided", "gap", "precision", "limit" (of boxes), "time" or "rounding".
    split, whole : Split or None, IntervalNetwork or None
        The boxes themselves, and what was cut up; not part of equality or files.
    volumes : Partition or None
        With a `precision`: which shares of the box are `robust`, `non_robust` and `undecided`, exact fractions with the
        sum 1. A part counts as a whole; `lower` and `upper` also know something of the undecided ones.
    """

    lower: float
    upper: float
    evaluated: int
    open: int
    stopped: str
    split: Split | None = field(compare=False, repr=False)
    draws: int = 0
    failures: int = 0
    volumes: Partition | None = None
    whole: IntervalNetwork | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, found: Split, question: Question, volumes: Partition | None) -> EnumerationEvidence:
        """The evidence that a finished run gives."""
        box, still = found.box, np.zeros(len(found.box.radii))
        whole = IntervalNetwork(question.model, box.net, box.radii, box.delta, still, still + 1.0)
        told = (*found.interval, found.evaluated, found.open, found.stopped, found)
        return cls(*told, volumes=volumes, whole=whole)

    @property
    def kind(self) -> str:
        """What files call it."""
        return "enumeration" if self.volumes is None else "partition"

    @property
    def networks(self) -> Partition:
        """The interval networks that keep the class (`robust`), lose it (`non_robust`) or are `undecided`."""
        if self.split is None or self.whole is None:
            raise InputError(_NO_BOXES)
        tree, whole, statuses = self.split.tree, self.whole, (splitting.VALID, FAILING, splitting.OPEN)
        return Partition(*(IntervalNetworks(whole, tree, tree.having(status)) for status in statuses))

    def boxes(self) -> tuple[Floats, Floats, NDArray[np.int8]]:
        """The settled boxes: least and largest value of every parameter (boxes, k), and 1 for valid, -1 for failing."""
        if self.split is None:
            raise InputError(_NO_BOXES)
        return self.split.boxes()

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON values, without the boxes, which anyone can compute again."""
        told = {name: getattr(self, name) for name in ("lower", "upper", "evaluated", "open", "stopped")}
        if self.volumes is not None:  # what is undecided is the rest
            told |= {"robust": str(self.volumes.robust), "non_robust": str(self.volumes.non_robust)}
        return {"kind": self.kind, **told}

    @classmethod
    def from_dict(cls, about: Fields) -> EnumerationEvidence:
        """The evidence that a file describes, without the boxes."""
        more = ("robust", "non_robust") if about.text("kind") == "partition" else ()
        about.only("kind", "lower", "upper", "evaluated", "open", "stopped", *more)
        lower, upper = _share_ends(about)
        ends, volumes = ("precision",) if more else ("decided", "gap"), None
        stopped = about.choice("stopped", "settled", *ends, "limit", "time", "rounding")
        if more:
            robust, non_robust = (_volume(about, key) for key in more)
            volumes = Partition(robust, non_robust, 1 - robust - non_robust)
            if min(volumes) < 0 or robust > upper or 1 - non_robust < lower:
                raise InputError(f"{about.where} must have volumes that go with each other and with the bounds.")
        counts = about.integer("evaluated", 1), about.integer("open")
        return cls(lower, upper, counts[0], counts[1], stopped, None, volumes=volumes)


def _volume(about: Fields, key: str) -> Fraction:
    text = about.text(key)
    if not re.fullmatch("(0|[1-9][0-9]{0,999})(/[1-9][0-9]{0,999})?", text) or str(Fraction(text)) != text:
        raise about.wrong(key, 'a fraction as text, such as "3/4"')
    return Fraction(text)


@dataclass(frozen=True, kw_only=True)
class Enumeration:
    """Decide for certain, by cutting the box of shifts into parts that are valid and parts that fail.

    For dense networks under `LinfShifts`. With one hidden layer, a claim about `Every` that is true is proved by the
    first box, and one about `Most` that leaves room often is. The share itself, to within `gap`, takes thousands of
    boxes for a dozen parameters and cannot be had for hundreds.

    Parameters
    ----------
    coverage : float, default 1.0
        1 speaks of `Every` shift; a share below 1 of `Most`, with confidence 1.
    gap : float, default 0.01
        With a share below 1: stop when its bounds are this close, even if the claim is not decided.
    max_boxes : int, default 1_000_000
        Look at no more boxes than this, per row.
    precision : float, optional
        Go on, also after the verdict is known, until the parts that are neither proved valid nor proved failing make up
        less than this share of the box; the evidence then has the interval networks of each kind and their exact
        `volumes` (Algorithm 3 as the paper returns it).
    time_limit : float, optional
        Seconds per row, and per delta of `robust_fraction`, after which the answer is what is proved by then.
    """

    coverage: float = 1.0
    gap: float = 0.01
    max_boxes: int = 1_000_000
    precision: float | None = None
    time_limit: float | None = None
    name: ClassVar[str] = "enumeration"

    def __post_init__(self) -> None:
        object.__setattr__(self, "coverage", _check_coverage(self.coverage))
        object.__setattr__(self, "gap", check_probability(self.gap, "gap", "Enumeration"))
        object.__setattr__(self, "max_boxes", check_integer(self.max_boxes, "max_boxes", "Enumeration", least=1))
        if self.precision is not None:
            object.__setattr__(self, "precision", check_probability(self.precision, "precision", "Enumeration"))
        if self.time_limit is not None:
            object.__setattr__(self, "time_limit", check_number(self.time_limit, "time_limit", "Enumeration", least=0))

    def claim(self, question: Question) -> Every | Most:
        """What the method will speak about."""
        if self.coverage == 1.0:
            return Every(question.region, question.claim_rows)
        return Most(self.coverage, 1.0, question.measure, question.claim_rows)

    def unsupported(self, question: Question) -> str | None:
        """None for dense networks in a box of shifts, else the error a user reads."""
        got, question = type(question.shifts).__name__, question.embedded
        if closed_share(question):
            return None
        if offers(question.model, Chained) and (complaint := no_network(question, "Enumeration")) is not None:
            return complaint
        if not isinstance(question.geometry, Box):
            needs = "Enumeration cuts up boxes, so `shifts` must be LinfShifts(...)"
            return f'{needs}, got {got}; use method="sampling" for other sets.'
        if question.network is not None and any("softplus(" in name for name in question.network.activations):
            needs = "Enumeration needs units without a jump, but a Softplus falls a little"
            return f'{needs} where it becomes the identity; use method="sampling".'
        if question.tied:
            needs = f"Enumeration needs parameters that are each used once, but {question.tied}"
            return f'{needs}; use method="sampling".'
        if question.network is None:
            needs = f"Enumeration needs a dense network, but {type(question.model).__name__} cannot be written as one"
            return f'{needs} with the same parameters; use method="sampling".'
        return None

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """Cut up the box of each row: one certificate per row, none of which depends on the others."""
        claim, question, answers = self.claim(question), question.embedded, list[Certificate]()
        if closed_share(question):
            ends = zip(*(end.tolist() for end in known_shares(question, question.delta)), strict=True)
            for i, (lower, upper) in enumerate(ends):
                verdict = Verdict.CERTIFIED if lower >= self.coverage else Verdict.UNKNOWN
                # of every shift nothing but 1 would do, which a float is not
                verdict = Verdict.REFUTED if upper < self.coverage < 1 else verdict
                reason = f"the valid share is at least {at_least(lower)} and at most {at_most(upper)}, in closed form"
                told = self.name, EnumerationEvidence(lower, upper, 1, 0, "settled", None), reason
                answers.append(Certificate(claim, verdict, float(question.delta[i]), question.target[i], *told))
            return answers
        found = _each_row(self._decide, question, self.max_boxes)
        return [self._certificate(question, i, claim, *answer) for i, answer in enumerate(found)]

    def shares(self, question: Question, deltas: Floats, stream: Stream) -> list[FractionCurve]:
        """Computed bounds on the share of valid shifts, each to the gap or the limit of boxes."""
        measure, valid = question.measure_at(deltas), question.valid_rows() | question.doubtful_rows()
        question, rows = question.embedded, list[Any]()
        if closed_share(question):
            ends = np.array([known_shares(question, np.full(len(question), d)) for d in deltas.tolist()])
            rows = [(*row.T, ()) for row in ends.transpose(2, 0, 1)]
        else:
            for found in _each_row(partial(self._enclose, deltas=deltas), question, len(deltas) * self.max_boxes):
                evidence = (EnumerationEvidence.of(part, question, part.volumes) for part in found if self.precision)
                rows.append((*np.array([part.interval for part in found]).T, tuple(evidence)))
        each = zip(rows, question.target, valid.tolist(), strict=True)
        return [FractionCurve.computed(deltas, *ends, target, measure, ok, told) for (*ends, told), target, ok in each]

    def _enclose(self, question: Question, i: int, report: Any = None, *, deltas: Floats) -> list[Split]:
        boxes = (_box(question, i, d) for d in deltas.tolist())
        found = (self._split(box, gap=Fraction(repr(self.gap)), report=report) for box in boxes)
        # workers send no boxes that nobody asks for
        return [part if self.precision else replace(part, tree=splitting.BoxTree(0)) for part in found]

    def _split(self, box: ShiftBox, **how: Any) -> Split:
        precision = None if self.precision is None else Fraction(repr(self.precision))
        return split(box, max_boxes=self.max_boxes, precision=precision, time_limit=self.time_limit, **how)

    def _decide(self, question: Question, i: int, report: Any = None) -> tuple[Split, Witness | None]:
        box = _box(question, i, float(question.delta[i]))
        search = FailingShift(question, i, box)
        if self.coverage < 1.0:
            gap, coverage = Fraction(repr(self.gap)), Fraction(repr(self.coverage))
            found = self._split(box, gap=gap, coverage=coverage, report=report)
            # a failing shift, if one is easily found: in the largest part that fails, or in the whole
            nodes = found.tree.having(FAILING)
            if len(nodes):
                start, width = found.tree.coordinates(nodes[[found.tree.depth[nodes].argmin()]])
                return found, _confirmed(question, i, box, (start + 0.5 * width)[0])
            if found.upper < 1:
                search(*found.tree.coordinates(np.zeros(1, dtype=np.int64)))
            return found, search.witness
        return self._split(box, gap=Fraction(0), probe=search, report=report), search.witness

    def _certificate(
        self, question: Question, i: int, claim: Every | Most, found: Split, witness: Witness | None
    ) -> Certificate:
        coverage, verdict = Fraction(repr(self.coverage)), Verdict.UNKNOWN
        if found.lower >= coverage:
            verdict = Verdict.CERTIFIED
        elif found.upper < coverage if coverage < 1 else witness is not None:
            verdict = Verdict.REFUTED
        volumes = found.volumes if self.precision else None
        reason = _reason(found, coverage == 1 and witness is not None, volumes, self.time_limit)
        told = self.name, EnumerationEvidence.of(found, question, volumes), reason
        return Certificate(claim, verdict, float(question.delta[i]), question.target[i], *told, witness)


def closed_share(question: Question) -> bool:
    """Whether the share is known in closed form: the margin is linear in what moves, and draws are elliptical."""
    network = question.network
    linear = network is not None and len(network.classes) == 2 and offers(question.shifts, Elliptical)
    return linear and is_exact_ball(network, question.radii) and network.dtype == "float64"  # type: ignore[arg-type, union-attr]


def known_shares(question: Question, delta: Floats) -> tuple[Floats, Floats]:
    """Bounds on the share of valid shifts of each row, of a question with a share in closed form."""
    network, shifts = question.network, question.shifts
    assert network is not None
    assert offers(shifts, Elliptical)
    bounds = Ellipsoids(network, question.X, question.wanted, Ellipsoid(shifts.root(question.coordinates)))
    ((start,), (slope,), _), error = bounds.terms, bounds.error(delta)
    ends = []
    for sign in (-1.0, 1.0):  # outward: the margin and how far it falls may both be off
        above = start + sign * error
        fall = np.maximum(delta * slope + np.where(above > 0, -sign, sign) * error, 1e-300)
        ends.append(np.clip(shifts.share(above / fall) + sign * SHARE_ERROR, 0.0, 1.0))
    return ends[0], ends[1]


def _each_row(ask: Any, question: Question, steps: int) -> Iterable[Any]:
    """Ask about every row, on several cores if wanted; of a row that ends early, the progress skips the rest."""
    alone = question.n_jobs == 1 or len(question) == 1  # workers cannot tell how far they are
    with Progress(len(question) * steps, "cutting up boxes of shifts") as progress:
        jobs = ((question, i, progress.advance if alone else None) for i in range(len(question)))
        for i, answer in enumerate(in_parallel(ask, jobs, question.n_jobs)):
            yield answer
            progress.advance((i + 1) * steps - progress.done)


def _box(question: Question, i: int, delta: float) -> ShiftBox:
    assert question.network is not None  # `unsupported` says so
    return ShiftBox(question.network, question.X[i], int(question.wanted[i]), question.radii, delta)


def _check_coverage(value: Any) -> float:
    try:
        if not isinstance(value, bool | str | bytes) and 0.0 < float(value) <= 1.0:
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    told = f"must be a number above 0 and at most 1, got {reprlib.repr(value)}"
    raise InputError(f"`coverage` of Enumeration {told}; 1 asks about every shift.")


def _reason(found: Split, failed: bool, volumes: Partition | None, time_limit: float | None) -> str:
    boxes = f"{found.evaluated} box{'es' if found.evaluated > 1 else ''}"
    if failed and volumes is None:
        return f"a failing shift was found after looking at {boxes}"
    if found.lower == 1:
        return f"the whole set was proved valid, looking at {boxes}"
    lower, upper = found.interval
    why = {"limit": "; the limit of boxes was reached", "gap": "; that is as close as was asked for"}
    why["time"] = f"; the time limit of {time_limit or 0:g} s ended it"
    why["rounding"] = f"; what is left cannot be told from the boundary in {found.box.net.dtype}"
    share = f"the valid share is at least {at_least(lower)} and at most {at_most(upper)}"
    if volumes is not None:
        sure = [at_least(splitting.float_below(volume)) for volume in volumes[:2]]
        share = "a failing shift was found" if failed else share
        share += f"; {sure[0]} of the volume or more is robust, {sure[1]} or more non-robust and "
        share += f"{at_most(splitting.float_above(volumes.undecided))} or less undecided"
    return f"{share}, from looking at {boxes}{why.get(found.stopped, '')}"


@dataclass(frozen=True)
class ShareEvidence(_CertainShare, Saved):
    """Bounds on the share of valid shifts, computed from its law and rounded outward to nine decimals.

    They are no closer than it took to decide the claim.
    """

    lower: float
    upper: float
    draws: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    kind: ClassVar[str] = "share"

    def verdict(self, coverage: float) -> Verdict:
        """What the bounds decide about a share."""
        if self.lower >= coverage:
            return Verdict.CERTIFIED
        return Verdict.REFUTED if self.upper < coverage else Verdict.UNKNOWN

    def reason(self) -> str:
        """The bounds in words."""
        ends = f"between {at_least(self.lower)} and {at_most(self.upper)}"
        return f"the valid share is {ends if self.lower < self.upper else f'{self.lower:g}'}, computed without draws"

    def recheck(self, question: Question, certificate: Any) -> tuple[bool | None, str]:
        """Whether the same bounds are computed again for the one row of a question, and decide what they did."""
        claim = certificate.claim
        if claim != Most(claim.coverage, 1.0, question.measure, claim.rows) or certificate.method != CLOSED_FORM:
            return False, "a share that is computed has confidence 1, is about this set, and stands in place of draws"
        (now,) = computed_shares(question, question.delta, claim.coverage) or (None,)
        if now is None:
            return False, "the share of these shifts is not known without draws"
        if max(abs(now.lower - self.lower), abs(now.upper - self.upper)) > SAME:
            return False, f"computed again, {now.reason()}, the file says {self.lower!r} and {self.upper!r}"
        if certificate.verdict is Verdict.UNKNOWN or self.verdict(claim.coverage) is not certificate.verdict:
            return False, f"its bounds do not decide {certificate.verdict} at a share of {claim.coverage}"
        witness = certificate.witness
        if witness is not None and confirmed_witness(question, 0, witness.parameters(question.model)) is None:
            return False, "its witness does not lie in the set or does not break the row"
        return now.verdict(claim.coverage) is certificate.verdict, f"computed again: {now.reason()}"

    @classmethod
    def from_dict(cls, about: Fields) -> ShareEvidence:
        """The evidence that a file describes."""
        return cls(*_share_ends(about.only("kind", "lower", "upper")))


def closed_certificates(question: Question, coverage: float) -> list[Certificate | None] | None:
    """One certificate per row, None for a row that the bounds leave open; None if the share is not known at all."""
    shares = computed_shares(question, question.delta, coverage)
    if shares is None:
        return None
    claim, answers = Most(coverage, 1.0, question.measure, question.claim_rows), list[Certificate | None]()
    for i, share in enumerate(shares):
        verdict = share.verdict(coverage)
        witness = _failing_corner(question, question.network, i) if verdict is Verdict.REFUTED else None  # type: ignore[arg-type]
        told = (float(question.delta[i]), question.target[i], CLOSED_FORM, share, share.reason(), witness)
        answers.append(None if verdict is Verdict.UNKNOWN else Certificate(claim, verdict, *told))
    return answers


def computed_shares(question: Question, deltas: Floats, coverage: float | None = None) -> list[ShareEvidence] | None:
    """Bounds on each row's share of valid shifts at its delta, close enough to decide `coverage`; None if unknown."""
    network, shifts = question.network, question.shifts
    if question.regions is not None or not offers(shifts, LinearShare) or offers(shifts, OtherMoves):
        return None
    if network is None or type(network) is not FeedForward or not _own_law(shifts):  # a subclass may compute others
        return None
    last = network.parameters.slices[-2].start
    if question.radii[:last].any():  # a hidden layer moves
        return None
    asked = question if deltas is question.delta else question.at(deltas)
    found: list[ShareEvidence] = []
    coverage = None if network.weights[-1].shape[1] > 2 else coverage  # of several rivals each share counts
    reach = question.radii[last:].reshape(-1, network.weights[-1].shape[1])  # the bias behind the weights
    for i, (delta, band) in enumerate(zip(deltas.tolist(), asked.band.tolist(), strict=True)):
        fails, most = 0.0, 1.0
        h = last_layer_rows(network, question.X[i : i + 1])  # by itself: among many rows its last bits are others
        for margin, columns in _rivals(network, h[:, :-1], int(question.wanted[i])):
            sizes = (reach[:, columns] * np.abs(h[0])[:, None]).ravel()
            if not math.isfinite((margin + band) / delta + float(sizes.sum())):  # of what overflows nothing is known
                fails, most = 1.0, 1.0
                break
            # what is within rounding of 0 fails in the lower bound and is valid in the upper one; sizes and level are
            # off by less than a few units of their own last place
            slack = (band / delta + 2.0**-50 * (float(sizes.sum()) + abs(margin) / delta)) * (1 + 2.0**-50)
            lower, upper = shifts.linear_share(question.coordinates, sizes, margin / delta, slack, coverage)
            fails, most = fails + (1 - lower), min(most, upper)
        least = max(0.0, 1 - fails * (1 + 2.0**-50))
        found.append(ShareEvidence(math.floor(least * DIGITS) / DIGITS, math.ceil(most * DIGITS) / DIGITS))
    return found


def _own_law(shifts: Any) -> bool:
    """Whether the law is that of the draws: a subclass with draws or margins of its own has none until it says so."""
    for kind in type(shifts).__mro__:
        if "linear_share" in vars(kind) or not {"directions", "margins"}.isdisjoint(vars(kind)):
            return "linear_share" in vars(kind)
    return True


def _rivals(network: FeedForward, h: Floats, wanted: int) -> list[tuple[float, list[int]]]:
    """Per rival the margin over it on the model itself, and the outputs that it depends on."""
    scores = h @ network.weights[-1] + network.biases[-1]
    if len(network.biases[-1]) <= 2:
        margins = margins_from_scores(scores, np.array([wanted]), network.offset)
        return [(float(margins[0]), list(range(len(network.biases[-1]))))]
    rivals = [j for j in range(scores.shape[1]) if j != wanted]
    return [(float(scores[0, wanted] - scores[0, j]), [wanted, j]) for j in rivals]


def _failing_corner(question: Question, network: FeedForward, i: int) -> Witness | None:
    """The corner of a box at which the margin is least, if it is below 0 there by more than rounding."""
    if not isinstance(question.geometry, Box):
        return None
    delta, radii = float(question.delta[i]), question.radii
    margins, gradients = network.parameter_gradient(question.X[i : i + 1], question.target[i])
    least = float(margins[0]) - delta * float(np.abs(gradients[0]) @ radii)
    # rounding at the corner, and in computing that it is one, are each covered by the band
    signs = np.where(radii > 0, -np.sign(gradients[0]), 0.0)
    return CornerShift(question.shifts, delta, signs.astype(np.int8)) if least < -2 * question.band[i] else None
