"""A fingerprint of a model: its parameters, its architecture and its preprocessing, Python code included.

Code of a library counts by its name, so that a certificate outlives updates; code of the user's by what it says.
"""

import dis
import functools
import hashlib
import inspect
import json
import linecache
import logging
import random
import sys
import sysconfig
import textwrap
import types
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from apas.models.base import Described, Model, offers

#: Libraries whose functions and classes count by name alone, so that a certificate outlives their updates.
_NAMED: tuple[str, ...] = ("apas", "joblib", "keras", "numpy", "pandas", "scipy", "sklearn", "skops", "skorch", "torch")
_NAMED += ("catboost", "lightgbm", "xgboost")
#: Members of scikit-learn's estimators that no answer needs, neither counted nor read from files: leftovers of
#: training, and the tree by which k-NN searches its rows, which counts its searches.
LEFTOVERS = {"_optimizer", "_random_state", "loss_function_", "_loss_function_", "_rng", "_feature_subsample_rng"}
LEFTOVERS |= {"_tree"}
_HEAP_TYPE = 1 << 9  # the flag of a class that was made while Python ran


def own_class(kind: type) -> bool:
    """Whether a class is the user's, so that its name does not say what it does."""
    # a class whose text was executed without a name for the module says that it is built in, which none of Python is
    made = kind.__module__ == "builtins" and kind.__flags__ & _HEAP_TYPE
    return bool(made) or "<locals>" in kind.__qualname__ or library_of(kind.__module__) is None


def changed_members(kind: type, method: str) -> set[str]:
    """Names of the members that a method of a user's class gives new values, also by other methods that it names."""
    members = [pair for base in reversed(kind.__mro__) if own_class(base) for pair in vars(base).items()]
    methods = {name: member for name, member in members if isinstance(member, types.FunctionType)}
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

    def __init__(self, code: types.CodeType) -> None:
        self.names, self.attributes, self.stored, self.written = (set[str]() for _ in range(4))
        self.imports: list[str] = []
        for step in (step for part in _codes(code) for step in dis.get_instructions(part)):
            kind, name = step.opname, step.argval
            outer = kind in ("STORE_DEREF", "DELETE_DEREF") and name in code.co_freevars
            self.written |= {name} if outer or kind in ("STORE_GLOBAL", "DELETE_GLOBAL") else set()
            if "GLOBAL" in kind or kind == "LOAD_NAME":
                # where a module lies, and what it is called, decides nothing
                self.names |= {name} if not (name.startswith("__") and name.endswith("__")) else set()
            elif kind in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
                self.attributes.add(name)
            elif kind == "STORE_ATTR":
                self.stored.add(name)
            elif kind == "IMPORT_NAME" and name not in self.imports:
                self.imports.append(name)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def source_text(function: types.FunctionType) -> str | None:
    """The source text of a function, if what the file says now is what was compiled; else None."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        # a file may have been edited since, and a library may have rewritten the function
        if [code.co_firstlineno, bytecode(code)] not in _compile_definitions("".join(lines)):
            return None
        block = inspect.getblock(lines[code.co_firstlineno - 1 :])
    except (SyntaxError, ValueError, RecursionError):
        return None
    return "\n".join(line.rstrip() for line in textwrap.dedent("".join(block)).splitlines() if line.strip())


@functools.lru_cache(maxsize=64)
def _compile_definitions(text: str) -> list[Any]:
    """First line and content of everything that a source text defines."""
    whole = compile(text, "<source>", "exec", dont_inherit=True)
    return [[code.co_firstlineno, bytecode(code)] for code in _codes(whole)]


def bytecode(code: types.CodeType) -> Any:
    """What code does, as JSON values: all of it but its places in a file."""

    def constant(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return bytecode(value)
        if isinstance(value, tuple):
            return [constant(v) for v in value]
        if isinstance(value, frozenset):
            return sorted(json.dumps(constant(v)) for v in value)
        return [type(value).__name__, repr(value)]

    head = [code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [list(names) for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)]
    constants = [constant(value) for value in code.co_consts]
    return [*head, code.co_code.hex(), code.co_exceptiontable.hex(), *names, constants]


def library_function(value: Any) -> Any:
    """A library's function by its module and name, if it is found under them; else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType):
        module = value.__self__.__name__
    if not isinstance(module, str) or not isinstance(name, str) or (library := library_of(module)) is None:
        owner = getattr(value, "__objclass__", None)  # a method of a class that is written in C, such as str.upper
        builtin = isinstance(owner, type) and not own_class(owner) and isinstance(name, str)
        return {"name": name, "module": owner.__module__} if builtin and owner is not None else None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return {"name": name, "module": module, **library} if found is value else None


