"""The published JSON Schema describes the files that are written, and refuses others."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from certificate_files import changed, content_of

SCHEMA = json.loads((files("apas.contracts") / "certificate.schema.json").read_text(encoding="utf-8"))
FIXTURES = Path(__file__).parent / "fixtures"
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "type", "properties", "required", "additionalProperties", "items", "minItems",
    "anyOf", "oneOf", "const", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the file uses."""
    assert set(schema) <= KNOWN
    if "$ref" in schema:
        return fits(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return False
    checks = {
        "const": lambda s: type(s) is type(value) and s == value, "enum": lambda s: value in s,
        "pattern": lambda s: re.search(s, value) is not None, "minimum": lambda s: value >= s, "maximum": lambda s: value <= s,
        "exclusiveMinimum": lambda s: value > s, "exclusiveMaximum": lambda s: value < s,
        "anyOf": lambda s: any(fits(value, one) for one in s), "oneOf": lambda s: sum(fits(value, one) for one in s) == 1,
        "required": lambda s: set(s) <= set(value), "minItems": lambda s: len(value) >= s,
        "items": lambda s: all(fits(item, s) for item in value),
        "properties": lambda s: all(fits(value[key], inner) for key, inner in s.items() if key in value),
        "additionalProperties": lambda s: all(
            s is not False and fits(inner, s) for key, inner in value.items() if key not in schema.get("properties", {})
        ),
    }  # fmt: skip
    return all(check(schema[name]) for name, check in checks.items() if name in schema)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("v*.json")), ids=lambda p: p.stem)
def test_files_fit(path):
    content = content_of(path)
    assert fits(content, SCHEMA)
    for place, value in [
        (("version",), 3), (("digest",), "x"), (("shifts", "kind"), "cube"), (("certificates", 0, "encoded"), "x"),
        (("certificates", 0), lambda e: {**e, "more": 1}), (("model",), {}), (("certificates", 0, "values", 0), []),
    ]:  # fmt: skip
        assert not fits(changed(content, place, value), SCHEMA), place


def test_every_kind_of_answer_fits(tmp_path):
    import numpy as np
    from certificate_files import network, rows

    import apas

    net, path = network(2, (4, 5, 4, 1)), tmp_path / "c.json"
    shifts = [
        "linf",
        "l1",
        apas.LpShifts(0.5),
        apas.SparseShifts(3, relative=True, kinds=("weight",)),
        "gaussian",
        apas.InputNoise(scale=2.0, integers={"0": 1.0}),
        apas.JointShifts(row=apas.InputNoise(scale=2.0)),
        apas.ObservedShifts([network(2, (4, 5, 4, 1))]),
        apas.EllipsoidShifts(np.eye(54)),
    ]
    change = apas.DataChange("removed", rows(60), np.arange(60) % 2, class_weight={0: 2.0})
    for item in (apas.certify, apas.max_shift):
        delta = {"delta": 3} if item is apas.certify else {}
        found = item(net, rows(60), **delta, target="predicted", shifts=change, method="refit")
        apas.save_certificates(found, path)
        assert fits(content_of(path), SCHEMA)
        assert not fits(changed(content_of(path), ("shifts", "rows"), 1.5), SCHEMA)
    shifts += [apas.LinfShifts(scale=np.ones(54)), apas.LinfShifts(scale={0: 2.0}, layers=["layer0"])]
    found = [
        apas.certify(
            net, rows(6), 1.0, target="predicted", shifts=s, rng=0, method=apas.Sampling(coverage=0.5, confidence=0.4)
        )
        for s in shifts
    ]
    found += [
        apas.certify(net, rows(6), 0.05, target=1, method=m)
        for m in ("interval", "attack", "exact", "enumeration", apas.Enumeration(precision=0.5, max_boxes=50))
    ]
    updates = [net.with_parameters(net.parameters.values + 0.1 * i) for i in range(1, 11)]
    how = {"target": "predicted", "confidence": None, "rng": 0}
    found += [
        apas.calibrate_delta(net, updates, rows(6), **how),
        apas.calibrate_delta(net, list(zip([net, *updates], updates, strict=False)), rows(2), **how),
        apas.calibrate_delta(net, updates, rows(2), score=lambda *_: np.full(2, np.inf), **how),
    ]
    for one in [*found, apas.max_shift(net, rows(3), target=1, rng=0)]:
        apas.save_certificates(one, path)
        assert fits(content_of(path), SCHEMA)


def test_the_documentation_has_the_same_schema():
    published = Path(__file__).resolve().parents[2] / "docs" / "certificate.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == SCHEMA
