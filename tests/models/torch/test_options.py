"""What `as_model` asks about a PyTorch module, and what it refuses in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from torch_modules import Branched, Picture, Probable, Words, nn, torch

import apas


def linear(inputs=3, outputs=1, *rest):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 4), nn.ReLU(), nn.Linear(4, outputs), *rest).eval()


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.only = nn.Linear(3, 1)

    def forward(self, x):
        return self.only(x), x


class Turned(nn.Module):
    def __init__(self, summed=False):
        super().__init__()
        self.only, self.summed = nn.Linear(3, 4), summed

    def forward(self, x):
        return self.only(x).sum(dim=0) if self.summed else self.only(x).T


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.only = nn.Conv2d(1, 2, 1)

    def forward(self, x):
        return self.only(x)


class Unbounded(nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.only = nn.Linear(3, outputs)

    def forward(self, x):
        return self.only(x) + 5.0


def mixed():
    module = Branched(3)
    module.last.double()
    return module.eval()


def unstable():
    module = Branched(3)
    with torch.no_grad():
        module.first.weight[0, 0] = torch.nan
    return module.eval()


def hooked():
    module = linear(3, 1, nn.Sigmoid())
    module[3].register_forward_hook(lambda m, x, y: 1 - y)
    return module


REFUSED = {
    "no output": (lambda: linear(), {}, apas.InputError, r"`output` of as_model must say .*last layer does not; .*would certify everything"),
    "no output of a custom module": (lambda: Branched(3).eval(), {}, apas.InputError, "`output` of as_model must say"),
    "no output of a probability": (lambda: Probable().eval(), {}, apas.InputError, "`output` of as_model must say"),
    "no output of a softmax over rows": (lambda: linear(3, 3, nn.Softmax(dim=0)), {}, apas.InputError, "`output` of as_model must say"),
    "no output behind a hook": (hooked, {}, apas.InputError, "`output` of as_model must say"),
    "unknown output": (lambda: linear(), {"output": "sigmoid"}, apas.InputError, r"`output` of as_model must be one of 'logit', .*got 'sigmoid'"),
    "output is no text": (lambda: linear(), {"output": 3}, apas.InputError, "`output` of as_model must be one of .*got 3"),
    "a probability called a logit": (lambda: linear(3, 1, nn.Sigmoid()), {"output": "logit"}, apas.InputError, r'`output` of as_model is "logit", but the module ends in Sigmoid, which gives "probability"'),
    "probabilities called logits": (lambda: linear(3, 3, nn.Softmax(-1)), {"output": "logits"}, apas.InputError, 'ends in Softmax, which gives "probabilities"'),
    "logits called probabilities": (lambda: linear(3, 3, nn.LogSoftmax(1)), {"output": "probabilities"}, apas.InputError, 'ends in LogSoftmax, which gives "logits"'),
    "one logit but three numbers": (lambda: linear(3, 3), {"output": "logit"}, apas.InputError, r'`output` of as_model is "logit", which needs 1 number, but the module gives 3 per row; use "logits"'),
    "logits but one number": (lambda: Branched(3).eval(), {"output": "logits"}, apas.InputError, 'is "logits", which needs a number per class, but the module gives 1 per row; use "logit"'),
    "several labels at once": (lambda: linear(3, 3, nn.Sigmoid()), {}, apas.InputError, 'is "probability", which needs 1 number, but the module gives 3'),
    "sigmoids as shares": (lambda: Unbounded(3).eval(), {"output": "probabilities"}, None, "which is no probability; use \"logits\" if it gives logits"),
    "a logit called a probability": (lambda: Unbounded().eval(), {"output": "probability"}, None, 'is "probability", but the module gives .*, which is no probability; use "logit"'),
    "a linear layer called a probability": (lambda: linear(3, 2), {"output": "probabilities"}, None, "which is no probability|do not sum to 1"),
    "too few classes": (lambda: linear(), {"output": "logit", "classes": ["a"]}, apas.InputError, r"`classes` of as_model must hold 2 different texts or numbers, got \['a'\]"),
    "doubled classes": (lambda: Branched(3, 4, 3).eval(), {"output": "logits", "classes": [1, 1, 2]}, apas.InputError, "`classes` of as_model must hold 3 different"),
    "classes as one text": (lambda: linear(), {"output": "logit", "classes": "no"}, apas.InputError, "`classes` of as_model must hold 2"),
    "strange classes": (lambda: linear(), {"output": "logit", "classes": [None, 1]}, apas.InputError, "`classes` of as_model must hold 2"),
    "threshold": (lambda: linear(), {"output": "logit", "threshold": 1.0}, apas.InputError, "`threshold` of as_model must be a number strictly between 0 and 1, got 1.0"),
    "threshold with three classes": (lambda: linear(3, 3), {"output": "logits", "threshold": 0.6}, apas.InputError, "`threshold` of as_model only applies to two classes, but there are 3"),
    "threshold that float32 does not know": (lambda: linear(), {"output": "logit", "threshold": 1 - 1e-9}, apas.InputError, "`threshold` of as_model is .*torch.float32 cannot tell from 0 or 1"),
    "input shape of a sequence": (lambda: linear(), {"output": "logit", "input_shape": (4,)}, apas.InputError, r"`input_shape` of as_model is \(4,\), which holds 4 numbers, but the first layer takes 3"),
    "input shape of a module": (lambda: Branched(3).eval(), {"output": "logit", "input_shape": (4,)}, apas.InputError, r"could not answer 2 rows of shape \(4,\): RuntimeError: .*; is `input_shape` of as_model right"),
    "no input shape": (lambda: Picture().eval(), {"output": "logits"}, apas.InputError, r"`input_shape` of as_model must be given, .*input_shape=\(3, 32, 32\)"),
    "no input shape of words": (lambda: Words().eval(), {"output": "logits"}, apas.InputError, "`input_shape` of as_model must be given"),
    "input shape of zero": (lambda: Picture().eval(), {"output": "logits", "input_shape": (1, 0, 6)}, apas.InputError, r"`input_shape` of as_model must be the shape of one input as positive integers.*got \(1, 0, 6\)"),
    "input shape as a number": (lambda: Picture().eval(), {"output": "logits", "input_shape": 36}, apas.InputError, "`input_shape` of as_model must be the shape .*got 36"),
    "too few names": (lambda: Branched(3).eval(), {"output": "logit", "feature_names": ["a", "b"]}, apas.InputError, r"could not answer 2 rows of shape \(2,\)"),
    "too few names of a sequence": (lambda: linear(), {"output": "logit", "feature_names": ["a", "b"]}, apas.InputError, "`feature_names` must hold 3 different names"),
    "names against shape": (lambda: Picture().eval(), {"output": "logits", "input_shape": (1, 6, 6), "feature_names": ["a"]}, apas.InputError, "`feature_names` must hold 36 different names"),
    "two outputs": (lambda: Pair().eval(), {"output": "logit"}, apas.InputError, r"must give one tensor of shape \(rows,\) or \(rows, outputs\), but 2 rows gave tuple; wrap it"),
    "a map of classes": (lambda: Map().eval(), {"output": "logits", "input_shape": (1, 2, 2)}, apas.InputError, r"2 rows gave a tensor of shape \(2, 2, 2, 2\)"),
    "rows last": (lambda: Turned().eval(), {"output": "logits"}, apas.InputError, r"2 rows gave a tensor of shape \(4, 2\)"),
    "one answer to all rows": (lambda: Turned(summed=True).eval(), {"output": "logits"}, apas.InputError, r"2 rows gave a tensor of shape \(4,\)"),
    "nothing to shift": (lambda: nn.Sequential(nn.Flatten(), nn.Sigmoid()).eval(), {}, apas.InputError, "must have parameters to shift, but this Sequential has none"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(1)).eval(), {"output": "logit"}, apas.InputError, "must be initialised, but has lazy layers"),
    "not a number": (unstable, {"output": "logit"}, apas.InputError, "parameters must be finite, but first.weight is not; was the training stable"),
    "half precision": (lambda: Branched(3).half().eval(), {"output": "logit"}, apas.Unsupported, r"must all be float32 or all float64, but are float16; pass copy.deepcopy\(module\).float\(\)"),
    "mixed precision": (mixed, {"output": "logit"}, apas.Unsupported, "but are float32 and float64"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(("make", "options", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(make, options, error, message):
    module = make()
    if error is None:  # what the numbers are shows only on the user's rows
        model = apas.as_model(module, **options)
        with pytest.raises(apas.InputError, match=message) as caught:
            apas.certify(model, np.random.default_rng(0).normal(size=(3, 3)), 0.1, target=1)
    else:
        with pytest.raises(error, match=message) as caught:
            apas.as_model(module, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value)[-1] in ".?)" or error is not None


def test_certify_takes_a_module_whose_last_layer_tells():
    X = np.random.default_rng(0).normal(size=(3, 3))
    for module in (
        linear(3, 1, nn.Sigmoid()),
        linear(3, 3, nn.Softmax(1)),
        linear(3, 2, nn.LogSoftmax(-1), nn.Identity()),
    ):
        certificates = apas.certify(module, X, 1e-5, target="predicted", rng=0)
        assert certificates.certified.all()
    with pytest.raises(apas.InputError, match=r"apas.as_model\(module, output=\.\.\.\)"):
        apas.certify(linear(), X, 1e-5, target=1)


def test_an_unsuitable_logarithm_of_probabilities_is_a_logit():
    X = np.random.default_rng(0).normal(size=(3, 3))
    bare, log = linear(3, 3), linear(3, 3, nn.LogSoftmax(1))
    margins = [apas.as_model(m, output="logits").margin(X, 2) for m in (bare, log)]
    assert np.array_equal(*margins)


def test_whole_numbers_are_asked_for():
    torch.manual_seed(0)
    model = apas.as_model(Words().eval(), output="logits", input_shape=(6,))
    X = np.array([[0.0, 1, 2, 3, 4, 5], [11, 11, 0, 0, 1.5, 2]])
    assert model.margin(X[:1], 1).shape == (1,)
    with pytest.raises(apas.InputError, match=r"`X` must hold whole numbers, .*row 1, column 4 is 1.5"):
        apas.certify(model, X, 0.1, target=1)
    X[1, 4] = 12
    with pytest.raises(apas.InputError, match="could not answer 2 rows of shape .*IndexError: index out of range"):
        apas.certify(model, X, 0.1, target=1)


def test_a_module_that_takes_floats_is_given_floats():
    class Both(nn.Module):
        """Two columns are categories, the third is a number that must not be cut off."""

        def __init__(self):
            super().__init__()
            self.embed, self.last = nn.Embedding(4, 2), nn.Linear(5, 1)

        def forward(self, x):
            return self.last(torch.cat([self.embed(x[:, :2].long()).flatten(1), x[:, 2:]], dim=1))

    torch.manual_seed(0)
    model = apas.as_model(Both().eval(), output="logit", input_shape=(3,))
    low, high = model.margin(np.array([[1.0, 3.0, 0.1], [1.0, 3.0, 0.9]]), 1)
    assert low != high


def test_frozen_parameters_move_unless_they_are_left_out():
    module = Branched(3).eval()
    module.first.requires_grad_(False)
    model = apas.as_model(module, output="logit")
    assert "first.weight" in model.parameters.names
    assert not module.first.weight.requires_grad
    slopes = model.parameter_gradient(np.ones((1, 3)), 1)[1]
    assert slopes[0, model.parameters.slices[model.parameters.names.index("first.bias")]].any()


def test_modules_without_gradients_can_be_sampled():
    class Cut(Branched):
        def forward(self, x):
            with torch.no_grad():
                return super().forward(x)

    class Counted(Branched):
        """Leaves Python numbers behind on the way, as NumPy would."""

        def forward(self, x):
            rows = [float(v) for v in super().forward(x)[:, 0].detach()]
            return torch.tensor(rows, dtype=x.dtype)

    torch.manual_seed(0)
    X = np.random.default_rng(0).normal(size=(2, 5))
    method = apas.Sampling(coverage=0.9, confidence=0.9, n_samples=50)
    model = apas.as_model(Cut().eval(), output="logit")
    assert apas.certify(model, X, 1e-4, target="predicted", method=method, rng=0).certified.all()
    with pytest.warns(UserWarning, match="Counted cannot be evaluated by torch.func.vmap"):
        model = apas.as_model(Counted().eval(), output="logit")
    assert apas.certify(model, X, 1e-4, target="predicted", method=method, rng=0).certified.all()
    with pytest.raises(apas.Unsupported, match="Counted has no gradients that autograd can compute"):
        model.parameter_gradient(X, 1)


def test_float32_numbers_made_inside_do_no_harm():
    class Stubborn(Branched):
        """Always computes in float32, so that it cannot be looked at in float64."""

        def forward(self, x):
            return super().forward(x + torch.zeros(5, dtype=torch.float32)) @ torch.ones(1, 1, dtype=torch.float32)

    torch.manual_seed(0)
    module = Stubborn().eval()
    model = apas.as_model(module, output="logit")
    x = np.zeros((1, 5))
    with torch.no_grad():
        module.last.bias -= module(torch.zeros(1, 5))[0]
    model = apas.as_model(module, output="logit")
    assert abs(model.margin(x, 1)[0]) < 1e-6
    assert len(apas.certify(model, x, 0.01, target="predicted", rng=0)) == 1
