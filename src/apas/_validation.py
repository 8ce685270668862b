"""Checks at the door: public functions turn what they got into what they need, once, and name what they refuse."""

import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from apas._sanitise import shown
from apas._typing import Array, Floats
from apas.errors import InputError

_Limit: TypeAlias = float | None


def is_frame(X: object) -> bool:
    """Whether `X` is a pandas data frame, without importing pandas."""
    return type(X).__name__ == "DataFrame" and type(X).__module__.split(".")[0] == "pandas"


def read_only(values: Any, dtype: Any = np.float64) -> Any:
    """A copy of numbers as an array that nobody can change."""
    array = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


def is_path(value: object) -> bool:
    """Whether `value` is the name of a file rather than what is in it."""
    return isinstance(value, str | bytes) or hasattr(value, "__fspath__")


def _refusal(name: str, owner: str, wanted: str, got: str) -> InputError:
    return InputError(f"`{name}` of {owner} must be {wanted}, got {got}.")


def check_probability(value: Any, name: str, owner: str) -> float:
    """Give `value` as a float in the open interval (0, 1)."""
    try:
        number = np.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not 0.0 < number < 1.0:
        raise _refusal(name, owner, "a number strictly between 0 and 1", reprlib.repr(value))
    return number


def check_integer(value: Any, name: str, owner: str, *, least: int, below: int | None = None) -> int:
    """Give `value` as an int that is at least `least`, and below a power of 2 if one is given."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (below is not None and value >= below):
        limit = "" if below is None else f" and below 2**{below.bit_length() - 1}"
        raise _refusal(name, owner, f"an integer of at least {least}{limit}", shown(value))
    return int(value)


def check_number(
    value: Any, name: str, owner: str, *, above: _Limit = None, least: _Limit = None, most: _Limit = None
) -> float:
    """Give `value` as a finite float within limits."""
    limits = [(above, "above"), (least, "of at least"), (most, "at most")]
    said = " and ".join(f"{word} {limit:g}" for limit, word in limits if limit is not None)
    try:
        fine = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and np.isfinite(float(value))
    except OverflowError:  # a whole number of hundreds of digits
        fine = False
    fine = fine and (above is None or value > above) and (least is None or value >= least)
    if not fine or (most is not None and value > most):
        raise _refusal(name, owner, f"a number {said}", shown(value))
    return float(value)


def check_names(names: Any, count: int | None = None) -> tuple[str, ...] | None:
    """Give `feature_names` as different texts, `count` of them if it is known how many."""
    if names is None:
        return None
    listed = tuple(map(str, names)) if isinstance(names, Sequence | np.ndarray) or hasattr(names, "tolist") else ()
    if isinstance(names, str) or not listed or len(set(listed)) != len(listed) or count not in (None, len(listed)):
        got = repr(names) if not listed or isinstance(names, str) else f"{len(listed)}: {list(listed)[:5]}"
        many = "" if count is None else f"{count} "
        raise InputError(f"`feature_names` must hold {many}different names, one per column, got {got}.")
    return listed


def check_jobs(n_jobs: Any) -> int:
    """Give `n_jobs` as joblib wants it: a positive number of workers, or a negative one counted from all cores."""
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        wanted = "a positive number of workers, or -1 for all cores"
        raise InputError(f"`n_jobs` must be {wanted}, got {n_jobs!r}; use n_jobs=1 for one.")
    return int(n_jobs)


def check_flag(value: Any, name: str) -> None:
    """Refuse what only looks like a yes or no."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"`{name}` must be True or False, got {reprlib.repr(value)}.")


def check_texts(value: Any, name: str) -> list[str]:
    """Give one text, or several, as a list of texts that are not empty."""
    texts = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"`{name}` must be texts that are not empty, got {reprlib.repr(text)}.")
    return texts


def check_delta(delta: Any, rows: int) -> Floats:
    """Give `delta` as one positive number per row."""
    try:
        given = np.asarray(delta)
        if given.dtype == object and all(isinstance(v, Real | Decimal) for v in given.ravel()):
            given = given.astype(np.float64)
    except (ValueError, OverflowError):
        given = np.array(None)
    if given.dtype.kind not in "iuf" or given.ndim > 1:
        what = reprlib.repr(getattr(delta, "tolist", lambda: delta)())
        what = what if given.ndim < 2 else f"an array of shape {given.shape}"
        raise InputError(f"`delta` must be a positive number, or one per row, got {what}.")
    values = given.astype(np.float64)
    if values.ndim == 1 and len(values) != rows:
        advice = "pass a single number to use it for all rows"
        raise InputError(f"`delta` must be one number or one per row ({rows}), got {len(values)}; {advice}.")
    if (bad := ~((values > 0) & np.isfinite(values))).any():
        first = float(values.flat[int(np.argmax(bad))])
        raise InputError(f"`delta` must be positive and finite, got {first!r}; it is how far the parameters may move.")
    return np.full(rows, values) if values.ndim == 0 else values


