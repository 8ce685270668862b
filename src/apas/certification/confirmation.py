"""Witnesses confirmed: nothing that found a failing shift is believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apas._typing import Floats
from apas.certification.certificate import CornerShift, KeptShift, Witness
from apas.certification.question import Question
from apas.models.base import offers, valid
from apas.models.feedforward import FeedForward
from apas.models.forward import margins_from_scores, scores
from apas.shifts.base import Box, Embedded, MovesInput
from apas.shifts.box_rounding import inside_box, within_box
from apas.worst_case.exact_arithmetic import exact_sign, is_piecewise_linear


def confirmed_witness(question: Question, row: int, values: Floats, direction: Floats | None = None) -> Witness | None:
    """Keep the shifted parameters if they lie in the set and row number `row` is not valid on them.

    The set is that of the row's delta, without tolerance. The margin is evaluated in float64 on these very parameters;
    for piecewise linear networks also in exact rational arithmetic, and the two must agree. Other models, and those
    that are computed in float32, have to fail beyond what rounding could do. `direction` is the one that `inside_box`
    made `values` of, if it did.
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
    if not _fails(question.take(slice(row, row + 1)), values if chain is None else chain.at(values)):
        return None
    if offers(shifts, MovesInput):
        return KeptShift(delta, values, shifts)
    if box:  # a corner as its signs: large models have large witnesses
        signs = np.sign(values - base.values)
        made = chain is None and direction is not None and np.array_equal(signs, direction)
        if made or np.array_equal(inside_box(base.values, reach, delta, signs), values):
            return CornerShift(shifts, delta, signs.astype(np.int8))
    return KeptShift(delta, values)


def _fails(alone: Question, values: Floats) -> bool:
    """Whether the one row of a question is not valid on parameters, beyond doubt."""
    network = alone.network
    margin = _margin(alone, network, values)
    if network is not None and not alone.single and is_piecewise_linear(network.activations):
        if valid(margin, alone.strict)[0]:
            return False
        tensors, wanted = _tensors(network, values), int(alone.wanted[0])
        sign = exact_sign(*tensors, network.activations, alone.X[0], wanted, network.offset)
        return sign < 0 or (sign == 0 and bool(alone.strict[0]))
    return bool(margin[0] < -alone.band[0])  # written so that a NaN does not count


def _margin(alone: Question, network: FeedForward | None, values: Floats) -> Floats:
    """The margin of a row by itself, so that it does not depend on which other rows are asked about."""
    if network is not None:
        a = scores(*_tensors(network, values), network.activations, alone.X)
        return margins_from_scores(a, alone.wanted, network.offset)
    move = (values - alone.model.parameters.values)[None, :]
    return np.asarray(alone.model.shifted_margins(alone.X, alone.target[0], move, 1.0)[0])


def _tensors(network: FeedForward, values: Floats) -> tuple[list[Floats], list[Floats]]:
    """Weights and biases of the network with other parameters."""
    tensors = network.parameters.split(values)
    return tensors[::2], tensors[1::2]
