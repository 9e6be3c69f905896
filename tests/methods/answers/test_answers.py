"""How an output becomes a class: by hand, against slow and obvious loops, under other weights, and where not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods import TaskContext
from tmln.methods.answers.ncm import compute_class_means, score_by_distance
from tmln.methods.answers.rebalanced import refit_layer
from tmln.streams.samples import Samples

CLASSES = 6
CENTRES = 2 * torch.randn(CLASSES, 5, generator=torch.Generator().manual_seed(9))


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(30) % 2 + 2 * k
    return CENTRES[y] + torch.randn(30, 5, generator=generator), y


def network(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, CLASSES, bias=bias))


def trained(answer: str, tasks: int = 2, model: nn.Module | None = None, method: str = "er", **options: Any) -> Learner:
    settings = {**({} if method == "naive" else {"replay.capacity": 20}), **options.pop("settings", {})}
    learner = Learner(model or network(), method, answer=answer, settings=settings, batch_size=10, **options)
    for k in range(tasks):
        learner.learn(task(k), epochs=3)
    return learner


def split(learner: Learner) -> tuple[nn.Module, nn.Linear]:
    """What makes features, and the last layer."""
    net = learner.model.eval()
    assert isinstance(net, nn.Sequential)
    assert isinstance(net[3], nn.Linear)
    return net[:3], net[3]


def scores(learner: Learner, x: Tensor) -> Tensor:
    learner.model.eval()
    with torch.no_grad(), learner.weights.prediction_weights():
        return learner.answer.scores(learner.model, x)[1]


def stored(learner: Learner) -> tuple[Tensor, Tensor]:
    assert learner.replay.memory is not None
    ((x, y),) = learner.replay.memory.batches(100, ("x", "y"))
    return x, y


# -- ncm ---------------------------------------------------------------------------------------------------------------


def test_nearest_means_by_hand() -> None:
    means, classes = compute_class_means(torch.tensor([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]]), torch.tensor([2, 2, 0]))
    assert classes == [0, 2]
    mean = torch.tensor([0.3, 0.9])  # of (0.6, 0.8) and (0, 1)
    torch.testing.assert_close(means, torch.stack([torch.tensor([1.0, 0.0]), mean / mean.norm()]))
    output = torch.tensor([[0.0, 7.0, 0.0, 6.5]])
    found = score_by_distance(output, torch.tensor([[0.0, 10.0]]), means, classes)
    expected = torch.tensor([[-2.0, -5.0, -(2 - 2 * 0.9 / 0.9**0.5), -5.5]])  # |a-b|^2 = 2 - 2ab; 0.9 = 0.3^2 + 0.9^2
    torch.testing.assert_close(found, expected)


def test_ncm_against_a_slow_loop() -> None:
    learner = trained("ncm")
    x, y = stored(learner)
    body, _ = split(learner)

    def phi(sample: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = body(sample[None])[0]
        return found.div(found.norm())

    means = {}
    for label in set(y.tolist()):
        total = sum(phi(sample) for sample, of in zip(x, y, strict=True) if of == label)
        assert isinstance(total, Tensor)
        means[label] = total / total.norm()
    tests = torch.cat([task(0)[0], task(1)[0]])
    expected = [min(means, key=lambda label: float((phi(sample) - means[label]).norm())) for sample in tests]
    assert scores(learner, tests).argmax(1).tolist() == expected


# -- rebalanced --------------------------------------------------------------------------------------------------------


def test_the_refitted_layer_is_where_the_gradient_vanishes() -> None:
    """Against the gradient written out: mean over classes of mean (p - onehot) phi^T + decay*(W - W_trained)."""
    generator = torch.Generator().manual_seed(1)
    features, y = torch.randn(12, 3, generator=generator), torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2])
    weight, bias = torch.randn(4, 3, generator=generator), torch.randn(4, generator=generator)
    closed = torch.tensor([False, False, False, True])
    W, b = refit_layer(features, y, weight, bias, closed, 0.1, 200)
    gradient_w, gradient_b = 0.1 * (W - weight), 0.1 * (b - bias)
    for label in (0, 1, 2):
        rows = features[y == label].double()
        for phi in rows:
            logits = (W @ phi + b)[:3]
            error = logits.softmax(0) - F.one_hot(torch.tensor(label), 3)
            gradient_w[:3] += error[:, None] * phi / (3 * len(rows))
            gradient_b[:3] += error / (3 * len(rows))
    assert gradient_w.abs().max() < 1e-6
    assert gradient_b.abs().max() < 1e-6
    assert torch.equal(W[3], weight[3].double())  # a closed class is left alone


@pytest.mark.parametrize("bias", [True, False])
def test_rebalanced_scores_are_of_the_refitted_rows(bias: bool) -> None:
    learner = trained("rebalanced", model=network(bias))
    x, y = stored(learner)
    body, head = split(learner)
    with torch.no_grad():
        rows = refit_layer(body(x), y, head.weight, head.bias, torch.zeros(CLASSES, dtype=torch.bool), 0.03, 100)
        expected = F.linear(body(task(0)[0]).double(), *rows)
    torch.testing.assert_close(scores(learner, task(0)[0]), expected.float())


# -- all of them -------------------------------------------------------------------------------------------------------

ANSWERS = ["argmax", "ncm", "rebalanced"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_accuracies_are_of_the_scores_and_the_loss_is_of_the_output(answer: str) -> None:
    learner = trained(answer, logit_mask="seen")
    x, y = task(0)
    found = learner.evaluate_tasks([(Samples.of(x, y), (0, 1))])[0]
    said = scores(learner, x)
    with torch.no_grad():
        output = learner.model(x)
    assert found["accuracy"] == int((said[:, :4].argmax(1) == y).sum()) / 30
    assert found["masked_accuracy"] == int((said[:, :2].argmax(1) == y).sum()) / 30
    assert found["loss"] == pytest.approx(float(F.cross_entropy(output[:, :4], y)), rel=1e-5)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("take_over", ["average", "last"])
def test_the_fit_is_of_the_weights_that_answer(answer: str, take_over: str) -> None:
    """As if the averaged weights had been the model's own when the task ended."""
    learner = trained(answer, weights="average", settings={"weights.take_over": take_over})
    twin = Learner(network(), "er", answer=answer, settings={"replay.capacity": 20}, batch_size=10)
    with learner.weights.prediction_weights():
        twin.model.load_state_dict(learner.model.state_dict())
    assert twin.replay.memory is not None
    assert learner.replay.memory is not None
    twin.replay.memory.load_state_dict(learner.replay.memory.state_dict())
    context = _make_task(twin, 1)
    twin.answer.begin(context)
    twin.answer.end(context)
    torch.testing.assert_close(scores(learner, task(0)[0]), scores(twin, task(0)[0]))


