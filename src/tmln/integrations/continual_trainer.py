"""Hugging Face's Trainer with replay of general or earlier data, a penalty, and a step of tmln."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from tmln.curvature import diagonal_fisher
from tmln.distributed.process_group import ranks_of
from tmln.integrations.memory import carry_state, find_text_pads, has_boundaries, move_batch, unwrapped
from tmln.integrations.olora import OLoRA, OLoRASettings, activate_pairs, add_pair
from tmln.integrations.texts import longest_input, make_features, read_rows
from tmln.learner.checkpoint import load_file, save_file
from tmln.methods import Penalty, Step, TaskContext
from tmln.methods.recipes import Recipe, make_components
from tmln.methods.replay import Reservoir
from tmln.methods.steps.tmln import TMLNStep
from tmln.seeds import seed_of

try:
    from transformers import Trainer, TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; this needs transformers: pip install "tmln[transformers]"') from error

FILE = "continual_trainer.safetensors"
BATCH = 16  # texts in a pass at a boundary


class Mixture(Dataset[Any]):
    """New samples, and as many replayed ones that these are the share ``ratio`` of all.

    Every epoch replays other samples, each once before any comes twice.

    >>> mixed = Mixture(["new"] * 19, ["old"], ratio=0.05)
    >>> len(mixed), mixed[19]
    (20, 'old')
    """

    def __init__(self, new: Any, old: Sequence[Any], ratio: float, seed: int = 0) -> None:
        self.new, self.old, self.seed = new, old, seed
        self.count = round(len(new) * ratio / (1 - ratio)) if len(old) else 0
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the samples that this epoch replays; data loaders call it."""
        if self.count:
            generator = torch.Generator().manual_seed(seed_of(self.seed, "replay"))
            start, size = epoch * self.count, len(self.old)
            rounds = range(-(-(start + self.count) // size))
            order = torch.cat([torch.randperm(size, generator=generator) for _ in rounds])
            self.drawn = order[start : start + self.count].tolist()

    def __len__(self) -> int:
        return len(self.new) + self.count

    def __getitem__(self, index: int) -> Any:
        known = len(self.new)
        return self.new[index] if index < known else self.old[self.drawn[index - known]]


class TextContext(TaskContext):
    """A task whose batches are those that the model takes, as a data collator makes them."""

    def batches(self, memory: Any = None) -> Iterator[Any]:
        return self.samples()

    def rank_batches(self, memory: Any = None) -> Iterator[Any]:
        return (batch for k, batch in enumerate(self.samples()) if k % self.ranks.size == self.ranks.rank)


class ContinualTrainer(Trainer):  # type: ignore[misc]
    """Hugging Face's Trainer that replays, and protects what the model knew; a task is a ``train``.

    ::

        trainer = ContinualTrainer(model, args, train_dataset=new, processing_class=tokenizer,
                                   replay="general.jsonl", replay_ratio=0.05, step="tmln")
        trainer.train()

    Args:
        *args: as for ``transformers.Trainer``.
        replay: what is replayed: a file of texts (``.jsonl`` with ``{"text": ...}``, or
            paragraphs), a data set like the training's, or a :class:`tmln.Reservoir` that gets each
            task's samples at its end.
        replay_ratio: the share of replayed samples among all that are trained on.
        penalty: ``"ewc"``, ``"si"``, ``"mas"``, ``"rwalk"``, ``"ewc++"``, ``"olora"`` (see
            :mod:`tmln.integrations.olora`), or ``"none"``.
        step: ``"tmln"`` (on Adam's direction, unless ``step.base`` says otherwise), ``"mofo"``,
            ``"upgd"``, ``"sgd"``, ``"adamw"``; by default the optimizer of the Trainer's arguments.
        settings: of penalty and step: ``{"penalty.strength": 100, "step.damping": 1e-3}``.
        previous: the trainer of the task before, or its output folder.
        fisher_samples: how many samples a boundary measures the Fisher on.
        **kwargs: as for ``transformers.Trainer``.

    Before the first task, data to replay are what the model shall keep: the boundary of a task that
    they were is passed, so that TMLN, EWC and MAS protect from the beginning. Learning rate and
    weight decay are the Trainer's, also of our steps. Only trainable parameters have a state.
    """

    def __init__(
        self,
        *args: Any,
        replay: str | PathLike[str] | Sequence[Any] | Reservoir | None = None,
        replay_ratio: float = 0.05,
        penalty: str = "none",
        step: str | None = None,
        settings: Mapping[str, Any] | None = None,
        previous: ContinualTrainer | str | PathLike[str] | None = None,
        fisher_samples: int = 500,
        **kwargs: Any,
    ) -> None:
        if not 0 <= replay_ratio < 1:
            raise ValueError(f"replay_ratio={replay_ratio}: the share of replayed samples; give 0.05 for one in twenty")
        if fisher_samples < 1:
            raise ValueError(f"fisher_samples={fisher_samples}: samples of a boundary; give 1 or more")
        super().__init__(*args, **kwargs)
        self.train_dataset: Any
        self.optimizer: Any
        self.replay, self.replay_ratio, self.fisher_samples = replay, replay_ratio, fisher_samples
        self.penalty_name, self.step_name = penalty, step
        self.seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        self.tasks = 0  # boundaries passed
        self._olora, self._settings = penalty == "olora", dict(settings or {})
        self._penalty: Penalty[Any] | None = None
        self._step: Step[Any] | None = None
        self._state = None if previous is None else self._read_previous(previous)
        if self._state is not None and self._state["memory"] is not None and isinstance(replay, Reservoir):
            replay.pad = dict(self._state["pad"])
            replay.load_state_dict(self._state["memory"])
        if self.args.fp16 or self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                "ContinualTrainer takes bf16 or full precision without FSDP and DeepSpeed, which scale or cut gradients"
            )
        if self._olora and not hasattr(self.model, "peft_config"):
            raise ValueError("penalty 'olora' needs LoRA adapters: model = peft.get_peft_model(model, LoraConfig(...))")
        if self._olora and previous is not None:
            add_pair(self.model)
        self.recipe = self._make_recipe(penalty, step)
        self.add_callback(_Boundaries(self))

    def get_train_dataloader(self) -> Any:
        """Return the Trainer's loader over new and replayed samples."""
        own = self.train_dataset
        if self.replay is None or not self.replay_ratio or own is None:
            return super().get_train_dataloader()
        if not hasattr(own, "__len__"):
            raise ValueError("replay_ratio is a share of a data set of known length; give one with len()")
        self.train_dataset = Mixture(own, self.read_replay(), self.replay_ratio, self.seed)
        try:
            return super().get_train_dataloader()
        finally:
            self.train_dataset = own

    def create_optimizer(self, model: Any = None) -> Any:
        """Return the optimizer of the step that was named, or the Trainer's own."""
        if self.optimizer is not None:
            return self.optimizer
        if self._olora:
            activate_pairs(self.model)  # a Trainer that resumes leaves one of them active
        if self.step_name is not None:
            self._step = self._make_parts()["step"]
            self.optimizer = self._step.optimizer
        return super().create_optimizer(model)

    def read_replay(self) -> Sequence[Any]:
        """Return the samples to replay, with the fields of the training's."""
        like = self.train_dataset[0]
        if not isinstance(like, Mapping):
            raise TypeError(f"a training sample is a {type(like).__name__}; replay needs dicts")
        if isinstance(self.replay, Reservoir):
            batches = self.replay.batches(1) if len(self.replay) else ()
            rows: Any = [{key: value[0] for key, value in batch.items()} for batch in batches]
        elif isinstance(self.replay, (str, PathLike)):
            rows = read_rows(self.replay)
        else:
            rows = self.replay
            if not hasattr(rows, "__len__") or not hasattr(rows, "__getitem__"):
                raise TypeError(f"replay is a {type(rows).__name__}; give a file, a data set or a Reservoir")
            if len(rows) and set(like) == set(rows[0]):
                return rows  # type: ignore[no-any-return]
            rows = [rows[k] for k in range(len(rows))]
        return make_features(rows, like, self.processing_class, longest_input(self.model))

    def _make_recipe(self, penalty: str, step: str | None) -> Recipe:
        recipe = Recipe().with_component("step", step or "adamw")
        own = {key: value for key, value in self._settings.items() if not (self._olora and key.startswith("penalty."))}
        if step is None and any(key.startswith("step.") for key in own):
            raise ValueError(f"settings {', '.join(own)}: the optimizer is the Trainer's; name a step to set them")
        if step == "tmln":
            own = {"step.base": "adam", **own}
        if step is not None and self.args.weight_decay:
            own = {"step.weight_decay": self.args.weight_decay, **own}
        if not self._olora:
            recipe = recipe.with_component("penalty", penalty)
        recipe = recipe.with_settings(own)
        kind: Any = recipe.resolve("step")[0]
        usual = (Step, TMLNStep)
        if all(kind.step is not one.step or kind.before_forward is not one.before_forward for one in usual):
            raise ValueError(
                f"step {step!r} passes a batch in its own manner, and the Trainer's loop passes it once; "
                "choose tmln, mofo, upgd, sgd or adamw"
            )
        kind = recipe.resolve("penalty")[0]
        if kind.loss is not Penalty.loss:
            raise ValueError(f"penalty {penalty!r} compares classes; choose ewc, ewc++, si, mas, rwalk or olora")
        return recipe

    def _make_parts(self) -> dict[str, Any]:
        return make_components(self.recipe, self.model, self.args.learning_rate, self.seed)

    def _read_previous(self, previous: ContinualTrainer | str | PathLike[str]) -> dict[str, Any]:
        folder = Path(previous.args.output_dir if isinstance(previous, ContinualTrainer) else previous)
        if not (folder / FILE).is_file():
            raise FileNotFoundError(f"no {folder / FILE}: previous is a trainer that has trained, or its output_dir")
        return load_file(folder / FILE)


class _Boundaries(TrainerCallback):  # type: ignore[misc]
    """What a :class:`ContinualTrainer` does around the Trainer's steps."""

    def __init__(self, trainer: ContinualTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Build the penalty, restore what is known, and pass the boundary of what is replayed."""
        trainer = self.trainer
        if trainer._olora and trainer.tasks and not state.global_step and trainer._state is None:
            raise ValueError("O-LoRA has a pair for each task: make a new trainer with previous=this one")
        self.optimizer: Any = unwrapped(the["optimizer"])
        self.collate = the["train_dataloader"].collate_fn  # the Trainer's, that drops columns
        self.step = trainer._step if trainer.step_name is not None else None
        if trainer._penalty is None or trainer._olora:
            trainer._penalty = (
                OLoRA(OLoRASettings(**_penalty_settings(trainer._settings)), trainer.model)
                if trainer._olora
                else trainer._make_parts()["penalty"]
            )
        self.penalty = trainer._penalty
        if state.global_step:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE
            if not path.is_file():
                raise FileNotFoundError(f"no {path}: the checkpoint is not of a ContinualTrainer, or not in output_dir")
            self._restore(load_file(path), resumed=True)
            return
        if trainer._state is not None:
            self._restore(trainer._state, resumed=False)
            trainer._state = None
        self.rate = 0.0 if self.step is None else args.learning_rate * self.step.lr_factor(self.step.settings)
        if not trainer.tasks and trainer.replay is not None and self._measures():
            rows = trainer.read_replay()
            if len(rows):
                self._begin(rows)
                self._pass_first_boundary(rows)
        self._begin(trainer.train_dataset)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Add the penalty's gradient to the task's, which is accumulated and clipped by now."""
        if self.step is not None:
            self.penalty.set_effective_lr(self.step.effective_lr)
            if self._traces:
                self.step.after_backward()
        else:
            self.penalty.set_effective_lr(float(self.optimizer.param_groups[0]["lr"]))
        self.penalty.after_backward()
        self.penalty.add_gradient()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        self.penalty.after_step()
        if self.step is not None and self._traces:
            self.step.after_update()

    def on_save(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Save what the Trainer does not know beside its files."""
        if args.should_save:
            self._save(Path(args.output_dir) / f"checkpoint-{state.global_step}", between=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Pass the task's boundary: memory, penalty, step; save what the next task needs."""
        trainer = self.trainer
        if not state.global_step:
            return
        data: Any = trainer.train_dataset
        if isinstance(trainer.replay, Reservoir):
            self._offer(trainer.replay, data)
        if self._measures():
            if trainer.replay is not None:
                old = trainer.read_replay()
                data = old if isinstance(trainer.replay, Reservoir) else Mixture(data, old, trainer.replay_ratio)
            self._pass_boundary(data)
        else:
            trainer.tasks += 1
        if args.should_save:
            self._save(Path(args.output_dir), between=True)
        trainer.accelerator.wait_for_everyone()

    @property
    def _traces(self) -> bool:
        return self.step is not None and self.step.tracks_path and self._pulls()

    def _pulls(self) -> bool:
        return self.trainer.penalty_name != "none"

    def _measures(self) -> bool:
        """Whether boundaries of the components need samples."""
        return (self._pulls() and not self.trainer._olora) or (self.step is not None and self.step.needs_boundary)

    def _context(self, data: Any) -> TextContext:
        trainer = self.trainer
        size = min(len(data), trainer.fisher_samples)
        generator = torch.Generator().manual_seed(seed_of(trainer.seed, f"boundary {trainer.tasks}"))
        rows = torch.randperm(len(data), generator=generator)[:size].tolist()
        return TextContext(
            trainer.tasks, trainer.model, (), (), self.rate,
            lambda: self._collate(data, rows), lambda x: x, BATCH, ranks_of(None),
        )  # fmt: skip

    def _collate(self, data: Any, rows: Sequence[int]) -> Iterator[Any]:
        for start in range(0, len(rows), BATCH):
            batch = self.collate([data[k] for k in rows[start : start + BATCH]])
            yield move_batch(dict(batch), self.trainer.args.device)

    def _begin(self, data: Any) -> None:
        context = self._context(data)
        for part in (self.penalty, self.step):
            if part is not None:
                part.begin(context)

    def _pass_first_boundary(self, data: Any) -> None:
        """Pass the boundary before the first step, where TMLN has F but no path to score yet."""
        context = self._context(data)
        self.penalty.end(context)
        if isinstance(self.step, TMLNStep) and self.step.settings.geometry != "euclidean":
            self.step.optimizer.refresh(diagonal_fisher(context.model, context.rank_batches(), progress=False))
        self.trainer.tasks += 1

    def _pass_boundary(self, data: Any) -> None:
        context = self._context(data)
        for part in (self.penalty, self.step):
            if part is not None:
                part.end(context)
        self.trainer.tasks += 1

    def _offer(self, memory: Reservoir, data: Any) -> None:
        """Offer each sample of the task to the memory once; all processes draw the same."""
        for batch in self._collate(data, range(len(data))):
            if not memory.seen and not memory.pad:
                config = getattr(self.trainer.model, "config", None)
                memory.pad = find_text_pads(batch, getattr(config, "pad_token_id", None))
            memory.add(move_batch(batch, "cpu"))

    def _names(self) -> list[str]:
        return [name for name, p in self.trainer.model.named_parameters() if p.requires_grad]

    def _save(self, folder: Path, *, between: bool) -> None:
        trainer = self.trainer
        found: dict[str, Any] = {"tasks": trainer.tasks, "names": self._names(), "rate": self.rate}
        found["penalty"], found["penalty_name"] = self.penalty.state_dict(), trainer.penalty_name
        memory = trainer.replay if isinstance(trainer.replay, Reservoir) else None
        found["seen"], found["pad"] = (0, {}) if memory is None else (memory.seen, dict(memory.pad))
        found["memory"] = memory.state_dict() if between and memory is not None else None
        found["optimizer"] = self.optimizer.state_dict() if between and has_boundaries(self.optimizer) else None
        found["extra"] = {} if self.step is None else {"steps": getattr(self.step, "steps", 0)}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(folder / FILE, found)

    def _restore(self, state: Mapping[str, Any], *, resumed: bool) -> None:
        trainer = self.trainer
        if state["penalty_name"] != trainer.penalty_name:
            raise ValueError(
                f"the state is of penalty {state['penalty_name']!r}, and this trainer's is {trainer.penalty_name!r}; "
                "give both the same, or begin without previous="
            )
        if not trainer._olora and state["names"] != self._names():
            raise ValueError(
                "the task before trained other parameters (another adapter?), whose protection this model cannot "
                "take over; train the same ones, or begin without previous="
            )
        trainer.tasks, self.rate = state["tasks"], state["rate"]
        if not trainer._olora:
            self.penalty.load_state_dict(state["penalty"])
        if isinstance(trainer.replay, Reservoir) and trainer.replay.seen != state["seen"]:
            raise ValueError(
                f"the memory has seen {trainer.replay.seen} samples, and had seen {state['seen']} when the checkpoint "
                "was saved: give the previous= of then, which restores it"
            )
        if state["optimizer"] is not None and not resumed:
            carry_state(self.optimizer, state["optimizer"], "the task before")
        if self.step is not None and "steps" in state["extra"] and hasattr(self.step, "steps"):
            self.step.steps = state["extra"]["steps"]


def _penalty_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("penalty."): value for key, value in settings.items() if key.startswith("penalty.")}
