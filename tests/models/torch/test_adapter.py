"""Any PyTorch module: margins against shifts written into a copy by hand, evidence that does not depend on batches."""

from __future__ import annotations

import contextlib
import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from torch_modules import (
    CASES,
    Branched,
    Forked,
    Picture,
    Probable,
    by_hand,
    model_of,
    module_of,
    nn,
    rows_of,
    state,
    torch,
)

import apas
from apas import LinfShifts, Sampling
from apas.certification import failing_draws as scan
from apas.models.base import Dense, Differentiable, Scaled, offers
from apas.models.digest import model_digest
from apas.models.torch import passes as torchpasses

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
METHOD = Sampling(coverage=0.95, n_samples=1500)


@contextlib.contextmanager
def said(case):
    """A slow module says so, once, when it is read; nothing else warns."""
    if case.slow:
        with pytest.warns(
            UserWarning, match=r"cannot be evaluated by torch.func.vmap .*; the answers are the same"
        ) as seen:
            yield
        assert len(seen) == 1
    else:
        yield


def read(case, module, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model_of(case, module, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_margins_equal_a_shift_by_hand(name, dtype):
    case = CASES[name]
    module, X = module_of(case, DTYPES[dtype]), rows_of(case)
    before = state(module)
    with said(case):
        model = model_of(case, module)
    rng = np.random.default_rng(1)
    k, label, tolerance = len(model.parameters), model.classes[-1], TOLERANCE[dtype]
    close = {"rtol": tolerance, "atol": tolerance}
    assert k == sum(p.numel() for p in module.parameters())
    np.testing.assert_allclose(model.margin(X, label), by_hand(case, module, X, np.zeros(k), 0.0), **close)
    directions = rng.uniform(-1, 1, (20, k))
    for drawn in (directions, np.asfortranarray(directions), directions[:1]):
        for delta in (0.05, 0.3):
            got = model.shifted_margins(X, label, drawn, delta)
            want = [by_hand(case, module, X, u, delta) for u in drawn]
            np.testing.assert_allclose(got, want, **close)
    deltas = np.where(np.arange(len(X)) % 3, 0.05, 0.3)
    each = model.shifted_margins(X, label, directions[:5], deltas)
    want = [[by_hand(case, module, X[i : i + 1], u, d)[0] for i, d in enumerate(deltas)] for u in directions[:5]]
    np.testing.assert_allclose(each, want, **close)
    assert state(module) == before
    # another class, and one per row
    labels = [model.classes[i % len(model.classes)] for i in range(len(X))]
    mixed = model.margin(X, labels)
    np.testing.assert_allclose(mixed, [model.margin(X[i : i + 1], c)[0] for i, c in enumerate(labels)], **close)


@pytest.mark.parametrize("name", CASES)
def test_evidence_does_not_depend_on_blocks_or_other_rows(monkeypatch, name):
    case = CASES[name]
    model = read(case, module_of(case))
    X = rows_of(case, 5 if case.slow else 12, seed=3)
    method = Sampling(coverage=0.8, confidence=0.9, n_samples=150) if case.slow else METHOD

    def evidence(rows):
        return [c.evidence for c in apas.certify(model, X[rows], 0.15, target="predicted", method=method, rng=2)]

    expected = evidence(np.arange(len(X)))
    order = np.random.default_rng(0).permutation(len(X))
    assert evidence(order) == [expected[i] for i in order]
    assert evidence([3]) == [expected[3]]
    monkeypatch.setattr(scan, "NUMBERS", 1 << 13)
    monkeypatch.setattr(scan, "ROWS", 5)
    monkeypatch.setattr(torchpasses, "VALUES", 1 << 11)
    assert evidence(np.arange(len(X))) == expected


def test_rows_within_rounding_of_the_boundary():
    """Float32 sums near 0 differ from batch to batch; what is counted must not."""
    torch.manual_seed(0)

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.only = nn.Linear(40, 1)

        def forward(self, x):
            return self.only(x)

    module = Linear().eval()
    with torch.no_grad():
        module.only.bias.zero_()
    w = module.only.weight.detach().double().numpy()[0]
    X = np.random.default_rng(0).normal(size=(200, 40))
    X -= np.outer(X @ w, w) / (w @ w)  # on the boundary, up to the rounding of float32
    model = apas.as_model(module, output="logit")
    raw = module(torch.tensor(X, dtype=torch.float32)).detach().double().numpy()[:, 0]
    alone = np.array([float(module(torch.tensor(x[None], dtype=torch.float32)).detach()) for x in X])
    assert ((raw > 0) != (alone > 0)).any()  # the module itself changes its mind
    assert (np.abs(raw) < model.margin_scale(X, np.zeros(41), 0.0) * 1e-12).all()
    together = apas.certify(model, X, 0.1, target=1, method=METHOD, rng=0)
    single = [apas.certify(model, x[None], 0.1, target=1, method=METHOD, rng=0)[0] for x in X]
    assert [(c.verdict, c.evidence) for c in together] == [(c.verdict, c.evidence) for c in single]


def test_the_scale_covers_what_rounding_does():
    for name in ("branched", "conv and batch norm", "transformer", "probability", "four classes"):
        case = CASES[name]
        coarse, fine = module_of(case), module_of(case).double()
        X = rows_of(case, 30).astype(np.float32).astype(float)
        models = [model_of(case, m, threshold=0.9 if name == "probability" else 0.5) for m in (coarse, fine)]
        k = len(models[0].parameters)
        directions = np.random.default_rng(0).uniform(-1, 1, (40, k))
        for delta in (0.01, 0.3):
            low, high = (m.shifted_margins(X, m.classes[-1], directions, delta) for m in models)
            band = 1e-12 * models[0].margin_scale(X, np.ones(k), delta)
            assert (np.abs(low - high) < 0.5 * band).all()
            assert (band < 1e-3).all()
            assert (models[1].margin_scale(X, np.ones(k), delta) < 1e3).all()


def test_workers_get_the_same_module():
    case = CASES["conv and batch norm"]
    model, X = model_of(case, module_of(case)), rows_of(case, 4)
    method = Sampling(coverage=0.9, confidence=0.9, n_samples=400)
    calls = [apas.certify(model, X, 0.1, target="predicted", method=method, n_jobs=n, rng=0) for n in (1, 2)]
    assert calls[0] == calls[1]


def test_how_much_a_pass_takes_is_found_out():
    torch.manual_seed(0)
    wide = apas.as_model(Branched(300, 400).eval(), output="logit")._passes
    assert wide.widest == 400  # not the 120,000 numbers of its weights
    case = CASES["transformer"]
    assert model_of(case, module_of(case))._passes.batched  # although `vmap` has no rule for fused attention
    case = CASES["control flow"]
    assert 4 <= read(case, module_of(case))._passes.widest <= 20


def test_pickles_are_as_large_as_the_module():
    model = apas.as_model(nn.Sequential(*[nn.Linear(50, 50) for _ in range(8)], Branched(50, 5)).eval(), output="logit")
    written = pickle.dumps(model)
    assert len(written) < 20 * len(model.parameters)
    X = np.random.default_rng(0).normal(size=(3, 50))
    again = pickle.loads(written)
    assert np.array_equal(again.margin(X, 1), model.margin(X, 1))
    assert model_digest(again) == model_digest(model)


def test_threads_do_not_disturb_each_other():
    case = CASES["branched"]
    model, X = model_of(case, module_of(case)), rows_of(case, 2)
    directions = np.random.default_rng(0).uniform(-1, 1, (40, len(model.parameters)))
    want = [model.shifted_margins(X, 1, u[None], 0.1) for u in directions]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda u: model.shifted_margins(X, 1, u[None], 0.1), directions))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_parameters_are_named_and_tied_ones_counted_once():
    tied = read(CASES["tied weights"], module_of(CASES["tied weights"])).parameters
    assert tied.names == ("again", "one.bias", "two.bias", "last.weight", "last.bias")
    assert tied.layers == ("Tied", "one", "two", "last", "last")
    assert len(tied) == 36 + 6 + 6 + 6 + 1
    words = read(CASES["transformer"], module_of(CASES["transformer"])).parameters
    kinds = dict(zip(words.names, words.kinds, strict=True))
    assert kinds["layers.layers.0.self_attn.in_proj_bias"] == kinds["into.bias"] == "bias"
    assert kinds["layers.layers.0.norm1.weight"] == kinds["into.weight"] == "weight"
    assert (
        dict(zip(words.names, words.layers, strict=True))["layers.layers.1.linear2.weight"] == "layers.layers.1.linear2"
    )
    assert "layers.layers.1.linear2" in words.layer_names
    case = CASES["branched"]
    module = module_of(case)
    model = model_of(case, module)
    for i, (name, p) in enumerate(module.named_parameters()):
        assert model.parameters.names[i] == name
        assert np.array_equal(model.parameters.tensor(i), p.detach().double().numpy())
    chosen = LinfShifts(layers=["around"], kinds=("bias",)).radii(model.parameters)
    assert chosen.sum() == 1


