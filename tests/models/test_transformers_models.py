"""Image models of transformers from a folder, made here and saved: inputs, heads, adapters, states, exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.deploy.conftest import weeks as weeks
from tmln import Learner
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import open_learner
from tmln.models import make_model, takes_pixels
from tmln.models.custom import check_allowed
from tmln.models.transformers_models import spell_config, to_unit_scale
from tmln.models.tuning_options import merge_adapters
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

SIZE, CLASSES = 32, 5
PROCESSOR = {
    "do_normalize": True,
    "do_rescale": True,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.25, 0.5],
    "rescale_factor": 1 / 255,
    "size": {"height": SIZE, "width": SIZE},
}


def vit_config() -> Any:
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return ViTConfig(**sizes, image_size=SIZE, patch_size=16, num_labels=CLASSES)


def make(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "resnet":
        sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
        return ResNetForImageClassification(ResNetConfig(**sizes, num_labels=CLASSES))
    return (ViTModel if kind == "vit without head" else ViTForImageClassification)(vit_config())


def saved(kind: str, place: Path, **processor: Any) -> str:
    make(kind).save_pretrained(place)
    (place / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **processor}))
    return f"transformers:{place}"


KINDS = ("vit", "resnet", "vit without head")


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_logits_are_those_of_the_saved_model(kind: str, tmp_path: Path) -> None:
    """With as many classes the saved head stays; inputs are normalised as the folder says."""
    model = make_model(saved(kind, tmp_path), (3, SIZE, SIZE), CLASSES).eval()
    x = torch.rand(2, 3, SIZE, SIZE)
    mean, std = (torch.tensor(PROCESSOR[key]).view(-1, 1, 1) for key in ("image_mean", "image_std"))
    with torch.no_grad():
        expected = make(kind).eval()((x - mean) / std).logits
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-4)
        gray = torch.rand(2, 1, 20, 24)
        torch.testing.assert_close(model(gray), model(gray.expand(2, 3, 20, 24)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_another_size_is_new_and_the_rest_is_saved(kind: str, tmp_path: Path) -> None:
    name = saved(kind, tmp_path)
    torch.manual_seed(1)
    model = make_model(name, (3, SIZE, SIZE), 3)
    assert model(torch.rand(2, 3, SIZE, SIZE)).shape == (2, 3)
    prefix = "network.vit." if kind == "vit without head" else "network."
    own = {key.removeprefix(prefix): value for key, value in model.state_dict().items()}
    theirs = make(kind).state_dict()
    shared = [key for key in theirs if "classifier" not in key and key in own]
    assert len(shared) >= len(theirs) - 2
    assert all(torch.equal(own[key], theirs[key]) for key in shared)
    torch.manual_seed(1)
    again = make_model(name, (3, SIZE, SIZE), 3).state_dict()
    assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())
    random = make_model(name, (3, SIZE, SIZE), 3, pretrained=False)
    assert random(torch.rand(1, 3, SIZE, SIZE)).shape == (1, 3)


def test_features_of_a_network_without_classifier(tmp_path: Path) -> None:
    """A vision tower of CLIP: its pooled output goes into a new linear layer."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    tower = CLIPVisionModel(CLIPVisionConfig(**sizes, image_size=SIZE, patch_size=16)).eval()
    tower.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    model: Any = make_model(f"transformers:{tmp_path}", (3, SIZE, SIZE), 3, freeze="backbone").eval()
    x = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        expected = model.network.linear(tower(model.inputs(x)).pooler_output)
        torch.testing.assert_close(model(x), expected)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == [
        "network.linear.weight",
        "network.linear.bias",
    ]


def test_normalisation_for_values_between_0_and_1() -> None:
    """A processor computes (255 * x * factor - mean) / std."""
    x = 0.3
    for values in (
        {"rescale_factor": 1 / 255, "image_mean": [0.5], "image_std": [0.25]},
        {"rescale_factor": 1 / 127.5, "image_mean": [1.0], "image_std": [0.5]},
        {"do_rescale": False, "image_mean": [127.5], "image_std": [63.75]},
    ):
        (mean, *_), (std, *_) = to_unit_scale(values)
        assert (x - mean) / std == pytest.approx((x - 0.5) / 0.25)
    (mean, *_), (std, *_) = to_unit_scale({"do_normalize": False})
    assert mean == 0.0
    assert std == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("processor", "size"),
    [
        ({"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}, 32),
        ({"size": {"shortest_edge": 40}}, 40),
        ({"size": 48}, 48),
        ({"size": None}, 224),  # of the model's configuration
    ],
)
def test_sizes(processor: dict[str, Any], size: int, tmp_path: Path) -> None:
    name = saved("resnet", tmp_path, **processor)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "image_size": 224}))
    model: Any = make_model(name, (3, 64, 64), 2)
    assert model.inputs.size == size
    other: Any = make_model(name, (3, 64, 64), 2, size=36)
    assert other.inputs.size == 36