@functools.lru_cache(maxsize=1024)
def library_of(module: str) -> dict[str, Any] | None:
    """What besides a name identifies the code of a module of a library; None for a module of the user's."""
    top = module.partition(".")[0]
    if top in _NAMED:
        return {}
    file, paths = getattr(sys.modules.get(module), "__file__", None), sysconfig.get_paths()
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


#: What counts by its kind: what was used up in fitting, and what decides no answer.
_BY_KIND = (np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random, np.dtype, logging.Logger)
#: What holds a value or several; sets are told apart, since they have no order.
_HOLDING = (int, float, complex, str, bytes, bytearray, dict, list, tuple)
#: Of models that nobody can describe anew, the hash of all but the parameters: these are hashed at every call.
_HEADS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def model_digest(model: Model) -> str:
    """SHA-256 over all that decides what `model` answers, as far as `unidentified` does not say otherwise."""
    frozen = vars(type(model)).get("frozen", False)  # its own word: a subclass may be described otherwise
    parameters, digest = model.parameters, _HEADS.get(model) if frozen else None
    if digest is None:
        layout = [list(parameters.names), [list(shape) for shape in parameters.shapes]]
        described: Any = {"classes": [canonical(c) for c in model.classes], "n_features": model.n_features}
        if offers(model, Described):
            described = model.describe()
        digest = hashlib.sha256(json.dumps([described, layout], sort_keys=True).encode())
        if frozen:
            _HEADS[model] = digest
    digest = digest.copy()
    digest.update(parameters.values.astype("<f8", copy=False).tobytes())
    if (content := getattr(model, "content_digest", None)) is not None:  # `Learned`
        digest.update(content().encode())
    return digest.hexdigest()


def unidentified(model: Model) -> str:
    """What of a model its digest does not cover, in words; empty if it covers all that decides an answer."""
    if not offers(model, Described):
        return "what it computes (it has no describe())"
    found = {key: list(dict.fromkeys(_marks(part))) for key, part in model.describe().items()}
    return ", ".join(f"{key} ({', '.join(marks)})" for key, marks in found.items() if marks)


def _marks(form: Any) -> Iterator[str]:
    """What could not be fingerprinted inside of a canonical form."""
    if isinstance(form, dict):
        if "unidentified" in form:
            yield str(form["unidentified"])
        form = list(form.values())
    if isinstance(form, list):
        for part in form:
            yield from _marks(part)


def canonical(value: Any, parts: Mapping[int, str] | None = None) -> Any:
    """Fitted state (numbers, arrays, estimators, functions) as JSON values that do not depend on where it is."""
    # Functions and classes count by what they do: see `_Walk`. What nothing can be said about becomes
    # ``{"unidentified": what it is}``.
    return _Walk(parts or {}).form(value)


