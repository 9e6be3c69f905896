"""timm's networks by a stand-in for timm, which pulls torchvision: its calls, its attributes, its pretrained_cfg.

tests/integrations/test_timm.py has the real one (make test-peers).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from tests.deploy.conftest import weeks as weeks
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import open_learner
from tmln.experiments.config import RunConfig
from tmln.methods.fine_tuning import find_fine_tuning
from tmln.models import make_model, takes_pixels
from tmln.models.custom import check_allowed

CONFIG = {"input_size": (3, 40, 40), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.25, 0.5)}
SHAPE = (3, 36, 36)


class Stand(nn.Module):
    """A small convolutional network as timm makes them."""

    def __init__(self, num_classes: int = 1000, in_chans: int = 3, width: int = 8) -> None:
        super().__init__()
        self.pretrained_cfg, self.num_classes = CONFIG, num_classes
        self.conv, self.norm = nn.Conv2d(in_chans, width, 3), nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))
        return out


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """What the stand-in's cache holds for ``stand``; other names cannot be fetched."""
    torch.manual_seed(1)
    held = dict(Stand().state_dict())

    def create_model(name: str, pretrained: bool = False, **options: Any) -> nn.Module:
        model = Stand(**options)
        if pretrained and name != "stand":
            raise RuntimeError("No network:\n  the hub cannot be reached")
        if pretrained:
            own = model.state_dict()
            model.load_state_dict({k: v if v.shape == own[k].shape else own[k] for k, v in held.items()})
        return model

    module = ModuleType("timm")
    module.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    return held


def normalised(x: Tensor) -> Tensor:
    return (x - torch.tensor(CONFIG["mean"]).view(-1, 1, 1)) / torch.tensor(CONFIG["std"]).view(-1, 1, 1)


def test_weights_of_the_cache_bring_their_inputs(cache: dict[str, Tensor]) -> None:
    model: Any = make_model("timm:stand", SHAPE, 4, pretrained=True).eval()
    assert model.inputs.size == 40
    assert torch.equal(model.network.conv.weight, cache["conv.weight"])
    x = torch.rand(2, 3, 40, 40)
    torch.testing.assert_close(model(x), model.network(normalised(x)))
    assert model(torch.rand(2, 1, 20, 30)).shape == (2, 4)  # gray, and of another size
    assert make_model("timm:stand", SHAPE, 4, pretrained=True, size=64).inputs.size == 64
    found = find_fine_tuning(model)
    assert found is not None
    assert (found[1].head, found[1].frozen_norms) == ("network.fc", True)


def test_weights_of_a_file(cache: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    safetensors.torch.save_file({f"module.{name}": value for name, value in cache.items()}, file)
    model: Any = make_model("timm:other", SHAPE, 4, pretrained=True, weights=str(file))
    assert torch.equal(model.network.conv.weight, cache["conv.weight"])
    assert model.network.fc.weight.shape == (4, 8)
    safetensors.torch.save_file({"norm.bias": cache["norm.bias"]}, file)
    with pytest.raises(ValueError, match=r"1 of the backbone's 6 tensors; it lacks conv\.weight"):
        make_model("timm:other", SHAPE, 4, weights=str(file))


def test_what_is_missing_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ValueError, match=r"no pre-trained weights .*hub cannot be reached.*python -c .*'far'.*weights="
    ) as e:
        make_model("timm:far", SHAPE, 4, pretrained=True)
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match="1 or 3 channels, not 4"):
        make_model("timm:stand", (4, 8, 8), 4, pretrained=True)
    with pytest.raises(ValueError, match="size goes with pre-trained weights"):
        make_model("timm:stand", SHAPE, 4, size=64)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="pip install timm"):
        make_model("timm:stand", SHAPE, 4)


