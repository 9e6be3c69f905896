"""ContinualTrainer: replay at a ratio, penalties and steps, resume, tasks in a row, two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tmln
from tests.hugging import MODELS, Texts
from tmln.integrations.continual_trainer import ContinualTrainer, Mixture
from tmln.integrations.memory import unwrapped
from transformers import TrainingArguments

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
ROOT = Path(__file__).parents[2]
Sample = dict[str, list[int]]


def samples(seed: int, count: int = 12, low: int = 3, high: int = 12) -> list[Sample]:
    """Texts of six tokens, of words from ``low`` to ``high``."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(low, high, (count, 6), generator=generator).tolist()
    return [{"input_ids": row, "attention_mask": [1] * 6, "labels": row} for row in ids]


def collate(rows: list[Sample]) -> Texts:
    return {key: torch.tensor([list(row[key]) for row in rows]) for key in rows[0]}


def model_of(name: str = "GPT-2") -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name].make()


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {"num_train_epochs": 2, "save_strategy": "no", "lr_scheduler_type": "constant"}
    defaults |= {"per_device_train_batch_size": 4, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    defaults |= {"learning_rate": 0.01, "max_grad_norm": 0.0, "seed": 1, "logging_strategy": "no"}
    return TrainingArguments(str(folder), **(defaults | options))


def trainer(model: Any, folder: Path, data: Any = None, options: dict[str, Any] | None = None, **own: Any) -> Any:
    data = samples(1) if data is None else data
    return ContinualTrainer(
        model, arguments(folder, **(options or {})), data_collator=collate, train_dataset=data, **own
    )


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters() if p.requires_grad]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_mixture_by_hand() -> None:
    mixed = Mixture(list(range(6)), ["a", "b", "c"], ratio=0.25)
    assert len(mixed) == 8  # 6 / 8 are new
    seen = [mixed[6], mixed[7]]
    mixed.set_epoch(1)
    seen += [mixed[6], mixed[7]]
    assert [mixed[k] for k in range(6)] == list(range(6))
    assert sorted(seen[:3]) == ["a", "b", "c"]  # each once before any comes twice
    assert len(Mixture([1, 2], [], ratio=0.5)) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_the_model_sees_the_share(tmp_path: Path, workers: int) -> None:
    """Replayed words are 12 and above."""
    model, seen = model_of(), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].clone()) if module.training else None,
        with_kwargs=True,
    )
    old = samples(5, 30, 12, 20)
    trainer(model, tmp_path, replay=old, replay_ratio=0.25, options={"dataloader_num_workers": workers}).train()
    texts = torch.cat(seen)
    assert len(texts) == 2 * 16  # 12 new and 4 replayed, for two epochs
    replayed = texts[texts[:, 0] >= 12]
    assert len(replayed) == 8
    assert len({tuple(row) for row in replayed.tolist()}) == 8  # others in the second epoch


