"""Model files: which format a file has, reading it without running anything in it, and writing it in one step.

Reading never unpickles. What all readers share is here: archives that are read in bounded memory, the description of a
network that a file holds besides its numbers, and what the user says where the file does not.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from apas._atomic import write_bytes
from apas._fields import parse_json
from apas._sanitise import for_error
from apas._typing import Bools, Integers
from apas._validation import is_path
from apas.errors import ApasError, InputError, MissingExtra, UnsafeFile, Unsupported
from apas.models.base import Dense, Described, FromEstimator, Model, Named, as_model, offers
from apas.models.digest import model_digest
from apas.models.feedforward import OUTPUTS, FeedForward, check_activations
from apas.models.forward import ACTIVATIONS

#: Where each format is read and written: module, reader, writer. A module is imported when such a file turns up.
_FORMATS = {
    ".json": ("formats", "read_json", "json_bytes"),
    ".safetensors": ("tensors", "read_safetensors", "safetensors_bytes"),
    ".onnx": ("onnx", "read_onnx", "onnx_bytes"),
    ".apas": ("archives", "read_container", "container_bytes"),
    ".skops": ("archives", "read_skops", "skops_bytes"),
    ".ubj": ("boosters", "read_xgboost", "xgboost_bytes"),
    ".txt": ("boosters", "read_lightgbm", "lightgbm_bytes"),
    ".cbm": ("boosters", "read_catboost", "catboost_bytes"),
    **dict.fromkeys((".pt", ".pth"), ("tensors", "read_state", None)),
}
_WRITTEN = [suffix for suffix, (_, _, writer) in _FORMATS.items() if writer is not None]
#: Formats that hold a dense network and nothing else.
_DENSE = (".json", ".safetensors", ".onnx")
_RUNS_CODE = (".pkl", ".pickle", ".joblib", ".ckpt", ".bin", ".dill", ".sav", ".h5", ".hdf5", ".keras")
LARGEST = 2**30  # largest file in bytes: more than a hundred million numbers


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, in one step.

    Parameters
    ----------
    model : object
        A fitted classifier of scikit-learn, XGBoost, LightGBM or CatBoost, or a `Pipeline` that ends in one; a
        `FeedForward`, or what `as_model` reads as one. A `Predictor` of a function cannot be written.
    path : path
        ``.json``, ``.safetensors`` and ``.onnx`` hold a dense network. ``.skops``, ``.ubj``, ``.txt`` and ``.cbm`` are
        written by the model's own library (skops for scikit-learn). ``.apas`` holds any of these, and besides what such
        a file lacks: class labels, names, threshold, preprocessing, and the settings by which to train it anew. What
        would come back as another model is refused.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/net.json"
    >>> save_model(FeedForward([[[0.1], [0.2]]], [[0.3]]), path)
    >>> load_model(path).weights[0].ravel()
    array([0.1, 0.2])
    """
    suffix = Path(path).suffix.lower() if is_path(path) else ""
    if suffix in _FORMATS and suffix not in _WRITTEN:
        must = f"`path` must end in {_list_of(_WRITTEN)} to be written by apas, got {str(path)!r};"
        raise InputError(f"{must} such a file is written by torch.save(module.state_dict(), path).")
    file = _path(path, _WRITTEN)
    held = _network(model, suffix) if suffix in _DENSE else as_model(model)
    module, reader, writer = _FORMATS[suffix]
    code = import_module(f"apas.models.files.{module}")
    try:
        content: bytes = getattr(code, str(writer))(held)
        if suffix not in _DENSE:
            _check_content(file, content, held, getattr(code, reader))
        write_bytes(file, content)
    except OSError as error:
        raise InputError(f"`path` must be a file that can be written, but {file} cannot: {error.strerror}.") from error
    except TypeError as error:
        raise InputError(f"the model's classes must be numbers or texts to be written to a file ({error}).") from error


def _check_content(file: Path, content: bytes, model: Model, read: Callable[..., Model]) -> None:
    """Refuse what cannot be read again, or comes back as another model."""
    try:
        again = model_digest(read(file, content, LoadOptions()))
    except ApasError as error:
        if isinstance(error, MissingExtra):
            raise
        raise Unsupported(f"{model!r} cannot be written so that it is safe to read again: {error}") from error
    if again == model_digest(model):
        return
    if file.suffix.lower() == ".apas":
        raise Unsupported(f"{model!r} cannot be written: it would be another model when it is read again.")
    why = f"a {file.suffix} file does not hold all of {model!r}, such as class labels,"
    raise Unsupported(f"{why} names, a threshold or preprocessing; let `path` end in .apas.")


