"""Modules as dense chains: against their own forward under shifts applied by hand, and bounds against all that could cross them."""

import copy
from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="make test TORCH=1")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import apas  # noqa: E402
from apas import InputNoise, JointShifts, LinfShifts, Verdict  # noqa: E402
from apas.worst_case.exact_arithmetic import exact_margin  # noqa: E402

UNITS = [
    nn.ReLU, lambda: nn.LeakyReLU(0.2), lambda: nn.LeakyReLU(-0.3), lambda: nn.LeakyReLU(1.5), nn.PReLU,
    lambda: nn.PReLU(4), nn.ELU, lambda: nn.ELU(0.5), lambda: nn.ELU(1.7), nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU,
    nn.Softplus, lambda: nn.Softplus(3.0, 15.0), nn.ReLU6, nn.Hardtanh, lambda: nn.Hardtanh(-0.4, 0.7), nn.Tanh, nn.Sigmoid,
    lambda: nn.Hardtanh(0.1, 0.6),
]  # fmt: skip


class Block(nn.Module):
    """x + linear(unit(norm(linear(x)))), or with a second branch."""

    def __init__(self, width, unit, norm, branch):
        super().__init__()
        self.first, self.last, self.unit = nn.Linear(width, 4), nn.Linear(4, width, bias=branch), unit
        self.norm = nn.BatchNorm1d(4, affine=width > 2) if norm else nn.Identity()
        self.other = nn.Linear(width, width) if branch else None

    def forward(self, x):
        inner = self.last(self.unit(self.norm(self.first(x))))
        return (x if self.other is None else self.other(x)) + inner


class Net(nn.Module):
    def __init__(self, rng, outputs):
        super().__init__()
        width = int(rng.integers(1, 5))
        self.input = nn.Linear(3, width)
        self.blocks = nn.ModuleList()
        for _ in range(int(rng.integers(0, 3))):
            unit = UNITS[rng.integers(len(UNITS))]()
            self.blocks.append(Block(width, unit, bool(rng.integers(2)), bool(rng.integers(2))))
        self.drop, self.between = nn.Dropout(0.5), str(rng.choice(["relu", "silu", "elu", "none", "leaky"]))
        self.out = nn.Linear(width, outputs)

    def forward(self, x):
        h = torch.flatten(self.input(x), 1)
        for block in self.blocks:
            h = block(h)
        if self.between == "leaky":
            h = F.leaky_relu(h, 0.3)
        elif self.between != "none":
            h = getattr(F, self.between)(h)
        return self.out(self.drop(h))


