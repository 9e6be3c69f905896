"""What a learner trains: model, components, and passes through the model, on Fabric's devices."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import nn

from tmln.distributed.data_parallel import DataParallel, has_batch_norm
from tmln.distributed.process_group import SINGLE, Ranks, ranks_of
from tmln.distributed.sharding import REMEDY, is_sharded_model, load_model_weights, shard_model
from tmln.learner.forward import (
    HALF_DTYPES,
    AutocastModel,
    Backward,
    LossScale,
    MaskedModel,
    MicroBatches,
    Precision,
    TaskHeads,
)
from tmln.learner.frozen_features import store_features
from tmln.methods import Component
from tmln.methods.recipes import FAMILIES, Recipe, make_components

MAX_ROWS = 256  # samples in a pass at a task's end, unless micro_batch is less
REPLICATED = ("SingleDeviceStrategy", "DDPStrategy")  # every rank has all weights
SHARDED = ("ModelParallelStrategy", "FSDPStrategy")  # every rank has a part of each weight


def place_model(model: nn.Module, fabric: Any, recipe: Recipe) -> Ranks:
    """Move the model to this process's device with the first rank's weights; return the ranks.

    Under a sharding strategy of Fabric the weights are sharded by FSDP2 over all its processes.
    """
    if fabric is None:
        return SINGLE
    if hasattr(model, "_forward_module"):
        raise TypeError("the model was set up by Fabric already; give the learner the plain one, and it does the rest")
    strategy = type(fabric.strategy).__name__
    if strategy not in (*REPLICATED, *SHARDED):
        raise ValueError(f"a learner does not work under Fabric's {strategy}: choose 'ddp', or 'fsdp' for shards")
    if strategy in SHARDED:
        check_shardable(recipe)
    model.to(fabric.device)
    if fabric.world_size == 1:
        return SINGLE
    ranks = ranks_of(None)
    if ranks.size != fabric.world_size:
        raise RuntimeError(f"Fabric has {fabric.world_size} processes, not started yet: call fabric.launch() first")
    model.load_state_dict(ranks.broadcast_object(lambda: {k: v.cpu() for k, v in model.state_dict().items()}))
    if strategy in SHARDED:
        shard_model(model, ranks, fabric.device)
    return ranks


def check_shardable(recipe: Recipe) -> None:
    """Raise if a component of the recipe needs full weights."""
    for family in FAMILIES:
        component, settings = recipe.resolve(family)
        if component.supports_fsdp_at(settings):
            continue
        choice = recipe.components[family]
        others = [name for name, other in FAMILIES[family].items() if other.supports_fsdp]
        given = ""
        if component.supports_fsdp:
            given = " with " + ", ".join(f"{name}={value!r}" for name, value in choice.settings.items())
        raise ValueError(
            f"strategy 'fsdp' shards the weights, and {family} {choice.name!r}{given} needs them whole: {REMEDY} "
            f"(--strategy ddp), or another {family} ({', '.join(others)})"
        )


def choose_precision(given: str | None, fabric: Any) -> Precision:
    """Return the given precision, or the Fabric's own."""
    name = given or str(getattr(getattr(fabric, "_precision", None), "precision", "32"))
    name = {"32-true": "32"}.get(name, name)
    if name not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {name!r}")
    return name  # type: ignore[return-value]


