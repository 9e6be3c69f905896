"""Avalanche's own strategies against our learner on the same data; runs where Avalanche is (make test-peers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import tmln

pytest.importorskip("avalanche", reason="Avalanche needs torchvision: make test-peers builds an environment for it")

from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.scenarios.online import split_online_stream
from avalanche.benchmarks.utils import AvalancheDataset, as_classification_dataset
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.models import IncrementalClassifier, MTSimpleMLP
from avalanche.training.plugins import EvaluationPlugin, LRSchedulerPlugin, SupervisedPlugin
from avalanche.training.supervised import Naive

from tmln.integrations.avalanche import Parts

LR, BATCH, EPOCHS = 0.05, 8, 2


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner's batches in the data's own order, as Avalanche's without shuffling."""
    monkeypatch.setattr("tmln.learner.loop.torch.randperm", lambda n, **_: torch.arange(n))


def points(task: int, count: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(task)
    y = torch.arange(count) % 2 + 2 * task
    centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    return centres[y] + 0.3 * torch.randn(count, 2, generator=generator), y


def experiences() -> Any:
    def theirs(task: int) -> Any:
        x, y = points(task)
        labels = DataAttribute(y.tolist(), "targets")
        zeros = DataAttribute([0] * len(y), "targets_task_labels", use_in_getitem=True)
        data = [(x[k], int(y[k])) for k in range(len(y))]
        return as_classification_dataset(AvalancheDataset([data], data_attributes=[labels, zeros]))

    made = benchmark_from_datasets(train=[theirs(0), theirs(1)])
    return with_task_labels(with_classes_timeline(made)).train_stream


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))


def strategy(model: nn.Module, *plugins: Any, **options: Any) -> Any:
    return Naive(
        model=model,
        optimizer=SGD(model.parameters(), lr=LR),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        train_epochs=EPOCHS,
        evaluator=EvaluationPlugin(loggers=[]),
        plugins=list(plugins),
        **options,
    )


def trained(model: nn.Module, *plugins: Any, **options: Any) -> Any:
    made = strategy(model, *plugins, **options)
    for experience in experiences():
        made.train(experience, shuffle=False)
    return made


def ours(method: str, **options: Any) -> tmln.Learner:
    learner = tmln.Learner(network(), method, lr=LR, batch_size=BATCH, **options)
    for task in range(2):
        learner.learn(points(task), EPOCHS)
    return learner


SCENES: dict[str, tuple[str, dict[str, Any]]] = {
    "TMLN": ("tmln", {"settings": {"replay.capacity": 10}}),
    "TMLN without a memory": ("tmln", {"replay": "none"}),
    "TMLN, its gradient changed by a penalty": (
        "tmln",
        {"penalty": "ewc++", "settings": {"penalty.strength": 5}},
    ),
    "TMLN under distillation": ("tmln", {"penalty": "lwf"}),
    "TMLN on Adam": ("tmln-adam", {}),
    "OCAR": ("ocar", {}),
    "EWC": ("ewc", {}),
    "RWalk": ("rwalk", {}),
    "SI": ("si", {}),
    "A-GEM": ("a-gem", {}),
    "sharpness-aware replay": ("er+sam", {}),
}


@pytest.mark.parametrize("name", SCENES)
def test_agrees_with_our_learner(name: str) -> None:
    """The same data and draws: the same weights, and the same state of the step."""
    method, options = SCENES[name]
    model, learner = network(), ours(method, **options)
    parts = Parts(method, **options)
    trained(model, parts)
    for got, wanted in zip(model.parameters(), learner.model.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert parts.step is not None
    theirs, own = parts.step.optimizer.state, learner.step.optimizer.state
    for got, wanted in zip(theirs.values(), own.values(), strict=True):
        for key in ("fisher", "sensitivity"):
            if key in wanted:
                torch.testing.assert_close(got[key], wanted[key], rtol=1e-4, atol=1e-6)
    assert any(
        not torch.equal(a, b) for a, b in zip(model.parameters(), trained(network()).model.parameters(), strict=True)
    )


def test_the_rate_follows_the_strategys_schedule() -> None:
    """Down to nothing after the first epoch: the weights stay where that left them."""
    model, moved = network(), network()
    made, once = strategy(model, Parts("tmln", replay="none")), strategy(moved, Parts("tmln", replay="none"))
    schedule = torch.optim.lr_scheduler.LambdaLR(made.optimizer, lambda epoch: 1.0 if epoch == 0 else 0.0)
    made.plugins.insert(0, LRSchedulerPlugin(schedule))
    once.train_epochs = 1
    made.train(experiences()[0], shuffle=False)
    once.train(experiences()[0], shuffle=False)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), moved.parameters(), strict=True))


class Doubled(SupervisedPlugin):  # type: ignore[misc]
    """A plugin of somebody else's that changes the loss."""

    def before_backward(self, strategy: Any, **_: Any) -> None:
        strategy.loss = 2 * strategy.loss


def test_losses_of_other_plugins_count() -> None:
    """Twice the loss is twice the rate, in the first task."""
    both = []
    for plugins, lr in (([Doubled()], LR), ([], 2 * LR)):
        model = network()
        made = strategy(model, Parts("tmln", replay="none"), *plugins)
        made.optimizer.param_groups[0]["lr"] = lr
        made.train(experiences()[0], shuffle=False)
        both.append([p.detach() for p in model.parameters()])
    for a, b in zip(*both, strict=True):
        torch.testing.assert_close(a, b)


class Growing(nn.Module):
    """A head of Avalanche's that grows with the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = IncrementalClassifier(2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x)
        return found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trained(Growing(), Parts("tmln")), "other parameters than in the experience before"),
        (lambda: trained(MTSimpleMLP(), Parts("tmln")), "a head for each task"),
        (lambda: trained(network(), Parts("tmln"), Parts("er")), "already: give it one Parts"),
        (lambda: strategy(network(), Parts("der++")), "replay 'der\\+\\+' .* use tmln.Learner"),
        (lambda: strategy(network(), Parts("er+")), "use tmln.Learner"),
        (lambda: strategy(network(), Parts("joint")), "afresh"),
        (lambda: strategy(network(), Parts("icarl")), "use tmln.Learner"),
        (lambda: strategy(network(), Parts("tmln", answer="ncm")), "has no argument 'answer'"),
    ],
)
def test_what_it_cannot_do_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_pieces_of_tasks_are_refused() -> None:
    pieces = split_online_stream(experiences(), experience_size=8)
    with pytest.raises(ValueError, match="an online experience is a piece of a task"):
        strategy(network(), Parts("tmln")).train(next(iter(pieces)))


def test_two_rates_are_refused() -> None:
    model = network()
    made = strategy(model, Parts("tmln"))
    groups: list[dict[str, Any]] = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.1}]
    made.optimizer = SGD(groups, lr=LR)
    with pytest.raises(ValueError, match="2 groups; give one"):
        made.train(experiences()[0])
