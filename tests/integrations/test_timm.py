"""A real timm model under tmln learn: its head grows, its backbone stays. timm needs torchvision: make test-peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.deploy.conftest import weeks as weeks
from tests.deploy.test_commands import run
from tmln.deploy.state_file import open_learner
from tmln.models import make_model

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


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_weights_of_a_file_bring_timms_inputs(name: str, tmp_path: Path) -> None:
    """With model.weights the head is new, and size and normalisation are those of timm's pretrained_cfg."""
    options = {"img_size": 32} if name.startswith("vit") else {"size": 40}
    torch.manual_seed(1)
    theirs = timm.create_model(name, **{key: value for key, value in options.items() if key != "size"}).eval()
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    model: Any = make_model(f"timm:{name}", (3, 32, 32), 5, weights=str(tmp_path / "w.safetensors"), **options).eval()
    config, size = theirs.pretrained_cfg, next(iter(options.values()))
    assert model.inputs.size == size
    x = torch.rand(2, 3, size, size)
    mean, std = (torch.tensor(config[key]).view(-1, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        features = theirs.forward_head(theirs.forward_features((x - mean) / std), pre_logits=True)
        expected = model.network.get_classifier()(features)
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-4)


def test_weights_that_cannot_be_fetched_give_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"no pre-trained weights .*create_model\('resnet10t', pretrained=True\)"):
        make_model("timm:resnet10t", (3, 32, 32), 5, pretrained=True)
