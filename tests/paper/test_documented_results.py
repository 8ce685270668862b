"""The numbers of docs/paper.md are those of the tables under docs/results, rounded."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import apas
from apas._sanitise import from_csv
from apas.paper import table1
from apas.paper.experiment import EXPERIMENTS
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


def test_what_the_page_says_about_the_toy():
    deltas, cut = results("toy-delta").set_index("search"), results("toy-halving").set_index(["delta", "rule", "level"])
    agree(
        said(r"With (\S+) failures allowed in 100,000"), apas.allowed_failures(100_000, coverage=0.9, confidence=0.9999)
    )
    agree(
        said(r"it is 0\.27: (\S+) times as far"), deltas.loc["rays", "delta"] / deltas.loc["paper, its draws", "delta"]
    )
    agree(said(r"ten levels it is at (\S+) %"), 100 * cut.loc[(0.115, "first", 10), "valid"])
    agree(said(r"the published rule is at (\S+) % after 12"), 100 * cut.loc[(0.27, "first", 12), "valid"])
    alone = results("toy-enumeration").set_index(["delta", "boxes at most"]).loc[(0.115, 1), "share at least"]
    low = float(said(r"knows that at least (\S+) % of the shifts"))
    assert low <= 100 * alone < low + 0.01, "rounded down"


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
    means = table.pivot(index="method", columns="dataset", values="mean")
    times = means.loc[["rays, n = 1379", "rays, n = 20,000"]] / means.loc["worst case"]
    agree(said(r"allows shifts (.*?) times as large"), times.min(axis=None), times.max(axis=None))
    theirs = table["method"].isin(["worst case, as published", "paper search, its draws"])
    for text in (said(r"Figure 4 come out within (\S+) %"), said(r"1e-3; the means differ by (\S+) %")):
        agree(text, 100 * (table[theirs]["ratio"] - 1).abs().max())
    exact = means.loc["worst case"] / table[theirs].pivot(index="method", columns="dataset", values="paper").iloc[-1]
    assert (
        100 * (exact.max() - 1) <= float(said(r"is a little larger\*\* \(up to (\S+) %\)")) < 100 * exact.max() - 99.9
    )


def said(pattern: str) -> str:
    (found,) = re.findall(pattern, PAGE, flags=re.DOTALL)
    return str(found)


def words(name: str) -> pd.DataFrame:
    table = pd.read_csv(DOCS / "results" / f"{name}.csv", dtype=str).fillna("-")
    return table.map(from_csv)  # a dash has an apostrophe in front, lest a spreadsheet take it for a formula


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
    each = results("table1-seeds").pivot(index=["dataset", "seed"], columns="method", values="l1")
    part = each["RobustOptimum, retrained"] / each["APΔS"]
    assert (part["sba"] < 1).all()
    nearest, *others = sorted(part["diabetes"])
    agree(said(r"on\s+one seed \(([\d.]+) times the l1"), nearest)
    agree(said(r"on the others ([\d.]+ to [\d.]+) times"), others[0], others[-1])
    strict = each["RobustOptimum, 99.931 %"] / each["APΔS"]
    farther = strict[strict > 1]
    assert set(farther.index.get_level_values("dataset")) == {"sba"}
    agree(said(r"two seeds of sba \(by (.*?) %\)"), *sorted(100 * (farther - 1)))
    beside = results("table1-published")
    descents = beside[beside["method"].isin(table1.SENSITIVE[:4]) & (beside["dataset"] != "credit")]
    agree(
        said(r"l1 within (\d+) %, but on credit"),
        100 * (descents["l1"] / descents["paper l1"].astype(float) - 1).abs().max(),
    )
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


VERDICTS = ("holds as published", "holds", "does not hold")


def conclusions() -> dict[str, list[float]]:
    """Numbers of the lines about the paper's conclusions, from the tables, in the order of the page."""
    names, hardness, toy = list(NAMES.values()), results("hardness"), results("toy-delta").set_index("search")
    means = results("table1-seeds").groupby(["method", "dataset"]).mean(numeric_only=True)
    published = results("table1-published").set_index(["method", "dataset"])
    deltas = results("figure4-deltas").set_index(["method", "dataset"])
    lemma, halving = results("lemma").set_index(["activation", "delta"]), results("toy-halving")
    level = halving[(halving["delta"] == 0.115) & (halving["rule"] == "first") & (halving["level"] == 7)]
    table2 = results("table2")
    certain = table2[(table2["n"] == 10_000) & table2["delta"].isin([0.2, 0.3])]
    assert len(certain) == 6

    def row(table: pd.DataFrame, method: str, column: str) -> list[float]:
        return [float(table.loc[(method, name), column]) for name in names]

    def vm2(method: str) -> list[float]:
        return row(published, method, "VM2, one pass")

    def ratio(method: str, other: str) -> list[float]:
        return [a / b for a, b in zip(row(deltas, method, "mean"), row(deltas, other, "mean"), strict=True)]

    def mean(method: str, name: str, column: str) -> float:
        return float(means.loc[(method, name), column])

    example = lemma.loc[("relu", "3/10")]
    one, scratch = "vm2_one_pass", "vm2_scratch"
    return {
        "1": [hardness[column].sum() for column in ("formulas", "wrong", "unknown")],
        "2": row(deltas, "worst case", "mean"),
        "3": [example["expected output"], example["output"], 0.2, 0.3, 10_000, 100 * certain["rejected"].min()],
        "4": [apas.sample_size(coverage=0.995, confidence=0.999)],
        "5": ratio("paper search, own draws", "rays, n = 1379"),
        "6": [*toy.loc["paper, its draws", ["delta", "share at least"]], 7, 3, 100 * level["valid"].item()],
        "7": [*toy.loc[["rays", "paper, its draws"], "delta"], *row(deltas, "rays, n = 20,000", "ratio")],
        "8": ratio("paper search, its draws", "worst case, as published"),
        "9": [*vm2("MILP-R"), *row(means, "MILP-R", one), *row(means, "MILP-R", scratch)],
        "10": [*vm2("APΔS"), *row(means, "APΔS", scratch)],
        "11": [*row(published, "APΔS", "Δ-validity"), *row(published, "APΔS", "robust fraction")],
        "12": [*row(means, "APΔS", "l1"), *row(means, "MILP-R", "l1")],
        "13": [*row(means, "APΔS", "lof"), *row(means, "MILP-R", "lof")],
        "14": [*row(means, "APΔS", one), *row(means, "MILP-R", one)],
        "15": [
            *(mean(method, "diabetes", "lof") for method in ("APΔS", "Proto-R", "ROAR")),
            *(mean(method, "sba", "lof") for method in ("APΔS", "Wacht-R", "Proto-R")),
            *(mean(method, "no2", one) for method in ("APΔS", "MILP-R")),
            *(mean(method, "credit", one) for method in ("APΔS", "Proto-R")),
            *(mean(method, "diabetes", "l1") for method in ("APΔS", "ROAR")),
            *(mean("ROAR", "diabetes", column) for column in ("vm1", one)),
        ],
        "16": [v for t, c in ((published, "VM2, one pass"), (means, one), (means, scratch))
               for method in ("APΔS", "ROAR") for v in row(t, method, c)],
        "17": [v for column in ("paper seconds", "seconds") for method in ("APΔS", "MILP-R")
               for v in row(published, method, column)],
        "18": [],
        "19": [],
    }  # fmt: skip