def test_the_model_is_a_snapshot():
    case = CASES["branched"]
    module, X = module_of(case), rows_of(case)
    model = model_of(case, module)
    before = model.margin(X, 1)
    with torch.no_grad():
        module.last.weight += 1.0
    assert np.array_equal(model.margin(X, 1), before)
    assert not np.allclose(model_of(case, module).margin(X, 1), before)


def test_training_mode_is_warned_about_and_left_alone():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    module[2].running_mean.normal_()
    before = state(module)
    X = np.random.default_rng(0).normal(size=(6, 36))
    with pytest.warns(apas.GuaranteeWarning, match=r"training mode.*module.eval\(\)") as seen:
        model = apas.as_model(module, output="logit", input_shape=(1, 6, 6))
    assert len(seen) == 1
    margins = [model.margin(X, 1), model.shifted_margins(X, 1, np.zeros((9, len(model.parameters))), 0.1)[4]]
    assert state(module) == before
    assert module.training
    with torch.no_grad():
        want = copy.deepcopy(module).eval()(torch.tensor(X, dtype=torch.float32).reshape(-1, 1, 6, 6)).numpy()[:, 0]
    for got in margins:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    module.eval()
    module[3].train()  # one layer is enough
    with pytest.warns(apas.GuaranteeWarning, match="training mode"):
        apas.as_model(module, output="logit", input_shape=(1, 6, 6))