def check_matrix(X: Any, n_features: int, feature_names: Sequence[str] | None) -> Any:
    """Check the shape and the column names of `X`."""
    if is_path(X):
        raise InputError(f"`X` must hold rows, got the path {str(X)!r}; read it first, e.g. with pandas.read_csv.")
    if is_frame(X):
        return _check_columns(X, n_features, feature_names)
    if hasattr(X, "toarray"):  # a sparse matrix
        X = X.toarray()
    if np.ma.is_masked(X):  # what is hidden under the mask is not a number to go by
        X = np.ma.filled(X.astype(np.float64), np.nan)
    try:
        array = np.asarray(X.detach().cpu() if hasattr(X, "detach") else X)
    except ValueError:
        raise InputError("`X` must be a 2-D array with rows of equal length, got rows of different lengths.") from None
    if array.ndim == 1 and not len(array):
        return np.empty((0, n_features))
    if array.ndim != 2:
        alone = f"a 1-D array of {array.size} values; for one row pass x[None, :]"
        got = alone if array.ndim == 1 else f"{array.ndim} dimensions"
        raise InputError(f"`X` must be 2-D (rows, features), got {got}.")
    _check_width(array.shape[1], n_features)
    return array


def _check_width(columns: int, n_features: int) -> None:
    if columns != n_features and n_features:  # a function does not know before it has seen rows
        raise InputError(f"`X` must have {n_features} columns, as the model has features, got {columns}.")


def _check_columns(frame: Any, n_features: int, names: Sequence[str] | None) -> Any:
    columns = list(frame.columns)
    doubled = sorted(str(c) for c, count in Counter(columns).items() if count > 1)
    if doubled:
        got = f"got {_quote(doubled)} more than once"
        raise InputError(f"`X` must have each column once, {got}; drop or rename the copies.")
    if names is None:
        _check_width(len(columns), n_features)
        return frame
    had, wanted = set(columns), set(names)
    missing, extra = [c for c in names if c not in had], [c for c in columns if c not in wanted]
    if missing or extra:
        parts = [f"lacks {_quote(missing)}"] * bool(missing) + [f"has {_quote(extra)} besides"] * bool(extra)
        what, hint = f"`X` must have exactly the model's columns, but it {' and '.join(parts)}", ""
        if extra and str(extra[0]).startswith("Unnamed:"):
            what += " (that looks like a saved index: read the file with index_col=0)"
        elif not missing:
            hint = "; what only names the rows belongs into the index (index_col of pandas.read_csv)"
        raise InputError(f"{what}; give exactly these columns: {_quote(names)}{hint}.")
    return frame if columns == list(names) else frame[list(names)]


def _quote(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(str(n)) for n in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def check_numbers(X: Any, feature_names: Sequence[str] | None = None) -> Floats:
    """Give a checked `X` as a finite float64 matrix, or name the first cell that is not a number."""
    names = [str(c) for c in X.columns] if is_frame(X) else feature_names
    values = _values(X) if is_frame(X) else np.asarray(X)
    if np.iscomplexobj(values) or values.dtype.kind in "mM":
        complaint = "real numbers, got complex ones" if values.dtype.kind == "c" else "numbers, got dates or times"
        raise InputError(f"`X` must hold {complaint}; encode them as numbers.")
    cells = values.astype(object) if values.dtype.kind not in "biuf" else np.empty((0, 0), dtype=object)
    # a text that cannot be read as a number is named rather than one that could
    encode = "encode it as a number (a scikit-learn Pipeline can do so)"
    convert = "make it one (columns of a file are texts if any of their cells is no number)"
    for refused, advice in ((_is_no_number, encode), (lambda cell: isinstance(cell, str | bytes), convert)):
        for (row, column), cell in np.ndenumerate(cells):
            if refused(cell):
                is_text = f"row {row}, column {_column(names, column)} is {reprlib.repr(cell)}"
                raise InputError(f"`X` must hold numbers, but {is_text}; {advice}.")
    matrix = np.array(values, dtype=np.float64, order="C")
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        is_bad = f"row {row}, column {_column(names, column)} is {matrix[row, column]}"
        raise InputError(f"`X` must hold finite numbers, but {is_bad}; fill or drop it.")
    return matrix


def _values(frame: Any) -> Array:
    """The cells of a frame; as floats at once if all columns are numbers, however different."""
    values = np.asarray(frame.to_numpy())
    if values.dtype == np.float64:  # asking every column for its kind takes longer than all the rest
        return values
    numbers = all(getattr(kind, "kind", "O") in "biuf" and hasattr(kind, "itemsize") for kind in frame.dtypes)
    return np.asarray(frame.to_numpy(dtype=np.float64)) if numbers else values


def _is_no_number(cell: Any) -> bool:
    try:
        float(np.nan if cell is None else cell)  # None stands for a missing number, and is refused as one
    except (TypeError, ValueError, OverflowError):
        return True
    return False


def _column(names: Sequence[str] | None, index: int) -> str:
    return repr(names[index]) if names is not None else str(index)
