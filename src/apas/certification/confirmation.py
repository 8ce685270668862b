"""Witnesses confirmed: nothing that found a failing shift is believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apas._typing import Floats
from apas.certification.certificate import CornerShift, KeptShift, Witness
from apas.certification.question import Question
from apas.models.base import offers
from apas.models.forward import margins_from_scores, scores
from apas.shifts.base import Box, Embedded, MovesInput
from apas.shifts.geometry import inside_box, within_box
from apas.worst_case.exact_arithmetic import exact_sign, is_piecewise_linear
from apas.worst_case.intervals import margin_error


def confirmed_witness(question: Question, row: int, values: Floats, direction: Floats | None = None) -> Witness | None:
    """Keep the shifted parameters if they lie in the set, without tolerance, and row number `row` is not valid on them.

    The margin, in float64 on these very parameters, must fail beyond what rounding could do; else exact rational
    arithmetic decides for piecewise linear networks in float64. `direction` is what `inside_box` made `values` of, if
    it did.
    """
    delta, base, shifts = float(question.delta[row]), question.model.parameters, question.shifts
    values, chain = np.asarray(values, dtype=np.float64), None
    box, reach = isinstance(question.geometry, Box), question.reach
    if offers(shifts, Embedded):  # what is kept are the coordinates of the set, not the parameters of the chain
        base, chain, shifts = shifts.base, shifts.chain, shifts.shifts
        values, reach = chain.lower(values, base.values), shifts.radii(base)
    if box and not within_box(base.values, reach, delta, values).all():
        return None
    if not box and not np.isfinite(values).all():
        return None
    if not box and not shifts.contains(base, replace(base, values=values), delta):
        return None
    if not _fails(question, row, values if chain is None else chain.at(values)):
        return None
    if offers(shifts, MovesInput):
        return KeptShift(delta, values, shifts)
    if box:  # a corner as its signs: large models have large witnesses
        signs = np.sign(values - base.values)
        made = chain is None and direction is not None and np.array_equal(signs, direction)
        if made or np.array_equal(inside_box(base.values, reach, delta, signs), values):
            return CornerShift(shifts, delta, signs.astype(np.int8))
    return KeptShift(delta, values)


def _fails(question: Question, row: int, values: Floats) -> bool:
    network, one = question.network, slice(row, row + 1)
    if network is None:
        alone, move = question.take(one), (values - question.model.parameters.values)[None, :]
        margin = float(question.model.shifted_margins(alone.X, alone.target[0], move, 1.0)[0, 0])
        return bool(margin < -alone.band[0])  # written so that a NaN does not count
    X, wanted, tensors = question.X[one], question.wanted[one], network.parameters.split(values)
    parts = tensors[::2], tensors[1::2], network.activations
    margin = float(margins_from_scores(scores(*parts, X), wanted, network.offset)[0])
    if not is_piecewise_linear(network.activations) or question.single:
        return bool(margin < -question.take(one).band[0])
    strict = bool(question.strict[row])
    if margin > 0 or (margin == 0 and not strict):  # written so that a NaN is left to exact arithmetic
        return False
    # what rounding can have done to it: as a rule far less, and then its sign is that of real arithmetic
    reach = question.reach if isinstance(question.reach, float) else network.parameters.split(question.radii)
    if margin < -margin_error(network, X, reach, question.delta[one])[0]:
        return True
    sign = exact_sign(*parts, X[0], int(wanted[0]), network.offset)
    return sign < 0 or (sign == 0 and strict)