def test_without_weights_it_is_timms_own() -> None:
    model = make_model("timm:stand", (1, 36, 36), 4, width=8)
    assert isinstance(model, Stand)
    assert model.conv.in_channels == 1
    assert find_fine_tuning(model) is None
    assert not takes_pixels("timm:stand", {})
    assert takes_pixels("timm:stand", {"pretrained": True})
    frozen = make_model("timm:stand", SHAPE, 4, freeze="backbone")
    assert [name for name, p in frozen.named_parameters() if p.requires_grad] == ["fc.weight", "fc.bias"]


def test_others_files_may_not_read_files() -> None:
    check_allowed("timm:stand", {"weights": "w.safetensors"})
    with pytest.raises(ValueError, match="reads a file"):
        check_allowed("timm:stand", {"weights": "w.safetensors"}, foreign=True)


@pytest.mark.parametrize("from_file", [False, True])
def test_a_state_needs_no_cache(
    from_file: bool, cache: dict[str, Tensor], weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, file = tmp_path / "s.tmln", tmp_path / "w.safetensors"
    safetensors.torch.save_file(cache, file)
    given = {"model.weights": str(file)} if from_file else {"model.pretrained": "true"}
    asked = LearnRequest(model="timm:stand", settings={**given, "lr": "0.1"}, epochs=1)
    learner, _ = learn_into(state, weeks / "week1", asked)
    assert torch.equal(learner.model.get_submodule("network.norm").running_mean, cache["norm.running_mean"])  # type: ignore[arg-type]
    file.unlink()
    options = learner.about["options"]
    assert options["inputs"]["size"] == 40
    assert (learner.about["mean"], learner.about["std"]) == ([0.0], [1.0])
    monkeypatch.setattr(sys.modules["timm"], "create_model", lambda name, **how: Stand(**how))
    again, _ = learn_into(state, weeks / "week2", LearnRequest(epochs=1))
    x = torch.rand(2, *learner.seen.transforms["shape"])  # type: ignore[index]
    with torch.no_grad():
        torch.testing.assert_close(open_learner(state).model.eval()(x), again.model.eval()(x))
    norm: Any = again.model.get_submodule("network.norm")
    assert torch.equal(norm.running_mean, learner.model.get_submodule("network.norm").running_mean)  # type: ignore[arg-type]


def test_runs_with_pre_trained_weights_have_names_of_their_own() -> None:
    config = {"benchmark": "split-cifar10", "method": "er"}
    plain = RunConfig.of({**config, "model": "timm:stand"})
    assert plain.resolved()["model_options"] == {}
    taught = RunConfig.of({**config, "model": "timm:stand", "model_options": {"pretrained": True}})
    assert taught.resolved()["model_options"] == {"frozen_norms": True, "pretrained": True}
    ours = RunConfig.of({**config, "model": "efficientnet-lite0"})
    assert ours.resolved()["model_options"] == {"frozen_norms": True, "pretrained": True, "size": 224}
    head = RunConfig.of({**config, "model": "efficientnet-lite0", "method": "slda"})
    assert head.resolved()["model_options"] == {"pretrained": True, "size": 224}
    for one in (plain, taught, ours, head):
        assert RunConfig.of(one.resolved()).resolved() == one.resolved()
    given = {"freeze": "none", "backbone_lr_scale": 1, "lora": 0}
    assert RunConfig.of({**config, "model": "cnn", "model_options": given}).resolved()["model_options"] == {
        "hidden": 64,
        "width": 16,
    }
    slow = RunConfig.of({**config, "model": "cnn"}).with_setting("model.backbone_lr_scale", "0.1")
    assert slow.resolved()["model_options"]["backbone_lr_scale"] == 0.1
    with pytest.raises(ValueError, match="freeze"):
        RunConfig.of({**config, "model": "cnn", "model_options": {"freeze": "all"}})
    with pytest.raises(ValueError, match="did you mean 'freeze'"):
        RunConfig.of({**config, "model": "cnn", "model_options": {"freez": "backbone"}})
