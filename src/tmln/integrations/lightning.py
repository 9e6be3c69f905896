"""Lightning: a callback that keeps the memory, replays it, and sees to the task boundaries of TMLN.

``pip install "tmln[lightning]"``. A task is a call of ``fit``::

    continual = Continual(memory=500)
    for task in tasks:
        Trainer(max_epochs=5, callbacks=[continual]).fit(model, task)
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from tmln.curvature.batches import logits_of, read_batch
from tmln.curvature.likelihoods import IGNORED, Likelihood, LogLikelihood
from tmln.integrations.keeping import Keeper, consolidates, unwrapped
from tmln.integrations.mixing import mixed, moved, size_of
from tmln.methods.replay import Reservoir
from tmln.methods.replay.fields import Pad

try:
    import lightning.pytorch as pl
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; this integration needs Lightning: pip install "tmln[lightning]"') from error


class Continual(pl.Callback):
    """One task after another, one ``fit`` each; the trainer may be a new one every time, the callback stays.

    Args:
        memory: how many samples are kept, or a :class:`tmln.Reservoir`. Samples are kept as the model sees them, each
            once (in the first epoch), on the CPU.
        replay: stored samples of earlier tasks that join a batch, for each sample of its own; 0: none.
        every: a boundary after every so many optimizer steps besides, in streams without tasks.
        log_likelihood: as in :func:`tmln.diagonal_fisher`, of ``module(*inputs)``, the batch without its last field,
            which is the target. A name is compared with the first loss.
        pad: as in :class:`tmln.Reservoir`, for sequences of many lengths.
        batch_size: of the pass that takes the Fisher.

    Lightning makes a new optimizer in every ``fit``; it gets the state of the one before, and keeps its own options.
    Any optimizer will do: one without ``consolidate`` gets the replay alone. Trainer(gradient_clip_val=...) clips what
    the path integral sees; ``TMLN(clip_norm=...)`` does not.
    """

    def __init__(
        self,
        memory: int | Reservoir = 500,
        *,
        replay: float = 1.0,
        every: int | None = None,
        log_likelihood: str | LogLikelihood | None = None,
        pad: Pad | None = None,
        batch_size: int = 128,
        seed: int = 0,
    ) -> None:
        if replay < 0:
            raise ValueError(f"replay={replay}: samples that join a batch, for each of its own; give 0 or more")
        if every is not None and every < 1:
            raise ValueError(f"every={every}: optimizer steps from a boundary to the next; give 1 or more, or None")
        kept = memory if isinstance(memory, Reservoir) else Reservoir(memory, seed, pad=pad)
        self.keeper = Keeper(kept, log_likelihood, batch_size)
        self.replay, self.every = replay, every
        self._named = log_likelihood if isinstance(log_likelihood, str) else None
        self._first_epoch: int | None = None  # of the task under way
        self._boundary_at = 0  # optimizer steps in all at the last boundary
        self._rehearsed = False
        self._target: Any = None
        self._heard: Any = None  # the first output of a fit, to compare its loss with
        self._hook: Any = None

    @property
    def memory(self) -> Reservoir:
        """What is replayed: the tasks before this one."""
        return self.keeper.memory

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Before anything moves: one process, one optimizer, and the state that it has to begin with."""
        if trainer.world_size > 1:
            raise ValueError(f"Continual keeps one memory, and there are {trainer.world_size} processes; use devices=1")
        optimizer = self._optimizer(trainer)
        if trainer.ckpt_path is None:  # a resumed fit gets the optimizer of its checkpoint
            self.keeper.coming, self._first_epoch = None, None
            self.keeper.hand_over(optimizer, "this Continual")
        self._rehearsed = False
        self._wrap(trainer, pl_module)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A task begins, or goes on in the middle."""
        if self._first_epoch is None:
            self._first_epoch, self._boundary_at = trainer.current_epoch, trainer.global_step

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        """The first loss of a fit must be what the likelihood's name says, before a step is taken by it."""
        if self._heard is not None:
            (output, target), self._heard = self._heard, None
            self._hook.remove()
            _compare(pl_module, output, target, loss * trainer.accumulate_grad_batches, str(self._named))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """The boundaries of ``every``."""
        if self.every is not None and trainer.global_step >= self._boundary_at + self.every:
            self.keeper.boundary(pl_module, self._optimizer(trainer))
            self._boundary_at = trainer.global_step

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The task's boundary, unless one was just passed or no step was taken."""
        optimizer = self._optimizer(trainer)
        if trainer.global_step > self._boundary_at:
            self.keeper.boundary(pl_module, optimizer)
        self.keeper.note(optimizer)
        self._first_epoch = None

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After a checkpoint of the last step nothing is left to train, and Lightning calls no ``on_train_end``."""
        if self._first_epoch is not None:
            self.on_train_end(trainer, pl_module)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """The module is as it was."""
        vars(pl_module).pop("on_after_batch_transfer", None)
        if self._hook is not None:
            self._hook.remove()
            self._hook = self._heard = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.keeper.state_dict(),
            "first_epoch": self._first_epoch,
            "boundary_at": self._boundary_at,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.keeper.load_state_dict(state_dict)
        self._first_epoch, self._boundary_at = state_dict["first_epoch"], state_dict["boundary_at"]

    def restore(self, path: str | PathLike[str]) -> None:
        """Go on with the next task, in a new process: memory and optimizer of a checkpoint saved after a ``fit``.

        In the middle of a task it is ``trainer.fit(model, data, ckpt_path=path)`` that resumes.
        """
        saved = torch.load(path, map_location="cpu", weights_only=True)
        state = saved["callbacks"].get(self.state_key)
        if state is None:
            raise ValueError(f"{path} was saved without {self.state_key}; train with it among the callbacks")
        if state["first_epoch"] is not None:
            raise ValueError(f"{path} was saved in the middle of a task: resume it by fit(..., ckpt_path=...)")
        self.load_state_dict(state)
        self.keeper.optimizer_state = saved["optimizer_states"][0] if state["boundaries"] else None

    def _optimizer(self, trainer: pl.Trainer) -> Any:
        found = [unwrapped(optimizer) for optimizer in trainer.optimizers]
        if len(found) != 1:
            raise ValueError(f"Continual goes with one optimizer; configure_optimizers() gives {len(found)}")
        return found[0]

    def _wrap(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """A callback may not replace a batch; the module's last hook on its way to training_step may."""
        vars(module).pop("on_after_batch_transfer", None)
        theirs = module.on_after_batch_transfer

        def on_after_batch_transfer(batch: Any, dataloader_idx: int) -> Any:
            batch = theirs(batch, dataloader_idx)
            return self._batch(trainer, module, batch) if trainer.training else batch

        vars(module)["on_after_batch_transfer"] = on_after_batch_transfer
        if self._named is not None and self._hook is None:
            self._hook = module.register_forward_hook(self._hear, with_kwargs=True)

    def _batch(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any) -> Any:
        stored = moved(batch, "cpu")
        if trainer.current_epoch == self._first_epoch:
            self.keeper.offer(stored)
        if not self._rehearsed:
            if consolidates(self._optimizer(trainer)):
                self.keeper.rehearse(module, batch)
            self._rehearsed = True
        count = round(self.replay * size_of(batch))
        if len(self.memory) and count:
            batch = mixed(batch, self.memory.sample(count), self.memory.pad)
        if self._named is not None:
            self._target = read_batch(batch).target
        return batch

    def _hear(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if module.training and torch.is_grad_enabled() and self._rehearsed:
            self._heard = (output, self._target)


def _compare(module: torch.nn.Module, output: Any, target: Tensor, loss: Tensor, name: str) -> None:
    """The loss is -log p, summed, or its mean over samples or scored labels; a normal one's also without its half."""
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
