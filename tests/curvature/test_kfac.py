"""K-FAC against hand-computed numbers, a loop over samples and classes, and the exact Fisher."""

from __future__ import annotations

import doctest
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tmln.curvature.kfac
from tmln.curvature import kfac_layers as layer_module
from tmln.curvature.kfac import KFAC, damped_inverse, precondition_gradients, split_damping
from tmln.curvature.kfac_factors import Factors, kfac_factors, sample_labels
from tmln.curvature.kfac_layers import kfac_layers

DOUBLE = torch.float64


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny tensors on several threads of a busy machine only wait: 30 s for a test of 0.1 s."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> bool:
    return actual.shape == expected.shape and torch.allclose(actual, expected, rtol=0, atol=tolerance)


def zeroed_linear() -> nn.Linear:
    layer = nn.Linear(1, 2, bias=False, dtype=DOUBLE)
    nn.init.zeros_(layer.weight)
    return layer


# Hand vectors


def test_factors_and_direction_by_hand() -> None:
    factors = kfac_factors(zeroed_linear(), tensor([[2.0]]), fisher="exact")[""]
    assert same(factors.input, tensor([[4.0]]))
    assert same(factors.output, tensor([[0.25, -0.25], [-0.25, 0.25]]))
    assert split_damping(factors) == pytest.approx(4.0)
    inverse = damped_inverse(factors, 0.01)
    assert inverse.input.item() == pytest.approx(1 / 4.4)
    (direction,) = precondition_gradients(inverse, [tensor([[-1.0], [1.0]])])
    assert same(direction, tensor([[-0.432900433], [0.432900433]]), 1e-9)


def test_the_empirical_fisher_takes_the_given_label() -> None:
    layer = zeroed_linear()
    with torch.no_grad():
        layer.weight[0, 0] = math.log(3) / 2  # p = (3/4, 1/4) at x = 2
    factors = kfac_factors(layer, tensor([[2.0]]), targets=torch.tensor([1]), fisher="empirical")[""]
    assert same(factors.output, tensor([[0.5625, -0.5625], [-0.5625, 0.5625]]))


def test_running_factors_average_with_the_share_of_the_new() -> None:
    curvature = KFAC(zeroed_linear(), ema=0.25, fisher="exact")
    curvature.update(tensor([[2.0]]))
    assert curvature.factors[""].input.item() == 4.0
    curvature.update(tensor([[4.0]]), weights=tensor([5.0]))
    assert curvature.factors[""].input.item() == pytest.approx(0.75 * 4 + 0.25 * 16)
    assert curvature.factors[""].output[0, 0].item() == pytest.approx(0.75 * 0.25 + 0.25 * 5 * 0.25)


def test_identity_factors_divide_by_the_damped_one() -> None:
    inverse = damped_inverse(Factors(torch.eye(3, dtype=DOUBLE), torch.eye(2, dtype=DOUBLE)), 0.04)
    gradient = torch.randn(2, 3, dtype=DOUBLE)
    assert same(precondition_gradients(inverse, [gradient])[0], gradient / 1.2**2)


def test_a_factor_without_trace_splits_the_damping_evenly() -> None:
    factors = Factors(torch.zeros(2, 2, dtype=DOUBLE), torch.eye(2, dtype=DOUBLE))
    assert split_damping(factors) == 1.0
    assert same(damped_inverse(factors, 0.25).input, 2 * torch.eye(2, dtype=DOUBLE))


def test_an_indefinite_factor_is_inverted_with_its_eigenvalues_kept_above_the_shift() -> None:
    factors = Factors(tensor([[1.0, 0.0], [0.0, -0.5]]), torch.eye(2, dtype=DOUBLE) / 4)  # tr A/2 = tr G/2
    assert same(damped_inverse(factors, 0.01).input, tensor([[1 / 1.1, 0.0], [0.0, 10.0]]))


# Oracle: loops over samples, classes, output positions and kernel elements


