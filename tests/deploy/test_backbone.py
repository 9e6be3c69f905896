"""A new state begins with the pre-trained backbone, where its weights are installed and nothing else is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tmln.deploy.backbone import choose_size, uses_backbone
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import open_learner


def test_a_new_state_begins_with_the_backbone(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "shop.tmln"
    first, _ = learn_into(state, weeks / "week1")
    assert first.about["model"] == "efficientnet-lite0"
    assert first.about["options"] == {"size": 128, "pretrained": True, "frozen_norms": True}
    assert "--from-scratch" in first.about["reason"]
    assert first.answer.name == "slda"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # whoever has the state needs no weights
    second, table = learn_into(state, weeks / "week2")
    assert second.names == ("bee", "owl", "ant")
    assert table.lost <= 0.34  # of three held out a class
    assert second.evaluate(weeks / "test")["accuracy"] > 0.9
    loaded = open_learner(state)
    assert {found.label for found in loaded.predict(weeks / "photos")} <= {"bee", "owl", "ant"}
    loaded.undo()
    assert loaded.names == ("bee", "owl")


@pytest.mark.parametrize(
    "request_",
    [
        LearnRequest(from_scratch=True),
        LearnRequest(model="cnn"),
        LearnRequest(method="er"),
        LearnRequest(epochs=3),
        LearnRequest(freeze=True),
        LearnRequest(settings={"lr": "0.1"}),
    ],
)
def test_whatever_is_asked_for_is_done(request_: LearnRequest, weeks: Path) -> None:
    assert uses_backbone(weeks / "week1", LearnRequest())
    assert not uses_backbone(weeks / "week1", request_)
    assert not uses_backbone(weeks / "arrays.npz", LearnRequest())


def test_without_weights_the_command_that_gets_them_is_said(
    weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tmln.deploy.backbone.has_weights", lambda name: False)
    monkeypatch.setattr("tmln.deploy.learn.EPOCHS", (1, 1))
    learner, _ = learn_into(tmp_path / "shop.tmln", weeks / "week1")
    assert learner.about["model"] == "cnn"
    assert "tmln[pretrained]" in learner.about["reason"]


def test_sizes() -> None:
    assert [choose_size(side) for side in (8, 128, 200, 500)] == [128, 128, 200, 224]


@pytest.mark.filterwarnings("ignore:No complete tensor found in the group")  # torch, of every batch norm
def test_the_exported_state_predicts_the_same(weeks: Path, tmp_path: Path) -> None:
    learner, _ = learn_into(tmp_path / "shop.tmln", weeks / "week1")
    learner.export(tmp_path / "model.pt2")
    x = torch.rand(3, *learner.seen.transforms["shape"])  # type: ignore[index]
    found = torch.export.load(tmp_path / "model.pt2").module()(x)
    with torch.no_grad():
        expected = learner.answer.scores(learner.model.eval(), x)[1]
    torch.testing.assert_close(found.softmax(1), expected.softmax(1).float(), atol=1e-4, rtol=1e-3)
