"""Replay parts: what joins the batch, how it is scored, and when the memory is filled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.methods import Batch, Replay, TaskContext, read_settings
from tmln.methods.replay import REPLAYS
from tmln.methods.replay.derpp import compute_dark_loss
from tmln.methods.replay.er_ace import cross_entropy_among_present, cross_entropy_among_unmet


def make(name: str, **settings: Any) -> Replay[Any]:
    kind = REPLAYS[name]
    return kind(read_settings(kind, settings), seed=0)


def context(x: Tensor, y: Tensor) -> TaskContext:
    def once() -> Iterator[tuple[Tensor, Tensor]]:
        yield x[:6], y[:6]
        yield x[6:], y[6:]

    return TaskContext(0, nn.Identity(), (0, 1), (), 0.1, once, lambda x: x)


X, Y = torch.arange(20.0)[:, None], torch.arange(20) % 4


def test_dark_loss_by_hand() -> None:
    """One sample of each kind; logits (0, 0) give CE ln 2."""
    output = torch.tensor([[0.0, 0.0], [1.0, 3.0], [0.0, 0.0]])
    y = torch.tensor([0, 1, 1])
    logits = torch.tensor([[0.0, 0.0]])
    # CE = ln 2; MSE = (1 + 9)/2 = 5; CE of the second draw = ln 2
    loss = compute_dark_loss(output, y, 1, logits, alpha=0.1, beta=0.5)
    assert loss.item() == pytest.approx(math.log(2) + 0.1 * 5 + 0.5 * math.log(2))


def test_asymmetric_loss_by_hand() -> None:
    """Class 2 is absent: p(0) = e/(e + 1), whatever the third logit."""
    output = torch.tensor([[1.0, 0.0, 50.0], [1.0, 0.0, -3.0]])
    expected = -math.log(math.e / (math.e + 1)) / 2 - math.log(1 / (math.e + 1)) / 2
    assert cross_entropy_among_present(output, torch.tensor([0, 1])).item() == pytest.approx(expected)


def test_unmet_classes_may_compete_by_hand() -> None:
    """Class 0 was met before and is absent, 1 was met before and is present, 2 is present, 3 was never met."""
    output = torch.tensor([[50.0, 1.0, 0.0, 2.0], [-3.0, 1.0, 0.0, 2.0]])
    total = math.e + 1 + math.e**2
    expected = -math.log(math.e / total) / 2 - math.log(1 / total) / 2
    assert cross_entropy_among_unmet(output, torch.tensor([1, 2]), [0, 1]).item() == pytest.approx(expected)
    among_all = cross_entropy_among_unmet(output, torch.tensor([1, 2]), [])
    assert torch.equal(among_all, F.cross_entropy(output, torch.tensor([1, 2])))
    among_batch = cross_entropy_among_unmet(output, torch.tensor([1, 2]), range(4))
    assert torch.equal(among_batch, cross_entropy_among_present(output, torch.tensor([1, 2])))


def test_er_ace_leaves_the_first_task_plain_if_unmet_classes_compete() -> None:
    """Two classes a task; a batch of the second task shows one of its two. Replayed samples compete with all."""
    model = nn.Linear(1, 4)
    part = make("er-ace", competitors="unseen")
    y = torch.tensor([0, 0, 1])
    part.begin(context(X, Y))
    loss, output = part.loss(model, Batch(X[:3], y, 3))
    assert torch.equal(loss, F.cross_entropy(output, y))
    part.begin(replace(context(X, Y), index=1, classes=(2, 3), known=(0, 1)))
    y = torch.tensor([2, 2, 1])
    loss, output = part.loss(model, Batch(X[:3], y, 2))
    torch.testing.assert_close(loss, F.cross_entropy(output[:2, 2:], y[:2] - 2) + F.cross_entropy(output[2:], y[2:]))
    resumed = make("er-ace", competitors="unseen")
    resumed.load_state_dict(part.state_dict())
    assert torch.equal(resumed.loss(model, Batch(X[:3], y, 2))[0], loss)
    alone, _ = make("er-ace").loss(model, Batch(X[:3], y, 2))  # among the batch's classes: nobody to compete with
    torch.testing.assert_close(alone, F.cross_entropy(output[2:], y[2:]))


@pytest.mark.parametrize("competitors", ["batch", "unseen"])
def test_er_ace_without_asymmetry_is_the_sum_of_two_plain_means(competitors: str) -> None:
    part = make("er-ace", asymmetric=False, competitors=competitors)
    part.begin(replace(context(X, Y), known=(0, 1)))
    loss, output = part.loss(nn.Linear(1, 4), Batch(X[:5], Y[:5], 2))
    torch.testing.assert_close(loss, F.cross_entropy(output[:2], Y[:2]) + F.cross_entropy(output[2:], Y[2:5]))


def test_er_ace_knows_its_competitors() -> None:
    with pytest.raises(ValueError, match=r"replay.competitors = 'all'"):
        make("er-ace", competitors="all")


def test_asymmetric_loss_is_worked_out_where_the_output_is() -> None:
    output = torch.zeros(2, 3, device="meta")
    assert cross_entropy_among_present(output, torch.zeros(2, dtype=torch.long, device="meta")).device == output.device


def test_er_is_one_mean_over_the_union() -> None:
    model = nn.Linear(1, 4)
    batch = Batch(X[:5], Y[:5], 3)
    loss, output = make("er").loss(model, batch)
    assert torch.equal(loss, F.cross_entropy(model(X[:5]), Y[:5]))  # not mean of current + mean of replayed
    assert len(output) == 5


def test_er_ace_is_the_sum_of_two_means() -> None:
    model = nn.Linear(1, 4)
    loss, output = make("er-ace").loss(model, Batch(X[:5], Y[:5], 2))
    expected = cross_entropy_among_present(output[:2], Y[:2]) + F.cross_entropy(output[2:], Y[2:5])
    torch.testing.assert_close(loss, expected)


def test_er_fills_at_the_end_and_replays_as_many_as_there_are() -> None:
    part = make("er", capacity=8)
    part.after_step(X[:4], Y[:4], torch.zeros(4, 4), epoch=0)
    assert part.memory is not None
    assert len(part.memory) == 0
    assert [len(t) for t in part.draw(X[:4], Y[:4])[:2]] == [0, 0]
    part.end(context(X, Y))
    assert (len(part.memory), part.memory.seen) == (8, 20)
    x, y, fields = part.draw(X[:4], Y[:4])
    assert (len(x), len(y), dict(fields)) == (4, 4, {})
    assert len(part.draw(X, Y)[0]) == 8  # capped by what is stored
    assert len(make_filled("er", batch=3).draw(X, Y)[0]) == 3


def make_filled(name: str, **settings: Any) -> Replay[Any]:
    part = make(name, capacity=8, **settings)
    part.end(context(X, Y))
    return part


@pytest.mark.parametrize(("fill", "seen"), [("end", 20), ("online", 10), ("every-epoch", 20)])
def test_when_the_memory_is_filled(fill: str, seen: int) -> None:
    """Two epochs of two steps of five samples each, then the task's end with all 20."""
    part = make("er", fill=fill, capacity=50)
    for epoch in range(2):
        for rows in (slice(0, 5), slice(5, 10)):
            part.after_step(X[rows], Y[rows], torch.zeros(5, 4), epoch)
    part.end(context(X, Y))
    assert part.memory is not None
    assert part.memory.seen == seen