def slow_patches(layer: nn.Module, inputs: Tensor) -> list[Tensor]:
    """The vectors that one sample's input gives, in the order of the flattened outputs."""
    if isinstance(layer, nn.Linear):
        return list(inputs.reshape(-1, layer.in_features))
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    pads = layer._reversed_padding_repeated_twice
    if layer.padding == "valid":
        pads = [0] * len(pads)
    padded = F.pad(inputs, pads, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)[0]
    if isinstance(layer, nn.Conv1d):
        padded, (kh, kw), (sh, sw), (dh, dw) = (
            padded.unsqueeze(1),
            (1, *layer.kernel_size),
            (1, *layer.stride),
            (1, *layer.dilation),
        )
    else:
        (kh, kw), (sh, sw), (dh, dw) = layer.kernel_size, layer.stride, layer.dilation
    found = []
    for top in range(0, padded.shape[1] - dh * (kh - 1), sh):
        for left in range(0, padded.shape[2] - dw * (kw - 1), sw):
            values = [
                padded[c, top + i * dh, left + j * dw]
                for c in range(layer.in_channels)
                for i in range(kh)
                for j in range(kw)
            ]
            found.append(torch.stack(values))
    return found


def slow_factors(
    model: nn.Module,
    layer: nn.Linear | nn.Conv1d | nn.Conv2d,
    x: Tensor,
    share: Callable[[int, Tensor], Tensor],
) -> Factors:
    """``share(n, probabilities)`` is the weight of each class of sample n: w_n times its probability."""
    a_side = layer.weight[0].numel() + (layer.bias is not None)
    A, G = (
        torch.zeros(a_side, a_side, dtype=x.dtype),
        torch.zeros(len(layer.weight), len(layer.weight), dtype=x.dtype),
    )
    for n in range(len(x)):
        seen: list[tuple[Tensor, Tensor]] = []

        def record(m: nn.Module, a: tuple[Tensor, ...], s: Tensor, seen: list[tuple[Tensor, Tensor]] = seen) -> Tensor:
            seen.append((a[0].detach().clone(), s))
            return s.clone()  # so that an in-place activation spares what was recorded

        handle = layer.register_forward_hook(record)
        log_p = torch.log_softmax(model(x[n : n + 1]), 1)[0]
        handle.remove()
        patches = [patch for a, _ in seen for patch in slow_patches(layer, a)]
        for patch in patches:
            full = torch.cat([patch, patch.new_ones(1)]) if layer.bias is not None else patch
            A += torch.outer(full, full) / len(x)
        for c, weight in enumerate(share(n, log_p.detach().exp())):
            gradients = torch.autograd.grad(log_p[c], [s for _, s in seen], retain_graph=True)
            for gradient in gradients:
                columns = (
                    gradient.reshape(-1, len(layer.weight)).T
                    if isinstance(layer, nn.Linear)
                    else gradient[0].flatten(1)
                )
                for g in columns.T:
                    G += weight * torch.outer(g, g) / len(patches) / len(x)
    return Factors(A, G)


class Pool(nn.Module):
    """Everything between the samples and the channels averaged away, after a non-linearity."""

    def __init__(self, channel: int) -> None:
        super().__init__()
        self.channel = channel

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x).movedim(self.channel, 1).flatten(2).mean(2)


IMAGE, SERIES = (2, 6, 5), (2, 7)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 4), (3,)),
    "linear without bias": (lambda: nn.Linear(3, 4, bias=False), (3,)),
    "linear over a sequence": (lambda: nn.Linear(3, 4), (5, 3)),
    "linear over a grid": (lambda: nn.Linear(3, 4, bias=False), (2, 2, 3)),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3), IMAGE),
    "conv2d 1x1 strided": (lambda: nn.Conv2d(2, 4, 1, stride=2, bias=False), IMAGE),
    "conv2d stride padding dilation": (
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), bias=False),
        IMAGE,
    ),
    "conv2d same": (lambda: nn.Conv2d(2, 4, (2, 3), padding="same"), IMAGE),
    "conv2d valid": (lambda: nn.Conv2d(2, 4, (2, 3), padding="valid"), IMAGE),
    "conv2d circular": (lambda: nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="circular"), IMAGE),
    "conv2d reflect": (lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect", stride=2), IMAGE),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2), SERIES),
    "conv1d replicate": (lambda: nn.Conv1d(2, 4, 3, padding=1, padding_mode="replicate", bias=False), SERIES),
}


def case(name: str) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    layer, shape = CASES[name][0](), CASES[name][1]
    pool = Pool(1 if isinstance(layer, nn.Conv1d | nn.Conv2d) else -1) if len(shape) > 1 else nn.Tanh()
    return nn.Sequential(layer, pool, nn.Linear(4, 3)).to(DOUBLE), torch.randn(3, *shape, dtype=DOUBLE)


