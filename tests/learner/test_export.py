"""The model for programs without tmln: the same outputs, and a file that was there stays until the new one is whole."""

from __future__ import annotations

import copy
import json
import resource
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests.learner.test_class_names import learner
from tests.learner.test_predict import network
from tmln.learner import Learner
from tmln.learner import export as exporting
from tmln.writing import CannotWrite


@pytest.fixture(scope="module")
def made() -> Learner:
    made = Learner(network(), "er+", lr=0.1, batch_size=8)
    x = torch.randint(256, (24, 3, 12, 12), dtype=torch.uint8)
    made.learn((x, torch.arange(24) % 3), classes=["ant", "bee", "owl"])
    return made


def inputs(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(count))


def answers(made: Learner, x: torch.Tensor) -> torch.Tensor:
    with made.weights.prediction_weights(), torch.no_grad():
        found: torch.Tensor = made.model.eval()(x)
        return found


def test_weights(made: Learner, tmp_path: Path) -> None:
    made.export(tmp_path / "model.safetensors")
    plain = network()
    plain[4] = torch.nn.Linear(16, 3)  # type: ignore[operator]
    plain.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert torch.equal(plain.eval()(inputs(4)), answers(made, inputs(4)))
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["labels"])["classes"] == ["ant", "bee", "owl"]


def test_labels(made: Learner, tmp_path: Path) -> None:
    made.export(tmp_path / "labels.json")
    assert json.loads((tmp_path / "labels.json").read_text()) == {
        "classes": ["ant", "bee", "owl"],
        "stored": {"shape": [3, 12, 12], "dtype": "uint8"},
        "input": [3, 12, 12],
    }


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
    other = copy.deepcopy(made)
    with torch.no_grad():
        other.model[4].bias.add_(0.1)  # type: ignore[index]
    with pytest.raises(RuntimeError, match=r"answers otherwise than the model, by 0\.1"):
        exporting.check_onnx(other, path.read_bytes())


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
