"""Parts of a box made by halving, kept as the tree of halvings rather than as coordinates.

Every part is half of another one: the tree stores, per pair of halves, whose halves they are and along which axis. The
coordinates of some parts are found by walking up to the whole box. That takes a dozen bytes per part, however many
axes there are, and the volume of a part is exactly ``2**-depth``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FAILING", "HALVED", "OPEN", "VALID", "BoxTree"]

_Nodes = NDArray[np.int64]
#: What is known about a part.
OPEN, VALID, FAILING, HALVED = 0, 1, -1, 2


class BoxTree:
    """Parts of the unit cube ``[0, 1]**axes``; number 0 is the cube itself.

    Examples
    --------
    >>> tree = BoxTree(2)
    >>> left, right = tree.halve(np.array([0]), np.array([1]))
    >>> tree.halve(np.array([right]), np.array([1]))
    array([3, 4])
    >>> start, width = tree.coordinates(np.array([4]))
    >>> start, width
    (array([[0.  , 0.75]]), array([[1.  , 0.25]]))
    """

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self._pairs = 0
        self._parent = np.empty(64, dtype=np.int64)
        self._axis = np.empty(64, dtype=np.int32)
        self._depth = np.zeros(129, dtype=np.int32)
        self._status = np.zeros(129, dtype=np.int8)

    def __len__(self) -> int:
        return 2 * self._pairs + 1

    def halve(self, nodes: _Nodes, axes: NDArray[np.intp]) -> _Nodes:
        """Halve parts, each along its axis; the numbers of the halves, lower before upper."""
        first, last = self._pairs, self._pairs + len(nodes)
        if last > len(self._parent):
            size = max(last, 2 * len(self._parent))
            self._parent, self._axis = _longer(self._parent, size), _longer(self._axis, size)
            self._depth, self._status = (_longer(a, 2 * size + 1) for a in (self._depth, self._status))
        self._parent[first:last], self._axis[first:last] = nodes, axes
        halves = np.arange(2 * first + 1, 2 * last + 1)
        self._depth[halves] = np.repeat(self._depth[nodes] + 1, 2)
        self._status[nodes], self._status[halves] = HALVED, OPEN
        self._pairs = last
        return halves

    def settle(self, nodes: _Nodes, status: int) -> None:
        """Note what is known about some parts."""
        self._status[nodes] = status

    def depth(self, nodes: _Nodes) -> NDArray[np.int32]:
        """How often the cube was halved to get each part: its volume is ``2**-depth``."""
        return self._depth[nodes]

    def having(self, *statuses: int) -> _Nodes:
        """Numbers of the parts of which one of these is known."""
        return np.flatnonzero(np.isin(self._status[: len(self)], statuses))

    def statuses(self, nodes: _Nodes) -> NDArray[np.int8]:
        """What is known about each part."""
        return self._status[nodes]

    def coordinates(self, nodes: _Nodes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower corner and width of each part, shape (parts, axes): exact, as all of it are multiples of ``2**-k``."""
        start, width = np.zeros((len(nodes), self.axes)), np.ones((len(nodes), self.axes))
        below = np.flatnonzero(nodes > 0)
        nodes = nodes[below]
        while len(nodes):
            pair = (nodes - 1) >> 1
            where = below, self._axis[pair]
            # from the smallest part outward: what is known so far lies in the lower or upper half of what comes next
            start[where] = 0.5 * (start[where] + ((nodes + 1) & 1))
            width[where] *= 0.5
            nodes = self._parent[pair]
            if not nodes.all():
                below, nodes = below[nodes > 0], nodes[nodes > 0]
        return start, width

    def trim(self) -> None:
        """Give back the memory that nothing is stored in."""
        self._parent, self._axis = self._parent[: self._pairs].copy(), self._axis[: self._pairs].copy()
        self._depth, self._status = self._depth[: len(self)].copy(), self._status[: len(self)].copy()


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.zeros(size, dtype=array.dtype)
    longer[: len(array)] = array
    return longer
