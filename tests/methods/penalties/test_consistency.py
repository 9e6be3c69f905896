"""Two averages that teach: by hand, closed classes, half precision, and whose weights answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods import Batch, TaskContext, read_settings
from tmln.methods.penalties.consistency import Consistency, choose_better, compute_consistency
from tmln.methods.weight_copies import output_with


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(20) % 2 + 2 * k
    return torch.randn(20, 5, generator=generator) + y[:, None], y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 6))


def made(model: nn.Module, **settings: Any) -> Consistency:
    return Consistency(read_settings(Consistency, settings), model)


def test_the_better_teacher_by_hand() -> None:
    """Of label 1: the plastic one is surer of the first sample, the stable one of the second; else plastic."""
    plastic = torch.tensor([[0.0, 2.0], [0.0, 1.0], [3.0, 3.0]])
    stable = torch.tensor([[0.0, 1.0], [5.0, 7.0], [4.0, 4.0]])
    assert torch.equal(
        choose_better(plastic, stable, torch.tensor([1, 1, 1])), torch.stack([plastic[0], stable[1], plastic[2]])
    )


def test_the_loss_by_hand_and_of_open_classes_only() -> None:
    output = torch.tensor([[1.0, 2.0, -torch.inf]])
    assert compute_consistency(output[:, :2], torch.tensor([[0.0, 4.0]])).item() == pytest.approx(2.5)
    assert compute_consistency(output, torch.tensor([[0.0, 4.0, -torch.inf]])).item() == pytest.approx(2.5)
    assert compute_consistency(output, torch.tensor([[0.0, -torch.inf, -torch.inf]])).item() == pytest.approx(1.0)


def test_averages_by_hand() -> None:
    """Weights 1, 2, 4 after a start of 0 with decay 0.6: 0.5*1; 0.6*0.5 + 0.4*2; 0.6*1.1 + 0.4*4."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    part = made(model, plastic_decay=0.6, plastic_chance=1.0, stable_decay=0.0, stable_chance=1.0)
    found = []
    for value in (1.0, 2.0, 4.0):
        nn.init.constant_(model.weight, value)
        part.after_step()
        found.append(part.plastic["weight"].item())
    assert found == pytest.approx([0.5, 1.1, 2.26])
    assert part.stable["weight"].item() == pytest.approx(4.0)


def test_chances_are_as_large_as_they_say() -> None:
    part = made(nn.Linear(1, 1), plastic_chance=0.9, stable_chance=0.3)
    counts = {"plastic": 0, "stable": 0}

    def count(average: dict[str, Tensor], values: dict[str, Tensor], decay: float) -> None:
        counts["plastic" if average is part.plastic else "stable"] += 1

    part._take = count  # type: ignore[method-assign]
    for _ in range(2000):
        part.after_step()
    assert counts["plastic"] == pytest.approx(1800, abs=60)
    assert counts["stable"] == pytest.approx(600, abs=90)


def test_only_replayed_samples_are_held_and_the_pass_leaves_no_trace() -> None:
    model = network().train()
    part = made(model)
    x, y = task(0)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    output, random = torch.randn(20, 6), torch.get_rng_state()
    assert part.loss(model, Batch(x, y, 20), output) is None
    whole = part.loss(model, Batch(x, y, 12), output)
    assert whole is not None
    model.eval()
    expected = 0.1 * nn.functional.mse_loss(output[12:], model(x[12:]))
    torch.testing.assert_close(whole, expected)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, buffers[name]) for name, value in model.named_buffers())


def test_without_a_memory_all_are_held_from_the_second_task_on() -> None:
    model = network()
    part = Consistency(read_settings(Consistency, {}), model, replayed=False)
    x, y = task(0)
    for index in (0, 1):
        part.begin(TaskContext(index, model, (0, 1), (), 0.1, lambda: iter([(x, y)]), lambda x: x))
        assert (part.loss(model, Batch(x, y, 20), torch.zeros(20, 6)) is None) == (index == 0)


def test_half_precision_is_averaged_in_single() -> None:
    model = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.zeros_(model.weight)
    part = made(model, plastic_chance=1.0)
    part.steps = 10**6
    nn.init.ones_(model.weight)
    for _ in range(10):
        part.after_step()
    assert part.plastic["weight"].item() == pytest.approx(1 - 0.999**10, rel=1e-4)
    assert (
        part.loss(
            model,
            Batch(torch.ones(2, 1).bfloat16(), torch.zeros(2, dtype=torch.long), 0),
            model(torch.ones(2, 1).bfloat16()),
        )
        is not None
    )


def test_classes_that_open_later_are_open_for_the_teachers() -> None:
    learner = Learner(network(), "cls-er", logit_mask="seen", batch_size=10)
    for k in range(3):
        learner.learn(task(k), epochs=2)
    assert all(value.isfinite().all() for value in learner.penalty.stable.values())  # type: ignore[attr-defined]
    said = output_with(learner.penalty.stable, learner.trained.masked, task(2)[0])  # type: ignore[attr-defined]
    assert said.isfinite().all()


def test_the_stable_average_answers_and_training_goes_on_from_the_last_iterate() -> None:
    learner = Learner(network(), "cls-er", batch_size=10)
    learner.learn(task(0), epochs=2)
    own = learner.model[0].weight.clone()  # type: ignore[index]
    with learner.weights.prediction_weights():
        stable = learner.penalty.stable["0.weight"]  # type: ignore[attr-defined]
        assert torch.equal(learner.model[0].weight, stable)  # type: ignore[index]
    assert torch.equal(learner.model[0].weight, own)  # type: ignore[index]
    assert not torch.equal(own, stable)


def test_stable_weights_need_somebody_who_keeps_them() -> None:
    with pytest.raises(
        ValueError, match="weights 'stable' are kept by the penalty 'consistency', but the penalty is 'none'"
    ):
        Learner(network(), "er", weights="stable")


def test_a_diverged_average_is_told() -> None:
    learner = Learner(network(), "cls-er")
    learner.penalty.stable["0.weight"].fill_(torch.nan)  # type: ignore[attr-defined]
    with pytest.raises(FloatingPointError, match=r"the stable average of 0\.weight is not finite"):
        learner.weights.end(TaskContext(0, learner.model, (0,), (), 0.1, lambda: iter([task(0)]), lambda x: x))
