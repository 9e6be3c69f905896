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
