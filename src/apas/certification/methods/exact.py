"""`Exact`: proofs and witnesses for piecewise linear networks of any depth, without a commercial solver."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from apas._random import Stream
from apas.certification.certificate import Certificate
from apas.certification.claims import Every
from apas.certification.methods.bounds import decided, decided_in_ball, every, is_exact_in_ball, unsupported_dense
from apas.certification.methods.sampling import decided_one_by_one
from apas.certification.question import Question
from apas.errors import InputError
from apas.shifts.lp import LpShifts
from apas.shifts.observed import ObservedShifts
from apas.worst_case.decide import ALL_STEPS
from apas.worst_case.exact_arithmetic import PIECEWISE_LINEAR
from apas.worst_case.intervals import is_exact


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Decide `Every` exactly: a bound that holds in real arithmetic, or a shift that breaks the row.

    Intervals, linear bounds and a quick attack come first; what they leave open is decided by branch and bound on the
    phases of units, and where that takes too many cases by a mixed-integer program in HiGHS. The solver is not
    believed: its point must break the row when evaluated on its own, in float64 and in exact rational arithmetic, and
    its bound, if it exceeds its tolerances, is proved again from multipliers.

    Parameters
    ----------
    time_limit : float, default 60.0
        Seconds per row after which the answer is ``UNKNOWN``.

    Notes
    -----
    For networks of relu, leaky relu, hard tanh and identity units of any depth, and for all others with at most one
    hidden layer; in balls of shifts (`LpShifts`) where only the output layer moves, as in linear models. Of models that
    exist (`ObservedShifts`), whatever they are, each is asked. A row whose least margin is 0 up to rounding stays
    ``UNKNOWN``.

    Examples
    --------
    >>> import apas
    >>> net = apas.FeedForward([[[1.0], [-1.0]], [[1.0]], [[1.0]]], [[0.0], [0.0], [0.0]])
    >>> certificates = apas.certify(net, [[2.0, 0.5], [1.0, 0.9]], 0.1, target=1, method=apas.Exact())
    >>> [c.verdict.name for c in certificates]
    ['CERTIFIED', 'REFUTED']
    """

    time_limit: float = 60.0

    def __post_init__(self) -> None:
        number = isinstance(self.time_limit, Real) and not isinstance(self.time_limit, bool | np.bool_)
        if not number or not self.time_limit >= 0:
            raise InputError(f"`time_limit` of Exact must be a number of at least 0, got {self.time_limit!r}.")
        object.__setattr__(self, "time_limit", float(self.time_limit))

    def claim(self, question: Question) -> Every:
        """What the method will speak about."""
        return every(question)

    def unsupported(self, question: Question) -> str | None:
        """None where exact answers are possible, else why not."""
        network = question.network
        if isinstance(question.shifts, ObservedShifts):
            return None
        if isinstance(question.shifts, LpShifts) and is_exact_in_ball(question):
            return None
        complaint = unsupported_dense(question, "Exact")
        if complaint is None and network is not None and not is_exact(network):
            others = sorted(set(network.activations) - PIECEWISE_LINEAR)
            if others:
                return (
                    f"Exact needs relu, leaky_relu, hard_tanh or identity units beyond one hidden layer, got "
                    f"{', '.join(others)}; use LinearBounds, or Cascade, which also attacks."
                )
        return complaint

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row."""
        if isinstance(question.shifts, ObservedShifts):
            return decided_one_by_one(question, "exact")
        if isinstance(question.shifts, LpShifts):
            return decided_in_ball(question, "exact")
        return decided(question, "exact", ALL_STEPS, self.time_limit)