def test_a_slow_module_says_so_once_and_gives_the_same():
    case = CASES["control flow"]
    module, X = module_of(case), rows_of(case)
    with said(case):
        model = model_of(case, module)
    certificates = apas.certify(model, X[:2], 0.01, target="predicted", method=Sampling(coverage=0.9, confidence=0.9, n_samples=30), rng=0)  # fmt: skip
    assert len(certificates) == 2

    class Late(Forked):
        """Goes wrong only on other rows than those it was tried with."""

        def forward(self, x):
            return super().forward(x) if (x.shape[0] > 2) else self.last(self.first(x))

    torch.manual_seed(0)
    model = apas.as_model(Late().eval(), output="logit")
    directions = np.random.default_rng(0).uniform(-1, 1, (10, len(model.parameters)))
    with pytest.warns(UserWarning, match="Late cannot be evaluated by torch.func.vmap"):
        margins = model.shifted_margins(X, 1, directions, 0.1)
    assert np.array_equal(margins, model.shifted_margins(X, 1, directions, 0.1))
    assert margins.shape == (10, 9)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name):
    case = CASES[name]
    model = read(case, module_of(case, torch.float64))
    X, label = rows_of(case, 4), model.classes[0]
    k, rng = len(model.parameters), np.random.default_rng(0)
    assert offers(model, Differentiable)
    assert offers(model, Scaled)
    assert not offers(model, Dense)
    moves = rng.uniform(-0.2, 0.2, (4, k))
    for given in (None, moves):
        margins, slopes = model.parameter_gradient(X, label, given)
        base = np.zeros((4, k)) if given is None else given
        want = [model.shifted_margins(X[i : i + 1], label, base[i : i + 1], 1.0)[0, 0] for i in range(4)]
        np.testing.assert_allclose(margins, want, rtol=1e-9, atol=1e-12)
        for _ in range(3):
            u = rng.normal(size=k)
            sides = [
                [model.shifted_margins(X[i : i + 1], label, base[i] + h * u[None], 1.0)[0, 0] for i in range(4)]
                for h in (1e-6, -1e-6)
            ]
            np.testing.assert_allclose(slopes @ u, (np.array(sides[0]) - sides[1]) / 2e-6, rtol=1e-4, atol=1e-6)
        if case.words:
            with pytest.raises(apas.Unsupported, match="takes whole numbers"):
                model.input_gradient(X, label, given)
            continue
        _, slopes = model.input_gradient(X, label, given)
        v = rng.normal(size=X.shape)
        sides = [
            [model.shifted_margins(X[i : i + 1] + h * v[i], label, base[i : i + 1], 1.0)[0, 0] for i in range(4)]
            for h in (1e-6, -1e-6)
        ]
        np.testing.assert_allclose(
            (slopes * v).sum(axis=1), (np.array(sides[0]) - sides[1]) / 2e-6, rtol=1e-4, atol=1e-6
        )
    if model._passes.batched:
        together = model.parameter_gradient(X, label, moves)
        model._passes.batched = False
        alone = model.parameter_gradient(X, label, moves)
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_moves_of_the_wrong_shape():
    case = CASES["branched"]
    model = model_of(case, module_of(case))
    with pytest.raises(apas.InputError, match=r"`moves` must hold one change per row and parameter, shape \(9, "):
        model.parameter_gradient(rows_of(case), 1, np.zeros((9, 2)))


