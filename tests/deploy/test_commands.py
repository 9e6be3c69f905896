"""The commands for data of one's own, as a person types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner, Result

from tests.deploy.conftest import draw
from tests.learner.test_atomic import same
from tmln.cli import app
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import open_learner
from tmln.learner.checkpoint import load_file
from tmln.signals import Interrupted


def run(*words: object, code: int = 0) -> Result:
    result: Result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_from_a_folder_to_a_model_that_keeps_up(weeks: Path, tmp_path: Path) -> None:
    """Week 1, week 2 with a class in front of the others, a test, predictions, a look, one step back, exports."""
    state = tmp_path / "shop.tmln"
    said = run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 15, "--method", "tmln").output
    assert said.startswith("learned 2 new classes, ")
    assert "cnn for inputs of 3x12x12, 2 classes" in said
    first = state.read_bytes()
    said = run("learn", "--state", state, "--data", weeks / "week2", "--epochs", 15).output
    assert said.startswith("learned 1 new class, ")
    assert "week1 " in said.splitlines()[0]
    assert [line.split()[:2] for line in said.splitlines()[3:7]] == [
        ["week1", "bee"], ["week1", "owl"], ["week2", "owl"], ["week2", "ant"],
    ]  # fmt: skip

    said = run("evaluate", "--state", state, "--data", weeks / "test").output
    assert float(said.split()[1].rstrip("%")) > 90
    assert "of 30 samples" in said

    picture = weeks / "test" / "owl" / "3.png"
    found = json.loads(
        run("predict", "--state", state, weeks / "photos", picture, "--top", 2, "--format", "json").output
    )
    assert [one["label"] for one in found] == ["ant", "ant", "owl"]
    assert found[2]["path"] == str(picture)
    assert found[2]["top"][0] == {"label": "owl", "probability": found[2]["probability"]}
    (plain,) = json.loads(run("predict", "--state", state, picture, "--format", "json").output)
    assert plain.keys() == {"path", "label", "probability"}
    assert (
        run("predict", "--state", state, picture, "--format", "csv").output.splitlines()[0] == "path,label,probability"
    )
    assert run("predict", "--state", state, picture).output.splitlines()[1].split()[1] == "owl"

    said = run("inspect", "--state", state).output
    for words in (
        "3 classes",
        "owl: 54",
        "2 tasks",
        "week2: 54 samples",
        "new: ant",
        "memory: ",
        "slowed by more than",
    ):
        assert words in said
    assert open_learner(state).names == ("bee", "owl", "ant")

    run("export", "--state", state, "-o", tmp_path / "labels.json")
    assert json.loads((tmp_path / "labels.json").read_text())["classes"] == ["bee", "owl", "ant"]
    run("export", "--state", state, "-o", tmp_path / "model.safetensors")

    run("undo", "--state", state)
    assert open_learner(state).names == ("bee", "owl")
    assert open_learner(state).seen.record.tasks[-1].name == "week1"
    run("learn", "--state", state, "--data", weeks / "week2", "--epochs", 1, "--undo-levels", 2)
    assert len(open_learner(state).seen.previous) == 1
    assert first != state.read_bytes()


def test_too_much_forgetting_keeps_the_old_state(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "shop.tmln"
    options = ("--epochs", 15, "--set", "lr=0.1")
    run("learn", "--state", state, "--data", weeks / "week1", "--method", "naive", *options)
    before = load_file(state)
    draw(tmp_path / "new", "ant", 40)
    result = run("learn", "--state", state, "--data", tmp_path / "new", "--max-forgetting", 5, "--epochs", 30, code=3)
    assert "week1 fell from" in result.output
    assert "tmln accept" in result.output
    after = load_file(state)
    assert same(after["state"], before["state"])
    assert same(after["record"], before["record"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "shop.tmln"]
    words = ("learn", "--state", state, "--data", tmp_path / "new", "--max-forgetting", 5, "--undo-levels", 0)
    result = run(*words, "--epochs", 30, code=3)
    assert "takes the task all the same" not in result.output  # it is not kept
    assert "--undo-levels 1" in result.output


def test_forgetting_that_nothing_can_measure_is_said(weeks: Path, tmp_path: Path) -> None:
    words = ("learn", "--state", tmp_path / "shop.tmln", "--epochs", 1, "--max-forgetting", 5)
    said = run(*words, "--data", weeks / "week1", "--hold-out", 0).output
    assert "no images of" not in said
    assert "no images of week1 are held out" in run(*words, "--data", weeks / "week2").output
    said = run(*words, "--data", weeks / "week2").output
    assert "no images of week1 are held out" in said  # of week2 there are some


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "week1", "--state", "nowhere/s.tmln"], "there is no folder"),
        (["--data", "nowhere"], "nowhere: no such folder or file"),
        (["--data", "week1", "--model", "ccn"], "unknown model 'ccn'; did you mean 'cnn'"),
        (["--data", "week1", "--method", "tlmn"], "unknown method 'tlmn'"),
        (["--data", "week1", "--set", "lrr=1"], "unknown setting 'lrr'"),
        (["--data", "week1", "--set", "step.dampin=1"], "no setting 'dampin'"),
        (["--data", "week1", "--freeze", "all"], "--freeze takes `backbone`"),
    ],
)
def test_bad_wishes_make_no_file(weeks: Path, tmp_path: Path, words: list[str], said: str) -> None:
    words = [str(weeks / word) if word in ("nowhere", "week1") else word for word in words]
    result = run("learn", "--state", tmp_path / "s.tmln", *words, code=1)
    assert said in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_frozen_backbone_with_weights_of_ones_own(weeks: Path, tmp_path: Path) -> None:
    state, other = tmp_path / "a.tmln", tmp_path / "b.tmln"
    run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 1)
    run("export", "--state", state, "-o", tmp_path / "w.safetensors")
    run(
        "learn", "--state", other, "--data", weeks / "week2", "--epochs", 1,
        "--initial-weights", tmp_path / "w.safetensors",
        "--freeze", "backbone", "--image-size", 12,
    )  # fmt: skip
    a, b = (dict(open_learner(path).model.named_parameters()) for path in (state, other))
    same = [name for name, p in a.items() if p.shape == b[name].shape and bool((p == b[name]).all())]
    assert len(same) == len(a) - 2  # all but the head's two


def test_a_frozen_backbone_stays_to_the_bit(weeks: Path, tmp_path: Path) -> None:
    """Running statistics of batch normalisation, too: a convnet has three of them."""
    state, words = tmp_path / "s.tmln", ["--model", "convnet", "--freeze", "backbone"]
    run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 1, *words)
    first = dict(open_learner(state).model.state_dict())
    run("learn", "--state", state, "--data", weeks / "week2", "--epochs", 3, *words)
    after = open_learner(state).model.state_dict()
    assert sum("running_mean" in name for name in first) == 3
    assert float(first["norms.0.num_batches_tracked"]) == 0
    assert [name for name, value in after.items() if not torch.equal(value, first[name])] == [
        "linear.weight",
        "linear.bias",
    ]
    other = tmp_path / "other.tmln"
    run("learn", "--state", other, "--data", weeks / "week1", "--epochs", 1)
    error = run("learn", "--state", other, "--data", weeks / "week2", "--freeze", "backbone", code=1).exception
    assert "was made without --freeze backbone" in str(error)


def test_weights_say_what_was_taken(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "a.tmln"
    run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 1, "--model", "convnet")
    run("export", "--state", state, "-o", tmp_path / "w.safetensors")
    words = ["learn", "--data", weeks / "week2", "--epochs", 1, "--weights", tmp_path / "w.safetensors"]
    said = run(*words, "--state", tmp_path / "b.tmln", "--model", "convnet").output
    assert "weights: 15 of the backbone's 15 tensors" in said
    tensors = safetensors.torch.load_file(tmp_path / "w.safetensors")
    del tensors["norms.1.bias"]
    safetensors.torch.save_file(tensors, tmp_path / "w.safetensors")
    error = str(run(*words, "--state", tmp_path / "c.tmln", "--model", "convnet", code=1).exception)
    assert "--weights-partial" in error
    assert not (tmp_path / "c.tmln").exists()
    other = [*words, "--state", tmp_path / "d.tmln", "--model", "cnn"]
    assert "none of its" in str(run(*other, code=1).exception)


def test_arrays_are_learned_and_predicted(tmp_path: Path) -> None:
    state, file = tmp_path / "s.tmln", tmp_path / "week1.npz"
    y = np.arange(40) % 2
    x = (np.random.RandomState(0).randn(40, 5) + 4 * y[:, None]).astype(np.float32)
    np.savez(file, x=x, y=np.array(["low", "high"])[y])
    run("learn", "--state", state, "--data", file, "--epochs", 60)
    np.savez(tmp_path / "new.npz", x=x[:3])
    found = json.loads(run("predict", "--state", state, tmp_path / "new.npz", "--format", "json").output)
    assert [one["label"] for one in found] == ["low", "high", "low"]
    assert found[2]["path"] == f"{tmp_path / 'new.npz'}[2]"
    np.savez(tmp_path / "odd.npz", x=x[:3, :2])
    error = str(run("predict", "--state", state, tmp_path / "odd.npz", code=1).exception)
    assert "x is float32 [3, 2]; the model takes [N, 5]" in error
    error = str(run("predict", "--state", state, file, tmp_path / "a.png", code=1).exception)
    assert "a.png among files of arrays" in error


def test_learning_what_an_earlier_task_is_judged_by_is_warned_of(weeks: Path, tmp_path: Path) -> None:
    for place, source in (("train", "week1"), ("test", "test")):
        for name in ("bee", "owl"):
            shutil.copytree(weeks / source / name, tmp_path / "shop" / place / name)
    state = tmp_path / "s.tmln"
    run("learn", "--state", state, "--data", tmp_path / "shop", "--epochs", 1)
    with pytest.warns(UserWarning, match="of the samples of 'test' are those that 'shop' is judged by"):
        run("learn", "--state", state, "--data", tmp_path / "shop" / "test", "--epochs", 1)


def test_a_task_that_goes_on_says_so(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.tmln"
    with pytest.raises(Interrupted):
        learn_into(state, weeks / "week1", LearnRequest(epochs=2), stop=lambda: True)
    said = run("learn", "--state", state, "--data", weeks / "week1", "--epochs", 2).output
    assert "going on after step 1 of 4" in said