def test_what_is_missing_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, shape = saved("vit", tmp_path / "vit"), (3, SIZE, SIZE)
    with pytest.raises(ValueError, match=r"no config.json in .*hf download OWNER/NAME"):
        make_model(f"transformers:{tmp_path}", shape, 2)
    with pytest.raises(ValueError, match="unknown option 'witdh'"):
        make_model(name, shape, 2, witdh=3)
    with pytest.raises(ValueError, match="1 or 3 channels, not 4"):
        make_model(name, (4, SIZE, SIZE), 2)
    weights = tmp_path / "vit" / "model.safetensors"
    tensors = safetensors.torch.load_file(weights)
    del tensors["vit.layernorm.weight"]
    safetensors.torch.save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(ValueError, match=r"1 tensors of the network are not in the folder, vit.layernorm.weight"):
        make_model(name, shape, 2)
    weights.rename(tmp_path / "vit" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no model.safetensors .*python -c .*save_pretrained"):
        make_model(name, shape, 2)
    (tmp_path / "vit" / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"preprocessor_config.json cannot be read"):
        make_model(name, shape, 2, pretrained=False)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'tmln\[transformers\]'"):
        make_model(name, shape, 2)


def test_a_state_opens_without_the_folder(weeks: Path, tmp_path: Path) -> None:
    name = saved("resnet", tmp_path / "net")
    state = tmp_path / "shop.tmln"
    settings = {"model.freeze": "backbone", "lr": "0.1"}
    learner, _ = learn_into(state, weeks / "week1", LearnRequest(model=name, settings=settings, epochs=2))
    assert learner.about["mean"] == [0.0]
    for file in (tmp_path / "net").iterdir():
        file.unlink()
    opened = open_learner(state)
    x = torch.rand(3, *learner.seen.transforms["shape"])  # type: ignore[index]
    with torch.no_grad():
        torch.testing.assert_close(opened.model.eval()(x), learner.model.eval()(x))
    before = {key: value.clone() for key, value in opened.model.state_dict().items()}
    again, _ = learn_into(state, weeks / "week2", LearnRequest(epochs=1))
    moved = [key for key, value in again.model.state_dict().items() if not torch.equal(value, before[key])]
    assert moved == ["network.classifier.1.weight", "network.classifier.1.bias"]


def test_a_state_may_name_known_models_and_plain_entries_only(tmp_path: Path) -> None:
    name, shape = saved("vit", tmp_path), (3, SIZE, SIZE)
    inputs = {"size": SIZE, "mean": [0.5] * 3, "std": [0.5] * 3}
    spelled = spell_config(vit_config())
    assert not {"id2label", "_name_or_path", "dtype"} & spelled.keys()
    hostile = {**spelled, "attn_implementation": "owner/kernels", "quantization_config": {"quant_method": "x"}}
    model = make_model(name, shape, 2, config=hostile, inputs=inputs, pretrained=False)
    assert model(torch.rand(1, *shape)).shape == (1, 2)
    for kind in ("timm_wrapper", "nothing", None):
        with pytest.raises(ValueError, match="of no model of transformers"):
            make_model(name, shape, 2, config={**spelled, "model_type": kind}, inputs=inputs)
    for entries in ({"hidden_act": "nothing"}, {"num_attention_heads": 0}, {"patch_size": "wide"}):
        with pytest.raises(ValueError, match="option 'config' makes no network"):
            make_model(name, shape, 2, config={**spelled, **entries}, inputs=inputs)
    for odd in ({"size": 10**6}, {"std": [0.0] * 3}, {"mean": "abc"}, {"size": None}):
        with pytest.raises(ValueError, match="option 'inputs'"):
            make_model(name, shape, 2, config=spelled, inputs={**inputs, **odd})
    check_allowed(name, {})
    with pytest.raises(ValueError, match="reads a folder"):
        check_allowed(name, {}, foreign=True)
    assert takes_pixels(name, {})


# -- adapters ----------------------------------------------------------------------------------


def test_adapters_by_hand() -> None:
    """W x + 2 B A x: B is zero at first, and merging adds the product to W."""
    from tmln.models.tuning_options import add_lora

    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2))
    weight = model[0].weight.detach().clone()
    add_lora(model, 1, "1")
    layer = model[0]
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert (a.shape, b.shape) == ((1, 3), (4, 1))
    x = torch.rand(5, 3)
    torch.testing.assert_close(layer(x), x @ weight.T)
    with torch.no_grad():
        b.copy_(torch.tensor([[1.0], [2.0], [0.0], [-1.0]]))
    torch.testing.assert_close(layer(x), x @ (weight + 2 * b @ a).T)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == ["0.lora_A.default.weight", "0.lora_B.default.weight", "1.weight", "1.bias"]
    with merge_adapters(model):
        assert list(model.state_dict()) == ["0.weight", "1.weight", "1.bias"]
        torch.testing.assert_close(model[0].weight, weight + 2 * b @ a)
    torch.testing.assert_close(layer.base_layer.weight, weight)


