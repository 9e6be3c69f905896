"""Hugging Face's own Trainer with tiny models: classes, tags, causal language models, LoRA."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tmln
from tests.hugging import MODELS, Texts
from tmln.integrations.memory import join_batches, unwrapped
from tmln.integrations.transformers import Continual
from transformers import Trainer, TrainingArguments, default_data_collator

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
COUNT = 8


def samples(name: str, task: int, count: int = COUNT) -> list[Texts]:
    """Of one length in each task, and another in the next."""
    torch.manual_seed(task)
    batch = MODELS[name].draw(count)
    width = 6 - task
    return [
        {key: value[k, :width].clone() if value.dim() == 2 else value[k] for key, value in batch.items()}
        for k in range(count)
    ]


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name].make()


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {"num_train_epochs": 2, "save_strategy": "no", "lr_scheduler_type": "constant"}
    defaults |= {"per_device_train_batch_size": 4, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    return TrainingArguments(str(folder), max_grad_norm=0, seed=1, logging_strategy="no", **(defaults | options))


def trainer(model: Any, data: Any, continual: Continual, folder: Path, kind: Any = tmln.TMLN, **options: Any) -> Any:
    return Trainer(
        model,
        arguments(folder, **options),
        data_collator=continual.collator(default_data_collator),
        train_dataset=data,
        callbacks=[continual],
        optimizer_cls_and_kwargs=(kind, {"lr": 0.01}),
    )


def state_of(model: nn.Module, optimizer: Any) -> list[Tensor]:
    optimizer = unwrapped(optimizer)
    ps = [p for p in model.parameters() if p.requires_grad]
    kept = [value for p in ps for _, value in sorted(optimizer.state[p].items()) if isinstance(value, Tensor)]
    return [*(p.detach().clone() for p in ps), *kept]


@pytest.mark.parametrize("name", ["BERT, classes", "BERT, tags", "GPT-2", "LoRA on Llama"])
def test_two_tasks_with_an_optimizer_made_anew(tmp_path: Path, name: str) -> None:
    model, continual, seen = model_of(name), Continual(memory=6), []
    frozen = [p.detach().clone() for p in model.parameters() if not p.requires_grad]
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])) if module.training else None,
        with_kwargs=True,
    )
    for task in range(2):
        found = trainer(model, samples(name, task), continual, tmp_path)
        found.train()
    assert seen == [4] * 4 + [8] * 4
    assert continual.task_memory.boundaries == 2
    assert continual.memory.seen == 2 * COUNT
    optimizer = unwrapped(found.optimizer)
    assert isinstance(optimizer, tmln.TMLN)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(trained)
    fisher = tmln.diagonal_fisher(model, continual.memory.batches(32))
    for name_, p in fisher.parameters.items():
        assert torch.equal(optimizer.state[p]["fisher"], fisher[name_])
        assert torch.equal(optimizer.state[p]["anchor"], p)
    assert any(float(optimizer.state[p]["sensitivity"].max()) > 0 for p in trained)
    assert all(
        torch.equal(a, b) for a, b in zip(frozen, [p for p in model.parameters() if not p.requires_grad], strict=True)
    )


@pytest.mark.parametrize(
    ("options", "at"),
    [({}, 4), ({}, 6), ({"gradient_accumulation_steps": 2}, 3), ({"dataloader_num_workers": 2}, 4)],
)
def test_resumes_in_the_middle_to_the_bit(tmp_path: Path, options: dict[str, Any], at: int) -> None:
    """In the second task, in the middle of an epoch: batches made ahead are made again. 6: all but the boundary."""
    name = "GPT-2"
    states = []
    for stop in (False, True):
        model, continual = model_of(name), Continual(memory=6)
        trainer(model, samples(name, 0), continual, tmp_path / "first").train()
        folder = tmp_path / f"second-{stop}"
        data, save = samples(name, 1, 12), {"save_strategy": "steps", "save_steps": at, "save_total_limit": 9}
        whole = trainer(model, data, continual, folder, **options, **save)
        whole.train()
        if stop:
            model, continual = model_of(name), Continual(memory=6)
            whole = trainer(model, data, continual, folder, **options)
            whole.train(resume_from_checkpoint=str(folder / f"checkpoint-{at}"))
        states.append([*state_of(model, whole.optimizer), *continual.memory.draw(6).values()])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_the_next_task_in_a_new_process(tmp_path: Path) -> None:
    name, states = "BERT, classes", []
    model, continual = model_of(name), Continual(memory=6)
    trainer(model, samples(name, 0), continual, tmp_path).train()
    continual.save(tmp_path / "kept")
    again, other = Continual(memory=6), model_of(name)
    other.load_state_dict(model.state_dict())
    again.load(tmp_path / "kept")
    for callback, one in ((continual, model), (again, other)):
        second = trainer(one, samples(name, 1), callback, tmp_path)
        second.train()
        states.append(state_of(one, second.optimizer))
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_a_second_adapter_gets_no_shield_of_the_first(tmp_path: Path) -> None:
    name, continual = "LoRA on Llama", Continual(memory=6)
    model: Any = model_of(name)
    trainer(model, samples(name, 0), continual, tmp_path).train()
    model.add_adapter("second", model.peft_config["default"])
    model.set_adapter("second")
    with pytest.raises(ValueError, match=r"default.*now given '[^']*second.*must not get its shield"):
        trainer(model, samples(name, 1), continual, tmp_path).train()
    other = Continual(memory=continual.memory)
    trainer(model, samples(name, 1), other, tmp_path).train()
    assert other.task_memory.boundaries == 1
    assert other.memory.seen == 2 * COUNT


def test_a_collator_without_its_callback_says_so(tmp_path: Path) -> None:
    name, continual = "BERT, classes", Continual(memory=6)
    collator, data = continual.collator(default_data_collator), samples("BERT, classes", 0)
    with pytest.warns(UserWarning, match="not among the callbacks, so nothing is replayed"):
        Trainer(model_of(name), arguments(tmp_path), collator, data).train()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "this collator's")
        trainer(model_of(name), data, Continual(memory=6), tmp_path).evaluate(data)


def test_fields_to_keep_by_name(tmp_path: Path) -> None:
    name, continual = "BERT, classes", Continual(memory=6, keep=("input_ids", "attention_mask", "labels"))

    def collate(rows: list[Any]) -> Any:
        plain = default_data_collator([{k: v for k, v in row.items() if k != "path"} for row in rows])
        return plain | {"path": [row["path"] for row in rows]}

    for task in range(2):
        data = [{**row, "path": f"{task}.txt"} for row in samples(name, task)]
        found = arguments(tmp_path, remove_unused_columns=False)
        Trainer(model_of(name), found, continual.collator(collate), data, callbacks=[continual]).train()
    assert continual.memory.seen == 2 * COUNT
    assert sorted(continual.memory.draw(2)) == ["attention_mask", "input_ids", "labels"]


def test_half_precision_keeps_the_fast_fisher(tmp_path: Path) -> None:
    """Accelerate's forward under autocast made every pass go one by one, or by vmap."""
    name, continual = "BERT, classes", Continual(memory=6)
    model = model_of(name)
    trainer(model, samples(name, 0), continual, tmp_path, bf16=True).train()
    batches = list(continual.memory.batches(6))
    found, again = tmln.diagonal_fisher(model, batches), model_of(name)
    again.load_state_dict(model.state_dict())
    expected = tmln.diagonal_fisher(again, batches)
    assert "_original_forward" in vars(model)
    assert found.strategy == expected.strategy == "hooks"
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_an_optimizer_of_ones_own_goes_on(tmp_path: Path) -> None:
    name, continual = "BERT, classes", Continual(memory=6)
    model = model_of(name)
    optimizer = tmln.TMLN(model.parameters(), lr=0.01)
    for task in range(2):
        collator = continual.collator(default_data_collator)
        data, given = samples(name, task), (optimizer, None)
        Trainer(model, arguments(tmp_path), collator, data, callbacks=[continual], optimizers=given).train()
    assert continual.task_memory.boundaries == 2
    assert any(float(state["sensitivity"].max()) > 0 for state in optimizer.state.values())


