"""Certify that counterfactual explanations survive a change of the model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from apas.certify.certificate import Certificate as Certificate
from apas.certify.certificates import Certificates as Certificates
from apas.certify.claims import Every as Every
from apas.certify.claims import Most as Most
from apas.certify.claims import Verdict as Verdict
from apas.certify.entry import certify as certify
from apas.certify.sampling import Sampling as Sampling
from apas.errors import ApasError as ApasError
from apas.errors import GuaranteeWarning as GuaranteeWarning
from apas.errors import InputError as InputError
from apas.errors import MissingExtra as MissingExtra
from apas.errors import UnsafeFile as UnsafeFile
from apas.errors import Unsupported as Unsupported
from apas.models.convert import as_model as as_model
from apas.models.feedforward import FeedForward as FeedForward
from apas.models.files import load_model as load_model
from apas.models.files import save_model as save_model
from apas.models.parameters import Parameters as Parameters
from apas.models.protocol import Model as Model
from apas.shifts.linf import LinfShifts as LinfShifts
from apas.shifts.protocol import ShiftSet as ShiftSet
from apas.stats.wilks import allowed_failures as allowed_failures
from apas.stats.wilks import sample_size as sample_size

if TYPE_CHECKING:
    from apas import datasets as datasets
    from apas import stats as stats

__version__ = "0.1.0"

__all__ = [
    "ApasError", "Certificate", "Certificates", "Every", "FeedForward", "GuaranteeWarning", "InputError", "LinfShifts",
    "MissingExtra", "Model", "Most", "Parameters", "Sampling", "ShiftSet", "UnsafeFile", "Unsupported", "Verdict",
    "allowed_failures", "as_model", "certify", "datasets", "load_model", "sample_size", "save_model", "stats",
]  # fmt: skip

_ON_FIRST_USE = ("datasets", "stats")


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return import_module(f"apas.{name}")
    raise AttributeError(f"module 'apas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE})