def _make_task(learner: Learner, k: int) -> TaskContext:
    known = tuple(range(2 * k))
    return TaskContext(k, learner.trained.masked, (2 * k, 2 * k + 1), known, 0.1, lambda: iter([task(k)]), lambda x: x)


@pytest.mark.parametrize("answer", ["ncm", "rebalanced"])
def test_within_a_task_the_output_answers(answer: str) -> None:
    learner = trained(answer, tasks=1)
    assert learner.answer.is_fitted  # type: ignore[attr-defined]
    seen: list[bool] = []

    def look(epoch: int, step: int, loss: float) -> None:
        output, said = learner.answer.scores(learner.model.eval(), task(0)[0])
        learner.model.train()
        seen.append(said is output)

    learner.learn(task(1), on_step=look)
    assert seen == [True] * 3
    assert learner.answer.is_fitted  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_saved_learner_answers_the_same_and_leaves_its_answer_out_of_training(answer: str, tmp_path: Path) -> None:
    learner = trained(answer)
    learner.save(tmp_path / "half.tmln")
    again = Learner.load(tmp_path / "half.tmln", network())
    assert torch.equal(scores(learner, task(0)[0]), scores(again, task(0)[0]))
    random = torch.get_rng_state()
    learner.evaluate(task(0))
    assert torch.equal(torch.get_rng_state(), random)


def test_a_class_without_a_place_in_memory_comes_last() -> None:
    """One place for four classes: the one that has it wins against all others; among the others the output decides."""
    learner = trained("ncm", settings={"replay.capacity": 1})
    (only,) = stored(learner)[1].tolist()
    said = scores(learner, task(0)[0])
    assert (said.argmax(1) == only).all()
    others = [label for label in range(CLASSES) if label != only]
    with torch.no_grad():
        output = learner.model.eval()(task(0)[0])
    assert torch.equal(said[:, others].argmax(1), output[:, others].argmax(1))


# -- the layer ---------------------------------------------------------------------------------------------------------


class Odd(nn.Module):
    """Its output is no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, CLASSES)
        self.norm = nn.LayerNorm(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.head(self.body(x).relu()))
        return out


def test_a_layer_may_be_named_whole_or_by_its_end() -> None:
    for mask in ("none", "seen"):  # which wraps the model
        learner = trained("ncm", model=Odd(), settings={"answer.layer": "head"}, logit_mask=mask)
        assert learner.answer.means.shape == (4, 8)  # type: ignore[attr-defined]
    learner = trained("ncm", model=Odd(), settings={"answer.layer": "norm"})
    assert learner.answer.means.shape == (4, CLASSES)  # type: ignore[attr-defined]


def test_a_head_that_was_replaced_is_found_again() -> None:
    learner = trained("ncm")
    assert isinstance(learner.model, nn.Sequential)
    before = scores(learner, task(0)[0])
    learner.model[3] = copy.deepcopy(learner.model[3])
    assert torch.equal(scores(learner, task(0)[0]), before)


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        ("ncm", {"method": "naive"}, "answer 'ncm' is fitted to a memory, and replay 'none' has none: choose one"),
        ("rebalanced", {"method": "naive"}, "answer 'rebalanced' is fitted to a memory"),
        ("ncm", {"model": Odd()}, r"features of Odd cannot be found: none of its 2 nn.Linear.*answer\.layer=NAME"),
        ("ncm", {"model": Odd(), "logit_mask": "seen"}, "features of Odd cannot be found"),
        ("rebalanced", {"model": Odd()}, "features of Odd cannot be found"),
        (
            "ncm",
            {"settings": {"answer.layer": "haed"}, "model": Odd()},
            "'haed' names no layer.*'head'",
        ),
        ("rebalanced", {"settings": {"answer.layer": "norm"}, "model": Odd()}, "'norm' is a LayerNorm: its rows"),
        ("nmc", {}, "unknown answer 'nmc'; did you mean 'ncm'"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_learned(answer: str, options: dict[str, Any], words: str) -> None:
    model = options.get("model", network())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=words):
        trained(answer, **options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_gems_own_memory_will_do() -> None:
    learner = trained("ncm", method="naive", step="a-gem")
    assert learner.answer.is_fitted  # type: ignore[attr-defined]


def test_boundaries_are_needed() -> None:
    learner = Learner(network(), "er", answer="ncm", settings={"replay.fill": "online"})
    with pytest.raises(ValueError, match="'ncm' needs task boundaries"):
        learner.learn(task(0), boundary=False)