def test_the_papers_conclusions():
    lines = {line["No."]: line for line in shown("| No. | What the paper says |")}
    expected = conclusions()
    assert list(lines) == list(expected)
    for number, line in lines.items():
        assert line["Verdict"].startswith(VERDICTS)
        agree(re.sub(r"\b(l1|VM[12]|no2)\b", "", line["Numbers"]), *expected[number])


def test_what_the_verdicts_say_of_every_dataset_and_seed():
    seeds = results("table1-seeds").set_index(["method", "dataset", "seed"]).sort_index()
    ours, worst, roar = (seeds.loc[method] for method in ("APΔS", "MILP-R", "ROAR"))
    assert (ours["l1"] < worst["l1"]).all()
    assert (ours["lof"] >= worst["lof"]).all()
    means = {
        name: table.groupby("dataset").mean() for name, table in (("ours", ours), ("worst", worst), ("roar", roar))
    }
    assert (means["worst"]["vm2_scratch"] > means["ours"]["vm2_scratch"]).all()
    ahead = {c: means["ours"][c] > means["roar"][c] for c in ("vm2_one_pass", "vm2_scratch")}
    assert set(ahead["vm2_one_pass"].index[~ahead["vm2_one_pass"]]) == {"credit"}
    assert set(ahead["vm2_scratch"].index[~ahead["vm2_scratch"]]) == {"no2"}
    published = results("table1-published").set_index(["method", "dataset"])
    ours, worst = (published.loc[method] for method in ("APΔS", "MILP-R"))
    assert (ours["seconds"] < worst["seconds"]).all()
    assert (ours["paper seconds"].astype(float) > worst["paper seconds"].astype(float)).sum() == 3
    assert (ours["VM2, one pass"] < worst["VM2, one pass"]).to_dict() == {
        name: name == "credit" for name in NAMES.values()
    }
    deltas = results("figure4-deltas").set_index(["method", "dataset"])
    least, largest = (
        deltas.loc[method, column]
        for method, column in (("paper search, its draws", "least"), ("worst case, as published", "largest"))
    )
    assert (least > largest).all(), "in all instances"


