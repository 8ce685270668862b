"""`python -m benchmarks.repeats`: pairs of places in the source that share eight or more lines to the letter.

Blank lines, comments, imports, docstrings and lines of mere punctuation do not count. A pair is a longest run: where
twelve lines stand twice, that is one pair.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

import apas

__all__ = ["repeats"]

SHARED = 8
SOURCE = Path(apas.__file__).parent


def code_lines(text: str) -> list[tuple[int, str]]:
    """Numbers and stripped texts of the lines that count."""
    tree = ast.parse(text)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if n not in left_out]
    return [(n, line) for n, line in lines if any(c.isalnum() for c in line) and not line.startswith("#")]


def repeats(source: Path = SOURCE, shared: int = SHARED) -> list[tuple[str, int, str, int, int]]:
    """Two places (file and first line each) and how many lines they share, most first."""
    files = {str(p.relative_to(source)): code_lines(p.read_text()) for p in sorted(source.rglob("*.py"))}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        for k in range(len(lines) - shared + 1):
            places[tuple(line for _, line in lines[k : k + shared])].append((name, k))
    found = []
    starts = [(a, b) for where in places.values() for i, a in enumerate(where) for b in where[i + 1 :]]
    for (one, i), (two, j) in starts:
        before = i and j and files[one][i - 1][1] == files[two][j - 1][1]
        if before or (one == two and j - i < shared):  # a longer run begins earlier, or a place overlaps itself
            continue
        long = shared
        while (
            i + long < len(files[one]) and j + long < len(files[two])
            and files[one][i + long][1] == files[two][j + long][1]
        ):  # fmt: skip
            long += 1
        found.append((one, files[one][i][0], two, files[two][j][0], long))
    return sorted(found, key=lambda pair: -pair[-1])


def main() -> None:
    """Print each pair and how many there are."""
    pairs = repeats()
    for one, i, two, j, long in pairs if "--quiet" not in sys.argv else []:
        print(f"{long:3d} lines  {one}:{i}  {two}:{j}")
    print(f"{len(pairs)} pairs of places share {SHARED} or more lines")


if __name__ == "__main__":
    main()
