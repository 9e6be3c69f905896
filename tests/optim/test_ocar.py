"""OCAR against hand-computed numbers and K-FAC by itself, and the promises of an optimizer."""

from __future__ import annotations

import copy
import doctest
import io
import math
import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tmln.optim.ocar
from tmln.curvature.kfac import damped_inverse, precondition_gradients
from tmln.curvature.kfac_factors import kfac_factors
from tmln.optim import TMLNKFAC
from tmln.optim.ocar import OCAR, sample_weights


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny tensors on several threads of a busy machine only wait: 30 s for a test of 0.1 s."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """As in MobileNetV2: expand, depthwise, project, each with batch norm; then a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, 1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU6(inplace=True),
            nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU6(inplace=True),
            nn.Conv2d(6, 4, 1, bias=False),
            nn.BatchNorm2d(4),
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.body(x).mean((2, 3))))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batch(step: int, samples: int = 8) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(step)
    y = torch.randint(3, (samples,), generator=source)
    return torch.randn(samples, 2, 5, 5, generator=source) + y.view(-1, 1, 1, 1), y


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, decay: float = 1.0) -> None:
    for step in steps:
        x, y = batch(step)
        if isinstance(optimizer, OCAR):
            optimizer.observe(x, y, replay=4)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= decay


def held_out_loss(model: nn.Module) -> float:
    x, y = batch(1000, 256)
    return F.cross_entropy(model(x), y).item()


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


# Hand vectors


def test_one_step_by_hand() -> None:
    model = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    x, y = torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([0])
    optimizer = OCAR(model, lr=1.0, damping=0.01, fisher="exact")
    assert optimizer.observe(x)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    expected = torch.tensor([[0.432900433], [-0.432900433]], dtype=torch.float64)
    assert torch.allclose(model.weight.detach(), expected, rtol=0, atol=1e-9)


def test_the_damping_starts_where_it_is_told_and_grows_by_the_step() -> None:
    fixed = OCAR(net(), lr=0.05, damping=0.2)
    model = net()
    growing = OCAR(model, lr=0.05, damping_init="lr", damping_increment=0.01, update_every=2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(growing, gamma=0.5)
    train(model, growing, range(3))
    scheduler.step()
    assert fixed.damping == 0.2
    assert growing.damping == pytest.approx(0.05 + 3 * 0.01)  # from the first rate, not from today's
    assert growing.kfac.state_dict()["inverse_damping"] == pytest.approx(0.05 + 2 * 0.01)


def test_sample_weights() -> None:
    assert sample_weights(4, 2, "one") is None
    assert sample_weights(4, 0, 3.0) is None
    weighted = sample_weights(4, 1, 3.0)
    assert weighted is not None
    assert weighted.tolist() == [1, 1, 1, 3]
    ratio = sample_weights(5, 3, "class_ratio", torch.tensor([7, 7, 0, 1, 2]))
    assert ratio is not None
    assert ratio.tolist() == [1, 1, 3, 3, 3]
    assert sample_weights(2, 2, "class_ratio", torch.tensor([0, 1])) is None  # nothing new to compare with


# Oracle: the same step put together from K-FAC's functions


def test_a_step_is_kfac_for_its_layers_and_sgd_for_the_rest() -> None:
    model, (x, y) = net(), batch(0)
    optimizer = OCAR(model, lr=0.1, damping=0.3, fisher="exact", replay_weight=2.5)
    weights = torch.tensor([1.0, 1, 1, 1, 1, 2.5, 2.5, 2.5])
    factors = kfac_factors(model, x, fisher="exact", weights=weights)
    assert set(factors) == {"body.0", "body.6", "head"}
    optimizer.observe(x, replay=3)
    torch.autograd.backward(F.cross_entropy(model(x), y))
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    expected = {name: p.detach() - 0.1 * gradients[name] for name, p in model.named_parameters()}
    for layer, found in factors.items():
        names = [name for name in (f"{layer}.weight", f"{layer}.bias") if name in gradients]
        directions = precondition_gradients(damped_inverse(found, 0.3), [gradients[name] for name in names])
        for name, direction in zip(names, directions, strict=True):
            expected[name] = model.get_parameter(name).detach() - 0.1 * direction
    optimizer.step()
    for name, p in model.named_parameters():
        assert torch.allclose(p, expected[name], rtol=0, atol=1e-6), name
        assert p.grad is not None
        assert torch.equal(p.grad, gradients[name])


def test_weights_given_for_the_samples_replace_those_implied() -> None:
    x, _ = batch(0)
    implied, given = OCAR(net(), fisher="exact", replay_weight=4.0), OCAR(net(), fisher="exact")
    implied.observe(x, replay=2)
    given.observe(x, replay=2, weights=torch.tensor([1.0] * 6 + [4.0] * 2))
    plain = OCAR(net(), fisher="exact")
    plain.observe(x, replay=2)
    called = OCAR(net(), fisher="exact")
    called.observe(x, replay=2, replay_weight=4.0)
    for name, factors in implied.kfac.factors.items():
        assert torch.equal(factors.output, given.kfac.factors[name].output)
        assert torch.equal(factors.output, called.kfac.factors[name].output)
        assert not torch.equal(factors.output, plain.kfac.factors[name].output)
        assert torch.equal(factors.input, plain.kfac.factors[name].input)


def test_the_class_ratio_is_counted_in_the_targets() -> None:
    x, _ = batch(0)
    counted, given = (OCAR(net(), fisher="exact", replay_weight=w) for w in ("class_ratio", 2.0))
    targets = torch.tensor([2, 2, 2, 2, 0, 1, 0, 1])
    counted.observe(x, targets, replay=4)
    given.observe(x, replay=4)
    assert torch.equal(counted.kfac.factors["head"].output, given.kfac.factors["head"].output)


# Promises


def test_factors_are_measured_once_in_update_every_steps_and_on_demand() -> None:
    model = net()
    optimizer = OCAR(model, update_every=3)
    measured = []
    for step in range(8):
        x, y = batch(step)
        measured.append(optimizer.observe(x))
        assert not optimizer.observe(x)  # once is enough
        if step == 4:
            optimizer.refresh(x)  # the count starts anew
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(x), y))
        optimizer.step()
    assert measured == [True, False, False, True, False, False, False, True]


