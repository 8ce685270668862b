"""What all results can do: be cut by slices and masks, keep their rows' names, become tables and dictionaries."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import pytest

import apas
from apas.certification.results import RowResults, cells


@dataclass(frozen=True)
class Cost:
    cost: float
    note: str = "<b>"

    def to_dict(self):
        return asdict(self)


class Costs(RowResults[Cost]):
    FORMAT = "costs"
    COLUMNS = ("cost", "note")
    UNSHOWN = ("note",)
    PER_ROW = (*RowResults.PER_ROW, "ranks", "parts")

    def __init__(self, items, *, ranks=None, parts=None, currency="EUR", **shared):
        super().__init__(items, **shared)
        self.ranks, self.parts, self.currency = ranks, parts, currency

    def summary(self):
        return f"{self._counted()} in {self.currency}."

    def _about(self):
        return {"currency": self.currency}


def made(index=None, frame=False):
    X = np.arange(8.0).reshape(4, 2)
    points = pd.DataFrame(X, columns=["a", "b"], index=list("wxyz")) if frame else X
    parts = Costs([Cost(10.0 * i) for i in range(4)], points=X)
    items = [Cost(float(i)) for i in range(4)]
    return Costs(
        items, points=points, inputs=points + 1, feature_names=("a", "b"), index=index, ranks=np.arange(4), parts=parts
    )


MASK = [True, False, False, True]


@pytest.mark.parametrize("mask", [MASK, np.array(MASK), pd.Series(MASK), tuple(MASK)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("frame", [False, True])
def test_mask_cuts_all_that_belongs_to_the_rows(mask, frame):
    found = made(frame=frame)
    part = found[mask]
    assert type(part) is Costs
    assert [item.cost for item in part] == [0.0, 3.0]
    assert np.asarray(part.points).tolist() == [[0.0, 1.0], [6.0, 7.0]]
    assert np.asarray(part.inputs).tolist() == [[1.0, 2.0], [7.0, 8.0]]
    assert part.ranks.tolist() == [0, 3]
    assert [item.cost for item in part.parts] == [0.0, 30.0]
    assert (part.currency, part.feature_names) == ("EUR", ("a", "b"))
    assert part.to_frame().index.tolist() == (["w", "z"] if frame else [0, 1])
    assert len(found) == 4
    assert len(found.points) == 4


@pytest.mark.parametrize("index", [list("wxyz"), [("r", i) for i in range(4)]])
def test_given_index_names_the_rows(index):
    given = pd.MultiIndex.from_tuples(index) if isinstance(index[0], tuple) else pd.Index(index, name="who")
    found = made(index=given)
    assert found.to_frame().index.equals(given)
    assert found[1:].to_frame().index.equals(given[1:])
    assert found[np.array(MASK)].to_frame().index.equals(given[np.array(MASK)])
    assert [row["row"] for row in found[::-1].to_dict()["rows"]] == [
        i if isinstance(i, str) else str(i) for i in index[::-1]
    ]


def test_numbers_find_single_answers():
    found = made()
    assert found[1] == found[np.int64(1)] == found[-3] == Cost(1.0)
    assert (found.index(Cost(2.0)), Cost(2.0) in found, Cost(9.0) in found) == (2, True, False)
    with pytest.raises(IndexError):
        found[4]
    with pytest.raises(TypeError):
        found["a"]


@pytest.mark.parametrize(
    ("index", "got"),
    [
        (MASK[:3], "type bool and shape (3,)"),
        ([0, 2], "type int64 and shape (2,)"),
        ([0, 1, 1, 0], "type int64 and shape (4,)"),
        (np.ones((4, 2), dtype=bool), "type bool and shape (4, 2)"),
        ([], "type float64 and shape (0,)"),
    ],
)
def test_other_indices_are_refused(index, got):
    with pytest.raises(apas.InputError, match=r"`index` of Costs must be an integer, a slice or a mask .* \(4\)") as no:
        made()[index]
    assert got in str(no.value)


def test_empty():
    none = made()[:0]
    assert len(none[[]]) == len(none[np.zeros(0, dtype=bool)]) == 0
    assert none.to_dict() == {"format": "costs", "currency": "EUR", "rows": []}
    assert none.to_frame().columns.tolist() == ["cost", "note"]


def test_table_and_dictionary():
    found = made(frame=True)
    assert found.to_frame()["cost"].to_dict() == {"w": 0.0, "x": 1.0, "y": 2.0, "z": 3.0}
    assert json.loads(json.dumps(found.to_dict()))["rows"][1] == {"row": "x", "cost": 1.0, "note": "<b>"}
    assert repr(found) == "<Costs: 4 rows in EUR.>"
    assert repr(found[:1]) == "<Costs: 1 row in EUR.>"
    assert "note" not in found._repr_html_()


def test_equality():
    assert made() == made()
    assert made() != made(frame=True)
    assert made()[1:] != made()[:3]
    assert made() != list(made())
    with pytest.raises(TypeError, match="unhashable"):
        hash(made())


def test_pickle():
    assert pickle.loads(pickle.dumps(made(frame=True))) == made(frame=True)


def test_cells_are_json_values():
    frame = pd.DataFrame({"n": [1, 2], "s": ["a", "b"]})
    assert cells(frame) == [[1, "a"], [2, "b"]]
    assert json.dumps(cells(np.array([[1.5, 2.0]], dtype=np.float32))) == "[[1.5, 2.0]]"


ROWS = pd.DataFrame({"a": [1.0, 2.0, -1.0]}, index=list("uvw"))
NET = apas.FeedForward([[[1.0]]], [[0.0]], feature_names=["a"])


@pytest.mark.parametrize(
    "ask",
    [
        lambda X: apas.certify(NET, X, 0.1, target="predicted", rng=0),
        lambda X: apas.max_shift(NET, X, target="predicted", rng=0),
        lambda X: apas.robust_fraction(NET, X, [0.1, 0.5], target="predicted", rng=0),
        lambda X: apas.output_range(NET, X, 0.1, target="predicted", rng=0),
    ],
    ids=["certify", "max_shift", "robust_fraction", "output_range"],
)
def test_every_result_is_cut_by_a_mask(ask):
    found = ask(ROWS)
    part = found[ROWS["a"] > 0]
    assert type(part) is type(found)
    assert part.to_dict() == found[:2].to_dict()
    assert part.to_frame().equals(found[:2].to_frame())
    assert part.points.index.tolist() == ["u", "v"]