def check_against_oracle(
    model: nn.Module, x: Tensor, actual: dict[str, Factors], share: Callable[[int, Tensor], Tensor]
) -> None:
    layers = kfac_layers(model)
    assert set(actual) == set(layers)
    for name, layer in layers.items():
        expected = slow_factors(model, layer, x, share)
        assert same(actual[name].input, expected.input)
        assert same(actual[name].output, expected.output)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", CASES)
def test_exact_factors_equal_the_loop(name: str) -> None:
    model, x = case(name)
    check_against_oracle(model, x, kfac_factors(model, x, fisher="exact"), lambda n, p: p)


@pytest.mark.parametrize("name", ["linear", "conv2d stride padding dilation"])
def test_sample_weights_enter_the_output_factor_only(name: str) -> None:
    model, x = case(name)
    w = tensor([1.0, 3.0, 0.5])
    actual = kfac_factors(model, x, fisher="exact", weights=w)
    check_against_oracle(model, x, actual, lambda n, p: w[n] * p)
    assert same(actual["0"].input, kfac_factors(model, x, fisher="exact")["0"].input)


def test_empirical_factors_equal_the_loop() -> None:
    model, x = case("conv2d")
    targets, w = torch.tensor([2, 0, 1]), tensor([1.0, 2.0, 4.0])
    actual = kfac_factors(model, x, fisher="empirical", targets=targets, weights=w)
    check_against_oracle(model, x, actual, lambda n, p: w[n] * F.one_hot(targets[n], 3))


