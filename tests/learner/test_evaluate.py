"""Accuracy over all classes, over those met so far, and over the task's own: by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.evaluation import evaluate_tasks, find_misfit
from tmln.optim import TMLN
from tmln.streams import Samples, as_samples

LOGITS = torch.tensor(
    [
        [5.0, 4.0, 0.0, 9.0],  # of class 0: class 3 wins, of 0 and 1 class 0
        [5.0, 4.0, 0.0, 1.0],  # of class 1: class 0 wins either way
        [0.0, 4.0, 9.0, 1.0],  # of class 1: class 2 wins, of 0 and 1 class 1
        [0.0, 4.0, 1.0, 1.0],  # of class 1: class 1 wins
    ]
)
X, Y = torch.randn(8, 4), torch.arange(8) % 2


class Said(nn.Module):
    """Its inputs are its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def measured(open_classes: tuple[int, ...] | None = None) -> dict[str, float]:
    samples = Samples.of(LOGITS, torch.tensor([0, 1, 1, 1]))
    (found,) = evaluate_tasks(Said(), [(samples, (0, 1))], lambda x: x, open_classes=open_classes, batch_size=3)
    return found


def test_a_task_that_is_told_is_easier() -> None:
    found = measured()
    assert (found["accuracy"], found["masked_accuracy"]) == (1 / 4, 3 / 4)
    assert found["loss"] == pytest.approx(float(nn.functional.cross_entropy(LOGITS, torch.tensor([0, 1, 1, 1]))))


def test_where_no_task_is_told_there_is_no_accuracy_within_it() -> None:
    samples = Samples.of(LOGITS, torch.tensor([0, 1, 1, 1]))
    (found,) = evaluate_tasks(Said(), [(samples, None)], lambda x: x, batch_size=3)
    assert found == {key: value for key, value in measured().items() if key != "masked_accuracy"}


def test_closed_classes_do_not_compete_and_the_told_task_is_the_same() -> None:
    found = measured(open_classes=(0, 1, 2))
    assert (found["accuracy"], found["masked_accuracy"]) == (2 / 4, 3 / 4)


def made(model: nn.Module | None = None, **options: Any) -> Learner:
    return Learner(model or nn.Linear(4, 2), batch_size=4, **{"method": "er", **options})


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (nn.Linear, TypeError, r"class Linear: make a network of it, Linear\(\.\.\.\)"),
        (None, TypeError, "a NoneType: give a torch.nn.Module"),
        (lambda x: x, TypeError, "a function: give a torch.nn.Module"),
        (nn.Flatten(), ValueError, "a Flatten, has no parameters"),
    ],
)
def test_what_is_no_model(model: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Learner(model)


def test_an_optimizer_is_given_parameters() -> None:
    with pytest.raises(TypeError, match=r"TMLN\(model.parameters\(\), \.\.\.\)"):
        TMLN(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_a_frozen_model_is_trained_by_no_step_but_those_that_train_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).requires_grad_(False)
    with pytest.raises(ValueError, match=r"requires_grad=False: .*method='slda'"):
        made(model).learn((X, Y))
    made(model, method="slda").learn((X, Y))
    model[1].requires_grad_(True)
    made(model).learn((X, Y))


class Odd(nn.Linear):
    """Its output is what it is told."""

    def __init__(self, output: Any) -> None:
        super().__init__(4, 2)
        self.output = output

    def forward(self, x: Tensor) -> Any:
        return self.output(super().forward(x))


@pytest.mark.parametrize(
    ("model", "x", "said"),
    [
        (nn.Linear(4, 2), torch.randn(8, 5), r"cannot take a sample of shape \[5\]: .*Check the model's first layer"),
        (nn.Linear(4, 2), torch.randn(8, 3, 6, 6), r"a sample of shape \[3, 6, 6\]"),
        (Odd(lambda y: y.sum(1)), X, r"returns \[1\] for one sample: logits \[N, classes\] are needed"),
        (Odd(lambda y: {"logits": y}), X, r"returns a dict: wrap it"),
    ],
)
def test_a_misfit_of_model_and_data(model: nn.Module, x: Tensor, said: str) -> None:
    found = find_misfit(made(model), as_samples((x, Y)))
    assert found is not None
    with pytest.raises(ValueError, match=said):
        raise ValueError(found)


def test_learn_evaluate_and_predict_say_so_and_change_nothing() -> None:
    learner = made()
    learner.learn((X, Y))
    before = [p.clone() for p in learner.model.parameters()]
    wide = torch.randn(8, 5)
    for call in (learner.learn, learner.evaluate):
        with pytest.raises(ValueError, match=r"a sample of shape \[5\]"):
            call((wide, Y))
    with pytest.raises(ValueError, match=r"a sample of shape \[5\]"):
        learner.predict(wide)
    assert all(torch.equal(p, q) for p, q in zip(before, learner.model.parameters(), strict=True))
    assert learner.tasks == 1


def test_what_fits_is_no_misfit_and_errors_of_elsewhere_stay() -> None:
    assert find_misfit(made(), as_samples((X, Y))) is None

    def fail(epoch: int, step: int, loss: float) -> None:
        raise RuntimeError("of the user's own")

    with pytest.raises(RuntimeError, match="of the user's own"):
        made().learn((X, Y), on_step=fail)


def test_names_as_labels() -> None:
    learner = made()
    learner.learn((X, np.array(["owl", "ant"] * 4)))
    assert [*learner.names] == ["ant", "owl"]
    learner.learn((X, ["bee", "ant"] * 4))
    assert [*learner.names] == ["ant", "owl", "bee"]
    assert learner.evaluate((X[:2], ["owl", "bee"]))["accuracy"] in (0.0, 0.5, 1.0)
    with pytest.raises(ValueError, match="'elk' was never learned"):
        learner.evaluate((X[:1], ["elk"]))


def test_a_learner_prints_method_classes_tasks_and_device() -> None:
    learner = made()
    assert repr(learner) == "Learner(method='er', 0 classes in 0 tasks, on cpu)"
    learner.learn((X, Y))
    assert repr(learner) == "Learner(method='er', 2 classes in 1 task, on cpu)"
    own = made(method="naive", replay="der++", step="upgd")
    assert repr(own) == "Learner(replay='der++', step='upgd', 0 classes in 0 tasks, on cpu)"


@pytest.mark.parametrize(
    ("name", "meant"), [("learning_rate", "lr"), ("optimizer", "step"), ("bs", "batch_size"), ("replya", "replay")]
)
def test_an_argument_of_another_library_gets_ours(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"no argument {name!r}; did you mean {meant!r}"):
        Learner(nn.Linear(4, 2), **{name: "1"})  # type: ignore[arg-type]
