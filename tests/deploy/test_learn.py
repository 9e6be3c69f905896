"""A task for a state file: interrupted it goes on to the same bits, and what fails leaves the file as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.deploy.conftest import draw
from tests.deploy.test_commands import run
from tests.learner.test_atomic import same
from tmln.data.images import Fit
from tmln.deploy.candidates import choose_size, uses_backbone
from tmln.deploy.learn import LearnRequest, StepProgress, learn_into
from tmln.deploy.state_file import ModelSpec, open_learner
from tmln.learner import checkpoint
from tmln.learner.checkpoint import NewerFormat, Torn, load_file
from tmln.signals import Interrupted
from tmln.streams import DataError


def test_interrupted_it_goes_on_to_the_same_bits(weeks: Path, tmp_path: Path) -> None:
    """In the first task and in the second: what is in the file at the end is that of an uninterrupted one."""
    states = {name: tmp_path / f"{name}.tmln" for name in ("calm", "stopped")}
    for week in ("week1", "week2"):
        for name, state in states.items():
            steps = iter(range(1000))
            before = state.read_bytes() if state.exists() else None

            def stop(name: str = name, steps: Any = steps) -> bool:
                return name == "stopped" and next(steps) == 2

            if name == "stopped":
                with pytest.raises(Interrupted, match="the same command goes on"):
                    learn_into(state, weeks / week, LearnRequest(epochs=2), stop=stop)
                assert (state.read_bytes() if state.exists() else None) == before
                infos: list[StepProgress] = []
                learn_into(state, weeks / week, LearnRequest(epochs=2), infos.append)
                assert infos[0].step == 4  # the fourth step comes next
            else:
                learn_into(state, weeks / week, LearnRequest(epochs=2))
        assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []
    calm, stopped = (load_file(state) for state in states.values())
    for saved in (calm, stopped):
        for record in (saved["record"], *(one["record"] for one in saved["previous"])):
            for task in record["lessons"]:
                task["date"] = ""
    assert same(stopped, calm)


def test_what_lies_beside_from_other_data_is_not_gone_on_from(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "shop.tmln"
    with pytest.raises(Interrupted):
        learn_into(state, weeks / "week1", LearnRequest(epochs=2), stop=lambda: True)
    with pytest.raises(Interrupted), pytest.warns(UserWarning, match="another task that was stopped"):
        learn_into(state, weeks / "week1", LearnRequest(epochs=2, settings={"lr": "0.02"}), stop=lambda: True)
    with pytest.warns(UserWarning, match="another task that was stopped"):
        learner, _ = learn_into(state, weeks / "week2", LearnRequest(epochs=1))
    assert learner.names == ("ant", "owl")
    assert not (tmp_path / ".shop.tmln.learning").exists()


def test_bad_files_stay_as_they_are(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "shop.tmln"
    learner, _ = learn_into(state, weeks / "week1", LearnRequest(epochs=1))
    whole = state.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "FORMAT", 9)
        learner.save(tmp_path / "newer.tmln")
    for content, error, words in [
        (whole[: len(whole) // 2], Torn, "cannot be loaded"),
        (b"", Torn, "cannot be loaded"),
        ((tmp_path / "newer.tmln").read_bytes(), NewerFormat, "format 9, .* upgrade tmln"),
        (bytes([*whole[:-9], *(255 - byte for byte in whole[-9:])]), Torn, "do not match their checksum"),
    ]:
        state.write_bytes(content)
        with pytest.raises(error, match=words):
            learn_into(state, weeks / "week2", LearnRequest(epochs=1))
        assert state.read_bytes() == content


def test_bad_data_leaves_the_file_as_it_was(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "shop.tmln"
    learn_into(state, weeks / "week1", LearnRequest(epochs=1))
    before, more = state.read_bytes(), tmp_path / "more"
    draw(more, "ant", 3)
    (more / "empty").mkdir()
    with pytest.raises(DataError, match="an empty class"):
        learn_into(state, more)
    (more / "empty").rename(more / "Bee")
    (more / "Bee" / "a.png").write_bytes((more / "ant" / "0.png").read_bytes())
    with pytest.raises(ValueError, match="'bee' and 'Bee' differ in upper and lower case only"):
        learn_into(state, more)
    (more / "Bee" / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="not an image"):
        learn_into(state, more)
    for request in (
        LearnRequest(model="mlp"),
        LearnRequest(method="er"),
        LearnRequest(image_size=20),
        LearnRequest(settings={"lr": "1"}),
    ):
        with pytest.raises(ValueError, match=r"was made with|has its settings"):
            learn_into(state, weeks / "week2", request)
    assert state.read_bytes() == before


def test_a_file_from_python_says_what_it_lacks(tmp_path: Path) -> None:
    from tests.learner.test_task_lifecycle import taught

    taught().save(tmp_path / "plain.tmln")
    with pytest.raises(ValueError, match=r"does not say which model it is of: .* Learner\.load"):
        open_learner(tmp_path / "plain.tmln")


def test_about_survives_a_file() -> None:
    spec = ModelSpec(
        model="cnn", shape=(3, 12, 12), outputs=4, options={"width": 8}, mean=(0.1, 0.2, 0.3), std=(1.0, 1.0, 1.0)
    )
    assert ModelSpec.read({**spec.to_dict(), "method": "tmln"}, "s.tmln") == spec


@pytest.mark.filterwarnings("ignore:.* equal one that is held out")  # cropped, both classes are the same
@pytest.mark.parametrize(("fit", "seen"), [(None, True), ("stretch", True), ("crop", False)])
def test_a_state_keeps_how_pictures_become_squares(fit: Fit | None, seen: bool, tmp_path: Path) -> None:
    """The mark is at the end of a wide part: cropped, both classes look the same."""
    for name, level in (("good", 60), ("bad", 250)):
        (tmp_path / "week1" / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.random.RandomState(number).randint(0, 40, (16, 64, 3)).astype(np.uint8)
            pixels[:, 56:] = level
            Image.fromarray(pixels).save(tmp_path / "week1" / name / f"{number}.png")
    request = LearnRequest(epochs=1, image_size=16, from_scratch=True, fit=fit)
    learn_into(tmp_path / "s.tmln", tmp_path / "week1", request)
    learner = open_learner(tmp_path / "s.tmln")
    assert learner.seen.transforms is not None
    assert learner.seen.transforms["fit"] == (fit or "pad")
    found = learner.predict([tmp_path / "week1" / name / "0.png" for name in ("good", "bad")])
    assert (found[0].probability != found[1].probability or found[0].label != found[1].label) == seen
    with pytest.raises(ValueError, match="was made with --fit"):
        learn_into(tmp_path / "s.tmln", tmp_path / "week1", LearnRequest(fit="crop" if seen else "pad"))
    saved = load_file(tmp_path / "s.tmln")
    del saved["state"]["intake"]["fit"]  # a state from before the choice cropped
    older = open_learner(tmp_path / "s.tmln", saved)
    assert older.seen.transforms is not None
    assert older.seen.transforms["fit"] == "crop"


def test_a_new_state_begins_with_the_backbone(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "shop.tmln"
    first, _ = learn_into(state, weeks / "week1")
    assert first.about["model"] == "efficientnet-lite0"
    assert first.about["options"] == {"size": 128, "pretrained": True, "frozen_norms": True}
    assert "--from-scratch" in first.about["reason"]
    assert first.answer.name == "slda"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # whoever has the state needs no weights
    second, table = learn_into(state, weeks / "week2")
    assert second.names == ("bee", "owl", "ant")
    assert table.lost <= 0.34  # of three held out a class
    assert second.evaluate(weeks / "test")["accuracy"] > 0.9
    loaded = open_learner(state)
    assert {found.label for found in loaded.predict(weeks / "photos")} <= {"bee", "owl", "ant"}
    loaded.undo()
    assert loaded.names == ("bee", "owl")


@pytest.mark.parametrize(
    "request_",
    [
        LearnRequest(from_scratch=True),
        LearnRequest(model="cnn"),
        LearnRequest(method="er"),
        LearnRequest(epochs=3),
        LearnRequest(freeze=True),
        LearnRequest(settings={"lr": "0.1"}),
    ],
)
def test_whatever_is_asked_for_is_done(request_: LearnRequest, weeks: Path) -> None:
    assert uses_backbone(weeks / "week1", LearnRequest())
    assert not uses_backbone(weeks / "week1", request_)
    assert not uses_backbone(weeks / "arrays.npz", LearnRequest())


def test_without_weights_the_command_that_gets_them_is_said(
    weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tmln.deploy.candidates.has_weights", lambda name: False)
    monkeypatch.setattr("tmln.deploy.learn.EPOCHS", (1, 1))
    learner, _ = learn_into(tmp_path / "shop.tmln", weeks / "week1")
    assert learner.about["model"] == "cnn"
    assert "tmln[pretrained]" in learner.about["reason"]


def test_sizes() -> None:
    assert [choose_size(side) for side in (8, 128, 200, 500)] == [128, 128, 200, 224]


def test_an_export_predicts_decoded_files_as_predict_does(
    weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backbone, normalisation, resizing and head in one file; pictures are prepared by the code that is in the file."""
    onnxruntime = pytest.importorskip("onnxruntime")
    state, path = tmp_path / "shop.tmln", tmp_path / "model.onnx"
    learn_into(state, weeks / "week1")
    folder = tmp_path / "files"
    folder.mkdir()
    with Image.open(weeks / "test" / "owl" / "3.png") as file:
        big, exif = file.resize((310, 200), Image.Resampling.BICUBIC), Image.Exif()
    exif[0x0112] = 6
    big.save(folder / "turned.jpg", exif=exif)
    big.convert("L").save(folder / "grey.png")
    big.convert("RGBA").save(folder / "small.png")
    said = run("export", "--state", state, "-o", path).output
    assert re.search(r"input: uint8 N x 12 x 12 x 3 RGB, .* resized to 128 x 128", said)
    assert re.search(r"one input takes [\d.]+ ms on one core", said)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    code: dict[str, Any] = {}
    exec(about["pictures"]["python"], code)
    files = sorted([*folder.iterdir(), *(weeks / "test").rglob("*.png")])
    pixels = np.concatenate([code["prepare"](file) for file in files])
    (scores,) = session.run(None, {session.get_inputs()[0].name: pixels})
    found = torch.from_numpy(scores).softmax(1)
    for row, one in zip(found, open_learner(state).predict(files, top=2), strict=True):
        for label, share in one.top:
            assert float(row[about["classes"].index(label)]) == pytest.approx(share, abs=1e-4)
