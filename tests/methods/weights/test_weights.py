"""Which weights answer and go on: by hand, at the boundary, in between, and where it cannot be."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.heads import grow_head
from tmln.methods import BuildContext, TaskContext, Weights, read_settings
from tmln.methods.recipes import Recipe, make_components
from tmln.methods.weights import WEIGHTS
from tmln.methods.weights.merge import merge_by_importance
from tmln.optim.tmln import TMLN

X, Y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def made(name: str, model: nn.Module, **settings: Any) -> Weights[Any]:
    parts = make_components(Recipe(), model, 0.1, 0)
    return WEIGHTS[name].make(read_settings(WEIGHTS[name], settings), BuildContext(model, 0.1, 0, parts))


def context(model: nn.Module, index: int = 0) -> TaskContext:
    return TaskContext(index, model, (0, 1), (), 0.1, lambda: iter([(X, Y)]), lambda x: x)


def walked(part: Weights[Any], model: nn.Linear, path: list[float]) -> list[float]:
    part.begin(context(model))
    found = []
    for value in path:
        nn.init.constant_(model.weight, value)
        part.after_step()
        with part.prediction_weights():
            found.append(model.weight.item())
        assert model.weight.item() == value  # training goes on where it was
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1.0, 1.8, 3.2666667]),
        ({"power": 0.0}, [1.0, 1.5, 7 / 3]),
        ({"rule": "exponential", "rate": 0.25}, [1.0, 1.25, 1.9375]),
        ({"every": 2}, [1.0, 2.0, 2.0]),
    ],
)
def test_the_average_by_hand(settings: dict[str, Any], expected: list[float]) -> None:
    model = nn.Linear(1, 1, bias=False)
    part = made("average", model, **settings)
    assert walked(part, model, [1.0, 2.0, 4.0]) == pytest.approx(expected)
    part.end(context(model))
    assert model.weight.item() == pytest.approx(expected[-1])
    assert walked(part, model, [5.0])[0] == 5.0  # counted from the task's beginning


def test_training_may_go_on_from_the_last_iterate_while_the_average_answers() -> None:
    model = nn.Linear(1, 1, bias=False)
    part = made("average", model, take_over="last")
    walked(part, model, [1.0, 2.0, 4.0])
    part.end(context(model))
    assert model.weight.item() == 4.0
    with part.prediction_weights():
        assert model.weight.item() == pytest.approx(3.2666667)


def test_running_statistics_are_averaged_and_counts_copied() -> None:
    model = nn.BatchNorm1d(1)
    part = made("average", model)
    part.begin(context(model))
    for k, value in enumerate([1.0, 2.0, 4.0]):
        model.running_mean.fill_(value)  # type: ignore[union-attr]
        model.num_batches_tracked.fill_(10 + k)  # type: ignore[union-attr]
        part.after_step()
    part.end(context(model))
    assert model.running_mean.item() == pytest.approx(3.2666667)  # type: ignore[union-attr]
    assert model.num_batches_tracked.item() == 12  # type: ignore[union-attr]


def test_half_precision_is_averaged_in_single() -> None:
    model = nn.Linear(1, 1, bias=False).bfloat16()
    part = made("average", model, rule="exponential", rate=0.001)
    walked(part, model, [1.0] + [2.0] * 100)
    assert part.mean["weight"].dtype is torch.float32  # type: ignore[attr-defined]
    assert part.mean["weight"].item() == pytest.approx(2 - 0.999**100, rel=1e-4)  # type: ignore[attr-defined]


def test_scores_metric_and_anchor_are_of_the_point_taken_over() -> None:
    """S-bar by the displacement to the average; the path integral is that of the iterates."""
    learner = Learner(network(), "tmln", weights="average", batch_size=10)
    paths: list[list[Tensor]] = []
    optimizer = learner.step.optimizer
    assert isinstance(optimizer, TMLN)
    learner.learn(
        (X, Y), on_step=lambda *_: paths.append([optimizer.path(p).clone() for p in learner.model.parameters()])
    )
    plain = Learner(network(), "tmln", batch_size=10)
    last = plain.step.optimizer
    assert isinstance(last, TMLN)
    theirs: list[list[Tensor]] = []
    plain.learn((X, Y), on_step=lambda *_: theirs.append([last.path(p).clone() for p in plain.model.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(paths[-1], theirs[-1], strict=True))
    moved = [not torch.equal(a, b) for a, b in zip(learner.model.parameters(), plain.model.parameters(), strict=True)]
    assert any(moved)
    for p in learner.model.parameters():
        assert torch.equal(optimizer.state[p]["anchor"], p)


def test_der_stores_the_logits_of_the_weights_that_answer() -> None:
    for take_over in ("average", "last"):
        settings = {"replay.fill": "end", "replay.capacity": 40, "weights.take_over": take_over}
        learner = Learner(network(), "der++", weights="average", settings=settings, batch_size=10)
        learner.learn((X, Y), epochs=2)
        assert learner.replay.memory is not None
        learner.model.eval()
        ((x, logits),) = learner.replay.memory.batches(40, ("x", "logits"))
        with learner.weights.prediction_weights(), torch.no_grad():
            torch.testing.assert_close(logits, learner.model(x))


def test_merging_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    cases: list[tuple[dict[str, Any], list[float]]] = [
        ({"share": 0.25}, [1.0, 2.0, 1.75]),
        ({"by": "count"}, [1.0, 3.0, 7 / 3]),
    ]
    for settings, expected in cases:
        part, found = made("merge", model, **settings), []
        for k, value in enumerate([1.0, 5.0, 1.0]):
            nn.init.constant_(model.weight, value)
            part.end(context(model, k))
            found.append(model.weight.item())
        assert found == pytest.approx(expected)
    old, new = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([4.0, 4.0, 4.0])
    merged = merge_by_importance(old, new, torch.tensor([3.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(merged, torch.tensor([1.0, 4.0, 3.0]))


@pytest.mark.parametrize("settings", [{"by": "fisher"}, {"by": "shield"}, {"statistics": "estimated"}])
def test_merged_learners_go_on_exactly(settings: dict[str, Any]) -> None:
    def learner() -> Learner:
        chosen = {f"weights.{key}": value for key, value in settings.items()}
        return Learner(network(), "tmln", weights="merge", settings=chosen, batch_size=10)

    first = learner()
    first.learn((X, Y))
    second = learner()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for trained in (first, second):
        trained.learn((X, Y + 2))
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(value.isfinite().all() for value in ours.values())


def test_statistics_are_estimated_on_task_and_memory() -> None:
    """All in one batch: mean and variance are those of the samples."""
    model = nn.Sequential(nn.BatchNorm1d(3, affine=True), nn.Linear(3, 4))
    learner = Learner(model, "er", weights="merge", settings={"weights.statistics": "estimated"}, batch_size=10)
    learner.learn((X, Y))
    learner.learn((X + 2, Y))
    both = torch.cat([X + 2, X])
    torch.testing.assert_close(model[0].running_mean, both.mean(0))
    torch.testing.assert_close(model[0].running_var, both.var(0))
    assert model.training


def test_the_shield_needs_its_step() -> None:
    with pytest.raises(ValueError, match=r"the step is 'sgd': choose step 'tmln', or weights\.by = 'fisher'"):
        Learner(network(), "er", weights="merge", settings={"weights.by": "shield"})


@pytest.mark.parametrize("name", ["average", "merge", "aligned"])
def test_a_diverged_run_is_not_averaged(name: str) -> None:
    model = nn.Linear(3, 1, bias=False)
    part = made(name, model)
    part.begin(context(model))
    nn.init.constant_(model.weight, float("nan"))
    part.after_step()
    with pytest.raises(FloatingPointError, match="of weight is not finite at the task's end: training diverged"):
        part.end(context(model))


# -- aligned -----------------------------------------------------------------------------------------------------------


LETTER = {"weights.positive": True, "weights.lengthen": True}


def aligned(rows: list[list[float]], known: tuple[int, ...], classes: tuple[int, ...], **settings: Any) -> list[Tensor]:
    """Weight and bias after the end of a task."""
    model = nn.Linear(2, len(rows))
    nn.init.ones_(model.bias)
    model.weight.data = torch.tensor(rows)
    part, told = made("aligned", model, **settings), context(model, 1)
    told = replace(told, known=known, classes=classes, samples=lambda: iter([(X[:, :2], Y)]))
    part.begin(told)
    part.after_step()
    part.end(told)
    return [model.weight.detach(), model.bias.detach()]


def test_the_new_classes_rows_become_as_long_as_the_old_ones_by_hand() -> None:
    rows = [[3.0, 4.0], [0.0, 1.0], [6.0, 8.0], [-2.0, 0.0]]
    for settings, expected in (
        ({}, [[3.0, 4.0], [0.0, 1.0], [1.8, 2.4], [-2.0, 0.0]]),  # (5 + 1)/2 / 10 = 0.3; a class not met stays
        ({"lengthen": True}, [[3.0, 4.0], [0.0, 1.0], [1.8, 2.4], [-2.0, 0.0]]),
        ({"positive": True}, [[3.0, 4.0], [0.0, 1.0], [1.8, 2.4], [0.0, 0.0]]),
    ):
        weight, bias = aligned(rows, (0, 1), (1, 2), **settings)  # class 1 comes again, and is an old one
        torch.testing.assert_close(weight, torch.tensor(expected))
        assert torch.equal(bias, torch.ones(4))


def test_shorter_rows_are_lengthened_where_that_is_asked_for() -> None:
    rows = [[3.0, 4.0], [1.0, 0.0]]
    assert torch.equal(aligned(rows, (0,), (1,))[0], torch.tensor(rows))
    torch.testing.assert_close(aligned(rows, (0,), (1,), lengthen=True)[0], torch.tensor([[3.0, 4.0], [5.0, 0.0]]))


@pytest.mark.parametrize(("known", "classes"), [((), (0, 1)), ((0, 1), (0, 1)), ((0,), (1,))])
def test_rows_that_have_none_to_be_as_long_as_are_left_alone(known: tuple[int, ...], classes: tuple[int, ...]) -> None:
    rows = [[3.0, 4.0], [0.0, 0.0]]  # a row of zeros has no length to be made
    assert torch.equal(aligned(rows, known, classes, lengthen=True)[0], torch.tensor(rows))


def test_a_head_that_grew_is_aligned_and_clipped() -> None:
    torch.manual_seed(0)
    learner = Learner(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), "wa", settings=LETTER, batch_size=10)
    learner.learn((X, Y))
    grow_head(learner, "2", 4)
    learner.learn((X, Y + 2))
    rows = learner.model[2].weight.detach()  # type: ignore[index]
    assert rows.shape == (4, 8)
    assert (rows >= 0).all()
    norms = rows.norm(dim=1)
    torch.testing.assert_close(norms[:2].mean(), norms[2:].mean())


class Odd(nn.Module):
    """Its output is no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.head(x))
        return out


