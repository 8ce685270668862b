"""What can go wrong, as exceptions that say which argument, what it must be, what it was and what to do."""

from __future__ import annotations

from typing import Self

from apas._sanitise import for_error


class ApasError(Exception):
    """Root of every error that apas raises on purpose.

    Its message is one line of at most 1000 characters that a terminal can show, whatever the values in it are.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(for_error(part) if isinstance(part, str) else part for part in args))


class InputError(ApasError, ValueError):
    """An argument is not what it must be."""


class MissingExtra(ApasError, ImportError):
    """A feature needs an optional dependency, brought by ``pip install "apas[extra]"``, that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        command = f'pip install "apas[{extra}]"'
        super().__init__(f"{feature} needs the optional extra '{extra}'; install it with: {command}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Keep the fields when the error crosses a process boundary."""
        return type(self), (self.feature, self.extra)


class UnsafeFile(ApasError, ValueError):
    """Loading the file could run code, so it is refused."""


class Unsupported(ApasError, NotImplementedError):
    """The combination asked for has no sound implementation; the message names one that has."""


class GuaranteeWarning(UserWarning):
    """Something weakens what a guarantee means in practice, although the claim as stated still holds."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(for_error(part) if isinstance(part, str) else part for part in args))
