"""Formulas in conjunctive normal form, as the DIMACS format writes them."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from apas._validation import check_integer
from apas.errors import InputError

MOST_TRIED = 20  # variables for which going through all assignments is a matter of seconds
MOST_DIGITS = 12  # of a number in a file: no formula that fits into memory needs more


@dataclass(frozen=True)
class Formula:
    """A conjunction of clauses; a clause is a set of literals, of which at least one must be true.

    Parameters
    ----------
    variables : int
        How many there are; they are numbered from 1.
    clauses : sequence of collections of int
        Literals as in DIMACS: ``3`` is variable 3, ``-3`` its negation. The empty clause is never true.

    Examples
    --------
    >>> formula = Formula(2, [[1, 2], [-1, 2], [-2]])
    >>> formula.holds([True, False]), formula.solution()
    (False, None)
    """

    variables: int
    clauses: Sequence[Collection[int]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", check_integer(self.variables, "variables", "Formula", least=1))
        given: Any = self.clauses
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InputError(f"`clauses` of Formula must be a list of lists of literals, got {given!r}.")
        object.__setattr__(self, "clauses", tuple(_clause(clause, self.variables) for clause in given))

    @classmethod
    def from_dimacs(cls, text: str) -> Formula:
        r"""Read a formula from the text of a DIMACS CNF file, in which a line that begins with ``%`` ends it.

        Examples
        --------
        >>> Formula.from_dimacs("c either, not both\np cnf 2 2\n1 2 0\n-1 -2 0\n").solution()
        (False, True)
        """
        if not isinstance(text, str):
            raise InputError(f"`text` must be the text of a DIMACS file, got {type(text).__name__}.")
        variables, announced, literals = _parsed(text)
        clauses: list[list[int]] = [[]]
        for literal in literals:
            if literal:
                clauses[-1].append(literal)
            else:
                clauses.append([])
        if clauses.pop():
            raise InputError("`text` must end each clause with 0, but the last one goes on to the end; add the 0.")
        if len(clauses) != announced:
            wanted = f"hold the {announced} clauses that its line 'p cnf' announces"
            raise InputError(f"`text` must {wanted}, got {len(clauses)}; correct one or the other.")
        return cls(variables, clauses)

    def to_dimacs(self) -> str:
        """The formula as the text of a DIMACS CNF file."""
        lines = [" ".join(map(str, [*sorted(clause, key=abs), 0])) for clause in self.clauses]
        return "\n".join([f"p cnf {self.variables} {len(self.clauses)}", *lines]) + "\n"

    @property
    def needed(self) -> tuple[frozenset[int], ...]:
        """The clauses without those that are always true, each once, in their order."""
        return tuple(dict.fromkeys(frozenset(c) for c in self.clauses if not any(-literal in c for literal in c)))

    def holds(self, assignment: Sequence[bool]) -> bool:
        """Whether every clause is true under an assignment: one truth value per variable."""
        values = check_assignment(assignment, self.variables)
        return all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in self.clauses)

    def solutions(self) -> Iterator[tuple[bool, ...]]:
        """Every assignment that makes the formula true, by trying all of them."""
        if self.variables > MOST_TRIED:
            limit = f"at most {MOST_TRIED} to try all assignments"
            raise InputError(f"`variables` must be {limit}, got {self.variables}; use a solver.")
        return (values for values in product((False, True), repeat=self.variables) if self.holds(values))

    def solution(self) -> tuple[bool, ...] | None:
        """The first assignment that makes the formula true, or None if there is none."""
        return next(self.solutions(), None)

    def __str__(self) -> str:
        names = ([f"x{n}" if n > 0 else f"not x{-n}" for n in sorted(clause, key=abs)] for clause in self.clauses)
        shown = [" or ".join(literals) or "false" for literals in names]
        return " and ".join(f"({clause})" for clause in shown) or "true"


def read_dimacs(path: str | Path) -> Formula:
    """Read a formula from a DIMACS CNF file."""
    try:
        return Formula.from_dimacs(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`path` must be a DIMACS file that can be read, got {str(path)!r}: {error}.") from error


def check_assignment(assignment: Any, variables: int) -> tuple[bool, ...]:
    """Give an assignment as one truth value per variable."""
    values = tuple(assignment) if isinstance(assignment, Iterable) and not isinstance(assignment, str) else ()
    if len(values) != variables or not all(isinstance(v, bool | np.bool_) for v in values):
        wanted = f"one True or False for each of the {variables} variables"
        raise InputError(f"`assignment` must be {wanted}, got {assignment!r}.")
    return tuple(map(bool, values))


def _clause(clause: Any, variables: int) -> frozenset[int]:
    literals = tuple(clause) if isinstance(clause, Iterable) and not isinstance(clause, str) else (None,)
    for literal in literals:
        number = isinstance(literal, int | np.integer) and not isinstance(literal, bool)
        if not number or not 1 <= abs(literal) <= variables:
            shown = clause if literals == (None,) else literal
            wanted = f"hold literals from 1 to {variables} or their negatives"
            raise InputError(f"`clauses` of Formula must {wanted}, got {shown!r}.")
    return frozenset(map(int, literals))


def _parsed(text: str) -> tuple[int, int, list[int]]:
    """Announced variables and clauses, and all numbers behind them."""
    header: tuple[int, int] | None = None
    numbers: list[int] = []
    for place, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("c"):
            continue
        if words[0] == "%":
            break
        if words[0] == "p":
            if header is not None:
                raise InputError(f"`text` must have one line 'p cnf', got a second one in line {place}; remove it.")
            counts = [int(word) for word in words[2:] if _is_number(word)]
            if len(words) != 4 or words[1] != "cnf" or len(counts) != 2 or counts[0] < 1:
                wanted = "announce 'p cnf VARIABLES CLAUSES' with at least one variable"
                raise InputError(f"`text` must {wanted}, got {reprlib.repr(' '.join(words))} in line {place}.")
            header = counts[0], counts[1]
            continue
        if header is None:
            wanted = "have the line 'p cnf VARIABLES CLAUSES' first"
            raise InputError(f"`text` must {wanted}, got {reprlib.repr(line)} in line {place}.")
        for word in words:
            if not _is_number(word.removeprefix("-")) or abs(int(word)) > header[0]:
                wanted = f"hold literals from 1 to {header[0]}, their negatives and 0"
                raise InputError(f"`text` must {wanted}, got {reprlib.repr(word)} in line {place}.")
            numbers.append(int(word))
    if header is None:
        raise InputError("`text` must have a line 'p cnf VARIABLES CLAUSES', got none; put it above the clauses.")
    return (*header, numbers)


def _is_number(word: str) -> bool:
    """Whether a word is a number without a sign, and none that Python would take long to read."""
    return word.isascii() and word.isdecimal() and len(word) <= MOST_DIGITS
