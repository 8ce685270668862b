"""`apas demo`: a short story about a bank, told with generated data."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["demo_command"]

DELTA = 0.05
APPLICANTS = 12


def demo_command(
    seed: Annotated[int, typer.Option(help="Seed of the data, the training and the draws.")] = 0,
) -> None:
    """Train a loan model, certify explanations of its rejections, retrain it, and see which ones hold.

    Example:  apas demo
    """
    from apas import certify
    from apas.datasets import LOAN_FEATURES, make_loans

    features = list(LOAN_FEATURES)
    this_year = make_loans(2000, rng=seed)
    typer.echo("A bank trains a network on 2,000 loan applications of this year.")
    bank = train(this_year, features, seed)
    rejected = this_year.loc[bank.predict(this_year[features]) == 0, features]
    least = explain(bank, rejected).head(APPLICANTS)
    typer.echo(f'It tells {len(least)} rejected applicants: "with this much more income you will be accepted".')
    typer.echo(f"Meanwhile every parameter of the model may move by up to {DELTA}. Do the promises survive?\n")
    # the safe raise is searched with other draws than those that certify it, or its certificate would be worthless
    safe = widen(bank, rejected, least, rng=seed + 1)
    plain, robust = (certify(bank, rows, DELTA, target=1, rng=seed) for rows in (least, safe))
    retrained = retrain(bank, make_loans(2000, drift=0.5, rng=seed + 1), features)
    _print(rejected.loc[least.index], [least, safe], [plain, robust], retrained)


def train(table: DataFrame, features: list[str], seed: int) -> Any:
    """A pipeline that scales numbers, encodes categories and trains a small network."""
    from sklearn.compose import ColumnTransformer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

    from apas.datasets import CATEGORICAL, NUMERIC

    encoder = ColumnTransformer(
        [
            ("numbers", MinMaxScaler(), list(NUMERIC)),
            ("categories", OneHotEncoder(categories=[list(v) for v in CATEGORICAL.values()]), list(CATEGORICAL)),
        ]
    )
    network = MLPClassifier((16,), learning_rate_init=0.005, tol=1e-3, max_iter=500, random_state=seed)
    return Pipeline([("encode", encoder), ("network", network)]).fit(table[features], table["approved"])


def explain(bank: Any, rejected: DataFrame) -> DataFrame:
    """The least income, in steps of 50, at which each applicant would be accepted; some never are."""
    import pandas as pd

    answers = []
    for index, applicant in rejected.iterrows():
        incomes = np.arange(applicant["income"], 4 * applicant["income"], 50)
        tried = pd.DataFrame([applicant] * len(incomes)).astype(rejected.dtypes)
        tried["income"] = incomes
        accepted = bank.predict(tried) == 1
        if accepted.any():
            answers.append(tried.iloc[[accepted.argmax()]].set_axis([index]))
    return pd.concat(answers)


def widen(bank: Any, rejected: DataFrame, least: DataFrame, *, rng: int) -> DataFrame:
    """Raise each income further, a tenth of the least raise at a time, until the draws of `rng` find it safe."""
    from apas import Sampling, certify

    safe = least.copy()
    start = rejected.loc[least.index, "income"]
    strict = Sampling(coverage=0.997)  # asks for more than will be certified, so that fresh draws agree
    for tenths in range(11, 31):
        certified = certify(bank, safe, DELTA, target=1, method=strict, rng=rng).certified
        if certified.all():
            break
        wider = (start + tenths / 10 * (least["income"] - start)).round(-1).astype(least["income"].dtype)
        safe.loc[~certified, "income"] = wider[~certified]
    return safe


def retrain(bank: Any, table: DataFrame, features: list[str]) -> Any:
    """A copy of the bank's model after one more pass over next year's applications."""
    changed = copy.deepcopy(bank)
    changed[-1].partial_fit(changed[:-1].transform(table[features]), table["approved"])
    return changed


def _print(rejected: DataFrame, offers: list[DataFrame], certificates: list[Any], retrained: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("applicant", "income", "least raise", "verdict", "next year", "safe raise", "verdict", "next year"):
        table.add_column(name, justify="right" if "raise" in name or name == "income" else "left", no_wrap=True)
    kept = [np.asarray(retrained.predict(rows)) == 1 for rows in offers]
    for i, (index, was) in enumerate(rejected["income"].items()):
        cells = [str(index), f"{was:,.0f}"]
        for rows, answers, held in zip(offers, certificates, kept, strict=True):
            raised = f"{rows['income'].iloc[i] - was:+,.0f}"
            cells += [raised, answers[i].verdict.name, "kept" if held[i] else "broken"]
        table.add_row(*cells)
    Console(width=96).print(table)
    for name, answers in zip(("Least raise", "Safe raise"), certificates, strict=True):
        typer.echo(f"\n{name}: {answers.summary()}")
    shares = [f"{int(held.sum())} of {len(held)}" for held in kept]
    typer.echo(
        "\nThen the bank makes one more training pass, over next year's applications (which no search has seen):"
    )
    typer.echo(f"{shares[0]} promises of the least raise are kept, and {shares[1]} of the safe raise.")
