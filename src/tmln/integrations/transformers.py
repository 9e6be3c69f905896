"""Hugging Face Trainer: replay memory, replaying collator, task boundaries, retention check.

``pip install "tmln[transformers]"``. A task is a call of ``train``::

    continual = Continual(memory=500)
    for task in tasks:
        trainer = Trainer(model, args, train_dataset=task, callbacks=[continual],
                          data_collator=continual.collator(DataCollatorWithPadding(tokenizer)),
                          optimizer_cls_and_kwargs=(tmln.TMLN, {"lr": 0.01}))
        trainer.train()
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tmln.curvature.likelihoods import IGNORED, LogLikelihood
from tmln.integrations.continual_trainer import ContinualTrainer
from tmln.integrations.language_retention import find_texts
from tmln.integrations.memory import TaskMemory, find_text_pads, get_batch_size, has_boundaries, join_batches, unwrapped
from tmln.integrations.retention import AnchorRetention, Values, scores
from tmln.learner.checkpoint import load_file, save_file
from tmln.methods.replay import Reservoir
from tmln.methods.replay.fields import Pad, pick_fields
from tmln.seeds import seed_of
from tmln.writing import writing

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; this needs transformers: pip install "tmln[transformers]"') from error

__all__ = ["Continual", "ContinualTrainer", "EvalForgetting", "ReplayCollator", "RetentionCallback", "unwrapped"]

READINGS = "retention.json"
Measure = Callable[[nn.Module, Iterable[Any]], Mapping[str, float]]


class RetentionCallback(TrainerCallback):  # type: ignore[misc]
    """Callback that measures metrics on anchor sets before, during and after a training.

    ::

        check = RetentionCallback({"general": old_samples}, bounds={"accuracy": 0.02},
        beyond="exit", page="kept.html") Trainer(model, args, train_dataset=new_samples,
        callbacks=[check]).train()

    Args:
        sets: data sets by name, batched by the training's collator or by ``collate``; or data
        loaders.
        bounds: by how much a metric may be worse than before: an accuracy may fall, a loss may
        rise.
        beyond: what to do outside a bound: ``"stop"`` the training, or ``"exit"`` the program as
            well, with a non-zero status after the table was printed and the page written.
        every: steps between readings; by default one reading per epoch.
        measure: ``f(model, batches) -> {name: value}``; by default loss, accuracy and,
            of tokens, perplexity.
        log_likelihood: as in :func:`tmln.diagonal_fisher`.
        collate: makes a batch of a list of samples.
        batch_size: batch size of the anchor sets.
        page: where to write the table as an HTML page.

    "Before" is before the first training that this callback sees; ``retention`` holds all readings.
    """

    def __init__(
        self,
        sets: Mapping[str, Any],
        *,
        bounds: Mapping[str, float] | None = None,
        beyond: Literal["stop", "exit"] = "stop",
        every: int | None = None,
        measure: Measure | None = None,
        log_likelihood: str | LogLikelihood | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        batch_size: int = 32,
        page: str | PathLike[str] | None = None,
    ) -> None:
        if not sets:
            raise ValueError("no anchor set: give RetentionCallback({name: data set, ...})")
        if beyond not in ("stop", "exit"):
            raise ValueError(f"beyond={beyond!r}: 'stop' the training, or 'exit' the program")
        if every is not None and every < 1:
            raise ValueError(f"every={every}: steps from a reading to the next; give 1 or more, or None for epochs")
        for name, data in sets.items():
            if not isinstance(data, DataLoader) and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
                raise TypeError(f"anchor set {name!r} is a {type(data).__name__}; give a data set or a DataLoader")
        self.sets, self.bounds, self.beyond, self.every = dict(sets), dict(bounds or {}), beyond, every
        self.measure: Measure = measure or (lambda model, batches: scores(model, batches, log_likelihood))
        self.collate, self.batch_size, self.page = collate, batch_size, page
        self.retention = AnchorRetention()
        self.broken: list[str] = []  # bounds, in words

    def on_train_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Take the first reading; a resumed training restores that of its beginning."""
        kept = Path(args.output_dir) / f"checkpoint-{state.global_step}" / READINGS
        if state.global_step and not self.retention.readings:
            if not kept.is_file():
                raise FileNotFoundError(f"no {kept}: what the model knew before the training is not known; start anew")
            self.retention = AnchorRetention(**json.loads(kept.read_text(encoding="utf-8")))
        if not self.retention.readings:
            self.retention.add("before", self._read(the))
            found = {metric for values in self.retention.readings[0].values() for metric in values}
            if unknown := [metric for metric in self.bounds if metric not in found]:
                raise ValueError(
                    f"no set has the metric {unknown[0]!r} of bounds; there are {', '.join(sorted(found))}"
                )

    def on_step_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        if self.every is not None and state.global_step % self.every == 0:
            self._note(f"step {state.global_step}", state, control, the)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        if self.every is None:
            self._note(f"epoch {state.epoch:g}", state, control, the)

    def on_save(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Save the readings beside the Trainer's files."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / READINGS
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(vars(self.retention)), encoding="utf-8")

    def on_train_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Take the last reading, print the table, write the page, and exit if a bound is broken."""
        self._note("after", state, control, the)
        print(self.retention)
        if self.page is not None:
            path = Path(self.page)
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.retention.page(self.broken), encoding="utf-8")
        if self.broken and self.beyond == "exit":
            raise SystemExit("forgotten more than is allowed: " + "; ".join(self.broken))

    def _note(self, moment: str, state: Any, control: Any, the: Mapping[str, Any]) -> None:
        self.retention.add(moment, self._read(the))
        self.broken = self.retention.beyond(self.bounds)
        if self.broken:
            control.should_training_stop = True

    def _read(self, the: Mapping[str, Any]) -> dict[str, Values]:
        return {name: dict(self.measure(the["model"], self._batches(data, the))) for name, data in self.sets.items()}

    def _batches(self, data: Any, the: Mapping[str, Any]) -> Iterable[Any]:
        if isinstance(data, DataLoader):
            yield from data
            return
        collate = self.collate or the["train_dataloader"].collate_fn
        replaying: Any = getattr(collate, "data_collator", collate)  # the Trainer's own drops columns around it
        mixing = getattr(replaying, "mixing", None)
        for start in range(0, len(data), self.batch_size):
            rows = [data[k] for k in range(start, min(start + self.batch_size, len(data)))]
            if mixing:
                replaying.mixing = False  # an anchor set is measured without what is replayed
            try:
                batch = collate(rows)
            finally:
                if mixing:
                    replaying.mixing = True
            yield batch


class EvalForgetting(RetentionCallback):
    """Callback that measures, during training, how much less likely texts become.

    ::

        Trainer(model, args, train_dataset=new, callbacks=[EvalForgetting(tokenizer, "general")])

    Args:
        tokenizer: the model's tokenizer.
        texts: the texts, a file of them (``.jsonl`` with ``{"text": ...}``, or paragraphs), or
            ``"general"`` for those that ``tmln retention`` measures.
        max_length: tokens of a text that are read.
        **options: as for :class:`RetentionCallback`: ``every=100``, ``bounds={"loss": 0.1}``.

    Each reading is in the Trainer's log as ``forgetting``: nats per token more than before.
    """

    def __init__(
        self, tokenizer: Any, texts: str | Sequence[str] = "general", *, max_length: int = 256, **options: Any
    ) -> None:
        found = find_texts(texts) if isinstance(texts, str) else list(texts)
        super().__init__({"texts": found}, collate=self._encode, **options)
        self.tokenizer, self.max_length = tokenizer, max_length

    @property
    def forgetting(self) -> float:
        """By how many nats per token the last reading is worse than the first."""
        readings = self.retention.readings
        return readings[-1]["texts"]["loss"] - readings[0]["texts"]["loss"]

    def _encode(self, texts: list[str]) -> dict[str, Tensor]:
        rows = [self.tokenizer(text, truncation=True, max_length=self.max_length)["input_ids"] for text in texts]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, IGNORED)}

    def _note(self, moment: str, state: Any, control: Any, the: Mapping[str, Any]) -> None:
        super()._note(moment, state, control, the)
        state.log_history.append({"forgetting": self.forgetting, "step": state.global_step, "epoch": state.epoch})


FILE = "continual.safetensors"
Collate = Callable[[list[Any]], Any]


class ReplayCollator:
    """Data collator around another one: adds stored samples to its batches.

    The samples added to batch k follow from the seed and k, not from earlier draws: batches are
    made ahead and in other processes, and a resumed training must see the same ones.
    """

    def __init__(self, inner: Collate, owner: Continual) -> None:
        self.inner, self.owner = inner, owner
        self.mixing = False
        self.number = 0  # of the next batch of this training
        self._here = 0  # batches made by this worker

    def __call__(self, features: list[Any]) -> Any:
        batch = self.inner(features)
        if not self.mixing:
            self.owner.warn_unless_called()
            return batch
        batch = pick_fields(batch, self.owner.memory.keep)
        worker = get_worker_info()
        if worker is None:
            number, self.number = self.number, self.number + 1
        else:
            number, self._here = self.number + worker.id + worker.num_workers * self._here, self._here + 1
        old = self.owner.draw(number, get_batch_size(batch))
        return batch if old is None else join_batches(batch, old, self.owner.memory.pad)


class Continual(TrainerCallback):  # type: ignore[misc]
    """Callback for a sequence of tasks, one ``train`` each; the trainer may be new every time.

    Args:
        memory: number of samples to store, or a :class:`tmln.Reservoir`. At the end of a ``train``
            each sample of its data set is offered once, as the collator makes it.
        replay: stored samples of earlier tasks per sample of a batch; 0 for none.
        log_likelihood: as in :func:`tmln.diagonal_fisher`; by default that of the model's labels.
        pad: padding values of fields of different lengths; by default those of tokenizers.
        keep: the fields of batches that the model gets and the memory stores; by default all.
        batch_size: batch size of the pass that computes the Fisher.
        seed: seed of memory and replay.

    With an optimizer without ``consolidate``, only replay is added. The Trainer clips gradients at
    1 unless ``max_grad_norm=0``, also those in the path integral; ``TMLN(clip_norm=1.0)`` does not.
    """

    def __init__(
        self,
        memory: int | Reservoir = 500,
        *,
        replay: float = 1.0,
        log_likelihood: str | LogLikelihood | None = None,
        pad: Pad | None = None,
        keep: Sequence[str] | None = None,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        if replay < 0:
            raise ValueError(f"replay={replay}: samples that join a batch, for each of its own; give 0 or more")
        known = isinstance(memory, Reservoir)
        kept = memory if isinstance(memory, Reservoir) else Reservoir(memory, seed, pad=pad, keep=keep)
        self.task_memory = TaskMemory(kept, log_likelihood, batch_size)
        self.replay, self.seed = replay, seed
        self._guess_pad = pad is None and not known
        self._collator: ReplayCollator | None = None
        self._called = False  # by a Trainer
        self._tasks = 0  # trainings that have ended
        self._batches = 0  # of the training under way

    @property
    def memory(self) -> Reservoir:
        """Return the memory that is replayed: the tasks before this one."""
        return self.task_memory.memory

    def collator(self, inner: Collate) -> ReplayCollator:
        """Return the data collator for the Trainer: ``inner``'s batches with replayed samples."""
        self._collator = ReplayCollator(inner, self)
        return self._collator

    def draw(self, number: int, size: int) -> Any:
        """Return the samples to add to batch ``number`` of this training, or None."""
        count = round(self.replay * size)
        if not count or not len(self.memory):
            return None
        before = self.memory.generator.get_state()
        self.memory.generator.manual_seed(seed_of(self.seed, f"replay {self._tasks} {number}"))
        try:
            return self.memory.sample(count)
        finally:
            self.memory.generator.set_state(before)

    def warn_unless_called(self) -> None:
        """Warn, once, that no Trainer has this callback, while its collator makes batches."""
        if not self._called:
            self._called = True
            warnings.warn(
                "this collator's Continual is not among the callbacks, so nothing is replayed and no task is "
                "consolidated: Trainer(callbacks=[continual], data_collator=continual.collator(...))",
                stacklevel=3,
            )

    def on_init_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        self._called = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Check data, labels, memory fields and optimizer before the first step."""
        self._called = True
        loader, optimizer = the["train_dataloader"], unwrapped(the["optimizer"])
        self._check(args, loader)
        if state.global_step:
            self.load(Path(args.output_dir) / f"checkpoint-{state.global_step}", resumed=True)
        else:
            self._batches = 0
            self.task_memory.hand_over(optimizer, "this Continual", the["model"])
        first = loader.collate_fn([loader.dataset[k] for k in range(min(2, len(loader.dataset)))])
        if not isinstance(first, Mapping):
            raise TypeError(f"the data collator makes a {type(first).__name__}; the Trainer's models take dicts")
        first = pick_fields(first, self.memory.keep)
        if self._guess_pad and not self.memory.seen:
            self.memory.pad = find_text_pads(
                first, getattr(getattr(the["model"], "config", None), "pad_token_id", None)
            )
        if has_boundaries(optimizer):
            self.task_memory.rehearse(the["model"], dict(first))
        copy.deepcopy(self.memory).add(dict(first))  # other fields than before are refused here, not after hours

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Start adding samples: batches of the epoch may be made ahead from here on."""
        assert self._collator is not None
        self._collator.number, self._collator._here, self._collator.mixing = self._batches, 0, True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        assert self._collator is not None
        self._collator.mixing = False

    def on_substep_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        self._batches += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        self._batches += 1

    def on_train_end(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Pass the task boundary: update the memory, consolidate the optimizer."""
        assert self._collator is not None
        self._collator.mixing = False
        if not self._batches:
            return
        loader, optimizer, size = the["train_dataloader"], unwrapped(the["optimizer"]), self.task_memory.batch_size
        data = loader.dataset
        for start in range(0, len(data), size):
            self.task_memory.offer(
                dict(loader.collate_fn([data[k] for k in range(start, min(start + size, len(data)))]))
            )
        model: nn.Module = the["model"]
        self.task_memory.boundary(model, optimizer)
        self.task_memory.note(optimizer, model)
        self._tasks, self._batches = self._tasks + 1, 0

    def on_save(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Save memory and optimizer state beside the Trainer's files."""
        self.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def save(self, folder: str | PathLike[str]) -> None:
        """Save what the next task needs: memory and, between tasks, the optimizer's state."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        between = None if self._batches else self.task_memory.optimizer_state
        notes = {"tasks": self._tasks, "batches": self._batches, "pad": self.memory.pad, "optimizer": between}
        save_file(Path(folder) / FILE, {**self.task_memory.state_dict(), **notes})

    def load(self, folder: str | PathLike[str], *, resumed: bool = False) -> None:
        """Load what :meth:`save` saved; resuming from the output folder does so automatically."""
        path = Path(folder) / FILE
        if resumed and not path.is_file():
            raise FileNotFoundError(
                f"no {path}: the checkpoint was saved without this callback, or is not in output_dir"
            )
        state = load_file(path)
        if self._guess_pad:
            self.memory.pad = dict(state["pad"])
        self.task_memory.load_state_dict(state)
        self.task_memory.optimizer_state = state["optimizer"]
        self._tasks, self._batches = state["tasks"], state["batches"]

    def _check(self, args: Any, loader: Any) -> None:
        if getattr(args, "world_size", 1) > 1:
            raise ValueError(f"Continual keeps one memory, and there are {args.world_size} processes; train in one")
        if self._collator is None:
            raise ValueError("nothing is replayed: give Trainer data_collator=continual.collator(your collator)")
        used = getattr(loader.collate_fn, "data_collator", loader.collate_fn)  # the Trainer's, that drops columns
        if used is not self._collator:
            raise ValueError("the Trainer has another data_collator than the last continual.collator(...) made")
        if isinstance(loader.dataset, IterableDataset):
            raise ValueError(
                "Continual reads the data set again at the task's end; an IterableDataset may be gone then"
            )
        if getattr(args, "dataloader_persistent_workers", False):
            raise ValueError("workers that persist replay an old memory; set dataloader_persistent_workers=False")
