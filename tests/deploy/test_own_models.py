"""tmln learn with models from elsewhere: a class of the user's, one of transformers, timm's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from tests.deploy.test_commands import run
from tmln.deploy.state_file import open_learner
from tmln.user_code import VARIABLE

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        self.body = nn.Linear(shape[0] * shape[1] * shape[2], {width})
        self.fc = nn.Linear({width}, classes)

    def forward(self, x):
        return self.fc(self.body(x.flatten(1)).relu())

class Two(Net):
    def __init__(self, classes, shape):
        super().__init__(classes, shape)
        self.other = nn.Linear({width}, classes)

    def forward(self, x):
        features = self.body(x.flatten(1)).relu()
        return self.fc(features) + self.other(features)

class Hugging(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification
        self.vit = ViTForImageClassification(ViTConfig(
            image_size=shape[1], patch_size=6, num_channels=shape[0], hidden_size=16, num_hidden_layers=1,
            num_attention_heads=2, intermediate_size=16, num_labels=classes))

    def forward(self, x):
        return self.vit(pixel_values=x).logits
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module ``shopnets`` that configurations may name."""
    (tmp_path / "code").mkdir()
    file = tmp_path / "code" / "shopnets.py"
    file.write_text(CODE.format(width=16))
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.delitem(sys.modules, "shopnets", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv(VARIABLE, "1")
    return file


@pytest.mark.parametrize(("name", "head"), [("Net", "fc"), ("Hugging", "vit.classifier")])
def test_a_class_of_ones_own_grows(own: Path, weeks: Path, tmp_path: Path, name: str, head: str) -> None:
    state = tmp_path / "s.tmln"
    for week, rows in (("week1", 2), ("week2", 3)):
        run("learn", "--state", state, "--data", weeks / week, "--epochs", 1, "--model", f"shopnets:{name}")
        layer = open_learner(state).model.get_submodule(head)
        assert isinstance(layer, nn.Linear)
        assert layer.out_features == len(layer.weight) == rows
    assert run("predict", "--state", state, weeks / "photos").output.count("png") == 2


def test_without_leave_no_code_is_run(own: Path, weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, learn = tmp_path / "s.tmln", ("learn", "--state", tmp_path / "s.tmln", "--epochs", 1, "--data")
    run(*learn, weeks / "week1", "--model", "shopnets:Net")
    before = state.read_bytes()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delitem(sys.modules, "shopnets")
    new = ("learn", "--state", tmp_path / "t.tmln", "--data", weeks / "week1")
    for words in (
        (*new, "--set", "step=shopnets:Net"),
        (*new, "--method", "sam", "--set", "step.inner=shopnets:Net"),
        (*learn, weeks / "week2"),
        ("predict", "--state", state, weeks / "photos"),
        ("inspect", "--state", state),
    ):
        assert "--allow-code" in str(run(*words, code=1).exception)
    assert "shopnets" not in sys.modules
    assert state.read_bytes() == before


def test_another_architecture_is_told(own: Path, weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "s.tmln"
    run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 1, "--model", "shopnets:Two")
    before = state.read_bytes()
    for code, said in (
        (CODE.format(width=24), "body.weight is [16, 432] in the file, [24, 432] in the model"),
        (CODE.format(width=16).replace("self.other", "self.second"), "second.weight is none in the file, [2, 16] in"),
    ):
        own.write_text(code)
        monkeypatch.delitem(sys.modules, "shopnets")
        error = str(run("learn", "--state", state, "--data", weeks / "week2", "--epochs", 1, code=1).exception)
        assert "another architecture than model shopnets:Two" in error
        assert said in error
    assert state.read_bytes() == before


def test_a_head_that_cannot_be_told_lists_the_candidates(own: Path, weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.tmln"
    run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 1, "--model", "shopnets:Two")
    before = state.read_bytes()
    error = str(run("learn", "--state", state, "--data", weeks / "week2", "--epochs", 1, code=1).exception)
    assert "several layers may give the 2 outputs" in error
    assert "other (2 outputs), fc (2 outputs), body (16 outputs)" in error
    assert state.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "s.tmln"]


def test_timm_with_weights_and_a_frozen_backbone(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for timm, which pulls what this package does without: its call and its attributes."""

    class Stand(nn.Module):
        def __init__(self, num_classes: int, in_chans: int) -> None:
            super().__init__()
            self.num_classes = num_classes
            self.conv = nn.Conv2d(in_chans, 4, 3)
            self.fc = nn.Linear(4, num_classes)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(self.conv(x).mean((2, 3)))
            return out

    module = ModuleType("timm")
    module.create_model = lambda name, **options: Stand(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    theirs = {key: torch.randn_like(value) for key, value in Stand(1000, 3).state_dict().items()}
    safetensors.torch.save_file(theirs, tmp_path / "w.safetensors")
    state = tmp_path / "s.tmln"
    more = ["--initial-weights", tmp_path / "w.safetensors"]
    for week in ("week1", "week2"):
        learn = ["learn", "--state", state, "--data", weeks / week, "--epochs", 1]
        run(*learn, "--model", "timm:stand", "--freeze", "backbone", *more)
        more = []
    model = open_learner(state).model
    assert isinstance(model, Stand)
    assert model.num_classes == len(model.fc.weight) == 3
    assert torch.equal(model.conv.weight, theirs["conv.weight"])
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["fc.weight", "fc.bias"]
