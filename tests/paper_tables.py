"""Small tables in the form of the paper's files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd


def appendix_data(folder: Path, rows: int = 400, seed: int = 0) -> Path:
    """A data folder with spam and news of a few columns, balanced and easy to learn."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    X = np.clip(rng.normal(0.3 + 0.4 * y[:, None], 0.15, size=(rows, 6)), 0, None)
    spam = pd.DataFrame(X, columns=[f"F{i}" for i in range(1, 7)]).assign(Outcome=y)
    news = pd.DataFrame(X, columns=[f" n{i}" for i in range(6)])
    news.insert(0, " timedelta", rng.uniform(size=rows))
    news.insert(0, "url", [f"http://x/{i}" for i in range(rows)])
    news[" shares"] = 1400 + 500 * y
    for name in ("spam", "news"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    spam.to_csv(folder / "spam" / "spam.csv", index=False)
    (folder / "news" / "OnlineNewsPopularity.csv.gz").write_bytes(gzip.compress(news.to_csv(index=False).encode()))
    return folder
