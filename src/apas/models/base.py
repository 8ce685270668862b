"""What a model offers, its parameters as one vector, wrappers that offer what is inside them, and `as_model`.

The margin of a row is ``logit(p) - logit(threshold)`` towards class 1 of two and its negative towards class 0 (for
scores compared with a threshold themselves: ``score - threshold``), else the wanted score minus the best other one.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from apas._typing import Array, Bools, Floats, Indices
from apas._validation import check_matrix, check_numbers, is_path
from apas.errors import InputError, Unsupported

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from apas.models.dense_chain import DenseChain
    from apas.models.feedforward import FeedForward
    from apas.models.trees import Trees

ABSENT = "absent"  # the kind of a tensor that stands for one that the model does not have
#: A margin smaller than this share of the magnitudes behind it could have the other sign in another batch shape: the
#: band within which nothing is certified. A network that is computed in float32 gives its own rounding in units of it.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Parameters:
    """All parameters of a model as one read-only vector, cut into named tensors.

    Build it with `Parameters.from_arrays`; `Parameters.split` gives the tensors.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Every parameter, read-only float64.
    names, layers : tuple of str
        One name per tensor, such as ``"layer0.weight"``, and the layer it belongs to.
    kinds : tuple of str
        ``"weight"`` or ``"bias"``, or ``"absent"``: the zeros of a bias that does not exist, which no shift set moves.
    shapes, slices : tuple
        Shape per tensor, and where it lies in `values`.

    Examples
    --------
    >>> p = Parameters.from_arrays([[[1.0, 2.0]], [3.0, 4.0]], names=["out.weight", "out.bias"],
    ...                            kinds=["weight", "bias"], layers=["out", "out"])
    >>> p.values, p.shapes, p.split(p.values)
    (array([1., 2., 3., 4.]), ((1, 2), (2,)), [array([[1., 2.]]), array([3., 4.])])
    """

    values: Floats
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    layers: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    slices: tuple[slice, ...]

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[ArrayLike], *, names: Sequence[str], kinds: Sequence[str], layers: Sequence[str]
    ) -> Parameters:
        """Join arrays, one per tensor, into one vector; `kinds` holds ``"weight"``, ``"bias"`` or ``"absent"``."""
        if not len(arrays) == len(names) == len(kinds) == len(layers):
            must = "`arrays`, `names`, `kinds` and `layers` of Parameters.from_arrays must have the same length,"
            raise InputError(f"{must} got {len(arrays)}, {len(names)}, {len(kinds)} and {len(layers)}.")
        for kind in kinds:
            if kind not in ("weight", "bias", ABSENT):
                raise InputError(f'`kinds` must hold "weight", "bias" or "{ABSENT}", got {kind!r}.')
        tensors = [np.asarray(array, dtype=np.float64) for array in arrays]
        ends = np.cumsum([0, *(t.size for t in tensors)]).tolist()
        values = np.concatenate([t.ravel() for t in tensors]) if tensors else np.empty(0)
        values.flags.writeable = False
        places = tuple(t.shape for t in tensors), tuple(slice(a, b) for a, b in itertools.pairwise(ends))
        return cls(values, tuple(names), tuple(kinds), tuple(layers), *places)

    def __len__(self) -> int:
        return self.values.size

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The distinct layers, in the order in which they appear."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def exist(self) -> Bools:
        """Which entries of `values` are parameters of the model, rather than stand for absent ones, shape (k,)."""
        return np.repeat([kind != ABSENT for kind in self.kinds], [part.stop - part.start for part in self.slices])

    def part(self, some: slice) -> Parameters:
        """Some of the tensors, with their names, by themselves."""
        named = {name: getattr(self, name)[some] for name in ("names", "kinds", "layers")}
        return self.from_arrays(self.split(self.values)[some], **named)

    def tensor(self, index: int) -> Floats:
        """Tensor number `index`, a read-only view in its own shape."""
        return self.values[self.slices[index]].reshape(self.shapes[index])

    def split(self, vector: Floats) -> list[Floats]:
        """Cut a vector (k,) like `values`, or a stack of them (n, k), into tensors: views, one per tensor."""
        stack = vector.shape[:-1]
        # cutting the last axis in pieces never needs a copy, whatever the memory order
        return [vector[..., part].reshape(stack + s) for part, s in zip(self.slices, self.shapes, strict=True)]


_Capability = TypeVar("_Capability")


def offers(model: object, capability: type[_Capability]) -> TypeIs[_Capability]:
    """Whether `model` has the members of a protocol: what ``isinstance`` says, a hundred times faster."""
    names = _unsettled(type(model), capability)  # type: ignore[arg-type]
    # what a class does not have, an instance may have been given; one name that is missing says no
    for name in names:  # noqa: SIM110 - a generator takes twice as long
        if not hasattr(model, name):
            return False
    return True


@cache
def _unsettled(kind: Any, capability: Any) -> tuple[str, ...]:
    """Members to look for in an instance, those first that its class has not; none if the class has them all."""
    names = sorted(members(capability), key=lambda name: hasattr(kind, name))
    return () if all(hasattr(kind, name) for name in names) else tuple(names)


@cache
def members(capability: Any) -> tuple[str, ...]:
    """Names of the members of a protocol, those that it inherits included."""
    names = (name for base in capability.__mro__ for name in (*vars(base), *get_annotations(base)))
    return tuple(dict.fromkeys(name for name in names if not name.startswith("_")))


@runtime_checkable
class Capability(Protocol):
    """What something may offer besides what all of its kind do; `offers` asks for it by its members."""


@runtime_checkable
class Predicts(Protocol):
    """A classifier that need not have parameters; where nothing but the class is known, margins are 1 or -1."""

    @property
    def classes(self) -> tuple[Any, ...]:
        """Class labels; of two, the second is "class 1"."""

    @property
    def n_features(self) -> int:
        """Number of inputs, in model units."""

    def margin(self, X: Floats, target: Any) -> Floats:
        """Margins of the rows `X` towards `target` (one label, or one per row), shape (rows,)."""


@runtime_checkable
class Model(Predicts, Protocol):
    """A classifier whose parameters can be shifted; margins are at least 0 where it gives the target class."""

    @property
    def parameters(self) -> Parameters:
        """Every parameter that may move."""

    def shifted_margins(self, X: Floats, target: Any, directions: Floats, delta: float | Floats) -> Floats:
        """Margins on the models ``parameters + delta * direction``, shape (directions, rows)."""


class Named(Capability, Protocol):
    """A model that knows the names of its columns."""

    feature_names: tuple[str, ...] | None
    """Names of the columns a user passes, or None."""


class Raw(Capability, Protocol):
    """A model that takes rows in raw units and turns them into model units itself."""

    n_raw_features: int
    """Number of columns a user passes."""

    def encode(self, X: Any) -> Floats:
        """Rows in raw units (array or data frame) as a matrix in model units."""


@runtime_checkable
class Dense(Protocol):
    """A model that is a dense feed-forward network in model units."""

    def as_feedforward(self) -> FeedForward:
        """Give the same network as a `FeedForward`."""


class Chained(Capability, Protocol):
    """A model that is a dense network but for how its parameters stand in it."""

    def dense_chain(self) -> DenseChain | str:
        """The network, and which parameter of the model each of its numbers is; or why it is not dense after all."""


@runtime_checkable
class Differentiable(Protocol):
    """A model whose margins have gradients, each row on a shifted model of its own."""

    def input_gradient(self, X: Floats, target: Any, moves: Floats | None = None) -> tuple[Floats, Floats]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""

    def parameter_gradient(self, X: Floats, target: Any, moves: Floats | None = None) -> tuple[Floats, Floats]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""


class Gradients:
    """Both members of `Differentiable` from one function of rows, positions of their classes, moves, and by what."""

    classes: tuple[Any, ...]
    _gradients: Callable[..., tuple[Floats, Floats]]

    def input_gradient(self, X: Floats, target: Any, moves: Floats | None = None) -> tuple[Floats, Floats]:
        """Margins (rows,) and their gradients by the input (rows, features), row i on ``parameters + moves[i]``."""
        return self._gradients(X, class_indices(self.classes, target, len(X)), moves, by_input=True)

    def parameter_gradient(self, X: Floats, target: Any, moves: Floats | None = None) -> tuple[Floats, Floats]:
        """Margins (rows,) and their gradients by the parameters (rows, k), row i on ``parameters + moves[i]``."""
        return self._gradients(X, class_indices(self.classes, target, len(X)), moves, by_input=False)


class Scaled(Capability, Protocol):
    """A model that knows how large the numbers get inside it."""

    def margin_scale(self, X: Floats, radii: Floats, delta: float | Floats = 1.0) -> Floats:
        """A bound per row on the magnitudes behind any margin while parameter i moves by <= delta * radii[i]."""


class Arithmetic(Capability, Protocol):
    """A model that knows in which arithmetic it is computed where it is used; all others are taken at their word."""

    dtype: str
    """The name of its floating point numbers: "float64" or "float32"."""


class LibraryBacked(Capability, Protocol):
    """A model made from another library's object, which can be asked for its own opinion."""

    def library_classes(self, X: Any) -> Array:
        """Classes of the raw rows `X` according to the library that trained the model."""


