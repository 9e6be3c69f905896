"""The diagonal Fisher: hand-computed, against a loop over samples, and without side effects."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo import ZOO, Case, SharedTransformer, cnn_with_batch_norm, images, mlp, tokens
from tmln.curvature import Fisher, diagonal_fisher


def oracle(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """One sample at a time, in eval mode, straight from the definition."""
    was, sums = model.training, {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    model.eval()
    for i in range(len(x)):
        loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        for (name, _), g in zip(model.named_parameters(), grads, strict=True):
            if g is not None:
                sums[name] += g**2 / len(x)
    model.train(was)
    return sums


def assert_same(found: Fisher, expected: dict[str, Tensor], tolerance: float) -> None:
    assert set(found) == set(expected)
    noise = 1e-6 * max(float(value.max()) for value in expected.values())  # a bias before a norm has no gradient
    for name, value in expected.items():
        scale = max(float(value.max()), noise)
        assert float((found[name] - value).abs().max()) <= tolerance * scale, name


def settle(model: nn.Module, case: Case) -> None:
    """SampleBatch norms with statistics of their own, so that eval and train differ."""
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(case.draw(16)[0])


class Signed(nn.Module):
    """log p(y|x) = theta * x under the loss below: gradients are the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Linear(1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.theta(x)
        return out


def test_opposite_gradients_do_not_cancel() -> None:
    model = Signed()
    x = torch.tensor([[1.0], [-1.0]])
    fisher = diagonal_fisher(model, [(x, torch.zeros(2))], log_likelihood=lambda out, y: out[:, 0])
    assert fisher["theta.weight"].item() == 1.0  # the square of the mean gradient would be 0


def test_by_hand_for_logistic_regression() -> None:
    model = nn.Linear(1, 2, bias=True)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    # p = (1/2, 1/2); d log p(0)/d logits = (1/2, -1/2), times x = 2 for the weights
    fisher = diagonal_fisher(model, [(torch.tensor([[2.0]]), torch.tensor([0]))])
    assert fisher["weight"].flatten().tolist() == [1.0, 1.0]
    assert fisher["bias"].tolist() == [0.25, 0.25]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("name", ZOO)
def test_zoo_against_the_loop(name: str, dtype: torch.dtype, tolerance: float) -> None:
    case = ZOO[name]
    torch.manual_seed(3)
    model = case.make().to(dtype)
    double = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        settle(model, case)
        x, y = case.draw(23)
    finally:
        torch.set_default_dtype(double)
    fisher = diagonal_fisher(model, [(x[:17], y[:17]), (x[17:], y[17:])], chunk_size=5)
    assert_same(fisher, oracle(model, x, y), tolerance)
    assert fisher.strategy == case.strategy
    assert fisher.samples == 23
    whole = diagonal_fisher(model, [(x, y)])  # the automatic chunk
    assert_same(whole, oracle(model, x, y), tolerance)


def test_frozen_parameters_are_left_out() -> None:
    torch.manual_seed(0)
    model = cnn_with_batch_norm()
    frozen = [p for name, p in model.named_parameters() if name.startswith(("0.", "3."))]
    for p in frozen:
        p.requires_grad_(False)
    x, y = images(9)(6)
    fisher = diagonal_fisher(model, [(x, y)])
    assert not any(name.startswith(("0.", "3.")) for name in fisher)
    assert not any(p.requires_grad for p in frozen)
    for p in frozen:
        p.requires_grad_(True)
    expected = {k: v for k, v in oracle(model, x, y).items() if k in fisher}
    assert_same(fisher, expected, 1e-5)


class Tagged(nn.Module):
    """Takes keywords, answers with an object, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 5)
        self.b = nn.Linear(3, 5)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        return {"logits": self.a(left) * self.b(right)}


def test_dict_and_tuple_batches_agree() -> None:
    torch.manual_seed(0)
    model = Tagged()
    left, right, y = torch.randn(7, 3), torch.randn(7, 3), torch.randint(5, (7,))
    one = diagonal_fisher(model, [{"left": left, "right": right, "labels": y}])
    two = diagonal_fisher(model, [(left, right, y)], chunk_size=2)
    for name in one:
        torch.testing.assert_close(one[name], two[name])
        assert one[name].max() > 0


def test_sampled_targets_estimate_the_true_fisher() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 4).double()
    x = torch.randn(1, 3, dtype=torch.float64)
    p = model(x).softmax(-1).detach()[0]
    # F = E_y (onehot - p)^2 = p(1-p) for the bias
    many = x.expand(40_000, 3)
    fisher = diagonal_fisher(model, [(many, torch.full((40_000,), -1))], targets="sampled")
    torch.testing.assert_close(fisher["bias"], p * (1 - p), rtol=0.03, atol=0)
    again = diagonal_fisher(model, [(many, torch.full((40_000,), -1))], targets="sampled")
    assert torch.equal(fisher["bias"], again["bias"])


def test_positions_are_summed_within_a_sample() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 3, 1))
    weight = next(iter(model.parameters()))
    x, y = torch.randn(4, 2, 6), torch.randint(3, (4, 6))
    fisher = diagonal_fisher(model, [(x, y)])
    expected = torch.zeros(3, 2, 1)
    for i in range(4):
        loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1], reduction="sum")
        expected += torch.autograd.grad(loss, weight)[0] ** 2 / 4
    torch.testing.assert_close(fisher["0.weight"], expected)


def snapshot(model: nn.Module) -> list[Any]:
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [
        [m.training for m in model.modules()],
        [p.requires_grad for p in model.parameters()],
        [id(p.grad) for p in model.parameters()],
        grads,
        [b.clone() for b in model.buffers()],
        [p.detach().clone() for p in model.parameters()],
        hooks,
        torch.get_rng_state(),
    ]


def assert_equal_snapshots(a: list[Any], b: list[Any]) -> None:
    for left, right in zip(a, b, strict=True):
        if isinstance(left, Tensor):
            assert torch.equal(left, right)
        else:
            for u, v in zip(left, right, strict=True):
                assert torch.equal(u, v) if isinstance(u, Tensor) else u == v


class Restless(nn.Module):
    """Counts its calls in a buffer, replaces another, draws random numbers, and fails on demand."""

    calls: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = cnn_with_batch_norm()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))
        self.fail_at = 10**9

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = torch.rand(())
        if self.calls >= self.fail_at:
            raise ArithmeticError("asked to fail")
        out: Tensor = self.inner(x)
        return out


@pytest.mark.parametrize("fails", [False, True])
def test_no_side_effects(fails: bool) -> None:
    torch.manual_seed(0)
    model = Restless()
    model.train()
    model.inner[1].eval()  # a mixed state of flags
    x, y = images(9)(12)
    F.cross_entropy(model(x), y).backward()
    first = next(iter(model.parameters()))
    first.grad = None
    model.fail_at = 6 if fails else 10**9
    before = snapshot(model)
    if fails:
        with pytest.raises(ArithmeticError):
            diagonal_fisher(model, [(x, y)], chunk_size=2)
    else:
        diagonal_fisher(model, [(x, y)], chunk_size=2)
    assert_equal_snapshots(before, snapshot(model))


def test_works_under_no_grad_and_in_half_precision() -> None:
    torch.manual_seed(0)
    model = mlp()
    x, y = images(3)(6)
    expected = oracle(model, x, y)
    with torch.no_grad():
        assert_same(diagonal_fisher(model, [(x, y)]), expected, 1e-5)
    half = diagonal_fisher(model.bfloat16(), [(x.bfloat16(), y)])
    assert half.strategy == "hooks"
    assert half["1.weight"].dtype == torch.float32
    assert_same(half, {k: v.float() for k, v in expected.items()}, 0.1)


def test_the_fallback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Fresh(type(ZOO["branching"].make())):  # type: ignore[misc]  # a name that was not logged before
        pass

    model, (x, y) = Fresh(), images(3)(4)
    with caplog.at_level(logging.WARNING, "tmln.curvature"):
        diagonal_fisher(model, [(x, y)])
        diagonal_fisher(model, [(x, y)])
    assert len(caplog.records) == 1
    assert caplog.records[0].message.startswith("per-sample gradients: Fresh goes by loop, which is slower (")


def test_batches_may_be_a_generator_and_chunks_do_not_matter() -> None:
    torch.manual_seed(0)
    model, (x, y) = mlp().double(), images(3)(11)

    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        yield x[:4].double(), y[:4]
        yield x[4:].double(), y[4:]

    whole = diagonal_fisher(model, [(x.double(), y)])
    for size in (1, 3, 100):
        parts = diagonal_fisher(model, stream(), chunk_size=size)
        for name in whole:
            torch.testing.assert_close(parts[name], whole[name], rtol=1e-12, atol=0)


def test_a_tied_table_is_never_made_whole_for_each_sample() -> None:
    """Of 500 rows a sample looks up five; a chunk of 200 samples would otherwise hold 200 tables."""
    torch.manual_seed(0)
    model, sizes = SharedTransformer(vocabulary=500), []
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    x, y = tokens(5, 500)(200)
    fisher = diagonal_fisher(model, [(x, y)], memory=200 * 4 * 500 * 8)
    assert sizes == [1, 1, 200, 8, 8]  # two alone, the chunk, and the order of some of it by autograd and by hooks
    assert_same(fisher, oracle(model, x, y), 1e-5)


@pytest.mark.parametrize(
    ("batches", "error", "words"),
    [
        ([], ValueError, "no samples"),
        ([(torch.zeros(0, 3, 3, 3), torch.zeros(0, dtype=torch.long))], ValueError, "no samples"),
        ((torch.zeros(2, 27), torch.zeros(2)), TypeError, r"pass \[\(x, y\)\]"),
        ([{"x": torch.zeros(2, 27)}], ValueError, "labels"),
        ([(torch.zeros(2, 3, 3, 3), torch.zeros(3, dtype=torch.long))], ValueError, "2 inputs but 3 targets"),
    ],
)
def test_bad_batches(batches: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        diagonal_fisher(mlp(), batches)


def test_bad_options() -> None:
    model, (x, y) = mlp(), images(3)(2)
    with pytest.raises(ValueError, match="targets must be"):
        diagonal_fisher(model, [(x, y)], targets="guessed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunk_size"):
        diagonal_fisher(model, [(x, y)], chunk_size=0)
    with pytest.raises(ValueError, match="one value a sample"):
        diagonal_fisher(model, [(x, y)], log_likelihood=lambda out, target: out.sum())
    with pytest.raises(ValueError, match="no trainable parameter"):
        diagonal_fisher(mlp().requires_grad_(False), [(x, y)])
    with pytest.raises(IndexError, match="out of bounds"):
        diagonal_fisher(model, [(x, y + 100)])


class Elsewhere(nn.Module):
    """Its forward pass uses another tensor than its parameter, as that of a sharded model may."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 2))
        self.other = (torch.ones(3, 2, requires_grad=True),)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.other[0]


@pytest.mark.parametrize("samples", [1, 5])
def test_a_pass_without_gradients_is_an_error_not_zeros(samples: int) -> None:
    with pytest.raises(RuntimeError, match=f"no gradient reached any parameter of Elsewhere in {samples} samples"):
        diagonal_fisher(Elsewhere(), [(torch.randn(samples, 3), torch.zeros(samples, dtype=torch.long))])


@pytest.mark.parametrize("sizes", [(6,), (1,), (1, 5), (2, 4)])
def test_sparse_embeddings_have_the_fisher_of_dense_ones(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3))
    sparse = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(12, 3))
    sparse.load_state_dict(dense.state_dict())
    x, y = torch.randint(9, (6, 3)), torch.randint(3, (6,))
    batches = (
        list(zip(x.split(list(sizes)), y.split(list(sizes)), strict=True)) if sum(sizes) == 6 else [(x[:1], y[:1])]
    )
    expected, found = diagonal_fisher(dense, batches), diagonal_fisher(sparse, batches)
    assert found.strategy == expected.strategy
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
