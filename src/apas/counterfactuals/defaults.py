"""Defaults of `generate`: the class, the space, and rows where nothing was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from apas._typing import Array, Floats, Indices
from apas._validation import is_frame
from apas.certification.question import check_target
from apas.counterfactuals.space.coding import checked_table
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError
from apas.models.base import Model, Named, Raw, offers
from apas.models.convert import predicted_classes


def wanted_classes(model: Model, X: Floats, target: Any, *, one_way: bool) -> Array:
    """One wanted class per row, none of which the model gives already.

    With `one_way` None is refused for rows of both classes: nobody is to be told how to be rejected unasked.
    """
    given = predicted_classes(model, X)[0] if len(X) else np.empty(0, dtype=object)
    if target is None:
        if len(model.classes) != 2:
            raise InputError(
                f"`target` must be the wanted class, one of {list(model.classes)}; a model with more than two classes "
                "has no other one."
            )
        counts = {label: sum(g == label for g in given) for label in model.classes}
        if one_way and all(counts.values()):
            found = " and ".join(f"{count} of the rows class {label!r}" for label, count in counts.items())
            raise InputError(
                f"`target` must be the wanted class, since the model gives {found} and the other class would be a "
                "different wish for each; pass the class (--target) without the rows that have it, or a class per row."
            )
        labels = np.empty(len(X), dtype=object)
        labels[:] = [model.classes[0] if g == model.classes[1] else model.classes[1] for g in given]
        return labels
    labels = check_target(model, X, target)
    for i, (wanted, now) in enumerate(zip(labels, given, strict=True)):
        if wanted == now:
            raise InputError(
                f"`X` must hold rows that are not in the wanted class, but the model already gives row {i} class "
                f"{now!r}; leave it out."
            )
    return labels


def default_space(net: Model, space: Any, background: Any, X: Any) -> FeatureSpace:
    """The space a user gave, or what can be read off the background; `X` says at most what its columns are called.

    What may be must not depend on which rows are asked about.
    """
    if space is not None:
        return check_space(space)
    if background is None:
        raise InputError(
            "`space` or `background` must be given, so that it is known what the features may be; pass the training "
            "table as `background`, or FeatureSpace.from_frame(table, ...) as `space`."
        )
    return read_off(net, {"background": background}, X)


def check_space(space: Any) -> FeatureSpace:
    """Refuse what is no space."""
    if not isinstance(space, FeatureSpace):
        raise InputError(
            f"`space` must be an apas.FeatureSpace, got {type(space).__name__}; make one with "
            "FeatureSpace.from_frame(table) or read it with FeatureSpace.from_toml(path)."
        )
    return space


def read_off(net: Model, tables: Mapping[str, Any], X: Any) -> FeatureSpace:
    """The space of what tables hold, by the names of the arguments; rows without any value do not count.

    If the model does not know what its columns are called, `X` or the tables say so.
    """
    import pandas as pd

    names = net.feature_names if offers(net, Named) else None
    if names is None:
        frame = next((t for t in (X, *tables.values()) if is_frame(t)), None)
        width = net.n_raw_features if offers(net, Raw) else net.n_features
        names = tuple(f"x{i}" for i in range(width)) if frame is None else tuple(str(c) for c in frame.columns)
    parts = []
    for argument, table in tables.items():
        part = checked_table(_columns(table, names), names, argument)
        part = part if is_frame(part) else pd.DataFrame(part, columns=list(names))
        parts.append(part.dropna(how="all"))
    try:
        return FeatureSpace.from_frame(parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True))
    except InputError as error:
        said, named = str(error), " and ".join(f"`{argument}`" for argument in tables)
        raise InputError(said.replace(" of FeatureSpace.from_frame", "").replace("`frame`", named)) from None


def own_columns(table: Any, space: FeatureSpace) -> Any:
    """The columns of a data frame that the space has; a training table has its label besides."""
    return _columns(table, space.names)


def _columns(table: Any, names: tuple[str, ...]) -> Any:
    if not is_frame(table):
        return table
    named = table.set_axis([str(c) for c in table.columns], axis=1)
    return named[list(names)] if set(names) <= set(named.columns) else named


def with_gaps(space: FeatureSpace, numbers: Floats, X: Any, rows: Indices) -> Any:
    """Rows in raw units as a frame or array like `X`, with missing values where the numbers are."""
    there = ~np.isnan(numbers).any(axis=1)
    if there.all():
        return space.like(numbers, X, rows)
    found = space.like(numbers[there], X, rows[there])
    if not is_frame(X):
        whole = np.full(numbers.shape, np.nan, dtype=found.dtype)
        whole[there] = found
        return whole
    whole = found.reset_index(drop=True).set_axis(np.flatnonzero(there)).reindex(range(len(numbers)))
    return whole.set_axis(X.index[rows])