@pytest.mark.parametrize("name", ["conv2d", "conv2d circular", "conv1d"])
@pytest.mark.parametrize(("chunk", "panel"), [(1, 5), (3000, 7)])
def test_pieces_and_panels_do_not_change_the_sums(
    name: str, chunk: int, panel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = case(name)
    whole = kfac_factors(model, x, fisher="exact")
    monkeypatch.setattr(layer_module, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(layer_module, "PANEL", panel)
    for found, expected in zip(kfac_factors(model, x, fisher="exact").values(), whole.values(), strict=True):
        assert same(found.input, expected.input)
        assert same(found.output, expected.output)


def test_memory_format_does_not_matter() -> None:
    model, x = case("conv2d stride padding dilation")
    plain = kfac_factors(model, x, fisher="exact")["0"]
    last = kfac_factors(model, x.contiguous(memory_format=torch.channels_last), fisher="exact")["0"]
    assert same(plain.input, last.input)
    assert same(plain.output, last.output)


@pytest.mark.parametrize("layer", [nn.Linear(3, 3), nn.Conv2d(2, 3, (2, 3)), nn.Conv1d(2, 3, 4, bias=False)])
def test_one_sample_and_one_position_give_the_exact_fisher(layer: nn.Linear | nn.Conv2d | nn.Conv1d) -> None:
    """Then F = G (x) A without approximation: fixes the order of columns, the homogeneous one last."""
    layer = layer.to(DOUBLE)
    shapes = {nn.Linear: (1, 3), nn.Conv2d: (1, 2, 2, 3), nn.Conv1d: (1, 2, 4)}
    model, x = nn.Sequential(layer, nn.Flatten()), torch.randn(shapes[type(layer)], dtype=DOUBLE)
    log_p = torch.log_softmax(model(x), 1)[0]
    fisher = torch.zeros(())
    for c in range(3):
        parts = torch.autograd.grad(log_p[c], list(layer.parameters()), retain_graph=True)
        g = torch.cat([part.reshape(3, -1) for part in parts], 1).flatten()
        fisher = fisher + log_p[c].detach().exp() * torch.outer(g, g)
    factors = kfac_factors(model, x, fisher="exact")["0"]
    assert same(torch.kron(factors.output, factors.input), fisher)


def test_many_drawn_labels_average_to_the_exact_factors() -> None:
    model, x = case("linear")
    copies = x.repeat(20_000, 1)
    exact = kfac_factors(model, x, fisher="exact")
    drawn = kfac_factors(model, copies, fisher="mc", generator=torch.Generator().manual_seed(0))
    other = kfac_factors(model, copies, fisher="mc", generator=torch.Generator().manual_seed(1))
    for name in exact:
        scale = float(exact[name].output.abs().max())
        assert same(drawn[name].output / scale, exact[name].output / scale, 0.02)
        assert not torch.equal(drawn[name].output, other[name].output)


def test_labels_are_drawn_with_the_models_probabilities() -> None:
    p = tensor([0.5, 0.0, 0.3, 0.2])
    labels = sample_labels(p.log().repeat(40_000, 1), torch.Generator().manual_seed(0))
    counts = torch.bincount(labels, minlength=4) / 40_000
    assert counts[1] == 0
    assert same(counts.to(DOUBLE), p, 0.012)  # five standard deviations


# Maths


def test_direction_solves_the_kronecker_system() -> None:
    torch.manual_seed(0)
    rows = torch.randn(9, 5, dtype=DOUBLE)
    columns = torch.randn(6, 3, dtype=DOUBLE)
    factors = Factors(rows.T @ rows, columns.T @ columns)
    pi, tau = split_damping(factors), 0.3
    A = factors.input + pi * math.sqrt(tau) * torch.eye(5, dtype=DOUBLE)
    G = factors.output + math.sqrt(tau) / pi * torch.eye(3, dtype=DOUBLE)
    weight, bias = torch.randn(3, 2, 2, dtype=DOUBLE), torch.randn(3, dtype=DOUBLE)
    matrix = torch.cat([weight.flatten(1), bias.unsqueeze(1)], 1)
    solved = torch.linalg.solve(torch.kron(G, A), matrix.flatten()).view(3, 5)
    found = precondition_gradients(damped_inverse(factors, tau), [weight, bias])
    assert same(found[0], solved[:, :4].reshape(3, 2, 2))
    assert same(found[1], solved[:, 4])


def test_moving_scale_between_the_factors_changes_nothing() -> None:
    model, x = case("conv2d")
    factors = kfac_factors(model, x, fisher="exact")["0"]
    gradients = [torch.randn_like(p) for p in model[0].parameters()]
    moved = Factors(factors.input * 50, factors.output / 50)
    for a, b in zip(
        precondition_gradients(damped_inverse(factors, 0.1), gradients),
        precondition_gradients(damped_inverse(moved, 0.1), gradients),
        strict=True,
    ):
        assert same(a, b)


def test_half_precision_activations_are_summed_in_single() -> None:
    model = nn.Sequential(nn.Linear(4, 3)).to(torch.bfloat16)
    factors = kfac_factors(model, torch.randn(8, 4, dtype=torch.bfloat16), fisher="exact")["0"]
    assert factors.input.dtype == factors.output.dtype == torch.float32


# Which layers


class Twice(nn.Module):
    """One layer called twice in a pass, in-place activations between, and one layer never called."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(3, 3)
        self.idle = nn.Linear(3, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu_(self.shared(x).add_(1))
        return torch.as_tensor(self.head(input=self.shared(hidden).relu_()))


def test_calls_of_one_layer_count_like_positions() -> None:
    torch.manual_seed(0)
    model, x = Twice().to(DOUBLE), torch.randn(4, 3, dtype=DOUBLE)
    actual = kfac_factors(model, x, fisher="exact")
    assert set(actual) == {"shared", "head"}
    expected = slow_factors(model, model.shared, x, lambda n, p: p)
    assert same(actual["shared"].input, expected.input)
    assert same(actual["shared"].output, expected.output)


def test_in_place_activations_after_the_first_layer_are_allowed() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=DOUBLE)
    found = []
    for inplace in (True, False):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace), nn.Linear(4, 2)).to(DOUBLE)
        found.append(kfac_factors(model, x, fisher="exact"))
    for name in ("0", "2"):
        assert same(found[0][name].input, found[1][name].input)
        assert same(found[0][name].output, found[1][name].output)


class Overwrites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        out = torch.as_tensor(self.head(x))
        x.zero_()
        return out


def test_an_input_that_is_overwritten_later_was_already_counted() -> None:
    model, x = Overwrites(), torch.randn(4, 3)
    expected = kfac_factors(model.head, x, fisher="exact")[""]
    found = kfac_factors(model, x, fisher="exact")["head"]
    assert torch.equal(found.input, expected.input)
    assert torch.equal(found.output, expected.output)


def test_what_gets_factors() -> None:
    tied = nn.Linear(4, 4)
    frozen = nn.Linear(4, 4)
    assert frozen.bias is not None
    frozen.bias.requires_grad_(False)
    twin = nn.Linear(4, 4)
    twin.weight = tied.weight
    normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    computed = nn.Linear(4, 4)
    del computed.weight
    computed.weight = torch.ones(4, 4)  # as an old-style weight norm leaves it
    parts = {
        "computed": computed,
        "conv": nn.Conv2d(4, 4, 1),
        "depthwise": nn.Conv2d(4, 4, 3, groups=4),
        "norm": nn.BatchNorm2d(4),
        "tied": tied,
        "twin": twin,
        "frozen": frozen,
        "normed": normed,
        "volume": nn.Conv3d(4, 4, 1),
        "head": nn.Linear(4, 2),
    }
    assert set(kfac_layers(nn.ModuleDict(parts))) == {"conv", "head"}


class Sketch(nn.Module):
    """A branch under no_grad, which cannot report a gradient, beside one that can."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.cut(x)
        return torch.as_tensor(self.head(x))


def test_layers_cut_off_by_the_model_have_no_factors() -> None:
    assert set(kfac_factors(Sketch(), torch.randn(2, 3))) == {"head"}


# No side effects


class Block(nn.Module):
    """Depthwise-separable convolution with batch norm and dropout; raises on demand, late in the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm = nn.BatchNorm2d(4)
        self.pointwise = nn.Conv2d(4, 6, 1, bias=False)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(6, 3)
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.pointwise(self.norm(self.depthwise(x))))
        out = torch.as_tensor(self.head(self.drop(x.mean((2, 3)))))
        if self.fails:
            raise KeyError("late")
        return out


def snapshot(model: nn.Module) -> dict[str, Any]:
    return {
        "values": [v.clone() for v in model.state_dict().values()],
        "grads": [id(p.grad) for p in model.parameters()],
        "grad values": [p.grad.clone() for p in model.parameters() if p.grad is not None],
        "needs": [p.requires_grad for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._backward_hooks)) for m in model.modules()],
        "random": torch.get_rng_state(),
    }


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    tensors = ("values", "grad values")
    return (
        all(torch.equal(x, y) for key in tensors for x, y in zip(a[key], b[key], strict=True))
        and torch.equal(a["random"], b["random"])
        and all(a[key] == b[key] for key in ("grads", "needs", "modes", "hooks"))
    )


@pytest.mark.parametrize("fails", [None, "forward", "after forward"])
@pytest.mark.parametrize("fisher", ["mc", "exact", "empirical"])
def test_the_pass_leaves_no_trace(fails: str | None, fisher: str) -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(5, 4, 6, 6, requires_grad=True)
    model(x.detach()).sum().backward()
    model.norm.weight.requires_grad_(False)
    model.drop.eval()
    targets = torch.zeros(5, dtype=torch.long)
    before = snapshot(model)
    if fails == "forward":
        model.fails = True
        with pytest.raises(KeyError, match="late"):
            kfac_factors(model, x, targets=targets, fisher=fisher)
    elif fails:
        with pytest.raises(ValueError, match="weights"):
            kfac_factors(model, x, targets=targets, fisher=fisher, weights=torch.ones(4))
    else:
        with torch.no_grad():  # the caller's mode does not matter either
            factors = kfac_factors(model, x, targets=targets, fisher=fisher)
        assert set(factors) == {"pointwise", "head"}
    assert equal(before, snapshot(model))
    assert x.grad is None


def test_drawing_labels_moves_the_own_generator_only() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    layer, random = nn.Linear(3, 2), torch.get_rng_state()
    kfac_factors(layer, torch.ones(4, 3), fisher="mc", generator=generator)
    assert not torch.equal(before, generator.get_state())
    assert torch.equal(random, torch.get_rng_state())


# State and errors


def test_state_survives_a_file_and_goes_on_alike() -> None:
    model, x = case("conv2d")
    original = KFAC(model, seed=5)
    original.update(x)
    original.invert(0.2)
    original.update(x)
    original.invert(0.3)
    file = io.BytesIO()
    torch.save(original.state_dict(), file)
    file.seek(0)
    loaded = KFAC(model, seed=9)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    model(x).square().sum().backward()
    directions = original.precondition()
    assert set(directions) == set(model.parameters())
    for p, direction in loaded.precondition().items():
        assert torch.equal(direction, directions[p])
    for curvature in (original, loaded):
        curvature.update(x)
        curvature.invert(0.4)
    for name in original.factors:
        assert torch.equal(original.factors[name].output, loaded.factors[name].output)
        assert torch.equal(original.inverses[name].input, loaded.inverses[name].input)


def test_new_factors_drop_the_inverses_of_the_old() -> None:
    curvature = KFAC(zeroed_linear(), fisher="exact")
    curvature.update(tensor([[2.0]]))
    curvature.invert(0.1)
    assert set(curvature.inverses) == {""}
    curvature.update(tensor([[2.0]]))
    assert curvature.inverses == {}
    assert curvature.state_dict()["inverse_damping"] is None


def test_a_state_taken_earlier_keeps_its_values() -> None:
    curvature = KFAC(zeroed_linear(), fisher="exact")
    curvature.update(tensor([[2.0]]))
    state = curvature.state_dict()
    curvature.update(tensor([[9.0]]))
    assert state["factors"][""]["input"].item() == 4.0


def test_factors_go_and_come_as_layers_are_frozen_and_released() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    curvature = KFAC(model)
    for released, expected in ((False, {"1"}), (True, {"0", "1"}), (False, {"1"})):
        model[0].requires_grad_(released)
        curvature.update(torch.randn(5, 3))
        curvature.invert(0.1)
        model.zero_grad()
        model(torch.randn(5, 3)).sum().backward()
        assert set(curvature.factors) == expected
        assert set(curvature.precondition()) == {p for p in model.parameters() if p.requires_grad}


def test_a_layer_without_all_its_gradients_is_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    curvature = KFAC(model)
    curvature.update(torch.randn(5, 3))
    curvature.invert(0.1)
    model(torch.randn(5, 3)).sum().backward()
    model[0].bias.grad = None
    assert set(curvature.precondition()) == set(model[1].parameters())


def test_errors_name_the_value_and_the_remedy() -> None:
    layer, x = nn.Linear(3, 2), torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"fisher='true'.*exact"):
        kfac_factors(layer, x, fisher="true")
    with pytest.raises(ValueError, match=r"fisher='true'.*exact"):
        KFAC(layer, fisher="true")
    with pytest.raises(ValueError, match=r"targets of shape \(4,\), got none"):
        kfac_factors(layer, x, fisher="empirical")
    with pytest.raises(ValueError, match=r"targets of shape \(4,\), got shape \(3,\)"):
        kfac_factors(layer, x, fisher="empirical", targets=torch.zeros(3, dtype=torch.long))
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="negative or non-finite"):
            kfac_factors(layer, x, weights=torch.tensor([1.0, bad, 1.0, 1.0]))
    with pytest.raises(ValueError, match=r"\(4, 5, 2\).* log_likelihood="):
        kfac_factors(layer, torch.ones(4, 5, 3))
    for ema in (0.0, 1.5):
        with pytest.raises(ValueError, match="ema"):
            KFAC(layer, ema=ema)
    with pytest.raises(ValueError, match="no trainable Linear"):
        KFAC(nn.BatchNorm1d(3))
    for damping in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"damping={damping}"):
            KFAC(layer).invert(damping)


def test_divergence_is_named_and_leaves_the_factors_alone() -> None:
    curvature = KFAC(nn.Sequential(nn.Linear(3, 2)))
    curvature.update(torch.ones(4, 3))
    before = curvature.factors["0"].input.clone()
    with pytest.raises(FloatingPointError, match=r"layer '0'.*damping"):
        curvature.update(torch.full((4, 3), math.inf))
    assert torch.equal(before, curvature.factors["0"].input)


def test_another_models_state_is_refused() -> None:
    source = KFAC(nn.Sequential(nn.Linear(3, 2)))
    source.update(torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"\(4, 2\).*\(4, 5\)"):
        KFAC(nn.Sequential(nn.Linear(3, 5))).load_state_dict(source.state_dict())
    with pytest.raises(ValueError, match="layer '0'"):
        KFAC(nn.Linear(3, 2)).load_state_dict(source.state_dict())


def test_the_documented_examples_run() -> None:
    result = doctest.testmod(tmln.curvature.kfac)
    assert (result.attempted, result.failed) == (7, 0)


def test_all_of_the_new_factors_on_request() -> None:
    model = nn.Linear(3, 2)
    curvature, alone = KFAC(model, ema=1.0, fisher="exact"), KFAC(model, fisher="exact")
    curvature.update(torch.ones(4, 3))
    x = torch.randn(4, 3)
    curvature.update(x)
    alone.update(x)
    for found, wanted in zip(curvature.factors[""], alone.factors[""], strict=True):
        assert torch.equal(found, wanted)


def test_layers_with_a_single_output() -> None:
    """Their weight has one row, their output factor one number."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 1, 1), nn.Flatten(), nn.Linear(4, 1), nn.Linear(1, 2))
    curvature = KFAC(model, fisher="exact")
    curvature.update(torch.randn(3, 2, 2, 2))
    assert {name: tuple(map(len, factors)) for name, factors in curvature.factors.items()} == {
        "0": (3, 1),
        "2": (5, 1),
        "3": (2, 2),
    }
