"""`Cascade`: several methods in a row, each asked about what the ones before it left open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from apas._random import Stream
from apas.certification.certificate import Certificate
from apas.certification.claims import Claim, Verdict
from apas.certification.max_shift.result import MaxShift
from apas.certification.methods.attack import Attack
from apas.certification.methods.bounds import Exact, IntervalBounds, LinearBounds
from apas.certification.question import FindsLargestShift, Method, Question
from apas.errors import InputError, Unsupported
from apas.models.base import offers


@dataclass(frozen=True, init=False)
class Cascade:
    """Ask one method after the other until each row is decided; the default for questions about every shift.

    Parameters
    ----------
    *methods : Method
        All of them must speak of the same claim. Unless given: `IntervalBounds`, `LinearBounds`, `Attack`, `Exact`,
        of which those that do not apply to a model are left out.

    Notes
    -----
    A claim with a confidence below 1 is left to one method alone, under its own name: to draw again wherever a first
    sample did not certify would spend the whole risk on each sample.
    """

    methods: tuple[Method, ...]
    name: ClassVar[str] = "cascade"

    def __init__(self, *methods: Method) -> None:
        chosen: list[Method] = []
        for method in methods or (IntervalBounds(), LinearBounds(), Attack(), Exact()):
            if isinstance(method, type) or not isinstance(method, Method):
                raise InputError(f"`methods` of Cascade must be methods such as Exact(), got {method!r}.")
            chosen += method.methods if isinstance(method, Cascade) else (method,)
        object.__setattr__(self, "methods", tuple(chosen))

    def claim(self, question: Question) -> Claim:
        """What all of the methods speak about."""
        return self._usable(question)[0].claim(question)

    def unsupported(self, question: Question) -> str | None:
        """None if some method can answer and all that can speak of the same claim."""
        usable = self._usable(question)
        if not usable:
            # the first of its methods asks for least; the others say much the same
            return f"Cascade has no method that applies: {self.methods[0].unsupported(question)}"
        claims = {m.claim(question) for m in usable}
        if len(claims) > 1:
            listed = ", ".join(f"{type(m).__name__} of {str(m.claim(question))!r}" for m in usable)
            return f"Cascade needs methods that speak of the same claim, got {listed}; ask them one by one."
        if len(usable) > 1 and claims.pop().risk:
            told = f"Cascade takes one method whose claim has a confidence below 1, got {len(usable)}"
            return f"{told}, each of which would spend the whole risk; use one Sampling with more n_samples."
        return None

    def _usable(self, question: Question) -> list[Method]:
        return [m for m in self.methods if m.unsupported(question) is None]

    def run(self, question: Question, stream: Stream) -> list[Certificate]:
        """One certificate per row, from the method that decided it, or from the last one asked."""
        usable = self._usable(question)
        if usable[0].claim(question).risk:
            # alone and under its own name: who reads "cascade: sampling" could not tell how many samples there were
            return list(usable[0].run(question, stream))
        answers: list[Any] = [None] * len(question)
        rows = np.arange(len(question))
        for method in usable:
            found = method.run(question.take(rows), stream)
            for row, certificate in zip(rows.tolist(), found, strict=True):
                says_more = certificate.evidence.to_dict().get("bound") is not None
                if answers[row] is None or certificate.verdict is not Verdict.UNKNOWN or says_more:
                    answers[row] = certificate
            rows = np.array([i for i in rows if answers[i].verdict is Verdict.UNKNOWN], dtype=np.intp)
            if not len(rows):
                break
        return [replace(c, method=f"cascade: {c.method}") for c in answers]

    def largest_shift(self, question: Question, stream: Stream, *, limit: float, search: Any = None) -> list[MaxShift]:
        """What the tightest of the methods that prove gives."""
        usable = [m for m in self._usable(question) if not m.claim(question).risk]
        proving = [m for m in usable if offers(m, FindsLargestShift)]
        if not proving:
            needs = "max_shift needs a method that proves, IntervalBounds, LinearBounds or Exact, in the Cascade"
            raise Unsupported(f"{needs}; pass a Sampling by itself.")
        tightest = max(proving, key=lambda m: getattr(m, "tightness", 0))
        return tightest.largest_shift(question, stream, limit=limit, search=search)
