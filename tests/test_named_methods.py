"""Named methods against loops written from the papers' rules, in plain torch: the same way to rounding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.seeds import seed_of

TASKS, CLASSES, CAPACITY, RATE, MOMENTUM = 3, 6, 10, 0.05, 0.9
CENTRES = torch.randn(CLASSES, 4, generator=torch.Generator().manual_seed(7))


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(16) % 2 + 2 * k
    x = CENTRES[y] + 0.5 * torch.randn(16, 4, generator=generator)
    return x.double(), y  # as a learner stores it, in single precision, and as a model in double takes it


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, CLASSES)).double()


@dataclass
class Seen:
    """What a learner's steps were made of: inputs, labels, and how many of them are current, by task."""

    learner: Learner
    steps: list[list[tuple[Tensor, Tensor, int]]] = field(default_factory=list)


def learned(method: str, build: Callable[[], nn.Module] = network, **settings: Any) -> Seen:
    settings = {"replay.capacity": CAPACITY, **settings}
    learner = Learner(build(), method, lr=RATE, batch_size=8, settings=settings)
    seen, draw = Seen(learner), learner.replay.draw

    def noted(x: Tensor, y: Tensor) -> Any:
        more = draw(x, y)
        seen.steps[-1].append((torch.cat([x, more[0]]).double(), torch.cat([y, more[1]]), len(x)))
        return more

    learner.replay.draw = noted  # type: ignore[method-assign]
    for k in range(TASKS):
        seen.steps.append([])
        learner.learn(task(k), epochs=2)
    return seen


