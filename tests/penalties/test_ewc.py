"""Online EWC by hand: the per-sample Fisher, its decay, the half form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.penalties.loop import close, make_lesson
from tmln.parts import Lesson
from tmln.penalties.ewc import EWC, EWCSettings, decayed_sum


def logistic() -> tuple[nn.Linear, Lesson]:
    """Two logits without bias, zero weights: p = (1/2, 1/2), so d log p(y|x)/dW = (+-x/2, -+x/2).

    x=2 with y=0 gives (1, -1), x=4 with y=1 gives (-2, 2): F = (1 + 4)/2 = 2.5 for both. The squared mean gradient
    would be ((1 - 2)/2)^2 = 0.25.
    """
    model = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    return model, make_lesson(model, 0, (torch.tensor([[2.0], [4.0]]).double(), torch.tensor([0, 1])))


def test_the_fisher_is_per_sample_and_decays() -> None:
    model, lesson = logistic()
    part = EWC(EWCSettings(gamma=0.5), model)
    part.end(lesson)
    assert close(part.importance[0].flatten(), [2.5, 2.5])
    part.end(lesson)
    assert close(part.importance[0].flatten(), [3.75, 3.75])
    part.end(lesson)
    assert close(part.importance[0].flatten(), [4.375, 4.375])


def test_the_penalty_has_the_half() -> None:
    # lambda=4, F=2.5, d=(0.1, -0.2): gradient lambda*F*d = (1, -2)
    model, lesson = logistic()
    part = EWC(EWCSettings(strength=4.0), model)
    part.end(lesson)
    with torch.no_grad():
        model.weight += torch.tensor([[0.1], [-0.2]], dtype=torch.float64)
    part.add()
    assert model.weight.grad is not None
    assert close(model.weight.grad.flatten(), [1.0, -2.0])


def test_normalised_every_task_weighs_the_same() -> None:
    model, lesson = logistic()
    part = EWC(EWCSettings(normalize=True), model)
    part.end(lesson)
    part.end(lesson)
    assert close(part.importance[0].flatten(), [2.0, 2.0])


@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
def test_decayed_sum_makes_new_tensors(decay: float) -> None:
    old: list[Tensor] = [torch.tensor([1.0, 2.0])]
    new: list[Tensor] = [torch.tensor([10.0, 0.0])]
    assert torch.allclose(decayed_sum(old, new, decay)[0], torch.tensor([10.0 + decay, 2.0 * decay]))
    assert old[0].tolist() == [1.0, 2.0]