def module(seed):
    """A random module of dense blocks in float64, and how many numbers it gives."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    outputs = int(rng.choice([1, 2, 3]))
    net = Net(rng, outputs).double()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2.0)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return net.eval(), "logit" if outputs == 1 else "logits"


def shifted(net, values):
    """A copy of a module with other parameters, put there one by one."""
    moved, start = copy.deepcopy(net), 0
    with torch.no_grad():
        for p in moved.parameters():
            p.copy_(torch.tensor(values[start : start + p.numel()]).reshape(p.shape))
            start += p.numel()
    return moved


def margins(net, X, target):
    with torch.no_grad():
        scores = net(torch.tensor(X)).numpy()
    if scores.shape[1] == 1:
        return scores[:, 0] * (2 * target - 1)
    others = np.delete(scores, target, axis=1)
    return scores[:, target] - others.max(axis=1)


def check(seeds, draws):
    """Margins to 1e-10 under shifts by hand; no draw, corner or attack crosses a bound; verdicts agree."""
    verdicts, methods = dict.fromkeys(Verdict.__members__, 0), ("interval", "linear", "attack", "exact")
    for seed in seeds:
        net, output = module(seed)
        model, rng = apas.as_model(net, output=output), np.random.default_rng(seed)
        if model.__class__.__name__ == "DenseTorchModel":
            continue
        chain = model.dense_chain()
        assert not isinstance(chain, str), chain
        X, delta = rng.normal(size=(3, 3)), float(10 ** rng.uniform(-3, -1))
        target = int(np.argmax([margins(net, X[:1], c)[0] for c in model.classes]))
        X, k = X[margins(net, X, target) > 0], len(model.parameters)
        moves = np.vstack([rng.uniform(-1, 1, (draws, k)), np.sign(rng.normal(size=(draws, k)))])
        by_hand = np.stack([margins(shifted(net, model.parameters.values + delta * u), X, target) for u in moves])
        ours = chain.network.shifted_margins(X, target, chain.lift(moves), delta)
        np.testing.assert_allclose(ours, by_hand, rtol=0, atol=1e-10 * max(1.0, np.abs(by_hand).max()))
        least = by_hand.min(axis=0)
        for method in methods:
            if method == "exact" and apas.Exact().unsupported(
                apas.certification.question.Question.ask(
                    model, X, target=target, delta=delta, shifts="linf", method="attack"
                )
            ):
                continue
            how = apas.Exact(time_limit=5.0) if method == "exact" else method
            found = apas.certify(model, X, delta, target=target, method=how, rng=0)
            for c, x, low in zip(found, X, least, strict=True):
                verdicts[c.verdict.name] += 1
                assert not (c.is_certified and low <= 0)
                assert c.evidence.bound is None or c.evidence.bound <= low + 1e-10
                if c.witness is not None:
                    values = c.witness.parameters(model)
                    assert np.abs(values - model.parameters.values).max() <= delta * (1 + 1e-12)
                    assert margins(shifted(net, values), x[None], target)[0] <= 1e-10
            if method != "attack":
                tried = apas.certify(model, X, delta, target=target, method="attack", rng=1)
                assert not any(c.is_certified and a.witness is not None for c, a in zip(found, tried, strict=True))
        for shifts in (InputNoise(), JointShifts(row=InputNoise(scale=0.5))):
            for c in apas.certify(model, X, delta, target=target, shifts=shifts, method="linear"):
                verdicts[c.verdict.name] += 1
        noise = X[None] + delta * rng.uniform(-1, 1, (draws, *X.shape))
        low = np.stack([margins(net, rows, target) for rows in noise]).min(axis=0)
        proved = apas.certify(model, X, delta, target=target, shifts=InputNoise(), method="linear")
        assert all(c.evidence.bound <= value + 1e-10 for c, value in zip(proved, low, strict=True))
    return verdicts


def test_random_modules_against_their_own_forward():
    found = check(range(12), 40)
    assert found["CERTIFIED"] > 10


@pytest.mark.validity
@pytest.mark.parametrize("first", range(100, 300, 25))
def test_200_random_modules_against_their_own_forward(first):
    found = check(range(first, first + 25), 300)
    assert min(found["CERTIFIED"], found["REFUTED"]) > 6


def test_batch_norm_is_folded_exactly():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).double()
    norm = net[1]
    for tensor in (norm.running_mean, norm.weight.data, norm.bias.data):
        tensor.normal_()
    norm.running_var.uniform_(0.3, 2.0)
    model = apas.as_model(net.eval(), output="logit")
    chain, x = model.dense_chain(), np.random.default_rng(0).normal(size=3)

    def exact(array):
        return np.vectorize(Fraction.from_float, otypes=[object])(array.detach().numpy())

    # the two numbers of a feature that do not move are float64 numbers: the factor, and it times the mean
    factor = 1.0 / np.sqrt(norm.running_var.numpy() + norm.eps)
    level = -norm.running_mean.numpy() * factor
    z = exact(torch.tensor(x)) @ exact(net[0].weight).T + exact(net[0].bias)
    z = z * np.vectorize(Fraction, otypes=[object])(factor) + np.vectorize(Fraction, otypes=[object])(level)
    z = np.maximum(z * exact(norm.weight) + exact(norm.bias), Fraction(0))
    score = (z @ exact(net[3].weight).T + exact(net[3].bias))[0]
    found = chain.network
    assert exact_margin(found.weights, found.biases, found.activations, x, 1) == score
    values = model.parameters.values + 0.1  # and where it moves, every entry is the parameter itself
    moved = chain.at(values)
    np.testing.assert_array_equal(chain.lower(moved, model.parameters.values), values)
    radii = chain.reach(np.ones(len(values)))
    assert set(np.unique(radii)) == {0.0, 1.0}
    assert int(radii.sum()) == len(values)


def test_what_is_not_dense_is_refused_by_name_and_sampled():
    class Odd(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.first, self.odd, self.out = nn.Linear(3, 4), layer, nn.Linear(4, 1)

        def forward(self, x):
            return self.out(self.odd(self.first(x)))

    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(3, 1)

        def forward(self, x):
            return self.out(x) if x.sum() > 0 else -self.out(x)

    cases = [
        (Odd(nn.LayerNorm(4)), "odd is a LayerNorm"),
        (Odd(nn.Softplus(1.0, 2.0)), "threshold"),
        (Branch(), "torch.fx"),
    ]
    for net, words in cases:
        model = apas.as_model(net.double().eval(), output="logit", input_shape=(3,))
        X = np.random.default_rng(0).normal(size=(2, 3))
        for method in ("interval", "linear", "exact"):
            with pytest.raises(apas.Unsupported, match=words):
                apas.certify(model, X, 1e-4, target="predicted", method=method)
        if net.__class__ is Odd:
            apas.certify(model, X, 1e-4, target="predicted", rng=0)


def relu_then_both(h, x):
    return F.relu(h, inplace=True) + h


def result_unused(h, x):
    F.hardtanh(h, -50.0, 50.0, inplace=True)
    return h


def through_a_view(h, x):
    v = h.view(-1, 3)
    v += x
    return torch.relu(v) + h


def written_into_another(h, x):
    torch.sigmoid(x, out=h)
    return h


def in_keywords(h, x):
    return F.leaky_relu(input=h, negative_slope=0.2, inplace=True) + torch.tanh(h)


class InPlace(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.first, self.last, self.step = nn.Linear(3, 3), nn.Linear(3, 1), step

    def forward(self, x):
        return self.last(self.step(self.first(x), x))


IN_PLACE = [relu_then_both, result_unused, through_a_view, written_into_another, in_keywords]


@pytest.mark.filterwarnings("ignore:.*cannot be evaluated by torch.func.vmap:UserWarning")
@pytest.mark.parametrize("step", [*IN_PLACE, nn.ReLU(inplace=True)])
def test_numbers_that_are_overwritten_in_place_are_not_used_again(step):
    """`torch.fx` does not see that a later use meets the new numbers, and a few rows may not show it either."""

    class Twice(InPlace):
        def forward(self, x):
            h = self.first(x)
            return self.last(self.step(h) + h)

    torch.manual_seed(0)
    net = (Twice(step) if isinstance(step, nn.Module) else InPlace(step)).double().eval()
    with torch.no_grad():
        net.first.weight *= 0.1  # every unit is above 0, and below 50, wherever somebody would try the module out
        net.first.bias[:] = 5.0
    model, row = apas.as_model(net, output="logit", input_shape=(3,)), np.full((1, 3), -300.0)
    with pytest.raises(apas.Unsupported, match="in place|into others"):
        apas.certify(model, row, 1e-3, target="predicted", method="linear")
    apas.certify(model, row, 1e-3, target="predicted", rng=0)


def test_results_in_place_of_what_nothing_else_needs_are_proved():
    class Usual(InPlace):
        def forward(self, x):
            h = F.relu(self.first(x), inplace=True)
            h += x
            return self.last(self.step(h))

    net, X = Usual(nn.ReLU(inplace=True)).double().eval(), np.random.default_rng(0).normal(size=(4, 3))
    model = apas.as_model(net, output="logit", input_shape=(3,))
    np.testing.assert_allclose(model.dense_chain().network.margin(X, 1), margins(net, X, 1), atol=1e-12)


def test_a_set_that_moves_rows_is_refused_with_the_name_of_the_layer_too():
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)).double().eval()
    model = apas.as_model(net, output="logit")
    for shifts in (InputNoise(), JointShifts()):
        for method in ("interval", "linear", "exact", "enumeration"):
            with pytest.raises(apas.Unsupported, match=r"but 1 is a LayerNorm") as refused:
                apas.certify(model, np.ones((1, 3)), 1e-3, target="predicted", shifts=shifts, method=method)
            assert "to look for" not in str(refused.value)
        apas.certify(model, np.ones((1, 3)), 1e-3, target="predicted", shifts=shifts, rng=0)


def test_a_shared_layer_is_proved_but_not_exact():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.same, self.out = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.out(torch.relu(self.same(torch.relu(self.same(x)))))

    torch.manual_seed(1)
    model, X = apas.as_model(Twice().double().eval(), output="logit"), np.random.default_rng(0).normal(size=(4, 3))
    assert "same.weight" in model.dense_chain().tied
    found = apas.certify(model, X, 1e-3, target="predicted", method="linear")
    assert any(c.is_certified for c in found)
    assert not any(c.evidence.exact for c in found)
    with pytest.raises(apas.Unsupported, match="same.weight"):
        apas.certify(model, X, 1e-3, target="predicted", method="exact")
    broken = apas.certify(model, X, 0.5, target="predicted", method="attack", rng=0)
    assert any(c.witness is not None for c in broken)
    assert apas.verify(broken, model).ok


def test_probabilities_and_selected_layers_of_an_ordinary_module():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(3, 5), nn.Linear(5, 1)

        def forward(self, x):
            return torch.sigmoid(self.out(F.relu(self.hidden(x.view(x.size(0), -1)))))

    torch.manual_seed(2)
    for dtype in (torch.float64, torch.float32):
        net = Plain().to(dtype).eval()
        model, X = apas.as_model(net, output="probability"), np.random.default_rng(1).normal(size=(5, 3))
        for shifts in (LinfShifts(layers=["hidden"]), apas.SparseShifts(2), apas.LpShifts(2)):
            found = apas.certify(model, X, 0.02, target="predicted", shifts=shifts, method="interval")
            assert apas.verify(found, model).ok
        found = apas.certify(model, X, 0.02, target="predicted", method="exact")
        assert all(c.evidence.exact for c in found if c.is_certified)
        radii = apas.max_shift(model, X, target="predicted", method="exact")
        assert all(0 < r.delta <= r.broken_at for r in radii)


def test_float32_bounds_hold_for_what_float32_computes():
    for seed in range(6):
        net, output = module(seed)
        model = apas.as_model(copy.deepcopy(net).float(), output=output)
        if model.__class__.__name__ == "DenseTorchModel":
            continue
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3, 3)).astype(np.float32).astype(np.float64)
        target = model.classes[0]
        X = X[model.margin(X, target) > 0.05]
        found = apas.certify(model, X, 0.01, target=target, method="linear")
        moves = np.sign(rng.normal(size=(200, len(model.parameters))))
        low = model.shifted_margins(X, target, moves, 0.01).min(axis=0) if len(X) else []
        assert all(c.evidence.bound is None or c.evidence.bound <= value for c, value in zip(found, low, strict=True))


class Spare(nn.Module):
    """An ordinary module, with layers that it has but does not use."""

    def __init__(self, unit=None):
        super().__init__()
        self.unused, self.first, self.unit = nn.Linear(2, 2), nn.Linear(3, 4), unit or nn.ReLU()
        self.last, self.spare = nn.Linear(4, 1), nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.unit(self.first(x)))


def test_rows_move_by_their_own_size_beside_parameters_that_are_not_used():
    torch.manual_seed(0)
    net, rng = Spare().double().eval(), np.random.default_rng(0)
    for p in net.parameters():
        nn.init.normal_(p)
    nn.init.constant_(net.last.bias, -2.0)
    model, X = apas.as_model(net, output="logit", input_shape=(3,)), rng.normal(size=(6, 3))
    both = JointShifts(row=InputNoise(scale=20.0))
    target = [int(m >= 0) for m in margins(net, X, 1)]
    for method in ("interval", "linear", "exact"):
        found = apas.certify(model, X, 0.02, target=target, shifts=both, method=method)
        for c, x, wanted in zip(found, X, target, strict=True):
            rows = x + 0.02 * 20.0 * np.sign(rng.normal(size=(200, 3)))
            assert not (c.is_certified and margins(net, rows, wanted).min() < 0)
    assert {c.verdict.name for c in found} == {"CERTIFIED", "REFUTED"}
    assert apas.verify(found, model).ok


def joint_check(seeds, draws):
    """JointShifts on random modules: no draw, corner or witness of an attack crosses a bound; how many of each verdict."""
    verdicts = dict.fromkeys(Verdict.__members__, 0)
    for seed in seeds:
        net, output = module(seed)
        model, rng = apas.as_model(net, output=output), np.random.default_rng(seed)
        size, delta = float(rng.choice([0.3, 1.0, 4.0])), float(10 ** rng.uniform(-3.0, -0.3))
        both, X, k = JointShifts(row=InputNoise(scale=size)), rng.normal(size=(2, 3)), len(model.parameters)
        target = int(np.argmax([margins(net, X[:1], c)[0] for c in model.classes]))
        X = X[margins(net, X, target) > 0]
        moves = np.vstack([rng.uniform(-1, 1, (draws, k + 3)), np.sign(rng.normal(size=(draws, k + 3)))])
        # each shifted module meets a row of its own: all by hand
        least = np.min([[margins(other, x[None] + delta * size * move[None, k:], target)[0] for x in X]
                        for move in moves for other in [shifted(net, model.parameters.values + delta * move[:k])]], axis=0)  # fmt: skip
        attacked = apas.certify(model, X, delta, target=target, shifts=both, method="attack", rng=0)
        for method in ("interval", "linear", "exact"):
            try:
                how = apas.Exact(time_limit=3.0) if method == "exact" else method
                found = apas.certify(model, X, delta, target=target, shifts=both, method=how)
            except apas.Unsupported:
                assert method == "exact"
                continue
            for c, a, x, low in zip(found, attacked, X, least, strict=True):
                verdicts[c.verdict.name] += 1
                assert not (c.is_certified and (low <= 0 or a.witness is not None)), (seed, method)
                assert c.evidence.bound is None or c.evidence.bound <= low + 1e-10, (seed, method)
                for shift in (c.witness, a.witness):
                    if shift is not None:  # the shifted module on the moved row, by hand
                        theta, row = shift.parameters(model), shift.moved(model)[k:]
                        assert np.abs(theta - model.parameters.values).max() <= delta * (1 + 1e-12)
                        assert np.abs(row).max() <= delta * size * (1 + 1e-12)
                        assert margins(shifted(net, theta), (x + row)[None], target)[0] <= 1e-10
    return verdicts


def test_joint_bounds_on_random_modules():
    assert joint_check(range(8), 60)["CERTIFIED"] > 5


@pytest.mark.validity
@pytest.mark.parametrize("first", range(400, 600, 25))
def test_joint_bounds_on_200_random_modules(first):
    found = joint_check(range(first, first + 25), 200)
    assert found["CERTIFIED"] > 25
    assert found["REFUTED"] > 2


def test_a_softplus_at_its_jump_is_no_witness():
    """Rounding decides on which side of 20 an argument lies, and with it 2e-9: nothing within that is confirmed."""
    from apas.certification.certificate import confirmed_witness
    from apas.certification.question import Question

    net = Spare(nn.Softplus()).double().eval()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.first.weight[0, 0] = net.last.weight[0, 0] = 1.0
        net.last.bias[0] = -20.0
    model = apas.as_model(net, output="logit", input_shape=(3,))
    chain, drop = model.dense_chain().network, np.exp(-20.0)
    above = np.nextafter(20.0, 21.0)
    for place in (20.0, above):  # the function falls between these neighbours
        scale = chain.margin_scale(np.array([[place, 0.0, 0.0]]), np.zeros(len(chain.parameters)))[0]
        assert 1e-12 * scale >= drop > 1e-9
    assert 1e-12 * chain.margin_scale(np.array([[19.9, 0, 0]]), np.zeros(len(chain.parameters)))[0] < 1e-9
    names = model.parameters.names
    bias = model.parameters.slices[names.index("last.bias")].start
    for below, confirmed in ((1e-9, False), (2e-8, True)):
        values = np.array(model.parameters.values)
        values[bias] = -20.0 - below
        row = [[above, 0.0, 0.0]]
        asked = Question.ask(model, row, target=1, delta=1e-7, shifts="linf", method="attack").embedded
        witness = confirmed_witness(asked, 0, asked.shifts.chain.at(values))
        assert (witness is not None) is confirmed


@pytest.mark.parametrize("method", ["interval", "linear", "exact", "cascade"])
def test_no_proof_passes_over_the_jump_of_a_softplus(method):
    """Where it becomes the identity a softplus falls by up to exp(-12): an end of the range need not be the least."""
    net = nn.Sequential(nn.Linear(1, 1), nn.Softplus(1, 12), nn.Linear(1, 1)).double().eval()
    for part, weight, bias in ((net[0], 1.0, 0.0), (net[2], 1.0, -12.000003)):
        part.weight.data.fill_(weight)
        part.bias.data.fill_(bias)
    model, shifts = apas.as_model(net, output="logit"), LinfShifts(kinds="weight")
    assert model.margin(np.array([[12.0]]), 1)[0] > 0
    moved = model.shifted_margins(np.array([[12.0]]), 1, np.array([[0.5, 0.0, 0.0, 0.0]]), 1e-8)
    assert moved[0, 0] < 0
    assert (
        apas.certify(model, [[12.0]], 1e-8, target=1, shifts=shifts, method=method)[0].verdict is not Verdict.CERTIFIED
    )


@pytest.mark.parametrize(
    "clamp", [lambda z: torch.clamp(z, -0.5, 0.7), lambda z: z.clamp(min=0), lambda z: torch.clip(z, 0, 6)]
)
def test_clamps_are_units(clamp):
    class Clamped(Spare):
        def forward(self, x):
            return self.last(clamp(self.first(x)))

    torch.manual_seed(0)
    net, X = Clamped().double().eval(), np.random.default_rng(0).normal(size=(5, 3))
    model = apas.as_model(net, output="logit", input_shape=(3,))
    move = np.random.default_rng(1).uniform(-0.1, 0.1, (4, len(model.parameters)))
    ours = model.dense_chain().network.shifted_margins(X, 1, model.dense_chain().lift(move), 1.0)
    by_hand = np.stack([margins(shifted(net, model.parameters.values + u), X, 1) for u in move])
    np.testing.assert_allclose(ours, by_hand, atol=1e-12)