def without(data: list[Texts], key: str) -> list[Texts]:
    return [{k: v for k, v in sample.items() if k != key} for sample in data]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (without(samples("BERT, classes", 0), "labels"), {}, "needs one of labels"),
        (samples("BERT, classes", 0), {"log_likelihood": "tokens"}, "own loss reads its labels as 'classes'"),
        (samples("BERT, tags", 0), {}, "does not fit"),
    ],
)
def test_bad_input_before_a_step(tmp_path: Path, data: Any, options: Any, message: str) -> None:
    model, continual = model_of("BERT, classes"), Continual(memory=6, **options)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match=message):
        trainer(model, data, continual, tmp_path).train()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_tags_that_the_model_does_not_have(tmp_path: Path) -> None:
    name, continual = "BERT, tags", Continual(memory=6)
    model, data = model_of(name), samples(name, 0)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(IndexError, match=r"label 9 is out of bounds: BertForTokenClassification has logits for 3"):
        trainer(
            model, [{**one, "labels": torch.full_like(one["labels"], 9)} for one in data], continual, tmp_path
        ).train()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_other_fields_than_the_memorys(tmp_path: Path) -> None:
    name, continual = "BERT, classes", Continual(memory=6)
    model = model_of(name)
    trainer(model, samples(name, 0), continual, tmp_path).train()
    before = [p.detach().clone() for p in model.parameters()]
    more = [{**one, "token_type_ids": torch.zeros_like(one["input_ids"])} for one in samples(name, 1)]
    with pytest.raises(ValueError, match=r"samples have the fields .*token_type_ids"):
        trainer(model, more, continual, tmp_path).train()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_what_would_go_wrong_later_is_refused_at_once(tmp_path: Path) -> None:
    name = "BERT, classes"
    model, continual = model_of(name), Continual(memory=6)
    trainer(model, samples(name, 0), continual, tmp_path).train()
    with pytest.raises(ValueError, match="pad names 'attention_mask', no field of the batch"):
        trainer(model, without(samples(name, 1), "attention_mask"), continual, tmp_path).train()
    with pytest.raises(ValueError, match="now given AdamW"):
        trainer(model, samples(name, 1), continual, tmp_path, torch.optim.AdamW).train()
    bare = trainer(model, samples(name, 1), continual, tmp_path)
    bare.data_collator = default_data_collator
    with pytest.raises(ValueError, match="another data_collator"):
        bare.train()
    with pytest.raises(ValueError, match="replay=-1"):
        Continual(replay=-1)


def test_sequences_are_filled_up() -> None:
    new = {"input_ids": torch.ones(1, 2, 1, dtype=torch.long), "labels": torch.tensor([1])}
    old = {"input_ids": torch.ones(1, 3, 1, dtype=torch.long), "labels": torch.tensor([0])}
    both = join_batches(new, old, {"input_ids": 7})
    assert both["input_ids"][..., 0].tolist() == [[1, 1, 7], [1, 1, 1]]
    assert both["labels"].tolist() == [1, 0]
    for odd, said in (
        ({**old, "more": torch.zeros(1)}, "a batch has the fields"),
        ({**old, "labels": torch.zeros(1)}, "field 'labels'"),
    ):
        with pytest.raises(ValueError, match=said):
            join_batches(new, odd, {"input_ids": 7})
