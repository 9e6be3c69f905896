"""Hugging Face's Trainer: a callback that keeps the memory, a collator that replays it, and TMLN as its optimizer.

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
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import IterableDataset, get_worker_info

from tmln.curvature.likelihoods import LogLikelihood
from tmln.integrations.checking import RetentionCallback
from tmln.integrations.keeping import Keeper, consolidates, unwrapped
from tmln.integrations.mixing import mixed, size_of, text_pads
from tmln.learner.checkpoint import load_file, save_file
from tmln.methods.replay import Reservoir
from tmln.methods.replay.fields import Pad
from tmln.seeds import seed_of
from transformers import TrainerCallback

__all__ = ["Continual", "ReplayCollator", "RetentionCallback", "unwrapped"]

FILE = "continual.safetensors"
Collate = Callable[[list[Any]], Any]


class ReplayCollator:
    """A data collator around another: stored samples join what it makes.

    What joins batch number k follows from the seed and k, not from what was drawn before: batches are made ahead of
    the training and in other processes, and a resumed training has to meet the same ones.
    """

    def __init__(self, inner: Collate, owner: Continual) -> None:
        self.inner, self.owner = inner, owner
        self.mixing = False
        self.number = 0  # of the next batch of this training
        self._here = 0  # batches made by this worker

    def __call__(self, features: list[Any]) -> Any:
        batch = self.inner(features)
        if not self.mixing:
            return batch
        worker = get_worker_info()
        if worker is None:
            number, self.number = self.number, self.number + 1
        else:
            number, self._here = self.number + worker.id + worker.num_workers * self._here, self._here + 1
        old = self.owner.drawn(number, size_of(batch))
        return batch if old is None else mixed(batch, old, self.owner.memory.pad)


class Continual(TrainerCallback):  # type: ignore[misc]
    """One task after another, one ``train`` each; trainer and optimizer may be new ones, the callback stays.

    Args:
        memory: how many samples are kept, or a :class:`tmln.Reservoir`. At the end of a ``train`` each sample of its
            data set is offered once, as the collator makes it.
        replay: stored samples of earlier tasks that join a batch, for each of its own; 0: none.
        log_likelihood: as in :func:`tmln.diagonal_fisher`; unless given, what the model does with its labels.
        pad: what fills up fields whose samples differ in length; unless given, those of tokenizers.
        batch_size: of the pass that takes the Fisher.

    Any optimizer will do: one without ``consolidate`` gets the replay alone. The Trainer clips gradients at 1 unless
    ``max_grad_norm=0``, also what the path integral sees; ``TMLN(clip_norm=1.0)`` does not.
    """

    def __init__(
        self,
        memory: int | Reservoir = 500,
        *,
        replay: float = 1.0,
        log_likelihood: str | LogLikelihood | None = None,
        pad: Pad | None = None,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        if replay < 0:
            raise ValueError(f"replay={replay}: samples that join a batch, for each of its own; give 0 or more")
        known = isinstance(memory, Reservoir)
        self.keeper = Keeper(
            memory if isinstance(memory, Reservoir) else Reservoir(memory, seed, pad=pad), log_likelihood, batch_size
        )
        self.replay, self.seed = replay, seed
        self._guess_pad = pad is None and not known
        self._collator: ReplayCollator | None = None
        self._tasks = 0  # trainings that have ended
        self._batches = 0  # of the training under way

    @property
    def memory(self) -> Reservoir:
        """What is replayed: the tasks before this one."""
        return self.keeper.memory

    def collator(self, inner: Collate) -> ReplayCollator:
        """The data collator for the Trainer: ``inner``'s batches, and what is replayed."""
        self._collator = ReplayCollator(inner, self)
        return self._collator

    def drawn(self, number: int, size: int) -> Any:
        """What joins batch ``number`` of this training; None where nothing does."""
        count = round(self.replay * size)
        if not count or not len(self.memory):
            return None
        before = self.memory.generator.get_state()
        self.memory.generator.manual_seed(seed_of(self.seed, f"replay {self._tasks} {number}"))
        try:
            return self.memory.sample(count)
        finally:
            self.memory.generator.set_state(before)

    def on_train_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Before anything moves: the data, the labels, the memory's fields and the optimizer are looked at."""
        loader, optimizer = the["train_dataloader"], unwrapped(the["optimizer"])
        self._check(args, loader)
        if state.global_step:
            self.load(Path(args.output_dir) / f"checkpoint-{state.global_step}", resumed=True)
        else:
            self._batches = 0
            self.keeper.hand_over(optimizer, "this Continual")
        first = loader.collate_fn([loader.dataset[k] for k in range(min(2, len(loader.dataset)))])
        if not isinstance(first, Mapping):
            raise TypeError(f"the data collator makes a {type(first).__name__}; the Trainer's models take dicts")
        if self._guess_pad and not self.memory.seen:
            self.memory.pad = text_pads(first, getattr(getattr(the["model"], "config", None), "pad_token_id", None))
        if consolidates(optimizer):
            self.keeper.rehearse(the["model"], dict(first))
        copy.deepcopy(self.memory).add(dict(first))  # other fields than before are refused here, not after hours

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """The batches of an epoch are made from here on, perhaps ahead of the training."""
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
        """The memory takes the task in, and the optimizer passes its boundary."""
        assert self._collator is not None
        self._collator.mixing = False
        if not self._batches:
            return
        loader, optimizer, size = the["train_dataloader"], unwrapped(the["optimizer"]), self.keeper.batch_size
        data = loader.dataset
        for start in range(0, len(data), size):
            self.keeper.offer(dict(loader.collate_fn([data[k] for k in range(start, min(start + size, len(data)))])))
        model: nn.Module = the["model"]
        self.keeper.boundary(model, optimizer)
        self.keeper.note(optimizer)
        self._tasks, self._batches = self._tasks + 1, 0

    def on_save(self, args: Any, state: Any, control: Any, **the: Any) -> None:
        """Beside the Trainer's own files, which have the weights and the optimizer."""
        self.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def save(self, folder: str | PathLike[str]) -> None:
        """What the next task needs besides the model: the memory and, after a ``train``, the optimizer's state."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        between = None if self._batches else self.keeper.optimizer_state
        notes = {"tasks": self._tasks, "batches": self._batches, "pad": self.memory.pad, "optimizer": between}
        save_file(Path(folder) / FILE, {**self.keeper.state_dict(), **notes})

    def load(self, folder: str | PathLike[str], *, resumed: bool = False) -> None:
        """What :meth:`save` saved. A training that is resumed from its own output folder does so by itself."""
        path = Path(folder) / FILE
        if resumed and not path.is_file():
            raise FileNotFoundError(
                f"no {path}: the checkpoint was saved without this callback, or is not in output_dir"
            )
        state = load_file(path)
        if self._guess_pad:
            self.memory.pad = dict(state["pad"])
        self.keeper.load_state_dict(state)
        self.keeper.optimizer_state = state["optimizer"]
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
