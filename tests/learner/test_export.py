"""The model for programs without tmln: the same outputs, and a file that was there stays until the new one is whole."""

from __future__ import annotations

import copy
import io
import json
import resource
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

import tmln
from tests.learner.test_class_names import learner
from tests.learner.test_predict import network
from tmln.data.images import FITS, DraftReader, Fit
from tmln.learner import Learner
from tmln.learner import export as exporting
from tmln.learner.export import describe_export, describe_normalisation, make_preparation
from tmln.models.picture_model import PictureInput
from tmln.streams.augment import Normalise
from tmln.writing import CannotWrite


@pytest.fixture(scope="module")
def made() -> Learner:
    made = Learner(network(), "er+", lr=0.1, batch_size=8)
    x = torch.randint(256, (24, 3, 12, 12), dtype=torch.uint8)
    made.learn((x, torch.arange(24) % 3), classes=["ant", "bee", "owl"])
    return made


def inputs(count: int) -> torch.Tensor:
    """Pixels as decoders give them."""
    generator = torch.Generator().manual_seed(count)
    return torch.randint(256, (count, 12, 12, 3), generator=generator, dtype=torch.uint8)


def answers(made: Learner, x: torch.Tensor) -> torch.Tensor:
    with made.weights.prediction_weights(), torch.no_grad():
        found: torch.Tensor = made.model.eval()(x.permute(0, 3, 1, 2) / 255)
        return found


def probabilities(made: Learner, x: torch.Tensor) -> torch.Tensor:
    """What predict says of every class, by index."""
    found = made.predict(x.permute(0, 3, 1, 2), top=9)
    return torch.tensor([[dict(one.top)[name] for name in made.names] for one in found])


def test_weights(made: Learner, tmp_path: Path) -> None:
    made.export(tmp_path / "model.safetensors")
    plain = network()
    plain[4] = torch.nn.Linear(16, 3)  # type: ignore[operator]
    plain.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert torch.equal(plain.eval()(inputs(4).permute(0, 3, 1, 2) / 255), answers(made, inputs(4)))
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["labels"]) == describe_export(made)


def test_labels(made: Learner, tmp_path: Path) -> None:
    made.export(tmp_path / "labels.json")
    found = json.loads((tmp_path / "labels.json").read_text())
    assert found["pictures"].pop("python").startswith("import numpy")
    assert found == {
        "tmln": tmln.__version__,
        "classes": ["ant", "bee", "owl"],
        "output": found["output"],
        "input": {"dtype": "uint8", "shape": ["N", 12, 12, 3], "layout": "NHWC", "channels": "RGB"},
        "normalisation": {"by": found["normalisation"]["by"], "scale": "1/255", "mean": [0.0], "std": [1.0]},
        "unknown": None,
        "pictures": {
            "orientation": "as EXIF says",
            "mode": "RGB",
            "size": [12, 12],
            "fit": "crop",
            "resampling": "bilinear, antialiased (Pillow)",
        },
    }


def test_normalisation_before_a_backbone_is_one_mean_and_one_deviation() -> None:
    """(x - 0.5) / 0.2 and then (x - 0.1) / 0.5 are (x - 0.52) / 0.1."""
    model = nn.Sequential(PictureInput(32, (0.1,) * 3, (0.5,) * 3), nn.Flatten(), nn.Linear(3 * 32 * 32, 2))
    made = Learner(model, "naive", prepare=Normalise((0.5,), (0.2,)))
    made.learn((torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.arange(4) % 2))
    found = describe_normalisation(made)
    assert found is not None
    assert (found["mean"], found["std"], found["network_size"]) == ([0.52] * 3, [0.1] * 3, [32, 32])
    x = torch.rand(1, 3, 32, 32)
    expected = (x - 0.52) / 0.1
    torch.testing.assert_close(model[0](Normalise((0.5,), (0.2,))(x)), expected)
    made = Learner(nn.Linear(4, 2), "naive", prepare=lambda x: x * 2)
    made.learn((torch.rand(4, 4), torch.arange(4) % 2))
    assert "mean" not in (describe_normalisation(made) or {})
    assert describe_export(made)["input"] == {"dtype": "float32", "shape": ["N", 4]}