def test_der_stores_what_the_model_said() -> None:
    part = make("der++", capacity=20)
    logits = torch.randn(20, 4)
    part.after_step(X, Y, logits, epoch=3)
    x, y, fields = part.draw(X[:6], Y[:6])
    assert (len(x), len(y), len(fields["logits"])) == (12, 12, 6)  # a draw for logits, another for labels
    assert torch.equal(fields["logits"], logits[x[:6, 0].long()])
    part.end(context(X, Y))
    assert part.memory is not None
    assert part.memory.seen == 20
    with pytest.raises(ValueError, match=r"replay.fill"):
        make("der++", fill="never")


@pytest.mark.parametrize(("alpha", "beta", "joined"), [(0.0, 0.5, 6), (0.1, 0.0, 6), (0.0, 0.0, 0)])
def test_der_draws_only_what_counts(alpha: float, beta: float, joined: int) -> None:
    part = make("der++", capacity=20, alpha=alpha, beta=beta)
    part.after_step(X, Y, torch.randn(20, 4), epoch=0)
    x, y, fields = part.draw(X[:6], Y[:6])
    assert len(x) == len(y) == joined
    model = nn.Linear(1, 4)
    loss, output = part.loss(model, Batch(torch.cat([X[:6], x]), torch.cat([Y[:6], y]), 6, fields))
    logits = fields.get("logits", output[:0])
    torch.testing.assert_close(loss, compute_dark_loss(output, torch.cat([Y[:6], y]), 6, logits, alpha, beta))