def test_texts_of_a_file(tmp_path: Path) -> None:
    class Tokenizer:
        def __call__(self, text: str, truncation: bool, max_length: int) -> dict[str, list[int]]:
            return {"input_ids": [3 + ord(c) % 5 for c in text][:max_length]}

    file = tmp_path / "general.jsonl"
    file.write_text('{"text": "abc"}\n\n{"input_ids": [5, 6]}\n', encoding="utf-8")
    one = trainer(model_of(), tmp_path, replay=file)
    one.processing_class = Tokenizer()
    ids = [3 + ord(c) % 5 for c in "abc"]
    assert one.read_replay()[0] == {"input_ids": ids, "attention_mask": [1, 1, 1], "labels": ids}
    assert one.read_replay()[1]["labels"] == [5, 6]
    file.write_text('{"words": 3}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"input_ids.*words"):
        one.read_replay()


def test_ewc_with_accumulation_equals_a_loop_of_its_own(tmp_path: Path) -> None:
    """SGD on loss + (lambda/2) sum F (theta - theta*)^2, F of what is replayed at the first weights."""
    old, new, strength, rate = samples(5), samples(1, 8), 3.0, 0.1
    model, own = model_of("Llama"), model_of("Llama")  # without dropout
    options = {"gradient_accumulation_steps": 2, "max_steps": 3, "learning_rate": rate}
    one = trainer(
        model, tmp_path, new, options, replay=old, replay_ratio=0.0, penalty="ewc", step="sgd",
        settings={"penalty.strength": strength},
    )  # fmt: skip
    one.train()
    fisher = tmln.diagonal_fisher(own, [collate(old)])
    anchor = {name: p.detach().clone() for name, p in own.named_parameters()}
    for _ in range(3):  # each step takes all eight texts
        loss: Tensor = own(**collate(new)).loss
        pull = [(fisher[name] * (p - anchor[name]).square()).sum() for name, p in own.named_parameters()]
        own.zero_grad()
        (loss + strength / 2 * torch.stack(pull).sum()).backward()
        with torch.no_grad():
            for p in own.parameters():
                assert p.grad is not None
                p.sub_(p.grad, alpha=rate)
    for (name, p), q in zip(own.named_parameters(), model.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-5), name
    assert one.tasks == 2


def test_tmln_has_the_fisher_of_what_is_replayed_from_the_first_step(tmp_path: Path) -> None:
    """LoRA: only its parameters have a state, of their own size."""
    model, old = model_of("LoRA on Llama"), samples(5)
    trained = {p for p in model.parameters() if p.requires_grad}
    expected = tmln.diagonal_fisher(model, [collate(old)])
    one = trainer(model, tmp_path, options={"max_steps": 1, "learning_rate": 0.0}, replay=old, step="tmln")
    found: dict[str, Tensor] = {}

    def look(optimizer: Any, *rest: Any) -> None:
        found.update({name: optimizer.state[p]["fisher"].clone() for name, p in expected.parameters.items()})

    one.create_optimizer().register_step_pre_hook(look)
    one.train()
    assert found.keys() == expected.parameters.keys()
    assert all(torch.allclose(found[name], expected[name], rtol=1e-4) for name in found)
    state = unwrapped(one.optimizer).state
    assert set(state) == trained
    assert all(
        value.shape == p.shape
        for p in trained
        for value in state[p].values()
        if isinstance(value, Tensor) and value.dim()
    )


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ({"step": "tmln", "replay_ratio": 0.2}, {}),
        ({"step": "tmln", "penalty": "si"}, {"gradient_accumulation_steps": 2}),
        ({"step": "mofo", "penalty": "ewc"}, {"bf16": True}),
        ({"penalty": "rwalk"}, {"lr_scheduler_type": "linear", "dataloader_num_workers": 2}),
        ({"step": "tmln", "settings": {"step.base": "sgd", "step.damping": 0.1}}, {"bf16": True}),
    ],
)
def test_resumes_to_the_bit(tmp_path: Path, own: dict[str, Any], options: dict[str, Any]) -> None:
    own, found = {"replay": samples(5), **own}, []
    for resume in (False, True):
        model = model_of()
        one = trainer(model, tmp_path, options={"save_strategy": "steps", "save_steps": 2, **options}, **own)
        one.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2") if resume else None)
        state = unwrapped(one.optimizer).state
        kept = [v for p in model.parameters() for _, v in sorted(state[p].items()) if isinstance(v, Tensor)]
        found.append([*weights(model), *kept])
    assert same(*found)


