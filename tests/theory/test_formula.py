"""Formulas: what DIMACS files may hold, what is refused, and what makes a formula true."""

from __future__ import annotations

import numpy as np
import pytest

from apas import InputError
from apas.theory import Formula, read_dimacs

GOOD = "c a comment\nc\n\np cnf 3 3\n1 -2\n 3 0 -1 0\n2 -2 0\n%\n0\n"


def test_a_file_is_read(tmp_path):
    (tmp_path / "formula.cnf").write_text(GOOD)
    formula = read_dimacs(tmp_path / "formula.cnf")
    assert formula == Formula(3, [[1, -2, 3], [-1], [2, -2]])
    assert formula == Formula.from_dimacs(formula.to_dimacs())
    assert hash(formula) == hash(Formula(3, [(3, -2, 1, 1), {-1}, [-2, 2]]))
    assert str(formula) == "(x1 or not x2 or x3) and (not x1) and (x2 or not x2)"


def test_tautologies_and_repeated_clauses_are_not_needed():
    assert Formula(2, [[1, -1], [1, 2], [2, 1, 2], []]).needed == (frozenset({1, 2}), frozenset())


@pytest.mark.parametrize(
    ("formula", "solutions"),
    [
        (Formula(2, []), 4),
        (Formula(2, [[]]), 0),
        (Formula(2, [[1], [-2]]), 1),
        (Formula(3, [[1, 2, 3]]), 7),
        (Formula(3, [[s * 1, t * 2] for s in (1, -1) for t in (1, -1)]), 0),
    ],
    ids=str,
)
def test_solutions_by_going_through_all(formula, solutions):
    found = list(formula.solutions())
    assert len(found) == solutions
    assert all(formula.holds(values) for values in found)
    assert formula.solution() == (found[0] if found else None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 0", "must have the line 'p cnf VARIABLES CLAUSES' first, got '1 2 0' in line 1"),
        ("", "must have a line 'p cnf VARIABLES CLAUSES', got none"),
        ("c p cnf 1 1\n", "must have a line 'p cnf VARIABLES CLAUSES', got none"),
        ("p cnf 1 1\np cnf 1 1\n1 0", "got a second one in line 2"),
        ("p dnf 1 1\n1 0", "got 'p dnf 1 1' in line 1"),
        ("p cnf 0 0\n", "with at least one variable, got 'p cnf 0 0'"),
        ("p cnf 1\n1 0", "got 'p cnf 1' in line 1"),
        ("p cnf 1 -1\n1 0", "got 'p cnf 1 -1'"),
        ("p cnf 2 1\n1 x 0", "literals from 1 to 2, their negatives and 0, got 'x' in line 2"),
        ("p cnf 2 1\n1 --2 0", "got '--2' in line 2"),
        ("p cnf 2 1\n1 3 0", "got '3' in line 2"),
        ("p cnf 2 1\n1 2", "must end each clause with 0"),
        # long enough to be refused by Python itself, and digits of other alphabets
        ("p cnf 2 1\n" + "1" * 5000 + " 0", "their negatives and 0, got '111111"),
        (f"p cnf {'1' * 5000} 1\n1 0", "with at least one variable, got 'p cnf 111"),
        ("p cnf 2 1\n\u0661 0", "got '\u0661' in line 2"),
        ("\x00" * 10_000, "first, got '\\x00"),
        ("p cnf 2 2\n1 2 0", "must hold the 2 clauses that its line 'p cnf' announces, got 1"),
        ("p cnf 2 0\n1 2 0", "must hold the 0 clauses that its line 'p cnf' announces, got 1"),
    ],
)
def test_what_is_no_dimacs_is_refused_in_one_sentence(text, message):
    with pytest.raises(InputError) as caught:
        Formula.from_dimacs(text)
    said = str(caught.value)
    assert message in said
    assert said.startswith("`text` must ")
    assert said.endswith(".")
    assert len(said) < 200


def test_other_input_is_refused(tmp_path):
    with pytest.raises(InputError, match="`text` must be the text of a DIMACS file, got bytes"):
        Formula.from_dimacs(b"p cnf 1 0")
    with pytest.raises(InputError, match="`path` must be a DIMACS file that can be read"):
        read_dimacs(tmp_path / "nothing.cnf")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="`path` must be a DIMACS file that can be read"):
        read_dimacs(tmp_path / "binary")
    for variables in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="`variables` of Formula must be an integer of at least 1"):
            Formula(variables, [])
    for clauses in ([[0]], [[3]], [[True]], ["12"], [1], [[1.0]], [[None]]):
        with pytest.raises(InputError, match="`clauses` of Formula must hold literals from 1 to 2"):
            Formula(2, clauses)
    for clauses in ("12", 3):
        with pytest.raises(InputError, match="`clauses` of Formula must be a list of lists"):
            Formula(2, clauses)
    for assignment in ([True], [True, 1], "TF", None, [True, None]):
        with pytest.raises(InputError, match="`assignment` must be one True or False for each of the 2 variables"):
            Formula(2, []).holds(assignment)
    assert Formula(2, [[np.int64(1)]]).holds(np.array([True, False]))
    with pytest.raises(InputError, match="`variables` must be at most 20 to try all assignments, got 21"):
        Formula(21, []).solution()
