"""Learning without forgetting by hand: the distillation loss, its classes, its teacher."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.methods.penalties.loop import Closing, make_context, make_net, make_tasks, run_steps, same, train
from tmln.methods import Batch
from tmln.methods.penalties.lwf import LwF, LwFSettings
from tmln.methods.weight_copies import distillation


def test_the_loss_and_its_gradient_by_hand() -> None:
    # T=2; target (0,0) -> (1/2,1/2); output (2 ln 3, 0) -> (3/4,1/4): KL = ln(4/3)/2, gradient (q-p)/T = (1/8,-1/8)
    output = torch.tensor([[2 * math.log(3), 0.0]], dtype=torch.float64, requires_grad=True)
    loss = distillation(output, torch.zeros(1, 2, dtype=torch.float64), 2.0)
    (gradient,) = torch.autograd.grad(loss, output)
    assert loss.item() == pytest.approx(math.log(4 / 3) / 2)
    assert torch.allclose(gradient, torch.tensor([[0.125, -0.125]], dtype=torch.float64))


def test_it_is_the_papers_cross_entropy_less_a_constant() -> None:
    # L_old with y' = p^(1/T) / sum p^(1/T), from the probabilities, as the paper writes it
    torch.manual_seed(0)
    target = torch.randn(5, 3, dtype=torch.float64)
    output = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def softened(logits: Tensor) -> Tensor:
        powers = logits.softmax(1) ** (1 / 3.0)
        return powers / powers.sum(1, keepdim=True)

    paper = -(softened(target) * softened(output).log()).sum(1).mean()
    expected, found = (torch.autograd.grad(loss, output)[0] for loss in (paper, distillation(output, target, 3.0)))
    assert torch.allclose(found, expected)
    assert distillation(target, target, 3.0).item() == pytest.approx(0.0, abs=1e-12)


def test_only_the_known_classes_count() -> None:
    model = nn.Linear(2, 6)
    part = LwF(LwFSettings(strength=3.0), model)
    x, y = torch.randn(4, 2), torch.zeros(4, dtype=torch.int64)
    part.begin(make_context(model, 1, (x, y)))  # classes 0 and 1 are known
    with torch.no_grad():
        model.bias[2:] += 5.0
    loss = part.loss(model, Batch(x, y, 4), model(x))
    assert loss is not None
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        model.bias[1] += 5.0
    output = model(x)
    loss = part.loss(model, Batch(x, y, 4), output)
    assert loss is not None
    target = output.detach() - torch.tensor([0.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    assert loss.item() == pytest.approx(3.0 * distillation(output[:, :2], target[:, :2], 2.0).item(), rel=1e-5)
    assert torch.autograd.grad(loss, output)[0][:, 2:].abs().max() == 0.0


def test_nothing_is_known_in_the_first_task_and_nothing_is_copied_at_strength_zero() -> None:
    model = make_net()
    for strength, index in ((1.0, 0), (0.0, 1)):
        part = LwF(LwFSettings(strength=strength), model)
        part.begin(make_context(model, index, make_tasks()[index]))
        assert part.teacher is None
        x = torch.randn(3, 6)
        assert part.loss(model, Batch(x, torch.zeros(3), 3), model(x)) is None


def test_the_answers_about_known_classes_change_less_than_without() -> None:
    changes = []
    for strength in (0.0, 3.0):
        model, tasks = make_net(), make_tasks()
        part = LwF(LwFSettings(strength=strength), model)
        train(part, model, tasks[:1], steps=30)
        model.eval()
        before = model(tasks[1][0])[:, :2].detach()
        part.begin(make_context(model, 1, tasks[1]))
        run_steps(part, model, torch.optim.SGD(model.head.parameters(), lr=0.05), tasks[1], range(30))
        changes.append(distillation(model(tasks[1][0])[:, :2], before, 1.0).item())
    assert changes[1] < 0.5 * changes[0]


def test_the_teacher_stays_as_it_was_and_holds_no_gradients() -> None:
    model, tasks = make_net(), make_tasks()
    part = LwF(LwFSettings(), model)
    part.begin(make_context(model, 1, tasks[1]))
    before = {key: value.clone() for key, value in part.teacher_state.items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    run_steps(part, model, optimizer, tasks[1], range(4))
    assert part.teacher is not None
    assert not part.teacher.training
    assert not any(p.requires_grad for p in part.teacher.parameters())
    assert all(torch.equal(value, before[key]) for key, value in part.teacher_state.items())
    assert not torch.equal(model.head.weight, before["head.weight"])


def test_closed_classes_change_nothing() -> None:
    """The classes known before are open to teacher and student; the rest is not looked at."""
    x, y = make_tasks()[1]
    gradients = []
    for closed in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(6, 6)
        shown = Closing(model, [0, 1]) if closed else model
        part = LwF(LwFSettings(), shown)
        part.begin(make_context(shown, 1, (x, y)))
        if isinstance(shown, Closing):
            shown.classes = [0, 1, 2, 3]  # the task's own are open by now
        with torch.no_grad():
            model.weight.mul_(1.5)
        loss = part.loss(shown, Batch(x, y, len(x)), shown(x))
        assert loss is not None
        assert loss.item() > 0
        gradients.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
        resumed = LwF(LwFSettings(), shown)
        resumed.load_state_dict(part.state_dict())
        assert same(resumed.loss(shown, Batch(x, y, len(x)), shown(x)), loss)
    assert all(value.isfinite().all() for value in gradients[1])
    assert same(gradients[0], gradients[1])
