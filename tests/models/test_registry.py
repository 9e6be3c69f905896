"""Every row of the table of models; timm and the user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from tmln.models import BACKBONES, MODELS, make_model
from tmln.models.custom import check_allowed

# Small enough to train here; every option a row has is given once.
OPTIONS: dict[str, dict[str, object]] = {
    "mlp": {"hidden": (16, 8)},
    "cnn": {"width": 4, "hidden": 8},
    "resnet18": {"width": 4},
    "resnet18-slim": {"width": 2},
    "mobilenetv2": {"width": 0.25, "dropout": 0.0},
    **{name: {"size": 32, "pretrained": False} for name in BACKBONES},
    "minilm": {"pretrained": False},
}
TEXTS = [name for name, row in MODELS.items() if row.texts]


def made(name: str, channels: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return make_model(name, (6,) if name in TEXTS else (channels, 32, 32), 7, **OPTIONS.get(name, {}))


def drawn(name: str, count: int, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if name in TEXTS:
        return torch.randint(-1, 500, (count, 6), generator=generator, dtype=torch.int32)
    return torch.rand(count, channels, 32, 32, generator=generator)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_logits_over_all_classes(name: str, channels: int) -> None:
    model = made(name, channels).eval()
    x = drawn(name, 5, channels)
    out = model(x)
    assert out.shape == (5, 7)
    assert torch.allclose(model(x[2:3]), out[2:3], atol=1e-5)  # in eval mode samples do not see each other
    if x.dim() == 4:
        assert torch.allclose(model(x.contiguous(memory_format=torch.channels_last)), out, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns(name: str) -> None:
    model = made(name)
    x = drawn(name, 16)
    y = torch.arange(16) % 7
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert nn.functional.cross_entropy(model(x), y) < loss


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_makes_the_same_model(name: str) -> None:
    one, other = made(name).state_dict(), made(name).state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", [name for name, row in MODELS.items() if row.images])
def test_convolutions_are_channels_last(name: str) -> None:
    for module in made(name).modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)


def test_sizes_by_name() -> None:
    sizes = {"resnet18": 11_220_132, "resnet18-slim": 1_109_240}
    for name, expected in sizes.items():
        assert sum(p.numel() for p in make_model(name, (3, 32, 32), 100).parameters()) == expected
    assert sum(p.numel() for p in make_model("mobilenetv2", (3, 224, 224), 10).parameters()) == 2_236_682
    assert sum(p.numel() for p in make_model("mlp", (1, 8, 8), 10).parameters()) == 9_610


def test_features_go_into_an_mlp_only() -> None:
    assert make_model("mlp", (20,), 3)(torch.zeros(2, 20)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"'cnn' takes images \[C, H, W\], not inputs of shape \(20,\); use 'mlp'"):
        make_model("cnn", (20,), 3)


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ValueError, match="'cnn' takes square images, not 8x9; use 'resnet18-slim'"):
        make_model("cnn", (1, 8, 9), 10)
    with pytest.raises(ValueError, match=r"unknown model 'resnet'; did you mean 'resnet18'\? \(tmln list models\)"):
        make_model("resnet", (3, 32, 32), 10)
    with pytest.raises(ValueError, match="unknown option 'wdith' of model resnet18; did you mean 'width'"):
        make_model("resnet18", (3, 32, 32), 10, wdith=3)
    with pytest.raises(ValueError, match="unknown option 'zzz' of model mlp; it takes hidden"):
        make_model("mlp", (3,), 10, zzz=3)


SOURCE = """
import torch
from tmln.models import factory
number = 3
@factory
def net(classes, shape, hidden=4):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0] * shape[1] * shape[2], classes))
@factory
def fixed(hidden=4):
    return torch.nn.Conv2d(3, hidden, 3)
@factory
def loose(**options):
    return torch.nn.Linear(options["shape"][0], options["classes"])
@factory
def wrong(classes):
    return classes
def unmarked(classes):
    raise AssertionError("it was called")
class Net(torch.nn.Linear):
    def __init__(self, classes, shape):
        super().__init__(shape[0], classes)
class Other:
    def __init__(self):
        raise AssertionError("it was made")
class Instance:
    _tmln_factory = factory
    def __call__(self, **options):
        raise AssertionError("it was called")
instance = Instance()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_models_for_a_test.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_models_for_a_test"
    sys.modules.pop("own_models_for_a_test", None)


def test_the_users_own(own: str) -> None:
    assert make_model(f"{own}:net", (3, 8, 8), 5)(torch.zeros(2, 3, 8, 8)).shape == (2, 5)
    conv = make_model(f"{own}:fixed", (3, 8, 8), 5, hidden=6)
    assert isinstance(conv, nn.Conv2d)
    assert conv.out_channels == 6
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert make_model(f"{own}:loose", (3,), 5)(torch.zeros(2, 3)).shape == (2, 5)
    assert make_model(f"{own}:Net", (3,), 5)(torch.zeros(2, 3)).shape == (2, 5)


def test_the_users_mistakes(own: str) -> None:
    with pytest.raises(ValueError, match="has no 'nett'"):
        make_model(f"{own}:nett", (3, 8, 8), 5)
    for name in ("number", "unmarked", "Other", "instance", "torch"):
        with pytest.raises(
            ValueError, match=rf"'{name}' is neither a subclass of torch.nn.Module .* @tmln.models.factory"
        ):
            make_model(f"{own}:{name}", (3, 8, 8), 5)
    with pytest.raises(TypeError, match=r"it made a int, not a torch.nn.Module"):
        make_model(f"{own}:wrong", (3, 8, 8), 5)
    with pytest.raises(ValueError, match="no module 'nowhere_at_all'; set PYTHONPATH"):
        make_model("nowhere_at_all:net", (3, 8, 8), 5)


def test_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="model 'timm:resnet10t' needs timm: pip install timm"):
        make_model("timm:resnet10t", (3, 32, 32), 10)
    asked: dict[str, object] = {}

    def create_model(name: str, **options: object) -> nn.Module:
        asked.update(options, name=name)
        return nn.Conv2d(3, 4, 3)

    stand_in = ModuleType("timm")
    stand_in.create_model = create_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    make_model("timm:resnet10t", (1, 32, 32), 10, drop_rate=0.1)
    assert asked == {"name": "resnet10t", "num_classes": 10, "in_chans": 1, "drop_rate": 0.1}


def test_no_command_of_the_shell_is_a_model(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for name in ("os:system", "subprocess:run", "builtins:exec", "torch.hub:load"):
        with pytest.raises(ValueError, match=r"neither a subclass of torch.nn.Module nor a function marked"):
            make_model(name, (3, 8, 8), 5, command=f"touch {made}", args=["touch", str(made)])
    assert not made.exists()


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("os:system", {}, "is code outside tmln"),
        ("timm:hf-hub:somebody/net", {}, "is downloaded"),
        ("timm:local-dir:net", {}, "is downloaded"),
        ("timm:resnet10t", {"checkpoint_path": "net.pth"}, "loads a file"),
    ],
)
def test_runs_ask_before_they_import(
    name: str, options: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    with pytest.raises(ValueError, match=rf"{why}.*tmln --allow-code \.\.\., or TMLN_ALLOW_CODE=1"):
        check_allowed(name, options)
    monkeypatch.setenv("TMLN_ALLOW_CODE", "0")
    with pytest.raises(ValueError, match=why):
        check_allowed(name, options)
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    check_allowed(name, options)


def test_models_of_the_table_and_of_timm_need_nobodys_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    for name in (*MODELS, "timm:resnet10t", ""):
        check_allowed(name, {"pretrained": True})
