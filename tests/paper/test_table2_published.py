"""Table 2 as published: the authors' logs come back, and the causes of every difference add up to it."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import absent, shared_folder
from paper_tables import appendix_data
from scipy import stats
from scipy.special import expit

from apas import FeedForward, InputError
from apas.datasets import data_from
from apas.display.tables import markdown_table
from apas.paper import table2
from apas.paper.experiment import Store, data_version, run_experiment, run_units
from apas.paper.table2 import CAUSES, DELTAS, DRAWS, PAPER, levels, outputs, published_run, replay

DOCS = Path(__file__).resolve().parents[2] / "docs"


def layers(model):
    return [(np.float32(w), np.float32(b)) for w, b in zip(model.weights, model.biases, strict=True)]


def output(net, x):
    for w, b in net[:-1]:
        x = np.maximum(x @ w + b, 0)
    return float(expit(x @ net[-1][0] + net[-1][1])[0])


def published(net, inputs, nearest, draws, delta, *, drift=True):
    """The published program, tensor by tensor and draw by draw, in float32 arithmetic throughout."""
    rng = np.random.RandomState(0)
    log = {"delta": delta, "samples": draws, "original": [], "mean": [], "difference": [], "rejected": []}
    for i, x in enumerate(np.float32(inputs)):
        point = np.float32(nearest[0 if output(net, x) > 0.5 else 1][i])
        original, found = output(net, point), []
        for _ in range(draws):
            drawn = [[np.float32(part + rng.uniform(-delta, delta, part.shape)) for part in layer] for layer in net]
            found.append(output(drawn, point))
        log["original"].append(original)
        log["mean"].append(float(np.mean(found)))
        log["difference"].append(float(np.abs(np.array(found) - original).mean()))
        log["rejected"].append(int(stats.ttest_1samp(found, original).pvalue < 0.05))
        net = drawn if drift else net
    return log


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    """Invented tables of spam and news with the same rows, and beside them logs of a run of the published program."""
    folder = tmp_path_factory.mktemp("invented")
    with data_from(appendix_data(folder / "datasets")):
        inputs = table2.explained("spam").tests[:10]
        X, y = table2.read_rows("spam")
    rng, sizes = np.random.default_rng(0), [6, 5, 4, 1]
    weights = [np.float32(rng.normal(size=pair)).tolist() for pair in zip(sizes, sizes[1:], strict=False)]
    biases = [np.float32(rng.normal(size=n)).tolist() for n in sizes[1:]]
    classes = [X[y == label] for label in (0, 1)]
    nearest = [[rows[((rows - x) ** 2).sum(axis=1).argmin()].tolist() for x in inputs] for rows in classes]
    log = published(layers(FeedForward(weights, biases)), inputs, nearest, 1000, 0.1)
    known = {"network": list(zip(weights, biases, strict=True)), "logs": [log]}
    neighbours = {f"nearest_of_class_{label}": rows for label, rows in enumerate(nearest)}
    (folder / "oracle").mkdir()
    content = {"spam": {**known, "inputs": inputs.tolist(), **neighbours}, "news": known}
    (folder / "oracle" / "table2.json").write_text(json.dumps(content))
    return folder / "datasets"


class OneCell:
    """The experiment for one dataset, 1000 draws and delta 0.1."""

    tables, figures, left_out = map(staticmethod, (table2.tables, table2.figures, table2.left_out))

    def __init__(self, dataset):
        self.dataset = dataset

    def units(self, settings):
        wanted = {"dataset": self.dataset, "draws": 1000, "delta": 0.1}
        return [unit for unit in table2.units(settings) if wanted.items() <= unit.settings.items()]


def run_of(dataset):
    digest = hashlib.sha256(table2.oracle_path(table2.LOGS).read_bytes()).hexdigest()
    return published_run(dataset, digest, data_version((dataset,)))


def compare(log, found):
    """Every number of a log is that of the run made again to six decimals, and every test says the same."""
    assert len(found) == len(log["original"]) == 10
    for name in ("original", "mean", "difference"):
        np.testing.assert_allclose([line[name] for line in found], log[name], rtol=0, atol=1e-6)
    assert [line["rejected"] for line in found] == log["rejected"]


def test_draws_and_drift_are_those_of_the_published_program(invented):
    with data_from(invented):
        run = run_of("spam")
    (log,) = run.logs
    compare(log, [line for _, (line,) in replay(run.network, run.rows, 1000, 0.1, partial(run.explain, log))])
    chosen = [run.explain(log, run.network, i)[0] for i in range(10)]
    restored = published(layers(run.network), run.inputs, run.rows.reshape(2, 10, -1), 1000, 0.1, drift=False)
    compare(restored, [line for _, (line,) in replay(run.network, run.rows[chosen], 1000, 0.1)])
    assert np.abs(np.subtract(restored["original"], log["original"])).max() > 0.01, "there is a drift to put back"


def test_several_rows_at_once_are_each_as_alone(invented):
    with data_from(invented):
        run = run_of("spam")
    for i, (near, found) in enumerate(replay(run.network, run.rows, 50, 0.2)):
        assert near.tolist() == [i, i + 10]
        for row, line in zip(near, found, strict=True):
            alone = list(replay(run.network, np.tile(run.rows[row], (10, 1)), 50, 0.2))[i][1]
            assert line == pytest.approx(alone[0], rel=1e-12)


def check_sums(causes, decimals=6):
    """What is printed and all changes make ours: averages up to their rounding, numbers of tests exactly."""
    for _, part in causes.groupby(["dataset", "n"]):
        assert part["cause"].tolist() == ["printed", *CAUSES, "ours"]
        averages, tests = (part.filter(like=kind).to_numpy() for kind in ("delta", "tests"))
        assert averages.shape == tests.shape
        assert averages.size > 0
        np.testing.assert_allclose(averages[:-1].sum(axis=0), averages[-1], rtol=0, atol=4.5 * 10.0**-decimals)
        np.testing.assert_array_equal(tests[:-1].sum(axis=0), tests[-1])


@pytest.mark.parametrize("dataset", ["spam", "news"])
def test_from_logs_to_tables(invented, tmp_path, dataset):
    """News has no inputs in the file: its rows are found by the logged outputs."""
    with data_from(invented):
        outcome = run_experiment(OneCell(dataset), tmp_path, quick=True, label="table2")
        asked = OneCell(dataset).units({"quick": True})
        with Store(tmp_path / "results.sqlite") as store, Store(tmp_path / "fresh.sqlite") as fresh:
            own, again = run_units(asked, store)
            assert len(store) == 2, "nothing was done twice"
            assert run_units(asked, fresh) == [own, again], "to the last bit"
        run = run_of(dataset)
    assert outcome.left_out == ""
    compare(again["log"], again["versions"]["run again"])
    (line,) = outcome.tables["table2-published"].to_dict("records")
    assert (line["difference"], line["rejected"]) == (line["logged"], line["logged share"])
    assert line["same tests"] == 10
    assert float(line["largest gap"]) < 1e-6
    assert len(outcome.tables["table2-news"]) == (10 if dataset == "news" else 0)
    check_sums(outcome.tables["table2-causes"])
    assert f"| printed | {PAPER[dataset, 1000, 0.1][0]:.4f} |" in (tmp_path / "table2-causes.md").read_text()
    if dataset == "news":
        with data_from(invented):
            other = run_of("spam")
        explained = [other.rows[other.explain(again["log"], other.network, 0)[0]]]
        np.testing.assert_array_equal(run.rows[again["rows"][:1]], explained)


def test_of_many_rows_the_logged_mean_tells_the_one(invented, monkeypatch):
    with data_from(invented):
        (_, unit) = OneCell("news").units({})
        alone = unit.work(**unit.settings)
        monkeypatch.setattr(table2, "NEAR", 1.0)
        among_all = unit.work(**unit.settings)
    assert [line["candidates"] for line in among_all["versions"]["run again"]] == [400] * 10
    assert among_all["rows"] == alone["rows"]


def test_every_cause_is_one_step():
    """Ten numbers each, so that a version that is left out or taken twice is seen."""
    steps = [[(0.01 * (j + 1), j % 2)] * 10 for j in range(4)]
    versions = {
        cause: [{"difference": d, "rejected": r} for d, r in lines]
        for cause, lines in zip(CAUSES[1:], steps, strict=False)
    }
    result = {"dataset": "spam", "draws": 1000, "delta": 0.1, "versions": versions}
    result["log"] = {"difference": [0.5] * 10, "rejected": [1] * 5 + [0] * 5}
    found = levels(result, {"difference": [0.2] * 10, "p": [0.04] * 3 + [0.06] * 7})
    np.testing.assert_allclose(found[:, 0], [0.034, 0.5, 0.01, 0.02, 0.03, 0.04, 0.2])
    np.testing.assert_allclose(found[:, 1], [1.0, 0.5, 0, 1, 0, 1, 0.3])
    assert len(found) == len(CAUSES) + 1


def test_without_logs_it_says_what_is_left_out(tmp_path):
    with data_from(appendix_data(tmp_path / "datasets")):
        assert len(table2.units({})) == 24
        outcome = run_experiment(OneCell("spam"), tmp_path / "out", quick=True, label="table2")
        assert outcome.left_out == table2.left_out()
        with pytest.raises(InputError, match="networks and logs are not at"):
            published_run("spam", "other", "")
    assert set(outcome.tables) == {"table2", "table2-networks"}
    assert outcome.left_out.count(".") == 2, "one sentence, and the name of the file"
    assert str(tmp_path / "oracle" / "table2.json") in outcome.left_out


@pytest.mark.parametrize("content", ["{}", '{"spam": {"network": [1]}}', '{"spam": 3}', "["])
def test_another_file_in_the_place_of_the_logs(tmp_path, content):
    (tmp_path / "oracle").mkdir()
    (tmp_path / "oracle" / "table2.json").write_text(content)
    with data_from(appendix_data(tmp_path / "datasets")):
        assert len(table2.units({})) == 48
        with pytest.raises(InputError, match=r"table2\.json must hold the authors' networks and logs of Table 2"):
            run_of("spam")


def test_other_logs_are_other_work(tmp_path):
    (tmp_path / "oracle").mkdir()
    keys = []
    for content in ("{}", "[]"):
        (tmp_path / "oracle" / "table2.json").write_text(content)
        with data_from(appendix_data(tmp_path / "datasets")):
            keys.append([unit.key for unit in OneCell("spam").units({})])
    assert [first == second for first, second in zip(*keys, strict=True)] == [True, False]


@pytest.fixture
def real():
    """The authors' file beside the datasets."""
    if not (shared_folder("oracle") / table2.LOGS).is_file():
        absent("data", "no file oracle/table2.json beside the datasets")
    with data_from(shared_folder("datasets")):
        yield