class _Walk:
    """One walk over a value, in which functions, classes and objects that were met before are numbers, so that it ends.

    A function of the user's counts by its source text, its defaults, the values it has closed over and the global
    values that it reads, all of them in turn; its name alone is no identity. One without a source text that fits, such
    as a lambda, counts by its code instead, which is another one in another Python.
    """

    def __init__(self, parts: Mapping[int, str]) -> None:
        self.parts = parts
        self.met: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is given twice
        self.path: list[int] = []  # containers that are open

    def form(self, value: Any) -> Any:
        """The value as JSON values."""
        if isinstance(value, np.longdouble | np.clongdouble):  # no number of Python's, and its bytes have unused ones
            return {type(value).__name__: str(value)}
        if isinstance(value, np.generic):
            return self.form(value.item())
        kind = type(value)
        if kind not in _HOLDING and isinstance(value, _HOLDING) and (kind is defaultdict or own_class(kind)):
            return self._once(value, self._object)  # its class may read what it holds in its own way
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, complex | bytes | bytearray):
            return {type(value).__name__: repr(value)}
        if id(value) in self.parts:
            return {"part": self.parts[id(value)]}
        if id(value) in self.path:
            return {"around": self.path.index(id(value))}
        self.path.append(id(value))
        try:
            return self._class(value) if isinstance(value, type) else self._held(value)
        finally:
            self.path.pop()

    def _held(self, value: Any) -> Any:
        """Tensors, arrays, containers, tables, estimators, functions and other objects."""
        if (table := self._table(value)) is not None:
            return table
        if isinstance(value, dict):
            return {"items": [[self.form(k), self.form(v)] for k, v in value.items()]}
        if isinstance(value, slice):
            return {"slice": [self.form(v) for v in (value.start, value.stop, value.step)]}
        if isinstance(value, list | tuple):
            return [self.form(v) for v in value]
        if isinstance(value, set | frozenset):
            form = {"set": sorted(json.dumps(self._apart().form(v)) for v in value)}
            return {**form, "code": self._class(type(value))} if own_class(type(value)) else form
        if hasattr(value, "get_params"):
            # an estimator is its class, its settings and what it has learned, some of which lives in private members
            members = vars(value).items()
            if type(value).__module__.startswith("sklearn."):
                members = [(name, member) for name, member in members if name not in LEFTOVERS]
            state = {"class": type(value).__name__, "state": self.form(dict(sorted(members)))}
            return {**state, "code": self.form(type(value))} if own_class(type(value)) else state
        # functions and what stands for one; all else is an object
        if isinstance(value, functools.partial):
            return {"partial": [self.form(v) for v in (value.func, value.args, value.keywords)]}
        if isinstance(value, types.MethodType):
            return {"method": [self.form(value.__func__), self.form(value.__self__)]}
        if isinstance(value, np.ufunc):  # by its name, unless somebody made it of a function that it does not show
            places = [m for m in ("numpy", "scipy.special") if getattr(sys.modules.get(m), value.__name__, 0) is value]
            found = {"unidentified": f"the ufunc {value.__name__}"}
            return {"name": value.__name__, "module": places[0]} if places else found
        if (named := library_function(value)) is not None:
            return named
        if isinstance(value, types.FunctionType):
            return self._once(value, self._function)
        if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, types.ModuleType | None):
            return {"method": [value.__name__, self.form(value.__self__)]}
        if isinstance(value, staticmethod | classmethod):
            return {type(value).__name__: self.form(value.__func__)}
        if isinstance(value, property):
            return {"property": [self.form(f) for f in (value.fget, value.fset, value.fdel)]}
        if isinstance(value, functools._lru_cache_wrapper):
            return {"cached": self.form(value.__wrapped__)}
        if isinstance(value, functools.cached_property):
            return {"cached": self.form(value.func)}
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):  # a slot; objects hold values
            return {"name": value.__qualname__}
        if isinstance(value, types.ModuleType):
            known = library_of(value.__name__) is not None
            return {"module": value.__name__} if known else {"unidentified": f"the module {value.__name__}"}
        if isinstance(value, _BY_KIND):
            return {"name": type(value).__qualname__}
        return self._once(value, self._object)

    def _table(self, value: Any) -> Any:
        """A tensor, array, matrix, table or type of numbers; None for all else."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):  # a file has a `detach` too, which closes it
            tensor = value.detach().cpu()
            value = (tensor if tensor.dtype.itemsize != 2 else tensor.float()).numpy()
        if isinstance(value, np.ma.MaskedArray):
            return {"masked": [self.form(v) for v in (value.data, np.ma.getmaskarray(value), value.fill_value)]}
        if isinstance(value, np.dtype) and value.kind in "SUVmM":  # of which there are many by one name
            return {"dtype": repr(value)}
        if hasattr(value, "toarray"):
            return self.form(value.toarray())
        if hasattr(value, "to_numpy"):  # a data frame or series
            names, values = list(getattr(value, "columns", [])), value.to_numpy(object)
            table = {"columns": self.form(names), "values": self.form(values)}
            index = list(getattr(value, "index", range(len(values))))
            return table if index == list(range(len(values))) else {**table, "index": self.form(index)}
        if not isinstance(value, np.ndarray):
            return None
        # of objects the bytes are addresses, and those of long doubles are more than the numbers
        if value.dtype.hasobject or value.dtype.char in "gG":
            return {"shape": list(value.shape), "values": [self.form(v) for v in value.ravel().tolist()]}
        if value.dtype.names:  # between fields there may be bytes that nobody set, as between those of a tree's nodes
            fields = [[name, self.form(value[name])] for name in value.dtype.names]
            return {"shape": list(value.shape), "fields": fields}
        content = np.ascontiguousarray(value)
        content = content.astype(content.dtype.newbyteorder("<"), copy=False)
        dtype = value.dtype.name if value.dtype.kind in "mM" else value.dtype.kind  # times have a unit
        return {"shape": list(value.shape), "dtype": dtype, "digest": hashlib.sha256(content.tobytes()).hexdigest()}

    def _once(self, value: Any, describe: Callable[[Any], Any]) -> Any:
        """What `describe` says about a value, or its number if it was met before."""
        if id(value) in self.met:
            return {"met": self.met[id(value)]}
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        return describe(value)

    def _apart(self) -> Self:
        """A walk from here on of which this one learns nothing: for what has no order in which it could be met."""
        walk = type(self)(self.parts)
        walk.met, walk.kept, walk.path = dict(self.met), self.kept, list(self.path)
        return walk

    def _class(self, kind: type) -> Any:
        if not own_class(kind):
            return {"name": kind.__qualname__, **(library_of(kind.__module__) or {})}
        return self._once(kind, self._own_class)

    def _own_class(self, kind: type) -> Any:
        """What a class of the user's defines, and what it inherits from; what lies behind a library's class is not."""
        bases = [[self.form(base), None if own_class(base) else base.__module__] for base in kind.__bases__]
        found = []
        for name, member in sorted(vars(kind).items()):
            code = callable(member) or isinstance(member, staticmethod | classmethod | property)
            # other names with double underscores, and these, are Python's own bookkeeping
            if name != "_abc_impl" and (code or not name.startswith("__")) and not name.startswith("__annotate"):
                found.append([name, self.form(member)])
        form = {"class": found, "bases": bases}
        return {**form, "metaclass": self.form(type(kind))} if own_class(type(kind)) else form

    def _function(self, function: types.FunctionType) -> Any:
        code, module = function.__code__, str(function.__globals__.get("__name__"))
        cells, reads = zip(code.co_freevars, function.__closure__ or (), strict=True), Reads(code)
        told: dict[str, Any] = {
            "defaults": self.form(function.__defaults__),
            "kwdefaults": self.form(function.__kwdefaults__),
            "closure": [[name, self._outer(name, reads, cell)] for name, cell in cells],
            "members": self.form(dict(sorted(vars(function).items()))),
        }
        library, named = library_of(module), code.co_name != "<lambda>"
        if library is not None and named and code.co_filename == getattr(sys.modules.get(module), "__file__", None):
            # made inside of a function of a library, from what it closes over
            return {**told, "name": code.co_qualname, "module": module, **library}
        text = source_text(function) if named else None  # a line may hold several lambdas
        told |= {"text": text} if text is not None else {"python": sys.implementation.cache_tag, "code": bytecode(code)}
        if library is None:
            told["globals"] = [[name, self._outer(name, reads, function.__globals__)] for name in sorted(reads.names)]
            told["imports"] = [[name, self._module(sys.modules.get(name), name, reads)] for name in reads.imports]
        return told

    def _outer(self, name: str, reads: Reads, place: Any) -> Any:
        """What a function reads in a cell that it has closed over, or in the table of its module."""
        if name in reads.written:
            return {"unidentified": f"{name}, which the function that reads it changes"}
        try:
            found = place[name] if isinstance(place, dict) else place.cell_contents
        except (ValueError, KeyError):  # not bound yet, or one of Python's own
            return {"builtin" if isinstance(place, dict) else "absent": name}
        return self._read(found, name, reads) if isinstance(place, dict) else self.form(found)

    def _read(self, value: Any, name: str, reads: Reads) -> Any:
        return self._module(value, name, reads) if isinstance(value, types.ModuleType) else self.form(value)

    def _module(self, module: types.ModuleType | None, name: str, reads: Reads) -> Any:
        """A module by name, and of one of the user's what is read of it."""
        if module is None:
            known = library_of(name) is not None
            return {"module": name} if known else {"unidentified": f"the module {name or '.'} that a function imports"}
        if library_of(module.__name__) is not None:
            return {"module": module.__name__}
        if id(module) in self.path:
            return {"around": self.path.index(id(module))}
        self.path.append(id(module))
        try:
            found = [(key, vars(module)[key]) for key in sorted(reads.attributes & vars(module).keys())]
            return {"module": [[key, self._read(value, key, reads)] for key, value in found]}
        finally:
            self.path.pop()

    def _object(self, value: Any) -> Any:
        """Any other object by its class and its state, as far as it would tell them to a pickle; none is made."""
        kind = type(value)
        mark = {"unidentified": f"a {kind.__module__}.{kind.__qualname__}"}
        try:
            told = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001  (whatever a class says that cannot be written down)
            return mark
        if isinstance(told, str):  # a name, which says nothing about a function that is not a library's
            known = library_of(kind.__module__) is not None and not callable(value)
            return {"name": told, "module": kind.__module__} if known else mark
        make, arguments, state, items, pairs = (*told[:5], None, None, None)[:5]
        if isinstance(state, dict) and all(isinstance(key, str) for key in state):
            state = dict(sorted(state.items()))
        return {
            "object": [self.form(make), self.form(arguments), self.form(state)],
            "items": self.form(list(items or ())),
            "pairs": self.form([list(pair) for pair in pairs or ()]),
        }
