"""Array types, by what they hold: one name each, for every signature of the package."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