def own_estimator(model: Model) -> Any:
    """The fitted classifier that a model was read from, or why there is none."""
    if offers(model, FromEstimator):
        return model.estimator
    if offers(model, Dense):
        raise Unsupported(f"{model!r} is a dense network without a library's file; let `path` end in .json or .apas.")
    why = f"{model!r} cannot be written to a file: it is no classifier of a library that writes one;"
    raise Unsupported(f"{why} keep the program that makes it.")


def _network(model: Any, suffix: str) -> FeedForward:
    net = as_model(model)
    if offers(net, Described) and net.describe().get("preprocessing") is not None:
        raise Unsupported(
            f"a Pipeline's preprocessing cannot be written to a {suffix} file; keep the pipeline whole with "
            "apas.save_model(pipeline, 'model.apas'), or save its network alone, with "
            "apas.save_model(apas.as_model(pipeline).as_feedforward(), path), and give it rows encoded by "
            "pipeline[:-1].transform(X)."
        )
    if not offers(net, Dense):
        why = f"{type(model).__name__} is not a dense network, which is all that a {suffix} file can hold;"
        raise Unsupported(f"{why} let `path` end in .apas.")
    network = net.as_feedforward()
    names = net.feature_names if offers(net, Named) else None
    return network if names is None or names == network.feature_names else network.with_names(names)


def load_model(
    path: str | os.PathLike[str],
    *,
    activation: str | Sequence[str] | None = None,
    output: str | None = None,
    threshold: float | None = None,
    classes: Sequence[Any] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Model:
    """Read a model from a file, without running anything in it.

    Parameters
    ----------
    path : path
        Files of `save_model`; ONNX graphs of dense layers; classifiers and pipelines of ``skops.io.dump``; ``.ubj``
        files of XGBoost, ``.txt`` ones of LightGBM and ``.cbm`` ones of CatBoost; ``.pt``, ``.pth`` and
        ``.safetensors`` files with the state of a PyTorch module of linear layers. Pickle, joblib and Keras files are
        refused: reading them can run code.
    activation, output, threshold, classes, feature_names : optional
        As in `FeedForward`, where the file does not tell: a state tells nothing but numbers, a graph that ends in a
        linear layer not what its numbers are. What contradicts the file is refused.

    Returns
    -------
    Model
        A `FeedForward`, or a classifier as its library predicts, behind its preprocessing if it has one.
    """
    source = _path(path, [*_FORMATS])
    module, name, _ = _FORMATS[source.suffix.lower()]
    options = LoadOptions(activation, output, threshold, classes, feature_names)
    try:
        read: Callable[[Path, bytes, LoadOptions], Model] = getattr(import_module(f"apas.models.files.{module}"), name)
        return read(source, _content(source), options)
    except MemoryError:
        raise InputError(f"{source} needs more memory than there is, so it is no model for this machine.") from None
    except RecursionError:
        raise InputError(f"{source} is nested too deeply, so it is not a model file.") from None


def _path(path: str | os.PathLike[str], known: list[str]) -> Path:
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    if target.suffix.lower() in _RUNS_CODE:
        raise UnsafeFile(f"{target} could run code when read, so apas does not; {CONVERT}.")
    if target.suffix.lower() not in known:
        raise InputError(f"`path` must end in {_list_of(known)}, got {str(target)!r}; {CONVERT}.")
    return target


def _content(path: Path) -> bytes:
    try:
        status = path.stat()  # before it is opened, as a pipe would keep us waiting
        plain, small = stat.S_ISREG(status.st_mode), status.st_size <= LARGEST
        content = path.read_bytes() if plain and small else b""
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"`path` must be the name of a file, got {str(path)!r}: {error}.") from error
    if not plain:
        raise InputError(f"{path} cannot be read: it is not a plain file.")
    if not small:
        raise InputError(f"{path} has {status.st_size} bytes, more than the {LARGEST} that apas reads as a model.")
    return content


def _list_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


VERSION = 1
FIELDS = ("activation", "output", "threshold", "classes", "feature_names")
OPTIONAL = ("dtype",)  # what a file says only where it is not the usual: float64
CONVERT = "in the program that trained the model, write it with: apas.save_model(model, 'model.json')"


def describe_network(network: FeedForward) -> dict[str, Any]:
    """All of a network but its weights and biases, as JSON values."""
    described = network.describe()
    kept = {key: described[key] for key in (*FIELDS, *OPTIONAL) if key in described}
    return {"format": "apas-model", "version": VERSION, "kind": "feedforward", **kept}


