"""The retention check, by hand and in Hugging Face's Trainer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.hugging import MODELS
from tests.integrations.test_transformers import arguments, model_of, samples, trainer
from tmln.integrations.retention import AnchorRetention, scores
from tmln.integrations.transformers import Continual, RetentionCallback
from transformers import Trainer, default_data_collator

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
NAME = "BERT, classes"


def test_scores_by_hand() -> None:
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2) * math.log(3))
    x = torch.eye(2)  # p = 3/4 for the own class
    found = scores(model, [(x, torch.tensor([0, 1])), (x[:1], torch.tensor([1]))])
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx(-(2 * math.log(3 / 4) + math.log(1 / 4)) / 3)


@pytest.mark.parametrize("name", ["BERT, classes", "BERT, tags", "GPT-2"])
def test_the_loss_is_the_models_own(name: str) -> None:
    model = model_of(name).eval()
    batch: Any = MODELS[name].draw(5)
    assert scores(model, [batch])["loss"] == pytest.approx(float(model(**batch).loss), rel=1e-5)
    assert 0 <= scores(model, [batch])["accuracy"] <= 1
    assert ("perplexity" in scores(model, [batch])) == (name != NAME)
    if name != NAME:
        assert scores(model, [batch])["perplexity"] == pytest.approx(math.exp(float(model(**batch).loss)), rel=1e-5)
    assert not model.training


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(ValueError, match="no labels to score"):
        scores(nn.Linear(2, 2), [])


def test_beyond_a_bound() -> None:
    kept = AnchorRetention()
    kept.add("before", {"a": {"loss": 1.0, "accuracy": 0.5}, "b": {"loss": 1.0, "accuracy": 0.5}})
    kept.add("after", {"a": {"loss": 1.25, "accuracy": 0.625}, "b": {"loss": math.nan, "accuracy": 0.25}})
    assert [said[:7] for said in kept.beyond({"loss": 0.25})] == ["b: loss"]
    assert [said[:7] for said in kept.beyond({"loss": 0.2, "accuracy": 0.25})] == ["a: loss", "b: loss"]
    assert kept.lines()[1] == ["a", "loss", "1.000", "1.250", "+0.250"]


def check(bounds: dict[str, float], **options: Any) -> RetentionCallback:
    return RetentionCallback({"old": samples(NAME, 0), "loader": _loader()}, bounds=bounds, **options)


def _loader() -> DataLoader[Any]:
    data: Any = samples(NAME, 1)
    return DataLoader(data, batch_size=3, collate_fn=default_data_collator)


def train(callback: RetentionCallback, folder: Path, **options: Any) -> Trainer:
    found = Trainer(
        model_of(NAME),
        arguments(folder, **options),
        default_data_collator,
        samples(NAME, 2),
        callbacks=[callback],
    )
    found.train()
    return found


def test_a_table_and_a_page_with_any_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = check({"loss": 100.0}, page=tmp_path / "kept" / "page.html")
    found = train(callback, tmp_path)
    assert callback.retention.moments == ["before", "epoch 1", "epoch 2", "after"]
    assert callback.broken == []
    before, *_, after = callback.retention.readings
    batch = default_data_collator(samples(NAME, 0))
    assert before["old"] == scores(model_of(NAME), [batch])
    assert after["old"] == scores(found.model, [batch])
    assert before != after
    assert "| old | loss |" in capsys.readouterr().out
    page = (tmp_path / "kept" / "page.html").read_text()
    assert f"<td>{after['old']['loss']:.3f}</td>" in page
    assert "<script" not in page


def test_a_bound_stops_the_training(tmp_path: Path) -> None:
    callback = check({"loss": -100.0}, every=1)  # any reading is beyond it
    found = train(callback, tmp_path)
    assert found.state.global_step == 1
    assert callback.retention.moments == ["before", "step 1", "after"]
    assert len(callback.broken) == 2


def test_a_bound_ends_the_program(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="forgotten more than is allowed: old: loss"):
        train(check({"loss": -100.0}, beyond="exit", page=tmp_path / "page.html"), tmp_path)
    assert "more than -100.0" in (tmp_path / "page.html").read_text()


def test_a_resumed_training_knows_what_was_before(tmp_path: Path) -> None:
    first = check({})
    train(first, tmp_path, save_strategy="epoch")
    again = check({})
    found = Trainer(model_of(NAME), arguments(tmp_path), default_data_collator, samples(NAME, 2), callbacks=[again])
    found.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.retention == first.retention
    (tmp_path / "checkpoint-2" / "retention.json").unlink()
    found.remove_callback(again)
    found.add_callback(check({}))
    with pytest.raises(FileNotFoundError, match="not known; start anew"):
        found.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_what_is_replayed_is_not_measured(tmp_path: Path) -> None:
    model, continual = model_of(NAME), Continual(memory=6)
    sizes: list[int] = []

    def count(model: nn.Module, batches: Any) -> dict[str, float]:
        sizes.extend(len(batch["labels"]) for batch in batches)
        return {"loss": 0.0}

    callback = RetentionCallback({"old": samples(NAME, 0)}, every=1, measure=count)
    for task in range(2):
        found = trainer(model, samples(NAME, task), continual, tmp_path, num_train_epochs=1)
        found.add_callback(callback)
        found.train()
    assert set(sizes) == {8}
    assert continual.memory.seen == 16


def test_what_makes_no_sense(tmp_path: Path) -> None:
    for given, options, said in (
        ({}, {}, "no anchor set"),
        ({"a": [1]}, {"beyond": "shout"}, "beyond='shout'"),
        ({"a": [1]}, {"every": 0}, "every=0"),
    ):
        with pytest.raises(ValueError, match=said):
            RetentionCallback(given, **options)
    with pytest.raises(TypeError, match="anchor set 'a' is a generator"):
        RetentionCallback({"a": (k for k in range(3))})
    with pytest.raises(ValueError, match="no set has the metric 'f1' of bounds; there are accuracy, loss"):
        train(check({"f1": 0.1}), tmp_path)