@pytest.mark.parametrize(
    "own", [{"step": "tmln"}, {"penalty": "ewc"}, {"penalty": "mas"}, {"penalty": "ewc++"}, {"step": "upgd"}]
)
def test_the_next_task_by_a_folder(tmp_path: Path, own: dict[str, Any]) -> None:
    """The trainer of before, its folder, and the same trainer once more: the same second task, protected."""
    found = []
    for how in ("trainer", "folder", "unprotected"):
        model, memory = model_of(), tmln.Reservoir(6)
        first = trainer(model, tmp_path / "1", replay=memory, replay_ratio=0.3, **own)
        first.train()
        assert memory.seen == 12
        previous = {"trainer": first, "folder": tmp_path / "1", "unprotected": None}[how]
        memory = memory if how == "trainer" else tmln.Reservoir(6)
        second = trainer(model, tmp_path / "2", samples(2), replay=memory, replay_ratio=0.3, previous=previous, **own)
        second.train()
        assert second.tasks == (1 if how == "unprotected" else 2)
        found.append(weights(model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_one_trainer_for_two_tasks(tmp_path: Path) -> None:
    memory = tmln.Reservoir(50)
    one = trainer(model_of(), tmp_path, step="tmln", replay=memory)
    one.train()
    anchor = {p: unwrapped(one.optimizer).state[p]["anchor"].clone() for p in one.model.parameters()}
    one.train_dataset = samples(2)
    one.train()
    assert one.tasks == 2
    assert memory.seen == 24
    state = unwrapped(one.optimizer).state
    assert any(not torch.equal(state[p]["anchor"], value) for p, value in anchor.items())
    assert any(float(state[p]["sensitivity"].max()) > 0 for p in anchor)


@pytest.mark.parametrize(
    ("own", "error", "message"),
    [
        ({"replay_ratio": 1.0}, ValueError, "replay_ratio=1.0"),
        ({"step": "sam"}, ValueError, "sam"),
        ({"step": "tmnl"}, ValueError, "tmln"),
        ({"penalty": "lwf"}, ValueError, "lwf"),
        ({"penalty": "olora"}, ValueError, "LoraConfig"),
        ({"settings": {"step.damping": 1.0}}, ValueError, "name a step"),
        ({"previous": "nowhere"}, FileNotFoundError, "nowhere"),
        ({"replay": 3}, TypeError, "int"),
    ],
)
def test_bad_input_before_a_step(tmp_path: Path, own: dict[str, Any], error: type[Exception], message: str) -> None:
    model = model_of()
    before = weights(model)
    with pytest.raises(error, match=message):
        trainer(model, tmp_path, **own).train()
    assert same(before, weights(model))


def test_another_adapter_gets_no_protection(tmp_path: Path) -> None:
    trainer(model_of(), tmp_path, step="tmln").train()
    with pytest.raises(ValueError, match="other parameters"):
        trainer(model_of("LoRA on GPT-2"), tmp_path, step="tmln", previous=tmp_path).train()
    with pytest.raises(ValueError, match="penalty 'none'"):
        trainer(model_of(), tmp_path, penalty="ewc", previous=tmp_path).train()


SCRIPT = """
import sys, torch
from pathlib import Path
from tests.integrations.test_continual_trainer import arguments, model_of, samples, trainer, weights
folder, ranks = Path(sys.argv[1]), int(sys.argv[2])
model = model_of("Llama")  # without dropout
options = {"gradient_accumulation_steps": 2 // ranks, "per_device_train_batch_size": 10}  # 20 texts: all in a step
one = trainer(model, folder / "out", samples(1, 16), options, replay=samples(5, 4), replay_ratio=0.2,
              step="tmln", penalty="ewc")
one.train()
assert one.args.world_size == ranks, one.args.world_size
torch.save([weights(model), one.tasks], folder / f"{ranks}-{one.args.process_index}.pt")
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Two processes of ten texts are one with two batches of ten: weights, Fisher and boundaries."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    for ranks, command in ((1, [sys.executable]), (2, launch)):
        done = subprocess.run(
            [*command, str(script), str(tmp_path), str(ranks)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    one, first, second = (torch.load(tmp_path / name) for name in ("1-0.pt", "2-0.pt", "2-1.pt"))
    assert one[1] == first[1] == second[1] == 2
    assert same(first[0], second[0])
    start = weights(model_of("Llama"))
    moved = max(float((a - b).abs().max()) for a, b in zip(one[0], start, strict=True))
    apart = max(float((a - b).abs().max()) for a, b in zip(one[0], first[0], strict=True))
    assert apart < 0.01 * moved