def as_shown(method, name, value):
    """A figure with the digits that Table 1 shows of it."""
    return table1.shown(value, table1._decimals(method, name, value))


def test_what_kernels_change():
    """What the pages say about digits that depend on the processor, from what `benchmarks.kernels` measured."""
    table, kernels = results("table1-kernels"), ["SkylakeX", "Haswell", "Sandybridge"]
    apart = table[kernels].max(axis=1) - table[kernels].min(axis=1)
    steady = ~table["method"].isin(table1.SENSITIVE)
    assert set(table[steady]["method"]) == {"MILP", "MILP-R", "APΔS", "RobustOptimum", "RobustOptimum, 99.931 %"}
    assert (apart[steady] == 0).all()
    assert set(table[(apart > 0) & (table["method"] == "ROAR")]["dataset"]) == {"credit"}
    worst = {figure: apart[table["figure"] == figure].max() for figure in set(table["figure"])}
    part = 100 * (apart / table[kernels].max(axis=1))[table["figure"] == "l1"].max()
    agree(said(r"l1 differs by up to (.*?) %, lof"), part)
    agree(said(r"lof by up to\s+(.*?), VM1"), worst["lof"])
    agree(said(r"VM1 by up to (.*?), VM2"), worst["vm1"])
    agree(said(r", VM2 by up to (.*?), Δ-validity"), max(worst["vm2_one_pass"], worst["vm2_most_shifted"]))
    agree(said(r"Δ-validity by up to (.*?)\.\n"), worst["delta_validity"])
    assert f"differs by up to {part:.1f} % over kernels" in (DOCS / "reproducibility.md").read_text(encoding="utf-8")
    digits = [
        [as_shown(row["method"], row["figure"], row[kernel]) for kernel in kernels]
        for _, row in table[~steady].iterrows()
    ]
    other = [alike for alike in digits if len(set(alike)) > 1]
    agree(said(r"Of the (\d+) figures\s+of theirs"), len(digits))
    agree(said(r"were compared, (\d+) are then shown alike"), len(digits) - len(other))
    agree(said(r"the other (\d+) differ by one or two"), len(other))
    steps = [round((float(max(w)) - float(min(w))) * 10 ** len(w[0].partition(".")[2])) for w in other]
    assert sorted(steps)[-2:] == [2, 5], "one or two in the last digit, and once 0.5 and 1.0"
    published = table[table["variant"] == "as published"].set_index(["dataset", "method", "figure"])["SkylakeX"]
    stored = words("table1-published").set_index(["dataset", "method"])
    for (dataset, method), line in stored.iterrows():
        for title, (name, _) in table1.COLUMNS.items():
            if (dataset, method, name) in published.index:
                assert line[title] == as_shown(method, name, published[dataset, method, name])


