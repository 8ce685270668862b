from apas import datasets as datasets, experiments as experiments, metrics as metrics, stats as stats, theory as theory
from apas.certification.api import (
    FractionCurve as FractionCurve,
    FractionCurves as FractionCurves,
    OutputRange as OutputRange,
    OutputRanges as OutputRanges,
    certify as certify,
    output_range as output_range,
    robust_fraction as robust_fraction,
)
from apas.certification.calibration import (
    Calibration as Calibration,
    NextUpdate as NextUpdate,
    calibrate_delta as calibrate_delta,
)
from apas.certification.certificate import Certificate as Certificate
from apas.certification.claims import Every as Every, Most as Most, Verdict as Verdict
from apas.certification.derived_seed import DerivedSeed as DerivedSeed
from apas.certification.interval_network import IntervalNetwork as IntervalNetwork
from apas.certification.max_shift.api import max_shift as max_shift
from apas.certification.max_shift.result import MaxShift as MaxShift, MaxShifts as MaxShifts
from apas.certification.methods.attack import Attack as Attack
from apas.certification.methods.bounds import (
    Exact as Exact,
    IntervalBounds as IntervalBounds,
    LinearBounds as LinearBounds,
)
from apas.certification.methods.cascade import Cascade as Cascade
from apas.certification.methods.enumeration import Enumeration as Enumeration
from apas.certification.methods.refit import RefitBounds as RefitBounds
from apas.certification.methods.sampling import Sampling as Sampling
from apas.certification.region import Region as Region, RowRegion as RowRegion
from apas.certification.results import Certificates as Certificates
from apas.contracts.audit import AuditReport as AuditReport, audit as audit
from apas.contracts.certificate_file import (
    load_certificates as load_certificates,
    save_certificates as save_certificates,
)
from apas.contracts.ledger import Ledger as Ledger
from apas.contracts.verify import VerifyReport as VerifyReport, verify as verify
from apas.counterfactuals.api import calibrate_offers as calibrate_offers, generate as generate
from apas.counterfactuals.menu import Menu as Menu, MenuItem as MenuItem, MenuStatus as MenuStatus, menu as menu
from apas.counterfactuals.result import (
    Counterfactual as Counterfactual,
    Counterfactuals as Counterfactuals,
    Status as Status,
)
from apas.counterfactuals.sources.base import Candidate as Candidate, CandidateSource as CandidateSource
from apas.counterfactuals.sources.cutting_planes import CuttingPlanes as CuttingPlanes
from apas.counterfactuals.sources.given import Given as Given
from apas.counterfactuals.sources.milp.source import MilpSource as MilpSource
from apas.counterfactuals.sources.neighbours import NearestNeighbours as NearestNeighbours
from apas.counterfactuals.sources.prototype import Prototype as Prototype
from apas.counterfactuals.sources.roar import Roar as Roar
from apas.counterfactuals.sources.robust_optimum import RobustOptimum as RobustOptimum
from apas.counterfactuals.sources.wachter import Wachter as Wachter
from apas.counterfactuals.space.feature import Feature as Feature
from apas.counterfactuals.space.space import FeatureSpace as FeatureSpace
from apas.display.citations import citation as citation
from apas.errors import (
    ApasError as ApasError,
    GuaranteeWarning as GuaranteeWarning,
    InputError as InputError,
    MissingExtra as MissingExtra,
    UnsafeFile as UnsafeFile,
    Unsupported as Unsupported,
)
from apas.metrics.api import Evaluation as Evaluation, evaluate as evaluate
from apas.models.base import Model as Model, Parameters as Parameters, as_model as as_model
from apas.models.feedforward import FeedForward as FeedForward
from apas.models.files.formats import load_model as load_model, save_model as save_model
from apas.models.parametric import ParametricModel as ParametricModel
from apas.models.predictor import Predictor as Predictor
from apas.report.api import write_report as write_report
from apas.report.letter import write_letter as write_letter
from apas.shifts.balls import EllipsoidShifts as EllipsoidShifts, GaussianShifts as GaussianShifts, LpShifts as LpShifts
from apas.shifts.base import ShiftSet as ShiftSet
from apas.shifts.data_change import DataChange as DataChange, RefitReport as RefitReport
from apas.shifts.distance import (
    ShiftReport as ShiftReport,
    estimate_delta as estimate_delta,
    measure_shift as measure_shift,
)
from apas.shifts.linf import LinfShifts as LinfShifts, SparseShifts as SparseShifts
from apas.shifts.noise import InputNoise as InputNoise, JointShifts as JointShifts
from apas.shifts.observed import ObservedShifts as ObservedShifts
from apas.shifts.retraining import RetrainedModels as RetrainedModels, retrain as retrain
from apas.stats.binomial import allowed_failures as allowed_failures, sample_size as sample_size

__version__: str
