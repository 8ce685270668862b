"""Ways to decide a claim, and the short names that users give them."""

from typing import Any

from apas.certification.methods.attack import Attack
from apas.certification.methods.bounds import Exact, IntervalBounds, LinearBounds
from apas.certification.methods.cascade import Cascade
from apas.certification.methods.enumeration import Enumeration
from apas.certification.methods.refit import RefitBounds
from apas.certification.methods.sampling import Sampling

METHODS: dict[str, type[Any]] = {
    kind.name: kind
    for kind in (Sampling, IntervalBounds, LinearBounds, Attack, Exact, Enumeration, Cascade, RefitBounds)
}
