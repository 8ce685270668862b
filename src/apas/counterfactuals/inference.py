"""Features read off a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from apas._validation import is_frame
from apas.counterfactuals.feature import Feature
from apas.errors import InputError

__all__ = ["inferred"]


def inferred(
    frame: Any,
    *,
    label: str | None,
    immutable: Sequence[str],
    increase: Sequence[str],
    decrease: Sequence[str],
    **given: Mapping[str, Any],
) -> tuple[Feature, ...]:
    """One feature per column but the label; `given` has what is said about columns, by attribute and column."""
    if not is_frame(frame):
        raise InputError(f"`frame` of FeatureSpace.from_frame must be a pandas data frame, got {type(frame).__name__}.")
    if label is not None and label not in frame.columns:
        raise InputError(f"`label` of FeatureSpace.from_frame must be a column of the frame, got {label!r}.")
    columns = [c for c in frame.columns if c != label]
    doubled = [c for c in columns if columns.count(c) > 1]
    if doubled:
        raise InputError(f"`frame` of FeatureSpace.from_frame must have each column once, got {doubled[0]!r} twice.")
    listed = {"immutable": immutable, "increase": increase, "decrease": decrease}
    called = {"kind": "kinds", "range": "ranges", "step": "steps", "code": "codes"}
    for attribute, names in {**listed, **given}.items():
        argument = called.get(attribute, attribute)
        wanted = Mapping if attribute in given else Collection
        if isinstance(names, str) or not isinstance(names, wanted):
            what = "a mapping from columns" if wanted is Mapping else "a list of columns"
            raise InputError(f"`{argument}` of FeatureSpace.from_frame must be {what}, got {names!r}.")
        unknown = [n for n in names if n not in columns]
        if unknown:
            raise InputError(
                f"`{argument}` of FeatureSpace.from_frame names column {unknown[0]!r}, which the frame does not have; "
                f"its columns are {', '.join(str(c) for c in columns[:8])}{', ...' if len(columns) > 8 else ''}."
            )
    both = [c for c in increase if c in decrease]
    if both:
        raise InputError(f"feature {both[0]!r} must not only increase and only decrease; make it immutable instead.")
    if not len(frame):
        raise InputError("`frame` of FeatureSpace.from_frame must have rows to read ranges and levels from, got none.")
    found = []
    for column in columns:
        said = {name: values[column] for name, values in given.items() if column in values}
        direction = "increase" if column in increase else "decrease" if column in decrease else None
        cells = frame[column].infer_objects()  # numbers may come as objects
        found.append(_feature(cells, str(column), said, column not in immutable, direction))
    return tuple(found)


def _feature(cells: Any, name: str, said: dict[str, Any], mutable: bool, direction: str | None) -> Feature:
    missing = int(np.count_nonzero(cells.isna()))
    if missing:
        raise InputError(
            f"`frame` must have a value in every cell, but column {name!r} lacks {missing}; fill them or drop the rows."
        )
    kind = said.get("kind") or _kind(cells, said)
    numeric = kind in ("continuous", "integer")
    # all that was said, also what does not go together: the feature refuses that
    details: dict[str, Any] = {"values": said.get("values"), "step": said.get("step")}
    if "range" in said or (numeric and "values" not in said):
        details["low"], details["high"] = _range(cells, said, name)
    if not numeric and "values" not in said:
        details["values"] = _levels(cells)
    return Feature(name, kind, mutable=mutable, direction=direction, code=said.get("code"), **details)


def _kind(cells: Any, said: dict[str, Any]) -> str:
    if getattr(cells.dtype, "ordered", False):
        return "ordinal"
    numeric = getattr(cells.dtype, "kind", "O") in "iuf"
    # a categorical column may have more levels than occur
    found, said_more = set(_levels(cells)), any(name in said for name in ("range", "step", "values"))
    if not said_more and (found == {0, 1} or (len(found) == 2 and not numeric)):
        return "binary"
    if not numeric:
        return "categorical"
    return "integer" if bool((cells == np.rint(cells)).all()) and cells.dtype.kind in "iu" else "continuous"


def _range(cells: Any, said: dict[str, Any], name: str) -> tuple[float, float]:
    if "range" not in said:
        try:
            return float(cells.min()), float(cells.max())
        except (TypeError, ValueError):
            raise InputError(
                f"column {name!r} of `frame` must hold numbers to be one, got {cells.iloc[0]!r}."
            ) from None
    ends = said["range"]
    if isinstance(ends, str) or not hasattr(ends, "__len__") or len(ends) != 2:
        raise InputError(f"`ranges` must give column {name!r} its lowest and highest value, got {ends!r}.")
    return ends[0], ends[1]


def _levels(cells: Any) -> tuple[Any, ...]:
    """Levels in the order a categorical column has, else sorted, so that two tables give the same space."""
    if hasattr(cells, "cat"):
        return tuple(cells.cat.categories.tolist())
    found = list(dict.fromkeys(cells.tolist()))
    try:
        return tuple(sorted(found))
    except TypeError:
        return tuple(found)
