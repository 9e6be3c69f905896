"""Runs on texts: tokens of the model's own tokenizer, texts of no class, models that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.made import make_clinc150
from tests.experiments.test_run import finish
from tests.texts import save_encoder, save_tokenizer
from tmln.experiments.build import build, stream_of
from tmln.experiments.config import RunConfig
from tmln.models.text_model import read_tokenizer, tokenise


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("texts")
    make_clinc150(place)
    save_encoder(place / "encoder", ("please", "now", "intent_0", "intent_1", "intent_15", "intent_16"))
    return place


def config(root: Path, method: str = "slda", model: str = "", **options: object) -> RunConfig:
    return RunConfig(
        benchmark="split-clinc150",
        method=method,
        model=model or f"transformers:{root / 'encoder'}",
        benchmark_options={"root": root, "length": 12, "task_classes": "0,1/15,16", "per_class_test": 2, **options},
        epochs=1,
        batch_size=4,
    )


def test_a_model_takes_the_tokens_of_its_own_tokenizer(root: Path, tmp_path: Path) -> None:
    stream = stream_of(config(root))
    own = tokenise(["please do the intent_0 now train 0"], 12, read_tokenizer(root / "encoder"))
    assert stream[0].train.x[:1].tolist() == own.tolist()
    other = save_tokenizer(tmp_path / "other", ("now", "please"))
    asked = stream_of(config(root, tokenizer=other))
    assert asked[0].train.x[0, :4].tolist() == [2, 5, 1, 1]


@pytest.mark.parametrize("method", ["slda", "er", "tmln", "ewc"])
def test_a_run_on_texts_has_what_a_run_on_images_has(method: str, root: Path, tmp_path: Path) -> None:
    result = finish(tmp_path, config(root, method))
    assert [len(row) for row in result.accuracy] == [2, 2]
    assert 0 <= result.metrics["acc_unknown"] <= 1
    again = finish(tmp_path / "again", config(root, method))
    assert (again.accuracy, again.weights_sha256) == (result.accuracy, result.weights_sha256)


def test_a_frozen_encoder_sees_each_text_once_in_a_task(root: Path) -> None:
    """Four epochs of twelve texts: their features are computed once, after a look at one or two of them."""
    wanted = config(root, "naive", per_class=3, tasks=None, task_classes="0,1,15,16/2")
    stream, learner = build(wanted.model_copy(update={"model_options": {"freeze": "backbone"}}))
    seen: list[int] = []
    network = learner.model.get_submodule("network")
    network.register_forward_pre_hook(lambda _, x, given: seen.append(len(given["input_ids"])), with_kwargs=True)
    learner.learn(stream[0].train, 4, classes=stream[0].classes)
    assert len(stream[0].train) == 12
    assert seen.count(12) == 1
    assert sum(seen) < 24


def test_a_model_of_images_takes_no_texts(root: Path) -> None:
    with pytest.raises(ValueError, match="split-clinc150 has texts, which model 'mlp' does not take: use minilm"):
        build(config(root, model="mlp"))
    with pytest.raises(ValueError, match="split-digits has no texts, which model 'minilm' does not take: use mlp"):
        build(RunConfig(benchmark="split-digits", model="minilm"))