def test_attack_on_a_convolution():
    case = CASES["conv and batch norm"]
    model, X = model_of(case, module_of(case), classes=["a", "b", "c"]), rows_of(case, 3)
    attack = apas.Attack(restarts=2, steps=5)
    certificates = apas.certify(model, X, 0.5, target="predicted", method=attack, rng=0)
    for x, c in zip(X, certificates, strict=True):
        assert c.verdict is apas.Verdict.REFUTED
        values = c.witness.parameters(model)
        assert (np.abs(values - model.parameters.values) <= 0.5).all()
        assert c.witness.margin(model, x[None], c.target) < 0
        assert by_hand(case, module_of(case), x[None], values - model.parameters.values, 1.0)[0] != 0
    unknown = apas.certify(model, X, 1e-6, target="predicted", method=attack, rng=0)
    assert {c.verdict for c in unknown} == {apas.Verdict.UNKNOWN}
    assert apas.certify(model, X, 0.05, target="predicted", shifts="l2", method=attack, rng=0)


def test_from_frame_to_frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        rng.normal(size=(30, 3)), columns=["income", "debts", "age"], index=[f"p{i}" for i in range(30)]
    )
    torch.manual_seed(1)
    module = Branched(3, 6).eval()
    model = apas.as_model(module, output="logit", classes=["denied", "granted"], feature_names=list(table.columns))
    with torch.no_grad():
        said = module(torch.tensor(table.to_numpy(), dtype=torch.float32)).numpy()[:, 0] >= 0
    method = Sampling(coverage=0.9, confidence=0.9, n_samples=500)
    certificates = apas.certify(
        model, table[["age", "income", "debts"]], 0.02, target="predicted", method=method, rng=0
    )
    assert [c.target for c in certificates] == np.where(said, "granted", "denied").tolist()
    frame = certificates.to_frame()
    assert frame.index.tolist() == table.index.tolist()
    assert 0 < (frame["verdict"] == "CERTIFIED").sum() <= 30
    assert list(apas.certify(model, table, 0.02, target="predicted", method=method, rng=0)) == list(certificates)
    tensor = apas.certify(model, torch.tensor(table.to_numpy()), 0.02, target="predicted", method=method, rng=0)
    assert [c.evidence for c in tensor] == [c.evidence for c in certificates]
    wide = apas.max_shift(model, table.iloc[:2], target="predicted", method=method, limit=0.5, rng=0)
    assert all(0 < m.delta <= 0.5 for m in wide)
    with pytest.raises(apas.InputError, match="lacks 'debts'"):
        apas.certify(model, table[["income", "age"]], 0.02, target="predicted")
    proved = apas.certify(model, table, 0.002, target="predicted", method="interval")  # its sum of branches is dense
    assert proved.certified.any()
    assert len(apas.certify(model, table.iloc[:0], 0.02, target="granted")) == 0


