"""The seams stay open: nobody asks for the class of a shift set, a method or a source, and no class name is there twice."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from conftest import statements

import apas

SOURCE = Path(apas.__file__).parent
#: Where the alternatives of each kind live, and the member that makes a class there one of them.
KINDS = {
    "shift set": ("shifts", "directions"),
    "method": ("certification/methods", "run"),
    "source": ("counterfactuals/sources", "candidates"),
}


def classes_in(text: str) -> dict[str, set[str]]:
    """Classes of a module, each with the names of what it defines."""
    return {
        node.name: {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        for node in statements(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases)
    }


@cache
def alternatives() -> dict[str, str]:
    """Every concrete shift set, method and source, with the package that may know its class."""
    found = {}
    for folder, member in KINDS.values():
        for path in (SOURCE / folder).rglob("*.py"):
            found |= {name: folder for name, members in classes_in(path.read_text()).items() if member in members}
    return found


def asked_for(text: str) -> list[tuple[int, str]]:
    """Names of classes that `isinstance`, `issubclass`, `type(x) is ...` or a `case` asks for, with their lines."""
    found = []
    for node in ast.walk(ast.parse(text)):
        kinds: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            kinds = [node.args[1]] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node.left):
            kinds = node.comparators
        elif isinstance(node, ast.MatchClass):
            kinds = [node.cls]
        found += [
            (part.lineno, part.id if isinstance(part, ast.Name) else part.attr)
            for kind in kinds
            for part in ast.walk(kind)
            if isinstance(part, ast.Name | ast.Attribute)
        ]
    return found


def questions_of_class(path: str, text: str, known: dict[str, str]) -> list[str]:
    """What a file asks about classes that only their own package may know."""
    return [
        f"{path}:{line} asks for {name}"
        for line, name in asked_for(text)
        if name in known and not path.startswith(known[name])
    ]


FILES = sorted(SOURCE.rglob("*.py"))


def test_the_alternatives_are_found():
    known = alternatives()
    assert {"LinfShifts", "LpShifts", "SparseShifts", "GaussianShifts", "ObservedShifts", "InputNoise"} <= set(known)
    assert {"Sampling", "IntervalBounds", "LinearBounds", "Attack", "Exact", "Enumeration", "Cascade"} <= set(known)
    assert {"NearestNeighbours", "Wachter", "Prototype", "Roar", "Given", "RobustOptimum", "MilpSource"} <= set(known)


def test_nobody_asks_for_the_class_of_an_alternative():
    known = alternatives()
    found = [
        question
        for path in FILES
        for question in questions_of_class(path.relative_to(SOURCE).as_posix(), path.read_text(), known)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(shifts, LinfShifts)",
        "isinstance(shifts, LinfShifts | str)",
        "isinstance(shifts, (int, apas.LinfShifts))",
        "issubclass(kind, Sampling)",
        "type(method) is Sampling",
        "match source:\n    case Wachter():\n        pass",
    ],
)
def test_a_planted_question_is_found(text):
    known = alternatives()
    assert questions_of_class("contracts/planted.py", text, known)
    assert not questions_of_class("contracts/planted.py", text, {})


def test_a_package_knows_its_own_classes():
    known = alternatives()
    assert not questions_of_class("shifts/linf.py", "isinstance(other, LinfShifts)", known)
    assert questions_of_class("shifts/linf.py", "isinstance(other, Sampling)", known)


def names_taken_twice(modules: dict[str, str]) -> dict[str, list[str]]:
    """Class names that several modules define, or one module twice."""
    places = defaultdict(list)
    for path, text in modules.items():
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_class_name_is_there_twice():
    assert names_taken_twice({path.relative_to(SOURCE).as_posix(): path.read_text() for path in FILES}) == {}


def test_a_planted_second_class_is_found():
    assert names_taken_twice({"a.py": "class Found: ...", "b.py": "class Found: ..."}) == {"Found": ["a.py", "b.py"]}
    assert names_taken_twice({"a.py": "class Found: ...", "b.py": "class Lost: ..."}) == {}


def test_source_files_have_a_readable_size():
    for path in FILES:
        lines = len(path.read_text().splitlines())
        assert lines <= 600, f"{path.relative_to(SOURCE)} has {lines} lines; a file is one thing somebody looks for"


def public_things() -> dict[str, object]:
    """Every public class and function by its name, with the public members of the classes."""
    packages = [apas, apas.datasets, apas.experiments, apas.metrics, apas.stats, apas.theory]
    found = {f"{package.__name__}.{name}": getattr(package, name) for package in packages for name in package.__all__}
    for place, kind in [(place, kind) for place, kind in found.items() if inspect.isclass(kind)]:
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if not name.startswith("_") and (callable(getattr(kind, name)) or isinstance(member, property)):
                found[f"{place}.{name}"] = getattr(member, "fget", None) or getattr(kind, name)
    return {place: thing for place, thing in found.items() if callable(thing)}


def test_public_signatures_show_aliases_by_their_names():
    spelt_out = ("numpy._typing", "_Buffer", "numpy.dtype[", "Fraction | decimal.Decimal")
    things = public_things()
    assert {"apas.FeedForward", "apas.InputNoise.radii", "apas.stats.sample_size"} <= set(things)
    for place, thing in things.items():
        try:
            shown = str(inspect.signature(thing))
        except ValueError:  # some built-in ones have none
            continue
        assert not [part for part in spelt_out if part in shown], (
            f"{place}{shown}: its module needs annotations as text"
        )


def test_results_say_each_for_itself_what_they_draw_and_sum_up():
    kinds = ("Calibration", "Certificates", "Counterfactuals", "FractionCurves", "MaxShifts", "OutputRanges")
    for member in ("plot", "summary"):
        said = {inspect.getdoc(getattr(getattr(apas, kind), member)) for kind in kinds}
        assert len(said - {None}) == len(kinds)