class Momentum:
    """v <- 0.9*v + g, theta <- theta - eta*v; v is forgotten at a task's beginning."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = list(model.parameters())
        self.speed = [torch.zeros_like(p) for p in self.weights]

    def step(self, loss: Tensor) -> None:
        for p, v, g in zip(self.weights, self.speed, torch.autograd.grad(loss, self.weights), strict=True):
            v.mul_(MOMENTUM).add_(g)
            p.data -= RATE * v


def same_weights(model: nn.Module, learner: Learner) -> None:
    for ours, theirs in zip(model.parameters(), learner.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def features(model: nn.Sequential, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model[1](model[0](x))
    return found.div(found.norm(dim=-1, keepdim=True))


def test_icarl() -> None:
    """Rebuffi et al. 2017: algorithms 1 (classify), 3 (representation), 4 and 5 (exemplars)."""
    seen, model = learned("icarl"), network()
    exemplars: dict[int, list[Tensor]] = {}
    for k, steps in enumerate(seen.steps):
        old, way = copy.deepcopy(model), Momentum(model)
        for x, y, current in steps:
            stored = [sample.tolist() for kept in exemplars.values() for sample in kept]
            assert all(sample.tolist() in stored for sample in x[current:])
            assert len(x) == current + min(current, len(stored))
            loss = torch.zeros((), dtype=torch.float64)
            for sample, label in zip(x, y.tolist(), strict=True):
                with torch.no_grad():
                    q = torch.sigmoid(old(sample))
                g = torch.sigmoid(model(sample))
                for c in range(2 * k):  # distillation, s-1 old classes
                    loss = loss - q[c] * g[c].log() - (1 - q[c]) * (1 - g[c]).log()
                for c in range(2 * k, 2 * k + 2):  # classification, new classes
                    loss = loss - (g[c].log() if c == label else (1 - g[c]).log())
            way.step(loss / len(x))
        places = [CAPACITY // (2 * k + 2)] * (2 * k + 2)
        for c in range(CAPACITY % (2 * k + 2)):
            places[c] += 1
        for c, kept in exemplars.items():
            exemplars[c] = kept[: places[c]]  # reduce
        samples, labels = task(k)
        for c in (2 * k, 2 * k + 1):
            pool = [sample for sample, label in zip(samples, labels.tolist(), strict=True) if label == c]
            mean = sum(features(model, sample) for sample in pool) / len(pool)
            chosen: list[Tensor] = []

            def off(sample: Tensor, mean: Any = mean, chosen: list[Tensor] = chosen) -> float:
                return float((mean - sum(features(model, p) for p in [*chosen, sample]) / (len(chosen) + 1)).norm())

            while len(chosen) < min(places[c], len(pool)):
                chosen.append(min((s for s in pool if not any(s is other for other in chosen)), key=off))
            exemplars[c] = chosen
    same_weights(model, seen.learner)
    memory = seen.learner.replay.memory
    assert memory is not None
    ((x, y),) = memory.batches(CAPACITY, ("x", "y"))
    assert torch.equal(x.double(), torch.stack([sample for c in sorted(exemplars) for sample in exemplars[c]]))
    assert y.tolist() == [c for c in sorted(exemplars) for _ in exemplars[c]]
    means = {}
    for c, kept in exemplars.items():
        mean = torch.stack([features(model, sample) for sample in kept]).mean(0)
        means[c] = mean / mean.norm()
    tests = torch.cat([task(k)[0] for k in range(TASKS)])
    expected = [min(means, key=lambda c: float((features(model, s) - means[c]).norm())) for s in tests]
    assert answers(seen.learner, tests) == expected


def answers(learner: Learner, x: Tensor) -> list[int]:
    with torch.no_grad(), learner.weights.prediction_weights():
        found: list[int] = learner.answer.scores(learner.model.eval(), x)[1].argmax(1).tolist()
    return found


def longer() -> nn.Sequential:
    """The same, with long rows for the classes of the last task."""
    model = network()
    list(model.parameters())[2].data[4:] *= 2
    return model


@pytest.mark.parametrize(
    ("settings", "above"),
    [({}, [True, False]), ({"lengthen": True}, [True, False]), ({"lengthen": True, "positive": True}, [False, False])],
)
def test_wa(settings: dict[str, bool], above: list[bool]) -> None:
    """Zhao et al. 2020: (1-lambda)*CE + lambda*KD with lambda = old/(old+new), T = 2; at the end of a task its rows are
    scaled, and the next task begins, and is taught, with them. To the letter gamma may be above 1, and rows are clipped
    at 0 after each step."""
    seen, model = learned("wa", longer, **{f"weights.{name}": value for name, value in settings.items()}), longer()
    gammas = []
    head = model[2]
    assert isinstance(head, nn.Linear)
    for k, steps in enumerate(seen.steps):
        old, way, known = copy.deepcopy(model), Momentum(model), 2 * k
        share = known / (known + 2)
        earlier = [s.tolist() for j in range(k) for s in task(j)[0]]
        for x, y, current in steps:
            assert all(sample.tolist() in earlier for sample in x[current:])
            loss = torch.zeros((), dtype=torch.float64)
            for sample, label in zip(x, y.tolist(), strict=True):
                output = model(sample)
                loss = loss - (1 - share) * output.log_softmax(0)[label]
                if known:
                    with torch.no_grad():
                        soft = (old(sample)[:known] / 2).softmax(0)
                    loss = loss - share * (soft * (output[:known] / 2).log_softmax(0)).sum()
            way.step(loss / len(x))
            if settings.get("positive"):
                head.weight.data = torch.where(head.weight.data < 0, 0.0, head.weight.data)
        if known:
            norms = [float(row.detach().norm()) for row in head.weight]
            gammas.append((sum(norms[:known]) / known) / (sum(norms[known : known + 2]) / 2))
            head.weight.data[known : known + 2] *= gammas[-1] if settings.get("lengthen") else min(gammas[-1], 1.0)
    assert [gamma > 1 for gamma in gammas] == above
    same_weights(model, seen.learner)
    tests = torch.cat([task(k)[0] for k in range(TASKS)])
    with torch.no_grad():
        assert answers(seen.learner, tests) == model(tests).argmax(1).tolist()


def test_cls_er() -> None:
    """Arani et al. 2022, algorithm 1: the better of two averages teaches replayed samples; both move by chance."""
    numbers: dict[str, Any] = {
        "strength": 0.3,
        "plastic_decay": 0.6,
        "stable_decay": 0.8,
        "plastic_chance": 0.8,
        "stable_chance": 0.5,
    }
    seen, model = learned("cls-er", **{f"penalty.{name}": value for name, value in numbers.items()}), network()
    averages = {"plastic": copy.deepcopy(model), "stable": copy.deepcopy(model)}
    dice, taken, t = torch.Generator().manual_seed(seed_of(0, "penalty")), [], 0
    for steps in seen.steps:
        way = Momentum(model)
        for x, y, current in steps:
            loss = torch.zeros((), dtype=torch.float64)
            for sample, label in zip(x, y.tolist(), strict=True):
                loss = loss - model(sample).log_softmax(0)[label] / len(x)
            for sample, label in zip(x[current:], y[current:].tolist(), strict=True):
                with torch.no_grad():
                    said = {name: average(sample) for name, average in averages.items()}
                sure = {name: float(logits.softmax(0)[label]) for name, logits in said.items()}
                better = said["stable"] if sure["stable"] > sure["plastic"] else said["plastic"]
                taken.append(sure["stable"] > sure["plastic"])
                distance = (model(sample) - better).square().sum() / (CLASSES * (len(x) - current))
                loss = loss + 0.3 * distance
            way.step(loss)
            t += 1
            for (name, average), drawn in zip(averages.items(), torch.rand(2, generator=dice).tolist(), strict=True):
                if drawn < numbers[f"{name}_chance"]:
                    alpha = min(1 - 1 / (t + 1), numbers[f"{name}_decay"])
                    for slow, p in zip(average.parameters(), model.parameters(), strict=True):
                        slow.data = alpha * slow.data + (1 - alpha) * p.data
    assert 0 < sum(taken) < len(taken)  # both were the better one
    same_weights(model, seen.learner)
    tests = torch.cat([task(k)[0] for k in range(TASKS)])
    with torch.no_grad():
        assert answers(seen.learner, tests) == averages["stable"](tests).argmax(1).tolist()
        with seen.learner.weights.prediction_weights():
            same_weights(averages["stable"], seen.learner)