def check_description(content: Any, path: Path, *, arrays: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a description, none unknown, and all there but for those that may be left out."""
    needed = (*arrays, *FIELDS)
    if not isinstance(content, dict) or content.get("format") != "apas-model":
        raise InputError(f'{path} is not a model file: it must hold an object with "format": "apas-model"; {CONVERT}.')
    version = content.get("version")
    if type(version) is not int or version != VERSION or content.get("kind") != "feedforward":
        why = f"{path} is a model file of version {version!r} and kind {content.get('kind')!r},"
        raise InputError(f"{why} but this apas reads version {VERSION} and kind 'feedforward'; use a newer apas.")
    unknown = sorted(set(content) - {*needed, *OPTIONAL, "format", "version", "kind"})
    if unknown:
        raise InputError(f"{path} has the unknown field {unknown[0]!r}; a model file has only {', '.join(needed)}.")
    missing = [key for key in needed if key not in content]
    if missing:
        raise InputError(f"{path} must have the field {missing[0]!r}, but has not; {CONVERT}.")
    return {key: content[key] for key in (*needed, *OPTIONAL) if key in content}


def build_network(path: Path, fields: Mapping[str, Any], kind: type[FeedForward] = FeedForward) -> FeedForward:
    """Make a network of the arguments of `FeedForward` that a file holds."""
    try:
        return kind(**fields)
    except InputError as error:
        raise InputError(f"{path} does not hold a usable network: {error}") from error
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"{path} does not hold a usable network: a field has the wrong type ({error}).") from error


def json_bytes(network: FeedForward) -> bytes:
    """Give a network as the bytes of a ``.json`` file."""
    described = describe_network(network)
    content = {
        **{key: described.pop(key) for key in ("format", "version", "kind")},
        "weights": [w.tolist() for w in network.weights],
        "biases": [None if b is None else b.tolist() for b in network.given_biases],
        **described,
    }
    return (json.dumps(content, allow_nan=False) + "\n").encode()


def read_json(path: Path, raw: bytes, options: LoadOptions) -> FeedForward:
    """Read the network that `raw`, the bytes of `path`, holds."""
    if raw[:1] == b"\x80" or raw[:2] == b"PK":
        why = f"{path} is not JSON but looks like a pickle or an archive, which could run code when read;"
        raise UnsafeFile(f"{why} {CONVERT}.")
    fields = check_description(parse_json(path, raw), path, arrays=("weights", "biases"))
    return options.confirm(path, build_network(path, fields))


_Kind = TypeVar("_Kind", bound=Model)


@dataclass(frozen=True)
class LoadOptions:
    """The keyword arguments of `load_model`; None for what was not said."""

    activation: str | Sequence[str] | None = None
    output: str | None = None
    threshold: float | None = None
    classes: Sequence[Any] | None = None
    feature_names: Sequence[str] | None = None

    def confirm(self, path: Path, model: _Kind) -> _Kind:
        """Refuse what contradicts a file that speaks for itself; give the model."""
        told = {name: value for name, value in vars(self).items() if value is not None}
        if not told:
            return model
        names = model.feature_names if offers(model, Named) else None
        found: dict[str, Any] = {"classes": model.classes, "feature_names": names}
        if offers(model, Dense):
            network = model.as_feedforward()
            found |= {name: getattr(network, name) for name in ("output", "threshold", "classes")}
            found["activation"] = network.activations
        elif offers(model, FromEstimator):
            found |= model.read_options
        for name, value in told.items():
            if name not in found:
                raise InputError(f"`{name}` of load_model is for layers, but {path} holds none; leave it out.")
            given: Any = value if isinstance(value, str | float | int) else tuple(value)
            if name == "activation":
                given = check_activations(value, len(found["activation"]))
            if given != found[name]:
                shown = list(found[name]) if isinstance(found[name], tuple) else found[name]
                raise InputError(f"`{name}` of load_model is {value!r}, but {path} says {shown!r}; leave it out.")
        return model

    def network(
        self,
        path: Path,
        weights: Sequence[Any],
        biases: Sequence[Any],
        kind: type[FeedForward] = FeedForward,
        **told: Any,
    ) -> FeedForward:
        """Make a network of what a file holds and tells (None: it does not), and what the user says about the rest."""
        hidden = len(weights) - 1
        given = vars(self) | {name: value for name, value in told.items() if value is not None}
        if given["activation"] is None and hidden:
            raise InputError(
                f"`activation` of load_model must say what is computed between the {hidden + 1} layers, which {path} "
                f'does not tell; pass activation="relu" (or --activation relu), or another of {", ".join(ACTIVATIONS)}.'
            )
        if given["output"] is None:
            raise InputError(
                f"`output` of load_model must say what the numbers of the last layer are, which {path} does not tell; "
                f'pass output="sigmoid" for one logit, "softmax" for a score per class, or "identity" for a number '
                "that is compared with `threshold` itself (on the command line: --output)."
            )
        if self.output is not None and self.output not in OUTPUTS:
            must = f"`output` of load_model must be one of {', '.join(map(repr, OUTPUTS))}, got {self.output!r};"
            raise InputError(f'{must} "sigmoid" stands for one logit and "softmax" for a logit per class.')
        if given["output"] == "identity" and self.threshold is None:
            said = '`threshold` of load_model must be given with output="identity",'
            raise InputError(f"{said} as {path} does not tell it.")
        given |= {"threshold": 0.5} if self.threshold is None else {}
        given |= {} if hidden else {"activation": ()}
        return self.confirm(path, build_network(path, {**given, "weights": weights, "biases": biases}, kind))


def read_classifier(path: Path, estimator: Any, options: LoadOptions) -> Model:
    """The model of an estimator that a file holds, read with the user's threshold and names."""
    level = 0.5 if options.threshold is None else options.threshold
    try:
        model = as_model(estimator, threshold=level, feature_names=options.feature_names)
    except BROKEN as error:
        raise InputError(f"{path} does not hold a usable classifier: {first_line(error)}") from error
    return replace(options, threshold=None, feature_names=None).confirm(path, model)


def require_that(holds: Any, what: str) -> None:
    """Refuse what a file holds; its reader says which file."""
    if not holds:
        raise ValueError(what)


#: What is wrong with a tree that compiled code would follow out of its memory.
NODES, FEATURES = "a node of a tree has no such child", "a tree asks for a feature that is not there"


def check_nodes(children: Sequence[Integers], features: Integers, inner: Bools, width: int) -> None:
    """Children of inner nodes come after them and exist, and so do their features."""
    here, n = np.arange(len(inner)), len(inner)
    for child in children:
        require_that(((child > here) & (child < n))[inner].all(), NODES)
    require_that(((features >= 0) & (features < width))[inner].all(), FEATURES)


#: What libraries raise when a file is not what it should be.
BROKEN = (
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError, LookupError,
    OSError, RuntimeError, SyntaxError, TypeError, ValueError, struct.error, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
MEMBERS = 100_000
FREE, TIMES = 2**25, 4  # how far members may expand: this many bytes, and so many times the size of the file
PIECE = 2**20


def read_archive(path: Path, raw: bytes) -> dict[str, bytes]:
    """Members of the archive `raw` by name, none of them larger than it declares to be."""
    # every member has this signature, so that a directory of millions is refused before it is built
    if raw.count(b"PK\x01\x02") > MEMBERS:
        raise InputError(f"{path} has more than {MEMBERS} members, so it is not a model file.")
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            listed = archive.infolist()
            total, most = sum(info.file_size for info in listed), FREE + TIMES * len(raw)
            if total > most:
                why = f"{path} would expand to {total} bytes, more than the {most} that a file of its size may;"
                raise InputError(f"{why} it is damaged or made to fill the memory.")
            if len({info.filename for info in listed}) < len(listed):
                raise InputError(f"{path} holds several members of the same name, so it is not a model file.")
            if any(info.flag_bits & 1 for info in listed):
                raise InputError(f"{path} is encrypted; write it without a password.")
            members = {}
            for info in listed:
                # piece by piece: all at once, zipfile would expand one that lies about its size before it cuts it off
                with archive.open(info) as member:
                    members[info.filename] = content = b"".join(iter(partial(member.read, PIECE), b""))
                if len(content) != info.file_size:
                    raise zipfile.BadZipFile(f"{info.filename} is cut off")
            return members
    except BROKEN as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a whole zip archive: {first_line(error)}") from None


def pack(members: Mapping[str, bytes]) -> bytes:
    """An archive of exactly these members, uncompressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def first_line(error: BaseException) -> str:
    """What another library complains about, to end a sentence of ours."""
    line = for_error((str(error).splitlines() or [type(error).__name__])[0], 300)
    line = re.sub(r" at 0x[0-9a-fA-F]+", "", line)  # an address in memory is another one each time
    return line if line.endswith((".", "?")) else f"{line}."