def test_the_layer_is_found_or_named_before_anything_is_learned() -> None:
    with pytest.raises(ValueError, match=r"features of Odd cannot be found: none.*weights\.layer=NAME"):
        Learner(Odd(), "wa").learn((X, Y))
    with pytest.raises(ValueError, match=r"weights\.layer = 'norm' is a LayerNorm: its rows"):
        Learner(Odd(), "wa", settings={"weights.layer": "norm"}).learn((X, Y))
    model, settings = Odd(), {**LETTER, "weights.layer": "head"}
    learner = Learner(model, "wa", settings=settings, logit_mask="seen")  # which wraps the model
    learner.learn((X, Y))
    learner.learn((X, Y + 2))
    norms = model.head.weight.detach().norm(dim=1)
    torch.testing.assert_close(norms[:2].mean(), norms[2:].mean())


def test_evaluation_in_between_sees_the_average() -> None:
    seen: list[bool] = []
    learner = Learner(network(), "er", weights="average", batch_size=10)

    def look(epoch: int, number: int, loss: float) -> None:
        own = copy.deepcopy(learner.model.state_dict())
        twin = Learner(copy.deepcopy(learner.model), "er")
        seen.append(learner.evaluate((X, Y))["loss"] != twin.evaluate((X, Y))["loss"])
        assert all(torch.equal(value, own[name]) for name, value in learner.model.state_dict().items())

    learner.learn((X, Y), on_step=look)
    assert seen == [False, True, True, True]  # of one iterate the average is itself