class ReadsOnce(Raw, Protocol):
    """A model whose preprocessing takes long, and its library's opinion goes through it: both can be had in one go."""

    def encode_and_classify(self, X: Any) -> tuple[Floats, Array]:
        """What `encode` and `library_classes` say of the raw rows `X`."""


class Described(Capability, Protocol):
    """A model whose architecture (and preprocessing) can be written down."""

    def describe(self) -> dict[str, Any]:
        """All that decides the output besides the parameters, as JSON values."""


class ReadsCells(Capability, Protocol):
    """Whether a model takes rows as they are: its units of a number are the user's, and other cells have codes."""

    reads_cells: bool


class Learned(Capability, Protocol):
    """A model that has learned something else than parameters, such as trees."""

    def content_digest(self) -> str:
        """SHA-256 over all of it."""


class Leaves(Capability, Protocol):
    """A model that may be an ensemble of trees."""

    def trees(self) -> Trees | None:
        """Its trees, as encoded rows meet them, or None if it has none that can be read."""


class FromEstimator(Capability, Protocol):
    """A model that was read from a fitted classifier, which can be written to a file and fitted anew."""

    estimator: Any
    """The classifier, or the pipeline that ends in it."""
    read_options: dict[str, Any]
    """The threshold and the names with which `as_model` reads it as this model."""


