"""A head for each task: training, evaluation, prediction, states, and which methods work."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.experiments.test_run import comparable, finish
from tests.experiments.test_run_numbers import stopped_at
from tests.golden.fingerprints import digits_config
from tmln.deploy.state_file import learner_of_run
from tmln.experiments.config import RunConfig, run_id
from tmln.learner import Learner
from tmln.learner.evaluation import predict
from tmln.learner.forward import TaskHeads, mask_heads
from tmln.methods import choose_heads
from tmln.methods.recipes import RECIPES
from tmln.models import make_model
from tmln.signals import Interrupted

pytestmark = pytest.mark.usefixtures("narrow")

HEADS = ((0, 1), (3, 2), (4,))
INF = math.inf


def test_logits_of_other_heads_are_closed_by_hand() -> None:
    output = torch.arange(10.0).view(2, 5)
    assert mask_heads(output, torch.tensor([2, 4]), HEADS).tolist() == [
        [-INF, -INF, 2.0, 3.0, -INF],
        [-INF, -INF, -INF, -INF, 9.0],
    ]
    model = TaskHeads(nn.Identity(), HEADS)
    assert bool((model(output) == -INF).all())  # no task began yet
    model.open_head((3,))
    assert model(output)[0].tolist() == [-INF, -INF, 2.0, 3.0, -INF]
    with choose_heads(model, torch.tensor([0, 4])):
        assert model(output)[0].tolist() == [0.0, 1.0, -INF, -INF, -INF]
        assert model(output[:1])[0].tolist() == [-INF, -INF, 2.0, 3.0, -INF]  # of the open task, not of the batch
    assert model(output)[0].tolist() == [-INF, -INF, 2.0, 3.0, -INF]


def draw_task(head: tuple[int, ...], seed: int, count: int = 24) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    y = torch.tensor(head)[torch.arange(count) % len(head)]
    return torch.randn(count, 4) + y.view(-1, 1).float(), y


TASKS = [draw_task(head, seed) for seed, head in enumerate(HEADS[:2])]


def make_learner(method: str = "naive", lr: float = 0.1, **options: Any) -> Learner:
    torch.manual_seed(0)
    model = make_model("mlp", (4,), 5, hidden=6)
    return Learner(model, method, lr=lr, batch_size=8, heads=HEADS, **options)


class ManyHeads(nn.Module):
    """A network with a layer for each head, as other libraries have it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.hidden = copy.deepcopy(model.hidden)
        layer = model.linear
        assert isinstance(layer, nn.Linear)
        self.heads = nn.ModuleList()
        for head in HEADS:
            own = nn.Linear(layer.in_features, len(head))
            with torch.no_grad():
                own.weight.copy_(layer.weight[list(head)])
                own.bias.copy_(layer.bias[list(head)])
            self.heads.append(own)

    def forward(self, x: Tensor, task: int) -> Tensor:
        for layer in self.hidden:  # type: ignore[union-attr]
            x = F.relu(layer(x))
        output: Tensor = self.heads[task](x)
        return output


def test_training_is_that_of_a_network_with_many_layers() -> None:
    learner = make_learner(settings={"step.momentum": 0.0})
    many = ManyHeads(learner.model)
    optimizer = torch.optim.SGD(many.parameters(), 0.1)
    for task, (x, y) in enumerate(TASKS):
        seen: list[tuple[Tensor, Tensor]] = []

        def keep(epoch: int, step: int, x: Tensor, y: Tensor, seen: list[tuple[Tensor, Tensor]] = seen) -> None:
            seen.append((x, y))

        learner.learn((x, y), epochs=2, on_batch=keep)
        for inputs, labels in seen:
            optimizer.zero_grad()
            own = torch.tensor([HEADS[task].index(int(label)) for label in labels])
            F.cross_entropy(many(inputs, task), own).backward()
            optimizer.step()
    for task, head in enumerate(HEADS):
        found = learner.model.linear.weight[list(head)]  # type: ignore[union-attr, index]
        torch.testing.assert_close(found, many.heads[task].weight)
    for mine, theirs in zip(learner.model.hidden.parameters(), many.hidden.parameters(), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(mine, theirs)
    for task, (x, y) in enumerate(TASKS):
        answers = torch.tensor(HEADS[task])[many(x, task).argmax(1)]
        found = learner.evaluate((x, y))["accuracy"]
        assert found == pytest.approx(float((answers == y).float().mean()))
        assert [one.index for one in learner.predict(x, head=task)] == answers.tolist()


def test_replayed_samples_have_their_own_heads() -> None:
    learner = make_learner("er", settings={"replay.capacity": 16})
    (x, y), (x2, y2) = TASKS
    learner.learn((x, y))
    losses: list[float] = []
    expected: list[float] = []
    draw = learner.replay.draw

    def look(x: Tensor, y: Tensor) -> Any:
        drawn = draw(x, y)
        with torch.no_grad():
            inputs, labels = torch.cat([x, drawn[0]]), torch.cat([y, drawn[1]])
            rows = [
                F.cross_entropy(out[None, list(head)], torch.tensor([head.index(int(label))]))
                for out, label in zip(learner.model(inputs), labels, strict=True)
                for head in HEADS
                if int(label) in head
            ]
            expected.append(float(torch.stack(rows).mean()))
        return drawn

    learner.replay.draw = look  # type: ignore[method-assign]
    learner.learn((x2, y2), on_step=lambda epoch, step, loss: losses.append(loss))
    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", RECIPES)
def test_every_method_works_or_is_refused(method: str) -> None:
    if method in ("lwf", "icarl", "wa", "bic", "lucir", "scr", "x-der", "cls-er", "feature-replay"):
        with pytest.raises(ValueError, match=r" of classes of other tasks.* leave out heads=per-task"):
            make_learner(method)
        return
    learner = make_learner(method, lr=0.01)
    for x, y in TASKS:
        learner.learn((x, y), epochs=2)
    for x, y in TASKS:
        found = learner.evaluate((x, y))
        assert math.isfinite(found["loss"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"replay.passes": "separate"}}, "replay.passes=separate"),
        ({"micro_batch": 4}, "passes batches whole"),
        ({"logit_mask": "seen"}, "leave out logit_mask"),
    ],
)
def test_what_does_not_go_together_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_learner("er", **options)