@pytest.mark.filterwarnings("ignore:No complete tensor found in the group")  # torch, of channels_last weights
@pytest.mark.parametrize("method", ["er", "tmln"])
def test_adapters_learn_and_states_and_exports_have_them(method: str, weeks: Path, tmp_path: Path) -> None:
    name = saved("vit", tmp_path / "net")
    state = tmp_path / "shop.tmln"
    asked = LearnRequest(model=name, method=method, settings={"model.lora": "2", "lr": "0.05"}, epochs=2)
    learn_into(state, weeks / "week1", asked)
    learner, _ = learn_into(state, weeks / "week2", LearnRequest(epochs=1))
    theirs = make("vit").state_dict()
    own = learner.model.state_dict()
    assert torch.equal(own["network.vit.layers.0.mlp.fc1.base_layer.weight"], theirs["vit.layers.0.mlp.fc1.weight"])
    assert own["network.vit.layers.0.mlp.fc1.lora_B.default.weight"].abs().sum() > 0
    opened = open_learner(state)
    x = torch.rand(3, *learner.seen.transforms["shape"])  # type: ignore[index]
    with torch.no_grad():
        expected = learner.model.eval()(x)
        assert torch.equal(opened.model.eval()(x), expected)
    opened.export(tmp_path / "w.safetensors")
    plain = ViTForImageClassification(vit_config())
    plain.classifier = nn.Linear(8, 3)
    tensors = safetensors.torch.load_file(tmp_path / "w.safetensors")
    plain.load_state_dict({key.removeprefix("network."): value for key, value in tensors.items()})
    inputs: Any = learner.model.inputs
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(inputs(x)).logits, expected, atol=1e-5, rtol=1e-4)
    opened.export(tmp_path / "model.pt2")
    pixels = torch.randint(0, 256, x.permute(0, 2, 3, 1).shape, dtype=torch.uint8)
    found = torch.export.load(tmp_path / "model.pt2").module()(pixels)
    with torch.no_grad():
        predicted = learner.model(learner.prepare(pixels.permute(0, 3, 1, 2)))
    torch.testing.assert_close(found, predicted, atol=1e-4, rtol=1e-3)
    assert any("lora_A" in key for key in opened.model.state_dict())  # as before the export


def test_adapters_need_linear_layers_and_go_without_freezing(weeks: Path, tmp_path: Path) -> None:
    name, shape = saved("resnet", tmp_path / "resnet"), (3, SIZE, SIZE)
    asked = LearnRequest(model=saved("vit", tmp_path / "vit"), settings={"model.lora": "2"}, freeze=True)
    with pytest.raises(ValueError, match="choose one"):
        learn_into(tmp_path / "s.tmln", weeks / "week1", asked)
    with pytest.raises(ValueError, match="adapts linear layers, and PictureModel has none"):
        make_model(name, shape, 2, lora=2)
    with pytest.raises(ValueError, match="choose one"):
        make_model(name, shape, 2, lora=2, freeze="backbone")
    with pytest.raises(ValueError, match="a rank from 1 to 1024, not -1"):
        make_model(name, shape, 2, lora=-1)


def test_pre_trained_batch_norm_keeps_its_statistics_by_default(tmp_path: Path) -> None:
    name, shape = saved("resnet", tmp_path), (3, SIZE, SIZE)
    data = torch.rand(16, *shape), torch.arange(16) % 2
    for options, stays in (({}, True), ({"frozen_norms": False}, False), ({"pretrained": False}, False)):
        learner = Learner(make_model(name, shape, 2, **options), "naive", lr=0.01, batch_size=8)
        before = {k: v.clone() for k, v in learner.model.state_dict().items() if "running_mean" in k}
        learner.learn(data)
        after = learner.model.state_dict()
        assert before
        assert all(torch.equal(after[key], value) for key, value in before.items()) is stays
