"""A feature space as a TOML file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from apas._atomic import write_text
from apas._sanitise import shown
from apas._validation import is_path
from apas.counterfactuals.feature import Feature
from apas.errors import InputError

__all__ = ["features_from", "read_toml", "written"]

KEYS = ("kind", "range", "low", "high", "values", "step", "mutable", "direction", "code")


def read_toml(path: str | PathLike[str]) -> tuple[tuple[Feature, ...], str | None]:
    """The features and the scale that a file describes."""
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
    return features_from(content)


def features_from(content: Mapping[str, Any]) -> tuple[tuple[Feature, ...], str | None]:
    """The features and the scale in what a TOML file holds.

    Examples
    --------
    >>> features, scale = features_from({"features": {"age": {"kind": "integer", "range": [18, 99]}}})
    >>> features[0].high, scale
    (99.0, None)
    """
    if not isinstance(content, Mapping):
        raise InputError(f"a space is made from what `to_dict` gives, got {type(content).__name__}.")
    strange = [key for key in content if key not in ("scale", "features")]
    if strange:
        raise InputError(
            f"a space has the entries `scale` and `features`, got {strange[0]!r}; put it under [features]."
        )
    described = content.get("features")
    if not isinstance(described, Mapping) or not described:
        raise InputError("a space needs a table [features.NAME] for each column, got none.")
    return tuple(_feature(str(name), said) for name, said in described.items()), content.get("scale")


def _feature(name: str, said: Any) -> Feature:
    if not isinstance(said, Mapping):
        raise InputError(
            f'feature {name!r} of a space must be a table such as {{kind = "integer"}}, got {shown(said)}.'
        )
    strange = [key for key in said if key not in KEYS]
    if strange:
        raise InputError(f"feature {name!r} has the unknown entry {strange[0]!r}; it may have {', '.join(KEYS)}.")
    details = dict(said)
    if "range" in details:
        ends = details.pop("range")
        if not isinstance(ends, list | tuple) or len(ends) != 2 or "low" in said or "high" in said:
            raise InputError(f"`range` of feature {name!r} must be [low, high] and stand alone, got {shown(ends)}.")
        details |= {"low": ends[0], "high": ends[1]}
    if isinstance(details.get("values"), list):
        details["values"] = tuple(details["values"])
    return Feature(name, **details)


def written(content: Mapping[str, Any], path: str | PathLike[str] | None) -> str:
    """The text of a TOML file; written to `path` if there is one."""
    lines = [f"scale = {_value(content['scale'])}", ""] if content.get("scale") else []
    for name, said in content["features"].items():
        exact = said["kind"] not in ("continuous", "integer")  # the level 1.0 must not come back as 1
        lines += [f"[features.{_key(name)}]", *(f"{key} = {_value(value, exact)}" for key, value in said.items()), ""]
    text = "\n".join(lines)
    if path is not None:
        try:
            write_text(Path(path), text)
        except OSError as error:
            raise InputError(f"the space {str(path)!r} cannot be written: {error.strerror or error}.") from None
    return text


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any, exact: bool = False) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        return repr(int(value) if whole and not exact else value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v, exact) for v in value)}]"
    raise InputError(f"a space can be written with texts, numbers and true or false, got {value!r}.")