def test_saturated_probabilities_are_finite_margins():
    module = Probable().eval()
    with torch.no_grad():
        module.last.weight.zero_()
    for dtype, most in ((torch.float32, 17.0), (torch.float64, 38.0)):
        for bias in (200.0, -2000.0):
            with torch.no_grad():
                module.to(dtype).last.bias.fill_(bias)
            model = apas.as_model(module, output="probability")
            margin = model.margin(np.zeros((1, 5)), 1)[0]
            assert np.isfinite(margin)
            assert (margin > 0) == (bias > 0)
            assert margin < most
            assert model.margin(np.zeros((1, 5)), 0)[0] == -margin
            slopes = model.parameter_gradient(np.zeros((1, 5)), 1)[1]
            assert np.isfinite(slopes).all()
            certificate = apas.certify(model, np.zeros((1, 5)), 0.1, target=int(bias > 0), method=METHOD, rng=0)[0]
            assert certificate.is_certified


def test_the_logits_before_a_final_sigmoid_are_used():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Unflatten(1, (1, 6, 6)), Picture(1))
    with torch.no_grad():
        body[1].last.bias += 50.0
    model = apas.as_model(nn.Sequential(body, nn.Sequential(nn.Sigmoid(), nn.Identity())).eval(), input_shape=(36,))
    X = np.random.default_rng(0).normal(size=(4, 36))
    want = apas.as_model(body.eval(), output="logit", input_shape=(36,)).margin(X, 1)
    assert np.array_equal(model.margin(X, 1), want)
    assert (want > 40).all()


def test_what_a_module_keeps_of_a_call_does_no_harm():
    class Keeping(Branched):
        def forward(self, x):
            self.seen = self.first(x)
            return self.last(torch.relu(self.seen))

    torch.manual_seed(0)
    module = Keeping().eval()
    module(torch.zeros(2, 5))  # leaves a tensor with a graph behind
    assert not module.seen.is_leaf
    kept = module.seen
    model = apas.as_model(module, output="logit")
    digest, X = model_digest(model), np.random.default_rng(0).normal(size=(4, 5))
    model.shifted_margins(X, 1, np.zeros((20, len(model.parameters))), 0.1)
    model.parameter_gradient(X, 1)
    model._passes.batched = False
    model.parameter_gradient(X, 1)
    assert model_digest(model) == digest == model_digest(copy.deepcopy(model))
    assert len(apas.certify(model, X, 0.5, target="predicted", method=METHOD, rng=0)) == 4
    assert module.seen is kept
    module.seen = [kept]  # too well hidden
    with pytest.raises(
        apas.Unsupported, match="this Keeping cannot be copied, and apas changes only copies: Only Tensors"
    ):
        apas.as_model(module, output="logit")


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrized_layers(wrap):
    torch.manual_seed(0)
    module = Branched()
    module.first = wrap(module.first)
    module.eval()
    before = state(module)
    model = apas.as_model(module, output="logit")
    X = rows_of(CASES["branched"])
    directions = np.random.default_rng(0).uniform(-1, 1, (12, len(model.parameters)))
    got = model.shifted_margins(X, 1, directions, 0.1)
    want = [by_hand(CASES["branched"], module, X, u, 0.1) for u in directions]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert state(module) == before


