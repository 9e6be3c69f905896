"""Weights from a file: what was taken, renamed, summed and left out is said, and less than the backbone is refused."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from tmln.models import make_model
from tmln.models.weights_file import convert_command, load_weights, match_names


def saved(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    safetensors.torch.save_file({name: value.clone().contiguous() for name, value in tensors.items()}, path)
    return path


@pytest.fixture
def theirs() -> dict[str, Tensor]:
    torch.manual_seed(1)
    return dict(make_model("resnet18-slim", (3, 32, 32), 7, width=2).state_dict())


def ours(channels: int = 3, classes: int = 4) -> nn.Module:
    torch.manual_seed(2)
    return make_model("resnet18-slim", (channels, 32, 32), classes, width=2)


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.model."])
def test_all_of_the_backbone_is_taken_whatever_it_is_called(
    prefix: str, theirs: dict[str, Tensor], tmp_path: Path
) -> None:
    model = ours()
    head = model.state_dict()["linear.weight"].clone()
    found = load_weights(model, saved(tmp_path / "w.safetensors", {prefix + k: v for k, v in theirs.items()}), "linear")
    own = model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in theirs.items() if not name.startswith("linear"))
    assert torch.equal(own["linear.weight"], head)
    assert found.renamed == (prefix, "")
    assert found.new_head
    assert not found.missing
    assert found.left_out == (f"{prefix}linear.bias [7]", f"{prefix}linear.weight [7, 16]")
    assert str(found).startswith(f"weights: {found.backbone} of the backbone's {found.backbone} tensors")
    assert (repr(prefix) in str(found)) is bool(prefix)


def test_a_head_of_the_same_size_is_taken(theirs: dict[str, Tensor], tmp_path: Path) -> None:
    model = ours(classes=7)
    found = load_weights(model, saved(tmp_path / "w.safetensors", theirs), "linear")
    assert not found.new_head
    assert torch.equal(model.state_dict()["linear.weight"], theirs["linear.weight"])


def test_a_prefix_that_the_file_lacks_is_added(theirs: dict[str, Tensor], tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("body", ours())
    found = load_weights(model, saved(tmp_path / "w.safetensors", theirs), "body.linear")
    assert found.renamed == ("", "body.")
    assert not found.missing


def test_three_colours_are_summed_for_gray_pictures(theirs: dict[str, Tensor], tmp_path: Path) -> None:
    """A gray picture gives what the same picture with three equal channels gives: an exact oracle."""
    gray, colour = ours(1, 7).eval(), ours(3, 7).eval()
    file = saved(tmp_path / "w.safetensors", theirs)
    assert load_weights(gray, file, "linear").summed == ("conv1.weight",)
    assert load_weights(colour, file, "linear").summed == ()
    weight = gray.state_dict()["conv1.weight"]
    assert float(weight[0, 0, 0, 0]) == pytest.approx(float(theirs["conv1.weight"][0, :, 0, 0].sum()))
    x = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(gray(x), colour(x.expand(2, 3, 32, 32)), atol=1e-5, rtol=1e-4)


def test_less_than_the_backbone_is_refused_unless_asked_for(theirs: dict[str, Tensor], tmp_path: Path) -> None:
    wide = {**theirs, "bn1.bias": torch.zeros(9), "extra": torch.zeros(2)}
    del wide["conv1.weight"]
    file, model = saved(tmp_path / "w.safetensors", wide), ours()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"lacks conv1.weight, bn1.bias \[2\] \(it has \[9\]\); .*--weights-partial"):
        load_weights(model, file, "linear")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    found = load_weights(model, file, "linear", partial=True)
    assert set(found.missing) == {"conv1.weight", "bn1.bias"}
    assert {"bn1.bias [9]", "extra [2]"} <= set(found.left_out)
    assert torch.equal(model.state_dict()["bn1.weight"], theirs["bn1.weight"])
    assert "\n" not in str(found)


def test_what_is_of_another_model_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "w.safetensors", {"encoder.x": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"none of its 1 tensors \(encoder.x \[3\]\) is one of the model's"):
        load_weights(ours(), file, "linear", partial=True)
    with pytest.raises(ValueError, match=r"is a state, .*tmln export --state"):
        load_weights(ours(), tmp_path / "shop.tmln", "linear")
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        load_weights(ours(), tmp_path / "bad.safetensors", "linear")


def test_the_line_that_converts_a_pickle_converts_it(
    theirs: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my weights.pth"
    torch.save({"epoch": 3, "state_dict": theirs}, path)
    with pytest.raises(ValueError, match="may contain code") as error:
        load_weights(ours(), path, "linear")
    assert convert_command(path) in str(error.value)
    python, option, code, *arguments = shlex.split(convert_command(path))
    assert (python, option) == ("python", "-c")
    monkeypatch.setattr("sys.argv", ["-c", *arguments])
    exec(code, {})
    assert not load_weights(ours(), path.with_suffix(".safetensors"), "linear").missing


def test_names_are_matched_by_most_shapes() -> None:
    own = {"a.w": torch.zeros(2), "a.b": torch.zeros(3), "c": torch.zeros(1)}
    found = {"x.a.w": torch.zeros(2), "x.a.b": torch.zeros(3), "a.w": torch.zeros(5)}
    assert match_names(own, found) == (("x.", ""), {"a.w": "x.a.w", "a.b": "x.a.b"})
    assert match_names(own, {"c": torch.zeros(1)}) == (("", ""), {"c": "c"})
