"""`PromiseEvaluator`: an evaluator for MLflow that audits promises against a model that is to be promoted."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from apas._atomic import write_text
from apas._lazy import require
from apas.contracts.audit import AuditReport, Outcome, audit
from apas.contracts.ledger import Ledger
from apas.counterfactuals.space.space import FeatureSpace
from apas.errors import InputError, Unsupported
from apas.models.base import as_model
from apas.models.predictor import Predictor
from apas.report.api import write_report
from apas.shifts.distance import read_model

#: How every SQLite file begins, and so every ledger that is a file.
_SQLITE = b"SQLite format 3\0"
_OPTIONS = ("promises", "base", "space", "validity_only", "repairs", "record", "strict", "classes", "output")


class PromiseEvaluator:
    """Ask a candidate whether it keeps what was promised; ``mlflow.models.evaluate(..., evaluators="apas")``.

    MLflow finds it by its entry point. Its `evaluator_config` has ``promises``, the name of a certificate file or of a
    ledger (or its address), and what `audit` takes: ``base``, ``space`` (also the name of a TOML file),
    ``validity_only``, ``repairs``, and for ledgers ``record`` (False unless given: a candidate may never be used) and
    ``strict``. A model of which MLflow gives nothing but predictions needs ``classes``, and in ``output`` what it
    predicts ("class" unless given).

    It logs the metrics ``promises_held``, ``promises_broken``, ``promises_broken_inside``, ``promises_broken_outside``,
    ``promises_open`` (of regions), ``promises_not_promised`` and ``promises_expired`` (counts), and as artifacts the
    audit as JSON, JUnit XML and Markdown; of a certificate file also the page of `write_report`. Thresholds are
    MLflow's own (``mlflow.validate_evaluation_results``).
    """

    name: ClassVar[str] = "apas"

    @classmethod
    def can_evaluate(cls, *, model_type: str | None, evaluator_config: Mapping[str, Any] | None, **_: Any) -> bool:
        """Whether promises were named; others who evaluate a model with all evaluators are not disturbed."""
        return "promises" in (evaluator_config or {})

    def evaluate(
        self,
        *,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None,
        model: Any = None,
        dataset: Any = None,
        **_: Any,
    ) -> Any:
        """Audit, log metrics and artifacts to the run, and return MLflow's `EvaluationResult`."""
        parts = ("mlflow", "mlflow.models.evaluation.base", "mlflow.models.evaluation.artifacts")
        mlflow, base, artifacts = (require(part, feature="the gate for MLflow", extra="mlflow") for part in parts)
        config = dict(evaluator_config or {})
        for name in config:
            if name not in _OPTIONS:
                raise InputError(f"`evaluator_config` of apas must hold {', '.join(_OPTIONS)}, got {name!r}.")
        if "promises" not in config:
            raise InputError('`evaluator_config` of apas must name a certificate file or a ledger as "promises".')
        names = getattr(dataset, "feature_names", None)  # a function has no columns of its own
        new = candidate(model, config.pop("classes", None), config.pop("output", "class"), names)
        report, files = _audited(config, new)
        metrics = {f"promises_{kind.name.lower()}": sum(row.outcome is kind for row in report) for kind in Outcome}
        metrics |= {"promises_broken": int(report.broken.sum()), "promises_expired": report.expired or 0}
        client = mlflow.MlflowClient()
        kept = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, write in files.items():
                write(Path(folder, name))
                client.log_artifact(run_id, str(Path(folder, name)), "apas")
                kind = artifacts.JsonEvaluationArtifact if name.endswith(".json") else artifacts.TextEvaluationArtifact
                uri = mlflow.get_run(run_id).info.artifact_uri + f"/apas/{name}"
                kept[f"apas/{name}"] = kind(uri=uri)
                kept[f"apas/{name}"]._load(str(Path(folder, name)))
        for name, value in metrics.items():
            client.log_metric(run_id, name, value)
        return base.EvaluationResult(metrics=metrics, artifacts=kept)


def candidate(model: Any, classes: Any, output: str, names: Sequence[str] | None = None) -> Any:
    """What MLflow hands over as a model of ours: the model inside if apas knows its kind, else its predictions."""
    if model is None:
        raise InputError("`model` must be given to mlflow.models.evaluate: apas asks it about the promised rows.")
    raw = getattr(model, "get_raw_model", None)
    try:
        inside = raw() if callable(raw) else model
    except Exception:  # noqa: BLE001 (flavours answer as they like; then the predictions are asked)
        inside = model
    try:
        return as_model(inside)
    except (InputError, Unsupported) as error:
        if classes is None:
            raise InputError(
                f"`model` is not of a kind that apas knows ({str(error).rstrip('.')}); "
                'name its classes as "classes" in `evaluator_config`, so that its predictions are asked.'
            ) from None
    schema = getattr(getattr(model, "metadata", None), "get_input_schema", lambda: None)()  # of the model's signature
    own = list(schema.input_names()) if schema is not None and schema.has_input_names() else names
    return Predictor(getattr(model, "predict", model), output=output, classes=classes, feature_names=own)


def _audited(config: dict[str, Any], new: Any) -> tuple[AuditReport, dict[str, Any]]:
    """The report, and how each of its files is written."""
    promises = config.pop("promises")
    if not isinstance(promises, str | os.PathLike):
        raise InputError(f'"promises" in `evaluator_config` must be the name of a file, got {promises!r}.')
    for name, read in (("space", FeatureSpace.from_toml), ("base", lambda path: read_model(path, "`base`"))):
        if isinstance(config.get(name), str | os.PathLike):
            config[name] = read(config[name])
    try:
        ledger = "://" in str(promises)  # the address of a database, which may hold a password
        if not ledger:
            with open(promises, "rb") as file:
                ledger = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise InputError(
            f'"promises" in `evaluator_config` must be a certificate file or a ledger that can be read, '
            f"got {promises!s} ({error.strerror})."
        ) from None
    if ledger:
        with Ledger(promises, create=False) as opened:
            report = opened.audit(new, **{"record": False, **config})
    else:
        for name in ("record", "strict"):
            if name in config:
                raise InputError(f'"{name}" in `evaluator_config` is for ledgers; leave it out for {promises}.')
        report = audit(promises, new, **config)
    files: dict[str, Any] = {
        "audit.json": lambda path: write_text(path, json.dumps(report.to_dict(), indent=2)),
        "audit.xml": lambda path: write_text(path, report.to_junit()),
        "audit.md": lambda path: write_text(path, report.to_markdown()),
    }
    if not ledger:
        files["report.html"] = lambda path: write_report(promises, path, audit=report)
    return report, files
