"""Model files: which format a file has, reading it without running anything in it, and writing it in one step.

Reading never unpickles. What a file could do, each reader says: `json`, `safetensors`, `skops`, `onnx` and
`torch_state`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from apas._atomic import write_bytes
from apas._validation import is_path
from apas.errors import InputError, UnsafeFile, Unsupported
from apas.models.base import Dense, Described, Model, Named, offers
from apas.models.convert import as_model
from apas.models.feedforward import FeedForward
from apas.models.files.description import CONVERT, Stated

#: Where each format is read and written: module, reader, writer. A module is imported when such a file turns up.
_FORMATS = {
    ".json": ("json", "read_json", "json_bytes"),
    ".safetensors": ("safetensors", "read_safetensors", "safetensors_bytes"),
    ".onnx": ("onnx", "read_onnx", "onnx_bytes"),
    ".skops": ("skops", "read_skops", None),
    ".pt": ("torch_state", "read_state", None),
    ".pth": ("torch_state", "read_state", None),
}
_WRITTEN = [suffix for suffix, (_, _, writer) in _FORMATS.items() if writer is not None]
#: Formats that we read but leave to their own library to write.
_ELSEWHERE = {
    ".skops": "skops.io.dump(estimator, path)",
    ".pt": "torch.save(module.state_dict(), path)",
    ".pth": "torch.save(module.state_dict(), path)",
}
_RUNS_CODE = (".pkl", ".pickle", ".joblib", ".ckpt", ".bin", ".dill", ".sav", ".h5", ".hdf5", ".keras")
#: Largest file in bytes: more than a hundred million numbers.
LARGEST = 2**30


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a dense network to a file, in one step.

    Parameters
    ----------
    model : object
        A `FeedForward`, or what `as_model` reads as one: a scikit-learn classifier without preprocessing, a PyTorch
        or Keras sequence of dense layers.
    path : path
        Must end in ``.json``, ``.safetensors`` or ``.onnx``. Each holds every bit of the network.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/net.json"
    >>> save_model(FeedForward([[[0.1], [0.2]]], [[0.3]]), path)
    >>> load_model(path).weights[0].ravel()
    array([0.1, 0.2])
    """
    suffix = Path(path).suffix.lower() if is_path(path) else ""
    if suffix in _ELSEWHERE:
        raise InputError(
            f"`path` must end in {_listed(_WRITTEN)} to be written by apas, got {str(path)!r}; such a file is written "
            f"by {_ELSEWHERE[suffix]}."
        )
    target = _path(path, _WRITTEN)
    network = _network(model, suffix)
    module, _, writer = _FORMATS[suffix]
    try:
        content: bytes = getattr(import_module(f"apas.models.files.{module}"), str(writer))(network)
        write_bytes(target, content)
    except OSError as error:
        raise InputError(
            f"`path` must be a file that can be written, but {target} cannot: {error.strerror}."
        ) from error
    except TypeError as error:
        raise InputError(f"the model's classes must be numbers or texts to be written to a file ({error}).") from error


def _network(model: Any, suffix: str) -> FeedForward:
    net = as_model(model)
    if offers(net, Described) and net.describe().get("preprocessing") is not None:
        raise Unsupported(
            f"a Pipeline's preprocessing cannot be written to a {suffix} file; keep the pipeline whole with "
            "skops.io.dump(pipeline, 'model.skops'), or save its network alone, with "
            "apas.save_model(apas.as_model(pipeline).as_feedforward(), path), and give it rows encoded by "
            "pipeline[:-1].transform(X)."
        )
    if not offers(net, Dense):
        raise Unsupported(f"{type(model).__name__} is not a dense network, which is all that a {suffix} file can hold.")
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
        ``.json``, ``.safetensors`` and ``.onnx`` files of `save_model`; ONNX graphs of dense layers; classifiers and
        pipelines of ``skops.io.dump``; ``.pt``, ``.pth`` and ``.safetensors`` files with the state of a PyTorch module
        of linear layers. Pickle, joblib and Keras files are refused: reading them can run code.
    activation : str or sequence of str, optional
        What is computed between the layers, as in `FeedForward`. A state does not tell.
    output : {"sigmoid", "softmax", "identity"}, optional
        What the last layer's numbers are, as in `FeedForward`. A state does not tell, nor does a graph that ends in a
        linear layer.
    threshold : float, optional
        From where on a binary model says class 1; 0.5 unless the file says so. With ``output="identity"`` it is needed.
    classes : sequence, optional
        Class labels; (0, 1) or 0..m-1 unless the file says so.
    feature_names : sequence of str, optional
        Names of the inputs.

    Returns
    -------
    Model
        A `FeedForward`, or a classifier behind its preprocessing.

    Notes
    -----
    What contradicts the file is refused.
    """
    source = _path(path, [*_FORMATS])
    module, reader, _ = _FORMATS[source.suffix.lower()]
    stated = Stated(activation, output, threshold, classes, feature_names)
    try:
        read: Callable[[Path, bytes, Stated], Model] = getattr(import_module(f"apas.models.files.{module}"), reader)
        return read(source, _content(source), stated)
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
        raise InputError(f"`path` must end in {_listed(known)}, got {str(target)!r}; {CONVERT}.")
    return target


def _content(path: Path) -> bytes:
    try:
        status = path.stat()  # before it is opened, as a pipe would keep us waiting
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} cannot be read: it is not a plain file.")
        if status.st_size > LARGEST:
            raise InputError(f"{path} has {status.st_size} bytes, more than the {LARGEST} that apas reads as a model.")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # a zero byte in the name
        if isinstance(error, InputError):
            raise
        raise InputError(f"`path` must be the name of a file, got {str(path)!r}: {error}.") from error


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
