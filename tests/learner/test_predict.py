"""Predictions: of inputs, of pictures by their place, by name and with their probability."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.data.test_own_data import picture
from tests.learner.test_class_names import learner, pictures
from tmln.learner import Learner


def test_by_hand() -> None:
    model = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    made = Learner(model)
    made.meet({2})
    (found,) = made.predict(torch.tensor([[0.0, 1.0]]), top=2)
    share = np.e / (2 + np.e)
    assert (found.label, found.index) == ("2", 2)  # without a name a class is called by its number
    assert found.probability == pytest.approx(share)
    assert found.top[0] == ("2", found.probability)
    assert found.top[1][1] == pytest.approx((1 - share) / 2)
    assert str(found) == "2 (58%)"
    assert made.predict(torch.tensor([[0.0, 1.0]]))[0].top == ()


def test_by_name_in_any_form() -> None:
    made = learner()
    made.learn(pictures("cat", "owl"), 10, classes=["cat", "owl"])
    x, y = pictures("owl", "cat")
    expected = [("owl", "cat")[label] for label in y]
    for data in (x, x.numpy(), (x, y), TensorDataset(x, y)):
        found = [one.label for one in made.predict(data)]
        assert np.mean([a == b for a, b in zip(found, expected, strict=True)]) > 0.9
    made.model.train()
    made.predict(x)
    assert made.model.training
    with pytest.raises(ValueError, match="top must be at least 1"):
        made.predict(x, top=0)


def test_closed_classes_are_no_answers() -> None:
    made = Learner(learner(6).model, "naive", logit_mask="seen", batch_size=20)
    made.learn(pictures("cat", "owl"))
    assert {found.index for found in made.predict(torch.randn(50, 5))} <= {0, 1}
    assert sum(share for _, share in made.predict(torch.randn(1, 5), top=6)[0].top) == pytest.approx(1.0)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 1))


def test_from_a_folder_that_keeps_growing(tmp_path: Path) -> None:
    """Week 1 has night and noon, week 2 dawn, which would be first in the alphabet, in another size."""
    for number in range(12):
        picture(tmp_path / "week1" / "night" / f"{number}.png", shade=(0, 0, 200 + number))
        picture(tmp_path / "week1" / "noon" / f"{number}.png", shade=(0, 200 + number, 0))
        picture(tmp_path / "week2" / "dawn" / f"{number}.png", (30, 20), "P", (200 + number, 0, 0))
    made = Learner(network(), "er", lr=0.1, batch_size=8)
    made.learn(tmp_path / "week1", epochs=30)
    made.learn(str(tmp_path / "week2"), epochs=30)
    assert made.names == ("night", "noon", "dawn")
    assert [note.name for note in made.seen.record.tasks] == ["week1", "week2"]
    assert [note.counts for note in made.seen.record.tasks] == [{0: 11, 1: 11}, {2: 11}]  # a tenth is held out
    assert made.retention.tasks()["week1"][1] == 1.0
    found = made.predict([tmp_path / "week1" / "noon", tmp_path / "week2" / "dawn" / "3.png"])
    assert [one.label for one in found] == ["noon"] * 12 + ["dawn"]
    assert found[-1].path == tmp_path / "week2" / "dawn" / "3.png"
    assert made.evaluate(tmp_path / "week1")["accuracy"] == 1.0
    picture(tmp_path / "week3" / "Noon" / "a.png")
    with pytest.raises(ValueError, match="'Noon' differ in upper and lower case only"):
        made.learn(tmp_path / "week3")


def test_pictures_before_anything_was_learned(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nothing was learned yet"), pytest.warns(UserWarning, match="nothing was"):
        Learner(network()).predict(picture(tmp_path / "a.png"))


def test_predictions_before_anything_was_learned_warn() -> None:
    with pytest.warns(UserWarning, match="nothing was learned yet"):
        assert len(Learner(nn.Linear(4, 2)).predict(torch.zeros(3, 4))) == 3


def test_a_model_or_input_that_is_not_a_number_does_not_predict() -> None:
    made = Learner(nn.Linear(4, 2), batch_size=8)
    made.learn((torch.randn(32, 4), torch.arange(32) % 2))
    with pytest.raises(ValueError, match="values that are not finite"):
        made.predict(torch.tensor([[0.0] * 4, [float("nan")] * 4]))
    with torch.no_grad():
        made.model.state_dict()["weight"][1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"weight of the model holds values that are not finite; undo\(\)"):
        made.predict(torch.zeros(2, 4))