def not_fitted(estimator: object) -> InputError:
    """What to say about an estimator that has learned nothing yet."""
    return InputError(f"the model must be fitted, but this {type(estimator).__name__} is not; call .fit(X, y) first.")


def by_delta(delta: float | Floats, target: Any, count: int) -> Iterator[tuple[float, Indices, Any]]:
    """Sizes of shifts, the rows that share each (they share the shifted models, too), and what these rows want."""
    sizes = np.broadcast_to(np.asarray(delta, dtype=np.float64), (count,))
    each = isinstance(target, np.ndarray) and target.shape == (count,)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        yield size, rows, target[rows] if each else target


#: Everything that a model may offer and a wrapper hands on; whose estimator it is, nobody else can say.
CAPABILITIES: tuple[Any, ...] = (Model, Named, Raw, Dense, Chained, Differentiable, Scaled, Arithmetic, LibraryBacked)
CAPABILITIES += (Described, Learned, Leaves)


def class_indices(classes: tuple[Any, ...], target: Any, rows: int) -> Indices:
    """Position in `classes` of the wanted class of each row."""
    positions = _positions(tuple(classes))

    def position(label: Any) -> int:
        try:
            return positions[label]
        except (KeyError, TypeError):  # TypeError: an unhashable label, such as a list
            same = isinstance(label, str) and label in [str(c) for c in classes]
            hint = " (a text, while the classes are not)" if same else ""
            shown = ", ".join(repr(c.item() if isinstance(c, np.generic) else c) for c in classes[:10])
            shown += ", ..." if len(classes) > 10 else ""
            raise InputError(f"`target` must be one of the model's classes ({shown}), got {label!r}{hint}.") from None

    if isinstance(target, str | int | float | np.generic):
        return np.full(rows, position(target))
    labels = np.asarray(target, dtype=object)
    if labels.ndim > 1:
        raise InputError(f"`target` must be one class or one per row, got an array of shape {labels.shape}.")
    if labels.ndim == 1 and len(labels) != rows:
        must = f"`target` must be one class or one per row ({rows}), got {len(labels)} values;"
        raise InputError(f"{must} pass a single label to want the same class for all rows.")
    found = [position(label) for label in labels.reshape(-1).tolist()]
    return np.broadcast_to(np.array(found, dtype=np.intp), (rows,))


