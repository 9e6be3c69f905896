"""Lightning: a callback with a replay memory and the task boundaries of TMLN.

``pip install "tmln[lightning]"``. A task is a call of ``fit``::

    continual = Continual(memory=500)
    for task in tasks:
        Trainer(max_epochs=5, callbacks=[continual]).fit(model, task)
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from tmln.curvature.batches import logits_of, read_batch
from tmln.curvature.likelihoods import IGNORED, Likelihood, LogLikelihood
from tmln.integrations.memory import TaskMemory, get_batch_size, has_boundaries, join_batches, move_batch, unwrapped
from tmln.methods.replay import Reservoir
from tmln.methods.replay.fields import Pad, pick_fields

try:
    import lightning.pytorch as pl
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; this integration needs Lightning: pip install "tmln[lightning]"') from error


class Continual(pl.Callback):
    """Callback for a sequence of tasks, one ``fit`` each; the trainer may be new every time.

    Args:
        memory: number of samples to store, or a :class:`tmln.Reservoir`. Samples are stored as the
            model sees them, each once (in the first epoch), on the CPU.
        replay: stored samples of earlier tasks per sample of a batch; 0 for none.
        every: additional boundary after this many optimizer steps, for streams without tasks.
        log_likelihood: as in :func:`tmln.diagonal_fisher`, of ``module(*inputs)``: the batch
            without its last field, which is the target. A name is compared with the first loss.
        pad: as in :class:`tmln.Reservoir`, for sequences of different lengths.
        keep: the fields of dict batches that ``training_step`` gets and the memory stores; by
            default all.
        batch_size: batch size of the pass that computes the Fisher.
        seed: seed of the replay memory.

    Lightning makes a new optimizer in every ``fit``; it gets the state of the last one and keeps
    its own options. With an optimizer without ``consolidate``, only replay is added.
    Trainer(gradient_clip_val=...) also clips the gradients in the path integral;
    ``TMLN(clip_norm=...)`` does not.
    """

    def __init__(
        self,
        memory: int | Reservoir = 500,
        *,
        replay: float = 1.0,
        every: int | None = None,
        log_likelihood: str | LogLikelihood | None = None,
        pad: Pad | None = None,
        keep: Sequence[str] | None = None,
        batch_size: int = 128,
        seed: int = 0,
    ) -> None:
        if replay < 0:
            raise ValueError(f"replay={replay}: samples that join a batch, for each of its own; give 0 or more")
        if every is not None and every < 1:
            raise ValueError(f"every={every}: optimizer steps from a boundary to the next; give 1 or more, or None")
        kept = memory if isinstance(memory, Reservoir) else Reservoir(memory, seed, pad=pad, keep=keep)
        self.task_memory = TaskMemory(kept, log_likelihood, batch_size)
        self.replay, self.every = replay, every
        self._named = log_likelihood if isinstance(log_likelihood, str) else None
        self._first_epoch: int | None = None  # of the task under way
        self._boundary_at = 0  # optimizer steps in all at the last boundary
        self._rehearsed = False
        self._target: Any = None
        self._heard: Any = None  # the first output of a fit, to compare its loss with
        self._hook: Any = None
        self._unused: list[str] = ["this Continual was never given to a Trainer that fits: callbacks=[continual]"]
        weakref.finalize(self, _warn_of_disuse, self._unused)

    @property
    def memory(self) -> Reservoir:
        """Return the memory that is replayed: the tasks before this one."""
        return self.task_memory.memory

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check processes and optimizers, and give a new optimizer its state."""
        if trainer.world_size > 1:
            raise ValueError(f"Continual keeps one memory, and there are {trainer.world_size} processes; use devices=1")
        self._unused.clear()
        optimizer = self._optimizer(trainer)
        if trainer.ckpt_path is None:  # a resumed fit gets the optimizer of its checkpoint
            self.task_memory.coming, self._first_epoch = None, None
            self.task_memory.hand_over(optimizer, "this Continual", pl_module)
        self._rehearsed = False
        self._wrap(trainer, pl_module)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note where the task begins; a resumed task goes on."""
        if self._first_epoch is None:
            self._first_epoch, self._boundary_at = trainer.current_epoch, trainer.global_step

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        """Compare the first loss of a fit with the named likelihood, before the first step."""
        if self._heard is not None:
            (output, target), self._heard = self._heard, None
            self._hook.remove()
            _compare(pl_module, output, target, loss * trainer.accumulate_grad_batches, str(self._named))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Pass the boundaries of ``every``."""
        if self.every is not None and trainer.global_step >= self._boundary_at + self.every:
            self.task_memory.boundary(pl_module, self._optimizer(trainer))
            self._boundary_at = trainer.global_step

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Pass the task's boundary, unless one was just passed or no step was taken."""
        optimizer = self._optimizer(trainer)
        if trainer.global_step > self._boundary_at:
            self.task_memory.boundary(pl_module, optimizer)
        self.task_memory.note(optimizer, pl_module)
        self._first_epoch = None

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Pass the boundary where Lightning did not call ``on_train_end``: nothing was left."""
        if self._first_epoch is not None:
            self.on_train_end(trainer, pl_module)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remove the hooks from the module."""
        vars(pl_module).pop("on_after_batch_transfer", None)
        if self._hook is not None:
            self._hook.remove()
            self._hook = self._heard = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.task_memory.state_dict(),
            "first_epoch": self._first_epoch,
            "boundary_at": self._boundary_at,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.task_memory.load_state_dict(state_dict)
        self._first_epoch, self._boundary_at = state_dict["first_epoch"], state_dict["boundary_at"]

    def restore(self, path: str | PathLike[str]) -> None:
        """Restore memory and optimizer from a checkpoint saved after a ``fit``, in a new process.

        In the middle of a task, ``trainer.fit(model, data, ckpt_path=path)`` resumes.
        """
        saved = torch.load(path, map_location="cpu", weights_only=True)
        state = saved["callbacks"].get(self.state_key)
        if state is None:
            raise ValueError(f"{path} was saved without {self.state_key}; train with it among the callbacks")
        if state["first_epoch"] is not None:
            raise ValueError(f"{path} was saved in the middle of a task: resume it by fit(..., ckpt_path=...)")
        self.load_state_dict(state)
        self.task_memory.optimizer_state = saved["optimizer_states"][0] if state["boundaries"] else None

    def _optimizer(self, trainer: pl.Trainer) -> Any:
        found = [unwrapped(optimizer) for optimizer in trainer.optimizers]
        if len(found) != 1:
            raise ValueError(f"Continual goes with one optimizer; configure_optimizers() gives {len(found)}")
        return found[0]

    def _wrap(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Wrap the module's last hook before training_step: a callback may not replace a batch."""
        vars(module).pop("on_after_batch_transfer", None)
        theirs = module.on_after_batch_transfer

        def on_after_batch_transfer(batch: Any, dataloader_idx: int) -> Any:
            batch = theirs(batch, dataloader_idx)
            return self._batch(trainer, module, batch) if trainer.training else batch

        vars(module)["on_after_batch_transfer"] = on_after_batch_transfer
        if self._named is not None and self._hook is None:
            self._hook = module.register_forward_hook(self._hear, with_kwargs=True)

    def _batch(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any) -> Any:
        batch = pick_fields(batch, self.memory.keep)
        stored = move_batch(batch, "cpu")
        if trainer.current_epoch == self._first_epoch:
            self.task_memory.offer(stored)
        if not self._rehearsed:
            if has_boundaries(self._optimizer(trainer)):
                self.task_memory.rehearse(module, batch)
            self._rehearsed = True
        count = round(self.replay * get_batch_size(batch))
        if len(self.memory) and count:
            batch = join_batches(batch, self.memory.sample(count), self.memory.pad)
        if self._named is not None:
            self._target = read_batch(batch).target
        return batch

    def _hear(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if module.training and torch.is_grad_enabled() and self._rehearsed:
            self._heard = (output, self._target)


def _warn_of_disuse(messages: Sequence[str]) -> None:
    for message in messages:
        warnings.warn(f"{message}; nothing was replayed and no task consolidated", UserWarning, stacklevel=2)


def _compare(module: torch.nn.Module, output: Any, target: Tensor, loss: Tensor, name: str) -> None:
    """Raise unless the loss is -log p: its sum or its mean over samples or labels.

    For ``gaussian`` twice that is accepted as well.
    """
    with torch.no_grad():
        total = -Likelihood(module, name)(logits_of(output), target).sum()
        scored = target.numel() if target.is_floating_point() else int((target != IGNORED).sum())
        scales = {
            scale / count for scale in ((1, 2) if name == "gaussian" else (1,)) for count in (1, len(target), scored)
        }
        if not any(torch.isclose(total * scale, loss.to(total), rtol=1e-2) for scale in scales):
            mean = float(total) / max(1, scored)
            raise ValueError(
                f"{type(module).__name__}'s loss is {float(loss):.4g}, and -log p by log_likelihood={name!r} is "
                f"{mean:.4g}: the Fisher would be another model's. Name the likelihood of the loss, or give a function"
            )
