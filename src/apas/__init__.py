"""Certify that counterfactual explanations survive a change of the model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apas import datasets as datasets
    from apas import experiments as experiments
    from apas import metrics as metrics
    from apas import stats as stats
    from apas import theory as theory
    from apas.certify.attack import Attack as Attack
    from apas.certify.cascade import Cascade as Cascade
    from apas.certify.certificate import Certificate as Certificate
    from apas.certify.certificates import Certificates as Certificates
    from apas.certify.claims import Every as Every
    from apas.certify.claims import Most as Most
    from apas.certify.claims import Verdict as Verdict
    from apas.certify.curves import FractionCurve as FractionCurve
    from apas.certify.curves import FractionCurves as FractionCurves
    from apas.certify.entry import certify as certify
    from apas.certify.enumeration import Enumeration as Enumeration
    from apas.certify.exact import Exact as Exact
    from apas.certify.fraction import robust_fraction as robust_fraction
    from apas.certify.interval import IntervalBounds as IntervalBounds
    from apas.certify.interval import LinearBounds as LinearBounds
    from apas.certify.maxshifts import MaxShift as MaxShift
    from apas.certify.maxshifts import MaxShifts as MaxShifts
    from apas.certify.outputranges import OutputRange as OutputRange
    from apas.certify.outputranges import OutputRanges as OutputRanges
    from apas.certify.outputs import output_range as output_range
    from apas.certify.radius import max_shift as max_shift
    from apas.certify.sampling import Sampling as Sampling
    from apas.contracts.audit import audit as audit
    from apas.contracts.auditreport import AuditReport as AuditReport
    from apas.contracts.ledger import Ledger as Ledger
    from apas.contracts.report import VerifyReport as VerifyReport
    from apas.contracts.storage import load_certificates as load_certificates
    from apas.contracts.storage import save_certificates as save_certificates
    from apas.contracts.verify import verify as verify
    from apas.counterfactuals.entry import generate as generate
    from apas.counterfactuals.feature import Feature as Feature
    from apas.counterfactuals.given import Given as Given
    from apas.counterfactuals.milp import MilpSource as MilpSource
    from apas.counterfactuals.neighbours import NearestNeighbours as NearestNeighbours
    from apas.counterfactuals.prototype import Prototype as Prototype
    from apas.counterfactuals.result import Counterfactual as Counterfactual
    from apas.counterfactuals.result import Counterfactuals as Counterfactuals
    from apas.counterfactuals.result import Status as Status
    from apas.counterfactuals.roar import Roar as Roar
    from apas.counterfactuals.robust_optimum import RobustOptimum as RobustOptimum
    from apas.counterfactuals.source import Candidate as Candidate
    from apas.counterfactuals.source import CandidateSource as CandidateSource
    from apas.counterfactuals.space import FeatureSpace as FeatureSpace
    from apas.counterfactuals.wachter import Wachter as Wachter
    from apas.display.references import citation as citation
    from apas.errors import ApasError as ApasError
    from apas.errors import GuaranteeWarning as GuaranteeWarning
    from apas.errors import InputError as InputError
    from apas.errors import MissingExtra as MissingExtra
    from apas.errors import UnsafeFile as UnsafeFile
    from apas.errors import Unsupported as Unsupported
    from apas.metrics.entry import evaluate as evaluate
    from apas.metrics.table import Evaluation as Evaluation
    from apas.models.convert import as_model as as_model
    from apas.models.feedforward import FeedForward as FeedForward
    from apas.models.files import load_model as load_model
    from apas.models.files import save_model as save_model
    from apas.models.parameters import Parameters as Parameters
    from apas.models.protocol import Model as Model
    from apas.report.entry import write_report as write_report
    from apas.shifts.gaussian import GaussianShifts as GaussianShifts
    from apas.shifts.linf import LinfShifts as LinfShifts
    from apas.shifts.lp import LpShifts as LpShifts
    from apas.shifts.measure import ShiftReport as ShiftReport
    from apas.shifts.measure import measure_shift as measure_shift
    from apas.shifts.noise import InputNoise as InputNoise
    from apas.shifts.observed import ObservedShifts as ObservedShifts
    from apas.shifts.protocol import ShiftSet as ShiftSet
    from apas.shifts.refit import RetrainedModels as RetrainedModels
    from apas.shifts.refit import retrain as retrain
    from apas.shifts.retraining import estimate_delta as estimate_delta
    from apas.stats.wilks import allowed_failures as allowed_failures
    from apas.stats.wilks import sample_size as sample_size

__version__ = "0.1.0"

__all__ = [
    "ApasError", "Attack", "AuditReport", "Candidate", "CandidateSource", "Cascade", "Certificate", "Certificates",
    "Counterfactual", "Counterfactuals", "Enumeration", "Evaluation", "Every", "Exact", "Feature", "FeatureSpace",
    "FeedForward", "FractionCurve", "FractionCurves", "GaussianShifts", "Given", "GuaranteeWarning", "InputError",
    "InputNoise", "IntervalBounds", "Ledger", "LinearBounds", "LinfShifts", "LpShifts", "MaxShift", "MaxShifts",
    "MilpSource", "MissingExtra", "Model", "Most", "NearestNeighbours", "ObservedShifts", "OutputRange", "OutputRanges",
    "Parameters", "Prototype", "RetrainedModels", "Roar", "RobustOptimum", "Sampling", "ShiftReport", "ShiftSet",
    "Status", "UnsafeFile", "Unsupported", "Verdict", "VerifyReport", "Wachter", "allowed_failures", "as_model",
    "audit", "certify", "citation", "datasets", "estimate_delta", "evaluate", "experiments", "generate",
    "load_certificates", "load_model", "max_shift", "measure_shift", "metrics", "output_range", "retrain",
    "robust_fraction", "sample_size", "save_certificates", "save_model", "stats", "theory", "verify", "write_report",
]  # fmt: skip

#: Which module defines each name. It is imported when the name is first used, so that `import apas` and `apas --help`
#: wait for nothing; the imports above say the same to type checkers, and a test compares the two.
_DEFINED_IN = {
    "certify.attack": "Attack",
    "certify.cascade": "Cascade",
    "certify.certificate": "Certificate",
    "certify.certificates": "Certificates",
    "certify.claims": "Every Most Verdict",
    "certify.curves": "FractionCurve FractionCurves",
    "certify.entry": "certify",
    "certify.enumeration": "Enumeration",
    "certify.exact": "Exact",
    "certify.fraction": "robust_fraction",
    "certify.interval": "IntervalBounds LinearBounds",
    "certify.maxshifts": "MaxShift MaxShifts",
    "certify.outputranges": "OutputRange OutputRanges",
    "certify.outputs": "output_range",
    "certify.radius": "max_shift",
    "certify.sampling": "Sampling",
    "contracts.audit": "audit",
    "contracts.auditreport": "AuditReport",
    "contracts.ledger": "Ledger",
    "contracts.report": "VerifyReport",
    "contracts.storage": "load_certificates save_certificates",
    "contracts.verify": "verify",
    "counterfactuals.entry": "generate",
    "counterfactuals.feature": "Feature",
    "counterfactuals.given": "Given",
    "counterfactuals.milp": "MilpSource",
    "counterfactuals.neighbours": "NearestNeighbours",
    "counterfactuals.prototype": "Prototype",
    "counterfactuals.result": "Counterfactual Counterfactuals Status",
    "counterfactuals.roar": "Roar",
    "counterfactuals.robust_optimum": "RobustOptimum",
    "counterfactuals.source": "Candidate CandidateSource",
    "counterfactuals.space": "FeatureSpace",
    "counterfactuals.wachter": "Wachter",
    "display.references": "citation",
    "errors": "ApasError GuaranteeWarning InputError MissingExtra UnsafeFile Unsupported",
    "metrics.entry": "evaluate",
    "metrics.table": "Evaluation",
    "models.convert": "as_model",
    "models.feedforward": "FeedForward",
    "models.files": "load_model save_model",
    "models.parameters": "Parameters",
    "models.protocol": "Model",
    "report.entry": "write_report",
    "shifts.gaussian": "GaussianShifts",
    "shifts.linf": "LinfShifts",
    "shifts.lp": "LpShifts",
    "shifts.measure": "ShiftReport measure_shift",
    "shifts.noise": "InputNoise",
    "shifts.observed": "ObservedShifts",
    "shifts.protocol": "ShiftSet",
    "shifts.refit": "RetrainedModels retrain",
    "shifts.retraining": "estimate_delta",
    "stats.wilks": "allowed_failures sample_size",
}
_PLACES = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}
_ON_FIRST_USE = ("datasets", "experiments", "metrics", "stats", "theory")

# The verb is called like the package it lives in. Importing the package puts it here under that name, once and for all:
# so do that now, while it costs nothing, and make room for the verb.
import_module("apas.certify")
del globals()["certify"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = globals()[name] = getattr(import_module(f"apas.{_PLACES[name]}"), name)
        return found
    if name in _ON_FIRST_USE:
        return import_module(f"apas.{name}")
    raise AttributeError(f"module 'apas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_ON_FIRST_USE})
