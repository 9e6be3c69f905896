"""Tables of texts: learned, predicted, taken back, exported, by the state file alone."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

from tests.deploy.test_commands import run
from tests.texts import save_encoder
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import open_learner
from tmln.learner import Learner
from tmln.models import make_model
from tmln.models.text_model import TextModel, has_minilm, tokenise
from tmln.streams import DataError

WEATHER = ("what is the weather in rome", "will it rain", "is it rain in rome", "what is the weather", "rain in rome")
MUSIC = ("play a song", "play music", "song please", "music on please", "play a song please")
TABLE = ("book a table for two", "book a table please", "table for two", "table for two please", "book a table in rome")


def write(path: Path, **classes: tuple[str, ...]) -> Path:
    rows = [f'"{text}",{label}' for label, texts in classes.items() for text in texts]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def intents(tmp_path: Path, encoder: Path) -> Path:
    """A state of two intents, and the tables beside it."""
    write(tmp_path / "first.csv", weather=WEATHER, music=MUSIC)
    write(tmp_path / "second.csv", table=TABLE)
    request = LearnRequest(f"transformers:{encoder}", method="slda")
    learn_into(tmp_path / "intents.tmln", tmp_path / "first.csv", request)
    return tmp_path / "intents.tmln"


def test_new_intents_in_seconds_and_taken_back(intents: Path) -> None:
    learner = open_learner(intents)
    assert learner.names == ("music", "weather")
    assert [one.label for one in learner.predict(["Play a song", "will it rain"])] == ["music", "weather"]
    learn_into(intents, intents.with_name("second.csv"))
    learner = open_learner(intents)
    assert learner.names == ("music", "weather", "table")
    (found,) = learner.predict("book a table for two")
    assert (found.label, found.path) == ("table", "book a table for two")
    assert learner.evaluate(str(intents.with_name("first.csv")))["accuracy"] >= 0.9
    learner.undo()
    assert len(learner.names) == 2


def test_a_state_needs_neither_the_folder_nor_the_package(intents: Path, encoder: Path) -> None:
    asked = open_learner(intents).predict(list(WEATHER))
    files = list(encoder.iterdir())
    try:
        for file in files:
            file.rename(file.with_name(f"away-{file.name}"))
        assert open_learner(intents).predict(list(WEATHER)) == asked
        learn_into(intents, intents.with_name("second.csv"))
    finally:
        for file in files:
            file.with_name(f"away-{file.name}").rename(file)


def test_commands(intents: Path) -> None:
    table = intents.with_name("questions.csv")
    table.write_text('text\n"play music, please"\n')
    found = json.loads(run("predict", "--state", intents, "will it rain", table, "--format", "json").output)
    assert [one["path"] for one in found] == ["will it rain", "play music, please"]
    assert [one["label"] for one in found] == ["weather", "music"]
    assert "tokens of texts, shorter ones filled with -1" in run("inspect", "--state", intents).output
    assert "of 10 samples" in run("evaluate", "--state", intents, "--data", intents.with_name("first.csv")).output
    refused = run("serve", intents, "--port", 0, code=1)
    assert "is of texts, and pictures are served" in f"{refused.output} {refused.exception}"


def test_what_cannot_be_learned_is_refused(intents: Path, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("text\nplay music\n")
    before = intents.read_bytes()
    with pytest.raises(DataError, match="needs a label, in the column label"):
        learn_into(intents, tmp_path / "bare.csv")
    with pytest.raises(ValueError, match="text 2 of 2 is empty"):
        open_learner(intents).predict(["play music", " "])
    with pytest.raises(ValueError, match="leave --from-scratch out"):
        learn_into(tmp_path / "new.tmln", tmp_path / "first.csv", LearnRequest(from_scratch=True))
    with pytest.raises(DataError, match="the model takes none: use minilm"):
        learn_into(tmp_path / "new.tmln", tmp_path / "first.csv", LearnRequest("mlp"))
    assert intents.read_bytes() == before


def test_fine_tuning_continues_to_the_same_bits(intents: Path, encoder: Path, tmp_path: Path) -> None:
    """By replay: stored texts are tokens, in the state as in the memory."""
    request = LearnRequest(f"transformers:{encoder}", method="er", epochs=2, settings={"lr": "0.5"})
    states = [tmp_path / "one.tmln", tmp_path / "two.tmln"]
    for state in states:
        for table in ("first.csv", "second.csv"):
            learn_into(state, tmp_path / table, request if table == "first.csv" else LearnRequest(epochs=2))
    one, two = (open_learner(state) for state in states)
    assert one.replay.memory is not None
    assert one.replay.memory.batches(4).__next__()[0].dtype == torch.int32
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_exports_take_tokens(intents: Path, suffix: str) -> None:
    learner, path = open_learner(intents), intents.with_suffix(suffix)
    learner.export(path)
    learner.export(intents.with_suffix(".json"))
    about = json.loads(intents.with_suffix(".json").read_text())
    assert about["input"] == {"dtype": "int32", "shape": ["N", 128]}
    names: dict[str, object] = {}
    exec(about["texts"]["python"], names)
    prepare = names["prepare"]
    assert callable(prepare)
    texts = ["play a song", "will it rain in rome"]
    tokens = torch.from_numpy(prepare(texts, about["texts"]["tokenizer"]))
    assert torch.equal(tokens, tokenise(texts, 128, about["texts"]["tokenizer"]))
    if suffix == ".onnx":
        runtime = importlib.import_module("onnxruntime")
        session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        scores = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: tokens.numpy()})[0])
    else:
        scores = torch.export.load(path).module()(tokens)
    assert [about["classes"][k] for k in scores.argmax(1).tolist()] == ["music", "weather"]
    expected = [one.probability for one in learner.predict(texts)]
    torch.testing.assert_close(scores.softmax(1).amax(1), torch.tensor(expected), atol=1e-4, rtol=1e-3)


def test_in_python_a_table_is_data(encoder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "first.csv", weather=WEATHER, music=MUSIC)
    model = make_model(f"transformers:{encoder}", (128,), 2)
    assert isinstance(model, TextModel)
    learner = Learner(model, "ncm-frozen")
    learner.learn(path, hold_out=0.2)
    assert learner.predict("play music")[0].label == "music"
    assert learner.retention.rows[0].count == 1


@pytest.mark.skipif(not has_minilm(), reason="the weights of MiniLM are not installed: tmln[text]")
def test_without_a_choice_texts_are_learned_with_minilm(tmp_path: Path) -> None:
    table = write(tmp_path / "first.csv", weather=WEATHER, music=MUSIC)
    said = run("learn", "--state", tmp_path / "intents.tmln", "--data", table).output
    assert "minilm for inputs of 128, 2 classes" in said
    assert "with the head 'slda'" in said
    learner = open_learner(tmp_path / "intents.tmln")
    assert learner.predict("is there any sunshine tomorrow?")[0].label == "weather"
