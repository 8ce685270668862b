"""`.pt` files: the state of a module is read as data, and what else could be in such a file is refused."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import absent
from hostile_files import GOOD_STATE, state_file, state_record

import apas
from apas.models.digest import model_digest
from apas.models.files.formats import read_archive


def test_a_state_written_by_hand(tmp_path):
    for suffix in (".pt", ".pth", ".PT"):
        path = tmp_path / f"net{suffix}"
        path.write_bytes(GOOD_STATE)
        net = apas.load_model(path, activation="relu", output="sigmoid")
        plain = apas.FeedForward([np.ones((2, 3)), np.ones((3, 1))], [np.zeros(3), np.zeros(1)])
        assert model_digest(net) == model_digest(plain)


def test_views_and_the_order_of_bytes(tmp_path):
    numbers = np.arange(20.0)
    record = state_record(("0.weight", "a", 20, 3, (2, 3), (1, 5)))
    content = state_file(record, a=numbers.astype(">f8").tobytes()).replace(b"little", b"big   ")
    with pytest.raises(apas.InputError, match="is not a whole zip archive: Bad CRC"):
        read_archive(tmp_path / "x", content)
    for order, dtype in (("little", "<f8"), ("big", ">f8")):
        import hostile_files

        members = {
            "net/data.pkl": record,
            "net/byteorder": order.encode(),
            "net/data/a": numbers.astype(dtype).tobytes(),
        }
        (tmp_path / "net.pt").write_bytes(hostile_files.archive(members))
        net = apas.load_model(tmp_path / "net.pt", output="softmax")
        assert np.array_equal(net.weights[0], [[3, 4], [8, 9], [13, 14]])


def test_what_is_not_told(tmp_path):
    (tmp_path / "net.pt").write_bytes(GOOD_STATE)
    with pytest.raises(apas.InputError, match="`activation` of load_model must say"):
        apas.load_model(tmp_path / "net.pt", output="sigmoid")
    with pytest.raises(apas.InputError, match="`output` of load_model must say"):
        apas.load_model(tmp_path / "net.pt", activation="relu")


# -- files of PyTorch itself -------------------------------------------------------------------------------------

try:
    import torch
    from torch import nn
except ModuleNotFoundError:
    torch = None


@pytest.fixture
def _torch():
    if torch is None:
        absent("torch", "PyTorch is not installed: make test TORCH=1")
    torch.manual_seed(0)


def network(dtype=None):
    return (
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))
        .to(dtype)
        .eval()
    )


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_states_of_sequences(kind, tmp_path):
    module = network(getattr(torch, kind))
    torch.save(module.state_dict(), tmp_path / "net.pt")
    net = apas.load_model(tmp_path / "net.pt", activation=["tanh", "relu"], output="softmax")
    used = module if kind == "float64" else module.float()  # what is stored in less is used in float32
    assert net.dtype == ("float64" if kind == "float64" else "float32")
    assert model_digest(net) == model_digest(apas.as_model(used, output="logits"))


@pytest.mark.usefixtures("_torch")
def test_states_in_other_shapes(tmp_path):
    module = network()
    plain = model_digest(apas.as_model(module, output="logits"))
    parameters = dict(module.named_parameters())
    turned = {name: p.detach().t().contiguous().t() if p.ndim == 2 else p for name, p in parameters.items()}
    assert not turned["0.weight"].is_contiguous()

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

    own = Own()
    own.inner.load_state_dict(module.state_dict())
    for state in (dict(module.state_dict()), parameters, turned, own.state_dict()):
        torch.save(state, tmp_path / "net.pt")
        net = apas.load_model(tmp_path / "net.pt", activation=["tanh", "relu"], output="softmax")
        assert model_digest(net) == plain


@pytest.mark.usefixtures("_torch")
def test_what_torch_save_can_write_besides(tmp_path):
    module, path = network(), tmp_path / "net.pt"
    state = module.state_dict()
    tied = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    tied[2].weight = tied[0].weight
    cases = [
        (module, apas.UnsafeFile, "could run code when read .it names torch.nn.modules.container.Sequential"),
        ({"state": state, "epoch": 3}, apas.InputError, "must hold tensors only, but 'state' is dict; write the state alone"),
        ({**state, "epoch": 3}, apas.InputError, "'epoch' is int"),
        (state["0.weight"], apas.InputError, "must hold a dictionary of tensors by name"),
        ([state["0.weight"]], apas.InputError, "must hold a dictionary of tensors by name"),
        (nn.BatchNorm1d(3).state_dict(), apas.InputError, "must hold floating point parameters|has shape"),
        (nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)).state_dict(), apas.InputError, "'1.weight' has shape"),
        (nn.Conv1d(2, 2, 2).state_dict(), apas.InputError, "'weight' has shape"),
        (tied.state_dict(), apas.Unsupported, "tied parameters move together"),
        ({}, apas.InputError, "holds no parameters"),
        ({"weight": torch.ones(1, 2).to_sparse()}, apas.UnsafeFile, "could run code"),
        ({"weight": torch.ones(1, 2, dtype=torch.complex64)}, apas.UnsafeFile, "could run code"),
        ({"weight": torch.ones(1, 2, dtype=torch.int64)}, apas.InputError, "LongStorage"),
    ]  # fmt: skip
    for content, error, message in cases:
        torch.save(content, path)
        with pytest.raises(error, match=message):
            apas.load_model(path, activation="relu", output="softmax")
    torch.save(state, path, _use_new_zipfile_serialization=False)
    with pytest.raises(apas.InputError, match="is not a file of torch.save .or of a version before 1.6"):
        apas.load_model(path, activation="relu", output="softmax")


@pytest.mark.usefixtures("_torch")
def test_torchscript_is_refused(tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch would like to be rid of it
        torch.jit.script(network()).save(str(tmp_path / "net.pt"))
    with pytest.raises(apas.UnsafeFile, match="is a TorchScript program"):
        apas.load_model(tmp_path / "net.pt", activation="relu", output="softmax")


@pytest.mark.usefixtures("_torch")
def test_safetensors_of_pytorch(tmp_path):
    from safetensors.torch import save_file

    module = network()
    save_file(module.state_dict(), tmp_path / "net.safetensors")
    net = apas.load_model(tmp_path / "net.safetensors", activation=["tanh", "relu"], output="softmax")
    assert model_digest(net) == model_digest(apas.as_model(module, output="logits"))
