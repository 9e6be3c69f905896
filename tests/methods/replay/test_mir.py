"""MIR: the samples that a virtual step hurts most, by hand; the model is left as it was."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tmln.learner import Learner
from tmln.methods import Batch
from tmln.methods.replay.mir import find_most_interfered


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))


def test_the_sample_that_contradicts_the_batch_is_found() -> None:
    """One weight vector a class at zero: a step towards class 0 at x raises the loss of class 1 at x alone."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(model.weight)
    x = torch.tensor([[1.0, 0.0]])
    stored = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), torch.tensor([1, 0, 1])
    assert find_most_interfered(model, (x, torch.tensor([0])), stored, 1.0, 1).tolist() == [2]
    # softmax is 1/2: g = (-1/2, 1/2) at x; after the step logits (1/2, -1/2), losses log 2, 0.3133, 1.3133
    assert find_most_interfered(model, (x, torch.tensor([0])), stored, 1.0, 3).tolist() == [2, 0, 1]


def test_the_rise_is_that_of_a_copy_that_takes_the_step() -> None:
    model, (x, y) = nn.Linear(3, 4), (torch.randn(5, 3), torch.arange(5) % 4)
    stored = torch.randn(30, 3), torch.arange(30) % 4
    own = [p.detach().clone() for p in model.parameters()]
    found = find_most_interfered(model, (x, y), stored, 0.5, 7)
    assert all(torch.equal(a, b) for a, b in zip(own, model.parameters(), strict=True))
    before = F.cross_entropy(model(stored[0]), stored[1], reduction="none").detach()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    rise = F.cross_entropy(model(stored[0]), stored[1], reduction="none").detach() - before
    assert sorted(found.tolist()) == sorted(rise.argsort(descending=True)[:7].tolist())


def test_statistics_gradients_and_random_state_are_left_alone() -> None:
    model = network()
    buffers, random = [b.clone() for b in model.buffers()], torch.get_rng_state()
    find_most_interfered(
        model, (torch.randn(5, 3), torch.arange(5) % 4), (torch.randn(9, 3), torch.arange(9) % 4), 1.0, 2
    )
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert not torch.equal(torch.get_rng_state(), random)  # of the inputs drawn here


def test_a_step_trains_on_the_current_and_the_chosen_samples() -> None:
    learner = Learner(network(), "mir", lr=0.1, batch_size=4, settings={"replay.candidates": 10, "replay.batch": 3})
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    learner.learn((x, y))
    sizes = []
    own = learner.replay.loss

    def loss(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append((batch.current, len(batch.y)))
        return own(model, batch)

    learner.replay.loss = loss  # type: ignore[method-assign]
    learner.learn((x, y + 2))
    assert set(sizes) == {(4, 7)}
