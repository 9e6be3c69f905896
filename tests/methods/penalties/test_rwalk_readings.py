"""RWalk as Avalanche reads it, by settings alone: against a plain loop, and each setting by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.methods.penalties.loop import Numbers, close
from tests.methods.penalties.test_rwalk import vector
from tmln.methods.penalties.rwalk import RWalk, RWalkSettings, merge_scores, score_interval

START, CURVATURE = [0.5, -1.0, 2.0], [1.0, 3.0, 0.2]
CENTRES = [[1.0, 1.0, -1.0], [-1.0, 0.5, 2.0], [0.0, 2.0, 1.0]]
RATE, MOMENTUM = 0.05, 0.9  # momentum carries weights uphill, so that there are negative scores
EPS = torch.finfo(torch.float64).eps


def gradient(i: int, theta: float, task: int, step: int) -> float:
    return CURVATURE[i] * (theta - CENTRES[task][i]) + (0.3 if step % 2 == 0 else -0.3)


class Oracle:
    """Avalanche's plugin, weight by weight.

    F is an average at every step that starts at its first value; the score is signed and taken every ``delta`` steps,
    counted through the whole run; S is s, then mean(S, s); the penalty is lambda * sum (F/max F + relu(S)/max S) d^2.
    """

    def __init__(self, delta: int, strength: float, alpha: float) -> None:
        self.delta, self.strength, self.alpha = delta, strength, alpha
        self.theta, self.velocity = list(START), [0.0] * 3
        self.fisher: list[float] | None = None
        self.merged: list[float] | None = None
        self.penalty, self.anchor = [0.0] * 3, list(START)
        self.iterations, self.negative = 0, 0

    def learn(self, task: int, steps: int) -> None:
        loss, score, checkpoint = [0.0] * 3, [0.0] * 3, list(self.theta)
        for step in range(steps):
            plain = [gradient(i, self.theta[i], task, step) for i in range(3)]
            squares = [g * g for g in plain]
            if self.fisher is None:
                self.fisher = squares
            else:
                old = self.fisher
                self.fisher = [self.alpha * new + (1 - self.alpha) * f for new, f in zip(squares, old, strict=True)]
            for i in range(3):
                pull = 2 * self.strength * self.penalty[i] * (self.theta[i] - self.anchor[i])
                self.velocity[i] = MOMENTUM * self.velocity[i] + plain[i] + pull
                new = self.theta[i] - RATE * self.velocity[i]
                loss[i] -= plain[i] * (new - self.theta[i])
                self.theta[i] = new
            self.iterations += 1
            if self.iterations % self.delta == 0:
                for i in range(3):
                    score[i] += loss[i] / (0.5 * self.fisher[i] * (self.theta[i] - checkpoint[i]) ** 2 + EPS)
                    self.negative += loss[i] < 0
                loss, checkpoint = [0.0] * 3, list(self.theta)
        before = self.merged
        self.merged = score if before is None else [0.5 * (a + b) for a, b in zip(before, score, strict=True)]
        assert self.fisher is not None
        top_fisher, top_score = max(self.fisher), max(self.merged)
        self.penalty = [
            f / top_fisher + (max(0.0, s) / top_score if top_score > 0 else 0.0)
            for f, s in zip(self.fisher, self.merged, strict=True)
        ]
        self.anchor = list(self.theta)


def avalanche(delta: int, **changes: Any) -> RWalkSettings:
    values: dict[str, Any] = {"init": "first", "count": "run", "relu": "normalisation", "eps": EPS}
    return RWalkSettings(**{"strength": 0.8, "alpha": 0.9, "interval": delta, **values, **changes})


def trained(settings: RWalkSettings, steps: int) -> tuple[list[torch.Tensor], RWalk]:
    """The weights at the ends of three tasks."""
    model = Numbers(*START)
    part, optimizer = RWalk(settings, model), torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    ends = []
    for task in range(3):
        part.begin(model.context(task, RATE))
        for step in range(steps):
            theta = model.theta.detach().tolist()
            model.theta.grad = torch.tensor([gradient(i, theta[i], task, step) for i in range(3)], dtype=torch.float64)
            part.after_backward()
            part.add_gradient()
            optimizer.step()
            part.after_step()
        part.end(model.context(task, RATE))
        ends.append(model.theta.detach().clone())
    return ends, part


@pytest.mark.parametrize("delta", [1, 3, 4, 7, 10, 11, 25, 40])
@pytest.mark.parametrize("alpha", [0.9, 0.1])
def test_three_tasks_as_avalanche_walks_them(delta: int, alpha: float) -> None:
    """Ten steps a task: most intervals end within a task, one of 25 in the third only, one of 40 never."""
    oracle = Oracle(delta, strength=0.8, alpha=alpha)
    ends, part = trained(avalanche(delta, alpha=alpha), steps=10)
    for task in range(3):
        oracle.learn(task, steps=10)
        assert close(ends[task], oracle.theta, 1e-10)
    assert close(part.importance[0], oracle.penalty, 1e-10)
    assert part.steps == oracle.iterations % delta
    assert oracle.negative > 0 or delta > 7


@pytest.mark.parametrize("setting", [{"init": "zero"}, {"count": "task"}, {"relu": "interval"}])
def test_each_of_the_settings_matters_to_it(setting: dict[str, Any]) -> None:
    ends, _ = trained(avalanche(7, alpha=0.1), steps=10)
    others, _ = trained(avalanche(7, alpha=0.1, **setting), steps=10)
    assert (ends[2] - others[2]).abs().max() > 1e-4


def test_the_fisher_may_start_at_its_first_value() -> None:
    # alpha=0.8, g=(1,-2) then (0.5,0): from zero (0.36,0.64), from the first value (0.4,0.8)
    for init, expected in (("zero", [0.36, 0.64]), ("first", [0.4, 0.8])):
        model = Numbers(0.0, 0.0)
        part = RWalk(RWalkSettings(init=init), model)  # type: ignore[arg-type]
        part.begin(model.context())
        model.walk(part, [1.0, -2.0], [0.1, 0.1])
        model.walk(part, [0.5, 0.0], [0.1, 0.1])
        assert close(part.fisher[0], expected)


def test_counted_through_the_run_an_interval_ends_in_the_next_task_without_the_last_ones_tail() -> None:
    # alpha=1, Dt=3, two steps a task. Task 1 has no score. In task 2 the third step of the run ends an interval that
    # began with the task: one step of 0.05 with g=-0.5, F=0.25: 0.025/(0.125*0.0025+0.001) = 19.0476190; its other
    # step, the fourth of the run, is dropped. S = (0 + 19.0476190)/2
    model = Numbers(0.0)
    part = RWalk(RWalkSettings(alpha=1.0, interval=3, normalize=False, count="run"), model)
    part.begin(model.context(0))
    model.walk(part, [-1.0], [0.1])
    model.walk(part, [-0.8], [0.08])
    part.end(model.context(0))
    assert close(part.scores[0], [0.0])
    assert close(part.importance[0], [0.64])
    part.begin(model.context(1))
    model.walk(part, [-0.5], [0.05])
    assert close(part.score[0], [19.0476190], 1e-7)
    model.walk(part, [-0.8], [0.08])
    part.end(model.context(1))
    assert close(part.scores[0], [19.0476190 / 2], 1e-7)
    assert part.steps == 1


@pytest.mark.parametrize(("count", "steps"), [("task", 0), ("run", 1)])
def test_a_task_that_was_begun_and_never_ended_leaves_no_steps_unless_they_are_counted(count: str, steps: int) -> None:
    model = Numbers(0.0)
    part = RWalk(RWalkSettings(count=count), model)  # type: ignore[arg-type]
    part.begin(model.context(0))
    model.walk(part, [-1.0], [0.1])
    part.begin(model.context(0))
    assert part.steps == steps
    part.end(model.context(0))
    assert not part.score  # given up between tasks
    assert not part.origin


def test_negative_scores_may_count_until_the_tasks_end() -> None:
    assert close(score_interval(vector(-0.1), vector(0.0), vector(0.5), eps=0.1, relu=False)[0], [-1.0])
    # alpha=1, Dt=1, eps=1, no move in between: scores are -g*d / (g^2 d^2/2 + 1)
    # first weight: g=1, d=1 then g=-1, d=1: -1/1.5 + 1/1.5 = 0; second: g=1, d=1, then g=1, d=-1: the same; third:
    # twice -1/1.5, cut to 0 at the end only
    for relu, expected in (("interval", [2 / 3, 2 / 3, 0.0]), ("normalisation", [0.0, 0.0, 0.0])):
        model = Numbers(0.0, 0.0, 0.0)
        part = RWalk(
            RWalkSettings(alpha=1.0, interval=1, eps=1.0, normalize=False, relu=relu),  # type: ignore[arg-type]
            model,
        )
        part.begin(model.context())
        model.walk(part, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
        model.walk(part, [-1.0, 1.0, 1.0], [1.0, -1.0, 1.0])
        part.end(model.context())
        assert close(part.importance[0] - 1.0, expected)
        assert close(part.scores[0], expected if relu == "interval" else [0.0, 0.0, -4 / 3])


def test_scores_without_a_predecessor_are_whole_or_halved_one_by_one() -> None:
    old, new = vector(4.0), [*vector(1.0), *vector(6.0)]
    assert [value.item() for value in merge_scores(old, new, "mean")] == [2.5, 6.0]
    assert [value.item() for value in merge_scores(old, new, "halved")] == [2.5, 3.0]
