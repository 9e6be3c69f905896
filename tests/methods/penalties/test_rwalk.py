"""RWalk by hand, and against a loop over plain numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.penalties.loop import Numbers, close
from tmln.methods.penalties.rwalk import RWalk, RWalkSettings, merge_scores, score_interval


def vector(*values: float) -> list[Tensor]:
    return [torch.tensor(values, dtype=torch.float64)]


def test_a_score_by_hand() -> None:
    # g=-1 then -0.8, steps 0.1 and 0.08, F=0.5: dL=0.164, displacement 0.18
    score = score_interval(vector(0.164), vector(0.18), vector(0.5), eps=0.0)
    assert close(score[0], [20.24691], 5e-6)
    authors = score_interval(vector(0.164), vector(0.18), vector(0.5), eps=1e-3, half=False)
    assert close(authors[0], [9.534884], 5e-7)
    assert score_interval(vector(-0.1), vector(0.18), vector(0.5), eps=1e-3)[0].item() == 0.0


def test_intervals_count_per_task_and_the_tail_is_flushed() -> None:
    # alpha=1: F is the last squared gradient. Two steps as above with F=0.64: 0.164/(0.32*0.0324+0.001) = 14.4264602;
    # the tail, one step of 0.05 with g=-0.5, F=0.25: 0.025/(0.125*0.0025+0.001) = 19.0476190; together 33.4740793
    model = Numbers(0.0)
    part = RWalk(RWalkSettings(alpha=1.0, interval=2, normalize=False), model)
    for task in range(2):
        part.begin(model.context(task))
        model.walk(part, [-1.0], [0.1])
        model.walk(part, [-0.8], [0.08])
        assert close(part.score[0], [14.4264602], 1e-7)
        model.walk(part, [-0.5], [0.05])
        part.end(model.context(task))
        assert close(part.scores[0], [33.4740793], 1e-7)
        assert close(part.importance[0], [0.25 + 33.4740793], 1e-7)


def test_scores_are_averaged_and_the_first_is_whole_or_halved() -> None:
    assert close(merge_scores([], vector(4.0), "mean")[0], [4.0])
    assert close(merge_scores([], vector(4.0), "halved")[0], [2.0])
    for merge in ("mean", "halved"):
        assert close(merge_scores(vector(4.0), vector(1.0), merge)[0], [2.5])


def oracle(tasks: int, steps: int, settings: RWalkSettings, rate: float) -> list[dict[str, Any]]:
    """Weight by weight on 0.5*k*(theta - c)^2, with one centre a task; the importances of each boundary."""
    theta, curvature = [0.5, -1.0, 2.0], [1.0, 3.0, 0.2]
    centres = [[1.0, 1.0, -1.0], [-1.0, 0.5, 2.0], [0.0, 2.0, 1.0]]
    size = len(theta)
    fisher, scores, anchor, importance = [0.0] * size, None, None, [0.0] * size
    boundaries = []
    for task in range(tasks):
        path, score, origin, count = [0.0] * size, [0.0] * size, list(theta), 0
        for step in range(steps):
            for i in range(size):
                g = curvature[i] * (theta[i] - centres[task][i])
                fisher[i] = settings.alpha * g * g + (1 - settings.alpha) * fisher[i]
                total = g if anchor is None else g + 2 * settings.strength * importance[i] * (theta[i] - anchor[i])
                new = theta[i] - rate * total
                path[i] -= g * (new - theta[i])
                theta[i] = new
            count += 1
            if count == settings.interval or step == steps - 1:
                for i in range(size):
                    distance = (0.5 if settings.half_distance else 1.0) * fisher[i] * (theta[i] - origin[i]) ** 2
                    score[i] += max(0.0, path[i] / (distance + settings.eps))
                path, origin, count = [0.0] * size, list(theta), 0
        scores = score if scores is None else [(a + b) / 2 for a, b in zip(scores, score, strict=True)]
        by_fisher, by_score = (max(fisher), max(scores)) if settings.normalize else (1.0, 1.0)
        importance = [f / by_fisher + s / by_score for f, s in zip(fisher, scores, strict=True)]
        anchor = list(theta)
        boundaries.append({"importance": importance, "theta": anchor})
    return boundaries


@pytest.mark.parametrize(
    "settings",
    [
        RWalkSettings(strength=0.5, interval=3),
        RWalkSettings(strength=0.05, interval=4, normalize=False, half_distance=False, alpha=0.3, eps=0.1),
        RWalkSettings(strength=1.0, interval=50),
    ],
)
def test_three_tasks_against_plain_numbers(settings: RWalkSettings) -> None:
    model = Numbers(0.5, -1.0, 2.0)
    curvature = torch.tensor([1.0, 3.0, 0.2], dtype=torch.float64)
    centres = torch.tensor([[1.0, 1.0, -1.0], [-1.0, 0.5, 2.0], [0.0, 2.0, 1.0]], dtype=torch.float64)
    part = RWalk(settings, model)
    expected = oracle(3, 10, settings, rate=0.05)
    for task in range(3):
        part.begin(model.context(task, 0.05))
        for _ in range(10):
            model.theta.grad = curvature * (model.theta.detach() - centres[task])
            part.after_backward()
            part.add_gradient()
            with torch.no_grad():
                model.theta.sub_(0.05 * model.theta.grad)
            part.after_step()
        part.end(model.context(task, 0.05))
        assert close(model.theta, expected[task]["theta"], 1e-12)
        assert close(part.importance[0], expected[task]["importance"], 1e-9)


def test_the_proximal_pull_is_part_of_the_displacement() -> None:
    model = Numbers(0.0)
    part = RWalk(RWalkSettings(strength=5.0, proximal=True, normalize=False), model)
    part.begin(model.context(0, 0.1))
    part.end(model.context(0, 0.1))
    part.importance = vector(1.0)  # x = 2*0.1*5*1 = 1: halfway back
    part.begin(model.context(1, 0.1))
    assert close(model.walk(part, [-1.0], [0.4]), [-1.0])
    assert close(model.theta, [0.2])
    assert close(part.path.total[0], [0.2])


def test_scaled_to_one_the_largest_importance_is_at_most_two() -> None:
    model = Numbers(0.0, 0.0)
    part = RWalk(RWalkSettings(), model)
    part.begin(model.context())
    model.walk(part, [-1.0, 2.0], [0.1, -0.01])
    part.end(model.context())
    # F = 0.8*(1, 4); dL = (0.1, 0.02); s = (0.1/0.005, 0.02/0.00116) = (20, 17.2413793)
    assert close(part.importance[0], [0.25 + 1.0, 1.0 + 17.2413793 / 20], 1e-7)


# -- rWalk as Avalanche reads it, by settings alone: against a plain loop, and each setting by hand


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