@lru_cache
def _positions(classes: tuple[Any, ...]) -> dict[Any, int]:
    """Where each class stands; classes that are equal, such as 1 and True, are found by each other's names anyway."""
    return {label: i for i, label in enumerate(classes)}


def needs_strict(classes: tuple[Any, ...], target: Array) -> Bools:
    """Rows whose margin must be above 0 rather than at least 0: all but those that want class 1 of a binary model."""
    return np.asarray(target != classes[1]) if len(classes) == 2 else np.ones(len(target), dtype=bool)


def valid(margins: Floats, strict: Bools) -> Bools:
    """Whether each margin means "the model gives the target class"; NaN never does."""
    return np.asarray(np.where(strict, margins > 0, margins >= 0))


#: Nothing that could move: the parameters of a model that can only predict.
NO_PARAMETERS = Parameters.from_arrays([], names=[], kinds=[], layers=[])


class ModelWrapper:
    """A model around an inner one, which has what a subclass defines, and of the rest just what the inner one has."""

    # Its members are bound once, so that `offers` never sees one that is not there, and no margin takes a detour; but
    # for the number of features, which some learn from the first rows, and parameters, which may be exchanged.

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        for name in [name for capability in CAPABILITIES for name in members(capability)]:
            if not hasattr(type(self), name) and hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def n_features(self) -> int:
        """Number of inputs of the inner model."""
        return self._inner.n_features  # type: ignore[no-any-return]

    @property
    def parameters(self) -> Parameters:
        """Parameters of the inner model; none if it can only predict."""
        return getattr(self._inner, "parameters", NO_PARAMETERS)


