"""What rows and features are called, as a picture can show it: whatever users call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from apas._sanitise import for_terminal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["label_rows", "legend_beside", "readable"]

#: So many rows are named below a picture; more are counted.
NAMED = 25
#: So many characters of a name are shown.
LONGEST = 24


def readable(labels: Iterable[Any], longest: int = LONGEST) -> list[str]:
    r"""Names in one line each, not too long, without characters that no font has.

    Examples
    --------
    >>> readable(["A-1", "x\x00\ny", 7], longest=4)
    ['A-1', 'x??y', '7']
    >>> readable(["a very long name"], longest=6)
    ['a ver…']
    """
    texts = [for_terminal(str(label)) for label in labels]
    return [text if len(text) <= longest else text[: longest - 1] + "…" for text in texts]


def label_rows(ax: Axes, labels: Sequence[Any]) -> None:
    """Name the rows along the horizontal axis, if there are not too many of them."""
    if len(labels) > NAMED:
        ax.set_xlabel(f"{len(labels)} rows, in their order")
        return
    names = readable(labels)
    wide = sum(map(len, names)) > 60
    turned: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if wide else {}
    # a dollar sign in a name is no formula
    ax.set_xticks(range(len(names)), names, parse_math=False, **turned)
    ax.set_xlabel("row")


def legend_beside(ax: Axes) -> None:
    """A legend to the right of a picture whose marks may be anywhere."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0)