CELLS = [(dataset, delta) for delta in DELTAS for dataset in ("credit", "spam", "news")]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("draws", [DRAWS[0], pytest.param(DRAWS[1], marks=pytest.mark.validity)])
@pytest.mark.parametrize(("dataset", "delta"), CELLS)
def test_the_logs_of_the_authors(dataset, delta, draws):
    run = run_of(dataset)
    (log,) = (log for log in run.logs if (log["samples"], log["delta"]) == (draws, delta))
    found = []
    for i, (_, lines) in enumerate(replay(run.network, run.rows, draws, delta, partial(run.explain, log))):
        found.append(min(lines, key=lambda line: abs(line["mean"] - log["mean"][i])))
    compare(log, found)


@pytest.mark.usefixtures("real")
def test_spam_has_the_authors_rows():
    """Their inputs are our first ten test rows, and their neighbours the nearest test rows by label."""
    run, tests = run_of("spam"), np.float32(table2.explained("spam").tests).astype(float)
    X, y = table2.read_rows("spam")
    labels = {row.tobytes(): label for row, label in zip(np.float32(X), y, strict=True)}
    of = np.array([labels[row.tobytes()] for row in np.float32(tests)])
    np.testing.assert_array_equal(tests[:10], run.inputs)
    for label in (0, 1):
        rows = tests[of == label]
        for i, x in enumerate(run.inputs):
            np.testing.assert_array_equal(rows[((rows - x) ** 2).sum(axis=1).argmin()], run.rows[10 * label + i])


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("dataset", ["credit", "spam", pytest.param("news", marks=pytest.mark.validity)])
def test_explanations_that_flip_do(dataset):
    run = run_of(dataset)
    tests = np.zeros((1, 72)) if dataset == "credit" else table2.explained(dataset).tests
    inputs = tests[:10] if run.inputs is None else run.inputs
    before, after = (outputs(run.network, rows) > 0.5 for rows in (inputs, run.flipping(tests)))
    assert (before != after).all()
    if dataset == "news":
        return
    chosen = [run.explain({}, run.network, i)[0] for i in range(10)]
    published = outputs(run.network, run.rows[chosen]) > 0.5
    assert not (before != published).any(), "the page says that none of the published ones does"
    if dataset == "credit":
        assert (outputs(run.network, run.rows) > 0.5).all(), "the page says that no row in class 0 is known"
        assert outputs(run.network, run.flipping(tests)).round(4).tolist() == [0.4975] * 10, "the page says so"
    else:
        itself = (run.rows[chosen] == run.inputs).all(axis=1)
        assert itself.sum() == 5, "the page says that half of them are the inputs"