def test_why_printed_figures_differ():
    """What the pages say about lof on sba and prototypes on credit, from what `benchmarks.baselines why` measured."""
    sources, why = (DOCS / "sources.md").read_text(encoding="utf-8"), results("table1-why")
    measured = why.set_index(["dataset", "method", "inputs"])
    published = results("table1-published").set_index(["method", "dataset"])

    def of(text: str, pattern: str) -> str:
        (found,) = re.findall(pattern, " ".join(text.split()))
        return str(found)

    def sba(column: str, *methods: str, near: bool = True) -> list[float]:
        counts = {method: (46 if method.startswith("Wacht") else 45) if near else 50 for method in methods}
        return [float(measured.loc[("sba", method, count), column]) for method, count in counts.items()]

    three, names = ("Wacht", "Wacht-R", "Proto-R"), ("Wachter", "Wacht-R", "Proto-R")
    theirs = {c: [float(published.loc[(name, "sba"), f"paper {c}"]) for name in names] for c in ("l1", "lof")}
    assert [round(1 - float(published.loc[(name, "sba"), "paper VM1"]), 2) for name in names] == [0.08, 0.08, 0.10]
    agree(of(sources, r"Printed are (.*?); ours are"), *theirs["lof"])
    agree(of(sources, r"; ours are (.*?)\. The known rows"), *sba("lof", *three, near=False))
    agree(of(sources, r"Without as many of these far ones, our l1 is (.*?), the printed"), *sba("l1", *three))
    agree(of(sources, r"the printed (0\.0182.*?)\. If"), *theirs["l1"])
    agree(of(PAGE, r"other sign or size \((.*?); printed"), *sba("lof", *three, near=False))
    agree(of(PAGE, r"; printed (-.*?)\) since"), *theirs["lof"])
    agree(of(PAGE, r"found no row for, our l1 is (.*?), theirs"), *sba("l1", *three))
    agree(of(PAGE, r", theirs (0\.0182.*?)\. Rows"), *theirs["l1"])
    farther = [a / b for a, b in zip(theirs["l1"], sba("l1", *three), strict=True)]
    agree(of(sources, r"their rows go (.*?) times as far"), min(farther), max(farther))
    likely = [f"Wacht, at least {p}" for p in ("0.95", "0.99", "0.999")]
    agree(of(sources, r"Wachter's rows have l1 (.*?) and lof 0"), *sba("l1", *likely))
    agree(of(sources, r"0\.0204 and lof (.*?); prototypes"), *sba("lof", *likely))
    confident = [f"Proto, confidence {c}" for c in ("0.9", "0.97", "0.98")]
    agree(of(sources, r"0\.98 have l1 (.*?) and lof"), *sba("l1", *confident))
    agree(of(sources, r"0\.0108 and lof (.*?)\. Wacht-R"), *sba("lof", *confident))
    valid = [100 * v for v in sba("delta-validity", "Wacht, at least 0.995", "Wacht, at least 0.999", near=False)]
    agree(of(sources, r"at 0\.995 it would be (.*?) %, at"), valid[0])
    agree(of(sources, r"at 0\.999 (\d+) %"), valid[1])
    levels, bits, prototype = (measured.loc[("credit", name, 50)] for name in ("Proto", "Proto, bits", "prototype"))
    agree(of(sources, r"Ours are valid for (.*?) of the inputs at l1"), 2 * levels["valid"])
    agree(of(sources, r"of the inputs at l1 (.*?), the printed ones"), levels["l1"])
    agree(of(sources, r"with free bits ours are valid for (.*?) %, at"), 2 * bits["valid"])
    agree(of(sources, r"%, at l1 (0\.037)"), bits["l1"])
    agree(of(sources, r"they are at l1 (.*?) themselves"), prototype["l1"])
    assert (levels["lof"], bits["lof"], prototype["lof"]) == (1, 1, 1)
    agree(of(PAGE, r"with free bits ours are valid for (.*?) %"), 2 * bits["valid"])
    credit = [published.loc[(name, "credit")] for name in ("Proto", "Proto-R")]
    agree(of(sources, r"the printed ones for (.*?) % at 0"), *(100 * float(line["paper VM1"]) for line in credit))
    agree(of(sources, r"32 % at (.*?), and all"), *(float(line["paper l1"]) for line in credit))
    parts = [float(line["paper l1"]) / line["l1"] for line in credit]
    assert [round(part) for part in parts] == [6, 4], "four to six times our l1"
    assert [line["paper lof"] for line in credit] == ["-1.00", "-1.00"]


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


def test_stored_tables_say_what_they_were_made_with():
    """Only those of Table 1 may be older than the record of the processor and the BLAS."""
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines()[-1] for path in (DOCS / "results").glob("*.md")}
    del lines["made-with"]
    commands = {
        name: re.match(r"Made by `apas paper (\w+)(?: --finished)?` with apas ", line)[1]
        for name, line in lines.items()
    }
    assert set(commands.values()) == {entry.name for entry in EXPERIMENTS} | {"league"}  # which `all` leaves out
    machine = {name: re.findall(r"BLAS (.*), processor (.*), on \d+ cores\.", line) for name, line in lines.items()}
    assert {commands[name] for name, found in machine.items() if not found} <= {"table1"}
    # the league ran on a machine of its own
    (known,) = {tuple(found) for name, found in machine.items() if found and commands[name] != "league"}
    assert all(word in (DOCS / "results" / "made-with.md").read_text(encoding="utf-8") for word in known[0])
