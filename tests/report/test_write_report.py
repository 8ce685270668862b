"""What a report says is what the certificates, the audit and the models say; what is missing is named."""

from __future__ import annotations

import json
import math
import re
import sys
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from conftest import resolve
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from small_reports import HOSTILE, NAMES, applicants, bank, data_of, later, mixed, offers, own_text, radii

import apas
from apas import InputError, MissingExtra
from apas.display.numbers import at_least, at_most
from apas.report.api import report_file


class Outline(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags[-1:] != [] and self.tags[-1][0] not in ("script", "style"):
            self.texts.append(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report with every part, and what it was made from."""
    folder = tmp_path_factory.mktemp("report")
    new = later()
    audit = apas.audit(offers(), new, base=bank())
    path = apas.write_report(offers(), folder / "whole.html", audit=audit, new_model=new, max_shifts=radii())
    return path, audit


def test_every_line_says_what_changes_and_what_was_shown(whole):
    path, audit = whole
    text = " ".join(" ".join(Outline(own_text(path)).texts).split())
    for label, start, point in zip(
        applicants().index, applicants().to_numpy(), offers().points.to_numpy(), strict=True
    ):
        assert label in text
        for name, a, b in zip(NAMES, start, point, strict=True):
            assert (f"{name} {a:.4g} → {b:.4g}" in text) == (a != b)
    for certificate, radius, row in zip(offers().certificates, radii(), audit, strict=True):
        assert certificate.sentence() in text
        assert radius.sentence() in text
        assert row.reason[1:] in text
    assert f"{audit.broken.sum()} {'is' if audit.broken.sum() == 1 else 'are'} broken" in text
    assert f"{sum(r.outcome.name == 'HELD' for r in audit)} of {len(audit)} promises" in text


def test_numbers_are_rounded_to_the_safe_side(whole):
    path, audit = whole
    data = data_of(path)
    for marks, certificate, radius in zip(data["marks"], offers().certificates, radii(), strict=True):
        assert marks["tested"]["at"] == certificate.delta
        assert marks["sampled"] == {"at": radius.delta, "text": radius.written()}
        assert marks["worst"] == {"at": radius.provable, "text": at_least(radius.provable)}
        assert float(marks["worst"]["text"]) <= radius.provable
        assert marks["broken"] == {"at": radius.broken_at, "text": at_most(radius.broken_at)}
    assert audit.shift is not None
    assert data["measured"] == {"at": float(audit.shift), "text": at_most(float(audit.shift))}
    assert [part["distance"] for part in data["layers"]] == audit.shift.per_layer.query("p == inf")[
        "new model"
    ].tolist()


def test_margins_before_and_after_are_those_of_the_models(whole):
    path, audit = whole
    data = data_of(path)
    points = offers().points.to_numpy()
    assert data["after"] == later().margin(points, 1).tolist()
    assert data["margins"] == pytest.approx(bank().margin(points, 1).tolist(), rel=1e-8)
    assert data["outcomes"] == [row.outcome.name for row in audit]


def test_curves_are_fresh_draws_and_hold_the_certified_delta(whole):
    path, _ = whole
    text, curves = own_text(path), data_of(path)["curves"]
    seed = int(re.search(r"seed of the page&#39;s own draws</dt><dd><code>(0x[0-9a-f]+)", text)[1], 16)
    used = {c.evidence.entropy for c in offers().certificates} | {int(r.trace["entropy"], 16) for r in radii()}
    assert seed not in used
    again = apas.robust_fraction(
        bank(), offers().points, curves["deltas"], target=1, rng=seed,
        method=apas.Sampling(n_samples=curves["draws"], confidence=curves["confidence"]),
    )  # fmt: skip
    for i, curve in enumerate(again):
        assert curves["estimate"][i] == pytest.approx(curve.estimate.tolist(), abs=1e-6)
        assert (np.array(curves["lower"][i]) <= curve.lower).all()
        assert (np.array(curves["upper"][i]) >= curve.upper).all()
        assert curves["lower"][i] == pytest.approx(curve.lower.tolist(), abs=2e-6)
    assert 0.05 in curves["deltas"]
    assert "not the draws that certified" in text
    assert f"{curves['draws']:,} shifted models" in text


def test_histograms_count_every_draw(whole):
    data = data_of(whole[0])["histograms"]
    for start, width, counts, failures in zip(
        data["starts"], data["widths"], data["counts"], data["failures"], strict=True
    ):
        assert sum(counts) == data["draws"]
        ends = start + width * np.arange(len(counts) + 1)
        # 0 is the end of a bar, so that the bars below it count the failures
        assert sum(c for c, end in zip(counts, ends[1:], strict=True) if end < width / 2) == failures
    assert data["deltas"] == [0.05] * 3


def test_same_call_same_page_and_a_file_says_the_same(whole, tmp_path):
    path, audit = whole
    apas.save_certificates(offers(), tmp_path / "offers.json", max_shifts=radii())
    (tmp_path / "audit.json").write_text(json.dumps(audit.to_dict()))
    again = apas.write_report(
        tmp_path / "offers.json",
        tmp_path / "again.html",
        model=bank(),
        audit=tmp_path / "audit.json",
        new_model=later(),
    )
    assert again.read_bytes() == path.read_bytes()
    other = apas.write_report(tmp_path / "offers.json", tmp_path / "other.html", model=bank(), rng=3)
    assert data_of(other)["curves"]["estimate"] != data_of(path)["curves"]["estimate"]
    assert "0x3" in own_text(other)


def test_what_needs_a_model_is_left_out_with_a_sentence(tmp_path):
    apas.save_certificates(offers(), tmp_path / "offers.json")
    done = report_file(tmp_path / "offers.json", tmp_path / "report.html")
    assert set(done.left_out) == {"curves", "histograms", "radii", "outcomes", "layers", "margins"}
    text = Outline(own_text(done.path))
    for why in done.left_out.values():
        assert any(why in shown for shown in text.texts)
    data = data_of(done.path)
    assert [data[key] for key in ("curves", "histograms", "after", "layers", "measured")] == [None] * 5
    assert not [attributes for _, attributes in text.tags if attributes.get("class") == "plot"]
    assert "sampling" in own_text(done.path)


def test_a_later_model_alone_is_audited(tmp_path):
    done = report_file(offers(), tmp_path / "report.html", new_model=later())
    assert data_of(done.path)["outcomes"] == [r.outcome.name for r in apas.audit(offers(), later(), base=bank())]
    assert set(done.left_out) == {"radii"}
    # without the certified model nobody knows whether a broken promise lies inside
    apas.save_certificates(offers(), tmp_path / "offers.json")
    done = report_file(tmp_path / "offers.json", tmp_path / "report.html", new_model=later())
    assert set(data_of(done.path)["outcomes"]) <= {"HELD", "BROKEN"}
    assert "layers" in done.left_out


def test_largest_shifts_alone(tmp_path):
    done = report_file(radii(), tmp_path / "report.html", new_model=later())
    data = data_of(done.path)
    assert data["verdicts"] == [""] * 3
    assert [marks["sampled"]["at"] for marks in data["marks"]] == radii().deltas.tolist()
    assert len(data["curves"]["estimate"]) == 3
    assert data["after"] == later().margin(offers().points.to_numpy(), 1).tolist()
    assert "3 of 3 explanations are certified up to a largest shift" in own_text(done.path)


def test_largest_shifts_say_where_they_hold_and_what_is_refuted(tmp_path):
    points = offers().points
    found = {s: apas.max_shift(bank(), points, target=1, search=s, rng=3) for s in ("rays", "confirm")}
    text = {s: own_text(apas.write_report(f, tmp_path / f"{s}.html")) for s, f in found.items()}
    for item in found["rays"]:
        assert f"along the whole way up to delta = {at_most(item.upper)} it is refuted" in text["rays"]
    assert "At a larger size by itself, enough shifts may keep it again" in text["rays"]
    assert "between the sizes that were tested" not in text["rays"]
    assert (
        "3 of 3 explanations are certified at a largest shift of the model, not at every smaller one" in text["confirm"]
    )
    assert "certified up to" not in text["confirm"]
    assert "A draw that loses the class at any of them counts as failed" in text["confirm"]
    assert "refuted" not in text["confirm"]


def test_rows_without_a_largest_shift_are_drawn_at_a_size_that_is_named(tmp_path):
    found = apas.max_shift(bank(), [[1.5, 0.4], [0.1, 0.0]], target=1, rng=0)
    assert found.deltas[1] == 0 < found.deltas[0]
    data = data_of(apas.write_report(found, tmp_path / "report.html"))
    assert data["histograms"]["deltas"] == [found.deltas[0]] * 2
    assert data["marks"][1] == {"tested": None, "sampled": None, "worst": None, "broken": None}
    done = report_file(found[1:], tmp_path / "report.html")
    assert done.left_out["curves"] == done.left_out["histograms"] == "No row is certified at any size of shifts."
    assert "For none of 1 explanations" in own_text(done.path)


@pytest.mark.parametrize(
    "shifts", [apas.LpShifts(2), apas.GaussianShifts(), apas.InputNoise(), apas.LinfShifts(kinds=("bias",))], ids=repr
)
def test_every_set_of_shifts_has_its_page(shifts, tmp_path):
    found = apas.certify(bank(), offers().points, 0.05, target=1, shifts=shifts, rng=0)
    done = report_file(found, tmp_path / "report.html", new_model=later())
    data = data_of(done.path)
    assert set(done.left_out) == {"radii"}
    assert (data["measured"] is not None) == isinstance(shifts, apas.LpShifts)
    survived = "imprecisions" if isinstance(shifts, apas.InputNoise) else "changes of the model"
    assert f"to survive most of the {survived} that were asked about" in own_text(done.path)
    assert found[0].claim.measure in own_text(done.path).replace("&#39;", "'")


def test_a_network_behind_a_preprocessing(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=list(NAMES))
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(table, table.sum(axis=1) > 0)
    found = apas.certify(pipeline, table.head(4), 0.05, target="predicted", rng=0)
    apas.save_certificates(found, tmp_path / "certificates.json")
    network = apas.as_model(pipeline).as_feedforward()
    pages = [
        apas.write_report(tmp_path / "certificates.json", tmp_path / name, model=model)
        for name, model in (("a.html", pipeline), ("b.html", network))
    ]
    first, second = (data_of(page)["curves"] for page in pages)
    assert first == second


def test_a_certificate_that_is_wrong_is_said_loudly(tmp_path):
    proved = apas.certify(bank(), offers().points, 0.01, target=1, method="interval")
    audit = apas.audit(proved, bank(), base=bank())
    content = audit.to_dict()
    content["rows"][0] |= {"outcome": "BROKEN_INSIDE", "valid": False}
    (tmp_path / "audit.json").write_text(json.dumps(content))
    text = own_text(apas.write_report(proved, tmp_path / "report.html", audit=tmp_path / "audit.json"))
    assert "CERTIFICATES THAT CANNOT BE RIGHT: 1." in text
    assert "every shift of the set" in text
    assert "certified to survive every one of the changes of the model" in text


def test_an_audit_of_other_certificates_is_refused(tmp_path):
    """The same applicants, targets and delta, but other rows, or other answers about the same."""
    asked = {"delta": 0.01, "target": 1, "method": "interval"}
    proved = apas.certify(bank(), offers().points, **asked)
    others = apas.certify(bank(), offers().points * 1.001, **asked)
    drawn = apas.certify(bank(), offers().points, 0.01, target=1, rng=0)
    page = tmp_path / "report.html"
    for other in (others, drawn):
        for base in (None, bank()):
            audit = apas.audit(other, later(), base=base, repairs=False)
            (tmp_path / "audit.json").write_text(json.dumps(audit.to_dict()))
            for given in (audit, tmp_path / "audit.json"):
                with pytest.raises(
                    apas.InputError, match="must be about the rows of `certificates`, but it is about others"
                ):
                    apas.write_report(proved, page, audit=given)
    apas.save_certificates(proved, tmp_path / "proved.json")
    audit = apas.audit(proved, later(), base=bank())
    assert data_of(apas.write_report(tmp_path / "proved.json", page, audit=audit))["outcomes"]


def test_a_small_share_is_not_called_most(tmp_path):
    small = apas.certify(bank(), offers().points, 0.01, target=1, method=apas.Sampling(coverage=0.2), rng=0)
    text = own_text(apas.write_report(small, tmp_path / "report.html"))
    assert "to survive a share of the changes" in text
    assert "survive most of" not in text


def test_a_searched_delta_has_no_confidence_of_its_own(tmp_path):
    asked = {"target": 1, "rng": 0, "method": apas.Sampling(coverage=0.9, confidence=0.9)}
    for search, said in (("paper", True), ("rays", False)):
        found = apas.max_shift(bank(), offers().points, search=search, **asked)
        head = own_text(apas.write_report(found, tmp_path / "report.html")).split("</header>")[0]
        assert ("holds for each test of the search, not for its result" in head) == said
        assert ("with confidence 0.9 for each explanation" in head) != said
        rest = own_text(tmp_path / "report.html").split("</header>")[1]
        assert ("certified for most shifts, or proved for all" in rest) != said
        assert ("What certified means" in rest) != said
        assert ("or where the published search ended, which has no confidence of its own" in rest) == said


def test_a_shift_in_other_units_is_not_compared(tmp_path):
    relative = apas.certify(bank(), offers().points, 0.05, target=1, shifts=apas.LinfShifts(relative=True), rng=0)
    path = apas.write_report(relative, tmp_path / "report.html", new_model=later())
    assert data_of(path)["measured"] is None
    assert data_of(path)["layers"]
    assert "cannot be compared" in own_text(path)


def test_another_preprocessing_is_outside_however_small_the_shift(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=list(NAMES))
    classes = table.sum(axis=1) > 0
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(table, classes)
    new = make_pipeline(StandardScaler().fit(table + 5), model[-1])  # not a parameter of it moved
    found = apas.certify(model, table.head(4), 0.05, target="predicted", rng=0)
    audit = apas.audit(found, new, base=model)
    assert [row.inside for row in audit] == [False] * 4
    assert audit.shift.delta == 0
    assert not audit.comparable
    said = "differs from the certified one in more than parameters (preprocessing)"
    assert any(said in note for note in audit.notes)
    (tmp_path / "audit.json").write_text(json.dumps(audit.to_dict()))
    for options in ({"new_model": new}, {"audit": audit}, {"audit": tmp_path / "audit.json"}):
        path = apas.write_report(found, tmp_path / "report.html", **options)
        assert data_of(path)["measured"] is None
        assert said in own_text(path).split("</header>")[0]
    text = own_text(apas.write_report(found, tmp_path / "report.html", new_model=model))
    assert said not in text


def test_deltas_are_written_as_they_were_asked_about(tmp_path):
    found = apas.certify(bank(), offers().points, 0.0123456789, target=1, rng=0)
    assert found.certified.all()
    path = apas.write_report(found, tmp_path / "report.html")
    assert "0.0123457" not in own_text(path)
    assert {marks["sampled"]["text"] for marks in data_of(path)["marks"]} == {"0.0123456789"}


def test_missing_values_are_called_missing(tmp_path):
    table = pd.DataFrame({"income": [1.0, 2.0, 3.0, np.nan], "home": ["own", "rent", "nan", "rent"]})
    columns = ColumnTransformer([("fill", SimpleImputer(), ["income"]), ("code", OneHotEncoder(), ["home"])])
    model = make_pipeline(columns, LogisticRegression()).fit(table, [0, 0, 1, 1])
    found = apas.certify(model, table, 0.01, target="predicted", rng=0)
    text = own_text(apas.write_report(found, tmp_path / "report.html"))
    assert text.count("<b>(missing)</b>") == 1
    assert text.count("<b>nan</b>") == 1  # a word, not a number


def test_listed_models_are_not_sold_as_fresh_draws(tmp_path):
    listed = apas.ObservedShifts([later(move=move) for move in (0.01, 0.02, 0.03)])
    found = apas.certify(bank(), offers().points, 1, target=1, shifts=listed, method="exact")
    done = report_file(found, tmp_path / "report.html")
    assert "there is no size of shifts to vary" in done.left_out["curves"]
    histograms = data_of(done.path)["histograms"]
    assert (histograms["draws"], histograms["listed"]) == (3, True)
    assert "which are those that the certificates are about" in own_text(done.path)
    apas.save_certificates(found, tmp_path / "listed.json")
    done = report_file(tmp_path / "listed.json", tmp_path / "report.html", model=bank())
    assert "only fingerprints" in done.left_out["histograms"]


@pytest.mark.parametrize("where", ["feature", "label", "class", "title", "note"])
def test_hostile_texts_stay_texts(where, tmp_path):
    evil = HOSTILE[0]
    names = HOSTILE if where == "feature" else NAMES
    classes = ("no", evil) if where == "class" else (0, 1)
    model = bank(names, classes=classes)
    table = pd.DataFrame([[1.5, 0.4], [0.9, 0.0]], columns=list(names), index=[evil, "b"] if where == "label" else None)
    found = apas.certify(model, table, 0.05, target=classes[1], rng=0)
    content = apas.audit(found, later(names, classes=classes), base=model).to_dict()
    if where == "note":
        content["notes"] = [evil]
        content["shifts"][found.model_digest]["per_layer"][0]["layer"] = evil
    (tmp_path / "audit.json").write_text(json.dumps(content))
    title = evil if where == "title" else None
    path = apas.write_report(found, tmp_path / "report.html", audit=tmp_path / "audit.json", title=title)
    outline = Outline(path.read_text(encoding="utf-8"))
    assert [tag for tag, _ in outline.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in outline.tags]
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    assert evil in "".join(outline.texts)
    data_of(path)


def test_nothing_is_fetched(whole):
    outline = Outline(whole[0].read_text(encoding="utf-8"))
    assert not [a for _, a in outline.tags if "src" in a or "href" in a or "srcset" in a or "action" in a]
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in outline.tags}
    policy = next(a["content"] for _, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline'" not in policy.split("style-src")[0]
    assert "url(" not in own_text(whole[0])


def test_every_sort_of_verdict_can_be_chosen(tmp_path):
    found = mixed(count=40)
    text = own_text(apas.write_report(found, tmp_path / "report.html"))
    verdicts = {c.verdict.name for c in found}
    assert len(verdicts) > 1
    assert set(re.findall(r"<option>([A-Z]+)</option>", text)) == verdicts


def test_what_was_not_promised_is_counted_apart(tmp_path):
    found, new = mixed(count=12), later(move=0.01)
    rest = apas.audit(found, new, base=bank())[~found.certified]
    assert 0 < sum(row.valid for row in rest) < len(rest)
    text = own_text(apas.write_report(found, tmp_path / "report.html", new_model=new))
    assert f"Of {len(rest)} without a promise, {sum(row.valid for row in rest)} ha" in text
    assert text.count("valid on the later model.") == len(rest)
    assert "promises kept by the later model" in text
    text = own_text(apas.write_report(found[~found.certified], tmp_path / "report.html", new_model=new))
    assert "had no promise to keep" in text
    assert "promises kept by the later model" not in text


def test_many_rows_have_curves_as_far_as_the_work_allows(tmp_path, monkeypatch):
    monkeypatch.setattr("apas.report.subject.WORK", 200_000)
    path = apas.write_report(mixed(count=8), tmp_path / "report.html")
    data = data_of(path)
    drawn = len(data["curves"]["estimate"])
    assert 0 < drawn < 8
    assert len(data["histograms"]["counts"]) == drawn
    assert f"first {drawn} of 8 rows only" in own_text(path)


def test_searches_that_found_nothing_are_counted(tmp_path):
    space = apas.FeatureSpace([apas.Feature("income", low=0, high=1), apas.Feature("savings", low=0, high=0.6)])
    table = pd.DataFrame({"income": [0.6, 0.7], "savings": [0.1, 0.0]})
    found = apas.generate(bank(), table, 0.3, space=space, rng=0, k=2, max_candidates=3)
    assert 0 < found.found.sum() < len(found)
    text = own_text(apas.write_report(found, tmp_path / "report.html"))
    assert f"For {len(found) - found.found.sum()} of the {len(found)} that were asked for nothing was found" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": partial(later)}, "`model` must be the model that the certificates are about"),
        ({"audit": 3}, "`audit` must be what audit returns"),
        ({"max_shifts": 3}, "`max_shifts` must be what max_shift returns"),
        (
            {"max_shifts": partial(lambda: apas.max_shift(bank(), [[2.0, 1.0]], target=1, rng=0))},
            "must be about the same rows",
        ),
        ({"title": 3}, "`title` must be a text"),
        ({"rng": -1}, "`rng` must not be negative"),
        (
            {"audit": partial(lambda: apas.audit(mixed(), later(), repairs=False))},
            "must be about the rows of `certificates`",
        ),
        (
            {"audit": partial(lambda: apas.audit(offers(), later(), repairs=False)), "new_model": partial(bank)},
            "`audit` must be about `new_model`",
        ),
    ],
)
def test_bad_arguments(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        apas.write_report(
            offers(), tmp_path / "report.html", **{name: resolve(value) for name, value in options.items()}
        )
    assert not list(tmp_path.iterdir())


def test_bad_certificates_and_paths(tmp_path):
    with pytest.raises(InputError, match="`certificates` must be what certify"):
        apas.write_report([1], tmp_path / "report.html")
    with pytest.raises(InputError, match="must hold at least one row"):
        apas.write_report(mixed()[:0], tmp_path / "report.html")
    with pytest.raises(InputError, match=r"must end in \.html"):
        apas.write_report(mixed(), tmp_path / "report.json")
    with pytest.raises(InputError, match="there is no folder"):
        apas.write_report(mixed(), tmp_path / "none" / "report.html")
    with pytest.raises(InputError, match="`path` must be the name of a file"):
        apas.write_report(mixed(), 3)
    (tmp_path / "audit.json").write_text('{"format": "apas-audit-report"}')
    with pytest.raises(InputError, match=r"audit\.json is not a usable audit"):
        apas.write_report(mixed(), tmp_path / "report.html", audit=tmp_path / "audit.json")


@pytest.mark.parametrize("module", ["plotly", "jinja2"])
def test_missing_extra(module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r'write_report needs .* pip install "apas\[report\]"'):
        apas.write_report(mixed(), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_margins_that_are_no_numbers_are_counted_apart():
    from apas.report.subject import BARS, _count_bars

    margins = np.array([[1.0, math.nan], [2.0, math.inf], [-1.0, math.nan]])
    found = _count_bars(margins)
    assert np.shape(found["counts"]) == (2, BARS)
    assert np.sum(found["counts"], axis=1).tolist() == [3, 0]
    assert found["unfit"] == [0, 3]
    json.dumps(found, allow_nan=False)


def test_rounding_is_no_change(tmp_path):
    """Files of others, or of before, may hold what was scaled there and back."""
    net = apas.FeedForward([[[1.0], [1.0]]], [[-1.0]], feature_names=("income", "savings"))
    found = apas.certify(net, [[2.0, np.nextafter(0.3, 1)]], 0.01, target=1, method="interval")
    found.inputs = np.array([[0.1, 0.3]])
    apas.save_certificates(found, tmp_path / "c.json")
    apas.write_report(tmp_path / "c.json", tmp_path / "r.html")
    text = " ".join(" ".join(Outline(own_text(tmp_path / "r.html")).texts).split())
    assert "income 0.1 → 2" in text
    assert "savings" not in text