def micro_batch_size(batch_size: int, accumulate: int, ranks: Ranks) -> int | None:
    """Return the rows that a rank passes at once when a batch takes ``accumulate`` passes."""
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, got {accumulate}")
    return None if accumulate == 1 else max(1, -(-batch_size // (accumulate * ranks.size)))


def check_compile(model: nn.Module, ranks: Ranks, compile: bool, synced: bool) -> None:
    """Raise if the model would be compiled with batch norm synchronised over ranks."""
    has_norm = has_batch_norm(model)
    if ranks.size > 1 and compile and synced and has_norm:
        raise ValueError(
            "batch norm by the rows of all ranks cannot be compiled: leave compile out, or set batch_statistics='rank'"
        )


class Trained:
    """What is trained: the model, the components, and passes through the model.

    ``masked`` is the model as components see it, ``forward`` the training pass, ``backward`` the
    backward pass, ``first`` the first weights of a recipe that begins every task with them.
    """

    components: dict[str, Component[Any]]
    forward: nn.Module

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        lr: float,
        batch_size: int,
        seed: int,
        *,
        mask: bool,
        heads: Sequence[Sequence[int]],
        compile: bool,
        micro_batch: int | None,
        accumulate: int,
        fabric: Any,
        precision: Precision | None,
        batch_statistics: Literal["global", "rank"],
    ) -> None:
        self.model, self.recipe, self.lr, self.seed = model, recipe, lr, seed
        seen = model if compile or fabric is not None else store_features(model)
        self.masked: nn.Module = TaskHeads(seen, heads) if heads else MaskedModel(seen) if mask else seen
        self.compile, self.batch_statistics = compile, batch_statistics
        self.ranks = place_model(model, fabric, recipe)
        check_compile(model, self.ranks, compile, batch_statistics == "global")
        self.precision: Precision = choose_precision(precision, fabric)
        self.backward = Backward(self.ranks, LossScale() if self.precision == "16-mixed" else None)
        self.micro_batch = micro_batch_size(batch_size, accumulate, self.ranks) if micro_batch is None else micro_batch
        self.rows_per_pass = min(MAX_ROWS, self.micro_batch or MAX_ROWS)  # in passes that take no step
        self.make_forward()
        if heads:
            self.check_heads(batch_size)
        self.make_components()
        self.first = copy.deepcopy(model.state_dict()) if recipe.restarts_each_task else None

    def check_heads(self, batch_size: int) -> None:
        """Raise where a head for each task is not possible."""
        if self.ranks.size > 1 or (self.micro_batch or batch_size) < batch_size:
            raise ValueError("heads=per-task passes batches whole, on one device: leave out devices and micro-batches")
        for family in self.recipe.components:
            component, settings = self.recipe.resolve(family)
            if why := component.refuse_task_heads(settings):
                raise ValueError(f"{family} {component.name!r} {why}: choose another, or leave out heads=per-task")

    def make_components(self) -> None:
        """Make the components of the recipe anew."""
        self.components = make_components(self.recipe, self.masked, self.lr, self.seed)

    def restart(self) -> None:
        """Begin again at the first weights, where the recipe says so."""
        if self.first is not None:
            load_model_weights(self.model, self.first)
            self.make_components()

    def open_classes(self, classes: Sequence[int]) -> None:
        """Let these classes compete, where closed ones are masked."""
        if isinstance(self.masked, MaskedModel):
            self.masked.open(classes)

    def open_head(self, classes: Iterable[int]) -> None:
        """Let the head of the task with these classes compete, where every task has its own."""
        if isinstance(self.masked, TaskHeads):
            self.masked.open_head(tuple(classes))

    def limit_rows(self, rows: int | None) -> None:
        """Pass at most so many samples at a time from now on; None: all of a batch.

        With batch norm, whose batches are passed whole, that holds for the passes at a task's end
        and for tests.
        """
        has_norm = has_batch_norm(self.model)
        if rows is not None and not has_norm and isinstance(self.masked, TaskHeads):
            raise ValueError(
                f"heads=per-task passes batches whole, and only {rows} samples fit into memory: lower batch_size, or "
                "raise --memory-limit"
            )
        self.micro_batch, self.rows_per_pass = None if has_norm else rows, min(MAX_ROWS, rows or MAX_ROWS)
        self.make_forward()

    def make_forward(self) -> None:
        """Build the training pass: compiled, in mixed precision, in micro-batches, over ranks."""
        forward: nn.Module = torch.compile(self.masked) if self.compile else self.masked  # type: ignore[assignment]
        if self.precision != "32":
            forward = AutocastModel(forward, HALF_DTYPES[self.precision])
        if self.micro_batch is not None:
            forward = MicroBatches(forward, self.micro_batch, self.ranks if is_sharded_model(self.model) else SINGLE)
        if self.ranks.size > 1:
            forward = DataParallel(forward, self.ranks, self.batch_statistics == "global")
        self.forward = forward

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "forward"}  # compiled code stays here

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.make_forward()
