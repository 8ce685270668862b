"""`FeatureSpace`: which tables are allowed, read off a table, from a TOML file or by hand."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apas._atomic import write_text
from apas._sanitise import shown
from apas._typing import Bools, Floats, Indices
from apas._validation import is_frame, is_path
from apas.counterfactuals.space.encoder import Coding, bound, checked_table, level_values, missing_cells, numbers_of
from apas.counterfactuals.space.feature import Feature, is_changed, is_same, nearest_between
from apas.errors import InputError
from apas.models.base import Model, Named, Raw, encoded_rows, offers

if TYPE_CHECKING:
    from pandas import DataFrame


def _inferred_feature(cells: Any, name: str, said: dict[str, Any], missing: bool, **how: Any) -> Feature:
    cells = cells.dropna()
    if not len(cells):
        raise InputError(f"`frame` must have a value in every column, but {name!r} has none; fill or drop it.")
    kind = said.get("kind") or _kind(cells, said)
    kind = "categorical" if missing and kind == "binary" else kind  # with missing ones there are three
    numeric = kind in ("continuous", "integer")
    # all that was said, also what does not go together: the feature refuses that
    details: dict[str, Any] = {"values": said.get("values"), "step": said.get("step")}
    if "range" in said:
        ends = said["range"]
        if isinstance(ends, str) or not hasattr(ends, "__len__") or len(ends) != 2:
            raise InputError(f"`ranges` must give column {name!r} its lowest and highest value, got {ends!r}.")
        details["low"], details["high"] = ends
    elif numeric and "values" not in said:
        try:
            details["low"], details["high"] = float(cells.min()), float(cells.max())
        except (TypeError, ValueError):
            got = cells.iloc[0]
            raise InputError(f"column {name!r} of `frame` must hold numbers to be one, got {got!r}.") from None
    if not numeric and "values" not in said:
        details["values"] = _levels(cells)
    if missing and None not in (details["values"] or ()):
        details["values"] = (*(details["values"] or ()), None)
    return Feature(name, kind, code=said.get("code"), **details, **how)


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


def _levels(cells: Any) -> tuple[Any, ...]:
    """Levels in the order a categorical column has, else sorted, so that two tables give the same space."""
    if hasattr(cells, "cat"):
        return tuple(cells.cat.categories.tolist())
    found = list(dict.fromkeys(cells.tolist()))
    try:
        return tuple(sorted(found))
    except TypeError:
        return tuple(found)


KEYS = ("kind", "range", "low", "high", "values", "step", "mutable", "direction", "code")


def _value(value: Any, exact: bool = False) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        return repr(int(value) if whole and not exact else value)
    if isinstance(value, list | tuple):
        return f"[{', '.join('nan' if v is None else _value(v, exact) for v in value)}]"
    raise InputError(f"a space can be written with texts, numbers and true or false, got {value!r}.")


def _check_columns(argument: str, names: Any, wanted: Any, columns: list[Any]) -> None:
    """Refuse what does not name columns of the frame."""
    if isinstance(names, str) or not isinstance(names, wanted):
        what = "a mapping from columns" if wanted is Mapping else "a list of columns"
        raise InputError(f"`{argument}` of FeatureSpace.from_frame must be {what}, got {names!r}.")
    if unknown := [n for n in names if n not in columns]:
        raise InputError(
            f"`{argument}` of FeatureSpace.from_frame names column {unknown[0]!r}, which the frame does not have; "
            f"its columns are {', '.join(str(c) for c in columns[:8])}{', ...' if len(columns) > 8 else ''}."
        )


DISTANCES = ("l1", "linf")


@dataclass(frozen=True)
class FeatureSpace:
    """The features of a table, what they may be, and how they may change.

    Inside, a row is a vector of numbers, one per feature: the value of a continuous or integer feature, the number of
    the level of an ordinal, categorical or binary one.

    Parameters
    ----------
    features : sequence of Feature
        One per column, in the order of the columns.
    scale : {"minmax"}, optional
        Scale numbers to [0, 1] by their ranges before they reach a model that has no preprocessing of its own.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"income": [1800.0, 2500.0], "housing": ["rent", "own"]})
    >>> space = FeatureSpace.from_frame(table, increase=["income"])
    >>> space["income"].direction, space["housing"].values
    ('increase', ('own', 'rent'))
    """

    features: Sequence[Feature]
    scale: str | None = None

    def __post_init__(self) -> None:
        features = tuple(self.features) if isinstance(self.features, Iterable) else ()
        if (strangers := [f for f in features if not isinstance(f, Feature)]) or not features:
            got = repr(strangers[0]) if strangers else "none"
            raise InputError(f"`features` of FeatureSpace must be apas.Feature objects, one per column, got {got}.")
        names = [f.name for f in features]
        if doubled := sorted({n for n in names if names.count(n) > 1}):
            raise InputError(f"`features` of FeatureSpace must have different names, got {doubled[0]!r} twice.")
        if self.scale not in (None, "minmax"):
            raise InputError(f'`scale` of FeatureSpace must be "minmax" or None, got {self.scale!r}.')
        object.__setattr__(self, "features", features)
        _ = self.coding  # a range that scaling needs and does not have is an error now, not later

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        kinds: Mapping[str, str] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        values: Mapping[str, Sequence[Any]] | None = None,
        steps: Mapping[str, float] | None = None,
        codes: Mapping[str, str] | None = None,
        immutable: Sequence[str] = (),
        increase: Sequence[str] = (),
        decrease: Sequence[str] = (),
        missing: Sequence[str] = (),
        label: str | None = None,
        scale: str | None = None,
    ) -> FeatureSpace:
        """Read the features off a table: kinds from the types of its columns, ranges and levels from its rows.

        Parameters
        ----------
        frame : data frame
            Numbers with a fraction are continuous, whole numbers integer, 0 and 1 or two texts binary, other texts
            categorical; an ordered pandas categorical is ordinal.
        kinds, ranges, values, steps, codes : mapping from column name, optional
            What differs from that: see `Feature`.
        immutable, increase, decrease : sequence of str
            Columns that may not change, may only grow, may only fall.
        missing : sequence of str
            Columns of categories of which a missing cell is one, which may be left and chosen like any other.
        label : str, optional
            A column that is no feature.
        scale : {"minmax"}, optional
        """
        owner = "FeatureSpace.from_frame"
        if not is_frame(frame):
            raise InputError(f"`frame` of {owner} must be a pandas data frame, got {type(frame).__name__}.")
        if label is not None and label not in frame.columns:
            raise InputError(f"`label` of {owner} must be a column of the frame, got {label!r}.")
        columns = [c for c in frame.columns if c != label]
        if doubled := [c for c in columns if columns.count(c) > 1]:
            raise InputError(f"`frame` of {owner} must have each column once, got {doubled[0]!r} twice.")
        listed = {"immutable": immutable, "increase": increase, "decrease": decrease, "missing": missing}
        for name, names in listed.items():
            _check_columns(name, names, Collection, columns)
        given = {"kind": kinds, "range": ranges, "values": values, "step": steps, "code": codes}
        for name, mapping in given.items():
            _check_columns(name if name == "values" else f"{name}s", mapping or {}, Mapping, columns)
        if both := [c for c in increase if c in decrease]:
            what = f"feature {both[0]!r} must not only increase and only decrease"
            raise InputError(f"{what}; make it immutable instead.")
        if not len(frame):
            raise InputError(f"`frame` of {owner} must have rows to read ranges and levels from, got none.")
        found = []
        for column in columns:
            said = {name: mapping[column] for name, mapping in given.items() if mapping and column in mapping}
            way = "increase" if column in increase else "decrease" if column in decrease else None
            cells = frame[column].infer_objects()  # numbers may come as objects
            how = {"mutable": column not in immutable, "direction": way}
            found.append(_inferred_feature(cells, str(column), said, column in missing, **how))
        return cls(found, scale)

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> FeatureSpace:
        """Read a space from a TOML file; `to_toml` shows what it looks like."""
        if not is_path(path):
            raise InputError(f"`path` of FeatureSpace.from_toml must be the name of a file, got {path!r}.")
        file = Path(path)
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"the space {str(file)!r} cannot be read: {error.strerror or error}.") from None
        except (ValueError, RecursionError) as error:  # bad encoding, bad TOML, numbers of too many digits
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise InputError(f"the space {str(file)!r} is not TOML: {why}.") from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FeatureSpace:
        """Make a space from what `to_dict` gives."""
        if not isinstance(content, Mapping):
            raise InputError(f"a space is made from what `to_dict` gives, got {type(content).__name__}.")
        if strange := [key for key in content if key not in ("scale", "features")]:
            got = f"got {strange[0]!r}; put it under [features]"
            raise InputError(f"a space has the entries `scale` and `features`, {got}.")
        described = content.get("features")
        if not isinstance(described, Mapping) or not described:
            raise InputError("a space needs a table [features.NAME] for each column, got none.")
        features = []
        for name, said in described.items():
            if not isinstance(said, Mapping):
                such = '{kind = "integer"}'
                raise InputError(f"feature {str(name)!r} of a space must be a table such as {such}, got {shown(said)}.")
            if strange := [key for key in said if key not in KEYS]:
                owner = f"feature {str(name)!r}"
                raise InputError(f"{owner} has the unknown entry {strange[0]!r}; it may have {', '.join(KEYS)}.")
            details = dict(said)
            if "range" in details:
                ends = details.pop("range")
                if not isinstance(ends, list | tuple) or len(ends) != 2 or "low" in said or "high" in said:
                    what = f"must be [low, high] and stand alone, got {shown(ends)}"
                    raise InputError(f"`range` of feature {str(name)!r} {what}.")
                details |= {"low": ends[0], "high": ends[1]}
            features.append(Feature(str(name), **details))
        return cls(features, content.get("scale"))

    def to_toml(self, path: str | PathLike[str] | None = None) -> str:
        """The space as the text of a TOML file, which is written as well if a path is given."""
        lines = [f"scale = {_value(self.scale)}", ""] if self.scale else []
        for feature in self.features:
            exact = feature.kind not in ("continuous", "integer")  # the level 1.0 must not come back as 1
            said = [f"{key} = {_value(value, exact)}" for key, value in _describe(feature).items()]
            key = feature.name if re.fullmatch(r"[A-Za-z0-9_-]+", feature.name) else _value(feature.name)
            lines += [f"[features.{key}]", *said, ""]
        text = "\n".join(lines)
        if path is not None:
            try:
                write_text(Path(path), text)
            except OSError as error:
                raise InputError(f"the space {str(path)!r} cannot be written: {error.strerror or error}.") from None
        return text

    def to_dict(self) -> dict[str, Any]:
        """The space as JSON values."""
        return {**({"scale": self.scale} if self.scale else {}), "features": {f.name: _describe(f) for f in self}}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(f.name for f in self.features)

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __getitem__(self, name: str) -> Feature:
        return {feature.name: feature for feature in self.features}[name]

    @cached_property
    def coding(self) -> Coding:
        """How a model without preprocessing sees a row."""
        return Coding(self.features, self.scale)

    def numbers(self, X: Any, argument: str = "X", *, gaps: bool = False, missing: bool = False) -> Floats:
        """A table in raw units as one number per cell; with `gaps` empty rows are NaN, with `missing` other cells."""
        table = checked_table(X, self.names, argument)
        empty = missing_cells(table).all(axis=1) if gaps or missing else np.zeros(len(table), dtype=bool)
        found = np.full((len(table), len(self)), np.nan)
        for i, feature in enumerate(self.features):
            cells = np.asarray(table.iloc[:, i] if is_frame(table) else table[:, i])
            left = empty & gaps
            if missing and not feature.has_missing:
                left = left | (missing_cells(cells) & ~empty)
            there = np.flatnonzero(~left)
            found[there, i] = numbers_of(feature, cells[there], argument, there)
        return found

    def numbers_for(self, model: Any, X: Any, argument: str = "X", *, gaps: bool = False) -> Floats:
        """The same with missing cells (NaN) if the model, which takes rows of the space, takes them where they are."""
        found = self.numbers(X, argument, gaps=gaps, missing=True)
        holes = np.isnan(found).any(axis=1) & ~np.isnan(found).all(axis=1)
        if not holes.any():
            return found
        try:
            margins = model.margin(encoded_rows(model, self.table(found[holes]))[1], model.classes[-1])
            taken = not np.isnan(margins).any()
        except Exception:  # noqa: BLE001  (each library has an error of its own for rows that it does not take)
            taken = False
        return found if taken else self.numbers(X, argument, gaps=gaps)  # which names the first such cell

    def table(self, numbers: Floats, index: Any = None) -> DataFrame:
        """Numbers per cell as a data frame in raw units; whole numbers come back as integers."""
        import pandas as pd

        if all(f.kind == "continuous" for f in self.features):  # one block is much faster than one column at a time
            return pd.DataFrame(np.array(numbers, order="F"), columns=[f.name for f in self.features], index=index)
        return pd.DataFrame({f.name: level_values(f, numbers[:, i]) for i, f in enumerate(self.features)}, index=index)

    def like(self, numbers: Floats, X: Any, rows: Any = None) -> Any:
        """Numbers per cell in raw units, as a data frame or array as `X` is; `rows` are those of `X` they stem from.

        Where a row has no numbers, cells are missing.
        """
        there = ~np.isnan(numbers).all(axis=1)
        if not is_frame(X):
            levels = (level for f in self.features if f.is_level for level in f.values or ())
            plain = all(isinstance(v, int | float | None) and not isinstance(v, bool) for v in levels)
            found = self.table(numbers[there]).to_numpy(dtype=np.float64 if plain else object)
            whole = np.full(numbers.shape, np.nan, dtype=found.dtype)
            whole[there] = found
            return whole
        index = X.index if rows is None else X.index[rows]
        table = self.table(numbers[there], index=index[there])
        for column in [str(c) for c in X.columns if hasattr(X[c], "cat") and str(c) in self.names]:
            kind = X.set_axis([str(c) for c in X.columns], axis=1)[column].dtype
            if set(table[column].dropna()) <= set(kind.categories):  # so that the model takes it as it took `X`
                table[column] = table[column].astype(kind)
        table = table.rename(columns={str(c): c for c in X.columns if not isinstance(c, str)})
        if there.all():
            return table
        table = table.reset_index(drop=True).set_axis(np.flatnonzero(there)).reindex(range(len(numbers)))
        return table.set_axis(index)

    like_with_gaps = like  # its name in 0.2.0 where rows without numbers may be among them

    def snapped(self, points: Floats, inputs: Floats) -> Floats:
        """The nearest allowed rows, feature by feature; what was not changed is allowed."""
        found, (plain, limits) = inputs.copy(), self._plain
        if len(plain):
            found[:, plain] = nearest_between(points[:, plain], inputs[:, plain], *limits)
        other = (points != inputs).any(axis=0) & ~np.isin(np.arange(len(self)), plain)
        for i in np.flatnonzero(other).tolist():  # to ask a feature takes longer than to snap its cells
            found[:, i] = self.features[i].snapped(points[:, i], inputs[:, i])
        return found

    @cached_property
    def _plain(self) -> tuple[Indices, Any]:
        """Features that may be any number between their limits, and these: least and largest numbers, and sizes."""
        free = [f.mutable and f.listed is None and f.step is None and f.direction is None for f in self.features]
        plain = np.flatnonzero(free)
        low, high = np.array([self.features[i].ends for i in plain.tolist()]).reshape(-1, 2).T
        return plain, (low, high, self._sizes[plain])

    def settled(self, points: Floats, inputs: Floats) -> Floats:
        """The rows with the very numbers of their inputs wherever they differ from them by rounding alone."""
        return np.where(is_same(points, inputs, self._sizes), inputs, points)

    @cached_property
    def jumps(self) -> Bools:
        """Which features have no way between two values: categories and binary ones."""
        return np.array([f.kind in ("categorical", "binary") for f in self.features])

    @cached_property
    def _sizes(self) -> Floats:
        return np.array([f.size for f in self.features])

    def allowed(self, points: Floats, inputs: Floats) -> Bools:
        """Which cells satisfy their constraints, shape (rows, features)."""
        return np.stack([f.allows(points[:, i], inputs[:, i]) for i, f in enumerate(self.features)], axis=1)

    def differences(self, points: Floats, inputs: Floats) -> Floats:
        """How far cells are apart in units of their ranges; 0 or 1 for categories, 1 from a missing one to a value."""
        apart = np.abs(points - inputs)
        gone, found = np.isnan(apart), np.where(self._spans > 0, apart / np.abs(self._spans), apart > 0)
        if gone.any():
            found[gone] = is_changed(points, inputs)[gone]
            found[np.isnan(points).all(axis=1)] = np.nan  # no point at all
        return found

    @cached_property
    def _spans(self) -> Floats:
        """The ranges of the features, below 0 for categories."""
        return np.array([-1.0 if f.kind == "categorical" else f.span for f in self.features])

    def costs(self, points: Floats, inputs: Floats, distance: str = "l1") -> Floats:
        """What the changes cost, shape (rows,): mean ("l1") or largest ("linf") of the differences."""
        apart = self.differences(points, inputs)
        return np.asarray(apart.mean(axis=1) if distance == "l1" else apart.max(axis=1))

    def bind(self, model: Any) -> Model:
        """The model as one that takes rows of this space in raw units: itself, or behind the coding of the space."""
        return bound(model, self)

    def encode(self, X: Any) -> Floats:
        """Rows in raw units as a model without preprocessing sees them."""
        return self.coding.encode(self.numbers(X))

    def decode(self, Z: Any) -> DataFrame:
        """What `encode` made of rows, turned back."""
        table = checked_table(Z, self.coding.names, "Z")
        try:
            columns = np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("`Z` must hold the numbers that `encode` gives, one per column of the model.") from None
        return self.table(self.coding.decode(columns))


def _describe(feature: Feature) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": feature.kind}
    values = None if feature.values is None else list(feature.values)
    about: dict[str, Any] = {"low": feature.low, "high": feature.high, "values": values}
    if feature.low is not None and feature.high is not None:
        about = {"range": [feature.low, feature.high], "values": values}
    usual: dict[str, Any] = {"step": 1 if feature.kind == "integer" else None, "mutable": True, "direction": None}
    usual["code"] = "onehot" if feature.kind == "categorical" else "number"
    about |= {n: getattr(feature, n) for n, value in usual.items() if getattr(feature, n) != value}
    return found | {n: value for n, value in about.items() if value is not None}


def default_space(net: Model, space: Any, background: Any, X: Any) -> FeatureSpace:
    """The space a user gave, or what can be read off the background; of `X` no more than names, whatever its rows."""
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
    """The space of what tables hold, by the names of the arguments; rows without any value do not count."""
    import pandas as pd

    names = net.feature_names if offers(net, Named) else None
    if names is None:  # then `X` or the tables say what the columns are called
        frame = next((t for t in (X, *tables.values()) if is_frame(t)), None)
        width = net.n_raw_features if offers(net, Raw) else net.n_features
        names = tuple(f"x{i}" for i in range(width)) if frame is None else tuple(str(c) for c in frame.columns)
    parts = []
    for argument, table in tables.items():
        part = checked_table(own_columns(table, names), names, argument)
        part = part if is_frame(part) else pd.DataFrame(part, columns=list(names))
        parts.append(part.dropna(how="all"))
    try:
        return FeatureSpace.from_frame(parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True))
    except InputError as error:
        said, named = str(error), " and ".join(f"`{argument}`" for argument in tables)
        raise InputError(said.replace(" of FeatureSpace.from_frame", "").replace("`frame`", named)) from None


def own_columns(table: Any, space: FeatureSpace | tuple[str, ...]) -> Any:
    """The columns of a space, or of these names, if a data frame has all; a training table has its label besides."""
    names = space if isinstance(space, tuple) else space.names
    if not is_frame(table):
        return table
    named = table.set_axis([str(c) for c in table.columns], axis=1)
    return named[list(names)] if set(names) <= set(named.columns) else named