@pytest.mark.validity
@pytest.mark.usefixtures("real")
def test_inputs_of_news_that_follow():
    """Of two rows that one input has in the logs, one was in every log put into the class that was not asked for."""
    run, news = run_of("news"), result("table2-news")
    pairs = {i - 1: part["row"].to_numpy() for i, part in news.groupby("input") if len(part) > 1}
    agrees = {i: np.zeros(2, dtype=int) for i in pairs}

    def watched(log, model, i):
        if i in pairs:
            decided = outputs(model, run.rows[pairs[i]])
            wanted = run.labels[pairs[i]][np.abs(decided - log["original"][i]).argmin()]
            agrees[i] += (decided > 0.5) != wanted
        return np.array([0])

    for log in run.logs:
        for _ in replay(run.network, run.rows[:1], log["samples"], log["delta"], partial(watched, log)):
            pass
    found = {int(pairs[i][count.argmax()]): sorted(count.tolist()) for i, count in agrees.items()}
    assert list(found) == [13793, 35464, 11206, 5966], "the page says so"
    assert all(least < most == 8 for least, most in found.values())


def result(name):
    return pd.read_csv(DOCS / "results" / f"{name}.csv", dtype={"delta": str, "printed": str})


def test_the_page_shows_the_results():
    page = (DOCS / "paper.md").read_text(encoding="utf-8")
    shown, causes, news = (result(f"table2-{name}") for name in ("published", "causes", "news"))
    assert shown["same tests"].eq(10).all()
    assert shown["largest gap"].max() < 1e-6
    np.testing.assert_allclose(shown["difference"], shown["logged"], rtol=0, atol=1e-6)
    assert (shown["rejected"] == shown["printed share"]).all()
    compact = shown.assign(**{name: shown[name].map("{:.4f}".format) for name in ("difference", "logged")})
    columns = ["dataset", "n", "delta", "difference", "logged", "printed", "as logged", "flipping"]
    assert markdown_table(compact[columns]) in page
    check_sums(causes)
    assert markdown_table(causes[causes["n"] == 10_000].drop(columns="n"), digits=4) in page
    assert markdown_table(news[["input", "row", "logs", "alone", "flipping"]]) in page
    assert (news["logs"].sum(), news["alone"].sum()) == (80, 60), "the page says so"
    ours = result("table2").set_index(["dataset", "n", "delta"])
    for line in causes[causes["cause"] == "ours"].to_dict("records"):
        for delta in DELTAS:
            at = ours.loc[(line["dataset"], line["n"], str(delta))]
            assert line[f"delta {delta}"] == pytest.approx(at["difference"], abs=1e-6)
            assert line[f"tests {delta}"] == round(10 * at["rejected"])
    assert shown["as logged"].value_counts().to_dict() == {"no": 21, "yes": 3}
    assert (shown["logged"] - shown["printed"].astype(float)).abs().max().round(3) == 0.041


def test_the_size_of_each_cause():
    """What the pages say in words."""
    causes = result("table2-causes").set_index(["cause", "dataset", "n"]).filter(like="delta")
    largest = causes.abs().max(axis=1).groupby(["cause", "dataset"]).max()
    assert largest["weights put back"].max().round(3) == 0.073
    assert largest["explanations that flip"].max().round(3) == 0.089
    assert largest["our network", "credit"].round(3) == 0.119
    assert largest["our network"][["spam", "news"]].max().round(3) == 0.009
    assert largest["our draws"].max().round(3) == 0.004
    assert largest["run again"].max() == 0
    steps = causes.loc[["printed", "logged otherwise", "run again", "weights put back"]]["delta 0.05"]
    restored = steps.groupby(["dataset", "n"]).sum().round(4)
    assert restored["credit"].tolist() == [0.0112, 0.0113]
    tests = result("table2-causes").set_index(["cause", "n"]).filter(like="tests").loc["our draws"].abs().max(axis=1)
    assert (tests[1000].max(), tests[10_000].max()) == (4, 2)