def test_a_batch_that_does_not_fit_is_refused() -> None:
    learner = make_learner("er")
    learner.trained.limit_rows(None)
    with pytest.raises(ValueError, match=r"only 4 samples fit .* raise --memory-limit"):
        learner.trained.limit_rows(4)


@pytest.mark.parametrize("heads", [[[0, 1], [1, 2]], [[0], []], [[-1]]])
def test_heads_that_are_none(heads: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="each class in one of them"):
        Learner(make_model("mlp", (4,), 3), heads=heads)


def test_a_class_without_a_head_is_named() -> None:
    learner = make_learner()
    with pytest.raises(ValueError, match="class 7 is in no head"):
        learner.learn((torch.randn(4, 4), torch.tensor([0, 1, 7, 7])))
    assert learner.tasks == 0


def test_the_head_grows_and_a_prediction_needs_its_number(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = Learner(make_model("mlp", (4,), 2, hidden=6), "er", lr=0.1, batch_size=8, heads=HEADS)
    for x, y in TASKS:
        learner.learn((x, y))
    assert len(learner.model.linear.weight) == 4  # type: ignore[union-attr, arg-type]
    x, y = TASKS[1]
    assert {one.index for one in learner.predict(x, head=1)} <= {2, 3}
    for head in (None, 5):
        with pytest.raises(ValueError, match="say which by head=0 to 2"):
            learner.predict(x, head=head)
    with pytest.raises(ValueError, match="one head over all classes"):
        predict(Learner(make_model("mlp", (4,), 2)), x, head=0)
    for name in ("a.onnx", "a.pt2", "a.safetensors"):
        with pytest.raises(ValueError, match="every task has its own head"):
            learner.export(tmp_path / name)
    learner.save(tmp_path / "s.tmln")
    again = Learner.load(tmp_path / "s.tmln", make_model("mlp", (4,), 2, hidden=6))
    assert again.heads == HEADS
    assert again.evaluate((x, y)) == learner.evaluate((x, y))
    undone = learner.evaluate(TASKS[0])
    learner.learn(TASKS[1])
    learner.undo()
    assert learner.evaluate(TASKS[0]) == undone


def per_task(method: str, benchmark: str = "split-digits") -> RunConfig:
    return digits_config(method).with_settings({"benchmark": benchmark, "benchmark.heads": "per-task"})


@pytest.mark.parametrize("method", ["er", "der++", "a-gem", "tmln", "ewc"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, method: str) -> None:
    whole = finish(tmp_path / "whole", per_task(method))
    with pytest.raises(Interrupted):
        finish(tmp_path / "cut", per_task(method), **stopped_at(9))
    found = finish(tmp_path / "cut", per_task(method))
    assert comparable(found) == comparable(whole)
    assert whole.accuracy == whole.masked_accuracy  # the task is told
    assert whole.metrics["acc"] > 0.52  # a guess among two classes is right in a half


def test_a_run_becomes_no_state_for_data_of_any_task(tmp_path: Path) -> None:
    result = finish(tmp_path, per_task("naive"))
    with pytest.raises(ValueError, match=r"run it with benchmark\.heads=single"):
        learner_of_run(tmp_path / result.name)


def test_domains_have_heads_in_a_run(tmp_path: Path) -> None:
    result = finish(tmp_path, per_task("er", "rotated-digits"))
    assert len(result.class_names) == 50
    assert result.accuracy == result.masked_accuracy


def test_runs_with_one_head_keep_their_names() -> None:
    plain = digits_config("er")
    assert run_id(plain.with_setting("benchmark.heads", "single")) == run_id(plain) != run_id(per_task("er"))
