"""Training of a head alone: features of the frozen backbone are computed once in a task.

A task's samples are passed through the backbone before its first step, in order, and a replayed
sample by itself when it is first drawn: a task that is resumed computes the same bits. Where
``TMLN_FEATURES`` names a folder, features come from there in every pass, tests included.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.learner.forward import MaskedModel
from tmln.learner.task_data import Augment, skip_augmentation
from tmln.methods import Features, prepare_inputs
from tmln.methods.answers.feature_cache import FOLDER, FeatureCache, digest_rows
from tmln.methods.fine_tuning import ATTRIBUTE, FineTuning, find_fine_tuning
from tmln.progress import track
from tmln.streams.arrays import DatasetSource
from tmln.streams.augment import Normalise
from tmln.streams.samples import Samples, Source

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

LIMIT = 2**30  # bytes of features in memory; a task with more passes all of the model in every step


class HeadPass(nn.Module):
    """The training pass of a model whose backbone is frozen: known features go to the head alone.

    Args:
        masked: the model as components see it.
        network: the network in it that carries the fine-tuning.
        head: the name in ``network`` of the layer that gives the output.
        room: samples whose features are kept; where there are more, the model is passed whole.
    """

    def __init__(self, masked: nn.Module, network: nn.Module, head: str, room: int) -> None:
        super().__init__()
        self.masked, self.network, self.head, self.room = masked, network, head, room
        self.known: dict[bytes, Tensor] = {}
        self.computed = 0  # samples that were passed through the backbone

    def add(self, x: Tensor) -> None:
        """Compute the features of model inputs that are not known yet."""
        keys = digest_rows(b"", x)
        if all(key in self.known for key in keys):
            return
        stored = find_stored(self.masked)
        rows = compute_features(self.network, self.head, x) if stored is None else stored.features(x)
        self.known.update(zip(keys, rows, strict=True))
        self.computed += len(rows)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of model inputs."""
        keys = digest_rows(b"", x)
        missing = [row for row, key in enumerate(keys) if key not in self.known]
        if len(self.known) + len(missing) > self.room:
            whole: Tensor = self.masked(x)
            return whole
        for row in missing:
            self.add(x[row : row + 1])
        output: Tensor = self.network.get_submodule(self.head)(torch.stack([self.known[key] for key in keys]))
        return self.masked.close(output) if isinstance(self.masked, MaskedModel) else output


class StoredFeatures(nn.Module):
    """A model with a frozen backbone, whose features are kept in the folder of ``TMLN_FEATURES``.

    It has the model's own layers, under their names, so that a state has the same names with and
    without the folder.

    Args:
        model: the model.
        network: the network in it that carries the fine-tuning.
        tuning: the fine-tuning.
    """

    def __init__(self, model: nn.Module, network: nn.Module, tuning: FineTuning) -> None:
        super().__init__()
        self._modules, self._parameters, self._buffers = model._modules, model._parameters, model._buffers
        self.place = model, network, tuning.head  # in a tuple: they are not layers of this one
        if network is model:
            setattr(self, ATTRIBUTE, tuning)
        self.cache = FeatureCache()
        self.is_same: bool | None = None  # whether the head's output is the model's; None: not tried
        self.train(model.training)

    def features(self, x: Tensor) -> Tensor:
        """Return the features of model inputs, from the folder where they are known."""
        model, network, head = self.place
        layer = network.get_submodule(head)
        return self.cache.get(model, layer, x, lambda: compute_features(network, head, x), keep=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's output, computed by the head alone where that gives the same."""
        model, network, head = self.place
        if self.is_same is None:
            self.is_same = head_gives_output(model, network, head, x[:2])
        if self.is_same:
            try:
                found: Tensor = network.get_submodule(head)(self.features(x))
                return found
            except RuntimeError:  # inputs within a transform of torch.func have no values to look up
                pass
        whole: Tensor = model(x)
        return whole


def store_features(model: nn.Module) -> nn.Module:
    """Return the model, with its features kept on disk where its backbone is frozen."""
    found = find_fine_tuning(model)
    if FOLDER not in os.environ or found is None or found[1].freeze != "backbone":
        return model
    return StoredFeatures(model, *found)


def find_stored(model: nn.Module) -> StoredFeatures | None:
    """Return the :class:`StoredFeatures` that a model is or has in it."""
    return next((module for module in model.modules() if isinstance(module, StoredFeatures)), None)


@torch.no_grad()
def compute_features(network: nn.Module, head: str, x: Tensor) -> Tensor:
    """Return the inputs of the layer ``head`` in evaluation mode, [n, d]."""
    with preserve_model(network, training=False):
        return Features(head, "head").extract(network, x)[1]


@torch.no_grad()
def head_gives_output(model: nn.Module, network: nn.Module, head: str, x: Tensor) -> bool:
    """Return whether the layer ``head`` makes of the features what the model makes of ``x``."""
    with preserve_model(model, training=False):
        output, features = Features(head, "head").extract(network, x)
        try:
            same = torch.equal(network.get_submodule(head)(features), output)
        except RuntimeError:  # the features were flattened, and the head takes them as they were
            return False
        return same and (network is model or torch.equal(model(x), output))


def make_head_pass(learner: Learner, samples: Samples) -> HeadPass | None:
    """Return the pass for this task, without features yet; None where the model is passed whole.

    That is where weights of the backbone are trained, each epoch augments its samples anew (a data
    set of one's own might), something follows the head, features would take more than ``LIMIT``, or
    the pass is compiled, in half precision, in micro-batches or shared by several processes.
    """
    trained = learner.trained
    found = find_fine_tuning(learner.model)
    if found is None or found[1].freeze != "backbone" or not is_deterministic(learner.augment):
        return None
    if reads_dataset(samples.source) or trained.forward is not trained.masked:
        return None
    network, tuning = found
    x = prepare_inputs(learner.model, samples.gather(torch.arange(1))[0], learner.prepare)
    memory = getattr(learner.replay, "memory", None)
    count = len(samples) + (0 if memory is None else memory.capacity)
    size = compute_features(network, tuning.head, x).nbytes
    if count * size > LIMIT or not head_gives_output(network, network, tuning.head, x):
        return None
    return HeadPass(trained.masked, network, tuning.head, count)


def reads_dataset(source: Source) -> bool:
    """Return whether samples are read from a data set of torch, whose transforms may be random."""
    parts = getattr(source, "sources", None) or [inner for inner in [getattr(source, "source", None)] if inner]
    return isinstance(source, DatasetSource) or any(map(reads_dataset, parts))


def is_deterministic(augment: Augment) -> bool:
    """Return whether training inputs are the same in every epoch."""
    return isinstance(augment, Normalise) or (isinstance(augment, partial) and augment.func is skip_augmentation)


@contextmanager
def reuse_features(learner: Learner, samples: Samples) -> Iterator[None]:
    """Train on features that are computed once, within the block, where that gives the same."""
    trained, made = learner.trained, make_head_pass(learner, samples)
    if made is None:
        yield
        return
    count = -(-len(samples) // trained.rows_per_pass)
    numbers = track(range(count), "batches of features")
    for _, (x, _) in zip(numbers, samples.batches(trained.rows_per_pass), strict=True):
        made.add(prepare_inputs(learner.model, x, learner.prepare))
    before, trained.forward = trained.forward, made
    try:
        yield
    finally:
        if trained.forward is made:
            trained.forward = before
