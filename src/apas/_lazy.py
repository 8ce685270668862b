"""What is found out on first use: public names, which the stub beside a package places, members, optional libraries."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:
        """The one of `functools` without the lock that Python 3.11 takes at every first use."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            found = vars(instance)[self.name] = self.compute(instance)
            return found


def attach_stub(package: str, file: str) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """Where each name of a package is, and the `__getattr__` and `__dir__` that import it when somebody asks."""
    places: dict[str, str] = {}
    module = ""
    with open(f"{os.path.splitext(file)[0]}.pyi", encoding="utf-8") as stub:
        for line in stub:  # nothing but "from module import name as name", over one line or more
            words = line.replace(",", " ").split()
            module = words[1] if words[:1] == ["from"] else module
            places |= {name: module for before, name in pairwise(words) if before == "as"}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == package:
            return import_module(f"{package}.{name}")
        found = sys.modules[package].__dict__[name] = getattr(import_module(places[name]), name)
        return found

    return places, find, lambda: sorted({*sys.modules[package].__dict__, *places})


def require(module: str, *, feature: str, extra: str) -> Any:
    """Import `module`, or say which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # the extra is there, but something it needs is not
        from apas.errors import MissingExtra  # which loads more than `import apas` waits for

        raise MissingExtra(feature, extra) from None
