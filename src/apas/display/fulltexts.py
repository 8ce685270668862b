"""A series of texts that is printed in full; a module of its own, since its class cannot be made without pandas."""

from __future__ import annotations

from typing import Any

import pandas as pd


class FullTexts(pd.Series):
    """Texts of which `print` and `to_string` show every character, where pandas cuts at 50."""

    @property
    def _constructor(self) -> type[FullTexts]:
        return FullTexts

    def to_string(self, *args: Any, **options: Any) -> Any:
        """As in pandas, without its limit on the width of a column."""
        with pd.option_context("display.max_colwidth", None):
            return super().to_string(*args, **options)
