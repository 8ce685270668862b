"""What is known about a piece of Python code by looking at it: whose it is, its text, and what it reads and changes."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import json
import linecache
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

#: Libraries whose functions and classes count by name alone, so that a certificate outlives their updates.
_NAMED = ("apas", "joblib", "keras", "numpy", "pandas", "scipy", "sklearn", "skops", "torch")
#: The flag of a class that was made while Python ran.
_HEAP_TYPE = 1 << 9


def own_class(kind: type) -> bool:
    """Whether a class is the user's, so that its name does not say what it does."""
    # a class whose text was executed without a name for the module says that it is built in, which none of Python is
    made = kind.__module__ == "builtins" and kind.__flags__ & _HEAP_TYPE
    return bool(made) or "<locals>" in kind.__qualname__ or library_of(kind.__module__) is None


def changed_members(kind: type, method: str) -> set[str]:
    """Names of the members that a method of a user's class gives new values, also by other methods that it names."""
    methods = {
        name: member
        for base in reversed(kind.__mro__)
        if own_class(base)
        for name, member in vars(base).items()
        if isinstance(member, FunctionType)
    }
    changed: set[str] = set()
    seen, ahead = set(), [method]
    while ahead:
        name = ahead.pop()
        if name in methods and name not in seen:
            seen.add(name)
            reads = Reads(methods[name].__code__)
            changed |= reads.stored
            ahead += reads.attributes
    return changed


class Reads:
    """Which names the code of a function reads and writes, that of functions inside it included."""

    def __init__(self, code: CodeType) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.stored: set[str] = set()
        self.imports: list[str] = []
        self.written: set[str] = set()
        for part in _codes(code):
            for step in dis.get_instructions(part):
                self._take(step.opname, step.argval, code.co_freevars)

    def _take(self, step: str, name: Any, free: tuple[str, ...]) -> None:
        if step in ("STORE_GLOBAL", "DELETE_GLOBAL") or (step in ("STORE_DEREF", "DELETE_DEREF") and name in free):
            self.written.add(name)
        if "GLOBAL" in step or step == "LOAD_NAME":
            # where a module lies, and what it is called, decides nothing
            self.names |= {name} if not (name.startswith("__") and name.endswith("__")) else set()
        elif step in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            self.attributes.add(name)
        elif step == "STORE_ATTR":
            self.stored.add(name)
        elif step == "IMPORT_NAME" and name not in self.imports:
            self.imports.append(name)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of all that is defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def source_text(function: FunctionType) -> str | None:
    """The source text of a function, if what the file says now is what was compiled; else None."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        # a file may have been edited since, and a library may have rewritten the function
        if [code.co_firstlineno, bytecode(code)] not in _compiled("".join(lines)):
            return None
        block = inspect.getblock(lines[code.co_firstlineno - 1 :])
    except (SyntaxError, ValueError, RecursionError):
        return None
    shown = textwrap.dedent("".join(block)).splitlines()
    return "\n".join(line.rstrip() for line in shown if line.strip())


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> list[Any]:
    """First line and content of everything that a source text defines."""
    whole = compile(text, "<source>", "exec", dont_inherit=True)
    return [[code.co_firstlineno, bytecode(code)] for code in _codes(whole)]


def bytecode(code: CodeType) -> Any:
    """What code does, as JSON values: all of it but its places in a file."""

    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return bytecode(value)
        if isinstance(value, tuple):
            return [constant(v) for v in value]
        if isinstance(value, frozenset):
            return sorted(json.dumps(constant(v)) for v in value)
        return [type(value).__name__, repr(value)]

    return [
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_code.hex(),
        code.co_exceptiontable.hex(),
        list(code.co_names),
        list(code.co_varnames),
        list(code.co_freevars),
        list(code.co_cellvars),
        [constant(value) for value in code.co_consts],
    ]


def library_function(value: Any) -> Any:
    """A library's function by its module and name, if it is found under them; else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType):
        module = value.__self__.__name__
    if not isinstance(module, str) or not isinstance(name, str) or (library := library_of(module)) is None:
        owner = getattr(value, "__objclass__", None)  # a method of a class that is written in C, such as str.upper
        builtin = isinstance(owner, type) and not own_class(owner) and isinstance(name, str)
        return {"name": name, "module": owner.__module__} if builtin and owner is not None else None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return {"name": name, "module": module, **library} if found is value else None


def library_ufunc(value: np.ufunc) -> Any:
    """A ufunc by its name, unless somebody made it of a function that it does not show."""
    for module in ("numpy", "scipy.special"):
        if getattr(sys.modules.get(module), value.__name__, None) is value:
            return {"name": value.__name__, "module": module}
    return {"unidentified": f"the ufunc {value.__name__}"}


@functools.lru_cache(maxsize=1024)
def library_of(module: str) -> dict[str, Any] | None:
    """What besides a name identifies the code of a module of a library; None for a module of the user's."""
    top = module.partition(".")[0]
    if top in _NAMED:
        return {}
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    paths = sysconfig.get_paths()
    within = Path(file).parent if isinstance(file, str) else None
    inside = {key: within is not None and within.is_relative_to(paths[key]) for key in ("stdlib", "purelib", "platlib")}
    if top in sys.stdlib_module_names and (within is None or inside["stdlib"]):
        return {}
    if not (inside["purelib"] or inside["platlib"]):
        return None
    # any other library may be the user's own: by its version and, where it is Python, by the text of the file
    version = str(getattr(sys.modules.get(top), "__version__", None))
    text = Path(str(file)).read_bytes() if str(file).endswith(".py") else b""
    return {"version": version, "file": hashlib.sha256(text).hexdigest()}
