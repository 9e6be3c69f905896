"""A new state begins with the pre-trained backbone, where its weights are installed and nothing else is asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.deploy.test_commands import run
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


def test_an_export_predicts_decoded_files_as_predict_does(
    weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backbone, normalisation, resizing and head in one file; pictures are prepared by the code that is in the file."""
    onnxruntime = pytest.importorskip("onnxruntime")
    state, path = tmp_path / "shop.tmln", tmp_path / "model.onnx"
    learn_into(state, weeks / "week1")
    folder = tmp_path / "files"
    folder.mkdir()
    with Image.open(weeks / "test" / "owl" / "3.png") as file:
        big, exif = file.resize((310, 200), Image.Resampling.BICUBIC), Image.Exif()
    exif[0x0112] = 6
    big.save(folder / "turned.jpg", exif=exif)
    big.convert("L").save(folder / "grey.png")
    big.convert("RGBA").save(folder / "small.png")
    said = run("export", "--state", state, "-o", path).output
    assert re.search(r"input: uint8 N x 12 x 12 x 3 RGB, .* resized to 128 x 128", said)
    assert re.search(r"one input takes [\d.]+ ms on one core", said)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    code: dict[str, Any] = {}
    exec(about["pictures"]["python"], code)
    files = sorted([*folder.iterdir(), *(weeks / "test").rglob("*.png")])
    pixels = np.concatenate([code["prepare"](file) for file in files])
    (scores,) = session.run(None, {session.get_inputs()[0].name: pixels})
    found = torch.from_numpy(scores).softmax(1)
    for row, one in zip(found, open_learner(state).predict(files, top=2), strict=True):
        for label, share in one.top:
            assert float(row[about["classes"].index(label)]) == pytest.approx(share, abs=1e-4)