def test_sparse_embeddings_have_gradients():
    torch.manual_seed(0)

    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.EmbeddingBag(9, 3, sparse=True, mode="sum")
            self.last = nn.Linear(3, 1)

        def forward(self, x):
            return self.last(self.embed(x))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # whether vmap can is not our business
        model = apas.as_model(Sparse().double().eval(), output="logit", input_shape=(4,))
        slopes = model.parameter_gradient(np.array([[0.0, 1, 1, 8]]), 1)[1]
    by_word = slopes[0, :27].reshape(9, 3)
    np.testing.assert_allclose(by_word[1], 2 * by_word[0])
    assert by_word[0].all()
    assert not by_word[2:8].any()


def test_digest_covers_all_that_decides_the_output():
    case = CASES["conv and batch norm"]

    def digest(change=lambda m: None, **options):
        module = module_of(case)
        with torch.no_grad():
            change(module)
        return model_digest(model_of(case, module, **options))

    same = digest()
    assert same == digest()
    changes = [
        lambda m: m.norm.running_var.mul_(1.001),
        lambda m: m.last.bias.add_(1e-4),
        lambda m: setattr(m.norm, "eps", 1e-3),
        lambda m: setattr(m.one, "padding_mode", "circular"),
        lambda m: setattr(m, "temperature", 2.0),
        lambda m: setattr(m, "mask", torch.ones(3)),
        lambda m: m.register_buffer("unused", torch.zeros(1)),
    ]
    digests = [digest(change) for change in changes]
    digests += [digest(classes=["a", "b", "c"]), digest(feature_names=[f"pixel{i}" for i in range(36)])]
    assert len({same, *digests}) == 1 + len(digests)
    assert digest(lambda m: m.requires_grad_(False)) == same
    case = CASES["branched"]
    model = model_of(case, module_of(case))
    assert model_digest(model) != model_digest(model_of(case, module_of(case), threshold=0.6))
    assert repr(model) == "<Branched of 56 parameters, input 5, logit output, classes [0, 1]>"


def test_modules_that_cannot_be_told_from_noise_are_refused():
    class Noisy(Branched):
        def forward(self, x):
            return super().forward(nn.functional.dropout(x))

    with pytest.raises(apas.InputError, match="must give the same answer to the same rows, but does not even in eval"):
        apas.as_model(Noisy().eval(), output="logit")
    batch = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)).eval()
    with pytest.raises(apas.InputError, match="must not depend on the other rows of a batch|could not answer"):
        apas.as_model(batch, output="logit")
    layer = nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 8), nn.Linear(4, 1)).eval()
    with pytest.raises(apas.InputError, match="must not depend on the other rows of a batch"):
        apas.as_model(layer, output="logit")


def test_small_modules_compute_in_one_thread_and_the_number_is_restored(monkeypatch):
    seen = set()

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            seen.add(torch.get_num_threads())
            return self.layer(torch.tanh(x))

    module, X = Watched().eval(), np.random.default_rng(0).normal(size=(2, 3))
    torch.set_num_threads(2)
    try:
        for allowed, threads in ((1 << 18, {1}), (0, {2})):
            monkeypatch.setattr("apas.models.torch.passes.LARGE", allowed)
            model = apas.as_model(module, output="logit", input_shape=(3,))
            seen.clear()
            model.margin(X, 1)
            model.shifted_margins(X, 1, np.random.default_rng(0).normal(size=(20, 4)), 0.1)
            model.parameter_gradient(X, 1)
            model.input_gradient(X, 1, np.zeros((2, 4)))
            assert seen == threads
            with pytest.raises(apas.InputError, match="could not answer"), model._passes.calm():
                torchpasses.answer(module, torch.zeros(1, 5))
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(model.margin, [X] * 40, [1] * 40))
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_training_mode_of_many_modules_is_told_once_by_retrain():
    def train(X, y, seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())

    with pytest.warns(apas.GuaranteeWarning, match="the module is in training mode") as told:
        models = apas.retrain(train, np.eye(2), [0, 1], n_models=4, rng=0)
    assert len(models) == 4
    assert len(told) == 1
    assert told[0].filename == __file__
