"""Modules that would be certified for the wrong reason: those whose answers do not follow what apas moves."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from torch_modules import nn, torch

import apas
from apas.models.digest import model_digest, unidentified

DIRECTIONS = np.random.default_rng(0).uniform(-1, 1, (20, 3))
ROWS = np.array([[0.3, 0.2], [-1.0, 0.5]])


class Listed(nn.Module):
    """Computes with a list of its parameters, which `functional_call` does not replace."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(2, 1)), nn.Parameter(torch.zeros(1))
        self.kept = [self.weight, self.bias]

    def forward(self, x):
        return x @ self.kept[0] + self.bias


class Viewed(nn.Module):
    """Computes with a view of its parameter, which training moves along."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 1))
        self.half = self.weight.data[:2]

    def forward(self, x):
        return x @ self.half


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        return torch.complex(self.last(x), self.last(x))


def by_hand(module, direction, delta):
    """Logits of a copy whose parameters are moved one tensor after the other."""
    moved, start = copy.deepcopy(module), 0
    with torch.no_grad():
        for p in moved.parameters():
            p += delta * torch.tensor(direction[start : start + p.numel()], dtype=p.dtype).view(p.shape)
            start += p.numel()
        return moved(torch.tensor(ROWS, dtype=torch.float32)).numpy()[:, 0]


def test_parameters_kept_in_a_list_move_too():
    torch.manual_seed(0)
    module = Listed().eval()
    with pytest.warns(UserWarning, match=r"cannot be evaluated by torch\.func\.vmap"):
        model = apas.as_model(module, output="logit", input_shape=(2,))
    expected = [by_hand(module, direction, 0.5) for direction in DIRECTIONS]
    np.testing.assert_allclose(model.shifted_margins(ROWS, 1, DIRECTIONS, 0.5), expected, rtol=1e-5, atol=1e-6)
    assert not apas.certify(model, ROWS[:1], 5.0, target="predicted", rng=0)[0].is_certified


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 1), lambda: nn.Sequential(nn.Linear(2, 1))])
def test_a_forward_that_calls_another_module_is_refused(make):
    module, other = make().eval(), nn.Linear(2, 1)
    module.forward = lambda x: other(x)
    with pytest.raises(
        apas.InputError, match="answers must follow its parameters, but moving all of them changes none"
    ):
        apas.as_model(module, output="logit", input_shape=(2,))


def test_a_forward_of_its_own_is_no_dense_network():
    module = nn.Sequential(nn.Linear(2, 1)).eval()
    module.forward = type(module.forward)(lambda self, x: -self[0](x), module)
    model = apas.as_model(module, output="logit", input_shape=(2,))
    expected = module(torch.tensor(ROWS, dtype=torch.float32)).detach().numpy()[:, 0]
    np.testing.assert_allclose(model.margin(ROWS, 1), expected, rtol=1e-5)


def test_a_softmax_inside_stays_where_a_sequence_is_used_twice():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=1))
    module = nn.Sequential(block, block).eval()
    shares = module(torch.tensor(ROWS, dtype=torch.float32)).detach().numpy()
    margins = apas.as_model(module).margin(ROWS, 1)
    np.testing.assert_allclose(margins, np.log(shares[:, 1]) - np.log(shares[:, 0]), rtol=1e-4)


def test_a_softmax_over_rows_is_not_read_as_one_over_classes():
    module = nn.Sequential(nn.Linear(2, 3), nn.Softmax(dim=0)).eval()
    with pytest.raises(apas.InputError, match="must not depend on the other rows"):
        apas.as_model(module, output="logits")


def tied_by_memory():
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 1))
    module[2].weight.data = module[0].weight.data
    return module


REFUSED = {
    "a view": (Viewed, apas.Unsupported, "half is a view of weight, which a shift would not move"),
    "ties by memory": (tied_by_memory, apas.Unsupported, r"0\.weight and 2\.weight only share their memory"),
    "no values": (lambda: nn.Linear(2, 1, device="meta"), apas.InputError, "must have values, but are on the meta"),
    "complex numbers": (Complex, apas.InputError, "2 rows gave complex numbers in a tensor of shape"),
}


@pytest.mark.parametrize(("make", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        apas.as_model(make().eval(), output="logit", input_shape=(2,))


def test_the_modes_and_defaults_of_the_caller_do_not_matter():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(2, 1)).eval()

    def answers():
        model = apas.as_model(module, output="logit", input_shape=(2,))
        return [apas.certify(model, ROWS, 0.05, target="predicted", method=m, rng=0) for m in ("sampling", "attack")]

    expected = answers()
    with torch.inference_mode():
        assert answers() == expected
    with torch.device("meta"):
        assert answers() == expected
    torch.set_default_dtype(torch.float64)
    try:
        assert answers() == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_noise_on_the_indices_of_an_embedding():
    torch.manual_seed(0)
    words = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 1)).eval()
    model, rows = apas.as_model(words, output="logit", input_shape=(4,)), np.array([[4.0, 3, 5, 4], [4.0, 4, 4, 4]])
    noise = apas.InputNoise(integers=range(4))
    certificates = apas.certify(model, rows, 1.4, target="predicted", shifts=noise, rng=0)
    alone = [apas.certify(model, row[None], 1.4, target="predicted", shifts=noise, rng=0)[0] for row in rows]
    assert list(certificates) == alone
    assert certificates[0].evidence.draws > 0


def scaled_by(number, text="return self.layer(x) * {number}", **members):
    """A module whose code says by how much it scales; its name and its parameters do not."""
    names = {"nn": nn}
    exec(
        "class Scaled(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(2, 1)\n"
        f"    def forward(self, x):\n        {text.format(number=number)}\n",
        names,
    )
    torch.manual_seed(0)
    module = names["Scaled"]().eval()
    vars(module).update(members)
    return module


def hooked(scale):
    module = nn.Sequential(nn.Linear(2, 2), nn.Softplus(), nn.Linear(2, 1)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    module.register_forward_hook(lambda layer, given, answer: answer * scale)
    return module


def patched(scale):
    module = scaled_by(1.0)
    module.forward = type(module.forward)(lambda self, x: self.layer(x) * scale, module)
    return module


def listing(scale):
    """A layer that is not registered is a constant, and registered ones are parts."""
    outside = nn.Linear(1, 1).double().float()
    with torch.no_grad():
        outside.weight.fill_(scale)
    module = scaled_by(1.0, "return self._layers[1](self._layers[0](x))")
    module._layers = [module.layer, outside.requires_grad_(False)]
    return module


DIFFERING = {
    "constant": scaled_by,
    "private member": lambda scale: scaled_by(1.0, "return self.layer(x) * self._scale", _scale=scale),
    "public member": lambda scale: scaled_by(1.0, "return self.layer(x) * self.scale", scale=scale),
    "function": lambda scale: scaled_by(1.0, "return self._f(self.layer(x))", _f=lambda x: x * scale),
    "hook": hooked,
    "forward of its own": patched,
    "layer that is not registered": listing,
}


@pytest.mark.parametrize("name", DIFFERING)
def test_the_code_of_a_module_is_part_of_its_fingerprint(name):
    one, again, other = (
        apas.as_model(DIFFERING[name](scale), output="logit", input_shape=(2,)) for scale in (2.0, 2.0, -2.0)
    )
    assert np.array_equal(one.parameters.values, other.parameters.values)
    assert not np.allclose(one.margin(ROWS, 1), other.margin(ROWS, 1))
    assert model_digest(one) == model_digest(again)
    assert model_digest(one) != model_digest(other)
    assert unidentified(one) == ""


def test_parameters_are_no_part_of_the_code():
    one, other = (scaled_by(2.0, "return self._layers[0](x)") for _ in range(2))
    for module in (one, other):
        module._layers = [module.layer]
    with torch.no_grad():
        other.layer.weight += 1
    old, new = (apas.as_model(module, output="logit", input_shape=(2,)).describe() for module in (one, other))
    assert old == new


def test_audits_of_forwards_that_differ_in_a_constant():
    old, new = (apas.as_model(scaled_by(s), output="logit", input_shape=(2,)) for s in (2.0, -2.0))
    right = ROWS[np.abs(old.margin(ROWS, 1)) > 0.1]
    certificates = apas.certify(old, right, 1e-4, target="predicted", rng=0)
    assert certificates[0].is_certified
    report = apas.audit(certificates, new, base=old, repairs=False)
    assert float(report.shift) == 0
    assert {row.outcome.name for row in report} == {"BROKEN_OUTSIDE"}
    assert "in more than parameters (code)" in report.notes[0]
    with pytest.warns(apas.GuaranteeWarning, match=r"in more than its parameters \(code\)"):
        apas.measure_shift(old, new)


def test_what_a_module_keeps_of_a_call_has_no_fingerprint():
    module = scaled_by(2.0, "self._last = self.layer(x); return self._last", _last=None)
    before = apas.as_model(module, output="logit", input_shape=(2,))
    module(torch.zeros(1, 2))
    after = apas.as_model(module, output="logit", input_shape=(2,))
    assert model_digest(before) == model_digest(after)
    assert unidentified(before) == unidentified(after) == "code (_last, which forward() changes)"


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_module_is_not_identified():
    scripted = torch.jit.trace(scaled_by(2.0), torch.zeros(1, 2))
    with pytest.warns(UserWarning, match=r"cannot be evaluated by torch\.func\.vmap"):
        model = apas.as_model(scripted, output="logit", input_shape=(2,))
    assert unidentified(model) == "code (a TorchScript module)"


def test_networks_of_pytorch_alone_keep_their_fingerprint():
    module = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.SiLU(), nn.Linear(3, 1)).eval()
    assert "code" not in apas.as_model(module, output="logit").describe()