def as_model(
    obj: Any,
    *,
    output: str | None = None,
    threshold: float = 0.5,
    classes: Sequence[Any] | None = None,
    input_shape: Sequence[int] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Model:
    """Turn a fitted classifier into a model whose parameters can be shifted, without changing it.

    Parameters
    ----------
    obj : object
        A fitted scikit-learn classifier (`MLPClassifier`, `LogisticRegression`, `LinearSVC`, `SGDClassifier`,
        `RidgeClassifier`, `Perceptron`, `LinearDiscriminantAnalysis`), a `Pipeline` whose last step is one of
        them, a `torch.nn.Module`, a `keras.Model` of dense layers, a `FeedForward`, or any object with the five
        members of `Model`. A module is looked at as it is now, in eval mode.
    output : {"logit", "probability", "logits", "probabilities"}, optional
        What the numbers of a module or Keras model are, unless its last layer is a sigmoid or softmax that says so.
    threshold : float, default 0.5
        From which probability on a binary classifier or module is taken to say class 1.
    classes : sequence, optional
        Labels of a module's classes; (0, 1) or 0..m-1 unless given.
    input_shape : sequence of int, optional
        Shape of one input of a module, such as (1, 28, 28), unless its first layer says how many numbers it takes; rows
        of `X` hold them in C order.
    feature_names : sequence of str, optional
        Names of the columns; those the estimator was fitted with unless given.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> as_model(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])).classes
    ('no', 'yes')
    """
    if is_path(obj):
        raise InputError(f"`model` must be a model, got the path {str(obj)!r}; read it with apas.load_model(path).")
    if isinstance(obj, type):
        must = f"`model` must be a fitted model, got the class {obj.__name__} itself;"
        raise InputError(f"{must} make one and fit it first.")
    chosen: dict[str, Any] = {"output": output, "classes": classes, "input_shape": input_shape}
    if offers(obj, Predicts):
        chosen |= {"threshold": None if threshold == 0.5 else threshold, "feature_names": feature_names}
        return _without_options(obj if hasattr(obj, "parameters") else ModelWrapper(obj), chosen)
    libraries = {cls.__module__.split(".")[0] for cls in type(obj).__mro__}
    if "skorch" in libraries:
        from apas.models.torch.adapter import from_skorch

        return from_skorch(obj, **chosen, threshold=threshold, feature_names=feature_names)  # type: ignore[no-any-return]
    if libraries & {"xgboost", "lightgbm", "catboost"}:  # before scikit-learn, whose classes they inherit from
        from apas.models.predictor import from_booster

        return _without_options(from_booster(obj, threshold=threshold, feature_names=feature_names), chosen)
    if "sklearn" in libraries or (hasattr(obj, "classes_") and hasattr(obj, "predict")):
        from apas.models.sklearn import from_sklearn

        return _without_options(from_sklearn(obj, threshold=threshold, feature_names=feature_names), chosen)
    keras = sys.modules.get("keras")  # before PyTorch, which may be what Keras computes with
    if keras is not None and isinstance(obj, getattr(keras, "Model", ())):
        from apas.models.keras import from_keras

        return from_keras(obj, **chosen, threshold=threshold, feature_names=feature_names)  # type: ignore[no-any-return]
    torch = sys.modules.get("torch")  # whoever has a module has imported it
    if torch is not None and isinstance(obj, torch.nn.Module):
        from apas.models.torch.adapter import from_torch

        with torch.inference_mode(False):  # what is made in that mode never has gradients
            return from_torch(obj, **chosen, threshold=threshold, feature_names=feature_names)  # type: ignore[no-any-return]
    raise Unsupported(
        f"`model` is a {type(obj).__module__}.{type(obj).__name__}, which apas cannot read; pass a fitted classifier "
        "with classes_ and predict_proba or decision_function, a PyTorch module, a Keras model, an apas.FeedForward, "
        "an object with the members classes, n_features, parameters, margin, shifted_margins, or an apas.Predictor "
        "of a function."
    )


def _without_options(model: Any, options: dict[str, Any]) -> Model:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"`{given[0]}` of as_model does not apply to {model!r}, which says so itself; leave it out.")
    return model  # type: ignore[no-any-return]  # one that can only predict lacks what moves: `Question.ask` says so


def encoded_rows(model: Predicts, X: Any) -> tuple[Any, Floats]:
    """Rows as the user gave them (a copy), and in model units."""
    names = model.feature_names if offers(model, Named) else None
    raw = model if offers(model, Raw) else None
    points = check_matrix(X, model.n_features if raw is None else raw.n_raw_features, names).copy()
    if not len(points):
        return points, np.empty((0, model.n_features))
    return points, check_numbers(points, names) if raw is None else raw.encode(points)


def encoded_and_classified(model: Predicts, X: Any) -> tuple[Floats, Array | None]:
    """Rows in model units, and what its own library says of them, None if it would have to be asked by itself."""
    if not offers(model, ReadsOnce) or not len(X):
        return encoded_rows(model, X)[1], None
    names = model.feature_names if offers(model, Named) else None
    return model.encode_and_classify(check_matrix(X, model.n_raw_features, names).copy())


def predicted_classes(model: Predicts, X: Floats, towards: Floats | None = None) -> tuple[Array, Floats]:
    """Classes that `model` gives rows in model units, and how far each row is from another class."""
    # `towards` are the margins towards class 1 of two, if they are known.
    classes = model.classes
    labels = np.empty(len(classes), dtype=object)
    labels[:] = classes
    if len(labels) == 2:
        margin = model.margin(X, classes[1]) if towards is None else towards
        return labels[(margin >= 0).astype(int)], np.abs(margin)
    margins = np.stack([model.margin(X, label) for label in classes], axis=-1)
    return labels[margins.argmax(axis=-1)], margins.max(axis=-1)
