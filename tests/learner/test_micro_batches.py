"""A batch in pieces: the same weights to rounding under every method, the memory of a piece."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.forward import MicroBatches, bytes_in_pass, bytes_per_sample
from tmln.methods.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.GroupNorm(2, 8), nn.Tanh(), nn.Linear(8, 6)).double()


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(30) % 2 + 2 * k
    return torch.randn(30, 5, generator=generator) + y[:, None], y


@pytest.mark.slow
@pytest.mark.parametrize("method", RECIPES)
def test_the_same_weights_to_rounding(method: str) -> None:
    learners = [Learner(network(), method, batch_size=10, micro_batch=rows) for rows in (None, 3)]
    for learner in learners:
        for k in range(2):
            learner.learn(task(k), epochs=2)
    for a, b in zip(*(learner.model.parameters() for learner in learners), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_dropout_is_the_same_in_both_passes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 1, bias=False))
    x = torch.randn(7, 4)
    seen: list[Tensor] = []
    model[1].register_forward_hook(lambda module, args, output: seen.append(output.detach().clone()))
    MicroBatches(model, 3)(x).sum().backward()
    first, again = seen[:3], seen[3:]
    assert len(again) == 3
    for piece in again:
        assert any(torch.equal(piece, other) for other in first)


def test_no_more_than_a_piece_goes_through_at_once() -> None:
    model = network()
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    learner = Learner(model, "er", batch_size=10, micro_batch=4)
    learner.learn(task(0))
    assert max(sizes) == 4


def test_batch_statistics_cannot_be_taken_in_pieces() -> None:
    with pytest.raises(ValueError, match=r"micro_batch=4: the model has a BatchNorm1d"):
        Learner(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 6)), micro_batch=4)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Learner(network(), micro_batch=0)


def test_what_a_sample_costs_by_hand() -> None:
    """tanh keeps its output [8], the second layer its input, which is the same; the first layer its input [5]."""
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6))
    assert bytes_per_sample(model, torch.randn(4, 5)) == 4 * (5 + 8)
    assert all(p.grad is None for p in model.parameters())


def test_a_pass_without_gradients_holds_the_largest_layers_inputs_and_outputs_twice() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    assert bytes_in_pass(model, torch.randn(4, 5)) == 2 * 4 * (8 + 8)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_saved_learner_keeps_its_pieces(tmp_path: object) -> None:
    learner = Learner(network(), "er", batch_size=10, micro_batch=4)
    learner.learn(task(0))
    learner.save(f"{tmp_path}/state")
    assert Learner.load(f"{tmp_path}/state", network()).trained.micro_batch == 4
