"""A real timm model under tmln learn: its head grows, its backbone stays. timm needs torchvision: make test-peers."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests.deploy.conftest import weeks as weeks
from tests.deploy.test_commands import run
from tmln.deploy.state_file import open_learner

timm = pytest.importorskip("timm")
NAMES = ("resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224")  # their heads: fc, classifier, head


@pytest.mark.parametrize("name", NAMES)
def test_two_weeks_with_weights_of_ones_own(name: str, weeks: Path, tmp_path: Path) -> None:
    options = {"img_size": 32} if name.startswith("vit") else {}
    theirs = timm.create_model(name, num_classes=7, **options).state_dict()
    safetensors.torch.save_file(theirs, tmp_path / "w.safetensors")
    state = tmp_path / "s.tmln"
    more = ["--initial-weights", tmp_path / "w.safetensors", "--image-size", 32]
    more += [word for key, value in options.items() for word in ("--set", f"model.{key}={value}")]
    for week in ("week1", "week2"):
        learn = ["learn", "--state", state, "--data", weeks / week, "--epochs", 1]
        run(*learn, "--model", f"timm:{name}", "--freeze", "backbone", *more)
        more = []
    model = open_learner(state).model
    assert isinstance(model, type(timm.create_model(name, num_classes=3, **options)))
    assert model.get_classifier().weight.shape[0] == model.num_classes == 3
    moving = {key for key, p in model.named_parameters() if p.requires_grad}
    assert all("head" in key or "fc" in key or "classifier" in key for key in moving)
    resting = [key for key, _ in model.named_parameters() if key not in moving]
    assert all(torch.equal(model.get_parameter(key), theirs[key]) for key in resting)
