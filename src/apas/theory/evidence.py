"""What draws say about the three conditions of naturally occurring shifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apas.certify.claims import Verdict
from apas.display.numbers import at_most

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["NaturalEvidence"]

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class NaturalEvidence:
    """Evidence about a set of shifts, row by row; from `is_naturally_occurring`.

    Attributes
    ----------
    measure : str
        The distribution of the shifts, in words.
    delta : float
    draws : int
    entropy : int
        Seed of the draws.
    quantity : str
        What was looked at: "output" or "margin".
    confidence : float
        With which `mean_low`, `mean_high`, `variance_low` and `variance_high` of one row hold together; of all rows
        together if `simultaneous`.
    simultaneous : bool
    alternative : str
        What the t-test looks for.
    original, mean : ndarray of shape (rows,)
        What the model itself gives, and the shifted models on average.
    difference : ndarray of shape (rows,)
        Mean magnitude of what shifted models give differently.
    variance : ndarray of shape (rows,)
        Of the sample.
    t, p_values : ndarray of shape (rows,)
        Of the t-test, each row by itself; an approximation unless the outputs are normal.
    mean_low, mean_high : ndarray of shape (rows,)
        Bounds on the expectation, for every distribution; infinite where no range of the outputs is known.
    variance_low, variance_high : ndarray of shape (rows,)
        Bounds on the variance, likewise.
    variance_limit : float or None
        The largest variance that counts as small, if given.
    lipschitz_base, lipschitz_shifted : float or None
        Upper bounds on the Lipschitz constants of the model itself and of every shifted model (of `ObservedShifts`
        only those listed), not the constants themselves; None where no bound is known.
    """

    measure: str
    delta: float
    draws: int
    entropy: int
    quantity: str
    confidence: float
    simultaneous: bool
    alternative: str
    original: _Array
    mean: _Array
    difference: _Array
    variance: _Array
    t: _Array
    p_values: _Array
    mean_low: _Array
    mean_high: _Array
    variance_low: _Array
    variance_high: _Array
    variance_limit: float | None
    lipschitz_base: float | None
    lipschitz_shifted: float | None

    def __len__(self) -> int:
        return len(self.original)

    def __bool__(self) -> bool:
        raise TypeError("draws can only speak against naturally occurring shifts: look at .verdict and .rejected.")

    @property
    def level(self) -> float:
        """Below which p-value the t-test rejects."""
        return (1 - self.confidence) / (len(self) if self.simultaneous else 1)

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """Rows on which the t-test rejects that the expected output is that of the model itself."""
        return np.asarray(self.p_values < self.level)

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Rows on which the expected output is not that of the model itself, by bounds for every distribution."""
        return np.asarray((self.original < self.mean_low) | (self.original > self.mean_high))

    @property
    def scattered(self) -> NDArray[np.bool_]:
        """Rows whose variance exceeds the limit, by bounds for every distribution."""
        limit = np.inf if self.variance_limit is None else self.variance_limit
        return np.asarray(self.variance_low > limit)

    @property
    def verdict(self) -> Verdict:
        """``REFUTED`` if the bounds on a mean or variance speak against it, with `confidence`; else ``UNKNOWN``.

        Without `simultaneous` the confidence is that of a single row, and several rows may err.
        """
        return Verdict.REFUTED if (self.moved | self.scattered).any() else Verdict.UNKNOWN

    def sentence(self) -> str:
        """Say it in words that are true as they stand."""
        rows, together = len(self), " for all rows together" if self.simultaneous and len(self) > 1 else ""
        each = " for each row by itself" if not self.simultaneous and len(self) > 1 else ""
        what = f"{self.draws} shifted models ({self.measure}, delta = {self.delta:g})"
        moved = (
            f"the expected {self.quantity} is shown to differ from that of the model on {self.moved.sum()} of {rows} "
            f"rows with confidence {self.confidence:g}{together}{each}"
        )
        tested = f"the t-test, an approximation, rejects equality on {self.rejected.sum()} at level {self.level:.3g}"
        variance = f"the largest variance seen is {self.variance.max():.3g}"
        if self.variance_limit is not None:
            below = int((self.variance_high <= self.variance_limit).sum())
            variance += (
                f", shown to exceed {self.variance_limit:g} on {self.scattered.sum()} rows and to stay within it on "
                f"{below}"
            )
        return f"{self.verdict}: on {what}, {moved}; {tested}; {variance}; {self._smoothness()}."

    def _smoothness(self) -> str:
        if self.lipschitz_shifted is None:
            return "no bound on Lipschitz constants is known"
        base = "" if self.lipschitz_base is None else f", of the model itself at most {at_most(self.lipschitz_base)}"
        return f"Lipschitz constants are at most {at_most(self.lipschitz_shifted)}{base} (upper bounds)"

    def to_frame(self) -> DataFrame:
        """One line per row."""
        import pandas as pd

        return pd.DataFrame({name: getattr(self, name) for name in (*_COLUMNS, "rejected", "moved", "scattered")})

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; None stands for what is infinite."""
        arrays = {
            name: [v if np.isfinite(v) else None for v in getattr(self, name).tolist()] for name in _COLUMNS
        }  # fmt: skip
        return {name: arrays.get(name, getattr(self, name)) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        return self.sentence()


_COLUMNS = (
    "original", "mean", "difference", "variance", "t", "p_values", "mean_low", "mean_high", "variance_low",
    "variance_high",
)  # fmt: skip
