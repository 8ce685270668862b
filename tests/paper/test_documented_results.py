"""The numbers of docs/paper.md are those of the tables under docs/results, rounded."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from apas.theory import PaperGadgets

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "paper.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
NAMES = {"diabetes": "diabetes", "no2": "no2", "SBA": "sba", "credit": "credit"}


def shown(start: str, page: str = PAGE) -> list[dict[str, str]]:
    """The table of a page whose first line begins so, as one dictionary per line."""
    lines = page[page.index(f"\n{start}") + 1 :].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def results(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / "results" / f"{name}.csv")


def agree(text: str, *values: float) -> None:
    """Every number of a text is the value of its place, rounded to as many decimals as it has."""
    words = NUMBER.findall(text)
    assert len(words) == len(values), text
    for word, value in zip(words, values, strict=True):
        decimals = len(word.partition(".")[2])
        assert abs(float(word.replace(",", "")) - value) <= 0.5000001 * 10**-decimals, (text, value)


def test_toy():
    lines, table = shown("| Search | Draws |"), results("toy-delta")
    assert len(lines) == len(table) == 5
    for line, (_, row) in zip(lines, table.iterrows(), strict=True):
        ends = [row["least"], row["largest"]] if "seeds" in line["Search"] else []
        agree(line["Delta"], row["delta"], *ends)
        agree(line["Draws"], row["draws"])
        if line["Paper"] != "-":
            agree(line["Paper"], float(row["paper"]))
        # bounds are rounded away from each other
        low, high = [float(word) for word in (NUMBER.findall(line["Valid share at this delta"]) * 2)[:2]]
        assert row["share at least"] - 1e-4 < low <= row["share at least"] <= row["share at most"] <= high
        assert high < row["share at most"] + 1e-4


METHODS = {
    "worst case, as published": "worst case, as published",
    "worst case, exact": "worst case",
    "paper search, its draws": "paper search, its draws",
    "paper search, our draws": "paper search, own draws",
    "rays, n = 1379": "rays, n = 1379",
    "rays, n = 20,000": "rays, n = 20,000",
}


def test_figure4():
    lines = {line["Method"]: line for line in shown("| Method | Claim | diabetes")}
    table = results("figure4-deltas").set_index(["dataset", "method"])
    assert set(METHODS) < set(lines)
    for column, name in NAMES.items():
        agree(lines["paper: worst case"][column], table.loc[(name, "worst case"), "paper"])
        agree(lines["paper: APΔS"][column], table.loc[(name, "rays, n = 1379"), "paper"])
        for method, called in METHODS.items():
            row = table.loc[(name, called)]
            ends = [row["least mean"], row["largest mean"]] if row["seeds"] > 1 else []
            agree(lines[method][column], row["mean"], *ends)
    validity = results("figure4-validity").set_index("dataset")
    lines = {line[""]: line for line in shown("| | diabetes | no2 | SBA | credit |")}
    for column, name in NAMES.items():
        row = validity.loc[name]
        agree(lines["delta for generation"][column], row["delta"])
        first = lines["measured, first-layer weights (paper's delta_e)"][column]
        agree(first, row["first-layer shift"], row["paper's delta_e"])
        agree(lines["measured, all parameters"][column], row["shift of all parameters"])
        agree(lines["VM1, VM2 (paper: 100 %)"][column], 100 * row["VM1"], 100 * row["VM2"])


def test_what_the_page_says_about_figure4():
    table = results("figure4-deltas")
    off = (table[["least mean", "largest mean"]].div(table["paper"], axis=0) - 1).abs().max(axis=1)
    search, rays = (table["method"] == method for method in ("paper search, own draws", "rays, n = 1379"))
    far = table["method"] == "rays, n = 20,000"
    agree(said(r"one seed is up to (.*?) off the paper's"), 100 * off[search].max(), 100 * off[rays].max())
    agree(said(r"the mean over ten seeds\s+up to (.*?) %"), 100 * (table[search | rays]["ratio"] - 1).abs().max())
    ratios = 100 * (table[far]["ratio"] - 1)
    agree(said(r"20,000 rays reach (.*?) % farther"), ratios.min(), ratios.max())
    moved = (table["largest mean"] - table["least mean"])[far] / table["mean"][far]
    assert 100 * moved.max() < float(said(r"changes the mean by less than (\d+) %"))


def said(pattern: str) -> str:
    (found,) = re.findall(pattern, PAGE, flags=re.DOTALL)
    return str(found)


def words(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / "results" / f"{name}.csv", dtype=str).fillna("-")


def test_table1_as_published():
    lines, table = (
        shown("| dataset | method | VM1 | VM2, one pass | VM2, most shifted | l1 "),
        words("table1-published"),
    )
    assert len(lines) == len(table) == 38
    for line, (_, row) in zip(lines, table.iterrows(), strict=True):
        for column in line:
            theirs = row.get(f"paper {column}", "-")
            assert line[column] == (row[column] if theirs == "-" else f"{row[column]} ({theirs})")


@pytest.mark.parametrize(
    ("start", "name", "lines"),
    [("| dataset | method | VM1 | VM2, one pass | VM2, most shifted | VM2, scratch", "table1-corrected", 46),
     ("| variant | dataset | method | seeds", "table1-against", 20)],
)  # fmt: skip
def test_table1_corrected(start, name, lines):
    shown_lines, table = shown(start), words(name)
    assert len(shown_lines) == len(table) == lines
    for line, (_, row) in zip(shown_lines, table.iterrows(), strict=True):
        assert line == {column: row[column] for column in line}


def test_what_the_page_says_about_table1():
    against = results("table1-against")
    same = against[against["method"] == "RobustOptimum"].set_index(["variant", "dataset"])
    assert (same["largest"] < 1).all()
    assert (same[["worse in VM1", "worse in lof"]] == 0).all(axis=None)
    published, corrected = (
        100 * (1 - same.loc[variant, "l1 / l1 of APΔS"]) for variant in ("as published", "corrected")
    )
    found = said(r"by (\d+ to \d+ %) as published"), said(r"by (\d+ to \d+ %) corrected on average")
    for text, saved in zip(found, (published, corrected), strict=True):
        agree(text.removesuffix(" %"), saved.min(), saved.max())
    worse = same.loc["corrected", "worse in VM2, one pass"]
    assert worse.to_dict() == {"diabetes": 4, "no2": 4, "sba": 1, "credit": 4}
    assert same.loc["as published", "worse in VM2, one pass"].to_dict() == {
        "diabetes": 0,
        "no2": 0,
        "sba": 0,
        "credit": 1,
    }
    wider = against[against["method"] == "RobustOptimum, 1.5 delta"].set_index("dataset")
    agree(
        said(r"l1 is ([\d.]+ to [\d.]+) times that of APΔS"),
        wider["l1 / l1 of APΔS"].min(),
        wider["l1 / l1 of APΔS"].max(),
    )
    assert wider["worse in VM2, one pass"].to_dict() == {"diabetes": 0, "no2": 3, "sba": 0, "credit": 3}
    means = results("table1-seeds").groupby(["method", "dataset"])[["vm2_scratch", "l1"]].mean()
    retrained, sampled = means.loc["RobustOptimum, retrained"], means.loc["APΔS"]
    ours, theirs = (100 * table.loc[list(NAMES.values()), "vm2_scratch"] for table in (retrained, sampled))
    agree(said(r"retrained networks is valid on (.*?) % of the networks"), *ours)
    agree(said(r"sba and credit, APΔS on (.*?) %"), *theirs)
    parts = retrained["l1"] / sampled["l1"]
    assert (parts[["diabetes", "sba"]] < 1).all()
    agree(said(r"that it costs (.*?) times the l1"), parts["no2"], parts["credit"])
    facts = results("table1-networks")
    facts["times"] = facts["shift of all parameters"] / facts["delta"]
    for name in ("diabetes", "sba", "no2", "credit"):
        times = facts[(facts["dataset"] == name) & (facts["variant"] == "corrected")]["times"]
        pattern = (
            r"network (\d+ to \d+) times as far"
            if name == "credit"
            else rf"([\d.]+ to [\d.]+)(?: times delta)? on\s+{name}"
        )
        agree(re.findall(pattern, PAGE)[-1], times.min(), times.max())


README_LINES = {
    "nearest (MILP), no robustness": "MILP",
    "MILP-R, the paper's worst case": "MILP-R",
    "APΔS, the paper's method": "APΔS",
    "`RobustOptimum`, same claim as APΔS": "RobustOptimum",
    "`RobustOptimum` for retrained networks": "RobustOptimum, retrained",
}


def test_the_table_of_the_readme():
    means = results("table1-seeds").groupby(["method", "dataset"]).mean(numeric_only=True)
    lines = shown("| | diabetes | no2 | SBA | credit |", (DOCS.parent / "README.md").read_text(encoding="utf-8"))
    assert [line[""] for line in lines] == list(README_LINES)
    for line in lines:
        for column, name in NAMES.items():
            row = means.loc[(README_LINES[line[""]], name)]
            agree(line[column], row["l1"], 100 * row["vm2_one_pass"], 100 * row["vm2_scratch"])


def test_lemma():
    expected, drawn = (results(name).set_index("activation") for name in ("lemma", "lemma-draws"))
    expected = expected[expected["delta"] == "3/10"]
    for line in shown("| Units | Output |"):
        row, draws = expected.loc[line["Units"]], drawn.loc[line["Units"]]
        agree(line["Output"], row["output"])
        agree(line["Expected output"].partition(" = ")[0], row["expected output"])
        agree(line["Difference"], row["difference"])
        agree(line["1,000,000 draws: mean"], draws["mean output"])
        assert float(line["p of the t-test"]) == pytest.approx(draws["p of the t-test"])
        assert line["Verdict by bounds"] == draws["verdict"]
        assert draws["draws"] == 1_000_000
    assert expected.loc["relu", "as a fraction"] in PAGE


def test_hardness():
    lines, table = shown("| Variables | Clauses |"), results("hardness")
    assert len(lines) == len(table)
    for line, (_, row) in zip(lines, table.iterrows(), strict=True):
        assert {row["which"], str(row["formulas"])} == set(line["Formulas"].split())
        for column in line.keys() - {"Formulas"}:
            agree(line[column], row[column[0].lower() + column[1:]])
    assert (table["unknown"] == 0).all()
    assert (table["wrong"] == 0).all()
    assert (table["solutions from witnesses"] == table["yes"]).all(), "the page says so"


def test_both_constructions():
    lines, table = shown("| Construction | Clauses |"), results("hardness-constructions")
    assert len(lines) == len(table) == 8
    for line, (_, row) in zip(lines, table.iterrows(), strict=True):
        assert line["Construction"] == row["construction"]
        assert line["Formulas"] == f"{row['which']} {row['formulas']}"
        for column in line.keys() - {"Construction", "Formulas"}:
            agree(line[column], row[column[0].lower() + column[1:]])
    assert (table[["unknown", "wrong"]] == 0).all(axis=None)
    assert (table["solutions from witnesses"] == table["yes"]).all()


def test_lemmas_of_the_gadgets():
    """The page and the file say what the gadgets say now."""
    lines, table = shown("| Gadget | Lemma |"), words("hardness-lemmas")
    for delta in ("1/16", "79/1000"):
        part, checks = table[table["delta"] == delta], PaperGadgets(delta).lemmas()
        assert len(part) == len(lines) == len(checks)
        for line, check, (_, row) in zip(lines, checks, part.iterrows(), strict=True):
            assert line["Gadget"] == row["gadget"] == check.gadget
            assert line["Lemma"] == row["lemma"] == check.statement
            assert line[f"At {delta}"] == row["verdict"] == check.verdict
            assert row["against if"] == str(check.against_if or "none")
            assert row["against only if"] == str(check.against_only_if or "none")
            assert row["true"] == check.corrected
