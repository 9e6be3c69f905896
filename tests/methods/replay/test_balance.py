"""Class frequency in the replay loss: by hand, in expectation, closed classes, resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.experiments.config import RunConfig, run_id
from tmln.learner import Learner
from tmln.methods import Batch, Replay, TaskContext, read_settings
from tmln.methods.replay import REPLAYS
from tmln.methods.replay.memory_replay import adjust_logits, compute_prior

OTHERWISE = ("scr", "x-der", "lucir")  # their losses have no softmax over all classes
BALANCED = [n for n, part in REPLAYS.items() if "balance" in part.Settings.model_fields and n not in OTHERWISE]
PLAIN = {"distill": {"loss": "softmax", "share": 0.0}}  # a softmax, and nobody teaches


def make(name: str, **settings: Any) -> Replay[Any]:
    kind = REPLAYS[name]
    return kind(read_settings(kind, {**PLAIN.get(name, {}), **settings}), seed=0)


def context(index: int, classes: tuple[int, ...], x: Tensor, y: Tensor) -> TaskContext:
    return TaskContext(index, nn.Linear(1, 5), classes, (0, 1), 0.1, lambda: iter([(x, y)]), lambda x: x)


def begun(name: str, **settings: Any) -> Replay[Any]:
    """In a second task with classes 2 and 3; the memory is 60% class 0, 40% class 1."""
    part = make(name, capacity=10, fill="end", **settings)
    x, y = torch.arange(10.0)[:, None], torch.tensor([0] * 6 + [1] * 4)
    part.begin(context(0, (0, 1), x, y))
    part.end(context(0, (0, 1), x, y))
    part.begin(context(1, (2, 3), x, y))
    return part


LOG = torch.tensor([-1.2039728, -1.6094379, -1.3862944, -1.3862944])


def test_the_prior_by_hand() -> None:
    prior = compute_prior((2, 3), {0: 0.6, 1: 0.4}, 4, 4, 5)
    torch.testing.assert_close(prior, torch.tensor([0.3, 0.2, 0.25, 0.25, 0.0]))
    torch.testing.assert_close(prior[:4].log(), LOG)
    uneven = compute_prior((0, 3), {0: 0.5, 1: 0.5}, 3, 1, 4)  # a class of the task may be in the memory, too
    torch.testing.assert_close(uneven, torch.tensor([0.375 + 0.125, 0.125, 0.0, 0.375]))


def test_a_class_without_a_prior_is_closed_unless_it_is_there() -> None:
    output, prior = torch.zeros(2, 3), torch.tensor([0.5, 0.0, 0.5])
    assert adjust_logits(output, torch.tensor([0, 2]), prior, 1.0)[0].isinf().tolist() == [False, True, False]
    found = adjust_logits(output, torch.tensor([0, 1]), prior, 2.0)
    torch.testing.assert_close(found[0], 2 * torch.tensor([0.5, 0.5, 0.5]).log())


def test_er_scores_adjusted_logits_and_tells_the_plain_output() -> None:
    model, part = nn.Linear(1, 5), begun("er", balance=0.5)
    x, y = torch.arange(4.0)[:, None], torch.tensor([2, 3, 0, 1])
    loss, output = part.loss(model, Batch(x, y, 2))
    assert torch.equal(output, model(x))
    torch.testing.assert_close(loss, F.cross_entropy(model(x)[:, :4] + 0.5 * LOG, y))
    loss.backward()
    assert model.weight.grad is not None
    assert model.weight.grad[4] == 0  # not met, so nothing pushes it down
    assert model.weight.grad.isfinite().all()


def test_er_ace_and_der_score_adjusted_logits() -> None:
    model = nn.Linear(1, 5)
    x, y = torch.arange(6.0)[:, None], torch.tensor([2, 3, 0, 1, 1, 0])
    adjusted = model(x)[:, :4] + LOG
    loss, output = begun("der++", balance=1.0, alpha=0.3, beta=0.7).loss(
        model, Batch(x, y, 2, {"logits": torch.zeros(2, 5)})
    )
    expected = F.cross_entropy(adjusted[:2], y[:2]) + 0.7 * F.cross_entropy(adjusted[4:], y[4:])
    torch.testing.assert_close(loss, expected + 0.3 * (output[2:4] ** 2).mean())
    x, y = x[:4], y[:4]
    loss, _ = begun("er-ace", balance=1.0).loss(model, Batch(x, y, 2))
    current = F.cross_entropy(adjusted[:2, 2:4], y[:2] - 2)  # the prior of those two is the same
    torch.testing.assert_close(loss, current + F.cross_entropy(adjusted[2:4], y[2:]))


def test_the_prior_is_the_expectation_of_a_batch() -> None:
    """Labels drawn as a step draws them, over every draw there is: as often as the prior says, exactly."""
    part = begun("er", balance=1.0)
    assert part.memory is not None
    stored = torch.cat([y for (y,) in part.memory.batches(10, ("y",))])
    current = torch.tensor([2, 3, 3, 2])
    replayed = torch.stack([stored.roll(k)[:4] for k in range(10)])  # each slot as often as any other
    every = torch.cat([current.expand(10, 4), replayed], 1)
    share = torch.bincount(every.flatten(), minlength=4) / every.numel()
    torch.testing.assert_close(share, compute_prior((2, 3), {0: 0.6, 1: 0.4}, 4, 4, 4))


@pytest.mark.parametrize("name", BALANCED)
def test_off_and_in_the_first_task_it_is_the_plain_loss(name: str) -> None:
    model, batch = nn.Linear(1, 5), Batch(torch.arange(4.0)[:, None], torch.tensor([2, 3, 0, 1]), 2)
    fresh = make(name, balance=1.0)
    fresh.begin(context(0, (2, 3), batch.x, batch.y))
    plain = make(name).loss(model, batch)[0]
    assert torch.equal(fresh.loss(model, batch)[0], plain)
    assert torch.equal(begun(name).loss(model, batch)[0], plain)
    assert not torch.equal(begun(name, balance=1.0).loss(model, batch)[0], plain)


@pytest.mark.parametrize("name", BALANCED)
def test_it_goes_on_within_a_task(name: str) -> None:
    part, again = begun(name, balance=1.0), make(name, balance=1.0, capacity=10, fill="end")
    again.load_state_dict(part.state_dict())
    model, batch = nn.Linear(1, 5), Batch(torch.arange(4.0)[:, None], torch.tensor([2, 3, 0, 1]), 2)
    assert torch.equal(part.loss(model, batch)[0], again.loss(model, batch)[0])


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_loss_without_that_softmax_refuses_it(name: str) -> None:
    with pytest.raises(ValueError, match=r"replay\.balance"):
        make(name, balance=1.0)


def test_blurry_labels_do_not_make_the_loss_infinite() -> None:
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    learner = Learner(nn.Linear(3, 6), "er", settings={"replay.balance": 1.0}, batch_size=10)
    learner.learn((x, y))
    learner.learn((x, torch.where(torch.arange(40) == 7, 5, y + 2)), classes=(2, 3))
    assert all(p.isfinite().all() for p in learner.model.parameters())


def test_a_run_without_it_keeps_its_name() -> None:
    plain = RunConfig(benchmark="split-digits", method="er")
    off, on = plain.with_setting("replay.balance", 0.0), plain.with_setting("replay.balance", 1.0)
    assert run_id(off) == run_id(plain) != run_id(on)
    assert "replay.balance" not in plain.resolved()["settings"]
    assert on.resolved()["settings"]["replay.balance"] == 1.0
    assert RunConfig.from_yaml(on.to_yaml()).resolved() == on.resolved()


def test_der_stores_at_the_end_what_the_model_says_in_eval_mode() -> None:
    model = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    x, y = torch.arange(10.0)[:, None], torch.arange(10) % 2
    part = make("der++", fill="end", capacity=10)
    first = replace(context(0, (0, 1), x, y), model=model)
    random, statistics = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    part.end(first)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(v, statistics[k]) for k, v in model.state_dict().items())
    assert model.training
    assert part.needs_boundary
    drawn = part.draw(x[:5], y[:5])
    torch.testing.assert_close(drawn[2]["logits"], model.eval()(drawn[0][:5]))