@pytest.mark.parametrize("answer", ["argmax", "ncm", "rebalanced", "slda", "ranpac", "stream-ncm"])
def test_every_head_is_in_the_program(answer: str) -> None:
    """Also where classes were not met, and where only those met compete."""
    model = network()
    model[4] = nn.Linear(16, 5)  # type: ignore[operator]
    made = Learner(
        model, "er", answer=answer, logit_mask="seen", lr=0.05, batch_size=8, prepare=Normalise((0.4,), (0.2,))
    )
    x = torch.randint(256, (24, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(24) % 3
    made.learn((x // 2 + 40 * y.to(torch.uint8)[:, None, None, None], y), 3)
    content = io.BytesIO(exporting.WRITERS[".pt2"](made))
    found = torch.export.load(content).module()(inputs(3)).softmax(1)
    expected = made.predict(inputs(3).permute(0, 3, 1, 2), top=5)
    for row, one in zip(found.tolist(), expected, strict=True):
        assert [row[int(name)] for name, _ in one.top] == pytest.approx([share for _, share in one.top], abs=1e-5)
        assert sum(row[index] for index in range(3)) == pytest.approx(1.0, abs=1e-5)


def test_a_head_that_no_layer_can_give_is_refused(made: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(made.answer), "scores", lambda self, model, x: (model(x), -model(x)))
    with pytest.raises(RuntimeError, match="answer 'argmax' has scores that no layer gives"):
        exporting.WRITERS[".pt2"](made)


def test_a_program(made: Learner, tmp_path: Path) -> None:
    made.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for count in (1, 5):
        torch.testing.assert_close(program(inputs(count)), answers(made, inputs(count)))


@pytest.mark.slow
def test_onnx(made: Learner, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    made.export(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: inputs(5).numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(found), answers(made, inputs(5)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(found).softmax(1), probabilities(made, inputs(5)), rtol=0, atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == describe_export(made)
    other = copy.deepcopy(made)
    with torch.no_grad():
        other.model[4].bias.add_(0.1)  # type: ignore[index]
    with pytest.raises(RuntimeError, match=r"answers otherwise than the model, by 0\.1"):
        exporting.check_onnx(other, path.read_bytes())


def test_onnx_of_changed_classes_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    changed = learner(4)
    x = torch.rand(40, 5) + torch.arange(40)[:, None] % 4
    changed.learn((x, torch.arange(40) % 4), classes=["ant", "bee", "cat", "owl"])
    changed.merge_classes(["bee"], "ant")
    changed.remove_classes(["cat"])
    changed.export(tmp_path / "model.onnx")
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "model.onnx")
    (scores,) = session.run(None, {"inputs": x.numpy()})
    shares = torch.as_tensor(scores).softmax(1)
    expected = [dict(one.top) for one in changed.predict(x, top=4)]
    assert {*expected[0]} == {"ant", "owl"}
    torch.testing.assert_close(shares[:, 0], torch.tensor([one["ant"] for one in expected]))
    torch.testing.assert_close(shares[:, 3], torch.tensor([one["owl"] for one in expected]))


def test_a_failure_leaves_the_file_that_was_there(
    made: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "labels.json"
    path.write_text("before")

    def fail(learner: Learner) -> bytes:
        raise RuntimeError("in the middle")

    monkeypatch.setitem(exporting.WRITERS, ".json", fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        made.export(path)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["labels.json"]


@pytest.mark.parametrize("suffix", [".safetensors", ".pt2", ".json", pytest.param(".onnx", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_the_file_that_was_there(suffix: str, made: Learner, tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a disk without room; torch's own writer of .pt2 ended the process there."""
    if suffix == ".onnx":
        pytest.importorskip("onnxruntime")
    path = tmp_path / f"model{suffix}"
    path.write_text("before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(CannotWrite, match=rf"^cannot write .*model\{suffix}: [^\n]*$"):
            made.export(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_exported(made: Learner, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot export to 'model\.onx'; did you mean '\.onnx'"):
        made.export(tmp_path / "model.onx")
    with pytest.raises(RuntimeError, match="nothing was learned yet"):
        learner().export(tmp_path / "model.pt2")
    broken = learner()
    broken.learn((torch.rand(8, 5), torch.arange(8) % 2))
    with torch.no_grad():
        next(iter(broken.model.parameters())).view(-1)[0] = float("nan")
    for suffix in exporting.WRITERS:
        with pytest.raises(ValueError, match=r"not finite; undo\(\)"):
            broken.export(tmp_path / f"model{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(("size", "suffix"), [((300, 200), "png"), ((37, 500), "jpg"), ((1600, 900), "jpg")])
def test_the_code_of_an_export_prepares_files_as_we_do(
    fit: Fit, mode: Literal["L", "RGB"], size: tuple[int, int], suffix: str, tmp_path: Path
) -> None:
    small = np.random.RandomState(0).randint(0, 255, (size[1] // 8, size[0] // 8 + 1, 3)).astype(np.uint8)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(small).resize(size).save(path)
    code: dict[str, Any] = {}
    exec(make_preparation(mode, 64, fit), code)
    assert np.array_equal(code["prepare"](path)[0], DraftReader(mode, 64, fit=fit)(path))
