"""The evaluator for MLflow, with a real MLflow and an SQLite tracking store."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import library
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import apas
from apas.report.mlflow_gate import PromiseEvaluator

pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # MLflow's own, about other libraries and its own schemas
FEATURES = list(apas.datasets.NUMERIC)


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing leaves this machine
    patch.setenv("DO_NOT_TRACK", "true")
    found = library("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    patch.chdir(folder)
    found.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry

    if not _model_evaluation_registry.is_registered("apas"):  # a checkout that was not installed anew
        _model_evaluation_registry.register("apas", PromiseEvaluator)
    yield found
    patch.undo()


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """A table, the certified model, its promises in a file and in a ledger, a good successor and a bad one."""
    folder = tmp_path_factory.mktemp("bank")
    loans = apas.datasets.make_loans(1000, rng=0)
    X, y = loans[FEATURES], loans["approved"]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    rejected = X[model.predict(X) == 0]
    certificates = apas.certify(model, rejected.assign(income=3 * rejected["income"]).head(12), 0.1, target=1, rng=0)
    apas.save_certificates(certificates, folder / "promises.json")
    with apas.Ledger(folder / "ledger.db") as ledger:
        ledger.add(certificates, [f"A-{i}" for i in range(12)])
    bad = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, 1 - y)
    return folder, loans[[*FEATURES, "approved"]], model, bad, certificates


def evaluate(mlflow, model, table, **config):
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(model, name="candidate")
        return mlflow.models.evaluate(
            logged.model_uri,
            table,
            targets="approved",
            model_type="classifier",
            evaluators="apas",
            evaluator_config=config,
        )


def test_installing_registers_it():
    found = {entry.name: entry.value for entry in entry_points(group="mlflow.model_evaluator")}
    if not found:
        pytest.skip("this checkout was not installed since the entry point came: make test")
    assert found["apas"] == "apas.report.mlflow_gate:PromiseEvaluator"


def test_a_bad_model_is_blocked_by_mlflows_own_validation(mlflow, bank):
    from mlflow.models import MetricThreshold
    from mlflow.models.evaluation.validation import ModelValidationFailedException

    folder, table, model, bad, certificates = bank
    none_broken = {"promises_broken": MetricThreshold(threshold=0, greater_is_better=False)}
    certified = int(certificates.certified.sum())
    kept = evaluate(mlflow, model, table, promises=str(folder / "promises.json"), base=model)
    assert kept.metrics["promises_held"] == certified > 0
    assert kept.metrics["promises_not_promised"] == 12 - certified
    mlflow.validate_evaluation_results(validation_thresholds=none_broken, candidate_result=kept)
    broken = evaluate(mlflow, bad, table, promises=str(folder / "promises.json"), base=model, repairs=False)
    assert broken.metrics["promises_broken"] == broken.metrics["promises_broken_outside"] == certified
    assert broken.metrics["promises_held"] == 0
    with pytest.raises(ModelValidationFailedException, match="promises_broken"):
        mlflow.validate_evaluation_results(validation_thresholds=none_broken, candidate_result=broken)


def test_artifacts_are_those_of_the_audit(mlflow, bank):
    folder, table, model, bad, _ = bank
    found = evaluate(mlflow, bad, table, promises=str(folder / "promises.json"), base=model, repairs=False)
    report = apas.audit(folder / "promises.json", bad, base=model, repairs=False)
    assert set(found.artifacts) == {"apas/audit.json", "apas/audit.xml", "apas/audit.md", "apas/report.html"}
    assert found.artifacts["apas/audit.json"].content == json.loads(json.dumps(report.to_dict()))
    suite = ElementTree.fromstring(found.artifacts["apas/audit.xml"].content)
    assert len(suite.findall(".//failure")) == int(report.broken.sum())
    run_id = mlflow.search_runs(output_format="list")[0].info.run_id
    stored = {item.path for item in mlflow.MlflowClient().list_artifacts(run_id, "apas")}
    assert stored == set(found.artifacts)
    assert mlflow.get_run(run_id).data.metrics["promises_broken"] == int(report.broken.sum())


def test_a_ledger_is_asked_without_leaving_a_trace(mlflow, bank):
    folder, table, _, bad, certificates = bank
    found = evaluate(mlflow, bad, table, promises=str(folder / "ledger.db"), repairs=False)
    assert found.metrics["promises_broken"] == int(certificates.certified.sum())
    with apas.Ledger(folder / "ledger.db") as ledger:
        assert set(ledger.to_frame()["state"]) == {"open"}
    evaluate(mlflow, bad, table, promises=str(folder / "ledger.db"), repairs=False, record=True)
    with apas.Ledger(folder / "ledger.db") as ledger:
        assert set(ledger.to_frame()["state"]) == {"broken"}


def test_a_function_is_asked_through_its_predictions(mlflow, bank):
    folder, table, model, _, certificates = bank

    def predict(rows):
        return np.asarray(model.predict(rows[FEATURES]))

    with mlflow.start_run():
        ask = {"targets": "approved", "model_type": "classifier", "evaluators": "apas"}
        config = {"promises": str(folder / "promises.json"), "classes": [0, 1]}
        found = mlflow.models.evaluate(predict, table, **ask, evaluator_config=config)
    assert found.metrics["promises_held"] == int(certificates.certified.sum())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"promise": "x"}, "`evaluator_config` of apas must hold promises, base, .*got 'promise'"),
        ({}, 'must name a certificate file or a ledger as "promises"'),
        ({"promises": "nowhere.json"}, "must be a certificate file or a ledger that can be read, got nowhere.json"),
        ({"promises": 3}, "must be the name of a file, got 3"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(mlflow, bank, config, said):
    _, _, model, _, _ = bank
    with pytest.raises(apas.InputError, match=said):
        PromiseEvaluator().evaluate(run_id="none", evaluator_config=config, model=model)


def test_others_are_not_disturbed():
    assert not PromiseEvaluator.can_evaluate(model_type="classifier", evaluator_config={})
    assert PromiseEvaluator.can_evaluate(model_type="classifier", evaluator_config={"promises": "x"})