def test_observing_leaves_model_gradients_and_random_state_alone() -> None:
    model, (x, y) = net(), batch(0)
    optimizer = OCAR(model)
    torch.autograd.backward(F.cross_entropy(model(x), y))
    before = copy.deepcopy(model.state_dict())
    gradients = [p.grad for p in model.parameters()]
    random = torch.get_rng_state()
    optimizer.observe(x)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [id(p.grad) for p in model.parameters()] == [id(g) for g in gradients]
    assert torch.equal(random, torch.get_rng_state())
    assert before["body.1.num_batches_tracked"] == 1  # from the training pass, not from observing


@pytest.mark.parametrize("fisher", ["mc", "exact", "empirical"])
def test_it_learns_a_separable_network_faster_than_sgd_at_the_same_rate(fisher: str) -> None:
    model, plain = net(), net()
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.05), range(40))
    train(model, OCAR(model, lr=0.05, fisher=fisher, update_every=5), range(40))
    assert held_out_loss(model) < 0.8 * held_out_loss(plain) < 0.8 * held_out_loss(net())


@pytest.mark.parametrize("stop", [0, 1, 4, 5])
def test_resumed_run_is_bit_identical(stop: int) -> None:
    def settings(model: nn.Module, seed: int) -> OCAR:
        return OCAR(model, lr=0.05, update_every=2, damping_init="lr", damping_increment=0.01, seed=seed)

    whole = net()
    train(whole, settings(whole, 3), range(9), decay=0.9)
    first = net()
    optimizer = settings(first, 3)
    train(first, optimizer, range(stop), decay=0.9)
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = net()
    second.load_state_dict(saved["model"])
    resumed = settings(second, 77)
    resumed.load_state_dict(saved["optimizer"])
    train(second, resumed, range(stop, 9), decay=0.9)
    assert equal(whole, second)
    other = net()
    train(other, settings(other, 77), range(9), decay=0.9)
    assert not equal(whole, other)  # so labels do depend on the generator that was saved


def test_state_dict_holds_tensors_and_plain_values_only() -> None:
    model = net()
    optimizer = OCAR(model)
    train(model, optimizer, range(2))

    def leaves(value: object) -> list[object]:
        if isinstance(value, dict):
            return [leaf for v in value.values() for leaf in leaves(v)]
        if isinstance(value, list | tuple):
            return [leaf for v in value for leaf in leaves(v)]
        return [value]

    assert all(type(leaf) in (Tensor, int, float, str, bool, type(None)) for leaf in leaves(optimizer.state_dict()))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alike(duplicate: Any) -> None:
    model = net()
    optimizer = OCAR(model, lr=0.05, update_every=2)
    train(model, optimizer, range(3))
    copied_model, copied = duplicate((model, optimizer))
    train(model, optimizer, range(3, 6))
    train(copied_model, copied, range(3, 6))
    assert equal(model, copied_model)


