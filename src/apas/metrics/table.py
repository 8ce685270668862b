"""What `evaluate` measured: one line per counterfactual, and the shares and means that papers report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.display.tables import html_table
from apas.display.values import plain

if TYPE_CHECKING:
    from pandas import DataFrame, Series

__all__ = ["Evaluation", "retrained_columns"]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Metrics of counterfactuals.

    Attributes
    ----------
    rows : data frame
        One line per counterfactual, with the index of the inputs: row, rank, found, and the metrics asked for (see
        `evaluate`). Missing where nothing was found.
    valid : ndarray of bool
        Which counterfactuals were found and are valid on the model itself.
    metrics : tuple of str
    retrained : int
        Number of retrained models.
    delta : float or None
        The shift that the metrics about shifts are for.
    entropy : int or None
        What shifts were drawn from; None if nothing was drawn.

    Examples
    --------
    >>> import apas
    >>> from apas.counterfactuals.result import Counterfactuals
    >>> from apas.metrics import evaluate
    >>> net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]])
    >>> points = [[0.9, 0.3], [0.3, 0.6], [float("nan"), float("nan")]]
    >>> given = Counterfactuals.from_frame(net, [[0.2, 0.3], [0.3, 0.3], [0.1, 0.1]], points)
    >>> found = evaluate(given, metrics=("validity", "l1"))
    >>> found.rows["valid"].tolist()
    [True, False, <NA>]
    >>> found
    <Evaluation: 3 counterfactuals: found 0.6667, vm1 0.3333, l1 0.35.>
    """

    rows: DataFrame
    valid: NDArray[np.bool_]
    metrics: tuple[str, ...]
    retrained: int = 0
    delta: float | None = None
    entropy: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def summary(self) -> Series[float]:
        """Shares and means, as the paper's tables have them.

        ``found``, ``vm1`` (valid on the model), ``vm2`` (valid on the model and on the retrained one; for several
        retrained models ``vm2_0``, ``vm2_1``, ... and their mean ``vm2``) and ``delta_validity`` are shares of *all*
        counterfactuals asked for: one that was not found counts as a failure. Everything else is a mean over the
        counterfactuals that are valid on the model.
        """
        import pandas as pd

        found = {"found": _mean(self.rows["found"].to_numpy(dtype=bool))}
        for metric in self.metrics:
            if metric == "validity":
                found |= self._validity()
            elif metric == "delta_validity":
                found[metric] = _mean(self._said(metric))
            else:
                found[metric] = _mean(self.rows[metric].to_numpy(dtype=np.float64)[self.valid])
        return pd.Series(found, dtype=np.float64)

    def _validity(self) -> dict[str, float]:
        both = [_mean(self.valid & self._said(name)) for name in retrained_columns(self.retrained)]
        shares = {"vm1": _mean(self.valid)}
        if len(both) > 1:
            shares |= {f"vm2_{i}": share for i, share in enumerate(both)}
        return {**shares, "vm2": float(np.mean(both))} if both else shares

    def _said(self, column: str) -> NDArray[np.bool_]:
        """A column of truth values, False where nothing was found."""
        return np.asarray(self.rows[column].to_numpy(dtype=bool, na_value=False))

    def to_frame(self) -> DataFrame:
        """One line per counterfactual, as in `rows`."""
        return self.rows.copy()

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; null where there is nothing to say."""
        lines = zip(self.rows.index, self.rows.to_dict("records"), strict=True)
        return {
            "format": "apas-evaluation",
            "metrics": list(self.metrics),
            "retrained": self.retrained,
            "delta": self.delta,
            "entropy": None if self.entropy is None else hex(self.entropy),
            "summary": {str(name): _json(value) for name, value in self.summary().items()},
            "counterfactuals": [
                {"index": plain(label), **{str(name): _json(value) for name, value in line.items()}}
                for label, line in lines
            ],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evaluation) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        if not len(self):
            return "No counterfactuals."
        numbers = ", ".join(f"{name} {_short(value)}" for name, value in self.summary().items())
        return f"{len(self)} counterfactual{'s' if len(self) > 1 else ''}: {numbers}."

    def __repr__(self) -> str:
        return f"<Evaluation: {self}>"

    def _repr_html_(self) -> str:
        return html_table(self.rows, caption=str(self))


def retrained_columns(count: int) -> list[str]:
    """Names of the columns about so many retrained models.

    Examples
    --------
    >>> retrained_columns(1), retrained_columns(2)
    (['valid_retrained'], ['valid_retrained_0', 'valid_retrained_1'])
    """
    return ["valid_retrained"] if count == 1 else [f"valid_retrained_{i}" for i in range(count)]


def _short(value: float) -> str:
    """Four digits; but what is less than all is not written as 1."""
    text = f"{value:.4g}"
    return f"{value:.17g}" if value < 1 <= float(text) else text


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else np.nan


def _json(value: Any) -> Any:
    import pandas as pd

    return None if pd.isna(value) else plain(value)
