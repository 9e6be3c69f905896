"""A state by its path alone: it predicts pictures in every form, and goes on learning."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tmln
from tests.deploy.test_commands import run
from tmln.deploy.learn import LearnRequest, learn_into


@pytest.fixture(scope="module")
def state(weeks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("opening") / "shop.tmln"
    learn_into(path, weeks / "week1", LearnRequest(epochs=15))
    return path


def test_pictures_in_every_form_are_prepared_as_files_are(state: Path, weeks: Path, tmp_path: Path) -> None:
    learner = tmln.open(state)
    path = tmp_path / "wide.png"
    with Image.open(weeks / "test" / "owl" / "3.png") as file:
        file.resize((31, 20)).save(path)
    image = Image.open(path)
    pixels = np.asarray(image)
    (expected,) = learner.predict(path)
    assert expected.label == "owl"
    for form in (image, pixels, path.read_bytes(), [image], [pixels], pixels[None], [path.read_bytes()]):
        (found,) = learner.predict(form)
        assert (found.label, found.probability) == (expected.label, expected.probability)
    assert image.size == (31, 20)
    assert [one.label for one in learner.predict([image, pixels])] == ["owl", "owl"]
    stored = np.zeros((2, 3, 12, 12), np.uint8)
    assert len(learner.predict(stored)) == 2  # inputs as stored, channels first


def test_a_turned_or_grey_picture(state: Path, weeks: Path) -> None:
    learner = tmln.open(state)
    with Image.open(weeks / "test" / "owl" / "3.png") as file:
        turned, exif = io.BytesIO(), Image.Exif()
        exif[0x0112] = 6  # to be shown turned by 90 degrees, as which it is stored the other way
        file.transpose(Image.Transpose.ROTATE_90).save(turned, "PNG", exif=exif)
        assert learner.predict(turned.getvalue())[0] == learner.predict(np.asarray(file))[0]
        (grey,) = learner.predict(np.asarray(file.convert("L")))
    assert grey.label in learner.names
    with pytest.raises(ValueError, match="picture 0: not an image"):
        learner.predict(b"no picture")


def test_it_goes_on_learning(state: Path, weeks: Path, tmp_path: Path) -> None:
    learner = tmln.open(str(state))
    learner.learn(weeks / "week2", epochs=15)
    learner.save(tmp_path / "later.tmln")
    assert tmln.open(tmp_path / "later.tmln").names == ("bee", "owl", "ant")
    learner.undo()
    assert learner.names == ("bee", "owl")


def test_a_wrong_path_says_what_to_do(state: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*shp\.tmln; did you mean 'shop\.tmln'"):
        tmln.open(state.with_name("shp.tmln"))
    with pytest.raises(FileNotFoundError, match=r"tmln learn --state .* makes it"):
        tmln.open(tmp_path / "shop.tmln")
    with pytest.raises(ValueError, match="is a folder, not a state file"):
        tmln.open(tmp_path)
    (tmp_path / "a.onnx").write_bytes(b"other")
    with pytest.raises(ValueError, match=r"a\.onnx cannot be loaded"):
        tmln.open(tmp_path / "a.onnx")


def test_top_above_the_number_of_classes(state: Path, weeks: Path) -> None:
    result = run("predict", "--state", state, weeks / "photos", "--top", 9, "--format", "csv")
    rows = [line.split(",") for line in result.stdout.splitlines()]
    assert [len(row) for row in rows] == [5, 5, 5]
    assert "there are 2 classes" in result.stderr
    assert len(run("predict", "--state", state, weeks / "photos", "--top", 9).stdout.splitlines()) == 3


def test_files_can_be_read_by_others(state: Path, tmp_path: Path) -> None:
    learner = tmln.open(state)
    before = os.umask(0o022)
    try:
        for name in ("a.tmln", "labels.json", "a.safetensors"):
            (learner.save if name == "a.tmln" else learner.export)(tmp_path / name)
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_any_component_by_set(weeks: Path, tmp_path: Path) -> None:
    settings = {"answer": "ncm", "replay": "er", "weights": "average", "penalty": "none", "step": "sgd"}
    made, _ = learn_into(tmp_path / "s.tmln", weeks / "week1", LearnRequest(epochs=1, settings=settings))
    assert {family: part.name for family, part in tmln.open(tmp_path / "s.tmln").components.items()} == settings
    with pytest.raises(ValueError, match="unknown setting 'anwser'; did you mean 'answer'"):
        learn_into(tmp_path / "t.tmln", weeks / "week1", LearnRequest(settings={"anwser": "ncm"}))
    assert made.answer.name == "ncm"
    assert "reason" not in made.about  # it is not the default's


def test_unknown_pictures(state: Path, weeks: Path, tmp_path: Path) -> None:
    Image.new("RGB", (12, 12), (140, 140, 140)).save(tmp_path / "blank.png")
    picture = weeks / "test" / "owl" / "3.png"
    words = ("predict", "--state", state, tmp_path / "blank.png", picture, "--unknown")
    found = json.loads(run(*words, "--format", "json").stdout)
    assert [(one["label"], one["known"]) for one in found] == [("unknown", False), ("owl", True)]
    assert found[0]["nearest"] in ("bee", "owl")
    lines = run(*words, "--format", "csv", "--top", 2).stdout.splitlines()
    assert lines[0] == "path,label 1,probability 1,label 2,probability 2,nearest"
    assert lines[1].split(",")[1] == "unknown"
    assert lines[2].split(",")[1::4] == ["owl", "owl"]
    assert len(run(*words, "--keep-known", 0.9).stdout.splitlines()) == 3
    learn_into(tmp_path / "s.tmln", weeks / "week1", LearnRequest(epochs=1, hold_out=0.0))
    result = run("predict", "--state", tmp_path / "s.tmln", picture, "--unknown", code=1)
    assert "no sample was held out" in str(result.exception)