def test_groups_closures_and_schedulers_work() -> None:
    model, (x, y) = net(), batch(0)
    optimizer = OCAR(model, lr=1.0)
    scale = nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [scale], "lr": 0.5})
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
    optimizer.observe(x)
    start = model.head.weight.detach().clone()

    def closure() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + 2 * scale.sum()
        torch.autograd.backward(loss)
        return loss.item()

    assert optimizer.step(closure) > 0
    first = float((model.head.weight.detach() - start).norm())
    assert scale.item() == pytest.approx(-1.0)
    scheduler.step()
    optimizer.step(closure)
    assert scale.item() == pytest.approx(-1.1)
    assert first > 0


def test_a_step_without_a_metric_is_refused() -> None:
    model = net()
    with pytest.raises(RuntimeError, match="observe"):
        OCAR(model).step()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", -0.1),
        ("lr", math.nan),
        ("damping", 0.0),
        ("damping", math.inf),
        ("ema", 0.0),
        ("update_every", 0),
        ("fisher", "true"),
        ("damping_increment", -1.0),
        ("damping_init", "eta"),
        ("replay_weight", "ratio"),
        ("replay_weight", -1.0),
        ("momentum", 1.0),
    ],
)
def test_bad_values_are_named(name: str, value: object) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        OCAR(net(), **settings)


def test_bad_calls_are_named() -> None:
    model, (x, y) = net(), batch(0)
    with pytest.raises(TypeError, match="model itself"):
        OCAR(model.parameters())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="replay=9"):
        OCAR(model).observe(x, replay=9)
    with pytest.raises(ValueError, match="pass targets"):
        OCAR(model, replay_weight="class_ratio").observe(x, replay=2)
    with pytest.raises(ValueError, match="replay_weight must be one of"):
        OCAR(model).observe(x, y, replay_weight="two")
    with pytest.raises(ValueError, match="curvature"):
        OCAR(model).load_state_dict(torch.optim.SGD(model.parameters(), lr=0.1).state_dict())


def test_the_documented_examples_run() -> None:
    result = doctest.testmod(tmln.optim.ocar)
    assert (result.attempted, result.failed) == (5, 0)


def test_momentum_accumulates_natural_gradients() -> None:
    # v1 = d1, v2 = mu*d1 + d2: without momentum, from the same factors, steps are d1 and d2
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    x = torch.randn(8, 3)
    constant = {p: torch.randn_like(p) for p in model.parameters()}
    moves = {}
    for mu in (0.0, 0.5):
        own = copy.deepcopy(model)
        optimizer = OCAR(own, lr=0.1, momentum=mu, update_every=10)
        optimizer.observe(x)
        points = [[p.detach().clone() for p in own.parameters()]]
        for _ in range(3):
            for p, g in zip(own.parameters(), constant.values(), strict=True):
                p.grad = g.clone()
            optimizer.step()
            points.append([p.detach().clone() for p in own.parameters()])
        moves[mu] = [torch.cat([(b - a).flatten() for a, b in zip(*pair, strict=True)]) for pair in pairwise(points)]
    plain = moves[0.0][0]
    for step, factor in enumerate((1.0, 1.5, 1.75)):
        torch.testing.assert_close(moves[0.0][step], plain)
        torch.testing.assert_close(moves[0.5][step], factor * plain)


def test_momentum_follows_a_checkpoint() -> None:
    ways = []
    for interrupted in (False, True):
        model = net()
        optimizer = OCAR(model, lr=0.1, momentum=0.9)
        for step in range(4):
            if interrupted and step == 2:
                state = copy.deepcopy(optimizer.state_dict())
                optimizer = OCAR(model, lr=0.1, momentum=0.9)
                optimizer.load_state_dict(state)
            x, y = batch(step)
            optimizer.observe(x)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        ways.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*ways)


@pytest.mark.parametrize("make", [OCAR, TMLNKFAC])
def test_sparse_gradients_are_refused(make: Any) -> None:
    model = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Flatten(), nn.Linear(8, 2))
    optimizer, x = make(model), torch.tensor([[0, 1], [2, 3]])
    optimizer.observe(x)
    model(x).sum().backward()
    with pytest.raises(TypeError, match=r"sparse=False"):
        optimizer.step()
