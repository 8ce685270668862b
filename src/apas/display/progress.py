"""A progress bar that appears only when something takes long and somebody is watching."""

import sys
import time
from typing import Any, Self

#: Seconds before a bar is shown.
PATIENCE = 2.0


class Progress:
    """Count `total` steps; draw a bar on standard error from the third second on, if it is a terminal."""

    def __init__(self, total: int, label: str) -> None:
        self._total, self._label, self.done, self._start = total, label, 0, time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def advance(self, steps: int, label: str | None = None) -> None:
        """Note that `steps` more are done, and what is going on if that has changed."""
        self.done, self._label = self.done + steps, label or self._label
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=self._label)
        elif time.monotonic() - self._start > PATIENCE and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeRemainingColumn

            name, share = TextColumn("{task.description}"), TextColumn("{task.percentage:>3.0f} %")
            columns = name, BarColumn(), share, TimeRemainingColumn()
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=self._total, completed=self.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
